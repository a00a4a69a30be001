//! A host at two moments as a test writes it down, and what the checks say of it.

use super::*;
use crate::check::drop_reasons::MARKS;
use crate::counters::drop_probe::UNKNOWN_NAMESPACE;
pub(super) use mpps_trial::mentions;

/// A host a second apart, and the question.
#[derive(Clone)]
pub(super) struct Scene {
    pub(super) before: Observation,
    pub(super) after: Observation,
    /// The drops of the kernel meanwhile; none if they are not seen.
    pub(super) drops: Option<Vec<DropCount>>,
    pub(super) asked: DoctorRequest,
}

/// Counters as text: `Udp.NoPorts 7, Ip.InReceives 9`. The last value of a name counts.
fn counters(text: &str) -> BTreeMap<&str, u64> {
    let all = text.split(", ").filter_map(|one| one.split_once(' '));
    all.map(|(name, value)| (name, value.parse().expect("a number")))
        .collect()
}

/// Counters of an interface as text: `rx_packets 9, rx_dropped 7`.
pub(super) fn common(text: &str) -> LinkCounters<u64> {
    let mut all = serde_json::json!(LinkCounters::<u64>::default());
    for (name, value) in counters(text) {
        *all.get_mut(name).expect(name) = value.into();
    }
    serde_json::from_value(all).expect("counters")
}

/// Drops as text, with function, marks, count and whose they are: `NOT_SPECIFIED@nf_queue+options 9 other`.
pub(super) fn drops(text: &str) -> Vec<DropCount> {
    let drop = |text: &str| {
        let mut words = text.split(' ');
        let mut names = words.next().expect("a reason").split('+');
        let name = names.next().expect("a reason");
        let (reason, place) = name.split_once('@').unwrap_or((name, ""));
        let count = words.next().expect("a count").parse().expect("a number");
        let mark = |name| MARKS.iter().find(|(_, known)| *known == name).expect(name);
        let mut drop = DropCount {
            place: place.to_owned(),
            marks: names.map(|name| mark(name).0).sum(),
            ..dropped(reason, count)
        };
        for word in words {
            match word {
                "other" => drop.ours = false,
                "sent" => drop.sent = true,
                "elsewhere" => drop.netns = 2,
                "unknown" => drop.netns = UNKNOWN_NAMESPACE,
                _ => panic!("{text}"),
            }
        }
        drop
    };
    let all = text.split(", ").filter(|one| !one.is_empty());
    all.map(drop).collect()
}

impl Scene {
    pub(super) fn of((before, after): (Observation, Observation)) -> Self {
        Self {
            before,
            after,
            drops: None,
            asked: asked(None),
        }
    }

    /// A host whose counters grew from nothing by this.
    pub(super) fn grown(text: &str) -> Self {
        let now = Vec::from_iter(counters(text));
        let zero: Vec<_> = now.iter().map(|(name, _)| (*name, 0)).collect();
        Self::of((host(&zero), later(host(&now))))
    }

    /// The same, with other counters.
    pub(super) fn counting(mut self, text: &str) -> Self {
        let other = Self::grown(text);
        self.before.snapshot.snmp = other.before.snapshot.snmp;
        self.after.snapshot.snmp = other.after.snapshot.snmp;
        self
    }

    pub(super) fn drops(self, text: &str) -> Self {
        let drops = Some(drops(text));
        Self { drops, ..self }
    }

    pub(super) fn port(self, port: impl Into<Option<u16>>) -> Self {
        self.asking(asked(port.into()))
    }

    pub(super) fn asking(self, asked: DoctorRequest) -> Self {
        Self { asked, ..self }
    }

    /// The same, with a change at both moments.
    pub(super) fn both(mut self, change: impl Fn(&mut Observation)) -> Self {
        change(&mut self.before);
        change(&mut self.after);
        self
    }

    /// The same, with a change at the second moment.
    pub(super) fn now(mut self, change: impl FnOnce(&mut Observation)) -> Self {
        change(&mut self.after);
        self
    }

    pub(super) fn see<T>(&self, look: impl FnOnce(&Observed) -> T) -> T {
        let drops = self.drops.as_ref().map(|drops| (&[][..], &drops[..], 1));
        look(&Observed::new(
            &self.before,
            &self.after,
            drops,
            self.asked.clone(),
        ))
    }

    pub(super) fn found(&self) -> Vec<Finding> {
        self.see(findings)
    }

    /// The words of the first finding: cause, reasons and remedy.
    pub(super) fn text(&self) -> String {
        text(self.found().first().expect("something is found"))
    }

    pub(super) fn ledger(&self) -> Ledger {
        self.see(ledger)
    }

    /// All findings, as checks and counts: `conntrack 5, firewall 2`.
    #[track_caller]
    pub(super) fn finds(&self, expected: &str) -> &Self {
        finds(&self.found(), expected);
        self
    }

    /// As [`tells`].
    #[track_caller]
    pub(super) fn tells(&self, expected: &str) -> &Self {
        tells(&self.found(), expected);
        self
    }

    /// The sums of the ledger: offered, lost, UNACCOUNTED.
    #[track_caller]
    pub(super) fn sums(&self, expected: [i64; 3]) -> &Self {
        let ledger = self.ledger();
        let sums = [ledger.offered, ledger.lost()].map(|sum| sum as i64);
        assert_eq!([sums[0], sums[1], ledger.unaccounted], expected, "{ledger}");
        self
    }
}

fn text(one: &Finding) -> String {
    format!("{} {} {}", one.what, one.why, one.remedy)
}

#[track_caller]
pub(super) fn finds(found: &[Finding], expected: &str) {
    let checks = found
        .iter()
        .map(|one| format!("{} {}", one.check, one.count));
    assert_eq!(
        checks.collect::<Vec<_>>().join(", "),
        expected,
        "{found:#?}"
    );
}

/// The first finding as text: check, count, whether it is a remark, how sure, if it is the only one, and parts of its
/// words: `way_out 300 remark likely alone: mtu 1500 | !ring`. Count, sureness and parts may be left out. Empty for
/// none.
#[track_caller]
pub(super) fn tells(found: &[Finding], expected: &str) {
    let (head, parts) = expected.split_once(": ").unwrap_or((expected, ""));
    let mut head = head.split(' ');
    let Some(first) = found.first() else {
        return assert_eq!(expected, "");
    };
    assert_eq!(head.next(), Some(&*first.check), "{found:#?}");
    let head: Vec<&str> = head.collect();
    assert_eq!(head.contains(&"remark"), first.is_remark, "{found:#?}");
    for word in head {
        let is_so = match word {
            "remark" => true,
            "alone" => found.len() == 1,
            "certain" => first.confidence == Confidence::Certain,
            "likely" => first.confidence == Confidence::Likely,
            "possible" => first.confidence == Confidence::Possible,
            count => count.parse() == Ok(first.count),
        };
        assert!(is_so, "{word}: {found:#?}");
    }
    mentions(&text(first), parts);
}
