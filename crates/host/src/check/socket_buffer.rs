//! A socket with a full buffer, and why it was not emptied.

use super::overrun::{Cause, Overrun, overruns};
use super::program_settings::threads;
use super::reader::{
    FULL, Late, ask_for, away_ms, cpu_holders, holders, is_unread, larger_buffer, obstacle,
    own_cpu, pinned, rank, rates, said, starts, waits,
};
use super::{Check, Confidence, Evidence, Finding, Observed, SeenSocket};
use crate::Station;
use crate::facts::{Busy, Process, is_full};
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
const HIDDEN: &str = "; or a larger CPU quota, if one holds it back: none is seen, because no cgroups are mounted \
                      here (run mpps doctor outside of ip netns exec, with --netns)";

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
    let mut all = socket.holders.iter();
    let stopped = all.find(|(process, _)| process.is_halted());
    let (cause, remedy) = match (stopped, socket.owner) {
        (Some((process, _)), _) => {
            let (cause, remedy) = halted(&processes(socket), process.pid);
            (format!(": {cause}"), remedy)
        }
        (None, Some(owner)) => match unstarted(socket) {
            Some((cause, remedy)) => (format!(": {cause}"), remedy),
            None => match obstacle(socket, true) {
                Some((cause, remedy)) => (format!(": {cause}"), remedy.to_owned()),
                None => (String::new(), waits_for(owner.pid)),
            },
        },
        (None, None) => (String::new(), unseen(seen).to_owned()),
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
    format!(
        "see what it waits for: cat /proc/{pid}/task/*/wchan /proc/{pid}/task/*/status; if it only holds the socket \
         for another program, start that"
    )
}

/// The words for a socket that only a program has that starts services.
fn unstarted(socket: &SeenSocket) -> Option<(String, String)> {
    let holder = socket.owner.filter(|owner| owner.is_activator())?;
    let (name, pid) = (&holder.name, holder.pid);
    let what = format!(
        "{name} (pid {pid}) holds it for a service that it starts (socket activation), and no process of that \
         service has it: the service does not run, or does not take the socket"
    );
    let remedy = match holder.name.starts_with("systemd") {
        true => {
            "systemctl list-sockets --all shows its service; journalctl -u UNIT.service shows why it does not run: \
             systemctl reset-failed UNIT.service UNIT.socket, and systemctl start UNIT.service"
        }
        false => "start its service: see the log and the configuration of that program",
    };
    Some((what, remedy.to_owned()))
}

fn finding(seen: &Observed, overrun: &Overrun) -> Option<Finding> {
    let socket = overrun.socket;
    let drops = vec![socket.drops.clone()];
    let found = Finding::lost(seen, &CHECK, Station::Socket, drops)?.of(overrun.lost, seen);
    let buffer = socket.entry.buffer_bytes;
    let late = matches!(overrun.late, Late::NotRead | Late::Rate | Late::Waits);
    let is_unread = overrun.late == Late::NotRead;
    let (cause, remedy) = match (
        reason(seen, overrun),
        obstacle(socket, is_unread).filter(|_| late),
    ) {
        ((cause, rest), Some((what, remedy))) => {
            let is_known = socket
                .owner
                .is_some_and(|owner| rest == waits_for(owner.pid));
            let rest = if is_known {
                String::new()
            } else {
                format!("; or {rest}")
            };
            (format!("{cause}: {what}"), format!("{remedy}{rest}"))
        }
        (reason, None) => reason,
    };
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
    let waits = if late { waits(socket) } else { String::new() };
    let starts = match overrun.late {
        Late::Stopped(_) | Late::NotRead => String::new(),
        _ => starts(seen),
    };
    let why = [said(socket), waits, starts, others, holders(socket), mates];
    let threads = socket.owner.map_or(0, |owner| owner.threads.len());
    let all_stopped = socket.owner.is_some_and(Process::is_halted);
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

/// A reader that runs for this share of the time and takes nothing does something besides.
const WORKS: f64 = 0.2;

/// Why it was full, and the remedy.
fn reason(seen: &Observed, overrun: &Overrun) -> (String, String) {
    let socket = overrun.socket;
    let pid = socket.owner.map_or(0, |owner| owner.pid);
    if let Some(words) = unstarted(socket) {
        return words;
    }
    let takes_nothing = || rates(seen, socket).is_some_and(|(read, _)| read < 1.0);
    match (overrun.late, socket.busy) {
        (Late::Stopped(stopped), _) => halted(&processes(socket), stopped),
        (Late::SmallerBuffer(largest), _) => (
            format!("others at its address have buffers of up to {largest} bytes"),
            format!(
                "the same buffer as theirs: {}",
                ask_for(seen, socket, u64::from(largest) / 2)
            ),
        ),
        // It reads, though it hardly runs: it sleeps longer between two reads.
        (Late::NotRead, busy) if rates(seen, socket).is_some_and(|(read, _)| read >= 1.0) => {
            too_slow(seen, overrun, busy.is_some())
        }
        (Late::NotRead, _) => leftover(seen, socket).unwrap_or_else(|| not_read(socket, pid)),
        (Late::Rate, busy) => too_slow(seen, overrun, busy.is_some()),
        (Late::NeverSlept | Late::NoCpu, Some(busy)) if busy.ran >= WORKS && takes_nothing() => (
            "the program always has work and takes nothing from it: it does other work, or reads with \
             MSG_PEEK, which leaves the datagram in the buffer"
                .to_owned(),
            format!("strace -fp {pid} shows its calls: a read without MSG_PEEK, in a thread of its own"),
        ),
        (Late::NeverSlept, _) => (
            "the program is too slow, it always has work".to_owned(),
            format!(
                "{}, each thread on a CPU of its own; or a cheaper way to receive: mpps bench shows what each \
                 is worth here",
                more_readers(socket)
            ),
        ),
        (Late::NoCpu, Some(busy)) => no_cpu(seen, socket, &busy),
        (Late::Waits, Some(_)) => waiting(seen, socket, pid),
        (Late::Bursts, Some(_)) if away_ms(seen, socket) > 0 => (
            format!(
                "its reader was away for about {} ms at a time, with other work, a lock or a pause (garbage collection), \
                 while datagrams came",
                away_ms(seen, socket)
            ),
            format!(
                "shorter pauses, or a thread of its own that reads; or to bridge them: {}",
                larger_buffer(seen, socket)
            ),
        ),
        (Late::Bursts, Some(_)) => (
            "its reader slept in between, so that the buffer is too small for the bursts"
                .to_owned(),
            larger_buffer(seen, socket),
        ),
        (Late::Unseen | Late::Bursts | Late::NoCpu | Late::Waits, _) => (
            "what its reader did is not seen".to_owned(),
            format!("{}; {}", unseen(seen), larger_buffer(seen, socket)),
        ),
    }
}

fn processes<'a>(socket: &SeenSocket<'a>) -> Vec<&'a Process> {
    socket.holders.iter().map(|(process, _)| *process).collect()
}

/// The words for a process that cannot run, of all that have a socket.
pub(super) fn halted(all: &[&Process], halted: u32) -> (String, String) {
    let process = all.iter().find(|one| one.pid == halted);
    let thaw = process.and_then(|one| one.frozen.clone().filter(|_| !one.stopped));
    let state = if thaw.is_some() { "frozen" } else { "stopped" };
    let whose = match all.iter().all(|process| process.is_halted()) {
        true => "the program is",
        false => "a process that has it is",
    };
    let Some(thaw) = thaw else {
        return (format!("{whose} {state}"), format!("kill -CONT {halted}"));
    };
    let remedy = "thaw it: docker unpause CONTAINER, or systemctl thaw UNIT";
    let by_hand = match &*thaw {
        "" => format!("; cat /proc/{halted}/cgroup names the cgroup"),
        thaw => format!("; or {thaw}"),
    };
    (
        format!("{whose} {state} (its cgroup, as by docker pause)"),
        format!("{remedy}{by_hand}"),
    )
}

/// The words for a socket that its owner does not read while another program reads one at its address.
fn leftover(seen: &Observed, socket: &SeenSocket) -> Option<(String, String)> {
    let (owner, entry) = (socket.owner?, socket.entry);
    let is_own = |pid: &u32| socket.holders.iter().any(|(one, _)| one.pid == *pid);
    let is_there = |one: &&UdpEntry| {
        let same = one.local == entry.local && one.interface == entry.interface;
        same && one.remote.is_none() && !is_full(one)
    };
    let mates = seen.after.sockets.iter().filter(is_there);
    let pids = mates.filter_map(|one| seen.after.owners.get(&one.inode));
    let mut readers = pids.flatten().filter(|pid| !is_own(pid));
    let reader = readers.find_map(|pid| {
        let reader = seen.after.processes.get(pid)?;
        let is_orphan = owner.parent == 1 && reader.parent != 1;
        (owner.name != reader.name || is_orphan).then_some(reader)
    })?;
    let what = format!(
        "{} does not read it, while {} (pid {}) reads another socket at that address: it looks like a child or an \
         earlier instance that is left over",
        owner.name, reader.name, reader.pid
    );
    let pids = socket.holders.iter().map(|(one, _)| one.pid.to_string());
    let remedy = format!(
        "end it, if it is left over: kill {}; and have the program that started it open its sockets with \
         close-on-exec (SOCK_CLOEXEC), so that children do not inherit them",
        pids.collect::<Vec<_>>().join(" ")
    );
    Some((what, remedy))
}

/// The words for a socket that no thread reads.
fn not_read(socket: &SeenSocket, pid: u32) -> (String, String) {
    let look = waits_for(pid);
    match socket.entry.remote {
        None => (
            "it still is, and the program does not read it".to_owned(),
            look,
        ),
        Some(remote) => (
            format!(
                "it still is, and the program does not read it; it gets all datagrams from {remote}, and no other \
                 socket of the port gets them"
            ),
            format!(
                "have the program read its connected sockets, too, or close them, or not connect them: then the \
                 flow from {remote} comes to its other sockets of the port; or if it should read this one, \
                 {look}"
            ),
        ),
    }
}

/// The words for a reader that waits for a CPU.
fn no_cpu(seen: &Observed, socket: &SeenSocket, busy: &Busy) -> (String, String) {
    let pinned = pinned(seen, socket, busy).map(|list| format!("it may use only {list}"));
    let ahead = rank(seen, socket, busy).map(|(words, _)| words);
    let causes: Vec<String> = pinned.into_iter().chain(ahead).collect();
    let because = match causes.is_empty() {
        true => String::new(),
        false => format!(": {}", causes.join(", and ")),
    };
    let each = match busy.wait_ms {
        ms if ms < 1.0 => format!("{:.0} us", ms * 1000.0),
        ms => format!("{ms:.1} ms"),
    };
    let what = format!(
        "its reader lacked a CPU for {:.0} % of the time that it was ready to run, {each} at a time on average\
         {because}",
        busy.waited / busy.ready() * 100.0
    );
    let cpu = own_cpu(seen, socket, busy, busy.cpu.as_slice());
    let mut remedy = cpu;
    if seen.after.are_quotas_hidden {
        remedy += HIDDEN;
    }
    // If it never slept, it has no time to catch up.
    if busy.ready() < FULL {
        remedy = format!(
            "{remedy}; or to bridge these waits: {}",
            larger_buffer(seen, socket)
        );
    }
    (what, remedy)
}

/// The words for a reader that often waits for something besides its socket.
fn waiting(seen: &Observed, socket: &SeenSocket, pid: u32) -> (String, String) {
    let course = socket.course.unwrap_or_default();
    let what = format!(
        "its reader slept or waited for something besides this socket, although datagrams waited: the queue was \
         half full or more at {} of {} looks",
        course.full, course.looks
    );
    let remedy = format!(
        "no sleep, lock, disk or query (such as DNS) between two reads: strace -fp {pid} shows what it waits for; \
         or to bridge these waits: {}",
        larger_buffer(seen, socket)
    );
    (what, remedy)
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
