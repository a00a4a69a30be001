//! A trial in a process of its own, its output, and other events on the machine meanwhile.

use crate::root;
use libtest_mimic::{Completion, Failed};
use std::env;
use std::fmt::Debug;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Names the trial that this program runs when it is started again.
const APART: &str = "MPPS_TRIAL";
/// The exit status of a trial whose need is not met, as for automake and meson. The reason is the
/// last line of its output.
pub(crate) const SKIPPED: u8 = 77;
/// How long a trial may take. Only a trial that hangs takes that long.
const PATIENCE: Duration = Duration::from_secs(900);
/// The time between two looks at a trial.
const LOOK: Duration = Duration::from_millis(5);
/// A file that gets a line for each trial: its seconds, its kind and its name.
const TIMES: &str = "MPPS_TRIAL_TIMES";

/// How many of the slowest trials the end of a run lists.
const SLOWEST: usize = 10;

/// The trials under way. The report of a failed trial names them.
static UNDER_WAY: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// The trials that have ended: seconds, kind, name.
static ENDED: Mutex<Vec<(f64, String)>> = Mutex::new(Vec::new());

/// The name of the trial whose own process this is.
#[must_use]
pub fn own_name() -> Option<String> {
    env::var(APART).ok()
}

/// Writes a text to standard error and ignores errors.
pub(crate) fn say(text: &str) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Runs the trial of that name in a process of its own.
pub(crate) fn apart(name: &str, kind: impl Debug) -> Result<Completion, Failed> {
    let (before, started) = (MachineCounters::look(), Instant::now());
    let company = company(|names| names.push(name.to_owned()));
    let ended = play(name);
    company_without(name);
    let seconds = started.elapsed().as_secs_f64();
    note(name, kind, seconds);
    let (status, said) = ended?;
    if status.success() {
        if env::args().any(|word| word == "--nocapture") {
            say(&said);
        }
        return Ok(Completion::Completed);
    }
    if status.code() == Some(SKIPPED.into()) {
        let why = said.trim_end().lines().last().unwrap_or("no reason given");
        let required = env::var("MPPS_REQUIRE_LAB").is_ok_and(|value| value == "1");
        return match required {
            true => Err(Failed::from(why)),
            false => Ok(Completion::ignored_with(why)),
        };
    }
    let meanwhile = MachineCounters::look().since(&before);
    let text = format!("{status} after {seconds:.1} s, {company}; {meanwhile}\n{said}");
    // A summary at the start of a line would be taken for this program's own.
    Err(Failed::from(text.trim_end().replace('\n', "\n  ")))
}

/// Changes the list of trials under way. Returns which others were there before.
fn company(change: impl FnOnce(&mut Vec<String>)) -> String {
    let mut names = UNDER_WAY.lock().unwrap_or_else(PoisonError::into_inner);
    let before = match names.is_empty() {
        true => "with no other trial at first".to_owned(),
        false => format!("beside {}", names.join(", ")),
    };
    change(&mut names);
    before
}

fn company_without(name: &str) {
    company(|names| names.retain(|other| other != name));
}

/// The exit status of the trial, and both its streams in the order written.
fn play(name: &str) -> io::Result<(ExitStatus, String)> {
    let mut said = tempfile::tempfile()?;
    let mut child = command()?
        .env(APART, name)
        .stdin(Stdio::null())
        .stdout(said.try_clone()?)
        .stderr(said.try_clone()?)
        .spawn()?;
    let status = wait(&mut child)?;
    said.rewind()?;
    let mut bytes = Vec::new();
    said.read_to_end(&mut bytes)?;
    Ok((status, String::from_utf8_lossy(&bytes).into_owned()))
}

/// This program. For root it gets a private `/run`.
fn command() -> io::Result<Command> {
    let own = env::current_exe()?;
    if root().is_err() {
        return Ok(Command::new(own));
    }
    let mut command = Command::new("unshare");
    let private = "mount -t tmpfs -o mode=755 run /run && exec \"$0\"";
    command.args(["--mount", "sh", "-c", private]).arg(own);
    Ok(command)
}

fn wait(child: &mut Child) -> io::Result<ExitStatus> {
    let begun = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if begun.elapsed() > PATIENCE {
            child.kill()?;
            return child.wait();
        }
        thread::sleep(LOOK);
    }
}

/// Says which trials took longest, if not all would be listed.
pub(crate) fn say_slowest() {
    let mut ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
    if ended.len() <= SLOWEST {
        return;
    }
    ended.sort_by(|a, b| b.0.total_cmp(&a.0));
    say("slowest trials:");
    for (seconds, name) in ended.iter().take(SLOWEST) {
        say(&format!("{seconds:6.1} s {name}"));
    }
}

fn note(name: &str, kind: impl Debug, seconds: f64) {
    let mut ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner);
    ended.push((seconds, format!("{kind:?} {name}")));
    drop(ended);
    let Some(path) = env::var_os(TIMES) else {
        return;
    };
    if let Ok(mut file) = OpenOptions::new().append(true).create(true).open(path) {
        let _ = file.write_all(format!("{seconds:.3} {kind:?} {name}\n").as_bytes());
    }
}

/// Packet losses and delays of a busy machine, over all CPUs.
#[derive(Debug, Clone, Copy, Default)]
struct MachineCounters {
    /// Packets that found no room in a CPU's backlog.
    dropped: u64,
    /// Rounds of a CPU's softirq that ended before the queues were empty.
    squeezed: u64,
}

impl MachineCounters {
    /// The second and third column of `/proc/net/softnet_stat` (softnet_seq_show,
    /// net/core/net-procfs.c).
    fn look() -> Self {
        let text = fs::read_to_string("/proc/net/softnet_stat").unwrap_or_default();
        let column = |at: usize| {
            let words = text.lines().filter_map(|line| line.split(' ').nth(at));
            words
                .filter_map(|word| u64::from_str_radix(word, 16).ok())
                .sum()
        };
        Self {
            dropped: column(1),
            squeezed: column(2),
        }
    }

    fn since(&self, before: &Self) -> String {
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let dropped = self.dropped.saturating_sub(before.dropped);
        let squeezed = self.squeezed.saturating_sub(before.squeezed);
        format!(
            "meanwhile the CPUs' backlogs dropped {dropped}, {squeezed} rounds were cut short, load {}",
            load.trim_end()
        )
    }
}
