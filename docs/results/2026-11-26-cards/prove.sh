# What each stage is worth on a card whose reader gets nothing: prove.sh
. ./hosts.sh
for i in /proc/irq/*/; do echo 1 > $i/smp_affinity_list 2>/dev/null; done
{ echo "table inet firewall { chain slow { type filter hook prerouting priority raw;"
for i in $(seq 4000); do echo "ip saddr 192.0.2.$((i % 250)) udp dport $i drop"; done; echo "}"; echo "}"; } >/tmp/w/rules
ip netns exec b nft -f /tmp/w/rules
ip netns exec a taskset -c 0 mpps send 10.0.0.2:4321 --rate 16k --duration 900s >/tmp/w/send.txt 2>&1 &
tune() { echo "\$ mpps tune $*"; ip netns exec b mpps tune "$@"; }
tune plan eth1 --port 4321
ip netns exec b sh -c 'cd /tmp/w; taskset -c 1 mpps tune prove eth1 --port 4321'
cp /tmp/w/tune-prove.json "$1"
tune status
tune undo eth1
