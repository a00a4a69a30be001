//! Where flows come from: the command line, a list, a capture, or what arrives.

mod capture;
mod orders;
mod others;

pub use capture::{CaptureRead, frames as frames_of_capture};

use self::orders::Orders;
use self::others::{OtherFrames, Reason, completed, untagged};

use crate::input;
use crate::output::{self, OutputStream};
use crate::program::lines::LOOK;
use crate::signal::{EndSignal, Interrupted};
use crate::udp::far_sender;
use crate::value;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use mpps_host::facts::rss::RssFlow;
use mpps_host::{QueuePackets, Snapshot};
use mpps_io::{Rx, RxConfig, Wait, backend, wire};
use mpps_report::Quantity;
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

/// The first port that a sender is taken to use after the last one: those below are reserved.
const PORT_MIN: u16 = 1024;
/// Most flows: a hundred bytes each are 3 GiB.
const FLOWS_MAX: u32 = 1 << 25;

/// How long a tap is emptied if more keeps coming.
const PATIENCE: Duration = Duration::from_secs(1);
/// How long a driver may take to count what it handed over.
const COUNTING: Duration = Duration::from_millis(50);

/// Which flows.
#[derive(Debug, Args)]
pub(super) struct FlowArgs {
    /// Predict the queue of this flow; may be repeated
    #[arg(long, value_name = "SOURCE:PORT-DESTINATION:PORT")]
    flow: Vec<RssFlow>,
    /// Make N flows from each --flow by raising its source port, then its source address. Without
    /// --flow it starts at 10.0.0.1:1024-10.0.0.2:4321
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(FLOWS_MAX)))]
    flows: Option<u32>,
    /// Read flows from FILE, one per line in the form of --flow; - reads standard input
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// Read flows and their packets from a capture (pcap); - reads standard input
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    pcap: Option<PathBuf>,
    /// Count only packets to this port, of arrivals or of a capture
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Use TCP flows instead of UDP
    #[arg(long)]
    pub(super) tcp: bool,
    /// With --verify: run this shell command to send the flows, "ssh HOST mpps send". mpps appends
    /// destination, source ports and count. The source address of the flows must be HOST's
    #[arg(long, value_name = "COMMAND", requires = "verify", conflicts_with_all = ["tcp", "file"])]
    sender: Option<String>,
    /// Count arrivals for TIME. With --verify and given flows, stop when each has arrived. With --sender,
    /// stop when the command ends, or after TIME plus the time to send all datagrams
    #[arg(long, alias = "seconds", value_name = "TIME", default_value = "5s", value_parser = value::pace)]
    duration: Duration,
}

/// Flows, each with its packets.
#[derive(Debug, Default)]
pub(super) struct Flows {
    /// Where they are from, in words.
    pub(super) source: String,
    pub(super) all: Vec<(RssFlow, u64)>,
    /// How many were named to be verified, and did not come; none where none were named.
    pub(super) missing: Option<u64>,
    /// Packets that are of no such flow, and those that the tap dropped uncounted.
    pub(super) others: OtherFrames,
    pub(super) dropped: u64,
    /// The packets of the card's queues meanwhile.
    pub(super) queues: Vec<QueuePackets>,
    /// Notes on the parts of a capture that were not read.
    pub(super) notes: Vec<String>,
}

impl FlowArgs {
    /// ethtool's names of such traffic over IPv4, and over IPv6.
    pub(super) fn kinds(&self) -> [&'static str; 2] {
        match self.tcp {
            true => ["tcp4", "tcp6"],
            false => ["udp4", "udp6"],
        }
    }

    pub(super) fn protocol(&self) -> &'static str {
        if self.tcp { "TCP" } else { "UDP" }
    }

    /// The flows that were named; none if none were.
    pub(super) fn given(&self) -> Result<Option<Flows>> {
        if let Some(path) = &self.pcap {
            let file = input::open(path).context("--pcap")?;
            let mut counts = FlowFrames::new(self);
            let fits = |counts: &FlowFrames| counts.flows.len() <= FLOWS_MAX as usize;
            let count = |frame: &[u8], is_part: bool| {
                if !fits(&counts) {
                    return;
                }
                match is_part {
                    true => counts.add(&completed(untagged(frame))),
                    false => counts.add(frame),
                }
            };
            let read = capture::frames(file, count)
                .map_err(|why| anyhow::anyhow!("--pcap {}: {why}", path.display()))?;
            ensure!(
                fits(&counts),
                "--pcap {}: it has more than {FLOWS_MAX} flows; --port takes a part",
                path.display()
            );
            let mut flows = counts.flows(path.display().to_string());
            flows.notes = read.notes();
            return Ok(Some(flows));
        }
        let mut first = self.first();
        if let Some(path) = &self.file {
            first.extend(listed(
                &input::text(path).context("--file")?,
                &path.display().to_string(),
            )?);
        }
        if first.is_empty() {
            return Ok(None);
        }
        let each = self.each() as usize;
        let sum = first.len().saturating_mul(each);
        ensure!(
            sum <= FLOWS_MAX as usize,
            "--flows: {sum} flows are more than {FLOWS_MAX}"
        );
        let all = first.iter().flat_map(|flow| rising(*flow).take(each));
        let mut listed = room(sum)?;
        listed.extend(all.map(|flow| (flow, 1)));
        Ok(Some(Flows {
            all: listed,
            source: "as they were given".to_owned(),
            ..Flows::default()
        }))
    }

    /// The named flows, or a default flow. More flows count up from each of them.
    fn first(&self) -> Vec<RssFlow> {
        if !self.flow.is_empty() || self.flows.is_none() || self.file.is_some() {
            return self.flow.clone();
        }
        let [from, to] = [([10, 0, 0, 1], PORT_MIN), ([10, 0, 0, 2], 4321)]
            .map(|(ip, port)| SocketAddr::from((Ipv4Addr::from(ip), port)));
        RssFlow::new(from, to).into_iter().collect()
    }

    fn each(&self) -> u32 {
        self.flows.unwrap_or(1)
    }

    /// How another host is to send the flows that are named.
    fn orders(&self, are_named: bool) -> Result<Orders> {
        let orders = |sender| Orders::new(&self.first(), self.each(), sender);
        match self.sender.as_deref() {
            Some(_) if !are_named => {
                bail!("--sender: name what it is to send by --flow or --flows")
            }
            Some(sender) => orders(Some(sender)),
            // If no command is possible, none is shown.
            None if are_named && !self.tcp => Ok(orders(None).unwrap_or_default()),
            None => Ok(Orders::default()),
        }
    }

    /// Counts arrivals at an interface until the other host has sent the named flows, or the time
    /// is over. Without another host it ends once all named flows have come. Counters are read
    /// before the tap opens and after it was emptied. So they include all that the tap saw, and
    /// some packets before and after.
    pub(super) fn arriving(&self, interface: &str, named: Option<&Flows>) -> Result<Flows> {
        let orders = self.orders(named.is_some())?;
        let interrupt = EndSignal::listen()?;
        let mut config = RxConfig::new(SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)));
        config.ring.interface = Some(interface.to_owned());
        config.ring.all_traffic = true;
        let before = Snapshot::take(&[interface])?;
        let mut rx = backend::find("packet_mmap")?.open_rx(&config)?;
        let time = match self.sender {
            Some(_) => self.duration + Duration::from_secs(orders.seconds),
            None => self.duration,
        };
        let told = format!(
            "counting arrivals at {interface} for {}; Ctrl-C ends it early",
            Quantity::Seconds(time.as_secs_f64())
        );
        output::line(OutputStream::Err, &told)?;
        let mut counts = FlowFrames::new(self);
        counts.named = named.map(|named| named.all.iter().map(|(flow, _)| *flow).collect());
        let end = Instant::now() + time;
        thread::scope(|scope| {
            let (orders, interrupt) = (&orders.commands, &interrupt);
            let send = move || {
                orders.iter().try_for_each(|one| {
                    let left = end.saturating_duration_since(Instant::now());
                    far_sender::obey(one, left, interrupt).map(drop)
                })
            };
            let sending = match self.sender {
                Some(_) => Some(thread::Builder::new().spawn_scoped(scope, send)?),
                None => None,
            };
            if sending.is_none() && !orders.is_empty() {
                output::line(OutputStream::Err, "to send them, on another host:")?;
                for order in orders {
                    output::line(OutputStream::Err, &format!("    {order}"))?;
                }
            }
            // The other host is done when its command has ended.
            let has_ended = || sending.as_ref().is_some_and(|thread| thread.is_finished());
            let is_done = |counts: &FlowFrames| match self.sender {
                Some(_) => has_ended(),
                None => counts.is_complete(),
            };
            while !interrupt.came() && Instant::now() < end && !is_done(&counts) {
                counts.take(&mut *rx, Wait::Block(LOOK))?;
            }
            let sent = sending.map(|thread| thread.join());
            match sent {
                Some(Ok(Err(error))) if !error.is::<Interrupted>() => Err(error),
                Some(Err(_)) => bail!("--sender: its thread panicked"),
                _ => Ok(()),
            }
        })?;
        let emptied = Instant::now() + PATIENCE;
        // A named flow's only packet may still be on its way.
        let wait = match named {
            Some(_) => Wait::Block(LOOK),
            None => Wait::Poll,
        };
        while counts.take(&mut *rx, wait)? && Instant::now() < emptied {}
        // Some drivers add up what they received when they are done with it.
        thread::sleep(COUNTING);
        let after = Snapshot::take(&[interface])?;
        let named = counts.named.as_ref().map(HashSet::len);
        let missing = named.map(|named| (named - counts.flows.len()) as u64);
        let mut flows = counts.flows(format!("as they arrived at {interface}"));
        flows.missing = missing;
        flows.queues = after.since(&before).queue_packets(interface);
        flows.dropped = rx.counters().dropped;
        Ok(flows)
    }
}

/// The packets of each flow.
#[derive(Debug, Default)]
struct FlowFrames {
    port: Option<u16>,
    tcp: bool,
    /// Only these, where flows were named.
    named: Option<HashSet<RssFlow>>,
    flows: HashMap<RssFlow, u64>,
    others: OtherFrames,
}

impl FlowFrames {
    fn new(args: &FlowArgs) -> Self {
        Self {
            port: args.port,
            tcp: args.tcp,
            ..Self::default()
        }
    }

    /// Counts a frame.
    fn add(&mut self, frame: &[u8]) {
        let frame = untagged(frame);
        let ends = match self.tcp {
            true => wire::tcp_ends(frame),
            false => wire::datagram(frame).map(|found| (found.source, found.destination)),
        };
        let wanted = |port| self.port.is_none_or(|wanted| wanted == port);
        let wanted_ends = ends.filter(|(_, destination)| wanted(destination.port()));
        let flow = wanted_ends.and_then(|(source, destination)| RssFlow::new(source, destination));
        let is_named =
            |flow: &RssFlow| self.named.as_ref().is_none_or(|named| named.contains(flow));
        match flow.filter(is_named) {
            Some(flow) => *self.flows.entry(flow).or_default() += 1,
            None if ends.is_some() => self.others.add(Reason::Unasked),
            None => self.others.add(Reason::of(frame, self.tcp)),
        }
    }

    /// True if all that was named has come.
    fn is_complete(&self) -> bool {
        self.named
            .as_ref()
            .is_some_and(|named| named.len() == self.flows.len())
    }

    /// Counts what has come; false if that is nothing.
    fn take(&mut self, rx: &mut dyn Rx, wait: Wait) -> io::Result<bool> {
        let batch = rx.recv(wait)?;
        batch.packets().for_each(|packet| self.add(packet.data));
        Ok(!batch.is_empty())
    }

    fn flows(self, source: String) -> Flows {
        let mut all: Vec<(RssFlow, u64)> = self.flows.into_iter().collect();
        all.sort_unstable();
        Flows {
            source,
            all,
            others: self.others,
            ..Flows::default()
        }
    }
}

/// Memory for so much about flows: an allocation that fails ends the process.
pub(super) fn room<T>(flows: usize) -> Result<Vec<T>> {
    let mut room = Vec::new();
    let reserved = room.try_reserve_exact(flows).ok();
    reserved.with_context(|| {
        format!("this process gets no memory for {flows} flows (`ulimit -v` or `-d`?)")
    })?;
    Ok(room)
}

/// A flow a line; empty lines and those that begin with # are none.
fn listed(text: &str, name: &str) -> Result<Vec<RssFlow>> {
    let lines = text.lines().map(str::trim).enumerate();
    let flows = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    flows
        .map(|(at, line)| match line.parse() {
            Ok(flow) => Ok(flow),
            Err(why) => bail!("--file {name}, line {}: {why}", at + 1),
        })
        .collect()
}

/// A flow, and those after it by source port and address.
fn rising(first: RssFlow) -> impl Iterator<Item = RssFlow> {
    std::iter::successors(Some(first), |flow| {
        let mut next = *flow;
        match flow.source.port().checked_add(1) {
            Some(port) => next.source.set_port(port),
            None => next.source = SocketAddr::new(after(flow.source.ip()), PORT_MIN),
        }
        Some(next)
    })
}

fn after(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(address) => IpAddr::V4(Ipv4Addr::from(u32::from(address).wrapping_add(1))),
        IpAddr::V6(address) => IpAddr::V6(u128::from(address).wrapping_add(1).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_rise_and_then_addresses() {
        let first = "10.0.0.255:65534-10.0.1.2:53".parse().unwrap();
        let flows: Vec<String> = rising(first).take(3).map(|flow| flow.to_string()).collect();
        let expected = [
            "10.0.0.255:65534-10.0.1.2:53",
            "10.0.0.255:65535-10.0.1.2:53",
            "10.0.1.0:1024-10.0.1.2:53",
        ];
        assert_eq!(flows, expected);
    }

    #[test]
    fn a_list_names_its_bad_line() {
        let text = "# ours\n\n10.0.0.1:1-10.0.0.2:2\n [::1]:1-[::2]:2 \n";
        assert_eq!(listed(text, "f").unwrap().len(), 2);
        let refused = listed("10.0.0.1:1-10.0.0.2:2\nnonsense", "f").unwrap_err();
        assert!(
            refused.to_string().starts_with("--file f, line 2: "),
            "{refused}"
        );
    }
}
