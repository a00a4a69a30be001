//! The cause of a refusal, by counters of IPsec, by sockets, and by programs of their cgroups.

use super::full_buffers::FullBuffers;
use super::{Confidence, Evidence, Observed, SeenSocket};
use crate::facts::IngressProgram;
use mpps_os::text::ShellWord;

/// A cause that more than the loss itself shows.
#[derive(Debug)]
pub(super) struct RefusalCause {
    pub(super) what: String,
    pub(super) remedy: String,
    pub(super) evidence: Vec<Evidence>,
    pub(super) confidence: Confidence,
}

/// The counters of refusals by IPsec (`__xfrm_policy_check`, net/xfrm/xfrm_policy.c), what each
/// means, and how to fix it.
const IPSEC: [(&str, &str, &str); 4] = [
    (
        "XfrmInTmplMismatch",
        "an inbound policy of IPsec asks for encryption, and they came without it or with another",
        "ip xfrm policy shows `dir in` with a `tmpl`: encrypt at the sender (ip xfrm state on \
         both sides), or narrow or delete that policy; a policy of `socket in` is the program's (IP_XFRM_POLICY)",
    ),
    (
        "XfrmInPolBlock",
        "an inbound policy of IPsec blocks them",
        "ip xfrm policy shows `action block`: narrow or delete that policy; one of `socket in` is the program's \
         (IP_XFRM_POLICY)",
    ),
    (
        "XfrmInNoPols",
        "no inbound policy of IPsec allows them, and the default is to block, or they came by a tunnel",
        "ip xfrm policy getdefault; ip xfrm policy setdefault in accept, or ip xfrm policy add dir in for them",
    ),
    (
        "XfrmInPolError",
        "a policy of IPsec could not be applied",
        "dmesg; ip xfrm policy list dir in",
    ),
];

/// The refusal of `count` packets by IPsec; none if its counters have not that many.
pub(super) fn by_ipsec(seen: &Observed, count: u64) -> Option<RefusalCause> {
    let grown = |name: &str| seen.counter(name).filter(|one| one.grown() > 0);
    let all = IPSEC.iter().filter_map(|row| Some((row, grown(row.0)?)));
    let (rows, evidence): (Vec<_>, Vec<_>) = all.unzip();
    if count == 0 || Evidence::sum(&evidence) < count {
        return None;
    }
    let words = |column: fn(&(&str, &'static str, &'static str)) -> &'static str, or: &str| {
        rows.iter().map(&column).collect::<Vec<_>>().join(or)
    };
    Some(RefusalCause {
        what: words(|row| row.1, "; or "),
        remedy: words(|row| row.2, "; or "),
        evidence,
        confidence: Confidence::Likely,
    })
}

/// How many sockets are listed.
const SOCKETS: usize = 3;
/// A filter of a socket, and how to find it.
const FILTER: (&str, &str) = (
    "a filter of the socket itself (SO_ATTACH_FILTER, SO_ATTACH_BPF)",
    "the program's source, or strace -f -e trace=setsockopt at its start, shows the filter",
);

/// The refusal of `count` datagrams by sockets in question; none if they did not drop that many, or
/// the cause is not known. `other` may be a cause too, unless the kernel named a filter.
pub(super) fn at_sockets(seen: &Observed, count: u64, other: Option<&str>) -> Option<RefusalCause> {
    let refused = FullBuffers::of(seen).refused(seen);
    let dropped = refused
        .iter()
        .fold(0, |sum: u64, (_, count)| sum.saturating_add(*count));
    if count == 0 || dropped < count {
        return None;
    }
    let sockets: Vec<&SeenSocket> = refused.iter().map(|(socket, _)| *socket).collect();
    let mut names: Vec<String> = sockets.iter().take(SOCKETS).map(|one| one.name()).collect();
    let more = sockets.len() - names.len();
    names.extend((more > 0).then(|| format!("{more} more")));
    let (what, remedy) = by_program(&sockets)?;
    let (or, confidence) = match other {
        None => (String::new(), Confidence::Likely),
        Some(other) => (format!(", or {other},"), Confidence::Possible),
    };
    Some(RefusalCause {
        what: format!("{what}{or} dropped what came to {}", names.join(", ")),
        remedy,
        evidence: sockets
            .iter()
            .take(SOCKETS)
            .map(|one| one.drops.clone())
            .collect(),
        confidence,
    })
}

fn programs_of<'a>(socket: &SeenSocket<'a>) -> Option<&'a [IngressProgram]> {
    socket.owner?.ingress.as_deref()
}

/// The dropper, by the programs of the sockets' cgroups. None if these are not known.
fn by_program(sockets: &[&SeenSocket]) -> Option<(String, String)> {
    let all = sockets.iter().map(|socket| programs_of(socket));
    let all: Vec<&[IngressProgram]> = all.collect::<Option<_>>()?;
    let mut programs: Vec<&IngressProgram> = Vec::new();
    for program in all.into_iter().flatten() {
        if !programs.contains(&program) {
            programs.push(program);
        }
    }
    let Some(first) = programs.first() else {
        return Some((FILTER.0.to_owned(), FILTER.1.to_owned()));
    };
    let named = programs
        .iter()
        .take(SOCKETS)
        .map(|program| match &*program.name {
            "" => program.group.clone(),
            name => format!("{} ({name})", program.group),
        });
    let named: Vec<String> = named.collect();
    let remedy = match first.unit() {
        Some(unit) => format!("systemctl show {unit} -p IPAddressAllow -p IPAddressDeny"),
        None => format!("bpftool cgroup show {}", ShellWord::new(&first.folder)),
    };
    let what = format!("a BPF program of cgroup {}", named.join(", "));
    Some((what, format!("{remedy}; without such a rule, {}", FILTER.1)))
}
