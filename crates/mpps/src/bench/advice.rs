//! Which path to choose for which need, in plain words, from the figures of one run.

use super::result::BenchRow;

/// A rate within this share of another is the same to somebody who has to choose: repeats on a
/// busy machine differ by as much.
const ALIKE: f64 = 0.10;

/// Sentences about the measured rows; none if nothing was measured.
pub(crate) fn advice(rows: &[BenchRow]) -> Vec<String> {
    let measured = rows
        .iter()
        .filter(|row| row.mpps_median.is_some() && !row.path.ends_with("_drop"));
    let (shared, alone): (Vec<&BenchRow>, Vec<&BenchRow>) =
        measured.partition(|row| row.shares_cpu);
    let sentences = [
        fastest(&alone),
        fastest_socket(&alone),
        cheapest(&alone),
        best_on_one_cpu(&shared),
    ];
    sentences.into_iter().flatten().collect()
}

fn fastest(rows: &[&BenchRow]) -> Option<String> {
    let base = rate(reference(rows)?);
    let fastest = best(rows, rate)?;
    Some(match times(rate(fastest), base) {
        Some(times) => format!(
            "For the highest rate choose {}: {:.2} Mpps, {times} recvmmsg's {base:.2}.",
            name(fastest),
            rate(fastest)
        ),
        None => format!(
            "For the highest rate stay with recvmmsg: {base:.2} Mpps, and nothing here is faster by \
             more than the noise."
        ),
    })
}

fn fastest_socket(rows: &[&BenchRow]) -> Option<String> {
    let base = rate(reference(rows)?);
    let sockets: Vec<&BenchRow> = rows.iter().copied().filter(|row| is_socket(row)).collect();
    let socket = best(&sockets, rate)?;
    Some(match times(rate(socket), base) {
        Some(times) => format!(
            "To keep ordinary sockets (firewall, routing, IP fragments, checksums) choose {}: {:.2} \
             Mpps, {times} recvmmsg's.",
            name(socket),
            rate(socket)
        ),
        None => "To keep ordinary sockets stay with recvmmsg: no other socket path is faster here."
            .to_owned(),
    })
}

fn cheapest(rows: &[&BenchRow]) -> Option<String> {
    let reference = reference(rows)?;
    // A receiver that spins uses a CPU whatever comes.
    let sleeping: Vec<&BenchRow> = rows
        .iter()
        .copied()
        .filter(|row| row.variant != "spin" && whole_cost(row).is_some())
        .collect();
    let cheapest = best(&sleeping, |row| -whole_cost(row).unwrap_or(f64::INFINITY))?;
    let (cost, base) = (whole_cost(cheapest)?, whole_cost(reference)?);
    Some(format!(
        "For the least CPU choose {}: {cost:.0} ns a packet, NAPI included, against recvmmsg's \
         {base:.0} ns.",
        name(cheapest)
    ))
}

fn best_on_one_cpu(rows: &[&BenchRow]) -> Option<String> {
    let base = rate(reference(rows)?);
    let best = best(rows, rate)?;
    times(rate(best), base)?;
    Some(format!(
        "Where queue and application share one CPU choose {}: {:.2} Mpps against recvmmsg's {base:.2} \
         under the same flood.",
        name(best),
        rate(best)
    ))
}

/// The row that the others are measured against.
fn reference<'a>(rows: &[&'a BenchRow]) -> Option<&'a BenchRow> {
    let is_reference = |row: &&&BenchRow| row.path == "recvmmsg" && row.reference;
    rows.iter().find(is_reference).copied()
}

/// All CPU time of a datagram, if it is known: the application's, and NAPI's.
fn whole_cost(row: &BenchRow) -> Option<f64> {
    let cost = row.cpu_ns_per_packet.as_ref()?;
    Some(cost.app? + cost.softirq?)
}

fn rate(row: &BenchRow) -> f64 {
    row.mpps_median.unwrap_or(0.0)
}

fn best<'a>(rows: &[&'a BenchRow], figure: impl Fn(&BenchRow) -> f64) -> Option<&'a BenchRow> {
    let by = |a: &&&BenchRow, b: &&&BenchRow| figure(a).total_cmp(&figure(b));
    rows.iter().max_by(by).copied()
}

/// `2.6 times`, or none if the two are alike.
fn times(rate: f64, base: f64) -> Option<String> {
    (base > 0.0 && rate > base * (1.0 + ALIKE)).then(|| format!("{:.1} times", rate / base))
}

fn is_socket(row: &BenchRow) -> bool {
    matches!(row.path.as_str(), "recv" | "recvmmsg" | "io_uring")
}

/// `af_xdp, spin`.
fn name(row: &BenchRow) -> String {
    match row.variant.as_str() {
        "" => row.path.clone(),
        variant => format!("{} ({variant})", row.path),
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::CpuCost;
    use super::*;

    fn row(path: &str, variant: &str, shares_cpu: bool, mpps: f64, app: f64) -> BenchRow {
        BenchRow {
            path: path.to_owned(),
            variant: variant.to_owned(),
            shares_cpu,
            reference: path == "recvmmsg" && variant.is_empty(),
            mpps_median: Some(mpps),
            cpu_ns_per_packet: Some(CpuCost {
                app: Some(app),
                softirq: Some(100.0),
                method: String::new(),
            }),
            ..BenchRow::default()
        }
    }

    #[test]
    fn names_the_path_for_each_need() {
        let (alone, shared) = (false, true);
        let rows = [
            row("af_xdp", "spin", alone, 3.0, 900.0),
            row("af_xdp", "poll", alone, 2.8, 60.0),
            row("xdp_drop", "packet untouched", alone, 4.0, 0.0),
            row("io_uring", "", alone, 1.4, 500.0),
            row("recvmmsg", "", alone, 1.0, 600.0),
            row("recvmmsg", "", shared, 0.2, 600.0),
            row("af_xdp", "poll", shared, 0.9, 60.0),
        ];
        let said = advice(&rows);
        assert_eq!(said.len(), 4, "{said:?}");
        assert!(said[0].contains("af_xdp (spin)") && said[0].contains("3.0 times"));
        assert!(said[1].contains("io_uring") && said[1].contains("1.4 times"));
        assert!(said[2].contains("af_xdp (poll)") && said[2].contains("160 ns"));
        assert!(said[3].contains("0.90 Mpps against recvmmsg's 0.20"));
    }

    #[test]
    fn what_is_alike_is_not_recommended() {
        let alone = false;
        let rows = [
            row("recvmmsg", "", alone, 1.0, 600.0),
            row("io_uring", "", alone, 1.05, 600.0),
        ];
        let said = advice(&rows);
        assert!(said[0].contains("stay with recvmmsg"), "{said:?}");
        assert!(said[1].contains("stay with recvmmsg"), "{said:?}");
    }

    #[test]
    fn nothing_measured_is_nothing_said() {
        assert_eq!(advice(&[]), [""; 0]);
        assert_eq!(advice(&[BenchRow::default()]), [""; 0]);
    }
}
