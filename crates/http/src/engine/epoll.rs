//! The engine `epoll`: readiness, one system call for each step of a connection.

mod load;
mod serve;

use super::{Advice, Engine, Support};
use crate::Switch;

pub(super) const ENGINE: Engine = Engine {
    name: "epoll",
    summary: "epoll(7): one system call for each step of a connection",
    probe: || Support::Yes,
    can: |_| Support::Yes,
    switches,
    limited: |advice, _| advice,
    serve: serve::run,
    load: load::run,
};

/// Direct descriptors are io_uring's, so that `fds` is not among them.
fn switches() -> Vec<Advice> {
    vec![
        Advice::affinity(),
        Advice::moderation(),
        Advice {
            switch: Switch::Buffers,
            what: "one receive buffer for each worker, and no allocation for a connection",
            helps: true,
            why_not: "",
            possible: true,
        },
        Advice {
            switch: Switch::Events,
            what: "accepted when the request is there (TCP_DEFER_ACCEPT) and read at once; who must \
                   wait is added once, edge-triggered, and never deleted",
            helps: true,
            why_not: "",
            possible: true,
        },
    ]
}
