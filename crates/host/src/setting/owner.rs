//! The process that makes a change, and whether it lives.

use mpps_os::{CallError, CallResult, On};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::root::Root;
use crate::{HostError, HostResult};

/// A process, so described that a later one with the same number is not taken for it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct Owner {
    /// Its number.
    pub pid: u32,
    /// When it started, in clock ticks after the machine (`proc_pid_stat(5)`, field 22).
    pub start_time_ticks: u64,
    /// The process namespace that the number is valid in, by its inode number.
    pub pid_namespace: u64,
    /// The time namespace of its start time, by its inode number. Old journals do not have it, nor
    /// does Linux before 5.6.
    #[serde(default = "first_time_namespace")]
    pub time_namespace: u64,
}

/// The number of the time namespace that the kernel starts with (`PROC_TIME_INIT_INO`,
/// include/linux/proc_ns.h).
fn first_time_namespace() -> u64 {
    0xEFFF_FFFA
}

/// The state of a journal's process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It runs.
    Alive,
    /// It has ended.
    Dead,
    /// It cannot be seen from this process or time namespace.
    Unknown,
}

impl Owner {
    /// This process.
    ///
    /// # Errors
    /// No `/proc`.
    pub(crate) fn current() -> HostResult<Self> {
        Self::read_from(&Root::machine(), "self")
    }

    /// The process of this number.
    ///
    /// # Errors
    /// There is none, or no `/proc`.
    pub(crate) fn of(pid: u32) -> HostResult<Self> {
        Self::read_from(&Root::machine(), &pid.to_string())
    }

    /// Fails where `/proc` shows other processes than calls of this one mean: it is of another process namespace.
    ///
    /// # Errors
    /// It is, or there is no `/proc`.
    pub(crate) fn numbers_are_valid() -> CallResult<()> {
        let shown = Root::machine().link("proc/self");
        match shown.and_then(|pid| pid.parse().ok()) == Some(std::process::id()) {
            true => Ok(()),
            false => {
                let why = "it is of another process namespace, and its numbers are of other processes here; mount it \
                           anew (`unshare --mount-proc`), or run this outside";
                Err(CallError::new("use", "/proc", io::Error::other(why)))
            }
        }
    }

    fn read_from(root: &Root, process: &str) -> HostResult<Self> {
        let file = &format!("proc/{process}/stat");
        let stat = Stat::parse(&root.read(file)?)
            .ok_or_else(|| HostError::malformed(root.name(file), "no start time"))?;
        Ok(Self {
            pid: stat.pid,
            start_time_ticks: stat.start_time_ticks,
            pid_namespace: pid_namespace(root)?,
            time_namespace: time_namespace(root)?,
        })
    }

    /// Whether that process is alive.
    pub fn life(&self) -> Life {
        self.life_from(&Root::machine())
    }

    /// True if a signal has stopped it. Of a process that has ended this says nothing.
    pub(super) fn is_stopped(&self) -> bool {
        let text = Root::machine().read(&format!("proc/{}/stat", self.pid));
        text.is_ok_and(|text| Stat::parse(&text).is_some_and(|stat| stat.stopped))
    }

    /// When a thread of it started, in the unit of its own start; none if the thread has ended.
    ///
    /// # Errors
    /// It cannot be seen.
    pub(crate) fn thread_start(&self, thread: u32) -> CallResult<Option<u64>> {
        let file = format!("proc/{}/task/{thread}/stat", self.pid);
        match Root::machine().read_if_present(&file) {
            // The file is there, and its thread ends while it is read (ESRCH).
            Err(error) if error.errno() == Some(3) => Ok(None),
            Ok(text) => Ok(text
                .and_then(|text| Stat::parse(&text))
                .filter(|stat| !stat.ended)
                .map(|stat| stat.start_time_ticks)),
            Err(error) => Err(error),
        }
    }

    fn life_from(&self, root: &Root) -> Life {
        // The kernel shows start times by the reader's clock (time_namespaces(7)).
        let here = pid_namespace(root).and_then(|pid| Ok((pid, time_namespace(root)?)));
        if here.ok() != Some((self.pid_namespace, self.time_namespace)) {
            return Life::Unknown;
        }
        match root.read_if_present(&format!("proc/{}/stat", self.pid)) {
            Ok(None) => Life::Dead,
            // The file is there, and its process ends while it is read (ESRCH).
            Err(error) if error.errno() == Some(3) => Life::Dead,
            Err(_) => Life::Unknown,
            Ok(Some(text)) => match Stat::parse(&text) {
                // A zombie has closed its files, and only its parent keeps it.
                Some(stat) if stat.ended || stat.start_time_ticks != self.start_time_ticks => {
                    Life::Dead
                }
                Some(_) => Life::Alive,
                None => Life::Unknown,
            },
        }
    }
}

/// The needed fields of `/proc/PID/stat`.
struct Stat {
    pid: u32,
    ended: bool,
    stopped: bool,
    start_time_ticks: u64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        let pid = text.split_ascii_whitespace().next()?.parse().ok()?;
        // The name in brackets may hold blanks and brackets. Field 3 follows it.
        let (_, rest) = text.rsplit_once(')')?;
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?;
        Some(Self {
            pid,
            ended: matches!(state, "Z" | "X"),
            stopped: state == "T",
            start_time_ticks: fields.nth(18)?.parse().ok()?,
        })
    }
}

fn pid_namespace(root: &Root) -> HostResult<u64> {
    Ok(namespace(root, "pid")?)
}

fn time_namespace(root: &Root) -> HostResult<u64> {
    match namespace(root, "time") {
        Err(error) if error.source.kind() == ErrorKind::NotFound => Ok(first_time_namespace()),
        found => Ok(found?),
    }
}

fn namespace(root: &Root, kind: &str) -> HostResult<u64, mpps_os::CallError> {
    let name = root.name(&format!("proc/self/ns/{kind}"));
    Ok(fs::metadata(&name).on("stat", &name)?.ino())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;
    use proptest::prelude::*;

    #[test]
    fn a_process_is_told_from_its_successor() {
        let own = Owner::current().expect("/proc is here");
        assert_eq!(own.life(), Life::Alive);
        let earlier = Owner {
            start_time_ticks: own.start_time_ticks.wrapping_sub(1),
            ..own
        };
        assert_eq!(earlier.life(), Life::Dead);
        let elsewhere = Owner {
            pid_namespace: own.pid_namespace + 1,
            ..own
        };
        assert_eq!(elsewhere.life(), Life::Unknown);
        // By another clock each process starts at another time.
        let timed = Owner {
            time_namespace: own.time_namespace + 1,
            ..earlier
        };
        assert_eq!(timed.life(), Life::Unknown);
    }

    #[test]
    fn an_older_journal_is_of_the_first_time_namespace() {
        let old = r#"{"pid":9,"start_time_ticks":77,"pid_namespace":3}"#;
        let old: Owner = serde_json::from_str(old).expect("it is read");
        assert_eq!(old.time_namespace, first_time_namespace());
        let text = serde_json::to_string(&old).expect("it is written");
        assert_eq!(serde_json::from_str::<Owner>(&text).expect("read"), old);
    }

    #[test]
    fn a_zombie_is_dead() {
        let stat = |state: &str| {
            let zeros = "0 ".repeat(18);
            format!("proc/9/stat = 9 (a) b) {state} {zeros}77 0\nproc/self/ns/pid = x")
        };
        for (state, life) in [("R", Life::Alive), ("Z", Life::Dead), ("X", Life::Dead)] {
            let tree = fixture::tree(&stat(state));
            let owner = Owner {
                pid: 9,
                start_time_ticks: 77,
                pid_namespace: pid_namespace(&tree.root).expect("a file"),
                time_namespace: time_namespace(&tree.root).expect("none is the first"),
            };
            assert_eq!(owner.life_from(&tree.root), life, "{state}");
            let gone = Owner { pid: 10, ..owner };
            assert_eq!(gone.life_from(&tree.root), Life::Dead);
        }
    }

    proptest! {
        #[test]
        fn no_stat_panics(text in "\\PC{0,200}") {
            let _ = Stat::parse(&text);
        }
    }
}
