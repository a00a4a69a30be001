//! Chooses the engine of `mpps-http` if the user names none.

use crate::failure::flags::HTTP;
use anyhow::{Context, Result};
use mpps_http::{ENGINES, Engine, EngineSupport, Task};

/// The engine of that name; or, without one, the last of the table that this kernel can run for
/// the task, with a sentence that says so.
///
/// # Errors
/// A name that there is not, or an engine that this kernel lacks; no engine at all.
pub(super) fn choose(name: Option<&str>, task: Task) -> Result<(&'static Engine, Option<String>)> {
    if let Some(name) = name {
        let engine = Engine::find(name).context("--engine")?;
        engine.require(task).context("--engine")?;
        return Ok((engine, None));
    }
    let mut missing = Vec::new();
    for engine in ENGINES.iter().rev() {
        match (engine.support)(task) {
            EngineSupport::Yes if missing.is_empty() => return Ok((engine, None)),
            EngineSupport::Yes => {
                let why = missing.join("; ");
                let name = engine.name;
                return Ok((engine, Some(format!("engine {name}, because {why}"))));
            }
            EngineSupport::No { why, remedy } => {
                let missed = format!("{} cannot run here: {why}; {remedy}", engine.name);
                missing.push(HTTP.translate(&missed));
            }
        }
    }
    anyhow::bail!("no engine can run here: {}", missing.join("; "))
}
