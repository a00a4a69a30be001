//! Measures each stage on this host: the same traffic without it and with it, in turn.

use super::apply::{cannot, put_all_back};
use super::proof::{Proof, ProofResult, Proofs};
use super::traffic::Traffic;
use super::{TuneRequest, TuneWhat, check_link, document};
use crate::failure;
use crate::measure::outcome::{CommandEnding, ended, put_back};
use crate::measure::series::Series;
use crate::measure::session::{Session, progress};
use crate::output::{self, OutputStream};
use crate::signal::{EndSignal, Interrupted};
use crate::udp::run::UdpRun;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use mpps_host::Fingerprint;
use mpps_host::setting::tune::{TunePlan, Tuned};
use mpps_os::text::ShellWord;

/// The change of the first row.
const NOTHING: &str = "nothing";

#[derive(Debug, Args)]
#[command(
    mut_arg("port", |arg| arg.help("Set the local port where the live traffic arrives (required)")),
    mut_arg("quick", |arg| arg.help("Measure each stage once with and once without it, briefly; too short \
    for conclusions")),
    mut_arg("repeat", |arg| arg.help("Measure each stage N times without and N times with it, in turn: \
    its settings change N times")),
    mut_arg("json", |arg| arg.help("Write JSON to FILE instead of ./tune-prove.json; without FILE, to \
    standard output")),
    mut_arg("html", |arg| arg.help("Write the HTML page to FILE instead of ./tune-prove.html"))
)]
pub(super) struct ProveArgs {
    #[command(flatten)]
    what: TuneWhat,
    /// Allow resets of the link of this SSH session or the default route. Otherwise, a plan with a reset
    /// fails before any change
    #[arg(long)]
    allow_link_bounce: bool,
    /// Restore every setting at the end, also those that helped
    #[arg(long)]
    put_back: bool,
    #[command(flatten)]
    series: Series,
}

/// A measurement, with its traffic and session.
struct Proving<'a> {
    args: &'a ProveArgs,
    asked: &'a TuneRequest,
    traffic: &'a Traffic,
    session: &'a Session,
}

pub(super) fn run(args: &ProveArgs) -> Result<CommandEnding> {
    let port = args.what.port;
    let port = port.context("--port PORT is needed: where the traffic arrives")?;
    let asked = TuneRequest {
        tries: true,
        ..args.what.asked()?
    };
    let (_, plan) = asked.plan()?;
    check_link(&plan, args.allow_link_bounce)?;
    let traffic = Traffic::new(&asked.interface, port, asked.aim.goal)?;
    // A change that has begun is completed before a signal can end the process.
    let session = args.series.begin("tune-prove", EndSignal::listen_held()?)?;
    let proving = Proving {
        args,
        asked: &asked,
        traffic: &traffic,
        session: &session,
    };
    let mut tuned = Tuned::go_on(&plan).with_context(|| cannot(&plan))?;
    let result = match proving.prove(&plan, &mut tuned) {
        Ok(result) => result,
        Err(error) => return ended(Err(error), put_all_back(tuned)),
    };
    let document = document(&result, &session.files());
    let written = session.conclude(&result, &document, &document.blocks, true);
    let stays = result.complete && !args.put_back && tuned.has_changed() && written.is_ok();
    if !stays {
        return ended(written, put_all_back(tuned));
    }
    tuned.keep()?;
    output::line(
        OutputStream::People,
        &format!(
            "what helped is kept until `mpps tune undo {}` or a reboot",
            ShellWord::operand(&asked.interface)
        ),
    )?;
    written
}

impl Proving<'_> {
    fn prove(&self, plan: &TunePlan, tuned: &mut Tuned) -> Result<ProofResult> {
        let traffic = self.traffic.to_string();
        output::line(
            OutputStream::Err,
            &format!("waiting for traffic at {traffic}"),
        )?;
        // The first run warms up, and finds out whether anything arrives.
        self.measure(true)?;
        let found = Proofs {
            rate_definition: self.traffic.rate_definition().to_owned(),
            interface: plan.interface.clone(),
            goal: Some(plan.goal),
            traffic,
            ..Proofs::default()
        };
        let machine = Fingerprint::collect(&[&plan.interface])?;
        let mut result = self.session.result(machine, found);
        result.complete = self.rows(plan, tuned, &mut result)?;
        Ok(result)
    }

    /// Measures all rows; false if Ctrl-C ended it.
    fn rows(&self, plan: &TunePlan, tuned: &mut Tuned, result: &mut ProofResult) -> Result<bool> {
        let stages = plan.steps.iter().map(|step| step.stage);
        let rounds = 2 * self.args.series.repeats();
        let bar = progress(rounds * (1 + plan.steps.len()));
        for stage in [NOTHING].into_iter().chain(stages) {
            // The stages before it may have changed what it is to change.
            let (_, plan) = self.asked.plan_of(&[stage.to_owned()])?;
            if stage != NOTHING && plan.edits().next().is_none() {
                bar.inc(rounds as u64);
                continue;
            }
            bar.set_message(stage);
            let measured = self.row(stage, tuned, &result.rows, || bar.inc(1));
            if self.session.interrupt.came() {
                bar.finish_and_clear();
                return Ok(false);
            }
            let mut row = measured?;
            if row.gain().is_some() {
                check_link(&plan, self.args.allow_link_bounce)?;
                self.make(stage, tuned)?;
                row.kept = true;
            }
            result.rows.push(row);
            bar.suspend(|| self.session.keep(&*result));
        }
        bar.finish_and_clear();
        Ok(true)
    }

    fn row(
        &self,
        stage: &str,
        tuned: &mut Tuned,
        before: &[Proof],
        tick: impl Fn(),
    ) -> Result<Proof> {
        let mut sides: [Vec<UdpRun>; 2] = Default::default();
        let (mut edits, mut stopped) = (Vec::new(), None);
        for _ in 0..self.args.series.repeats() {
            sides[0].push(self.measure(false)?);
            tick();
            if stage == NOTHING {
                sides[1].push(self.measure(false)?);
                tick();
                continue;
            }
            match self.make(stage, tuned) {
                Ok(made) => edits = made,
                Err(error) => {
                    stopped = Some(failure::explain(&error));
                    break;
                }
            }
            let with = self.measure(false);
            tick();
            let outcomes = tuned.undo_last();
            for outcome in outcomes.iter().filter(|outcome| !outcome.clean()) {
                output::line(OutputStream::Err, &outcome.to_string())?;
            }
            put_back(&outcomes, "tune prove")?;
            match with {
                Ok(with) => sides[1].push(with),
                // With it nothing can be received any more.
                Err(error) => {
                    stopped = Some(failure::explain(&error));
                    break;
                }
            }
        }
        let row = Proof::new(stage, edits, &sides, before.iter());
        Ok(Proof { stopped, ..row })
    }

    /// Makes a stage, and returns its edits.
    fn make(&self, stage: &str, tuned: &mut Tuned) -> Result<Vec<String>> {
        let (_, plan) = self.asked.plan_of(&[stage.to_owned()])?;
        let Some(step) = plan.steps.first() else {
            bail!("{stage}: there is no such stage");
        };
        let made = tuned.make(&plan, step, false)?;
        ensure!(
            !made.is_empty(),
            "{stage}: there is nothing to change any more"
        );
        Ok(made.into_iter().map(|edited| edited.edit).collect())
    }

    fn measure(&self, is_first: bool) -> Result<UdpRun> {
        let interrupt = &self.session.interrupt;
        let run = self
            .traffic
            .run(self.args.series.time(), is_first, interrupt);
        ensure!(!interrupt.came(), Interrupted);
        run
    }
}
