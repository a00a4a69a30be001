#!/bin/bash
# usage: servers.sh OUTDIR MPPS: each server loses in bursts from one flow; mpps doctor, mpps fix and mpps undo
out=$1; mpps=$2; d=$(mktemp -d); chmod 755 $d
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
  ip netns exec fxa "$@" >$d/log 2>&1 & sleep 2
  ip netns exec fxb python3 $d/send.py $burst $pause & sender=$!
  sleep 1
  ip netns exec fxa $mpps doctor --port 53 --duration 3s >$out/$name.txt 2>/dev/null
  { echo; echo "\$ mpps fix --port 53 --yes"; ip netns exec fxa $mpps fix --port 53 --yes 2>/dev/null
    echo; echo "\$ mpps undo"; ip netns exec fxa $mpps undo; } >>$out/$name.txt
  kill $sender; ip netns pids fxa | xargs -r kill; sleep 1
}
try nsd 3000 0.1 nsd -d -c $d/nsd.conf
try unbound 3000 0.1 unbound -d -c $d/unbound.conf
try named 3000 0.1 named -f -n 2 -c $d/named.conf
try rsyslogd 3000 0.1 rsyslogd -n -f $d/rsyslog.conf -i $d/pid
try python 10 0.002 python3 $d/group.py
