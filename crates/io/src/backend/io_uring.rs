//! io_uring: one standing request receives into provided buffers; sends without a copy.

mod rx;
mod tx;

use super::{Backend, Layer, Support};
use mpps_os::limit::LOCKED_MEMORY_REMEDY;
use std::io;

pub(super) const BACKEND: Backend = Backend {
    name: "io_uring",
    summary: "one standing request fills provided buffers; zero-copy sends",
    needs: "Linux 6.1, and io_uring not forbidden",
    layer: Layer::Payload,
    takes_nic: false,
    in_process: false,
    probe,
    rx_options: &[
        "--gro",
        "--busy-poll",
        "--reuseport",
        "--join",
        "--rcvbuf",
        "--buffer",
        "sources",
        "answers",
        "--ring",
    ],
    tx_options: &["--gso", "--sndbuf", "--no-connect", "--flows", "--copy"],
    rx: Some(rx::open),
    tx: Some(tx::open),
};

/// `EPERM`, `EINVAL` and `ENOSYS` of include/uapi/asm-generic/errno.h.
const EPERM: i32 = 1;
const EINVAL: i32 = 22;
const ENOSYS: i32 = 38;

fn probe() -> Support {
    let Err(error) = mpps_os::uring::probe() else {
        return Support::Yes;
    };
    let remedy = match error.errno() {
        Some(EPERM) => {
            "allow it: sysctl kernel.io_uring_disabled=0, and no seccomp filter against it"
        }
        Some(ENOSYS) => "a kernel with CONFIG_IO_URING, and no seccomp filter against it",
        Some(EINVAL) => "Linux 6.1 or later",
        _ if error.source.kind() == io::ErrorKind::OutOfMemory => LOCKED_MEMORY_REMEDY,
        _ => "see io_uring_setup(2)",
    };
    Support::no(error.to_string(), remedy)
}
