#!/usr/bin/env python3
"""Takes a CPU away for half of each two milliseconds while a command runs.

    sudo bench/half_cpu.py 1 mpps lab tcp --only 3/mpps-epoll/base/1k,3/mpps/events/1k

On a machine with two CPUs the load of `mpps lab tcp` is full before a good server is. With half of
the server's CPU gone (CPU 1 there) the server is what limits, and connections per second compare
servers. The taker has a real-time priority, so that it takes from whatever runs there. Needs root.
"""
import os
import subprocess
import sys
import time

TAKEN_SECONDS = LEFT_SECONDS = 0.001


def take(cpu, watched):
    os.sched_setaffinity(0, {cpu})
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    while os.getppid() == watched:
        end = time.monotonic() + TAKEN_SECONDS
        while time.monotonic() < end:
            pass
        time.sleep(LEFT_SECONDS)


def main():
    watched = os.getpid()
    taker = os.fork()
    if taker == 0:
        take(int(sys.argv[1]), watched)
        os._exit(0)
    status = subprocess.run(sys.argv[2:]).returncode
    os.kill(taker, 9)
    os.waitpid(taker, 0)
    sys.exit(status)


main()
