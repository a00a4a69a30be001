//! Interrupts of a card that went to other CPUs while the host was looked at.

use super::{Check, Confidence, Evidence, Finding, Observed, lacks_time};
use crate::Station;

pub(super) const CHECK: Check = Check {
    name: "interrupts_moved",
    reads: "`effective_affinity_list` of each card's interrupts (/proc/irq)",
    speaks: "lost packets lacked CPU time, and an interrupt of a card moved to other CPUs",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    if !lacks_time(seen) {
        return Vec::new();
    }
    let cards = seen.after.cards.iter().filter_map(|(interface, card)| {
        let before = &seen.before.cards.get(interface)?.interrupts;
        let moved = card.interrupts.iter().filter_map(|now| {
            let before = before.iter().find(|before| before.number == now.number)?;
            let first = |cpus: &[usize]| cpus.first().map(|&cpu| cpu as u64);
            let (from, to) = (first(&before.effective)?, first(&now.effective)?);
            let source = format!("CPU of interrupt {} (/proc/irq)", now.number);
            (before.effective != now.effective).then(|| Evidence::new(source, from, to))
        });
        Some((interface, moved.collect::<Vec<_>>())).filter(|(_, moved)| !moved.is_empty())
    });
    let found = cards.map(|(interface, moved)| {
        let what = format!(
            "{} of the interrupts of {interface} moved to other CPUs meanwhile, away from what was in their \
             caches",
            moved.len()
        );
        let remedy = "if irqbalance does it: systemctl stop irqbalance, or its option --banirq for each; \
                      then place them: /proc/irq/N/smp_affinity_list";
        let found = Finding::noticed(seen, &CHECK, Station::Wire, moved);
        found.says(what, remedy).with(Confidence::Possible)
    });
    found.collect()
}
