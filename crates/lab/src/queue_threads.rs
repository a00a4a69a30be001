//! The kernel threads that poll the receive queues of one interface.

use std::fs::{self, File};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use mpps_os::CallError;
use mpps_os::netlink::napi;
use mpps_os::sysfs::Sysfs;

/// How long another lab may take to make its threads, which it does in milliseconds.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often the lock is tried.
const LOOK: Duration = Duration::from_millis(5);

/// The switch between threads and soft interrupts (Documentation/networking/napi.rst, Linux 5.12).
pub(crate) fn switch(interface: &str) -> String {
    format!("class/net/{interface}/threaded")
}

/// Gives each queue of the calling thread's interface a kernel thread. Answers its NAPI contexts,
/// ascending, each with the number of its thread. A PID namespace hides the threads outside it.
pub(crate) fn start(
    sysfs: &Sysfs,
    interface: &str,
    index: u32,
) -> Result<Vec<(u32, u32)>, CallError> {
    let start = || sysfs.write(&switch(interface), "1");
    // As of Linux 6.8 the kernel lists the thread of each context.
    if napi::list(index).is_err() {
        return appeared(interface, start);
    }
    start()?;
    let contexts = napi::list(index)?;
    let threads = contexts.iter().map(|context| (context.id, context.thread));
    let known = threads.filter_map(|(id, pid)| Some((id, pid?)));
    Ok(known
        .filter(|(id, pid)| number(*pid, interface) == Some(*id))
        .collect())
}

/// The threads that appear while `start` runs. The threads of other labs on this machine have the
/// same names. So only one lab at a time may make its threads.
fn appeared(
    interface: &str,
    start: impl FnOnce() -> Result<(), CallError>,
) -> Result<Vec<(u32, u32)>, CallError> {
    let processes = Path::new("/proc");
    let turn = File::open(processes).map_err(|error| CallError::new("open", "/proc", error))?;
    await_turn(&turn)?;
    let before = named(interface);
    start()?;
    let mut threads = named(interface);
    threads.retain(|thread| !before.contains(thread));
    threads.sort_unstable();
    Ok(threads)
}

/// Locks a file that every program can lock. So it does not wait for the lock without end
/// (flock(2)).
fn await_turn(turn: &File) -> Result<(), CallError> {
    let began = Instant::now();
    while let Err(error) = turn.try_lock() {
        if began.elapsed() > PATIENCE {
            return Err(CallError::new("flock", "/proc", error.into()));
        }
        thread::sleep(LOOK);
    }
    Ok(())
}

/// The same by the names of all kernel threads.
fn named(interface: &str) -> Vec<(u32, u32)> {
    let Ok(processes) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    processes
        .filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            Some((number(pid, interface)?, pid))
        })
        .collect()
}

/// The NAPI context of this thread, by its name `napi/INTERFACE-NUMBER`. None if `/proc` has the
/// numbers of another PID namespace.
fn number(pid: u32, interface: &str) -> Option<u32> {
    let own = fs::read_link("/proc/self").ok()?;
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    let is_ours = own.to_str()? == std::process::id().to_string();
    parse(&name, interface).filter(|_| is_ours)
}

fn parse(name: &str, interface: &str) -> Option<u32> {
    let rest = name.trim_end().strip_prefix("napi/")?;
    let number = rest.strip_prefix(interface)?.strip_prefix('-')?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader};
    use std::process::{Child, Command, Stdio};

    #[test]
    fn thread_names() {
        assert_eq!(parse("napi/mpps-rx-8197\n", "mpps-rx"), Some(8197));
        for name in [
            "napi/mpps-rx-",
            "napi/mpps-rx2-1",
            "napi/eth0-1",
            "mpps-rx-1",
            "",
        ] {
            assert_eq!(parse(name, "mpps-rx"), None, "{name}");
        }
    }

    /// A process of that name.
    fn called(name: &str) -> Child {
        let script = format!("printf {name} > /proc/$$/comm; echo; read forever");
        let mut child = Command::new("sh")
            .args(["-c", &script])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let mut told = BufReader::new(child.stdout.take().expect("it is piped"));
        told.read_line(&mut String::new()).expect("it has its name");
        child
    }

    #[test]
    fn threads_of_another_lab_are_not_this_one_s() {
        let mut children = vec![called("napi/mpps-t-7")];
        let found = appeared("mpps-t", || {
            children.push(called("napi/mpps-t-12"));
            children.push(called("napi/mpps-t-9"));
            Ok(())
        });
        let pids: Vec<u32> = children.iter().map(Child::id).collect();
        // The shells end with their input.
        drop(children);
        let found = found.expect("there is /proc");
        assert_eq!(found, [(9, pids[2]), (12, pids[1])]);
    }
}
