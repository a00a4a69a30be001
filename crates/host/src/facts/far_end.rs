//! The other ends of this namespace's veth interfaces, in the namespaces where they are: the way into a
//! container.

use super::namespace_name;
use crate::LinkCounters;
use mpps_os::CallResult;
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::{link, qdisc};
use mpps_os::text;
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::parent_id;
use std::path::Path;

/// With more such interfaces this namespace is a node, not a container, and its far ends are not read.
const MOST: usize = 8;

/// The network namespace of the machine's first process.
const FIRST: &str = "/proc/1/ns/net";

/// The other end of a veth.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FarEnd {
    /// The number of its network namespace in the kernel (`ns.inum`).
    pub netns: u32,
    /// The name of that namespace: of `ip netns`, or `init`.
    pub namespace: String,
    /// Its name there.
    pub name: String,
    /// The bridge that it is a port of.
    pub bridge: Option<String>,
    /// Why it forwards nothing as that bridge's port: its state.
    pub held_back: Option<&'static str>,
    /// It passes nothing to other isolated ports of that bridge.
    pub isolated: bool,
    /// The other interfaces of that namespace that are ports of the bridge and no veth, or have the
    /// default route.
    pub cards: Vec<String>,
    /// The longest packet that it sends, in bytes.
    pub mtu: u32,
    /// Whether it was set up (`IFF_UP`).
    pub up: bool,
    /// Its counters.
    pub counters: LinkCounters<u64>,
    /// Drops of the queues in front of it (`tc -s qdisc`); none if it has no queue.
    pub qdisc_drops: Option<u64>,
    /// Drops of its tc filters in both directions (`clsact`); none if it has none.
    pub filter_drops: Option<u64>,
}

/// Namespaces to search for the other ends: that of the machine's first process, that of the
/// process that started this one, and those with a name.
fn namespaces() -> Vec<NetNamespace> {
    let parent = format!("/proc/{}/ns/net", parent_id());
    let named = Path::new(namespace_name::NAMES).read_dir();
    let named = named.into_iter().flatten().flatten();
    let named = named.map(|entry| text::of_bytes(entry.path().as_os_str().as_bytes()));
    let paths = [FIRST.to_owned(), parent].into_iter().chain(named);
    let opened = paths.filter_map(|path| NetNamespace::open(&path).ok());
    let mut all: Vec<NetNamespace> = Vec::new();
    for namespace in opened {
        if all.iter().all(|known| known.inode() != namespace.inode()) {
            all.push(namespace);
        }
    }
    all
}

/// A note if the other ends that are missing here may be in a namespace that this user may not enter.
pub(super) fn hidden(
    links: &[link::NetlinkLink],
    found: &BTreeMap<String, FarEnd>,
) -> Option<String> {
    // The lower interface of a macvlan is no such end, and that of a bridge's port is a container's, whose
    // namespace is not searched.
    let far = links.iter().filter(|link| {
        link.bound_namespace.is_some() && link.kind == "veth" && link.controller.is_none()
    });
    let missing = far.filter(|link| !found.contains_key(&link.name));
    let missing: Vec<&str> = missing.map(|link| &*link.name).take(MOST).collect();
    let may_not = !missing.is_empty() && NetNamespace::open(FIRST).is_err();
    may_not.then(|| {
        format!(
            "the other end of {} is in a network namespace that this user may not enter",
            missing.join(", ")
        )
    })
}

/// The other ends of these interfaces, by the interface here. An end that is not found or may not be
/// seen is left out.
pub(super) fn of(links: &[link::NetlinkLink]) -> BTreeMap<String, FarEnd> {
    let far = links
        .iter()
        .filter_map(|link| Some((link, link.bound_to?, link.bound_namespace?)));
    let far: Vec<_> = far.collect();
    if far.is_empty() || far.len() > MOST {
        return BTreeMap::new();
    }
    let mut ends = BTreeMap::new();
    for namespace in namespaces() {
        let Ok(Some(id)) = link::namespace_id(namespace.as_fd()) else {
            continue;
        };
        let here = far.iter().filter(|(.., of)| *of == id);
        let here: Vec<_> = here
            .map(|(link, index, _)| (&*link.name, *index, link.index))
            .collect();
        if here.is_empty() {
            continue;
        }
        let looked = namespace.run(|| look(&here)).and_then(|looked| looked);
        for (name, end) in looked.into_iter().flatten() {
            let (netns, namespace) = (namespace.inode(), namespace_name(namespace.inode()));
            ends.insert(
                name,
                FarEnd {
                    netns,
                    namespace,
                    ..end
                },
            );
        }
    }
    ends
}

/// Looks at these interfaces of the calling thread's namespace; each with the name and the number of
/// its other end.
fn look(ends: &[(&str, u32, u32)]) -> CallResult<Vec<(String, FarEnd)>> {
    let links = link::list()?;
    let drops = qdisc::drops().unwrap_or_default();
    let filtered = qdisc::filter_drops().unwrap_or_default();
    let default = super::parent_interfaces::of_default_routes(&crate::root::Root::machine());
    let found = ends.iter().filter_map(|&(name, index, back)| {
        let own = links.iter().find(|link| link.index == index)?;
        // The other end of a veth knows this one; a VLAN's lower interface does not.
        (own.bound_to == Some(back)).then_some(())?;
        let bridge = own
            .controller
            .and_then(|at| links.iter().find(|link| link.index == at));
        let ports = links
            .iter()
            .filter(|link| link.controller.is_some() && link.controller == own.controller);
        let ports = ports
            .filter(|port| port.bound_to.is_none())
            .map(|port| port.name.clone());
        let mut cards: Vec<String> = ports.collect();
        let routes = default.iter().filter(|name| **name != own.name);
        let routes: Vec<String> = routes
            .filter(|name| !cards.contains(name))
            .cloned()
            .collect();
        cards.extend(routes);
        let end = FarEnd {
            name: own.name.clone(),
            bridge: bridge.map(|bridge| bridge.name.clone()),
            held_back: own.held_back,
            isolated: own.isolated,
            cards,
            mtu: own.mtu,
            up: own.up,
            counters: own.statistics?.into(),
            qdisc_drops: drops.get(&index).copied().map(u64::from),
            filter_drops: filtered.get(&index).copied().map(u64::from),
            ..FarEnd::default()
        };
        Some((name.to_owned(), end))
    });
    Ok(found.collect())
}
