//! `mpps backends`: the table of ways to receive and send, and what an interface can.

mod interface;

use super::Outcome;
use crate::args::BackendsArgs;
use crate::output::{self, Stream};
use crate::report::table::{self, Cell, Paint};
use anyhow::Result;
use mpps_host::technique::HostFacts;
use mpps_io::backend::{Backend, Support};
use mpps_io::{BACKENDS, Layer};
use serde::Serialize;

/// The version of the form of `--json`.
const SCHEMA: &str = "mpps.backends.v1";

/// Prints one line per row of the table, or per technique of an interface.
pub(super) fn run(args: &BackendsArgs) -> Result<Outcome> {
    if let Some(name) = &args.interface {
        interface::run(name, args.json)?;
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
    const HEADINGS: [&str; 4] = ["backend", "direction", "usable", "packets are"];
    let longest = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let widths = [longest.max(HEADINGS[0].len()), 10, 6, 12];
    let room = width
        .saturating_sub(widths.iter().sum::<usize>() + 9)
        .max(20);
    let line = |cells: [&str; 4], last: &str, usable: Paint| {
        let mut cells: Vec<Cell> = cells
            .iter()
            .zip(widths)
            .map(|(text, width)| Cell::left(*text, width))
            .collect();
        cells[2].paint = usable;
        cells.push(Cell::left(last, room));
        table::row(&cells, colour)
    };
    let mut text = line(HEADINGS, "what it is", Paint::Plain);
    for row in rows {
        let direction = match (row.receives, row.sends) {
            (true, true) => "recv, send",
            (true, false) => "recv",
            _ => "send",
        };
        let (usable, paint) = match row.usable {
            true => ("yes", Paint::Good),
            false => ("no", Paint::Bad),
        };
        let summary = match (&row.why, &row.remedy) {
            (Some(why), Some(remedy)) => format!("{} ({why}; {remedy})", row.summary),
            _ => row.summary.to_owned(),
        };
        text += &line([row.name, direction, usable, row.layer], &summary, paint);
    }
    text.push('\n');
    for fact in facts(host) {
        text += &table::paragraph(&fact, width, 3, Paint::Plain, colour);
    }
    let hint = "`mpps backends IF` tells which techniques an interface has";
    text + &table::paragraph(hint, width, 3, Paint::Faint, colour)
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
    vec![
        format!("kernel: {}", host.kernel),
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
