//! The path to choose for each need, in plain words, from the figures of one run.

use super::result::BenchRow;
use crate::measure::document::{counted, spread, together};
use crate::measure::noise::{MeasuredChange, Noise, SAMPLES_MIN};
use crate::measure::samples::median;
use crate::udp::TakenBy;
use mpps_report::Quantity;

/// Sentences about the measured rows, for each number of flows; none if nothing was measured. Rows
/// within the noise are named together.
pub(crate) fn advice(rows: &[BenchRow]) -> Vec<String> {
    let mut groups = together(rows.iter().map(|row| (row, row.flows)));
    groups.sort_by_key(|(flows, _)| *flows);
    let groups = groups.into_iter();
    let said = groups.flat_map(|(flows, rows)| advice_of(&rows, flows));
    let mut said: Vec<String> = said.collect();
    said.dedup();
    said
}

/// Sentences about the rows of this number of flows.
fn advice_of(rows: &[&BenchRow], flows: Option<usize>) -> Vec<String> {
    let received =
        |row: &&BenchRow| row.runs.mpps_median.is_some() && row.taken_by != TakenBy::Rule;
    let (shared, alone): (Vec<&BenchRow>, Vec<&BenchRow>) = rows
        .iter()
        .copied()
        .filter(received)
        .partition(|row| row.shares_cpu);
    if [&shared, &alone]
        .into_iter()
        .flatten()
        .any(|row| row.runs.mpps_samples.len() < SAMPLES_MIN)
    {
        return vec![format!(
            "Advice on a path needs {SAMPLES_MIN} repeats or more: fewer show nothing about noise."
        )];
    }
    let sockets: Vec<&BenchRow> = alone.iter().copied().filter(|row| is_socket(row)).collect();
    // A receiver that spins uses a CPU whatever comes.
    let sleeping: Vec<&BenchRow> = alone.iter().copied().filter(|row| !row.spins).collect();
    let with = flows.map_or_else(String::new, |flows| {
        format!(" with {}", counted(flows, "flow"))
    });
    let sentences = [
        sentence(&format!("For the highest rate{with}"), &alone, &RATE),
        sentence(
            &format!("To keep ordinary sockets (firewall, routing, IP fragments, checksums){with}"),
            &sockets,
            &RATE,
        ),
        sentence(
            &format!("For the least CPU per packet{with}, NAPI included,"),
            &sleeping,
            &COST,
        ),
        sentence(
            &format!("Where queue and application share one CPU{with}"),
            &shared,
            &RATE,
        ),
    ];
    sentences.into_iter().flatten().collect()
}

/// A figure that rows are chosen by.
struct Figure {
    samples: fn(&BenchRow) -> &[f64],
    /// The change of the figure in a better row.
    better: MeasuredChange,
    quantity: fn(f64) -> Quantity,
}

const RATE: Figure = Figure {
    samples: |row| &row.runs.mpps_samples,
    better: MeasuredChange::Better,
    quantity: Quantity::Mpps,
};

const COST: Figure = Figure {
    samples: |row| {
        row.cpu_ns_per_packet
            .as_ref()
            .map_or(&[], |cost| &cost.samples)
    },
    better: MeasuredChange::Worse,
    quantity: Quantity::Nanoseconds,
};

impl Figure {
    fn of(&self, row: &BenchRow) -> f64 {
        median((self.samples)(row)).unwrap_or(0.0)
    }
}

/// The choice for a need: the best rows, or recvmmsg if no row is better by more than noise.
fn sentence(need: &str, rows: &[&BenchRow], figure: &Figure) -> Option<String> {
    let known = |row: &&&BenchRow| (figure.samples)(row).len() >= SAMPLES_MIN;
    let mut rows: Vec<&BenchRow> = rows.iter().filter(known).copied().collect();
    let base = *rows.iter().find(|row| row.is_base())?;
    rows.sort_by(|a, b| figure.of(b).total_cmp(&figure.of(a)));
    if figure.better == MeasuredChange::Worse {
        rows.reverse();
    }
    let samples = figure.samples;
    let noise = Noise::of(rows.iter().map(|row| (samples(row), samples(row))));
    let best = *rows.first()?;
    let verdict = |than: &BenchRow, row: &BenchRow| noise.judge(samples(than), samples(row)).0;
    // The range shows how much the difference of two figures means.
    let quantity = |row: &BenchRow| {
        let range = spread(samples(row), figure.quantity).unwrap_or_default();
        format!("{}, {range}", (figure.quantity)(figure.of(row)))
    };
    if verdict(base, best) != figure.better {
        return Some(format!(
            "{need} stay with recvmmsg ({}): no path is better by more than noise.",
            quantity(base)
        ));
    }
    let chosen: Vec<&BenchRow> = rows
        .into_iter()
        .filter(|row| verdict(row, best) != figure.better && verdict(base, row) == figure.better)
        .collect();
    let named = chosen
        .iter()
        .map(|row| format!("{} ({})", row.title(), quantity(row)));
    let named = named.collect::<Vec<_>>().join(" or ");
    let alike = match chosen.len() {
        1 => "",
        _ => ", equal within the noise",
    };
    let times = Quantity::Times(figure.of(best) / figure.of(base));
    Some(format!(
        "{need} choose {named}{alike}: {times} recvmmsg ({}).",
        quantity(base)
    ))
}

fn is_socket(row: &BenchRow) -> bool {
    row.taken_by == TakenBy::Socket
}

#[cfg(test)]
mod tests {
    use super::super::result::CpuCost;
    use super::*;
    use crate::udp::runs::Runs;

    /// A row whose repeats lie 1 % apart.
    fn row(path: &str, variant: &str, shares_cpu: bool, mpps: f64, ns: f64) -> BenchRow {
        let samples = |middle: f64| {
            [0.98, 0.99, 1.0, 1.01, 1.02]
                .map(|part| middle * part)
                .to_vec()
        };
        BenchRow {
            path: path.to_owned(),
            variant: variant.to_owned(),
            shares_cpu,
            reference: path == "recvmmsg" && variant.is_empty(),
            runs: Runs {
                mpps_median: Some(mpps),
                mpps_samples: samples(mpps),
                ..Runs::default()
            },
            cpu_ns_per_packet: Some(CpuCost {
                samples: samples(ns),
                ..CpuCost::default()
            }),
            ..BenchRow::default()
        }
    }

    fn ring(path: &str, variant: &str, shares_cpu: bool, mpps: f64, ns: f64) -> BenchRow {
        BenchRow {
            taken_by: TakenBy::Ring,
            ..row(path, variant, shares_cpu, mpps, ns)
        }
    }

    fn said(rows: &[BenchRow]) -> Vec<String> {
        let said = advice(rows).into_iter();
        said.map(|said| said.replace('\u{a0}', " ")).collect()
    }

    #[test]
    fn names_the_path_for_each_need() {
        let (alone, shared) = (false, true);
        let mut rows = [
            ring("af_xdp", "turns", alone, 3.0, 50.0),
            ring("af_xdp", "poll", alone, 2.0, 160.0),
            ring("xdp_drop", "packet untouched", alone, 4.0, 10.0),
            row("io_uring", "", alone, 1.4, 500.0),
            row("recvmmsg", "", alone, 1.0, 700.0),
            row("recvmmsg", "", shared, 0.2, 700.0),
            ring("af_xdp", "poll", shared, 0.9, 60.0),
        ];
        // The behaviour of a row is in its fields, not in its name.
        rows[0].spins = true;
        rows[2].taken_by = TakenBy::Rule;
        assert_eq!(
            said(&rows),
            [
                "For the highest rate choose af_xdp turns (3.00 Mpps, 2.94-3.06): 3.00x recvmmsg (1.00 \
                 Mpps, 0.98-1.02).",
                "To keep ordinary sockets (firewall, routing, IP fragments, checksums) choose io_uring \
                 (1.40 Mpps, 1.37-1.43): 1.40x recvmmsg (1.00 Mpps, 0.98-1.02).",
                "For the least CPU per packet, NAPI included, choose af_xdp poll (160 ns, 157-163): \
                 0.23x recvmmsg (700 ns, 686-714).",
                "Where queue and application share one CPU choose af_xdp poll (0.90 Mpps, 0.88-0.92): \
                 4.50x recvmmsg (0.20 Mpps, 0.20).",
            ]
        );
    }

    #[test]
    fn what_noise_does_not_tell_apart_is_named_together() {
        let rows = [
            row("recvmmsg", "", false, 1.0, 600.0),
            ring("af_xdp", "spin", false, 3.0, 200.0),
            ring("af_xdp", "poll", false, 2.97, 202.0),
            ring("packet_mmap", "take", false, 2.0, 400.0),
        ];
        let said = said(&rows);
        assert!(said[0].contains(
            "choose af_xdp spin (3.00 Mpps, 2.94-3.06) or af_xdp poll (2.97 Mpps, 2.91-3.03), equal \
             within the noise: 3.00x"
        ));
        assert!(
            said[2]
                .contains("choose af_xdp spin (200 ns, 196-204) or af_xdp poll (202 ns, 198-206)"),
            "{said:?}"
        );
        assert!(
            said[1].contains("stay with recvmmsg (1.00 Mpps, 0.98-1.02)"),
            "{said:?}"
        );
    }

    #[test]
    fn what_is_alike_is_not_recommended() {
        let rows = [
            row("recvmmsg", "", false, 1.0, 600.0),
            row("io_uring", "", false, 1.01, 596.0),
        ];
        let said = said(&rows);
        assert_eq!(said.len(), 3);
        assert!(
            said.iter().all(|said| said.contains("stay with recvmmsg")),
            "{said:?}"
        );
    }

    #[test]
    fn each_number_of_flows_has_its_own_advice() {
        let with = |flows, row| BenchRow {
            flows: Some(flows),
            ..row
        };
        let rows = [
            with(256, row("recvmmsg", "", false, 1.0, 600.0)),
            with(256, row("io_uring", "GRO", false, 0.6, 900.0)),
            with(1, row("recvmmsg", "", false, 1.0, 600.0)),
            with(1, row("io_uring", "GRO", false, 2.6, 200.0)),
        ];
        let said = said(&rows);
        let first = |part| said.iter().position(|said| said.contains(part));
        assert_eq!(
            first("highest rate with 1 flow choose io_uring GRO (2.60"),
            Some(0)
        );
        assert_eq!(
            first("highest rate with 256 flows stay with recvmmsg"),
            Some(3)
        );
        assert!(said[5].contains("per packet with 256 flows, NAPI included, stay"));
    }

    /// Two rows whose order once followed from their medians only.
    #[test]
    fn a_wide_spread_is_not_told_from_another() {
        let of = |path, samples: [f64; 7]| {
            let mut row = ring(path, "", false, samples[3], 100.0);
            row.runs.mpps_samples = samples.into();
            row
        };
        let rows = [
            of("io_uring", [1.25, 2.4, 2.6, 2.64, 2.66, 2.68, 2.69]),
            of("af_xdp", [1.75, 2.0, 2.1, 2.26, 2.9, 3.2, 3.55]),
            of("recvmmsg", [0.7, 0.72, 0.74, 0.75, 0.76, 0.77, 0.8]),
        ];
        let said = said(&rows);
        assert!(
            said[0].contains(
                "io_uring (2.64 Mpps, 1.25-2.69) or af_xdp (2.26 Mpps, 1.75-3.55), equal within the noise"
            ),
            "{said:?}"
        );
    }

    #[test]
    fn few_repeats_and_nothing_measured_advise_nothing() {
        assert_eq!(advice(&[]), [""; 0]);
        assert_eq!(advice(&[BenchRow::default()]), [""; 0]);
        let mut one = row("recvmmsg", "", false, 1.0, 600.0);
        one.runs.mpps_samples.truncate(1);
        let said = advice(&[one]);
        assert!(
            said.len() == 1 && said[0].contains("needs 3 repeats or more"),
            "{said:?}"
        );
    }
}
