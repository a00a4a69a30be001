//! Finds the settings of an interface and its host that suit its traffic, and says why.
//!
//! A [`TunePlan`] is a pure function of [`Tunables`]: the present settings, and the machine. Each of
//! its steps is a [`SettingChange`]. It is made, journalled and put back as any other ([`Tuned`]). A step
//! may change what the next ones find, so each is planned again before it is made.

mod interrupts;
mod limits;
mod placement;
mod queues;
mod tunables;
mod tuned;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::HostResult;
pub use crate::setting::Risk;
use crate::setting::{Edit, LiveKernel, Setting, SettingChange, SettingHost, Value};
pub use tunables::{CpuPlace, QueueInterrupt, Tunables};
pub use tuned::{Edited, Tuned};

/// The name of the [`SettingChange`] that claims an interface; those of the steps are named after it.
const CLAIM: &str = "tune";

/// The traffic to receive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TuneGoal {
    /// UDP by sockets.
    Udp,
    /// TCP by sockets.
    Tcp,
    /// Frames by AF_XDP.
    AfXdp,
}

/// The aim of a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aim {
    /// The traffic to receive.
    pub goal: TuneGoal,
    /// The port of the traffic, if it is known.
    pub port: Option<u16>,
}

impl From<TuneGoal> for Aim {
    fn from(goal: TuneGoal) -> Self {
        Self { goal, port: None }
    }
}

/// The verdict of a stage.
#[derive(Debug, Clone, PartialEq)]
pub enum StageVerdict {
    /// These settings are to be changed.
    Change(Vec<Edit>),
    /// These settings may help or harm; only a measurement shows it. They are changed if the stage
    /// is named or measured ([`TunePlan::trying`]).
    Try(Vec<Edit>),
    /// It is no setting of the interface that a plan could change; these commands do it, with these risks.
    ByHand(Vec<String>, &'static [Risk]),
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
pub struct PlannedStep {
    /// The stage: `rings`.
    pub stage: &'static str,
    /// The verdict.
    pub verdict: StageVerdict,
    /// Why.
    pub why: String,
    /// Where that is written.
    pub source: &'static str,
}

/// A group of settings that belong together.
struct TuneStage {
    name: &'static str,
    source: &'static str,
    /// True if it is about each queue, and so changes with their number.
    by_queue: bool,
    judge: fn(&Tunables, Aim) -> JudgedStage,
}

/// The settings that a stage wants.
enum Wanted {
    /// These settings at these values; those that are so already are left out.
    Settings(Vec<(Setting, Value)>),
    /// The same, but no rule says that they help.
    Try(Vec<(Setting, Value)>),
    /// Commands for the user, and their risks.
    ByHand(Vec<String>, &'static [Risk]),
    NotNeeded,
    Impossible,
}

/// The settings, and why.
type JudgedStage = (Wanted, String);

impl Wanted {
    fn because(self, why: impl Into<String>) -> JudgedStage {
        (self, why.into())
    }
}

/// A stage whose change changes what the stages by queue are about.
const CHANNELS: &str = "channels";

/// All stages, in the order of making them. Settings that make most drivers set the card up anew
/// come first, because that may change the rest.
const STAGES: &[TuneStage] = &[
    TuneStage {
        name: CHANNELS,
        source: "ethtool(8) -L; Documentation/networking/scaling.rst, \"RSS Configuration\"",
        by_queue: false,
        judge: queues::channels,
    },
    TuneStage {
        name: "rings",
        source: "ethtool(8) -G; rx_missed_errors of Documentation/networking/statistics.rst",
        by_queue: false,
        judge: queues::rings,
    },
    TuneStage {
        name: "offloads",
        source: "ethtool(8) -K; Documentation/networking/netdev-features.rst",
        by_queue: false,
        judge: limits::offloads,
    },
    TuneStage {
        name: "rss-fields",
        source: "ethtool(8) -N rx-flow-hash; Documentation/networking/scaling.rst",
        by_queue: false,
        judge: queues::fields,
    },
    TuneStage {
        name: "rss-key",
        source: "ethtool(8) -X hkey; Documentation/networking/scaling.rst",
        by_queue: false,
        judge: queues::key,
    },
    TuneStage {
        name: "rss-table",
        source: "ethtool(8) -X",
        by_queue: true,
        judge: queues::table,
    },
    TuneStage {
        name: "flow-rules",
        source: "ethtool(8) -N; Documentation/networking/scaling.rst, \"aRFS\"",
        by_queue: false,
        judge: queues::rules,
    },
    TuneStage {
        name: "sr-iov",
        source: "Documentation/PCI/pci-iov-howto.rst; igb_disable_sriov, ixgbe_disable_sriov",
        by_queue: false,
        judge: queues::functions,
    },
    TuneStage {
        name: "coalescing",
        source: "ethtool(8) -C, -Q",
        by_queue: false,
        judge: interrupts::coalescing,
    },
    TuneStage {
        name: "napi-defer",
        source: "Documentation/networking/napi.rst, \"Software IRQ coalescing\"; af_xdp.rst",
        by_queue: false,
        judge: interrupts::deferral,
    },
    TuneStage {
        name: "irq-suspend",
        source: "Documentation/networking/napi.rst, \"IRQ suspension\"",
        by_queue: false,
        judge: interrupts::suspension,
    },
    TuneStage {
        name: "threaded-napi",
        source: "Documentation/networking/napi.rst, \"Threaded NAPI\"",
        by_queue: false,
        judge: interrupts::threads,
    },
    TuneStage {
        name: "irq-affinity",
        source: "Documentation/core-api/irq/irq-affinity.rst; scaling.rst, \"RSS IRQ Configuration\"",
        by_queue: true,
        judge: placement::affinity,
    },
    TuneStage {
        name: "rps",
        source: "Documentation/networking/scaling.rst, \"RPS: Receive Packet Steering\"",
        by_queue: true,
        judge: placement::rps,
    },
    TuneStage {
        name: "rfs",
        source: "Documentation/networking/scaling.rst, \"RFS: Receive Flow Steering\"",
        by_queue: true,
        judge: placement::rfs,
    },
    TuneStage {
        name: "xps",
        source: "Documentation/networking/scaling.rst, \"XPS: Transmit Packet Steering\"",
        by_queue: true,
        judge: placement::xps,
    },
    TuneStage {
        name: "backlog",
        source: "Documentation/admin-guide/sysctl/net.rst, netdev_max_backlog",
        by_queue: false,
        judge: limits::backlog,
    },
    TuneStage {
        name: "budget",
        source: "Documentation/admin-guide/sysctl/net.rst, netdev_budget",
        by_queue: false,
        judge: limits::budget,
    },
    TuneStage {
        name: "buffers",
        source: "socket(7), SO_RCVBUF; Documentation/admin-guide/sysctl/net.rst, rmem_max",
        by_queue: false,
        judge: limits::buffers,
    },
    TuneStage {
        name: "notrack",
        source: "nft(8), NOTRACK STATEMENT",
        by_queue: false,
        judge: limits::tracking,
    },
];

/// True if a [`SettingChange`] of this name is of a plan.
pub fn is_of_plan(name: &str) -> bool {
    name.strip_prefix(CLAIM)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
}

/// The names of all stages, in their order.
pub fn stages() -> impl Iterator<Item = &'static str> {
    STAGES.iter().map(|stage| stage.name)
}

/// The plan for an interface: what to change, and what not.
#[derive(Debug, Clone, PartialEq)]
pub struct TunePlan {
    /// The interface.
    pub interface: String,
    /// The traffic to receive.
    pub goal: TuneGoal,
    /// All stages, in the order of making them.
    pub steps: Vec<PlannedStep>,
}

impl TunePlan {
    /// Finds out what suits the aim. It reads nothing but its arguments. Of the stages all are judged,
    /// or those of these names.
    pub fn new(tunables: &Tunables, aim: impl Into<Aim>, only: &[String]) -> Self {
        let aim = aim.into();
        let is_asked =
            |stage: &&TuneStage| only.is_empty() || only.iter().any(|name| name == stage.name);
        let mut changes_queues = false;
        let step = |stage: &TuneStage| {
            let mut step = stage.step(tunables, aim);
            let is_of_queues =
                |edit: &Edit| matches!(edit.setting, Setting::Coalescing { queue: Some(_) });
            let is_by_queue =
                stage.by_queue || step.edits().chain(step.edits_to_try()).any(is_of_queues);
            if changes_queues && is_by_queue {
                step.verdict = StageVerdict::Later;
                step.why = "the queues are changed first".to_owned();
            }
            changes_queues |= stage.name == CHANNELS && step.edits().next().is_some();
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
            step.verdict = match std::mem::replace(&mut step.verdict, StageVerdict::Fine) {
                StageVerdict::Try(edits) => StageVerdict::Change(edits),
                verdict => verdict,
            };
        }
        self
    }

    /// Its edits, in order.
    pub fn edits(&self) -> impl Iterator<Item = &Edit> {
        self.steps.iter().flat_map(PlannedStep::edits)
    }

    /// The change that one stage makes on an interface, for UDP, also what only may help. It is made in the
    /// network namespace of the calling thread.
    ///
    /// # Errors
    /// As [`Tunables::read`].
    pub(crate) fn change_of(stage: &str, interface: &str) -> HostResult<SettingChange> {
        let tunables = Tunables::read(interface, None)?;
        let plan = Self::new(&tunables, TuneGoal::Udp, &[stage.to_owned()]).trying();
        plan.change_on(&LiveKernel::default(), plan.steps.first())
    }

    /// The change that a step makes. Without a step it is the claim on the interface: it changes
    /// nothing, and there is one at a time.
    fn change_on(
        &self,
        host: &dyn SettingHost,
        step: Option<&PlannedStep>,
    ) -> HostResult<SettingChange> {
        let Self {
            interface, goal, ..
        } = self;
        let (name, heading) = match step {
            None => (CLAIM.to_owned(), format!("{interface}, tuned for {goal}")),
            Some(PlannedStep { stage, .. }) => {
                (format!("{CLAIM}-{stage}"), format!("{interface}, {stage}"))
            }
        };
        let place = host.interface(interface)?;
        let edits = step.into_iter().flat_map(PlannedStep::edits).cloned();
        Ok(SettingChange::new(
            host,
            place,
            name,
            heading,
            edits.collect(),
        )?)
    }

    /// The risks of making it.
    pub fn risks(&self) -> Vec<Risk> {
        risks_of(self.edits())
    }
}

/// The risks of these edits, each once.
fn risks_of<'a>(edits: impl Iterator<Item = &'a Edit>) -> Vec<Risk> {
    let risks = edits.flat_map(|edit| edit.setting.risks()).copied();
    risks.collect::<BTreeSet<_>>().into_iter().collect()
}

impl PlannedStep {
    /// The edits that it makes.
    pub fn edits(&self) -> impl Iterator<Item = &Edit> {
        match &self.verdict {
            StageVerdict::Change(edits) => edits.iter(),
            _ => [].iter(),
        }
    }

    /// The edits that it would make if it were named. No rule says that they help.
    pub fn edits_to_try(&self) -> impl Iterator<Item = &Edit> {
        match &self.verdict {
            StageVerdict::Try(edits) => edits.iter(),
            _ => [].iter(),
        }
    }

    /// The right to make it or try it: `CAP_NET_ADMIN` or root; none if it changes nothing.
    pub fn needs(&self) -> Option<&'static str> {
        let needs = self.edits().chain(self.edits_to_try());
        // "root" comes last of both.
        needs.map(|edit| edit.setting.needs()).max()
    }

    /// The risks of making it, trying it, or doing it by hand.
    pub fn risks(&self) -> Vec<Risk> {
        match &self.verdict {
            StageVerdict::ByHand(_, risks) => risks.to_vec(),
            _ => risks_of(self.edits().chain(self.edits_to_try())),
        }
    }

    /// The commands of what a plan does not change.
    pub fn commands(&self) -> &[String] {
        match &self.verdict {
            StageVerdict::ByHand(commands, _) => commands,
            _ => &[],
        }
    }
}

impl TuneStage {
    fn step(&self, tunables: &Tunables, aim: Aim) -> PlannedStep {
        let (wanted, why) = (self.judge)(tunables, aim);
        let edits = |settings: Vec<(Setting, Value)>, verdict: fn(Vec<Edit>) -> StageVerdict| {
            let edits = settings.into_iter().filter_map(|(setting, new)| {
                let old = tunables.value(&setting)?.clone();
                (old != new).then(|| Edit::new(setting, old, new))
            });
            let edits: Vec<Edit> = edits.collect();
            match edits.is_empty() {
                true => StageVerdict::Fine,
                false => verdict(edits),
            }
        };
        let verdict = match wanted {
            Wanted::NotNeeded => StageVerdict::NotNeeded,
            Wanted::Impossible => StageVerdict::Impossible,
            Wanted::ByHand(commands, risks) => StageVerdict::ByHand(commands, risks),
            Wanted::Settings(settings) => edits(settings, StageVerdict::Change),
            Wanted::Try(settings) => edits(settings, StageVerdict::Try),
        };
        PlannedStep {
            stage: self.name,
            verdict,
            why,
            source: self.source,
        }
    }
}

impl fmt::Display for TuneGoal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "UDP",
            Self::Tcp => "TCP",
            Self::AfXdp => "AF_XDP",
        })
    }
}
