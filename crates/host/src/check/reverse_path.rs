//! Packets whose source address this host would answer by another interface.

use super::{Check, Finding, Observed};
use crate::ledger::loss::REVERSE_PATH;
use mpps_os::text::ShellWord;

pub(super) const CHECK: Check = Check {
    name: "reverse_path",
    reads: "`TcpExt.IPReversePathFilter`, `rp_filter` and `rx_packets` of each interface, default routes",
    speaks: "the reverse path filter dropped packets",
    run,
};

/// The mode that wants the way back by the same interface (Documentation/networking/ip-sysctl.rst).
const STRICT: u8 = 1;

fn run(seen: &Observed) -> Vec<Finding> {
    let came = |name: &str| seen.link(name, "rx_packets");
    // An interface that received nothing dropped nothing.
    let modes = seen.after.reverse_path.iter();
    let modes = modes.filter(|(name, _)| came(name).is_none_or(|came| came.grown() > 0));
    let modes: Vec<_> = modes.collect();
    let strict: Vec<&str> = modes
        .iter()
        .filter(|(_, mode)| **mode == STRICT)
        .map(|(interface, _)| &***interface)
        .collect();
    let found = Finding::counted(seen, &CHECK, &REVERSE_PATH).map(|found| match strict.as_slice() {
        [] if !modes.is_empty() => found.says(
            "the reverse path filter dropped packets: this host has no route at all to their sender, by any \
             interface (none that received packets has the strict mode)",
            "a route to the senders: nft monitor trace or tcpdump shows them, ip route get SENDER the lack; or no \
             filter: sysctl -w net.ipv4.conf.all.rp_filter=0 and net.ipv4.conf.IF.rp_filter=0",
        ),
        strict => {
            let interface = match strict {
                // sysctl(8) takes a slash for the dot in a name.
                [only] => ShellWord::new(&only.replace('.', "/")).to_string(),
                _ => "IF".to_owned(),
            };
            let needs = match seen.after.default_routes.is_empty() {
                true => ", which needs a route to them by any interface, and there is no default route",
                false => "",
            };
            let remedy = format!(
                "a route back to the senders by that interface; or its loose mode{needs}: sysctl -w \
                 net.ipv4.conf.{interface}.rp_filter=2"
            );
            let said = match strict {
                [] => String::new(),
                _ => format!(" ({} {})", strict.join(", "), "has rp_filter 1"),
            };
            let what = format!(
                "the reverse path filter dropped packets: this host would not answer their sender by the \
                 interface that they came by{said}"
            );
            found.says(what, remedy)
        }
    });
    found.into_iter().collect()
}
