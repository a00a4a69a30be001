# receiver eth0 with its smallest ring and its NAPI threads starved; sender eth1 in netns b floods
import subprocess,os,re,json,time,glob,sys
def sh(c): 
    p=subprocess.run(c,shell=True,capture_output=True,text=True); return (p.stdout+p.stderr).strip()
def stats(ns=''):
    i='eth1' if ns else 'eth0'; d={}
    for l in sh(f'{ns}ethtool -S {i}').splitlines():
        m=re.match(r'\s*(.*?):\s*(\d+)$',l)
        if m: d['S '+str(len(d))+' '+m[1].strip()]=int(m[2])
    l=json.loads(sh(f'{ns}ip -j -s -s link show {i}'))[0]
    for x in ('rx','tx'):
        for k,v in l['stats64'][x].items(): d[f'rtnl {x}.{k}']=v
    return d
count=int(os.environ.get('COUNT','30000'))
print(sh("ethtool -g eth0 | awk '/RX:/{print}' "))
r=os.environ.get('RING','64'); print('-G rx',r,':',sh(f'ethtool -G eth0 rx {r}'), sh("ethtool -g eth0 | awk '/RX:/{print}' | tail -1"))
time.sleep(5)
print('carrier',sh('cat /sys/class/net/eth0/carrier'))
mode=os.environ.get('MODE','starve')
hogs=[]
if mode=='starve':
    sh('echo -1 > /proc/sys/kernel/sched_rt_runtime_us')
    sh('echo 1 > /sys/class/net/eth0/threaded'); time.sleep(.5)
    pids=[p for p in sh('ps -eo pid,comm').splitlines() if 'napi/eth0' in p]
    print('napi threads',len(pids))
    for p in pids: sh(f'taskset -pc 3 {p.split()[0]}')
    # taskset of a napi kthread works: it is not bound to a CPU
def t(what):
    time.sleep(3)
    a,b=stats(),stats('ip netns exec b ')
    if mode=='starve': hogs.append(subprocess.Popen(['taskset','-c','3','chrt','-f','50','sh','-c','while :; do :; done']))
    time.sleep(.5)
    P='/proc/net/pktgen/eth1'
    s='echo rem_device_all > /proc/net/pktgen/kpktgend_0; echo add_device eth1 > /proc/net/pktgen/kpktgend_0; '
    for w in (f'count {count}','delay 0','pkt_size 60','dst 10.0.0.1','dst_mac 52:54:00:00:00:00','src_min 10.0.0.2','src_max 10.0.0.2'): s+=f'echo "{w}" > {P}; '
    s+=f'echo start > /proc/net/pktgen/pgctrl; grep -A1 Result {P}'
    print(what,'\n',sh(f"ip netns exec b sh -c '{s}'"))
    time.sleep(1)
    for h in hogs: h.terminate()
    hogs.clear()
    time.sleep(5)
    c,d=stats(),stats('ip netns exec b ')
    print('receiver',{k:c[k]-a[k] for k in c if k in a and c[k]!=a[k]})
    print('sender',{k:d[k]-b[k] for k in d if k in b and d[k]!=b[k]})
t('flood 1'); 
if os.environ.get('TWICE'): t('flood 2')
print(sh('dmesg | tail -4; grep eth0 /proc/interrupts'))
