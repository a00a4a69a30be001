//! Datagrams whose port has a listener, but at another address.

use super::reader::named;
use super::{Check, Confidence, Finding, Observed, no_listener, port_owner};

pub(super) const CHECK: Check = Check {
    name: "listener_elsewhere",
    reads: "drop reason `NO_SOCKET` (required), `Udp.NoPorts`, `Udp6.NoPorts`, and the sockets' addresses \
            (sock_diag)",
    speaks: "with `--port`: datagrams found no socket; sockets there have another address, family, \
             interface or partner",
    run,
};

fn run(seen: &Observed) -> Vec<Finding> {
    let places = no_listener::elsewhere(seen).join(", ");
    let (Some(port), false) = (seen.asked.port, places.is_empty()) else {
        return Vec::new();
    };
    let found = no_listener::finding(seen, &CHECK).map(|found| {
        let bind = "bind the program to the address that the senders use, or to 0.0.0.0 or [::] for \
                    all of a family";
        let is_v6_only = seen.sockets.iter().any(|one| one.entry.only_v6);
        let only = match is_v6_only && seen.grown(&["Udp.NoPorts"]) > 0 {
            true => "a socket at [::] takes IPv4 only without IPV6_V6ONLY (setsockopt, sysctl net.ipv6.bindv6only): \
                     clear it; or a second socket at 0.0.0.0; or ",
            false => "",
        };
        let bind = format!("{only}{}", no_listener::remedies(seen, bind));
        let (vrf, remedy) = match no_listener::vrf(seen) {
            Some((vrf, remedy)) => (vrf, format!("{bind}; {remedy}")),
            None => (String::new(), bind),
        };
        let owners = seen.sockets.iter();
        let owners = owners.filter_map(|one| port_owner::owner(seen, one.entry));
        let mut owners: Vec<String> = owners
            .map(|one| format!("{} (pid {})", one.name, one.pid))
            .collect();
        owners.dedup();
        let of = match named(owners) {
            none if none.is_empty() => none,
            names => format!(", of {names}"),
        };
        let what = format!(
            "datagrams came for UDP port {port}, and none of its sockets takes them: they are at {places}{of}{vrf}"
        );
        let mut entries = seen.sockets.iter().map(|one| one.entry);
        let confidence = match entries.all(|entry| no_listener::is_gone(seen, entry)) {
            true => Confidence::Certain,
            false => Confidence::Likely,
        };
        found.says(what, remedy).with(confidence)
    });
    found.into_iter().collect()
}
