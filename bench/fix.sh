#!/bin/bash
# usage: fix.sh OUTDIR MPPS, as root: each server loses in bursts from one flow. Its file in OUTDIR has what mpps
# doctor, mpps fix, mpps doctor once more and mpps undo print; OUTDIR/README.md has the machine and the losses. A
# published run is of an idle machine and a release build. A server that is not installed is left out.
out=$1; mpps=$2; d=$(mktemp -d); chmod 755 $d; mkdir -p $out
{ echo "    command   bench/fix.sh OUTDIR $mpps"
  echo "    cpu      $(sed -n 's/^model name.*:/ /p' /proc/cpuinfo | head -n 1), $(nproc) CPUs"
  echo "    kernel    $(uname -r)"
  echo "    date      $(date --utc '+%F %H:%M UTC'), load $(cut -d ' ' -f 1 /proc/loadavg), $($mpps --version)"
  printf '\n| server | lost | kept |\n|---|---|---|\n'; } >$out/README.md
ip netns add fxa; ip netns add fxb
ip link add va netns fxa type veth peer name vb netns fxb
ip -n fxa addr add 10.9.9.2/24 dev va; ip -n fxb addr add 10.9.9.1/24 dev vb
for n in fxa fxb; do ip -n $n link set lo up; done; ip -n fxa link set va up; ip -n fxb link set vb up
trap 'ip netns pids fxa | xargs -r kill; ip netns pids fxb | xargs -r kill; ip netns del fxa; ip netns del fxb; rm -rf $d' EXIT
printf '$TTL 60\n@ IN SOA ns.example. h.example. 1 60 60 60 60\n@ IN NS ns\nns IN A 192.0.2.1\n' > $d/zone
cat > $d/nsd.conf <<C
server:
 ip-address: 10.9.9.2
 server-count: 2
 reuseport: yes
 username: ""
 zonesdir: "$d"
 pidfile: "$d/nsd.pid"
 database: ""
 xfrdfile: "$d/xfrd"
 zonelistfile: "$d/zl"
 xfrdir: "$d"
remote-control:
 control-enable: no
zone:
 name: example
 zonefile: zone
C
cat > $d/unbound.conf <<C
server:
 interface: 10.9.9.2
 access-control: 10.9.9.0/24 allow
 username: ""
 chroot: ""
 directory: "$d"
 pidfile: ""
 use-syslog: no
 num-threads: 2
 so-reuseport: yes
 local-zone: "example." static
 local-data: "ns.example. A 192.0.2.1"
remote-control:
 control-enable: no
C
cat > $d/named.conf <<C
options { directory "$d"; listen-on { 10.9.9.2; }; listen-on-v6 { none; }; pid-file none; recursion no; };
controls { };
zone "example" { type primary; file "zone"; };
C
cat > $d/rsyslog.conf <<C
module(load="imudp") input(type="imudp" address="10.9.9.2" port="53")
action(type="omfile" file="/dev/null")
C
cat > $d/group.py <<'P'
import socket, threading, time
def serve(s):
    while True:
        s.recv(2048)
        time.sleep(0.0004)
for _ in range(4):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    s.bind(('10.9.9.2', 53))
    threading.Thread(target=serve, args=(s,), daemon=True).start()
threading.Event().wait()
P
# Node and Go answer each datagram with itself.
cat > $d/echo.js <<'J'
const socket = require('dgram').createSocket('udp4')
socket.on('message', (message, from) => socket.send(message, from.port, from.address))
socket.bind(53, '10.9.9.2')
J
cat > $d/echo.go <<'G'
package main

import "net"

func main() {
	socket, err := net.ListenPacket("udp4", "10.9.9.2:53")
	if err != nil {
		panic(err)
	}
	buffer := make([]byte, 2048)
	for {
		size, from, _ := socket.ReadFrom(buffer)
		socket.WriteTo(buffer[:size], from)
	}
}
G
command -v go >/dev/null && CGO_ENABLED=0 GOCACHE=$d/cache go build -o $d/echo-go $d/echo.go
# BURST datagrams each PAUSE seconds, from one socket.
cat > $d/send.py <<'P'
import socket, sys, time
burst, pause = int(sys.argv[1]), float(sys.argv[2])
question = b'\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x02ns\x07example\0\0\x01\0\x01'
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.connect(('10.9.9.2', 53))
s.setblocking(False)
while True:
    until = time.monotonic() + pause
    for _ in range(burst):
        try: s.send(question)
        except OSError: pass
    try:
        while s.recv(2048): pass
    except OSError: pass
    time.sleep(max(0, until - time.monotonic()))
P
try() {
  name=$1 burst=$2 pause=$3; shift 3
  command -v $1 >/dev/null || { echo "$name: not here" >&2; return; }
  ip netns exec fxa "$@" >$d/log 2>&1 & sleep 2
  ip netns exec fxb python3 $d/send.py $burst $pause & sender=$!
  sleep 1
  say() { printf '\n$ mpps %s\n' "$*"; ip netns exec fxa $mpps "$@" 2>/dev/null; }
  { say doctor --port 53 --duration 3s; say fix --port 53 --yes; say doctor --port 53 --duration 3s; say undo; } >$out/$name.txt
  kill $sender; ip netns pids fxa | xargs -r kill; sleep 1
  lost=$(sed -n 's/^lost //p; s/^its sockets \(lost nothing\).*/\1/p; s/^its sockets lost \([0-9.]* %\).*/\1, no change helps/p' $out/$name.txt)
  kept=$(sed -n 's/: until .*//p' $out/$name.txt | paste -sd ' ')
  back=$(sed -n 's/^[0-9]*\. \(lost .*: put back: .*\)/\1/p' $out/$name.txt | paste -sd ';')
  echo "| $name | ${lost:-no change was kept} | ${kept:-$back} |" >>$out/README.md
}
try nsd 3000 0.1 nsd -d -c $d/nsd.conf
try unbound 3000 0.1 unbound -d -c $d/unbound.conf
try named 3000 0.1 named -f -n 2 -c $d/named.conf
try rsyslogd 3000 0.1 rsyslogd -n -f $d/rsyslog.conf -i $d/pid
try python 10 0.002 python3 $d/group.py
try node 3000 0.1 node $d/echo.js
try go 3000 0.1 $d/echo-go
cat $out/README.md
