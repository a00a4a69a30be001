//! Settings of the host: read, changed as a list, and put back.
//!
//! A [`Setting`] is one thing that can be read and written. An [`Edit`] takes it from its old value
//! to a new one. A [`SettingChange`] is a list of edits. These settings stay when a process dies. So the
//! journal has every edit on disk before it is made. An [`Applied`] change puts the old values back
//! when it is dropped, the last one first. `mpps undo` does so for a process that was killed
//! ([`leftovers`]). A setting that another program has changed meanwhile is reported and left as it
//! is.

pub(crate) mod applied;
pub mod carve_out;
mod change;
mod defer_lists;
mod edit;
#[cfg(test)]
pub(crate) mod fake;
pub mod fixing;
pub mod hashing;
mod host;
pub(crate) mod journal;
mod leftover;
pub mod moderation;
mod of_program;
mod of_queue;
mod outcome;
mod owner;
pub mod preflight;
mod primitive;
mod queues;
pub mod skb_defer;
pub mod tune;
mod untracked;

pub use applied::Applied;
pub use change::SettingChange;
pub use edit::Edit;
pub(crate) use host::{LiveKernel, SettingHost, coalescings_of};
pub use journal::read_journal;
pub(crate) use journal::{Journal, directory};
pub(crate) use leftover::leftovers_in;
pub use leftover::{Leftover, leftovers};
#[cfg(test)]
pub(crate) use of_queue::OfQueue;
pub use outcome::{Undone, UndoneStep};
pub use owner::{Life, Owner};
pub(crate) use primitive::{FEATURES, SKB_DEFER_MAX, coalescings};
pub use primitive::{Setting, Value};
pub(crate) use untracked::ALTERED;
