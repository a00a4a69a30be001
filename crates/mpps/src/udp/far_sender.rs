//! `mpps send` on another host, by a command for a shell: `ssh HOST mpps send`.

use crate::signal::{Interrupt, Interrupted};
use anyhow::{Context, Result, ensure};
use mpps_report::Quantity;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// How often it is looked whether the command has ended.
const LOOK: Duration = Duration::from_millis(10);

/// Runs an order, and answers what it wrote.
///
/// # Errors
/// It fails, takes longer than that, or the user ends the run.
pub(crate) fn obey(order: &str, longest: Duration, interrupt: &Interrupt) -> Result<String> {
    let mut shell = Command::new("sh");
    shell.args(["-c", order]).stdin(Stdio::null());
    shell.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = shell.spawn().context("--sender: cannot start sh")?;
    let ended = await_end(&mut child, longest, interrupt);
    if ended.is_err() {
        // It may have ended meanwhile.
        let _ = child.kill();
    }
    let wrote = child.wait_with_output().context("--sender: sh")?;
    ended?;
    // It has the signal of the keyboard as well.
    ensure!(!interrupt.came(), Interrupted);
    let said = String::from_utf8_lossy(&wrote.stderr);
    let said = said.lines().last().unwrap_or("it says nothing");
    ensure!(
        wrote.status.success(),
        "--sender: `{order}` ended with {}: {said}",
        wrote.status
    );
    Ok(String::from_utf8_lossy(&wrote.stdout).into_owned())
}

fn await_end(child: &mut Child, longest: Duration, interrupt: &Interrupt) -> Result<()> {
    let began = Instant::now();
    while child.try_wait().context("--sender: sh")?.is_none() {
        ensure!(!interrupt.came(), Interrupted);
        ensure!(
            began.elapsed() < longest,
            "--sender: the command has not ended after {}",
            Quantity::Seconds(longest.as_secs_f64())
        );
        thread::sleep(LOOK);
    }
    Ok(())
}
