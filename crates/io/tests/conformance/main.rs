//! The conformance suite: one list of scenarios, run over every row of the table of backends that
//! receives, and over every row that sends.
//!
//! A new row is covered as soon as it is in the table, which also says what options it honours;
//! `options.rs` holds it to that. Rows over sockets meet on the loopback interface, the others in a
//! lab.

mod answering;
mod delivery;
mod foreign;
mod frame;
mod kernel;
mod multicast;
mod options;
mod pair;
mod place;
mod readiness;
mod sending;
mod sharing;
mod stamped;
mod trains;
#[path = "../../../os/tests/common/trial.rs"]
mod trial;
mod waiting;

use libtest_mimic::Trial;
use mpps_io::backend::Support;
use mpps_io::{Backend, Layer};
use pair::Pair;
use place::{Place, Version};
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
    // The kernel lets only a process with one thread make a user namespace.
    let namespaces = kernel::become_able();
    let mut trials = options::trials();
    let pairs = pairs();
    trials.extend(pairs.iter().flat_map(of_pair));
    trials.extend(multicast::trials(&pairs, &namespaces));
    trials.extend(kernel::trials(&namespaces));
    // Descriptors are counted, and there is one table of them in a process.
    trial::run(trials, 4, needs_the_machine)
}

/// Two floods at once would starve each other, and DPDK has one primary process.
fn needs_the_machine(name: &str) -> bool {
    ["flood", "overload", "dpdk"]
        .iter()
        .any(|part| name.contains(part))
}

/// Every receiving row with the sender that stands for all, and every row that sends with the
/// receiver that does, over both versions of IP. Every ring with every other is for the command's
/// own tests, in `crates/mpps/tests/rings.rs`, with a ledger that balances.
fn pairs() -> Vec<Pair> {
    let rows = || mpps_io::BACKENDS.iter().filter(|row| is_built(row));
    let mut pairs = Vec::new();
    for rx in rows().filter(|row| row.receives()) {
        for tx in rows().filter(|row| row.sends()) {
            // What stays inside this process reaches nobody but itself.
            let inside = rx.in_process || tx.in_process;
            if inside && rx.name != tx.name {
                continue;
            }
            if !inside && rx.name != RECEIVER && tx.name != SENDER {
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
        .chain(answering::SCENARIOS)
        .chain(foreign::SCENARIOS)
        .chain(readiness::SCENARIOS)
        .chain(sending::SCENARIOS)
        .chain(sharing::SCENARIOS)
        .chain(stamped::SCENARIOS)
        .chain(trains::SCENARIOS)
        .chain(waiting::SCENARIOS);
    scenarios
        .filter(|scenario| is_in(pair, scenario.scope) && pair.has(scenario.needs))
        .map(|scenario| {
            let (pair, run) = (*pair, scenario.run);
            let name = format!("{pair}::{}", scenario.name);
            trial::new(
                name,
                move || obstacle(&pair),
                move || {
                    trial::undisturbed(|| run(&pair));
                    Ok(())
                },
            )
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

/// Why a pair cannot run on this machine.
fn obstacle(pair: &Pair) -> Option<String> {
    for row in [pair.rx, pair.tx] {
        if let Support::No { why, .. } = (row.probe)() {
            return Some(format!("{}: {why}", row.name));
        }
    }
    pair.place.obstacle()
}
