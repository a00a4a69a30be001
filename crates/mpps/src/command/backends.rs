//! `mpps backends`: the table of ways to receive and send, and what an interface can.

mod interface;

use super::Outcome;
use crate::args::BackendsArgs;
use crate::output::{self, Stream};
use anyhow::Result;
use mpps_host::technique::HostFacts;
use mpps_io::backend::{Backend, Support};
use mpps_io::{BACKENDS, Layer};
use mpps_report::{self as report, Block, Column, Table, Terminal, Text};
use serde::Serialize;

/// The version of the form of `--json`.
const SCHEMA: &str = "mpps.backends.v1";

/// Prints one line per row of the table, or per technique of an interface.
pub(super) fn run(args: &BackendsArgs) -> Result<Outcome> {
    if let Some(name) = &args.interface {
        interface::run(name, args)?;
        return Ok(Outcome::Fine);
    }
    let host = HostFacts::gather();
    let rows: Vec<Row> = BACKENDS.iter().map(Row::new).collect();
    if args.json {
        let whole = Whole {
            schema: SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            backends: rows,
            host,
        };
        output::line(Stream::Out, &serde_json::to_string_pretty(&whole)?)?;
    } else {
        let text = text(&rows, &host, output::width(), output::colour());
        output::line(Stream::Out, text.trim_end())?;
    }
    Ok(Outcome::Fine)
}

/// What `--json` writes without an interface.
#[derive(Debug, Serialize)]
struct Whole {
    schema: &'static str,
    version: &'static str,
    backends: Vec<Row>,
    host: HostFacts,
}

/// One backend of this build.
#[derive(Debug, Serialize)]
struct Row {
    name: &'static str,
    receives: bool,
    sends: bool,
    usable: bool,
    why: Option<String>,
    remedy: Option<String>,
    layer: &'static str,
    summary: &'static str,
}

impl Row {
    fn new(backend: &Backend) -> Self {
        let (usable, why, remedy) = match (backend.probe)() {
            Support::Yes => (true, None, None),
            Support::No { why, remedy } => (false, Some(why), Some(remedy)),
        };
        Self {
            name: backend.name,
            receives: backend.receives(),
            sends: backend.sends(),
            usable,
            why,
            remedy,
            layer: match backend.layer {
                Layer::Payload => "UDP payloads",
                Layer::Frame => "frames",
            },
            summary: backend.summary,
        }
    }
}

fn text(rows: &[Row], host: &HostFacts, width: usize, colour: bool) -> String {
    let longest = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let columns = [
        Column::words("backend", longest.max(7)),
        Column::words("direction", 10),
        Column::words("usable", 6),
        Column::words("packets are", 12).priority(1),
        Column::words("what it is", 20).grow(400).priority(1),
    ];
    let rows = rows.iter().map(|row| {
        let direction = match (row.receives, row.sends) {
            (true, true) => "recv, send",
            (true, false) => "recv",
            _ => "send",
        };
        let summary = match (&row.why, &row.remedy) {
            (Some(why), Some(remedy)) => format!("{} ({why}; {remedy})", row.summary),
            _ => row.summary.to_owned(),
        };
        report::Row::new([
            row.name.into(),
            direction.into(),
            Text::new()
                .flag(row.usable, if row.usable { "yes" } else { "no" })
                .into(),
            row.layer.into(),
            summary.into(),
        ])
    });
    let mut blocks = vec![Block::from(Table::new(columns).rows(rows))];
    blocks.extend(facts(host).into_iter().map(Block::paragraph));
    let hint = "`mpps backends IF` tells which techniques an interface has";
    blocks.push(Block::Paragraph(Text::new().faint(hint)));
    Terminal::new(width, colour).blocks(&blocks)
}

/// The facts of the host, for people.
fn facts(host: &HostFacts) -> Vec<String> {
    let setting = |name: &str, value: Option<u32>| {
        let value = value.map_or_else(|| "not there".to_owned(), |value| value.to_string());
        format!("{name}: {value}")
    };
    let list = |mut names: Vec<String>| match names.is_empty() {
        true => "none".to_owned(),
        false => {
            names.sort();
            names.join(", ")
        }
    };
    let pages = host.huge_pages;
    let kernel = match host.without_tcx() {
        Some(lacking) => format!("kernel: {}; packet_mmap {lacking}", host.kernel),
        None => format!("kernel: {}", host.kernel),
    };
    vec![
        kernel,
        setting("kernel.io_uring_disabled", host.io_uring_disabled),
        setting(
            "kernel.unprivileged_bpf_disabled",
            host.unprivileged_bpf_disabled,
        ),
        format!(
            "huge pages: {} of {} free, of {} KiB",
            pages.free,
            pages.total,
            pages.size_bytes / 1024
        ),
        format!("IOMMU groups: {}", if host.iommu { "yes" } else { "none" }),
        format!(
            "modules for bypass: {}",
            list(host.modules.iter().cloned().collect())
        ),
        format!(
            "devices, programs and kernel files: {}",
            list(host.files.iter().cloned().collect())
        ),
    ]
}
