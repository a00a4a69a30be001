# What each stage is worth on a card, to a reader behind a firewall that asks for states: prove.sh FILE
. ./hosts.sh
ip netns exec b nft 'table inet firewall { chain input { type filter hook input priority 0; ct state established,related accept; udp dport 4321 accept; }; }'
ip netns exec a taskset -c 0 mpps send 10.0.0.2:4321 --flows 1000 --duration 900s >/tmp/w/send.txt 2>&1 &
cd /tmp/w
tune() { echo "\$ mpps tune $*"; ip netns exec b mpps tune "$@"; }
tune plan eth1 --port 4321
tune prove eth1 --port 4321
cp tune-prove.json "$1"
tune status
tune undo eth1
