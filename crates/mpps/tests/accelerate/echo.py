"""Answers each datagram to port 7777 with itself, and ends at one that says so."""
import os, socket, sys, time
echo = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
echo.bind(("0.0.0.0", 7777))
if "--nobody" in sys.argv:
    os.setgid(65534), os.setuid(65534)
print("ready", flush=True)
while True:
    data, address = echo.recvfrom(2048)
    if data == b"end":
        break
    echo.sendto(data, address)
    if data == b"compute":
        time.sleep(0.1)
