//! How much may wait, and how much is done at a time.

use super::{Aim, JudgedStage, Tunables, TuneGoal, Wanted};
use crate::setting::{ALTERED, Setting, Value};
use mpps_os::text::ShellWord;

pub(super) fn offloads(tunables: &Tunables, aim: Aim) -> JudgedStage {
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
        return Wanted::NotNeeded.because("its driver has no such feature");
    }
    Wanted::Settings(known).because(why)
}

/// Raises a limit of the machine; what is higher stays.
fn at_least(tunables: &Tunables, wanted: &[(&str, u32)], why: &str) -> JudgedStage {
    let limits = wanted.iter().filter_map(|(name, least)| {
        let setting = Setting::sysctl(*name);
        let now = tunables.number(&setting)?;
        Some((setting, Value::number(now.max(*least))))
    });
    let limits: Vec<_> = limits.collect();
    if limits.is_empty() {
        let why = "it is the machine's, and cannot be set in this network namespace";
        return Wanted::Impossible.because(why);
    }
    Wanted::Settings(limits).because(why)
}

pub(super) fn backlog(tunables: &Tunables, aim: Aim) -> JudgedStage {
    let hands_over =
        tunables.is_virtual || tunables.queues() == 1 && tunables.near_cores().len() > 1;
    if aim.goal == TuneGoal::AfXdp || !hands_over {
        return Wanted::NotNeeded.because("its driver hands packets straight to the stack");
    }
    let why = "packets wait there that another CPU takes over: 1000 are 1 ms at 1 Mpps";
    at_least(tunables, &[("net.core.netdev_max_backlog", 10_000)], why)
}

pub(super) fn budget(tunables: &Tunables, _: Aim) -> JudgedStage {
    let why = "packets and microseconds that a soft interrupt may take before it yields";
    let wanted = [
        ("net.core.netdev_budget", 600),
        ("net.core.netdev_budget_usecs", 8000),
    ];
    at_least(tunables, &wanted, why)
}

pub(super) fn buffers(tunables: &Tunables, aim: Aim) -> JudgedStage {
    if aim.goal != TuneGoal::Udp {
        return Wanted::NotNeeded.because("only sockets of UDP drop what finds their buffer full");
    }
    let why = "a program may ask for so much: 32 MiB hold 40 000 small datagrams, 40 ms at 1 Mpps";
    at_least(tunables, &[("net.core.rmem_max", 32 << 20)], why)
}

pub(super) fn tracking(tunables: &Tunables, aim: Aim) -> JudgedStage {
    if aim.goal == TuneGoal::AfXdp {
        let why = "AF_XDP takes frames before connections are tracked";
        return Wanted::NotNeeded.because(why);
    }
    if tunables.tracked == 0 {
        let why = "no connection is tracked here";
        return Wanted::NotNeeded.because(why);
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
        return Wanted::ByHand(vec![command], &[]).because(why);
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
            return Wanted::Try(vec![(setting, on)]).because(why);
        }
    };
    Wanted::Impossible.because(fault)
}
