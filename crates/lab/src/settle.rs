//! Waiting until no packet moves.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use mpps_os::netlink::link::{self, LinkStatistics};

use crate::{LabError, LabHost, NapiThread};

/// The time between two looks: longer than a tick, so that a runnable thread ran in between.
const INTERVAL: Duration = Duration::from_millis(10);

/// This many looks in a row must see the same.
const LOOKS: usize = 3;

/// The longest wait: a full socket buffer is drained in a fraction of it.
const PATIENCE: Duration = Duration::from_secs(5);

/// Waits until no packet has moved for a few looks.
pub(crate) fn settle(hosts: [&LabHost; 2], threads: &[NapiThread]) -> Result<(), LabError> {
    let deadline = Instant::now() + PATIENCE;
    let mut last = look(hosts)?;
    let mut alike = 1;
    // The shortest backlog of each CPU after the counters last moved. Once it was empty, the
    // packets that waited then have gone.
    let mut least = backlogs();
    while Instant::now() <= deadline {
        thread::sleep(INTERVAL);
        let now = look(hosts)?;
        // Counters also stand still while a packet waits for a thread that waits for a CPU.
        let waiting = threads.iter().any(|thread| is_runnable(thread.pid));
        if now == last && !waiting {
            alike += 1;
            if alike >= LOOKS && least.iter().all(|length| *length == 0) {
                return Ok(());
            }
            least = least
                .into_iter()
                .zip(backlogs())
                .map(|(a, b)| a.min(b))
                .collect();
        } else {
            (alike, least) = (1, backlogs());
        }
        last = now;
    }
    Err(LabError::Restless(PATIENCE.as_millis()))
}

/// The counters of the two hosts.
#[derive(Debug, PartialEq)]
struct LabCounters {
    links: Vec<LinkStatistics>,
    protocols: Vec<String>,
}

fn look(hosts: [&LabHost; 2]) -> Result<LabCounters, LabError> {
    let mut look = LabCounters {
        links: Vec::new(),
        protocols: Vec::new(),
    };
    for host in hosts {
        let (statistics, protocols) = host.run(|| {
            let statistics = link::statistics(host.interface_index());
            // The file of the main thread's namespace would be /proc/net/snmp.
            let protocols = fs::read_to_string("/proc/thread-self/net/snmp").unwrap_or_default();
            (statistics, protocols)
        })?;
        look.links.push(statistics?);
        look.protocols.push(protocols);
    }
    Ok(look)
}

/// Returns true if a thread has work: it sleeps when its queue is empty.
fn is_runnable(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| parse_state(&stat) == Some('R'))
}

/// The third field of `/proc/PID/stat` (`proc_pid_stat(5)`). The second is a name in brackets,
/// which may hold anything.
fn parse_state(stat: &str) -> Option<char> {
    stat.rsplit_once(") ")?.1.chars().next()
}

/// The number of packets in the backlog of each CPU, for any namespace.
fn backlogs() -> Vec<u64> {
    let text = fs::read_to_string("/proc/net/softnet_stat");
    text.map_or_else(|_| Vec::new(), |text| parse_backlogs(&text))
}

/// The twelfth column, as of Linux 5.10 (softnet_seq_show in net/core/net-procfs.c).
fn parse_backlogs(text: &str) -> Vec<u64> {
    text.lines()
        .filter_map(|line| line.split_ascii_whitespace().nth(11))
        .filter_map(|length| u64::from_str_radix(length, 16).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states() {
        assert_eq!(parse_state("7 (napi/a) b-1) R 2 0 0"), Some('R'));
        assert_eq!(parse_state("7 (x) S 2"), Some('S'));
        for broken in ["", "7", "7 (x)", "7 (x) "] {
            assert_eq!(parse_state(broken), None, "{broken}");
        }
    }

    #[test]
    fn each_cpu_has_a_backlog() {
        let row = |length: &str| format!("0{} {length} 0 0 0\n", " 0".repeat(10));
        let text = row("0000000a") + &row("00000001");
        assert_eq!(parse_backlogs(&text), [10, 1]);
        assert_eq!(parse_backlogs("0 0 0\nxyz\n"), [0; 0]);
    }
}
