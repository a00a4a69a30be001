//! What the 2014 paper "A Performance Improvement of Linux TCP Networking by Data Structure Reuse"
//! reports, as far as it can stand beside a cell.
//!
//! Its server was a 3.4 GHz desktop with a 10G card and Linux 3.4, its load came from eight CPUs of
//! another machine. Only its gains can be compared, not its figures.

use mpps_http::Switch;

/// The paper's settings of interrupt moderation in interrupts per second, with what it says of
/// each against the driver's own, which adapted itself.
pub(super) const MODERATION: &[(u32, Option<&str>)] = &[
    (1_000, Some("+15 % over the driver's dynamic setting")),
    (2_000, None),
    (4_000, None),
    (10_000, None),
    (20_000, None),
    (50_000, None),
    (100_000, None),
    (200_000, None),
    (400_000, Some("-16 % against the driver's dynamic setting")),
];

/// What it says of moderation switched off.
pub(super) const UNMODERATED: &str = "-21 % against the driver's dynamic setting";

/// What it says of a step over the one before.
pub(super) fn step(switch: Switch) -> &'static str {
    match switch {
        Switch::Affinity => "+6 %",
        Switch::Moderation => "+15 %",
        Switch::Buffers => "+5 %",
        Switch::Fds => "+7 %",
        Switch::Events => "+6 %",
    }
}

/// What it says of all five together, for a server like this one.
pub(super) fn all(server: &str) -> Option<&'static str> {
    if server.starts_with("mpps") {
        Some("+40 % all five")
    } else if server == "lighttpd" {
        Some("+36 % all five, in a changed kernel")
    } else if server.starts_with("apache") {
        Some("+20 % all five, in a changed kernel")
    } else {
        None
    }
}
