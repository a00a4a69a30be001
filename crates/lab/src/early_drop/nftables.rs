//! A table of nftables: one chain and one rule that drops, or those that track connections.

use serde_json::Value;

use super::{EarlyDropRule, command};
use crate::{LabError, LabHost};

/// The program that talks to nftables (nft(8)).
const PROGRAM: &str = "nft";
/// The names of the tables. Each is unique on its host.
const NAME: &str = "mpps_early_drop";
const TRACKING: &str = "mpps_tracking";

/// The table. Removing it removes its chains and rules.
#[derive(Debug)]
pub(crate) struct NftTable<'lab> {
    host: &'lab LabHost,
    family: &'static str,
    name: &'static str,
    installed: bool,
}

impl<'lab> NftTable<'lab> {
    /// Where legacy iptables has its table `raw`, for both versions of IP.
    pub(super) fn raw(host: &'lab LabHost, port: u16) -> Result<Self, LabError> {
        Self::new(host, "inet", "hook prerouting priority raw", port)
    }

    /// At the device, before the IP layer.
    pub(super) fn ingress(host: &'lab LabHost, port: u16) -> Result<Self, LabError> {
        let hook = format!("hook ingress device {} priority 0", host.interface());
        Self::new(host, "netdev", &hook, port)
    }

    fn new(
        host: &'lab LabHost,
        family: &'static str,
        hook: &str,
        port: u16,
    ) -> Result<Self, LabError> {
        // The counter comes after the match, so it counts only the packets that are dropped.
        let chain =
            format!("chain early {{\n type filter {hook}\n udp dport {port} counter drop\n }}");
        Self::of(host, family, NAME, &chain)
    }

    /// Makes the kernel track the connections of the host, which it does once a rule asks for their
    /// state. Counts the tracked packets to the port. Without `tracked`, another rule exempts these
    /// packets, and the exempt ones are counted.
    pub(crate) fn tracking(
        host: &'lab LabHost,
        port: u16,
        tracked: bool,
    ) -> Result<Self, LabError> {
        let (spare, state) = match tracked {
            true => (String::new(), "new,established"),
            false => (
                format!(
                    "chain spare {{\n type filter hook prerouting priority raw\n udp dport {port} \
                     notrack\n }}\n "
                ),
                "untracked",
            ),
        };
        let chains = format!(
            "{spare}chain state {{\n type filter hook input priority filter\n udp dport {port} ct \
             state {state} counter accept\n }}"
        );
        Self::of(host, "inet", TRACKING, &chains)
    }

    fn of(
        host: &'lab LabHost,
        family: &'static str,
        name: &'static str,
        chains: &str,
    ) -> Result<Self, LabError> {
        let rules = format!("table {family} {name} {{\n {chains}\n}}\n");
        command::run(host, PROGRAM, &[&rules])?;
        Ok(Self {
            host,
            family,
            name,
            installed: true,
        })
    }
}

impl EarlyDropRule for NftTable<'_> {
    fn dropped(&self) -> Result<u64, LabError> {
        let arguments = ["-j", "list", "table", self.family, self.name];
        let text = command::run(self.host, PROGRAM, &arguments)?;
        parse_dropped(&text).ok_or_else(|| LabError::Program {
            command: format!("{PROGRAM} {}", arguments.join(" ")),
            why: format!("no counter in its answer: {text}"),
        })
    }

    fn remove(&mut self) -> Result<(), LabError> {
        if !std::mem::take(&mut self.installed) {
            return Ok(());
        }
        let arguments = ["delete", "table", self.family, self.name];
        command::run(self.host, PROGRAM, &arguments).map(drop)
    }
}

/// The packets of all counters in the rules of a table, from `nft -j list table`
/// (libnftables-json(5)). None if there is no counter.
fn parse_dropped(text: &str) -> Option<u64> {
    let document: Value = serde_json::from_str(text).ok()?;
    let objects = document.get("nftables")?.as_array()?;
    let statements = objects
        .iter()
        .filter_map(|object| object.get("rule")?.get("expr")?.as_array())
        .flatten();
    statements
        .filter_map(|statement| statement.get("counter")?.get("packets")?.as_u64())
        .fold(None, |sum, packets| {
            Some(sum.unwrap_or(0_u64).saturating_add(packets))
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    /// As nft 1.0.6 writes it, with these counters in one rule each.
    fn listing(counters: &[(u64, u64)]) -> String {
        let mut objects = vec![
            json!({"metainfo": {"version": "1.0.6", "json_schema_version": 1}}),
            json!({"table": {"family": "inet", "name": NAME, "handle": 1}}),
            json!({"chain": {"family": "inet", "table": NAME, "name": "early", "prio": -300}}),
        ];
        objects.extend(counters.iter().map(|(packets, bytes)| {
            json!({"rule": {"family": "inet", "expr": [
                {"match": {"op": "==", "left": {"payload": {"protocol": "udp", "field": "dport"}},
                           "right": 4321}},
                {"counter": {"packets": packets, "bytes": bytes}},
                {"drop": null},
            ]}})
        }));
        json!({ "nftables": objects }).to_string()
    }

    #[test]
    fn no_counter_is_not_a_count_of_nothing() {
        assert_eq!(parse_dropped(&listing(&[])), None);
        assert_eq!(parse_dropped(&listing(&[(0, 0)])), Some(0));
        for odd in [
            "",
            "{}",
            "[]",
            r#"{"nftables": 7}"#,
            r#"{"nftables": [{"rule": 7}]}"#,
        ] {
            assert_eq!(parse_dropped(odd), None, "{odd}");
        }
    }

    proptest! {
        #[test]
        fn every_count_is_read(counters in prop::collection::vec((0..u64::MAX / 8, any::<u64>()), 1..5)) {
            let sum = counters.iter().map(|(packets, _)| packets).sum();
            prop_assert_eq!(parse_dropped(&listing(&counters)), Some(sum));
        }

        #[test]
        fn what_is_cut_off_is_no_count(packets: u64, cut in 0.0..1.0) {
            let text = listing(&[(packets, 7)]);
            let end = (text.len() as f64 * cut) as usize;
            prop_assert_eq!(parse_dropped(&text[..end]), None);
        }
    }
}
