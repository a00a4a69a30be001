//! DPDK's environment (EAL): one for the process.

use super::ffi;
use crate::error::On;
use crate::namespace::NetNamespace;
use crate::{CallError, CallResult};
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// The arguments that the environment was started with, and why it failed if it did.
static ENVIRONMENT: Mutex<Option<Started>> = Mutex::new(None);

/// Held during a call into DPDK's control path, which is not made for two threads at a time.
static CONTROL: Mutex<()> = Mutex::new(());

#[derive(Debug)]
struct Started {
    arguments: Vec<String>,
    failure: Option<(i32, String)>,
}

/// Starts DPDK's environment with these arguments (`rte_eal_init`), or finds it started with them.
///
/// Its own threads run in the network namespace of the process, because they never end and would
/// keep any other alive; a device belongs to the namespace of the thread that opens it.
///
/// The output of DPDK; `EALREADY` if it runs with other arguments, which needs another process; a
/// mode that would end this process (`--help`).
pub fn start(arguments: &[String]) -> CallResult<()> {
    let mut environment = ENVIRONMENT.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(started) = &*environment {
        if started.arguments != arguments {
            let object = started.arguments.join(" ");
            let source = io::Error::from_raw_os_error(libc::EALREADY);
            return Err(CallError::new(
                "rte_eal_init with other arguments than",
                object,
                source,
            ));
        }
        return match &started.failure {
            None => Ok(()),
            Some((errno, said)) => Err(failure("rte_eal_init", *errno, said)),
        };
    }
    let refused = |why: &str| {
        let source = io::Error::new(io::ErrorKind::InvalidInput, why.to_owned());
        CallError::new("rte_eal_init", arguments.join(" "), source)
    };
    if arguments.iter().any(|argument| is_help(argument)) {
        return Err(refused("asks for help; DPDK would then end the process"));
    }
    let mut owned = Vec::with_capacity(arguments.len() + 1);
    for argument in std::iter::once("mpps").chain(arguments.iter().map(String::as_str)) {
        owned.push(CString::new(argument).map_err(|_| refused("an argument with a zero byte"))?);
    }
    let outcome = in_namespace_of_process(|| initialise(owned))?;
    *environment = Some(Started {
        arguments: arguments.to_vec(),
        failure: outcome.clone().err(),
    });
    outcome.map_err(|(errno, said)| failure("rte_eal_init", errno, &said))
}

/// Makes a call into DPDK and listens to what it prints meanwhile. A negative answer is an error
/// with its last words. `call` must not come back here.
pub(super) fn listen(call: impl FnOnce() -> c_int) -> std::result::Result<(), (i32, String)> {
    let _alone = CONTROL.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: the lock keeps other callers of these two away.
    let listening = unsafe { ffi::mpps_dpdk_listen() };
    if listening < 0 {
        return Err((-listening, String::new()));
    }
    let status = call();
    let mut text = vec![0_u8; 16_384];
    // SAFETY: the pointer is good for the length passed.
    let bytes = unsafe { ffi::mpps_dpdk_heard(text.as_mut_ptr().cast(), text.len()) };
    text.truncate(bytes);
    if status < 0 {
        let said = String::from_utf8_lossy(&text);
        return Err((-status, last_words(&said)));
    }
    Ok(())
}

/// The error of a call into DPDK. Its object is the output of DPDK.
pub(super) fn failure(call: &'static str, errno: i32, said: &str) -> CallError {
    CallError::new(call, said, io::Error::from_raw_os_error(errno))
}

/// The lines that say what went wrong. DPDK begins each with the part of it that speaks.
fn last_words(said: &str) -> String {
    /// Usage follows a bad argument, and says nothing about it.
    const USAGE: &str = "Usage:";
    let lines = said.split(USAGE).next().unwrap_or_default().lines();
    let lines: Vec<&str> = lines
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect();
    let from = lines.len().saturating_sub(4);
    lines[from..].join("; ")
}

/// True for `-h`, `--help` and what `getopt_long(3)` takes for it: `-vh`, `--he`.
fn is_help(argument: &str) -> bool {
    if let Some(long) = argument.strip_prefix("--") {
        return long.len() >= 2 && "help".starts_with(long);
    }
    let flags = argument.strip_prefix('-');
    flags.is_some_and(|flags| flags.trim_start_matches('v').starts_with('h'))
}

fn initialise(arguments: Vec<CString>) -> std::result::Result<(), (i32, String)> {
    // DPDK keeps pointers into its arguments as long as it runs, that is until the process ends.
    let mut pointers: Vec<*mut c_char> = arguments.into_iter().map(CString::into_raw).collect();
    let count = pointers.len() as c_int;
    pointers.push(std::ptr::null_mut());
    let pointers = Vec::leak(pointers);
    // SAFETY: the array holds `count` strings that are never freed. It ends with a null pointer, as
    // that of main() does.
    let started = listen(|| unsafe { ffi::mpps_dpdk_start(count, pointers.as_mut_ptr()) });
    if started.is_ok() {
        remove_directories();
    }
    started
}

/// Removes the folder that DPDK makes for files shared with other processes. DPDK makes it even if
/// it is to share none. It is empty then; a folder with files is not removed.
fn remove_directories() {
    // SAFETY: the environment runs, so the answer is a string that lives as long as it does.
    let path = unsafe { CStr::from_ptr(ffi::mpps_dpdk_directory()) };
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    let folders = path.ancestors().take(2);
    // A folder in use may stay.
    folders.for_each(|folder| drop(std::fs::remove_dir(folder)));
}

/// Runs `work` in a thread of its own, because DPDK makes its caller one of its threads, in the
/// network namespace of the process.
fn in_namespace_of_process<R: Send>(work: impl FnOnce() -> R + Send) -> CallResult<R> {
    let process = NetNamespace::open("/proc/self/ns/net")?;
    if NetNamespace::current()?.inode() != process.inode() {
        return process.run(work);
    }
    thread::scope(|scope| {
        let thread = thread::Builder::new()
            .name("mpps-dpdk".to_owned())
            .spawn_scoped(scope, work)
            .on("clone", "thread")?;
        match thread.join() {
            Ok(result) => Ok(result),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_is_recognised_in_all_its_forms() {
        for argument in ["-h", "-vh", "--help", "--he", "--hel"] {
            assert!(is_help(argument), "{argument}");
        }
        for argument in ["-a", "--huge-dir=/h", "--no-huge", "h", "-", "--", "-vm"] {
            assert!(!is_help(argument), "{argument}");
        }
    }

    #[test]
    fn the_last_words_are_those_before_the_usage() {
        let said = "EAL: a\n\nEAL: bad option\nUsage: mpps [options]\n -h\n";
        assert_eq!(last_words(said), "EAL: a; EAL: bad option");
        assert_eq!(last_words("1\n2\n3\n4\n5\n6"), "3; 4; 5; 6");
        assert_eq!(last_words(""), "");
    }
}
