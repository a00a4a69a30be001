//! One socket that several threads of a program have in common.

use super::overrun::{Cause, overruns};
use super::reader::said;
use super::{Check, Confidence, Finding, Observed};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "shared_socket",
    reads: "`sk_drops` of each UDP socket, and the run times of its owner's threads",
    speaks: "a program's only socket at a port overflowed while two or more threads were busy",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
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
        let found = found.says(what, remedy).because(&[said(overrun.socket)]);
        Some(found.with(Confidence::Possible))
    });
    found.collect()
}
