//! One run of UDP datagrams: who receives, who sends, and where every packet went.

pub(crate) mod account;
pub(crate) mod arriving;
pub(crate) mod far_sender;
/// Names the bottleneck of a run, from counters.
pub(crate) mod limit;
/// The ways to receive.
pub(crate) mod path;
pub(crate) mod roles;
mod rotation;
pub(crate) mod run;
/// The repeated runs of one thing.
pub mod runs;
/// Queues, UDP and CPUs over a second.
pub mod screens;
pub(crate) mod sender;
pub(crate) mod throttle;
/// The results of `recv` and `send`, as `--json` writes them.
pub mod traffic;
pub(crate) mod trial;
/// How a receiver waited.
pub mod waited;

pub use limit::Limit;
pub use path::TakenBy;
pub use run::RATE_DEFINITION;
