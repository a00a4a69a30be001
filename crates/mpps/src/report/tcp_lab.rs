//! Renders what the experiments with TCP connections found: tables for a terminal, one HTML file.
//!
//! The renderers take a [`TcpLabResult`] and nothing else: a figure that is not in the result file
//! is in no report either.

pub(crate) mod html;
pub(crate) mod text;

use super::extremes;
use crate::tcp_lab::result::{ConnectionLedger, TcpCell, TcpFigures, TcpLabResult};
use crate::tcp_lab::{NO_SKB_DEFER, SKB_DEFER};

/// The cells of one experiment with one body, in the order of the result.
#[derive(Debug)]
pub(crate) struct Group<'a> {
    pub(crate) experiment: u8,
    pub(crate) body_bytes: usize,
    /// The cells of each server together.
    pub(crate) servers: Vec<(&'a str, Vec<&'a TcpCell>)>,
}

impl<'a> Group<'a> {
    /// The groups that have a cell with figures, or all cells of which were skipped.
    pub(crate) fn all(result: &'a TcpLabResult) -> Vec<Self> {
        let mut groups: Vec<Self> = Vec::new();
        for cell in &result.cells {
            let same = |group: &&mut Self| {
                group.experiment == cell.experiment && group.body_bytes == cell.body_bytes
            };
            if !groups.iter_mut().any(|group| same(&group)) {
                groups.push(Self {
                    experiment: cell.experiment,
                    body_bytes: cell.body_bytes,
                    servers: Vec::new(),
                });
            }
            let Some(group) = groups.iter_mut().find(same) else {
                continue;
            };
            match group
                .servers
                .iter_mut()
                .find(|(name, _)| *name == cell.server)
            {
                Some((_, cells)) => cells.push(cell),
                None => group.servers.push((&cell.server, vec![cell])),
            }
        }
        groups.sort_by_key(|group| (group.experiment, group.body_bytes));
        groups
    }

    /// What the group is about.
    pub(crate) fn heading(&self) -> String {
        let what = match self.experiment {
            1 => "moderation of the server's queue",
            2 => "moderation, then descriptors, events and packet buffers reused",
            _ => "one technique after the other",
        };
        format!(
            "experiment {}: {what}, {} bodies",
            self.experiment,
            body(self.body_bytes)
        )
    }
}

/// A size as the paper and the flags write it: `16k`.
pub(crate) fn body(bytes: usize) -> String {
    crate::tcp_lab::body_name(bytes)
}

/// The figures that a server's others are measured against: those of its base; in the first
/// experiment those without moderation, in the second those of its first step.
pub(crate) fn base<'a>(cells: &[&'a TcpCell]) -> Option<&'a TcpFigures> {
    let named = cells
        .iter()
        .find(|cell| matches!(&*cell.step, "base" | "off"));
    let base = named.or_else(|| cells.iter().find(|cell| cell.experiment == 2))?;
    base.figures.as_ref()
}

/// Steps of a server that did not run, those with one reason together.
pub(crate) fn skipped(cells: &[&TcpCell]) -> Vec<(String, String)> {
    let mut all: Vec<(Vec<&str>, &str)> = Vec::new();
    for cell in cells {
        let Some(why) = &cell.skipped else { continue };
        match all.iter_mut().find(|(_, known)| known == why) {
            Some((steps, _)) => steps.push(&cell.step),
            None => all.push((vec![&cell.step], why)),
        }
    }
    let joined = all
        .into_iter()
        .map(|(steps, why)| (steps.join(", "), why.to_owned()));
    joined.collect()
}

/// What the figures say together, a sentence each.
pub(crate) fn summary(result: &TcpLabResult) -> Vec<String> {
    let mut said = against_others(result);
    said.extend(skb_reuse(result));
    said
}

/// What the kernel's reuse of packet buffers is worth, for each server that was measured with it and
/// without.
fn skb_reuse(result: &TcpLabResult) -> Option<String> {
    let cell = |server: &str, step: &str| {
        let is_it = |cell: &&TcpCell| cell.server == server && cell.step == step;
        let cell = result.cells.iter().find(is_it)?;
        Some((cell.skb_defer_max?, cell.figures.as_ref()?))
    };
    let mut limit = None;
    let on = result.cells.iter().filter(|cell| cell.step == SKB_DEFER);
    let said = on.filter_map(|on| {
        let (found, on_figures) = cell(&on.server, SKB_DEFER)?;
        let (_, off_figures) = cell(&on.server, NO_SKB_DEFER)?;
        limit = Some(found);
        let [on_us, off_us] =
            [on_figures, off_figures].map(|figures| figures.cpu_us_per_connection_median);
        Some(format!(
            "{} {} and {} ({})",
            on.server,
            microseconds(on_us),
            microseconds(off_us),
            times(off_us, on_us)
        ))
    });
    let said: Vec<String> = said.collect();
    Some(format!(
        "server CPU per connection with the kernel's reuse of packet buffers (skb_defer_max {}) and \
         without (0): {}",
        limit?,
        said.join(", ")
    ))
}

/// In two sentences: our server with everything on against all others as they are, for the smallest
/// body.
fn against_others(result: &TcpLabResult) -> Vec<String> {
    let third = || {
        result
            .cells
            .iter()
            .filter(|cell| cell.experiment == 3 && cell.figures.is_some())
    };
    let Some(smallest) = third().map(|cell| cell.body_bytes).min() else {
        return Vec::new();
    };
    let small = || third().filter(|cell| cell.body_bytes == smallest);
    let Some(ours) = small().rfind(|cell| cell.server == "mpps") else {
        return Vec::new();
    };
    let Some(best) = &ours.figures else {
        return Vec::new();
    };
    let others = small().filter(|cell| cell.step == "base" && cell.server != "mpps");
    let against = |ratio: fn(&TcpFigures, &TcpFigures) -> String| {
        let said = others.clone().filter_map(|cell| {
            let name = match &*cell.server {
                "mpps-epoll" => "the paper's baseline (mpps-epoll, base)",
                name => name,
            };
            Some(format!("{name} {}", ratio(cell.figures.as_ref()?, best)))
        });
        said.collect::<Vec<_>>().join(", ")
    };
    let cpu = against(|other, best| {
        let (other, best) = (
            other.cpu_us_per_connection_median,
            best.cpu_us_per_connection_median,
        );
        format!("{} ({})", microseconds(other), times(other, best))
    });
    if cpu.is_empty() {
        return Vec::new();
    }
    let cps = against(|other, best| times(best.cps_median, other.cps_median));
    vec![
        format!(
            "{} bodies, server CPU per connection: mpps with {} {}; as they are, {cpu}",
            body(smallest),
            ours.switches.join("+"),
            microseconds(best.cpu_us_per_connection_median),
        ),
        format!("connections per second of mpps over those of {cps}"),
    ]
}

/// How many ledgers balance, in a line.
pub(crate) fn balanced(result: &TcpLabResult) -> String {
    let ledgers = || result.cells.iter().filter_map(|cell| cell.ledger.as_ref());
    let good = ledgers().filter(|ledger| ledger.unaccounted == 0).count();
    let connections: u128 = ledgers().map(|ledger| u128::from(ledger.started)).sum();
    format!(
        "{good} of {} connection ledgers UNACCOUNTED 0, {} connections",
        ledgers().count(),
        grouped(connections)
    )
}

/// The ledger as an equation; kinds that did not happen are left out.
pub(crate) fn equation(ledger: &ConnectionLedger) -> String {
    let mut text = format!(
        "started {} = completed {}",
        grouped(ledger.started.into()),
        grouped(ledger.completed.into())
    );
    for failure in &ledger.failures {
        let kind = failure.kind.replace('_', " ");
        text.push_str(&format!(" + {kind} {}", grouped(failure.count.into())));
    }
    text + &format!(" + UNACCOUNTED {}", ledger.unaccounted)
}

/// Witnesses that disagree, a sentence each.
pub(crate) fn disagreements(ledger: &ConnectionLedger) -> impl Iterator<Item = String> {
    let witnesses = ledger.witnesses.iter();
    witnesses
        .filter(|witness| !witness.agrees())
        .map(|witness| {
            format!(
                "{}: the ledger has {}, {} says {}",
                witness.about, witness.ledger, witness.source, witness.witness
            )
        })
}

/// Digits in groups of three.
pub(crate) fn grouped(number: u128) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A number of things per second: no digits behind the point.
pub(crate) fn per_second(rate: f64) -> String {
    if rate.is_finite() && rate >= 0.0 {
        grouped(rate.round() as u128)
    } else {
        "-".to_owned()
    }
}

/// A time in microseconds with its unit.
pub(crate) fn microseconds(us: f64) -> String {
    format!("{us:.1} µs")
}

/// A ratio, `1.40x`; a dash where there is none.
pub(crate) fn times(a: f64, b: f64) -> String {
    let ratio = a / b;
    if ratio.is_finite() && b > 0.0 {
        format!("{ratio:.2}x")
    } else {
        "-".to_owned()
    }
}

/// The lowest and the highest repeat as a range, if there are two repeats to differ.
pub(crate) fn spread(samples: &[f64], show: fn(f64) -> String) -> Option<String> {
    let [low, high] = extremes(samples)?;
    (samples.len() > 1).then(|| format!("{}-{}", show(low), show(high)))
}

/// True if some of a cell's packets passed by the queues.
pub(crate) fn passed_by(figures: &TcpFigures) -> bool {
    let shares = [figures.server_ring_share, figures.load_ring_share];
    shares.into_iter().flatten().any(|share| share < 0.99)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A made-up run with everything that a report has to cope with.
    pub(crate) const FIXTURE: &str = include_str!("../../tests/fixtures/lab_tcp.json");

    pub(crate) fn fixture() -> TcpLabResult {
        TcpLabResult::parse(FIXTURE).expect("the fixture is a result file")
    }

    #[test]
    fn what_was_read_is_written_back_byte_for_byte() {
        let mut text = Vec::new();
        crate::report::json::write(&fixture(), &mut text).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), FIXTURE);
    }

    #[test]
    fn a_changed_ledger_is_refused() {
        let mut result = fixture();
        let ledger = result.cells[0].ledger.as_mut().expect("it was measured");
        ledger.completed -= 1;
        let text = serde_json::to_string(&result).unwrap();
        assert!(TcpLabResult::parse(&text).is_err());
    }

    #[test]
    fn a_server_is_measured_against_its_own_base() {
        let result = fixture();
        for group in Group::all(&result) {
            for (name, cells) in &group.servers {
                let is_measured = cells.iter().any(|cell| cell.figures.is_some());
                assert_eq!(base(cells).is_some(), is_measured, "{name}");
            }
        }
    }

    #[test]
    fn the_summary_names_every_other_server_that_ran() {
        let said = summary(&fixture()).join(" ");
        for name in ["the paper's baseline", "apache-event"] {
            assert!(said.contains(name), "{said}");
        }
        assert!(!said.contains("nginx"), "{said}");
        let mut result = fixture();
        result.cells.retain(|cell| cell.server != "mpps");
        assert!(against_others(&result).is_empty());
    }

    #[test]
    fn the_worth_of_packet_buffers_is_told_of_servers_with_both_cells() {
        let last = |result: &TcpLabResult| summary(result).pop().expect("a sentence");
        let mut result = fixture();
        let said = last(&result);
        for word in ["skb_defer_max 64", "mpps-epoll ", ", mpps ", "1.05x"] {
            assert!(said.contains(word), "{word}: {said}");
        }
        result
            .cells
            .retain(|cell| cell.server != "mpps" || cell.step != NO_SKB_DEFER);
        assert!(!last(&result).contains(", mpps "), "{}", last(&result));
        result.cells.retain(|cell| cell.step != NO_SKB_DEFER);
        assert!(!last(&result).contains("skb_defer_max"));
    }

    #[test]
    fn figures_have_the_digits_that_mean_something() {
        assert_eq!(grouped(1_234_567), "1 234 567");
        assert_eq!(per_second(999.6), "1 000");
        assert_eq!(per_second(f64::NAN), "-");
        assert_eq!(
            (times(3.0, 2.0), times(1.0, 0.0)),
            ("1.50x".into(), "-".into())
        );
    }
}
