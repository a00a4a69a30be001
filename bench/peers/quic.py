#!/usr/bin/env python3
"""QUIC by quinn over its own sockets and over those of mpps-io, in turn, on the loopback interface:

    bench/peers/quic.py bench/peers/target/release/peer-quic ROUNDS MEGABYTES
"""
import os, re, statistics, subprocess, sys, tempfile

SOCKETS = ["quinn-udp", "recvmmsg", "io_uring"]
NAMES = ["ns of CPU a byte", "MB/s", "p50 us", "p99 us"]


def round_of(program, socket, port, megabytes, certificate):
    address = f"127.0.0.1:{port}"
    server = subprocess.Popen([program, "server", socket, address, certificate], stdout=subprocess.PIPE, text=True)
    try:
        while not os.path.exists(certificate):
            if server.poll() is not None:
                sys.exit(f"{socket}: the server ended")
        client = [program, "client", address, certificate, str(megabytes * 1_000_000)]
        said = subprocess.run(client, stdout=subprocess.PIPE, text=True, check=True, timeout=300).stdout
        cost = server.stdout.readline()
    finally:
        server.kill()
        server.wait()
    numbers = re.search(r"([\d.]+) MB/s, p50 (\d+) us, p99 (\d+) us", said).groups()
    return [float(cost.split(", ")[1].split()[0]), *map(float, numbers)]


program, rounds, megabytes = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
seen = {socket: [] for socket in SOCKETS}
with tempfile.TemporaryDirectory() as folder:
    for number in range(rounds):
        for at, socket in enumerate(SOCKETS):
            place = f"{folder}/{number}-{socket}"
            row = round_of(program, socket, 20_000 + number * 10 + at, megabytes, place)
            seen[socket].append(row)
            print(number + 1, socket, *row, flush=True)
reference = [statistics.median(column) for column in zip(*seen["quinn-udp"])]
for socket, rows in seen.items():
    for name, column, base in zip(NAMES, zip(*rows), reference):
        middle = statistics.median(column)
        print(f"{socket:10} {name:17} {middle:8.2f} ({min(column):.2f}-{max(column):.2f}), {middle / base:.2f} of quinn-udp")
