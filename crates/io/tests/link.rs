//! Link handling by senders of frames: a neighbour that is not known yet, a carrier that is away, a
//! driver that needs an XDP program.

use crate::{check, lab};
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Interest, Token};
use mpps_io::parts::{LinkPath, XdpSwitch};
use mpps_io::{
    Inspect, RingConfig, RxConfig, RxTask, RxWorker, Stop, TxConfig, Wait, Work, backend,
    parts::await_carrier,
};
use mpps_os::bpf::asm::{Assembler, R0};
use mpps_os::bpf::{BpfLink, Program, ProgramKind, XdpAttach};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::{address, link};
use mpps_trial::{Failed, Need, Trial, trials};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::thread;
use std::time::Duration;

/// How long an end of the pair stays away.
const AWAY: Duration = Duration::from_millis(300);
/// Longer than the kernel ever asks for a neighbour.
const LONG: Duration = Duration::from_secs(60);
/// `XDP_PASS` of `enum xdp_action`.
const PASS: i32 = 2;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::probe(attaches)):
            a_neighbour_is_asked_for,
            a_silent_neighbour_is_named,
            a_full_sender_is_told_when_to_go_on,
            a_carrier_is_waited_for,
            senders_share_a_program,
            what_a_receiver_attached_outlives_its_worker;
    ]
}

/// Whether programs can be attached in a lab; why not.
fn attaches() -> Result<(), String> {
    let sender = lab()?.sender();
    let attached = sender.run(|| attach(sender.interface_index()));
    let attached = attached.map_err(|error| error.to_string())?;
    attached.map(drop).map_err(|error| error.to_string())
}

/// Attaches a program as another one would.
fn attach(interface_index: u32) -> mpps_os::CallResult<BpfLink> {
    let instructions = Assembler::new().set(R0, PASS).exit().finish()?;
    let program = Program::load(ProgramKind::Xdp, "mpps_other", &instructions)?;
    BpfLink::xdp(&program, interface_index, XdpAttach::Native)
}

/// Two namespaces, a pair of interfaces with addresses, and no neighbour known. Both ends are down.
struct Pair {
    near: NetNamespace,
    far: NetNamespace,
}

impl Pair {
    fn new() -> Result<Self, Failed> {
        let (near, far) = (NetNamespace::new()?, NetNamespace::new()?);
        near.run(|| link::create_veth("near", 1, "far", 1, far.as_fd()))??;
        Ok(Self { near, far })
    }

    fn up(&self, is_near: bool) -> Result<(), Failed> {
        let (namespace, name, last) = match is_near {
            true => (&self.near, "near", 1),
            false => (&self.far, "far", 2),
        };
        namespace.run(|| -> mpps_os::CallResult<()> {
            let index = link::index(name)?;
            // An address of IPv6 may be used a second after the link came up.
            address::add(index, IpAddr::from([10, 9, 0, last]), 24)?;
            address::add(index, v6(last), 64)?;
            link::set_up(index)
        })??;
        Ok(())
    }

    fn path(&self, target: IpAddr) -> Result<Result<LinkPath, mpps_io::Error>, Failed> {
        let target = SocketAddr::new(target, 9);
        let find = || LinkPath::find(target, None, &RingConfig::default());
        Ok(self.near.run(find)?)
    }
}

fn v6(last: u8) -> IpAddr {
    IpAddr::from([0xfd09, 0, 0, 0, 0, 0, 0, u16::from(last)])
}

fn a_neighbour_is_asked_for() -> Result<(), Failed> {
    let pair = Pair::new()?;
    pair.up(true)?;
    pair.up(false)?;
    let links = pair.far.run(link::list)??;
    let far = links.into_iter().find(|link| link.name == "far");
    let hardware = far.ok_or("no interface")?.address;
    for target in [IpAddr::from([10, 9, 0, 2]), v6(2)] {
        let path = pair.path(target)??;
        check(&path.target_mac[..], &hardware[..], "hardware address")?;
    }
    Ok(())
}

fn a_silent_neighbour_is_named() -> Result<(), Failed> {
    let pair = Pair::new()?;
    pair.up(true)?;
    pair.up(false)?;
    let error = pair.path(IpAddr::from([10, 9, 0, 77]))?.err();
    let error = error.ok_or("nobody answered")?.to_string();
    for part in ["10.9.0.77", "near", "does not answer", "ring.target_mac"] {
        check(error.contains(part), true, part)?;
    }
    Ok(())
}

/// Frames that wait for a neighbour who does not answer fill the send buffer. After three questions
/// the kernel gives up and drops them.
fn a_full_sender_is_told_when_to_go_on() -> Result<(), Failed> {
    let pair = Pair::new()?;
    pair.up(true)?;
    pair.up(false)?;
    // Between two questions is a second, unless the interface says otherwise (arp(7)).
    let question = "/proc/sys/net/ipv4/neigh/near/retrans_time_ms";
    pair.near.run(|| std::fs::write(question, "200"))??;
    let mut config = TxConfig::new(SocketAddr::from(([10, 9, 0, 77], 9)));
    config.send_buffer_bytes = Some(1);
    for name in ["send", "sendmmsg", "io_uring"] {
        let open = || backend::find(name)?.open_tx(&config);
        let mut tx = pair.near.run(open)??;
        // mio waits for edges.
        let (mut poll, mut events) = (mio::Poll::new()?, mio::Events::with_capacity(1));
        let fd = tx.readiness(0).ok_or("no descriptor")?.as_raw_fd();
        let mut source = SourceFd(&fd);
        poll.registry()
            .register(&mut source, Token(0), Interest::WRITABLE)?;
        poll.poll(&mut events, Some(Duration::ZERO))?;
        check(events.iter().count(), 1, "writable at first")?;
        let mut sent = 0;
        while tx.send(0, 64)?.offered() == 64 {
            sent += 64;
            check(sent < 100_000, true, "a send buffer that has an end")?;
        }
        poll.poll(&mut events, Some(Duration::ZERO))?;
        check(events.iter().count(), 0, "not writable when full")?;
        poll.poll(&mut events, Some(LONG))?;
        let is_writable = events.iter().any(Event::is_writable);
        check(is_writable, true, "writable again")?;
        check(tx.send(0, 1)?.offered(), 1, "sent after that")?;
    }
    Ok(())
}

fn a_carrier_is_waited_for() -> Result<(), Failed> {
    let pair = Pair::new()?;
    let wait = || -> Result<_, Failed> {
        let wait = || await_carrier(link::index("near")?);
        Ok(pair.near.run(wait)?)
    };
    let error = wait()?.err().ok_or("switched off, and up")?.to_string();
    check(error.contains("ip link set dev near up"), true, "remedy")?;
    pair.up(true)?;
    thread::scope(|scope| -> Result<(), Failed> {
        let other = scope.spawn(|| {
            thread::sleep(AWAY);
            pair.up(false)
        });
        check(wait()??.is_zero(), false, "no time for a carrier")?;
        other.join().map_err(|_| "the other end panicked")?
    })?;
    check(wait()??.is_zero(), true, "time for a carrier that is there")
}

/// The first sender to end must not take the program from the second, and a foreign one is not
/// touched.
fn senders_share_a_program() -> Result<(), Failed> {
    let lab = lab()?;
    lab.sender().run(|| -> Result<(), Failed> {
        let index = lab.sender().interface_index();
        let is_free = || attach(index).is_ok();
        let (first, second) = (XdpSwitch::on(index)?, XdpSwitch::on(index)?);
        check(first.to_string().contains("of ours"), true, "ours")?;
        drop(first);
        check(is_free(), false, "free with one sender left")?;
        drop(second);
        check(is_free(), true, "free after the last")?;
        let stranger = attach(index)?;
        let switch = XdpSwitch::on(index)?;
        check(
            switch.to_string().contains("is there"),
            true,
            "a stranger's",
        )?;
        drop(switch);
        check(is_free(), false, "the stranger's program gone")?;
        drop(stranger);
        check(is_free(), true, "free after the stranger")
    })?
}

/// Counters that a driver forgets when the program goes can be read before.
fn what_a_receiver_attached_outlives_its_worker() -> Result<(), Failed> {
    let lab = lab()?;
    lab.receiver().run(|| -> Result<(), Failed> {
        let address = SocketAddr::new(lab.receiver().v4()[0].into(), 4321);
        let rx = backend::find("af_xdp")?.open_rx(&RxConfig::new(address))?;
        let stop = Stop::new();
        let worker = RxWorker::spawn(RxTask {
            rx,
            cpu: None,
            wait: Wait::Block(Duration::from_millis(10)),
            inspect: Inspect::Never,
            work: Work::None,
            limit: None,
            stop: stop.clone(),
        })?;
        stop.stop();
        let (report, held) = worker.join_open();
        check(report.error.is_none(), true, "no error")?;
        let is_free = || attach(lab.receiver().interface_index()).is_ok();
        check(is_free(), false, "detached by the worker's end")?;
        drop(held);
        check(is_free(), true, "detached by the receiver's end")
    })?
}
