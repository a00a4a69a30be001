//! Fuzzed input from the kernel. Its formats grow from version to version.

use mpps_host::{CpuList, DropReasons, Interrupt, ProcStat, Snmp, Softnet};
use mpps_os::bpf::btf::Btf;
use mpps_os::netlink::sock_diag::{ListeningSocket, UdpEntry, XdpEntry};

/// `/proc/net/snmp` and `/proc/net/netstat`.
pub(crate) fn snmp_pairs(data: &[u8]) -> bool {
    str::from_utf8(data).is_ok_and(|text| counters(Snmp::parse_pairs(text)))
}

/// `/proc/net/snmp6`.
pub(crate) fn snmp_rows(data: &[u8]) -> bool {
    str::from_utf8(data).is_ok_and(|text| counters(Snmp::parse_rows(text)))
}

fn counters(snmp: mpps_host::HostResult<Snmp>) -> bool {
    let Ok(snmp) = snmp else { return false };
    for (name, value) in snmp.iter() {
        assert_eq!(snmp.value(name), Some(value));
    }
    snmp.iter().next().is_some()
}

/// `/proc/net/softnet_stat`.
pub(crate) fn softnet(data: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(data) else {
        return false;
    };
    let Ok(softnet) = Softnet::parse(text) else {
        return false;
    };
    for row in &softnet.rows {
        assert_eq!(softnet.row(row.cpu), Some(row), "a CPU has one row");
    }
    !softnet.rows.is_empty()
}

/// `/proc/stat`, twice, separated by a zero byte.
pub(crate) fn proc_stat(data: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(data) else {
        return false;
    };
    let (earlier, later) = text.split_once('\0').unwrap_or((text, text));
    let (Ok(earlier), Ok(later)) = (ProcStat::parse(earlier), ProcStat::parse(later)) else {
        return false;
    };
    let shares = later.busy_since(&earlier);
    for share in &shares {
        assert!((0.0..=1.0).contains(&share.busy), "{share:?}");
        assert!((0.0..=1.0).contains(&share.softirq), "{share:?}");
    }
    !shares.is_empty()
}

/// `/proc/interrupts`.
pub(crate) fn interrupts(data: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(data) else {
        return false;
    };
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
    !all.is_empty()
}

/// One answer of `sock_diag(7)`, read as an answer to each of the questions.
pub(crate) fn sockets(data: &[u8]) -> bool {
    let udp = UdpEntry::parse(data);
    if let Some(listener) = ListeningSocket::parse(data) {
        let common = udp.as_ref().expect("a listener has what each socket has");
        assert_eq!(listener.local, common.local);
    }
    XdpEntry::parse(data).is_some() || udp.is_some()
}

/// A list of CPUs, as the kernel and users write it.
pub(crate) fn cpu_list(data: &[u8]) -> bool {
    let Ok(text) = str::from_utf8(data) else {
        return false;
    };
    let _ = CpuList::from_kernel(text);
    let Ok(list) = text.parse::<CpuList>() else {
        return false;
    };
    assert_eq!(
        list.to_string().parse(),
        Ok(list),
        "it reads what it writes"
    );
    true
}

/// Type information, and the look-ups of the drop probe in it.
pub(crate) fn btf(data: &[u8]) -> bool {
    let Ok(btf) = Btf::parse(data.to_vec()) else {
        return false;
    };
    for path in ["dev", "headers.protocol", "nd_net.net", ""] {
        for structure in ["sk_buff", "net_device", ""] {
            let _ = btf.member(structure, path);
        }
    }
    let _ = btf.tracepoint_arguments("kfree_skb");
    let Ok(reasons) = DropReasons::read(&btf) else {
        return false;
    };
    let _ = (reasons.name(0), reasons.name(u32::MAX));
    btf.member("sk_buff", "dev").is_ok()
}
