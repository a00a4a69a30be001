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

/// The paper's settings, with the connections per second of its first experiment, where it says them:
/// as a ratio to those of the adaptive setting.
pub(super) const MODERATION: [(Rate, Option<f64>); 8] = [
    (Rate::PerSecond(1_000), Some(1.15)),
    (Rate::PerSecond(1_900), None),
    (Rate::PerSecond(4_000), None),
    (Rate::PerSecond(10_000), None),
    (Rate::PerSecond(19_000), None),
    (Rate::PerSecond(400_000), Some(0.84)),
    (Rate::Off, Some(0.79)),
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

/// The paper's gain of a step over the one before, as a ratio of connections per second.
pub(super) fn step(switch: Switch) -> f64 {
    match switch {
        Switch::Affinity => 1.06,
        Switch::Moderation => 1.15,
        Switch::Buffers => 1.05,
        Switch::Fds => 1.07,
        Switch::Events => 1.06,
    }
}

/// The paper's gain of all five together, for a server like this one.
pub(super) fn all(server: &str) -> Option<f64> {
    if server.starts_with("mpps") {
        Some(1.40)
    } else if server == "lighttpd" {
        Some(1.36)
    } else if server.starts_with("apache") {
        Some(1.20)
    } else {
        None
    }
}

/// A ratio as the paper writes it: `+15 %`.
pub(super) fn percent(ratio: f64) -> String {
    format!("{:+.0} %", (ratio - 1.0) * 100.0)
}
