//! Changes to a running program, from outside, for the losses that were found.

use super::listen_queue::{cause, full, holders};
use super::overrun::{Overrun, may_share, overruns, place};
use super::program_settings::{accept_queue, receive_buffer};
use super::reader::{
    FULL, Late, better_nice, buffer_for_bursts, busy_others, is_idle, least_busy, pinned, rates,
};
use super::way_out::full_send_buffers;
use super::{Evidence, Observed, SeenSocket, backlog, nic_no_room, time_squeeze};
use crate::CpuList;
use crate::setting::SocketSize;
use mpps_os::borrowed::SpreadWay;
use mpps_os::text::Foreign;

/// Programs that attach a program to their group themselves. No call reads it back, so that it could not be
/// restored.
const SPREAD_THEMSELVES: [&str; 3] = ["knotd", "envoy", "nginx"];

/// A larger send buffer is as many times as large, at least: how much did not fit is not counted in bytes.
const SEND_BUFFER_FACTOR: u32 = 16;

/// A change to a running program that would help.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fix {
    /// The process.
    pub pid: u32,
    /// Its name.
    pub program: String,
    /// Its user, once the change is kept: a later process of that name may be another user's.
    pub user: Option<u32>,
    /// The change.
    pub kind: FixKind,
    /// Why.
    pub why: String,
    /// How the program's own configuration has it from the start; none if that is not known.
    pub permanent: Option<String>,
}

/// The kinds of change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FixKind {
    /// A stopped process goes on.
    Continue,
    /// The sockets with these inode numbers, one group of `SO_REUSEPORT`, get datagrams in another way.
    Spread(SpreadWay, Vec<u32>),
    /// The sockets with these inode numbers get room for at least as much.
    Size(SocketSize, Vec<u32>, u32),
    /// A thread may run on these CPUs.
    Affinity(u32, CpuList),
    /// A thread gets this nice value.
    Nice(u32, i32),
    /// Another process, which is busy on the CPU of a reader and may run on none of these, runs on these.
    Others(CpuList),
    /// This stage of `mpps tune` for an interface.
    Tune(&'static str, String),
}

impl Fix {
    /// The name of the program, with its number, or of the interface.
    pub fn whose(&self) -> String {
        match self.kind {
            FixKind::Tune(..) => Foreign(&self.program).to_string(),
            _ => format!("{} ({})", Foreign(&self.program), self.pid),
        }
    }

    /// How long it holds, and how it becomes permanent.
    pub fn stays(&self) -> String {
        let (what, whose) = (self.kind.name(), self.whose());
        let until = match self.kind {
            FixKind::Tune(..) => format!("{what}: until `mpps tune undo {whose}` or a restart"),
            _ => format!("{what}: until {whose} ends"),
        };
        match &self.permanent {
            Some(line) => format!("{until}; for good: {line}"),
            None => until,
        }
    }
}

impl Fix {
    /// The same for a new process of its program, which has these sockets for datagrams and these listeners;
    /// `group` is all sockets for datagrams of the program. None if it has nothing to change.
    pub(crate) fn again(
        &self,
        pid: u32,
        datagrams: &[u32],
        listeners: &[u32],
        group: &[u32],
    ) -> Option<Self> {
        let kind = match &self.kind {
            FixKind::Size(size, _, room) => {
                let sockets = match size {
                    SocketSize::AcceptQueue => listeners,
                    SocketSize::ReceiveBuffer | SocketSize::SendBuffer => datagrams,
                };
                (!sockets.is_empty()).then(|| FixKind::Size(*size, sockets.to_vec(), *room))
            }
            FixKind::Spread(way, _) => {
                let is_first = group.len() > 1 && datagrams.contains(&group[0]);
                is_first.then(|| FixKind::Spread(*way, group.to_vec()))
            }
            // Only of the first thread it is known which one of the new process that is.
            FixKind::Affinity(thread, cpus) if *thread == self.pid => {
                Some(FixKind::Affinity(pid, cpus.clone()))
            }
            FixKind::Nice(thread, nice) if *thread == self.pid => Some(FixKind::Nice(pid, *nice)),
            _ => None,
        };
        let same = self.clone();
        kind.map(|kind| Self { pid, kind, ..same })
    }
}

impl FixKind {
    /// The table of kinds: the place in the order of making them, the name, and the disadvantage or danger. A
    /// process that is stopped has no other fault as yet, and spreading has the greatest disadvantage.
    fn row(&self) -> (u8, &'static str, Option<&'static str>) {
        match self {
            Self::Continue => (0, "continue", None),
            Self::Size(SocketSize::ReceiveBuffer, ..) => (
                1,
                "buffer",
                Some("the kernel may use that much memory for each socket"),
            ),
            Self::Size(SocketSize::AcceptQueue, ..) => (
                1,
                "accept-queue",
                Some("a client may wait longer, where the program accepts too slowly"),
            ),
            Self::Size(SocketSize::SendBuffer, ..) => (
                1,
                "send-buffer",
                Some(
                    "datagrams may leave later; the kernel may use that much memory for each socket",
                ),
            ),
            Self::Affinity(..) => (
                2,
                "affinity",
                Some("the thread may share its new CPU with interrupts or other threads"),
            ),
            Self::Nice(..) => (3, "nice", Some("other programs on its CPU get less of it")),
            Self::Others(_) => (
                4,
                "others",
                Some("that program leaves the CPUs that were chosen for it"),
            ),
            // Its settings have risks of their own.
            Self::Tune(stage, _) => (8, stage, None),
            Self::Spread(SpreadWay::Flow, _) => {
                (5, "spread-hash", Some("flows move to other sockets"))
            }
            Self::Spread(SpreadWay::Cpu, _) => (
                6,
                "spread-cpu",
                Some(
                    "a flow that another CPU serves moves to another socket, and may lose its order",
                ),
            ),
            Self::Spread(SpreadWay::Random, _) => (
                7,
                "spread",
                Some("datagrams of one flow come to several sockets, and out of order"),
            ),
        }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.row().1
    }

    /// The disadvantage, or the danger of it, if there is one.
    pub fn risk(&self) -> Option<&'static str> {
        self.row().2
    }

    /// True if both are the same, or one has become both: sizes of one process.
    fn joins(&mut self, other: &Self) -> bool {
        match (self, other) {
            (Self::Size(size, sockets, room), Self::Size(same, more, wanted)) if size == same => {
                sockets.extend(more);
                *room = (*room).max(*wanted);
                true
            }
            (one, other) => *one == *other,
        }
    }
}

/// The changes that the losses between two looks call for, each once. None for a healthy program.
pub fn fixes(seen: &Observed) -> Vec<Fix> {
    let mut all: Vec<Fix> = Vec::new();
    let overruns = overruns(seen);
    let datagrams = overruns.iter().flat_map(|overrun| of(seen, overrun));
    for fix in datagrams
        .chain(accept_queues(seen))
        .chain(send_buffers(seen))
        .chain(on_the_way(seen))
    {
        // A group may be of several processes, and is spread once.
        let is_group = matches!(fix.kind, FixKind::Spread(..));
        let mut others = all.iter_mut().filter(|one| is_group || one.pid == fix.pid);
        if !others.any(|one| one.kind.joins(&fix.kind)) {
            all.push(fix);
        }
    }
    all.sort_by_key(|one| one.kind.row().0);
    all
}

fn of(seen: &Observed, overrun: &Overrun) -> Vec<Fix> {
    let Overrun { socket, late, .. } = overrun;
    let Some(owner) = socket.owner else {
        return Vec::new();
    };
    let at = socket.entry.local;
    let fix = |pid, kind, why: &str, permanent| Fix {
        pid,
        program: owner.name.clone(),
        user: None,
        kind,
        why: format!("{at}: {why}"),
        permanent,
    };
    let buffer = |bytes: u64, why| {
        let booked = bytes.saturating_mul(2).min(i32::MAX as u64) as u32;
        let kind = FixKind::Size(SocketSize::ReceiveBuffer, vec![socket.entry.inode], booked);
        let is_larger = booked > socket.entry.buffer_bytes;
        is_larger.then(|| fix(owner.pid, kind, why, receive_buffer(&owner.name, bytes)))
    };
    let bursts = |why| buffer(buffer_for_bursts(seen, socket), why);
    let (mut own, mut others) = (Vec::new(), Vec::new());
    match late {
        Late::Unseen => return Vec::new(),
        Late::NotRead if !reads(seen, socket) => return Vec::new(),
        Late::Stopped(pid) => {
            let halted = socket.holders.iter().find(|(one, _)| one.pid == *pid);
            let halted = halted.filter(|(one, _)| one.stopped);
            let go_on =
                halted.map(|_| fix(*pid, FixKind::Continue, "a signal has stopped it", None));
            return Vec::from_iter(go_on);
        }
        Late::SmallerBuffer(largest) => {
            let why = "its buffer is smaller than those of its group";
            return Vec::from_iter(buffer(u64::from(*largest) / 2, why));
        }
        Late::NoCpu => {
            let moved = affinity(seen, socket);
            let moved = moved.map(|kind| fix(owner.pid, kind, "its reader waits for a CPU", None));
            let nice = socket.busy.and_then(|busy| {
                let nice = better_nice(seen, socket, &busy)?;
                let kind = FixKind::Nice(busy.runner, nice);
                Some(fix(
                    owner.pid,
                    kind,
                    "a program on its CPU goes before its reader",
                    None,
                ))
            });
            let bridges = socket.busy.is_some_and(|busy| busy.ready() < FULL);
            let bridge = bridges.then(|| bursts("its buffer does not bridge the waits for a CPU"));
            own.extend(moved.into_iter().chain(nice).chain(bridge.flatten()));
            others = others_moved(seen, socket);
        }
        // Whether it reads enough between its waits, only a measurement shows.
        Late::Bursts | Late::Waits | Late::Rate | Late::NotRead => {
            own.extend(bursts(
                "its buffer may not hold what comes while it does not read",
            ));
        }
        // A larger buffer only delays the loss.
        Late::NeverSlept => {}
    }
    let spread = spreads(seen, socket).into_iter().map(|kind| {
        let why = "it loses, and another socket of its group does not";
        fix(owner.pid, kind, why, None)
    });
    spread.chain(own).chain(others).collect()
}

/// Stages of `mpps tune` for packets that were lost before any socket. Where no interface is named, it is that
/// which received most.
fn on_the_way(seen: &Observed) -> Vec<Fix> {
    let received = |name: &&str| {
        let packets = seen.link(name, "rx_packets");
        packets.map_or(0, |packets| packets.grown())
    };
    let names = || seen.counting_interfaces().filter(|name| *name != "lo");
    let Some(most) = names().max_by_key(received) else {
        return Vec::new();
    };
    let has_no_room = |name: &&str| Evidence::sum(&nic_no_room::losses_of(seen, name)) > 0;
    let no_room = names().filter(has_no_room);
    let no_room = no_room.map(|name| ("rings", name, "it had no room for packets"));
    let backlog = "the backlog of a CPU was full";
    let backlog = [("rps", most, backlog), ("backlog", most, backlog)].into_iter();
    let squeezed = ("budget", most, "soft interrupts ended with packets left");
    let is_asked = seen.asked.port.is_some() || seen.asked.pid.is_some();
    let stages = no_room
        .chain(backlog.filter(|_| backlog::lost(seen) > 0))
        .chain((!(time_squeeze::CHECK.run)(seen).is_empty()).then_some(squeezed))
        .filter(|_| is_asked);
    let fix = stages.map(|(stage, interface, why)| Fix {
        pid: 0,
        program: interface.to_owned(),
        user: None,
        kind: FixKind::Tune(stage, interface.to_owned()),
        why: why.to_owned(),
        permanent: None,
    });
    fix.collect()
}

/// Larger send buffers for the sockets in question, if a program found one full. The kernel does not count
/// that for each socket.
fn send_buffers(seen: &Observed) -> Vec<Fix> {
    let is_asked = seen.asked.port.is_some() || seen.asked.pid.is_some();
    if !is_asked || full_send_buffers(seen) == 0 {
        return Vec::new();
    }
    let fix = seen.sockets.iter().filter_map(|one| {
        let pid = *seen.after.owners.get(&one.entry.inode)?.first()?;
        // A process whose sockets drop nothing is read at the first moment.
        let mut looks = [seen.after, seen.before].into_iter();
        let process = looks.find_map(|look| look.processes.get(&pid))?;
        let now = one.entry.send_buffer_bytes;
        let wanted = now.saturating_mul(SEND_BUFFER_FACTOR).next_power_of_two();
        Some(Fix {
            pid,
            program: process.name.clone(),
            user: None,
            kind: FixKind::Size(SocketSize::SendBuffer, vec![one.entry.inode], wanted),
            why: format!("{}: a program found its send buffer full", one.entry.local),
            permanent: None,
        })
    });
    fix.collect()
}

/// Longer queues for listeners in question whose program accepts. listen(2) gives what `net.core.somaxconn`
/// allows.
fn accept_queues(seen: &Observed) -> Vec<Fix> {
    let limit = seen.after.settings.get("net.core.somaxconn");
    let limit = limit.map_or(0, |limit| u32::try_from(*limit).unwrap_or(u32::MAX));
    let asked = seen.listeners();
    let full = full(seen).into_iter().filter(|one| asked.contains(one));
    let fix = full.filter_map(|one| {
        let owner = *holders(seen, one).first()?;
        let accepts = cause(seen, one).is_none();
        (accepts && one.waiting_max < limit).then(|| Fix {
            pid: owner.pid,
            program: owner.name.clone(),
            user: None,
            kind: FixKind::Size(SocketSize::AcceptQueue, vec![one.inode], limit),
            why: format!(
                "{}: its accept queue is full, and net.core.somaxconn allows more",
                one.local
            ),
            permanent: accept_queue(&owner.name, limit),
        })
    });
    fix.collect()
}

/// True if its program reads it, however seldom: as far as is seen, it wakes each half second or oftener.
fn reads(seen: &Observed, socket: &SeenSocket) -> bool {
    let turns = socket.busy.map_or(0, |busy| busy.turns);
    let wakes = turns as f64 >= 2.0 * seen.seconds();
    wakes || rates(seen, socket).is_some_and(|(read, _)| read >= 1.0)
}

/// The ways to spread the datagrams of a socket's group, if a socket of it is read and lost nothing. By CPU if
/// several take packets in.
fn spreads(seen: &Observed, socket: &SeenSocket) -> Vec<FixKind> {
    let Some(own) = socket.owner.map(|owner| &owner.name) else {
        return Vec::new();
    };
    let shares = |one: &&SeenSocket| {
        let is_shared = seen.after.port_sharing.get(&one.entry.inode) == Some(&true);
        is_shared && may_share(one) && place(one) == place(socket)
    };
    let group: Vec<&SeenSocket> = seen.sockets.iter().filter(shares).collect();
    let spreads_itself = SPREAD_THEMSELVES.iter().any(|name| own.starts_with(name));
    let has_room = group.iter().any(|one| {
        let is_halted = one.holders.iter().any(|(process, _)| process.is_halted());
        one.drops.grown() == 0 && !one.is_full() && !is_halted
    });
    let mut inodes: Vec<u32> = group.iter().map(|one| one.entry.inode).collect();
    inodes.sort_unstable();
    if inodes.len() < 2 || !has_room || spreads_itself {
        return Vec::new();
    }
    let rows = seen.delta.softnet.iter();
    let taking = rows.filter(|row| row.processed > 0).count();
    let ways = [SpreadWay::Flow, SpreadWay::Cpu, SpreadWay::Random].into_iter();
    ways.filter(|way| *way != SpreadWay::Cpu || taking > 1)
        .map(|way| FixKind::Spread(way, inodes.clone()))
        .collect()
}

/// The busiest processes on the CPU of a reader that may use only some CPUs, each moved to the other ones.
fn others_moved(seen: &Observed, socket: &SeenSocket) -> Vec<Fix> {
    let on = socket.owner.zip(socket.busy);
    let on =
        on.and_then(|(owner, busy)| Some((owner, busy.cpu?, owner.allowed.get(&busy.runner)?)));
    let Some((owner, cpu, allowed)) = on else {
        return Vec::new();
    };
    let rest = seen.cpus.iter().map(|one| one.cpu);
    let rest: Vec<usize> = rest.filter(|cpu| !allowed.0.contains(cpu)).collect();
    let others = busy_others(seen, cpu, owner.pid).filter(|_| !rest.is_empty());
    let others = others.map(|(pid, program)| Fix {
        pid,
        program: program.to_owned(),
        user: None,
        kind: FixKind::Others(CpuList(rest.clone())),
        why: format!(
            "{}: it is busy on CPU {cpu}, and {} (pid {}) may use only {allowed}",
            socket.entry.local, owner.name, owner.pid
        ),
        permanent: None,
    });
    others.collect()
}

/// All CPUs for a pinned reader, or an idle one.
fn affinity(seen: &Observed, socket: &SeenSocket) -> Option<FixKind> {
    let busy = socket.busy?;
    let cpus = match pinned(seen, socket, &busy) {
        Some(_) => seen.cpus.iter().map(|one| one.cpu).collect(),
        None => vec![least_busy(seen, busy.cpu.as_slice()).filter(is_idle)?.cpu],
    };
    Some(FixKind::Affinity(busy.runner, CpuList(cpus)))
}
