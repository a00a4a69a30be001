//! A host that is looked at again and again: what each look saw since the one before.

use crate::HostResult;
use crate::check::reader::named;
use crate::check::{DoctorRequest, Observed, refused_sends};
use crate::counters::drop_probe::{DropCount, DropFilter, DropProbe, DropProbeError, DropSums};
use crate::counters::read_probe::{ReadProbe, has_rights};
use crate::facts::elsewhere::{UdpHolder, family, holders_elsewhere, holders_of};
use crate::facts::{
    HostPart, Moment, Observation, OwnerSearch, QueueCourse, QueueCourses, ask, namespace_name,
    relabels_sockets,
};
use crate::root::Root;
use mpps_os::borrowed::BorrowedSocket;
use mpps_os::capability::{CAP_BPF, CAP_PERFMON, Rights};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::link;
use mpps_os::netlink::sock_diag::{self, UdpEntry};

use mpps_os::text::Foreign;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// "Operation not permitted", errno(3).
const EPERM: i32 = 1;
/// Owners of sockets are looked for again this many times as long after a search as that took, so that
/// searching takes 2 % of a CPU at most, on a host with however many processes.
const OWNERS_PAUSE: u32 = 50;
/// Of sockets in question, this many are asked for an option.
const ASKED_MAX: usize = 16;
/// Queues are looked at again after these times in turn, and also not before `OWNERS_PAUSE` times as long as that
/// took. After equal pauses each look would meet a burst of that period, and the queue would seem full all the time.
const QUEUES_PAUSES: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(150)];

/// Looks at the calling thread's network namespace, and at its machine.
#[derive(Debug)]
pub struct Watch {
    /// The one interface in question; none for all that there are.
    interface: Option<String>,
    asked: DoctorRequest,
    probe: Option<DropProbe>,
    reads: Option<ReadProbe>,
    namespace: u32,
    notes: Vec<String>,
    /// When the owners of sockets are looked for again.
    owners_due: Instant,
    /// False if they are not looked for.
    has_owners: bool,
    /// When the queues of sockets are looked at again, and what they were.
    queues_due: Instant,
    queues_pauses: [Duration; 2],
    queues: QueueCourses,
    /// The sockets of the port in question that came since the last look, by inode number.
    came: BTreeSet<u32>,
    first: WatchLook,
    before: WatchLook,
    after: WatchLook,
}

/// The counts of the probe, or why that cannot be read.
type ProbeCounts = Result<DropSums, DropProbeError>;

/// One look.
#[derive(Debug, Clone, Default)]
struct WatchLook {
    facts: Observation,
    drops: Option<Vec<DropCount>>,
}

impl Watch {
    /// Looks for the first time. Where the kernel's drop reasons cannot be watched, a note says why.
    ///
    /// # Errors
    /// As [`Observation::take`].
    pub fn begin(interface: Option<String>, mut asked: DoctorRequest) -> HostResult<Self> {
        let ports = asked.port.map_or(0..=u16::MAX, |port| port..=port);
        let mut notes = Vec::new();
        let namespace = NetNamespace::current()?.inode();
        let filter = DropFilter {
            details_of: Some(namespace),
            ports,
        };
        let probe = DropProbe::attach(&filter);
        let probe = probe.inspect_err(|error| {
            let remedy = error.remedy();
            asked.no_reasons = Some(remedy.clone());
            notes.push(format!(
                "the kernel's drop reasons are not seen: {error}; {remedy}"
            ));
        });
        if relabels_sockets(&Root::machine()) {
            notes.push(
                "options of sockets are not read: a copy of a socket would give it the traffic class of mpps, as \
                 net_cls or net_prio of cgroup version 1 are in use"
                    .to_owned(),
            );
        }
        let mut watch = Self {
            interface,
            asked,
            probe: probe.ok(),
            reads: None,
            namespace,
            notes,
            owners_due: Instant::now(),
            has_owners: true,
            queues_due: Instant::now() + QUEUES_PAUSES[1],
            queues_pauses: QUEUES_PAUSES,
            queues: QueueCourses::new(),
            came: BTreeSet::new(),
            first: WatchLook::default(),
            before: WatchLook::default(),
            after: WatchLook::default(),
        };
        if let Some(name) = &watch.interface {
            link::index(name)?;
        }
        let began = Instant::now();
        let (facts, counts) = watch.take(Moment::First, OwnerSearch::Whole(None), &|| true)?;
        let drops = watch.drops(counts);
        watch.after = WatchLook { facts, drops };
        watch.owners_due = Instant::now() + began.elapsed() * OWNERS_PAUSE;
        watch.look_elsewhere(&Root::machine());
        watch.queues = QueueCourse::begin(&watch.after.facts.sockets);
        watch.first = watch.after.clone();
        Ok(watch)
    }

    /// If the process in question has no UDP socket, or none has the port in question, looks for those
    /// who have.
    fn look_elsewhere(&mut self, root: &Root) {
        let facts = &self.after.facts;
        let list = |all: &[UdpHolder]| named(all.iter().map(|(_, words)| words.clone()).collect());
        let has = |pid| facts.owners.values().any(|pids| pids.contains(&pid));
        if let Some(pid) = self.asked.pid.filter(|&pid| !has(pid)) {
            let (main, children) = family(root, pid);
            let (here, others): (Vec<_>, Vec<_>) = children.into_iter().partition(|one| has(one.0));
            self.asked.family = here.iter().map(|one| one.0).chain([main]).collect();
            let said = match (here.is_empty(), others.first()) {
                _ if has(main) => format!("it is a thread of process {main}"),
                (false, _) => format!("sockets of its children are shown: {}", list(&here)),
                (true, Some(first)) => format!(
                    "its children have some in another network namespace: {}: mpps doctor --pid {}",
                    list(&others),
                    first.0
                ),
                (true, None) => "nor has a child of it, as far as this user sees".to_owned(),
            };
            let port = self
                .asked
                .port
                .map_or_else(String::new, |port| format!(" at port {port}"));
            let note = format!("process {pid} has no UDP socket{port} here; {said}");
            self.notes.push(Foreign(note).to_string());
        }
        let Some(port) = self.asked.port else {
            return;
        };
        // With a container's published port, a proxy of the engine may have it here.
        let to = facts.packet_filter.translated_to(port);
        let served = to.map_or_else(Vec::new, |to| holders_of(root, to));
        let is_missing = facts.sockets.iter().all(|one| one.local.port() != port);
        let (port, all) = match to.filter(|_| !served.is_empty()) {
            Some(to) => (to.port(), served),
            None if is_missing => (port, holders_elsewhere(root, port)),
            None => return,
        };
        let (holders, strangers): (Vec<_>, Vec<_>) = all
            .into_iter()
            .partition(|one| is_joined(one.0, &facts.links));
        if let (true, [_]) = (holders.is_empty(), &strangers[..]) {
            let note = format!(
                "{} has port {port} in a network namespace that no veth joins to this one",
                list(&strangers)
            );
            self.notes.push(Foreign(note).to_string());
        }
        self.asked.elsewhere = holders.first().map(|first| {
            let pid = first.0;
            let holders = list(&holders);
            let said = format!(
                "{holders} has port {port} in another network namespace: mpps doctor --pid {pid} --port \
                 {port}"
            );
            Foreign(said).to_string()
        });
        self.notes.extend(self.asked.elsewhere.clone());
    }

    /// Looks at the queues of sockets, if that is due again: a check then knows whether a queue was full
    /// all the time. For callers that look once more and no further.
    pub fn look_at_queues(&mut self) {
        let began = Instant::now();
        let is_idle = self.queues.is_empty() && self.asked.port.is_none();
        if began < self.queues_due || is_idle {
            return;
        }
        // A list that fails is missing in the notes of the last look.
        if let Ok(sockets) = sock_diag::udp() {
            QueueCourse::add(&mut self.queues, &sockets);
            self.add_new(&sockets);
        }
        self.queues_due =
            Instant::now() + self.queues_pauses[0].max(began.elapsed() * OWNERS_PAUSE);
        self.queues_pauses.reverse();
    }

    /// From now on counts the reads that cut a datagram. This costs each read of a UDP socket some time.
    /// Where it is not possible, a note says why.
    pub fn count_reads(&mut self) {
        let probe = ReadProbe::attach(self.namespace, self.asked.port);
        let probe = probe.inspect_err(|error| {
            let remedy = match error.errno() {
                Some(EPERM) if has_rights() => {
                    "this kernel takes other BPF programs, and refuses those at its functions: no right helps"
                        .to_owned()
                }
                Some(EPERM) => Rights::own().remedy(&[CAP_BPF, CAP_PERFMON]),
                _ => "use Linux 5.12 or newer with CONFIG_DEBUG_INFO_BTF and CONFIG_DYNAMIC_FTRACE"
                    .to_owned(),
            };
            let trains = self.train_sockets(&Root::machine());
            let note = format!(
                "whether programs read with too small a buffer is not known: {error}; {remedy}{trains}"
            );
            self.notes.push(note);
        });
        self.reads = probe.ok();
    }

    /// The sockets in question that take trains, as a half sentence.
    fn train_sockets(&self, root: &Root) -> String {
        let facts = &self.after.facts;
        let asked = self.asked_sockets(facts);
        let inodes = asked.iter().map(|one| one.inode);
        let trains = ask(root, &facts.owners, inodes, BorrowedSocket::takes_trains);
        let trains = asked
            .iter()
            .filter(|one| trains.get(&one.inode) == Some(&true));
        let names: Vec<String> = trains.map(|one| one.local.to_string()).collect();
        match names.is_empty() {
            true => String::new(),
            false => format!(
                "; {} has UDP_GRO: a read with a buffer below 65535 bytes loses the rest of its train",
                named(names)
            ),
        }
    }

    /// The first sockets in question.
    fn asked_sockets<'f>(&self, facts: &'f Observation) -> Vec<&'f UdpEntry> {
        let DoctorRequest { port, pid, .. } = self.asked;
        let has = |inode, pid| {
            facts
                .owners
                .get(&inode)
                .is_some_and(|all| all.contains(&pid))
        };
        let asked = facts.sockets.iter().filter(|one| {
            port.is_none_or(|port| one.local.port() == port)
                && pid.is_none_or(|pid| has(one.inode, pid))
        });
        asked.take(ASKED_MAX).collect()
    }

    /// The hop limits that the sockets in question send with, if messages of used-up limits came.
    fn hop_limits(&self, facts: &Observation) -> BTreeMap<u32, u32> {
        let looks = [&self.first.facts.snapshot.snmp, &facts.snapshot.snmp];
        let grew = |name: &&str| looks[0].value(name) != looks[1].value(name);
        let is_asked = self.asked.port.is_some() || self.asked.pid.is_some();
        if !is_asked || !refused_sends::EXPIRED.iter().any(grew) {
            return BTreeMap::new();
        }
        let inodes = self.asked_sockets(facts).into_iter().map(|one| one.inode);
        ask(
            &Root::machine(),
            &facts.owners,
            inodes,
            BorrowedSocket::hop_limit,
        )
    }

    fn add_new(&mut self, sockets: &[UdpEntry]) {
        let known = self.after.facts.sockets.iter();
        let known: BTreeSet<u32> = known.map(|one| one.inode).collect();
        let asked =
            |one: &&UdpEntry| Some(one.local.port()) == self.asked.port && one.remote.is_none();
        let is_new = |one: &&UdpEntry| !known.contains(&one.inode);
        let new = sockets.iter().filter(asked).filter(is_new);
        self.came.extend(new.map(|one| one.inode));
    }

    /// From now on looks at no process, unless one was asked for: owners of sockets are not known.
    pub fn leave_out_owners(&mut self) {
        self.has_owners = self.asked.pid.is_some();
    }

    /// Looks once more.
    ///
    /// # Errors
    /// As [`Observation::take`].
    pub fn look(&mut self) -> HostResult<()> {
        self.look_while(&|| true)
    }

    /// The same. When `goes_on` says no, a search for owners of sockets ends soon, and those that were
    /// known before are taken; of processes only those are still read whose sockets dropped.
    ///
    /// # Errors
    /// As [`Observation::take`].
    pub fn look_while(&mut self, goes_on: &dyn Fn() -> bool) -> HostResult<()> {
        self.look_by(goes_on, |known, is_due| match is_due {
            false => OwnerSearch::Known(known),
            true => OwnerSearch::Whole(Some(known)),
        })
    }

    /// The same for a caller that reports only losses. Processes whose sockets lost nothing are not
    /// read.
    ///
    /// # Errors
    /// As [`Observation::take`].
    pub fn look_at_losses(&mut self, goes_on: &dyn Fn() -> bool) -> HostResult<()> {
        self.look_by(goes_on, |known, _| OwnerSearch::Losses(known))
    }

    fn look_by(
        &mut self,
        goes_on: &dyn Fn() -> bool,
        search: for<'a> fn(&'a Observation, bool) -> OwnerSearch<'a>,
    ) -> HostResult<()> {
        let began = Instant::now();
        let is_due = began >= self.owners_due;
        let known = &self.after.facts;
        let owners = match self.has_owners {
            false => OwnerSearch::None,
            true => search(known, is_due),
        };
        let known = (!is_due).then_some(known);
        let (mut facts, counts) = self.take(Moment::Later(known), owners, goes_on)?;
        let drops = self.drops(counts);
        QueueCourse::add(&mut self.queues, &facts.sockets);
        self.add_new(&facts.sockets);
        facts.new_sockets = std::mem::take(&mut self.came).len();
        let since = QueueCourse::begin(&facts.sockets);
        facts.queues = std::mem::replace(&mut self.queues, since);
        facts.hop_limits = self.hop_limits(&facts);
        if let Some(Ok(reads)) = self.reads.as_ref().map(ReadProbe::counts) {
            facts.reads = reads;
        }
        // A search that had to end early is due again at once.
        if is_due && goes_on() {
            self.owners_due = Instant::now() + began.elapsed() * OWNERS_PAUSE;
        }
        self.before = std::mem::replace(&mut self.after, WatchLook { facts, drops });
        Ok(())
    }

    fn take(
        &self,
        moment: Moment<'_>,
        owners: OwnerSearch<'_>,
        goes_on: &dyn Fn() -> bool,
    ) -> HostResult<(Observation, Option<ProbeCounts>)> {
        let counts = RefCell::new(None);
        let read = || *counts.borrow_mut() = self.probe.as_ref().map(DropProbe::sums);
        let interface = self.interface.as_deref().map(|name| [name]);
        let is_first = matches!(moment, Moment::First);
        let part = HostPart {
            interfaces: interface.as_ref().map(|name| &name[..]),
            port: self.asked.port,
            has_process: self.asked.pid.is_some(),
            owners,
            first: (!is_first).then_some(&self.first.facts),
            last_filter: Some(&self.after.facts.packet_filter),
            beside: &read,
            goes_on,
        };
        let facts = Observation::take_part(moment, &part)?;
        Ok((facts, counts.into_inner()))
    }

    /// The host between the last look and the look before it.
    pub fn seen(&self) -> Observed<'_> {
        self.between(&self.before)
    }

    /// The host between the first look and the last one.
    pub fn seen_in_all(&self) -> Observed<'_> {
        self.between(&self.first)
    }

    fn between<'a>(&'a self, before: &'a WatchLook) -> Observed<'a> {
        let drops = before.drops.as_deref().zip(self.after.drops.as_deref());
        let drops = drops.map(|(before, after)| (before, after, self.namespace));
        Observed::new(&before.facts, &self.after.facts, drops, self.asked.clone())
    }

    /// Notes on everything that could not be seen, and why.
    pub fn notes(&self) -> Vec<String> {
        let of_looks = [&self.before, &self.after].map(|look| look.facts.notes.iter());
        let all = self.notes.iter().chain(of_looks.into_iter().flatten());
        let mut notes: Vec<String> = Vec::new();
        for note in all {
            if !notes.contains(note) {
                notes.push(note.clone());
            }
        }
        let missed = self.probe.as_ref().map(DropProbe::overflowed);
        notes.extend(
            missed
                .and_then(std::result::Result::ok)
                .filter(|&missed| missed > 0)
                .map(|missed| {
                    format!("{missed} drops or more are missing in the kernel's drop reasons")
                }),
        );
        notes
    }

    /// Why nothing is known of the one interface in question, if it did not stay.
    pub fn undecided(&self) -> Option<String> {
        let name = self.interface.as_deref()?;
        undecided(name, &self.first.facts, &self.after.facts)
    }

    /// The name of the network namespace that is looked at.
    pub fn namespace(&self) -> String {
        namespace_name(self.namespace)
    }

    /// The interfaces that the last look looked at.
    pub fn interfaces(&self) -> Vec<String> {
        if let Some(name) = &self.interface {
            return vec![name.clone()];
        }
        let links = self.after.facts.links.iter();
        links.map(|link| link.name.clone()).collect()
    }

    /// The counts of the probe. If it cannot be read, it is given up with a note.
    fn drops(&mut self, counts: Option<ProbeCounts>) -> Option<Vec<DropCount>> {
        let counts = counts?.inspect_err(|error| {
            self.notes
                .push(format!("the kernel's drop reasons are not seen: {error}"));
        });
        if counts.is_err() {
            self.probe = None;
        }
        Some(self.probe.as_ref()?.named(counts.ok()?))
    }
}

/// True if an interface here has its other end in the network namespace of this process. Traffic can go there.
fn is_joined(pid: u32, links: &[link::NetlinkLink]) -> bool {
    let namespace = NetNamespace::open(&format!("/proc/{pid}/ns/net"));
    let id = namespace
        .ok()
        .and_then(|namespace| link::namespace_id(namespace.as_fd()).ok()?);
    id.is_some() && links.iter().any(|link| link.bound_namespace == id)
}

/// Why nothing is known of an interface that did not stay between two moments. It was renamed, or
/// it has gone. A new interface under its name is another interface.
fn undecided(name: &str, first: &Observation, after: &Observation) -> Option<String> {
    let index = |facts: &Observation| facts.snapshot.links.get(name).map(|link| link.index);
    let (was, is) = (index(first), index(after));
    if was.is_some() && was == is {
        return None;
    }
    let same = after.links.iter().find(|link| Some(link.index) == was);
    let became = match same.map(|link| &*link.name) {
        None => "went".to_owned(),
        Some(new) if new == name => "did not answer".to_owned(),
        Some(new) => format!("was renamed to {}", Foreign(new)),
    };
    let name = Foreign(name);
    Some(format!(
        "what was lost at {name} is not known: it {became} during the look"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mpps_os::netlink::link::NetlinkLink;

    /// These interfaces. `eth0` is looked at if it answers.
    fn host(links: &[(&str, u32)], answers: bool) -> Observation {
        let mut facts = Observation::default();
        for &(name, index) in links {
            let (mut link, mut counted) = (NetlinkLink::default(), crate::LinkSnapshot::default());
            (link.name, link.index, counted.index) = (name.to_owned(), index, index);
            facts.links.push(link);
            if name == "eth0" && answers {
                facts.snapshot.links.insert(name.to_owned(), counted);
            }
        }
        facts
    }

    /// Callers ask each 20 ms. A queue that is full for the first fifth of a period is full in two looks in a row at
    /// most; with equal pauses it would be in all.
    #[test]
    fn looks_do_not_follow_bursts() {
        for period in [50, 100, 125, 150, 200, 250, 1000] {
            for phase in 0..period {
                let (mut at, mut pauses, mut in_a_row) = (phase, QUEUES_PAUSES, 0);
                for _ in 0..100 {
                    in_a_row = if at % period < period / 5 {
                        in_a_row + 1
                    } else {
                        0
                    };
                    assert!(in_a_row < 3, "period {period}, phase {phase}");
                    at += (pauses[0].as_millis() as u64).next_multiple_of(20);
                    pauses.reverse();
                }
            }
        }
    }

    #[test]
    fn an_interface_that_did_not_stay_is_told() {
        let first = host(&[("lo", 1), ("eth0", 2)], true);
        for (links, answers, expected) in [
            (&[("lo", 1), ("eth0", 2)][..], true, None),
            (&[("eth0", 2), ("new", 3)], true, None),
            (&[("lo", 1)], true, Some("it went")),
            (&[("lo", 1), ("eth0", 3)], true, Some("it went")),
            (&[("eth0", 2)], false, Some("it did not answer")),
            (&[("eth1", 2)], true, Some("it was renamed to eth1")),
            (
                &[("eth1", 2), ("eth0", 3)],
                true,
                Some("it was renamed to eth1"),
            ),
            (&[("\x1b", 2)], true, Some("it was renamed to \u{fffd}")),
        ] {
            let said = undecided("eth0", &first, &host(links, answers));
            let words = expected.map(|became| {
                format!("what was lost at eth0 is not known: {became} during the look")
            });
            assert_eq!(said, words, "{links:?}");
        }
        // It went in the first look.
        assert!(undecided("eth0", &host(&[], true), &host(&[], true)).is_some());
    }

    #[test]
    fn owners_that_are_left_out_are_not_looked_for() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("loopback is there");
        let port = socket.local_addr().expect("it is bound").port();
        let own = |watch: &Watch| {
            watch
                .seen()
                .after
                .processes
                .contains_key(&std::process::id())
        };
        for pid in [None, Some(std::process::id())] {
            let asked = DoctorRequest {
                port: Some(port),
                pid,
                ..DoctorRequest::default()
            };
            let mut watch = Watch::begin(Some("lo".to_owned()), asked).expect("it may look");
            watch.look().expect("it may look again");
            assert!(own(&watch));
            watch.leave_out_owners();
            watch.look().expect("it may look again");
            assert_eq!(
                own(&watch),
                pid.is_some(),
                "a process that was asked for is looked at"
            );
        }
    }
}
