//! Settings of a running program, made from outside: of its sockets, by a copy of their descriptor
//! (`pidfd_getfd(2)`), and of its threads. They end with the socket or the process.

use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::{io, iter};

use mpps_os::borrowed::{BorrowedSocket, SpreadWay};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::sock_diag;
use mpps_os::{CallError, CallResult, process, sched};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::super::owner::{Life, Owner};
use super::super::place::{Place, PlaceKind};
use super::super::value::{Form, Value};
use super::group_program::has_program;
use super::row::SettingRow;
use crate::facts::{holders_of_socket, namespace_paths, socket_at, socket_descriptors};
use crate::root::Root;

/// How the kernel spreads datagrams over a group: by the hash of addresses and ports.
const BY_HASH: &str = "by hash";
/// The other ways.
const WAYS: [(&str, SpreadWay); 3] = [
    ("by another hash", SpreadWay::Flow),
    ("by CPU", SpreadWay::Cpu),
    ("at random", SpreadWay::Random),
];
/// How a program that the server attached spreads them, or one of the other ways: no call shows which.
pub(crate) const BY_PROGRAM: &str = "by a program";
/// Whether a group has a program is not seen.
pub(crate) const UNREAD: &str = "not shown";
pub(crate) const RUNNING: &str = "running";
const STOPPED: &str = "stopped";

thread_local! {
    /// The descriptors of sockets when they were last searched for, by process and inode number: a search reads
    /// all that the process has.
    static DESCRIPTORS: RefCell<BTreeMap<(u32, u32), i32>> = const { RefCell::new(BTreeMap::new()) };
}

/// A socket of a process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ProgramSocket {
    /// Its inode number, as in `/proc/PID/fd`.
    pub inode: u32,
    /// Its cookie (`SO_COOKIE`), which no other socket of this boot has.
    pub cookie: u64,
}

impl ProgramSocket {
    /// A copy of its descriptor in its process, or in another that has it now; none if the socket is
    /// gone.
    ///
    /// # Errors
    /// It is there, and cannot be borrowed.
    fn borrow(&self, place: &Place) -> CallResult<Option<BorrowedSocket>> {
        let own = alive(place)?.map(|owner| owner.pid);
        let others = iter::once_with(|| holders_of_socket(&Root::machine(), self.inode)).flatten();
        let mut refusal = None;
        for pid in own.into_iter().chain(others) {
            match self.copy_of(pid) {
                Ok(Some(copy)) => return Ok(Some(copy)),
                Ok(None) => {}
                Err(error) => refusal = refusal.or(Some(error)),
            }
        }
        let unseen = || {
            let source = io::Error::other("no process that this user sees has it; run as root");
            CallError::new("find socket", place.name(), source)
        };
        match self.is_open() {
            true => Err(refusal.unwrap_or_else(unseen)),
            false => Ok(None),
        }
    }

    /// A copy of its descriptor in a process; none if that has it not.
    fn copy_of(&self, pid: u32) -> CallResult<Option<BorrowedSocket>> {
        let root = Root::machine();
        let known = || DESCRIPTORS.with_borrow(|known| known.get(&(pid, self.inode)).copied());
        let is_it = |one: &i32| socket_at(&root, pid, *one) == Some(self.inode);
        let descriptor = known().filter(is_it).or_else(|| {
            let all = socket_descriptors(&root, pid).into_iter();
            let all = all.map(|(inode, descriptor)| ((pid, inode), descriptor));
            DESCRIPTORS.with_borrow_mut(|known| known.extend(all));
            known().filter(is_it)
        });
        let Some(descriptor) = descriptor else {
            return Ok(None);
        };
        let socket = BorrowedSocket::borrow(pid, descriptor)?;
        Ok((socket.cookie()? == self.cookie).then_some(socket))
    }

    /// True if it is there, in any network namespace that this user may enter.
    fn is_open(&self) -> bool {
        let is_here = || {
            let datagrams = sock_diag::udp().unwrap_or_default().into_iter();
            let listeners = sock_diag::listeners().unwrap_or_default().into_iter();
            let datagrams = datagrams.map(|one| (one.inode, one.cookie));
            let mut all = datagrams.chain(listeners.map(|one| (one.inode, one.cookie)));
            all.any(|one| one == (self.inode, self.cookie))
        };
        let mut seen = BTreeSet::new();
        let mut others = namespace_paths().filter(|(inode, _)| seen.insert(*inode));
        is_here()
            || others.any(|(_, path)| {
                NetNamespace::open(&path).is_ok_and(|there| there.run(is_here).unwrap_or(false))
            })
    }
}

/// The process of a place; none if it has ended.
///
/// # Errors
/// It cannot be seen from here. It must not be taken for ended: its journal would go.
fn alive(place: &Place) -> CallResult<Option<&Owner>> {
    let Place::Process { process, .. } = place else {
        return Ok(None);
    };
    Owner::numbers_are_valid()?;
    match process.life() {
        Life::Alive => Ok(Some(process)),
        Life::Dead => Ok(None),
        Life::Unknown => {
            let why = "it is in another process or time namespace; run this where it can be seen";
            let source = io::Error::other(why);
            Err(CallError::new("find", place.name(), source))
        }
    }
}

fn word(text: &str) -> Value {
    Value::Word(text.to_owned())
}

/// The right to change a program besides that of ptrace over it: none.
const OWN: &str = "the program's user";

fn row<'a>(
    noun: impl Into<Cow<'a, str>>,
    form: Form,
    read: impl Fn(&Place, &Owner) -> CallResult<Option<Value>> + 'a,
    write: impl Fn(&Place, &Owner, &Value) -> CallResult<()> + 'a,
) -> SettingRow<'a> {
    of_place(
        noun,
        form,
        move |place| alive(place)?.map_or(Ok(None), |owner| read(place, owner)),
        move |place, value| alive(place)?.map_or(Ok(()), |owner| write(place, owner, value)),
    )
}

/// A row of a setting that may outlive its process.
fn of_place<'a>(
    noun: impl Into<Cow<'a, str>>,
    form: Form,
    read: impl Fn(&Place) -> CallResult<Option<Value>> + 'a,
    write: impl Fn(&Place, &Value) -> CallResult<()> + 'a,
) -> SettingRow<'a> {
    SettingRow {
        place: PlaceKind::Process,
        needs: OWN,
        ..SettingRow::new(
            noun,
            form,
            move |_, place| read(place),
            move |_, place, value| write(place, value),
        )
    }
}

/// How much may wait at a socket.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum SocketSize {
    /// Bytes to be read, with the kernel's doubling (`SO_RCVBUF`).
    ReceiveBuffer,
    /// Bytes that have not left this host, with the kernel's doubling (`SO_SNDBUF`).
    SendBuffer,
    /// Connections to be accepted, less one (listen(2)).
    AcceptQueue,
}

/// A size, by a copy of the socket; none if the socket has no such size.
type GetSize = fn(&BorrowedSocket) -> CallResult<Option<u32>>;
type SetSize = fn(&BorrowedSocket, u32) -> CallResult<()>;

/// How much may wait at a socket: a line each.
pub(super) fn size(size: SocketSize, socket: &ProgramSocket) -> SettingRow<'_> {
    let (noun, needs, get, set): (_, _, GetSize, SetSize) = match size {
        SocketSize::ReceiveBuffer => (
            "receive buffer",
            super::row::NET_ADMIN,
            |copy| copy.receive_buffer().map(Some),
            BorrowedSocket::set_receive_buffer,
        ),
        SocketSize::SendBuffer => (
            "send buffer",
            super::row::NET_ADMIN,
            |copy| copy.send_buffer().map(Some),
            BorrowedSocket::set_send_buffer,
        ),
        SocketSize::AcceptQueue => (
            "accept queue",
            OWN,
            BorrowedSocket::backlog,
            BorrowedSocket::set_backlog,
        ),
    };
    let row = of_place(
        noun,
        Form::Number,
        move |place| match socket.borrow(place)? {
            Some(copy) => Ok(get(&copy)?.map(Value::number)),
            None => Ok(None),
        },
        move |place, value| match socket.borrow(place)?.zip(value.count()) {
            Some((copy, size)) => set(&copy, size),
            None => Ok(()),
        },
    );
    let shown: fn(Form, &Value) -> String = match size {
        SocketSize::AcceptQueue => Form::text,
        _ => |form, bytes| format!("{} bytes", form.text(bytes)),
    };
    SettingRow {
        needs,
        shown,
        ..row
    }
}

pub(crate) fn way_of(word: &str) -> Option<SpreadWay> {
    let way = WAYS.iter().find(|(name, _)| *name == word);
    way.map(|(_, way)| *way)
}

/// The value for a way.
pub(crate) fn spread_by(way: SpreadWay) -> Value {
    let name = WAYS.iter().find(|(_, one)| *one == way);
    word(name.map_or(BY_HASH, |(name, _)| name))
}

/// How datagrams are spread over the group of a socket.
pub(super) fn spreading(socket: &ProgramSocket, sockets: u32) -> SettingRow<'_> {
    let row = of_place(
        format!("spreading over {sockets} sockets"),
        Form::Word(|word| [BY_HASH, BY_PROGRAM, UNREAD].contains(&word) || way_of(word).is_some()),
        move |place| {
            let copy = socket.borrow(place)?;
            Ok(copy.map(|copy| {
                word(match has_program(&copy) {
                    None => UNREAD,
                    Some(true) => BY_PROGRAM,
                    Some(false) => BY_HASH,
                })
            }))
        },
        move |place, value| match (socket.borrow(place)?, way_of(value.word())) {
            (Some(copy), Some(way)) => copy.spread(&way.program(sockets)),
            (Some(copy), None) => copy.stop_spreading().map(drop),
            (None, _) => Ok(()),
        },
    );
    SettingRow {
        is_unread: true,
        settled: |now, other| match (now.word(), other.word()) {
            (UNREAD, _) | (_, UNREAD) => other.clone(),
            (BY_PROGRAM, other_word) if other_word != BY_HASH => other.clone(),
            _ => now.clone(),
        },
        rounds: Some(|_, _| None),
        lost: |old| {
            (old.word() == UNREAD).then_some(
                "a program that the server itself had attached to the group is lost: restart the server if it does so",
            )
        },
        ..row
    }
}

/// A setting of a thread of the process; none if the thread has ended.
fn of_thread(
    noun: &'static str,
    form: Form,
    (thread, start_time_ticks): (u32, u64),
    read: fn(u32) -> CallResult<Value>,
    write: fn(u32, &Value) -> CallResult<()>,
) -> SettingRow<'static> {
    // Its number may be that of a thread of another process by now.
    let lives = move |owner: &Owner| {
        let start = owner.thread_start(thread);
        start.map(|start| start == Some(start_time_ticks))
    };
    row(
        format!("{noun} of thread {thread}"),
        form,
        move |_, owner| lives(owner)?.then(|| read(thread)).transpose(),
        move |_, owner, value| match lives(owner)? {
            true => write(thread, value),
            false => Ok(()),
        },
    )
}

/// The CPUs that a thread may run on.
pub(super) fn thread_cpus(thread: u32, start_time_ticks: u64) -> SettingRow<'static> {
    let row = of_thread(
        "CPUs",
        Form::List,
        (thread, start_time_ticks),
        |thread| Ok(Value::set(sched::affinity(thread)?)),
        |thread, value| match value {
            Value::Set { set } => sched::pin(thread, set),
            _ => Ok(()),
        },
    );
    SettingRow {
        command: format!("taskset -pc VALUE {thread}").into(),
        ..row
    }
}

/// The nice value of a thread.
pub(super) fn thread_nice(thread: u32, start_time_ticks: u64) -> SettingRow<'static> {
    let row = of_thread(
        "nice value",
        Form::Number,
        (thread, start_time_ticks),
        |thread| Ok(Value::number(sched::nice(thread)?)),
        |thread, value| match value {
            Value::Number(nice) => sched::set_nice(thread, i32::try_from(*nice).unwrap_or(0)),
            _ => Ok(()),
        },
    );
    SettingRow {
        needs: "CAP_SYS_NICE",
        command: format!("renice -n VALUE -p {thread}").into(),
        ..row
    }
}

/// Whether a signal has stopped the process.
pub(super) fn stopped() -> SettingRow<'static> {
    let row = row(
        "process",
        Form::Word(|word| [STOPPED, RUNNING].contains(&word)),
        |_, owner| {
            Ok(Some(word(
                [RUNNING, STOPPED][usize::from(owner.is_stopped())],
            )))
        },
        |_, owner, value| process::stop(owner.pid, value.word() == STOPPED),
    );
    SettingRow {
        command: "kill -VALUE IF".into(),
        argument: Box::new(|_, value| {
            ["CONT", "STOP"][usize::from(value.word() == STOPPED)].to_owned()
        }),
        ..row
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_not_seen_has_not_ended() {
        let own = Owner::current().expect("/proc is here");
        let thread = sched::thread_id();
        let start = own.thread_start(thread).expect("it is seen");
        let start = start.expect("this thread lives");
        let read =
            |process| (thread_cpus(thread, start).read)(&Root::machine(), &Place::process(process));
        assert!(read(own).expect("it lives").is_some());
        let start_time_ticks = own.start_time_ticks + 1;
        let later = Owner {
            start_time_ticks,
            ..own
        };
        assert_eq!(read(later).expect("it has ended"), None);
        let pid_namespace = own.pid_namespace + 1;
        read(Owner {
            pid_namespace,
            ..own
        })
        .expect_err("it may live");
    }

    /// The kernel would take the number for that of any thread.
    #[test]
    fn another_thread_of_the_number_is_left_alone() {
        let own = Owner::current().expect("/proc is here");
        let thread = sched::thread_id();
        let start = own.thread_start(thread).expect("it is seen");
        let start = start.expect("this thread lives");
        let init = Owner::of(1).expect("there is a first process");
        let (root, cpus) = (Root::machine(), Value::set([999]));
        for (owner, start) in [(own, start + 1), (init, start)] {
            let row = thread_cpus(thread, start);
            let place = Place::process(owner);
            assert_eq!((row.read)(&root, &place).expect("it has ended"), None);
            (row.write)(&root, &place, &cpus).expect("nothing is done");
        }
    }
}
