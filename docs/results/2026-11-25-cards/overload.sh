. ./hosts.sh
for i in /proc/irq/*/; do n=$(basename $i); if grep -q "^ *$n:.*\(eth1\|$P\)" /proc/interrupts; then echo 1 > $i/smp_affinity_list; else echo 0 > $i/smp_affinity_list 2>/dev/null; fi; done
pinnapi() { for t in $(pgrep napi/eth1); do taskset -pc 1 $t >/dev/null; done; }
one() { # name, recv prefix, options
  name=$1; shift; pre=$1; shift
  for rate in 2000 5000 10000 20000 1000000; do
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
one "same CPU, interrupts" "taskset -c 1"
one "other CPU" "taskset -c 0"
ip netns exec b sh -c 'echo 1 > /sys/class/net/eth1/threaded'; pinnapi
one "same CPU, threaded" "taskset -c 1"
one "same CPU, threaded, reader FIFO" "chrt -f 40 taskset -c 1"
ip netns exec b sh -c 'echo 0 > /sys/class/net/eth1/threaded'
ip netns exec b ethtool -C eth1 rx-usecs 1000
one "same CPU, rx-usecs 1000" "taskset -c 1"
ip netns exec b ethtool -C eth1 rx-usecs 3
one "same CPU, af_xdp" "taskset -c 1" --backend af_xdp
