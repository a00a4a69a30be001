#!/usr/bin/env python3
"""How many frames an AF_XDP ring should have: `mpps recv --ring N`, and the least C program, over veth.

    bench/frames.py MPPS FOLDER_OF_C_PROGRAMS ROUNDS > frames.json

Needs live_frames.c and xsk_recycle.c of this folder, compiled, and root. The kernel's own generator
sends on CPU 0, where the veth's queue is polled, too; the receiver has CPU 1. Conditions: a flood, the
same of long packets, a tenth of the flood, and bursts of 4096 packets after some milliseconds of
silence (the kernel needs as long to set a run of its generator up); and a flood where the queue is
polled on the receiver's CPU. `mpps auto` is without --ring. A round has one run of each receiver; ratios
are those of one round. Prints a table to standard error.
"""
import json
import signal
import subprocess
import sys
import time

import two_hosts
from two_hosts import LOAD, SERVER, SERVER_ADDRESS, inside, spread

SECONDS = 0.5
RECEIVERS = ["mpps auto", "mpps 512", "mpps 1024", "mpps 4096"]
IN_C = ["C 512", "C 4096"]
USUAL = "mpps 4096"
# Name, how `mpps recv` waits and how the C program does, frame bytes, burst and pause of the generator,
# whether the queue is polled on CPU 1.
CONDITIONS = [
    ("flood, spin", "spin", "spin", 74, [], False),
    ("flood, auto", "auto", None, 74, [], False),
    ("flood of 1514 bytes, spin", "spin", "spin", 1514, [], False),
    ("flood of 1514 bytes, auto", "auto", None, 1514, [], False),
    ("flood, queue on the receiver's CPU, auto", "auto", None, 74, [], True),
    ("a tenth, auto", "auto", None, 74, None, False),
    ("bursts of 4096, auto", "auto", None, 74, ["4096", "1000"], False),
    ("bursts of 4096, spin", "spin", "spin", 74, ["4096", "1000"], False),
]


def hardware_address(host, link):
    shown = subprocess.run(["ip", "-n", host, "-j", "link", "show", link], capture_output=True, check=True)
    return json.loads(shown.stdout)[0]["address"]


def threaded(is_threaded):
    path = "/sys/class/net/vb/threaded"
    two_hosts.run(*inside(SERVER, "sh", "-c", f"echo {int(is_threaded)} > {path}"))
    if is_threaded:
        time.sleep(0.2)
        threads = subprocess.run(["pgrep", "napi/vb"], capture_output=True, text=True).stdout.split()
        for thread in threads:
            two_hosts.run("taskset", "-pc", "1", thread)


def start(receiver, wait, mpps, programs):
    who, frames = receiver.split()
    if who == "mpps":
        command = [mpps, "recv", f"{SERVER_ADDRESS}:4321", "--backend", "af_xdp", "--all-traffic",
                   "--threads", "1", "--pin", "1", "--wait", wait, "--json"]
        command += ["--ring", frames] if frames != "auto" else []
    else:
        command = [f"{programs}/xsk_recycle", "vb", "1", wait, frames]
    started = subprocess.Popen(inside(SERVER, *command), stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
    time.sleep(0.4)
    return started


def run(receiver, wait, frame_bytes, bursts, mpps, programs):
    started = start(receiver, wait, mpps, programs)
    target, source = hardware_address(SERVER, "vb"), hardware_address(LOAD, "va")
    if bursts is None:
        # The receiver takes ARP, too.
        generate = [mpps, "send", f"{SERVER_ADDRESS}:4321", "--backend", "xdp", "--target-mac", target, "--pin", "0",
                    "--rate", "250k", "--duration", f"{int(SECONDS * 1000)}ms", "--json"]
    else:
        generate = [f"{programs}/live_frames", "va", target, source, "0", str(SECONDS), str(frame_bytes), *bursts]
    sent = subprocess.run(inside(LOAD, *generate), capture_output=True, check=True, text=True)
    sent = json.loads(sent.stdout.splitlines()[-1])
    time.sleep(0.1)
    started.send_signal(signal.SIGINT)
    told = json.loads(started.communicate()[0].splitlines()[-1])
    # A queue is busy for a moment after its socket was closed.
    time.sleep(0.3)
    thread = told.get("threads", [{}])[0]
    return {"sent": sent["sent"], "received": told["received"],
            "mpps": told["received"] / sent["active_seconds"] / 1e6,
            # For want of a frame; what else is lost, the veth's own ring had no room for.
            "socket_drops": thread.get("socket_drops"),
            "cpu_ns": thread.get("cpu_ns_per_packet"), "fill_depth": thread.get("fill_depth")}


def measure(condition, rounds, mpps, programs):
    name, wait, wait_in_c, frame_bytes, bursts, is_shared = condition
    threaded(is_shared)
    receivers = RECEIVERS + (IN_C if wait_in_c else [])
    runs = []
    for number in range(rounds):
        turn = number % len(receivers)
        runs.append({receiver: run(receiver, wait_in_c if receiver.startswith("C") else wait,
                                   frame_bytes, bursts, mpps, programs)
                     for receiver in receivers[turn:] + receivers[:turn]})
    for receiver in receivers:
        def column(key, to=None, receiver=receiver):
            values = [(one[receiver][key], one[to][key] if to else 1) for one in runs]
            values = [a / b for a, b in values if a and b]
            return spread(values) if values else "-"
        lost = spread(1 - one[receiver]["received"] / one[receiver]["sent"] for one in runs)
        no_frame = sum(one[receiver]["socket_drops"] or 0 for one in runs)
        print(f"{name}: {receiver}: {column('mpps')} Mpps, of {USUAL} {column('mpps', USUAL)}; lost {lost},"
              f" {no_frame} for want of a frame;"
              f" CPU ns {column('cpu_ns')}, of {USUAL} {column('cpu_ns', USUAL)}", file=sys.stderr, flush=True)
    return {"condition": name, "rounds": runs}


def main():
    mpps, programs, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    two_hosts.make()
    try:
        measured = [measure(one, rounds, mpps, programs) for one in CONDITIONS]
    finally:
        two_hosts.unmake()
    json.dump(measured, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
