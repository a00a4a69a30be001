//! The per-CPU receive queues of the kernel: what passed them and what they dropped.

use serde::{Deserialize, Serialize};

use crate::root::Root;
use crate::{HostError, HostResult};

/// `/proc/net/softnet_stat`: a row per online CPU.
///
/// These figures are **host-wide, also when read inside a network namespace**, and their
/// counters have 32 bits: at a million packets a second they begin again after 72 minutes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Softnet {
    /// The rows in the order of their CPUs.
    pub rows: Vec<SoftnetRow>,
}

/// The counters of one CPU since the machine started (`softnet_seq_show` in
/// `net/core/net-procfs.c`).
///
/// The unit is the packet buffer, which is a train of datagrams after receive offload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SoftnetRow {
    /// The CPU.
    pub cpu: usize,
    /// Packets that this CPU took into the network stack.
    pub processed: u32,
    /// Packets dropped because this CPU's backlog queue was full (`netdev_max_backlog`).
    pub dropped: u32,
    /// Times that the receive softirq stopped with work left (`netdev_budget`).
    pub time_squeeze: u32,
    /// Wake-ups by another CPU for receive packet steering.
    pub received_rps: u32,
    /// Packets dropped by the flow limit of the backlog; counted in `dropped` as well.
    pub flow_limit: u32,
    /// Packets waiting in the backlog right now; absent before Linux 5.10.
    pub backlog_length: Option<u32>,
}

impl Softnet {
    /// Reads the rows of this machine.
    ///
    /// # Errors
    /// [`HostError::Kernel`] where `/proc` is missing, [`HostError::Malformed`] where the file has an
    /// unknown form.
    pub fn read() -> HostResult<Self> {
        Self::read_from(&Root::machine())
    }

    pub(crate) fn read_from(root: &Root) -> HostResult<Self> {
        let path = "proc/thread-self/net/softnet_stat";
        Self::parse_lines(&root.read(path)?)
            .map_err(|what| HostError::malformed(root.name(path), what))
    }

    /// Reads the text of `/proc/net/softnet_stat`.
    ///
    /// # Errors
    /// [`HostError::Malformed`] with the line that does not fit.
    pub fn parse(text: &str) -> HostResult<Self> {
        Self::parse_lines(text).map_err(|what| HostError::malformed("/proc/net/softnet_stat", what))
    }

    /// The row of a CPU, if it was online.
    pub fn row(&self, cpu: usize) -> Option<&SoftnetRow> {
        self.rows.iter().find(|row| row.cpu == cpu)
    }

    fn parse_lines(text: &str) -> HostResult<Self, String> {
        let mut softnet = Self::default();
        for (index, line) in text.lines().enumerate() {
            let row = row(index, line).map_err(|what| format!("line {}: {what}", index + 1))?;
            if softnet.row(row.cpu).is_some() {
                return Err(format!(
                    "line {}: CPU {} is there twice",
                    index + 1,
                    row.cpu
                ));
            }
            softnet.rows.push(row);
        }
        Ok(softnet)
    }
}

/// Parses one line of hexadecimal columns. Newer kernels have more of them.
///
/// 0 processed, 1 dropped, 2 time_squeeze, 3-8 always zero, 9 received_rps (Linux 2.6.35),
/// 10 flow_limit (3.11), 11 backlog length and 12 CPU (5.10), 13 and 14 the two parts of the
/// backlog (6.4).
fn row(index: usize, line: &str) -> HostResult<SoftnetRow, String> {
    let columns = line
        .split_ascii_whitespace()
        .map(|word| {
            u32::from_str_radix(word, 16).map_err(|_| format!("`{word}` is not hexadecimal"))
        })
        .collect::<HostResult<Vec<u32>, String>>()?;
    if columns.len() < 3 {
        return Err(format!("{} columns, at least 3 wanted", columns.len()));
    }
    let column = |at: usize| columns.get(at).copied();
    Ok(SoftnetRow {
        // Before 5.10 the rows of offline CPUs were left out without a trace, so the position is
        // all there is.
        cpu: column(12).map_or(index, |cpu| cpu as usize),
        processed: columns[0],
        dropped: columns[1],
        time_squeeze: columns[2],
        received_rps: column(9).unwrap_or(0),
        flow_limit: column(10).unwrap_or(0),
        backlog_length: column(11),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_a_kernel_of_today() {
        let text = "0000000b 00000001 00000002 00000000 00000000 00000000 00000000 00000000 \
                    00000000 00000003 00000004 00000005 00000000 00000005 00000000\n\
                    00000d8c 00000000 00000000 00000000 00000000 00000000 00000000 00000000 \
                    00000000 00000000 00000000 00000000 00000007 00000000 00000000\n";
        let softnet = Softnet::parse(text).expect("two rows");
        let first = SoftnetRow {
            cpu: 0,
            processed: 11,
            dropped: 1,
            time_squeeze: 2,
            received_rps: 3,
            flow_limit: 4,
            backlog_length: Some(5),
        };
        assert_eq!(softnet.row(0), Some(&first));
        assert_eq!(softnet.row(7).map(|row| row.processed), Some(0xd8c));
        assert_eq!(
            softnet.row(1),
            None,
            "the column names the CPU, not the position"
        );
    }

    #[test]
    fn reads_older_kernels() {
        let eleven = "1 2 3 0 0 0 0 0 0 4 5\n6 0 0 0 0 0 0 0 0 0 0\n";
        let softnet = Softnet::parse(eleven).expect("Linux 3.11 to 5.9");
        assert_eq!(softnet.row(0).map(|row| row.flow_limit), Some(5));
        assert_eq!(softnet.row(1).map(|row| row.processed), Some(6));
        assert_eq!(softnet.row(1).and_then(|row| row.backlog_length), None);
        let softnet = Softnet::parse("1 2 3 0 0 0 0 0 9\n").expect("Linux 2.6");
        assert_eq!(softnet.row(0).map(|row| row.received_rps), Some(0));
    }

    #[test]
    fn names_what_is_wrong() {
        let fault = |text: &str| Softnet::parse(text).unwrap_err().to_string();
        assert_eq!(
            fault("1 2 3\n1 2"),
            "/proc/net/softnet_stat: line 2: 2 columns, at least 3 wanted"
        );
        assert!(fault("1 2 x").ends_with("`x` is not hexadecimal"));
        assert!(fault("100000000 2 3").ends_with("is not hexadecimal"));
        let row = "0 0 0 0 0 0 0 0 0 0 0 0 1\n";
        assert!(fault(&row.repeat(2)).ends_with("line 2: CPU 1 is there twice"));
    }

    #[test]
    fn this_machine_has_rows() {
        assert!(!Softnet::read().expect("/proc is here").rows.is_empty());
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC*") {
            let _ = Softnet::parse(&text);
        }

        #[test]
        fn never_panics_on_likely_text(text in "([0-9a-f]{0,9} ?){0,16}\n([0-9a-f]{1,8} ){0,14}") {
            let _ = Softnet::parse(&text);
        }

        #[test]
        fn round_trip(columns in proptest::collection::vec(any::<[u32; 6]>(), 0..9)) {
            let text: String = columns.iter().enumerate().map(|(cpu, c)| format!(
                "{:08x} {:08x} {:08x} 0 0 0 0 0 0 {:08x} {:08x} {:08x} {cpu:08x} 0 0\n",
                c[0], c[1], c[2], c[3], c[4], c[5],
            )).collect();
            let rows: Vec<SoftnetRow> = columns.iter().enumerate().map(|(cpu, c)| SoftnetRow {
                cpu, processed: c[0], dropped: c[1], time_squeeze: c[2],
                received_rps: c[3], flow_limit: c[4], backlog_length: Some(c[5]),
            }).collect();
            prop_assert_eq!(Softnet::parse(&text).expect("well formed").rows, rows);
        }
    }
}
