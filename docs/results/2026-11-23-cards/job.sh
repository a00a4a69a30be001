M=mpps
ip netns add b; ip link set eth1 netns b
ip addr add 10.0.0.1/24 dev eth0; ip link set eth0 up
ip -n b addr add 10.0.0.2/24 dev eth1; ip -n b link set eth1 up
sleep 4
modprobe pktgen
echo 0 > /proc/sys/net/ipv4/icmp_ratelimit; echo 1 > /proc/sys/net/ipv4/icmp_echo_ignore_all; ip neigh replace 10.0.0.2 lladdr 52:54:00:00:00:01 dev eth0
(sleep 5; exec taskset -c 1 $M doctor eth0 --seconds 200 --json > doctor.json 2>doctor.err) & 
python3 flood.py
pkill -INT -x mpps; sleep 6; cat doctor.err; python3 - <<'P'
import json
d=json.load(open('doctor.json'))
for f in d['findings']: print(f['check'],f['count'],f['confidence'],f['is_remark'],'|',f['what'],'|',f['remedy'],'|',f['evidence'])
print(d['ledger']['offered'],d['ledger']['delivered'],d['ledger']['unaccounted'],d['notes'])
P
echo ==== XDP
modprobe xsk_diag; ip netns add c; ip link add va type veth peer name vb; ip link set vb netns c
ip addr add 10.1.0.1/24 dev va; ip link set va up; ip -n c addr add 10.1.0.2/24 dev vb; ip -n c link set vb up
sleep 2
$M recv 10.1.0.1:4321 --backend af_xdp --interface va > recv.txt 2>&1 &
R=$!; sleep 6; kill -STOP $R
(exec $M doctor va --seconds 100 --json > xdp.json 2>xdp.err) & D=$!
sleep 8
ip netns exec c $M send 10.1.0.1:4321 --count 20000 2>&1 | tail -3
sleep 2; kill -INT $D; wait $D; cat xdp.err
python3 - <<'P'
import json
d=json.load(open('xdp.json'))
for f in d['findings']: print(f['check'],f['count'],f['confidence'],f['is_remark'],'|',f['what'],'|',f['remedy'],'|',f['evidence'])
print(d['ledger'],d['notes'])
P
kill -CONT $R; sleep 1; kill -INT $R; sleep 2; tail -12 recv.txt; ethtool -S va; ss -A xdp -aemi 2>/dev/null | head
