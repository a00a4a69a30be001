//! `cargo xtask vm`: machines with other kernels, CPUs and network cards than this host's.
//!
//! A machine is QEMU without hardware support, with a packaged kernel of Debian. Its root is this
//! host's whole file tree, read-only under a layer in memory. So our programs, the tests and
//! everything installed here run in it unchanged.

mod apt;
mod kernel;
mod machine;
mod qemu;
mod record;
mod trial;

use anyhow::{Context, Result, bail};
use apt::Apt;
use kernel::VmKernel;
use machine::{Cards, Machines, VmMachine};
use qemu::QemuRun;
use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

const USAGE: &str = "usage: cargo xtask vm list
       cargo xtask vm fetch [MACHINE...]
       cargo xtask vm run MACHINE -- COMMAND...
       cargo xtask vm shell MACHINE
       cargo xtask vm test [MACHINE...]
       cargo xtask vm record
       cargo xtask vm install

A command runs as root, in a folder whose files stay in target/vm/MACHINE; mpps is the release build.
`fetch` gets the kernels and says what else it takes; `install`, as root, has apt install that.
`record` keeps what the last tests printed below docs/results, with the ladders of machines that differ
in their CPUs, and writes the tables made from it.";

/// How long a command may take. Emulation is slow, but no user waits for longer.
const BOUND: Duration = Duration::from_secs(20 * 60);

/// Runs the command in the words after `vm`.
pub(crate) fn run(root: &Path, words: &[String]) -> Result<ExitCode> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let machines = Machines::read()?;
    match words.as_slice() {
        ["list"] => list(&machines),
        ["fetch", names @ ..] => {
            let hall = Hall::new(root, &machines)?;
            for machine in named(&machines, names)? {
                hall.kernel(machine)?;
            }
            if let Some(obstacle) = hall.obstacle() {
                bail!("{obstacle}");
            }
        }
        ["run", name, "--", command @ ..] if !command.is_empty() => {
            let hall = Hall::new(root, &machines)?;
            let status = hall.run(machines.find(name)?, command)?;
            return Ok(ExitCode::from(u8::try_from(status).unwrap_or(2)));
        }
        ["shell", name] => {
            let hall = Hall::new(root, &machines)?;
            let machine = machines.find(name)?;
            let kernel = hall.ready(machine)?;
            hall.start(machine, &kernel).shell()?;
        }
        ["record"] => record::run(root, &machines)?,
        ["install"] => {
            let hall = Hall::new(root, &machines)?;
            if hall.obstacle().is_some() {
                hall.apt.install(&qemu::PACKAGES)?;
            }
        }
        ["test", names @ ..] => {
            let hall = Hall::new(root, &machines)?;
            return trial::run(&hall, &named(&machines, names)?);
        }
        _ => {
            eprintln!("{USAGE}");
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(machines: &Machines) {
    println!("{:<14} {:<8} {:<30} cards", "machine", "kernel", "CPUs");
    for machine in machines.all() {
        let VmMachine {
            name, kernel, smp, ..
        } = machine;
        let cards = machine.cards.map_or("veth", Cards::driver);
        println!("{name:<14} {kernel:<8} {smp:<30} {cards}");
    }
}

/// The machines of these names; all, if there is no name.
fn named<'a>(machines: &'a Machines, names: &[&str]) -> Result<Vec<&'a VmMachine>> {
    if names.is_empty() {
        return Ok(machines.all().iter().collect());
    }
    names.iter().map(|name| machines.find(name)).collect()
}

/// The place where machines are prepared and run.
#[derive(Debug)]
struct Hall<'a> {
    root: &'a Path,
    machines: &'a Machines,
    cache: PathBuf,
    apt: Apt,
}

impl<'a> Hall<'a> {
    fn new(root: &'a Path, machines: &'a Machines) -> Result<Self> {
        // The cache outlives the checkout: a fresh clone need not fetch half a gigabyte again.
        let folder = |name: &str| env::var_os(name).map(PathBuf::from);
        let base = folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
        let cache = base
            .context("neither XDG_CACHE_HOME nor HOME is set")?
            .join("mpps-vm");
        let mut suites = machines.suites();
        suites.push(apt::BACKPORTS);
        let apt = Apt::new(&cache.join("apt"), &suites)?;
        Ok(Self {
            root,
            machines,
            cache,
            apt,
        })
    }

    fn kernel(&self, machine: &VmMachine) -> Result<VmKernel> {
        VmKernel::fetch(&self.cache, &self.apt, self.machines.source(machine))
    }

    fn obstacle(&self) -> Option<String> {
        qemu::obstacle()
    }

    /// A machine's kernel, if it can be started at all.
    fn ready(&self, machine: &VmMachine) -> Result<VmKernel> {
        if let Some(obstacle) = self.obstacle() {
            bail!("{obstacle}");
        }
        self.kernel(machine)
    }

    fn start<'b>(&self, machine: &'b VmMachine, kernel: &'b VmKernel) -> QemuRun<'b> {
        let folder = self.root.join("target/vm").join(&machine.name);
        QemuRun {
            machine,
            kernel,
            folder,
        }
    }

    /// The file with the output of a machine's tests.
    fn output(&self, machine: &VmMachine) -> PathBuf {
        self.root
            .join("target/vm")
            .join(format!("{}.txt", machine.name))
    }

    fn run(&self, machine: &VmMachine, command: &[&str]) -> Result<i32> {
        let kernel = self.ready(machine)?;
        self.build(&["build", "--release"])?;
        // One word is a command of the shell, as for ssh(1); more are a program and its arguments.
        let job = match command {
            [line] => (*line).to_owned(),
            words => words
                .iter()
                .map(|word| quoted(word))
                .collect::<Vec<_>>()
                .join(" "),
        };
        self.start(machine, &kernel)
            .job(&job, Stdio::inherit(), BOUND)
    }

    /// Runs cargo. Returns its standard output.
    fn build(&self, arguments: &[&str]) -> Result<String> {
        let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        // A machine looks for the programs there, whatever the user has set.
        cargo.env("CARGO_TARGET_DIR", self.root.join("target"));
        run_quietly(cargo.args(arguments).arg("--quiet").current_dir(self.root))
    }
}

/// A word that the shell takes as it is.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Runs a program to its end. Returns its standard output, or an error with its standard error.
pub(crate) fn run_quietly(command: &mut Command) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .with_context(|| format!("{name} is needed"))?;
    if !output.status.success() {
        bail!("{name}: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_stays_one_word() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
    }
}
