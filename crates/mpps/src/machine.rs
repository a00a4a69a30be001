//! The machine that a result is of, and the command that made it.

use anyhow::{Context, Result, anyhow};
use mpps_host::{Fingerprint, Snapshot};
use mpps_lab::Lab;
use mpps_os::capability::{CAP_NET_ADMIN, CAP_SYS_ADMIN, Rights};
use mpps_os::namespace;
use mpps_os::netlink::{address, link};
use mpps_os::text::{ShellWord, of_bytes};
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The machine that a lab is on, with both ends of the lab's link.
pub(crate) fn of_lab(lab: &Lab) -> Result<Fingerprint> {
    let (sender, receiver) = (lab.sender(), lab.receiver());
    let mut fingerprint = receiver.run(|| Fingerprint::collect(&[receiver.interface()]))??;
    let other = sender.run(|| Fingerprint::collect(&[sender.interface()]))??;
    fingerprint.interfaces.extend(other.interfaces);
    fingerprint.complete();
    Ok(fingerprint)
}

/// Makes an ordinary user root in a user namespace of its own, which a lab needs; to be called
/// while there is one thread: unshare(2), CLONE_NEWUSER.
pub(crate) fn become_able() -> Result<()> {
    let needed = [CAP_SYS_ADMIN, CAP_NET_ADMIN];
    let rights = Rights::own();
    if needed.iter().all(|one| rights.has(*one)) {
        return Ok(());
    }
    let made = namespace::become_root_in_user_namespace();
    // If the namespace is half made, a root that only lacked a capability has become `nobody`.
    let made = made.map_err(|refusal| match rights.is_root {
        true => anyhow!("{refusal}; {}", rights.remedy(&needed)),
        false => refusal.into(),
    });
    made.context(
        "without CAP_SYS_ADMIN and CAP_NET_ADMIN the lab needs a user namespace (sysctl \
         user.max_user_namespaces, kernel.unprivileged_userns_clone or AppArmor may forbid it)",
    )?;
    Ok(())
}

/// When it is, RFC 3339, UTC.
pub(crate) fn now() -> String {
    rfc3339(SystemTime::now())
}

/// The last second of the year 9999, which is the last that RFC 3339 can write.
const SECONDS_MAX: u64 = 253_402_300_799;

/// A time in RFC 3339, UTC. A clock that is wrong by centuries shows the first or the last second
/// that can be written.
fn rfc3339(time: SystemTime) -> String {
    let last = UNIX_EPOCH + Duration::from_secs(SECONDS_MAX);
    humantime::format_rfc3339_seconds(time.clamp(UNIX_EPOCH, last)).to_string()
}

/// The command line as it was typed, for result files.
pub(crate) fn command_line() -> String {
    let words: Vec<String> = std::env::args_os()
        .enumerate()
        .map(|(at, word)| {
            // The program's own path says something about the user and nothing about the run.
            let name = Path::new(&word).file_name().filter(|_| at == 0);
            ShellWord::new(&of_bytes(name.unwrap_or(&word).as_bytes())).to_string()
        })
        .collect();
    words.join(" ")
}

/// The kernel's release, such as `6.18.44`.
pub(crate) fn kernel_release() -> String {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
    release.map_or_else(|_| "unknown".to_owned(), |text| text.trim().to_owned())
}

/// The boot ID of this machine. It shows whether two files are from one machine.
pub(crate) fn boot_id() -> Option<String> {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    Some(id.trim().to_owned())
}

/// The machine, with all its interfaces.
pub(crate) fn of_all() -> Result<Fingerprint> {
    Ok(Fingerprint::collect(&interfaces()?)?)
}

/// The machine, with the interface that owns the address, or with all if none does.
pub(crate) fn fingerprint_at(address: IpAddr) -> Result<Fingerprint> {
    match interface_at(None, address) {
        Ok(owner) => Ok(Fingerprint::collect(&[owner])?),
        Err(_) => of_all(),
    }
}

/// The interface of that name, or otherwise the interface that owns the address.
pub(crate) fn interface_at(named: Option<&str>, address: IpAddr) -> Result<String> {
    if let Some(name) = named {
        return Ok(name.to_owned());
    }
    let index = address::interface_of(address)?;
    let link = index.map(link::find).transpose()?.flatten();
    let link = link.with_context(|| {
        format!("no interface of this host has the address {address}; name one by --interface")
    })?;
    Ok(link.name)
}

/// The counters of this host and of all its interfaces.
pub(crate) fn snapshot() -> Result<Snapshot> {
    Ok(Snapshot::take(&interfaces()?)?)
}

/// Those that can be named: a name that is no text is shown, and no call takes it.
fn interfaces() -> Result<Vec<String>> {
    let links = link::list()?.into_iter();
    let named = links.filter(|link| link::index(&link.name).is_ok_and(|index| index == link.index));
    Ok(named.map(|link| link.name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_of_any_year_is_written() {
        let at = |seconds: i64| {
            let distance = Duration::from_secs(seconds.unsigned_abs());
            rfc3339(match seconds < 0 {
                true => UNIX_EPOCH - distance,
                false => UNIX_EPOCH + distance,
            })
        };
        assert_eq!(at(784_111_777), "1994-11-06T08:49:37Z");
        for before in [-1, -86_400, -(1 << 40)] {
            assert_eq!(at(before), "1970-01-01T00:00:00Z");
        }
        let last = SECONDS_MAX as i64;
        for after in [last, last + 1, 1 << 50] {
            assert_eq!(at(after), "9999-12-31T23:59:59Z");
        }
    }
}
