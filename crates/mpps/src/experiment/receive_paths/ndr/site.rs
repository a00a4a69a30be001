//! Where the trials of a search are run: in a lab, or between this host and another one.

use super::super::far_traffic::FarTraffic;
use super::super::remote::Remote;
use super::super::stage::PathLab;
use super::MAX_PPS;
use crate::machine;
use crate::signal::EndSignal;
use crate::udp::path::Path;
use crate::udp::run::{Purpose, UdpRun};
use anyhow::Result;
use mpps_host::Fingerprint;
use std::time::Duration;

/// Where trials are run.
pub(super) enum TrialSite<'a> {
    /// Two hosts on this machine.
    Lab(Box<PathLab<'a>>),
    /// This host, and another host that sends.
    Hosts(Remote<'a>),
}

impl TrialSite<'_> {
    pub(super) fn run(&self, path: &Path, time: Duration, purpose: Purpose<'_>) -> Result<UdpRun> {
        match self {
            Self::Lab(stage) => stage.run(path, time, purpose),
            Self::Hosts(remote) => {
                let pps = purpose.rate_pps.unwrap_or(MAX_PPS);
                remote.run(path, time, pps, purpose.patience.unwrap_or(time))
            }
        }
    }

    pub(super) fn interrupt(&self) -> &EndSignal {
        match self {
            Self::Lab(stage) => stage.interrupt,
            Self::Hosts(remote) => remote.live.interrupt,
        }
    }

    pub(super) fn obstacle(&self, path: &Path) -> Option<String> {
        match self {
            Self::Lab(stage) => stage.obstacle(path),
            Self::Hosts(_) if path.is_rule() => {
                Some("on this host it would be a rule of its firewall; the lab has it".to_owned())
            }
            Self::Hosts(remote) => remote.live.obstacle(path),
        }
    }

    pub(super) fn napi_place(&self) -> String {
        match self {
            Self::Lab(stage) => stage.napi_place(),
            Self::Hosts(_) => FarTraffic::NAPI_PLACE.to_owned(),
        }
    }

    pub(super) fn placement(&self) -> String {
        match self {
            Self::Lab(stage) => format!("two hosts on this machine   {}", stage.cpus),
            Self::Hosts(remote) => {
                let FarTraffic { address, cpu, .. } = remote.live;
                format!("traffic from another host to {address}   application: CPU {cpu}")
            }
        }
    }

    pub(super) fn sender(&self, flows: usize) -> String {
        match self {
            Self::Lab(stage) => stage.sender.sentence(&[flows]),
            Self::Hosts(remote) => remote.order("TIME", "LOAD"),
        }
    }

    pub(super) fn machine(&self) -> Result<Fingerprint> {
        match self {
            Self::Lab(stage) => machine::of_lab(&stage.lab),
            Self::Hosts(remote) => machine::fingerprint_at(remote.live.address.ip()),
        }
    }
}
