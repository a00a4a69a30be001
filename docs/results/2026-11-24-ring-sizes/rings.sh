for r in 1 2 3 4 5 6 7 8 9; do for n in 4096 256 512 1024 2048 16384; do
mpps bench --only af_xdp/spin --ring $n --flows 1 --repeat 1 --seconds 0.4 --json /tmp/x.json --html /tmp/x.html >/dev/null 2>&1
python3 -c "
import json;d=json.load(open('/tmp/x.json'))
print($r,$n,*[round(x['mpps_median'],3) for x in d['rows']])"
done; done
