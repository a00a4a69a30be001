#!/usr/bin/env python3
"""How receivers wait: `mpps recv --wait` auto, spin and block, interleaved, over loopback.

    bench/waiting.py MPPS ROUNDS > waiting.json

Conditions: a flood from another CPU, and from the receiver's own; a tenth of the flood and 10 000 a
second, datagram by datagram; nothing at all. A round has one run of each way; ratios are those of one
round. Prints a table to standard error.
"""
import json
import resource
import statistics
import subprocess
import sys
import time

WAYS = ["spin", "block", "auto"]
# Name, backend, rate in thousands a second (None: as fast as possible), the sender's CPU.
CONDITIONS = [
    ("flood", "recvmmsg", None, "0"),
    ("flood", "recv", None, "0"),
    ("flood", "io_uring", None, "0"),
    ("flood, one CPU for both", "recvmmsg", None, "1"),
    ("flood, one CPU for both", "recv", None, "1"),
    ("flood, one CPU for both", "io_uring", None, "1"),
    ("40 kpps", "recvmmsg", 40, "0"),
    ("10 kpps", "recvmmsg", 10, "0"),
    ("idle", "recvmmsg", 0, "0"),
]


def run(mpps, way, backend, rate, cpu):
    address = "127.0.0.1:4321"
    receive = [mpps, "recv", address, "--backend", backend, "--pin", "1", "--wait", way]
    receiver = subprocess.Popen(receive + ["--duration", "2s", "--json"],
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if rate != 0:
        time.sleep(0.2)
        send = [mpps, "send", address, "--pin", cpu, "--duration", "1500ms", "--json"]
        if rate:
            send += ["--rate", f"{rate}k", "--batch", "1", "--stamp"]
        subprocess.run(send, check=True, capture_output=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = json.loads(receiver.communicate()[0].splitlines()[-1])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    thread = total["threads"][0]
    delay = (total["flows"] or [{}])[0].get("delay_us") or {}
    return {"way": way, "pps": total["pps"], "cpu_ns": thread["cpu_ns_per_packet"],
            "p50_us": delay.get("p50"), "p99_us": delay.get("p99"), "polls": thread["polls"],
            "process_cpu_seconds": used}


def spread(values):
    values = [value for value in values if value is not None]
    if not values:
        return "-"
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


def main():
    mpps, rounds = sys.argv[1], int(sys.argv[2])
    result = []
    for name, backend, rate, cpu in CONDITIONS:
        runs = []
        for number in range(rounds):
            first = number % len(WAYS)
            order = WAYS[first:] + WAYS[:first]
            runs.append({way: run(mpps, way, backend, rate, cpu) for way in order})
        result.append({"condition": name, "backend": backend, "rounds": runs})
        for way in WAYS:
            def ratio(key, to, way=way):
                pairs = [(one[way][key], one[to][key]) for one in runs]
                return spread([a / b for a, b in pairs if a and b])
            print(f"{name}, {backend}, {way}: Mpps {spread([one[way]['pps'] / 1e6 for one in runs])},"
                  f" of spin {ratio('pps', 'spin')}, of block {ratio('pps', 'block')};"
                  f" CPU ns {spread([one[way]['cpu_ns'] for one in runs])}, of block {ratio('cpu_ns', 'block')};"
                  f" p50 us {spread([one[way]['p50_us'] for one in runs])},"
                  f" p99 us {spread([one[way]['p99_us'] for one in runs])};"
                  f" process s {spread([one[way]['process_cpu_seconds'] for one in runs])}",
                  file=sys.stderr)
    json.dump(result, sys.stdout, indent=1)


main()
