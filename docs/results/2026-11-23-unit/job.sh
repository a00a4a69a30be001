mkdir -p /tmp/u; mount -t tmpfs t /tmp/u; cp packaging/mpps-exporter.service mpps /tmp/u/
ip link set lo up
export container=lxc
cat > /tmp/u/init <<'I'
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs t /run; mkdir -p /run/systemd/system /run/lock
mount -t tmpfs t /usr/local/bin; cp /tmp/u/mpps /usr/local/bin/mpps; chmod 755 /usr/local/bin/mpps
cp /tmp/u/mpps-exporter.service /run/systemd/system/

mount -t tmpfs t /var; mkdir -p /var/lib /var/tmp /var/log /var/cache /var/lib/private; 
mkdir -p /run/systemd/system/sysinit.target.d
exec /lib/systemd/systemd --system --unit=mpps-exporter.service --log-target=console --log-level=info --show-status=1
I
unshare --pid --mount --uts --ipc --cgroup --fork sh /tmp/u/init > systemd.log 2>&1 &
for i in $(seq 60); do sleep 1; curl -s http://127.0.0.1:9184/metrics > metrics && [ -s metrics ] && break; done
head -12 metrics
P=$(pgrep -x mpps); grep -E "^(Name|Uid|CapEff|NoNewPrivs|Seccomp):" /proc/$P/status; cat /proc/$P/cgroup
nft add table inet t; nft add chain inet t c '{ type filter hook input priority 0; }'; nft add rule inet t c udp dport 4321 drop
python3 -c "
import socket
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)
for i in range(1000): s.sendto(b'x',('127.0.0.1',4321))"
sleep 3; curl -s http://127.0.0.1:9184/metrics | grep -E 'firewall|offered'
nsenter -t $P -p -m systemctl status mpps-exporter.service --no-pager 2>&1 | head -20
tail -30 systemd.log
