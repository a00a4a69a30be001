//! The state of a host at one moment: its counters, its CPUs, its UDP sockets and their readers.

mod cgroup;
mod cgroup_mounts;
pub(crate) mod client_ports;
mod conntrack;
pub mod cpu;
mod delivery;
pub(crate) mod elsewhere;
pub mod far_end;
pub mod fingerprint;
mod interface;
pub mod interface_facts;
mod kernel_answer;
mod load;
mod namespace_name;
mod packet_filter;
pub mod parent_interfaces;
mod process;
mod queue_course;
mod quota;
pub mod receive_path;
pub mod rss;
pub mod socket_buffer;
pub mod spreading;
mod stat;
pub mod sysctl;
mod ways;

pub use cgroup::IngressProgram;
use cgroup_mounts::CgroupMounts;
pub use client_ports::CrowdedPartner;
pub use conntrack::Conntrack;
pub use delivery::JoinedGroup;
pub use elsewhere::{namespace_of_sockets, numbered_elsewhere};
use far_end::FarEnd;
pub use interface::Interface;
pub(crate) use interface::virtio_feature;
pub use kernel_answer::KernelAnswer;
pub use load::ProcessLoad;
pub use mpps_os::interrupts::Interrupt;
pub use namespace_name::namespace_name;
pub(crate) use namespace_name::namespace_paths;
use packet_filter::FlowsOf;
pub use packet_filter::{FilterQueue, PacketFilter, TrackedFlow};
pub use process::{Busy, Process, ThreadTime};
use process::{Owners, begun};
pub(crate) use process::{
    ask, find_owners, holders_of_socket, relabels_sockets, socket_at, socket_descriptors,
};
pub(crate) use queue_course::is_full;
pub use queue_course::{QueueCourse, QueueCourses};
pub use quota::Quota;

use crate::counters::read_probe::ReadCounts;
use crate::root::Root;
use crate::{CpuList, HostResult, ProcStat, Snapshot, Topology};
use mpps_os::bpf::cgroup::{program_name, socket_lookup_programs};
use mpps_os::capability;
use mpps_os::clock;
use mpps_os::netlink::link::NetlinkLink;
use mpps_os::netlink::netfilter_rule;
use mpps_os::netlink::sock_diag::{self, ListeningSocket, UdpEntry, XdpEntry};
use mpps_os::sysfs::Sysfs;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::RangeInclusive;

/// The settings whose value decides how to fix a loss.
const SETTINGS: [&str; 17] = [
    "net.bridge.bridge-nf-call-iptables",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.ipv4.conf.all.arp_ignore",
    "net.ipv4.igmp_max_memberships",
    "net.ipv4.ipfrag_high_thresh",
    "net.ipv4.ipfrag_max_dist",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.udp_l3mdev_accept",
    "net.ipv4.ip_forward",
    "net.ipv4.conf.all.bc_forwarding",
    "net.netfilter.nf_conntrack_udp_timeout",
    "net.netfilter.nf_conntrack_udp_timeout_stream",
];

/// One moment. [`crate::check::Observed`] compares two of them.
#[derive(Debug, Clone, Default)]
pub struct Observation {
    /// The counters.
    pub snapshot: Snapshot,
    /// How long it took to read these and the sockets, in nanoseconds (`CLOCK_MONOTONIC`). Packets
    /// that came meanwhile are in some of the counters.
    pub read_ns: u64,
    /// The interfaces of the namespace, also those whose counters were not asked for.
    pub links: Vec<NetlinkLink>,
    /// The other ends of its veth interfaces in other namespaces, by the interface here. Empty if there
    /// are more than a few, as on the node of many containers.
    pub far_ends: BTreeMap<String, FarEnd>,
    /// The UDP sockets of the namespace; none where the kernel does not list them.
    pub sockets: Vec<UdpEntry>,
    /// The reads of these since a probe counts them; none without a probe.
    pub reads: ReadCounts,
    /// They could not be listed.
    pub are_sockets_unknown: bool,
    /// Its TCP sockets that listen.
    pub listeners: Vec<ListeningSocket>,
    /// Its sockets of AF_XDP; none where the kernel does not list them.
    pub xdp_sockets: Vec<XdpEntry>,
    /// Its sockets of AF_PACKET, such as those of captures.
    pub packet_sockets: Vec<CaptureSocket>,
    /// The processes that have these sockets, by the sockets' inode numbers. A server that forks
    /// has a socket in several processes. The list is empty if this user may not see the owner.
    pub owners: BTreeMap<u32, Vec<u32>>,
    /// Whether sockets at one address share what comes there (`SO_REUSEPORT`), by inode number. Only
    /// those of a port or process that was asked for, as far as this user may see.
    pub port_sharing: BTreeMap<u32, bool>,
    /// The hop limits that these send with, by inode number, if messages of used-up limits came.
    pub hop_limits: BTreeMap<u32, u32>,
    /// These processes.
    pub processes: BTreeMap<u32, Process>,
    /// The CPU time of all processes: at the first moment, and at a last one if sockets lost datagrams.
    pub loads: BTreeMap<u32, ProcessLoad>,
    /// The queues of sockets since the first moment, if they were looked at in between.
    pub queues: QueueCourses,
    /// How many sockets of the port in question came since the earlier moment, without connected ones.
    pub new_sockets: usize,
    /// True if no CPU quota can be read, as no cgroups are mounted in sight.
    pub are_quotas_hidden: bool,
    /// True if this user may see the owner of any socket.
    pub sees_owners: bool,
    /// Where the CPUs spent their time.
    pub cpus: ProcStat,
    /// The size of the first CPU's largest cache, in bytes, if the machine shows it.
    pub cache_bytes: Option<u64>,
    /// How these are joined.
    pub topology: Topology,
    /// The interfaces whose driver is known.
    pub cards: BTreeMap<String, Interface>,
    /// Which CPUs each receive queue hands its packets to (RPS), by interface; empty where all CPUs are
    /// of one node, or this user may not see it.
    pub steering: BTreeMap<String, Vec<CpuList>>,
    /// The ports that programs get which ask for none (`net.ipv4.ip_local_port_range`).
    pub client_ports: Option<RangeInclusive<u16>>,
    /// The partner of TCP with most of these, if they may be used up.
    pub crowded_partner: Option<CrowdedPartner>,
    /// Whether each interface with a route forwards IPv4 packets; empty if none came for a strange address.
    pub forwarding: BTreeMap<String, bool>,
    /// The connection tracker; none where the kernel has none.
    pub conntrack: Option<Conntrack>,
    /// The packet filter; at a first moment without flows.
    pub packet_filter: PacketFilter,
    /// How many datagrams wait for further fragments, as `FRAG` of sockstat and `FRAG6` of sockstat6 count.
    pub reassembling: BTreeMap<&'static str, u64>,
    /// Next hosts that did not answer ARP or neighbour discovery, as `10.0.0.7 on eth0`.
    pub unanswered: Vec<String>,
    /// The mode of the reverse path filter of each interface; without a port, empty if the filter never dropped a packet.
    pub reverse_path: BTreeMap<String, u8>,
    /// The interfaces of its default routes; empty if the filter never dropped a packet.
    pub default_routes: Vec<String>,
    /// The groups that its sockets joined, without those of the kernel; none at a first moment.
    pub groups: Vec<JoinedGroup>,
    /// The namespace's IPv4 addresses, without those of loopback; none at a first moment.
    pub addresses: Vec<Ipv4Addr>,
    /// IPv6 addresses that the kernel does not use, with the reason; none at a first moment.
    pub unused_addresses: Vec<String>,
    /// IPv4 networks that a route refuses, as `blackhole 10.0.0.0/8`: the first few; none at a first moment.
    pub refused_networks: Vec<String>,
    /// Other rules than the kernel's own choose the routing table; false if this host dropped nothing that it sent.
    pub has_policies: bool,
    /// Interfaces that take no router's advertisement because they forward; none if no packet of IPv6 lacked a route.
    pub deaf_to_routers: Vec<String>,
    /// The protocols over IP that raw sockets take; none at a first moment.
    pub raw_protocols: BTreeSet<u8>,
    /// The XDP program of each interface that has one; none at a first moment.
    pub xdp_programs: Vec<String>,
    /// The programs that choose sockets (`sk_lookup`); none at a first moment, or if this user may not ask.
    pub lookup_programs: Vec<String>,
    /// How many processes and threads began since the machine did.
    pub begun: u64,
    /// Values of settings that limit how much may wait.
    pub settings: BTreeMap<&'static str, u64>,
    /// Notes on everything that could not be read, and why.
    pub notes: Vec<String>,
}

/// Which of several moments.
#[derive(Debug, Clone, Copy)]
pub enum Moment<'a> {
    /// The first: counters are read last.
    First,
    /// A later one: counters are read first, so that the time between two is the same for all of them,
    /// however long it takes to look for processes. With the facts of an earlier moment, owners of
    /// sockets are taken from there, and those of new ones are not known: to look for them reads all of
    /// `/proc`. So is what hardly changes of the machine.
    Later(Option<&'a Observation>),
}

/// The part of a host to look at.
pub(crate) struct HostPart<'a> {
    /// These interfaces; none for all.
    pub(crate) interfaces: Option<&'a [&'a str]>,
    /// The port of the sockets whose owners are looked for; none for all.
    pub(crate) port: Option<u16>,
    /// True if a process was asked for, whose sockets have to be known.
    pub(crate) has_process: bool,
    /// How these owners are found.
    pub(crate) owners: OwnerSearch<'a>,
    /// Drops are counted from this moment on, if there is one. The owners of sockets with drops are
    /// read in any case.
    pub(crate) first: Option<&'a Observation>,
    /// The packet filter of the last look.
    pub(crate) last_filter: Option<&'a PacketFilter>,
    /// Reads what has to be read within the time of the counters: after the first, before the last.
    pub(crate) beside: &'a dyn Fn(),
    /// False from when on no more processes and rules are to be read.
    pub(crate) goes_on: &'a dyn Fn() -> bool,
}

/// How the owners of sockets are found.
#[derive(Clone, Copy)]
pub(crate) enum OwnerSearch<'a> {
    /// They are not.
    None,
    /// They are those of an earlier moment.
    Known(&'a Observation),
    /// As `Known`, but it reads only processes whose sockets lost datagrams. If such a socket has
    /// no known owner, it searches all processes.
    Losses(&'a Observation),
    /// All processes are looked through. If that has to end early, the rest is that of an earlier moment.
    Whole(Option<&'a Observation>),
}

/// The note about a search that had to end early.
const CUT: &str = "owners of some sockets are not known: the search for them was interrupted";

impl Observation {
    /// Reads the calling thread's network namespace, these interfaces of it, and the machine; the
    /// owners of sockets with this port, or of all.
    ///
    /// # Errors
    /// As [`Snapshot::take`] and [`ProcStat::read`]. Sockets that cannot be listed are a note, and so
    /// is an interface that has gone.
    pub fn take(
        moment: Moment<'_>,
        interfaces: &[impl AsRef<str>],
        port: Option<u16>,
    ) -> HostResult<Self> {
        let names: Vec<&str> = interfaces.iter().map(AsRef::as_ref).collect();
        let owners = match moment {
            Moment::First | Moment::Later(None) => OwnerSearch::Whole(None),
            Moment::Later(Some(earlier)) => OwnerSearch::Known(earlier),
        };
        let part = HostPart {
            interfaces: Some(&names),
            port,
            has_process: false,
            owners,
            first: None,
            last_filter: None,
            beside: &|| (),
            goes_on: &|| true,
        };
        Self::take_part(moment, &part)
    }

    /// The same of a part of the host.
    pub(crate) fn take_part(moment: Moment<'_>, part: &HostPart<'_>) -> HostResult<Self> {
        let root = Root::machine();
        let mounts = CgroupMounts::find(&root);
        let mut facts = Self {
            are_quotas_hidden: mounts.is_empty(),
            sees_owners: capability::effective(capability::CAP_SYS_PTRACE),
            ..Self::default()
        };
        let (is_first, earlier) = match moment {
            Moment::First => (true, None),
            Moment::Later(earlier) => (false, earlier),
        };
        if is_first {
            facts.list_sockets();
            facts.find_owners(&root, &mounts, part);
            facts.notes.clear();
        }
        facts.count(&root, part, is_first)?;
        facts.cpus = ProcStat::read()?;
        facts.begun = begun(&root);
        facts.read_ways(&root, part, is_first);
        if !is_first {
            facts.find_owners(&root, &mounts, part);
            facts.groups = delivery::joined_groups(&root);
            facts.raw_protocols = delivery::raw_protocols(&root);
            (facts.addresses, facts.refused_networks) = delivery::addresses(&root);
            facts.unused_addresses = delivery::unused_addresses(&root);
            facts.xdp_programs = xdp_programs(&facts.links);
            let programs = socket_lookup_programs().unwrap_or_default();
            facts.lookup_programs = programs.into_iter().map(named_program).collect();
        }
        let links = &facts.links;
        let every = || links.iter().map(|link| &*link.name).collect();
        let names = part.interfaces.map_or_else(every, <[&str]>::to_vec);
        let names = || names.iter().copied();
        facts.cards = interface::of(&root, names(), earlier.map(|earlier| &earlier.cards));
        match earlier {
            Some(earlier) => {
                facts.topology = earlier.topology.clone();
                facts.steering = earlier.steering.clone();
            }
            None => {
                facts.topology = Topology::read_from(&root)?;
                if facts.topology.nodes().len() > 1 {
                    facts.steering = steering(names());
                }
            }
        }
        facts.cache_bytes = cache_bytes(&root);
        facts.client_ports = sysctl::value_from(&root, "net.ipv4.ip_local_port_range")
            .ok()
            .flatten()
            .and_then(|range| ports(&range));
        let ports = facts.client_ports.as_ref();
        facts.crowded_partner = ports.and_then(|ports| client_ports::crowded(&root, ports));
        facts.settings = settings(&root);
        Ok(facts)
    }

    /// Reads the sockets and the counters.
    fn count(&mut self, root: &Root, part: &HostPart<'_>, is_first: bool) -> HostResult<()> {
        let began_ns = clock::monotonic_ns();
        if !is_first {
            (part.beside)();
        }
        self.list_sockets();
        let taken = Snapshot::take_of(part.interfaces)?;
        self.conntrack = Conntrack::read_from(root);
        if is_first {
            (part.beside)();
        }
        self.read_ns = clock::monotonic_ns().saturating_sub(began_ns);
        (self.snapshot, self.links) = (taken.snapshot, taken.links);
        self.far_ends = far_end::of(&self.links);
        let hidden = far_end::hidden(&self.links, &self.far_ends);
        self.notes.extend(hidden);
        let refused = taken.refused.iter();
        let refused = refused.map(|error| format!("counters are missing: {error}"));
        self.notes.extend(refused);
        Ok(())
    }

    fn list_sockets(&mut self) {
        match sock_diag::udp() {
            Ok(sockets) => self.sockets = sockets,
            Err(error) => {
                self.are_sockets_unknown = true;
                self.notes.push(format!("sockets are not known: {error}"));
            }
        }
        // Few have these, so that a kernel without a list of them is no news.
        self.listeners = sock_diag::listeners().unwrap_or_default();
        self.xdp_sockets = sock_diag::xdp().unwrap_or_default();
        let packet = Root::machine().read_if_possible("proc/thread-self/net/packet");
        self.packet_sockets = packet_sockets(&packet.unwrap_or_default());
    }

    fn read_packet_filter(&self, root: &Root, part: &HostPart<'_>, is_first: bool) -> PacketFilter {
        let port = part.port;
        let ports = self.sockets.iter().map(|socket| socket.local.port());
        let ports: Vec<u16> = ports.collect();
        let silent = self.unanswered.iter();
        let silent = silent.filter_map(|host| host.split(' ').next()?.parse().ok());
        let silent: Vec<IpAddr> = silent.collect();
        let flows = match port {
            _ if is_first => FlowsOf::None,
            Some(port) => FlowsOf::Port(port),
            None => FlowsOf::Unanswered(&ports, &silent),
        };
        let tracked = self.conntrack.map_or(0, |tracker| tracker.entries);
        // Without a socket here, a rule may send the port's datagrams elsewhere.
        let is_missing = port.is_some_and(|port| !ports.contains(&port));
        let mut filter = PacketFilter::read_from(root, flows, tracked);
        let is_missing = is_missing || filter.translated_among(&silent).is_some();
        let has_rules = !is_first && is_missing && self.conntrack.is_some();
        if has_rules || filter.queues.is_some() {
            filter.read_rules(part.last_filter, part.goes_on);
        }
        let dropped = |facts: &Self| {
            let rows = facts.snapshot.softnet.rows.iter();
            rows.map(|row| u64::from(row.dropped)).sum::<u64>()
        };
        if part
            .first
            .is_some_and(|first| dropped(first) != dropped(self))
        {
            filter.rule_count = netfilter_rule::count().unwrap_or(0);
        }
        filter
    }

    fn find_owners(&mut self, root: &Root, mounts: &CgroupMounts, part: &HostPart<'_>) {
        let asked = self.sockets.iter();
        // A program passes on to another one of this host by such a socket.
        let is_inner = |socket: &UdpEntry| socket.remote.is_some_and(|to| to.ip().is_loopback());
        let is_asked = |socket: &UdpEntry, port| socket.local.port() == port || is_inner(socket);
        let asked = asked.filter(|socket| part.port.is_none_or(|port| is_asked(socket, port)));
        let asked = asked.map(|socket| socket.inode);
        let xdp = self.xdp_sockets.iter().map(|socket| socket.inode);
        let packet = self.packet_sockets.iter().map(|socket| socket.inode);
        let inodes = asked.chain(xdp).chain(packet);
        let inodes: BTreeSet<u32> = inodes.chain(self.crowded(part.first)).collect();
        let needed = self.needed(part.first).into_iter();
        let needed: BTreeSet<u32> = needed.filter(|inode| inodes.contains(inode)).collect();
        let (earlier, is_sought) = match part.owners {
            OwnerSearch::None => return,
            // A new socket has no owner yet.
            OwnerSearch::Known(earlier) => (Some(earlier), false),
            OwnerSearch::Losses(earlier) => {
                let asked = if part.has_process { &inodes } else { &needed };
                let is_known = |inode| earlier.owners.contains_key(inode);
                (Some(earlier), !asked.iter().all(is_known))
            }
            OwnerSearch::Whole(earlier) => (earlier, true),
        };
        let (mut owners, is_whole) = match is_sought {
            true => find_owners(root, &inodes, part.goes_on),
            false => (Owners::new(), false),
        };
        if !is_whole {
            owners.retain(|_, pids| !pids.is_empty());
            let known = earlier.into_iter().flat_map(|earlier| &earlier.owners);
            for (inode, pids) in known.filter(|(inode, _)| inodes.contains(inode)) {
                owners.entry(*inode).or_insert_with(|| pids.clone());
            }
        }
        let hidden = owners.values().filter(|pids| pids.is_empty()).count();
        if hidden > 0 {
            self.notes.push(format!(
                "whose {hidden} of {} sockets are is not seen: the kernel's own, or another user's, which \
                 root sees",
                inodes.len()
            ));
        }
        if is_sought && !is_whole && owners.len() < inodes.len() {
            self.notes.push(CUT.to_owned());
        }
        let needed = needed.iter().filter_map(|inode| owners.get(inode));
        let needed: BTreeSet<u32> = needed.flatten().copied().collect();
        let all = match part.owners {
            OwnerSearch::Losses(_) => BTreeSet::new(),
            _ => owners.values().flatten().copied().collect(),
        };
        self.loads = match part.owners {
            OwnerSearch::Whole(None) => load::read_all(root, None, part.goes_on),
            OwnerSearch::Losses(_) if !needed.is_empty() => {
                let first = part.first.map(|first| &first.loads);
                load::read_all(root, first, part.goes_on)
            }
            _ => BTreeMap::new(),
        };
        self.processes = process::read_all(root, mounts, &needed, &all, part.goes_on);
        self.owners = owners;
        let is_asked = part.port.is_some() || part.has_process;
        if is_asked && part.first.is_some() {
            self.port_sharing = process::port_sharing(root, &self.sockets, &self.owners);
        }
    }

    /// The sockets whose owners must be known: AF_XDP sockets, and all sockets of a port with drops
    /// since the first moment, or with a queue that may be unread. The sockets of a port are compared.
    fn needed(&self, first: Option<&Self>) -> Vec<u32> {
        let before = first.into_iter().flat_map(|first| &first.sockets);
        let before: BTreeMap<u32, u32> = before.map(|one| (one.inode, one.drops)).collect();
        let dropped = |one: &UdpEntry| before.get(&one.inode).unwrap_or(&0) != &one.drops;
        let sockets = self.sockets.iter();
        let lossy = sockets.filter(|one| dropped(one) || one.queued_bytes > 0);
        let ports: BTreeSet<u16> = lossy.map(|one| one.local.port()).collect();
        let sockets = self.sockets.iter();
        let sockets = sockets.filter(|one| ports.contains(&one.local.port()));
        let xdp = self.xdp_sockets.iter().map(|one| one.inode);
        let packet = self.packet_sockets.iter().map(|one| one.inode);
        let sockets = sockets.map(|one| one.inode);
        let all = sockets.chain(xdp).chain(packet);
        all.chain(self.crowded(first)).collect()
    }

    /// The listeners that dropped since the first moment, or whose connections wait as they did then.
    fn crowded(&self, first: Option<&Self>) -> impl Iterator<Item = u32> {
        let before = first.into_iter().flat_map(|first| &first.listeners);
        let before: BTreeMap<u32, _> = before.map(|one| (one.inode, one)).collect();
        let is_crowded = move |one: &&ListeningSocket| match before.get(&one.inode) {
            Some(before) => one.drops != before.drops || one.waiting.min(before.waiting) > 0,
            None => one.drops > 0 || one.waiting > 0 && first.is_none(),
        };
        self.listeners
            .iter()
            .filter(is_crowded)
            .map(|one| one.inode)
    }
}

/// The largest cache of the first CPU.
fn cache_bytes(root: &Root) -> Option<u64> {
    let folder = "sys/devices/system/cpu/cpu0/cache";
    let sizes = root.names(folder).into_iter().filter_map(|name| {
        let size = root.read_if_possible(&format!("{folder}/{name}/size"))?;
        size.strip_suffix('K')?.parse::<u64>().ok()
    });
    sizes.max().map(|size| size.saturating_mul(1024))
}

/// A socket that gets copies of packets (packet(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptureSocket {
    /// Its inode number.
    pub inode: u32,
    /// The bytes in its queue, without those of a ring.
    pub queued_bytes: u64,
}

/// A line for each socket after a line of names (`packet_seq_show` of net/packet/af_packet.c).
fn packet_sockets(text: &str) -> Vec<CaptureSocket> {
    let sockets = text.lines().skip(1).filter_map(|line| {
        let columns: Vec<&str> = line.split_ascii_whitespace().collect();
        Some(CaptureSocket {
            inode: columns.get(8)?.parse().ok()?,
            queued_bytes: columns.get(6)?.parse().ok()?,
        })
    });
    sockets.collect()
}

/// The attached XDP programs, as `ddos_filter (id 12) at eth0, generic mode`.
fn xdp_programs(links: &[NetlinkLink]) -> Vec<String> {
    let programs = links.iter().filter_map(|link| {
        let program = named_program(link.xdp_program?);
        let mode = match link.native_xdp {
            Some(false) => ", generic mode",
            _ => "",
        };
        Some(format!("{program} at {}{mode}", link.name))
    });
    programs.collect()
}

/// `ddos_filter (id 12)`.
fn named_program(id: u32) -> String {
    let name = program_name(id).unwrap_or_default();
    format!("{name} (id {id})").trim().to_owned()
}

fn settings(root: &Root) -> BTreeMap<&'static str, u64> {
    let settings = SETTINGS.into_iter().filter_map(|name| {
        let value = sysctl::value_from(root, name).ok()??;
        Some((name, value.parse().ok()?))
    });
    settings.collect()
}

/// The two ports of a range.
fn ports(range: &str) -> Option<RangeInclusive<u16>> {
    let mut numbers = range.split_ascii_whitespace().map(str::parse);
    Some(numbers.next()?.ok()?..=numbers.next()?.ok()?)
}

/// The CPUs that get the packets of each receive queue (`rps_cpus`,
/// Documentation/networking/scaling.rst). Interfaces without such CPUs are left out.
fn steering<'a>(interfaces: impl Iterator<Item = &'a str>) -> BTreeMap<String, Vec<CpuList>> {
    let Ok(sysfs) = Sysfs::mount() else {
        return BTreeMap::new();
    };
    let all = interfaces.map(|name| {
        let of = |queue| sysfs.read(&format!("class/net/{name}/queues/rx-{queue}/rps_cpus"));
        let masks = (0_usize..).map_while(|queue| of(queue).ok());
        let lists = masks.map(|mask| CpuList::from_mask(&mask).unwrap_or_default());
        (name.to_owned(), lists.collect::<Vec<_>>())
    });
    all.filter(|(_, lists)| lists.iter().any(|list| !list.0.is_empty()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::root::fixture;

    fn socket(inode: u32, port: u16, drops: u32) -> UdpEntry {
        UdpEntry {
            local: std::net::SocketAddr::from(([0, 0, 0, 0], port)),
            remote: None,
            only_v6: false,
            interface: 0,
            inode,
            cookie: inode.into(),
            user: 0,
            queued_bytes: 0,
            buffer_bytes: 1,
            unsent_bytes: 0,
            send_buffer_bytes: 212_992,
            drops,
        }
    }

    /// Two sockets with an owner each.
    fn earlier() -> Observation {
        Observation {
            sockets: vec![socket(1, 53, 0), socket(2, 54, 0)],
            owners: [(1, vec![1]), (2, vec![2]), (9, vec![9])].into(),
            ..Observation::default()
        }
    }

    /// Owners, processes and notes when the first of them has dropped, and there is a third one. A search
    /// that has to end does so among the descriptors of the second process.
    fn found(
        owners: OwnerSearch<'_>,
        has_process: bool,
        goes_on: &dyn Fn() -> bool,
    ) -> (Vec<u32>, Vec<u32>, Vec<String>) {
        let tree = fixture::tree("proc/1/comm = a\nproc/2/comm = b\nproc/3/comm = c");
        let link = |path: String, target: &str| tree.root.set_link(&path, target);
        for pid in 1..4 {
            link(format!("proc/{pid}/fd/0"), &format!("socket:[{pid}]"));
        }
        for at in 1..=process::LAST {
            link(format!("proc/2/fd/{at}"), "/dev/null");
        }
        let mut facts = Observation {
            sockets: vec![socket(1, 53, 7), socket(2, 54, 0), socket(3, 55, 0)],
            ..Observation::default()
        };
        let part = HostPart {
            interfaces: None,
            port: None,
            has_process,
            owners,
            first: Some(&earlier()),
            last_filter: None,
            beside: &|| (),
            goes_on,
        };
        facts.find_owners(&tree.root, &CgroupMounts::default(), &part);
        let owners = facts.owners.into_values().flatten().collect();
        (owners, facts.processes.into_keys().collect(), facts.notes)
    }

    #[test]
    fn a_search_that_was_interrupted_leaves_what_was_known() {
        let earlier = earlier();
        let search = |goes_on| found(OwnerSearch::Whole(Some(&earlier)), false, goes_on);
        let all = vec![1, 2, 3];
        assert_eq!(search(&|| true), (all.clone(), all, vec![]));
        let cut = (vec![1, 2], vec![1], vec![CUT.to_owned()]);
        assert_eq!(search(&|| false), cut);
        let once = std::cell::Cell::new(true);
        assert_eq!(search(&|| once.replace(false)), cut);
    }

    #[test]
    fn owners_are_sought_as_far_as_they_are_told() {
        let (earlier, nothing) = (earlier(), Observation::default());
        let find = |owners, has_process| found(owners, has_process, &|| true);
        let (known, all) = (|| vec![1, 2], || vec![1, 2, 3]);
        for (owners, has_process, expected) in [
            (OwnerSearch::None, false, (vec![], vec![])),
            (OwnerSearch::Known(&earlier), false, (known(), known())),
            // The new one lost nothing.
            (OwnerSearch::Losses(&earlier), false, (known(), vec![1])),
            // It may be of the process that was asked for.
            (OwnerSearch::Losses(&earlier), true, (all(), vec![1])),
            // It was not known whose the one is that lost.
            (OwnerSearch::Losses(&nothing), false, (all(), vec![1])),
        ] {
            let (owners, processes, notes) = find(owners, has_process);
            assert_eq!((owners, processes), expected);
            assert_eq!(notes, [""; 0]);
        }
    }

    #[test]
    fn sockets_of_a_port_that_dropped_need_their_owners() {
        let at = |drops| Observation {
            sockets: vec![socket(1, 53, drops), socket(2, 53, 4), socket(3, 54, 0)],
            xdp_sockets: vec![XdpEntry {
                inode: 9,
                ..XdpEntry::default()
            }],
            ..Observation::default()
        };
        assert_eq!(at(7).needed(Some(&at(7))), [9]);
        assert_eq!(at(8).needed(Some(&at(7))), [1, 2, 9]);
        assert_eq!(
            at(0).needed(Some(&Observation::default())),
            [1, 2, 9],
            "a new one"
        );
        let mut full = at(7);
        full.sockets[2].queued_bytes = 768;
        assert_eq!(full.needed(Some(&at(7))), [3, 9]);
    }

    #[test]
    fn the_last_cache_is_the_largest() {
        let cache =
            |at, size| format!("sys/devices/system/cpu/cpu0/cache/index{at}/size = {size}\n");
        let tree = cache(0, "32K") + &cache(3, "16384K") + &cache(2, "512K") + &cache(4, "x");
        assert_eq!(cache_bytes(&fixture::tree(&tree).root), Some(16 << 20));
        assert_eq!(cache_bytes(&fixture::tree("").root), None);
    }

    #[test]
    fn a_range_is_two_ports() {
        assert_eq!(ports("32768\t60999"), Some(32768..=60999));
        for damaged in ["", "1", "a b", "1 65536"] {
            assert_eq!(ports(damaged), None, "{damaged}");
        }
    }
}
