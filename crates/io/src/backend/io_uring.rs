//! io_uring: one standing request receives into provided buffers; sends without a copy.

mod rx;
mod tx;

use super::socket::socket_rx_fields;
use super::{Backend, Layer, Support};
use mpps_os::uring;

pub(super) const BACKEND: Backend = Backend {
    name: "io_uring",
    summary: "one standing request fills provided buffers; zero-copy sends",
    needs: "Linux 6.1, and io_uring not forbidden",
    layer: Layer::Payload,
    takes_nic: false,
    in_process: false,
    probe,
    rx_fields: socket_rx_fields!("ring.frames"),
    tx_fields: &[
        "gso_segments",
        "send_buffer_bytes",
        "connect = false",
        "flows",
        "ring.copy",
    ],
    rx: Some(rx::open),
    tx: Some(tx::open),
};

fn probe() -> Support {
    match uring::probe() {
        Ok(()) => Support::Yes,
        Err(error) => Support::no(error.to_string(), uring::remedy(&error)),
    }
}
