import subprocess,time,re,os,statistics as st,json
def ticks(pids):
    t=0
    for p in pids:
        try:
            f=open(f"/proc/{p}/stat").read().rsplit(")",1)[1].split(); t+=int(f[11])+int(f[12])
        except FileNotFoundError: pass
    return t
def children(p):
    out=[p]
    for c in subprocess.run(["pgrep","-P",str(p)],capture_output=True,text=True).stdout.split(): out+=children(int(c))
    return out
E="target/release/examples/dns"
servers={"nsd":(["taskset","-c","1","nsd","-d","-c","nsd.conf"],5454),
 "dns recvmmsg":(["taskset","-c","1",E,"127.0.0.1:5455"],5455),
 "dns recv":(["taskset","-c","1",E,"127.0.0.1:5456","--backend","recv"],5456),
 "dns io_uring":(["taskset","-c","1",E,"127.0.0.1:5457","--backend","io_uring"],5457)}
rows=[]
names=list(servers)
for r in range(5):
    for n in names[r%4:]+names[:r%4]:
        cmd,port=servers[n]
        p=subprocess.Popen(cmd,stdout=subprocess.DEVNULL,stderr=subprocess.DEVNULL); time.sleep(1.0)
        pids=children(p.pid); b=ticks(pids)
        d=subprocess.run(["taskset","-c","0","dnsperf","-s","127.0.0.1","-p",str(port),"-d","q","-l","3","-q","200"],capture_output=True,text=True).stdout
        a=ticks(pids)
        p.terminate(); p.wait(); time.sleep(0.3)
        qps=float(re.search(r"Queries per second:\s+([\d.]+)",d).group(1)); lost=int(re.search(r"Queries lost:\s+(\d+)",d).group(1)); comp=int(re.search(r"Queries completed:\s+(\d+)",d).group(1)); lat=float(re.search(r"Average Latency \(s\):\s+([\d.]+)",d).group(1))
        rows.append(dict(round=r,server=n,qps=qps,lost=lost,cpu_us=(a-b)*1e4/comp,latency_us=lat*1e6)); print(rows[-1],flush=True)
json.dump(rows,open("dns.json","w"),indent=1)
for n in names:
    v=[x for x in rows if x["server"]==n]; base=[x for x in rows if x["server"]=="nsd"]
    base.sort(key=lambda x:x["round"]); v.sort(key=lambda x:x["round"])
    ra=[x["qps"]/y["qps"] for x,y in zip(v,base)]; rc=[x["cpu_us"]/y["cpu_us"] for x,y in zip(v,base)]
    f=lambda l:f"{st.median(l):.2f} ({min(l):.2f} to {max(l):.2f})"
    print(n,"qps",f([x["qps"]/1e3 for x in v]),"k; of nsd",f(ra),"cpu us",f([x["cpu_us"] for x in v]),"of nsd",f(rc),"latency us",f([x["latency_us"] for x in v]),"lost",sum(x["lost"] for x in v))
