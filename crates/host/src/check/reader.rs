//! Why the reader of a socket does not empty its buffer in time.

use super::program_settings::receive_buffer;
use super::seen::LEAST_CHARGE;
use super::{Evidence, Observed, SeenSocket};
use crate::facts::{Busy, Process, ProcessLoad};
use crate::{CpuBusy, CpuList};
use mpps_os::netlink::sock_diag::UdpEntry;

/// From this share on a CPU or a thread is full.
pub(super) const FULL: f64 = 0.9;
/// Below this share a thread hardly ran.
const IDLE: f64 = 0.005;
/// From this share of the time that a thread has work on, it lacks a CPU.
const LACKS: f64 = 0.25;
/// Shorter waits have cost little.
const WAITED_MIN: f64 = 0.05;
/// A shorter wait, in milliseconds, is that of a wake-up.
const BRIEF_MS: f64 = 0.1;
/// Below this share a CPU has room for a thread, and a thread has time to spare.
const IDLE_CPU: f64 = 0.5;
/// From this share of the time on a reader that sleeps beside a full queue waits for something besides it.
const LONG: f64 = 0.25;
/// The priority of nice value 0.
const NICE_0: i32 = 20;
/// How often a queue has to be looked at to know its course.
const LOOKS_MIN: u32 = 3;
/// Looks at a queue within a second, which are 100 ms apart on average.
const UNREAD_LOOKS: u32 = 10;
/// This many looks in a row, over 200 ms or more, saw a full queue that lost datagrams: no burst lasts so long.
const AWAY_LOOKS: u32 = 3;
/// Shorter waits, in milliseconds, keep no reader away for so long that also sleeps.
const AWAY_WAIT_MS: f64 = 1.0;
/// From this many turns a second on a program does something.
const WAKES: f64 = 5.0;
/// From this many a second on, processes that begin slow a reader down.
const STARTS: f64 = 100.0;
/// How many of a list are named.
const NAMED: usize = 4;
/// The size that most drivers book in a buffer for a datagram of one packet, in bytes: half a page and
/// its `struct sk_buff`.
const BOOKED: u64 = 2304;
/// The largest buffer that is recommended, in bytes for `setsockopt`.
const BUFFER_MAX: u64 = 64 << 20;
/// A tick of `/proc/PID/stat` is 1/100 s.
const TICKS_PER_SECOND: f64 = 100.0;

/// Why it was late.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Late {
    /// A signal has stopped this process, which has the socket, or its cgroup is frozen.
    Stopped(u32),
    /// Its buffer is half of those of other sockets at its address, or less.
    SmallerBuffer(u32),
    /// No thread of its program did anything.
    NotRead,
    /// The queue stayed full while its threads slept.
    Rate,
    /// The queue was full for long while its threads slept, and not always.
    Waits,
    /// It always had work, and a CPU.
    NeverSlept,
    /// It waited for a CPU.
    NoCpu,
    /// It emptied the queue, except for bursts.
    Bursts,
    /// Its activity is not seen.
    Unseen,
}

impl Late {
    /// The cause, for a socket whose mates at the same address have buffers up to `largest` bytes.
    pub(super) fn of(seen: &Observed, socket: &SeenSocket, largest: u32) -> Self {
        let stays = stayed_full(socket);
        let empties = empties(seen, socket);
        let mut holders = socket.holders.iter();
        let stopped = holders.find(|(process, _)| process.is_halted());
        let is_full = socket.is_full();
        let busy = socket.busy.map(|busy| chain(seen, busy));
        let never = busy.is_some_and(|busy| never_slept(&busy));
        let slept = slept_beside_full(socket, busy);
        let sleeps = stays && slept > busy.map_or(0.0, |busy| busy.waited);
        match (stopped, busy) {
            (Some((process, _)), _) if socket.owner.is_some_and(Process::is_halted) => {
                Self::Stopped(process.pid)
            }
            (Some((process, _)), _) if is_full && !never && !is_read(seen, socket) => {
                Self::Stopped(process.pid)
            }
            _ if u64::from(socket.entry.buffer_bytes) * 2 <= u64::from(largest) => {
                Self::SmallerBuffer(largest)
            }
            (_, None) if stays => Self::Rate,
            (_, None) => Self::Unseen,
            (_, Some(_)) if never => Self::NeverSlept,
            (_, Some(busy))
                if busy.ran < IDLE
                    && is_full
                    && !empties
                    && !wakes(seen, &busy)
                    && (sleeps || !lacks_cpu(&busy)) =>
            {
                Self::NotRead
            }
            (_, Some(busy))
                if lacks_cpu(&busy) && slept <= busy.waited && !pauses(seen, socket, &busy) =>
            {
                Self::NoCpu
            }
            (_, Some(_)) if stays && !empties => Self::Rate,
            (_, Some(_)) if stays || slept >= LONG && loses_long(socket) => Self::Waits,
            (_, Some(_)) => Self::Bursts,
        }
    }

    /// True if it is a matter of this one socket, whatever its mates get.
    pub(super) fn is_own(self) -> bool {
        !matches!(self, Self::NeverSlept | Self::Bursts | Self::Unseen)
    }

    /// True if no CPU would have helped.
    pub(super) fn is_idle(self) -> bool {
        self.is_own() && self != Self::NoCpu
    }
}

/// True if a program took datagrams from it. A stopped process is not to blame then.
fn is_read(seen: &Observed, socket: &SeenSocket) -> bool {
    rates(seen, socket).map_or_else(
        || socket.course.is_some_and(|course| course.is_read),
        |(read, _)| read >= 1.0,
    )
}

/// True if the queue was full at nearly every look, and its losses are not those of one burst.
fn stayed_full(socket: &SeenSocket) -> bool {
    match socket.course.filter(|course| course.looks >= LOOKS_MIN) {
        Some(course) => {
            course.full * 10 >= course.looks * 9
                && course.most.saturating_mul(2) <= socket.drops.grown()
        }
        None => socket.was_full && socket.is_full(),
    }
}

/// True if a program reads a good part of the buffer in each turn, as a timer makes it: it empties the queue, which
/// is full again at each look.
fn empties(seen: &Observed, socket: &SeenSocket) -> bool {
    let turns = socket.busy.map_or(0, |busy| busy.turns);
    turns > 0
        && rates(seen, socket).is_some_and(|(read, _)| {
            let each = read * seen.seconds() / turns as f64;
            each * LEAST_CHARGE as f64 * 4.0 >= f64::from(socket.entry.buffer_bytes)
        })
}

/// True if it lost datagrams for longer than one burst, and in much of the time.
fn loses_long(socket: &SeenSocket) -> bool {
    let course = socket.course.filter(|course| course.looks >= LOOKS_MIN);
    course.is_some_and(|course| {
        let often = course.lossy * 4 >= course.looks && course.full * 2 >= course.looks;
        often && course.longest >= course.most.saturating_mul(2)
    })
}

/// The share of the time that the queue was full and the reader slept, at least.
fn slept_beside_full(socket: &SeenSocket, busy: Option<Busy>) -> f64 {
    let full = match socket.course.filter(|course| course.looks >= LOOKS_MIN) {
        Some(course) => f64::from(course.full) / f64::from(course.looks),
        None => f64::from(u8::from(socket.was_full && socket.is_full())),
    };
    full - busy.map_or(1.0, |busy| busy.ready())
}

/// The activity that its sleep is judged by: that of all threads on a CPU which others hold. Where one passes work on
/// to the next, each of them seems to sleep.
fn chain(seen: &Observed, busy: Busy) -> Busy {
    let (ran, waited) = busy.together;
    let cpu = seen.cpus.iter().find(|one| Some(one.cpu) == busy.cpu);
    match cpu.is_some_and(|cpu| cpu.busy - ran >= IDLE_CPU) {
        true => Busy {
            ran,
            waited,
            ..busy
        },
        false => busy,
    }
}

/// True if a thread waited for a CPU a good part of the time that it had work, and not only for moments, as each time
/// that a datagram wakes it.
pub(super) fn lacks_cpu(busy: &Busy) -> bool {
    let is_brief = busy.wait_ms < BRIEF_MS && busy.ready() < IDLE_CPU;
    busy.waited >= WAITED_MIN && busy.waited >= LACKS * busy.ready() && !is_brief
}

/// True if its threads often began to run, for short, and programs here read something: it may be slow.
fn wakes(seen: &Observed, busy: &Busy) -> bool {
    let reads = seen.grown(&["Udp.InDatagrams", "Udp6.InDatagrams"]) > 0;
    reads && busy.turns as f64 >= WAKES * seen.seconds()
}

/// True if it was away for long at a time, ran in most of it, and each wait for a CPU was short.
fn pauses(seen: &Observed, socket: &SeenSocket, busy: &Busy) -> bool {
    let waits = busy.waited >= busy.ran || busy.wait_ms >= AWAY_WAIT_MS;
    away_ms(seen, socket) > 0 && busy.ready() < FULL && !waits
}

/// For how long in a row it stayed full and lost datagrams: no burst does; 0 where it did not.
pub(super) fn away_ms(seen: &Observed, socket: &SeenSocket) -> u64 {
    let course = socket.course.filter(|course| course.away >= AWAY_LOOKS);
    course.map_or(0, |course| {
        (seen.seconds() * 1000.0 * f64::from(course.away) / f64::from(course.looks)) as u64
    })
}

/// True if its busiest thread always had work, and a CPU for nearly all of it.
pub(super) fn never_slept(busy: &Busy) -> bool {
    busy.ready() >= FULL && !lacks_cpu(busy)
}

/// True if no program took anything from the queue for a second or longer, though datagrams wait there.
pub(super) fn is_unread(seen: &Observed, socket: &SeenSocket) -> bool {
    let looks = socket.course.map_or(0, |course| course.unread);
    // No socket at all was read, or this one's reader did nothing.
    let is_idle = seen.grown(&["Udp.InDatagrams", "Udp6.InDatagrams"]) == 0
        || socket.busy.is_some_and(|busy| busy.ran < IDLE);
    looks >= UNREAD_LOOKS && is_idle
}

/// That about as many processes began as datagrams were read here; empty if not, or if they are few.
pub(super) fn starts(seen: &Observed) -> String {
    let began = seen.after.begun.saturating_sub(seen.before.begun) as f64 / seen.seconds();
    let read = seen.grown(&["Udp.InDatagrams", "Udp6.InDatagrams"]) as f64 / seen.seconds();
    match read >= STARTS && (0.8..=2.5).contains(&(began / read)) {
        true => format!(
            "{began:.0}/s processes or threads began meanwhile: it seems to start one for each datagram (fork), which \
             takes far longer than to read it"
        ),
        false => String::new(),
    }
}

/// How much of its time the reader ran, waited and slept; empty if that is not seen.
pub(super) fn said(socket: &SeenSocket) -> String {
    socket.busy.map_or_else(String::new, |busy| busy.said())
}

/// The processes that have a socket; empty for one.
pub(super) fn holders(socket: &SeenSocket) -> String {
    if socket.holders.len() < 2 {
        return String::new();
    }
    let names = socket.holders.iter().map(|(process, _)| {
        let stopped = match (process.stopped, &process.frozen) {
            (true, _) => ", stopped",
            (false, Some(_)) => ", frozen",
            (false, None) => "",
        };
        format!("{} (pid {}{stopped})", process.name, process.pid)
    });
    let names = named(names.collect());
    format!("{} processes have it: {names}", socket.holders.len())
}

/// The first of these names.
pub(super) fn named(mut all: Vec<String>) -> String {
    let more = all.len().saturating_sub(NAMED);
    all.truncate(NAMED);
    all.extend((more > 0).then(|| format!("{more} more")));
    all.join(", ")
}

/// The rate of reads and of arrivals, in datagrams per second, if no other socket's reads are in the
/// counter.
pub(super) fn rates(seen: &Observed, socket: &SeenSocket) -> Option<(f64, f64)> {
    // An IPv6 socket that takes IPv4, too, counts in both.
    let families = |entry: &UdpEntry| {
        (
            !entry.local.is_ipv6() || !entry.only_v6,
            entry.local.is_ipv6(),
        )
    };
    let (own_v4, own_v6) = families(socket.entry);
    let shares = |other: &UdpEntry| {
        let (v4, v6) = families(other);
        other.inode != socket.entry.inode && (v4 && own_v4 || v6 && own_v6)
    };
    if seen.after.sockets.iter().any(shares) {
        return None;
    }
    let counters = [(own_v4, "Udp.InDatagrams"), (own_v6, "Udp6.InDatagrams")];
    let counters = counters.iter().filter(|(is_own, _)| *is_own);
    let counters = counters.filter_map(|(_, name)| seen.counter(name));
    let counters: Vec<Evidence> = counters.collect();
    let read = Evidence::sum(&counters) as f64 / seen.seconds();
    let lost = socket.drops.grown() as f64 / seen.seconds();
    (!counters.is_empty()).then_some((read, read + lost))
}

/// A buffer that holds the bursts that were lost, for `setsockopt`, and its change.
pub(super) fn larger_buffer(seen: &Observed, socket: &SeenSocket) -> String {
    ask_for(seen, socket, buffer_for_bursts(seen, socket))
}

/// The bytes of a buffer that holds the bursts that were lost, for `setsockopt`.
pub(super) fn buffer_for_bursts(seen: &Observed, socket: &SeenSocket) -> u64 {
    let turns = socket.busy.map_or(0, |busy| busy.turns);
    let lost = match socket.course.filter(|course| course.looks >= LOOKS_MIN) {
        _ if empties(seen, socket) => socket.drops.grown() / turns.max(1),
        // Regular bursts, or a long one.
        Some(course) if course.lossy * 2 >= course.looks => course.most,
        Some(course) => course.longest,
        None => socket.drops.grown(),
    };
    // Twice what was seen. Booked is twice what is asked for (socket(7)).
    let buffer = u64::from(socket.entry.buffer_bytes);
    let booked = lost.saturating_mul(2 * BOOKED).saturating_add(buffer);
    (booked / 2).min(BUFFER_MAX).next_power_of_two().max(buffer)
}

/// The words for a buffer of this size: the line of the program's own configuration if that is known, or
/// the argument of `setsockopt`.
pub(super) fn ask_for(seen: &Observed, socket: &SeenSocket, wanted: u64) -> String {
    let program = socket.owner.map_or("", |owner| &owner.name);
    if let Some(line) = receive_buffer(program, wanted) {
        return format!("{line}{}", room(seen, wanted));
    }
    format!(
        "SO_RCVBUF of {wanted} bytes in the program's setsockopt or its configuration (the kernel then shows \
         twice that, {}){}",
        wanted.saturating_mul(2),
        room(seen, wanted)
    )
}

/// The command that makes room for a buffer of this size; empty if there is room.
fn room(seen: &Observed, wanted: u64) -> String {
    match seen.after.settings.get("net.core.rmem_max") {
        Some(&now) if now >= wanted => String::new(),
        _ => format!("; before that {}", seen.raise("net.core.rmem_max", wanted)),
    }
}

/// How a thread that waits for a CPU gets one, as commands.
pub(super) fn own_cpu(
    seen: &Observed,
    socket: &SeenSocket,
    busy: &Busy,
    taken: &[usize],
) -> String {
    let (option, thread) = match socket.owner {
        Some(owner) if busy.together.1 > busy.waited => ("-apc", owner.pid),
        _ => ("-pc", busy.runner),
    };
    let all: Vec<usize> = seen.cpus.iter().map(|one| one.cpu).collect();
    let least = least_busy(seen, taken);
    let pinned = pinned(seen, socket, busy).map(|list| {
        format!(
            "a CPU of its own: taskset {option} {} {thread} lets it use the other CPUs (it may use only {list}); a cpuset of its cgroup \
             (AllowedCPUs= of systemd, --cpuset-cpus of Docker) goes before that",
            CpuList(all)
        )
    });
    let idle = least
        .filter(is_idle)
        .filter(|_| pinned.is_none())
        .map(|idle| {
            let share = idle.busy * 100.0;
            format!(
                "a CPU of its own: taskset {option} {} {thread} (CPU {0} was {share:.0} % busy)",
                idle.cpu
            )
        });
    let mut ways: Vec<String> = pinned.into_iter().chain(idle).collect();
    ways.extend(rank(seen, socket, busy).map(|(words, how)| format!("{how} ({words})")));
    if ways.is_empty() {
        ways.push(match least {
            None => "there is no other CPU: stop or limit other programs, or add CPUs".to_owned(),
            Some(least) => format!(
                "no other CPU is idle (the least busy, CPU {}, was {:.0} % busy): stop or \
                 limit other programs, or add CPUs",
                least.cpu,
                least.busy * 100.0
            ),
        });
    }
    ways.join("; or ")
}

/// The least busy CPU besides these.
pub(super) fn least_busy<'s>(seen: &'s Observed, taken: &[usize]) -> Option<&'s CpuBusy> {
    let others = seen.cpus.iter().filter(|one| !taken.contains(&one.cpu));
    others.min_by(|a, b| a.busy.total_cmp(&b.busy))
}

/// True if a CPU has time for one more thread.
pub(super) fn is_idle(cpu: &&CpuBusy) -> bool {
    cpu.busy < IDLE_CPU
}

/// The CPUs that a thread may use, if these are not all, in words.
pub(super) fn pinned(seen: &Observed, socket: &SeenSocket, busy: &Busy) -> Option<String> {
    let list = socket.owner?.allowed.get(&busy.runner)?;
    let is_pinned = seen.cpus.iter().any(|one| !list.0.contains(&one.cpu));
    let word = if list.0.len() == 1 { "CPU" } else { "CPUs" };
    is_pinned.then(|| format!("{word} {list}"))
}

/// The process on a thread's CPU that goes before it most.
fn first_rival<'s>(
    seen: &'s Observed,
    socket: &SeenSocket,
    busy: &Busy,
) -> Option<(u32, &'s ProcessLoad)> {
    let own = busy.priority?;
    let rivals = rivals(seen, busy.cpu?, socket.owner?.pid).into_iter();
    let ahead = rivals.filter(|(.., load)| load.priority < own);
    let (_, rival, load) = ahead.min_by_key(|(.., load)| load.priority)?;
    Some((rival, load))
}

/// The nice value of the process on a thread's CPU that goes before it, unless that has a real-time priority.
pub(super) fn better_nice(seen: &Observed, socket: &SeenSocket, busy: &Busy) -> Option<i32> {
    let (_, load) = first_rival(seen, socket, busy)?;
    (load.priority >= 0).then_some(load.priority - NICE_0)
}

/// The busiest other processes on a thread's CPU: their numbers and names.
pub(super) fn busy_others<'s>(
    seen: &'s Observed,
    cpu: usize,
    own: u32,
) -> impl Iterator<Item = (u32, &'s str)> {
    let rivals = rivals(seen, cpu, own).into_iter().take(NAMED);
    rivals.map(|(_, rival, load)| (rival, &*load.name))
}

/// A process on a thread's CPU that goes before it, in words, and the command that changes that.
pub(super) fn rank(seen: &Observed, socket: &SeenSocket, busy: &Busy) -> Option<(String, String)> {
    let own = busy.priority?;
    let (rival, load) = first_rival(seen, socket, busy)?;
    let name = format!("{} (pid {rival})", load.name);
    Some(match load.priority < 0 {
        true => (
            format!("{name} has a real-time priority and goes first"),
            format!("chrt -o -p 0 {rival} gives that an ordinary one"),
        ),
        false => (
            format!(
                "its nice value is {}, that of {name} is {}",
                own - NICE_0,
                load.priority - NICE_0
            ),
            format!("renice -n {} -p {}", load.priority - NICE_0, busy.runner),
        ),
    })
}

/// The other processes on this CPU, busiest first, each with the share of its time.
fn rivals<'s>(seen: &'s Observed, cpu: usize, own: u32) -> Vec<(f64, u32, &'s ProcessLoad)> {
    let (before, after) = (&seen.before.loads, &seen.after.loads);
    let on_cpu = after
        .iter()
        .filter(|(pid, load)| **pid != own && load.cpus.contains(&cpu));
    let share = |pid: &u32, load: &ProcessLoad| {
        let earlier = before.get(pid).map_or(0, |one| one.ticks);
        load.ticks.saturating_sub(earlier) as f64 / TICKS_PER_SECOND / seen.seconds()
    };
    let mut others: Vec<(f64, u32, &ProcessLoad)> = on_cpu
        .map(|(pid, load)| (share(pid, load), *pid, load))
        .filter(|(share, ..)| *share >= 0.05)
        .collect();
    others.sort_by(|a, b| b.0.total_cmp(&a.0));
    others
}

/// The largest share of the CPU's time that a process took which goes before the reader.
pub(super) fn ahead(seen: &Observed, busy: &Busy, own: u32) -> f64 {
    let (Some(cpu), Some(priority)) = (busy.cpu, busy.priority) else {
        return 0.0;
    };
    let mut rivals = rivals(seen, cpu, own).into_iter();
    let first = rivals.find(|(.., load)| load.priority < priority);
    first.map_or(0.0, |(share, ..)| share)
}

/// The same in words; empty for none.
pub(super) fn cpu_holders(seen: &Observed, cpu: usize, own: u32) -> String {
    let words = rivals(seen, cpu, own)
        .into_iter()
        .map(|(share, pid, load)| format!("{} (pid {pid}) {:.0} %", load.name, share * 100.0));
    match named(words.collect()) {
        none if none.is_empty() => String::new(),
        names => format!("CPU {cpu} was also used by {names}"),
    }
}

/// The function of the kernel that its busiest thread waits in, if that is seen.
fn wait<'a>(socket: &SeenSocket<'a>) -> Option<&'a str> {
    let owner = socket.owner?;
    let runner = socket.busy.map(|busy| busy.runner);
    let name = owner.waits.get(&runner.unwrap_or(owner.pid))?;
    Some(name)
}

/// The same in words; empty if it is not seen.
pub(super) fn waits(socket: &SeenSocket) -> String {
    let words = |name| format!("at the end it slept in {name} (wchan)");
    wait(socket).map_or_else(String::new, words)
}

/// Parts of the names of functions that show what a reader waits for, with the remedy. No reader of a full
/// queue waits there for its own socket, except for an event that came before.
const OBSTACLES: [(&[&str], &str, &str); 7] = [
    (
        &["ptrace_stop"],
        "a debugger has stopped it",
        "have it go on, or detach: TracerPid in /proc/PID/status is the debugger",
    ),
    (
        &["pipe_write"],
        "a pipe that it writes to is full, as of an output or a log that is not read",
        "have that pipe read, or write to a file: ls -l /proc/PID/fd",
    ),
    (
        &["n_tty_write"],
        "its terminal takes no output, as after Ctrl-S",
        "Ctrl-Q in that terminal, or write to a file",
    ),
    (
        &["sock_alloc_send_pskb"],
        "its send buffer is full: datagrams leave more slowly than they come",
        "a faster way out: tc -s qdisc shows a limit, ip neigh show nud failed nud incomplete a host that does not \
         answer ARP, as where a port of a bridge has the address of the bridge; or send without waiting \
         (MSG_DONTWAIT), or in another thread",
    ),
    (
        &["wait_woken"],
        "it waits in a TCP connection, for room to send, as where the receiver of a log does not read, or for data; or \
         in a terminal",
        "ss -tnp shows its connections: a Send-Q that stays full is of a receiver that does not read; have that read, or \
         give that target a queue and threads of its own (of rsyslog queue.type=\"LinkedList\" in its action), or a \
         timeout",
    ),
    (
        &["poll_schedule_timeout"],
        "it waits in poll or select, although datagrams wait: in the same thread for another socket, as for an answer of \
         DNS, or without this one in its list",
        "ss -uanp dst :53 shows queries that wait: no DNS (of syslog-ng use-dns(no)), or a faster server; or a thread of \
         its own for them",
    ),
    (
        &["ep_poll", "epoll_wait"],
        "it waits for an event, although datagrams wait: of an edge-triggered socket (EPOLLET) it has to read until \
         EAGAIN",
        "read in a loop until EAGAIN, or without EPOLLET; or watch this socket again, if the program took it out",
    ),
];

/// The obstacle of a reader that sleeps beside a full queue, or does not read it at all.
pub(super) fn obstacle(
    socket: &SeenSocket,
    is_unread: bool,
) -> Option<(&'static str, &'static str)> {
    let name = wait(socket)?;
    // It polls for its own socket, too, and between two reads it waits for events.
    let is_open = match name.contains("epoll") || name.contains("ep_poll") {
        true => is_unread && socket.is_full(),
        false => !name.contains("poll") || socket.is_full(),
    };
    let is_there = |names: &[&str]| is_open && names.iter().any(|part| name.contains(part));
    let found = OBSTACLES.iter().find(|(names, ..)| is_there(names));
    found.map(|&(_, what, remedy)| (what, remedy))
}
