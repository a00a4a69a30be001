//! Which CPU does what, and the lab of each such layout.

mod cpu_choice;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) use cpu_choice::{by_distance as near_first, is_one_core};

use crate::measure::document::counted;
use crate::signal::{EndSignal, Interrupted};
use anyhow::{Context, Result, ensure};
use mpps_host::{CpuList, Relation, Topology};
use mpps_lab::{Delivery, Lab, LabConfig};

/// Receive queues of the lab; the article's NIC had eleven and its experiments used four.
pub(crate) const QUEUES: u16 = 4;
/// Where the article's receiver was relative to the queue's CPU, and its lowest and highest figure
/// there, in Mpps: on one CPU "up to 430k", and "falls to zero" under overload.
pub(crate) const ARTICLE_PLACES: [(Relation, &str, [f64; 2]); 4] = [
    (Relation::SameCpu, "same CPU", [0.0, 0.430]),
    (Relation::Sibling, "sibling hyper-thread", [0.200, 0.200]),
    (Relation::SameNode, "another core", [0.360, 0.360]),
    (Relation::OtherNode, "another node", [0.250, 0.330]),
];
/// Receiving threads at the most: one per queue.
const THREADS_MAX: usize = QUEUES as usize;

/// Which CPUs send, serve receive queues, and run the receiving program: of the whole ladder, or of
/// a rung that is about another placement.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct CpuLayout {
    /// CPUs of the sending threads, taken in turn.
    pub(crate) senders: Vec<usize>,
    /// The CPU of each receive queue.
    pub(crate) queues: Vec<usize>,
    /// CPUs of the receiving threads, taken in turn; empty leaves them to the scheduler.
    pub(crate) applications: Vec<usize>,
    /// How packets get to the CPU of their queue.
    pub(crate) delivery: Delivery,
    /// True if a user asked for this delivery, which every rung then has.
    is_asked: bool,
    topology: Topology,
}

impl CpuLayout {
    /// Deals out the CPUs that this process may use, and says how packets are delivered unless that
    /// was asked for.
    ///
    /// With two CPUs the sender's serves the queues, too, in its soft interrupts, so that the
    /// application has the other one to itself; a queue that is tied to a CPU shares the
    /// application's there. With one CPU everybody shares it.
    pub(crate) fn new(topology: Topology, asked: Option<Delivery>) -> Self {
        let usual = match topology.usable().len() {
            2 => Delivery::SoftInterrupt,
            _ => Delivery::ThreadedNapi,
        };
        let delivery = asked.unwrap_or(usual);
        let roles = cpu_choice::roles(&topology);
        let [senders, queues, applications] = match delivery {
            Delivery::SoftInterrupt => {
                let (senders, applications) = cpu_choice::soft(&topology);
                [senders.clone(), senders, applications]
            }
            Delivery::ThreadedNapi | Delivery::Rps => {
                [roles.senders, roles.queues, roles.applications]
            }
        };
        Self {
            queues: each_queue(&queues),
            senders,
            applications,
            delivery,
            is_asked: asked.is_some(),
            topology,
        }
    }

    /// With these CPUs for senders and queues, and no CPU of the application's own.
    pub(crate) fn served_by(topology: Topology, senders: Vec<usize>, queues: Vec<usize>) -> Self {
        Self {
            senders,
            queues,
            applications: topology.usable(),
            delivery: Delivery::ThreadedNapi,
            is_asked: false,
            topology,
        }
    }

    /// One queue. Its CPU also generates the traffic, so that the application has its own to itself.
    /// It serves the queue in soft interrupts, or in a thread if the application is there too.
    pub(crate) fn one_queue(&self) -> Self {
        let (cpu, application) = (self.queues[0], self.applications[0]);
        Self {
            senders: vec![cpu],
            queues: vec![cpu],
            applications: vec![application],
            delivery: match cpu == application {
                true => Delivery::ThreadedNapi,
                false => Delivery::SoftInterrupt,
            },
            ..self.clone()
        }
    }

    /// How many queues.
    pub(crate) fn queue_count(&self) -> u16 {
        u16::try_from(self.queues.len()).unwrap_or(u16::MAX)
    }

    /// True if one CPU has the queue and the application.
    pub(crate) fn shares_cpu(&self) -> bool {
        self.delivery != Delivery::SoftInterrupt && self.queues.first() == self.applications.first()
    }

    /// Lays out a CPU for each of `queues` queues in use and `threads` receiving threads. If there
    /// are too few CPUs for three roles, the senders serve the queues, one each. One queue and one
    /// thread may share a CPU, because a smaller case does not exist.
    ///
    /// # Errors
    /// The number of CPUs that are needed, and of those present. Only the first node counts,
    /// because queues and application run on one node.
    pub(crate) fn with_cpus(&self, queues: usize, threads: usize) -> Result<Self, String> {
        let has = |cpus: &[usize], wanted| distinct(cpus.to_vec()).len() >= wanted;
        let is_usual = has(&self.queues, queues) && has(&self.applications, threads);
        if is_usual || queues.max(threads) == 1 {
            return Ok(self.clone());
        }
        let (wanted, near) = (queues + threads, cpu_choice::first_node(&self.topology));
        if near.len() < wanted {
            let node = if self.nodes() > 1 { " on one node" } else { "" };
            return Err(format!("needs {wanted} CPUs{node}; here {}", near.len()));
        }
        if self.is_asked {
            let left = distinct(self.queues.clone()).len();
            return Err(format!(
                "needs {queues} CPUs for queues and {threads} for threads; the delivery that was asked \
                 for leaves {left} for queues"
            ));
        }
        let (senders, applications) = cpu_choice::serving(near, queues, threads);
        Ok(Self {
            queues: each_queue(&senders),
            senders,
            applications,
            delivery: Delivery::SoftInterrupt,
            ..self.clone()
        })
    }

    /// A CPU for the thread of each of `queues` queues and one for the application. Senders share the
    /// others. None if none is left, or if the queues have no threads here.
    pub(crate) fn with_queue_cpus(&self, queues: usize) -> Option<Self> {
        let mut near = cpu_choice::first_node(&self.topology);
        if self.is_asked || self.delivery != Delivery::ThreadedNapi || near.len() < queues + 2 {
            return None;
        }
        let senders = near.split_off(queues + 1);
        Some(Self {
            senders,
            applications: near.split_off(queues),
            queues: each_queue(&near),
            ..self.clone()
        })
    }

    /// With a kernel thread for each queue in any case, so that a queue can overflow: where senders
    /// serve the queues the threads run beside them.
    pub(crate) fn with_threads(&self) -> Self {
        Self {
            delivery: match self.delivery {
                Delivery::SoftInterrupt if !self.is_asked => Delivery::ThreadedNapi,
                other => other,
            },
            ..self.clone()
        }
    }

    /// Returns the sender's CPU whose generated frames take this queue. Its number modulo the
    /// queues is the queue's (`veth_select_rxq` in drivers/net/veth.c). Candidates are the senders'
    /// CPUs, then the other hyper-threads of their cores. The candidate that `taken` uses least is
    /// returned.
    pub(crate) fn sender_for(&self, queue: u16, taken: &[usize]) -> Option<usize> {
        let usable = self.topology.usable().into_iter();
        // A sender that serves the queue is on the queue's CPU.
        let others = usable.filter(|cpu| {
            self.delivery != Delivery::SoftInterrupt
                && self.share_a_core(*cpu, &self.senders)
                && !self.senders.contains(cpu)
                && !self.queues.contains(cpu)
                && !self.applications.contains(cpu)
        });
        let all = self.senders.iter().copied().chain(others);
        let reaches = |cpu: &usize| cpu % self.queues.len() == usize::from(queue);
        all.filter(reaches).min_by_key(|cpu| {
            let turns = taken.iter().filter(|other| *other == cpu).count();
            (turns, self.share_a_core(*cpu, taken))
        })
    }

    /// The same on a kernel that has no threads for the queues of a veth: senders serve them.
    pub(crate) fn without_threads(self) -> Self {
        let (senders, applications) = cpu_choice::soft(&self.topology);
        Self {
            queues: each_queue(&senders),
            senders,
            applications,
            delivery: Delivery::SoftInterrupt,
            ..self
        }
    }

    /// The application on one CPU that stands in this relation to the first queue's, or what this
    /// host has not for that.
    pub(crate) fn place(&self, relation: Relation) -> Result<Self, String> {
        let queue = self.queues[0];
        let lacks = |what| format!("this host has no {what} for CPU {queue}");
        match relation {
            Relation::SameCpu => {
                let place = self.on_the_queues_cpu();
                place.ok_or_else(|| format!("this process may not use CPU {queue}"))
            }
            Relation::Sibling => self
                .related(relation)
                .ok_or_else(|| lacks("hyper-thread sibling")),
            Relation::SameNode => self
                .related(relation)
                .ok_or_else(|| lacks("other core on its node")),
            Relation::OtherNode => self
                .on_another_node(1)
                .map_err(|_| lacks("CPU on another NUMA node")),
        }
    }

    /// The application on the CPU of the first queue; never in the sender's soft interrupts, which
    /// would have all three on one CPU: there the queues go to the application instead. None if this
    /// process may not use that CPU.
    fn on_the_queues_cpu(&self) -> Option<Self> {
        if self.delivery != Delivery::SoftInterrupt {
            return self.related(Relation::SameCpu);
        }
        let application = self.applications[0];
        Some(Self {
            applications: vec![application],
            queues: vec![application; self.queues.len()],
            delivery: Delivery::ThreadedNapi,
            ..self.clone()
        })
    }

    /// The application on one CPU that stands in this relation to the first queue's, if there is
    /// one: away from senders and the queue, if that can be.
    fn related(&self, relation: Relation) -> Option<Self> {
        let mut cpus = self.in_relation(relation);
        cpus.sort_by_key(|cpu| {
            (
                self.share_a_core(*cpu, &self.senders),
                self.share_a_core(*cpu, &self.queues[..1]),
                !self.applications.contains(cpu),
                self.queues.contains(cpu),
            )
        });
        Some(self.at(vec![*cpus.first()?]))
    }

    /// So many receiving threads on another node than the first queue's, on as many cores as they
    /// have here: cores that the senders leave free, or the senders' if those are too few.
    ///
    /// # Errors
    /// How many CPUs it needs there, and how many there are.
    pub(crate) fn on_another_node(&self, threads: usize) -> Result<Self, String> {
        let all = self.in_relation(Relation::OtherNode);
        let free = all.iter().copied();
        let free = free.filter(|cpu| !self.share_a_core(*cpu, &self.senders));
        let free: Vec<usize> = free.collect();
        let cores = self.cores(&self.applications).min(threads);
        let wanted = self.cores(&all).min(cores);
        let cpus = match self.cores(&free) >= wanted && free.len() >= threads {
            true => free,
            false => all.clone(),
        };
        let mut chosen = Vec::new();
        for cores in [cores, threads] {
            for cpu in &cpus {
                let fits = self.share_a_core(*cpu, &chosen) || self.cores(&chosen) < cores;
                if fits && chosen.len() < threads && !chosen.contains(cpu) {
                    chosen.push(*cpu);
                }
            }
        }
        match chosen.len() == threads {
            true => Ok(self.at(chosen)),
            false => {
                let plural = if threads == 1 { "" } else { "s" };
                Err(format!(
                    "needs {threads} CPU{plural} on another NUMA node than CPU {}; here {}",
                    self.queues[0],
                    all.len()
                ))
            }
        }
    }

    /// Receiving threads that the scheduler places.
    pub(crate) fn unpinned(&self) -> Self {
        Self {
            applications: Vec::new(),
            ..self.clone()
        }
    }

    /// True if the senders have left their place to the application, and taken its own.
    pub(crate) fn has_changed_places(&self, usual: &Self) -> bool {
        let is_vacated = |cpu: &usize| usual.applications.contains(cpu);
        self.senders != usual.senders && self.senders.iter().all(is_vacated)
    }

    /// The receiving threads at these CPUs. If a sender is there or on the same core, the senders
    /// take the places that have become free.
    fn at(&self, applications: Vec<usize>) -> Self {
        let is_in_the_way = |cpu: &usize| self.share_a_core(*cpu, &applications);
        let is_free = |cpu: &&usize| !is_in_the_way(cpu) && !self.share_a_core(**cpu, &self.queues);
        let free: Vec<usize> = self.applications.iter().filter(is_free).copied().collect();
        // Queues that senders serve would move with them.
        let may_move = self.delivery != Delivery::SoftInterrupt && !free.is_empty();
        let senders = if may_move && self.senders.iter().any(is_in_the_way) {
            free
        } else {
            self.senders.clone()
        };
        Self {
            senders,
            applications,
            ..self.clone()
        }
    }

    /// CPUs that stand in this relation to the first queue's, one of each core first.
    fn in_relation(&self, relation: Relation) -> Vec<usize> {
        let mut cpus = cpu_choice::by_distance(&self.topology);
        cpus.retain(|cpu| self.topology.relation(self.queues[0], *cpu) == Some(relation));
        cpus
    }

    /// True if a CPU is one of these, or a hyper-thread of the same core.
    pub(crate) fn share_a_core(&self, cpu: usize, others: &[usize]) -> bool {
        others
            .iter()
            .any(|other| cpu_choice::is_one_core(&self.topology, cpu, *other))
    }

    /// How many cores these CPUs are of.
    pub(crate) fn cores(&self, cpus: &[usize]) -> usize {
        cpu_choice::cores(&self.topology, cpus)
    }

    /// How the two hosts lie over the CPUs, in one line.
    pub(crate) fn sentence(&self, is_placed: bool, kernel: &str) -> String {
        let cpus = self.topology.usable().len();
        format!(
            "sender: {}   receiver: queues on {}, application on {}   Linux {kernel}, {}, {}",
            on(&self.senders),
            match (is_placed, self.delivery) {
                (false, _) => "no CPU of their own".to_owned(),
                (true, Delivery::SoftInterrupt) =>
                    format!("{} in the sender's soft interrupts", on(&self.queues)),
                (true, _) => on(&self.queues),
            },
            on(&self.applications),
            counted(cpus, "CPU"),
            counted(self.nodes(), "NUMA node"),
        )
    }

    /// Notes on shared CPUs, one sentence each.
    pub(crate) fn notes(&self, is_placed: bool) -> Vec<String> {
        let mut notes = Vec::new();
        if is_placed && self.delivery == Delivery::SoftInterrupt {
            notes.push(format!(
                "the receive queues are served in soft interrupts of the sender's {}: what is \
                 offered is what these leave of it, and less than the sender could offer alone",
                on(&self.senders)
            ));
        }
        let threads = self.hyper_threads();
        if !threads.is_empty() {
            notes.push(format!("hyper-threads of one core: {}", threads.join("; ")));
        }
        notes
    }

    /// The cores with more than one CPU in use, with the roles of these CPUs.
    fn hyper_threads(&self) -> Vec<String> {
        let roles = |cpu: usize| {
            let roles = [
                ("sender", &self.senders),
                ("queues", &self.queues),
                ("application", &self.applications),
            ];
            let roles = roles
                .into_iter()
                .filter(move |(_, cpus)| cpus.contains(&cpu));
            roles.map(|(role, _)| role)
        };
        let mut cores: Vec<Vec<usize>> = Vec::new();
        for cpu in self.topology.usable() {
            if roles(cpu).next().is_none() {
                continue;
            }
            match cores.iter_mut().find(|core| self.share_a_core(cpu, core)) {
                Some(core) => core.push(cpu),
                None => cores.push(vec![cpu]),
            }
        }
        let said = |core: Vec<usize>| {
            let mut said: Vec<&str> = core.iter().flat_map(|cpu| roles(*cpu)).collect();
            said.dedup();
            format!("{} ({})", on(&core), said.join(" and "))
        };
        cores.retain(|core| core.len() > 1);
        cores.into_iter().map(said).collect()
    }

    /// NUMA nodes of this machine.
    pub(crate) fn nodes(&self) -> usize {
        self.topology.nodes().len().max(1)
    }
}

/// A CPU for each queue, taken in turn.
fn each_queue(cpus: &[usize]) -> Vec<usize> {
    let cpus = cpus.iter().copied().cycle();
    cpus.take(usize::from(QUEUES)).collect()
}

/// The same numbers in ascending order, each once.
pub(crate) fn distinct(mut numbers: Vec<usize>) -> Vec<usize> {
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// `CPU 1` or `CPUs 0-3`.
pub(crate) fn on(cpus: &[usize]) -> String {
    let distinct = distinct(cpus.to_vec());
    let plural = if distinct.len() == 1 { "" } else { "s" };
    format!("CPU{plural} {}", CpuList(distinct))
}

/// The lab of a layout.
pub(crate) fn config(layout: &CpuLayout) -> LabConfig {
    LabConfig {
        queues: layout.queue_count(),
        queue_cpus: layout.queues.clone(),
        delivery: layout.delivery,
        ..LabConfig::default()
    }
}

/// Notes each of these once.
pub(crate) fn note_each<'a>(notes: &mut Vec<String>, more: impl IntoIterator<Item = &'a String>) {
    for note in more {
        if !notes.contains(note) {
            notes.push(note.clone());
        }
    }
}

/// A lab for each delivery and number of queues, and of threads for each place of these.
#[derive(Debug)]
pub(crate) struct Labs {
    labs: Vec<(Delivery, Vec<usize>, Lab)>,
    pub(crate) interrupt: EndSignal,
}

impl Labs {
    /// No lab yet.
    pub(crate) fn new(interrupt: &EndSignal) -> Self {
        Self {
            labs: Vec::new(),
            interrupt: interrupt.clone(),
        }
    }

    /// Makes the lab of the usual layout, which a kernel without threads for the queues of a veth
    /// changes.
    pub(crate) fn usual(&mut self, mut layout: CpuLayout) -> Result<CpuLayout> {
        self.add(&layout)?;
        if self.lacks_threads(&layout).is_some() {
            layout = layout.without_threads();
        }
        // With RPS the kernel does not put each queue where it was to be.
        let first = &mut self.labs[0];
        let known = (0..layout.queue_count()).map(|queue| first.2.queue_cpu(queue));
        if let (Delivery::Rps, Some(known)) = (layout.delivery, known.collect()) {
            layout.queues = known;
        }
        (first.0, first.1) = key(&layout);
        self.add(&layout)?;
        Ok(layout)
    }

    /// Makes the lab of a layout, unless it exists. [`Interrupted`] after Ctrl-C: labs are made before
    /// the first run.
    pub(crate) fn add(&mut self, layout: &CpuLayout) -> Result<()> {
        if self.of(layout).is_err() {
            let (delivery, queues) = key(layout);
            let lab = Lab::new(&config(layout))?;
            self.labs.push((delivery, queues, lab));
        }
        ensure!(!self.interrupt.came(), Interrupted);
        Ok(())
    }

    /// True if the queues are on their CPUs in the lab of a layout, which some users may not do.
    pub(crate) fn is_placed(&self, layout: &CpuLayout) -> bool {
        self.of(layout).is_ok_and(|lab| match layout.delivery {
            Delivery::SoftInterrupt => lab.in_soft_interrupts(),
            Delivery::ThreadedNapi | Delivery::Rps => lab.queue_cpu(0).is_some(),
        })
    }

    /// Why the queues have no kernel threads, if they were to have them.
    pub(crate) fn lacks_threads(&self, layout: &CpuLayout) -> Option<&str> {
        let lab = self.of(layout).ok()?;
        let lacks = layout.delivery == Delivery::ThreadedNapi && lab.in_soft_interrupts();
        lab.unplaced().filter(|_| lacks)
    }

    /// The lab of a layout.
    pub(crate) fn of(&self, layout: &CpuLayout) -> Result<&Lab> {
        let (delivery, queues) = key(layout);
        let is_it = |(how, at, _): &&(_, _, _)| *how == delivery && *at == queues;
        let lab = self.labs.iter().find(is_it).map(|(.., lab)| lab);
        lab.context("it has no lab")
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Lab> {
        self.labs.iter().map(|(.., lab)| lab)
    }

    /// Notes on all of them, each once.
    pub(crate) fn note(&self, notes: &mut Vec<String>) {
        note_each(notes, self.iter().flat_map(Lab::notes));
    }
}

/// The key of a layout's lab. In soft interrupts the sender's CPU serves each queue.
fn key(layout: &CpuLayout) -> (Delivery, Vec<usize>) {
    let queues = match layout.delivery {
        Delivery::SoftInterrupt => vec![0; layout.queues.len()],
        Delivery::ThreadedNapi | Delivery::Rps => layout.queues.clone(),
    };
    (layout.delivery, queues)
}
