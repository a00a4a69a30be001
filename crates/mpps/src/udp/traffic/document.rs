//! The results of `recv` and `send`, and the ledger of both, as text.

use super::{CarvedOut, FlowTotal, RecvTotal, SendThread, SendTotal, Together};
use crate::failure::answer_remedy;
use crate::measure::document::{count, whole};
use crate::measure::samples::per_second;
use crate::measure::seconds::second_rates;
use crate::udp::account::{self, ReceiverCounts};
use crate::udp::waited::{PollTotal, RingFillDepth};
use mpps_host::ledger::account::reassembled;
use mpps_host::{Delta, Ledger, PacketRoute, Quota};
use mpps_report::{Block, ChartLine, Column, Document, Hue, Quantity, Row, Style, Table, Text};
use serde_json::Value;
use std::iter;

/// Flows that people are shown; programs get them all.
const FLOWS_SHOWN: usize = 8;

/// A rate in datagrams per second.
fn mpps(pps: f64) -> Quantity {
    Quantity::Mpps(pps / 1e6)
}

/// Facts that count something.
fn facts<'a>(facts: impl IntoIterator<Item = (u64, &'a str)>) -> Vec<String> {
    let some = facts.into_iter().filter(|(number, _)| *number > 0);
    some.map(|(number, what)| format!("{what} {}", count(number)))
        .collect()
}

/// The totals of a receiver.
pub(crate) fn received(total: &RecvTotal) -> Vec<Block> {
    let rates = format!(
        "received {} in {}: {}, median of seconds {}",
        count(total.received),
        Quantity::Seconds(total.active_seconds),
        mpps(total.pps),
        mpps(total.pps_median),
    );
    let place = match (total.arrival.as_str(), total.threads.len()) {
        ("socket", _) => "socket",
        (_, 1) => "ring",
        _ => "rings",
    };
    let unit = match total.socket_drops_are_trains {
        true => " (trains)",
        false => "",
    };
    let polls = |of: fn(&PollTotal) -> u64| {
        let polls = total
            .threads
            .iter()
            .filter_map(|thread| thread.polls.as_ref());
        polls.map(of).sum()
    };
    let share = match total.socket_drops {
        lost @ 1.. if !total.socket_drops_are_trains => {
            let came = total.received + lost;
            format!(
                ", {} of what came",
                Quantity::Share(lost as f64 / came as f64)
            )
        }
        _ => String::new(),
    };
    let mut said = vec![format!(
        "dropped at the {place} {}{unit}{share}",
        count(total.socket_drops)
    )];
    said.extend(facts([
        (total.queued, "still queued at the end"),
        (total.truncated, "longer than the buffer"),
        (total.end_markers, "end markers"),
        (polls(|polls| polls.found), "polls that brought something"),
        (polls(|polls| polls.missed), "polls in vain"),
    ]));
    said.extend(fill_depth(total));
    let mut blocks = vec![Block::paragraph(rates), Block::paragraph(said.join(", "))];
    let drops = total.drops.iter();
    let drops = drops.filter(|drop| drop.reason != account::BUFFER_FULL);
    blocks.extend(drops.map(|drop| {
        let (reason, source) = (&drop.reason, &drop.source);
        Block::paragraph(format!("{} {reason} ({source})", count(drop.count)))
    }));
    blocks.extend(past_ring(total));
    blocks.extend(total.carve_out.as_ref().and_then(carved_out));
    if total.threads.len() > 1 {
        blocks.push(threads(total).into());
    }
    if !total.flows.is_empty() {
        blocks.push(flows(&total.flows).into());
    }
    blocks.extend(others(&total.flows).map(Block::paragraph));
    blocks
        .extend(clocks(&total.flows).map(|said| Block::Paragraph(Text::styled(Style::Bad, said))));
    let host = total.host.iter();
    let doubts = host.flat_map(|host| host.anomalies_of(total.interface.as_deref()));
    blocks.extend(doubts.map(|said| Block::paragraph(said.clone())));
    let untracked = count(total.untracked);
    let untracked = format!("{untracked} datagrams of flows beyond the 8192nd were not followed");
    blocks.extend((total.untracked > 0).then(|| Block::paragraph(untracked)));
    blocks
}

/// Datagrams that may have passed a ring, and that no counter of it has.
fn past_ring(total: &RecvTotal) -> Vec<Block> {
    let mut notes = Vec::new();
    let whole = total.host.as_ref().map_or(0, reassembled);
    if whole > 0 && total.arrival != "socket" {
        notes.push(Block::note(format!(
            "{} datagrams of this network namespace came in fragments (Ip.ReasmOKs), which a ring takes only with \
             --all-traffic: they may have been for this port, or for another",
            count(whole)
        )));
    }
    if total.arrival == "tap" && total.received == 0 {
        notes.push(Block::note(
            "a tap without --take counts nothing past it: it takes plain UDP of its interface only, and no \
             fragments or IPv6 extension headers",
        ));
    }
    notes
}

/// How many frames AF_XDP gave the kernel at a time, over all threads.
fn fill_depth(total: &RecvTotal) -> Option<String> {
    let depths = total.threads.iter().filter_map(|thread| thread.fill_depth);
    Some(depths.reduce(RingFillDepth::and)?.said())
}

/// Packets that came by a queue that was kept for the receiver, and past it.
fn carved_out(carved: &CarvedOut) -> Option<Block> {
    let counted = carved.counted.as_ref()?;
    let (style, proof) = match counted.is_proved {
        true => (Style::Good, "was taken"),
        false => (Style::Bad, "was not seen to be taken"),
    };
    let came = match (counted.queue_packets, &counted.counter) {
        (Some(packets), Some(counter)) => {
            format!("{} packets came by it ({counter})", count(packets))
        }
        _ => "its driver does not count by queue".to_owned(),
    };
    let mut said = format!("queue {} by {} {proof}: {came}", carved.queue, carved.how);
    if let Some(passed_on) = counted.passed_on {
        said.push_str(&format!(
            ", {} of them passed on to the kernel",
            count(passed_on)
        ));
    }
    said.push_str(&format!(
        "; {} datagrams to the address came by other queues",
        count(counted.elsewhere)
    ));
    if counted.elsewhere > 0 && carved.how == "slot" {
        said.push_str(
            ", of other flows than these, or not as predicted (`mpps steer IF --verify`)",
        );
    }
    Some(Block::Sentences(vec![Text::styled(style, said)]))
}

fn threads(total: &RecvTotal) -> Table {
    let columns = [
        Column::words("", 11),
        Column::figure("CPU", 4).priority(3),
        Column::figure("received", 13),
        Column::figure("share", 7),
        Column::figure("dropped", 11),
        Column::figure("packets a call", 7).priority(1),
        Column::figure("ns a packet", 6).priority(2),
    ];
    let rows = total.threads.iter().enumerate().map(|(at, thread)| {
        let cpu = thread.cpu.map_or("-".to_owned(), |cpu| cpu.to_string());
        let dropped = thread.socket_drops.map_or("as above".to_owned(), count);
        Row::new([
            format!("thread {at}").into(),
            cpu.into(),
            count(thread.received).into(),
            Quantity::Share(thread.share).to_string().into(),
            dropped.into(),
            Quantity::Each(thread.packets_per_call).figure().into(),
            thread
                .cpu_ns_per_packet
                .filter(|_| thread.received > 0)
                .map_or("-".to_owned(), |ns| Quantity::Nanoseconds(ns).figure())
                .into(),
        ])
    });
    Table::new(columns).rows(rows)
}

fn flows(flows: &[FlowTotal]) -> Table {
    let columns = [
        Column::words("flow", 6),
        Column::figure("received", 11),
        Column::figure("of", 11),
        Column::figure("lost", 9),
        Column::figure("duplicates", 10).priority(1),
        Column::figure("reordered", 9).priority(1),
        Column::figure("delay µs p50", 6).priority(2),
        Column::figure("p99", 6).priority(2),
        Column::figure("p99.9", 6).priority(2),
        Column::figure("max", 6).priority(2),
    ];
    let rows = flows.iter().take(FLOWS_SHOWN).map(|flow| {
        let delay = flow.delay_us.as_ref();
        let delay = delay.map(|delay| [delay.p50, delay.p99, delay.p999, delay.max]);
        let delay = delay.map_or_else(
            || [(); 4].map(|()| "-".to_owned()),
            |times| times.map(|us| Quantity::Microseconds(us).figure()),
        );
        let counts = [
            count(flow.received),
            flow.offered.map_or("-".to_owned(), count),
            lost(flow.lost, flow.undecided.unwrap_or(0)),
            count(flow.duplicates),
            count(flow.reordered),
        ];
        let name = format!("{}.{}", flow.sender, flow.flow);
        let cells = [name].into_iter().chain(counts).chain(delay);
        let late = facts([
            (flow.too_late, "so late that their numbers were forgotten"),
            (
                flow.undecided.unwrap_or(0),
                "undecided, each late or a duplicate:",
            ),
            (flow.first, "the first one seen was number"),
        ]);
        let open = flow.offered.is_none().then(|| OPEN_END.to_owned());
        let said: Vec<String> = late.into_iter().chain(open).collect();
        Row::new(cells.map(Into::into)).below(said.join(", "))
    });
    Table::new(columns).rows(rows)
}

/// The flows that do not fit on the page, summed.
fn others(flows: &[FlowTotal]) -> Option<String> {
    let rest = flows.get(FLOWS_SHOWN..).filter(|rest| !rest.is_empty())?;
    let sum = |of: fn(&FlowTotal) -> u64| rest.iter().map(of).fold(0, u64::saturating_add);
    Some(format!(
        "{} more flows received {}, lost {}; --json has each",
        rest.len(),
        count(sum(|flow| flow.received)),
        lost(
            sum(|flow| flow.lost),
            sum(|flow| flow.undecided.unwrap_or(0))
        ),
    ))
}

/// Datagrams that are not known to have come, as a range if some of them may have.
fn lost(lost: u64, undecided: u64) -> String {
    match undecided {
        0 => count(lost),
        _ => format!(
            "{} to {}",
            count(lost.saturating_sub(undecided)),
            count(lost)
        ),
    }
}

/// A flow whose sender did not say how long it is.
const OPEN_END: &str = "no end marker came: what was lost behind the last one seen is not known";

/// Why there is no one-way delay, or none that can be believed.
fn clocks(flows: &[FlowTotal]) -> Option<String> {
    let apart_us = flows.iter().filter_map(|flow| flow.clocks_apart_us);
    let Some(apart_us) = apart_us.reduce(f64::max) else {
        let mut delays = flows.iter().filter_map(|flow| flow.delay_us.as_ref());
        // Of all ways there are, none holds every packet back for so long and for as long.
        let is_constant =
            |delay: &super::DelayTotal| delay.p50 >= 1e6 && delay.max <= 1.1 * delay.p50;
        return delays.any(is_constant).then(|| CLOCKS_LIKELY.to_owned());
    };
    let apart = match apart_us {
        ..1e6 => Quantity::Microseconds(apart_us),
        _ => Quantity::Seconds(apart_us / 1e6),
    };
    Some(format!(
        "no one-way delay: the clocks of sender and receiver differ by at least {apart}"
    ))
}

const CLOCKS_LIKELY: &str = "a one-way delay of a second and more that hardly differs is more likely the \
     difference of two clocks";

/// From this share of its time on a thread has a CPU to itself, and wants more.
const CPU_FULL: f64 = 0.9;

/// Why a sender did not reach its rate.
fn why_slow(total: &SendTotal, quota: Option<&Quota>) -> &'static str {
    let cpu_seconds = |thread: &SendThread| thread.cpu_ns_per_packet * thread.offered as f64 / 1e9;
    let is_full = |thread| cpu_seconds(thread) >= CPU_FULL * total.active_seconds;
    if total.blocked > 0 {
        "the send buffer was full, because the link or its queueing discipline takes no more"
    } else if quota.is_some_and(Quota::is_limit) {
        "a CPU quota held its threads back"
    } else if total.threads.iter().any(is_full) {
        "the CPU did not keep up"
    } else {
        "why is not known"
    }
}

/// The interfaces that dropped packets on their way out, with their counters.
fn droppers(host: &Delta) -> Vec<String> {
    let links = host.links.iter().flat_map(|(name, link)| {
        let counts = [
            (link.qdisc_drops.unwrap_or(0), "qdisc dropped"),
            (link.counters.tx_dropped, "tx_dropped"),
        ];
        let some = counts.into_iter().filter(|(dropped, _)| *dropped > 0);
        some.map(move |(dropped, counter)| {
            format!("{name} {counter} {}", count(dropped.unsigned_abs()))
        })
    });
    links.collect()
}

/// The totals of a sender, with the rate that was asked for and the effect of a CPU quota.
pub(crate) fn sent(total: &SendTotal, asked: Option<f64>, quota: Option<&Quota>) -> Vec<Block> {
    let reached = per_second(total.offered, total.active_seconds);
    let mut said = vec![format!(
        "offered {} = sent {} + refused {}   {} over {}",
        count(total.offered),
        count(total.sent),
        count(total.refused),
        mpps(reached),
        Quantity::Seconds(total.active_seconds),
    )];
    said.extend(asked.filter(|rate| reached < 0.95 * rate).map(|rate| {
        let (rate, reached) = (mpps(rate), mpps(reached));
        let why = why_slow(total, quota);
        format!("asked for {rate} and reached {reached}: {why}")
    }));
    said.extend(quota.map(Quota::said));
    let refused = total.refused_by.iter();
    said.extend(refused.map(|(why, number)| {
        let remedy = answer_remedy(why).map_or_else(String::new, |remedy| format!("; {remedy}"));
        format!("refused {}: {why}{remedy}", count(*number))
    }));
    let host = total.host.as_ref();
    let dropped = host.and_then(|host| host.udp("SndbufErrors")).unwrap_or(0);
    if dropped > 0 {
        let by: Vec<String> = host.into_iter().flat_map(droppers).collect();
        let by = match by.is_empty() {
            true => String::new(),
            false => format!("; {}", by.join(", ")),
        };
        let dropped = count(dropped.unsigned_abs());
        let counted = account::account(
            super::sent(total),
            ReceiverCounts::default(),
            PacketRoute::Hosts,
            (host, None),
        );
        let whose = match counted.sent_by_others() {
            0 => "",
            _ => ", of this run or of another program",
        };
        said.push(format!(
            "taken and then dropped on this host{whose}: {dropped} (SndbufErrors{by})"
        ));
    }
    said.extend(total.unanswered.iter().map(|host| {
        format!(
            "{host} does not answer ARP or neighbour discovery, so nothing for it leaves: ip neigh, or mpps \
             doctor beside this, which counts it"
        )
    }));
    if total.blocked > 0 {
        let blocked = count(total.blocked);
        said.push(format!(
            "not open loop: {blocked} calls found the send buffer full"
        ));
    }
    said.into_iter().map(Block::paragraph).collect()
}

/// A ledger: the equation, the counter of each loss, and the witnesses.
pub(crate) fn joined(ledger: &Ledger) -> Vec<Block> {
    let mut blocks = whole(ledger);
    let columns = [
        Column::words("lost at", 12),
        Column::words("because", 30).grow(10),
        Column::figure("datagrams", 13),
        Column::words("counter", 30).grow(40).priority(1),
    ];
    let losses = ledger.losses.iter().filter(|loss| loss.count > 0);
    let rows = losses.map(|loss| {
        let station = loss.station.to_string();
        let source = Text::new().faint(&*loss.source);
        Row::new([
            station.into(),
            (*loss.reason).into(),
            count(loss.count).into(),
            source.into(),
        ])
    });
    let rows: Vec<Row> = rows.collect();
    if !rows.is_empty() {
        blocks.insert(1, Table::new(columns).rows(rows).into());
    }
    blocks
}

/// The ledger of several senders and receivers: a row of each, then all of them together.
pub(crate) fn together(together: &Together) -> Vec<Block> {
    let figures = |heads: [&'static str; 4]| {
        let heads = heads.into_iter().map(|head| Column::figure(head, 13));
        iter::once(Column::words("file", 20).grow(20)).chain(heads)
    };
    let row = |file: &str, counts: [u64; 4]| {
        let cells = counts.into_iter().map(|one| count(one).into());
        Row::new(iter::once(file.into()).chain(cells))
    };
    let senders = together.senders.iter().map(|one| {
        let arrived = one.offered - one.missing;
        row(&one.file, [one.offered, one.refused, arrived, one.missing])
    });
    let receivers = together.receivers.iter().enumerate().map(|(at, one)| {
        let from = together
            .senders
            .iter()
            .filter(|sender| sender.arrived[at] > 0);
        let counts = [from.count() as u64, one.arrived, one.dropped, one.others];
        row(&one.file, counts)
    });
    let senders = Table::new(figures(["offered", "refused", "arrived", "missing"])).rows(senders);
    let receivers =
        Table::new(figures(["senders", "arrived", "dropped", "others"])).rows(receivers);
    let mut blocks = vec![senders.into(), receivers.into()];
    blocks.extend(joined(&together.all));
    blocks
}

/// The report of one end of a run.
pub(crate) fn document(
    (title, version): (&str, &str),
    (command, mode): (&str, &str),
    blocks: Vec<Block>,
    text: &str,
) -> Document {
    let mut blocks = blocks.into_iter();
    let mut all: Vec<Block> = blocks.by_ref().take(2).collect();
    all.extend(second_rates("Mpps", seconds(text)));
    all.push(Block::Paragraph(Text::new().code(command)));
    all.push(Block::paragraph(format!("mode: {mode}")));
    all.extend(blocks);
    Document::new(title, format!("mpps {version}"), all)
}

type SecondRate = (&'static str, Hue, fn(&Value) -> Option<f64>);

/// The rates of a second of a receiver or a sender that a page draws.
const SECOND_RATES: [SecondRate; 4] = [
    ("received", Hue::Main, |one| over_time(one, "received")),
    ("sent", Hue::Main, |one| over_time(one, "sent")),
    ("refused", Hue::Second, |one| over_time(one, "refused")),
    (
        "lost at full sockets of the network namespace",
        Hue::Second,
        |one| {
            let udp = one.get("screens")?.get("udp")?;
            Some(udp["RcvbufErrors"].as_f64().unwrap_or(0.0))
        },
    ),
];

fn over_time(one: &Value, count: &str) -> Option<f64> {
    Some(one[count].as_f64()? / one["seconds"].as_f64()?)
}

/// The seconds among the lines of a file.
fn seconds(text: &str) -> Vec<ChartLine> {
    let lines = text.lines().map(serde_json::from_str::<Value>);
    let seconds = lines.flatten().filter(|line| line["type"] == "interval");
    let seconds: Vec<Value> = seconds.collect();
    let lines = SECOND_RATES.iter().map(|(name, hue, rate)| {
        let mut at = 0.0;
        let points = seconds.iter().filter_map(|one| {
            at += one["seconds"].as_f64()?;
            Some((at, rate(one)? / 1e6))
        });
        let points = points.filter(|(at, mpps)| at.is_finite() && mpps.is_finite());
        ChartLine {
            name: (*name).to_owned(),
            hue: *hue,
            points: points.collect(),
        }
    });
    lines.filter(|line| !line.points.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_report::Terminal;

    #[test]
    fn the_seconds_of_a_file_are_drawn_if_it_has_two() {
        let line = |received: u64, lost: f64| {
            let screens = serde_json::json!({"udp": {"RcvbufErrors": lost}});
            serde_json::json!({"type": "interval", "seconds": 2.0, "received": received,
                               "screens": screens})
            .to_string()
        };
        let (one, two) = (line(4_000_000, 0.0), line(2_000_000, 5e5));
        let drawn = seconds(&[&*one, "{\"type\":\"total\"}", &two].join("\n"));
        let points: Vec<_> = drawn.iter().map(|line| line.points.clone()).collect();
        assert_eq!(points, [[(2.0, 2.0), (4.0, 1.0)], [(2.0, 0.0), (4.0, 0.5)]]);
        assert_eq!(second_rates("Mpps", seconds(&one)), None);
    }

    #[test]
    fn a_sender_below_its_rate_says_why_as_far_as_it_knows() {
        let text = include_str!("../../../tests/fixtures/send.json");
        let total = |blocked: u64, cpu: f64| {
            let mut total: SendTotal =
                serde_json::from_str(text).expect("the fixture is the totals");
            total.blocked = blocked;
            for thread in &mut total.threads {
                thread.cpu_ns_per_packet = cpu * total.active_seconds * 1e9 / thread.offered as f64;
            }
            total
        };
        let quota = |throttled| Quota {
            group: "a".to_owned(),
            periods: 100,
            throttled,
            throttled_ns: 1,
            ..Quota::default()
        };
        let (often, seldom) = (quota(50), quota(1));
        for (blocked, quota, cpu, part) in [
            (1, Some(&often), 0.99, "send buffer was full"),
            (0, Some(&often), 0.99, "CPU quota"),
            (0, Some(&seldom), 0.99, "the CPU did not keep up"),
            (0, None, 0.99, "the CPU did not keep up"),
            (0, Some(&seldom), 0.5, "why is not known"),
            (0, None, 0.5, "why is not known"),
        ] {
            let said = why_slow(&total(blocked, cpu), quota);
            assert!(said.contains(part), "{said}, not {part}");
        }
    }

    #[test]
    fn what_another_program_may_have_lost_is_not_said_to_be_of_the_run() {
        let text = include_str!("../../../tests/fixtures/send.json");
        let mut total: SendTotal = serde_json::from_str(text).expect("the fixture is the totals");
        let ours = total.sent + total.end_markers;
        for (gso, sent, whose) in [
            (1, ours, ", of this run or of another program: 300"),
            (1, ours - 300, "on this host: 300"),
            // A train counts as one.
            (8, ours / 8, ", of this run or of another program: 300"),
        ] {
            total.gso = gso;
            let counters = [("Udp.OutDatagrams", sent), ("Udp.SndbufErrors", 300)];
            let counters = counters.map(|(name, count)| (name.to_owned(), count as i64));
            total.host = Some(Delta {
                snmp: counters.into(),
                ..Delta::default()
            });
            let said = Terminal::new(200, false).blocks(&super::sent(&total, None, None));
            assert!(said.contains(whose), "{said}, not {whose}");
        }
    }
}
