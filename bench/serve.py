#!/usr/bin/env python3
"""CPU time of a server per short connection, by its engine: `mpps serve` under ab over loopback.

    bench/serve.py MPPS ROUNDS > serve.json

One worker on CPU 1, ab on CPU 0. A round has one run of each server; ratios are those of one round to the
baseline of the 2014 paper, plain epoll. `accept_loop` is bench/accept_loop.c: four calls a connection and
nothing else. Over loopback a side's system calls also do the other's receiving. Prints a table to
standard error.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

CONNECTIONS, AT_ONCE, PORT = 60_000, 64, 8089
SERVERS = {
    "epoll, no switches": ["--engine", "epoll", "--no-switches"],
    "epoll": ["--engine", "epoll"],
    "io_uring, no switches": ["--engine", "io_uring", "--no-switches"],
    "io_uring": ["--engine", "io_uring"],
    "accept_loop": None,
}


def cpu_seconds(pid):
    """User and system time: all threads, to a tick of 10 ms."""
    fields = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
    tick = os.sysconf("SC_CLK_TCK")
    return int(fields[11]) / tick, int(fields[12]) / tick


def run(command):
    server = subprocess.Popen(["taskset", "-c", "1", *command], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)
    try:
        ab = ["taskset", "-c", "0", "ab", "-q", "-c", str(AT_ONCE)]
        url = f"http://127.0.0.1:{PORT}/"
        for attempt in range(50):
            if subprocess.run(ab + ["-n", "1000", url], capture_output=True).returncode == 0:
                break
            time.sleep(0.1)
        before = cpu_seconds(server.pid)
        told = subprocess.run(ab + ["-n", str(CONNECTIONS), url], capture_output=True, text=True,
                              check=True).stdout
        after = cpu_seconds(server.pid)
    finally:
        server.terminate()
        server.wait()
    lines = dict(line.split(":", 1) for line in told.splitlines() if ":" in line)
    assert int(lines["Complete requests"]) == CONNECTIONS and int(lines["Failed requests"]) == 0, told
    user, system = (1e6 * (b - a) / CONNECTIONS for a, b in zip(before, after))
    return {"user_us": user, "system_us": system, "us": user + system,
            "cps": float(lines["Requests per second"].split()[0])}


def main():
    mpps, rounds = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    folder = tempfile.mkdtemp()
    floor = os.path.join(folder, "accept_loop")
    source = os.path.join(os.path.dirname(os.path.abspath(__file__)), "accept_loop.c")
    subprocess.run(["cc", "-O2", "-o", floor, source], check=True)
    runs = []
    for number in range(rounds):
        for name, options in SERVERS.items():
            serve = [mpps, "serve", f"127.0.0.1:{PORT}", "--workers", "1", "--pin", "1"]
            command = [floor, str(PORT)] if options is None else serve + options
            runs.append({"round": number, "server": name, **run(command)})
    json.dump({"connections": CONNECTIONS, "at_once": AT_ONCE, "runs": runs}, sys.stdout, indent=1)
    of = lambda name, key: [one[key] for one in runs if one["server"] == name]
    base = of("epoll, no switches", "us")
    print("server, CPU us a connection (user, system), of plain epoll, CPS", file=sys.stderr)
    for name in SERVERS:
        ratios = [mine / its for mine, its in zip(of(name, "us"), base)]
        medians = [statistics.median(of(name, key)) for key in ("us", "user_us", "system_us", "cps")]
        print(f"{name:22} {medians[0]:6.1f} ({medians[1]:.1f}, {medians[2]:.1f})  "
              f"{statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})  {medians[3]:.0f}",
              file=sys.stderr)


main()
