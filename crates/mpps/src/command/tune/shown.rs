//! A plan as people and programs read it.

use mpps_host::setting::tune::{PlannedStep, Risk, StageVerdict, Tunables, TuneGoal, TunePlan};
use schemars::JsonSchema;
use serde::Serialize;

/// Edits of one step that people are shown.
const SHOWN: usize = 3;

/// Result of `mpps tune plan --json`.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TuneObject {
    /// [`TuneObject::SCHEMA`].
    schema: &'static str,
    /// The version of mpps.
    version: &'static str,
    /// The interface.
    interface: String,
    /// Its driver.
    driver: String,
    /// The goal of the traffic.
    goal: TuneGoal,
    /// Every stage, in the order of execution.
    steps: Vec<TuneStep>,
    /// The port of the traffic, if it was named.
    port: Option<u16>,
    /// The facts read from the host. With `goal` and `port` they are all inputs of the plan.
    facts: Tunables,
}

/// One stage of a plan.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TuneStep {
    /// The stage.
    stage: &'static str,
    /// `change`, `try` (it may help or harm: changed where the stage is named), `by_hand` (no setting that
    /// a plan changes), `fine`, `not_needed`, `impossible`, or `later`: judged once the queues are changed.
    verdict: &'static str,
    /// Why.
    why: String,
    /// Where that is written.
    source: &'static str,
    /// Risks of the change; empty if nothing is changed.
    risks: Vec<Risk>,
    /// The right that it needs: `root` or `CAP_NET_ADMIN`; absent if nothing is changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    needs: Option<&'static str>,
    /// The settings that it changes or may try.
    edits: Vec<TuneEdit>,
    /// The commands of what is to be done by hand.
    commands: Vec<String>,
}

/// One setting of a step.
#[derive(Debug, Serialize, JsonSchema)]
struct TuneEdit {
    /// From what to what.
    edit: String,
    /// The plain command that does the same.
    command: String,
}

impl TuneObject {
    /// The version of this form.
    pub const SCHEMA: &'static str = "mpps.tune.v1";

    pub(super) fn new(tunables: &Tunables, plan: &TunePlan, port: Option<u16>) -> Self {
        let step = |step: &PlannedStep| {
            let edits = step.edits().chain(step.edits_to_try());
            let edits = edits.map(|edit| TuneEdit {
                edit: edit.to_string(),
                command: edit.setting.command(&plan.interface, &edit.new),
            });
            let edits: Vec<TuneEdit> = edits.collect();
            TuneStep {
                stage: step.stage,
                verdict: match step.verdict {
                    StageVerdict::Change(_) => "change",
                    StageVerdict::Try(_) => "try",
                    StageVerdict::ByHand(..) => "by_hand",
                    StageVerdict::Fine => "fine",
                    StageVerdict::NotNeeded => "not_needed",
                    StageVerdict::Impossible => "impossible",
                    StageVerdict::Later => "later",
                },
                why: step.why.clone(),
                source: step.source,
                needs: step.needs(),
                risks: step.risks(),
                edits,
                commands: step.commands().to_vec(),
            }
        };
        Self {
            schema: Self::SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            interface: plan.interface.clone(),
            driver: tunables.driver.clone(),
            goal: plan.goal,
            steps: plan.steps.iter().map(step).collect(),
            port,
            facts: tunables.clone(),
        }
    }

    /// For people, a line each. Commands are not broken, so that they can be copied.
    pub(super) fn lines(&self) -> Vec<String> {
        let Self {
            interface, goal, ..
        } = self;
        let driver = match self.driver.as_str() {
            "" => String::new(),
            driver => format!(" ({driver})"),
        };
        let of = |verdicts: &[&str]| {
            let steps = self.steps.iter();
            let steps = steps.filter(|step| verdicts.contains(&step.verdict));
            steps.collect::<Vec<&TuneStep>>()
        };
        let (changing, rest) = (
            of(&["change"]),
            of(&["fine", "not_needed", "impossible", "later"]),
        );
        let stages = self.steps.len();
        let said = match changing.len() {
            0 => "nothing to change".to_owned(),
            1 => format!("1 of {stages} stages changes something"),
            count => format!("{count} of {stages} stages change something"),
        };
        let mut lines = vec![format!("{interface}{driver} for {goal}: {said}")];
        for step in changing {
            lines.push(String::new());
            lines.extend(step.lines());
        }
        for (verdict, heading) in [
            ("try", "may help or harm; --only makes it:"),
            ("by_hand", "by hand:"),
        ] {
            let steps = of(&[verdict]);
            if !steps.is_empty() {
                lines.extend([String::new(), heading.to_owned()]);
            }
            let told = steps.into_iter().flat_map(TuneStep::lines);
            lines.extend(told.map(|line| format!("    {line}")));
        }
        if !rest.is_empty() {
            lines.push(String::new());
            lines.push("unchanged:".to_owned());
        }
        lines.extend(rest.iter().map(|step| {
            let verdict = step.verdict.replace('_', " ");
            format!("    {:<12}  {verdict}: {}", step.stage, step.why)
        }));
        lines
    }
}

impl TuneStep {
    /// Its edits or commands, the reason and the risks.
    fn lines(&self) -> Vec<String> {
        let mut lines = vec![
            format!("{}: {}", self.stage, self.why),
            format!("    source: {}", self.source),
        ];
        lines.extend(self.risks.iter().map(|risk| format!("    risk: {risk}")));
        lines.extend(self.needs.map(|needs| format!("    needs: {needs}")));
        lines.extend(self.shown_edits());
        let commands = self.commands.iter();
        lines.extend(commands.map(|command| format!("        {command}")));
        lines
    }

    /// The first edits, each with its command.
    fn shown_edits(&self) -> impl Iterator<Item = String> {
        let shown = self.edits.iter().take(SHOWN);
        let shown = shown.flat_map(|edit| {
            [
                format!("    {}", edit.edit),
                format!("        {}", edit.command),
            ]
        });
        let more = self.edits.len().saturating_sub(SHOWN);
        let more = (more > 0).then(|| format!("    and {more} more like these; --json has all"));
        shown.chain(more)
    }
}
