//! The conformance suite: one list of scenarios, run over every row of the table of backends that
//! receives with every row that can send to it.
//!
//! A new row is covered as soon as it is in the table, which also says what options it honours;
//! `options.rs` holds it to that. Rows over sockets meet on the loopback interface, the others in a
//! lab.

mod delivery;
mod foreign;
mod frame;
mod kernel;
mod multicast;
mod options;
mod pair;
mod place;
mod sending;
mod sharing;
mod stamped;
mod trains;
mod waiting;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use mpps_io::backend::Support;
use mpps_io::{Backend, Layer};
use pair::Pair;
use place::{Place, Version};
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

/// What is done with a pair of backends.
struct Scenario {
    name: &'static str,
    /// What the pair must have, see [`Pair::has`]; it is not tried with the others.
    needs: &'static [&'static str],
    scope: Scope,
    run: fn(&Pair),
}

/// Which pairs a scenario is tried with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// All of them.
    Pairs,
    /// Each receiver, with the sender of [`SENDER`]: the sender makes no difference.
    Receivers,
    /// Each sender, with the receiver of [`RECEIVER`].
    Senders,
}

/// The rows that stand for all where it makes no difference.
const SENDER: &str = "sendmmsg";
const RECEIVER: &str = "recvmmsg";

fn main() -> ExitCode {
    if let Some(code) = foreign::play() {
        return code;
    }
    let mut arguments = Arguments::from_args();
    // Descriptors are counted, and two floods at once would starve each other.
    arguments.test_threads = Some(1);
    // The kernel lets only a process with one thread make a user namespace.
    let namespaces = kernel::become_able();
    let mut trials = options::trials();
    let pairs = pairs();
    trials.extend(pairs.iter().flat_map(of_pair));
    trials.extend(multicast::trials(&pairs, &namespaces));
    trials.extend(kernel::trials(&namespaces));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// Every receiving row with every row that can send to it, over both versions of IP.
fn pairs() -> Vec<Pair> {
    let rows = || mpps_io::BACKENDS.iter().filter(|row| is_built(row));
    let mut pairs = Vec::new();
    for rx in rows().filter(|row| row.receives()) {
        for tx in rows().filter(|row| row.sends()) {
            // What stays inside this process reaches nobody but itself.
            if (rx.in_process || tx.in_process) && rx.name != tx.name {
                continue;
            }
            pairs.extend(Version::BOTH.map(|version| Pair {
                rx,
                tx,
                place: place_of(rx, tx, version),
            }));
        }
    }
    pairs
}

/// Rows of features that were not asked for are in the table, and can do nothing.
fn is_built(row: &Backend) -> bool {
    let (dpdk, pcap) = (cfg!(feature = "dpdk"), cfg!(feature = "pcap"));
    (dpdk || row.name != "dpdk") && (pcap || row.name != "pcap")
}

/// Frames need an interface that is ours; for everything else there is loopback.
fn place_of(rx: &Backend, tx: &Backend, version: Version) -> Place {
    if [rx, tx].iter().any(|row| row.layer == Layer::Frame) {
        Place::Lab(version)
    } else {
        Place::Loopback(version)
    }
}

fn of_pair(pair: &Pair) -> Vec<Trial> {
    let scenarios = delivery::SCENARIOS
        .iter()
        .chain(foreign::SCENARIOS)
        .chain(sending::SCENARIOS)
        .chain(sharing::SCENARIOS)
        .chain(stamped::SCENARIOS)
        .chain(trains::SCENARIOS)
        .chain(waiting::SCENARIOS);
    let obstacle = obstacle(pair);
    scenarios
        .filter(|scenario| is_in(pair, scenario.scope) && pair.has(scenario.needs))
        .map(|scenario| {
            let (pair, obstacle, run) = (*pair, obstacle.clone(), scenario.run);
            let name = format!("{pair}::{}", scenario.name);
            match obstacle {
                Some(why) => skipped(name, why),
                None => Trial::test(name, move || {
                    undisturbed(|| run(&pair));
                    Ok(())
                }),
            }
        })
        .collect()
}

fn is_in(pair: &Pair, scope: Scope) -> bool {
    match scope {
        Scope::Pairs => true,
        Scope::Receivers => pair.tx.in_process || pair.tx.name == SENDER,
        Scope::Senders => pair.rx.in_process || pair.rx.name == RECEIVER,
    }
}

/// Runs a scenario, and again if it failed while a CPU's backlog overflowed: the packets of all
/// programs on the loopback interface share it, and what it drops is counted for the CPU alone.
fn undisturbed(scenario: impl Fn()) {
    for _ in 0..4 {
        let before = backlog_drops();
        match std::panic::catch_unwind(AssertUnwindSafe(&scenario)) {
            Ok(()) => return,
            Err(panic) if backlog_drops() == before => std::panic::resume_unwind(panic),
            Err(_) => {}
        }
    }
    scenario();
}

/// The second column of /proc/net/softnet_stat (softnet_seq_show, net/core/net-procfs.c).
fn backlog_drops() -> u64 {
    let text = std::fs::read_to_string("/proc/net/softnet_stat").expect("/proc is mounted");
    let column = text.lines().filter_map(|line| line.split(' ').nth(1));
    column
        .filter_map(|drops| u64::from_str_radix(drops, 16).ok())
        .sum()
}

/// A test that this machine cannot run: ignored with its reason, or failed where
/// `MPPS_REQUIRE_LAB=1` says that nothing may be skipped.
fn skipped(name: String, why: String) -> Trial {
    if std::env::var("MPPS_REQUIRE_LAB").is_ok_and(|value| value == "1") {
        return Trial::test(name, || Err(Failed::from(why)));
    }
    Trial::ignorable_test(name, move || Ok(Completion::ignored_with(why)))
}

/// Why a pair cannot run on this machine.
fn obstacle(pair: &Pair) -> Option<String> {
    for row in [pair.rx, pair.tx] {
        if let Support::No { why, .. } = (row.probe)() {
            return Some(format!("{}: {why}", row.name));
        }
    }
    pair.place.obstacle()
}
