//! Which CPU serves which receive queue.

use std::io::ErrorKind;

use mpps_os::sysfs::Sysfs;
use mpps_os::{CallError as KernelError, ethtool, sched};

use crate::{Delivery, LabConfig, LabError, queue_threads};

/// The kernel thread that polls one receive queue of the receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NapiThread {
    /// The receive queue, from 0.
    pub queue: u16,
    /// The number of the thread, which is its process number too.
    pub pid: u32,
    /// The CPU it is confined to, if it is.
    pub cpu: Option<usize>,
}

/// The CPUs and threads that serve the queues, and the refused settings.
#[derive(Debug, Default)]
pub(crate) struct QueuePlacement {
    /// The CPU of each queue; empty if the queues have none.
    pub(crate) cpus: Vec<usize>,
    pub(crate) threads: Vec<NapiThread>,
    /// Packets wait in the ring of their queue, and not in a CPU's backlog.
    pub(crate) has_rings: bool,
    /// The sender's CPU also receives each packet, in a soft interrupt.
    pub(crate) in_soft_interrupts: bool,
    pub(crate) notes: Vec<String>,
}

/// Makes the threads of these queues weigh as much together, on each CPU, as one thread does.
pub(crate) fn share_weight(threads: &[NapiThread], queues: &[u16]) -> Result<(), KernelError> {
    let busy = |thread: &&NapiThread| queues.contains(&thread.queue);
    for thread in threads.iter().filter(busy) {
        let alike = threads
            .iter()
            .filter(busy)
            .filter(|other| other.cpu == thread.cpu);
        // Each step of nice is a factor of 1.25 (`sched_prio_to_weight` in kernel/sched/core.c).
        let nice = (alike.count() as f64).log(1.25).round() as i32;
        sched::set_nice(thread.pid, nice.min(19))?;
    }
    Ok(())
}

impl QueuePlacement {
    /// Places the queues of the calling thread's interface, which is up.
    pub(crate) fn new(
        interface: &str,
        index: u32,
        config: &LabConfig,
    ) -> Result<QueuePlacement, LabError> {
        let mut placement = QueuePlacement::default();
        // Without GRO a veth has no NAPI, and so no receive queues. Its packets go to the backlog
        // of the sender's CPU.
        if let Err(error) = ethtool::set_feature(interface, "rx-gro", true) {
            placement.note(
                "receive queues have no ring and no CPU of their own",
                &error,
            );
            return Ok(placement);
        }
        placement.has_rings = true;
        let sysfs = match Sysfs::mount() {
            Ok(sysfs) => sysfs,
            Err(error) => {
                placement.note("queues are not placed", &error);
                return Ok(placement);
            }
        };
        // NAPI has threads as of Linux 5.12, and a veth has NAPI without an XDP program as of 5.13.
        // A kernel without the switch for threads has neither.
        match sysfs.read(&queue_threads::switch(interface)) {
            Ok(_) => {}
            Err(error) if error.source.kind() == ErrorKind::NotFound => {
                placement.has_rings = false;
                placement.notes.push(
                    "receive queues have neither ring nor thread: before Linux 5.13 a veth puts \
                     packets into the backlog of a CPU, the sender's unless RPS chooses another"
                        .to_owned(),
                );
            }
            Err(error) => return Err(error.into()),
        }
        match config.delivery {
            Delivery::ThreadedNapi if placement.has_rings => {
                placement.threaded_napi(&sysfs, interface, index, config)?;
            }
            Delivery::ThreadedNapi | Delivery::SoftInterrupt => placement.in_soft_interrupts = true,
            Delivery::Rps => placement.rps(&sysfs, interface, config),
        }
        Ok(placement)
    }

    /// Gives each queue a kernel thread, pinned to its CPU.
    fn threaded_napi(
        &mut self,
        sysfs: &Sysfs,
        interface: &str,
        index: u32,
        config: &LabConfig,
    ) -> Result<(), LabError> {
        let found = match queue_threads::start(sysfs, interface, index) {
            Ok(found) => found,
            Err(error) => {
                self.note("receive queues are polled by the sender's CPU", &error);
                self.in_soft_interrupts = true;
                return Ok(());
            }
        };
        if found.len() != usize::from(config.queues) {
            // A thread that cannot be seen can neither be pinned nor measured.
            sysfs.write(&queue_threads::switch(interface), "0")?;
            self.notes.push(format!(
                "receive queues are polled by the sender's CPU: this PID namespace shows {} of {} \
                 kernel threads; a container sees them with --pid=host",
                found.len(),
                config.queues
            ));
            self.in_soft_interrupts = true;
            return Ok(());
        }
        // veth makes the contexts of its queues in the order of the queues, and their numbers
        // ascend (napi_hash_add in net/core/dev.c).
        for (queue, (_, pid)) in (0..config.queues).zip(found) {
            let cpu = config.queue_cpus.get(usize::from(queue)).copied();
            self.threads.push(NapiThread { queue, pid, cpu });
        }
        self.pin_threads()
    }

    /// Confines the threads to their CPUs, which an ordinary user may not.
    fn pin_threads(&mut self) -> Result<(), LabError> {
        for thread in &self.threads {
            let Some(cpu) = thread.cpu else { continue };
            match sched::pin(thread.pid, &[cpu]) {
                Ok(()) => {}
                Err(error) if error.errno() == Some(EPERM) => {
                    self.note("receive queues are polled by unpinned threads", &error);
                    self.threads.iter_mut().for_each(|thread| thread.cpu = None);
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.cpus = self
            .threads
            .iter()
            .filter_map(|thread| thread.cpu)
            .collect();
        Ok(())
    }

    /// Makes the CPU of each queue take its packets out of the sender's hands.
    ///
    /// A veth does not give RPS its receive queue. RPS takes the number of the transmit queue
    /// instead. It reads that as the receive queue plus one, and zero as not known (`get_rps_cpu`
    /// in net/core/dev.c). So it looks for queue 1 at `rx-0`, for queue 2 at `rx-1`, and for queue
    /// 0 at `rx-0` too. Queues 0 and 1 can therefore have only one CPU.
    fn rps(&mut self, sysfs: &Sysfs, interface: &str, config: &LabConfig) {
        let mut cpus = config.queue_cpus.clone();
        if let [first, second, ..] = &mut cpus[..] {
            if first != second {
                self.notes.push(format!(
                    "receive queue 0 has CPU {second} of queue 1, not CPU {first}: RPS cannot \
                     distinguish these two on a veth"
                ));
            }
            *first = *second;
        }
        for (queue, cpu) in cpus.iter().enumerate() {
            let place = queue.saturating_sub(1);
            let path = format!("class/net/{interface}/queues/rx-{place}/rps_cpus");
            if let Err(error) = sysfs.write(&path, &cpu_mask(*cpu)) {
                self.note("receive queues are served by the sender's CPU", &error);
                return;
            }
        }
        self.cpus = cpus;
    }

    fn note(&mut self, what: &str, why: &KernelError) {
        self.notes.push(format!("{what}: {why}"));
    }
}

/// Operation not permitted (include/uapi/asm-generic/errno-base.h).
const EPERM: i32 = 1;

/// A set of one CPU as the kernel reads it: groups of eight hexadecimal digits, highest first.
fn cpu_mask(cpu: usize) -> String {
    let mut mask = format!("{:x}", 1_u32 << (cpu % 32));
    for _ in 0..cpu / 32 {
        mask.push_str(",00000000");
    }
    mask
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_of_one_cpu() {
        assert_eq!(cpu_mask(0), "1");
        assert_eq!(cpu_mask(5), "20");
        assert_eq!(cpu_mask(31), "80000000");
        assert_eq!(cpu_mask(32), "1,00000000");
        assert_eq!(cpu_mask(67), "8,00000000,00000000");
    }
}
