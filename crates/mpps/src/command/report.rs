//! `mpps report FILE.json`.

use super::CommandEnding;
use crate::command::doctor::{self, Diagnosis, DoctorResult};
use crate::command::tune::{self, ProofResult, Proofs};
use crate::experiment::connections::result::{TcpLabBody, TcpLabResult};
use crate::experiment::ladder::placements::Placements;
use crate::experiment::ladder::result::{LAB_SCHEMA, LabResult};
use crate::experiment::receive_paths::ndr::{
    self,
    result::{NdrBody, NdrResult},
};
use crate::experiment::receive_paths::result::{BENCH_SCHEMA, BenchResult};
use crate::experiment::{connections, ladder, receive_paths};
use crate::input;
use crate::measure::envelope::{Envelope, EnvelopeBody, SchemaOnly};
use crate::output::{self, OutputStream, file::optional};
use crate::program::connections::{LoadBody, LoadResult, ServeBody, ServeResult};
use crate::program::{load, serve};
use crate::udp::traffic::{RECV_SCHEMA, RecvTotal, SEND_SCHEMA, SendTotal, document as traffic};
use anyhow::{Context, Result, anyhow};
use clap::Args;
use mpps_report::Document;
use serde_json::{Deserializer, Value};
use std::path::{Path, PathBuf};

/// Arguments of `mpps report`.
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Read this JSON file of lab, lab tcp, bench, ndr, placement, tune prove, doctor, recv, send, serve
    /// or load; - reads standard input
    pub(crate) file: PathBuf,
    /// Write a page to FILE instead of text to standard output
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Write the first bar chart to FILE as SVG, instead of text to standard output. Results of lab, lab
    /// tcp, bench, ndr and placement have charts
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<PathBuf>,
    /// Print Markdown instead of text, also with --html or --svg
    #[arg(long)]
    pub(crate) markdown: bool,
}

/// Makes the document of a result file. `files` names the file, as a kind and a path.
type Read = fn(text: &str, files: &[(&str, &Path)]) -> Result<Document>;

/// The schemas of the files that have a document.
const KINDS: &[(&str, Read)] = &[
    (LAB_SCHEMA, |text, files| {
        Ok(ladder::document::document(&LabResult::parse(text)?, files))
    }),
    (BENCH_SCHEMA, |text, files| {
        Ok(receive_paths::document(&BenchResult::parse(text)?, files))
    }),
    (NdrBody::SCHEMA, |text, files| {
        Ok(ndr::document(&NdrResult::parse(text)?, files))
    }),
    (TcpLabBody::SCHEMA, |text, files| {
        let result = TcpLabResult::parse(text)?;
        Ok(connections::document::document(&result, files))
    }),
    (Placements::SCHEMA, |text, files| {
        let result = Envelope::<Placements>::parse(text)?.into();
        Ok(ladder::document::document(&result, files))
    }),
    (Proofs::SCHEMA, |text, files| {
        Ok(tune::document(&ProofResult::parse(text)?, files))
    }),
    (Diagnosis::SCHEMA, |text, files| {
        Ok(doctor::document(&DoctorResult::parse(text)?, files))
    }),
    (LoadBody::SCHEMA, |text, _| {
        Ok(load::document::document(&LoadResult::parse(text)?))
    }),
    (RECV_SCHEMA, |text, _| {
        let total = RecvTotal::parse(text)?;
        let blocks = traffic::received(&total);
        let title = ("mpps recv: what came", &*total.version);
        let ran = (&*total.command, &*total.mode);
        Ok(traffic::document(title, ran, blocks, text))
    }),
    (SEND_SCHEMA, |text, _| {
        let total = SendTotal::parse(text)?;
        let blocks = traffic::sent(&total, None, None);
        let title = ("mpps send: what left", &*total.version);
        let ran = (&*total.command, &*total.mode);
        Ok(traffic::document(title, ran, blocks, text))
    }),
    (ServeBody::SCHEMA, |text, files| {
        let objects = Deserializer::from_str(text).into_iter::<Value>();
        let mut objects = objects.filter_map(Result::ok);
        let total = objects.find(|object| object["type"] == "total");
        let total = total.context("it has no totals: that server did not come to its end")?;
        let result = ServeResult::parse(&total.to_string())?;
        Ok(serve::document(&result, files))
    }),
];

/// Renders a result file: for a terminal, as Markdown, as a page.
pub(super) fn run(args: &ReportArgs) -> Result<CommandEnding> {
    let page = optional("--html", args.html.as_deref())?;
    let svg = optional("--svg", args.svg.as_deref())?;
    let name = || args.file.display().to_string();
    let document = document(&args.file).with_context(name)?;
    let picture = || {
        let picture = mpps_report::picture(&document);
        picture.with_context(|| format!("--svg: {} has no bar chart", name()))
    };
    let svg = match svg {
        Some(file) => Some((file, picture()?)),
        None => None,
    };
    if args.markdown {
        output::text(OutputStream::People, &mpps_report::markdown(&document))?;
    } else if page.is_none() && svg.is_none() {
        output::blocks(OutputStream::People, &document.blocks)?;
    }
    if let Some((file, picture)) = svg {
        file.write(picture.as_bytes())?;
    }
    if let Some(page) = page {
        page.write(mpps_report::page(&document).as_bytes())?;
    }
    Ok(CommandEnding::Fine)
}

fn document(path: &Path) -> Result<Document> {
    let text = input::text(path)?;
    // A file of lines names its schema in each of them.
    let first = Deserializer::from_str(&text).into_iter().next();
    let first = first.context("it is empty")?;
    let SchemaOnly { schema } = first.context("not a result of mpps")?;
    let kind = KINDS.iter().find(|(known, _)| *known == schema);
    let (_, read) = kind.ok_or_else(|| {
        let known: Vec<&str> = KINDS.iter().map(|(known, _)| *known).collect();
        let known = known.join(", ");
        anyhow!("its schema is {schema:?}, and this version of mpps shows {known}")
    })?;
    read(&text, &[("data", path)])
}
