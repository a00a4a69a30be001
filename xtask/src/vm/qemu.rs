//! A running machine, under QEMU without hardware support. It is slow, and the same everywhere.

use super::kernel::VmKernel;
use super::machine::{Cards, VmMachine};
use super::quoted;
use anyhow::{Context, Result, bail};
use std::fmt;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// QEMU's program.
const QEMU: &str = "qemu-system-x86_64";
/// The packages of QEMU.
pub(super) const PACKAGES: [&str; 3] = ["qemu-system-x86", "seabios", "ipxe-qemu"];
/// The script that a machine runs after init.
const START: &str = include_str!("../../vm/start");
/// Enough for twelve CPUs' network buffers and a ring of each backend.
const MEMORY_MIB: u32 = 2048;
/// Nothing in a machine needs the real time, and nothing may wait for a user.
const KERNEL_OPTIONS: &str = "console=ttyS0 quiet panic=-1 mitigations=off nokaslr nowatchdog \
    tsc=reliable clocksource=tsc no_timer_check rcupdate.rcu_cpu_stall_suppress=1 net.ifnames=0";
/// The time between two checks whether a machine has ended.
const LOOK: Duration = Duration::from_millis(100);
/// Multi-queue taps on a bridge, in a network namespace that ends with QEMU. QEMU dies with us.
const BRIDGE: &str = "ip link add name br0 type bridge forward_delay 0 mcast_snooping 0 && \
    ip link set br0 up || exit; for tap in tap0 tap1; do \
    ip tuntap add $tap mode tap multi_queue && ip link set $tap master br0 txqueuelen 10000 up || exit; done; \
    exec \"$@\"";

/// A machine that ended before its job did.
#[derive(Debug)]
pub(super) struct Early {
    how: ExitStatus,
    /// The last words of QEMU and of the machine's console.
    said: String,
}

impl Early {
    /// True if QEMU itself broke, and not the machine: a signal ended it. QEMU 10 sometimes breaks
    /// when a device is set up while two CPUs run: `iotlb_to_section: Assertion ... failed`.
    pub(super) fn is_of_qemu(&self) -> bool {
        self.how.signal().is_some()
    }
}

impl fmt::Display for Early {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { how, said } = self;
        write!(f, "the machine ended before its job did, {how}: {said}")
    }
}

impl std::error::Error for Early {}

/// A machine about to be started.
#[derive(Debug)]
pub(super) struct QemuRun<'a> {
    pub(super) machine: &'a VmMachine,
    pub(super) kernel: &'a VmKernel,
    /// The folder that the machine sees as /run/vm.
    pub(super) folder: PathBuf,
}

impl QemuRun<'_> {
    /// Runs a shell command in it, which prints to `output`. Returns the exit status.
    pub(super) fn job(&self, job: &str, output: Stdio, bound: Duration) -> Result<i32> {
        self.prepare()?;
        fs::write(self.folder.join("job"), job)?;
        let console = format!("file:{}", self.folder.join("console").display());
        let mut command = self.command(&["-serial", &console, "-serial", "stdio"])?;
        command.stdin(Stdio::null()).stdout(output);
        command.stderr(File::create(self.folder.join("qemu"))?);
        let mut child = command.spawn().context("unshare")?;
        let end = Instant::now() + bound;
        let how = loop {
            if let Some(how) = child.try_wait()? {
                break how;
            }
            if Instant::now() > end {
                child.kill()?;
                child.wait()?;
                bail!("the machine did not end within {} s", bound.as_secs());
            }
            thread::sleep(LOOK);
        };
        let status = fs::read_to_string(self.folder.join("status"));
        let status = status.ok().and_then(|status| status.trim().parse().ok());
        status.ok_or_else(|| {
            let console = fs::read(self.folder.join("console")).unwrap_or_default();
            let qemu = fs::read_to_string(self.folder.join("qemu")).unwrap_or_default();
            let console = String::from_utf8_lossy(&console);
            let from = console
                .char_indices()
                .rev()
                .nth(1500)
                .map_or(0, |(at, _)| at);
            let said = format!("{qemu}{}", &console[from..]);
            Early { how, said }.into()
        })
    }

    /// Opens a shell in it, on this terminal.
    pub(super) fn shell(&self) -> Result<i32> {
        self.prepare()?;
        let mut command = self.command(&["-serial", "mon:stdio", "-serial", "null"])?;
        Ok(command.status().context("unshare")?.code().unwrap_or(2))
    }

    fn prepare(&self) -> Result<()> {
        let _ = fs::remove_dir_all(&self.folder);
        fs::create_dir_all(&self.folder)?;
        fs::write(self.folder.join("start"), START)?;
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/..")).canonicalize()?;
        let environment = format!(
            "export MPPS_MACHINE={} MPPS_MODULES={} MPPS_EXAMPLES={} PATH={}:\"$PATH\"\n",
            quoted(&self.machine.name),
            quoted(&self.kernel.modules.display().to_string()),
            quoted(&root.join("target/release/examples").display().to_string()),
            quoted(&root.join("target/release").display().to_string())
        );
        Ok(fs::write(self.folder.join("environment"), environment)?)
    }

    /// unshare(1) gives it a network without a way out. setpriv(1) ends it when we end.
    fn command(&self, serial: &[&str]) -> Result<Command> {
        let (machine, kernel) = (self.machine, self.kernel);
        let is_virtio = matches!(machine.cards, Some(Cards::Virtio | Cards::VirtioIommu));
        let mut command = Command::new("unshare");
        command.arg("--net");
        // A user namespace gives an ordinary user the rights to make the network.
        if fs::metadata("/proc/self")?.uid() != 0 {
            command.args(["--user", "--map-root-user"]);
        }
        command.args(["sh", "-c"]);
        command.args([if is_virtio { BRIDGE } else { "exec \"$@\"" }, "sh"]);
        command.args(["setpriv", "--pdeathsig", "KILL", "--", QEMU]);
        command.args([
            "-M",
            "q35",
            "-accel",
            "tcg,thread=multi",
            "-cpu",
            "max,la57=off",
        ]);
        command.args(["-nodefaults", "-nographic", "-no-reboot"]);
        command.args(serial);
        command
            .arg("-m")
            .arg(format!("{MEMORY_MIB}M"))
            .args(["-smp", &machine.smp]);
        command.args(nodes(machine)?).args(cards(machine.cards));
        command
            .arg("-virtfs")
            .arg("local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap");
        command.arg("-virtfs").arg(format!(
            "local,path={},mount_tag=out,security_model=none",
            // A comma ends an option of QEMU; two commas are one.
            self.folder.display().to_string().replace(',', ",,")
        ));
        command.arg("-kernel").arg(&kernel.image);
        command.arg("-initrd").arg(&kernel.initramfs);
        command.args(["-append", KERNEL_OPTIONS]);
        Ok(command)
    }
}

/// NUMA nodes with equal shares of the CPUs and the memory.
fn nodes(machine: &VmMachine) -> Result<Vec<String>> {
    let count = machine.nodes;
    if count == 1 {
        return Ok(Vec::new());
    }
    let cpus = machine
        .smp
        .split(',')
        .next()
        .and_then(|cpus| cpus.parse::<u32>().ok());
    let each = cpus.context("smp begins with the number of CPUs")? / count;
    let mut arguments = Vec::new();
    for node in 0..count {
        let (memory, first) = (MEMORY_MIB / count, node * each);
        arguments.extend([
            "-object".to_owned(),
            format!("memory-backend-ram,id=m{node},size={memory}M"),
            "-numa".to_owned(),
            format!("node,cpus={first}-{},memdev=m{node}", first + each - 1),
        ]);
    }
    Ok(arguments)
}

/// Two cards, joined by a hub, or by a bridge of two taps with as many queues as the cards.
fn cards(cards: Option<Cards>) -> Vec<String> {
    let Some(cards) = cards else {
        return Vec::new();
    };
    let mut arguments = Vec::new();
    let mut option = |name: &str, value: String| {
        arguments.extend([name.to_owned(), value]);
    };
    for card in 0..2 {
        let mac = format!("mac=52:54:00:00:00:0{card}");
        let driver = match cards {
            Cards::Igb => "igb",
            Cards::E1000e => "e1000e",
            Cards::Vmxnet3 => "vmxnet3",
            Cards::Rtl8139 => "rtl8139",
            // Not hash=on: with it, QEMU 10.0.2 lost all packets to some queues in three of three
            // starts. Without it none was lost.
            Cards::Virtio | Cards::VirtioIommu => {
                let iommu = if cards == Cards::Virtio { "off" } else { "on" };
                option(
                    "-netdev",
                    format!(
                        "tap,id=n{card},ifname=tap{card},script=no,downscript=no,queues=4,vhost=off"
                    ),
                );
                option(
                    "-device",
                    format!(
                        "virtio-net-pci,netdev=n{card},{mac},mq=on,vectors=10,rss=on,\
                         iommu_platform={iommu},disable-legacy=on"
                    ),
                );
                continue;
            }
        };
        // On one bus the two cards would take each other's function.
        option("-netdev", format!("hubport,id=n{card},hubid=0"));
        option(
            "-device",
            format!("pcie-root-port,id=port{card},chassis={card}"),
        );
        option(
            "-device",
            format!("{driver},bus=port{card},netdev=n{card},{mac}"),
        );
    }
    arguments
}

/// The reason why machines cannot be started here, and how to fix it.
pub(super) fn obstacle() -> Option<String> {
    let output = Command::new(QEMU).args(["-device", "help"]).output();
    let devices = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let what = match devices {
        Err(_) => format!("there is no {QEMU}"),
        Ok(devices) if !devices.contains("\"igb\"") => format!("{QEMU} is older than 8.0"),
        Ok(_) => return None,
    };
    Some(format!("{what}: cargo xtask vm install, as root"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vm::machine::Machines;

    #[test]
    fn a_signal_is_of_qemu_and_an_exit_of_the_machine() {
        let said = String::new();
        let early = |wait| Early {
            how: ExitStatus::from_raw(wait),
            said: said.clone(),
        };
        // In a status of wait(2), the signal is in the low bits, the exit status above them.
        assert!(early(6).is_of_qemu());
        assert!(!early(1 << 8).is_of_qemu());
        assert!(!early(0).is_of_qemu());
        assert!(early(6).to_string().contains("signal: 6"));
    }

    #[test]
    fn cpus_are_split_over_nodes() {
        let machines = Machines::read().unwrap();
        let two = nodes(machines.find("2x2x2").unwrap()).unwrap();
        assert_eq!(two.len(), 8);
        assert_eq!(two[3], "node,cpus=0-3,memdev=m0");
        assert_eq!(two[7], "node,cpus=4-7,memdev=m1");
        assert!(nodes(machines.find("6.1").unwrap()).unwrap().is_empty());
    }

    #[test]
    fn cards_come_in_pairs() {
        let count = |kind| {
            cards(Some(kind))
                .iter()
                .filter(|word| word.starts_with("virtio-net") || word.starts_with("igb,"))
                .count()
        };
        assert_eq!(count(Cards::VirtioIommu), 2);
        assert_eq!(count(Cards::Igb), 2);
        assert!(cards(None).is_empty());
    }
}
