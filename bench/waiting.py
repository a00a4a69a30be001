#!/usr/bin/env python3
"""How receivers wait: `mpps recv --wait` auto, spin and block, interleaved.

    bench/waiting.py MPPS ROUNDS > waiting.json

As root. Over loopback, and between two network namespaces by a veth, which it makes and removes.
Conditions: a flood from another CPU, and from the receiver's own; a tenth of that and a third, as
bursts of 64; 10 000 a second, one by one; nothing at all. A round has one run of each way; ratios are
those of one round. Prints a table to standard error.
"""
import json
import resource
import statistics
import subprocess
import sys
import time

WAYS = ["spin", "block", "auto"]
LOOPBACK, VETH = "127.0.0.1:4321", "10.77.0.2:4321"
# Name, backend, the sender's, rate in thousands a second (None: as fast as possible), its CPU, address.
CONDITIONS = [
    ("flood", "recvmmsg", "sendmmsg", None, "0", LOOPBACK),
    ("flood", "recv", "sendmmsg", None, "0", LOOPBACK),
    ("flood", "io_uring", "sendmmsg", None, "0", LOOPBACK),
    ("flood, veth", "af_xdp", "sendmmsg", None, "0", VETH),
    ("flood by AF_XDP, veth", "af_xdp", "af_xdp", None, "0", VETH),
    ("flood by AF_XDP, veth", "packet_mmap", "af_xdp", None, "0", VETH),
    ("flood, one CPU for both", "recvmmsg", "sendmmsg", None, "1", LOOPBACK),
    ("flood, one CPU for both", "recv", "sendmmsg", None, "1", LOOPBACK),
    ("flood, one CPU for both", "io_uring", "sendmmsg", None, "1", LOOPBACK),
    ("flood by AF_XDP, one CPU for both", "af_xdp", "af_xdp", None, "1", VETH),
    ("80 kpps", "recvmmsg", "sendmmsg", 80, "0", VETH),
    ("80 kpps", "recv", "sendmmsg", 80, "0", VETH),
    ("80 kpps", "io_uring", "sendmmsg", 80, "0", VETH),
    ("80 kpps", "af_xdp", "sendmmsg", 80, "0", VETH),
    ("250 kpps", "recvmmsg", "sendmmsg", 250, "0", VETH),
    ("250 kpps", "recv", "sendmmsg", 250, "0", VETH),
    ("250 kpps", "af_xdp", "sendmmsg", 250, "0", VETH),
    ("10 kpps, one by one", "recvmmsg", "sendmmsg", 10, "0", VETH),
    ("10 kpps, one by one", "recv", "sendmmsg", 10, "0", VETH),
    ("10 kpps, one by one", "io_uring", "sendmmsg", 10, "0", VETH),
    ("10 kpps, one by one", "af_xdp", "sendmmsg", 10, "0", VETH),
    ("idle", "recvmmsg", "sendmmsg", 0, "0", VETH),
    ("idle", "recv", "sendmmsg", 0, "0", VETH),
    ("idle", "io_uring", "sendmmsg", 0, "0", VETH),
    ("idle", "af_xdp", "sendmmsg", 0, "0", VETH),
]
HOSTS = ["waiting-tx", "waiting-rx"]
VETH_SETTINGS = [
    "ip link add eth0 netns waiting-tx type veth peer name eth0 netns waiting-rx",
    "ip -n waiting-tx addr add 10.77.0.1/24 dev eth0",
    "ip -n waiting-rx addr add 10.77.0.2/24 dev eth0",
    "ip -n waiting-tx link set eth0 up",
    "ip -n waiting-rx link set eth0 up",
    "ip netns exec waiting-tx ethtool -K eth0 tso off gso off tx-udp-segmentation off",
    "ip netns exec waiting-rx ethtool -K eth0 gro on",
]


def run(mpps, way, backend, sender, rate, cpu, address):
    tx, rx = ([["ip", "netns", "exec", host] for host in HOSTS] if address == VETH else ([], []))
    receive = rx + [mpps, "recv", address, "--backend", backend, "--pin", "1", "--wait", way]
    receiver = subprocess.Popen(receive + ["--duration", "1700ms", "--json"],
                                stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if rate != 0:
        time.sleep(0.25)
        send = tx + [mpps, "send", address, "--backend", sender, "--pin", cpu, "--duration", "1300ms", "--json"]
        if rate:
            send += ["--rate", f"{rate}k"]
        if rate == 10:
            send += ["--batch", "1", "--stamp"]
        subprocess.run(send, check=True, capture_output=True)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = json.loads(receiver.communicate()[0].splitlines()[-1])
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    thread = total["threads"][0]
    delay = (total["flows"] or [{}])[0].get("delay_us") or {}
    return {"way": way, "pps": total["pps"], "cpu_ns": thread.get("cpu_ns_per_packet"),
            "p50_us": delay.get("p50"), "p99_us": delay.get("p99"), "polls": thread["polls"],
            "process_cpu_seconds": used}


def spread(values):
    values = [value for value in values if value is not None]
    if not values:
        return "-"
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def measure(mpps, rounds):
    for name, backend, *condition in CONDITIONS:
        runs = []
        for number in range(rounds):
            first = number % len(WAYS)
            order = WAYS[first:] + WAYS[:first]
            runs.append({way: run(mpps, way, backend, *condition) for way in order})
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
                  file=sys.stderr, flush=True)
        yield {"condition": name, "backend": backend, "rounds": runs}


def main():
    mpps, rounds = sys.argv[1], int(sys.argv[2])
    made = []
    try:
        for host in HOSTS:
            subprocess.run(["ip", "netns", "add", host], check=True)
            made.append(host)
        for setting in VETH_SETTINGS:
            subprocess.run(setting.split(), check=True, stdout=subprocess.DEVNULL)
        json.dump(list(measure(mpps, rounds)), sys.stdout, indent=1)
    finally:
        for host in made:
            subprocess.run(["ip", "netns", "del", host], check=False)


main()
