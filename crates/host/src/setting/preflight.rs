//! Predicts the effects of AF_XDP on an interface before it is used.
//!
//! It is a pure function of [facts](PathFacts) read from the host and of data about the driver. It
//! attaches no program and needs no right.

mod drivers;
mod settings;

#[cfg(test)]
mod tests;

pub use settings::Settings;

use std::collections::BTreeSet;
use std::fmt;

use mpps_os::capability::CAP_IPC_LOCK;
use mpps_os::text::{Foreign, ShellWord};
use schemars::JsonSchema;
use serde::Serialize;

use crate::CpuList;
use crate::facts::receive_path::{self, ETHERNET_MTU_BYTES, PathFacts, ReceivePath, Usable};

/// Frames of a queue without `--ring`.
const FRAMES: u64 = 4096;
/// Those of 2048 bytes hold packets up to this MTU, with Ethernet's header, two VLAN tags and
/// XDP_PACKET_HEADROOM; those of longer ones have a page.
const SHORT_FRAME_MTU_BYTES: u32 = 2048 - 22 - 256;

/// Whether something stands in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Obstacle {
    /// It is as it should be.
    Fine,
    /// It works, and something comes with it, or is slower than it could be.
    Note,
    /// Unknown until it is tried.
    Unknown,
    /// AF_XDP will be refused, or nothing arrives by it.
    Refused,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Expectation {
    /// The subject of the check, such as `MTU`.
    pub check: &'static str,
    /// Whether it stands in the way.
    pub state: Obstacle,
    /// The finding.
    pub finding: String,
    /// How to fix it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Where Linux has what is said of the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<&'static str>,
}

impl Expectation {
    fn new(check: &'static str, state: Obstacle, finding: impl Into<String>) -> Self {
        Self {
            check,
            state,
            finding: finding.into(),
            remedy: None,
            source: None,
        }
    }

    fn fine(check: &'static str, finding: impl Into<String>) -> Self {
        Self::new(check, Obstacle::Fine, finding)
    }

    fn being(self, state: Obstacle) -> Self {
        Self { state, ..self }
    }

    fn saying(self, finding: String) -> Self {
        Self { finding, ..self }
    }

    fn mended_by(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..self
        }
    }
}

/// Everything that decides what AF_XDP will be on the interface.
pub fn of_af_xdp(facts: &PathFacts) -> Vec<Expectation> {
    let rows = [
        kernel,
        link,
        other_program,
        mode,
        zero_copy,
        bounce,
        mtu,
        merging,
        functions,
        channels,
        queues,
        ring,
        memory,
        besides,
        sets,
    ];
    let rows = rows.iter().map(|row| row(facts));
    rows.map(|row| Expectation {
        finding: Foreign(&row.finding).to_string(),
        ..row
    })
    .collect()
}

/// The verdict on a receive path, as a row.
fn verdict(
    check: &'static str,
    path: ReceivePath,
    otherwise: Obstacle,
    facts: &PathFacts,
) -> Expectation {
    let verdict = path.assess(facts);
    let state = match verdict.usable {
        Usable::Yes => Obstacle::Fine,
        Usable::Unknown => Obstacle::Unknown,
        Usable::No => otherwise,
    };
    let remedy = verdict.remedy;
    Expectation {
        remedy,
        ..Expectation::new(check, state, verdict.why)
    }
}

/// The known behaviour of the driver: its value, and a row.
fn habit(
    check: &'static str,
    topic: &str,
    facts: &PathFacts,
) -> Option<(&'static str, Expectation)> {
    let driver = &facts.nic.driver;
    let habit = drivers::of(driver, topic)?;
    let finding = format!("driver {driver}: {}", habit.text);
    let row = Expectation {
        source: Some(habit.source),
        ..Expectation::new(check, Obstacle::Note, finding)
    };
    Some((habit.value, row))
}

/// A row of what the driver refuses; where it is not asked for native XDP by name, generic XDP may do.
fn refused(row: Expectation, topic: &str, facts: &PathFacts) -> Expectation {
    let habit = drivers::of(&facts.nic.driver, topic);
    if habit.is_some_and(|habit| habit.falls_back) {
        let finding = format!(
            "{}; without --xdp native it is generic XDP then",
            row.finding
        );
        return row.saying(finding);
    }
    row.being(Obstacle::Refused)
}

/// The row for a driver that is not in the file.
fn unheard_of(check: &'static str, facts: &PathFacts, what: &str) -> Expectation {
    let driver = match facts.nic.driver.as_str() {
        "" => "an interface without a driver",
        driver => driver,
    };
    let finding = format!("nothing is known of {driver}: {what}");
    Expectation::new(check, Obstacle::Unknown, finding)
}

fn kernel(facts: &PathFacts) -> Expectation {
    // An obstacle for generic XDP is an obstacle for all. The link has a row of its own.
    let mut up = facts.clone();
    up.nic.up = true;
    let (check, generic) = ("kernel, rights", receive_path::AF_XDP_GENERIC);
    let row = verdict(check, generic, Obstacle::Refused, &up);
    match row.state {
        Obstacle::Fine => row.saying(format!(
            "Linux {}, and this process has the rights",
            facts.host.kernel
        )),
        _ => row,
    }
}

fn link(facts: &PathFacts) -> Expectation {
    let (check, name) = ("link", &facts.nic.name);
    match (facts.nic.up, facts.nic.carrier) {
        (true, true) => Expectation::fine(check, "up, with a carrier"),
        (false, _) => Expectation::new(check, Obstacle::Refused, format!("{name} is down"))
            .mended_by(format!("ip link set dev {} up", ShellWord::new(name))),
        (true, false) => {
            Expectation::new(check, Obstacle::Refused, format!("{name} has no carrier"))
                .mended_by("plug it in, or set its other end up")
        }
    }
}

fn other_program(facts: &PathFacts) -> Expectation {
    let (check, name) = ("other XDP program", &facts.nic.name);
    let place = match facts.nic.native_xdp {
        None => return Expectation::fine(check, "none is attached"),
        Some(true) => "in its driver",
        Some(false) => "generic",
    };
    let finding = format!("one is attached, {place}: an interface has one, and another is refused");
    let remedy = format!(
        "end the program that has it: `bpftool net show dev {}` names it",
        ShellWord::new(name)
    );
    Expectation::new(check, Obstacle::Refused, finding).mended_by(remedy)
}

/// The verdicts for root, with the link up and a usual MTU: what is missing of that has rows of its own.
fn bare(facts: &PathFacts) -> PathFacts {
    let mut facts = facts.clone();
    facts.nic.up = true;
    facts.nic.mtu_bytes = facts.nic.mtu_bytes.min(ETHERNET_MTU_BYTES);
    facts.host.capabilities = u64::MAX;
    facts.host.initial_user_namespace = true;
    facts
}

fn mode(facts: &PathFacts) -> Expectation {
    let (check, native) = ("native XDP", receive_path::AF_XDP_NATIVE);
    let row = verdict(check, native, Obstacle::Note, &bare(facts));
    // Some drivers do not offer what they would refuse as they are set now.
    match row.state == Obstacle::Note && can_be_native(facts) {
        true => Expectation {
            state: Obstacle::Unknown,
            finding: format!("{}: not as it is set now, see below", row.finding),
            ..row
        },
        false => row,
    }
}

fn zero_copy(facts: &PathFacts) -> Expectation {
    let (check, path) = ("zero-copy", receive_path::AF_XDP_ZERO_COPY);
    let row = verdict(check, path, Obstacle::Note, &bare(facts));
    match habit(check, "zero_copy", facts).filter(|_| row.state == Obstacle::Fine) {
        Some((_, habit)) => habit.being(Obstacle::Unknown),
        None => row,
    }
}

/// The effect on the link, and on the host behind it.
fn bounce(facts: &PathFacts) -> Expectation {
    let (check, nic) = ("link bounce", &facts.nic);
    if !can_be_native(facts) {
        let finding = "a generic program leaves the driver alone";
        return Expectation::fine(check, finding);
    }
    let row = match habit(check, "link", facts) {
        Some(("same", row)) => {
            return row.being(Obstacle::Fine);
        }
        Some(("other", row)) => row.being(Obstacle::Unknown),
        Some((_, row)) => row,
        None => {
            let remedy = format!(
                "mpps backends --try {} shows it, and may cause it",
                ShellWord::operand(&nic.name)
            );
            unheard_of(check, facts, "the link may go down for seconds").mended_by(remedy)
        }
    };
    match nic.default_route {
        true => {
            let finding = format!("{}; the default route goes by it", row.finding);
            let remedy = "have another way into this host, such as a console";
            row.saying(finding).mended_by(remedy)
        }
        false => row,
    }
}

fn mtu(facts: &PathFacts) -> Expectation {
    let nic = &facts.nic;
    let (mtu, check) = (nic.mtu_bytes, "MTU");
    if mtu <= ETHERNET_MTU_BYTES || !can_be_native(facts) {
        return Expectation::fine(check, format!("{mtu}"));
    }
    let shorter = receive_path::shorter_packets(nic);
    let Some((limit, row)) = habit(check, "mtu", facts) else {
        let what = format!("{mtu} may be more than it takes");
        return unheard_of(check, facts, &what).mended_by(shorter);
    };
    let finding = format!(
        "{mtu}, of at most {limit} for packets in one buffer; {}",
        row.finding
    );
    let row = row.saying(finding);
    match limit.parse::<u32>() {
        Ok(limit) if mtu <= limit => row.being(Obstacle::Fine),
        // Whether it can depends on more than a number.
        _ if nic.xdp("rx-sg") => row.being(Obstacle::Unknown).mended_by(shorter),
        _ => refused(row, "mtu", facts).mended_by(shorter),
    }
}

fn merging(facts: &PathFacts) -> Expectation {
    let (check, nic) = ("merging by the card", &facts.nic);
    if nic.merging.is_empty() {
        return Expectation::fine(check, "off");
    }
    if !can_be_native(facts) {
        let finding = format!(
            "on: {}; the kernel switches it off for generic XDP, and leaves it off",
            nic.merging.join(", ")
        );
        return Expectation {
            source: Some("net/core/dev.c generic_xdp_install"),
            ..Expectation::new(check, Obstacle::Note, finding)
        };
    }
    let off: Vec<String> = nic
        .merging
        .iter()
        .map(|name| format!("{name} off"))
        .collect();
    let row = match habit(check, "merging", facts) {
        Some(("refuse", row)) => refused(row, "merging", facts),
        Some((_, row)) => row,
        None => unheard_of(check, facts, "some drivers refuse XDP with it"),
    };
    let finding = format!("on: {}; {}", nic.merging.join(", "), row.finding);
    let remedy = format!("ethtool -K {} {}", ShellWord::new(&nic.name), off.join(" "));
    row.saying(finding).mended_by(remedy)
}

fn functions(facts: &PathFacts) -> Expectation {
    let (check, nic) = ("virtual functions", &facts.nic);
    let now = nic.virtual_functions.map_or(0, |functions| functions.now);
    if now == 0 {
        return Expectation::fine(check, "none");
    }
    match habit(check, "functions", facts).filter(|_| can_be_native(facts)) {
        Some((_, row)) => {
            let finding = format!("{now}; {}", row.finding);
            let remedy = format!(
                "echo 0 > /sys/class/net/{}/device/sriov_numvfs",
                ShellWord::new(&nic.name)
            );
            refused(row.saying(finding), "functions", facts).mended_by(remedy)
        }
        None => Expectation::new(
            check,
            Obstacle::Note,
            format!("{now}: what goes to them does not pass here"),
        ),
    }
}

/// How many of `most` channels an interface may use so that its driver accepts AF_XDP.
pub(crate) fn channels_for_af_xdp(driver: &str, most: u32) -> u32 {
    match drivers::of(driver, "channels").map(|habit| habit.value) {
        Some("half" | "half_each") => most / 2,
        _ => most,
    }
}

fn channels(facts: &PathFacts) -> Expectation {
    let (check, nic) = ("channels", &facts.nic);
    let (now, most) = (nic.rx_queues, nic.rx_queues_max);
    let words = format!("{now} of at most {most} receive");
    let Some((rule, row)) = habit(check, "channels", facts).filter(|_| can_be_native(facts)) else {
        return Expectation::fine(check, words);
    };
    let finding = format!("{words}; {}", row.finding);
    let row = row.saying(finding);
    let fewer = most / 2;
    let is_too_many = now > fewer;
    match rule {
        "half" if !is_too_many => row.being(Obstacle::Fine),
        "half" | "half_each" if is_too_many => {
            let row = refused(row, "channels", facts);
            let how = match rule {
                "half" => format!("combined {fewer}"),
                _ => format!("rx {fewer} tx {fewer}"),
            };
            match fewer {
                0 => row,
                _ => row.mended_by(format!("ethtool -L {} {how}", ShellWord::new(&nic.name))),
            }
        }
        // It is unknown how many channels are left, or are for sending.
        _ => row.being(Obstacle::Unknown),
    }
}

/// Where each queue's packets come up, which decides where a thread had better not be.
fn queues(facts: &PathFacts) -> Expectation {
    let (check, nic) = ("queues", &facts.nic);
    let words = receive_path::queues(facts);
    let placed = nic.queue_cpus.iter();
    let placed: Vec<String> = placed
        .map(|(queue, cpus)| format!("{queue} on {}", CpuList(cpus.clone())))
        .collect();
    if placed.is_empty() {
        return Expectation::fine(check, words);
    }
    let different: BTreeSet<&Vec<usize>> = nic.queue_cpus.values().collect();
    let finding = format!("{words}; interrupts: {}", placed.join(", "));
    match different.len() < nic.queue_cpus.len() {
        true => Expectation::new(
            check,
            Obstacle::Note,
            format!("{finding}: some share a CPU"),
        )
        .mended_by(format!(
            "mpps tune plan --for af_xdp {}",
            ShellWord::operand(&nic.name)
        )),
        false => Expectation::fine(check, finding),
    }
}

fn ring(facts: &PathFacts) -> Expectation {
    let (check, nic) = ("receive ring", &facts.nic);
    let Some(size) = nic.rx_ring.filter(|size| *size > 0) else {
        return Expectation::fine(check, "the driver does not tell its size");
    };
    let words = format!("{size} descriptors");
    match habit(check, "rings", facts).filter(|_| nic.xdp("xsk-zerocopy")) {
        Some((_, row)) if !size.is_power_of_two() => {
            let remedy = format!(
                "ethtool -G {} rx {}",
                ShellWord::new(&nic.name),
                1_u32 << size.ilog2()
            );
            Expectation {
                state: Obstacle::Unknown,
                finding: format!("{words}; {}", row.finding),
                ..row
            }
            .mended_by(remedy)
        }
        _ => Expectation::fine(check, words),
    }
}

/// Frames are locked memory of the user's (xdp_umem_account_pages() of net/xdp/xdp_umem.c).
fn memory(facts: &PathFacts) -> Expectation {
    let (check, host, nic) = ("locked memory", &facts.host, &facts.nic);
    let frame_bytes = match nic.mtu_bytes <= SHORT_FRAME_MTU_BYTES {
        true => 2048,
        false => 4096,
    };
    let needed = u64::from(nic.rx_queues.max(1)) * FRAMES * frame_bytes;
    let words = format!("{} MiB for the frames of all queues", needed >> 20);
    let limit = host.locked_memory_bytes;
    match limit.filter(|_| !host.capable(CAP_IPC_LOCK)) {
        Some(limit) if limit < needed => {
            let finding = format!("{words}, and this user may lock {} KiB", limit >> 10);
            Expectation::new(check, Obstacle::Refused, finding)
                .mended_by("raise ulimit -l, or take fewer frames by --ring")
        }
        _ => Expectation::fine(check, words),
    }
}

/// Other refusals of the driver that the host does not show.
fn besides(facts: &PathFacts) -> Expectation {
    let check = "other refusals";
    match habit(check, "besides", facts).filter(|_| can_be_native(facts)) {
        Some((_, row)) => row.being(Obstacle::Unknown),
        None => Expectation::fine(check, "none is known"),
    }
}

fn sets(facts: &PathFacts) -> Expectation {
    let check = "other settings";
    let told = "none is known; `mpps recv` tells those that it finds changed";
    match habit(check, "sets", facts).filter(|_| can_be_native(facts)) {
        Some((_, row)) => row,
        None => Expectation::fine(check, told),
    }
}

/// True unless the driver says that it has no native XDP, and none is known of it either: some do not say
/// so where a setting stands in the way.
fn can_be_native(facts: &PathFacts) -> bool {
    let told = facts.nic.xdp_features.value();
    let says = told.is_none_or(|features| features.contains(&"basic"));
    says || drivers::of(&facts.nic.driver, "link").is_some()
}

/// Returns true if there is no known obstacle.
pub fn is_ready(rows: &[Expectation]) -> bool {
    rows.iter().all(|row| row.state != Obstacle::Refused)
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fine => "ok",
            Self::Note => "note",
            Self::Unknown => "?",
            Self::Refused => "no",
        })
    }
}
