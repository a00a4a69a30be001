//! `mpps fix` where packets are lost before any socket: it measures a stage of `mpps tune`, and keeps
//! it if it helps. `mpps tune undo` restores the card and its host.

use super::card::set_threaded;
use super::common::{Running, run};
use super::tuning::{FIRST, state, to_first};
use super::{ADDRESS, RATE, at, ip};
use libtest_mimic::Trial;
use std::process::Command;

/// A driver; the host of its card; commands there, which make it lose packets; the stage that is for
/// such a loss, and its change.
type Row = (
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
);

const ROWS: [Row; 4] = [
    // A hand-over between CPUs that the card's queues make needless.
    (
        "igb",
        FIRST,
        HAND_OVER,
        "rps",
        "queues/rx-0/rps_cpus 2 -> 0",
    ),
    (
        "e1000e",
        FIRST,
        HAND_OVER,
        "backlog",
        "net.core.netdev_max_backlog 16 -> 10000",
    ),
    (
        "vmxnet3",
        "b",
        "ethtool -G eth1 rx 128",
        "rings",
        "rx ring 128 -> ",
    ),
    (
        "8139cp",
        FIRST,
        SELDOM,
        WITHOUT_EFFECT,
        "net.core.netdev_budget 1 -> 600",
    ),
];

/// A stage that ends no loss here.
const WITHOUT_EFFECT: &str = "budget";

/// The card is polled each 50 ms, when its 64 descriptors have long been full. Each soft interrupt ends after one
/// poll, and the next one follows at once.
const SELDOM: &str = "cd /sys/class/net/eth1
    echo 50000000 > gro_flush_timeout; echo 1000000 > napi_defer_hard_irqs
    sysctl -w net.core.netdev_budget=1";

/// Each poll takes up to 64 packets, and hands them to CPU 1.
const HAND_OVER: &str =
    "for queue in /sys/class/net/eth1/queues/rx-*; do echo 2 > $queue/rps_cpus; done
    sysctl -w net.core.netdev_max_backlog=16";

/// Keeps the thread that receives from its CPU for 100 ms of each 200 ms.
const STALLS: &str = r"
import time
print('here', flush=True)
while True:
    end = time.monotonic() + 0.1
    while time.monotonic() < end:
        pass
    time.sleep(0.1)
";

/// The trial of this machine's card, if it counts such losses. Where the card is in the machine's first
/// namespace, another trial has left it there.
pub(super) fn trial() -> Option<Trial> {
    let driver = run(at("b", "ethtool").args(["-i", "eth1"])).fine().out;
    let is_here = |row: &&Row| driver.contains(&format!("driver: {}\n", row.0));
    let row = ROWS.iter().find(is_here)?;
    let name = match row.3 {
        "rings" => "a card without descriptors, fixed".to_owned(),
        WITHOUT_EFFECT => "a card without descriptors, and a stage without effect".to_owned(),
        stage => format!("mpps fix keeps a stage of mpps tune: {stage}"),
    };
    Some(super::trial(name, None, || is_fixed(row)))
}

fn is_fixed((_, host, commands, stage, edit): &Row) {
    let is_kept = *stage != WITHOUT_EFFECT;
    if !is_kept {
        to_first();
    }
    if *host == FIRST {
        let own = ["addr", "add", "10.0.0.2/24", "dev", "eth1"];
        ip(&[&["-n", host], &own[..]].concat());
    }
    run(at(host, "sh").args(["-ec", commands])).fine();
    // The reader may use all of the time of its CPU.
    run(Command::new("sysctl").args(["-w", "kernel.sched_rt_runtime_us=-1"])).fine();
    // Threads of a card end no soft interrupt early.
    set_threaded(host, ["0", "1"][usize::from(is_kept)]);
    let before = state(host);
    let mut receiving = at(host, "mpps");
    receiving.args(["recv", ADDRESS, "--json", "--rcvbuf", "8M"]);
    let mut receiving = Running::start(&mut receiving);
    receiving.line("receiving at ");
    let mut sending = at("a", "mpps");
    sending.args(["send", ADDRESS, "--rate", RATE, "--duration", "600s"]);
    let sending = Running::start(&mut sending);
    let mut stalls = Command::new("taskset");
    let words = ["-c", "1", "chrt", "-f", "50", "python3", "-c", STALLS];
    let stalls = is_kept.then(|| {
        let mut stalls = Running::start(stalls.args(words));
        stalls.line("here");
        stalls
    });
    let mut fixing = at(host, "mpps");
    fixing.args("fix --yes --port 4321 --duration 2 --run 1s --repeat 3".split(' '));
    let fixed = run(&mut fixing).without_error();
    eprintln!("{}", fixed.out);
    if !is_kept {
        fixed.shows(&[edit, "put back: it does not lose less", "all is as it was"]);
        assert_eq!(state(host), before, "{}", fixed.out);
        return;
    }
    fixed.shows(&[
        edit,
        ": kept",
        "of all datagrams lost ",
        &format!("{stage}: until `mpps tune undo eth1`"),
    ]);
    assert!(!fixed.out.contains("`mpps undo`"), "{}", fixed.out);
    assert_ne!(state(host), before);
    let undone = run(at(host, "mpps").args(["tune", "undo", "eth1"])).fine();
    assert_eq!(state(host), before, "{}", undone.out);
    drop((stalls, sending, receiving));
    set_threaded(host, "0");
}
