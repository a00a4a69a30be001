//! Which path to choose for which need, in plain words, from the figures of one run.

use super::result::BenchRow;

/// A rate within this share of another is the same to somebody who has to choose: repeats on a
/// busy machine differ by as much.
const ALIKE: f64 = 0.10;

/// Sentences about the measured rows; none if nothing was measured.
pub(crate) fn advice(rows: &[BenchRow]) -> Vec<String> {
    let measured: Vec<&BenchRow> = rows
        .iter()
        .filter(|row| row.mpps_median.is_some() && !row.path.ends_with("_drop"))
        .collect();
    let alone: Vec<&BenchRow> = measured
        .iter()
        .copied()
        .filter(|row| !row.napi.starts_with("application's CPU") || is_polling(row))
        .collect();
    let mut sentences = Vec::new();
    let Some(reference) = alone
        .iter()
        .find(|row| row.path == "recvmmsg" && row.reference)
    else {
        return sentences;
    };
    let base = rate(reference);
    if let Some(fastest) = best(&alone, rate) {
        sentences.push(match times(rate(fastest), base) {
            Some(times) => format!(
                "For the highest rate choose {}: {:.2} Mpps, {times} of recvmmsg's {base:.2}.",
                name(fastest),
                rate(fastest)
            ),
            None => format!(
                "For the highest rate stay with recvmmsg: {base:.2} Mpps, and nothing here is faster \
                 by more than the noise."
            ),
        });
    }
    let sockets: Vec<&BenchRow> = alone.iter().copied().filter(|row| is_socket(row)).collect();
    if let Some(socket) = best(&sockets, rate) {
        sentences.push(match times(rate(socket), base) {
            Some(times) => format!(
                "To keep ordinary sockets (firewall, routing, IP fragments, checksums) choose {}: \
                 {:.2} Mpps, {times} of recvmmsg's.",
                name(socket),
                rate(socket)
            ),
            None => {
                "To keep ordinary sockets stay with recvmmsg: no other socket path is faster here."
                    .to_owned()
            }
        });
    }
    let cost = |row: &BenchRow| -> f64 {
        let cost = row.cpu_ns_per_packet.as_ref();
        let app = cost.and_then(|cost| cost.app).unwrap_or(f64::INFINITY);
        app + cost.and_then(|cost| cost.softirq).unwrap_or(0.0)
    };
    let sleeping: Vec<&BenchRow> = alone
        .iter()
        .copied()
        .filter(|row| !row.mode.starts_with("spin") && has_whole_cost(row))
        .collect();
    if let Some(cheapest) = best(&sleeping, |row| -cost(row)) {
        sentences.push(format!(
            "For the least CPU choose {}: {:.0} ns a packet, kernel thread included, against {:.0} ns.",
            name(cheapest),
            cost(cheapest),
            cost(reference)
        ));
    }
    let shared: Vec<&BenchRow> = measured
        .iter()
        .copied()
        .filter(|row| row.napi.starts_with("application's CPU"))
        .collect();
    let base_shared = shared
        .iter()
        .find(|row| row.path == "recvmmsg" && row.reference);
    if let (Some(best), Some(base)) = (best(&shared, rate), base_shared) {
        if times(rate(best), rate(base)).is_some() {
            sentences.push(format!(
                "Where queue and application share one CPU choose {}: {:.2} Mpps against recvmmsg's \
                 {:.2} under the same flood.",
                name(best),
                rate(best),
                rate(base)
            ));
        }
    }
    sentences
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

fn is_polling(row: &BenchRow) -> bool {
    row.napi.ends_with("(it polls)")
}

/// True if all CPU time of the path is known: a kernel thread's, or none beside the application's.
fn has_whole_cost(row: &BenchRow) -> bool {
    let cost = row.cpu_ns_per_packet.as_ref();
    is_polling(row) || cost.is_some_and(|cost| cost.softirq.is_some())
}

fn is_socket(row: &BenchRow) -> bool {
    matches!(row.path.as_str(), "recv" | "recvmmsg" | "io_uring")
}

/// `af_xdp, spin`.
fn name(row: &BenchRow) -> String {
    match row.mode.split_once(':') {
        Some((variant, _)) => format!("{} ({variant})", row.path),
        None => row.path.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::CpuCost;
    use super::*;

    fn row(path: &str, mode: &str, napi: &str, mpps: f64, app: f64) -> BenchRow {
        BenchRow {
            path: path.to_owned(),
            mode: mode.to_owned(),
            napi: napi.to_owned(),
            reference: path == "recvmmsg" && mode == "socket",
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
        let alone = "generator's CPU 0, own thread";
        let shared = "application's CPU 1, own thread";
        let rows = [
            row("af_xdp", "spin: native XDP", alone, 3.0, 900.0),
            row("af_xdp", "poll: native XDP", alone, 2.8, 60.0),
            row("xdp_drop", "untouched", alone, 4.0, 0.0),
            row("io_uring", "socket", alone, 1.4, 500.0),
            row("recvmmsg", "socket", alone, 1.0, 600.0),
            row("recvmmsg", "socket", shared, 0.2, 600.0),
            row("af_xdp", "poll: native XDP", shared, 0.9, 60.0),
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
        let alone = "generator's CPU 0, own thread";
        let rows = [
            row("recvmmsg", "socket", alone, 1.0, 600.0),
            row("io_uring", "socket", alone, 1.05, 600.0),
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
