//! A rule of legacy iptables in the table `raw`, one for each version of IP.

use super::{Rule, command};
use crate::{Error, Host};

/// The programs for the two versions of IP (iptables-legacy of iptables(8)).
const PROGRAM_V4: &str = "iptables-legacy";
const PROGRAM_V6: &str = "ip6tables-legacy";
/// Wait for whoever else changes rules, for so many seconds (`-w` of iptables(8)): the lock is the
/// machine's and not the host's.
const LOCK_SECONDS: &str = "5";

/// The rules, and the programs that still have to remove theirs.
#[derive(Debug)]
pub(super) struct RawRule<'lab> {
    host: &'lab Host,
    port: u16,
    programs: Vec<&'static str>,
}

impl<'lab> RawRule<'lab> {
    pub(super) fn new(host: &'lab Host, port: u16) -> Result<Self, Error> {
        let mut rule = Self {
            host,
            port,
            programs: Vec::new(),
        };
        let versions = [(PROGRAM_V4, true), (PROGRAM_V6, !host.v6().is_empty())];
        for (program, wanted) in versions {
            if !wanted {
                continue;
            }
            if let Err(error) = rule.change(program, "-I") {
                // The error in hand says more than one of cleaning up could.
                let _ = rule.remove();
                return Err(error);
            }
            rule.programs.push(program);
        }
        Ok(rule)
    }

    /// Inserts (`-I`) or deletes (`-D`) the rule.
    fn change(&self, program: &str, verb: &str) -> Result<(), Error> {
        let port = self.port.to_string();
        let rule = ["-p", "udp", "--dport", &port, "-j", "DROP"];
        let arguments = ["-w", LOCK_SECONDS, "-t", "raw", verb, "PREROUTING"];
        command::run(self.host, program, &[&arguments[..], &rule].concat()).map(drop)
    }
}

impl Rule for RawRule<'_> {
    fn dropped(&self) -> Result<u64, Error> {
        let arguments = ["-w", LOCK_SECONDS, "-t", "raw", "-v", "-S", "PREROUTING"];
        let mut dropped = 0;
        for program in &self.programs {
            let text = command::run(self.host, program, &arguments)?;
            dropped += parse_dropped(&text, self.port).ok_or_else(|| Error::Program {
                command: format!("{program} {}", arguments.join(" ")),
                why: format!("no rule for port {} in its answer: {text}", self.port),
            })?;
        }
        Ok(dropped)
    }

    fn remove(&mut self) -> Result<(), Error> {
        // Every one of them is tried, whatever became of the one before.
        let mut all = Ok(());
        for program in std::mem::take(&mut self.programs) {
            all = all.and(self.change(program, "-D"));
        }
        all
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
