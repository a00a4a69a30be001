#!/usr/bin/env python3
"""What many connections at a time cost `mpps serve`: in flight, idle, and for ten minutes.

    sudo bench/crowd.py MPPS flat [ROUNDS]      1 to 10 000 connections in flight, interleaved
    sudo bench/crowd.py MPPS idle [ROUNDS]      10 000 idle keep-alive connections beside the load, or none
    sudo bench/crowd.py MPPS long [MINUTES]     one run; what each ten seconds of it had

The load has CPU 0, the server CPU 1, on two hosts in network namespaces (two_hosts.py). CPU time per
connection is of the server's threads and of the kernel thread of its queue, by schedstat. Needs root,
iproute2 and ethtool, and 10 000 descriptors for each side.
"""
import glob
import json
import os
import resource
import signal
import socket
import statistics
import subprocess
import sys
import time

from two_hosts import LOAD, SERVER, SERVER_ADDRESS, SOURCES, inside, make, run, spread, unmake

MPPS, WHAT = sys.argv[1], sys.argv[2]
NUMBER = int(sys.argv[3]) if WHAT != "hold" and len(sys.argv) > 3 else {"long": 10}.get(WHAT, 7)
IN_FLIGHT = [1, 10, 100, 1000, 10_000]
IDLE = 10_000
ENGINES = ["io_uring", "epoll"]


class Server:
    """`mpps serve` on CPU 1."""

    def __init__(self, port, engine):
        self.address = f"{SERVER_ADDRESS}:{port}"
        self.process = subprocess.Popen(
            inside(SERVER, MPPS, "serve", self.address, "--size", "1k", "--pin", "1", "--engine", engine,
                   "--idle-time", "60m", "--json"),
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        time.sleep(1)

    def own_bytes(self):
        """Memory in user space that is the server's alone: anonymous pages in RAM."""
        with open(f"/proc/{self.process.pid}/status") as status:
            fields = dict(line.split(":", 1) for line in status)
        return sum(int(fields[name].split()[0]) * 1024 for name in ("RssAnon", "RssShmem"))

    def resident_bytes(self):
        """The same with the program's own text."""
        with open(f"/proc/{self.process.pid}/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))

    def cpu_ns(self):
        threads = glob.glob(f"/proc/{self.process.pid}/task/*/schedstat") + queue_threads()
        return sum(int(open(thread).read().split()[0]) for thread in threads)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        return self.process.communicate(timeout=30)[0]


def queue_threads():
    found = subprocess.run(["pgrep", "napi/vb"], capture_output=True, text=True).stdout.split()
    return [f"/proc/{thread}/schedstat" for thread in found]


def load(server, connections, seconds):
    """One run: connections completed per second, and the server's CPU microseconds for one."""
    before = server.cpu_ns()
    done = subprocess.run(
        inside(LOAD, MPPS, "load", f"http://{server.address}/", "--connections", str(connections), "--duration",
               f"{seconds}s", "--pin", "0", "--source", ",".join(SOURCES), "--json"),
        capture_output=True, text=True)
    result = json.loads(done.stdout.strip().split("\n")[-1])
    completed = result["ledger"]["requests"]["completed"]
    failed = sum(result["ledger"]["requests"]["failed"].values())
    return result["cps"], (server.cpu_ns() - before) / 1000 / completed, failed


def flat():
    servers = {engine: Server(8100 + index, engine) for index, engine in enumerate(ENGINES)}
    runs = {(engine, connections): [] for engine in ENGINES for connections in IN_FLIGHT}
    for _ in range(NUMBER):
        for (engine, connections), of in runs.items():
            of.append(load(servers[engine], connections, 2))
    for server in servers.values():
        server.end()
    for (engine, connections), of in runs.items():
        rates, costs, failed = zip(*of)
        against = [ours[0] / hundred[0] for ours, hundred in zip(of, runs[engine, 100])]
        print(f"{engine:<9} {connections:>6} in flight: CPS {spread(rates, 0):<26} to that of 100 {spread(against):<22} "
              f"server CPU us {spread(costs, 1):<22} failed {sum(failed)}")


def hold():
    """Connections with one request behind them, until a signal; a process of the load's host runs this."""
    host, port = sys.argv[3].split(":")
    kept = []
    for index in range(IDLE):
        connection = socket.socket()
        connection.bind((SOURCES[index % len(SOURCES)], 0))
        connection.connect((host, int(port)))
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        kept.append(connection)
    print("held", flush=True)
    signal.pause()


def idle():
    for engine in ENGINES:
        plain, crowded = Server(8110, engine), Server(8111, engine)
        before = crowded.own_bytes()
        holder = subprocess.Popen(inside(LOAD, sys.executable, __file__, MPPS, "hold", crowded.address),
                                  stdout=subprocess.PIPE, text=True)
        assert holder.stdout.readline() == "held\n"
        print(f"{engine}: own memory {before / 2**20:.1f} MiB without connections, "
              f"{crowded.own_bytes() / 2**20:.1f} MiB with {IDLE} idle ones "
              f"({crowded.resident_bytes() / 2**20:.1f} MiB with the program's text)")
        runs = [(load(plain, 256, 2), load(crowded, 256, 2)) for _ in range(NUMBER)]
        holder.kill()
        holder.wait()
        for name, of in (("without", [pair[0] for pair in runs]), ("with", [pair[1] for pair in runs])):
            rates, costs, failed = zip(*of)
            print(f"  {name:<8} CPS {spread(rates, 0):<26} server CPU us {spread(costs, 1):<22} failed {sum(failed)}")
        print(f"  with / without: CPS {spread(b[0] / a[0] for a, b in runs)}, CPU {spread(b[1] / a[1] for a, b in runs)}")
        for server in (plain, crowded):
            server.end()


def long():
    server = Server(8120, "io_uring")
    load(server, 256, 5)
    before = server.own_bytes(), len(os.listdir(f"/proc/{server.process.pid}/fd"))
    rate, cost, failed = load(server, 256, NUMBER * 60)
    after = server.own_bytes(), len(os.listdir(f"/proc/{server.process.pid}/fd"))
    lines = [json.loads(line) for line in server.end().strip().split("\n")]
    seconds = [line["connections_per_second"] for line in lines if line["type"] == "interval"][7:-2]
    tens = [statistics.mean(seconds[at:at + 10]) for at in range(0, len(seconds) - 9, 10)]
    print(f"{NUMBER} minutes: CPS {rate:.0f}, server CPU us {cost:.1f}, failed {failed}")
    print(f"  each ten seconds: {spread(tens, 0)}; first minute {statistics.mean(tens[:6]):.0f}, last {statistics.mean(tens[-6:]):.0f}")
    print(f"  memory {before[0] / 2**20:.1f} to {after[0] / 2**20:.1f} MiB, descriptors {before[1]} to {after[1]}")
    total = lines[-1]
    print(f"  server: accepted {total['accepted']}, unaccounted {total['unaccounted']}, {json.dumps(total['ended'])}")


def raise_limit():
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def main():
    raise_limit()
    if WHAT == "hold":
        return hold()
    print(f"Linux {os.uname().release}, {WHAT} {NUMBER}, medians and extremes", flush=True)
    make()
    try:
        for host in (LOAD, SERVER):
            run(*inside(host, "sysctl", "-qw", "net.core.somaxconn=65535", "net.ipv4.tcp_max_syn_backlog=65535"))
        {"flat": flat, "idle": idle, "long": long}[WHAT]()
    finally:
        subprocess.run(["pkill", "--parent", str(os.getpid())])
        unmake()


main()
