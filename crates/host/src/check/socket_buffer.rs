//! A socket with a full buffer, and why it was not emptied.

use super::overrun::{Cause, IDLE, Overrun, WAITS, never_slept, overruns};
use super::program_settings::{receive_buffer, threads};
use super::{Check, Confidence, Finding, Observed};
use crate::Station;
use crate::facts::Busy;

pub(super) const CHECK: Check = Check {
    name: "socket_buffer",
    reads: "`sk_drops` of each UDP socket (sock_diag), less filter, checksum and memory drops; thread run \
            and wait times (schedstat)",
    speaks: "a socket's buffer was full: program slow, stopped, idle or without CPU, or buffer small",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let own = overruns(seen).into_iter();
    let own = own.filter(|overrun| overrun.cause == Cause::Reader);
    own.filter_map(|overrun| finding(seen, &overrun)).collect()
}

fn finding(seen: &Observed, overrun: &Overrun) -> Option<Finding> {
    let socket = overrun.socket;
    let drops = vec![socket.drops.clone()];
    let found = Finding::lost(seen, &CHECK, Station::Socket, drops)?.of(overrun.lost, seen);
    let buffer = socket.entry.buffer_bytes;
    let full = format!(
        "the buffer of {} was full ({buffer} bytes): ",
        socket.name()
    );
    // Booked is twice what was asked for (socket(7)).
    let wanted = u64::from(buffer).saturating_mul(2);
    let room = seen.raise("net.core.rmem_max", wanted);
    let program = socket.owner.map_or("", |owner| &owner.name);
    let larger = match receive_buffer(program, wanted) {
        Some(line) => format!("{line}, and room for it: {room}"),
        None => format!(
            "a larger SO_RCVBUF in the program, {wanted} bytes, and room for it: {room}; a program that asks for \
             none gets net.core.rmem_default when it starts"
        ),
    };
    let pid = socket.owner.map_or(0, |owner| owner.pid);
    let is_stopped = socket.owner.is_some_and(|owner| owner.stopped);
    let percent = |share: f64| format!("{:.0} %", share * 100.0);
    let (why, remedy) = match socket.busy {
        _ if is_stopped => ("the program is stopped".to_owned(), format!("kill -CONT {pid}")),
        Some(busy) if never_slept(&busy) => (
            format!(
                "the busiest thread of the program ran {} of the time, so that it is too slow",
                percent(busy.ran)
            ),
            threads(program).map_or_else(
                || {
                    "more sockets at the same port (SO_REUSEPORT), each with a thread on a CPU of its own; or a \
                     cheaper way to receive: mpps bench shows what each is worth here"
                        .to_owned()
                },
                |line| format!("more threads, each on a CPU of its own: {line}"),
            ),
        ),
        Some(Busy { ran, waited, waiter, .. }) if waited >= WAITS => (
            format!(
                "a thread of the program waited for a CPU {} of the time, and the busiest ran {}",
                percent(waited),
                percent(ran)
            ),
            format!(
                "a CPU of its own: taskset -pc CPU {waiter}; keep other programs and interrupts away from \
                 that CPU"
            ),
        ),
        Some(Busy { ran, .. }) if ran < IDLE && socket.is_full() => (
            "it still is, and the program does not read it (its threads hardly ran)".to_owned(),
            format!("see what it waits for: cat /proc/{pid}/task/*/wchan /proc/{pid}/task/*/status"),
        ),
        Some(Busy { ran, .. }) => (
            format!(
                "the busiest thread of the program slept in between (it ran {} of the time), so that the \
                 buffer is too small for the bursts",
                percent(ran)
            ),
            larger,
        ),
        None => (
            "what its reader did is not seen".to_owned(),
            format!("as root, mpps doctor distinguishes a slow program from a small buffer; {larger}"),
        ),
    };
    let count = socket.owner.map_or(0, |owner| owner.threads.len());
    let confidence = match (overrun.is_sure, socket.busy) {
        (true, _) if is_stopped => Confidence::Certain,
        // Which of its threads reads is not known.
        (true, Some(_)) if count == 1 => Confidence::Likely,
        (true, Some(busy)) if busy.ran < IDLE => Confidence::Likely,
        _ => Confidence::Possible,
    };
    Some(found.says(full + &why, remedy).with(confidence))
}
