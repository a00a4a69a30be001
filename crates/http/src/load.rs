//! The load: many connections a second against one address, each accounted for.

mod chunks;
mod connections;
mod failure;
mod latency;
mod ledger;
mod pace;
mod report;
mod response;
mod tally;
mod url;
mod worker;

pub use failure::Failure;
pub use latency::{Latency, Times};
pub use ledger::LoadAccount;
pub use report::{LoadLedger, LoadProgress, LoadReport};
pub use response::{BadReply, LastHead, ReplyEnd, ReplyState, Response};
pub use url::Url;

pub(crate) use connections::{LoadStep, NextRequest};
pub(crate) use failure::errno;
pub(crate) use worker::{LoadRun, LoadWorker};

use crate::{Close, HttpError};
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Sockets of a thread that may be in closing, besides its connections.
pub(crate) const CLOSING_MAX: usize = 1024;
/// Descriptors that are no sockets of a load: rings, sets, files, the terminal.
const OTHERS: u64 = 256;

/// The configuration of a load.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadConfig {
    /// The URL to request.
    pub url: Url,
    /// The server.
    pub target: SocketAddr,
    /// Connections in flight.
    pub connections: usize,
    /// Requests per second to start, whatever the server does (open loop); none is as fast as it
    /// goes, each connection waiting for its reply (closed loop).
    pub rate: Option<f64>,
    /// How long; none until the requests are done, or until it is stopped.
    #[serde(skip)]
    pub duration: Option<Duration>,
    /// How many requests; none until the time is over.
    #[serde(skip)]
    pub requests: Option<u64>,
    /// Requests per connection: 1 closes after each, none never closes.
    pub requests_per_connection: Option<u64>,
    /// Own addresses, in turn, of several threads each its own; empty leaves the choice to the kernel.
    pub sources: Vec<IpAddr>,
    /// The side that ends a connection. If it is the server, and the last reply announces its
    /// close, the load waits for that. Other connections are closed from here.
    pub close: Close,
    /// Time for one request, connecting included.
    #[serde(rename = "timeout_seconds", with = "seconds")]
    #[schemars(with = "f64")]
    pub timeout: Duration,
    /// Threads.
    pub threads: usize,
    /// The CPUs of the threads, in turn; empty leaves them to the scheduler.
    pub cpus: Vec<usize>,
}

impl LoadConfig {
    /// Refuses what cannot be.
    pub(crate) fn check(&self) -> Result<(), HttpError> {
        let invalid = |field, value: String, why| Err(HttpError::invalid(field, value, why));
        if self.connections == 0 || u32::try_from(self.connections).is_err() {
            let value = self.connections.to_string();
            return invalid("connections", value, "there must be one at least");
        }
        if self.threads == 0 || self.threads > self.connections {
            let why = "there must be one at least, and a connection for each";
            return invalid("threads", self.threads.to_string(), why);
        }
        if let Some(rate) = self.rate.filter(|rate| !(1e-6..=1e9).contains(rate)) {
            return invalid(
                "rate",
                rate.to_string(),
                "it is from 0.000001 to 1000000000",
            );
        }
        if self.requests == Some(0) {
            return invalid("requests", "0".to_owned(), "there must be one at least");
        }
        if self.requests_per_connection == Some(0) {
            return invalid(
                "requests_per_connection",
                "0".to_owned(),
                "1 closes after each request",
            );
        }
        if self.timeout.is_zero() {
            return invalid("timeout", "0".to_owned(), "nothing is that fast");
        }
        // Its parts may have been set since it was read.
        if Url::parse(&self.url.to_string())? != self.url {
            return invalid("url", self.url.to_string(), "its parts do not make it");
        }
        let foreign = |source: &&IpAddr| source.is_ipv4() != self.target.is_ipv4();
        if let Some(source) = self.sources.iter().find(foreign) {
            let why = format!("{} is of the other family", self.target.ip());
            return invalid("sources", source.to_string(), &why);
        }
        Ok(())
    }

    /// Sees to it that the process may have as many sockets. Slots of a ring are limited as
    /// descriptors are, and a ring has some besides for those that are being closed.
    pub(crate) fn allow_sockets(&self) -> Result<(), HttpError> {
        let wanted = self.connections as u64 + CLOSING_MAX as u64 + OTHERS;
        let allowed = mpps_os::limit::allow_descriptors(wanted)?;
        if allowed >= wanted {
            return Ok(());
        }
        let why = format!("this process may have {allowed} descriptors, not {wanted}: ulimit -n");
        Err(HttpError::invalid("connections", self.connections, why))
    }
}

/// A time as a result file has it.
mod seconds {
    use super::{Deserialize, Deserializer, Duration, Serializer, de::Error};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_f64(time.as_secs_f64())
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Duration, D::Error> {
        Duration::try_from_secs_f64(f64::deserialize(from)?).map_err(Error::custom)
    }
}

/// A request as it goes out.
fn request_text(config: &LoadConfig, is_last: bool) -> Vec<u8> {
    let connection = if is_last { "Connection: close\r\n" } else { "" };
    format!(
        "GET {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: mpps/{}\r\nAccept: */*\r\n{connection}\r\n",
        config.url.path,
        config.url.authority(),
        env!("CARGO_PKG_VERSION"),
    )
    .into_bytes()
}

/// A load of four connections without an end, for tests.
#[cfg(test)]
fn endless() -> LoadConfig {
    LoadConfig {
        target: ([127, 0, 0, 1], 80).into(),
        url: Url::parse("http://localhost/").unwrap(),
        connections: 4,
        rate: None,
        duration: None,
        requests: None,
        requests_per_connection: Some(1),
        sources: Vec::new(),
        close: Close::Server,
        timeout: Duration::from_secs(10),
        threads: 1,
        cpus: Vec::new(),
    }
}
