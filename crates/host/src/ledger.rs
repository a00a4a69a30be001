//! The ledger: where every offered datagram went.
//!
//! ```text
//! offered + copies = delivered + all losses + still queued + UNACCOUNTED
//! ```
//!
//! `UNACCOUNTED` is computed last, from terms that each have a counter of their own; no term is
//! ever computed as "the rest" so that the sum comes out right. It is signed: a negative value
//! means that something was counted twice or was not ours.

pub mod account;
pub mod host_pair;
pub mod loss;

use mpps_os::text::Foreign;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// A place on a datagram's way from the sending program to the receiving one, in that order.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Station {
    /// The sending program and its socket: refused before the datagram left the sending stack.
    Sender,
    /// The wire and the receive ring behind it.
    Wire,
    /// The per-CPU backlog queue (`netif_rx`, RPS).
    Backlog,
    /// The receiving IP layer and the firewall.
    Ip,
    /// The receiving UDP layer, before a socket's queue.
    Udp,
    /// The receiving socket's queue.
    Socket,
    /// A ring between the kernel and the receiving program.
    Ring,
    /// The receiving program.
    Application,
}

impl Station {
    /// The station's name as people read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sender => "sender",
            Self::Wire => "wire",
            Self::Backlog => "backlog",
            Self::Ip => "IP",
            Self::Udp => "UDP",
            Self::Socket => "socket",
            Self::Ring => "ring",
            Self::Application => "application",
        }
    }

    /// Its name for programs, as in JSON.
    pub fn word(self) -> &'static str {
        match self {
            Self::Ip => "ip",
            Self::Udp => "udp",
            other => other.name(),
        }
    }
}

impl fmt::Display for Station {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Whose packets a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// This program's own count.
    Program,
    /// One socket's.
    Socket,
    /// One interface's.
    Interface,
    /// A whole network namespace's, other programs included.
    Namespace,
    /// The whole machine's, other namespaces included.
    Host,
}

/// Datagrams lost at one station for one reason, and the counter that says so.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Loss {
    /// Where.
    pub station: Station,
    /// Why, in plain words: `socket buffer full`.
    pub reason: String,
    /// How many datagrams. Losses of one ledger are disjoint.
    #[schemars(range(min = 1))]
    pub count: u64,
    /// The counter that the figure was read from.
    pub source: String,
    /// Whose packets that counter counts.
    pub scope: Scope,
    /// True if the figure is the difference of two counters and not a counter of its own.
    pub by_difference: bool,
    /// False if the counter counts trains or fragments and no exact conversion was at hand, or may count
    /// packets of others.
    pub exact: bool,
}

impl Loss {
    /// An exact count of a network namespace, by a counter of its own.
    pub fn new(
        station: Station,
        reason: impl Into<String>,
        count: u64,
        source: impl Into<String>,
    ) -> Self {
        Self {
            station,
            reason: reason.into(),
            count,
            source: source.into(),
            scope: Scope::Namespace,
            by_difference: false,
            exact: true,
        }
    }
}

/// A second, independent count of something that the ledger says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Witness {
    /// The loss that was counted: `socket buffer full`.
    pub about: String,
    /// Which counter: `drop reason SOCKET_RCVBUFF`, `sequence numbers`.
    pub source: String,
    /// The count of the ledger.
    pub ledger: u64,
    /// The count of the witness.
    pub witness: u64,
}

impl Witness {
    /// True if both counts are the same.
    pub fn agrees(&self) -> bool {
        self.ledger == self.witness
    }
}

/// How far a ledger is undecided: replayed datagrams and other programs' can stand for lost ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Undecided {
    /// Datagrams that came and are not in `delivered`: each is one of the run or not, such as a
    /// duplicate. `unaccounted` may be less by as many.
    pub arrivals: u64,
    /// Losses that may be of duplicates or of other programs. `unaccounted` may be more by as many.
    pub drops: u64,
}

/// Where every offered datagram of one run went.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ledger {
    /// Datagrams that the sending program handed to the kernel, accepted or refused.
    pub offered: u64,
    /// Deliveries beyond the first of one datagram: multicast to several sockets.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub copies: u64,
    /// Datagrams that the receiving program got, each counted once if they were stamped.
    pub delivered: u64,
    /// Datagrams lost, by station and reason; disjoint, in the order of the stations.
    pub losses: Vec<Loss>,
    /// Datagrams found in the socket buffers when the receiving program stopped.
    pub queued: u64,
    /// `offered + copies - delivered - losses - queued`.
    pub unaccounted: i64,
    /// Datagrams of the run that came again, by their sequence numbers; in no other term.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub duplicates: u64,
    /// How far `unaccounted` is not known; absent if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undecided: Option<Undecided>,
    /// Second and third counts, agreeing or not.
    pub witnesses: Vec<Witness>,
    /// Notes for the reader: what could not be seen, which counter lied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
}

// Serde hands the field over by reference.
#[allow(
    clippy::trivially_copy_pass_by_ref,
    reason = "the signature is serde's"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Ledger {
    /// Begins a ledger with what was offered and what arrived.
    pub fn new(offered: u64, delivered: u64, queued: u64) -> Self {
        Self {
            offered,
            delivered,
            queued,
            ..Self::default()
        }
        .balanced()
    }

    /// Enters a loss; one of zero datagrams is left out.
    pub fn lose(&mut self, loss: Loss) {
        if loss.count > 0 {
            // Interfaces and drivers named the counter.
            let source = Foreign(&loss.source).to_string();
            self.losses.push(Loss { source, ..loss });
            self.losses.sort_by_key(|loss| loss.station);
            self.unaccounted = self.remainder();
        }
    }

    /// Enters extra deliveries of the same datagrams.
    pub fn copy(&mut self, copies: u64) {
        self.copies = self.copies.saturating_add(copies);
        self.unaccounted = self.remainder();
    }

    /// Enters a second count of something that the ledger says.
    pub fn witness(&mut self, about: &str, source: &str, ledger: u64, witness: u64) {
        self.witnesses.push(Witness {
            about: about.to_owned(),
            source: source.to_owned(),
            ledger,
            witness,
        });
    }

    /// Says something that a reader has to know.
    pub fn note(&mut self, note: impl Into<String>) {
        self.notes.push(note.into());
    }

    /// All losses together.
    pub fn lost(&self) -> u64 {
        // A ledger can come from a file, so that any counts are possible.
        let counts = self.losses.iter().map(|loss| loss.count);
        counts.fold(0, u64::saturating_add)
    }

    /// Losses at one station.
    pub fn lost_at(&self, station: Station) -> u64 {
        self.losses
            .iter()
            .filter(|loss| loss.station == station)
            .map(|loss| loss.count)
            .fold(0, u64::saturating_add)
    }

    /// True if every term counts datagrams, and none counts trains or fragments.
    pub fn is_exact(&self) -> bool {
        self.losses.iter().all(|loss| loss.exact)
    }

    /// The least and the most that is unaccounted for; the same number if nothing is undecided.
    pub fn unaccounted_range(&self) -> [i64; 2] {
        let Undecided { arrivals, drops } = self.undecided.unwrap_or_default();
        [
            self.unaccounted.saturating_sub_unsigned(arrivals),
            self.unaccounted.saturating_add_unsigned(drops),
        ]
    }

    /// True if every term is exact, and nothing is unaccounted for or undecided.
    pub fn balances(&self) -> bool {
        self.unaccounted_range() == [0, 0] && self.is_exact()
    }

    /// The share of the offered datagrams that arrived, 0 to 1; 1 if none was offered.
    pub fn delivered_ratio(&self) -> f64 {
        if self.offered == 0 && self.copies == 0 {
            return 1.0;
        }
        self.delivered as f64 / (self.offered as f64 + self.copies as f64)
    }

    /// The station and reason that lost most.
    pub fn largest_loss(&self) -> Option<&Loss> {
        self.losses.iter().max_by_key(|loss| loss.count)
    }

    /// True if `unaccounted` is what the other terms say; false in a file that was tampered with.
    pub fn adds_up(&self) -> bool {
        self.unaccounted == self.remainder()
    }

    fn balanced(mut self) -> Self {
        self.unaccounted = self.remainder();
        self
    }

    fn remainder(&self) -> i64 {
        let in_ = i128::from(self.offered) + i128::from(self.copies);
        let lost: i128 = self.losses.iter().map(|loss| i128::from(loss.count)).sum();
        let out = i128::from(self.delivered) + i128::from(self.queued) + lost;
        (in_ - out).clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }
}

/// `offered 10 = delivered 7 + socket buffer full 3 + still queued 0 + UNACCOUNTED 0`
impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "offered {}", Grouped(self.offered))?;
        if self.copies > 0 {
            write!(f, " + multicast copies {}", Grouped(self.copies))?;
        }
        write!(f, " = delivered {}", Grouped(self.delivered))?;
        for loss in &self.losses {
            write!(f, " + {} {}", loss.reason, Grouped(loss.count))?;
            match (loss.by_difference, loss.exact) {
                (true, _) => write!(f, " (by difference)")?,
                (false, false) => write!(f, " (inexact)")?,
                (false, true) => {}
            }
        }
        let [least, most] = self.unaccounted_range().map(|count| {
            let sign = if count < 0 { "-" } else { "" };
            format!("{sign}{}", Grouped(count.unsigned_abs()))
        });
        let queued = Grouped(self.queued);
        write!(f, " + still queued {queued} + UNACCOUNTED {least}")?;
        match least == most {
            true => Ok(()),
            false => write!(f, " to {most}"),
        }
    }
}

/// A number with its digits in groups of three: `3 412 882`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grouped(pub u64);

impl fmt::Display for Grouped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                grouped.push(' ');
            }
            grouped.push(digit);
        }
        f.pad(&grouped)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn loss(station: Station, reason: &str, count: u64) -> Loss {
        Loss::new(station, reason, count, "test")
    }

    #[test]
    fn a_hole_shows_as_unaccounted_and_is_not_absorbed() {
        let mut ledger = Ledger::new(10, 6, 1);
        ledger.lose(loss(Station::Socket, "socket buffer full", 2));
        assert_eq!(ledger.unaccounted, 1);
        assert!(!ledger.balances());
    }

    #[test]
    fn what_is_undecided_is_a_range_and_never_balances() {
        let mut ledger = Ledger::new(1_700, 1_001, 0);
        ledger.undecided = Some(Undecided {
            arrivals: 699,
            drops: 0,
        });
        let text = ledger.to_string();
        assert!(text.ends_with("+ UNACCOUNTED 0 to 699"), "{text}");
        assert!(!ledger.balances() && ledger.adds_up());
        // Duplicates came, and some of what was dropped may be duplicates, too.
        let mut ledger = Ledger::new(2_000, 700, 0);
        ledger.lose(loss(Station::Socket, "socket buffer full", 1_300));
        assert!(ledger.balances());
        let (arrivals, drops) = (0, 1_300);
        ledger.undecided = Some(Undecided { arrivals, drops });
        let text = ledger.to_string();
        assert!(text.ends_with("+ UNACCOUNTED 0 to 1 300"), "{text}");
        assert!(!ledger.balances());
        ledger.unaccounted = i64::MIN;
        ledger.undecided = Some(Undecided {
            arrivals: u64::MAX,
            drops: u64::MAX,
        });
        assert_eq!(ledger.unaccounted_range(), [i64::MIN, i64::MAX]);
    }

    #[test]
    fn reads_like_the_equation_it_is() {
        let mut ledger = Ledger::new(3_412_882, 3_400_112, 0);
        ledger.lose(loss(Station::Socket, "socket buffer full", 12_770));
        assert_eq!(
            ledger.to_string(),
            "offered 3 412 882 = delivered 3 400 112 + socket buffer full 12 770 \
             + still queued 0 + UNACCOUNTED 0"
        );
        // Rows come in the order of the stations, one of zero is none, and what was counted twice
        // is negative.
        ledger.copy(120);
        ledger.lose(loss(Station::Udp, "no socket on the port", 0));
        ledger.lose(Loss {
            by_difference: true,
            ..loss(Station::Ip, "firewall", 1_000)
        });
        ledger.lose(Loss {
            exact: false,
            ..loss(Station::Sender, "refused", 7)
        });
        assert_eq!(
            ledger.to_string(),
            "offered 3 412 882 + multicast copies 120 = delivered 3 400 112 + refused 7 (inexact) \
             + firewall 1 000 (by difference) + socket buffer full 12 770 + still queued 0 \
             + UNACCOUNTED -887"
        );
        assert_eq!(
            (ledger.lost(), ledger.lost_at(Station::Ip)),
            (13_777, 1_000)
        );
        assert_eq!(
            ledger.largest_loss().map(|loss| loss.station),
            Some(Station::Socket)
        );
        assert!(ledger.adds_up());
        ledger.delivered += 1;
        assert!(!ledger.adds_up(), "somebody changed the file");
    }

    #[test]
    fn stations_have_the_names_that_people_read() {
        use Station::{Application, Backlog, Ip, Ring, Sender, Socket, Udp, Wire};
        let all = [Sender, Wire, Backlog, Ip, Udp, Socket, Ring, Application];
        let names = all.map(|station| format!("{station:7}|")).concat();
        let expected = "sender |wire   |backlog|IP     |UDP    |socket |ring   |application|";
        assert_eq!(names, expected);
    }

    #[test]
    fn copies_count_as_offered_and_are_in_a_file_only_if_there_are_any() {
        let ratio = |offered, copies, delivered| {
            let mut ledger = Ledger::new(offered, delivered, 0);
            ledger.copy(copies);
            let file = serde_json::to_string(&ledger).expect("numbers and text");
            assert_eq!(file.contains("copies"), copies > 0, "{file}");
            ledger.delivered_ratio()
        };
        let ratios = [
            ratio(0, 0, 0),
            ratio(8, 0, 2),
            ratio(0, 4, 3),
            ratio(6, 2, 2),
        ];
        assert_eq!(ratios, [1.0, 0.25, 0.75, 0.25]);
    }

    #[test]
    fn what_no_number_can_hold_is_the_largest_that_there_is() {
        assert_eq!(Ledger::new(u64::MAX, 0, 0).unaccounted, i64::MAX);
        assert_eq!(Ledger::new(0, u64::MAX, 0).unaccounted, i64::MIN);
    }

    #[test]
    fn an_inexact_row_never_balances() {
        let mut ledger = Ledger::new(10, 7, 0);
        ledger.lose(Loss {
            exact: false,
            ..loss(Station::Socket, "socket buffer full", 3)
        });
        assert_eq!(ledger.unaccounted, 0);
        assert!(!ledger.balances() && Ledger::new(1, 1, 0).balances());
    }

    #[test]
    fn a_witness_that_disagrees_is_kept() {
        let mut ledger = Ledger::new(1, 1, 0);
        for seen in [5, 4] {
            ledger.witness("socket buffer full", "drop reason SOCKET_RCVBUFF", 5, seen);
        }
        let agree: Vec<_> = ledger.witnesses.iter().map(Witness::agrees).collect();
        assert_eq!(agree, [true, false]);
    }

    proptest! {
        #[test]
        fn the_equation_holds_for_any_terms(
            offered in 0_u64..1 << 50,
            delivered in 0_u64..1 << 50,
            queued in 0_u64..1 << 30,
            counts in proptest::collection::vec(0_u64..1 << 40, 0..8),
        ) {
            let mut ledger = Ledger::new(offered, delivered, queued);
            for count in &counts {
                ledger.lose(loss(Station::Ip, "discarded", *count));
            }
            let right = i128::from(delivered) + i128::from(queued)
                + i128::from(ledger.lost()) + i128::from(ledger.unaccounted);
            prop_assert_eq!(i128::from(offered), right);
            prop_assert_eq!(ledger.lost(), counts.iter().sum::<u64>());
            prop_assert!(ledger.adds_up());
        }

        #[test]
        fn grouping_keeps_the_number(number in any::<u64>()) {
            let text = Grouped(number).to_string();
            prop_assert_eq!(text.replace(' ', "").parse::<u64>().ok(), Some(number));
            prop_assert!(text.split(' ').skip(1).all(|group| group.len() == 3));
            prop_assert!(text.find(' ').unwrap_or(text.len()) <= 3 && !text.starts_with(' '));
        }
    }
}
