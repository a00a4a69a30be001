ip netns add a
ip link set eth0 netns a
ip -n a addr add 10.0.0.1/24 dev eth0; ip -n a link set eth0 up
ip -n a neigh replace 10.0.0.2 lladdr 52:54:00:00:00:01 dev eth0
place=$(ethtool -i eth1 | sed -n 's/bus-info: //p'); driver=$(ethtool -i eth1 | sed -n 's/^driver: //p')
pci=$(basename $(readlink -f /sys/class/net/eth1/device)); case $driver in virtio_net) pci=$(basename $(dirname $(readlink -f /sys/class/net/eth1/device)));; esac
echo "driver $driver place $place pci $pci"
modprobe uio_pci_generic
echo $pci > /sys/bus/pci/devices/$pci/driver/unbind
echo uio_pci_generic > /sys/bus/pci/devices/$pci/driver_override
echo $pci > /sys/bus/pci/drivers/uio_pci_generic/bind
ls -l /sys/bus/pci/devices/$pci/driver
mkdir -p /dev/hugepages; mount -t hugetlbfs none /dev/hugepages; echo 200 > /proc/sys/vm/nr_hugepages; grep HugePages /proc/meminfo
P=mpps
cd /tmp
$P recv 10.0.0.2:4321 --backend dpdk --hugepages --dpdk-args "-a $pci" --json --duration 25s > recv.json 2> recv.err & R=$!
sleep 9
ip netns exec a $P send 10.0.0.2:4321 --rate 2000 --count 2000 --json --stamp > send.json
sleep 3; pkill -INT -f 'recv 10'; wait $R; echo status $?
cat recv.err; tail -c 1500 recv.json; echo; tail -c 600 send.json
$P ledger send.json recv.json
