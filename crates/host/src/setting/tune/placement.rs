//! Which CPU does what.

use super::tunables::{FLOWS, flows_file, rps_file, xps_file};
use super::{Aim, JudgedStage, Tunables, TuneGoal, Wanted};
use crate::setting::{Setting, Value};

/// Flows that the tables of scaling.rst's own example hold.
const FLOWS_ALL: u32 = 32_768;

/// A core of its own for each queue, near the card.
pub(super) fn affinity(tunables: &Tunables, _: Aim) -> JudgedStage {
    if tunables.interrupts.is_empty() {
        return Wanted::Impossible.because("it has no interrupts of queues");
    }
    let cores = tunables.near_cores();
    let mut wanted = Vec::new();
    for one in &tunables.interrupts {
        let setting = Setting::Affinity {
            interrupt: one.interrupt,
        };
        if let Some(cpu) = cores.get(one.queue % cores.len().max(1)) {
            wanted.push((setting, Value::set([*cpu])));
        }
    }
    let balanced = match tunables.irqbalance {
        true => "; irqbalance runs and will move them again: stop it, or ban these interrupts",
        false => "",
    };
    let (queues, cores) = (tunables.interrupts.len(), cores.len());
    let whose = match (queues, queues > cores) {
        (1, _) => "its queue interrupts one core".to_owned(),
        (_, false) => format!("each of {queues} queues interrupts a core of its own"),
        (_, true) => format!("{queues} queues interrupt {cores} cores in turn"),
    };
    let why = format!("{whose}, near the card{balanced}");
    Wanted::Settings(wanted).because(why)
}

/// With a queue for each core the hash has spread the packets already. With fewer the CPUs without a
/// queue can take the work behind the driver.
pub(super) fn rps(tunables: &Tunables, aim: Aim) -> JudgedStage {
    let queues = tunables.queues();
    let files = (0..tunables.rx_queues).map(|queue| Setting::file(rps_file(queue)));
    let files: Vec<Setting> = files
        .filter(|file| tunables.value(file).is_some())
        .collect();
    if files.is_empty() {
        return Wanted::Impossible.because("this kernel has no RPS");
    }
    let cores = tunables.near_cores();
    let is_between = aim.goal != TuneGoal::AfXdp && queues > 1 && (queues as usize) < cores.len();
    let spreads = aim.goal != TuneGoal::AfXdp && queues == 1 && cores.len() > 1;
    let wanted = match spreads || is_between {
        // All near cores of the machine except the core that the queue keeps busy.
        true => Value::set(cores.iter().skip(1).copied()),
        false => Value::set([]),
    };
    let wanted = files.into_iter().map(|file| (file, wanted.clone()));
    if is_between {
        let why = format!(
            "{queues} queues and {} cores: those without a queue could share the work, and each \
             hand-over costs",
            cores.len()
        );
        return Wanted::Try(wanted.collect()).because(why);
    }
    let why = match (spreads, aim.goal) {
        (true, _) => format!(
            "one queue, and {} cores that could share the work behind it",
            cores.len()
        ),
        (false, TuneGoal::AfXdp) => "AF_XDP takes frames before it".to_owned(),
        (false, _) => {
            "the card's hash has spread the packets; a second hand-over would cost".to_owned()
        }
    };
    Wanted::Settings(wanted.collect()).because(why)
}

/// The kernel hands a packet to the CPU that its reader last ran on.
pub(super) fn rfs(tunables: &Tunables, aim: Aim) -> JudgedStage {
    if aim.goal == TuneGoal::AfXdp {
        return Wanted::NotNeeded.because("AF_XDP takes frames before it");
    }
    let all = Setting::sysctl(FLOWS);
    if tunables.number(&all).is_none() {
        let why =
            "the table of flows is the machine's, and cannot be set in this network namespace";
        return Wanted::Impossible.because(why);
    }
    // The kernel rounds to it, and shows what it made.
    let each = (FLOWS_ALL / tunables.queues()).next_power_of_two();
    let queues = (0..tunables.rx_queues).map(|queue| Setting::file(flows_file(queue)));
    let queues = queues.map(|file| (file, Value::number(each)));
    let wanted = queues.chain([(all, Value::number(FLOWS_ALL))]);
    let why = "packets of a socket with one reader find its cache warm; readers that move take the \
               packets with them";
    Wanted::Try(wanted.collect()).because(why)
}

/// A transmit queue for each CPU that sends, so that no two share its lock.
pub(super) fn xps(tunables: &Tunables, aim: Aim) -> JudgedStage {
    if aim.goal == TuneGoal::AfXdp {
        return Wanted::NotNeeded.because("AF_XDP sends by the queue of its socket");
    }
    let file = |queue| Setting::file(xps_file(queue));
    let queues =
        (0..tunables.tx_queues).take_while(|queue| tunables.value(&file(*queue)).is_some());
    let queues = queues.count();
    let cores = tunables.near_cores();
    if queues < 2 {
        return Wanted::NotNeeded.because("it has one transmit queue, or its driver chooses it");
    }
    if queues != cores.len() || cores.len() != tunables.cpus.len() {
        let why = format!(
            "{queues} transmit queues and {} CPUs: the kernel's own choice is as good",
            tunables.cpus.len()
        );
        return Wanted::NotNeeded.because(why);
    }
    let wanted = (0..queues as u32).zip(&cores);
    let wanted = wanted.map(|(queue, cpu)| (file(queue), Value::set([*cpu])));
    Wanted::Settings(wanted.collect())
        .because(format!("{queues} transmit queues, one for each CPU"))
}
