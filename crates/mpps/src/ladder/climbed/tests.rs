//! The search for a sender on a machine that is made up.

use super::*;
use crate::args::GeneratorArg;
use crate::ladder::layout::tests::two_cpus;
use crate::ladder::rung::rungs;
use crate::report::sender::sentences;
use crate::result::{Limit, PathTaken, RungSender};
use anyhow::{anyhow, bail};
use std::cell::Cell;

const FOUR: Sender = Sender::Socket { train: 4 };

/// A machine on which each sender offers so much, of which so much is received.
struct Machine {
    layout: Layout,
    counts: fn(Sender) -> (u64, u64),
    /// Who fails: the sender, and whether the run is an exact one.
    fails: fn(Sender, bool) -> bool,
    runs: Cell<usize>,
    /// Ctrl-C comes during this run.
    last_run: usize,
}

impl Machine {
    fn new(counts: fn(Sender) -> (u64, u64), fails: fn(Sender, bool) -> bool) -> Self {
        Self {
            layout: two_cpus(),
            counts,
            fails,
            runs: Cell::new(0),
            last_run: usize::MAX,
        }
    }

    fn rung(&self, number: &str) -> Climbed {
        let rungs = rungs(&self.layout, FOUR).into_iter();
        let mut rungs = rungs.filter(|rung| rung.number == number);
        Climbed::new(rungs.next().expect("the ladder has it"))
    }

    /// The first round of a rung.
    fn begin(&self, climbed: &mut Climbed, choice: &Choice) -> Result<()> {
        assert!(climbed.find_sender(self, choice, Duration::ZERO, &mut |_, _| ())?);
        climbed.measure_exactly(self, Duration::ZERO, false, &mut |_, _| ())
    }

    /// The search at the end.
    fn end(&self, climbed: &mut Climbed, choice: &Choice) -> bool {
        climbed.find_stronger(self, choice, Duration::ZERO, &mut |_, _| ())
    }
}

impl Runs for Machine {
    fn run(&self, rung: &Rung, _: Duration, purpose: Purpose<'_>) -> Result<Sample> {
        self.runs.set(self.runs.get() + 1);
        let sender = rung.sender;
        if (self.fails)(sender, matches!(purpose, Purpose::Exactness(_))) {
            bail!("{sender} broke");
        }
        let (offered, received) = (self.counts)(sender);
        Ok(Sample {
            mpps: received as f64,
            offered_mpps: offered as f64,
            ledger: Ledger::new(offered, received, 0),
            threads: Vec::new(),
            cpu_busy: Vec::new(),
            limited_by: Limit {
                what: String::new(),
                evidence: String::new(),
            },
            path: PathTaken {
                name: String::new(),
                counter: String::new(),
                count: 0,
                queues: Vec::new(),
            },
            notes: vec![format!("a note on {sender}")],
        })
    }

    fn layout(&self) -> &Layout {
        &self.layout
    }

    fn interrupted(&self) -> bool {
        self.runs.get() >= self.last_run
    }
}

fn auto() -> Choice {
    Choice::new(None, None).expect("it is a choice")
}

fn nobody_outruns(_: Sender) -> (u64, u64) {
    (101, 100)
}

fn only_xdp_outruns(sender: Sender) -> (u64, u64) {
    match sender {
        Sender::Socket { .. } => (101, 100),
        Sender::Generator => (300, 120),
    }
}

fn nobody_fails(_: Sender, _: bool) -> bool {
    false
}

fn result(climbed: Climbed, choice: &Choice) -> (RungResult, RungSender) {
    let result = climbed.result(choice, &two_cpus()).expect("it was reached");
    let sender = result.sender.clone().expect("it says who sent");
    (result, sender)
}

#[test]
fn a_trial_that_fails_costs_a_note_and_not_the_climb() {
    let machine = Machine::new(nobody_outruns, |sender, _| sender == Sender::Generator);
    let (choice, mut rung) = (auto(), machine.rung("2"));
    machine.begin(&mut rung, &choice).unwrap();
    assert!(machine.end(&mut rung, &choice));
    // Trains of 4, 16 and 64, xdp, and the exact run: nothing is tried twice.
    assert_eq!(machine.runs.get(), 5);
    let (result, sender) = result(rung, &choice);
    let note = "sender xdp could not be tried: xdp broke".to_owned();
    assert!(result.notes.contains(&note), "{:?}", result.notes);
    assert_eq!(
        (sender.name.as_str(), sender.tried.len()),
        (&*FOUR.to_string(), 3)
    );
    assert!(!sender.search_complete);
    let said = sentences(&[result]).concat();
    assert!(said.contains("which may not be all"), "{said}");
}

#[test]
fn a_failure_in_the_last_search_is_a_note_as_well() {
    let machine = Machine::new(nobody_outruns, |sender, _| sender == Sender::Generator);
    let choice = Choice::new(Some(GeneratorArg::Sendmmsg), None).unwrap();
    let mut rung = machine.rung("2");
    machine.begin(&mut rung, &choice).unwrap();
    assert!(machine.end(&mut rung, &choice));
    let (result, sender) = result(rung, &choice);
    assert!(result.notes.iter().any(|note| note.contains("xdp broke")));
    assert_eq!((sender.tried.len(), sender.search_complete), (2, false));
}

#[test]
fn the_failure_of_a_sender_that_was_asked_for_is_an_error() {
    for exact in [false, true] {
        let fails: [fn(Sender, bool) -> bool; 2] = [|_, exact| !exact, |_, exact| exact];
        let machine = Machine::new(nobody_outruns, fails[usize::from(exact)]);
        let begun = machine.begin(&mut machine.rung("2"), &auto());
        assert_eq!(begun.unwrap_err().to_string(), format!("{FOUR} broke"));
    }
}

#[test]
fn a_taken_sender_that_fails_the_exact_run_gives_its_place_back() {
    let fails = |sender: Sender, exact: bool| exact && sender == Sender::Generator;
    let machine = Machine::new(only_xdp_outruns, fails);
    let (choice, mut rung) = (auto(), machine.rung("2"));
    machine.begin(&mut rung, &choice).unwrap();
    assert!(rung.repeat(Err(anyhow!("no memory"))).is_err());
    assert!(machine.end(&mut rung, &choice));
    let (result, sender) = result(rung, &choice);
    assert!(sender.usual && !sender.outran);
    assert_eq!(sender.would_outrun.as_deref(), Some("xdp"));
    assert_eq!(result.mpps_samples, [100.0]);
    assert_eq!(result.sample_ledgers, [Ledger::new(101, 100, 0)]);
    assert_eq!(result.ledger, Some(Ledger::new(101, 100, 0)));
    let notes = result.notes.join("\n");
    assert!(
        notes.contains("the exactness run by xdp failed: xdp broke"),
        "{notes}"
    );
    assert!(notes.contains(&format!("a note on {FOUR}")), "{notes}");
    assert!(!notes.contains("a note on xdp"), "{notes}");
}

#[test]
fn a_repeat_of_a_taken_sender_that_fails_is_left_out() {
    let machine = Machine::new(only_xdp_outruns, nobody_fails);
    let (choice, mut rung) = (auto(), machine.rung("2"));
    machine.begin(&mut rung, &choice).unwrap();
    rung.repeat(Err(anyhow!("no memory"))).unwrap();
    rung.repeat(machine.run(&rung.rung, Duration::ZERO, Purpose::Rate))
        .unwrap();
    assert!(machine.end(&mut rung, &choice));
    let (result, sender) = result(rung, &choice);
    assert!(sender.outran && sender.search_complete && sender.name == "xdp");
    assert_eq!(result.mpps_samples, [120.0, 120.0]);
    let note = "a repeat by xdp is left out: no memory".to_owned();
    assert!(result.notes.contains(&note), "{:?}", result.notes);
}

#[test]
fn a_search_that_ctrl_c_ended_is_not_complete() {
    let choice = Choice::new(Some(GeneratorArg::Sendmmsg), None).unwrap();
    for (last_run, tried, complete) in [(3, 0, false), (4, 1, false), (usize::MAX, 3, true)] {
        let machine = Machine {
            last_run,
            ..Machine::new(nobody_outruns, nobody_fails)
        };
        let mut rung = machine.rung("2");
        machine.begin(&mut rung, &choice).unwrap();
        assert_eq!(machine.end(&mut rung, &choice), complete);
        let (_, sender) = result(rung, &choice);
        assert_eq!(
            (sender.tried.len(), sender.search_complete),
            (tried, complete)
        );
    }
}

#[test]
fn sending_threads_that_share_a_cpu_are_noted_when_it_is_settled_who_sends() {
    let machine = Machine::new(only_xdp_outruns, nobody_fails);
    let (choice, mut rung) = (auto(), machine.rung("5"));
    assert!(!rung.rung.notes.iter().any(|note| note.contains("sending")));
    machine.begin(&mut rung, &choice).unwrap();
    assert!(machine.end(&mut rung, &choice));
    let (result, sender) = result(rung, &choice);
    let note = "2 sending threads share 1 CPU".to_owned();
    assert!(result.notes.contains(&note), "{:?}", result.notes);
    // A generator does not reach both queues from there: it is no sender for this rung.
    assert_eq!((sender.tried.len(), sender.search_complete), (3, true));
}
