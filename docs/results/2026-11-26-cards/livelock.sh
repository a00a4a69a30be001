. ./hosts.sh
for i in /proc/irq/*/; do n=$(basename $i); if grep -q "^ *$n:.*\(eth1\|$P\)" /proc/interrupts; then echo 1 > $i/smp_affinity_list; else echo 0 > $i/smp_affinity_list 2>/dev/null; fi; done
pinnapi() { for t in $(pgrep napi/eth1); do taskset -pc 1 $t >/dev/null; done; }
one() { # name, recv prefix, options
  name=$1; shift; pre=$1; shift
  for rate in 1000 2000 4000 8000 16000 1000000; do
    ip netns exec b $pre mpps recv 10.0.0.2:4321 --json "$@" >/tmp/w/r.json 2>/tmp/w/r.err & R=$!
    for i in $(seq 100); do grep -q "receiving at" /tmp/w/r.err && break; sleep 0.1; done
    for i in $(seq 50); do ip netns exec a ping -c1 -W1 10.0.0.2 >/dev/null 2>&1 && break; done
    ip netns exec a taskset -c 0 mpps send 10.0.0.2:4321 --json --rate $rate --duration 2s 2>/tmp/w/s.err >/tmp/w/s.json
    kill -INT $(pgrep -n -x mpps); wait $R
    python3 - "$name" $rate <<'P'
import json,sys
def last(f):
    r=None
    for l in open(f):
        l=l.strip()
        if l.startswith('{'):
            try: r=json.loads(l)
            except Exception: pass
    return r or {}
s,r=last('/tmp/w/s.json'),last('/tmp/w/r.json')
print(sys.argv[1],'rate',sys.argv[2],'offered',s.get('offered'),'received',r.get('received'),'socket drops',r.get('socket_drops'),flush=True)
P
  done
}
# What a firewall may cost: each packet passes so many rules before a socket has it.
{ echo "table inet firewall { chain input { type filter hook prerouting priority raw;"
for i in $(seq 4000); do echo "ip saddr 192.0.2.$((i % 250)) udp dport $i drop"; done; echo "}"; echo "}"; } >/tmp/w/rules
ip netns exec b nft -f /tmp/w/rules
sysctl -qw kernel.sched_rt_runtime_us=-1
mount -t debugfs none /sys/kernel/debug 2>/dev/null; echo 0 >/sys/kernel/debug/sched/fair_server/cpu1/runtime
one "interrupts and reader on one CPU" "taskset -c 1"
one "AF_XDP, before the rules" "taskset -c 1" --backend af_xdp
ip netns exec b sh -c 'echo 1 > /sys/class/net/eth1/threaded'; pinnapi
one "threaded NAPI and reader on one CPU" "taskset -c 1"
for t in $(pgrep napi/eth1); do chrt -f -p 50 $t; done
one "threaded NAPI real-time, reader not" "taskset -c 1"
one "both real-time, the reader first" "chrt -f 60 taskset -c 1"
for t in $(pgrep napi/eth1); do chrt -o -p 0 $t; done
one "the reader real-time" "chrt -f 60 taskset -c 1"
