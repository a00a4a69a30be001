//! How much may wait, and how much is done at a time.

use super::{Aim, Tunables, TuneGoal, TuneStage, Wanted};
use crate::setting::{ALTERED, Setting, Value};
use mpps_os::text::ShellWord;

pub(super) const OFFLOADS: TuneStage = TuneStage {
    name: "offloads",
    source: "ethtool(8) -K; Documentation/networking/netdev-features.rst",
    by_queue: false,
    judge: offloads,
};

pub(super) const BACKLOG: TuneStage = TuneStage {
    name: "backlog",
    source: "Documentation/admin-guide/sysctl/net.rst, netdev_max_backlog",
    by_queue: false,
    judge: backlog,
};

pub(super) const BUDGET: TuneStage = TuneStage {
    name: "budget",
    source: "Documentation/admin-guide/sysctl/net.rst, netdev_budget",
    by_queue: false,
    judge: budget,
};

pub(super) const BUFFERS: TuneStage = TuneStage {
    name: "buffers",
    source: "socket(7), SO_RCVBUF; Documentation/admin-guide/sysctl/net.rst, rmem_max",
    by_queue: false,
    judge: buffers,
};

pub(super) const TRACKING: TuneStage = TuneStage {
    name: "notrack",
    source: "nft(8), NOTRACK STATEMENT",
    by_queue: false,
    judge: tracking,
};

fn offloads(tunables: &Tunables, aim: Aim) -> (Wanted, String) {
    let (wanted, why): (&[_], _) = match aim.goal {
        TuneGoal::AfXdp => (
            &[("rx-lro", false), ("rx-gro-hw", false)],
            "a card that joins packets hands XDP none of them",
        ),
        TuneGoal::Udp | TuneGoal::Tcp => (
            &[("rx-gro", true)],
            "packets that are joined pass the stack once",
        ),
    };
    let wanted = wanted.iter();
    let wanted = wanted.map(|(name, is_on)| (Setting::feature(*name), Value::Switch(*is_on)));
    let known: Vec<_> = wanted
        .filter(|(setting, _)| tunables.value(setting).is_some())
        .collect();
    if known.is_empty() {
        return (
            Wanted::NotNeeded,
            "its driver has no such feature".to_owned(),
        );
    }
    (Wanted::Settings(known), why.to_owned())
}

/// Raises a limit of the machine; what is higher stays.
fn at_least(tunables: &Tunables, wanted: &[(&str, u32)], why: String) -> (Wanted, String) {
    let limits = wanted.iter().filter_map(|(name, least)| {
        let setting = Setting::sysctl(*name);
        let now = tunables.number(&setting)?;
        Some((setting, Value::number(now.max(*least))))
    });
    let limits: Vec<_> = limits.collect();
    if limits.is_empty() {
        let why = "it is the machine's, and cannot be set in this network namespace".to_owned();
        return (Wanted::Impossible, why);
    }
    (Wanted::Settings(limits), why)
}

fn backlog(tunables: &Tunables, aim: Aim) -> (Wanted, String) {
    let hands_over =
        tunables.is_virtual || tunables.queues() == 1 && tunables.near_cores().len() > 1;
    if aim.goal == TuneGoal::AfXdp || !hands_over {
        return (
            Wanted::NotNeeded,
            "its driver hands packets straight to the stack".to_owned(),
        );
    }
    let why = "packets wait there that another CPU takes over: 1000 are 1 ms at 1 Mpps".to_owned();
    at_least(tunables, &[("net.core.netdev_max_backlog", 10_000)], why)
}

fn budget(tunables: &Tunables, _: Aim) -> (Wanted, String) {
    let why = "packets and microseconds that a soft interrupt may take before it yields".to_owned();
    let wanted = [
        ("net.core.netdev_budget", 600),
        ("net.core.netdev_budget_usecs", 8000),
    ];
    at_least(tunables, &wanted, why)
}

fn buffers(tunables: &Tunables, aim: Aim) -> (Wanted, String) {
    if aim.goal != TuneGoal::Udp {
        return (
            Wanted::NotNeeded,
            "only sockets of UDP drop what finds their buffer full".to_owned(),
        );
    }
    let why = "a program may ask for so much: 32 MiB hold 40 000 small datagrams, 40 ms at 1 Mpps"
        .to_owned();
    at_least(tunables, &[("net.core.rmem_max", 32 << 20)], why)
}

fn tracking(tunables: &Tunables, aim: Aim) -> (Wanted, String) {
    if aim.goal == TuneGoal::AfXdp {
        let why = "AF_XDP takes frames before connections are tracked".to_owned();
        return (Wanted::NotNeeded, why);
    }
    if tunables.tracked == 0 {
        let why = "no connection is tracked here".to_owned();
        return (Wanted::NotNeeded, why);
    }
    let protocol = match aim.goal {
        TuneGoal::Tcp => "tcp",
        _ => "udp",
    };
    let why = format!(
        "{} connections are tracked: each packet is looked up, and each new flow makes an entry; a \
         firewall that asks for states (ct state) needs them",
        tunables.tracked
    );
    let Some(port) = aim.port else {
        let interface = ShellWord::operand(&tunables.interface);
        let command = format!("mpps tune plan --port PORT {interface}");
        return (Wanted::ByHand(vec![command], &[]), why);
    };
    let protocol = protocol.to_owned();
    let setting = Setting::Untracked { protocol, port };
    let fault = match tunables.value(&setting) {
        None => "nft(8) is not here, whose rules leave packets out",
        Some(value) if value.word() == ALTERED => {
            "another program made or changed the nft table of the port; `nft list tables` shows it"
        }
        Some(_) => {
            let on = Value::Word("on".to_owned());
            return (Wanted::Try(vec![(setting, on)]), why);
        }
    };
    (Wanted::Impossible, fault.to_owned())
}
