#!/usr/bin/env python3
"""`mpps recv` and `mpps send` beside bare loops in C, and the kernel's generator beside bare live frames.

    bench/bare.py MPPS FOLDER_OF_C_PROGRAMS PAIRS > bare.json

Needs recvmmsg.c, sendmmsg.c, live_frames.c and xdp_drop.c of this folder, compiled, and root. The sender
has CPU 0 and the receiver CPU 1, as in the lab; of generators the frames are dropped on the sender's.
`bench/frames.py` has the rings. A pair is one run of each side; ratios are those of one pair. Prints a
table to standard error.
"""
import json
import re
import signal
import subprocess
import sys
import time

import two_hosts
from frames import hardware_address, threaded
from two_hosts import LOAD, SERVER, SERVER_ADDRESS, inside, spread

SECONDS = "1.5"
PORT = "4321"
# Time for a receiver to be there, and for the last packets to arrive.
PAUSE = 0.2
FIGURES = ["received_mpps", "sent_mpps", "cpu_ns", "resident_kib_half_way", "resident_kib"]


def cpu_ns(process):
    tasks = subprocess.run(f"cat /proc/{process}/task/*/schedstat", shell=True, capture_output=True, text=True)
    return sum(int(line.split()[0]) for line in tasks.stdout.splitlines())


def resident_kib(process):
    with open(f"/proc/{process}/status") as status:
        return int(re.search(r"VmRSS:\s+(\d+)", status.read())[1])


def last_object(text):
    return json.loads(text.splitlines()[-1])


def rate(told, count):
    return told[count] / told["active_seconds"] / 1e6


def run(to, receive, send):
    """One side of a pair: the receiver, then the sender, then the sums."""
    sender, receiver = (SERVER, SERVER) if to == "127.0.0.1" else (LOAD, SERVER)
    started = subprocess.Popen(inside(receiver, *receive), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               text=True)
    time.sleep(PAUSE)
    # From here on: starting up is not what the packets cost.
    before = cpu_ns(started.pid)
    sending = subprocess.Popen(inside(sender, *send), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    time.sleep(PAUSE)
    half_way = resident_kib(started.pid)
    sent = last_object(sending.communicate()[0])
    time.sleep(PAUSE)
    # Nothing moves any more: what the process has used is what the packets cost.
    used, resident = cpu_ns(started.pid) - before, resident_kib(started.pid)
    started.send_signal(signal.SIGINT)
    told = last_object(started.communicate()[0])
    return {"received_mpps": rate(told, "received"), "sent_mpps": rate(sent, "sent"),
            "cpu_ns": used / told["received"], "resident_kib_half_way": half_way, "resident_kib": resident}


def dropped():
    shown = subprocess.run(inside(SERVER, "ethtool", "-S", "vb"), capture_output=True, check=True, text=True)
    return sum(map(int, re.findall(r"rx_queue_\d+_xdp_drops: (\d+)", shown.stdout)))


def generate(send):
    """One side of a pair of generators: what was dropped on arrival is what was received."""
    before = dropped()
    ended = subprocess.run(inside(LOAD, *send), capture_output=True, check=True, text=True)
    sent = last_object(ended.stdout)
    time.sleep(PAUSE)
    return {"received_mpps": (dropped() - before) / sent["active_seconds"] / 1e6, "sent_mpps": rate(sent, "sent")}


def compare(name, pairs, ours, theirs):
    runs = [(ours(), theirs()) for _ in range(pairs)]
    print(name, file=sys.stderr)
    for figure in [figure for figure in FIGURES if figure in runs[0][0]]:
        both = [(ours[figure], theirs[figure]) for ours, theirs in runs]
        print(f"  {figure:<22} A {spread(a for a, _ in both)}   B {spread(b for _, b in both)}   "
              f"A/B {spread((a / b for a, b in both), 3)}", file=sys.stderr, flush=True)
    return {"name": name, "pairs": runs}


def measure(mpps, programs, pairs):
    def recv(*more):
        return [mpps, "recv", f"0.0.0.0:{PORT}", "--pin", "1", "--json", *more]

    def send(to, *more):
        return [mpps, "send", f"{to}:{PORT}", "--pin", "0", "--duration", f"{SECONDS}s", "--json", *more]

    def bare_send(to):
        return [f"{programs}/sendmmsg", to, PORT, "0", SECONDS]

    bare_recv = [f"{programs}/recvmmsg", "0.0.0.0", PORT, "1"]
    veth, loopback = SERVER_ADDRESS, "127.0.0.1"
    overload = send(veth, "--gso", "4")
    for name, to, ours, theirs in [
            ("receive: mpps recv / bare recvmmsg in C", veth, (recv(), overload), (bare_recv, overload)),
            ("receive: mpps recv -v / bare recvmmsg in C", veth, (recv("-v"), overload), (bare_recv, overload)),
            ("send: mpps send / bare sendmmsg in C", veth, (recv(), send(veth)), (recv(), bare_send(veth))),
            ("loopback: --gso 64 to --gro / bare sendmmsg to bare recvmmsg in C", loopback,
             (recv("--gro"), send(loopback, "--gso", "64")), (bare_recv, bare_send(loopback)))]:
        yield compare(name, pairs, lambda: run(to, *ours), lambda: run(to, *theirs))
    threaded(False)
    sink = subprocess.Popen(inside(SERVER, f"{programs}/xdp_drop", "vb"))
    time.sleep(PAUSE)
    one = send(veth, "--backend", "xdp")
    bare = [f"{programs}/live_frames", "va", hardware_address(SERVER, "vb"), hardware_address(LOAD, "va"), "0",
            SECONDS]
    yield compare("generate: mpps send --backend xdp / redirected live frames in C", pairs,
                  lambda: generate(one), lambda: generate(bare))
    yield compare("generate: mpps send --backend xdp, 1024 flows / 1 flow", pairs,
                  lambda: generate([*one, "--flows", "1024"]), lambda: generate(one))
    sink.terminate()


def main():
    mpps, programs, pairs = sys.argv[1], sys.argv[2], int(sys.argv[3])
    two_hosts.make()
    try:
        json.dump(list(measure(mpps, programs, pairs)), sys.stdout, indent=1)
    finally:
        two_hosts.unmake()


main()
