//! The engine `io_uring`: completions, many steps for one system call.

mod client;
mod load;
mod serve;

use super::{Advice, Engine, EngineSupport, Task};
use crate::Switch;
use mpps_os::uring::{self, closes_slots};

pub(super) const ENGINE: Engine = Engine {
    name: "io_uring",
    support: |task| match uring::probe() {
        Ok(()) => can(task, &release(), &closes_slots()),
        Err(error) => no_ring(&error),
    },
    switches: || advice(version(&release()), &closes_slots()),
    serve: serve::run,
    load: load::run,
};

/// Direct descriptors are worth their while from this release on: before, each of them had a node
/// of its own allocated (io_uring/rsrc.c).
const SLOTS_GOOD: (u32, u32) = (6, 15);
/// The defect of a kernel if [`closes_slots`] is false.
const SLOTS_STAY_OPEN: &str = "before Linux 6.13 the socket in a slot of a ring stays open after \
    its close, until the ring is done with all earlier requests";

/// Since when a ring sets options of sockets and asks for unacknowledged bytes
/// (`IORING_OP_URING_CMD` of a socket).
const OPTIONS: (u32, u32) = (6, 7);

/// The answer if a ring cannot be set up.
fn no_ring(error: &mpps_os::CallError) -> EngineSupport {
    EngineSupport::No {
        why: error.to_string(),
        remedy: uring::remedy(error),
    }
}

/// Whether a kernel of that release can do a task. The probe of a ring does not show which commands
/// a socket takes, so that the release has to do. A load has all its connections in slots. A kernel
/// that closes them also has all the other features that a load needs.
fn can(task: Task, release: &str, closes_slots: &mpps_os::CallResult<bool>) -> EngineSupport {
    let (major, minor) = OPTIONS;
    let why = match task {
        Task::Serve { reset: true } if version(release).unwrap_or_default() < OPTIONS => {
            format!("to close with a RST it needs Linux {major}.{minor}, and this is {release}")
        }
        Task::Serve { .. } => return EngineSupport::Yes,
        Task::Load => match closes_slots {
            Ok(true) => return EngineSupport::Yes,
            Ok(false) => format!("{SLOTS_STAY_OPEN}, and this is {release}"),
            // It says nothing of the kernel.
            Err(error) => return no_ring(error),
        },
    };
    let remedy = "use `engine` epoll".to_owned();
    EngineSupport::No { why, remedy }
}

fn release() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    release.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// The advice on each switch for a kernel of that version; an unknown version counts as an old one.
fn advice(version: Option<(u32, u32)>, closes_slots: &mpps_os::CallResult<bool>) -> Vec<Advice> {
    let [affinity, moderation] = Advice::of_all();
    let buffers = "received into a ring of buffers that the kernel takes from when there is \
                   something, and no allocation for a connection";
    let fds = "connections in slots of the ring that the kernel chooses (direct descriptors), not in \
               the process's table of descriptors";
    let events = "one request accepts all connections, when theirs is there (TCP_DEFER_ACCEPT); received \
                  at once; the last reply and the close are one chain";
    vec![
        affinity,
        moderation,
        Advice::helps(Switch::Buffers, buffers),
        Advice {
            why_not: match (closes_slots, version) {
                (Err(error), _) => format!("{error}; {}", uring::remedy(error)).into(),
                (Ok(false), _) => SLOTS_STAY_OPEN.into(),
                (Ok(true), Some(version)) if version >= SLOTS_GOOD => "".into(),
                (Ok(true), _) => "slots are worth their while from Linux 6.15 on".into(),
            },
            possible: matches!(closes_slots, Ok(true)),
            ..Advice::helps(Switch::Fds, fds)
        },
        Advice::helps(Switch::Events, events),
    ]
}

/// The first two numbers of a release, such as 6.18 of `6.18.44-cloud`.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_release_has_a_version() {
        assert_eq!(version("6.18.44-cloud-amd64\n"), Some((6, 18)));
        assert_eq!(version("5.10"), Some((5, 10)));
        assert_eq!(version("unknown"), None);
        assert_eq!(version(""), None);
    }

    #[test]
    fn a_task_says_which_release_it_needs() {
        let [plain, reset] = [false, true].map(|reset| Task::Serve { reset });
        for (task, release, closes_slots, since) in [
            (plain, "6.1.0-21-amd64", false, None),
            (reset, "6.6.30", false, Some("Linux 6.7")),
            (reset, "6.7.0", false, None),
            (reset, "unknown", true, Some("Linux 6.7")),
            (Task::Load, "6.12.0", false, Some("Linux 6.13")),
            (Task::Load, "6.13.0", true, None),
        ] {
            match (can(task, release, &Ok(closes_slots)), since) {
                (EngineSupport::Yes, None) => {}
                (EngineSupport::No { why, remedy }, Some(since)) => {
                    assert!(why.contains(since) && why.contains(release), "{why}");
                    assert!(remedy.contains("`engine` epoll"), "{remedy}");
                }
                (other, _) => panic!("{task:?} on {release}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_limit_of_the_process_is_not_told_as_an_old_kernel() {
        let refused = |call, errno| {
            let answer = std::io::Error::from_raw_os_error(errno);
            Err(mpps_os::CallError::new(call, "a slot", answer))
        };
        for (call, errno, limit) in [
            ("socketpair", libc::EMFILE, "RLIMIT_NOFILE"),
            ("clone", libc::EAGAIN, "TasksMax="),
        ] {
            let EngineSupport::No { why, remedy } =
                can(Task::Load, "6.18.1", &refused(call, errno))
            else {
                panic!("{call} is needed");
            };
            assert!(why.contains(call) && !why.contains("6.13"), "{why}");
            assert!(remedy.contains(limit), "{remedy}");
            let advice = advice(Some((6, 18)), &refused(call, errno));
            let fds = advice.into_iter().find(|a| a.switch == Switch::Fds);
            let fds = fds.expect("it is a switch of this engine");
            assert!(!fds.possible && fds.why_not.contains(limit), "{fds:?}");
        }
    }

    #[test]
    fn slots_are_on_where_they_help_and_refused_where_they_stay_open() {
        let fds = |version, closes_slots| {
            let advice = advice(version, &Ok(closes_slots));
            let fds = advice.into_iter().find(|a| a.switch == Switch::Fds);
            fds.map(|fds| (fds.possible, fds.why_not.is_empty()))
        };
        assert_eq!(fds(Some((6, 18)), true), Some((true, true)));
        assert_eq!(fds(Some((7, 0)), true), Some((true, true)));
        for old in [Some((6, 14)), None] {
            assert_eq!(fds(old, true), Some((true, false)));
        }
        for older in [Some((6, 12)), Some((6, 18)), None] {
            assert_eq!(fds(older, false), Some((false, false)));
        }
    }
}
