//! Linux's interfaces against the kernel, in namespaces made for each trial.

mod bpf;
mod network;

use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::link;
use mpps_trial::Failed;
use std::os::fd::AsFd;
use std::process::ExitCode;

fn main() -> ExitCode {
    mpps_trial::run(
        [bpf::trials(), network::trials()]
            .into_iter()
            .flatten()
            .collect(),
    )
}

/// Two namespaces, joined by the links `near` and `far`.
fn pair(queues: u16) -> Result<(NetNamespace, NetNamespace), Failed> {
    let (near, far) = (NetNamespace::new()?, NetNamespace::new()?);
    near.run(|| link::create_veth("near", queues, "far", queues, far.as_fd()))??;
    Ok((near, far))
}

fn check(good: bool, why: &str) -> Result<(), Failed> {
    if good { Ok(()) } else { Err(why.into()) }
}
