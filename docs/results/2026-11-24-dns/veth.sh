ip netns add dA; ip netns add dB
ip link add va netns dA type veth peer name vb netns dB
ip -n dA addr add 10.9.0.1/24 dev va; ip -n dB addr add 10.9.0.2/24 dev vb
for n in A B; do ip -n d$n link set lo up; done
ip -n dA link set va up; ip -n dB link set vb up
ip netns exec dA ethtool -K va tso off gso off tx-udp-segmentation off >/dev/null 2>&1
ip netns exec dB ethtool -K vb tso off gso off tx-udp-segmentation off >/dev/null 2>&1
