//! `mpps backends`: the table of ways to receive and send, and what an interface can.

mod interface;
mod preflight;

use super::CommandEnding;
use crate::program::lines::JsonArgs;
use anyhow::Result;
use clap::Args;
use interface::OfInterface;
use mpps_host::facts::receive_path::HostFacts;
use mpps_io::backend::{Backend, Support};
use mpps_io::{BACKENDS, Layer};
use mpps_report::{self as report, Block, Column, Table, Text};
use preflight::Preflight;
use schemars::JsonSchema;
use serde::Serialize;

/// Arguments of `mpps backends`.
#[derive(Debug, Args)]
pub(crate) struct BackendsArgs {
    /// List all receive paths that mpps knows, and which work on this interface; for some, another program
    /// is needed [default: list the paths of mpps on this host]
    #[arg(value_name = "IF")]
    pub(crate) interface: Option<String>,
    /// Test AF_XDP on queue 0 of IF in the modes zero-copy, copy and generic, without taking packets.
    /// Needs root. Some cards lose their link for seconds
    #[arg(long = "try", requires = "interface")]
    pub(crate) tries: bool,
    /// Predict how BACKEND will work on the interface. Attaches nothing and needs no rights
    #[arg(long = "for", value_name = "BACKEND", value_parser = ["af_xdp"],
        requires = "interface", conflicts_with = "tries")]
    pub(crate) goal: Option<String>,
    #[command(flatten)]
    pub(crate) json: JsonArgs,
}

/// Result of `mpps backends --json`: without an interface the backends of this build and the host;
/// with one every technique, judged for it, and the facts that the judgement rests on; with `--for` what
/// will happen when that comes.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum BackendsObject {
    /// Without an interface.
    Host(OfHost),
    /// Of an interface.
    Interface(Box<OfInterface>),
    /// The expected behaviour of AF_XDP on an interface.
    Preflight(Box<Preflight>),
}

impl BackendsObject {
    /// The version of this form.
    pub const SCHEMA: &'static str = "mpps.backends.v1";
}

/// Prints one line per row of the table, or per technique of an interface.
pub(super) fn run(args: &BackendsArgs) -> Result<CommandEnding> {
    let lines = args.json.begin()?;
    let found = match &args.interface {
        Some(name) if args.goal.is_some() => {
            BackendsObject::Preflight(Box::new(Preflight::read(name)?))
        }
        Some(name) => BackendsObject::Interface(Box::new(OfInterface::judge(name, args.tries)?)),
        None => BackendsObject::Host(OfHost {
            schema: BackendsObject::SCHEMA,
            version: env!("CARGO_PKG_VERSION"),
            backends: BACKENDS.iter().map(BackendRow::new).collect(),
            host: HostFacts::gather(),
        }),
    };
    lines.found(&found, || match &found {
        BackendsObject::Host(found) => found.blocks(),
        BackendsObject::Interface(found) => found.blocks(),
        BackendsObject::Preflight(found) => found.blocks(),
    })?;
    Ok(match &found {
        BackendsObject::Preflight(found) if !found.is_ready() => CommandEnding::Found,
        _ => CommandEnding::Fine,
    })
}

/// The backends of this build, and the host.
#[derive(Debug, Serialize, JsonSchema)]
pub struct OfHost {
    /// [`BackendsObject::SCHEMA`].
    schema: &'static str,
    /// The version of mpps.
    version: &'static str,
    /// The backends of this build.
    #[schemars(length(min = 1))]
    backends: Vec<BackendRow>,
    /// The host.
    host: HostFacts,
}

/// One backend of this build.
#[derive(Debug, Serialize, JsonSchema)]
struct BackendRow {
    /// Its name, as `--backend` takes it.
    name: &'static str,
    /// `mpps recv` can use it.
    receives: bool,
    /// `mpps send` can use it.
    sends: bool,
    /// This user can open it on this host; a ring still needs an interface that can.
    usable: bool,
    /// Why not, if not.
    why: Option<String>,
    /// The remedy, if it is not usable.
    remedy: Option<String>,
    /// The data that it delivers.
    #[schemars(extend("enum" = ["UDP payloads", "frames"]))]
    layer: &'static str,
    /// A description in one sentence.
    summary: &'static str,
}

impl BackendRow {
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

impl OfHost {
    fn blocks(&self) -> Vec<Block> {
        let longest = self.backends.iter().map(|row| row.name.len()).max();
        let columns = [
            Column::words("backend", longest.unwrap_or(0).max(7)),
            Column::words("direction", 10),
            Column::words("usable", 6),
            Column::words("packets are", 12).priority(1),
            Column::words("what it is", 20).grow(400).priority(1),
        ];
        let rows = self.backends.iter().map(|row| {
            let direction = match (row.receives, row.sends) {
                (true, true) => "recv, send",
                (true, false) => "recv",
                _ => "send",
            };
            let summary = match (&row.why, &row.remedy) {
                (Some(why), Some(remedy)) => format!("{} ({why}; {remedy})", row.summary),
                _ => row.summary.to_owned(),
            };
            let usable = Text::new().flag(row.usable, if row.usable { "yes" } else { "no" });
            report::Row::new([
                row.name.into(),
                direction.into(),
                usable.into(),
                row.layer.into(),
                summary.into(),
            ])
        });
        let mut blocks = vec![Block::from(Table::new(columns).rows(rows))];
        blocks.extend(facts(&self.host).into_iter().map(Block::paragraph));
        let hint = "`mpps backends IF` shows which techniques an interface has";
        blocks.push(Block::Paragraph(Text::new().faint(hint)));
        blocks
    }
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
