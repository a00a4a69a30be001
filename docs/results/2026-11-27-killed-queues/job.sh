#!/bin/bash
# Kills `mpps tune apply` and `undo` of a card before each call of each kind by which they write, and
# compares what other programs say of the host before and after `mpps undo`: job.sh [apply|undo [KIND...]]. A machine
# has 1200 seconds; what was not done by then is said.
GOAL=af_xdp LIMIT=1100 WAYS=${1:-apply undo} KINDS=${2:-write fsync sendto rename unlink}
export PATH=$PWD/target/release:$PATH
ip netns add b; ip link set eth1 netns b; ip -n b addr add 10.0.0.2/24 dev eth1; ip -n b link set eth1 up
b() { ip netns exec b "$@"; }
state() {
    b sh -c 'ethtool -g eth1; ethtool -l eth1; ethtool -c eth1; ethtool -k eth1; ethtool -x eth1
    for kind in udp4 udp6 tcp4 tcp6; do ethtool -n eth1 rx-flow-hash $kind; done
    grep -H . /sys/class/net/eth1/gro_flush_timeout /sys/class/net/eth1/napi_defer_hard_irqs
    grep -H . /sys/class/net/eth1/queues/*/*ps_cpus /sys/class/net/eth1/queues/*/rps_flow_cnt
    grep -H . /sys/class/net/eth1/queues/*/byte_queue_limits/limit_m* /proc/irq/*/smp_affinity_list
    sysctl -a -r "^net.core"' 2>&1
}
b ethtool -i eth1 | head -1; uname -r
# More channels than cores, and some queues set by themselves, which go with their number.
b ethtool -L eth1 combined 4 2>/dev/null
b sh -c 'cd /sys/class/net/eth1/queues; for queue in rx-*; do echo 2 >$queue/rps_cpus; echo 64 >$queue/rps_flow_cnt; done
for queue in tx-*; do echo 2 >$queue/xps_cpus; echo 5000 >$queue/byte_queue_limits/limit_min; done
for list in /proc/irq/*/eth1*/../smp_affinity_list; do echo 1 >$list; done' 2>/dev/null
state >/tmp/before
for way in $WAYS; do
    for kind in $KINDS; do
        killed=0 changed=0 end="to its end"
        for call in $(seq 1 400); do
            if ((SECONDS > LIMIT)); then end="until the time was over"; break; fi
            args="apply eth1 --for $GOAL"
            if [ $way = undo ]; then
                b mpps tune $args >/tmp/out 2>&1 || { echo "apply failed"; cat /tmp/out; exit 1; }
                args="undo eth1"
            fi
            b strace -f --quiet=all -o /dev/null --trace=$kind --inject=$kind:signal=KILL:when=$call mpps tune $args >/tmp/out 2>&1
            status=$?
            b mpps undo >/tmp/undone 2>&1; b mpps tune undo eth1 >>/tmp/undone 2>&1
            grep -q "put back\|->" /tmp/undone && changed=$((changed + 1))
            state >/tmp/after
            if ! cmp -s /tmp/before /tmp/after; then
                echo "NOT as before: $way, $kind $call"; diff /tmp/before /tmp/after; cat /tmp/out /tmp/undone; exit 1
            fi
            [ $status = 0 ] && break
            [ $status = 137 ] || { echo "status $status"; cat /tmp/out; exit 1; }
            killed=$((killed + 1))
        done
        echo "$way, $kind: killed $killed times, $end; undo had something to put back $changed times; each time the host was as before"
    done
done
