#!/usr/bin/env python3
"""mpps load against ab and wrk: rate and CPU time per request, interleaved rounds, median and spread.

    sudo bench/loaders.py MPPS [ROUNDS] [--loopback]

The load has CPU 0 and `mpps serve --size 1k` CPU 1. They are on two hosts in network namespaces,
joined by a veth whose queues are kernel threads of these CPUs, so that each side pays for its own
packets; with --loopback they share one, and a sender pays for what its packets cost the receiver.
CPU time is that of the load's process (getrusage). Needs root, iproute2, ethtool, ab and wrk.
"""
import json
import os
import resource
import subprocess
import sys
import time

from two_hosts import LOAD, SERVER, SERVER_ADDRESS, inside, make, spread, unmake

MPPS = sys.argv[1]
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 7
LOOPBACK = "--loopback" in sys.argv
ADDRESS = "127.0.0.1:8099" if LOOPBACK else f"{SERVER_ADDRESS}:8099"
URL = f"http://{ADDRESS}/"


def of_ab(text):
    lines = {name: rest.split()[0] for name, _, rest in (line.partition(":") for line in text.split("\n")) if rest.strip()}
    return int(lines["Complete requests"]), float(lines["Requests per second"])


def of_wrk(text):
    total = next(line for line in text.split("\n") if " requests in " in line)
    rate = next(line for line in text.split("\n") if line.startswith("Requests/sec"))
    return int(total.split()[0]), float(rate.split()[1])


def of_mpps(text):
    result = json.loads(text.strip().split("\n")[-1])
    ledger = result["ledger"]
    return ledger.get("requests", ledger)["completed"], result["requests_per_second"]


def mpps(*more):
    return [MPPS, "load", URL, "--connections", "64", "--duration", "2s", "--pin", "0", "--json", *more], of_mpps


def wrk(*more):
    return ["taskset", "-c", "0", "wrk", "-t1", "-c64", "-d2s", *more, URL], of_wrk


LOADS = {
    "ab close": (["taskset", "-c", "0", "ab", "-q", "-n", "60000", "-c", "64", URL], of_ab),
    "wrk close": wrk("-H", "Connection: close"),
    "mpps io_uring close": mpps(),
    "mpps epoll close": mpps("--engine", "epoll"),
    "wrk keep-alive": wrk(),
    "mpps io_uring keep-alive": mpps("--keep-alive"),
    "mpps epoll keep-alive": mpps("--keep-alive", "--engine", "epoll"),
}


def measure(command, parse):
    def cpu():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = cpu()
    done = subprocess.run(inside(LOAD if not LOOPBACK else SERVER, *command), capture_output=True, text=True)
    requests, rate = parse(done.stdout)
    return rate, (cpu() - before) / requests * 1e6


def main():
    make()
    server = subprocess.Popen(inside(SERVER, MPPS, "serve", ADDRESS, "--size", "1k", "--pin", "1"),
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        time.sleep(1)
        runs = {name: [] for name in LOADS}
        for _ in range(ROUNDS):
            for name, load in LOADS.items():
                runs[name].append(measure(*load))
    finally:
        server.terminate()
        server.wait()
        unmake()
    where = "loopback" if LOOPBACK else "two hosts"
    print(f"Linux {os.uname().release}, {where}, {ROUNDS} interleaved rounds")
    for name, of in runs.items():
        rates, costs = zip(*of)
        print(f"{name:<26} requests/s {spread(rates):<40} CPU us per request {spread(costs)}")
    for name in LOADS:
        if name.startswith("mpps"):
            for other in (other for other in LOADS if not other.startswith("mpps") and other.split()[-1] == name.split()[-1]):
                pairs = list(zip(runs[name], runs[other]))
                print(f"{name} / {other}: rate {spread(a[0] / b[0] for a, b in pairs)}, "
                      f"CPU {spread(a[1] / b[1] for a, b in pairs)}")


main()
