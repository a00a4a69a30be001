//! A diagnosis as a document.

use super::{DoctorResult, is_fine};
use crate::measure::document::{RunHead, count, document_of, equation};
use mpps_host::{CHECKS, Confidence, Evidence, Finding, Ledger};
use mpps_report::{Balance, Block, Document, Quantity, Style, Text};
use std::path::Path;

/// The whole report.
pub(crate) fn document(result: &DoctorResult, written: &[(&str, &Path)]) -> Document {
    let about = "Counters were read at the beginning and at the end. Those of UDP and IP are of the \
                 network namespace, softnet_stat is of the machine, and a socket's drops are its own.";
    let title = "mpps doctor: what this host loses, and why";
    document_of(title, result, blocks(result), [about.into()], written)
}

/// The text for a terminal. It leaves out the machine, because a thousand interfaces take a while
/// to lay out.
pub(super) fn blocks(result: &DoctorResult) -> Vec<Block> {
    let port = result
        .port
        .map_or_else(String::new, |port| format!(", UDP port {port}"));
    let pid = result
        .pid
        .map_or_else(String::new, |pid| format!(", process {pid}"));
    let looked = format!(
        "{} of {}{port}{pid}",
        Quantity::Seconds(result.seconds),
        result.interfaces.join(", ")
    );
    let head = RunHead::of(result, &looked, "look", &result.notes);
    let ledger = &result.ledger;
    let mut blocks = vec![Block::Paragraph(answer(result))];
    blocks.extend(on_the_way_out(result).into_iter().map(Block::paragraph));
    blocks.extend(head.first([]));
    let numbered = result.findings.iter().enumerate();
    blocks.extend(numbered.flat_map(|(at, finding)| of_finding(at + 1, finding)));
    if !result.fix.is_empty() {
        let at_once = " changes it from outside, without a restart, and keeps what helps";
        blocks.push(line("fix", Text::new().code(&*result.fix).plain(at_once)));
    }
    if let (Some(port), true) = (result.port, is_fine(&result.findings)) {
        blocks.push(Block::note(heard(result, port)));
    }
    blocks.push(Block::heading("Ledger"));
    let mut equation = equation("UDP", ledger);
    if result.queued_bytes > 0 && equation.balance == Balance::Unbalanced {
        equation.balance = Balance::Inexact;
    }
    blocks.push(equation.into());
    blocks.push(head.last());
    blocks
}

/// The result in one line, with the values of the ledger as monitoring plugins give them. The cause is at the
/// start: node-problem-detector cuts a line.
pub(super) fn one_line(result: &DoctorResult) -> String {
    let mut problems = result.findings.iter().filter(|one| !one.is_remark);
    let said = match problems.next() {
        None => format!("OK: {}", answer(result).words()),
        Some(first) => {
            let rate = match first.count {
                0 => String::new(),
                _ => format!(", {}", Quantity::PerSecond(first.rate_pps)),
            };
            let more = match problems.count() {
                0 => String::new(),
                more => format!("; and {more} more"),
            };
            format!("PROBLEM: {}{rate}: {}{more}", first.check, first.what)
        }
    };
    let (lost, _) = lost(result);
    let Ledger {
        offered, delivered, ..
    } = result.ledger;
    // Behind a bar are values.
    let said = said.replace('|', "/");
    format!("{said} | offered={offered} delivered={delivered} lost={lost}")
}

/// The datagrams that left, and whether none did.
fn on_the_way_out(result: &DoctorResult) -> Vec<String> {
    let out = &result.out;
    let per_second = |count: u64| Quantity::PerSecond(count as f64 / result.seconds);
    let lost = |lost: u64| {
        let rate = per_second(lost);
        format!("{} were lost on the way out ({rate})", count(lost))
    };
    let sent = (out.sent > 0).then(|| {
        let own = lost(out.lost().saturating_sub(out.forwarded));
        let rate = per_second(out.sent);
        format!("datagrams sent: {} ({rate}), {own}", count(out.sent))
    });
    let forwarded =
        (out.forwarded > 0).then(|| format!("datagrams forwarded: {}", lost(out.forwarded)));
    // Collectors answer to nothing, so that this is no finding.
    let is_asked = result.port.is_some() || result.pid.is_some();
    let read = result.ledger.delivered;
    let mute = (is_asked && out.sent == 0 && read > 0).then(|| {
        format!(
            "programs read {} datagrams, and this namespace sent none: if the program should answer, see its log",
            count(read)
        )
    });
    [sent, forwarded, mute].into_iter().flatten().collect()
}

/// The answer in one sentence.
fn answer(result: &DoctorResult) -> Text {
    let ledger = &result.ledger;
    let per_second = |count: u64| Quantity::PerSecond(count as f64 / result.seconds);
    let time = Quantity::Seconds(result.seconds);
    let (lost, beside) = lost(result);
    let came = ledger.offered.max(lost);
    let unaccounted = u64::try_from(ledger.unaccounted).unwrap_or(0);
    let rest = match (unaccounted, result.queued_bytes) {
        (0, _) => String::new(),
        (rest, 0) => format!("; {} are unaccounted for", count(rest)),
        (rest, _) => format!("; {} wait in sockets or are unaccounted for", count(rest)),
    };
    let rest = match beside {
        0 => rest,
        beside => format!(
            "{rest}; {} more were lost on their way out, or by TCP",
            count(beside)
        ),
    };
    // Their losses are in the ledger, and those that passed are not.
    if lost > 0 && result.passed > lost / 10 {
        let said = format!(
            "{} UDP packets were lost in {time} ({}), and {} packets of any kind were forwarded or bridged{rest}",
            count(lost),
            per_second(lost),
            count(result.passed),
        );
        return Text::styled(Style::Bad, said);
    }
    if lost > 0 {
        let share = Quantity::Share(lost as f64 / came.max(1) as f64);
        let said = format!(
            "{share} of the UDP that came was lost: {} of {} in {time} ({}){rest}",
            count(lost),
            count(came),
            per_second(lost),
        );
        return Text::styled(Style::Bad, said);
    }
    let checks = CHECKS.len();
    let came = format!("{} came in {time} ({})", count(came), per_second(came));
    match (unaccounted, is_fine(&result.findings)) {
        (0, true) => Text::styled(
            Style::Good,
            format!("nothing was lost on the way in, by {checks} checks: {came}"),
        ),
        (_, true) => format!("{came}; {checks} checks found no loss{rest}").into(),
        _ => format!("{came}; the ledger has no loss{rest}").into(),
    }
}

/// Checks whose losses are not of the packets that came.
const BESIDE: [&str; 3] = ["handshake_queue", "listen_queue", "way_out"];

/// How many packets were lost of those that came, by the ledger and the findings together, and
/// how many others.
fn lost(result: &DoctorResult) -> (u64, u64) {
    let sum = |is_beside: bool| {
        let findings = result.findings.iter();
        let losses = findings.filter(|one| !one.is_remark);
        let these = losses.filter(|one| BESIDE.contains(&&*one.check) == is_beside);
        these.fold(0, |sum: u64, one| sum.saturating_add(one.count))
    };
    (result.ledger.lost().max(sum(false)), sum(true))
}

/// The note about a port that lost nothing: the kernel counts reads of all ports together.
fn heard(result: &DoctorResult, port: u16) -> String {
    let read = match result.ledger.delivered {
        read if read > 0 && result.has_only_this_port => {
            return format!(
                "programs read {} datagrams, all of port {port}: no UDP socket of this namespace has another port",
                count(read)
            );
        }
        0 => "no counter shows whether anything came".to_owned(),
        read => format!(
            "programs read {} datagrams from the UDP sockets of this namespace, and no counter shows how many came",
            count(read)
        ),
    };
    format!("{read} for port {port}: tcpdump -ni any udp port {port}")
}

/// A finding: the problem, its reason, its proof and its remedies.
pub(crate) fn of_finding(number: usize, finding: &Finding) -> Vec<Block> {
    let cost = match finding.count {
        0 => String::new(),
        lost => {
            let rate = Quantity::PerSecond(finding.rate_pps);
            format!(" {} lost ({rate})", count(lost))
        }
    };
    let sure = match finding.confidence {
        Confidence::Certain => "certain",
        Confidence::Likely => "likely",
        Confidence::Possible => "possible",
    };
    let (style, remark) = match finding.is_remark {
        true => (Style::Faint, " remark"),
        false => (Style::Bad, ""),
    };
    let colon = match remark.is_empty() && cost.is_empty() {
        true => " ",
        false => ": ",
    };
    let what = Text::styled(style, format!("{number}.{remark}{cost}"))
        .plain(colon)
        .strong(&*finding.what)
        .plain(format!("; {sure}"))
        .faint(format!(" ({}, {})", finding.check, finding.station));
    let proof: Vec<String> = finding.evidence.iter().map(told).collect();
    let mut blocks = vec![Block::Heading(what)];
    if !finding.why.is_empty() {
        blocks.push(line("why", (*finding.why).into()));
    }
    blocks.push(line("proof", proof.join("; ").into()));
    let remedies = finding.remedy.split("; or ");
    let names = std::iter::once("do").chain(std::iter::repeat("or"));
    blocks.extend(
        names
            .zip(remedies)
            .map(|(name, text)| line(name, text.into())),
    );
    blocks.push(line("check", Text::new().code(&*finding.verify)));
    blocks
}

fn line(name: &str, text: Text) -> Block {
    let mut spans = Text::new().faint(format!("{name:<6} "));
    spans.spans.extend(text.spans);
    Block::Paragraph(spans)
}

fn told(evidence: &Evidence) -> String {
    let Evidence {
        source,
        before,
        after,
    } = evidence;
    format!("{source} {before} -> {after}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_report::Terminal;
    use mpps_trial::mentions;

    fn fixture() -> DoctorResult {
        let text = include_str!("../../../tests/fixtures/doctor.json");
        DoctorResult::parse(text).expect("it is a result")
    }

    #[test]
    fn the_report_is_as_it_was() {
        let files: [(&str, &Path); 1] = [("report", Path::new("doctor.html"))];
        let document = document(&fixture(), &files);
        let shot = |width: usize| Terminal::new(width, false).document(&document);
        let shots = [60, 100, 160].map(shot);
        insta::assert_snapshot!("text", shots.join("\n----\n"));
        insta::assert_snapshot!("markdown", mpps_report::markdown(&document));
    }

    #[test]
    fn the_head_counts_what_the_findings_lost() {
        let mut result = fixture();
        result.ledger = mpps_host::Ledger::new(2000, 2000, 0);
        result.findings.truncate(1);
        result.findings[0].count = 1657;
        for (check, words) in [
            ("socket_buffer", "was lost: 1 657 of 2 000"),
            ("way_out", "1 657 more were lost on their way out"),
        ] {
            result.findings[0].check = check.to_owned();
            let text = Terminal::new(200, false).document(&document(&result, &[]));
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn what_was_forwarded_and_lost_was_not_sent() {
        let mut result = fixture();
        let text =
            |result: &DoctorResult| Terminal::new(200, false).document(&document(result, &[]));
        assert!(!text(&result).contains("datagrams forwarded"));
        (result.out.forwarded, result.out.losses) = (7, result.ledger.losses.clone());
        let text = text(&result);
        assert!(text.contains("datagrams forwarded: 7 were lost on the way out"));
        assert!(!text.contains("datagrams sent"), "{text}");
    }

    #[test]
    fn what_was_read_is_told_where_a_port_lost_nothing() {
        let mut result = fixture();
        (result.port, result.ledger) = (Some(53), mpps_host::Ledger::new(4000, 4000, 0));
        let text =
            |result: &DoctorResult| Terminal::new(300, false).document(&document(result, &[]));
        let read = "programs read 4 000 datagrams from the UDP sockets";
        assert!(!text(&result).contains(read), "it has problems");
        result
            .findings
            .iter_mut()
            .for_each(|one| one.is_remark = true);
        assert!(text(&result).contains(read), "remarks only");
        result.findings.clear();
        assert!(text(&result).contains(read));
        result.has_only_this_port = true;
        let only = text(&result);
        assert!(only.contains("4 000 datagrams, all of port 53") && !only.contains(read));
        result.ledger = mpps_host::Ledger::default();
        assert!(text(&result).contains("no counter shows whether anything came"));
    }

    #[test]
    fn a_healthy_host_is_told_so() {
        let mut result = fixture();
        result.findings.clear();
        result.ledger = mpps_host::Ledger::new(300, 300, 0);
        let text = Terminal::new(80, false).document(&document(&result, &[]));
        mentions(&text, "nothing was lost on the way in, by");
    }

    #[test]
    fn what_is_unaccounted_for_never_stands_beside_health() {
        let mut result = fixture();
        result.findings.clear();
        for (queued_bytes, words) in [
            (0, "300 are unaccounted for"),
            (9, "300 wait in sockets or are unaccounted for"),
        ] {
            result.ledger = mpps_host::Ledger::new(300, 0, 0);
            result.queued_bytes = queued_bytes;
            let text = Terminal::new(200, false).document(&document(&result, &[]));
            assert!(
                text.contains(words) && text.contains("found no loss"),
                "{text}"
            );
            assert!(!text.contains("nothing was lost"), "{text}");
        }
    }
}
