//! What will happen to an interface when AF_XDP comes, told before it does.
//!
//! A pure function of [facts](Facts) that were read from the host, and of what is known of the driver: no
//! program is attached, and no right is needed.

mod drivers;

#[cfg(test)]
mod tests;

use std::fmt;

use mpps_os::capability::{CAP_IPC_LOCK, CAP_SYS_RESOURCE};
use schemars::JsonSchema;
use serde::Serialize;

use crate::CpuList;
use crate::technique::{self, Facts, Technique, Usable};

/// Memory of a queue's frames, if nobody asks for another number: 4096 of 2048 bytes.
const QUEUE_BYTES: u64 = 4096 * 2048;
/// The MTU of Ethernet, whose frames fit into every driver's buffers.
const ETHERNET_MTU_BYTES: u32 = 1500;

/// Whether something stands in the way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It is as it should be.
    Fine,
    /// It works, and something comes with it, or is slower than it could be.
    Note,
    /// Only trying can tell.
    Unknown,
    /// AF_XDP will be refused, or nothing arrives by it.
    Refused,
}

/// What was looked at.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Row {
    /// What it is, such as `MTU`.
    pub check: &'static str,
    /// Whether it stands in the way.
    pub state: State,
    /// What was found.
    pub finding: String,
    /// What mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remedy: Option<String>,
    /// Where Linux has what is said of the driver.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<&'static str>,
}

impl Row {
    fn new(check: &'static str, state: State, finding: impl Into<String>) -> Self {
        Self {
            check,
            state,
            finding: finding.into(),
            remedy: None,
            source: None,
        }
    }

    fn mended_by(self, remedy: impl Into<String>) -> Self {
        Self {
            remedy: Some(remedy.into()),
            ..self
        }
    }
}

/// Everything that decides what AF_XDP will be on the interface, what stands first in the way first.
pub fn of_af_xdp(facts: &Facts) -> Vec<Row> {
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
        sets,
    ];
    rows.iter().map(|row| row(facts)).collect()
}

/// The verdict on a technique, as a row.
fn verdict(check: &'static str, technique: Technique, otherwise: State, facts: &Facts) -> Row {
    let verdict = technique.assess(facts);
    let state = match verdict.usable {
        Usable::Yes => State::Fine,
        Usable::Unknown => State::Unknown,
        Usable::No => otherwise,
    };
    let remedy = verdict.remedy;
    Row {
        remedy,
        ..Row::new(check, state, verdict.why)
    }
}

/// The same, with what is known of the driver.
fn habit(check: &'static str, topic: &str, facts: &Facts) -> Option<(&'static str, Row)> {
    let driver = &facts.nic.driver;
    let habit = drivers::of(driver, topic)?;
    let row = Row::new(
        check,
        State::Note,
        format!("driver {driver}: {}", habit.text),
    );
    let source = Some(habit.source);
    Some((habit.value, Row { source, ..row }))
}

/// What the file does not have.
fn unheard_of(check: &'static str, facts: &Facts, what: &str) -> Row {
    let driver = match facts.nic.driver.as_str() {
        "" => "an interface without a driver",
        driver => driver,
    };
    Row::new(
        check,
        State::Unknown,
        format!("{what} is not known of {driver}"),
    )
}

fn kernel(facts: &Facts) -> Row {
    // What stands in the way of generic XDP stands in the way of all; the link has a row of its own.
    let mut up = facts.clone();
    up.nic.up = true;
    let row = verdict(
        "kernel, rights",
        technique::AF_XDP_GENERIC,
        State::Refused,
        &up,
    );
    match row.state {
        State::Fine => Row {
            finding: format!(
                "Linux {}, and this process has the rights",
                facts.host.kernel
            ),
            ..row
        },
        _ => row,
    }
}

fn link(facts: &Facts) -> Row {
    let name = &facts.nic.name;
    match (facts.nic.up, facts.nic.carrier) {
        (true, true) => Row::new("link", State::Fine, "up, with a carrier"),
        (false, _) => Row::new("link", State::Refused, format!("{name} is down"))
            .mended_by(format!("ip link set {name} up")),
        (true, false) => Row::new("link", State::Refused, format!("{name} has no carrier"))
            .mended_by("plug it in, or set its other end up"),
    }
}

fn other_program(facts: &Facts) -> Row {
    let check = "other XDP program";
    let name = &facts.nic.name;
    let where_to = match facts.nic.native_xdp {
        None => return Row::new(check, State::Fine, "none is attached"),
        Some(true) => "in its driver",
        Some(false) => "generic",
    };
    let finding =
        format!("one is attached, {where_to}: an interface has one, and another is refused");
    Row::new(check, State::Refused, finding).mended_by(format!(
        "end who has it (`bpftool net show dev {name}`), or `ip link set {name} xdp off`"
    ))
}

fn mode(facts: &Facts) -> Row {
    let facts = with_rights(facts);
    verdict("native XDP", technique::AF_XDP_NATIVE, State::Note, &facts)
}

fn zero_copy(facts: &Facts) -> Row {
    let facts = with_rights(facts);
    verdict(
        "zero-copy",
        technique::AF_XDP_ZERO_COPY,
        State::Note,
        &facts,
    )
}

/// The same for root, with the link up: what is missing of that has rows of its own.
fn with_rights(facts: &Facts) -> Facts {
    let mut facts = facts.clone();
    facts.nic.up = true;
    facts.host.capabilities = u64::MAX;
    facts.host.initial_user_namespace = true;
    facts
}

/// What becomes of the link, and of the host behind it.
fn bounce(facts: &Facts) -> Row {
    let check = "link bounce";
    let nic = &facts.nic;
    if !has_native(facts) {
        return Row::new(
            check,
            State::Fine,
            "a generic program leaves the driver alone",
        );
    }
    let row = match habit(check, "link", facts) {
        Some(("same", row)) => {
            return Row {
                state: State::Fine,
                ..row
            };
        }
        Some((_, row)) => row,
        None => unheard_of(check, facts, "what attaching does to the link").mended_by(format!(
            "mpps backends {} --try shows it, and may cause it",
            nic.name
        )),
    };
    match nic.default_route {
        true => {
            let finding = format!("{}; the default route goes by it", row.finding);
            let remedy = "have another way into this host, such as a console";
            Row { finding, ..row }.mended_by(remedy)
        }
        false => row,
    }
}

fn mtu(facts: &Facts) -> Row {
    let nic = &facts.nic;
    let (mtu, check) = (nic.mtu_bytes, "MTU");
    if mtu <= ETHERNET_MTU_BYTES || !has_native(facts) {
        return Row::new(check, State::Fine, format!("{mtu}"));
    }
    let shorter = format!("ip link set {} mtu 1500", nic.name);
    let Some((limit, row)) = habit(check, "mtu", facts) else {
        return unheard_of(check, facts, &format!("{mtu}: the largest that XDP allows"))
            .mended_by(shorter);
    };
    let finding = format!(
        "{mtu}, of at most {limit} for packets in one buffer; {}",
        row.finding
    );
    let row = Row { finding, ..row };
    match limit.parse::<u32>() {
        Ok(limit) if mtu <= limit => Row {
            state: State::Fine,
            ..row
        },
        // Whether it can depends on more than a number.
        _ if nic.xdp("rx-sg") => Row {
            state: State::Unknown,
            ..row
        }
        .mended_by(shorter),
        _ => Row {
            state: State::Refused,
            ..row
        }
        .mended_by(shorter),
    }
}

fn merging(facts: &Facts) -> Row {
    let check = "merging by the card";
    let nic = &facts.nic;
    let on = nic.merging.join(", ");
    if on.is_empty() || !has_native(facts) {
        return Row::new(check, State::Fine, "off, or of no concern");
    }
    let words: Vec<String> = nic
        .merging
        .iter()
        .map(|name| format!("{name} off"))
        .collect();
    let remedy = format!("ethtool -K {} {}", nic.name, words.join(" "));
    let row = match habit(check, "merging", facts) {
        Some(("refuse", row)) => Row {
            state: State::Refused,
            ..row
        },
        Some((_, row)) => row,
        None => unheard_of(check, facts, "whether XDP goes with it"),
    };
    let finding = format!("{on} is on; {}", row.finding);
    Row { finding, ..row }.mended_by(remedy)
}

fn functions(facts: &Facts) -> Row {
    let check = "virtual functions";
    let nic = &facts.nic;
    let now = nic.virtual_functions.map_or(0, |functions| functions.now);
    if now == 0 || !has_native(facts) {
        return Row::new(check, State::Fine, "none");
    }
    let remedy = format!("echo 0 > /sys/class/net/{}/device/sriov_numvfs", nic.name);
    match habit(check, "functions", facts) {
        Some((_, row)) => Row {
            state: State::Refused,
            finding: format!("{now}; {}", row.finding),
            ..row
        }
        .mended_by(remedy),
        None => Row::new(
            check,
            State::Note,
            format!("{now}: what goes to them does not pass here"),
        ),
    }
}

fn channels(facts: &Facts) -> Row {
    let check = "channels";
    let nic = &facts.nic;
    let (now, most) = (nic.rx_queues, nic.rx_queues_max);
    let words = format!("{now} of at most {most}");
    let Some((rule, row)) = habit(check, "channels", facts).filter(|_| has_native(facts)) else {
        return Row::new(check, State::Fine, words);
    };
    let finding = format!("{words}; {}", row.finding);
    let row = Row { finding, ..row };
    match rule {
        "half" if now.saturating_mul(2) > most => {
            let fewer = (most / 2).max(1);
            Row {
                state: State::Refused,
                ..row
            }
            .mended_by(format!("ethtool -L {} combined {fewer}", nic.name))
        }
        "half" => Row {
            state: State::Fine,
            ..row
        },
        // How many it has left is not told.
        _ => Row {
            state: State::Unknown,
            ..row
        },
    }
}

/// Where each queue's packets come up, which decides where a thread had better not be.
fn queues(facts: &Facts) -> Row {
    let check = "queues";
    let nic = &facts.nic;
    let each = "`mpps recv` has a thread for each";
    let words = format!("{}; {each}", technique::queues(facts));
    let placed = nic.queue_cpus.iter();
    let placed: Vec<String> = placed
        .map(|(queue, cpus)| format!("{queue} on {}", CpuList(cpus.clone())))
        .collect();
    if placed.is_empty() {
        return Row::new(check, State::Fine, words);
    }
    let mut cpus: Vec<&Vec<usize>> = nic.queue_cpus.values().collect();
    cpus.sort();
    cpus.dedup();
    let finding = format!("{words}; interrupts: {}", placed.join(", "));
    match cpus.len() < nic.queue_cpus.len() {
        true => Row::new(check, State::Note, format!("{finding}: some share a CPU"))
            .mended_by(format!("mpps tune plan {} --for af_xdp", nic.name)),
        false => Row::new(check, State::Fine, finding),
    }
}

fn ring(facts: &Facts) -> Row {
    let check = "receive ring";
    let nic = &facts.nic;
    let Some(size) = nic.rx_ring else {
        return Row::new(check, State::Fine, "the driver does not tell its size");
    };
    let words = format!("{size} descriptors");
    match habit(check, "rings", facts).filter(|_| nic.xdp("xsk-zerocopy")) {
        Some((_, row)) if !size.is_power_of_two() => Row {
            state: State::Unknown,
            finding: format!("{words}; {}", row.finding),
            ..row
        }
        .mended_by(format!(
            "ethtool -G {} rx {}",
            nic.name,
            size.next_power_of_two()
        )),
        _ => Row::new(check, State::Fine, words),
    }
}

/// Frames are locked memory of the user's, which two capabilities free from its limit.
fn memory(facts: &Facts) -> Row {
    let check = "locked memory";
    let host = &facts.host;
    let needed = u64::from(facts.nic.rx_queues.max(1)) * QUEUE_BYTES;
    let words = format!("{} MiB for frames", needed >> 20);
    let is_free = host.capable(CAP_IPC_LOCK) || host.capable(CAP_SYS_RESOURCE);
    match host.locked_memory_bytes.filter(|_| !is_free) {
        Some(limit) if limit < needed => {
            let finding = format!("{words}, and this user may lock {} KiB", limit >> 10);
            Row::new(check, State::Refused, finding)
                .mended_by("raise ulimit -l, or take fewer frames by --ring")
        }
        _ => Row::new(check, State::Fine, words),
    }
}

fn sets(facts: &Facts) -> Row {
    let check = "other settings";
    let told = "`mpps recv` compares them before and after, and tells";
    match habit(check, "sets", facts).filter(|_| has_native(facts)) {
        Some((_, row)) => row,
        None => Row::new(check, State::Fine, told),
    }
}

/// True unless the driver says that it has no native XDP.
fn has_native(facts: &Facts) -> bool {
    let told = facts.nic.xdp_features.value();
    told.is_none_or(|features| features.contains(&"basic"))
}

/// True if nothing stands in the way, as far as anybody can tell.
pub fn is_ready(rows: &[Row]) -> bool {
    rows.iter().all(|row| row.state != State::Refused)
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Fine => "ok",
            Self::Note => "note",
            Self::Unknown => "?",
            Self::Refused => "no",
        })
    }
}
