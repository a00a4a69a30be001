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
pub mod hashing;
mod host;
pub(crate) mod journal;
mod kind;
mod leftover;
pub mod moderation;
mod outcome;
mod owner;
mod place;
pub mod preflight;
mod queues;
pub mod skb_defer;
pub mod tune;
mod value;

pub use applied::Applied;
pub use change::SettingChange;
pub use edit::Edit;
pub(crate) use host::LiveKernel;
pub use journal::read_journal;
pub(crate) use journal::{Journal, directory};
#[cfg(test)]
pub(crate) use kind::OfQueue;
pub use kind::program::SocketSize;
pub(crate) use kind::program::{BY_PROGRAM, ProgramSocket, RUNNING, UNREAD, spread_by, way_of};
pub(crate) use kind::{
    ALTERED, FEATURES, SettingHost, coalescings, coalescings_of, interface_file,
};
pub use kind::{Risk, Setting};
pub(crate) use leftover::leftovers_in;
pub use leftover::{Leftover, leftovers};
pub use outcome::{Undone, UndoneStep};
pub use owner::{Life, Owner};
pub use place::Place;
pub(crate) use place::SKB_DEFER_MAX;
pub use value::Value;
