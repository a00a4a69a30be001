//! The lines of `mpps serve`: what was granted, each second, and the totals.

use super::table::wrap;
use crate::connections::{ServeInterval, ServeTotal, SwitchState};
use crate::output;
use mpps_host::{CpuList, Grouped, ModerationPlan};
use mpps_http::{Content, Limits, Switch};
use std::net::SocketAddr;

/// What a server was granted, as people are told it.
#[derive(Debug, Clone)]
pub(crate) struct Granted {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// The engine.
    pub(crate) engine: &'static str,
    /// Every switch.
    pub(crate) switches: Vec<SwitchState>,
    /// The CPU of each worker.
    pub(crate) cpus: Vec<Option<usize>>,
    /// What is served.
    pub(crate) content: Content,
    /// Who ends connections.
    pub(crate) close: &'static str,
    /// Whether there is a page of counters.
    pub(crate) metrics: bool,
    /// Descriptors that the process may have open.
    pub(crate) descriptors: u64,
    /// How much clients may ask for.
    pub(crate) limits: Limits,
}

/// The state of the one switch that acts on an interface.
pub(crate) fn moderation(done: Option<&ModerationPlan>) -> SwitchState {
    SwitchState {
        name: Switch::Moderation.name().to_owned(),
        on: done.is_some_and(|plan| plan.time_ns > 0),
        what: done.map_or_else(
            || "interrupts of the interface throttled".to_owned(),
            ToString::to_string,
        ),
        why_not: match done {
            Some(_) => String::new(),
            None => "acts on the whole interface, and so only with --moderation TIME".to_owned(),
        },
    }
}

/// What is said before the first connection. The first line is for programs as well: the address
/// stands behind `http://`.
pub(crate) fn introduction(granted: &Granted, width: usize) -> Vec<String> {
    let what = match &granted.content {
        Content::Size(bytes) => format!("{} bytes at every path", Grouped(*bytes as u64)),
        Content::Root(root) => output::printable(&format!("the files below {}", root.display())),
    };
    let mut lines = vec![format!("serving at http://{}/", granted.address)];
    let (engine, close) = (granted.engine, granted.close);
    let workers = workers(&granted.cpus);
    let mut facts = format!("{what}; engine {engine}, {workers}; connections are ended by {close}");
    if granted.metrics {
        facts.push_str("; counters at /metrics");
    }
    lines.extend(wrap(&facts, width));
    let slots = granted
        .switches
        .iter()
        .any(|switch| switch.on && switch.name == Switch::Fds.name());
    // Each connection takes a descriptor, unless it takes a slot of a ring.
    if !slots && granted.descriptors < granted.limits.connections as u64 {
        let text = format!(
            "{} descriptors are fewer than the {} connections allowed: raise `ulimit -n`, or lower \
             --max-connections",
            granted.descriptors, granted.limits.connections
        );
        lines.extend(wrap(&text, width));
    }
    for switch in &granted.switches {
        let state = if switch.on { "on " } else { "off" };
        let why_not = match &*switch.why_not {
            "" => String::new(),
            why => format!(" ({why})"),
        };
        let head = format!("  {:<10} {state}  ", switch.name);
        let room = width.saturating_sub(head.len()).max(20);
        let text = wrap(&format!("{}{why_not}", switch.what), room);
        for (at, line) in text.iter().enumerate() {
            let start = if at == 0 { head.as_str() } else { "" };
            lines.push(format!("{start:<indent$}{line}", indent = head.len()));
        }
    }
    lines
}

/// `2 workers on CPUs 0-1`.
fn workers(cpus: &[Option<usize>]) -> String {
    let pinned: Vec<usize> = cpus.iter().flatten().copied().collect();
    let count = cpus.len();
    let plural = if count == 1 { "" } else { "s" };
    if pinned.is_empty() {
        return format!("{count} worker{plural}, wherever the scheduler puts them");
    }
    let mut places = pinned;
    places.sort_unstable();
    places.dedup();
    let cpu = if places.len() == 1 { "CPU" } else { "CPUs" };
    format!("{count} worker{plural} on {cpu} {}", CpuList(places))
}

/// `12 345 connections/s  12 345 requests/s  13.2 MiB/s  open 64  CPU 0.93`.
pub(crate) fn second(interval: &ServeInterval) -> String {
    format!(
        "{:>7.0} connections/s {:>7.0} requests/s {:>8.2} MiB/s   open {:<6} CPU {:.2}",
        interval.connections_per_second,
        interval.requests_per_second,
        interval.bytes_per_second / f64::from(1 << 20),
        interval.open,
        interval.cpu,
    )
}

/// The totals as people read them.
pub(crate) fn totals(total: &ServeTotal, width: usize) -> Vec<String> {
    let ended: Vec<String> = total
        .ended
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(how, count)| format!("{} {}", Grouped(*count), how.replace('_', " ")))
        .collect();
    let ended = if ended.is_empty() {
        "0".to_owned()
    } else {
        ended.join(" + ")
    };
    let mut lines = wrap(
        &format!(
            "accepted {} = ended {ended} + open {}   UNACCOUNTED {}",
            Grouped(total.accepted),
            Grouped(total.open),
            total.unaccounted,
        ),
        width,
    );
    let statuses: Vec<String> = total
        .statuses
        .iter()
        .filter(|(_, count)| **count > 0)
        .map(|(class, count)| format!("{class} {}", Grouped(*count)))
        .collect();
    let statuses = if statuses.is_empty() {
        String::new()
    } else {
        format!(" ({})", statuses.join(", "))
    };
    let cpu = total
        .cpu_us_per_connection
        .map_or_else(String::new, |us| format!(", {us:.1} µs CPU a connection"));
    let text = format!(
        "requests {}{statuses}, sent {:.2} MiB in {:.1} s{cpu}",
        Grouped(total.requests),
        total.bytes_sent as f64 / f64::from(1 << 20),
        total.seconds,
    );
    lines.extend(wrap(&text, width));
    if total.accept_errors > 0 {
        let errors = Grouped(total.accept_errors);
        lines.extend(wrap(
            &format!("accepting was refused {errors} times: raise `ulimit -n`, or lower --max-connections"),
            width,
        ));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn granted() -> Granted {
        let switch = |name: &str, on: bool| SwitchState {
            name: name.to_owned(),
            on,
            what: "a sentence that is long enough to need more than one line of a narrow terminal"
                .to_owned(),
            why_not: if on {
                String::new()
            } else {
                "as asked".to_owned()
            },
        };
        Granted {
            address: "127.0.0.1:8080".parse().expect("an address"),
            engine: "epoll",
            switches: vec![
                switch("affinity", true),
                moderation(None),
                switch("fds", false),
            ],
            cpus: vec![Some(1), Some(0)],
            content: Content::Size(1024),
            close: "server",
            metrics: true,
            descriptors: 1024,
            limits: Limits::default(),
        }
    }

    #[test]
    fn every_switch_has_a_line_and_none_is_too_long() {
        for width in [40, 60, 80, 160] {
            let lines = introduction(&granted(), width);
            assert_eq!(lines[0], "serving at http://127.0.0.1:8080/");
            for name in ["affinity   on", "moderation off", "fds        off"] {
                let found = lines.iter().filter(|line| line.contains(name)).count();
                assert_eq!(found, 1, "{name}: {lines:#?}");
            }
            let widest = lines.iter().map(|line| line.chars().count()).max();
            assert!(widest <= Some(width), "{width}: {lines:#?}");
            let text = lines.join(" ");
            assert!(
                text.contains("2 workers on CPUs 0-1") && text.contains("ulimit"),
                "{text}"
            );
        }
    }

    #[test]
    fn a_second_fits_a_narrow_terminal() {
        let line = second(&ServeInterval {
            schema: String::new(),
            kind: String::new(),
            seconds: 1.0,
            connections_per_second: 123_456.7,
            requests_per_second: 123_456.7,
            bytes_per_second: 1e9,
            open: 10_000,
            cpu: 1.5,
        });
        assert!(line.chars().count() <= 80, "{line}");
        assert!(line.contains(" 123457 connections/s") && line.contains("953.67 MiB/s"));
    }
}
