#!/bin/bash
# usage: nsd.sh OUTDIR MPPS: nsd starved beside three loops; doctor before and after a larger buffer
out=$1; mpps=$2; d=$(mktemp -d)
ip netns add nsda; ip netns add nsdb
ip link add va netns nsda type veth peer name vb netns nsdb
ip -n nsda addr add 10.9.9.2/24 dev va; ip -n nsdb addr add 10.9.9.1/24 dev vb
for n in nsda nsdb; do ip -n $n link set lo up; done; ip -n nsda link set va up; ip -n nsdb link set vb up
printf 'example.org. 3600 IN SOA ns.example.org. a.example.org. 1 3600 600 86400 60\nexample.org. 3600 IN NS ns.example.org.\nns.example.org. 3600 IN A 10.9.9.2\n' > $d/zone
printf 'ns.example.org A\n' > $d/q
conf() { cat > $d/nsd.conf <<C
server:
 ip-address: 10.9.9.2
 server-count: 1
 username: ""
 zonesdir: "$d"
 pidfile: "$d/nsd.pid"
 database: ""
 xfrdfile: "$d/xfrd"
 zonelistfile: "$d/zl"
 xfrdir: "$d"
 $1
remote-control:
 control-enable: no
zone:
 name: example.org
 zonefile: zone
C
}
loops=()
for i in 1 2 3; do taskset -c 1 sh -c 'while :; do :; done' & loops+=($!); done
trap 'kill ${loops[@]}; ip netns pids nsda | xargs -r kill; ip netns del nsda; ip netns del nsdb; rm -rf $d' EXIT
for round in 0 1 2; do for kind in before after; do
 [ $kind = before ] && conf "" || conf "receive-buffer-size: 16777216"
 ip netns exec nsda taskset -c 1 nsd -d -c $d/nsd.conf >$d/log 2>&1 & sleep 2
 ip netns exec nsdb taskset -c 0 dnsperf -s 10.9.9.2 -l 9 -q 65000 -c 20 -d $d/q >$d/perf 2>&1 & p=$!
 sleep 2
 ip netns exec nsda $mpps doctor --port 53 --duration 5s >$out/$kind-$round.txt 2>$d/err
 wait $p
 ip netns pids nsda | xargs -r kill; sleep 1
done; done
