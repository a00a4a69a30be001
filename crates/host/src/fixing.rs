//! The change of settings that fixes a running program.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;

use mpps_os::CallResult;
use mpps_os::capability::{CAP_NET_ADMIN, Rights};
use mpps_os::netlink::sock_diag;
use mpps_os::user::{is_believed, is_root};

use crate::check::{Fix, FixKind};
use crate::facts::{find_owners, relabels_sockets, socket_descriptors};
use crate::root::Root;
use crate::setting::tune::TunePlan;
use crate::setting::{
    BY_PROGRAM, Edit, Journal, Leftover, Life, LiveKernel, Owner, Place, ProgramSocket, RUNNING,
    Setting, SettingChange, SettingHost, SocketSize, UNREAD, Value, directory, leftovers,
    spread_by, way_of,
};
use crate::{CpuList, HostError, HostResult};

/// The name of the claim on a process, and the beginning of the names of its changes.
const CLAIM: &str = "fix";

/// The settings to change for a fix, in the network namespace of the calling thread, whose sockets it is about.
///
/// # Errors
/// [`HostError::Kernel`](crate::HostError) if the process, its sockets or its threads cannot be read.
pub fn change(fix: &Fix) -> HostResult<SettingChange> {
    let mut sizes = BTreeMap::new();
    let wanted: Vec<(Setting, Value)> = match &fix.kind {
        FixKind::Continue => vec![(Setting::Stopped, Value::Word(RUNNING.to_owned()))],
        FixKind::Spread(way, inodes) => {
            let sockets = inodes.len() as u32;
            let root = Root::machine();
            // Of a group of several processes, others have the rest.
            let own = socket_descriptors(&root, fix.pid);
            let all = sockets_of(inodes, SocketSize::ReceiveBuffer)?;
            let own = all
                .into_iter()
                .find(|(socket, _)| own.contains_key(&socket.inode));
            let spread = own.map(|(socket, _)| Setting::Spreading { socket, sockets });
            Vec::from_iter(spread.map(|one| (one, spread_by(*way))))
        }
        FixKind::Size(size, inodes, room) => {
            let sockets = sockets_of(inodes, *size)?;
            sizes.extend(sockets.iter().map(|(socket, now)| (socket.cookie, *now)));
            let sockets = sockets.into_iter().map(|(socket, _)| Setting::SocketSize {
                size: *size,
                socket,
            });
            sockets.map(|one| (one, Value::number(*room))).collect()
        }
        FixKind::Tune(stage, interface) => return TunePlan::change_of(stage, interface),
        FixKind::Nice(thread, nice) => {
            let nice = Value::number(*nice);
            let setting = |(thread, start_time_ticks)| Setting::ThreadNice {
                thread,
                start_time_ticks,
            };
            Vec::from_iter(started(fix.pid, *thread)?.map(|one| (setting(one), nice)))
        }
        FixKind::Others(cpus) => threads_of(fix.pid)
            .filter_map(|thread| may_run_on(fix.pid, thread, &cpus.0).transpose())
            .collect::<HostResult<_>>()?,
        FixKind::Affinity(thread, cpus) => Vec::from_iter(may_run_on(fix.pid, *thread, &cpus.0)?),
    };
    let mut change = claim(fix.pid)?;
    for (setting, new) in wanted {
        let old = match &setting {
            Setting::Spreading { .. } => LiveKernel::default()
                .read(&setting, &change.place)
                .unwrap_or_else(|_| Some(Value::Word(UNREAD.to_owned()))),
            // No socket is borrowed to only look.
            Setting::SocketSize { socket, .. } => {
                sizes.get(&socket.cookie).copied().map(Value::number)
            }
            other => LiveKernel::default().read(other, &change.place)?,
        };
        // A larger size stays, and so does a lower nice value.
        let stays = |old: &Value| match (&setting, old, &new) {
            (Setting::ThreadNice { .. }, Value::Number(old), Value::Number(new)) => old <= new,
            (_, Value::Number(old), Value::Number(new)) => old >= new,
            // A program that may run there already needs no help.
            (_, Value::Set { set: old }, Value::Set { set: new }) => match fix.kind {
                FixKind::Others(_) => old.iter().any(|cpu| new.contains(cpu)),
                _ => old == new,
            },
            (_, old, new) => old == new,
        };
        let old = old.filter(|old| !stays(old));
        change
            .edits
            .extend(old.map(|old| Edit::new(setting, old, new)));
    }
    let kind = fix.kind.name();
    change.name = format!("{CLAIM}-{kind}");
    change.heading = format!("{} ({}), {kind}", fix.program, fix.pid);
    change.user = user_of(fix.pid);
    Ok(change)
}

/// The effective user of a process. `/proc/PID` itself is root's if the process is not dumpable (proc(5)).
fn user_of(pid: u32) -> Option<u32> {
    let status = Root::machine().read_if_possible(&format!("proc/{pid}/status"))?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Adds to kept fixes whose they are.
pub fn name_users(fixes: &mut [Fix]) {
    for (one, process) in kept() {
        let own = fixes.iter_mut().filter(|fix| fix.pid == process.pid);
        own.for_each(|fix| fix.user = one.record.change.user);
    }
}

/// A thread of a process and its start, if it lives.
fn started(pid: u32, thread: u32) -> HostResult<Option<(u32, u64)>> {
    let start = Owner::of(pid)?.thread_start(thread)?;
    Ok(start.map(|start| (thread, start)))
}

/// The setting that lets a thread run on these CPUs, if it lives.
fn may_run_on(pid: u32, thread: u32, cpus: &[usize]) -> HostResult<Option<(Setting, Value)>> {
    let setting = |(thread, start_time_ticks)| Setting::ThreadCpus {
        thread,
        start_time_ticks,
    };
    let started = started(pid, thread)?;
    Ok(started.map(|one| (setting(one), Value::set(cpus.to_vec()))))
}

/// True if there is such a process.
pub fn lives(pid: u32) -> bool {
    Owner::of(pid).is_ok_and(|owner| owner.life() != Life::Dead)
}

/// The change that keeps a second fix away from a process: it changes nothing.
///
/// # Errors
/// [`HostError::Kernel`](crate::HostError) if there is no such process.
pub fn claim(pid: u32) -> HostResult<SettingChange> {
    Owner::numbers_are_valid()?;
    let place = Place::process(Owner::of(pid)?);
    let heading = format!("process {pid}, being fixed");
    Ok(SettingChange::new(
        &LiveKernel::default(),
        place,
        CLAIM,
        heading,
        Vec::new(),
    )?)
}

/// True if it would replace a program that chooses the sockets of a group. That could not come back.
pub fn replaces_program(change: &SettingChange) -> bool {
    begins_with(change, BY_PROGRAM)
}

/// True if it may replace such a program, because none is seen.
pub fn may_lose_program(change: &SettingChange) -> bool {
    begins_with(change, UNREAD)
}

fn begins_with(change: &SettingChange, old: &str) -> bool {
    let old = Value::Word(old.to_owned());
    change.edits.iter().any(|edit| edit.old == old)
}

/// The edits of a fix of this kind that is kept on its process; none if there is none. The journal of an
/// earlier process of that number goes, unless nothing may change.
pub fn kept_before(change: &SettingChange, is_dry: bool) -> Option<Vec<String>> {
    let (found, _) = leftovers();
    let is_same = |one: &Leftover| one.record.change.file_name() == change.file_name();
    let own = found
        .into_iter()
        .find(|one| one.is_kept() && is_same(one))?;
    if own.record.change.place != change.place {
        if !is_dry {
            own.undo_here(false);
        }
        return None;
    }
    Some(own.steps().0)
}

/// Why a change cannot be made, as far as that is seen before it is tried: the rights, or another change on the
/// process.
pub fn obstacle(change: &SettingChange) -> Option<HostError> {
    let Place::Process { process, .. } = &change.place else {
        return None;
    };
    let claim = match claim(process.pid) {
        Ok(claim) => claim,
        Err(error) => return Some(error),
    };
    let mut both = [change, &claim].into_iter();
    let taken = both.find_map(|one| Journal::obstacle(&directory(), one));
    taken.or_else(|| missing_right(change, process.pid))
}

fn missing_right(change: &SettingChange, pid: u32) -> Option<HostError> {
    let rights = Rights::own();
    let may_force = rights.has(CAP_NET_ADMIN) && rights.is_initial;
    let user = fs::metadata(format!("/proc/{pid}")).map_or(0, |file| file.uid());
    let is_own = is_root() || user != 0 && is_believed(user);
    let impossible = |why, remedy| Some(HostError::impossible(change.place.name(), why, remedy));
    change.edits.iter().find_map(|Edit { setting, .. }| {
        let is_forced = setting.needs() == "CAP_NET_ADMIN";
        match setting {
            _ if is_forced && !may_force => impossible(
                "CAP_NET_ADMIN is missing".to_owned(),
                rights.remedy(&[CAP_NET_ADMIN]),
            ),
            Setting::ThreadCpus { .. } | Setting::ThreadNice { .. } | Setting::Stopped
                if !is_own =>
            {
                impossible(format!("it is of user {user}"), "run as root".to_owned())
            }
            other => {
                let read = LiveKernel::default().read(other, &change.place);
                read.err().map(HostError::from)
            }
        }
    })
}

/// The same fixes for the processes of their programs that have these sockets now. Another user's process of the same name
/// gets none; root's may become the user's yet.
///
/// # Errors
/// [`HostError::Kernel`](crate::HostError) if the sockets cannot be listed.
pub fn again(fixes: &[Fix], inodes: &BTreeSet<u32>) -> HostResult<Vec<Fix>> {
    let root = Root::machine();
    let datagrams: BTreeSet<u32> = sock_diag::udp()?.iter().map(|one| one.inode).collect();
    let mut own: BTreeMap<u32, [Vec<u32>; 2]> = BTreeMap::new();
    for (inode, pids) in find_owners(&root, inodes, &|| true).0 {
        let is_listener = usize::from(!datagrams.contains(&inode));
        let sockets = pids.first().map(|pid| own.entry(*pid).or_default());
        sockets
            .into_iter()
            .for_each(|sockets| sockets[is_listener].push(inode));
    }
    let name = |pid| root.read_if_possible(&format!("proc/{pid}/comm"));
    let is_of = |fix: &Fix, pid| {
        let is_named = name(pid).is_some_and(|name| fix.program == name.trim_end());
        is_named && user_of(pid).is_some_and(|user| [Some(0), fix.user].contains(&Some(user)))
    };
    own.retain(|pid, _| fixes.iter().any(|fix| is_of(fix, *pid)));
    let mut all: Vec<Fix> = Vec::new();
    for (pid, [datagrams, listeners]) in &own {
        let fixes = fixes.iter().filter(|fix| is_of(fix, *pid));
        let mut group: Vec<u32> = own.values().flat_map(|one| &one[0]).copied().collect();
        group.sort_unstable();
        for fix in fixes.filter_map(|fix| fix.again(*pid, datagrams, listeners, &group)) {
            let is_same = |one: &Fix| one.pid == fix.pid && one.kind.name() == fix.kind.name();
            if !all.iter().any(is_same) {
                all.push(fix);
            }
        }
    }
    Ok(all)
}

/// Restores the fixes of a process that are kept, because they are of sockets that it no longer has; and removes
/// the journals of processes of its program that have ended.
pub fn clear(fix: &Fix) {
    for (one, process) in kept() {
        let is_of_program = kept_fix(&one).is_some_and(|kept| kept.program == fix.program);
        if process.pid == fix.pid || is_of_program && process.life() == Life::Dead {
            one.undo_here(false);
        }
    }
}

/// The fixes that are kept, and their processes.
fn kept() -> impl Iterator<Item = (Leftover, Owner)> {
    of_processes().filter(|(one, _)| one.is_kept())
}

/// The changes to programs, and their processes.
fn of_processes() -> impl Iterator<Item = (Leftover, Owner)> {
    let all = leftovers().0.into_iter();
    all.filter_map(|one| match one.record.change.place {
        Place::Process { process, .. } if is_of_fix(one.name()) => Some((one, process)),
        _ => None,
    })
}

/// The processes that have one of these sockets, with their names and sockets.
fn programs_of(inodes: &BTreeSet<u32>) -> BTreeMap<u32, (String, BTreeSet<u32>)> {
    let root = Root::machine();
    let mut all: BTreeMap<u32, (String, BTreeSet<u32>)> = BTreeMap::new();
    for (inode, pids) in find_owners(&root, inodes, &|| true).0 {
        for pid in pids {
            let name = || root.read_if_possible(&format!("proc/{pid}/comm"));
            let name = || name().unwrap_or_default().trim_end().to_owned();
            let own = all.entry(pid).or_insert_with(|| (name(), BTreeSet::new()));
            own.1.insert(inode);
        }
    }
    all
}

/// The changes that a fix that was killed has left on the processes with these sockets.
pub fn left_on(inodes: &BTreeSet<u32>) -> Vec<Leftover> {
    let programs = programs_of(inodes);
    let all = of_processes().filter(|(one, process)| {
        !one.is_kept() && one.life() == Life::Dead && programs.contains_key(&process.pid)
    });
    all.map(|(one, _)| one).collect()
}

/// The fixes that earlier processes of mpps have kept for the programs with these sockets, and the sockets that
/// have them.
pub fn adopted(inodes: &BTreeSet<u32>) -> (Vec<Fix>, BTreeSet<u32>) {
    let programs = programs_of(inodes);
    let (mut fixes, mut known) = (Vec::new(), BTreeSet::new());
    for (one, process) in kept().filter(|(one, _)| one.life() == Life::Dead) {
        let is_of_one = |fix: &Fix| programs.values().any(|(name, _)| *name == fix.program);
        let Some(fix) = kept_fix(&one).filter(is_of_one) else {
            continue;
        };
        let own = programs.get(&process.pid);
        let own = own.filter(|_| process.life() == Life::Alive);
        known.extend(own.into_iter().flat_map(|(_, sockets)| sockets));
        fixes.push(fix);
    }
    (fixes, known)
}

/// The fix of a kept change; none of a kind that a new process does not get.
fn kept_fix(one: &Leftover) -> Option<Fix> {
    let SettingChange {
        name,
        place: Place::Process { process, .. },
        heading,
        edits,
        ..
    } = &one.record.change
    else {
        return None;
    };
    let stage = name.strip_prefix(CLAIM)?.strip_prefix('-')?;
    let end = format!(" ({}), {stage}", process.pid);
    let Edit { setting, new, .. } = edits.first()?;
    let kind = match (setting, new) {
        (Setting::SocketSize { size, .. }, _) => {
            let sockets = edits.iter().filter_map(|edit| match &edit.setting {
                Setting::SocketSize { socket, .. } => Some(socket.inode),
                _ => None,
            });
            FixKind::Size(*size, sockets.collect(), new.count()?)
        }
        (Setting::Spreading { socket, .. }, Value::Word(word)) => {
            FixKind::Spread(way_of(word)?, vec![socket.inode])
        }
        (Setting::ThreadNice { thread, .. }, Value::Number(nice)) => {
            FixKind::Nice(*thread, i32::try_from(*nice).ok()?)
        }
        (Setting::ThreadCpus { thread, .. }, Value::Set { set }) => {
            FixKind::Affinity(*thread, CpuList(set.to_vec()))
        }
        _ => return None,
    };
    (kind.name() == stage).then_some(Fix {
        pid: process.pid,
        program: heading.strip_suffix(&end)?.to_owned(),
        user: one.record.change.user,
        kind,
        why: String::new(),
        permanent: None,
    })
}

/// True if a [`SettingChange`] of this name is a fix of a program.
pub fn is_of_fix(name: &str) -> bool {
    name.strip_prefix(CLAIM)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// The threads of a process that can be moved: none of this one, and none of the kernel, which runs no file.
fn threads_of(pid: u32) -> impl Iterator<Item = u32> {
    let root = Root::machine();
    let is_program = root.link(&format!("proc/{pid}/exe")).is_some();
    let is_other = is_program && pid != std::process::id();
    let names = is_other.then(|| root.names(&format!("proc/{pid}/task")));
    let names = names.into_iter().flatten();
    names.filter_map(|name| name.parse().ok())
}

/// True if a change of a socket gives it the traffic class of mpps.
pub fn gives_class(fix: &Fix) -> bool {
    let is_of_socket = matches!(fix.kind, FixKind::Size(..) | FixKind::Spread(..));
    is_of_socket && relabels_sockets(&Root::machine())
}

/// The sockets with these inode numbers that are still there, and how much may wait at each.
fn sockets_of(inodes: &[u32], size: SocketSize) -> CallResult<Vec<(ProgramSocket, u32)>> {
    let datagrams = sock_diag::udp()?.into_iter();
    let datagrams = datagrams.map(|one| {
        let now = match size {
            SocketSize::SendBuffer => one.send_buffer_bytes,
            _ => one.buffer_bytes,
        };
        (one.inode, one.cookie, now)
    });
    let listeners = sock_diag::listeners()?.into_iter();
    let all = datagrams.chain(listeners.map(|one| (one.inode, one.cookie, one.waiting_max)));
    Ok(all
        .filter(|(inode, ..)| inodes.contains(inode))
        .map(|(inode, cookie, now)| (ProgramSocket { inode, cookie }, now))
        .collect())
}
