//! One socket that several threads of a program have in common.

use super::overrun::{Cause, overruns};
use super::{Check, Confidence, Finding, Seen};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "shared_socket",
    reads: "`sk_drops` of each UDP socket, and the run times of its owner's threads",
    speaks: "a full buffer cost a socket datagrams, it is its program's only one at that port, two threads or \
             more of it ran a fifth of the time each, and the busiest had no time left",
    made_by: "two threads that read one socket, and a flood (gallery: `one_socket_for_two_threads`)",
    run,
};

fn run(seen: &Seen) -> Vec<Finding> {
    let found = overruns(seen).into_iter().filter_map(|overrun| {
        let Cause::SharedSocket(threads) = overrun.cause else {
            return None;
        };
        let drops = vec![overrun.socket.drops.clone()];
        let found = Finding::lost(seen, &CHECK, Station::Socket, drops)?.of(overrun.lost, seen);
        let what = format!(
            "the buffer of {} was full: {threads} threads of the program are busy, and it is the only socket \
             at that port; if they all read it, they wait for each other at its lock",
            overrun.socket.name()
        );
        let remedy = "a socket of its own for each thread, all at that port (SO_REUSEPORT); many servers have \
                      a setting for it (unbound: so-reuseport, nsd: reuseport, PowerDNS: reuseport)";
        Some(found.says(what, remedy).with(Confidence::Possible))
    });
    found.collect()
}
