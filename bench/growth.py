#!/usr/bin/env python3
"""What a look at a host costs as the host grows: `mpps doctor`, `top`, its JSON and the exporter.

    sudo bench/growth.py ROUNDS MPPS [OTHER...] > growth.json

Each size has a network namespace of its own: so many interfaces (veth pairs), UDP sockets, and processes
that share the sockets evenly. In a round the programs take turns at each command, A B A B. `beyond` is the
time that a command takes beyond the second that it was asked to look. `Ctrl-C` is the time from SIGINT to
the end of the doctor: in its first look, while it waits, and in its last look; the longest of the three.
The exporter has the CPU time of one look and the time of one scrape. Needs root, iproute2, python3, and
some 3 GB of memory for 5 000 processes. Prints a table to standard error. Removes what it made, also after
Ctrl-C.
"""
import ctypes
import gc
import json
import os
import resource
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

# Interfaces, sockets, processes.
SIZES = [
    (2, 0, 0),
    (64, 0, 0), (256, 0, 0), (1024, 0, 0),
    (2, 1_000, 500), (2, 10_000, 500), (2, 10_000, 5_000),
    (1024, 10_000, 5_000),
]
COMMANDS = {
    "doctor": ["doctor", "--seconds", "1"],
    "top": ["top", "--once"],
    "top --json": ["top", "--json", "--once"],
}
NAMESPACE = f"mpps-growth-{os.getpid()}"
FIRST_PORT = 10_000
LOOKS = 3
PR_SET_PDEATHSIG = 1


class Host:
    """A namespace of a size."""

    def __init__(self, interfaces, sockets, processes):
        self.holder = None
        try:
            self.make(interfaces, sockets, processes)
        except BaseException:
            self.unmake()
            raise

    def make(self, interfaces, sockets, processes):
        subprocess.run(["ip", "netns", "add", NAMESPACE], check=True)
        lines = ["link set lo up"]
        for pair in range(interfaces // 2):
            lines.append(f"link add a{pair} type veth peer name b{pair}")
            lines += [f"link set a{pair} up", f"link set b{pair} up"]
        subprocess.run(["ip", "-n", NAMESPACE, "-batch", "-"], check=True, text=True, input="\n".join(lines))
        if processes:
            words = ["ip", "netns", "exec", NAMESPACE, sys.executable, __file__, "hold", str(sockets), str(processes)]
            self.holder = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            assert self.holder.stdout.readline() == "held\n"

    def unmake(self):
        if self.holder:
            # Its children die with it.
            self.holder.kill()
            self.holder.wait()
        subprocess.run(["ip", "netns", "del", NAMESPACE], check=False)


def hold(sockets, processes):
    """Processes with sockets, until this one is killed."""
    parent = os.getpid()
    die_with_parent = ctypes.CDLL(None).prctl
    gc.freeze()
    ready, told = os.pipe()
    for process in range(processes):
        if os.fork() == 0:
            die_with_parent(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != parent:
                os._exit(0)
            kept = []
            for port in range(process, sockets, processes):
                one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                one.bind(("127.0.0.1", FIRST_PORT + port))
                kept.append(one)
            os.write(told, b".")
            signal.pause()
    left = processes
    while left:
        left -= len(os.read(ready, left))
    print("held", flush=True)
    signal.pause()


def start(mpps, words, **streams):
    return subprocess.Popen([mpps, *words, "--netns", NAMESPACE], **streams)


def beyond(mpps, words):
    """How many seconds a command takes beyond one, and its CPU time."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = start(mpps, words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    status = done.wait()
    took, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert status in (0, 1), f"{words}: {status}"
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"beyond_s": took - 1, "cpu_s": cpu}


def interrupted(mpps, after_start, after_said):
    """How long the doctor goes on after SIGINT, which it gets so long after its start, or after it has said
    that it looks."""
    doctor = start(mpps, ["doctor", "--seconds", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if after_start is not None:
        time.sleep(after_start)
    else:
        assert "Ctrl-C" in doctor.stderr.readline()
        time.sleep(after_said)
    doctor.send_signal(signal.SIGINT)
    began = time.monotonic()
    doctor.communicate()
    return time.monotonic() - began


def exporter(mpps):
    """The CPU time of a look, the time of a scrape, and the length of what it tells."""
    running = start(mpps, ["top", "--listen", "127.0.0.1:0"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        line = next(line for line in running.stderr if "answering at" in line)
        address = line.split("answering at ")[1].split(";")[0]

        def cpu():
            with open(f"/proc/{running.pid}/schedstat") as of_main_thread:
                return int(of_main_thread.read().split()[0]) / 1e9

        time.sleep(1.5)
        before = cpu()
        # A look comes a second after the end of the one before; the sleep has some of them.
        time.sleep(LOOKS * 1.2)
        spent, began = cpu() - before, time.monotonic()
        told = urllib.request.urlopen(address, timeout=60).read()
        return {"cpu_s_per_s": spent / (LOOKS * 1.2), "scrape_s": time.monotonic() - began, "bytes": len(told)}
    finally:
        running.kill()
        running.communicate()


def measure(mpps):
    found = {name: beyond(mpps, words) for name, words in COMMANDS.items()}
    first = max(found["doctor"]["beyond_s"] / 4, 0.01)
    found["interrupt_s"] = {
        "first look": interrupted(mpps, first, None),
        "wait": interrupted(mpps, None, 0.3),
        "last look": interrupted(mpps, None, 1.0 + first),
    }
    found["exporter"] = exporter(mpps)
    return found


def median(runs, of):
    return statistics.median(of(run) for run in runs)


def tell(runs, programs):
    print(f"{'interfaces sockets processes':<29} {'program':<24} {'doctor':>8} {'Ctrl-C':>8} {'top':>8} {'json':>8} "
          f"{'exporter':>9} {'scrape':>8}", file=sys.stderr)
    print(f"{'':<54} {'beyond, seconds: median of rounds':<36} {'CPU s/s':>9} {'s':>8}", file=sys.stderr)
    for size in SIZES:
        for program in programs:
            of = [run["found"] for run in runs if run["size"] == list(size) and run["program"] == program]
            if not of:
                continue
            cells = [median(of, lambda run, name=name: run[name]["beyond_s"]) for name in COMMANDS]
            ctrl_c = median(of, lambda run: max(run["interrupt_s"].values()))
            name = "%10d %7d %9d" % size
            print(f"{name:<29} {program[-24:]:<24} {cells[0]:>8.2f} {ctrl_c:>8.3f} {cells[1]:>8.2f} {cells[2]:>8.2f} "
                  f"{median(of, lambda run: run['exporter']['cpu_s_per_s']):>9.3f} "
                  f"{median(of, lambda run: run['exporter']['scrape_s']):>8.3f}", file=sys.stderr)


def main():
    rounds, programs = int(sys.argv[1]), sys.argv[2:]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    runs = []
    for size in SIZES:
        host = Host(*size)
        try:
            for number in range(rounds):
                for program in programs:
                    load = os.getloadavg()[0]
                    runs.append({"size": list(size), "round": number, "program": program, "load": load,
                                 "found": measure(program)})
                    print(f"{size} {number} {program}", file=sys.stderr)
        finally:
            host.unmake()
    tell(runs, programs)
    json.dump({"kernel": os.uname().release, "cpus": os.cpu_count(), "looks": LOOKS, "runs": runs}, sys.stdout, indent=1)


if sys.argv[1] == "hold":
    hold(int(sys.argv[2]), int(sys.argv[3]))
else:
    main()
