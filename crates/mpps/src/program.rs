//! Programs that run until they are stopped.

/// A program whose UDP port AF_XDP serves.
pub(crate) mod accelerate;
/// The results of `serve` and `load`, as `--json` writes them.
pub mod connections;
/// Containers, by process, ID or name.
pub(crate) mod container;
/// Which host is looked at.
pub(crate) mod host;
/// Lines that a program prints while it runs.
pub(crate) mod lines;
/// Many connections a second to a web server.
pub(crate) mod load;
/// Rates over measured intervals.
pub(crate) mod meter;
/// Receives UDP and counts it.
pub(crate) mod recv;
/// Arguments about rings over an interface.
pub(crate) mod ring;
/// UDP as fast as asked or possible.
pub(crate) mod send;
/// An HTTP/1.1 server for many short connections.
pub(crate) mod serve;
/// A process that keeps the rights which a program gives up.
pub(crate) mod undo_helper;
