//! Metrics for Prometheus: few series, the same on every host, whatever its drivers count.

mod clients;
mod containers;

use crate::output::{self, OutputStream, file::OutputFile};
use anyhow::{Context, Result};
use clients::Clients;
pub(super) use containers::Containers;
use mpps_host::check::ledger;
use mpps_host::ledger::loss::{self, BUFFER_FULL, LossKind};
use mpps_host::{Ledger, Observed, Station};
use mpps_os::On;
use mpps_os::text::ShellWord;
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Ports with a series of their own; drops of further ones are of `other`.
const PORTS_MAX: usize = 64;
/// The form of the answer
/// (<https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>).
const FORM: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Where the metrics go.
pub(super) enum ExporterOutput {
    /// To clients.
    Http(TcpListener, Arc<Mutex<String>>),
    /// To a file, for the textfile collector of node_exporter; and whether its disk was full at last.
    File(OutputFile, Cell<bool>),
}

/// Counts of a network namespace since the exporter began. Each only grows.
#[derive(Debug, Default)]
pub(super) struct ExporterTotals {
    /// The container, or the name of the namespace; empty for the exporter's own.
    container: String,
    delivered: u64,
    /// Datagrams that came to the namespace.
    offered: u64,
    /// Lost at a station, for a reason, and of a port where that is known.
    lost: BTreeMap<(&'static str, String, String), u64>,
    /// The ports among these labels.
    ports: BTreeSet<String>,
    /// Packets received at an interface by a queue, and in total without one.
    received: BTreeMap<(String, String), u64>,
    /// Whether these can be seen with the rights of this process.
    visible: BTreeMap<&'static str, bool>,
}

impl ExporterOutput {
    /// Takes the address.
    ///
    /// # Errors
    /// If it cannot be had.
    pub(super) fn listen(address: SocketAddr) -> Result<Self> {
        let bound = TcpListener::bind(address).on("bind", address);
        // It is a server, whose port others have by TCP.
        let bound = bound
            .map_err(mpps_http::HttpError::from)
            .context("--listen")?;
        Ok(Self::Http(bound, Arc::default()))
    }

    /// Begins to answer, from a thread that ends with the program.
    ///
    /// # Errors
    /// If the kernel refuses a thread or a descriptor.
    pub(super) fn begin(&self) -> Result<()> {
        let said = match self {
            Self::File(file, _) => format!("writing {}; Ctrl-C ends it", file.path().display()),
            Self::Http(listener, text) => {
                let text = Arc::clone(text);
                let clients = Clients::new(listener.try_clone()?, move |request: &[u8]| {
                    let text = text.lock().unwrap_or_else(PoisonError::into_inner);
                    response(request, &text)
                })?;
                thread::Builder::new()
                    .name("exporter".to_owned())
                    .spawn(|| clients.serve())
                    .on("clone", "exporter")?;
                format!(
                    "answering at http://{}/metrics; Ctrl-C ends it",
                    listener.local_addr()?
                )
            }
        };
        Ok(output::line(OutputStream::Err, &said)?)
    }

    /// Replaces the metrics.
    ///
    /// # Errors
    /// If the file cannot be written. A full disk may have room at the next time.
    pub(super) fn put(&self, new: String) -> Result<()> {
        match self {
            Self::File(file, was_full) => match file.write(new.as_bytes()) {
                Err(error) if is_full(&error) => {
                    if !was_full.replace(true) {
                        let text = format!("mpps: {error:#}; it is tried again");
                        output::line(OutputStream::Err, &text)?;
                    }
                }
                result => {
                    was_full.set(false);
                    result?;
                }
            },
            Self::Http(_, text) => *text.lock().unwrap_or_else(PoisonError::into_inner) = new,
        }
        Ok(())
    }
}

fn is_full(error: &anyhow::Error) -> bool {
    let causes = error.chain().filter_map(<dyn Error>::downcast_ref);
    let mut kinds = causes.map(io::Error::kind);
    kinds.any(|kind| [ErrorKind::StorageFull, ErrorKind::QuotaExceeded].contains(&kind))
}

impl ExporterTotals {
    /// Adds the counts of one look. `in_all` has the counts of all looks together, and gives the
    /// number offered.
    pub(super) fn look(&mut self, seen: &Observed, in_all: &Observed) {
        self.add(seen, &ledger(seen));
        // Counters are not read at the same moment, and no difference is below zero. So a sum of
        // differences would grow by this unevenness.
        self.offered = self.offered.max(ledger(in_all).offered);
        self.see("drop_reasons", seen.drops.is_some());
        self.see("sockets", !seen.after.are_sockets_unknown);
    }

    /// Enters whether this can be seen.
    pub(super) fn see(&mut self, what: &'static str, is_visible: bool) {
        self.visible.insert(what, is_visible);
    }

    fn add(&mut self, seen: &Observed, ledger: &Ledger) {
        let more = |sum: &mut u64, count: u64| *sum = sum.saturating_add(count);
        more(&mut self.delivered, ledger.delivered);
        // From zero on, so that the first loss is one for who asks how it grew.
        // Ports of clients come and go.
        let clients = seen.after.client_ports.clone();
        let is_server = |port: u16| !clients.as_ref().is_some_and(|all| all.contains(&port));
        let mut by_port: BTreeMap<u16, u64> = BTreeMap::new();
        for socket in &seen.sockets {
            let port = socket.entry.local.port();
            if is_server(port) && socket.entry.remote.is_none() {
                self.lose(Station::Socket, BUFFER_FULL.name, Some(port), 0);
            }
            if is_server(port) && socket.drops.grown() > 0 {
                more(by_port.entry(port).or_default(), socket.drops.grown());
            }
        }
        let dropped: u64 = by_port
            .values()
            .fold(0, |sum, &count| sum.saturating_add(count));
        // The backlog is the machine's where drops of other namespaces are not seen. It is counted once.
        let is_own = self.container.is_empty() || seen.drops.is_some();
        let losses = ledger.losses.iter();
        for loss in losses.filter(|loss| is_own || loss.station != Station::Backlog) {
            let mut left = loss.count;
            let of_ports = by_port.iter().filter(|_| loss.reason == BUFFER_FULL.words);
            // Sockets also count what is no full buffer: of what is, each port has its part.
            let part = (loss.count as f64 / dropped.max(1) as f64).min(1.0);
            let reason = loss::name(&loss.reason);
            for (&port, &dropped) in of_ports {
                let count = ((dropped as f64 * part) as u64).min(left);
                left -= count;
                self.lose(loss.station, reason, Some(port), count);
            }
            self.lose(loss.station, reason, None, left);
        }
        // Containers come with an interface each, and go.
        let links = &seen.after.snapshot.links;
        self.received
            .retain(|(name, _), _| links.contains_key(name));
        for (name, link) in &seen.delta.links {
            let queues = seen.delta.queue_packets(name);
            // A veth lists its queues, and counts by them only what came by NAPI.
            let by_queue = queues.iter().filter(|queue| queue.packets > 0);
            let by_queue = by_queue.map(|queue| (queue.queue.to_string(), queue.packets));
            let whole = (String::new(), link.counters.rx_packets);
            for (queue, packets) in by_queue.chain([whole]) {
                let received = self.received.entry((name.clone(), queue));
                more(received.or_default(), u64::try_from(packets).unwrap_or(0));
            }
        }
    }

    fn lose(&mut self, station: Station, reason: &str, port: Option<u16>, count: u64) {
        let key = self.key(station, reason, port);
        self.ports.insert(key.2.clone());
        let sum = self.lost.entry(key).or_default();
        *sum = sum.saturating_add(count);
    }

    /// The labels of a loss. A port has its own as long as there are few of them; a loss that could be
    /// of one, and is of none that is known, is of `other`.
    fn key(
        &self,
        station: Station,
        reason: &str,
        port: Option<u16>,
    ) -> (&'static str, String, String) {
        let known = &self.ports;
        let own = port.map(|port| port.to_string());
        let own = own.filter(|port| known.contains(port) || known.len() < PORTS_MAX);
        let rest = match reason == BUFFER_FULL.name {
            true => OTHER,
            false => "",
        };
        let port = own.unwrap_or_else(|| rest.to_owned());
        (station.word(), reason.to_owned(), port)
    }

    /// A series of this namespace, with these labels after its own.
    fn series(&self, own: &[(&str, &str)], value: u64) -> ExporterSeries {
        let all = [&[("container", &*self.container)], own].concat();
        (labels(&all), value)
    }

    fn losses(&self) -> Vec<ExporterSeries> {
        let mut lost = self.lost.clone();
        for kind in loss::of_a_host() {
            lost.entry(self.key(kind.station, kind.name, None))
                .or_default();
        }
        let series = lost.iter().map(|((station, reason, port), count)| {
            let own = [("station", *station), ("reason", reason), ("port", port)];
            self.series(&own, *count)
        });
        series.collect()
    }

    /// Packets of interfaces, or of their queues.
    fn received(&self, by_queue: bool) -> Vec<ExporterSeries> {
        let received = self.received.iter();
        let received = received.filter(|((_, queue), _)| queue.is_empty() != by_queue);
        let series = received.map(|((interface, queue), count)| {
            // Clean, and names that differ stay two series.
            let interface = ShellWord::new(interface).to_string();
            self.series(&[("interface", &interface), ("queue", queue)], *count)
        });
        series.collect()
    }
}

/// The labels and the value of a series.
type ExporterSeries = (String, u64);

/// A metric: its name, its help, and its series of a namespace.
type ExporterMetric<'a> = (&'a str, &'a str, fn(&ExporterTotals) -> Vec<ExporterSeries>);

/// The metrics of all namespaces, in the text form of Prometheus.
pub(super) fn text<'a>(all: impl Iterator<Item = &'a ExporterTotals> + Clone) -> String {
    let words = |kind: &LossKind| format!("{} ({})", kind.name, kind.words);
    let reasons: BTreeSet<String> = loss::of_a_host().map(|kind| words(&kind)).collect();
    let reasons = reasons.into_iter().collect::<Vec<_>>().join(", ");
    let lost = format!(
        "UDP packets lost, by station and reason. The station wire has packets of all kinds, and backlog those \
         of the whole machine. A full socket buffer has its port. Reasons: {reasons}."
    );
    let metrics: [ExporterMetric<'_>; 6] = [
        (
            "mpps_offered_packets_total",
            "UDP packets that came to the network namespace. Less mpps_delivered_packets_total and all \
             mpps_lost_packets_total it is what no counter accounts for.",
            |one| vec![one.series(&[], one.offered)],
        ),
        (
            "mpps_delivered_packets_total",
            "UDP packets that programs read.",
            |one| vec![one.series(&[], one.delivered)],
        ),
        ("mpps_lost_packets_total", &lost, ExporterTotals::losses),
        (
            "mpps_interface_packets_total",
            "Packets of all kinds that an interface received.",
            |one| one.received(false),
        ),
        (
            "mpps_queue_packets_total",
            "Packets of all kinds that a receive queue took in, if the driver counts them.",
            |one| one.received(true),
        ),
        (
            "mpps_visible",
            "1 if the exporter can see this, 0 if it lacks a right or a kernel feature: its log has the reason.",
            |one| {
                let all = one.visible.iter();
                all.map(|(what, is)| one.series(&[("what", what)], u64::from(*is)))
                    .collect()
            },
        ),
    ];
    let build = labels(&[("version", env!("CARGO_PKG_VERSION"))]);
    let mut text = format!(
        "# HELP mpps_build_info The version of mpps.\n# TYPE mpps_build_info gauge\nmpps_build_info{build} 1\n"
    );
    for (name, help, series) in metrics {
        let kind = match name.ends_with("_total") {
            true => "counter",
            false => "gauge",
        };
        // Writing to a string does not fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in all.clone().flat_map(series) {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    }
    text
}

/// Ports beyond those with a series, and sockets that have been closed.
const OTHER: &str = "other";

/// Labels without those that are empty.
fn labels(all: &[(&str, &str)]) -> String {
    let told = all.iter().filter(|(_, value)| !value.is_empty());
    let told = told.map(|(name, value)| {
        let value = value
            .replace('\\', "\\\\")
            .replace('"', "\\\"")
            .replace('\n', "\\n");
        format!("{name}=\"{value}\"")
    });
    match told.collect::<Vec<_>>().join(",") {
        none if none.is_empty() => none,
        told => format!("{{{told}}}"),
    }
}

/// The answer to a request: the metrics, or why there are none.
fn response(request: &[u8], text: &str) -> Vec<u8> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Request::new(&mut headers);
    let is_whole = parsed
        .parse(request)
        .is_ok_and(|status| status.is_complete());
    let path = parsed
        .path
        .map(|path| path.split('?').next().unwrap_or(path));
    let (status, body) = match (is_whole, parsed.method, path) {
        (false, ..) => ("400 Bad Request", "this is no request\n"),
        (true, Some("GET" | "HEAD"), Some("/metrics")) => ("200 OK", text),
        (true, Some("GET" | "HEAD"), Some("/")) => ("200 OK", "metrics are at /metrics\n"),
        (true, Some("GET" | "HEAD"), _) => ("404 Not Found", "metrics are at /metrics\n"),
        _ => ("405 Method Not Allowed", "this takes GET\n"),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {FORM}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let is_head = parsed.method == Some("HEAD");
    let body = if is_head { "" } else { body };
    [head.as_bytes(), body.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_host::{DoctorRequest, Observation};
    use mpps_host::{Loss, Scope, Station};
    use proptest::prelude::*;
    use std::iter;

    fn ledger_of(count: u64) -> Ledger {
        let mut ledger = Ledger::new(100 + count, 100, 0);
        ledger.lose(Loss {
            station: Station::Socket,
            reason: BUFFER_FULL.words.to_owned(),
            count,
            source: "Udp.RcvbufErrors".to_owned(),
            scope: Scope::Namespace,
            by_difference: false,
            exact: true,
        });
        ledger
    }

    #[test]
    fn a_new_exporter_tells_every_loss_of_zero() {
        insta::assert_snapshot!(text(iter::once(&ExporterTotals::default())));
    }

    /// One socket at this port with this number of drops.
    fn dropping(port: u16, drops: u32) -> Observation {
        let socket = mpps_os::netlink::sock_diag::UdpEntry {
            local: SocketAddr::from(([0, 0, 0, 0], port)),
            remote: None,
            only_v6: false,
            interface: 0,
            inode: port.into(),
            cookie: port.into(),
            user: 0,
            queued_bytes: 0,
            buffer_bytes: 1,
            unsent_bytes: 0,
            send_buffer_bytes: 212_992,
            drops,
        };
        Observation {
            sockets: vec![socket],
            client_ports: Some(32_768..=60_999),
            ..Observation::default()
        }
    }

    #[test]
    fn a_client_has_no_series_of_its_own() {
        let mut totals = ExporterTotals::default();
        for port in [40_000, 53] {
            let (before, after) = (Observation::default(), dropping(port, 10));
            let seen = Observed::new(&before, &after, None, DoctorRequest::default());
            totals.add(&seen, &ledger_of(10));
        }
        let text = text(iter::once(&totals));
        assert!(text.contains("port=\"53\"} 10\n"), "{text}");
        assert!(text.contains("port=\"other\"} 10\n"), "{text}");
        assert!(!text.contains("40000"), "{text}");
    }

    /// A socket also counts what its filter dropped: of the full buffers' drops it has its part.
    #[test]
    fn ports_share_what_full_buffers_cost() {
        let mut after = dropping(53, 300);
        after.sockets.extend(dropping(54, 100).sockets);
        let before = Observation::default();
        let mut totals = ExporterTotals::default();
        totals.add(
            &Observed::new(&before, &after, None, DoctorRequest::default()),
            &ledger_of(200),
        );
        let text = text(iter::once(&totals));
        assert!(
            text.contains("port=\"53\"} 150\n") && text.contains("port=\"54\"} 50\n"),
            "{text}"
        );
    }

    /// A veth counts by queue what came by NAPI, and lists its queues also without it.
    #[test]
    fn queues_that_count_nothing_are_not_believed() {
        let link = |packets, by_queue| {
            let mut link = mpps_host::LinkSnapshot::default();
            link.counters.rx_packets = packets;
            link.driver
                .insert("rx_queue_0_xdp_packets".to_owned(), by_queue);
            let mut facts = Observation::default();
            facts.snapshot.links.insert("eth0".to_owned(), link);
            facts
        };
        let whole = "mpps_interface_packets_total{interface=\"eth0\"} 7\n";
        let queue = "mpps_queue_packets_total{interface=\"eth0\",queue=\"0\"} 7\n";
        for (by_queue, has_queue) in [(0, false), (7, true)] {
            let (before, after) = (link(0, 0), link(7, by_queue));
            let mut totals = ExporterTotals::default();
            totals.add(
                &Observed::new(&before, &after, None, DoctorRequest::default()),
                &ledger_of(0),
            );
            let text = text(iter::once(&totals));
            assert!(text.contains(whole), "{text}");
            assert_eq!(text.contains(queue), has_queue, "{text}");
        }
    }

    /// A scrape with one series twice is refused as a whole.
    #[test]
    fn each_hostile_name_is_one_clean_series() {
        let facts = |packets| {
            let mut facts = Observation::default();
            for name in ["a\x1b[2J", "a\x07[2J", "b\"}\\", "br-0.1"] {
                let mut link = mpps_host::LinkSnapshot::default();
                link.counters.rx_packets = packets;
                facts.snapshot.links.insert(name.to_owned(), link);
            }
            facts
        };
        let (before, after) = (facts(0), facts(7));
        let mut totals = ExporterTotals::default();
        let seen = Observed::new(&before, &after, None, DoctorRequest::default());
        totals.add(&seen, &ledger_of(0));
        let text = text(iter::once(&totals));
        for label in [r"$'a\\033[2J'", r"$'a\\007[2J'", r#"'b\"}\\'"#, "br-0.1"] {
            let line = format!("mpps_interface_packets_total{{interface=\"{label}\"}} 7\n");
            assert_eq!(text.matches(&line).count(), 1, "{text}");
        }
        assert!(
            !text.contains(|one: char| one.is_control() && one != '\n'),
            "{text}"
        );
    }

    #[test]
    fn counts_add_up_and_ports_are_bounded() {
        let mut facts = Observation::default();
        let mut totals = ExporterTotals::default();
        for port in 1..=200_u16 {
            let before = facts.clone();
            // One of the ten was dropped by a socket that has been closed.
            facts.sockets = dropping(port, 9).sockets;
            let seen = Observed::new(&before, &facts, None, DoctorRequest::default());
            totals.add(&seen, &ledger_of(10));
        }
        assert_eq!(totals.delivered, 20_000);
        assert_eq!(totals.lost.values().sum::<u64>(), 2000, "each once");
        assert_eq!(totals.lost.len(), PORTS_MAX, "with `other`");
        assert!(text(iter::once(&totals)).contains("port=\"1\"} 9\n"));
    }

    #[test]
    fn a_request_gets_its_answer() {
        for (request, status) in [
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", "200"),
            ("GET /metrics?x=1 HTTP/1.0\r\n\r\n", "200"),
            ("GET / HTTP/1.1\r\n\r\n", "200"),
            ("GET /other HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics HTTP/1.1\r\n", "400"),
            ("\0", "400"),
            ("", "400"),
        ] {
            let answer = response(request.as_bytes(), "metrics");
            let answer = String::from_utf8(answer).expect("it is text");
            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{request:?}: {answer}"
            );
        }
        let head = response(b"HEAD /metrics HTTP/1.1\r\n\r\n", "metrics");
        assert!(head.ends_with(b"\r\n\r\n"));
    }

    #[test]
    fn labels_are_escaped() {
        let own = labels(&[("a", "x\"\\\n"), ("b", "")]);
        assert_eq!(own, "{a=\"x\\\"\\\\\\n\"}");
    }

    proptest! {
        #[test]
        fn no_request_panics(request: Vec<u8>) {
            let _ = response(&request, "metrics");
        }
    }
}
