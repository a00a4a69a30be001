. ./hosts.sh
for t in 0 53us 100us 250us 526us 1ms 2ms 5ms; do
  ip netns exec b mpps serve 10.0.0.2:8080 --moderation $t --moderation-by nic >/tmp/w/serve.txt 2>&1 &
  S=$!; for i in $(seq 100); do grep -q "http://" /tmp/w/serve.txt && break; sleep 0.1; done
  for i in $(seq 50); do ip netns exec a ping -c1 -W1 10.0.0.2 >/dev/null 2>&1 && break; done
  B=$(irqs)
  ip netns exec a mpps load http://10.0.0.2:8080/ --json --connections 8 --requests 1000 > /tmp/w/load.json 2>/tmp/w/load.err
  A=$(irqs)
  python3 - "$t" "$((A-B))" <<'P'
import json,sys
d=[json.loads(l) for l in open('/tmp/w/load.json') if l.strip().startswith('{')][-1] if open('/tmp/w/load.json').read(1)=='{' else {}
print(sys.argv[1], 'interrupts', sys.argv[2], 'completed', d.get('ledger',{}).get('requests',{}).get('completed'), 'rps', d.get('requests_per_second') or d.get('rps'), 'p50', (d.get('latency') or {}).get('p50_us') if isinstance(d.get('latency'),dict) else None)
P
  kill -INT $S; wait $S
done
head -c 1500 /tmp/w/load.json
