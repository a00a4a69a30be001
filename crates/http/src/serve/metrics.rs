//! The page `/metrics`: what the server has counted, in the text format of Prometheus.

use super::counters::{Ending, ServeCounters};
use std::fmt::Write;

/// The page. Names follow the conventions of Prometheus: base units, `_total` for what only grows.
pub(crate) fn page(counters: &ServeCounters) -> Vec<u8> {
    let mut text = String::with_capacity(2048);
    for (name, kind, help, value) in singles(counters) {
        head(&mut text, name, kind, help);
        line(&mut text, format_args!("{name} {value}"));
    }
    let name = "mpps_connections_closed_total";
    head(
        &mut text,
        name,
        "counter",
        "Connections that ended, by how.",
    );
    for ending in Ending::ALL {
        let (how, value) = (ending.name(), counters.ended(ending));
        line(&mut text, format_args!("{name}{{how=\"{how}\"}} {value}"));
    }
    let name = "mpps_responses_total";
    head(&mut text, name, "counter", "Replies, by class of status.");
    for (class, value) in (1..).zip(counters.statuses) {
        line(
            &mut text,
            format_args!("{name}{{class=\"{class}xx\"}} {value}"),
        );
    }
    text.into_bytes()
}

/// What has one value: its name, kind and meaning.
fn singles(counters: &ServeCounters) -> [(&'static str, &'static str, &'static str, u64); 7] {
    [
        (
            "mpps_connections_accepted_total",
            "counter",
            "Connections taken from the kernel.",
            counters.accepted,
        ),
        (
            "mpps_connections_open",
            "gauge",
            "Connections that are open.",
            counters.open,
        ),
        (
            "mpps_requests_total",
            "counter",
            "Requests that were answered.",
            counters.requests,
        ),
        (
            "mpps_sent_bytes_total",
            "counter",
            "Bytes of replies that the kernel took.",
            counters.bytes_sent,
        ),
        (
            "mpps_received_bytes_total",
            "counter",
            "Bytes of requests.",
            counters.bytes_received,
        ),
        (
            "mpps_system_calls_total",
            "counter",
            "System calls that the engine made.",
            counters.system_calls,
        ),
        (
            "mpps_accept_errors_total",
            "counter",
            "How often accepting was refused.",
            counters.accept_errors,
        ),
    ]
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    line(text, format_args!("# HELP {name} {help}"));
    line(text, format_args!("# TYPE {name} {kind}"));
}

fn line(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to memory does not fail.
    let _ = writeln!(text, "{line}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_a_type_for_each_name_and_a_value_for_each_line() {
        let mut counters = ServeCounters::default();
        counters.accept();
        counters.accept();
        counters.end(Ending::HeadTimeout);
        counters.reply(404);
        counters.open = 1;
        let page = String::from_utf8(page(&counters)).unwrap();
        assert!(page.contains("\nmpps_connections_open 1\n"), "{page}");
        assert!(page.contains("closed_total{how=\"head_timeout\"} 1\n"));
        assert!(page.contains("mpps_responses_total{class=\"4xx\"} 1\n"));
        for line in page.lines().filter(|line| !line.starts_with('#')) {
            let (name, value) = line.rsplit_once(' ').unwrap();
            assert!(value.parse::<u64>().is_ok(), "{line}");
            let family = name.split('{').next().unwrap();
            assert!(page.contains(&format!("# TYPE {family} ")), "{line}");
        }
    }
}
