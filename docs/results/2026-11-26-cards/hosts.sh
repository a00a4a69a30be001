mkdir -p /tmp/w; cd /tmp/w
for p in "a eth0 10.0.0.1/24" "b eth1 10.0.0.2/24"; do set -- $p
ip netns add $1; ip link set $2 netns $1; ip -n $1 addr add $3 dev $2; ip -n $1 link set $2 up; ip -n $1 link set lo up; done
for i in $(seq 100); do ip netns exec b cat /sys/class/net/eth1/carrier 2>/dev/null | grep -q 1 && break; sleep 0.2; done
for i in $(seq 50); do ip netns exec a ping -c1 -W1 10.0.0.2 >/dev/null 2>&1 && break; done
P=$(ip netns exec b ethtool -i eth1 | sed -n 's/^bus-info: //p')
irqs() { grep "$P\|eth1" /proc/interrupts | awk '{s=0; for(i=2;i<=3;i++) s+=$i; t+=s} END{print t}'; }
