//! The ladder as `mpps compare` takes it.

use super::result::{LabBody, LabResult, RungResult};
use crate::measure::compare::{Row, Side};
use crate::measure::envelope::Body;

/// A result and the name of its file.
pub(crate) fn side<'a>(file: &'a str, result: &'a LabResult) -> Side<'a> {
    let row = |rung: &'a RungResult| Row {
        number: &rung.rung,
        name: &rung.name,
        skipped: rung.skipped.as_deref(),
        mpps: &rung.mpps_samples,
        offered_mpps: rung.offered_mpps_median,
        sender: rung.sender.as_ref().map(|sender| &*sender.name),
        ledger: rung.ledger.as_ref(),
        sample_ledgers: &rung.sample_ledgers,
    };
    Side {
        file,
        command: LabBody::COMMAND,
        unit: "rung",
        quick: result.quick,
        complete: result.complete,
        fingerprint: &result.fingerprint,
        facts: vec![
            ("version", &result.version),
            ("command", &result.command),
            ("placement", &result.placement),
            ("delivery", &result.delivery),
        ],
        rows: result.rungs.iter().map(row).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::{FIXTURE, fixture};
    use super::*;
    use crate::measure::compare::{Comparison, Verdict, compare};
    use crate::measure::envelope::ParseError;
    use mpps_report::Terminal;
    use proptest::prelude::*;

    fn text(comparison: &Comparison, width: usize) -> String {
        Terminal::new(width, false).blocks(&comparison.blocks())
    }

    fn side_by_side(a: &LabResult, b: &LabResult) -> anyhow::Result<Comparison> {
        compare(&side("a.json", a), &side("b.json", b))
    }

    fn scale(result: &mut LabResult, number: &str, factor: f64) {
        let rung = result
            .rungs
            .iter_mut()
            .find(|rung| rung.rung == number)
            .unwrap();
        rung.mpps_samples
            .iter_mut()
            .for_each(|rate| *rate *= factor);
    }

    fn verdict_on(comparison: &Comparison, number: &str) -> Verdict {
        comparison
            .rungs
            .iter()
            .find(|rung| rung.rung == number)
            .unwrap()
            .verdict
    }

    #[test]
    fn a_run_is_the_same_as_itself() {
        let comparison = side_by_side(&fixture(), &fixture()).unwrap();
        assert!(!comparison.worse);
        assert_eq!(comparison.fingerprint_differences, []);
        for rung in &comparison.rungs {
            let expected = if rung.rung == "4c" || rung.rung == "4d" {
                Verdict::Skipped
            } else {
                Verdict::Same
            };
            assert_eq!(rung.verdict, expected, "{rung:?}");
        }
    }

    #[test]
    fn a_drop_and_a_gain_are_told_from_noise() {
        let mut b = fixture();
        scale(&mut b, "3", 0.7);
        scale(&mut b, "6", 1.4);
        scale(&mut b, "7", 1.03);
        let comparison = side_by_side(&fixture(), &b).unwrap();
        assert_eq!(verdict_on(&comparison, "3"), Verdict::Worse);
        assert_eq!(verdict_on(&comparison, "6"), Verdict::Better);
        assert_eq!(verdict_on(&comparison, "7"), Verdict::Same);
        assert!(comparison.worse);
        assert!(!side_by_side(&b, &b).unwrap().worse);
    }

    #[test]
    fn a_rung_that_fell_silent_is_worse_and_one_that_woke_up_better() {
        let mut b = fixture();
        scale(&mut b, "3", 0.0);
        let comparison = side_by_side(&fixture(), &b).unwrap();
        assert_eq!(verdict_on(&comparison, "3"), Verdict::Worse);
        let back = side_by_side(&b, &fixture()).unwrap();
        assert_eq!(verdict_on(&back, "3"), Verdict::Better);
        assert!(serde_json::to_string(&back).is_ok());
    }

    #[test]
    fn rungs_of_one_side_are_kept_and_are_no_loss() {
        let (mut a, mut b) = (fixture(), fixture());
        a.rungs.retain(|rung| rung.rung != "10");
        b.rungs.retain(|rung| rung.rung != "11");
        b.rungs[0].name.push_str(" elsewhere");
        let comparison = side_by_side(&a, &b).unwrap();
        assert_eq!(verdict_on(&comparison, "10"), Verdict::OnlyInB);
        assert_eq!(verdict_on(&comparison, "11"), Verdict::OnlyInA);
        assert_eq!(verdict_on(&comparison, "1"), Verdict::OnlyInA);
        assert_eq!(comparison.rungs.last().unwrap().verdict, Verdict::OnlyInB);
        assert!(!comparison.worse);
    }

    #[test]
    fn a_ledger_that_no_longer_balances_is_worse_at_the_same_rate() {
        let mut b = fixture();
        let ledger = &mut b.rungs[1].sample_ledgers[0];
        ledger.offered += 1;
        ledger.unaccounted += 1;
        let comparison = side_by_side(&fixture(), &b).unwrap();
        assert_eq!(verdict_on(&comparison, "2"), Verdict::Worse);
        // Rung 4b of the fixture never balanced: that is old news.
        assert_eq!(verdict_on(&comparison, "4b"), Verdict::Same);
        assert!(!side_by_side(&b, &fixture()).unwrap().worse);
        b.rungs[1].sample_ledgers.clear();
        b.rungs[1].ledger = None;
        assert_eq!(
            verdict_on(&side_by_side(&fixture(), &b).unwrap(), "2"),
            Verdict::Worse
        );
    }

    #[test]
    fn what_cannot_be_compared_is_refused_with_its_file_and_the_remedy() {
        let refused = |change: &dyn Fn(&mut LabResult)| {
            let mut b = fixture();
            change(&mut b);
            side_by_side(&fixture(), &b).unwrap_err().to_string()
        };
        let quick = refused(&|b| b.quick = true);
        assert!(
            quick.contains("b.json") && quick.contains("without --quick"),
            "{quick}"
        );
        let few = refused(&|b| b.rungs[4].mpps_samples.truncate(2));
        assert!(
            few.contains("rung 4b of b.json") && few.contains("--repeat 5"),
            "{few}"
        );
        let nothing = refused(&|b| b.rungs.clear());
        assert!(nothing.contains("a.json and b.json"), "{nothing}");
        let silent = refused(&|b| b.rungs[0].mpps_samples.clear());
        assert!(silent.contains("measured 0 times"), "{silent}");
    }

    #[test]
    fn differences_of_machine_and_run_come_first() {
        let mut b = fixture();
        b.fingerprint.kernel_release = "6.1.0".to_owned();
        b.delivery = "RPS".to_owned();
        let text = text(&side_by_side(&fixture(), &b).unwrap(), 100);
        let place = |what| {
            text.find(what)
                .unwrap_or_else(|| panic!("no {what} in {text}"))
        };
        assert!(place("kernel_release differs: A 6.18.44, B 6.1.0") < place("delivery differs"));
        assert!(place("delivery differs") < place("one socket, unpinned"));
    }

    #[test]
    fn a_machine_that_got_slower_as_a_whole_is_suspected_first() {
        let mut b = fixture();
        let numbers: Vec<_> = b.rungs.iter().map(|rung| rung.rung.clone()).collect();
        numbers.iter().for_each(|number| scale(&mut b, number, 0.8));
        let comparison = side_by_side(&fixture(), &b).unwrap();
        assert!(
            comparison.notes.iter().any(|note| note.contains("by 0.80")),
            "{:?}",
            comparison.notes
        );
        assert_eq!(side_by_side(&fixture(), &fixture()).unwrap().notes, [""; 0]);
    }

    #[test]
    fn the_text_fits_the_terminal() {
        let mut b = fixture();
        scale(&mut b, "3", 0.7);
        for width in [60, 80, 130] {
            let text = text(&side_by_side(&fixture(), &b).unwrap(), width);
            assert!(
                text.lines().all(|line| line.chars().count() <= width),
                "{text}"
            );
            assert!(text.contains("WORSE") && text.contains("1 worse"));
        }
    }

    #[test]
    fn a_text_cut_short_anywhere_is_an_error() {
        let whole = FIXTURE.trim_end();
        for end in (0..whole.len())
            .step_by(97)
            .filter(|end| whole.is_char_boundary(*end))
        {
            assert!(
                matches!(
                    LabResult::parse(&whole[..end]),
                    Err(ParseError::Shape { .. })
                ),
                "at {end}"
            );
        }
    }

    #[test]
    fn a_foreign_schema_and_a_changed_count_are_named() {
        let older = FIXTURE.replace("mpps.lab.v2", "mpps.lab.v1");
        let refusal = LabResult::parse(&older).unwrap_err().to_string();
        for part in ["mpps.lab.v1", "mpps.lab.v2", "measure again"] {
            assert!(refusal.contains(part), "{refusal}");
        }
        let delivered = fixture().rungs[1].ledger.as_ref().unwrap().delivered;
        let changed = FIXTURE.replacen(
            &format!("\"delivered\": {delivered}"),
            "\"delivered\": 7",
            1,
        );
        assert!(
            matches!(LabResult::parse(&changed), Err(ParseError::Ledger { of }) if of == "rung 2")
        );
    }

    proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "\\PC*") {
            let _ = LabResult::parse(&text);
        }

        #[test]
        fn no_damage_makes_reading_comparing_or_rendering_panic(
            at in 0..FIXTURE.len(),
            length in 0_usize..40,
            with in "[0-9a-z{}\\[\\]\",:.-]{0,12}",
        ) {
            let end = (at + length).min(FIXTURE.len());
            prop_assume!(FIXTURE.is_char_boundary(at) && FIXTURE.is_char_boundary(end));
            let damaged = format!("{}{with}{}", &FIXTURE[..at], &FIXTURE[end..]);
            if let Ok(result) = LabResult::parse(&damaged) {
                if let Ok(comparison) = side_by_side(&fixture(), &result) {
                    text(&comparison, 80);
                }
                let document = crate::experiment::ladder::document::document(&result, &[]);
                mpps_report::page(&document);
                mpps_report::Terminal::new(80, false).document(&document);
            }
        }
    }
}
