//! The classification against the reference implementation, and the search against made-up devices.

use super::*;
use proptest::prelude::*;

/// The answers of MLRsearch 1.2.1. `tests/fixtures/mlrsearch/record.py` shows how they were
/// recorded.
const RECORDED: &str = include_str!("../../../../tests/fixtures/mlrsearch/recorded.json");

/// The capacity of the recorded devices in packets per second, and the loads that were allowed.
const CAPACITY: f64 = 1_234_567.0;
const MIN: f64 = 1e4;
const MAX: f64 = 1e7;

/// A list of trials, and what the reference has after all of them: of each goal the bounds and the
/// conditional throughput.
#[derive(Debug, Deserialize)]
struct Recorded {
    name: String,
    /// The device, if the reference chose the trials itself.
    device: Option<String>,
    goals: Vec<[f64; 6]>,
    /// Load, seconds, offered, lost.
    trials: Vec<(f64, f64, u64, u64)>,
    found: Vec<[Option<f64>; 3]>,
}

impl Recorded {
    fn all() -> Vec<Self> {
        serde_json::from_str(RECORDED).expect("the record is JSON")
    }

    fn goals(&self) -> Vec<SearchGoal> {
        let goal = |[loss, exceed, width, initial, last, sum]: &[f64; 6]| SearchGoal {
            loss_ratio: *loss,
            exceed_ratio: *exceed,
            width: *width,
            initial_seconds: *initial,
            final_seconds: *last,
            sum_seconds: *sum,
        };
        self.goals.iter().map(goal).collect()
    }
}

/// The share that a recorded device loses of the nth trial.
fn lost_share(device: &str, load: f64, nth: usize) -> f64 {
    let over = (load - CAPACITY).max(0.0) / load;
    let unless_over = |share: f64| over.max(share);
    match device {
        "cliff" => over,
        "slope" if over == 0.0 => 0.02 * (load - 0.5 * CAPACITY).max(0.0) / CAPACITY,
        "slope" => unless_over(0.01),
        "livelock" if over == 0.0 => 0.0,
        "livelock" => 1.0 - (CAPACITY / load).powi(4),
        "bursts" => unless_over(if nth.is_multiple_of(4) { 0.02 } else { 0.0 }),
        "half" if nth.is_multiple_of(2) && load > 0.3 * CAPACITY => unless_over(0.02),
        "half" => over,
        "wire" => 0.0,
        "sieve" => 0.1,
        "noise" => unless_over([0.0, 0.03, 0.0, 0.0, 0.003, 0.0, 0.0][nth % 7]),
        other => panic!("{other}: no such device"),
    }
}

/// Searches until the end; answers the trials.
fn drive(search: &mut Search, lost_share: impl Fn(f64, usize) -> f64) -> Vec<SearchTrial> {
    let mut trials = Vec::new();
    while let Some(trial) = search.next() {
        let offered = (trial.pps * trial.seconds) as u64;
        let lost = (offered as f64 * lost_share(trial.pps, trials.len())) as u64;
        search.take(trial, offered, lost);
        trials.push(trial);
        assert!(trials.len() < 2000, "it does not end: {search:?}");
    }
    trials
}

/// Both bounds, close enough, or one at the end of the loads.
fn assert_settled(search: &mut Search, goals: &[SearchGoal], of: &str) {
    let max = search.max();
    for (answer, goal) in search.answers().iter().zip(goals) {
        assert!(answer.is_settled, "{of}: {answer:?}");
        match (answer.lower, answer.upper) {
            (Some(lower), Some(upper)) => {
                let is_close = lower < upper && upper - lower <= upper * goal.width;
                assert!(is_close, "{of}: {answer:?}");
            }
            (Some(lower), None) => assert!(lower >= max, "{of}: {answer:?}"),
            (None, Some(upper)) => assert!(upper <= MIN, "{of}: {answer:?}"),
            (None, None) => panic!("{of}: {answer:?}"),
        }
        let conditional = answer.conditional.zip(answer.lower);
        let least = |lower: f64| lower * (1.0 - goal.loss_ratio) - 1e-6;
        let is_between =
            conditional.is_none_or(|(rate, lower)| rate <= lower && rate >= least(lower));
        assert!(is_between, "{of}: {answer:?}");
    }
}

#[test]
fn of_the_same_trials_the_reference_says_the_same() {
    let recorded = Recorded::all();
    assert!(recorded.len() >= 80);
    for case in &recorded {
        let mut trials = Trials::default();
        for (load, seconds, offered, lost) in &case.trials {
            let outcome = TrialResult {
                seconds: *seconds,
                loss_ratio: *lost as f64 / *offered as f64,
            };
            trials.add(*load, outcome);
        }
        for (goal, [lower, upper, conditional]) in case.goals().iter().zip(&case.found) {
            let targets = goal.targets();
            let target = targets.last().expect("its own");
            let found = trials.bounds(target);
            let expected = Bounds {
                lower: *lower,
                upper: *upper,
            };
            assert_eq!(found, expected, "{}: {goal:?}", case.name);
            let rate = found.lower.map(|lower| trials.conditional(target, lower));
            assert_eq!(rate, *conditional, "{}: {goal:?}", case.name);
        }
    }
}

#[test]
fn on_the_same_devices_the_search_ends_where_the_reference_does() {
    let recorded = Recorded::all();
    let searched = recorded
        .iter()
        .filter_map(|case| Some((case, case.device.as_deref()?)));
    for (case, device) in searched {
        let goals = case.goals();
        let mut search = Search::new(&goals, MIN, MAX);
        let trials = drive(&mut search, |load, nth| lost_share(device, load, nth));
        assert_settled(&mut search, &goals, &case.name);
        // A device that depends on the number of the trial differs for other loads.
        if ["bursts", "half", "noise"].contains(&device) {
            continue;
        }
        let time = |seconds: &mut dyn Iterator<Item = f64>| seconds.sum::<f64>();
        let own = time(&mut trials.iter().map(|trial| trial.seconds));
        let reference = time(&mut case.trials.iter().map(|trial| trial.1));
        assert!(
            own <= 2.0 * reference,
            "{}: {own} s, {reference} s",
            case.name
        );
        for (answer, [lower, upper, _]) in search.answers().iter().zip(&case.found) {
            let overlap = |low: Option<f64>, high: Option<f64>| {
                low.unwrap_or(0.0) <= high.unwrap_or(f64::INFINITY)
            };
            let is_same = overlap(answer.lower, *upper) && overlap(*lower, answer.upper);
            assert!(is_same, "{}: {answer:?}, {lower:?} {upper:?}", case.name);
            let sides = |lower: Option<f64>, upper: Option<f64>| (lower.is_some(), upper.is_some());
            assert_eq!(sides(answer.lower, answer.upper), sides(*lower, *upper));
        }
    }
}

const GOAL: SearchGoal = SearchGoal {
    loss_ratio: 0.0,
    exceed_ratio: 0.5,
    width: 0.01,
    initial_seconds: 0.1,
    final_seconds: 0.5,
    sum_seconds: 2.5,
};

/// `+` is a long trial of low loss and `-` one of high loss, `p` and `m` the same of short ones; long
/// is 1 s, short 0.5 s, and 4 s decide.
#[test]
fn a_load_is_decided_when_the_trials_to_come_cannot_change_it() {
    let goal = |exceed_ratio| SearchGoal {
        exceed_ratio,
        initial_seconds: 0.5,
        final_seconds: 1.0,
        sum_seconds: 4.0,
        ..GOAL
    };
    for (exceed_ratio, kinds, side) in [
        (0.5, "", None),
        (0.5, "+", None),
        (0.5, "++", Some(LoadSide::Lower)),
        (0.5, "+-+", Some(LoadSide::Lower)),
        (0.5, "--", None),
        (0.5, "---", Some(LoadSide::Upper)),
        (0.5, "++--", Some(LoadSide::Lower)),
        (0.5, "++---", Some(LoadSide::Upper)),
        // Short ones lose a goal, and never reach one.
        (0.5, "pppppppppp", None),
        (0.5, "mmmmm", Some(LoadSide::Upper)),
        (0.5, "mmmmmp", None),
        (0.0, "+++", None),
        (0.0, "++++", Some(LoadSide::Lower)),
        (0.0, "-", Some(LoadSide::Upper)),
        (0.0, "m", Some(LoadSide::Upper)),
        (0.75, "+---", Some(LoadSide::Lower)),
        (0.75, "----", Some(LoadSide::Upper)),
    ] {
        let mut trials = Trials::default();
        for kind in kinds.chars() {
            let outcome = TrialResult {
                seconds: if "pm".contains(kind) { 0.5 } else { 1.0 },
                loss_ratio: if "-m".contains(kind) { 0.1 } else { 0.0 },
            };
            trials.add(1e6, outcome);
        }
        let target = goal(exceed_ratio).targets()[2];
        assert_eq!(trials.side(&target, 1e6), side, "{exceed_ratio} {kinds}");
    }
}

#[test]
fn trials_grow_and_intervals_shrink() {
    let targets = GOAL.targets();
    let shape = targets.iter().map(|target| {
        let rounded = |figure: f64| (figure * 1000.0).round() / 1000.0;
        (
            target.width,
            target.trial_seconds,
            rounded(target.sum_seconds),
        )
    });
    assert_eq!(
        shape.collect::<Vec<_>>(),
        [(0.04, 0.1, 0.1), (0.02, 0.5, 0.5), (0.01, 0.5, 2.5)]
    );
    let mut search = Search::new(&[GOAL], MIN, MAX);
    let trials = drive(&mut search, |load, _| lost_share("cliff", load, 0));
    assert!(
        trials.is_sorted_by(|a, b| a.seconds <= b.seconds),
        "{trials:?}"
    );
    // The highest load, what it delivered, and from there the next one above.
    assert_eq!(
        trials[0],
        SearchTrial {
            pps: MAX,
            seconds: 0.1
        }
    );
    assert!(trials[1].pps <= CAPACITY && trials[1].pps > 0.99 * CAPACITY);
    assert!(trials[2].pps > CAPACITY && trials[2].pps < 1.05 * CAPACITY);
}

#[test]
fn a_load_above_a_bound_is_none_whatever_it_loses() {
    let mut trials = Trials::default();
    let target = SearchGoal {
        sum_seconds: 0.5,
        ..GOAL
    }
    .targets()[2];
    for (pps, loss_ratio) in [(3e6, 0.0), (1e6, 0.0), (2e6, 0.1), (4e6, 0.1)] {
        let seconds = 0.5;
        trials.add(
            pps,
            TrialResult {
                seconds,
                loss_ratio,
            },
        );
    }
    let (lower, upper) = (Some(1e6), Some(2e6));
    assert_eq!(trials.bounds(&target), Bounds { lower, upper });
}

#[test]
fn a_missed_load_is_tried_again_and_then_no_more() {
    let mut search = Search::new(&[GOAL], MIN, MAX);
    let first = search.next().expect("it begins");
    // Once is chance, and the best of several is what it can.
    for brought in [0.9, 0.8, 0.7] {
        search.miss(first, brought * MAX);
        assert_eq!((search.max(), search.next()), (MAX, Some(first)));
    }
    search.miss(first, 0.8 * MAX);
    assert_eq!(search.max(), 0.9 * MAX);
    // Far less is asked for twice.
    let second = search.next().expect("it goes on");
    assert_eq!(second.pps, 0.9 * MAX);
    search.miss(second, 1e6);
    assert_eq!(search.max(), 0.9 * MAX);
    search.miss(second, 2e6);
    assert_eq!(search.max(), 2e6);
    // Nothing is lost at all that the sender can.
    while let Some(trial) = search.next() {
        assert!(trial.pps <= 2e6);
        search.take(trial, 1000, 0);
    }
    let answer = search.answers()[0];
    assert_eq!((answer.lower, answer.upper), (Some(2e6), None));
    assert!(answer.is_settled);
    // The sender can bring the rate that it had brought before. The machine is busy, so nothing is
    // settled.
    let mut search = Search::new(&[GOAL], MIN, MAX);
    let first = search.next().expect("it begins");
    search.take(first, 1000, 500);
    let mut missed = 0;
    while let Some(trial) = search.next() {
        search.miss(trial, 0.9 * trial.pps);
        missed += 1;
    }
    assert_eq!((missed, search.max()), (4, MAX));
    assert!(!search.answers()[0].is_settled);
    // A sender that brings nothing ends it.
    let mut search = Search::new(&[GOAL], MIN, MAX);
    while let Some(trial) = search.next() {
        search.miss(trial, 0.0);
    }
    let answer = search.answers()[0];
    assert_eq!(
        (answer.lower, answer.upper, answer.conditional),
        (None, None, None)
    );
}

proptest! {
    /// Whatever a device does, the search ends with what it promises.
    #[test]
    fn a_search_ends_on_any_device(
        capacity in 5e3_f64..2e7,
        seed in any::<u64>(),
        noise in 0.0_f64..1.0,
        goals in prop::collection::vec(
            (0.0_f64..0.1, 0.0_f64..0.9, 0.005_f64..0.1, 1.0_f64..5.0, 1.0_f64..5.0), 1..4),
    ) {
        let goal = |(loss_ratio, exceed_ratio, width, growth, repeats): &(f64, f64, f64, f64, f64)| SearchGoal {
            loss_ratio: *loss_ratio,
            exceed_ratio: *exceed_ratio,
            width: *width,
            initial_seconds: 0.1,
            final_seconds: 0.1 * growth,
            sum_seconds: 0.1 * growth * repeats,
        };
        let goals: Vec<SearchGoal> = goals.iter().map(goal).collect();
        let mut search = Search::new(&goals, MIN, MAX);
        drive(&mut search, |load, nth| {
            let bits = (load.to_bits() ^ seed).wrapping_add(nth as u64);
            let dice = (bits.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11) as f64 / (1_u64 << 53) as f64;
            let burst = if dice < noise { dice } else { 0.0 };
            ((load - capacity).max(0.0) / load).max(burst)
        });
        assert_settled(&mut search, &goals, "a device");
    }

    /// Any order of takes, misses and ends is taken.
    #[test]
    fn a_search_with_misses_ends(script in prop::collection::vec((0.0_f64..1.2, 0.0_f64..0.1), 1..40)) {
        let mut search = Search::new(&[GOAL], MIN, MAX);
        let mut step = 0;
        while let Some(trial) = search.next() {
            let (brought, lost) = script[step % script.len()];
            step += 1;
            prop_assert!(step < 5000, "it does not end: {search:?}");
            if brought < 1.0 {
                search.miss(trial, brought * trial.pps);
            } else {
                search.take(trial, 1_000_000, (1e6 * lost) as u64);
            }
        }
        let (answer, max) = (search.answers()[0], search.max());
        if answer.is_settled {
            let is_close = match (answer.lower, answer.upper) {
                (Some(lower), Some(upper)) => upper - lower <= upper * GOAL.width,
                (Some(lower), None) => lower >= max,
                (None, Some(upper)) => upper <= MIN,
                (None, None) => max < MIN,
            };
            prop_assert!(is_close, "{answer:?}, at most {max}");
        }
    }
}
