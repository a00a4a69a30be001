#!/usr/bin/env python3
"""The same echo and drop programs on tokio, `xsk-rs`, `xdp` and `mpps-io`, interleaved, over a veth.

    bench/peers/run.py MPPS PROGRAMS ROUNDS SECONDS FOLDER

MPPS is the program of this repository, PROGRAMS the folder with those of this workspace. Writes
raw.json and summary.txt into FOLDER. Needs root, iproute2, ethtool and nft. README.md says what is
measured.
"""
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import hosts
import table

HERE = pathlib.Path(__file__).parent
SERVER = "10.9.0.2:7777"
# Name, program, options.
PEERS = [
    ("tokio", "peer-tokio", []),
    ("mpps-io recv", "peer-mpps-io", ["--backend", "recv"]),
    ("mpps-io recvmmsg", "peer-mpps-io", ["--backend", "recvmmsg"]),
    ("mpps-io recvmmsg, block", "peer-mpps-io", ["--backend", "recvmmsg", "--wait", "block"]),
    ("mpps-io io_uring", "peer-mpps-io", ["--backend", "io_uring"]),
    ("xsk-rs", "peer-xsk-rs", ["--interface", hosts.SERVER_LINK]),
    ("xdp", "peer-xdp", ["--interface", hosts.SERVER_LINK]),
    ("mpps-io af_xdp", "peer-mpps-io", ["--backend", "af_xdp"]),
    ("mpps-io af_xdp, block", "peer-mpps-io", ["--backend", "af_xdp", "--wait", "block"]),
]
# Name, mode, whether the receive queue is a thread on the server's CPU.
CONDITIONS = [
    ("drop", "drop", False),
    ("drop, one CPU", "drop", True),
    ("echo", "echo", False),
    ("round trip", "echo", False),
]
RTT_RATE = 10_000


class Bench:
    def __init__(self, mpps, programs, seconds):
        self.mpps, self.programs, self.seconds = mpps, pathlib.Path(programs), seconds

    def start(self, peer, mode, *options):
        """Starts a program and waits until it receives. The kernel frees the queue of a socket late,
        and then refuses the next one."""
        _, program, own = peer
        words = [str(self.programs / program), mode, SERVER, *own, *map(str, options)]
        for _ in range(20):
            server = subprocess.Popen(hosts.inside(hosts.SERVER, "taskset", "-c", "1", *words),
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            if server.stdout.readline() == "ready\n":
                return server
            error = server.communicate()[1]
            if "busy" not in error:
                break
            time.sleep(0.1)
        sys.exit(f"{peer[0]}: {error}")

    def end(self, server, interrupt=False):
        if interrupt:
            server.send_signal(signal.SIGINT)
        out, error = server.communicate(timeout=60)
        if server.returncode != 0:
            sys.exit(error)
        return json.loads(out)

    def load(self, *words):
        """Runs a program on the sender's CPU; tells the last line that it prints."""
        words = hosts.inside(hosts.LOAD, "taskset", "-c", "0", *map(str, words))
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(f"{' '.join(words)}: {done.stderr}")
        return json.loads(done.stdout.splitlines()[-1])

    def ask(self, *words):
        """Runs the client of round trips."""
        return self.load(self.programs / "peer-rtt", SERVER, *words)

    def flood(self):
        """Sends as fast as the kernel's generator can, for longer than a program measures."""
        duration = f"{self.seconds + 0.3:.3f}s"
        return self.load(self.mpps, "send", SERVER, "--backend", "xdp", "--json", "--duration", duration,
                         "--source-port", hosts.SOURCE_PORT)["offered"]

    def check(self, peer, mode):
        """1000 datagrams of 8 to 1471 bytes: each is counted once, and its echo is what was sent."""
        server = self.start(peer, mode, "--count", 1000, "--seconds", 10)
        client = self.ask(2000, 1000, "varied")
        counted = self.end(server)
        echoes = 1000 if mode == "echo" else 0
        found = (counted["received"], counted["sent"], client["echoed"], client["wrong"])
        if found != (1000, echoes, echoes, 0):
            sys.exit(f"{peer[0]}, {mode}: {client} {counted}")

    def measure(self, peer, condition):
        name, mode, threaded = condition
        beside = hosts.deliver(threaded)
        options = ["--beside", beside] if beside else []
        before = hosts.returned()
        if name == "round trip":
            server = self.start(peer, mode, "--seconds", 60)
            asked = self.ask(RTT_RATE, int(RTT_RATE * self.seconds), 64)
            if asked["wrong"]:
                sys.exit(f"{peer[0]}: {asked}")
            result = self.end(server, interrupt=True)
        else:
            server = self.start(peer, mode, "--seconds", self.seconds, *options)
            asked = {"offered": self.flood()}
            result = self.end(server)
        window = result["window"]
        result.update(asked, returned=hosts.returned() - before)
        # What was sent and what came back differ where a program cannot know of a loss.
        moved = window["received"]
        if name == "echo":
            moved = window["sent"] * result["returned"] / max(result["sent"], 1)
        result["pps"] = moved / window["seconds"]
        result["cpu_ns"] = window["cpu_ns"] / max(moved, 1)
        result["cpu_with_queue_ns"] = (window["cpu_ns"] + window["beside_ns"]) / max(moved, 1)
        return result


def lines_of_code():
    """Lines of each program's own files that are neither blank nor a comment, and its unsafe blocks."""
    counted = {}
    for program in ("mpps-io", "tokio", "xdp", "xsk-rs"):
        files = [file for kind in ("*.rs", "*.c") for file in (HERE / program).rglob(kind)]
        text = "\n".join(file.read_text() for file in sorted(files))
        lines = [line for line in text.splitlines() if line.strip()]
        code = [line for line in lines if not line.lstrip().startswith("//")]
        unsafe = len(re.findall(r"\bunsafe \{", "\n".join(code)))
        counted[program] = {"lines": len(code), "unsafe_blocks": unsafe}
    return counted


def cpu():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.split(": ", 1)[1] for line in lines if line.startswith("model name")]
    return f"{models[0] if models else 'unknown'}, {len(models)} CPUs"


def main():
    mpps, programs, rounds, seconds, folder = sys.argv[1:]
    # So that the hosts are unmade.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    started = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
    bench = Bench(mpps, programs, float(seconds))
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    conditions = {condition[0]: [] for condition in CONDITIONS}
    hosts.make()
    try:
        for peer in PEERS:
            for mode in ("drop", "echo"):
                bench.check(peer, mode)
            print(f"{peer[0]}: of 1000 datagrams all were counted, and came back", file=sys.stderr)
        for number in range(int(rounds)):
            first = number % len(PEERS)
            order = PEERS[first:] + PEERS[:first]
            for condition in CONDITIONS:
                runs = {peer[0]: bench.measure(peer, condition) for peer in order}
                conditions[condition[0]].append(runs)
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
    finally:
        hosts.unmake()
    raw = {"kernel": os.uname().release, "cpu": cpu(), "started": started,
           "code": lines_of_code(), "conditions": conditions}
    (folder / "raw.json").write_text(json.dumps(raw, indent=1))
    summary = table.summary(raw)
    (folder / "summary.txt").write_text(summary)
    print(summary)


main()
