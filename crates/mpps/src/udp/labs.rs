//! The two hosts on this machine: a lab for each layout of CPUs.

use super::roles::CpuLayout;
use crate::signal::{EndSignal, Interrupted};
use anyhow::{Context, Result, ensure};
use mpps_lab::{Delivery, Lab, LabConfig};

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
    pub(crate) fn usual(&mut self, layout: CpuLayout) -> Result<CpuLayout> {
        let mut layout = self.add(layout)?;
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
        self.add(layout)
    }

    /// Makes the lab of a layout, unless it exists. The answer knows whether each queue has a CPU.
    /// [`Interrupted`] after Ctrl-C: labs are made before the first run.
    pub(crate) fn add(&mut self, mut layout: CpuLayout) -> Result<CpuLayout> {
        if self.of(&layout).is_err() {
            let (delivery, queues) = key(&layout);
            let lab = Lab::new(&config(&layout))?;
            self.labs.push((delivery, queues, lab));
        }
        ensure!(!self.interrupt.came(), Interrupted);
        let lab = self.of(&layout)?;
        layout.is_placed = match layout.delivery {
            Delivery::SoftInterrupt => lab.in_soft_interrupts(),
            Delivery::ThreadedNapi | Delivery::Rps => lab.queue_cpu(0).is_some(),
        };
        Ok(layout)
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
