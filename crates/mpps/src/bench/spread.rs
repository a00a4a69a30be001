//! Early drops of traffic that comes by more and more receive queues: what is left of a CPU's rate
//! when others work beside it.

use super::Schedule;
use super::path::{Path, Takes};
use super::result::SpreadRow;
use super::sample::Sample;
use super::sender::Sender;
use super::stage::{Feed, Stage};
use super::traffic::Purpose;
use crate::report::median;
use crate::signal::Interrupt;
use anyhow::Result;
use mpps_host::Ledger;
use mpps_lab::EarlyDrop;

/// Queues that carry the traffic: the article's one and four, and what lies between.
const QUEUES: [u16; 3] = [1, 2, 4];
/// A sender whose packets were nearly all dropped did not outrun the drop.
const OUTRUN: f64 = 0.95;
/// What the article of 2015 measured for iptables in the table raw: 1.4 Mpps by one queue on one
/// CPU, and about 0.48 Mpps per CPU by four.
const ARTICLE_MPPS_PER_CPU: [(u16, f64); 2] = [(1, 1.4), (4, 0.48)];

/// One sender with so many queues.
#[derive(Debug)]
pub(crate) struct Arrangement<'a> {
    queues: u16,
    /// What sends, and where, in one line.
    sender: String,
    /// The stage, or why there is none.
    stage: Result<Stage<'a>, String>,
}

impl<'a> Arrangement<'a> {
    /// All of a sender, one for each number of queues.
    pub(crate) fn all(
        sender: &'a Sender,
        usable: &[usize],
        interrupt: &'a Interrupt,
    ) -> Result<Vec<Self>> {
        let arrangements = QUEUES.iter().map(|queues| {
            let layout = match sender.redirects() {
                true => beside_each_queue(*queues, usable),
                false => Ok(from_one_cpu(*queues, usable)),
            };
            let stage = match layout {
                Err(why) => Err(why),
                Ok((feeds, cpus)) => {
                    let stage = Stage::spread(feeds, &cpus, sender, interrupt)?;
                    steered(stage, *queues)
                }
            };
            Ok(Self {
                queues: *queues,
                sender: sentence(sender, usable),
                stage,
            })
        });
        arrangements.collect()
    }

    /// Where it runs, if it can.
    pub(crate) fn stage(&self) -> Option<&Stage<'a>> {
        self.stage.as_ref().ok()
    }

    /// True if every number of queues can be had.
    pub(crate) fn is_complete(all: &[Self]) -> bool {
        all.iter().all(|one| one.stage.is_ok())
    }
}

/// A generator on each queue's CPU: a frame redirected into a veth takes the receive queue of the
/// number of its CPU, modulo the queues (`veth_select_rxq` in drivers/net/veth.c).
fn beside_each_queue(queues: u16, usable: &[usize]) -> Result<(Vec<Feed>, Vec<usize>), String> {
    let cpu_of = |queue: u16| {
        let mut cpus = usable.iter().copied();
        cpus.find(|cpu| cpu % usize::from(queues) == usize::from(queue))
    };
    let cpus: Option<Vec<usize>> = (0..queues).map(cpu_of).collect();
    let cpus = cpus.ok_or_else(|| {
        format!(
            "a generated frame takes the queue of its CPU's number, and {} usable CPUs do not reach \
             {queues} queues; sockets do (--generator sendmmsg)",
            usable.len()
        )
    })?;
    let feeds = (0..queues).zip(&cpus).map(|(queue, cpu)| Feed {
        cpu: *cpu,
        queues: vec![queue],
    });
    Ok((feeds.collect(), cpus))
}

/// One thread sends to all queues in turn, and the other CPUs serve them.
fn from_one_cpu(queues: u16, usable: &[usize]) -> (Vec<Feed>, Vec<usize>) {
    let first = usable.first().copied().unwrap_or(0);
    let others = usable.get(1..).filter(|others| !others.is_empty());
    let others = others.map_or_else(|| vec![first], <[usize]>::to_vec);
    let feed = Feed {
        cpu: first,
        queues: (0..queues).collect(),
    };
    let cpus = others.into_iter().cycle().take(usize::from(queues));
    (vec![feed], cpus.collect())
}

/// Refuses a stage whose socket traffic cannot be led to the queues.
fn steered(stage: Stage<'_>, queues: u16) -> Result<Stage<'_>, String> {
    let is_steered = stage
        .target()
        .is_ok_and(|target| stage.lab.queue_of(target).is_some());
    if queues == 1 || stage.sender.redirects() || is_steered {
        return Ok(stage);
    }
    let notes = stage.lab.notes().join("; ");
    Err(format!(
        "the traffic cannot be led to {queues} queues: {notes}"
    ))
}

fn sentence(sender: &Sender, usable: &[usize]) -> String {
    if sender.redirects() {
        return format!(
            "{}: a generator on the CPU of each queue, which shares that CPU with the queue's thread",
            sender.backend()
        );
    }
    format!(
        "{}: one thread on CPU {}, to the queues' addresses in turn; the queues' threads on the \
         other CPUs",
        sender.backend(),
        usable.first().copied().unwrap_or(0)
    )
}

/// The experiment under way.
#[derive(Debug)]
pub(crate) struct Spread<'a> {
    schedule: Schedule,
    rows: Vec<Row<'a>>,
}

#[derive(Debug)]
struct Row<'a> {
    arrangement: &'a Arrangement<'a>,
    path: Path,
    skipped: Option<String>,
    samples: Vec<Sample>,
}

impl<'a> Spread<'a> {
    /// Tries which of the paths that drop early can run in which arrangement. Others are left out.
    pub(crate) fn new(
        arrangements: &'a [Arrangement<'a>],
        paths: &[Path],
        schedule: Schedule,
    ) -> Result<Self> {
        let mut rows = Vec::new();
        for path in paths.iter().filter(|path| path.is_rule()) {
            for arrangement in arrangements {
                let skipped = match &arrangement.stage {
                    Ok(stage) => stage.obstacle(path)?,
                    Err(why) => Some(why.clone()),
                };
                rows.push(Row {
                    arrangement,
                    path: *path,
                    skipped,
                    samples: Vec::new(),
                });
            }
        }
        Ok(Self { schedule, rows })
    }

    /// How many runs there will be.
    pub(crate) fn steps(&self) -> usize {
        let measured = self.rows.iter().filter(|row| row.skipped.is_none());
        measured.count() * self.schedule.repeats
    }

    /// Runs everything, one of each row after the other; `step` hears of each run before it begins.
    /// Answers false if Ctrl-C ended it.
    pub(crate) fn run(&mut self, mut step: impl FnMut(&Path)) -> Result<bool> {
        for _ in 0..self.schedule.repeats {
            for row in self.rows.iter_mut().filter(|row| row.skipped.is_none()) {
                let Ok(stage) = &row.arrangement.stage else {
                    continue;
                };
                step(&row.path);
                let sample = stage.run(&row.path, self.schedule.time, Purpose::default())?;
                if stage.interrupt.came() {
                    return Ok(false);
                }
                row.samples.push(sample);
            }
        }
        Ok(true)
    }

    /// What is known of each row, by sender, path and queues; rows that were not reached are left
    /// out.
    pub(crate) fn results(self) -> Vec<SpreadRow> {
        let mut rows: Vec<SpreadRow> = self.rows.into_iter().filter_map(Row::result).collect();
        // The sort is stable: within a sender the paths keep the order of the table.
        rows.sort_by(|a, b| b.sender.cmp(&a.sender));
        rows
    }
}

impl Row<'_> {
    fn result(self) -> Option<SpreadRow> {
        let described = SpreadRow {
            path: self.path.name.to_owned(),
            variant: self.path.variant.to_owned(),
            sender: self.arrangement.sender.clone(),
            queues: self.arrangement.queues,
            article_mpps_per_cpu: article(&self.path, self.arrangement.queues),
            ..SpreadRow::default()
        };
        if self.skipped.is_some() {
            return Some(SpreadRow {
                skipped: self.skipped,
                ..described
            });
        }
        let mode = self.samples.last()?.mode.clone();
        let of = |figure: fn(&Sample) -> f64| self.samples.iter().map(figure).collect::<Vec<f64>>();
        let rates = of(|one| one.mpps);
        let costs = self.samples.iter().filter_map(|one| one.cost.softirq_ns);
        let napi_ns = median(&costs.collect::<Vec<f64>>());
        let sums = self.samples.iter().fold((0, 0), |sums, one| {
            (sums.0 + one.ledger.delivered, sums.1 + one.ledger.offered)
        });
        let of_queue = |queue: u16| {
            let rates = self.samples.iter();
            let rates = rates.filter_map(|one| one.queue_mpps.get(usize::from(queue)).copied());
            median(&rates.collect::<Vec<f64>>())
        };
        let queue_mpps = (0..self.arrangement.queues).filter_map(of_queue).collect();
        Some(SpreadRow {
            mode,
            queue_cpus: self.queue_cpus(),
            mpps_median: median(&rates),
            mpps_samples: rates,
            offered_mpps_median: median(&of(|one| one.offered_mpps)),
            delivered_ratio: (sums.1 > 0).then(|| sums.0 as f64 / sums.1 as f64),
            queue_mpps,
            napi_ns_per_packet: napi_ns,
            mpps_per_cpu: napi_ns.filter(|ns| *ns > 0.0).map(|ns| 1e3 / ns),
            ledgers: self.ledgers(),
            ..described
        })
    }

    fn queue_cpus(&self) -> Vec<usize> {
        let Ok(stage) = &self.arrangement.stage else {
            return Vec::new();
        };
        let threads = stage.lab.napi_threads().iter();
        let cpus: Option<Vec<usize>> = threads.map(|thread| thread.cpu).collect();
        cpus.unwrap_or_default()
    }

    fn ledgers(&self) -> Vec<Ledger> {
        self.samples.iter().map(|one| one.ledger.clone()).collect()
    }
}

fn rule(path: &Path) -> Option<EarlyDrop> {
    match path.takes {
        Takes::Rule(rule) => Some(rule),
        Takes::Backend { .. } => None,
    }
}

/// The article's figure for the same.
fn article(path: &Path, queues: u16) -> Option<f64> {
    let known = ARTICLE_MPPS_PER_CPU.iter();
    let mut known = known.filter(|_| rule(path) == Some(EarlyDrop::IptablesRaw));
    let (_, mpps) = known.find(|(of, _)| *of == queues)?;
    Some(*mpps)
}

/// What became of a CPU's rate from one queue to the most, a sentence per sender.
pub(crate) fn advice(rows: &[SpreadRow]) -> Vec<String> {
    let mut senders: Vec<&str> = rows.iter().map(|row| row.sender.as_str()).collect();
    senders.dedup();
    let sentences = senders.into_iter().filter_map(|sender| {
        let of_sender = || rows.iter().filter(|row| row.sender == sender);
        // A thread that waits for packets wakes up for few at a time, which costs more.
        let is_busy = |row: &SpreadRow| row.delivered_ratio.is_none_or(|ratio| ratio < OUTRUN);
        let per_cpu = |row: &SpreadRow| row.mpps_per_cpu.filter(|rate| *rate > 0.0 && is_busy(row));
        let most = of_sender().filter(|row| per_cpu(row).is_some());
        let most = most.map(|row| row.queues).max().filter(|most| *most > 1)?;
        let mut kept: Vec<(f64, String)> = of_sender()
            .filter(|row| row.queues == most)
            .filter_map(|row| {
                let alone = of_sender().find(|one| {
                    (&one.path, &one.variant) == (&row.path, &row.variant) && one.queues == 1
                })?;
                let name = crate::report::bench::title(&row.path, &row.variant);
                Some((per_cpu(row)? / per_cpu(alone)?, name))
            })
            .collect();
        kept.sort_by(|a, b| a.0.total_cmp(&b.0));
        let ((low, worst), (high, best)) = (kept.first()?, kept.last()?);
        let by = sender.split(':').next().unwrap_or(sender);
        let on = of_sender().find(|row| row.queues == most && row.skipped.is_none())?;
        let on = crate::report::bench::text::spread::cpus(on);
        let cpus = if on.contains([',', '-']) { "CPUs" } else { "CPU" };
        Some(format!(
            "Spread over {most} queues on {cpus} {on} by {by}, a CPU handles {low:.2} ({worst}) to \
             {high:.2} ({best}) times what it does with one queue; in the article of 2015 it was 0.34 \
             over four queues."
        ))
    });
    sentences.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generator_runs_on_the_cpu_of_its_queues_number() {
        let (feeds, cpus) = beside_each_queue(2, &[1, 2, 3]).unwrap();
        assert_eq!(cpus, [2, 1]);
        let queues: Vec<_> = feeds
            .iter()
            .map(|feed| (feed.cpu, &feed.queues[..]))
            .collect();
        assert_eq!(queues, [(2, &[0][..]), (1, &[1][..])]);
        assert_eq!(beside_each_queue(1, &[5]).unwrap().1, [5]);
        let why = beside_each_queue(4, &[0, 1]).unwrap_err();
        assert!(
            why.contains("2 usable CPUs") && why.contains("4 queues"),
            "{why}"
        );
    }

    #[test]
    fn one_thread_feeds_all_queues_and_leaves_its_cpu_to_itself() {
        let (feeds, cpus) = from_one_cpu(4, &[0, 1, 2]);
        assert_eq!((feeds[0].cpu, &feeds[0].queues[..]), (0, &[0, 1, 2, 3][..]));
        assert_eq!(cpus, [1, 2, 1, 2]);
        assert_eq!(from_one_cpu(2, &[7]).1, [7, 7]);
    }

    #[test]
    fn the_articles_figures_stand_beside_its_own_experiment_only() {
        let paths = super::super::PATHS.iter();
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
