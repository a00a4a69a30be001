//! The conformance suite: one list of scenarios, run over every row of the table of backends that
//! receives, and over every row that sends.
//!
//! A new row is covered as soon as it is in the table, which also says what options it honours;
//! `options.rs` holds it to that. Rows over sockets meet on the loopback interface, the others in a
//! lab.

/// Lists functions as scenarios, by their scope and by what a pair must have (see [`Pair::has`]).
macro_rules! scenarios {
    ($($scope:ident $needs:tt: $($test:ident),+;)+) => {
        pub(crate) const SCENARIOS: &[super::Scenario] = &[$($(super::Scenario {
            name: stringify!($test),
            needs: &$needs,
            scope: super::Scope::$scope,
            run: $test,
        }),+),+];
    };
}

mod answering;
mod delivery;
mod departure;
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
mod waiting;

pub(crate) use foreign::play;

use crate::can;
use mpps_io::{Backend, Layer};
use mpps_trial::{Need, Trial};
use pair::Pair;
use place::{Place, Version};

/// A test of a pair of backends.
struct Scenario {
    name: &'static str,
    /// The options that the pair must have; it is not tried with other pairs.
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

pub(crate) fn trials() -> Vec<Trial> {
    let pairs = pairs();
    let trials = [
        options::trials(),
        of_scenarios(&pairs),
        departure::trials(),
        multicast::trials(&pairs),
        kernel::trials(),
    ];
    trials.into_iter().flatten().collect()
}

/// Every receiving row with the sender that stands for all, and every row that sends with the
/// receiver that does, over both versions of IP. Every ring with every other is for the command's
/// own tests, in `crates/mpps/tests/rings.rs`, with a ledger that balances.
fn pairs() -> Vec<Pair> {
    let rows = || mpps_io::BACKENDS.iter().filter(|row| is_built(row));
    let mut pairs = Vec::new();
    for rx in rows().filter(|row| row.receives()) {
        for tx in rows().filter(|row| row.sends()) {
            // Packets inside this process reach no other backend.
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

/// Frames need an interface that is ours; all other pairs use loopback.
fn place_of(rx: &Backend, tx: &Backend, version: Version) -> Place {
    if [rx, tx].iter().any(|row| row.layer == Layer::Frame) {
        Place::Lab(version)
    } else {
        Place::Loopback(version)
    }
}

/// Pairs of one scenario follow each other: rings wait for a lock of the kernel, and sockets use a CPU.
fn of_scenarios(pairs: &[Pair]) -> Vec<Trial> {
    let scenarios = [
        delivery::SCENARIOS,
        answering::SCENARIOS,
        foreign::SCENARIOS,
        readiness::SCENARIOS,
        sending::SCENARIOS,
        sharing::SCENARIOS,
        stamped::SCENARIOS,
        trains::SCENARIOS,
        waiting::SCENARIOS,
    ];
    let scenarios = scenarios.into_iter().flatten();
    let tried = scenarios.flat_map(|scenario| pairs.iter().map(move |pair| (scenario, *pair)));
    tried
        .filter(|(scenario, pair)| is_in(pair, scenario.scope) && pair.has(scenario.needs))
        .map(|(scenario, pair)| {
            let name = format!("conformance::{pair}::{}", scenario.name);
            Trial::waits(name, move || (scenario.run)(&pair)).needs(able(pair))
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

/// Both rows and the place of a pair.
fn able(pair: Pair) -> Need {
    Need::probe(move || {
        can(pair.rx.name)?;
        can(pair.tx.name)?;
        pair.place.is_there()
    })
}
