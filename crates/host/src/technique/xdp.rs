//! AF_XDP: packets go from the driver, or from just behind it, to the program.

use mpps_os::capability::{CAP_BPF, CAP_NET_ADMIN, CAP_NET_RAW, CAP_PERFMON, CAP_SYS_ADMIN};

use super::socket::queues;
use super::{Answer, Copies, Facts, Takes, Verdict};

/// The largest MTU whose frame fits one page beside what XDP needs there, as veth has it; of
/// other drivers it is a little less.
const SINGLE_PAGE_MTU_BYTES: u32 = 3506;

pub(super) fn generic(facts: &Facts) -> Verdict {
    let verdict = Verdict::yes(
        "works behind any driver; the kernel makes its own buffer for each packet first",
        Takes::Flow,
        Copies::Copy,
    );
    obstacle(facts, verdict.clone()).unwrap_or(verdict)
}

pub(super) fn native(facts: &Facts) -> Verdict {
    let nic = &facts.nic;
    let verdict = Verdict::yes(
        format!("{}, {}; {}", driver(facts), features(facts), queues(facts)),
        Takes::Flow,
        Copies::Copy,
    );
    if let Some(obstacle) = obstacle(facts, verdict.clone()) {
        return obstacle;
    }
    let generic = format!(
        "mpps recv --backend af_xdp --xdp generic --interface {} ADDR:PORT",
        nic.name
    );
    if let Answer::Refused(why) = &nic.xdp_features {
        return verdict.unknown(
            format!("the kernel does not tell what the driver can ({why})"),
            format!(
                "mpps recv --backend af_xdp --xdp native --interface {} ADDR:PORT",
                nic.name
            ),
        );
    }
    if !nic.xdp("basic") || !nic.xdp("redirect") {
        let why = format!(
            "{}: no XDP programs that redirect ({})",
            driver(facts),
            features(facts)
        );
        return verdict.no(why, generic);
    }
    if nic.mtu_bytes > SINGLE_PAGE_MTU_BYTES && !nic.xdp("rx-sg") {
        let why = format!(
            "a frame of MTU {} needs more than a page, and the driver has no multi-buffer XDP ({})",
            nic.mtu_bytes,
            features(facts)
        );
        return verdict.no(why, format!("ip link set {} mtu 1500", nic.name));
    }
    verdict
}

pub(super) fn zero_copy(facts: &Facts) -> Verdict {
    let verdict = Verdict {
        copies: Copies::ZeroCopy,
        ..native(facts)
    };
    let known = matches!(facts.nic.xdp_features, Answer::Is(_));
    if facts.nic.xdp("xsk-zerocopy") || !known || obstacle(facts, verdict.clone()).is_some() {
        return verdict;
    }
    let why = format!("{}: no xsk-zerocopy ({})", driver(facts), features(facts));
    verdict.never(why)
}

/// What stands in the way of any AF_XDP.
fn obstacle(facts: &Facts, verdict: Verdict) -> Option<Verdict> {
    let host = &facts.host;
    if !host.since(5, 9) {
        let why = format!("XDP links need Linux 5.9, this is {}", host.kernel);
        return Some(verdict.no(why, "a newer kernel"));
    }
    // What CAP_BPF and CAP_PERFMON grant, CAP_SYS_ADMIN does too (capabilities(7)).
    let may = |capability| host.capable(capability) || host.capable(CAP_SYS_ADMIN);
    let needed = [
        ("CAP_BPF", may(CAP_BPF)),
        ("CAP_PERFMON", may(CAP_PERFMON)),
        ("CAP_NET_ADMIN", host.capable(CAP_NET_ADMIN)),
        ("CAP_NET_RAW", host.capable(CAP_NET_RAW)),
    ];
    let missing: Vec<&str> = needed
        .iter()
        .filter(|(_, has)| !has)
        .map(|(n, _)| *n)
        .collect();
    let command = format!(
        "sudo mpps recv --backend af_xdp --interface {} ADDR:PORT",
        facts.nic.name
    );
    if !missing.is_empty() {
        let why = format!("this process has no {}", missing.join(", "));
        return Some(verdict.no(why, command));
    }
    if !host.initial_user_namespace {
        let why = "this is a user namespace, where the kernel allows no BPF";
        return Some(verdict.no(why, format!("outside of it: {command}")));
    }
    None
}

pub(super) fn driver(facts: &Facts) -> String {
    match facts.nic.driver.as_str() {
        "" => format!("{} has no driver", facts.nic.name),
        driver => format!("driver {driver}"),
    }
}

pub(super) fn features(facts: &Facts) -> String {
    match &facts.nic.xdp_features {
        Answer::Is(features) if features.is_empty() => "xdp-features: none".to_owned(),
        Answer::Is(features) => format!("xdp-features: {}", features.join(", ")),
        Answer::Refused(why) => why.clone(),
    }
}
