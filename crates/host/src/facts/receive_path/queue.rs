//! A part of a card instead of the whole: one queue, or one virtual function.

use mpps_os::capability::CAP_NET_ADMIN;
use mpps_os::text::ShellWord;

use super::facts::Filters;
use super::{Copies, KernelAnswer, PathFacts, PathVerdict, StackPart, xdp};

/// The driver keeps the card, and gives one queue with one flow away.
pub(super) fn bifurcated(facts: &PathFacts) -> PathVerdict {
    let (nic, host) = (&facts.nic, &facts.host);
    let name = ShellWord::new(&nic.name);
    let zero_copy = nic.xdp("xsk-zerocopy");
    let verdict = PathVerdict::yes(
        "",
        StackPart::Queue,
        if zero_copy {
            Copies::ZeroCopy
        } else {
            Copies::Copy
        },
    );
    let has_rules = matches!(nic.filters, Some(Filters::On | Filters::Off));
    // Without rules a flow can have an entry of the table to itself.
    let no_rules = match has_rules {
        true => String::new(),
        false => format!(
            "{}: no steering rules (ntuple-filters: off [fixed]), ",
            xdp::driver(facts)
        ),
    };
    let entries = match &nic.rss_entries {
        KernelAnswer::Refused(why) => {
            return verdict.never(format!("{no_rules}it shows no RSS table ({why})"));
        }
        KernelAnswer::Is(0) => return verdict.never(format!("{no_rules}its RSS table is empty")),
        KernelAnswer::Is(entries) => entries,
    };
    if let (KernelAnswer::Refused(why), Some(Filters::On)) = (&nic.rules, nic.filters) {
        return verdict.never(format!("its steering rules cannot be read ({why})"));
    }
    if nic.rx_queues < 2 {
        let why = format!("{no_rules}1 receive queue of at most {}", nic.rx_queues_max);
        return if nic.rx_queues_max > 1 {
            verdict.no(why, format!("ethtool -L {name} combined 2"))
        } else {
            verdict.never(why)
        };
    }
    let how = match has_rules {
        true => "",
        false => "=slot --flow SOURCE:PORT-ADDR:PORT",
    };
    let command =
        format!("mpps recv --backend af_xdp --queue-carve-out{how} --interface {name} ADDR:PORT");
    if !host.capable(CAP_NET_ADMIN) {
        return verdict.no(
            "this process has no CAP_NET_ADMIN",
            format!("sudo {command}"),
        );
    }
    let why = format!(
        "{} queues, an RSS table of {entries} entries, {}",
        nic.rx_queues,
        match nic.filters {
            Some(Filters::On) => "ntuple-filters on",
            Some(Filters::Off) => "ntuple-filters off, can be switched on",
            _ => "no steering rules: by a slot of the table (--queue-carve-out=slot)",
        },
    );
    // The queue is of use only to what can receive from one: AF_XDP.
    let receiver = xdp::native(facts);
    if receiver.usable != super::Usable::Yes {
        return PathVerdict {
            why: format!("{why}; but {}", receiver.why),
            ..PathVerdict {
                takes: StackPart::Queue,
                ..receiver
            }
        };
    }
    verdict.because(why)
}

/// The card shows a second one of itself, which can be taken while the first stays.
pub(super) fn virtual_function(facts: &PathFacts) -> PathVerdict {
    let nic = &facts.nic;
    let verdict = PathVerdict::yes("", StackPart::VirtualFunction, Copies::Depends);
    match nic.virtual_functions {
        None => {
            let device = match &nic.function {
                Some(function) => format!("PCI function {}", function.address),
                None => format!("{} is no PCI card: it", nic.name),
            };
            verdict.never(format!(
                "{device} has no sriov_totalvfs, no virtual functions"
            ))
        }
        Some(functions) if functions.total == 0 => {
            verdict.never("sriov_totalvfs is 0: the firmware allows no virtual functions")
        }
        Some(functions) if functions.now == 0 => verdict.no(
            format!("0 of {} virtual functions are there", functions.total),
            format!(
                "echo 1 > /sys/class/net/{}/device/sriov_numvfs",
                ShellWord::new(&nic.name)
            ),
        ),
        Some(functions) => verdict.because(format!(
            "{} of {} virtual functions are there",
            functions.now, functions.total
        )),
    }
}
