//! `cargo xtask vm record`: keeps the output of the last tests below docs/results.

use super::machine::Machines;
use super::run_quietly;
use crate::{docs, seen};
use anyhow::{Result, bail};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Copies the outputs into a folder of today, with its page. Writes the tables made from them.
pub(super) fn run(root: &Path, machines: &Machines) -> Result<()> {
    let day = run_quietly(Command::new("date").args(["--utc", "+%F"]))?;
    let folder = format!("docs/results/{}-{}", day.trim(), seen::FOLDER);
    let host = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    let mut page = format!(
        "# Other kernels, CPUs and network cards, {day}\n\
         Kernel: of each machine in the first line of its file; of the host Linux {host}\n\
         CPU: QEMU in software (`-accel tcg`); rates mean nothing here\n\n\
         Command: `cargo xtask vm test`\n\n"
    );
    fs::create_dir_all(root.join(&folder))?;
    for machine in machines.all() {
        let file = format!("{}.txt", machine.name);
        let source = root.join("target/vm").join(&file);
        if fs::copy(&source, root.join(&folder).join(&file)).is_err() {
            bail!("{} is missing: run cargo xtask vm test", source.display());
        }
        let (smp, cards) = (
            &machine.smp,
            machine.cards.map_or("veth", |cards| cards.driver()),
        );
        page.push_str(&format!("* [{file}]({file}): `-smp {smp}`, {cards}\n"));
    }
    fs::write(root.join(&folder).join("README.md"), page)?;
    println!("vm: wrote {folder}");
    docs::run(root, &[]).map(drop)
}
