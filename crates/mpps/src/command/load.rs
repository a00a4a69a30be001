//! `mpps load`: arguments → plan.

use super::{CommandEnding, engine};
mod args;

use crate::output::file::optional;
use crate::output::{self, OutputStream};
use crate::program::load::{LoadPlan, ab, document::document};
use anyhow::{Context, Result, ensure};
pub(super) use args::LoadArgs;
use mpps_host::Topology;
use mpps_http::{LoadConfig, Task, Url};
use mpps_report::page;
use std::net::UdpSocket;
use std::time::Duration;

/// The length of a load, if the user sets no limit.
const DURATION: Duration = Duration::from_secs(10);

/// Runs the load, and shows the result.
pub(super) fn run(args: LoadArgs) -> Result<CommandEnding> {
    let plan = plan(&args)?;
    let lines = args.json.begin()?;
    let file = optional("--html", args.html.as_deref())?;
    let result = plan.run()?;
    let document = document(&result);
    if let Some(file) = file {
        file.write(page(&document).as_bytes())?;
    }
    match args.ab {
        true => {
            output::text(OutputStream::People, &ab::report(&result))?;
            // No lines of ab's, and yet to be known.
            for note in &result.found.notes {
                output::line(OutputStream::Err, &format!("note: {note}"))?;
            }
        }
        false => lines.tell(&document.blocks)?,
    }
    lines.object(&result)?;
    Ok(CommandEnding::of(result.complete, result.found.is_clean()))
}

fn plan(args: &LoadArgs) -> Result<LoadPlan> {
    let (engine, chosen) = engine::choose(args.engine.as_deref(), Task::Load)?;
    if let Some(pin) = &args.pin {
        Topology::read()?.check(pin).context("--pin")?;
    }
    let url = Url::parse(&args.url)?;
    let target = url.resolve()?;
    for source in &args.source {
        ensure!(
            source.is_ipv4() == target.is_ipv4(),
            "--source {source}: {} has an address of the other family, {}",
            url.host,
            target.ip()
        );
        // An address that cannot be bound would fail for each connection.
        UdpSocket::bind((*source, 0)).map_err(|error| {
            anyhow::anyhow!("--source {source}: {error}; `ip address` lists this host's own")
        })?;
    }
    let bounded = args.duration.is_some() || args.requests.is_some();
    let config = LoadConfig {
        url,
        target,
        connections: usize::try_from(args.connections).unwrap_or(usize::MAX),
        rate: args.rate,
        duration: args.duration.or((!bounded).then_some(DURATION)),
        requests: args.requests,
        requests_per_connection: match args.keep_alive {
            None => Some(1),
            Some(0) => None,
            count => count,
        },
        sources: args.source.clone(),
        close: args.close,
        timeout: args.timeout,
        threads: usize::from(args.threads),
        cpus: args.pin.as_ref().map_or_else(Vec::new, |pin| pin.0.clone()),
    };
    Ok(LoadPlan {
        engine,
        config,
        chosen,
    })
}
