//! Counters of the kernel for TCP connections that are slow or fail.

use std::collections::BTreeMap;

use crate::Delta;

/// Counters that stand still while all goes well (`net/ipv4/proc.c`). They count segments sent
/// again, SYNs without room, full accept queues, and resets.
const TROUBLE: [&str; 19] = [
    "Tcp.AttemptFails",
    "Tcp.EstabResets",
    "Tcp.InErrs",
    "Tcp.OutRsts",
    "Tcp.RetransSegs",
    "TcpExt.EmbryonicRsts",
    "TcpExt.ListenDrops",
    "TcpExt.ListenOverflows",
    "TcpExt.SyncookiesSent",
    "TcpExt.TCPAbortOnClose",
    "TcpExt.TCPAbortOnData",
    "TcpExt.TCPAbortOnMemory",
    "TcpExt.TCPAbortOnTimeout",
    "TcpExt.TCPBacklogDrop",
    "TcpExt.TCPReqQFullDoCookies",
    "TcpExt.TCPReqQFullDrop",
    "TcpExt.TCPSynRetrans",
    "TcpExt.TCPTimeWaitOverflow",
    "TcpExt.TCPTimeouts",
];

impl Delta {
    /// The counters that moved of those that stand still while all goes well.
    pub fn tcp_trouble(&self) -> BTreeMap<&'static str, i64> {
        let counts = TROUBLE
            .iter()
            .filter_map(|&name| Some((name, self.snmp(name)?)));
        counts.filter(|(_, count)| *count != 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Snmp;

    #[test]
    fn what_moved_is_named_and_what_stood_still_is_not() {
        let mut delta = Delta::default();
        delta.snmp.insert("TcpExt.ListenOverflows".to_owned(), 3);
        delta.snmp.insert("Tcp.RetransSegs".to_owned(), 0);
        delta.snmp.insert("Tcp.ActiveOpens".to_owned(), 9);
        assert_eq!(delta.tcp_trouble(), [("TcpExt.ListenOverflows", 3)].into());
    }

    #[test]
    fn this_kernel_has_the_counters() {
        let snmp = Snmp::read().expect("/proc is there");
        // Those of SYN cookies need them to be compiled in; the others are in every kernel since 4.10.
        for name in TROUBLE.iter().filter(|name| !name.contains("ookies")) {
            assert!(snmp.value(name).is_some(), "{name}");
        }
    }
}
