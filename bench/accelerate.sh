#!/bin/bash
# CPU time of a DNS server for an answer, with `mpps accelerate` and without it, in turn.
#
# [RATE=QUERIES_A_SECOND] bench/accelerate.sh nsd|unbound ROUNDS [SECONDS]
#
# Two namespaces, a veth with threaded NAPI, dnsperf as the client. Counted: all tasks of the server and
# of mpps, and the thread that receives for the server; the part of mpps is printed, too. Needs root,
# dnsperf, and a release build (MPPS names another one).
set -eu
program=$1 rounds=$2 seconds=${3:-5}
mpps=${MPPS:-$(dirname "$0")/../target/release/mpps}
dir=$(mktemp -d)
near=mpps-near-$$ far=mpps-far-$$
trap 'kill $(jobs -p) 2>/dev/null || true; ip netns del $near; ip netns del $far; rm -r "$dir"' EXIT
ip netns add $near
ip netns add $far
ip -n $near link add near type veth peer name far netns $far
ip -n $near addr add 10.77.0.1/24 dev near
ip -n $far addr add 10.77.0.2/24 dev far
ip -n $near link set near up
ip -n $far link set far up
for end in "$near near" "$far far"; do
    set -- $end
    ip netns exec "$1" ethtool -K "$2" gro on tso off gso off tx-udp-segmentation off
    ip netns exec "$1" sh -c "echo 1 > /sys/class/net/$2/threaded"
done
napi=$(pgrep -f 'napi/near-' | tail -1)
taskset -pc 1 "$napi" > /dev/null
taskset -pc 0 "$(pgrep -f 'napi/far-' | tail -1)" > /dev/null

cat > "$dir/zone" <<END
\$ORIGIN example.org.
\$TTL 3600
@ SOA ns host 1 3600 600 86400 300
@ NS ns
ns A 10.77.0.1
www A 10.1.2.3
END
cat > "$dir/nsd.conf" <<END
server:
 ip-address: 10.77.0.1@7753
 rrl-ratelimit: 0
 username: ""
 zonesdir: "$dir"
 pidfile: "$dir/pid"
 xfrdfile: ""
 database: ""
 zonelistfile: "$dir/list"
 logfile: "$dir/log"
remote-control:
 control-enable: no
zone:
 name: example.org
 zonefile: zone
END
cat > "$dir/unbound.conf" <<END
server:
 interface: 10.77.0.1@7753
 access-control: 10.77.0.0/24 allow
 username: ""
 chroot: ""
 directory: "$dir"
 pidfile: "$dir/pid"
 use-syslog: no
 logfile: "$dir/log"
 num-threads: 1
 local-zone: "example.org." static
 local-data: "www.example.org. A 10.1.2.3"
remote-control:
 control-enable: no
END
echo "www.example.org A" > "$dir/queries"

# CPU nanoseconds of a process, its descendants, and the receiving thread.
cpu() {
    local all="$1" more="$1"
    while more=$(pgrep -P "$(echo $more | tr ' ' ,)"); do all="$all $more"; done
    for pid in $all $napi; do cat /proc/$pid/task/*/schedstat 2>/dev/null; done |
        awk '{ sum += $1 } END { printf "%.0f\n", sum }'
}

# A run: nanoseconds of CPU for an answer, and answers a second.
measure() {
    taskset -c 1 ip netns exec $near "$@" > "$dir/out" 2>&1 &
    local server=$! before after answers own
    for _ in $(seq 50); do
        ip netns exec $far dnsperf -s 10.77.0.1 -p 7753 -d "$dir/queries" -n 3 -t 1 > "$dir/dnsperf" 2>&1 || true
        grep -q 'completed: *3' "$dir/dnsperf" && break
        sleep 0.2
    done
    sleep 0.5
    before=$(cpu $server) own=$(awk '{ print $1 }' /proc/$server/schedstat)
    taskset -c 0 ip netns exec $far dnsperf -s 10.77.0.1 -p 7753 -d "$dir/queries" -l "$seconds" -q 400 -c 4 ${RATE:+-Q "$RATE"} \
        > "$dir/dnsperf" 2>&1
    after=$(cpu $server) own=$(($(awk '{ print $1 }' /proc/$server/schedstat) - own))
    answers=$(awk '/Queries completed/ { print $3 }' "$dir/dnsperf")
    kill "$(cat "$dir/pid")"
    wait $server || true
    tail -1 "$dir/out" >> "$dir/ledgers"
    echo "$(((after - before) / answers)) $((answers / seconds)) $((own / answers))"
}

server="/usr/sbin/$program -d -c $dir/$program.conf"
for round in $(seq "$rounds"); do
    without=$(measure $server)
    with=$(measure "$mpps" accelerate near --port 7753 -- $server)
    echo "$without $with" | awk -v round="$round" '{
        printf "%d: without %d ns an answer (%d/s), with %d ns (%d/s; mpps %d ns): CPU %.2f, rate %.2f\n",
            round, $1, $2, $4, $5, $6, $4 / $1, $5 / $2
        print $4 / $1, $5 / $2 > "/dev/stderr"
    }' 2>> "$dir/ratios"
done
sort -n "$dir/ratios" | awk '{ cpu[NR] = $1 } END { printf "median CPU ratio %.2f\n", cpu[int((NR + 1) / 2)] }'
grep -o 'UNACCOUNTED.*' "$dir/ledgers" | sort | uniq -c
