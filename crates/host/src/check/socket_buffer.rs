//! A socket with a full buffer, and why it was not emptied.

use super::overrun::{Cause, Overrun, overruns};
use super::program_settings::threads;
use super::reader::{
    FULL, Late, ask_for, cpu_holders, holders, is_unread, larger_buffer, own_cpu, rates, said,
};
use super::{Check, Confidence, Evidence, Finding, Observed, SeenSocket};
use crate::Station;
use mpps_os::netlink::sock_diag::UdpEntry;

pub(super) const CHECK: Check = Check {
    name: "socket_buffer",
    reads: "`sk_drops` and queue of each UDP socket (sock_diag), less filter, checksum and memory drops; \
            thread run and wait times (schedstat); CPU times of processes",
    speaks: "a socket's buffer was full: program slow, stopped, idle or without CPU, or buffer small; with \
             `--port` or `--pid` also a queue that no program reads",
    run,
};

/// A remedy for a program whose threads do not keep up.
fn more_readers(socket: &SeenSocket) -> String {
    let program = socket.owner.map_or("", |owner| &owner.name);
    let own =
        "more threads or processes, each with a socket of its own at that port (SO_REUSEPORT)";
    threads(program).map_or_else(|| own.to_owned(), |line| format!("more threads: {line}"))
}

/// Said where no CPU quota can be read.
const HIDDEN: &str = ". Or a CPU quota holds it back: none is seen, since /sys/fs/cgroup is empty here (run \
                      mpps doctor outside of ip netns exec, with --netns)";

fn run(seen: &Observed) -> Vec<Finding> {
    let own = overruns(seen).into_iter();
    let own = own.filter(|overrun| overrun.cause == Cause::Reader);
    let full = own.filter_map(|overrun| finding(seen, &overrun));
    let is_asked = seen.asked.port.is_some() || seen.asked.pid.is_some();
    let sockets = seen.sockets.iter().filter(|_| is_asked);
    let unread = sockets.filter(|one| one.drops.grown() == 0 && is_unread(seen, one));
    full.chain(unread.map(|socket| unread_queue(seen, socket)))
        .collect()
}

/// Nothing is lost until the buffer is full.
fn unread_queue(seen: &Observed, socket: &SeenSocket) -> Finding {
    let UdpEntry {
        local,
        inode,
        queued_bytes,
        buffer_bytes,
        ..
    } = socket.entry;
    let mut before = seen.before.sockets.iter();
    let before = before.find(|one| one.inode == *inode);
    let evidence = Evidence::new(
        format!("bytes in the queue of socket {local} (sock_diag, inode {inode})"),
        before.map_or(0, |one| one.queued_bytes.into()),
        (*queued_bytes).into(),
    );
    let stopped = socket.holders.iter().find(|(process, _)| process.stopped);
    let (cause, remedy) = match (stopped, socket.owner) {
        (Some((process, _)), _) => (
            ": a process that has it is stopped",
            format!("kill -CONT {}", process.pid),
        ),
        (None, Some(owner)) => ("", waits_for(owner.pid)),
        (None, None) => ("", unseen(seen).to_owned()),
    };
    let what = format!(
        "the program does not read {}: {queued_bytes} bytes have waited for a second or longer in its buffer of \
         {buffer_bytes}{cause}",
        socket.name()
    );
    let found = Finding::noticed(seen, &CHECK, Station::Socket, vec![evidence]);
    let found = found
        .says(what, remedy)
        .because(&[said(socket), holders(socket)]);
    found.with(Confidence::Likely)
}

/// How to see why a program does not read.
fn waits_for(pid: u32) -> String {
    format!("see what it waits for: cat /proc/{pid}/task/*/wchan /proc/{pid}/task/*/status")
}

fn finding(seen: &Observed, overrun: &Overrun) -> Option<Finding> {
    let socket = overrun.socket;
    let drops = vec![socket.drops.clone()];
    let found = Finding::lost(seen, &CHECK, Station::Socket, drops)?.of(overrun.lost, seen);
    let buffer = socket.entry.buffer_bytes;
    let (cause, remedy) = reason(seen, overrun);
    let what = format!(
        "the buffer of {} was full ({buffer} bytes): {cause}",
        socket.name()
    );
    let mates = match overrun.mates {
        0 => String::new(),
        mates => {
            format!("{mates} more at that address lost nothing, so this one's own reader differs")
        }
    };
    let cpu = socket.busy.and_then(|busy| busy.cpu);
    let cpu = cpu.filter(|_| overrun.late == Late::NoCpu);
    let pid = socket.owner.map_or(0, |owner| owner.pid);
    let others = cpu.map_or_else(String::new, |cpu| cpu_holders(seen, cpu, pid));
    let why = [said(socket), others, holders(socket), mates];
    let threads = socket.owner.map_or(0, |owner| owner.threads.len());
    let all_stopped = socket.owner.is_some_and(|owner| owner.stopped);
    let confidence = match (overrun.is_sure, overrun.late) {
        (true, Late::Stopped(_)) if all_stopped => Confidence::Certain,
        (true, Late::Stopped(_) | Late::NotRead | Late::SmallerBuffer(_)) => Confidence::Likely,
        // Which of its threads reads is not known.
        (true, Late::NoCpu) if seen.after.are_quotas_hidden => Confidence::Possible,
        (true, _) if threads == 1 && socket.busy.is_some() => Confidence::Likely,
        _ => Confidence::Possible,
    };
    let found = found.says(what, remedy).because(&why);
    Some(found.with(confidence))
}

/// Why it was full, and the remedy.
fn reason(seen: &Observed, overrun: &Overrun) -> (String, String) {
    let socket = overrun.socket;
    let pid = socket.owner.map_or(0, |owner| owner.pid);
    match (overrun.late, socket.busy) {
        (Late::Stopped(stopped), _) => (
            match socket.holders.iter().all(|(process, _)| process.stopped) {
                true => "the program is stopped".to_owned(),
                false => "a process that has it is stopped".to_owned(),
            },
            format!("kill -CONT {stopped}"),
        ),
        (Late::SmallerBuffer(largest), _) => (
            format!("others at its address have buffers of up to {largest} bytes"),
            format!(
                "the same buffer as theirs: {}",
                ask_for(seen, socket, u64::from(largest) / 2)
            ),
        ),
        (Late::NotRead, _) => (
            "it still is, and the program does not read it".to_owned(),
            waits_for(pid),
        ),
        (Late::Rate, busy) => too_slow(seen, overrun, busy.is_some()),
        (Late::NeverSlept, _) => (
            "the program is too slow, it always has work".to_owned(),
            format!(
                "{}, each thread on a CPU of its own; or a cheaper way to receive: mpps bench shows what each \
                 is worth here",
                more_readers(socket)
            ),
        ),
        (Late::NoCpu, Some(busy)) => {
            let mut cpu = own_cpu(seen, busy.runner, busy.cpu.as_slice());
            if seen.after.are_quotas_hidden {
                cpu += HIDDEN;
            }
            let why = format!(
                "its reader lacked a CPU for {:.0} % of the time that it had work, {:.1} ms at a time on \
                 average",
                busy.waited / busy.ready() * 100.0,
                busy.wait_ms
            );
            // If it never slept, it has no time to catch up.
            let remedy = match busy.ready() >= FULL {
                true => format!("a CPU of its own: {cpu}"),
                false => format!(
                    "a CPU of its own: {cpu}. Or to bridge these waits: {}",
                    larger_buffer(seen, socket)
                ),
            };
            (why, remedy)
        }
        (Late::Bursts, Some(_)) => (
            "its reader slept in between, so that the buffer is too small for the bursts"
                .to_owned(),
            larger_buffer(seen, socket),
        ),
        (Late::Unseen | Late::Bursts | Late::NoCpu, _) => (
            "what its reader did is not seen".to_owned(),
            format!("{}; {}", unseen(seen), larger_buffer(seen, socket)),
        ),
    }
}

/// The words for a reader that takes less than comes, with a CPU free for it.
fn too_slow(seen: &Observed, overrun: &Overrun, is_seen: bool) -> (String, String) {
    let socket = overrun.socket;
    let rate = match rates(seen, socket) {
        Some((read, came)) => format!("the program reads {read:.0}/s of {came:.0}/s"),
        None => "the program reads less than comes".to_owned(),
    };
    let pid = socket.owner.map_or(0, |owner| owner.pid);
    let (sleeps, look) = match is_seen {
        true => (
            " and sleeps or waits while datagrams wait",
            format!("cat /proc/{pid}/task/*/wchan, or strace -fp {pid}, shows what it waits for"),
        ),
        false => ("", unseen(seen).to_owned()),
    };
    let why =
        format!("it stayed full: {rate}{sleeps}, so that a larger buffer only delays the loss");
    let remedy = format!(
        "no sleep, lock, disk or query between two reads; or {}. {look}",
        more_readers(socket)
    );
    (why, remedy)
}

/// The reason why a reader's activity is not seen.
fn unseen(seen: &Observed) -> &'static str {
    match seen.after.sees_owners {
        true => {
            "the kernel itself has the socket, as for a tunnel, or its program began or ended meanwhile"
        }
        false => "as root, mpps doctor shows how long its threads ran, waited and slept",
    }
}
