//! The change of settings that fixes a running program.

use mpps_os::CallResult;
use mpps_os::netlink::sock_diag::{self, UdpEntry};

use super::change::SettingChange;
use super::edit::Edit;
use super::host::{LiveKernel, SettingHost};
use super::of_program::{AT_RANDOM, BY_HASH, OfProgram, PROCESS, ProgramSocket, RUNNING};
use super::owner::Owner;
use super::primitive::{Setting, Value};
use crate::HostResult;
use crate::check::{Fix, FixKind};

/// The name of the claim on a process, and the beginning of the names of its changes.
const CLAIM: &str = "fix";

/// The settings to change for a fix, in the network namespace of the calling thread, whose sockets it is about.
///
/// # Errors
/// [`HostError::Kernel`](crate::HostError) if the process, its sockets or its threads cannot be read.
pub fn change(fix: &Fix) -> HostResult<SettingChange> {
    let process = Owner::of(fix.pid)?;
    let wanted: Vec<(OfProgram, String)> = match &fix.kind {
        FixKind::Continue => vec![(OfProgram::Stopped { process }, RUNNING.to_owned())],
        FixKind::Spread(inodes) => {
            let sockets = inodes.len() as u32;
            let first = places(process, inodes)?.into_iter().take(1);
            let spread = first.map(|socket| OfProgram::Spreading { socket, sockets });
            spread.map(|one| (one, AT_RANDOM.to_owned())).collect()
        }
        FixKind::ReceiveBuffer(inodes, bytes) => {
            let buffers = places(process, inodes)?.into_iter();
            let buffers = buffers.map(|socket| OfProgram::ReceiveBuffer { socket });
            buffers.map(|one| (one, bytes.to_string())).collect()
        }
        FixKind::Affinity(thread, cpus) => {
            let thread = *thread;
            vec![(OfProgram::ThreadCpus { process, thread }, cpus.to_string())]
        }
    };
    let mut edits = Vec::new();
    for (one, new) in wanted {
        let old = match &one {
            OfProgram::Spreading { .. } => Some(BY_HASH.to_owned()),
            other => other.read()?,
        };
        let old = old.map(Value::Text);
        let new = Value::Text(new);
        let setting = Setting::OfProgram(one);
        edits.extend(
            old.filter(|old| *old != new)
                .map(|old| Edit::new(setting, old, new)),
        );
    }
    Ok(SettingChange {
        name: format!("fix-{}", fix.kind.name()),
        heading: format!("{} ({}), {}", fix.program, fix.pid, fix.kind.name()),
        edits,
        ..claim(fix.pid)?
    })
}

/// The change that keeps a second fix away from a process: it changes nothing.
///
/// # Errors
/// [`HostError::Kernel`](crate::HostError) if the network namespace cannot be read.
pub fn claim(pid: u32) -> HostResult<SettingChange> {
    Ok(SettingChange {
        name: CLAIM.to_owned(),
        object: format!("{PROCESS}{pid}"),
        interface_index: None,
        namespace: LiveKernel::default().namespace()?,
        heading: format!("process {pid}, being fixed"),
        edits: Vec::new(),
    })
}

/// True if a [`SettingChange`] of this name is a fix of a program.
pub fn is_of_fix(name: &str) -> bool {
    name.strip_prefix(CLAIM)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// The sockets with these inode numbers that are still there.
fn places(process: Owner, inodes: &[u32]) -> CallResult<Vec<ProgramSocket>> {
    let all = sock_diag::udp()?.into_iter();
    let own = all.filter(|one| inodes.contains(&one.inode));
    let place = |one: UdpEntry| ProgramSocket {
        process,
        inode: one.inode,
        cookie: one.cookie,
    };
    Ok(own.map(place).collect())
}
