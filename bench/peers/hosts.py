"""Two hosts in network namespaces, joined by a veth of one queue each way, for run.py.

All names carry the process, so that runs do not meet. Neighbours are entered for ever and IPv6 is
off: an AF_XDP program that takes every frame takes ARP as well. Check sums are made by the sender, as
on a wire: a veth would leave them undone, and a frame that is only turned around would keep a wrong one.
"""
import json
import os
import subprocess
import time

LOAD, SERVER = f"peers-load-{os.getpid()}", f"peers-server-{os.getpid()}"
LOAD_LINK, SERVER_LINK = f"pa{os.getpid()}", f"pb{os.getpid()}"
# Of the flood; its echoes are counted and dropped as soon as they arrive.
SOURCE_PORT = 4320
SINK = f"""
table netdev sink {{
    chain ingress {{
        type filter hook ingress device {LOAD_LINK} priority 0
        udp dport {SOURCE_PORT} counter drop
    }}
}}
"""
# Host, link, address, hardware address.
ENDS = [
    (LOAD, LOAD_LINK, "10.9.0.1", "02:00:00:00:09:01"),
    (SERVER, SERVER_LINK, "10.9.0.2", "02:00:00:00:09:02"),
]


def run(*words, **options):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, **options)


def inside(host, *words):
    return ["ip", "netns", "exec", host, *words]


def make():
    for host in (LOAD, SERVER):
        run("ip", "netns", "add", host)
        for which in ("all", "default"):
            run(*inside(host, "sysctl", "-qw", f"net.ipv6.conf.{which}.disable_ipv6=1"))
    one_queue = ["numrxqueues", "1", "numtxqueues", "1"]
    run("ip", "link", "add", LOAD_LINK, "netns", LOAD, *one_queue, "address", ENDS[0][3],
        "type", "veth", "peer", "name", SERVER_LINK, "netns", SERVER, *one_queue, "address", ENDS[1][3])
    for (host, link, address, _), (_, _, other, other_hardware) in zip(ENDS, reversed(ENDS)):
        run("ip", "-n", host, "address", "add", f"{address}/24", "dev", link)
        run(*inside(host, "ethtool", "-K", link, "gro", "on", "tx", "off", "tso", "off", "gso", "off"))
        run("ip", "-n", host, "neigh", "replace", other, "lladdr", other_hardware, "dev", link,
            "nud", "permanent")
    # A veth that comes up looks whether its other end has GRO, without which it sends no XDP frame.
    for host, link, _, _ in ENDS:
        run("ip", "-n", host, "link", "set", link, "up")
    run(*inside(LOAD, "nft", "-f", "-"), input=SINK, text=True)


def unmake():
    for host in (LOAD, SERVER):
        subprocess.run(["ip", "netns", "del", host], check=False)


def deliver(threaded):
    """Has the server's receive queue served by a thread on the server's CPU, which is returned, or in
    soft interrupts of the CPU that sends."""
    setting = f"/sys/class/net/{SERVER_LINK}/threaded"
    run(*inside(SERVER, "sh", "-c", f"echo {int(threaded)} > {setting}"))
    if not threaded:
        return None
    time.sleep(0.1)
    found = subprocess.run(["pgrep", f"^napi/{SERVER_LINK}-"], check=True, capture_output=True, text=True)
    thread, = found.stdout.split()
    run("taskset", "-pc", "1", thread)
    return thread


def returned():
    """Echoes of the flood that came back."""
    listed = subprocess.run(inside(LOAD, "nft", "-j", "list", "table", "netdev", "sink"),
                            check=True, capture_output=True).stdout
    for entry in json.loads(listed)["nftables"]:
        for part in entry.get("rule", {}).get("expr", []):
            if "counter" in part:
                return part["counter"]["packets"]
    raise LookupError("no counter")
