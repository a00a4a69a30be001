#!/bin/bash
# Kills `mpps tune apply` and `undo` of a card before each call by which they write, and compares what
# other programs say of the host before and after `mpps undo`.
GOAL=${1:-af_xdp}
export PATH=$PWD/target/release:$PATH
ip netns add b; ip link set eth1 netns b; ip -n b addr add 10.0.0.2/24 dev eth1; ip -n b link set eth1 up
W=write,fsync,sendto,rename,unlink
b() { ip netns exec b "$@"; }
state() {
    b sh -c 'ethtool -g eth1; ethtool -l eth1; ethtool -c eth1; ethtool -k eth1; ethtool -x eth1
    for kind in udp4 udp6 tcp4 tcp6; do ethtool -n eth1 rx-flow-hash $kind; done
    grep -H . /sys/class/net/eth1/gro_flush_timeout /sys/class/net/eth1/napi_defer_hard_irqs
    grep -H . /sys/class/net/eth1/queues/*/*ps_cpus /proc/irq/*/smp_affinity_list
    sysctl -a -r "^net.core"' 2>&1
}
b ethtool -i eth1 | head -1; uname -r
state >/tmp/before
for way in apply undo; do
    killed=0 changed=0
    for call in $(seq 1 400); do
        if [ $way = undo ]; then b mpps tune apply eth1 --for $GOAL >/tmp/out 2>&1 || { echo "apply failed"; cat /tmp/out; exit 1; }; args="undo eth1"; else args="apply eth1 --for $GOAL"; fi
        b strace -f --quiet=all -o /dev/null --trace=$W --inject=$W:signal=KILL:when=$call mpps tune $args >/tmp/out 2>&1
        status=$?
        state >/tmp/left; cmp -s /tmp/before /tmp/left || changed=$((changed + 1))
        b mpps undo >/tmp/undone 2>&1; b mpps tune undo eth1 >>/tmp/undone 2>&1
        state >/tmp/after
        if ! cmp -s /tmp/before /tmp/after; then echo "NOT as before: $way, call $call"; diff /tmp/before /tmp/after; cat /tmp/out /tmp/undone; exit 1; fi
        [ $status = 0 ] && break
        [ $status = 137 ] || { echo "status $status"; cat /tmp/out; exit 1; }
        killed=$((killed + 1))
    done
    echo "$way: killed $killed times, $changed times with something changed; each time the host was as before after undo"
done
