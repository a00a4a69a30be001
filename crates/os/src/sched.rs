//! Where threads run, and how long they ran and waited.

use std::fs;
use std::io;

use rustix::thread::{CpuSet, Pid};

use crate::error::On;
use crate::{CallError, CallResult};

/// The processor time of one thread since it began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Schedstat {
    /// Time on a CPU, in nanoseconds.
    pub run_ns: u64,
    /// Time ready to run but waiting for a CPU, in nanoseconds.
    pub wait_ns: u64,
    /// How often it was put on a CPU.
    pub slices: u64,
}

/// The CPUs that a thread may run on, ascending (`sched_getaffinity(2)`).
///
/// # Errors
///
/// `ESRCH` if there is no such thread.
pub fn affinity(thread: u32) -> CallResult<Vec<usize>> {
    let set = rustix::thread::sched_getaffinity(thread_of(thread)?)
        .on("sched_getaffinity", object(thread))?;
    Ok((0..CpuSet::MAX_CPU)
        .filter(|cpu| set.is_set(*cpu))
        .collect())
}

/// Confines a thread, which may be a kernel thread, to these CPUs (`sched_setaffinity(2)`).
///
/// # Errors
///
/// `EINVAL` where none of the CPUs is there and allowed, or where one is beyond the 1024 that the
/// call knows; `EPERM` for a thread of another user without `CAP_SYS_NICE` in the initial user
/// namespace; `ESRCH` where there is no such thread.
pub fn pin(thread: u32, cpus: &[usize]) -> CallResult<()> {
    let refused = |source| CallError::new("sched_setaffinity", object(thread), source);
    let mut set = CpuSet::new();
    for cpu in cpus {
        if *cpu >= CpuSet::MAX_CPU {
            return Err(refused(io::Error::from_raw_os_error(libc::EINVAL)));
        }
        set.set(*cpu);
    }
    rustix::thread::sched_setaffinity(thread_of(thread)?, &set)
        .map_err(|errno| refused(errno.into()))
}

/// Confines the calling thread to these CPUs.
///
/// # Errors
///
/// As for [`pin`].
pub fn pin_current(cpus: &[usize]) -> CallResult<()> {
    pin(thread_id(), cpus)
}

/// Sets the nice value of a thread, from -20 to 19 (`setpriority(2)`): each step is a quarter more
/// or less of a share of its CPU (`sched_prio_to_weight` in kernel/sched/core.c).
///
/// # Errors
///
/// `EACCES` or `EPERM` without `CAP_SYS_NICE` in the initial user namespace, `ESRCH` where there is
/// no such thread.
pub fn set_nice(thread: u32, nice: i32) -> CallResult<()> {
    rustix::process::setpriority_process(thread_of(thread)?, nice).on("setpriority", object(thread))
}

/// The nice value of a thread (`getpriority(2)`).
///
/// # Errors
///
/// `ESRCH` if there is no such thread.
pub fn nice(thread: u32) -> CallResult<i32> {
    rustix::process::getpriority_process(thread_of(thread)?).on("getpriority", object(thread))
}

/// The number of the calling thread (`gettid(2)`).
pub fn thread_id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// The CPU that the calling thread runs on at this moment (`getcpu(2)`).
pub fn current_cpu() -> usize {
    rustix::thread::sched_getcpu()
}

/// How long a thread of a process ran and waited. A kernel thread is a process of one thread.
///
/// # Errors
///
/// No such thread; a kernel without `CONFIG_SCHED_INFO`; no `/proc`.
pub fn schedstat(process: u32, thread: u32) -> CallResult<Schedstat> {
    let path = format!("/proc/{process}/task/{thread}/schedstat");
    let text = fs::read_to_string(&path).on("open", &path)?;
    parse_schedstat(&text).ok_or_else(|| CallError::new("read", &path, foreign()))
}

/// Three numbers (Documentation/scheduler/sched-stats.rst).
fn parse_schedstat(text: &str) -> Option<Schedstat> {
    let mut numbers = text.split_ascii_whitespace().map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some(Schedstat {
        run_ns: next()?,
        wait_ns: next()?,
        slices: next()?,
    })
}

fn thread_of(thread: u32) -> CallResult<Option<Pid>> {
    let id = i32::try_from(thread).ok().and_then(Pid::from_raw);
    // Zero would mean the calling thread, which is not what the caller wrote.
    match id {
        Some(id) => Ok(Some(id)),
        None => {
            let source = io::Error::from_raw_os_error(libc::ESRCH);
            Err(CallError::new("sched_affinity", object(thread), source))
        }
    }
}

fn object(thread: u32) -> String {
    format!("thread {thread}")
}

fn foreign() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pinned_thread_runs_where_it_was_pinned() {
        let allowed = affinity(thread_id()).expect("own affinity");
        for cpu in allowed {
            let ran_on = std::thread::spawn(move || {
                pin_current(&[cpu]).map(|()| (current_cpu(), affinity(thread_id())))
            });
            let (ran_on, now_allowed) = ran_on.join().expect("thread").expect("own CPU");
            assert_eq!(ran_on, cpu);
            assert_eq!(now_allowed.expect("own affinity"), [cpu]);
        }
    }

    #[test]
    fn cpus_that_cannot_be_are_refused() {
        for cpus in [&[][..], &[1023], &[1024], &[usize::MAX]] {
            let error = pin_current(cpus).expect_err("no such CPU");
            assert_eq!(error.errno(), Some(libc::EINVAL), "{cpus:?}");
        }
    }

    #[test]
    fn a_thread_that_is_not_there_is_named() {
        for thread in [0, u32::MAX] {
            let error = affinity(thread).expect_err("no such thread");
            assert_eq!(error.errno(), Some(libc::ESRCH));
            assert!(error.to_string().contains(&thread.to_string()));
        }
    }

    #[test]
    fn running_is_counted() {
        let read = || schedstat(std::process::id(), thread_id()).expect("own schedstat");
        let before = read();
        // Every yield of the CPU settles the account of the running thread.
        while read().run_ns == before.run_ns {
            std::thread::yield_now();
        }
        assert!(read().slices >= before.slices);
    }

    proptest! {
        #[test]
        fn parsers_never_panic(text in any::<String>()) {
            let _ = parse_schedstat(&text);
        }

        #[test]
        fn schedstat_round_trip(run_ns: u64, wait_ns: u64, slices: u64) {
            let text = format!("{run_ns} {wait_ns} {slices}\n");
            prop_assert_eq!(parse_schedstat(&text), Some(Schedstat { run_ns, wait_ns, slices }));
        }
    }
}
