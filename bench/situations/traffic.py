"""Traffic of a situation, until it is killed.

    traffic.py udp ADDRESS PORT [rate=300] [burst=1] [sockets=1] [size=N] [hex=|text=PAYLOAD] [source=ADDRESS] [df=1]
    traffic.py tcp ADDRESS PORT [every=0.02] [keep=900]     opens connections, and closes the oldest
"""
import socket
import sys
import time

KIND, ADDRESS, PORT = sys.argv[1], sys.argv[2], int(sys.argv[3])
OPTIONS = dict(option.split("=", 1) for option in sys.argv[4:])
FAMILY = socket.AF_INET6 if ":" in ADDRESS else socket.AF_INET


def option(name, default):
    return type(default)(OPTIONS.get(name, default))


def udp():
    payload = bytes.fromhex(option("hex", "")) or option("text", "").encode()
    payload = payload.ljust(option("size", 0 if payload else 100), b"x")
    sockets = [socket.socket(FAMILY, socket.SOCK_DGRAM) for _ in range(option("sockets", 1))]
    for one in sockets:
        if "source" in OPTIONS:
            one.bind((OPTIONS["source"], 0))
        if "df" in OPTIONS:
            one.setsockopt(socket.IPPROTO_IP, 10, 3)  # IP_MTU_DISCOVER, IP_PMTUDISC_PROBE
    burst, sent, due = option("burst", 1), 0, time.monotonic()
    while True:
        time.sleep(max(0, due - time.monotonic()))
        for _ in range(burst):
            try:
                sockets[sent % len(sockets)].sendto(payload, (ADDRESS, PORT))
            except OSError:
                pass
            sent += 1
        due += burst / option("rate", 300.0)


def tcp():
    connections = []
    while True:
        one = socket.socket(FAMILY)
        one.setblocking(False)
        one.connect_ex((ADDRESS, PORT))
        connections.append(one)
        if len(connections) > option("keep", 900):
            connections.pop(0).close()
        time.sleep(option("every", 0.02))


{"udp": udp, "tcp": tcp}[KIND]()
