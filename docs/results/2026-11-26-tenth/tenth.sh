# CPU time of a receiver at a tenth of what it can take, by each way of waiting, in turn.
M=${1:-mpps}
ip netns add pa; ip netns add pb
trap 'kill $S 2>/dev/null; ip netns del pa; ip netns del pb' EXIT
ip link add eth0 netns pa type veth peer name eth1 netns pb
ip -n pa addr add 10.0.0.1/24 dev eth0; ip -n pb addr add 10.0.0.2/24 dev eth1
for n in pa pb; do ip -n $n link set lo up; done
ip -n pa link set eth0 up; ip -n pb link set eth1 up
ip netns exec pa ethtool -K eth0 tso off gso off tx-udp-segmentation off >/dev/null
ip netns exec pb ethtool -K eth1 gro on
for backend in recv recvmmsg io_uring af_xdp; do
case $backend in recv) rates="10k 60k";; af_xdp) rates="10k 60k 250k";; *) rates="10k 100k";; esac
for rate in $rates; do
  taskset -c 0 ip netns exec pa $M send 10.0.0.2:4321 --rate $rate --duration 100s >/dev/null 2>&1 & S=$!
  sleep 0.5
  for round in 1 2 3; do for wait in block auto; do
    taskset -c 1 ip netns exec pb $M recv 10.0.0.2:4321 --backend $backend --wait $wait --duration 2s --json 2>/dev/null | python3 -c '
import json,sys
t=json.loads(sys.stdin.read().strip().split("\n")[-1])
print(sys.argv[1:], t["received"], "received", t["socket_drops"], "dropped", round(t["threads"][0]["cpu_ns_per_packet"]), "ns of CPU a packet", t["threads"][0].get("polls"))' $backend $rate $wait $round
  done; done
  kill $S; wait $S 2>/dev/null
done; done
