//! One rung's section on a page, and who sent on it.

use super::article;
use crate::experiment::ladder::result::{PathTaken, RungPath, RungResult, RungSender, TakenBy};
use crate::measure::document::{count, counted};
use crate::udp::runs::Runs;
use mpps_report::{Block, Column, Quantity, Row, Section, Table, Text};

/// The anchor of links to a rung.
pub(super) fn anchor(rung: &RungResult) -> String {
    format!("rung-{}", rung.rung)
}

/// All that is known of a rung that was measured.
pub(super) fn section(rung: &RungResult) -> Section {
    let rate = rung.runs.rate().map(|rate| rate.to_string());
    let range = article(rung).filter(|_| rate.is_some());
    let range = range.map_or_else(String::new, |range| format!(" · article {range}"));
    let worked = rung.with_work.as_ref().and_then(Runs::rate);
    let worked = worked.map_or_else(String::new, |rate| format!(" · {rate} with work"));
    let mut blocks = vec![Block::Paragraph(Text::new().faint(&*rung.lesson))];
    blocks.extend(lesson(rung).map(Block::paragraph));
    measured(rung, &mut blocks);
    Section {
        heading: format!("Rung {}: {}", rung.rung, rung.name).into(),
        anchor: anchor(rung),
        figure: Text::new()
            .strong(rate.unwrap_or_default())
            .faint(worked + &range),
        blocks,
    }
}

fn measured(rung: &RungResult, blocks: &mut Vec<Block>) {
    blocks.extend(rung.runs.offered());
    if let Some(sender) = &rung.sender {
        // No sender can outrun a rule.
        let enough = match rung.taken_by {
            TakenBy::Rule => String::new(),
            TakenBy::Socket | TakenBy::Ring => format!(": {}", verdict(sender)),
        };
        let said = Text::from("Sent by ").strong(&*sender.name);
        blocks.push(Block::Paragraph(
            said.plain(format!(" ({}){enough}.", sender.why)),
        ));
    }
    if let Some(limit) = &rung.limited_by {
        let said = Text::from("Limited by ").strong(&*limit.what);
        blocks.push(Block::Paragraph(
            said.plain(format!(": {}.", limit.evidence)),
        ));
    }
    blocks.extend(remarks(rung).iter().map(Block::note));
    blocks.extend(rung.runs.whole());
    if let Some(path) = &rung.path {
        let said = Text::from(format!("Path: {}, proved by ", path.name)).code(&*path.counter);
        blocks.push(Block::Paragraph(
            said.plain(format!(" = {}.", count(path.count))),
        ));
    }
    blocks.extend(details(rung));
}

/// The notes on a rung: those of its figures, and its own.
pub(super) fn remarks(rung: &RungResult) -> Vec<String> {
    let placed = rung.queue_cpu.zip(rung.receiver_cpu);
    let placed =
        placed.map(|(queue, receiver)| format!("queue on CPU {queue}, receiver on CPU {receiver}"));
    let unplaced = "receive queues have no CPU of their own".to_owned();
    let way = |path: &RungPath| {
        let rate = path
            .mpps_median
            .map(|rate| Quantity::Mpps(rate).to_string());
        let why = || format!("skipped: {}", path.skipped.as_deref().unwrap_or("not run"));
        format!("{} {}", path.variant, rate.unwrap_or_else(why))
    };
    let ways: Vec<String> = rung.paths.iter().map(way).collect();
    let ways = format!("ways to wait, the fastest is shown: {}", ways.join("; "));
    let computed = [
        placed,
        rung.unplaced.then_some(unplaced),
        (rung.paths.len() > 1).then_some(ways),
    ];
    let notes = rung.notes.iter().cloned();
    computed.into_iter().flatten().chain(notes).collect()
}

/// Details that few readers need: threads, queues, CPUs, the ledgers of the repeats.
fn details(rung: &RungResult) -> Option<Block> {
    let queues = rung.path.as_ref().map_or(0, |path| path.queues.len());
    let repeats = rung.runs.sample_ledgers.len();
    let own = rung.path.iter().map(queue_packets).collect();
    let all = rung.runs.equations("").collect();
    let parts: [(usize, &str, &str, Vec<Block>); 4] = [
        (
            rung.threads.len(),
            "thread",
            "Receiving threads, last repeat",
            vec![threads(rung)],
        ),
        (queues, "queue", "Receive queues", own),
        (rung.cpu_busy.len(), "CPU", "CPUs", vec![cpus(rung)]),
        (repeats, "repeat", "Ledgers of the repeats", all),
    ];
    let (mut summary, mut blocks) = (Vec::new(), Vec::new());
    for (count, what, heading, part) in parts.into_iter().filter(|part| part.0 > 0) {
        summary.push(counted(count, what));
        blocks.push(Block::heading(heading));
        blocks.extend(part);
    }
    (!blocks.is_empty()).then(|| Block::Details(summary.join(", "), blocks))
}

fn threads(rung: &RungResult) -> Block {
    let columns = [
        Column::words("CPU", 10),
        Column::figure("Datagrams", 13),
        Column::figure("Dropped by its socket", 13),
        Column::figure("Per call", 8),
        Column::figure("CPU ns each", 8),
    ];
    let rows = rung.threads.iter().map(|thread| {
        let cpu = thread
            .cpu
            .map_or("not pinned".to_owned(), |cpu| format!("CPU {cpu}"));
        let drops = thread.socket_drops.map_or("shared".to_owned(), count);
        let each = Quantity::Each(thread.packets_per_call).figure();
        // Files of earlier versions have a cost here without a datagram.
        let cost = thread.cpu_ns_per_packet.filter(|_| thread.received > 0);
        let cost = cost.map_or("-".to_owned(), |ns| Quantity::Nanoseconds(ns).figure());
        Row::new([cpu, count(thread.received), drops, each, cost].map(Into::into))
    });
    Table::new(columns).rows(rows).into()
}

fn queue_packets(path: &PathTaken) -> Block {
    let rows = path.queues.iter().map(|queue| {
        Row::new([
            format!("queue {}", queue.queue).into(),
            count(queue.packets).into(),
        ])
    });
    let columns = [Column::words("Queue", 10), Column::figure("Packets", 13)];
    Table::new(columns).rows(rows).into()
}

fn cpus(rung: &RungResult) -> Block {
    let columns = [
        Column::words("CPU", 8),
        Column::figure("Busy", 8),
        Column::figure("In soft interrupts", 10),
        Column::words("Tasks", 20).grow(40),
    ];
    let rows = rung.cpu_busy.iter().map(|cpu| {
        let share = |share| Quantity::Share(share).to_string();
        let (busy, softirq) = (share(cpu.busy), share(cpu.softirq));
        Row::new(
            [
                format!("CPU {}", cpu.cpu),
                busy,
                softirq,
                cpu.roles.join(", "),
            ]
            .map(Into::into),
        )
    });
    Table::new(columns).rows(rows).into()
}

/// Whether a rung's sender was enough, as a sentence: `It offered 3.24 times what was received and
/// outran the receiver`.
fn verdict(sender: &RungSender) -> String {
    let offered = match sender.offered_per_received {
        Some(ratio) => format!(
            "offered {} times what was received",
            Quantity::Times(ratio).figure()
        ),
        None => "offered packets (none was received)".to_owned(),
    };
    match sender.outran {
        true => format!("it {offered} and outran the receiver"),
        false => format!("it {offered} and did not outrun the receiver"),
    }
}

/// The verdict on the lesson, in words.
fn lesson(rung: &RungResult) -> Option<String> {
    let verdict = rung.verdict.as_ref()?;
    Some(verdict.sentence(rung.article_mpps.is_some()))
}

/// The verdict on each lesson, and the lessons without one.
pub(super) fn lessons(rungs: &[RungResult]) -> Vec<String> {
    let judged = rungs.iter().filter(|rung| rung.verdict.is_some());
    let (told, open): (Vec<_>, Vec<_>) =
        judged.partition(|rung| rung.verdict.as_ref().is_some_and(|it| it.holds.is_some()));
    let said = told.iter().filter_map(|rung| {
        let said = lesson(rung)?;
        Some(format!("rung {}, {}: {said}", rung.rung, rung.lesson))
    });
    let numbers: Vec<&str> = open.iter().map(|rung| &*rung.rung).collect();
    let what = match numbers.len() {
        1 => "lesson of rung",
        _ => "lessons of rungs",
    };
    let rest = (!numbers.is_empty()).then(|| {
        format!(
            "not decided by this run: the {what} {}: too few repeats, a difference within the noise, or \
             another sender or way",
            numbers.join(", ")
        )
    });
    said.chain(rest).collect()
}

/// The rungs that had another sender than the usual one, a sentence each.
pub(super) fn other_senders(rungs: &[RungResult]) -> Vec<String> {
    let receiving = rungs.iter().filter(|rung| rung.taken_by != TakenBy::Rule);
    let known = receiving.filter_map(|rung| Some((&rung.rung, rung.sender.as_ref()?)));
    let others = known.filter(|(_, sender)| !sender.usual);
    others
        .map(|(rung, sender)| {
            let (name, why) = (&sender.name, &sender.why);
            format!(
                "rung {rung} was sent by {name} ({why}): {}",
                verdict(sender)
            )
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::ladder::result::ThreadShare;
    use mpps_report::Terminal;

    fn rung(number: &str, sender: RungSender) -> RungResult {
        RungResult {
            rung: number.to_owned(),
            sender: Some(sender),
            ..RungResult::default()
        }
    }

    fn fours(ratio: f64) -> RungSender {
        RungSender {
            name: "sendmmsg, trains of 4".to_owned(),
            backend: "sendmmsg".to_owned(),
            train: Some(4),
            why: "the plainest".to_owned(),
            usual: true,
            outran: ratio >= 1.05,
            offered_per_received: Some(ratio),
        }
    }

    #[test]
    fn a_thread_without_a_datagram_has_no_cost_of_one() {
        let thread = |received| ThreadShare {
            cpu: Some(1),
            received,
            socket_drops: None,
            packets_per_call: 0.0,
            cpu_ns_per_packet: Some(850_142.0),
        };
        let cost = |received| {
            let rung = RungResult {
                threads: vec![thread(received)],
                ..RungResult::default()
            };
            Terminal::new(80, false).blocks(&[threads(&rung)])
        };
        assert!(cost(1).contains("850142") && !cost(0).contains("850142"));
    }

    #[test]
    fn each_other_sender_has_a_sentence() {
        let xdp = RungSender {
            name: "xdp".to_owned(),
            usual: false,
            why: "the generator does not reach the queues".to_owned(),
            ..fours(2.0)
        };
        assert_eq!(
            other_senders(&[rung("1", fours(3.0)), rung("11", xdp)]),
            [
                "rung 11 was sent by xdp (the generator does not reach the queues): it offered \
                 2.00 times what was received and outran the receiver",
            ]
        );
    }
}
