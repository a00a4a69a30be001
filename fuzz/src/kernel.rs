//! Fuzzed input from the kernel. Its formats grow from version to version.

use mpps_host::{CpuList, DropReasons, Interrupt, ProcStat, Snmp, Softnet};
use mpps_os::bpf::btf::Btf;
use mpps_os::netlink::netfilter_rule::{NetfilterAction, NetfilterRule};
use mpps_os::netlink::sock_diag::{ListeningSocket, UdpEntry, XdpEntry};

/// `/proc/net/snmp` and `/proc/net/netstat`.
pub(crate) fn snmp_pairs(data: &[u8]) -> Option<()> {
    counters(&Snmp::parse_pairs(str::from_utf8(data).ok()?).ok()?)
}

/// `/proc/net/snmp6`.
pub(crate) fn snmp_rows(data: &[u8]) -> Option<()> {
    counters(&Snmp::parse_rows(str::from_utf8(data).ok()?).ok()?)
}

fn counters(snmp: &Snmp) -> Option<()> {
    for (name, value) in snmp.iter() {
        assert_eq!(snmp.value(name), Some(value));
    }
    snmp.iter().next().map(drop)
}

/// `/proc/net/softnet_stat`.
pub(crate) fn softnet(data: &[u8]) -> Option<()> {
    let softnet = Softnet::parse(str::from_utf8(data).ok()?).ok()?;
    for row in &softnet.rows {
        assert_eq!(softnet.row(row.cpu), Some(row), "a CPU has one row");
    }
    softnet.rows.first().map(drop)
}

/// `/proc/stat`, twice, separated by a zero byte.
pub(crate) fn proc_stat(data: &[u8]) -> Option<()> {
    let text = str::from_utf8(data).ok()?;
    let (earlier, later) = text.split_once('\0').unwrap_or((text, text));
    let (earlier, later) = (ProcStat::parse(earlier).ok()?, ProcStat::parse(later).ok()?);
    let shares = later.busy_since(&earlier);
    for share in &shares {
        assert!((0.0..=1.0).contains(&share.busy), "{share:?}");
        assert!((0.0..=1.0).contains(&share.softirq), "{share:?}");
    }
    shares.first().map(drop)
}

/// `/proc/interrupts`.
pub(crate) fn interrupts(data: &[u8]) -> Option<()> {
    let text = str::from_utf8(data).ok()?;
    let all = Interrupt::parse_all(text);
    let columns = text
        .lines()
        .next()
        .unwrap_or_default()
        .matches("CPU")
        .count();
    for (name, counts) in all.values() {
        assert!(counts.len() <= columns, "{name} has a count too many");
    }
    all.first_key_value().map(drop)
}

/// One answer of `sock_diag(7)`, read as an answer to each of the questions.
pub(crate) fn sockets(data: &[u8]) -> Option<()> {
    let udp = UdpEntry::parse(data);
    if let Some(listener) = ListeningSocket::parse(data) {
        let common = udp.as_ref().expect("a listener has what each socket has");
        assert_eq!(listener.local, common.local);
    }
    XdpEntry::parse(data).map(drop).or(udp.map(drop))
}

/// One answer of nftables.
pub(crate) fn netfilter_rule(data: &[u8]) -> Option<()> {
    let rule = NetfilterRule::parse(data)?;
    let has_ports = rule.ports.is_none_or(|ports| !ports.is_empty());
    assert!(has_ports, "a rule is for a port");
    if let NetfilterAction::Queue { numbers, .. } = rule.action {
        assert!(!numbers.is_empty(), "a rule has a queue");
    }
    Some(())
}

/// A list of CPUs, as the kernel and users write it.
pub(crate) fn cpu_list(data: &[u8]) -> Option<()> {
    let text = str::from_utf8(data).ok()?;
    let _ = CpuList::from_kernel(text);
    let list = text.parse::<CpuList>().ok()?;
    assert_eq!(
        list.to_string().parse(),
        Ok(list),
        "it reads what it writes"
    );
    Some(())
}

/// Type information, and the look-ups of the drop probe in it.
pub(crate) fn btf(data: &[u8]) -> Option<()> {
    let btf = Btf::parse(data.to_vec()).ok()?;
    for path in ["dev", "headers.protocol", "nd_net.net", ""] {
        for structure in ["sk_buff", "net_device", ""] {
            let _ = btf.member(structure, path);
        }
    }
    let _ = btf.tracepoint_arguments("kfree_skb");
    let reasons = DropReasons::read(&btf).ok()?;
    let _ = (reasons.name(0), reasons.name(u32::MAX));
    btf.member("sk_buff", "dev").ok().map(drop)
}
