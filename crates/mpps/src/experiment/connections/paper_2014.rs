//! Figures of a 2014 paper, as far as they compare with a cell: "A Performance Improvement of Linux
//! TCP Networking by Data Structure Reuse".
//!
//! Its server was a 3.4 GHz desktop with a 10G card and Linux 3.4. Its load came from eight CPUs of
//! another machine. Only its gains can be compared, not its figures.

use mpps_http::Switch;
use std::fmt;

/// A setting of interrupt moderation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rate {
    /// So many interrupts per second at the most.
    PerSecond(u32),
    /// As many as there are packets.
    Off,
    /// As many as the driver thinks right.
    Adaptive,
}

/// The paper's settings, with what its first experiment says of each.
pub(super) const MODERATION: [(Rate, Option<&str>); 8] = [
    (Rate::PerSecond(1_000), Some("+15 % over adaptive")),
    (Rate::PerSecond(1_900), None),
    (Rate::PerSecond(4_000), None),
    (Rate::PerSecond(10_000), None),
    (Rate::PerSecond(19_000), None),
    (Rate::PerSecond(400_000), Some("-16 % against adaptive")),
    (Rate::Off, Some("-21 % against adaptive")),
    (Rate::Adaptive, None),
];

/// The paper's second table about a setting, by the name of its step.
pub(super) fn trade(step: &str) -> Option<&'static str> {
    match step {
        "1000 per s" => Some("highest latency, high throughput, lowest CPU"),
        "10000 per s" => Some("low latency, high throughput, high CPU"),
        "off" => Some("lowest latency, throughput varies, highest CPU"),
        _ => None,
    }
}

/// The name of its step.
impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PerSecond(rate) => write!(f, "{rate} per s"),
            Self::Off => f.write_str("off"),
            Self::Adaptive => f.write_str("adaptive"),
        }
    }
}

/// The paper's gain of a step over the one before.
pub(super) fn step(switch: Switch) -> &'static str {
    match switch {
        Switch::Affinity => "+6 %",
        Switch::Moderation => "+15 %",
        Switch::Buffers => "+5 %",
        Switch::Fds => "+7 %",
        Switch::Events => "+6 %",
    }
}

/// The paper's gain of all five together, for a server like this one.
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
