//! `mpps accelerate`: starts a program whose UDP port is served by AF_XDP, without a change to it.
//!
//! This process opens the queues and holds the XDP program: when it ends, in whatever way, all
//! datagrams are the kernel's again. The program has the preloaded library
//! (`crates/accelerate`) and needs no rights.

mod refusal;
mod steering;

use self::steering::PortSteering;
use crate::measure::outcome::CommandEnding;
use crate::output::{self, OutputStream};
use crate::signal::EndSignal;
use anyhow::{Context, Result, ensure};
use mpps_os::clock::monotonic_ns;
use mpps_os::ethtool;
use mpps_os::netlink::link::{self, NetlinkLink};
use mpps_os::netlink::{address, sock_diag};
use mpps_os::poll::Waiter;
use mpps_os::process::{self, Reaped};
use mpps_os::wake::Wake;
use mpps_os::xdp::SocketConfig;
use mpps_os::xdp::shared::{ADDRESSES_MAX, SharedControl, SharedQueue, inheritable, number_of};
use std::ffi::OsString;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Why nothing is switched at first.
const UNREAD: &str = "no program reads it yet";
const LIBRARY: &str = "libmpps_accelerate.so";
/// How often frames that wait are looked at, and for how long after the last ones.
const WATCH: Duration = Duration::from_millis(1);
const WATCH_AFTER_NS: u64 = 20_000_000;
/// How often the end of the program is looked for, and how often sockets and rules.
const LOOK: Duration = Duration::from_millis(50);
const CHECK_NS: u64 = 1_000_000_000;
/// How long the program may send by the rings after this process was last heard of.
const ALIVE_MS: u64 = 2000;

/// The arguments of `mpps accelerate`.
#[derive(Debug)]
pub(crate) struct AcceleratePlan {
    pub(crate) interface: String,
    pub(crate) port: Option<u16>,
    pub(crate) program: Vec<OsString>,
}

impl AcceleratePlan {
    /// Runs the program to its end, and prints the ledger.
    pub(crate) fn run(&self) -> Result<CommandEnding> {
        let name = self.program[0].to_string_lossy();
        let path = refusal::check_program(&name)?;
        let library = library()?;
        if let Some(why) = refusal::rules_in_the_way() {
            anyhow::bail!("{why}");
        }
        let mut launcher = Launcher::open(&self.interface, self.port)?;
        let end = EndSignal::listen_held()?;
        let mut command = Command::new(path);
        let preloaded = std::env::var_os("LD_PRELOAD").unwrap_or_default();
        let mut libraries = OsString::from(library);
        libraries.push(":");
        libraries.push(preloaded);
        command
            .args(&self.program[1..])
            .env("LD_PRELOAD", libraries)
            .env("MPPS_ACCELERATE", launcher.descriptors());
        process::adopt()?;
        let child = command.spawn().with_context(|| name.into_owned())?;
        let status = launcher.serve(child.id(), &end)?;
        say(&launcher.ledger()?)?;
        Ok(CommandEnding::Status(status))
    }
}

/// Sends a signal to the program, or to what it left if it has ended; false if that cannot be seen. Numbers are good until
/// they are reaped here.
fn hand_on(signal: i32, program: Option<u32>) -> bool {
    let all = program.map_or_else(process::children, |program| vec![program]);
    all.iter().for_each(|pid| process::signal(*pid, signal));
    !all.is_empty()
}

/// A count in groups of three digits.
fn grouped(count: u64) -> String {
    mpps_report::grouped(count.into())
}

fn say(text: &str) -> Result<()> {
    Ok(output::line(OutputStream::Err, &format!("mpps: {text}"))?)
}

/// The library beside this program. Of Cargo's two copies the one in `deps` is always new.
fn library() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let beside = |part: &str| own.parent().map(|parent| parent.join(part).join(LIBRARY));
    let found = ["deps", ".", "../lib/mpps"]
        .into_iter()
        .filter_map(beside)
        .find(|path| path.is_file());
    let found = found
        .with_context(|| format!("{LIBRARY} is not beside {}: copy it there", own.display()))?;
    ensure!(
        !found
            .as_os_str()
            .as_bytes()
            .iter()
            .any(|byte| b" :".contains(byte)),
        "LD_PRELOAD takes no blank and no colon, as in {}: install mpps elsewhere",
        found.display()
    );
    Ok(found)
}

struct Launcher {
    /// The port, once it is known. The program can write all shared memory, and must not get another
    /// one.
    port: Option<u16>,
    link: NetlinkLink,
    addresses: Vec<IpAddr>,
    control: SharedControl,
    queues: Vec<SharedQueue>,
    wake: Wake,
    steering: PortSteering,
    /// The descriptors that the program inherits.
    handed: Vec<OwnedFd>,
    /// The last answer to the question why nothing is switched.
    why: Option<String>,
    holds: u32,
    held_at_ns: u64,
    checked_ns: u64,
}

impl Launcher {
    fn open(name: &str, port: Option<u16>) -> Result<Self> {
        let link = link::of(link::index(name)?)?;
        let channels = ethtool::channels(name).unwrap_or_default();
        let used = |some: u32, made: u32| match some + channels.combined {
            0 => made,
            used => used,
        };
        let (rx, tx) = (
            used(channels.rx, link.rx_queues),
            used(channels.tx, link.tx_queues),
        );
        refusal::check_interface(&link, tx, rx)?;
        let frame_bytes = refusal::frame_bytes(&link)?;
        let addresses: Vec<IpAddr> = addresses(link.index)?;
        let count = addresses.len();
        ensure!(
            (1..=ADDRESSES_MAX).contains(&count),
            "{name} has {count} addresses: 1 to 16 are possible"
        );
        let steering = PortSteering::attach(link.index, &link.address, &addresses, rx)?;
        let (memory, control) = SharedControl::create(rx, frame_bytes)?;
        let wake = Wake::new()?;
        let mut queues = Vec::new();
        let mut handed = vec![inheritable(memory.as_fd())?, inheritable(wake.as_fd())?];
        for queue in 0..rx {
            let config = SocketConfig {
                frame_bytes,
                zero_copy: (!steering.is_native).then_some(false),
                ..SocketConfig::new(name, link.index, queue)
            };
            let queue_socket = SharedQueue::open(&config, memory.as_fd())?;
            // The program maps the rings of a bound socket, too.
            let copy = inheritable(queue_socket.as_fd())?;
            let mapped = SharedQueue::join(copy, memory.as_fd(), queue, frame_bytes);
            mapped.context("this kernel shares no ring of a bound AF_XDP socket")?;
            steering.sockets.set(queue, queue_socket.as_fd())?;
            handed.push(inheritable(queue_socket.as_fd())?);
            queues.push(queue_socket);
        }
        control.port.store(u32::from(port.unwrap_or(0)), Relaxed);
        control.interface_index.store(link.index, Relaxed);
        control.mtu.store(link.mtu, Relaxed);
        let hardware = link
            .address
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        control.hardware.store(hardware, Relaxed);
        control
            .unfinished_sums
            .store(u32::from(link.kind == "veth"), Relaxed);
        for (place, address) in control.addresses.iter().zip(&addresses) {
            place.store(number_of(*address));
        }
        let (why, holds, held_at_ns, checked_ns) = (Some(UNREAD.to_owned()), 0, 0, 0);
        let launcher = Self {
            port,
            link,
            addresses,
            control,
            queues,
            wake,
            steering,
            handed,
            why,
            holds,
            held_at_ns,
            checked_ns,
        };
        launcher.introduce()?;
        Ok(launcher)
    }

    fn introduce(&self) -> Result<()> {
        let way = if self.steering.is_native {
            "native"
        } else {
            "generic"
        };
        let copies = self.queues[0].is_zero_copy()?;
        let copies = if copies { "zero-copy" } else { "copy" };
        let (name, queues) = (&self.link.name, self.queues.len());
        let port = match self.port {
            None => "the first UDP port that is read".to_owned(),
            Some(port) => format!("UDP port {port}"),
        };
        say(&format!(
            "{port} at {name} by AF_XDP ({way}, {copies}, {queues} queues), past tcpdump, conntrack and traffic control"
        ))
    }

    fn descriptors(&self) -> String {
        let numbers = self.handed.iter().map(|fd| fd.as_raw_fd().to_string());
        numbers.collect::<Vec<_>>().join(",")
    }

    /// Serves the program until it and all that it started have ended; answers its exit code.
    fn serve(&mut self, child: u32, end: &EndSignal) -> Result<u8> {
        let (mut status, mut waiter) = (0, Waiter::new());
        let (mut first, mut has_ended, mut signal) = (Some(child), false, None);
        loop {
            let is_watching = self.control.is_watching.load(Relaxed) != 0;
            let pause = if is_watching { WATCH } else { LOOK };
            // A signal ends the wait early.
            if waiter.poll(self.wake.as_fd(), pause).unwrap_or(false) {
                self.wake.clear();
            }
            let now_ns = monotonic_ns();
            self.control
                .alive_until_ms
                .store(now_ns / 1_000_000 + ALIVE_MS, Relaxed);
            self.flush(now_ns);
            let asked = &self.control.asked;
            let is_told = asked.compare_exchange(2, 3, Relaxed, Relaxed).is_ok();
            if is_told || now_ns.saturating_sub(self.checked_ns) > CHECK_NS {
                self.checked_ns = now_ns;
                self.reconsider()?;
                let _ = self.control.asked.compare_exchange(3, 1, Relaxed, Relaxed);
            }
            signal = end.take().or(signal);
            has_ended |= signal.is_some();
            if !is_watching || has_ended {
                match process::reap()? {
                    Reaped::Nothing if signal.take().is_some_and(|one| !hand_on(one, first)) => {
                        break;
                    }
                    Reaped::Ended(ended, code) if ended == child => (status, first) = (code, None),
                    Reaped::Nothing | Reaped::Ended(..) => {}
                    Reaped::NoChildren => break,
                }
            }
        }
        self.switch(&[])?;
        Ok(status)
    }

    /// Sends frames that wait. If they did at the last look, the program does something between.
    fn flush(&mut self, now_ns: u64) {
        let control = &*self.control;
        let holds = control.holds.load(Relaxed);
        let is_new = holds != self.holds;
        if control.held.swap(0, Relaxed) > 0 {
            control.flushes.fetch_add(u32::from(!is_new), Relaxed);
            let waiting = self.queues.iter().filter(|queue| queue.unsent() > 0);
            waiting.for_each(SharedQueue::kick);
        }
        if is_new {
            (self.holds, self.held_at_ns) = (holds, now_ns);
        }
        let is_watching = now_ns.saturating_sub(self.held_at_ns) < WATCH_AFTER_NS;
        control.is_watching.store(u32::from(is_watching), Relaxed);
    }

    /// Switches the addresses that may be switched now, and says why the others are not.
    fn reconsider(&mut self) -> Result<()> {
        if self.port.is_none() {
            let read = self.control.port.load(Relaxed);
            self.port = u16::try_from(read).ok().filter(|port| *port != 0);
        }
        let (wanted, why) = match self.obstacle()? {
            Some(why) => (Vec::new(), Some(why)),
            None => {
                let owned = |address: &IpAddr| self.control.owner(number_of(*address)).is_some();
                (self.addresses.iter().map(owned).collect(), None)
            }
        };
        self.switch(&wanted)?;
        if why != self.why {
            self.why.clone_from(&why);
            let port = self.port.unwrap_or(0);
            match why {
                Some(why) => say(&format!("port {port} stays with the kernel: {why}"))?,
                None => say(&format!("port {port} goes to the rings"))?,
            }
        }
        Ok(())
    }

    /// Why the kernel has all datagrams.
    fn obstacle(&self) -> Result<Option<String>> {
        if self.control.asked.load(Relaxed) == 0 {
            return Ok(Some(UNREAD.to_owned()));
        }
        if let Some(why) = refusal::rules_in_the_way() {
            return Ok(Some(why));
        }
        let link = link::find(self.link.index)?.filter(|link| link.up);
        let same = link
            .is_some_and(|link| (link.mtu, &link.address) == (self.link.mtu, &self.link.address));
        if !same || addresses(self.link.index)? != self.addresses {
            return Ok(Some(format!("{} changed: start it again", self.link.name)));
        }
        let sockets = sock_diag::udp()?;
        let sockets: Vec<_> = sockets
            .iter()
            .filter(|socket| Some(socket.local.port()) == self.port)
            .collect();
        // Places of closed sockets are free again.
        for place in &self.control.sockets {
            let cookie = place.cookie.load(Relaxed);
            if cookie != 0 && !sockets.iter().any(|socket| socket.cookie == cookie) {
                let _ = place.cookie.compare_exchange(cookie, 0, Relaxed, Relaxed);
            }
        }
        let is_known = |cookie: u64| {
            let mut places = self.control.sockets.iter();
            places.any(|place| place.cookie.load(Relaxed) == cookie)
        };
        let why = sockets.iter().find_map(|socket| {
            let at = socket.local;
            let twins = sockets.iter().filter(|other| other.local == at).count();
            let others = [0, self.link.index].contains(&socket.interface);
            match () {
                () if socket.remote.is_some() => Some(format!("a socket at {at} is connected")),
                () if twins > 1 => Some(format!("{twins} sockets share {at}")),
                () if !others => Some(format!("a socket at {at} is bound to another interface")),
                () if !is_known(socket.cookie) => Some(format!(
                    "a socket at {at} was not read through the library, or has options of its own"
                )),
                () => None,
            }
        });
        Ok(why.or_else(|| sockets.is_empty().then(|| "no socket has it".to_owned())))
    }

    /// Switches these addresses, in their order, and no others.
    fn switch(&self, wanted: &[bool]) -> Result<()> {
        let control = &*self.control;
        let (is_on, was_on) = (wanted.contains(&true), control.is_switched());
        if is_on && !was_on {
            control.is_switching.store(1, Relaxed);
            control.switches.fetch_add(1, Relaxed);
        }
        for at in 0..self.addresses.len() {
            let is_wanted = wanted.get(at).is_some_and(|wanted| *wanted);
            self.steering.switch(at, self.port.filter(|_| is_wanted))?;
        }
        control.is_switching.store(0, Relaxed);
        if !is_on && was_on {
            control.switches.fetch_add(1, Relaxed);
        }
        Ok(())
    }

    /// The last line: every datagram that went to the rings.
    fn ledger(&self) -> Result<String> {
        let counts = &self.control.counts;
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        let (mut came, mut lost, mut unread) = (0, 0, 0);
        for (queue, number) in self.queues.iter().zip(0..) {
            let statistics = queue.statistics()?;
            came += self.steering.redirected(number)?;
            lost += statistics.rx_dropped + statistics.rx_ring_full;
            unread += u64::from(queue.waiting());
        }
        let aside = self.control.sockets.iter().map(|socket| {
            let first = socket.aside_first.load(Relaxed);
            u64::from(socket.aside_next.load(Relaxed).wrapping_sub(first))
        });
        unread += aside.sum::<u64>();
        let (read, bad) = (count(&counts.by_ring), count(&counts.bad_sum));
        let no_room = count(&counts.no_room);
        let known = read + lost + bad + no_room + unread;
        let unaccounted = i128::from(came) - i128::from(known);
        let by_kernel = [
            ("address unknown", &counts.no_neighbour),
            ("another route", &counts.other_way),
            ("options", &counts.options),
            ("too long", &counts.too_long),
            ("no frame", &counts.no_frame),
        ];
        let reasons: Vec<String> = by_kernel
            .iter()
            .filter(|(_, counter)| count(counter) > 0)
            .map(|(reason, counter)| format!("{} {reason}", grouped(count(counter))))
            .collect();
        let reasons = match reasons.is_empty() {
            true => String::new(),
            false => format!(" (by the kernel: {})", reasons.join(", ")),
        };
        let port = self.port.unwrap_or(0);
        Ok(format!(
            "port {port} of {}: {} by rings = {} read + {} lost (ring full) + {} lost (socket) + {} bad check \
             sums + {} not read; UNACCOUNTED {unaccounted}; {} by the kernel's sockets; {} answers by \
             rings{reasons}",
            self.link.name,
            grouped(came),
            grouped(read),
            grouped(lost),
            grouped(no_room),
            grouped(bad),
            grouped(unread),
            grouped(count(&counts.by_kernel)),
            grouped(count(&counts.sent_by_ring)),
        ))
    }
}

/// The unicast addresses of an interface, in a fixed order.
fn addresses(index: u32) -> Result<Vec<IpAddr>> {
    let all = address::list(index)?.into_iter();
    let mut all: Vec<IpAddr> = all.map(|address| address.address).collect();
    all.sort();
    all.dedup();
    Ok(all)
}
