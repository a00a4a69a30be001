//! The exporter, by itself and with the Prometheus of Debian.

use super::{PORT, SENT, Scenario};
use crate::common::{self, Running, mpps, run};
use mpps_trial::{Need, Trial, trials};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::thread;
use std::time::Duration;

const PROMETHEUS: Need = Need::Program("prometheus promtool", "prometheus");

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Namespace):
            what_is_exported_adds_up,
            clients_get_their_answers,
            a_file_has_the_metrics,
            slow_clients_keep_no_other_from_its_answer;
        waits(Need::Root):
            namespaces_have_their_series_while_they_exist,
            files_that_are_no_namespaces_hide_none,
            a_full_disk_ends_no_exporter;
        waits(Need::Root, Need::Program("setpriv", "util-linux")): the_rights_of_the_unit_suffice;
        waits(Need::Root, PROMETHEUS): prometheus_has_it, alerts_are_raised;
    ]
}

/// How often something is asked for that takes a moment.
const ASKED_MAX: usize = 600;
const MOMENT: Duration = Duration::from_millis(100);

fn packaging(file: &str) -> PathBuf {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");
    PathBuf::from(folder).join(file)
}

/// An exporter in the namespace of a scenario's receiver, and its address.
fn exporter(scenario: &Scenario) -> (Running, SocketAddr) {
    limited(scenario, "")
}

/// The same under a limit that a shell sets.
fn limited(scenario: &Scenario, limit: &str) -> (Running, SocketAddr) {
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("{limit} exec \"$@\""), "sh"]);
    shell.args([env!("CARGO_BIN_EXE_mpps"), "top", "--listen", "127.0.0.1:0"]);
    shell.args(["--netns", &scenario.receiver()]);
    let mut running = Running::start(&mut shell);
    let line = running.line("answering at http://");
    let address = line.trim_start_matches("answering at http://");
    let address = address.split('/').next().expect("an address");
    (running, address.parse().expect("an address"))
}

/// One of all namespaces, for other programs of this host.
fn exporter_of_all() -> (Running, SocketAddr) {
    let arguments = ["top", "--listen", "0", "--interval", "100ms", "--all-netns"];
    let mut running = Running::start(&mut mpps(&arguments));
    let line = running.line("answering at http://");
    let address = line.trim_start_matches("answering at http://");
    assert!(address.starts_with("127.0.0.1:"), "{line}");
    let address = address.split('/').next().expect("an address");
    (running, address.parse().expect("an address"))
}

/// The reply to a client that sends this request.
fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .expect("it answers in text");
    answer
}

fn metrics(address: SocketAddr) -> BTreeMap<String, u64> {
    let answer = exchange(address, "GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    series(body)
}

fn series(body: &str) -> BTreeMap<String, u64> {
    let series = body.lines().filter(|line| !line.starts_with('#'));
    let series = series.map(|line| {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        (name.to_owned(), value.parse().expect("a count"))
    });
    series.collect()
}

fn what_is_exported_adds_up() {
    let scenario = Scenario::new();
    let (running, address) = exporter(&scenario);
    let before: Vec<String> = metrics(address).into_keys().collect();
    scenario.send(SENT);
    let read = scenario.read();
    let mut after = BTreeMap::new();
    for _ in 0..ASKED_MAX {
        after = metrics(address);
        let told = |name: &str| after.get(name).copied().unwrap_or(0);
        let delivered = told("mpps_delivered_packets_total");
        if told("mpps_offered_packets_total") == SENT && delivered == read {
            break;
        }
        thread::sleep(MOMENT);
    }
    assert_eq!(after["mpps_offered_packets_total"], SENT, "{after:#?}");
    let sum = |name: &str| {
        let own = after.iter().filter(|(series, _)| series.starts_with(name));
        own.map(|(_, count)| count).sum::<u64>()
    };
    let ended = sum("mpps_delivered_packets_total") + sum("mpps_lost_packets_total{");
    assert_eq!(ended, SENT, "{after:#?}");
    let full = format!(
        "mpps_lost_packets_total{{station=\"socket\",reason=\"socket_buffer_full\",port=\"{PORT}\"}}"
    );
    assert_eq!(after[&full], SENT - read);
    let came = sum("mpps_interface_packets_total{");
    assert!(came >= SENT, "{after:#?}");
    assert!(sum("mpps_queue_packets_total{") <= came, "{after:#?}");
    // No series has gone. Except for interfaces only one has come: that of the port.
    assert!(
        before.iter().all(|name| after.contains_key(name)),
        "{before:#?}"
    );
    let new = after
        .keys()
        .filter(|name| !before.contains(name))
        .filter(|name| !name.contains("interface=") && !name.starts_with("mpps_visible"));
    assert_eq!(new.collect::<Vec<_>>(), [&full]);
    running.interrupt().fine();
}

fn a_file_has_the_metrics() {
    let scenario = Scenario::new();
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("mpps.prom");
    let file = file.to_str().expect("a plain name");
    let mut command = mpps(&["top", "--interval", "100ms", "--textfile", file]);
    let mut running = Running::start(command.args(["--netns", &scenario.receiver()]));
    running.line("writing ");
    let offered =
        || series(&fs::read_to_string(file).expect("it is whole"))["mpps_offered_packets_total"];
    assert_eq!(offered(), 0);
    scenario.send(SENT);
    for _ in 0..ASKED_MAX {
        if offered() == SENT {
            break;
        }
        thread::sleep(MOMENT);
    }
    assert_eq!(offered(), SENT);
    running.interrupt().fine();
    let files = fs::read_dir(directory.path()).expect("it is there");
    assert_eq!(files.count(), 1, "no half file is left");
}

/// They were first in each look, and no more than four new ones begin with one.
fn files_that_are_no_namespaces_hide_none() {
    let scenario = Scenario::new();
    fs::create_dir_all("/run/netns").expect("the trial has its own /run");
    for at in 0..8 {
        fs::write(format!("/run/netns/stale{at}"), "").expect("a file");
    }
    let hostile = "/run/netns/we\u{1b}[2Jb";
    fs::write(hostile, "").expect("a file");
    run(Command::new("mount").args(["--bind", &scenario.receiver(), hostile])).fine();
    let (mut running, address) = exporter_of_all();
    running.line("namespace /run/netns/stale7 is not looked at: it cannot be entered");
    let mut all = metrics(address);
    for _ in 0..ASKED_MAX {
        if all.contains_key("mpps_offered_packets_total{container=\"we\u{fffd}[2Jb\"}") {
            break;
        }
        thread::sleep(MOMENT);
        all = metrics(address);
    }
    let names: String = all.keys().cloned().collect();
    assert!(
        names.contains("we\u{fffd}[2Jb") && !names.contains('\u{1b}'),
        "{all:#?}"
    );
    assert_eq!(all["mpps_visible{what=\"namespaces\"}"], 0);
    let ended = running.interrupt().fine();
    assert_eq!(
        ended.err.matches("stale3 is not looked at").count(),
        1,
        "{ended:?}"
    );
}

/// It goes on once there is room, and its counts with it.
fn a_full_disk_ends_no_exporter() {
    let scenario = Scenario::new();
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().to_str().expect("a plain name");
    let small = ["-t", "tmpfs", "-o", "size=64k", "none", path];
    run(Command::new("mount").args(small)).fine();
    let file = format!("{path}/mpps.prom");
    let mut command = mpps(&["top", "--interval", "100ms", "--textfile", &file]);
    let mut running = Running::start(command.args(["--netns", &scenario.receiver()]));
    running.line("writing ");
    let offered =
        || fs::read_to_string(&file).map(|text| series(&text)["mpps_offered_packets_total"]);
    while offered().is_err() {
        thread::sleep(MOMENT);
    }
    let fill = format!("{path}/fill");
    assert!(fs::write(&fill, [0; 1 << 17]).is_err());
    running.line("it is tried again");
    scenario.send(SENT);
    fs::remove_file(&fill).expect("it is this trial's");
    for _ in 0..ASKED_MAX {
        if offered().is_ok_and(|count| count == SENT) {
            break;
        }
        thread::sleep(MOMENT);
    }
    assert_eq!(offered().ok(), Some(SENT));
    running.interrupt().fine();
    run(Command::new("umount").arg(path)).fine();
}

/// Series of the namespace of a container have its name, and end with it.
fn namespaces_have_their_series_while_they_exist() {
    let scenario = Scenario::new();
    let mount = |words: &[&str]| run(Command::new(words[0]).args(&words[1..])).fine();
    fs::create_dir_all("/run/netns").expect("the trial has its own /run");
    fs::write("/run/netns/web", "").expect("a file");
    mount(&["mount", "--bind", &scenario.receiver(), "/run/netns/web"]);
    let (running, address) = exporter_of_all();
    let web = || {
        metrics(address)
            .get("mpps_offered_packets_total{container=\"web\"}")
            .copied()
    };
    let until = |count| {
        for _ in 0..ASKED_MAX {
            if web() == count {
                break;
            }
            thread::sleep(MOMENT);
        }
        assert_eq!(web(), count, "{:#?}", metrics(address));
    };
    until(Some(0));
    scenario.send(SENT);
    until(Some(SENT));
    let all = metrics(address);
    assert_eq!(all["mpps_visible{what=\"namespaces\"}"], 1);
    let full = "mpps_lost_packets_total{container=\"web\",station=\"socket\",reason=\"socket_buffer_full\"";
    let lost = all.iter().filter(|(name, _)| name.starts_with(full));
    assert_eq!(
        lost.map(|(_, count)| count).sum::<u64>(),
        SENT - scenario.read()
    );
    mount(&["umount", "/run/netns/web"]);
    fs::remove_file("/run/netns/web").expect("it is this trial's");
    until(None);
    running.interrupt().fine();
}

fn clients_get_their_answers() {
    let scenario = Scenario::new();
    let (running, address) = exporter(&scenario);
    // A silent client does not delay the replies to the others for long.
    let silent = TcpStream::connect(address).expect("it listens");
    let answer = exchange(address, "GET / HTTP/1.1\r\n\r\n");
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.contains("/metrics"),
        "{answer}"
    );
    drop(silent);
    // The exporter reads only the start of a request without end. The kernel resets the rest.
    let mut endless = TcpStream::connect(address).expect("it listens");
    let _ = endless.write_all(&[b'x'; 20_000]);
    let mut answer = Vec::new();
    let _ = endless.read_to_end(&mut answer);
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400 "));
    let second = run(&mut mpps(&["top", "--listen", &address.to_string()]));
    second.fails(&["Address already in use"]);
    running.interrupt().fine();
}

/// More clients than the exporter takes. They come, write a little, and stay. Some end their
/// request later, and get their answer if they are not among the oldest.
fn slow_clients_keep_no_other_from_its_answer() {
    const SLOW: usize = 200;
    let scenario = Scenario::new();
    // With few descriptors there are fewer clients, and the looks at the host have theirs.
    for (limit, most) in [("", 64), ("ulimit -n 64;", 32)] {
        let (running, address) = limited(&scenario, limit);
        for _ in 0..3 {
            let mut slow: Vec<TcpStream> = (0..SLOW).map(|_| come(address)).collect();
            assert!(!metrics(address).is_empty());
            let open = fs::read_dir(format!("/proc/{}/fd", running.id()));
            let open = open.expect("it runs").count();
            assert!((most..most + 24).contains(&open), "{open} descriptors");
            let mut answer = String::new();
            let newest = slow.last_mut().expect("there are some");
            newest.write_all(b"a\r\n\r\n").expect("it reads");
            newest.read_to_string(&mut answer).expect("it answers");
            assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
            // The end, or a reset.
            let mut rest = Vec::new();
            let _ = slow[0].read_to_end(&mut rest);
            assert_eq!(rest, [0; 0], "it was closed");
        }
        running.interrupt().fine();
    }
}

/// A client that says a part of its request.
fn come(address: SocketAddr) -> TcpStream {
    let mut slow = TcpStream::connect(address).expect("it listens");
    slow.write_all(b"GET /metrics HTTP/1.1\r\nHost: ")
        .expect("it reads");
    slow
}

/// With only the unit's rights, a user sees the drops of a firewall.
fn the_rights_of_the_unit_suffice() {
    let unit = fs::read_to_string(packaging("mpps-exporter.service")).expect("it is there");
    let rights = |key: &str| -> String {
        let line = unit.lines().find_map(|line| line.strip_prefix(key));
        let rights = line.expect("the unit names them").split(' ');
        let rights =
            rights.map(|right| format!("+{}", right.trim_start_matches("CAP_").to_lowercase()));
        format!("-all,{}", rights.collect::<Vec<_>>().join(","))
    };
    let (ambient, bounding) = (
        rights("AmbientCapabilities="),
        rights("CapabilityBoundingSet="),
    );
    let start = unit
        .lines()
        .find_map(|line| line.strip_prefix("ExecStart=/usr/local/bin/mpps "));
    let start = start
        .expect("the unit starts it")
        .replace("127.0.0.1:9184", "127.0.0.1:0");
    // A place that any user can reach.
    let directory = tempfile::tempdir().expect("a directory");
    let program = common::copy_for_all(directory.path());
    let mut command = Command::new("setpriv");
    command.args("--reuid 65534 --regid 65534 --clear-groups --no-new-privs".split(' '));
    command.args(
        format!("--inh-caps {ambient} --ambient-caps {ambient} --bounding-set {bounding}")
            .split(' '),
    );
    command.arg(program).args(start.split(' '));
    let mut running = Running::start(&mut command);
    running.line("answering at http://");
    assert!(!running.has_said("not seen"), "{running:#?}");
    running.interrupt().fine();
}

/// The count in an answer of Prometheus.
fn count(result: &Value) -> Option<u64> {
    result[0]["value"][1].as_str()?.parse().ok()
}

/// The answer of Prometheus to a query.
fn query(address: SocketAddr, query: &str) -> Value {
    let escaped: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
    let request = format!("GET /api/v1/query?query={escaped} HTTP/1.0\r\nHost: a\r\n\r\n");
    let answer = exchange(address, &request);
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let value: Value =
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
    assert_eq!(value["status"], "success", "{query}: {value:#}");
    value["data"]["result"].clone()
}

fn prometheus_has_it() {
    let scenario = Scenario::new();
    let (_running, exporter) = exporter(&scenario);
    let directory = tempfile::tempdir().expect("a directory");
    let rules = packaging("prometheus-rules.yml");
    let config = format!(
        "global: {{scrape_interval: 1s, evaluation_interval: 1s}}\nrule_files: ['{}']\n\
         scrape_configs: [{{job_name: mpps, static_configs: [{{targets: ['{exporter}']}}]}}]\n",
        rules.display()
    );
    let file = directory.path().join("prometheus.yml");
    fs::write(&file, config).expect("it can be written");
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let address = free.expect("a port");
    let mut command = Command::new("prometheus");
    command.arg(format!("--config.file={}", file.display()));
    command.arg(format!(
        "--storage.tsdb.path={}",
        directory.path().join("data").display()
    ));
    command.arg(format!("--web.listen-address={address}"));
    let mut prometheus = Running::start(&mut command);
    prometheus.line("Server is ready to receive web requests");
    let ask = |text: &str| query(address, text);
    let asked_until = |text: &str, is_it: &dyn Fn(&Value) -> bool| {
        for _ in 0..ASKED_MAX {
            let result = ask(text);
            if is_it(&result) {
                return;
            }
            thread::sleep(MOMENT);
        }
        panic!("{text}: {:#}", ask(text));
    };
    asked_until("mpps_offered_packets_total", &|result| {
        count(result) == Some(0)
    });
    scenario.send(SENT);
    let read = scenario.read();
    asked_until("mpps_offered_packets_total", &|result| {
        count(result) == Some(SENT)
    });
    let lost = format!("sum(mpps_lost_packets_total{{port=\"{PORT}\"}})");
    asked_until(&lost, &|result| count(result) == Some(SENT - read));
    // Each query of the dashboard has an answer; `> 0` and the ranges are the page's own.
    let dashboard = fs::read_to_string(packaging("grafana-dashboard.json")).expect("it is there");
    let dashboard: Value = serde_json::from_str(&dashboard).expect("it is JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let targets = panels.iter().flat_map(|panel| panel["targets"].as_array());
    let queries = targets
        .flatten()
        .filter_map(|target| target["expr"].as_str());
    let queries: Vec<String> = queries.map(concrete).collect();
    assert_eq!(queries.len(), 14, "{queries:?}");
    for query in queries.iter().filter(|query| !query.contains("queue")) {
        asked_until(query, &|result| !result[0].is_null());
    }
    for query in queries {
        let _ = ask(&query);
    }
}

/// A query of the dashboard with its variables filled in.
fn concrete(query: &str) -> String {
    let variables = ["$job", "$instance", "$container"].into_iter();
    let query = query.replace("$__rate_interval", "1m");
    variables.fold(query, |query, name| query.replace(name, ".*"))
}

/// The rules pass their own tests, and the exported metrics pass promtool.
fn alerts_are_raised() {
    let rules = packaging("prometheus-rules.test.yml");
    let folder = packaging("");
    let promtool = |arguments: &[&str]| {
        let mut command = Command::new("promtool");
        run(command.args(arguments).current_dir(&folder)).fine()
    };
    let file = rules
        .file_name()
        .and_then(|name| name.to_str())
        .expect("a plain name");
    promtool(&["test", "rules", file]);
    promtool(&["check", "rules", "prometheus-rules.yml"]);
    let scenario = Scenario::new();
    let (_running, exporter) = exporter(&scenario);
    let answer = exchange(exporter, "GET /metrics HTTP/1.0\r\n\r\n");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("metrics");
    fs::write(&file, body).expect("it can be written");
    let check = format!("promtool check metrics < {}", file.display());
    let checked = run(Command::new("sh").args(["-c", &check])).fine();
    assert_eq!(checked.out + &checked.err, "", "it has no complaint");
}
