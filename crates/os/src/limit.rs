//! Limits of the process: `getrlimit(2)`.

use crate::CallResult;
use crate::error::On;
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Sees to it that the process may have `wanted` descriptors open, as far as it may decide that
/// itself, and returns how many it may have (`RLIMIT_NOFILE`): the soft limit is raised up to the
/// hard one, and never lowered.
///
/// # Errors
/// None that is known: every process may raise its soft limit, unless the hard one is beyond what
/// the machine allows by now (`fs.nr_open`, proc(5)), and then the soft one stays as it is.
pub fn allow_descriptors(wanted: u64) -> CallResult<u64> {
    allow(Resource::Nofile, wanted).on("setrlimit RLIMIT_NOFILE", wanted)
}

/// The same of the bytes of the first thread's stack (`RLIMIT_STACK`), which the kernel lets grow up to the
/// limit of the moment.
///
/// # Errors
/// None that is known.
pub fn allow_stack(wanted: u64) -> CallResult<u64> {
    allow(Resource::Stack, wanted).on("setrlimit RLIMIT_STACK", wanted)
}

fn allow(resource: Resource, wanted: u64) -> io::Result<u64> {
    let limit = getrlimit(resource);
    let (soft, hard) = (
        limit.current.unwrap_or(u64::MAX),
        limit.maximum.unwrap_or(u64::MAX),
    );
    if soft >= wanted || soft >= hard {
        return Ok(soft);
    }
    let raised = Rlimit {
        current: Some(wanted.min(hard)),
        maximum: limit.maximum,
    };
    match setrlimit(resource, raised) {
        Ok(()) => Ok(wanted.min(hard)),
        // A hard limit above `fs.nr_open` is refused though it is not changed (`do_prlimit`,
        // kernel/sys.c).
        Err(Errno::PERM) => Ok(soft),
        Err(errno) => Err(errno.into()),
    }
}

/// Lowers this process's limit of descriptors to `beyond`, for good. Descriptors that are open stay
/// open.
///
/// # Errors
/// `EPERM` if it has fewer already.
pub fn forbid_descriptors(beyond: u64) -> CallResult<()> {
    let lowered = Rlimit {
        current: Some(beyond),
        maximum: Some(beyond),
    };
    setrlimit(Resource::Nofile, lowered).on("setrlimit RLIMIT_NOFILE", beyond)
}

/// The bytes that this process may lock (`RLIMIT_MEMLOCK`), which rings of the same user share; none
/// is without a limit. `CAP_IPC_LOCK` lifts it.
pub fn locked_memory() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// How to lift that limit.
pub const LOCKED_MEMORY_REMEDY: &str = "`ulimit -l unlimited`, LimitMEMLOCK=infinity of its unit, \
    --ulimit memlock=-1 of its container, or CAP_IPC_LOCK";

/// The bytes of addresses that this process may have (`RLIMIT_AS`), and those that it has
/// (`/proc/self/statm`); the same of its data (`RLIMIT_DATA`). None is without a limit.
pub(crate) fn memory() -> [Option<[u64; 2]>; 2] {
    let sizes = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    [(Resource::As, 0), (Resource::Data, 5)].map(|(resource, field)| {
        let most = getrlimit(resource).current?;
        let pages: u64 = sizes.split(' ').nth(field)?.parse().ok()?;
        Some([most, pages * rustix::param::page_size() as u64])
    })
}

/// The threads and processes that this user may have (`RLIMIT_NPROC`); none is without a limit.
pub(crate) fn processes() -> Option<u64> {
    getrlimit(Resource::Nproc).current
}

/// Lets this process lock as much memory as it likes (`setrlimit(2)`, `RLIMIT_MEMLOCK`); false if it
/// lacks `CAP_SYS_RESOURCE`.
pub(crate) fn lift_locked_memory() -> bool {
    let unlimited = Rlimit {
        current: None,
        maximum: None,
    };
    setrlimit(Resource::Memlock, unlimited).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_raised_and_never_lowered() {
        let before = allow_descriptors(0).unwrap();
        assert!(before > 0);
        let raised = allow_descriptors(before + 1).unwrap();
        assert!(raised == before || raised == before + 1);
        assert_eq!(allow_descriptors(1).unwrap(), raised);
    }
}
