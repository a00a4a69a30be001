//! The conformance suite: one list of scenarios, run over every row of the table of backends that
//! receives with every row that can send to it.
//!
//! A new row is covered as soon as it is in the table; what it cannot do is written down in
//! `options.rs`, which holds it to refusing that before it opens anything.

mod delivery;
mod kernel;
mod multicast;
mod options;
mod pair;
mod sending;
mod stamped;
mod trains;
mod waiting;

use libtest_mimic::{Arguments, Completion, Failed, Trial};
use mpps_io::backend::Support;
use pair::Pair;
use std::net::UdpSocket;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

/// What is done with a pair of backends.
struct Scenario {
    name: &'static str,
    /// Options that both rows must honour; a pair that does not is held to its refusal instead.
    needs: &'static [&'static str],
    run: fn(&Pair),
}

fn main() -> ExitCode {
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
    let rows = mpps_io::BACKENDS;
    let mut pairs = Vec::new();
    for rx in rows.iter().filter(|row| row.receives() && !row.takes_nic) {
        for tx in rows.iter().filter(|row| row.sends() && !row.takes_nic) {
            // What stays inside this process reaches nobody but itself.
            if (rx.in_process || tx.in_process) && rx.name != tx.name {
                continue;
            }
            pairs.extend(["127.0.0.1", "::1"].map(|loopback| Pair {
                rx,
                tx,
                loopback: loopback.parse().expect("an address by the book"),
            }));
        }
    }
    pairs
}

fn of_pair(pair: &Pair) -> Vec<Trial> {
    let scenarios = delivery::SCENARIOS
        .iter()
        .chain(sending::SCENARIOS)
        .chain(stamped::SCENARIOS)
        .chain(trains::SCENARIOS)
        .chain(waiting::SCENARIOS);
    let obstacle = obstacle(pair);
    scenarios
        .filter(|scenario| pair.honours(scenario.needs))
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
    // Not even the loopback address is there where IPv6 is switched off.
    let bound = UdpSocket::bind((pair.loopback, 0));
    bound
        .err()
        .map(|error| format!("{}: {error}", pair.loopback))
}
