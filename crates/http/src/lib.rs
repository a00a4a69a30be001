//! Many connections a second over the kernel's own TCP: an HTTP/1.1 server and a load generator.
//!
//! An [`Engine`] is a way to drive sockets; [`ENGINES`] has one row and one file for each. A
//! [`Switch`] is one way to reuse the resources of short connections. Each can be turned on by
//! itself.
#![forbid(unsafe_code)]

mod engine;
mod error;
mod load;
mod run;
mod serve;
mod server;
mod switch;
mod thread_counts;
mod threads;

pub use engine::{Advice, ENGINES, Engine, EngineSupport, Task};
pub use error::HttpError;
pub use load::{
    BadReply, Failure, LastHead, Latency, LoadAccount, LoadConfig, LoadLedger, LoadProgress,
    LoadReport, ReplyEnd, ReplyState, Response, Times, Url,
};
pub use run::HttpLoad;
#[doc(hidden)]
pub use serve::rehearse;
pub use serve::{Close, Ending, Limits, ServeCounters, ServedContent};
pub use server::{Granted, Opened, ServeConfig, Server, SwitchState};
pub use switch::{Switch, Switches};
