//! The kernel's table of connections.

use crate::root::Root;

/// How full the table is, and what it refused.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Conntrack {
    /// Connections in the table of this namespace.
    pub entries: u64,
    /// The most that may be in it.
    pub entries_max: u64,
    /// Packets dropped because they could not enter it (`drop`). If two packets of one flow enter
    /// at once, the dropped one is in `insert_failed` as well.
    pub dropped: u64,
    /// Packets found invalid (`invalid`), as with a wrong checksum: a rule may drop these.
    pub invalid: u64,
    /// Those among them that an entry of another flow, or of the same one, was in the way of (`insert_failed`).
    pub insert_failed: u64,
}

impl Conntrack {
    /// Reads it; none where nothing is tracked, or who reads may not see it.
    pub(crate) fn read_from(root: &Root) -> Option<Self> {
        let number = |name: &str| {
            let text = root.read_if_possible(&format!("proc/sys/net/netfilter/{name}"))?;
            text.parse().ok()
        };
        let text = root.read_if_possible("proc/thread-self/net/stat/nf_conntrack");
        let text = text.unwrap_or_default();
        Some(Self {
            entries: number("nf_conntrack_count")?,
            entries_max: number("nf_conntrack_max")?,
            dropped: column(&text, "drop"),
            invalid: column(&text, "invalid"),
            insert_failed: column(&text, "insert_failed"),
        })
    }
}

/// The column of this name of all CPUs (ct_cpu_seq_show,
/// net/netfilter/nf_conntrack_standalone.c): hexadecimal, under a line of names.
fn column(text: &str, wanted: &str) -> u64 {
    let mut lines = text.lines();
    let names: Vec<&str> = lines
        .next()
        .unwrap_or_default()
        .split_ascii_whitespace()
        .collect();
    let rows = lines.flat_map(|line| names.iter().zip(line.split_ascii_whitespace()));
    rows.filter(|(name, _)| **name == wanted)
        .filter_map(|(_, value)| u64::from_str_radix(value, 16).ok())
        .fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn foreign_text_never_panics(text in "[0-9a-z\n ]{0,200}") {
            let _ = column(&text, "drop");
            let _ = column(&format!("drop\n{text}"), "drop");
        }
    }

    #[test]
    fn refusals_of_all_cpus_are_added_up() {
        let text = "entries clashres found insert insert_failed drop early_drop\n\
                    00000002 00000000 00000000 00000000 0000000a 00000001 00000005\n\
                    00000002 00000000 00000000 00000000 00000000 00000010 00000000\n";
        assert_eq!((column(text, "drop"), column(text, "early_drop")), (17, 5));
        assert_eq!(column(text, "insert_failed"), 10);
        for odd in ["", "drop", "drop\nxyz", "drop\n1 2 3", "found\n7"] {
            assert_eq!(
                column(odd, "drop"),
                u64::from(odd.ends_with("2 3")),
                "{odd}"
            );
        }
    }
}
