//! The engine `epoll`: readiness, one system call for each step of a connection.

mod load;
mod serve;

use super::{Advice, Engine, EngineSupport};
use crate::Switch;

pub(super) const ENGINE: Engine = Engine {
    name: "epoll",
    support: |_| EngineSupport::Yes,
    switches,
    serve: serve::run,
    load: load::run,
};

/// Direct descriptors are io_uring's, so that `fds` is not among them.
fn switches() -> Vec<Advice> {
    let [affinity, moderation] = Advice::of_all();
    let buffers = "one receive buffer for each worker, and no allocation for a connection";
    let events = "accepted when the request is there (TCP_DEFER_ACCEPT) and read at once; who must \
                  wait is added once, edge-triggered, and never deleted";
    vec![
        affinity,
        moderation,
        Advice::helps(Switch::Buffers, buffers),
        Advice::helps(Switch::Events, events),
    ]
}
