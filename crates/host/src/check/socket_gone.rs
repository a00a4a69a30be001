//! Full buffers of sockets that are not there to be asked.

use super::{Check, Confidence, Finding, Observed};
use crate::ledger::loss::BUFFER_FULL;

pub(super) const CHECK: Check = Check {
    name: "socket_gone",
    reads: "`Udp.RcvbufErrors`, `Udp6.RcvbufErrors`, less the drops of all UDP sockets",
    speaks: "at least 100 buffer drops, and 10 %, belong to no socket (without `--port`, `--pid`)",
    run,
};

/// Fewer may come between the reading of two counters.
const MIN: u64 = 100;

fn run(seen: &Observed) -> Vec<Finding> {
    if seen.asked.port.is_some() || seen.asked.pid.is_some() {
        return Vec::new();
    }
    let all = seen.grown(BUFFER_FULL.counters);
    let known = seen.sockets.iter().map(|socket| socket.drops.grown());
    let gone = all.saturating_sub(known.fold(0, u64::saturating_add));
    if gone < MIN || gone < all / 10 {
        return Vec::new();
    }
    let found = Finding::counted(seen, &CHECK, &BUFFER_FULL).map(|found| {
        let found = found.of(gone, seen);
        found
            .says(
                "full socket buffers cost datagrams, and no socket that is there counts them: its program has \
                 ended or closed it meanwhile, or the kernel does not list it",
                "journalctl -e, or the program's own log, shows whether it ended",
            )
            .with(Confidence::Possible)
    });
    found.into_iter().collect()
}
