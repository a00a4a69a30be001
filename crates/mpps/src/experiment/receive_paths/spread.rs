//! Early drops of traffic that comes by more and more receive queues: what is left of a CPU's rate
//! when others work beside it.

use super::result::SpreadRow;
use crate::measure::rounds::Case;
use crate::measure::samples::median;
use crate::udp::path::{Path, PathTaker};
use crate::udp::roles::{CpuLayout, Labs};
use crate::udp::run::UdpRun;
use crate::udp::runs::Runs;
use crate::udp::sender::LabSender;
use crate::udp::trial::{TrialRuns, UdpTrial};
use anyhow::Result;
use mpps_host::Topology;
use mpps_lab::{EarlyDrop, Lab, address};

/// An address for each queue.
const TARGETS: [u8; 4] = [1, 2, 3, 4];
/// Queues that carry the traffic: the article's one and four, and what lies between.
const QUEUES: [u16; 3] = [1, 2, 4];
/// A sender whose packets were nearly all dropped did not outrun the drop.
const OUTRUN: f64 = 0.95;
/// The rates of the 2015 article for iptables in the table raw: 1.4 Mpps by one queue on one CPU,
/// and about 0.48 Mpps per CPU by four.
const ARTICLE_MPPS_PER_CPU: [(u16, f64); 2] = [(1, 1.4), (4, 0.48)];

/// A trial of a sender for each number of queues, or why it cannot run.
pub(super) fn arrangements(
    labs: &mut Labs,
    topology: &Topology,
    usual: &UdpTrial,
) -> Result<Vec<TrialRuns>> {
    let mut all = Vec::new();
    for queues in QUEUES {
        let mut trial = UdpTrial {
            targets: &TARGETS[..usize::from(queues)],
            in_turn: usual.sender != LabSender::Generator,
            ..usual.clone()
        };
        let skipped = match cpus(usual.sender, queues, &topology.usable()) {
            Err(why) => Some(why),
            Ok((senders, cpus)) => {
                let layout = CpuLayout::served_by(topology.clone(), senders, cpus);
                labs.add(&layout)?;
                trial.layout = layout;
                obstacle(&trial, labs.of(&trial.layout)?)
            }
        };
        all.push(Case::new(trial, skipped));
    }
    Ok(all)
}

/// The CPUs of the senders and of the queues.
///
/// A generator is on each queue's CPU: a frame redirected into a veth takes the receive queue of the
/// number of its CPU, modulo the queues (`veth_select_rxq` in drivers/net/veth.c). One socket sends
/// to all queues in turn, and the other CPUs serve them.
fn cpus(
    sender: LabSender,
    queues: u16,
    usable: &[usize],
) -> Result<(Vec<usize>, Vec<usize>), String> {
    let queues = usize::from(queues);
    if sender != LabSender::Generator {
        let first = usable.first().copied().unwrap_or(0);
        let others = usable.get(1..).filter(|others| !others.is_empty());
        let others = others.map_or_else(|| vec![first], <[usize]>::to_vec);
        return Ok((
            vec![first],
            others.into_iter().cycle().take(queues).collect(),
        ));
    }
    let cpu_of = |queue: usize| usable.iter().copied().find(|cpu| cpu % queues == queue);
    let cpus: Option<Vec<usize>> = (0..queues).map(cpu_of).collect();
    let cpus = cpus.ok_or_else(|| {
        format!(
            "a generated frame takes the queue of its CPU's number, and {} usable CPUs do not reach \
             {queues} queues; sockets do (--generator sendmmsg)",
            usable.len()
        )
    })?;
    Ok((cpus.clone(), cpus))
}

/// Why the queues have no CPUs of their own, or why sockets cannot reach them.
fn obstacle(trial: &UdpTrial, lab: &Lab) -> Option<String> {
    if let Some(why) = lab.unplaced() {
        return Some(format!("the queues have no CPUs of their own: {why}"));
    }
    let queues = trial.targets.len();
    let is_steered = lab.queue_of(address::v4(1).into()).is_some();
    (queues > 1 && trial.in_turn && !is_steered).then(|| {
        let notes = lab.notes().join("; ");
        format!("the traffic cannot be led to {queues} queues: {notes}")
    })
}

/// The sender of a trial and its CPUs, in one line.
fn sentence(trial: &UdpTrial) -> String {
    let backend = trial.sender.backend();
    match trial.sender {
        LabSender::Generator => format!(
            "{backend}: a generator on the CPU of each queue, which shares that CPU with the queue's \
             thread"
        ),
        LabSender::Socket { .. } => format!(
            "{backend}: one thread on CPU {}, to the queues' addresses in turn; the queues' threads on \
             the other CPUs",
            trial.layout.senders[0]
        ),
    }
}

/// Tries each early drop among the paths with each arrangement.
pub(super) fn cases(labs: &Labs, arrangements: &[TrialRuns], paths: &[Path]) -> Vec<TrialRuns> {
    let rules = paths.iter().filter(|path| path.is_rule());
    let cases = rules.flat_map(|path| {
        arrangements.iter().map(|arrangement| {
            let trial = arrangement.plan.on(path);
            let skipped = arrangement.skipped.clone();
            let skipped = skipped.or_else(|| trial.obstacle(labs));
            Case::new(trial, skipped)
        })
    });
    cases.collect()
}

/// The CPU whose kernel thread serves each queue; none where the scheduler chooses.
fn queue_cpus(lab: &Lab) -> Option<Vec<usize>> {
    lab.napi_threads().iter().map(|thread| thread.cpu).collect()
}

/// The results so far, by sender, path and queues. Rows that were not reached are left out.
pub(super) fn rows(labs: &Labs, cases: &[TrialRuns]) -> Vec<SpreadRow> {
    let rows = cases.iter().filter_map(|case| result(labs, case));
    let mut rows: Vec<SpreadRow> = rows.collect();
    // The sort is stable: within a sender the paths keep the order of the table.
    rows.sort_by(|a, b| b.sender.cmp(&a.sender));
    rows
}

fn result(labs: &Labs, row: &TrialRuns) -> Option<SpreadRow> {
    let (trial, path) = (&row.plan, &row.plan.path);
    let queues = trial.targets.len();
    let described = SpreadRow {
        path: path.name.to_owned(),
        variant: path.variant.to_owned(),
        sender: sentence(trial),
        backend: trial.sender.backend().to_owned(),
        queues: queues as u16,
        runs: Runs::skipped(row.skipped.clone()),
        article_mpps_per_cpu: article(path, queues as u16),
        ..SpreadRow::default()
    };
    if row.skipped.is_some() {
        return Some(described);
    }
    let repeats = row.samples.iter();
    let mode = row.samples.last()?.mode.clone();
    let napi_ns = median(
        &repeats
            .clone()
            .filter_map(UdpRun::napi_ns)
            .collect::<Vec<_>>(),
    );
    let of_queue = |queue: usize| {
        let rates = repeats.clone().filter_map(|one| one.queue_mpps(queue));
        median(&rates.collect::<Vec<_>>())
    };
    Some(SpreadRow {
        mode,
        queue_cpus: queue_cpus(labs.of(&trial.layout).ok()?).unwrap_or_default(),
        runs: Runs::of(&row.samples),
        queue_mpps: (0..queues).filter_map(of_queue).collect(),
        napi_ns_per_packet: napi_ns,
        mpps_per_cpu: napi_ns.filter(|ns| *ns > 0.0).map(|ns| 1e3 / ns),
        ..described
    })
}

/// The article's figure for the same.
fn article(path: &Path, queues: u16) -> Option<f64> {
    let mut known = ARTICLE_MPPS_PER_CPU.into_iter();
    let (_, mpps) = known.find(|(of, _)| *of == queues)?;
    matches!(path.takes, PathTaker::Rule(EarlyDrop::IptablesRaw)).then_some(mpps)
}

/// The change of a CPU's rate from one queue to the most, one sentence per sender.
pub(crate) fn advice(rows: &[SpreadRow]) -> Vec<String> {
    let senders = rows.chunk_by(|one, next| one.sender == next.sender);
    senders.filter_map(kept).collect()
}

/// The sentence of one sender's rows; none if nothing was measured over several queues.
fn kept(rows: &[SpreadRow]) -> Option<String> {
    // A thread that waits for packets wakes up for few at a time, which costs more.
    let is_busy = |row: &SpreadRow| row.runs.delivered_ratio.is_none_or(|ratio| ratio < OUTRUN);
    let per_cpu = |row: &SpreadRow| row.mpps_per_cpu.filter(|rate| *rate > 0.0 && is_busy(row));
    let spread = rows
        .iter()
        .filter(|row| row.queues > 1 && per_cpu(row).is_some());
    let on = spread.max_by_key(|row| row.queues)?;
    let mut shares = Vec::new();
    for row in rows.iter().filter(|row| row.queues == on.queues) {
        let is_same = |one: &&SpreadRow| (&one.path, &one.variant) == (&row.path, &row.variant);
        let alone = rows.iter().find(|one| one.queues == 1 && is_same(one));
        if let (Some(rate), Some(alone)) = (per_cpu(row), alone.and_then(per_cpu)) {
            shares.push((rate / alone, row.title()));
        }
    }
    shares.sort_by(|a, b| a.0.total_cmp(&b.0));
    let said = match shares.as_slice() {
        [] => return None,
        [(share, _)] => format!("{share:.2}"),
        [(low, worst), .., (high, best)] => format!("{low:.2} ({worst}) to {high:.2} ({best})"),
    };
    Some(format!(
        "Spread over {} queues on {} by {}, a CPU handles {said} times what it does with one queue; in \
         the article of 2015 it was 0.34 over four queues.",
        on.queues,
        on.cpus(),
        on.backend,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_trial::mentions;

    #[test]
    fn a_generator_runs_on_the_cpu_of_its_queues_number() {
        let of = |queues, usable: &[usize]| cpus(LabSender::Generator, queues, usable);
        assert_eq!(of(2, &[1, 2, 3]), Ok((vec![2, 1], vec![2, 1])));
        assert_eq!(of(1, &[5]).unwrap().1, [5]);
        let why = of(4, &[0, 1]).unwrap_err();
        mentions(&why, "2 usable CPUs | 4 queues");
    }

    #[test]
    fn one_thread_feeds_all_queues_and_leaves_its_cpu_to_itself() {
        let of = |queues, usable: &[usize]| {
            cpus(LabSender::Socket { train: 16 }, queues, usable).unwrap()
        };
        assert_eq!(of(4, &[0, 1, 2]), (vec![0], vec![1, 2, 1, 2]));
        assert_eq!(of(2, &[7]).1, [7, 7]);
    }

    #[test]
    fn the_articles_figures_stand_beside_its_own_experiment_only() {
        let paths = crate::udp::path::PATHS.iter();
        let with: Vec<_> = paths
            .flat_map(|path| QUEUES.map(|queues| (path.name, article(path, queues))))
            .filter_map(|(name, article)| Some((name, article?)))
            .collect();
        assert_eq!(
            with,
            [("iptables_raw_drop", 1.4), ("iptables_raw_drop", 0.48)]
        );
    }

    #[test]
    fn what_is_left_of_a_cpus_rate_is_said_per_sender() {
        let row = |sender: &str, path: &str, queues, rate| SpreadRow {
            sender: sender.to_owned(),
            backend: sender.chars().take_while(|letter| *letter != ':').collect(),
            path: path.to_owned(),
            queues,
            mpps_per_cpu: Some(rate),
            ..SpreadRow::default()
        };
        let rows = [
            row("xdp: near", "xdp_drop", 1, 4.0),
            row("xdp: near", "xdp_drop", 2, 3.0),
            row("xdp: near", "nft_raw_drop", 1, 2.0),
            row("xdp: near", "nft_raw_drop", 2, 1.8),
            row("sendmmsg: far", "xdp_drop", 1, 4.0),
        ];
        let said = advice(&rows);
        assert_eq!(said.len(), 1, "{said:?}");
        for fact in [
            "by xdp,",
            "over 2 queues",
            "0.75 (xdp_drop)",
            "0.90 (nft_raw_drop)",
        ] {
            assert!(said[0].contains(fact), "{fact}: {said:?}");
        }
        assert!(advice(&[]).is_empty());
    }
}
