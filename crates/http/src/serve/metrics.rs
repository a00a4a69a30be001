//! The page `/metrics`: what the server has counted, in the text format of Prometheus.

use super::counters::{Ending, ServeCounters};

/// The page. Names follow the conventions of Prometheus: base units, `_total` for what only grows.
pub(crate) fn page(counters: &ServeCounters) -> Vec<u8> {
    let ServeCounters {
        accepted,
        open,
        requests,
        statuses,
        bytes_sent,
        bytes_received,
        system_calls,
        accept_errors,
        ..
    } = counters;
    let mut text = format!(
        "\
# HELP mpps_connections_accepted_total Connections taken from the kernel.
# TYPE mpps_connections_accepted_total counter
mpps_connections_accepted_total {accepted}
# HELP mpps_connections_open Connections that are open.
# TYPE mpps_connections_open gauge
mpps_connections_open {open}
# HELP mpps_requests_total Requests that were answered.
# TYPE mpps_requests_total counter
mpps_requests_total {requests}
# HELP mpps_sent_bytes_total Bytes of replies that the kernel took.
# TYPE mpps_sent_bytes_total counter
mpps_sent_bytes_total {bytes_sent}
# HELP mpps_received_bytes_total Bytes of requests.
# TYPE mpps_received_bytes_total counter
mpps_received_bytes_total {bytes_received}
# HELP mpps_system_calls_total System calls that the engine made.
# TYPE mpps_system_calls_total counter
mpps_system_calls_total {system_calls}
# HELP mpps_accept_errors_total How often accepting was refused.
# TYPE mpps_accept_errors_total counter
mpps_accept_errors_total {accept_errors}
# HELP mpps_connections_closed_total Connections that ended, by how.
# TYPE mpps_connections_closed_total counter
"
    );
    for how in Ending::ALL {
        let ended = counters.ended(how);
        text += &format!("mpps_connections_closed_total{{how=\"{how}\"}} {ended}\n");
    }
    text += "# HELP mpps_responses_total Replies, by class of status.\n";
    text += "# TYPE mpps_responses_total counter\n";
    for (class, replies) in (1..).zip(statuses) {
        text += &format!("mpps_responses_total{{class=\"{class}xx\"}} {replies}\n");
    }
    text.into_bytes()
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
