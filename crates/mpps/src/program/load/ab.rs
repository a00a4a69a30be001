//! The summary in the words of `ab`, the Apache benchmark, for people and scripts that know it.
//!
//! A line has `ab`'s label and meaning, or is not there: `ab` also splits the time of a request
//! into waiting and processing, which this load does not.

use crate::program::connections::LoadResult;
use mpps_http::{Failure, Times};
use std::fmt::Display;

/// The percentages that `ab` prints.
const PERCENTAGES: [f64; 9] = [50.0, 66.0, 75.0, 80.0, 90.0, 95.0, 98.0, 99.0, 100.0];

/// The summary.
pub(crate) fn report(result: &LoadResult) -> String {
    let (found, url) = (&result.found, &result.asked.url);
    let account = &found.ledger.requests;
    let of = |failures: &[Failure]| failures.iter().map(|one| account.failed(*one)).sum::<u64>();
    // To ab a reply of another status is complete, and counted apart.
    let other_status = of(&[Failure::BadStatus]);
    let complete = account.completed + other_status;
    let failed = account.failed_total().saturating_sub(other_status);
    let connect = of(&[
        Failure::Refused,
        Failure::Unreachable,
        Failure::NoPort,
        Failure::NoDescriptor,
        Failure::ResetConnecting,
        Failure::TimedOutConnecting,
    ]);
    let receive = of(&[Failure::Reset, Failure::TimedOut, Failure::NoReply]);
    let short = of(&[Failure::ShortBody]);
    let rest = failed.saturating_sub(connect + receive + short);
    let kinds =
        format!("   (Connect: {connect}, Receive: {receive}, Length: {short}, Exceptions: {rest})");
    let kept = complete.saturating_sub(found.ledger.connections.started);
    let keeps = result.asked.requests_per_connection != Some(1);
    // The length of a body, from what came whole.
    let length = found.body_bytes.checked_div(account.completed).unwrap_or(0);
    let (concurrency, seconds) = (result.asked.connections, found.seconds.max(1e-9));
    let rate = complete as f64 / seconds;
    let each_ms = if complete == 0 { 0.0 } else { 1e3 / rate };
    let all_ms = each_ms * concurrency as f64;
    let transfer = found.bytes_received as f64 / 1024.0 / seconds;
    let lines = [
        field("Server Hostname:", &url.host),
        field("Server Port:", url.port),
        Some(String::new()),
        field("Document Path:", &url.path),
        field("Document Length:", format!("{length} bytes")),
        Some(String::new()),
        field("Concurrency Level:", concurrency),
        field(
            "Time taken for tests:",
            format!("{:.3} seconds", found.seconds),
        ),
        field("Complete requests:", complete),
        field("Failed requests:", failed),
        Some(kinds).filter(|_| failed > 0),
        field("Non-2xx responses:", other_status).filter(|_| other_status > 0),
        field("Keep-Alive requests:", kept).filter(|_| keeps),
        field(
            "Total transferred:",
            format!("{} bytes", found.bytes_received),
        ),
        field("HTML transferred:", format!("{} bytes", found.body_bytes)),
        field("Requests per second:", format!("{rate:.2} [#/sec] (mean)")),
        field("Time per request:", format!("{all_ms:.3} [ms] (mean)")),
        field(
            "Time per request:",
            format!("{each_ms:.3} [ms] (mean, across all concurrent requests)"),
        ),
        field(
            "Transfer rate:",
            format!("{transfer:.2} [Kbytes/sec] received"),
        ),
        Some(String::new()),
    ];
    let lines = lines.into_iter().flatten().chain(times(result));
    lines.collect::<Vec<_>>().join("\n")
}

/// A label in ab's column, and what stands behind it.
fn field(label: &str, value: impl Display) -> Option<String> {
    Some(format!("{label:<24}{value}"))
}

fn times(result: &LoadResult) -> Vec<String> {
    let latency = &result.found.latency_us;
    let mut lines = vec![
        "Connection Times (ms)".to_owned(),
        "              min  mean[+/-sd] median   max".to_owned(),
        spread("Connect:", &latency.connect),
        spread("Total:", &latency.last_byte),
        String::new(),
        "Percentage of the requests served within a certain time (ms)".to_owned(),
    ];
    for percentage in PERCENTAGES {
        let known = latency.last_byte.percentiles.iter();
        let mut known = known.filter(|[at, _]| *at == percentage);
        let ms = known.next().map_or(0.0, |[_, us]| us / 1e3);
        let longest = if percentage == 100.0 {
            " (longest request)"
        } else {
            ""
        };
        lines.push(format!(" {percentage:>3}% {ms:>8.3}{longest}"));
    }
    lines
}

/// `Connect:    0.021   0.034  0.010    0.031   1.204`.
fn spread(label: &str, times: &Times) -> String {
    let [min, mean, deviation, median, max] =
        [times.min, times.mean, times.deviation, times.p50, times.max].map(|us| us / 1e3);
    format!("{label:<10}{min:>7.3} {mean:>7.3} {deviation:>6.3} {median:>7.3} {max:>8.3}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::program::load::document::tests::fixture;
    use mpps_http::Url;

    fn lines(result: &LoadResult) -> String {
        let mut result = result.clone();
        result.asked.url = Url::parse("http://127.0.0.1:8080/a?b").expect("a URL");
        report(&result)
    }

    #[test]
    fn scripts_find_their_lines() {
        let text = lines(&fixture());
        for line in [
            "Server Hostname:        127.0.0.1",
            "Document Path:          /a?b",
            "Document Length:        1024 bytes",
            "Complete requests:      100200",
            "Failed requests:        36",
            "Non-2xx responses:      200",
            "(Connect: 6, Receive: 30, Length: 0, Exceptions: 0)",
            "[#/sec] (mean)",
            " 100%",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
        assert!(!text.contains("Keep-Alive"));
    }

    #[test]
    fn a_load_without_replies_has_a_summary_too() {
        let mut result = fixture();
        result.found.ledger.requests.completed = 0;
        result.found.ledger.requests.failed.clear();
        result.found.latency_us.last_byte = Times::default();
        result.found.seconds = 0.0;
        let text = lines(&result);
        assert!(text.contains("Complete requests:      0"), "{text}");
        assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
    }
}
