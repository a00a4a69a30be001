#!/usr/bin/env python3
"""Times each query of packaging/grafana-dashboard.json against Prometheus with many synthetic hosts.

    mpps top --textfile /tmp/mpps.prom --interval 1s   # one file as the form of each host
    bench/dashboard.py /tmp/mpps.prom [HOSTS]

Each host has an hour of samples, one a minute. Every 20th loses packets. Needs prometheus and promtool.
"""
import json, pathlib, re, subprocess, sys, tempfile, time, urllib.parse, urllib.request

PACKAGING = pathlib.Path(__file__).resolve().parent.parent / "packaging"
STEP, SPAN, PORT = 60, 3600, 19090
series = [line.rsplit(" ", 1)[0] for line in open(sys.argv[1]) if not line.startswith("#")]
series += [f'mpps_queue_packets_total{{interface="eth0",queue="{queue}"}}' for queue in range(8)]
hosts = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
end = int(time.time()) // STEP * STEP
folder = pathlib.Path(tempfile.mkdtemp())


def samples(file, chunk):
    """Writes a chunk of hosts as OpenMetrics, one metric after the other."""
    for name in dict.fromkeys(re.split("[{]", one)[0] for one in series):
        family = name.removesuffix("_total")
        print(f"# TYPE {family} {'counter' if name != family else 'gauge'}", file=file)
        for one in (one for one in series if re.split("[{]", one)[0] == name):
            labels = one[len(name):].strip("{}")
            for host in chunk:
                own = ",".join(filter(None, [labels, f'instance="host{host}:9184",job="mpps"']))
                rate = 100 + host if "offered" in name or "interface" in name or "queue" in name else 0
                rate = 90 + host if "delivered" in name else rate
                rate = 10 if "socket_buffer_full" in one and host % 20 == 0 else rate
                for at in range(0, SPAN, STEP):
                    value = rate * at if name != family else 1
                    print(f"{name}{{{own}}} {value} {end - SPAN + at}", file=file)
    print("# EOF", file=file)


for first in range(0, hosts, 250):
    text = folder / "samples"
    with open(text, "w") as file:
        samples(file, range(first, min(first + 250, hosts)))
    subprocess.run(["promtool", "tsdb", "create-blocks-from", "openmetrics", text, folder / "data"],
                   check=True, stdout=subprocess.DEVNULL)
    text.unlink()
(folder / "prometheus.yml").write_text("global: {}\n")
server = subprocess.Popen(["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data",
                           "--storage.tsdb.retention.time=1y", f"--web.listen-address=127.0.0.1:{PORT}"], stderr=subprocess.DEVNULL)


def ask(path, **arguments):
    url = f"http://127.0.0.1:{PORT}/{path}?{urllib.parse.urlencode(arguments)}"
    return urllib.request.urlopen(url).read()


def ready():
    try:
        return b"Ready" in ask("-/ready")
    except OSError:
        return False


try:
    while not ready():
        time.sleep(0.1)
    rules = ["promtool", "tsdb", "create-blocks-from", "rules", f"--start={end - SPAN + 600}", f"--end={end}",
             f"--url=http://127.0.0.1:{PORT}", f"--output-dir={folder}/data", "--eval-interval=60s"]
    # The second time those that read others.
    for _ in range(2):
        began = time.time()
        subprocess.run([*rules, PACKAGING / "prometheus-rules.yml"], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        print(f"recording rules: {(time.time() - began) / (SPAN - 600) * STEP:.2f} s for each evaluation")
        server.terminate()
        server.wait()
        server = subprocess.Popen(server.args, stderr=subprocess.DEVNULL)
        while not ready():
            time.sleep(0.1)
    head = json.loads(ask("api/v1/query", query='count({job="mpps"})', time=end - STEP))
    print(f"{hosts} hosts, {head['data']['result'][0]['value'][1]} series with the recorded")
    panels = json.load(open(PACKAGING / "grafana-dashboard.json"))["panels"]
    for panel in panels:
        for target in panel.get("targets", []):
            query = target["expr"].replace("$__rate_interval", "4m")
            query = re.sub(r"\$(job|instance|container)", ".*", query)
            began = time.time()
            if target.get("instant"):
                answer = ask("api/v1/query", query=query, time=end - STEP)
            else:
                answer = ask("api/v1/query_range", query=query, start=end - SPAN, end=end, step=STEP)
            took = time.time() - began
            result = json.loads(answer)["data"]["result"]
            print(f"{took:6.2f} s  {len(result):4} series  {panel['title']} {target['refId']}")
finally:
    server.terminate()
    server.wait()
    subprocess.run(["rm", "-rf", folder])
