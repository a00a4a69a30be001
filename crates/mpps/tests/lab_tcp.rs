//! `mpps lab tcp` from end to end: our servers and others, ledgers, files, interruption, and
//! leftovers of a killed lab.

use crate::common::{self, Ended, Entered, Running, directory, marked, mpps, run};
use mpps::experiment::connections::result::{TcpCell, TcpLabBody, TcpLabResult};
use mpps::program::connections::ServeResult;
use mpps_host::{Snapshot, Topology};
use mpps_lab::{Lab, LabConfig};
use mpps_os::namespace::NetNamespace;
use mpps_trial::{Need, Trial, trials};
use std::fs;
use std::path::Path;
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits:
            the_cells_are_listed;
        waits(Need::Root):
            our_servers_are_measured_and_add_up,
            packaged_servers_are_measured_or_skipped_by_name,
            a_rate_of_the_link_bounds_a_run;
        waits(Need::Root):
            a_rate_is_measured_at_both_loads_and_the_best_is_that_of_the_rest,
            without_the_option_the_machine_keeps_its_setting,
            a_setting_that_is_not_there_is_refused_before_anything_is_made,
            interrupted_it_keeps_what_it_has,
            killed_it_keeps_what_it_had,
            a_server_that_ends_costs_its_own_cell_only,
            killed_it_leaves_nothing,
            an_ordinary_user_is_told_what_is_missing;
        waits(Need::Root, Need::Cpus(2)):
            with_affinity_a_connection_is_served_on_the_cpu_of_its_queue;
    ]
}

fn lab(directory: &TempDir, arguments: &[&str]) -> Ended {
    let mut command = mpps(&["lab", "tcp"]);
    run(command.args(arguments).current_dir(directory))
}

/// The result in a directory, held to the schema and to its own arithmetic.
fn result(directory: &TempDir) -> TcpLabResult {
    let text = common::valid::<TcpLabBody>(&directory.path().join("lab-tcp.json"));
    // This also refuses a ledger whose terms do not give its remainder.
    TcpLabResult::parse(&text).expect("it reads what it wrote")
}

/// Every connection of a cell is accounted for, the two kernels agree, and no packet passed by the
/// queues.
fn accounted_for(cell: &TcpCell) {
    let ledger = cell.ledger.as_ref().expect("a measured cell has a ledger");
    let figures = cell.figures.as_ref().expect("and figures");
    let name = format!("{} {} {}", cell.server, cell.step, cell.body_bytes);
    assert!(ledger.account.completed > 0, "{name}: {ledger:?}");
    assert_eq!(ledger.account.unaccounted, 0, "{name}: {ledger:?}");
    for witness in &ledger.witnesses {
        assert!(witness.agrees(), "{name}: {witness:?}");
    }
    // On an idle machine the share was 0.9998 once. The cause is not known: perhaps interface and
    // queues are read at two moments.
    let is_all = |share: Option<f64>| share.is_some_and(|share| (0.99..=1.01).contains(&share));
    assert!(is_all(figures.server_ring_share), "{name}: {figures:?}");
    assert!(is_all(figures.load_ring_share), "{name}: {figures:?}");
    assert!(figures.own_us_per_connection_median > 0.0, "{name}");
    assert!(figures.softirq_us_per_connection_median > 0.0, "{name}");
}

fn the_cells_are_listed() {
    let list = run(&mut mpps(&["lab", "tcp", "--list"])).fine();
    for key in [
        "1/mpps-epoll/1000 per s/1k",
        "1/mpps/adaptive at 10 %/1k",
        "1/mpps/off alone/1k",
        "2/mpps/fds/1k",
        "2/mpps/no-skb-defer/1k",
        "2/mpps-epoll/skb-defer/1k",
        "3/mpps-epoll/base/1k",
        "3/mpps/events/64k",
        "3/apache-prefork/moderation/16k",
    ] {
        assert!(list.out.contains(key), "{key}: {list:#?}");
    }
}

fn our_servers_are_measured_and_add_up() {
    let directory = directory();
    let only = "3/mpps-epoll/base/1k,3/mpps-epoll/affinity/1k,3/mpps-epoll/events/1k,\
        3/mpps/base/1k,3/mpps/events/1k,3/mpps-files/64k,2/mpps/fds";
    let ended = lab(
        &directory,
        &["--only", only, "--seconds", "150ms", "--repeat", "2"],
    );
    let ended = ended.fine();
    let result = result(&directory);
    assert!(result.complete && result.balances());
    let measured = result.cells.iter().filter(|cell| cell.skipped.is_none());
    // The step fds is skipped where the kernel keeps closed slots open, and affinity on one CPU.
    let steps = [
        mpps_os::uring::closes_slots().unwrap_or(false),
        result.server_cpus.len() > 1,
    ];
    let measurable = 5 + steps.map(usize::from).iter().sum::<usize>();
    assert_eq!(measured.clone().count(), measurable, "{ended:#?}");
    for cell in measured {
        accounted_for(cell);
        let figures = cell.figures.as_ref().expect("figures");
        assert_eq!(figures.cps_samples.len(), 2);
        // The sum is held to these when the file is read.
        let loads = &cell.ledger.as_ref().expect("a ledger").loads;
        assert!(loads.len() >= 4, "{loads:?}");
        assert!(loads.iter().all(|load| load.completed > 0), "{loads:?}");
    }
    let page = fs::read_to_string(directory.path().join("lab-tcp.html")).expect("it was written");
    assert!(page.trim_end().ends_with("</html>"));
}

/// A run with a rate carries no more than that and a burst, and is limited by it. A run without one
/// carries more.
fn a_rate_of_the_link_bounds_a_run() {
    const RATE: u64 = 20_000_000;
    for arguments in [&["--link-rate", "20mbit"][..], &[]] {
        let directory = directory();
        let common = [
            "--only=3/mpps/events/16k",
            "--connections=32",
            "--seconds=300ms",
        ];
        let arguments = [&common[..], &["--repeat=1"], arguments].concat();
        let ended = lab(&directory, &arguments).fine();
        let result = result(&directory);
        assert!(result.complete && result.balances());
        accounted_for(&result.cells[0]);
        let figures = result.cells[0].figures.as_ref().expect("figures");
        let is_limited = result.link_rate_bits.is_some();
        let mbit = figures.throughput_mbit_median;
        assert_eq!(mbit < RATE as f64 / 1e6, is_limited, "{figures:?}");
        assert_eq!(
            figures.limited_by == "link, of 20 Mbit/s",
            is_limited,
            "{figures:?}"
        );
        if is_limited {
            assert_eq!(result.link_rate_bits, Some(RATE));
            // A burst is 4096 bytes.
            let bytes = 16_384.0
                * result.cells[0]
                    .ledger
                    .as_ref()
                    .expect("a ledger")
                    .account
                    .completed as f64;
            let seconds = bytes * 8.0 / 1e6 / mbit;
            let most = 1.0 + 4096.0 * 8.0 / (RATE as f64 * seconds);
            assert!(figures.link_share <= Some(most), "{most}: {figures:?}");
        }
        let page =
            fs::read_to_string(directory.path().join("lab-tcp.html")).expect("it was written");
        for said in [page, ended.out] {
            let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(
                said.contains("link carries 20 Mbit/s at most"),
                is_limited,
                "{said}"
            );
        }
    }
}

/// The only fixed rate of the first experiment is the best, so that the second has it; the low load
/// is a part of the full one.
fn a_rate_is_measured_at_both_loads_and_the_best_is_that_of_the_rest() {
    let directory = directory();
    let only = "1/mpps-epoll/4000 per s,1/mpps-epoll/adaptive,1/mpps-epoll/4000 per s at 10 %,\
        2/mpps-epoll/moderation";
    let arguments = ["--only", only, "--seconds", "150ms", "--repeat", "1"];
    let ended = lab(&directory, &arguments).fine();
    let result = result(&directory);
    assert!(result.complete && result.balances());
    let [full, adaptive, low, second] = &result.cells[..] else {
        panic!("{ended:#?}")
    };
    result.cells.iter().for_each(accounted_for);
    let rates = [full, adaptive, low, second].map(|cell| (cell.moderation_us, cell.adaptive));
    let fixed = (Some(250.0), false);
    assert_eq!(rates, [fixed, (None, true), fixed, fixed]);
    let begun = [full, low].map(|cell| cell.ledger.as_ref().map(|ledger| ledger.account.started));
    assert!(
        low.load_share == Some(0.1) && begun[1] < begun[0],
        "{begun:?}"
    );
    let said = ended.out.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "Table 2: latency",
        "moderation in experiments 2 and 3 is 4000 per s",
    ] {
        assert!(said.contains(part), "{part}: {ended:#?}");
    }
}

/// Two queues and two workers. The address of the load chooses the queue, and each queue gets a
/// number of connections. With affinity the worker on a queue's CPU takes only the connections of
/// that queue. Without it, it does not.
fn with_affinity_a_connection_is_served_on_the_cpu_of_its_queue() {
    let cpus = Topology::read().expect("/sys is there").usable();
    let [first, second] = [cpus[0], cpus[1]];
    let lab = Lab::new(&LabConfig {
        queues: 2,
        queue_cpus: vec![first, second],
        sender_queue_cpus: vec![second, first],
        sender_addresses: 2,
        back_pressure: true,
        ..LabConfig::default()
    });
    let lab = lab.expect("root has a lab");
    let counts = [150, 50];
    for engine in ["epoll", "io_uring"] {
        let pin = format!("{first},{second}");
        let on = served(&lab, engine, &pin, "--only=affinity", counts);
        assert_eq!(on, counts, "{engine}");
        let off = served(&lab, engine, &pin, "--no-switches", counts);
        assert_eq!(off.iter().sum::<u64>(), 200, "{engine}");
        assert_ne!(off, counts, "{engine}");
    }
}

/// Sends this many connections through each queue, and returns how many each worker took.
fn served(lab: &Lab, engine: &str, pin: &str, switches: &str, counts: [u64; 2]) -> Vec<u64> {
    let address = format!("{}:80", lab.receiver().v4()[0]);
    let mut serve = mpps(&["serve", &address, "--json", "--workers=2", switches]);
    serve.args(["--engine", engine, "--pin", pin]);
    let mut server = lab.receiver().within(|| Running::start(&mut serve));
    server.line("serving at");
    let url = format!("http://{address}/");
    for source in lab.sender().v4() {
        let queue = usize::from(lab.queue_of((*source).into()).expect("it is steered"));
        let before = snapshot(lab);
        let (count, source) = (counts[queue].to_string(), source.to_string());
        let mut load = mpps(&["load", &url, "-c", "40", "-n", &count, "--source", &source]);
        lab.sender().within(|| run(&mut load)).fine();
        lab.settle().expect("silence comes");
        let packets = snapshot(lab).since(&before);
        let packets = packets.queue_packets(lab.receiver().interface());
        assert!(
            packets[queue].packets >= 3 * counts[queue] as i64,
            "{packets:?}"
        );
        assert_eq!(packets[1 - queue].packets, 0, "{packets:?}");
    }
    let ended = server.interrupt().fine();
    let total = ServeResult::parse(&ended.last_json().to_string()).expect("totals");
    total.body.accepted_by_worker
}

/// The counters of the server's host.
fn snapshot(lab: &Lab) -> Snapshot {
    let host = lab.receiver();
    host.within(|| Snapshot::take(&[host.interface()]))
        .expect("counters")
}

/// The setting of this machine that `--skb-defer` changes, and no test does.
const SKB_DEFER_MAX: &str = "/proc/sys/net/core/skb_defer_max";

fn without_the_option_the_machine_keeps_its_setting() {
    let setting = || fs::read_to_string(SKB_DEFER_MAX).ok();
    let before = setting();
    let directory = directory();
    let only = "2/mpps/no-skb-defer,2/mpps/skb-defer,3/mpps/base/1k";
    let ended = lab(
        &directory,
        &["--only", only, "--seconds", "300ms", "--repeat", "1"],
    );
    let ended = ended.fine();
    let result = result(&directory);
    let reason = if before.as_deref().is_some_and(|value| value.trim() != "0") {
        "--skb-defer"
    } else {
        "net.core.skb_defer_max"
    };
    let skipped = result.cells.iter().filter(|cell| cell.experiment == 2);
    assert_eq!(skipped.clone().count(), 2);
    for cell in skipped {
        let why = cell.skipped.as_deref().expect("it is skipped");
        assert!(why.contains(reason), "{why}");
        assert_eq!(cell.skb_defer_max, None);
    }
    let said = ended.out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("no-skb-defer, skb-defer:"), "{ended:#?}");
    assert_eq!(setting(), before);
}

/// A namespace other than the initial one does not show the setting.
fn a_setting_that_is_not_there_is_refused_before_anything_is_made() {
    let directory = directory();
    let namespace = NetNamespace::new().expect("root makes one");
    let ended = namespace.within(|| lab(&directory, &["--skb-defer"]));
    assert_eq!(ended.code(), 2, "{ended:#?}");
    for word in ["--skb-defer", "Linux 5.19", "initial network namespace"] {
        assert!(ended.err.contains(word), "{word}: {ended:#?}");
    }
    let mut files = fs::read_dir(&directory).expect("it is there");
    assert!(files.next().is_none(), "{ended:#?}");
}

fn packaged_servers_are_measured_or_skipped_by_name() {
    let directory = directory();
    let only = "3/lighttpd/1k,3/nginx/1k,3/apache-event/base/1k,3/apache-prefork/base/1k";
    lab(
        &directory,
        &["--only", only, "--seconds", "300ms", "--repeat", "1"],
    )
    .fine();
    let result = result(&directory);
    assert_eq!(result.servers.len(), 4);
    for server in &result.servers {
        let cells = || {
            let of_server = |cell: &&TcpCell| cell.server == server.name;
            result.cells.iter().filter(of_server)
        };
        match &server.skipped {
            Some(why) => {
                assert!(why.contains("apt-get install"), "{why}");
                assert!(cells().all(|cell| cell.skipped.as_ref() == Some(why)));
            }
            None => {
                let base = cells().find(|cell| cell.step == "base");
                accounted_for(base.expect("it has a base"));
                assert!(server.version.is_some(), "{server:?}");
            }
        }
    }
}

/// Ends a lab of a thousand rounds as soon as its file has a cell, and reads the file.
fn ended_early(end: impl FnOnce(Running)) -> TcpLabResult {
    let directory = directory();
    let mut command = mpps(&["lab", "tcp", "--only", "3/mpps-epoll/base/1k"]);
    command.args(["--seconds", "200ms", "--repeat", "1000"]);
    let running = Running::start(command.current_dir(&directory));
    for _ in 0..600 {
        if directory.path().join("lab-tcp.json").exists() {
            break;
        }
        thread::sleep(Duration::from_millis(50));
    }
    end(running);
    let result = result(&directory);
    assert!(!result.complete);
    assert!(result.cells.iter().any(|cell| cell.ledger.is_some()));
    result
}

fn interrupted_it_keeps_what_it_has() {
    ended_early(|running| {
        let ended = running.interrupt();
        assert_eq!(ended.code(), 130, "{ended:#?}");
    });
}

fn killed_it_keeps_what_it_had() {
    let result = ended_early(|running| running.signal("KILL"));
    accounted_for(&result.cells[0]);
}

/// The cell of a server that is killed is skipped with the reason, and the next one is measured.
fn a_server_that_ends_costs_its_own_cell_only() {
    let directory = directory();
    let marker = format!("MPPS_TEST_MARKER=ends-{}", std::process::id());
    let (name, value) = marker.split_once('=').expect("a name and a value");
    let mut command = mpps(&["lab", "tcp", "--seconds", "1s", "--repeat", "1"]);
    command.args(["--only", "3/mpps-epoll/base/1k,3/mpps/base/1k"]);
    let running = Running::start(command.current_dir(&directory).env(name, value));
    let is_server = |process: &String| {
        let words = fs::read(format!("/proc/{process}/cmdline")).unwrap_or_default();
        let mut words = words.split(|byte| *byte == 0);
        words.nth(1) == Some(b"serve")
    };
    let server = (0..2000).find_map(|_| {
        thread::sleep(Duration::from_millis(5));
        marked(&marker).into_iter().find(is_server)
    });
    common::kill("KILL", &server.expect("a server"));
    running.end().fine();
    let result = result(&directory);
    let [first, second] = &result.cells[..] else {
        panic!("{result:#?}")
    };
    let why = first.skipped.as_deref().expect("its server has ended");
    assert!(why.contains("mpps-epoll ended"), "{why}");
    accounted_for(second);
    assert!(result.complete);
}

/// Neither a server that makes daemons nor the load outlives the lab, and nothing is mounted.
fn killed_it_leaves_nothing() {
    let directory = directory();
    let marker = format!("MPPS_TEST_MARKER=tcp-{}", std::process::id());
    let (name, value) = marker.split_once('=').expect("a name and a value");
    let mounts = || fs::read_to_string("/proc/self/mounts").expect("/proc is mounted");
    let before = mounts();
    let is_installed = Path::new("/usr/sbin/apache2").exists();
    let server = if is_installed {
        "3/apache-prefork/base/1k"
    } else {
        "3/mpps/events/1k"
    };
    for delay_ms in [100, 1500] {
        let mut command = mpps(&["lab", "tcp", "--only", server, "--seconds", "5"]);
        let running = Running::start(command.current_dir(&directory).env(name, value));
        thread::sleep(Duration::from_millis(delay_ms));
        running.signal("KILL");
        drop(running);
        for _ in 0..400 {
            if marked(&marker).is_empty() {
                break;
            }
            thread::sleep(Duration::from_millis(50));
        }
        assert_eq!(marked(&marker), [""; 0]);
    }
    assert_eq!(mounts(), before);
}

fn an_ordinary_user_is_told_what_is_missing() {
    let directory = directory();
    let ended = common::as_nobody(directory.path(), &["lab", "tcp", "--quick"]);
    ended.fails(&["run as root"]);
}
