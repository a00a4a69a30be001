//! `mpps send` on another host, by a command for a shell: `ssh HOST mpps send`.

use super::run::LOOK;
use crate::signal::{EndSignal, Interrupted};
use anyhow::{Context, Result, bail, ensure};
use mpps_os::poll::Waiter;
use mpps_os::process::spawn_session;
use mpps_report::Quantity;
use std::io::Read;
use std::os::fd::AsFd;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// The capacity of a pipe, unless its owner raises it (`pipe(7)`).
const PIPE: usize = 1 << 16;
/// The longest standard output: the totals of a run are some kilobytes.
const OUT_MAX: usize = 1 << 22;
/// So much of the end of standard error is kept.
const ERR_KEPT: usize = 1 << 13;

/// Runs a shell command and returns its standard output. Processes that it starts in its process
/// group end with it. All of them end with this program. The command has no terminal, so it cannot
/// ask for a password.
///
/// # Errors
/// The command fails, takes longer than `longest`, or writes too much. Or the user ends the run.
pub(crate) fn obey(order: &str, longest: Duration, interrupt: &EndSignal) -> Result<String> {
    let mut shell = Command::new("sh");
    shell.args(["-c", order]).stdin(Stdio::null());
    shell.stdout(Stdio::piped()).stderr(Stdio::piped());
    // Whatever ends this function kills it.
    let mut child = spawn_session(shell).context("--sender: cannot start sh")?;
    let mut out = Heard::new(child.stdout());
    let mut err = Heard::new(child.stderr());
    let began = Instant::now();
    let status = loop {
        // Before the pipes are read: what it wrote before its end is in them. They may stay open
        // longer, where a descendant has left its session.
        let ended = child.try_wait().context("--sender: sh")?;
        ensure!(!interrupt.came(), Interrupted);
        let heard = [out.hear()?, err.hear()?].contains(&true);
        err.keep_end(ERR_KEPT);
        ensure!(
            out.bytes.len() <= OUT_MAX,
            "--sender: `{order}` writes more than {} MiB to standard output, and totals are less; \
             name `mpps send` of the other host",
            OUT_MAX >> 20
        );
        if let Some(status) = ended {
            break status;
        }
        if began.elapsed() >= longest {
            let longest = Quantity::Seconds(longest.as_secs_f64());
            bail!(
                "--sender: `{order}` has not ended after {longest}; it has to end by itself, as \
                 `mpps send --duration` does"
            );
        }
        if !heard {
            thread::sleep(LOOK);
        }
    };
    let said = String::from_utf8_lossy(&err.bytes);
    let said = said.lines().last().unwrap_or("it says nothing");
    ensure!(
        status.success(),
        "--sender: `{order}` ended with {status}: {said}"
    );
    Ok(String::from_utf8_lossy(&out.bytes).into_owned())
}

/// The bytes read from a pipe.
struct Heard<P> {
    /// None once all writers have closed it.
    pipe: Option<P>,
    waiter: Waiter,
    bytes: Vec<u8>,
}

impl<P: Read + AsFd> Heard<P> {
    fn new(pipe: Option<P>) -> Self {
        Self {
            pipe,
            waiter: Waiter::new(),
            bytes: Vec::new(),
        }
    }

    /// Reads what is in the pipe, and does not wait; true if there was something.
    fn hear(&mut self) -> Result<bool> {
        let Some(pipe) = &mut self.pipe else {
            return Ok(false);
        };
        // A signal is looked for by the caller.
        if !self
            .waiter
            .poll(pipe.as_fd(), Duration::ZERO)
            .unwrap_or(false)
        {
            return Ok(false);
        }
        let before = self.bytes.len();
        self.bytes.resize(before + PIPE, 0);
        let read = pipe.read(&mut self.bytes[before..]);
        self.bytes.truncate(before + *read.as_ref().unwrap_or(&0));
        if read.context("--sender: its output")? == 0 {
            self.pipe = None;
            return Ok(false);
        }
        Ok(true)
    }

    /// Keeps the last `most` bytes only.
    fn keep_end(&mut self, most: usize) {
        let excess = self.bytes.len().saturating_sub(most);
        self.bytes.drain(..excess);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;
    use std::sync::atomic::Ordering;

    const LONG: Duration = Duration::from_secs(600);

    fn obeyed(order: &str) -> Result<String> {
        obey(order, LONG, &EndSignal::default())
    }

    fn refusal(answer: Result<String>) -> String {
        format!("{:#}", answer.expect_err("it is refused"))
    }

    /// Waits until a process has ended, which a signal may take a moment to do.
    fn await_end(process: &str) {
        let stat = Path::new("/proc").join(process.trim()).join("stat");
        let lives = || fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z"));
        for _ in 0..3000 {
            if !lives() {
                return;
            }
            thread::sleep(LOOK);
        }
        panic!("process {process} goes on");
    }

    #[test]
    fn an_order_answers_what_it_wrote() {
        let order = "echo totals; echo warning >&2";
        assert_eq!(obeyed(order).expect("it is fine"), "totals\n");
        let why = refusal(obeyed("echo no such host >&2; exit 7"));
        assert!(why.contains("status: 7: no such host"), "{why}");
        let why = refusal(obeyed("kill -TERM $$"));
        assert!(why.contains("it says nothing"), "{why}");
    }

    #[test]
    fn what_it_leaves_in_the_background_is_not_waited_for() {
        let left = obeyed("sleep 1000 & echo $!").expect("it is fine");
        await_end(&left);
        // A process that left the session keeps the pipes open, as the master of ssh does.
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("there");
        let there = file.display();
        let order = format!(
            "setsid sh -c 'echo $$; touch {there}; exec sleep 1000' & until [ -e {there} ]; do sleep 0.01; done"
        );
        let away = obeyed(&order).expect("it is fine");
        let kill = format!("kill -KILL {away}");
        let killed = Command::new("sh").args(["-c", &kill]).status();
        assert!(killed.expect("sh").success(), "it was none of the order's");
    }

    #[test]
    fn megabytes_on_both_pipes_are_read_while_it_runs() {
        let order = "yes | head -c 3000000 >&2; yes | head -c 3000000; echo the end >&2";
        assert_eq!(obeyed(order).expect("it is fine").len(), 3_000_000);
        let why = refusal(obeyed(&format!("{order}; false")));
        assert!(why.ends_with(": the end"), "{why}");
        let why = refusal(obeyed("yes"));
        assert!(why.contains("more than 4 MiB"), "{why}");
    }

    #[test]
    fn one_that_takes_too_long_is_ended() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("process");
        let order = format!("sleep 1000 & echo $! > {}; wait", file.display());
        let why = refusal(obey(&order, Duration::from_secs(1), &EndSignal::default()));
        assert!(why.contains("has not ended after 1"), "{why}");
        // On a busy machine it may not have come that far.
        if let Ok(process) = fs::read_to_string(file) {
            await_end(&process);
        }
    }

    #[test]
    fn ctrl_c_ends_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let [part, file] = ["part", "process"].map(|name| directory.path().join(name));
        let [made, there] = [part.display(), file.display()];
        let order = format!("sleep 1000 & echo $! > {made}; mv {made} {there}; wait");
        let interrupt = EndSignal::default();
        let answer = thread::scope(|scope| {
            let obeying = scope.spawn(|| obey(&order, LONG, &interrupt));
            while !file.exists() && !obeying.is_finished() {
                thread::sleep(LOOK);
            }
            interrupt.flag().store(true, Ordering::Relaxed);
            obeying.join().expect("no panic")
        });
        let error = answer.expect_err("it was interrupted");
        assert!(error.is::<Interrupted>(), "{error:#}");
        await_end(&fs::read_to_string(file).expect("it ran"));
    }
}
