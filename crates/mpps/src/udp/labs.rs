//! The two hosts on this machine: one lab for each way to deliver packets.

use super::roles::CpuLayout;
use anyhow::{Context, Result};
use mpps_lab::{Delivery, Lab, LabConfig};

/// The lab of a layout.
pub(crate) fn config(layout: &CpuLayout) -> LabConfig {
    LabConfig {
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

/// A lab for each delivery, and of threads for each place of these; the first is the usual one.
#[derive(Debug)]
pub(crate) struct Labs(Vec<(Delivery, Vec<usize>, Lab)>);

impl Labs {
    /// The lab of the usual layout, which a kernel without threads for the queues of a veth changes.
    pub(crate) fn new(layout: &mut CpuLayout) -> Result<Self> {
        let mut labs = Self(Vec::new());
        labs.add(layout)?;
        if labs.lacks_threads(layout).is_some() {
            *layout = layout.clone().without_threads();
        }
        // With RPS the kernel does not put each queue where it was to be.
        let lab = &labs.0[0].2;
        let queues = 0..u16::try_from(layout.queues.len()).unwrap_or(0);
        let known: Option<Vec<usize>> = queues.map(|queue| lab.queue_cpu(queue)).collect();
        if let (Delivery::Rps, Some(known)) = (layout.delivery, known) {
            layout.queues = known;
        }
        (labs.0[0].0, labs.0[0].1) = key(layout);
        Ok(labs)
    }

    /// Makes the lab of another layout, unless a lab with its delivery exists.
    pub(crate) fn add(&mut self, layout: &CpuLayout) -> Result<()> {
        if self.find(layout).is_none() {
            let (delivery, queues) = key(layout);
            self.0.push((delivery, queues, Lab::new(&config(layout))?));
        }
        Ok(())
    }

    /// Why the queues have no kernel threads, if they were to have them.
    pub(crate) fn lacks_threads(&self, layout: &CpuLayout) -> Option<&str> {
        let lab = self.find(layout)?;
        let lacks = layout.delivery == Delivery::ThreadedNapi && lab.in_soft_interrupts();
        lab.unplaced().filter(|_| lacks)
    }

    /// Looks whether each queue of a layout has a CPU that is known.
    pub(crate) fn place(&self, layout: &mut CpuLayout) {
        layout.is_placed = self.find(layout).is_some_and(|lab| match layout.delivery {
            Delivery::SoftInterrupt => lab.in_soft_interrupts(),
            Delivery::ThreadedNapi | Delivery::Rps => lab.queue_cpu(0).is_some(),
        });
    }

    /// The lab of a layout.
    pub(crate) fn of(&self, layout: &CpuLayout) -> Result<&Lab> {
        self.find(layout).context("it has no lab")
    }

    fn find(&self, layout: &CpuLayout) -> Option<&Lab> {
        let (delivery, queues) = key(layout);
        let is_it = |(how, at, _): &&(_, _, _)| *how == delivery && *at == queues;
        self.0.iter().find(is_it).map(|(.., lab)| lab)
    }

    /// All of them.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Lab> {
        self.0.iter().map(|(.., lab)| lab)
    }
}

/// The key of a layout's lab. Soft interrupts have no CPUs of their own, so they have no queues
/// here.
fn key(layout: &CpuLayout) -> (Delivery, Vec<usize>) {
    let queues = match layout.delivery {
        Delivery::SoftInterrupt => Vec::new(),
        Delivery::ThreadedNapi | Delivery::Rps => layout.queues.clone(),
    };
    (layout.delivery, queues)
}
