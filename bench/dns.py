#!/usr/bin/env python3
"""Answers a second and CPU time of the example `dns` beside Debian's nsd, under dnsperf.

    bench/dns.py EXAMPLE ROUNDS > dns.json

Over loopback, and over a veth between two hosts; the server alone on CPU 1, dnsperf on CPU 0, 200 questions
under way, half of them for A and half for AAAA. The CPU time is that of the server's processes, in ticks of
10 ms. Over the veth the questions are received in the soft interrupts of dnsperf's CPU, and the answers in a
thread there. A round has one run of each server; ratios are those of one round. Needs root, nsd and dnsperf.
Prints a table to standard error.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import time

import two_hosts
from frames import threaded
from two_hosts import LOAD, SERVER, SERVER_ADDRESS, inside, spread

SECONDS = 3
PORTS = {"nsd": 5454, "recvmmsg": 5455, "recv": 5456, "io_uring": 5457, "af_xdp": 5458}
ZONE = """$ORIGIN example.org.
$TTL 60
@ SOA ns h 1 3600 600 86400 60
@ NS ns
ns A 192.0.2.1
a A 192.0.2.1
b AAAA 2001:db8::1
"""
NSD = """server:
  ip-address: {address}@{port}
  server-count: 1
  username: ""
  zonesdir: "{folder}"
  database: ""
  pidfile: "{folder}/pid"
  xfrdfile: "{folder}/xfrd"
  zonelistfile: "{folder}/list"
  logfile: "{folder}/log"
  rrl-ratelimit: 0
remote-control:
  control-enable: no
zone:
  name: example.org
  zonefile: zone
"""
# Address, whether between two hosts, and the servers.
PLACES = {
    "loopback": ("127.0.0.1", False, ["nsd", "recvmmsg", "recv", "io_uring"]),
    "veth": (SERVER_ADDRESS, True, ["nsd", "recvmmsg", "af_xdp"]),
}


def processes(pid):
    found = [pid]
    for child in subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True).stdout.split():
        found += processes(int(child))
    return found


def cpu_seconds(pids):
    ticks = 0
    for pid in pids:
        fields = open(f"/proc/{pid}/stat").read().rsplit(") ", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def run(server, address, is_apart, example, folder):
    at = lambda host, *words: inside(host, *words) if is_apart else list(words)
    # Each has a port of its own: the processes of nsd go some time after it, and the kernel closes a
    # socket of io_uring some time after its process.
    port, command = PORTS[server], ["nsd", "-d", "-c", f"{folder}/nsd.conf"]
    if server != "nsd":
        command = [example, f"{address}:{port}", "--backend", server]
    started = subprocess.Popen(at(SERVER, "taskset", "-c", "1", *command), stdout=subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    time.sleep(1)
    pids = processes(started.pid)
    try:
        before = cpu_seconds(pids)
        ask = ["taskset", "-c", "0", "dnsperf", "-s", address, "-p", str(port), "-d", f"{folder}/questions",
               "-l", str(SECONDS), "-q", "200"]
        told = subprocess.run(at(LOAD, *ask), capture_output=True, text=True, check=True).stdout
        after = cpu_seconds(pids)
    finally:
        started.terminate()
        started.wait()
    of = lambda line: float(re.search(line + r":\s+([\d.]+)", told).group(1))
    return {"answers_per_second": of("Queries per second"), "lost": of("Queries lost"),
            "cpu_us": 1e6 * (after - before) / of("Queries completed"),
            "latency_us": 1e6 * of(r"Average Latency \(s\)")}


def measure(place, rounds, example):
    address, is_apart, servers = PLACES[place]
    folder = tempfile.mkdtemp()
    for name, text in (("zone", ZONE), ("questions", "a.example.org A\nb.example.org AAAA\n"),
                       ("nsd.conf", NSD.format(address=address, port=PORTS["nsd"], folder=folder))):
        with open(f"{folder}/{name}", "w", encoding="utf-8") as file:
            file.write(text)
    runs = []
    for number in range(rounds):
        turn = number % len(servers)
        runs.append({server: run(server, address, is_apart, example, folder)
                     for server in servers[turn:] + servers[:turn]})
    for server in servers:
        column = lambda key, one=server: spread(round_[one][key] for round_ in runs)
        of_nsd = lambda key, one=server: spread(round_[one][key] / round_["nsd"][key] for round_ in runs)
        lost = sum(round_[server]["lost"] for round_ in runs)
        print(f"{place}: {server}: {column('answers_per_second')} answers/s, of nsd {of_nsd('answers_per_second')};"
              f" CPU us {column('cpu_us')}, of nsd {of_nsd('cpu_us')}; latency us {column('latency_us')};"
              f" lost {lost:.0f}", file=sys.stderr, flush=True)
    return {"place": place, "rounds": runs}


def main():
    example, rounds = os.path.abspath(sys.argv[1]), int(sys.argv[2])
    two_hosts.make()
    try:
        threaded(False)
        measured = [measure(place, rounds, example) for place in PLACES]
    finally:
        two_hosts.unmake()
    json.dump(measured, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
