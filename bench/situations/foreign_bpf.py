"""Attaches a BPF program to this network namespace, an interface of it or a cgroup: it drops what is for PORT.

    foreign_bpf.py sk_lookup PORT | ingress|egress|xdp PORT IF | cgroup 0 PATH

Of egress the source port counts. In a cgroup it drops all that comes.
"""
import ctypes
import os
import socket
import struct
import sys
import time

C = ctypes.CDLL(None, use_errno=True)
PORT = int(sys.argv[2])
# Program type, attach type, name, how it reads the port into which register (linux/bpf.h), drop, pass.
KIND = {"sk_lookup": (30, 36, b"echo_dispatch", [(0x61, 2, 1, 60, 0)], 2, PORT, 0, 1),
        "ingress": (3, 46, b"cil_from_netdev", [(0x28, 0, 0, 0, 36)], 0, PORT, 2, -1),
        "egress": (3, 47, b"cil_to_netdev", [(0x28, 0, 0, 0, 34)], 0, PORT, 2, -1),
        "xdp": (6, 37, b"xdp_filter", [(0x61, 2, 1, 0, 0), (0x61, 3, 1, 4, 0), (0xbf, 4, 2, 0, 0), (0x07, 4, 0, 0, 38),
                                       (0x2d, 4, 3, 4, 0), (0x69, 0, 2, 36, 0)], 0, socket.htons(PORT), 1, 2),
        "cgroup": (8, 0, b"sd_fw_ingress", [(0xb7, 0, 0, 0, 0)], 0, PORT, 0, 1)}
TYPE, ATTACH, NAME, LOADS, REGISTER, VALUE, DROP, PASS = KIND[sys.argv[1]]


def bpf(command, form, *arguments):
    arguments = struct.pack(form, *arguments)
    result = C.syscall(321, command, ctypes.create_string_buffer(arguments, len(arguments)), len(arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), "bpf")
    return result


program = ctypes.create_string_buffer(b"".join(
    struct.pack("<BBhi", code, of << 4 | to, offset, value) for code, to, of, offset, value in (
        (0xbf, 6, 1, 0, 0), *LOADS, (0x55, REGISTER, 0, 2, VALUE), (0xb7, 0, 0, 0, DROP), (0x95, 0, 0, 0, 0),
        (0xb7, 0, 0, 0, PASS), (0x95, 0, 0, 0, 0))))
licence = ctypes.create_string_buffer(b"GPL")
loaded = bpf(5, "<IIQQIIQII16sII", TYPE, 6 + len(LOADS), ctypes.addressof(program), ctypes.addressof(licence),
             0, 0, 0, 0, 0, NAME, 0, ATTACH)
where = sys.argv[3] if len(sys.argv) > 3 else "/proc/self/ns/net"
at = os.open(where, os.O_RDONLY) if where[0] == "/" else socket.if_nametoindex(where)
link = bpf(28, "<IIIIQQ", loaded, at, ATTACH, 0, 0, 0)
time.sleep(600)
