//! The answer of a comparison: its tables without modes, and one comparison as the last line.

use super::{BenchFiles, PlacementGroup, RunHead, checks, lower, name};
use crate::experiment::receive_paths::result::{BenchResult, BenchRow};
use crate::measure::document::{files, together};
use crate::measure::samples::{extremes, median};
use crate::udp::TakenBy;
use mpps_report::{Block, Style, Text};

/// The lines that are printed unless all are asked for.
pub(crate) fn answer(result: &BenchResult, written: BenchFiles<'_>) -> Vec<Block> {
    let groups = PlacementGroup::all(result);
    let tables = groups.iter().flat_map(|group| {
        let table = group.table(false).into();
        [Block::heading(&*group.heading), table]
    });
    let mut blocks: Vec<Block> = tables.collect();
    blocks.extend(skipped(result).map(Block::paragraph));
    blocks.extend(super::worked(result.work.as_deref()));
    blocks.extend(checks(result));
    blocks.extend(RunHead::of(result, &result.placement, "row", &[]).flags());
    blocks.push(files(written));
    blocks.extend(comparison(result));
    blocks
}

/// The names of the rows that did not run; those that lack only a CPU to share come last.
fn skipped(result: &BenchResult) -> Option<String> {
    let names = |shares_cpu: bool| {
        let rows = result.rows.iter().filter(|row| row.runs.skipped.is_some());
        let rows = rows.filter(|row| row.shares_cpu == shares_cpu);
        let names = together(rows.map(|row| ((), name(row)))).into_iter();
        names.map(|(name, _)| name).collect::<Vec<_>>()
    };
    let (own, mut shared) = (names(false), names(true));
    shared.retain(|name| !own.contains(name));
    let lists = [("", own), ("sharing a CPU: ", shared)].into_iter();
    let lists = lists.filter(|(_, names)| !names.is_empty());
    let lists: Vec<String> = lists
        .map(|(which, names)| format!("{which}{}", names.join(", ")))
        .collect();
    (!lists.is_empty()).then(|| format!("skipped: {} (-v)", lists.join("; ")))
}

/// The fastest receiver against recvmmsg, of the first table with both.
pub(super) fn comparison(result: &BenchResult) -> Option<Block> {
    let groups = PlacementGroup::all(result);
    let said = groups.iter().find_map(|group| {
        let received = group.rows.iter().copied();
        let mut others = received.filter(|row| row.taken_by != TakenBy::Rule && !row.is_base());
        let base = group.rows.iter().find(|row| row.is_base())?;
        // Rows are in the order of their rates.
        let said = against(others.next()?, base)?;
        Some(match groups.len() {
            1 => said,
            _ => format!("{said}: {}", lower(&group.heading)),
        })
    })?;
    Some(Block::Paragraph(Text::styled(Style::Strong, said)))
}

/// The ratio of the medians, and the range of the rounds' ratios. Machines drift, and the two
/// repeats of a round are next to each other in time.
fn against(row: &BenchRow, base: &BenchRow) -> Option<String> {
    let rounds = row.runs.mpps_samples.iter().zip(&base.runs.mpps_samples);
    let (rates, bases): (Vec<f64>, Vec<f64>) = rounds.unzip();
    let ratios: Vec<f64> = rates
        .iter()
        .zip(&bases)
        .map(|(row, base)| row / base)
        .collect();
    let [low, high] = extremes(&ratios).filter(|_| bases.iter().all(|rate| *rate > 0.0))?;
    let times = |ratio: f64| match ratio {
        ..1.0 => format!("{ratio:.2}"),
        _ => format!("{ratio:.1}"),
    };
    let range = match ratios.len() {
        1 => "indicative: one repeat".to_owned(),
        _ => format!("{} to {}", times(low), times(high)),
    };
    let ratio = times(median(&rates)? / median(&bases)?);
    Some(format!("{} {ratio}x recvmmsg ({range})", row.title()))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{fixture, flat};
    use super::*;
    use mpps_report::Terminal;

    fn lines(result: &BenchResult) -> String {
        let said = Terminal::new(80, false).blocks(&answer(result, &[]));
        said.replace('\u{a0}', " ")
    }

    #[test]
    fn skipped_rows_have_their_names_and_no_reason() {
        let mut result = fixture();
        let list = " skipped: dpdk, io_uring (-v)\n";
        assert!(lines(&result).contains(list), "{}", lines(&result));
        result
            .rows
            .retain(|row| row.path != "recv" || row.shares_cpu);
        let why = Some("not here".to_owned());
        result
            .rows
            .iter_mut()
            .filter(|row| row.path == "recv")
            .for_each(|row| row.runs.skipped.clone_from(&why));
        let list = " skipped: dpdk, io_uring; sharing a CPU: recv * (-v)\n";
        assert!(lines(&result).contains(list), "{}", lines(&result));
    }

    #[test]
    fn a_run_ends_with_the_fastest_receiver_against_recvmmsg() {
        let mut result = fixture();
        let modes: Vec<String> = result.rows.iter().map(|row| row.mode.clone()).collect();
        let mut ends = |change: fn(&mut BenchRow), line: &str| {
            result.rows.iter_mut().for_each(change);
            let said = lines(&result);
            assert!(flat(&said).ends_with(line), "{line}\n{said}");
            let unsaid = modes.iter().filter(|mode| !mode.is_empty());
            assert!(unsaid.clone().all(|mode| !said.contains(&**mode)), "{said}");
            assert!(!said.contains("For the highest rate"), "{said}");
        };
        let group = ": the application has its CPU to itself, 1 flow";
        ends(
            |_| (),
            &format!("af_xdp spin 2.7x recvmmsg (2.6 to 2.8){group}"),
        );
        // A drop is no receiver, and a slower path is compared, too.
        ends(
            |row| row.runs.mpps_samples.truncate(1),
            &format!("af_xdp spin 2.6x recvmmsg (indicative: one repeat){group}"),
        );
        ends(
            |row| {
                if row.runs.skipped.is_none() && (row.path != "recv" && !row.is_base()) {
                    row.runs.skipped = Some("not here".to_owned());
                }
            },
            &format!("recv 0.64x recvmmsg (indicative: one repeat){group}"),
        );
        result.rows.retain(|row| row.path == "recvmmsg");
        assert_eq!(comparison(&result), None);
    }
}
