//! The protocol counters of a network namespace: IP, UDP and their errors.
//!
//! The unit of `Udp.*` is the socket call or the packet buffer, not always the datagram: see
//! `docs/counters.md`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::root::Root;
use crate::{HostError, HostResult};

/// Protocol counters by name: `Udp.RcvbufErrors`, `IpExt.InOctets`, `Udp6.RcvbufErrors`, and those of
/// IPsec as the kernel names them: `XfrmInNoPols`.
///
/// Counters that this version does not know are kept. The values are signed because one of
/// them, `Tcp.MaxConn`, is -1 where there is no limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Snmp {
    values: BTreeMap<String, i64>,
}

/// The protocols of `/proc/net/snmp6`, longest name first so that `UdpLite6` is not read as
/// something of `Udp6` (`net/ipv6/proc.c`).
const PROTOCOLS_V6: [&str; 4] = ["UdpLite6", "Icmp6", "Udp6", "Ip6"];

impl Snmp {
    /// Reads the counters of the calling thread's network namespace.
    ///
    /// # Errors
    /// [`HostError::Kernel`] where `/proc` is missing, [`HostError::Malformed`] where a file of its has
    /// an unknown form. A kernel without IPv6 is fine: its counters are absent.
    pub fn read() -> HostResult<Self> {
        Self::read_from(&Root::machine())
    }

    pub(crate) fn read_from(root: &Root) -> HostResult<Self> {
        // `/proc/net` is that of the process's main thread; a thread that entered another
        // namespace has its own under `thread-self` (proc(5)).
        let mut snmp = Self::default();
        for path in ["proc/thread-self/net/snmp", "proc/thread-self/net/netstat"] {
            let text = root.read(path)?;
            snmp.add_pairs(&text)
                .map_err(|what| HostError::malformed(root.name(path), what))?;
        }
        // IPv6 and IPsec (net/xfrm/xfrm_proc.c), which a kernel may lack.
        for path in [
            "proc/thread-self/net/snmp6",
            "proc/thread-self/net/xfrm_stat",
        ] {
            if let Some(text) = root.read_if_present(path)? {
                snmp.add_rows(&text)
                    .map_err(|what| HostError::malformed(root.name(path), what))?;
            }
        }
        Ok(snmp)
    }

    /// Reads the text of `/proc/net/snmp` or `/proc/net/netstat`: pairs of a line with names and
    /// a line with values, both beginning with the protocol.
    ///
    /// # Errors
    /// [`HostError::Malformed`] with the line that does not fit.
    pub fn parse_pairs(text: &str) -> HostResult<Self> {
        let mut snmp = Self::default();
        snmp.add_pairs(text)
            .map_err(|what| HostError::malformed("/proc/net/snmp", what))?;
        Ok(snmp)
    }

    /// Reads the text of `/proc/net/snmp6`: a name and a value per line.
    ///
    /// # Errors
    /// [`HostError::Malformed`] with the line that does not fit.
    pub fn parse_rows(text: &str) -> HostResult<Self> {
        let mut snmp = Self::default();
        snmp.add_rows(text)
            .map_err(|what| HostError::malformed("/proc/net/snmp6", what))?;
        Ok(snmp)
    }

    /// A counter by its full name; none where this kernel does not have it.
    pub fn value(&self, name: &str) -> Option<i64> {
        self.values.get(name).copied()
    }

    /// All counters in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.values
            .iter()
            .map(|(name, &value)| (name.as_str(), value))
    }

    fn add_pairs(&mut self, text: &str) -> HostResult<(), String> {
        let mut lines = text.lines().enumerate();
        while let Some((number, names)) = lines.next() {
            let number = number + 1;
            let fault = |what: &str| format!("line {number}: {what}");
            let (protocol, names) = names
                .split_once(':')
                .ok_or_else(|| fault("no protocol and colon"))?;
            let (_, values) = lines.next().ok_or_else(|| fault("names without values"))?;
            let values = values
                .strip_prefix(protocol)
                .and_then(|values| values.strip_prefix(':'))
                .ok_or_else(|| fault("the next line has the values of another protocol"))?;
            let mut values = values.split_ascii_whitespace();
            for name in names.split_ascii_whitespace() {
                let value = values
                    .next()
                    .ok_or_else(|| fault("more names than values"))?;
                self.add(format!("{protocol}.{name}"), value)
                    .map_err(|what| fault(&what))?;
            }
            if values.next().is_some() {
                return Err(fault("more values than names"));
            }
        }
        Ok(())
    }

    pub(crate) fn add_rows(&mut self, text: &str) -> HostResult<(), String> {
        for (number, line) in text.lines().enumerate() {
            let number = number + 1;
            let mut words = line.split_ascii_whitespace();
            let (Some(name), Some(value), None) = (words.next(), words.next(), words.next()) else {
                return Err(format!("line {number}: not a name and a value"));
            };
            self.add(name_v6(name), value)
                .map_err(|what| format!("line {number}: {what}"))?;
        }
        Ok(())
    }

    fn add(&mut self, name: String, value: &str) -> HostResult<(), String> {
        let Ok(number) = value.parse() else {
            return Err(format!("{name}: `{value}` is not a number"));
        };
        // A second value of the same name would have to win or to lose silently.
        match self.values.insert(name.clone(), number) {
            None => Ok(()),
            Some(_) => Err(format!("{name} is there twice")),
        }
    }
}

/// `Udp6RcvbufErrors` of `/proc/net/snmp6` in the form that the other files have.
fn name_v6(name: &str) -> String {
    for protocol in PROTOCOLS_V6 {
        if let Some(rest) = name.strip_prefix(protocol).filter(|rest| !rest.is_empty()) {
            return format!("{protocol}.{rest}");
        }
    }
    name.to_owned()
}

/// Whether a name stands for a state or a setting, which may go down without anything wrong.
pub(crate) fn is_gauge(name: &str) -> bool {
    matches!(
        name,
        "Ip.Forwarding"
            | "Ip.DefaultTTL"
            | "Tcp.RtoAlgorithm"
            | "Tcp.RtoMin"
            | "Tcp.RtoMax"
            | "Tcp.MaxConn"
            | "Tcp.CurrEstab"
            | "MPTcpExt.MPCurrEstab"
    )
}

/// Whether a counter is printed only once it is more than zero, so that its absence means zero
/// (`icmpmsg_put` in `net/ipv4/proc.c`, `snmp6_seq_show_icmpv6msg` in `net/ipv6/proc.c`).
pub(crate) fn is_printed_on_demand(name: &str) -> bool {
    name.starts_with("IcmpMsg.")
        || name.starts_with("Icmp6.InType")
        || name.starts_with("Icmp6.OutType")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;
    use proptest::prelude::*;

    #[test]
    fn reads_a_recorded_host() {
        let tree = fixture::tree(include_str!("../../tests/fixtures/net.tree"));
        let snmp = Snmp::read_from(&tree.root).expect("a recorded host");
        assert_eq!(snmp.value("Udp.OutDatagrams"), Some(1146));
        assert_eq!(snmp.value("Udp.MemErrors"), Some(0));
        assert_eq!(snmp.value("Udp6.RcvbufErrors"), Some(0));
        assert_eq!(snmp.value("UdpLite6.InErrors"), Some(0));
        assert_eq!(snmp.value("Ip6.OutRequests"), Some(13));
        assert_eq!(snmp.value("Icmp6.OutMLDv2Reports"), Some(4));
        assert_eq!(snmp.value("IpExt.InOctets"), Some(240_481_621));
        assert_eq!(snmp.value("IcmpMsg.InType3"), Some(1));
        assert_eq!(snmp.value("Tcp.MaxConn"), Some(-1));
        assert_eq!(snmp.value("Udp.NoSuchThing"), None);
    }

    #[test]
    fn a_host_without_ipv6_and_ipsec_has_no_counters_of_them() {
        let text = "proc/thread-self/net/snmp = Udp: A\\nUdp: 1\nproc/thread-self/net/netstat = IpExt: B\\nIpExt: 2";
        let read =
            |text: &str| Snmp::read_from(&fixture::tree(text).root).expect("both may be off");
        let snmp = read(text);
        let all: Vec<_> = snmp.iter().collect();
        assert_eq!(all, [("IpExt.B", 2), ("Udp.A", 1)]);
        let ipsec = "proc/thread-self/net/xfrm_stat = XfrmInNoPols            \\t7";
        let snmp = read(&format!("{text}\n{ipsec}"));
        assert_eq!(snmp.value("XfrmInNoPols"), Some(7));
    }

    #[test]
    fn names_what_is_wrong() {
        let fault = |text: &str| Snmp::parse_pairs(text).unwrap_err().to_string();
        assert_eq!(
            fault("Udp: A B\nUdp: 1"),
            "/proc/net/snmp: line 1: more names than values"
        );
        assert!(fault("Udp: A\nUdp: 1 2").ends_with("more values than names"));
        assert!(fault("Udp: A\nUdpLite: 1").ends_with("another protocol"));
        assert!(fault("Udp: A").ends_with("names without values"));
        assert!(fault("Udp A\nUdp 1").ends_with("no protocol and colon"));
        assert!(fault("Udp: A\nUdp: x").ends_with("Udp.A: `x` is not a number"));
        assert!(fault("Udp: A A\nUdp: 1 2").ends_with("Udp.A is there twice"));
        let fault = |text: &str| Snmp::parse_rows(text).unwrap_err().to_string();
        assert_eq!(
            fault("Udp6InDatagrams 1\nUdp6InDatagrams"),
            "/proc/net/snmp6: line 2: not a name and a value"
        );
        assert!(fault("Udp6InDatagrams 1 2").ends_with("not a name and a value"));
    }

    #[test]
    fn this_host_can_be_read() {
        let snmp = Snmp::read().expect("/proc is here");
        assert_eq!(snmp.value("Ip.DefaultTTL").map(|ttl| ttl > 0), Some(true));
    }

    #[test]
    fn a_protocol_may_have_several_pairs() {
        // The kernel prints the ICMP types in groups of sixteen.
        let text = "IcmpMsg: InType3\nIcmpMsg: 1\nIcmpMsg: OutType3\nIcmpMsg: 2";
        let snmp = Snmp::parse_pairs(text).expect("two pairs");
        assert_eq!(snmp.value("IcmpMsg.OutType3"), Some(2));
    }

    type Groups = BTreeMap<String, BTreeMap<String, i64>>;

    fn groups() -> impl Strategy<Value = Groups> {
        let counters = proptest::collection::btree_map("[A-Za-z0-9]{1,12}", any::<i64>(), 0..8);
        proptest::collection::btree_map("[A-Z][A-Za-z]{0,6}", counters, 0..6)
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC*") {
            let _ = Snmp::parse_pairs(&text);
            let _ = Snmp::parse_rows(&text);
        }

        #[test]
        fn never_panics_on_likely_text(text in "((Udp|Ip|): ?([A-Z0-9-]{0,4} ?){0,4}\n){0,6}") {
            let _ = Snmp::parse_pairs(&text);
            let _ = Snmp::parse_rows(&text);
        }

        #[test]
        fn round_trip_of_pairs(groups in groups()) {
            let mut text = String::new();
            for (protocol, counters) in &groups {
                let names: Vec<&str> = counters.keys().map(String::as_str).collect();
                let values: Vec<String> = counters.values().map(i64::to_string).collect();
                text += &format!("{protocol}: {}\n{protocol}: {}\n", names.join(" "), values.join(" "));
            }
            let snmp = Snmp::parse_pairs(&text).expect("well formed");
            let expected = groups.iter().flat_map(|(protocol, counters)| {
                counters.iter().map(move |(name, &value)| (format!("{protocol}.{name}"), value))
            });
            prop_assert_eq!(snmp.values, expected.collect::<BTreeMap<_, _>>());
        }

        #[test]
        fn round_trip_of_rows(counters in proptest::collection::btree_map(
            "(Ip6|Icmp6|Udp6|UdpLite6)[A-Z][a-z]{0,9}", 0i64.., 0..20,
        )) {
            let text: String = counters.iter().map(|(name, value)| format!("{name:<32}\t{value}\n")).collect();
            let snmp = Snmp::parse_rows(&text).expect("well formed");
            let back = snmp.iter().map(|(name, value)| (name.replacen('.', "", 1), value));
            prop_assert_eq!(back.collect::<BTreeMap<_, _>>(), counters);
        }
    }
}
