//! Where the trials of a search are run: in a lab, or between this host and another one.

use super::super::comparison::napi;
use super::super::far_traffic::FarTraffic;
use super::super::remote::Remote;
use super::super::sender::{cpus, sentence};
use crate::machine;
use crate::signal::EndSignal;
use crate::udp::labs::Labs;
use crate::udp::path::Path;
use crate::udp::run::{Purpose, UdpRun};
use crate::udp::sender::SenderChoice;
use crate::udp::trial::UdpTrial;
use anyhow::Result;
use mpps_host::Fingerprint;
use std::time::Duration;

/// Where trials are run.
pub(super) enum TrialSite<'a> {
    /// Two hosts on this machine.
    Lab(Labs, Box<UdpTrial>, SenderChoice),
    /// This host, and another host that sends.
    Hosts(Remote<'a>),
}

impl TrialSite<'_> {
    pub(super) fn run(
        &self,
        path: &Path,
        time: Duration,
        pps: f64,
        patience: Duration,
    ) -> Result<UdpRun> {
        match self {
            Self::Lab(labs, trial, _) => trial.on(path).run(labs, time, Purpose::paced(pps)),
            Self::Hosts(remote) => remote.run(path, time, pps, patience),
        }
    }

    pub(super) fn interrupt(&self) -> &EndSignal {
        match self {
            Self::Lab(labs, ..) => &labs.interrupt,
            Self::Hosts(remote) => remote.live.interrupt,
        }
    }

    pub(super) fn obstacle(&self, path: &Path) -> Option<String> {
        match self {
            Self::Lab(labs, trial, _) => trial.on(path).obstacle(labs),
            Self::Hosts(_) if path.is_rule() => {
                Some("on this host it would be a rule of its firewall; the lab has it".to_owned())
            }
            Self::Hosts(remote) => remote.live.obstacle(path),
        }
    }

    pub(super) fn napi_place(&self) -> String {
        match self {
            Self::Lab(labs, trial, _) => napi(labs, &trial.layout),
            Self::Hosts(_) => FarTraffic::NAPI_PLACE.to_owned(),
        }
    }

    pub(super) fn placement(&self) -> String {
        match self {
            Self::Lab(_, trial, _) => {
                format!("two hosts on this machine   {}", cpus(&trial.layout))
            }
            Self::Hosts(remote) => {
                let FarTraffic { address, cpu, .. } = remote.live;
                format!("traffic from another host to {address}   application: CPU {cpu}")
            }
        }
    }

    pub(super) fn sender(&self) -> String {
        match self {
            Self::Lab(_, trial, choice) => sentence(choice, &[trial.flows], trial.payload_bytes),
            Self::Hosts(remote) => remote.order("TIME", "LOAD"),
        }
    }

    pub(super) fn machine(&self) -> Result<Fingerprint> {
        match self {
            Self::Lab(labs, trial, _) => machine::of_lab(labs.of(&trial.layout)?),
            Self::Hosts(remote) => machine::fingerprint_at(remote.live.address.ip()),
        }
    }
}
