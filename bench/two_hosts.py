"""Two hosts in network namespaces, joined by a veth whose queues are kernel threads of one CPU each.

Each side pays for its own packets: the load's host has CPU 0, the server's CPU 1. Needs root, iproute2
and ethtool. The namespaces go with `unmake`; their names carry the process, so that runs do not meet.
"""
import os
import statistics
import subprocess
import time

LOAD, SERVER = f"mpps-bench-load-{os.getpid()}", f"mpps-bench-server-{os.getpid()}"
SERVER_ADDRESS = "10.9.0.2"
SOURCES = [f"10.9.0.{last}" for last in range(10, 26)]


def run(*words):
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)


def inside(host, *words):
    return ["ip", "netns", "exec", host, *words]


def make():
    for host in (LOAD, SERVER):
        run("ip", "netns", "add", host)
        run("ip", "-n", host, "link", "set", "lo", "up")
    run("ip", "link", "add", "va", "netns", LOAD, "numrxqueues", "1", "numtxqueues", "1",
        "type", "veth", "peer", "name", "vb", "netns", SERVER, "numrxqueues", "1", "numtxqueues", "1")
    for host, link, address, cpu in ((LOAD, "va", "10.9.0.1", "0"), (SERVER, "vb", SERVER_ADDRESS, "1")):
        run("ip", "-n", host, "address", "add", f"{address}/24", "dev", link)
        run(*inside(host, "ethtool", "-K", link, "gro", "on", "tso", "off", "gso", "off"))
        run("ip", "-n", host, "link", "set", link, "up")
        run(*inside(host, "tc", "qdisc", "replace", "dev", link, "root", "pfifo", "limit", "20000"))
        run(*inside(host, "sh", "-c", f"echo 1 > /sys/class/net/{link}/threaded"))
        run(*inside(host, "sysctl", "-qw", "net.ipv4.ip_local_port_range=1024 65535"))
        time.sleep(0.2)
        for thread in subprocess.run(["pgrep", f"napi/{link}"], capture_output=True, text=True).stdout.split():
            run("taskset", "-pc", cpu, thread)
    for address in SOURCES:
        run("ip", "-n", LOAD, "address", "add", f"{address}/24", "dev", "va")


def unmake():
    for host in (LOAD, SERVER):
        run("ip", "netns", "del", host)


def spread(values, digits=2):
    """The median, and the extremes behind it."""
    values = list(values)
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"
