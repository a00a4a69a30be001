# rings.sh ROUNDS PAYLOAD: a line is a round, the number of frames, and Mpps with a CPU to itself and on the queue's CPU
for r in $(seq $1); do for n in 4096 512 1024; do
mpps bench --only af_xdp/spin,af_xdp/auto --ring $n --size $2 --flows 1 --repeat 1 --seconds 0.4 --json x.json >/dev/null 2>&1
python3 -c "
import json;d=json.load(open('x.json'))
print($r,$n,*[round(x.get('mpps_median') or 0,3) for x in d['rows']])"
done; done
