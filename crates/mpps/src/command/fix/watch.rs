//! Keeps fixes in force: a program that comes back at its port is fixed again.

use super::LINES;
use super::traffic::wait;
use crate::failure;
use crate::measure::outcome::CommandEnding;
use crate::output::{self, OutputStream};
use crate::signal::EndSignal;
use anyhow::Result;
use mpps_host::check::Fix;
use mpps_host::fixing;
use mpps_host::setting::Applied;
use mpps_os::netlink::sock_diag;
use std::collections::BTreeSet;
use std::time::Duration;

/// Until the next attempt where something is lost and no change helps.
pub(super) const AGAIN: Duration = Duration::from_secs(600);
/// Between two looks for new sockets.
const PAUSE: Duration = Duration::from_secs(1);

/// Watches until a signal comes. A socket is changed at the second look that sees it: a program sets its own
/// options as it opens it.
pub(super) fn keep(
    port: u16,
    mut fixes: Vec<Fix>,
    mut known: BTreeSet<u32>,
    interrupt: &EndSignal,
) -> Result<CommandEnding> {
    LINES.say(&format!(
        "kept until Ctrl-C: a program that comes back to port {port} is changed again"
    ))?;
    fixing::name_users(&mut fixes);
    let mut new = BTreeSet::new();
    while wait(PAUSE, interrupt).is_ok() {
        let now = sockets(port)?;
        let came: BTreeSet<u32> = now.difference(&known).copied().collect();
        known.retain(|inode| now.contains(inode));
        if came.is_empty() || came != new {
            new = came;
            continue;
        }
        known = now;
        let again = fixing::again(&fixes, &known)?;
        for fix in &again {
            if let Err(error) = make(fix) {
                let text = format!("mpps: {}", failure::explain(&error));
                output::line(OutputStream::Err, &text)?;
            }
        }
        // The next one comes back after these.
        fixes.retain(|one| !again.iter().any(|fix| fix.program == one.program));
        fixes.extend(again);
    }
    Ok(CommandEnding::Fine)
}

/// Restores what a killed fix left on the programs at a port, and takes over the fixes that an earlier one kept
/// there: those, and the sockets that have them.
pub(super) fn adopt(port: u16) -> Result<(Vec<Fix>, BTreeSet<u32>)> {
    let now = sockets(port)?;
    for left in fixing::left_on(&now) {
        for outcome in left.undo_here(false) {
            LINES.say(&format!("{}: {outcome}", left.heading()))?;
        }
    }
    let (fixes, known) = fixing::adopted(&now);
    if !fixes.is_empty() {
        let each = fixes
            .iter()
            .map(|fix| format!("{} of {}", fix.kind.name(), fix.whose()));
        let each: Vec<String> = each.collect();
        LINES.say(&format!(
            "kept by an earlier `mpps fix`: {}",
            each.join(", ")
        ))?;
    }
    Ok((fixes, known))
}

fn make(fix: &Fix) -> Result<()> {
    let change = fixing::change(fix)?;
    if change.edits.is_empty() || fixing::replaces_program(&change) {
        return Ok(());
    }
    fixing::clear(fix);
    let change = fixing::change(fix)?;
    let applied = Applied::new(&change)?;
    let said = format!("{}: again: {}", change.heading, applied.steps().join(", "));
    applied.keep()?;
    LINES.say(&said)
}

/// Waits until a program has the port, or a signal comes.
pub(super) fn sockets_come(port: u16, interrupt: &EndSignal) -> Result<()> {
    while sockets(port)?.is_empty() && wait(PAUSE, interrupt).is_ok() {}
    Ok(())
}

/// The sockets of a port, by inode number.
pub(super) fn sockets(port: u16) -> Result<BTreeSet<u32>> {
    let datagrams = sock_diag::udp()?.into_iter();
    let listeners = sock_diag::listeners()?.into_iter();
    let datagrams = datagrams.map(|one| (one.local.port(), one.inode));
    let all = datagrams.chain(listeners.map(|one| (one.local.port(), one.inode)));
    let at = all.filter_map(|(local, inode)| (local == port).then_some(inode));
    Ok(at.collect())
}
