//! A rule of legacy iptables in the table `raw`, for IPv4.

use super::{EarlyDropRule, command};
use crate::{LabError, LabHost};

/// The program (iptables-legacy of iptables(8)).
const PROGRAM: &str = "iptables-legacy";
/// Seconds to wait while another program changes rules (`-w` of iptables(8)). The lock is the
/// machine's, not the host's.
const LOCK_SECONDS: &str = "5";

/// The rule.
#[derive(Debug)]
pub(super) struct RawRule<'lab> {
    host: &'lab LabHost,
    port: u16,
    installed: bool,
}

impl<'lab> RawRule<'lab> {
    pub(super) fn new(host: &'lab LabHost, port: u16) -> Result<Self, LabError> {
        let mut rule = Self {
            host,
            port,
            installed: false,
        };
        rule.change("-I")?;
        rule.installed = true;
        Ok(rule)
    }

    /// Inserts (`-I`) or deletes (`-D`) the rule.
    fn change(&self, verb: &str) -> Result<(), LabError> {
        let port = self.port.to_string();
        let rule = ["-p", "udp", "--dport", &port, "-j", "DROP"];
        let arguments = ["-w", LOCK_SECONDS, "-t", "raw", verb, "PREROUTING"];
        command::run(self.host, PROGRAM, &[&arguments[..], &rule].concat()).map(drop)
    }
}

impl EarlyDropRule for RawRule<'_> {
    fn dropped(&self) -> Result<u64, LabError> {
        let arguments = ["-w", LOCK_SECONDS, "-t", "raw", "-v", "-S", "PREROUTING"];
        let text = command::run(self.host, PROGRAM, &arguments)?;
        parse_dropped(&text, self.port).ok_or_else(|| LabError::Program {
            command: format!("{PROGRAM} {}", arguments.join(" ")),
            why: format!("no rule for port {} in its answer: {text}", self.port),
        })
    }

    fn remove(&mut self) -> Result<(), LabError> {
        if !std::mem::take(&mut self.installed) {
            return Ok(());
        }
        self.change("-D")
    }
}

/// The packets that the rule for this port dropped, from `iptables -v -S`:
///
/// ```text
/// -A PREROUTING -p udp -m udp --dport 4321 -c 17 527 -j DROP
/// ```
fn parse_dropped(text: &str, port: u16) -> Option<u64> {
    let port = port.to_string();
    text.lines().find_map(|line| {
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let after = |flag: &str| {
            let at = words.iter().position(|word| *word == flag)?;
            words.get(at + 1).copied()
        };
        let is_ours = words.first() == Some(&"-A")
            && after("--dport") == Some(&port)
            && after("-j") == Some("DROP");
        if is_ours {
            after("-c")?.parse().ok()
        } else {
            None
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_rule_is_told_from_others() {
        let text = "-P PREROUTING ACCEPT -c 99 100\n\
                    -A PREROUTING -p udp -m udp --dport 43210 -c 1 31 -j DROP\n\
                    -A PREROUTING -p udp -m udp --dport 4321 -c 2 31 -j ACCEPT\n\
                    -A PREROUTING -p udp -m udp --dport 4321 -c 3 93 -j DROP\n";
        assert_eq!(parse_dropped(text, 4321), Some(3));
        assert_eq!(parse_dropped(text, 43210), Some(1));
        assert_eq!(parse_dropped(text, 9), None);
    }

    proptest! {
        #[test]
        fn every_count_is_read(port: u16, packets: u64, bytes: u64) {
            let text = format!(
                "-P PREROUTING ACCEPT -c 0 0\n-A PREROUTING -p udp -m udp --dport {port} -c \
                 {packets} {bytes} -j DROP\n"
            );
            prop_assert_eq!(parse_dropped(&text, port), Some(packets));
        }

        #[test]
        fn nonsense_is_no_count(text in "(-A|-c|-j|DROP|--dport|4321|[ \n]|[0-9]{1,30}|.){0,40}") {
            // Whatever it reads there, it does not panic.
            let _ = parse_dropped(&text, 4321);
        }
    }
}
