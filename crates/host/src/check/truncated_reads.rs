//! A program that reads with a buffer smaller than what comes.

use super::{Check, Evidence, Finding, Observed, SeenSocket};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "truncated_reads",
    reads: "`MSG_TRUNC` of reads that end, by socket (a BPF program at `udp_recvmsg` and `udpv6_recvmsg`); \
            not with the flags `MSG_PEEK` or `MSG_TRUNC`, or without a buffer",
    speaks: "with `--port` or `--pid`: a program's buffer was smaller than a datagram, or a train of its `UDP_GRO` socket",
    run,
};

/// The payload of a full frame of Ethernet over IPv4. A longer buffer that cuts is too small for trains
/// as a rule.
const FRAME_PAYLOAD: u64 = 1472;

fn run(seen: &Observed) -> Vec<Finding> {
    let sockets = seen.sockets.iter();
    sockets.filter_map(|socket| finding(seen, socket)).collect()
}

fn finding(seen: &Observed, socket: &SeenSocket) -> Option<Finding> {
    let cookie = socket.entry.cookie;
    let now = seen.after.reads.get(&cookie)?;
    let then = seen.before.reads.get(&cookie).copied().unwrap_or_default();
    let source = format!("cut reads of socket {} (MSG_TRUNC)", socket.entry.local);
    let cut = vec![Evidence::new(source, then.cut, now.cut)];
    let mut found = Finding::lost(seen, &CHECK, Station::Application, cut)?;
    let reads = seen.counters(&["Udp.InDatagrams", "Udp6.InDatagrams"]);
    let reads = reads.into_iter().filter(|one| one.grown() > 0);
    found.evidence.extend(reads);
    let buffer = match now.buffers {
        (least, most) if least == most => format!("{least} bytes"),
        (least, most) => format!("{least} to {most} bytes"),
    };
    let what = match now.takes_trains {
        true => "trains (UDP_GRO)",
        false => "datagrams",
    };
    let what = format!(
        "{} cut {what}: its buffer of {buffer} was too small, and the rest of each was lost",
        socket.name(),
    );
    let train = "a buffer of 65535 bytes for each read, as UDP_GRO needs; or no UDP_GRO";
    let remedy = match (now.takes_trains, now.buffers.1 > FRAME_PAYLOAD) {
        (true, _) => train.to_owned(),
        (false, true) => format!(
            "if the program sets UDP_GRO, {train}; or a buffer of 65507 bytes, the longest datagram"
        ),
        (false, false) => {
            "a buffer for the longest datagram that clients send: 1472 bytes for an MTU of \
                           1500, 65507 for all"
                .to_owned()
        }
    };
    Some(found.says(what, remedy))
}
