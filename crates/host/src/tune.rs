//! What settings of an interface and its host suit what it receives, and why.
//!
//! A [`Plan`] is a pure function of [`Tunables`]: what is set now, and what the machine has. Each of its
//! steps is a [`Change`], which is made, journalled and put back as any other ([`Tuned`]). A step may change what
//! the next ones find, so that each is planned again before it is made.

mod interrupts;
mod limits;
mod placement;
mod queues;
mod tunables;
mod tuned;

#[cfg(test)]
mod tests;

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::setting::{Change, Edit, Host, Setting, Value};
pub use tunables::{Place, QueueInterrupt, Tunables};
pub use tuned::{Edited, Tuned};

/// The name of the [`Change`] that claims an interface; those of the steps are named after it.
const CLAIM: &str = "tune";

/// What is to be received.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// UDP by sockets.
    Udp,
    /// TCP by sockets.
    Tcp,
    /// Frames by AF_XDP.
    AfXdp,
}

/// What a plan is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aim {
    /// What is to be received.
    pub goal: Goal,
    /// The port at which it arrives, if that is known.
    pub port: Option<u16>,
}

impl From<Goal> for Aim {
    fn from(goal: Goal) -> Self {
        Self { goal, port: None }
    }
}

/// What may go wrong while a step is made.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Risk {
    /// Most drivers take the link down for it, some for seconds.
    LinkBounce,
    /// What waits in the card's rings is lost.
    Loss,
    /// Flows move to other queues, so that packets may overtake each other.
    Reordering,
    /// Packets reach their program later from then on.
    Delay,
    /// It concerns the whole machine and not the interface alone.
    WholeMachine,
}

/// What a stage has to say.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// These settings are to be changed.
    Change(Vec<Edit>),
    /// These settings may help or harm, which only a measurement tells: they are changed where the stage
    /// is named or measured ([`Plan::trying`]).
    Try(Vec<Edit>),
    /// It is no setting of the interface that a plan could change; these commands do it.
    ByHand(Vec<String>),
    /// It is as it should be.
    Fine,
    /// It does not concern what is to be received.
    NotNeeded,
    /// This interface, driver or kernel has no such setting.
    Impossible,
    /// The queues are to be changed first, and this is judged after that.
    Later,
}

/// A step of a plan: one stage, and what it makes of the host.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The stage: `rings`.
    pub stage: &'static str,
    /// What is to be done.
    pub verdict: Verdict,
    /// Why.
    pub why: String,
    /// Where that is written.
    pub source: &'static str,
    /// What may go wrong while it is done.
    pub risks: &'static [Risk],
}

/// A group of settings that belong together.
struct Stage {
    name: &'static str,
    source: &'static str,
    risks: &'static [Risk],
    /// True if it is about each queue, and so changes with their number.
    by_queue: bool,
    judge: fn(&Tunables, Aim) -> (Wanted, String),
}

/// What a stage wants.
enum Wanted {
    /// These settings at these values; those that are so already are left out.
    Settings(Vec<(Setting, Value)>),
    /// The same, of which no rule says that they help.
    Try(Vec<(Setting, Value)>),
    ByHand(Vec<String>),
    NotNeeded,
    Impossible,
}

/// In the order in which they are made. What makes most drivers set the card up anew comes first, because
/// that may change the rest.
const STAGES: &[Stage] = &[
    queues::CHANNELS,
    queues::RINGS,
    limits::OFFLOADS,
    queues::FIELDS,
    queues::KEY,
    queues::TABLE,
    queues::RULES,
    queues::FUNCTIONS,
    interrupts::COALESCING,
    interrupts::DEFERRAL,
    interrupts::SUSPENSION,
    interrupts::THREADS,
    placement::AFFINITY,
    placement::RPS,
    placement::RFS,
    placement::XPS,
    limits::BACKLOG,
    limits::BUDGET,
    limits::BUFFERS,
    limits::TRACKING,
];

/// True if a [`Change`] of this name is of a plan.
pub fn is_of_plan(name: &str) -> bool {
    name.strip_prefix(CLAIM)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// The names of all stages, in their order.
pub fn stages() -> impl Iterator<Item = &'static str> {
    STAGES.iter().map(|stage| stage.name)
}

/// What is to be changed on an interface, and what not.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// The interface.
    pub interface: String,
    /// What is to be received.
    pub goal: Goal,
    /// All stages, in the order in which they are made.
    pub steps: Vec<Step>,
}

impl Plan {
    /// Finds out what suits the aim. It reads nothing but its arguments. Of the stages all are judged,
    /// or those of these names.
    pub fn new(tunables: &Tunables, aim: impl Into<Aim>, only: &[String]) -> Self {
        let aim = aim.into();
        let is_asked =
            |stage: &&Stage| only.is_empty() || only.iter().any(|name| name == stage.name);
        let mut changes_queues = false;
        let step = |stage: &Stage| {
            let mut step = stage.step(tunables, aim);
            let is_of_queues =
                |edit: &Edit| matches!(edit.setting, Setting::Coalescing { queue: Some(_) });
            let is_by_queue =
                stage.by_queue || step.edits().chain(step.edits_to_try()).any(is_of_queues);
            if changes_queues && is_by_queue {
                step.verdict = Verdict::Later;
                step.why = "the queues are changed first".to_owned();
            }
            changes_queues |= stage.name == queues::CHANNELS.name && step.edits().next().is_some();
            step
        };
        Self {
            interface: tunables.interface.clone(),
            goal: aim.goal,
            steps: STAGES.iter().filter(is_asked).map(step).collect(),
        }
    }

    /// The same plan, which also changes what only may help.
    #[must_use]
    pub fn trying(mut self) -> Self {
        for step in &mut self.steps {
            step.verdict = match std::mem::replace(&mut step.verdict, Verdict::Fine) {
                Verdict::Try(edits) => Verdict::Change(edits),
                verdict => verdict,
            };
        }
        self
    }

    /// Its edits, in order.
    pub fn edits(&self) -> impl Iterator<Item = &Edit> {
        self.steps.iter().flat_map(Step::edits)
    }

    /// What a step changes. Without a step it is what claims the interface: it changes nothing, and
    /// there is one at a time.
    fn change_on(&self, host: &dyn Host, step: Option<&Step>) -> Result<Change> {
        let Self {
            interface, goal, ..
        } = self;
        let (name, heading) = match step {
            None => (CLAIM.to_owned(), format!("{interface}, tuned for {goal}")),
            Some(Step { stage, .. }) => {
                (format!("{CLAIM}-{stage}"), format!("{interface}, {stage}"))
            }
        };
        Ok(Change {
            name,
            object: interface.clone(),
            interface_index: Some(host.index(interface)?),
            namespace: host.namespace()?,
            heading,
            edits: step.into_iter().flat_map(Step::edits).cloned().collect(),
        })
    }

    /// What may go wrong while it is made.
    pub fn risks(&self) -> Vec<Risk> {
        let changing = self
            .steps
            .iter()
            .filter(|step| step.edits().next().is_some());
        let mut risks: Vec<Risk> = changing.flat_map(|step| step.risks).copied().collect();
        risks.sort_unstable();
        risks.dedup();
        risks
    }
}

impl Step {
    /// What it changes.
    pub fn edits(&self) -> impl Iterator<Item = &Edit> {
        match &self.verdict {
            Verdict::Change(edits) => edits.iter(),
            _ => [].iter(),
        }
    }

    /// What it would change if it were named, and no rule says that it helps.
    pub fn edits_to_try(&self) -> impl Iterator<Item = &Edit> {
        match &self.verdict {
            Verdict::Try(edits) => edits.iter(),
            _ => [].iter(),
        }
    }

    /// Who may make it, or try it: root, or who has `CAP_NET_ADMIN`; none where it changes nothing.
    pub fn needs(&self) -> Option<&'static str> {
        let needs = self.edits().chain(self.edits_to_try());
        // "root" comes last of both.
        needs.map(|edit| edit.setting.needs()).max()
    }

    /// The commands of what a plan does not change.
    pub fn commands(&self) -> &[String] {
        match &self.verdict {
            Verdict::ByHand(commands) => commands,
            _ => &[],
        }
    }
}

impl Stage {
    fn step(&self, tunables: &Tunables, aim: Aim) -> Step {
        let (wanted, why) = (self.judge)(tunables, aim);
        let edits = |settings: Vec<(Setting, Value)>, verdict: fn(Vec<Edit>) -> Verdict| {
            let edits = settings.into_iter().filter_map(|(setting, new)| {
                let old = tunables.value(&setting)?.clone();
                (old != new).then(|| Edit::new(setting, old, new))
            });
            let edits: Vec<Edit> = edits.collect();
            match edits.is_empty() {
                true => Verdict::Fine,
                false => verdict(edits),
            }
        };
        let verdict = match wanted {
            Wanted::NotNeeded => Verdict::NotNeeded,
            Wanted::Impossible => Verdict::Impossible,
            Wanted::ByHand(commands) => Verdict::ByHand(commands),
            Wanted::Settings(settings) => edits(settings, Verdict::Change),
            Wanted::Try(settings) => edits(settings, Verdict::Try),
        };
        Step {
            stage: self.name,
            verdict,
            why,
            source: self.source,
            risks: self.risks,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::AfXdp => "AF_XDP",
        })
    }
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::LinkBounce => "the link may go down for a while",
            Self::Loss => "packets that wait in the card's rings are lost",
            Self::Delay => "from then on packets may reach their program later",
            Self::Reordering => "packets of a flow may overtake each other while it moves",
            Self::WholeMachine => "it concerns the whole machine",
        })
    }
}
