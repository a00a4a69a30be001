//! `--backend best`: the fastest way that this host, interface and user may use, and why.

use crate::failure::flags::IO;
use anyhow::{Result, bail};
use mpps_host::facts::receive_path::{PathFacts, Usable};
use mpps_host::{Interface, RECEIVE_PATHS};
use mpps_io::backend::{self, Support};
use mpps_io::{Backend, RxConfig};
use mpps_os::netlink::link;

/// The candidates, fastest first, each with the technique that must be usable. io_uring is left
/// out, because its rate is that of another candidate (`mpps bench`). Taps are left out, because
/// they leave the kernel the work of each packet as well.
const CANDIDATES: [(&str, &str); 2] = [("af_xdp", "AF_XDP native"), ("recvmmsg", "recvmmsg")];

/// The choice.
#[derive(Debug)]
pub(super) struct Best {
    pub(super) backend: &'static Backend,
    /// Why this one, and why none that is faster: a sentence each.
    pub(super) because: Vec<String>,
}

/// Chooses for a receiver with this many threads, on an interface, if there is a single one.
pub(super) fn choose(config: &RxConfig, interface: Result<String>, threads: usize) -> Result<Best> {
    let mut because = Vec::new();
    for (name, technique) in CANDIDATES {
        let backend = backend::find(name)?;
        match judge(backend, technique, config, &interface, threads) {
            Ok(why) => {
                because.insert(0, format!("{name}: {why}"));
                return Ok(Best { backend, because });
            }
            Err(why) => because.push(format!("not {name}: {why}")),
        }
    }
    bail!(
        "--backend best: nothing does all that is asked for; {}",
        because.join("; ")
    )
}

/// The reason for a backend, or the reason against it as an error.
fn judge(
    backend: &Backend,
    technique: &str,
    config: &RxConfig,
    interface: &Result<String>,
    threads: usize,
) -> Result<String, String> {
    let asked = config.asked();
    let refused = asked.iter().find(|one| !backend.rx_fields.contains(one));
    if let Some(field) = refused {
        return Err(format!("it has no {}", IO.flag(field)));
    }
    if let Support::No { why, remedy } = (backend.probe)() {
        return Err(format!("{why}; {remedy}"));
    }
    if !backend.rx_fields.contains(&"ring.interface") {
        return Ok("an ordinary socket, many datagrams a call".to_owned());
    }
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let interface = interface.as_ref().map_err(|error| format!("{error:#}"))?;
    let facts = PathFacts::gather(&Interface::read(interface)).map_err(|error| told(&error))?;
    let Some(technique) = RECEIVE_PATHS.iter().find(|one| one.name == technique) else {
        return Err(format!("nothing is known of {technique}"));
    };
    let verdict = technique.assess(&facts);
    if verdict.usable != Usable::Yes {
        let remedy = verdict
            .remedy
            .map_or(String::new(), |what| format!("; {what}"));
        return Err(format!("{}{remedy}", verdict.why));
    }
    let index = link::index(interface).map_err(|error| told(&error))?;
    let found = link::find(index).map_err(|error| told(&error))?;
    if found.is_some_and(|link| link.native_xdp.is_some()) {
        return Err(format!("{interface} has another XDP program"));
    }
    let queues = facts.nic.rx_queues as usize;
    if threads != queues {
        return Err(format!(
            "{interface} has {queues} receive queues and needs a thread for each, but there are \
             {threads} threads; --threads {queues}"
        ));
    }
    Ok(verdict.why)
}
