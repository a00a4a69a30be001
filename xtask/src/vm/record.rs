//! `cargo xtask vm record`: keeps the output of the last tests below docs/results.

use super::machine::{Cards, Machines, VmMachine};
use super::run_quietly;
use crate::{docs, seen};
use anyhow::{Result, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The name of the folder with the ladders, after its date.
const LADDERS: &str = "topologies";

/// Copies the ladders of machines that differ in their CPUs, as far as they ran, and the outputs of all
/// machines. Writes the tables made from these.
pub(super) fn run(root: &Path, machines: &Machines) -> Result<()> {
    let path = |file: String| root.join("target/vm").join(file);
    let ladders = machines.all().iter().flat_map(|machine| {
        let files = ["lab.txt", "lab.json"].map(|file| {
            let source = path(format!("{}/{file}", machine.name));
            (machine, format!("{}-{file}", machine.name), source)
        });
        let is_ladder = machine.only.iter().any(|trial| trial == "mpps lab");
        files
            .into_iter()
            .filter(move |(.., source)| is_ladder && source.exists())
    });
    keep(root, LADDERS, "The ladder on other CPUs", ladders)?;
    let outputs = machines.all().iter().map(|machine| {
        let file = format!("{}.txt", machine.name);
        (machine, file.clone(), path(file))
    });
    keep(
        root,
        seen::FOLDER,
        "Other kernels, CPUs and network cards",
        outputs,
    )?;
    docs::run(root, &[]).map(drop)
}

/// Copies files of machines, given with their new names, into a folder of today with its page.
fn keep<'a>(
    root: &Path,
    name: &str,
    heading: &str,
    files: impl Iterator<Item = (&'a VmMachine, String, PathBuf)>,
) -> Result<()> {
    let day = run_quietly(Command::new("date").args(["--utc", "+%F"]))?;
    let folder = format!("docs/results/{}-{name}", day.trim());
    let host = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut page = format!(
        "# {heading}, {day}\n\
         Kernel: of each machine in the first lines of its file; of the host Linux {host}\n\
         CPU: QEMU in software (`-accel tcg`); rates mean nothing here\n\n\
         Command: `cargo xtask vm test`\n\n"
    );
    fs::create_dir_all(root.join(&folder))?;
    for (machine, file, source) in files {
        if fs::copy(&source, root.join(&folder).join(&file)).is_err() {
            bail!("{} is missing: run cargo xtask vm test", source.display());
        }
        let (smp, cards) = (&machine.smp, machine.cards.map_or("veth", Cards::driver));
        page.push_str(&format!("* [{file}]({file}): `-smp {smp}`, {cards}\n"));
    }
    fs::write(root.join(&folder).join("README.md"), page)?;
    println!("vm: wrote {folder}");
    Ok(())
}
