//! Servers that cannot start, and workers that fail.

use super::*;
use crate::serve::{Limits, ServedContent};
use crate::{Engine, Switches};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

fn config(engine: &'static Engine, workers: usize) -> ServeConfig {
    ServeConfig {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        engine,
        switches: Switches::NONE,
        content: ServedContent::Size(1),
        close: Close::Server,
        limits: Limits::default(),
        workers,
        cpus: Vec::new(),
        drain_time: Duration::ZERO,
    }
}

#[test]
fn a_head_of_no_bytes_is_refused() {
    let mut config = config(&crate::ENGINES[0], 1);
    config.limits.head_bytes = 0;
    let error = Server::start(&config).expect_err("nobody could be served");
    assert!(
        error.to_string().starts_with("limits.head_bytes 0: "),
        "{error}"
    );
}

/// Whether the worker that did not panic was stopped.
static TOLD: AtomicBool = AtomicBool::new(false);

/// The first worker panics, the others wait to be stopped.
fn panic_once(mut worker: ServeWorker) -> Result<(), HttpError> {
    worker.ready();
    assert!(worker.index > 0, "the panic of this test");
    for _ in 0..2_000 {
        if worker.stage() == ServeStage::Stopped {
            TOLD.store(true, Ordering::Relaxed);
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

#[test]
fn a_worker_that_panics_stops_the_others() {
    static PANICS: std::sync::OnceLock<Engine> = std::sync::OnceLock::new();
    let engine = PANICS.get_or_init(|| Engine {
        serve: panic_once,
        ..crate::ENGINES[0]
    });
    let server = Server::start(&config(engine, 2)).expect("both are ready before one panics");
    let ended = catch_unwind(AssertUnwindSafe(|| server.wait()));
    assert!(ended.is_err(), "the panic is told");
    assert!(TOLD.load(Ordering::Relaxed));
}
