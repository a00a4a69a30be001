//! The servers to measure, and how the lab starts and stops each.
//!
//! A server of another project runs as its package sets it up: with the configuration in `/etc`, on
//! port 80. It writes to file systems in memory over `/run`, `/var/log` and `/var/www`. Only this
//! server sees them. They vanish with it, and the server ends with the lab.

mod ours;
mod packaged;
mod running;

pub(super) use running::RunningServer;

use super::cpu_split::one_cpu;
use mpps_http::{Switch, Switches};
use std::borrow::Cow;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A server that is measured.
#[derive(Debug)]
pub(crate) struct MeasuredServer {
    /// Its name in the flag, the file and the report.
    pub(crate) name: &'static str,
    /// The package to install; none for our own server.
    package: Option<&'static str>,
    /// The file that is executed.
    program: &'static str,
    /// The argument that makes it print its version.
    version: &'static str,
    /// How it is set up, and what differs from its package, a sentence each.
    pub(crate) set_up: &'static [&'static str],
    /// Why a switch does not apply to it, if it does not.
    obstacle: fn(Switch) -> Option<Cow<'static, str>>,
    /// The command that becomes the server.
    command: fn(&Setup<'_>) -> Command,
    /// One and the same process can serve every body.
    serves_files: bool,
}

/// All settings of a server.
#[derive(Debug)]
pub(super) struct Setup<'a> {
    pub(super) program: &'a Path,
    pub(super) address: SocketAddr,
    pub(super) switches: Switches,
    pub(super) body_bytes: usize,
    /// A worker for each.
    pub(super) cpus: &'a [usize],
    /// Sizes of the files, in bytes, for a server that serves files.
    pub(super) bodies: &'a [usize],
}

/// Every server; ours first.
pub(crate) static SERVERS: &[MeasuredServer] = &[
    ours::EPOLL,
    ours::IO_URING,
    ours::FILES,
    packaged::LIGHTTPD,
    packaged::NGINX,
    packaged::APACHE_EVENT,
    packaged::APACHE_PREFORK,
];

impl MeasuredServer {
    /// Whether it is this program.
    pub(crate) fn is_ours(&self) -> bool {
        self.package.is_none() && !self.is_single()
    }

    /// Whether it is measured in one state only.
    pub(crate) fn is_single(&self) -> bool {
        self.name == ours::FILES.name
    }

    /// All switches that apply to it on this number of CPUs.
    pub(crate) fn switches(&self, cpus: usize) -> Switches {
        let own = Switch::ALL.into_iter();
        let own = own.filter(|switch| self.obstacle(*switch, cpus).is_none());
        Switches::of(&own.collect::<Vec<_>>())
    }

    /// Why a switch does not apply to it on this number of CPUs, if it does not.
    pub(crate) fn obstacle(&self, switch: Switch, cpus: usize) -> Option<Cow<'static, str>> {
        let few = (switch == Switch::Affinity && cpus < 2).then(|| one_cpu().into());
        few.or_else(|| (self.obstacle)(switch))
    }

    /// Its executable file, or what to do to have it.
    pub(crate) fn find(&self) -> Result<PathBuf, String> {
        let Some(package) = self.package else {
            return std::env::current_exe().map_err(|error| format!("/proc/self/exe: {error}"));
        };
        let path = Path::new(self.program);
        if path.exists() {
            return Ok(path.to_owned());
        }
        Err(format!(
            "{} is not installed: apt-get install {package} (its own service need not run)",
            self.program
        ))
    }

    /// The version that it reports, in one line.
    pub(crate) fn version(&self) -> Option<String> {
        let told = Command::new(self.find().ok()?)
            .arg(self.version)
            .output()
            .ok()?;
        // nginx prints its version on standard error.
        let text = if told.stdout.is_empty() {
            told.stderr
        } else {
            told.stdout
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        text.lines().next().map(|line| line.trim().to_owned())
    }

    /// Whether a process started for one setting can go on to serve another.
    pub(super) fn is_alike(&self, a: (Switches, usize), b: (Switches, usize)) -> bool {
        // Moderation is the queue's and not the server's.
        let own = |switches: Switches| switches.without(Switch::Moderation);
        own(a.0) == own(b.0) && (self.serves_files || a.1 == b.1)
    }
}

/// The path of a body in an address.
pub(super) fn body_path(bytes: usize) -> String {
    format!("/body-{bytes}.bin")
}

/// A shell that makes places in memory, puts the bodies into one of them, goes on with `steps`,
/// and becomes the server in the last of them.
fn shell(setup: &Setup<'_>, places: &[&str], root: &str, steps: &str) -> Command {
    let mut script = String::from("set -e\numask 022\n");
    for place in places {
        script.push_str(&format!("mount -t tmpfs -o mode=0755 mpps {place}\n"));
    }
    script.push_str(&format!("mkdir -p {root}\n"));
    for bytes in setup.bodies {
        let path = body_path(*bytes);
        script.push_str(&format!("head -c {bytes} /dev/zero > {root}{path}\n"));
    }
    script.push_str(steps);
    let mut command = Command::new("/bin/sh");
    // Where the user is need not be there once places are hidden, and lighttpd looks.
    command.arg("-c").arg(script).arg("mpps").current_dir("/");
    command.arg(setup.program);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_has_a_name_of_its_own_and_a_word_on_its_set_up() {
        for (at, server) in SERVERS.iter().enumerate() {
            assert!(SERVERS[..at].iter().all(|other| other.name != server.name));
            assert!(!server.set_up.is_empty(), "{}", server.name);
        }
    }

    #[test]
    fn every_command_names_its_program() {
        for server in SERVERS {
            let setup = Setup {
                program: Path::new("/bin/program"),
                address: ([192, 168, 254, 1], 80).into(),
                switches: Switches::NONE,
                body_bytes: 1024,
                cpus: &[1],
                bodies: &[1024],
            };
            let command = format!("{:?}", (server.command)(&setup));
            assert!(command.contains("/bin/program"), "{command}");
        }
    }
}
