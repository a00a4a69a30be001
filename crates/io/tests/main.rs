//! Backends against the kernel and against each other: over loopback, in namespaces and in labs.

/// Functions, each with its name.
macro_rules! named {
    ($kind:ty; $($test:ident),+ $(,)?) => { [$((stringify!($test), $test as $kind)),+] };
}

mod af_xdp;
mod conformance;
#[cfg(feature = "dpdk")]
mod dpdk;
mod examples;
mod filter;
mod generator;
mod link;
mod paced_tx;
mod tap;
#[cfg(feature = "tokio")]
mod tokio;
mod worker;

use mpps_io::backend::{self, Support};
use mpps_lab::{Delivery, Lab, LabConfig};
use mpps_trial::Failed;
use std::process::ExitCode;
use std::sync::OnceLock;

fn main() -> ExitCode {
    if let Some(code) = af_xdp::play().or_else(conformance::play) {
        return code;
    }
    let trials = [
        af_xdp::trials(),
        conformance::trials(),
        #[cfg(feature = "dpdk")]
        dpdk::trials(),
        examples::trials(),
        filter::trials(),
        generator::trials(),
        link::trials(),
        tap::trials(),
        #[cfg(feature = "tokio")]
        tokio::trials(),
        worker::trials(),
    ];
    mpps_trial::run(trials.into_iter().flatten().collect())
}

/// Whether this machine can use a row of the table.
fn can(row: &str) -> Result<(), String> {
    match backend::find(row).map(|row| (row.probe)()) {
        Ok(Support::Yes) => Ok(()),
        Ok(Support::No { why, .. }) => Err(why),
        Err(error) => Err(error.to_string()),
    }
}

/// The lab of this process, made when it is first asked for.
fn lab() -> Result<&'static Lab, String> {
    static LAB: OnceLock<Result<Lab, String>> = OnceLock::new();
    // The sender serves the ring, and cannot overrun it, however busy the machine is.
    let config = LabConfig {
        delivery: Delivery::SoftInterrupt,
        ..LabConfig::default()
    };
    let lab = || Lab::new(&config).map_err(|error| error.to_string());
    LAB.get_or_init(lab).as_ref().map_err(Clone::clone)
}

/// Whether this machine can have a lab.
fn has_lab() -> Result<(), String> {
    lab().map(drop)
}

/// Fails unless both are equal.
fn check<T: PartialEq + std::fmt::Debug>(got: T, want: T, what: &str) -> Result<(), Failed> {
    if got == want {
        return Ok(());
    }
    Err(format!("{what}: {got:?} and not {want:?}").into())
}
