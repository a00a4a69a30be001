#!/bin/bash
# Kills `mpps tune apply` and `undo` of a card before each call by which they write, and compares what
# other programs say of the host before and after `mpps undo`.
export PATH=$PWD/target/release:$PATH
CALLS="write fsync sendto rename unlink linkat"
ip netns add b
ip link set eth1 netns b
ip -n b addr add 10.0.0.2/24 dev eth1
ip -n b link set eth1 up
b() { ip netns exec b "$@"; }
apply() { b mpps tune apply eth1 --for af_xdp; }
state() {
    b sh -c 'ethtool -g eth1; ethtool -l eth1; ethtool -c eth1; ethtool -k eth1; ethtool -x eth1
    for kind in udp4 udp6 tcp4 tcp6; do ethtool -n eth1 rx-flow-hash $kind; done
    grep -H . /sys/class/net/eth1/gro_flush_timeout /sys/class/net/eth1/napi_defer_hard_irqs
    grep -H . /sys/class/net/eth1/queues/*/*ps_cpus /proc/irq/*/smp_affinity_list
    sysctl -a -r "^net.core"' 2>&1
}
b ethtool -i eth1 | head -1
uname -r
state >/tmp/before
apply
state >/tmp/all
b mpps tune undo eth1
for way in apply undo; do
    killed=0 halfway=0
    for call in $CALLS; do
        for which in $(seq 1 400); do
            args="apply eth1 --for af_xdp"
            if [ $way = undo ]; then
                apply >/tmp/out 2>&1 || { cat /tmp/out; exit 1; }
                args="undo eth1"
            fi
            b strace -f --quiet=all -o /dev/null --trace=$call --inject=$call:signal=KILL:when=$which \
                mpps tune $args >/tmp/out 2>&1
            status=$?
            state >/tmp/left
            cmp -s /tmp/before /tmp/left || cmp -s /tmp/all /tmp/left || halfway=$((halfway + 1))
            { b mpps undo; b mpps tune undo eth1; } >/tmp/undone 2>&1
            state >/tmp/after
            if ! cmp -s /tmp/before /tmp/after || ls /run/mpps | grep -q .; then
                echo "NOT as before: $way, $call $which"
                diff /tmp/before /tmp/after
                ls /run/mpps
                cat /tmp/out /tmp/undone
                exit 1
            fi
            [ $status = 0 ] && break
            [ $status = 137 ] || { echo "status $status"; cat /tmp/out; exit 1; }
            killed=$((killed + 1))
        done
    done
    echo "$way: killed $killed times, $halfway times halfway; each time undo left the host as it was before"
done
