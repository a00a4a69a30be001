//! The AF_XDP backend in a lab: each packet once and counted, whatever the queue, the size of the
//! ring, the way of waiting; and nothing is left behind.

use crate::check;
use mpps_io::parts::{FlowCounters, FlowFilter};
use mpps_io::{
    Attach, CopyMode, Destination, Error, OutQueue, Property, Rx, RxConfig, Served, SocketMap, Tx,
    TxConfig, Wait, backend, wire,
};
use mpps_lab::{Delivery, Lab, LabConfig, address};
use mpps_os::bpf::asm::{Assembler, Helper, R0, R2, R3};
use mpps_os::bpf::{BpfLink, PerCpuMapKind, Program, ProgramKind, XskMap};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::link;
use mpps_trial::{Failed, Need, Trial, trials};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, ExitCode};
use std::time::Duration;

/// The field that is refused, and what makes a good receiver ask for it.
type Case = (&'static str, fn(&mut RxConfig));

const PORT: u16 = 4321;
/// Longer than a packet is ever on its way here, and the time that finding nothing costs.
const PATIENCE: Duration = Duration::from_millis(200);
/// The variable that makes this program, started again, hold a receiver until it is killed.
const HOLD: &str = "MPPS_TEST_HOLD";

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::probe(open_one)):
            nothing_is_lost_uncounted,
            polling_that_cannot_be_is_refused,
            a_small_ring_goes_round,
            the_kernel_has_few_frames_and_all_after_silence,
            a_queue_without_a_receiver_is_counted,
            long_packets_come_in_one_piece,
            several_destinations_are_one_receivers,
            another_program_feeds_the_receivers,
            frames_leave_by_another_interface,
            frames_sent_are_datagrams,
            what_cannot_be_is_refused,
            nothing_is_left_behind,
            an_interface_that_goes_away_is_told,
            a_child_inherits_nothing,
            the_driver_tells_of_tag_and_hash;
    ]
}

/// The requirement of all trials.
fn open_one() -> Result<(), String> {
    let lab = lab(1500).map_err(|error| error.to_string())?;
    let opened = receiver(&lab, &RxConfig::new(target(1, false)));
    opened.map(drop).map_err(|error| error.to_string())
}

/// Two queues. The sender polls the receiver's ring, so that no burst of up to 256 overflows it.
fn lab(mtu: u32) -> Result<Lab, mpps_lab::LabError> {
    Lab::new(&LabConfig {
        queues: 2,
        delivery: Delivery::SoftInterrupt,
        mtu,
        ..LabConfig::default()
    })
}

/// The receiver's address with this last number; odd ones lead to queue 0, even ones to queue 1.
fn target(last: u8, is_v6: bool) -> SocketAddr {
    let ip: IpAddr = if is_v6 {
        address::v6(last).into()
    } else {
        address::v4(last).into()
    };
    SocketAddr::new(ip, PORT)
}

fn receiver(lab: &Lab, config: &RxConfig) -> Result<Box<dyn Rx>, Error> {
    let open = || backend::find("af_xdp")?.open_rx(config);
    lab.receiver().run(open).expect("a thread can be had")
}

/// Exclusive, because a receiver belongs to one thread at a time.
fn share(lab: &Lab, rx: &mut Box<dyn Rx>) -> Result<Box<dyn Rx>, Error> {
    let share = move || rx.share();
    lab.receiver().run(share).expect("a thread can be had")
}

fn sender(lab: &Lab, name: &str, config: &TxConfig) -> Result<Box<dyn Tx>, Error> {
    let open = || backend::find(name)?.open_tx(config);
    lab.sender().run(open).expect("a thread can be had")
}

/// Sends this number of datagrams, each filled with its number.
fn send(tx: &mut dyn Tx, flow: usize, datagrams: u8) -> Result<(), Failed> {
    for (number, payload) in (0..datagrams).zip(tx.frames(usize::from(datagrams))) {
        payload.fill(number);
    }
    let sent = tx.send(flow, usize::from(datagrams))?;
    check(sent.accepted, u64::from(datagrams), "accepted")
}

/// Receives until nothing comes, and returns the first byte of each payload.
fn receive(rx: &mut dyn Rx, wait: Wait) -> Result<Vec<u8>, Failed> {
    receive_most(rx, wait, usize::MAX)
}

/// Receives until `most` have come, or nothing comes.
fn receive_most(rx: &mut dyn Rx, wait: Wait, most: usize) -> Result<Vec<u8>, Failed> {
    let mut numbers = Vec::new();
    while numbers.len() < most {
        let batch = rx.recv(wait)?;
        if batch.is_empty() {
            break;
        }
        for packet in batch.packets() {
            let datagram = wire::datagram(packet.data).ok_or("no datagram")?;
            let number = *datagram.payload.first().ok_or("no payload")?;
            if datagram.payload.iter().any(|byte| *byte != number) {
                return Err("another packet's bytes".into());
            }
            numbers.push(number);
        }
    }
    Ok(numbers)
}

/// A ring that no thread empties, and a sender that is too fast for the device. The datagrams sent
/// are those that came, that the ring dropped, and that the device dropped.
fn nothing_is_lost_uncounted() -> Result<(), Failed> {
    let lab = lab(1500)?;
    let interface = lab.sender().interface_index();
    let device_drops = || -> Result<u64, Failed> {
        let counted = lab.sender().run(|| link::statistics(interface))??;
        Ok(counted.tx_dropped)
    };
    for (is_v6, attach) in [(false, Attach::Native), (true, Attach::Generic)] {
        let mut config = RxConfig::new(target(1, is_v6));
        config.ring.attach = Some(attach);
        config.ring.frames = Some(1000);
        let mut rx = receiver(&lab, &config)?;
        let mut tx = sender(&lab, "sendmmsg", &TxConfig::new(target(1, is_v6)))?;
        let before = device_drops()?;
        for _ in 0..40 {
            tx.frames(500).for_each(|payload| payload.fill(1));
            tx.send(0, 500)?;
        }
        lab.settle()?;
        let came = receive(&mut *rx, Wait::Block(PATIENCE))?.len() as u64;
        let lost = rx.counters().dropped + device_drops()? - before;
        check(came, 1000, "packets in the ring")?;
        check(came + lost, tx.counters().accepted, "packets")?;
        let rows: u64 = rx.drops().iter().map(|row| row.count).sum();
        check(rows, rx.counters().dropped, "the sum of the reasons")?;
    }
    Ok(())
}

/// The kernel takes the options and never polls: a veth does not say which NAPI context serves its
/// queues. Should it begin to, this test says so.
fn polling_that_cannot_be_is_refused() -> Result<(), Failed> {
    let lab = lab(1500)?;
    let mut config = RxConfig::new(target(1, false));
    config.busy_poll_us = Some(50);
    match receiver(&lab, &config) {
        Err(error) if format!("{error:?}").contains("NAPI") => {}
        other => return Err(format!("busy polling on a veth: {other:?}").into()),
    }
    // The refused receiver has left nothing behind.
    config.busy_poll_us = None;
    Ok(receiver(&lab, &config).map(drop)?)
}

/// Indexes wrap in a ring of any size, even if it is no power of two.
fn a_small_ring_goes_round() -> Result<(), Failed> {
    let lab = lab(1500)?;
    for frames in [1, 3, 64] {
        let mut config = RxConfig::new(target(1, false));
        config.ring.frames = Some(frames);
        let mut rx = receiver(&lab, &config)?;
        let mut tx = sender(&lab, "sendmmsg", &TxConfig::new(target(1, false)))?;
        for _ in 0..20 {
            let burst = frames as u8;
            send(&mut *tx, 0, burst)?;
            let came = receive_most(&mut *rx, Wait::Block(PATIENCE), frames as usize)?;
            check(came, (0..burst).collect(), "packets")?;
            // A look also gives the frames of the last batch back.
            let more = receive(&mut *rx, Wait::Poll)?;
            check(more, vec![], "packets that nobody sent")?;
        }
        check(rx.counters().dropped, 0, "drops")?;
    }
    Ok(())
}

/// While packets come few at a time the kernel has 512 frames; once nothing comes it has all 4096, so
/// that none of a burst is dropped. With a number of frames it has that number always.
fn the_kernel_has_few_frames_and_all_after_silence() -> Result<(), Failed> {
    const EACH: u8 = 64;
    let lab = lab(1500)?;
    let mut config = RxConfig::new(target(1, false));
    config.ring.frames = Some(4096);
    let fixed = receiver(&lab, &config)?;
    check(fixed.counters().fill_depth, None, "a fixed ring's depth")?;
    drop(fixed);
    config.ring.frames = None;
    let mut rx = receiver(&lab, &config)?;
    let mut tx = sender(&lab, "sendmmsg", &TxConfig::new(target(1, false)))?;
    // More than the interval of 65 536 packets, so that it decides at least once.
    for _ in 0..1100 {
        send(&mut *tx, 0, EACH)?;
        let mut came = 0;
        while came < usize::from(EACH) {
            let batch = rx.recv(Wait::Spin(PATIENCE))?;
            if batch.is_empty() {
                return Err(format!("{came} of {EACH} came").into());
            }
            came += batch.packets().count();
        }
    }
    let depth = rx.counters().fill_depth.ok_or("no depth is told")?;
    check((depth.fewest, depth.most), (512, 4096), "frames")?;
    check(
        receive(&mut *rx, Wait::Poll)?,
        vec![],
        "packets that nobody sent",
    )?;
    for _ in 0..4096 / usize::from(EACH) {
        send(&mut *tx, 0, EACH)?;
    }
    lab.settle()?;
    check(
        receive(&mut *rx, Wait::Poll)?.len(),
        4096,
        "packets of a burst",
    )?;
    check(rx.counters().dropped, 0, "drops")
}

fn a_queue_without_a_receiver_is_counted() -> Result<(), Failed> {
    let lab = lab(1500)?;
    let mut config = RxConfig::new(target(2, false));
    config.address.set_port(0);
    let mut rx = receiver(&lab, &config)?;
    let address = rx.caps().local_address;
    check(address.port() != 0, true, "a port of its own")?;
    let mut tx = sender(&lab, "sendmmsg", &TxConfig::new(address))?;
    send(&mut *tx, 0, 200)?;
    lab.settle()?;
    check(receive(&mut *rx, Wait::Poll)?, vec![], "packets of queue 1")?;
    check(rx.counters().dropped, 200, "packets without a receiver")
}

fn long_packets_come_in_one_piece() -> Result<(), Failed> {
    let lab = lab(9000)?;
    for attach in [Attach::Native, Attach::Generic] {
        let mut config = RxConfig::new(target(1, false));
        config.ring.attach = Some(attach);
        let mut rx = receiver(&lab, &config)?;
        // One piece, one byte more than one, and the longest.
        for payload_bytes in [100, 3840 - 42, 3840 - 41, 8972] {
            let mut config = TxConfig::new(target(1, false));
            config.payload_bytes = payload_bytes;
            config.send_buffer_bytes = Some(4 << 20);
            let mut tx = sender(&lab, "sendmmsg", &config)?;
            send(&mut *tx, 0, 100)?;
            let numbers = receive(&mut *rx, Wait::Block(PATIENCE))?;
            let what = format!("{attach:?}, packets with {payload_bytes} bytes");
            check(numbers, (0..100).collect(), &what)?;
        }
        check(rx.counters().dropped, 0, "drops")?;
    }
    Ok(())
}

/// One address, a range of ports at it, and one of the other version of IP; nothing beside them.
fn several_destinations_are_one_receivers() -> Result<(), Failed> {
    let lab = lab(1500)?;
    let at = |is_v6, port| SocketAddr::new(target(1, is_v6).ip(), port);
    let mut config = RxConfig::new(at(false, PORT));
    config.ring.destinations = vec![
        Destination {
            ports: 6000..=6002,
            ..at(false, 0).into()
        },
        at(true, 7000).into(),
    ];
    let mut rx = receiver(&lab, &config)?;
    let wanted = [
        (false, PORT),
        (false, 6000),
        (false, 6001),
        (false, 6002),
        (true, 7000),
    ];
    let unwanted = [
        (false, 5999),
        (false, 6003),
        (false, 7000),
        (true, PORT),
        (true, 6001),
    ];
    let nobody = lab
        .receiver()
        .run(|| unwanted.map(|(is_v6, port)| UdpSocket::bind(at(is_v6, port))))?;
    for (count, (is_v6, port)) in (1..).zip(wanted).chain((11..).zip(unwanted)) {
        let mut tx = sender(&lab, "sendmmsg", &TxConfig::new(at(is_v6, port)))?;
        send(&mut *tx, 0, count)?;
    }
    let expected = (1..=5).flat_map(|count| 0..count).collect::<Vec<u8>>();
    check(
        receive(&mut *rx, Wait::Block(PATIENCE))?,
        expected,
        "packets",
    )?;
    for (count, socket) in (11..).zip(nobody) {
        let socket = socket?;
        socket.set_nonblocking(true)?;
        let came = (0..100).filter(|_| socket.recv(&mut [0; 64]).is_ok());
        check(came.count(), count, "packets of a neighbour")?;
    }
    config.ring.destinations = vec![at(false, 0).into(); 257];
    check(refusal(&lab, &config)?, "ring.destinations", "refused")
}

/// The field that a receiver is refused for.
fn refusal(lab: &Lab, config: &RxConfig) -> Result<&'static str, Failed> {
    match receiver(lab, config) {
        Err(Error::Invalid { field, .. } | Error::Unsupported { field, .. }) => Ok(field),
        other => Err(format!("{other:?}").into()),
    }
}

/// A program that takes the packets to a port, with a map of its own, stands for a user's.
fn another_program_feeds_the_receivers() -> Result<(), Failed> {
    let lab = lab(1500)?;
    let mut config = RxConfig::new(target(1, false));
    config.ring.interface = Some(lab.receiver().interface().to_owned());
    let map = XskMap::create("users_sockets", 2)?;
    let passed = || map.as_fd().try_clone_to_owned();
    config.ring.sockets = Some(SocketMap::new(passed()?)?);
    check(
        refusal(&lab, &config)?,
        "ring.sockets",
        "refused without a program",
    )?;

    let counters = FlowCounters::create(PerCpuMapKind::Array, "users_counts", 1)?;
    let other = SocketAddr::new([0, 0, 0, 0].into(), 9999);
    let filter = FlowFilter::new(other).redirect(map.as_fd(), counters.as_fd(), false)?;
    let program = Program::load(ProgramKind::Xdp, "users_program", &filter)?;
    for attach in [Attach::Native, Attach::Generic] {
        let _attached = lab.receiver().run(|| {
            let index = link::index(lab.receiver().interface())?;
            BpfLink::xdp(&program, index, attach)
        })??;
        let open = || backend::find("af_xdp")?.open_rx_queues(&config);
        let mut queues = lab.receiver().run(open)??;
        check(queues.len(), 2, "receivers")?;
        let mode = &queues[0].caps().mode;
        check(
            mode.lacks(&[Property::Native]).is_empty(),
            attach == Attach::Native,
            "native",
        )?;
        let sent = [(1, 100), (2, 150)];
        for (last, burst) in sent {
            let to = SocketAddr::new(target(last, false).ip(), 9999);
            let mut tx = sender(&lab, "sendmmsg", &TxConfig::new(to))?;
            send(&mut *tx, 0, burst)?;
        }
        let wait = Wait::Block(PATIENCE);
        let came = queues.iter_mut();
        let came = came.map(|rx| Ok(receive(&mut **rx, wait)?.len()));
        let came = came.collect::<Result<Vec<_>, Failed>>()?;
        // Of a veth without a program in the driver all packets seem to be of queue 0.
        let expected = match attach {
            Attach::Native => [100, 150],
            Attach::Generic => [250, 0],
        };
        check(came.as_slice(), &expected[..], "packets of each queue")?;
    }
    config.ring.all_traffic = true;
    check(
        refusal(&lab, &config)?,
        "ring.sockets",
        "refused with all traffic",
    )?;
    config.ring.all_traffic = false;
    config.ring.sockets = Some(SocketMap::new(
        XskMap::create("small", 1)?.as_fd().try_clone_to_owned()?,
    )?);
    check(
        refusal(&lab, &config)?,
        "ring.sockets",
        "refused for a small map",
    )?;
    let odd = SocketMap::new(counters.as_fd().try_clone_to_owned()?);
    check(odd.is_err(), true, "a map of another type")
}

/// A tag that the device takes off, and the hash of a flow, come beside the frame.
fn the_driver_tells_of_tag_and_hash() -> Result<(), Failed> {
    let lab = lab(1500)?;
    let (host, target) = (lab.sender(), target(1, false));
    // Puts a tag beside each frame that leaves, as the kernel does for a card that writes it.
    let mut program = Assembler::new();
    program.set(R2, i32::from(0x8100_u16.to_be())).set(R3, 7);
    program.call(Helper::SkbVlanPush).set(R0, -1).exit();
    let program = Program::load(ProgramKind::Classifier, "tag", &program.finish()?)?;
    let mut config = RxConfig::new(target);
    config.details.hash = true;
    config.details.vlan = true;
    config.details.hardware_time = true;
    let mut rx = receiver(&lab, &config)?;
    let socket = host.run(|| UdpSocket::bind("0.0.0.0:0"))??;
    let mut come = || -> Result<_, Failed> {
        socket.send_to(b"!", target)?;
        let batch = rx.recv(Wait::Block(PATIENCE))?;
        let packet = batch.packets().next().ok_or("nothing came")?;
        let details = packet.details.ok_or("without details")?;
        let has_hash = details.hash.is_some();
        Ok((details.vlan, has_hash, details.hardware_time))
    };
    check(come()?, (None, true, None), "without a tag")?;
    let tag = host.run(|| BpfLink::tcx_egress(&program, host.interface_index()))??;
    check(come()?, (Some(7), true, None), "with a tag")?;
    drop(tag);
    check(come()?, (None, true, None), "without it again")
}

/// A third host, behind a second interface of the receiver's: what is forwarded gets there, what is
/// answered goes back, and each once. Both share one memory, whose few frames go round many times.
fn frames_leave_by_another_interface() -> Result<(), Failed> {
    const ROUNDS: usize = 100;
    const ROUND: u8 = 20;
    let lab = lab(1500)?;
    let third = NetNamespace::new()?;
    let out = || link::create_veth("out", 2, "far", 2, third.as_fd());
    lab.receiver().run(out)??;
    lab.receiver().run(|| link::set_up(link::index("out")?))??;
    third.run(|| link::set_up(link::index("far")?))??;
    let mut config = RxConfig::new(target(1, false));
    config.ring.interface = Some("far".to_owned());
    config.ring.queue = Some(1);
    let open = || backend::find("af_xdp")?.open_rx(&config);
    let mut far = third.run(open)??;

    let mut config = RxConfig::new(target(1, false));
    config.ring.frames = Some(64);
    config.ring.forward_to = Some(OutQueue {
        interface: "out".to_owned(),
        queue: 2,
    });
    check(refusal(&lab, &config)?, "ring.forward_to", "no answers")?;
    config.answers = true;
    check(refusal(&lab, &config)?, "ring.forward_to", "no queue")?;
    config.ring.forward_to.as_mut().ok_or("it was set")?.queue = 1;
    let mut rx = receiver(&lab, &config)?;

    let client = lab.sender().run(|| UdpSocket::bind("0.0.0.0:0"))??;
    client.connect(target(1, false))?;
    client.set_read_timeout(Some(PATIENCE))?;
    let mut total = Served::default();
    for _ in 0..ROUNDS {
        (0..ROUND).try_for_each(|number| client.send(&[number; 40]).map(drop))?;
        let before = total.received;
        while total.received - before < u64::from(ROUND) {
            let served = rx.serve(Wait::Block(PATIENCE), &mut |requests| {
                for request in requests {
                    let _ = match request.payload().first() {
                        Some(number) if number % 2 == 0 => request.forward(),
                        _ => request.reply_in_place(|_room, bytes| Some(bytes)),
                    };
                }
            })?;
            check(served.received > 0, true, "packets in time")?;
            total.received += served.received;
            total.sent += served.sent;
        }
        let mut there = Vec::new();
        while there.len() < usize::from(ROUND / 2) {
            let before = there.len();
            let batch = far.recv(Wait::Block(PATIENCE))?;
            let came = batch
                .packets()
                .filter_map(|packet| wire::datagram(packet.data));
            there.extend(came.map(|datagram| datagram.payload[0]));
            check(there.len() > before, true, "forwarded packets")?;
        }
        let expected = (0..ROUND).step_by(2);
        check(there, expected.collect(), "what was forwarded")?;
        for number in (1..ROUND).step_by(2) {
            let mut came = [0; 64];
            check(client.recv(&mut came)?, 40, "bytes of an answer")?;
            check(came[0], number, "an answer")?;
        }
    }
    let all = ROUNDS as u64 * u64::from(ROUND);
    check(
        (total.received, total.sent),
        (all, all),
        "received and sent",
    )?;
    check(rx.counters().dropped, 0, "drops")?;
    check(far.recv(Wait::Poll)?.is_empty(), true, "nothing more")
}

/// Frames that leave the ring are datagrams for an ordinary socket, check sum and all.
fn frames_sent_are_datagrams() -> Result<(), Failed> {
    let lab = lab(1500)?;
    for (is_v6, payload_bytes) in [(false, 0), (false, 33), (true, 1), (true, 1400)] {
        let target = target(1, is_v6);
        let socket = lab.receiver().run(|| UdpSocket::bind(target))??;
        socket.set_read_timeout(Some(PATIENCE))?;
        let mut config = TxConfig::new(target);
        (config.payload_bytes, config.flows) = (payload_bytes, 3);
        config.ring.frames = Some(16);
        let mut tx = sender(&lab, "af_xdp", &config)?;
        let addresses = tx.caps().local_addresses.clone();
        let mut buffer = [0; 2048];
        for (flow, address) in addresses.iter().enumerate() {
            check(tx.caps().batch, 16, "most datagrams of a send")?;
            for _ in 0..5 {
                send(&mut *tx, flow, 16)?;
            }
            for number in (0..80).map(|at| at % 16) {
                let (bytes, source) = socket.recv_from(&mut buffer)?;
                check((bytes, source), (payload_bytes, *address), "datagram")?;
                let payload = &buffer[..bytes];
                check(payload.iter().all(|byte| *byte == number), true, "payload")?;
            }
        }
        check(tx.counters().accepted, 240, "accepted")?;
        check(socket.recv(&mut buffer).is_err(), true, "no more")?;
    }
    Ok(())
}

fn what_cannot_be_is_refused() -> Result<(), Failed> {
    let lab = lab(1500)?;
    let good = RxConfig::new(target(1, false));
    let cases: [Case; 8] = [
        ("ring.interface", |config| {
            config.address.set_ip([0; 4].into())
        }),
        ("ring.interface", |config| {
            config.address.set_ip([192, 0, 2, 1].into());
        }),
        ("ring.queue", |config| config.ring.queue = Some(2)),
        ("ring.frames", |config| config.ring.frames = Some(0)),
        ("ring.copy", |config| {
            config.ring.copy = Some(CopyMode::ZeroCopy);
        }),
        ("busy_poll_us", |config| config.busy_poll_us = Some(0)),
        ("gro", |config| config.gro = true),
        ("ring.hugepages", |config| {
            config.ring.hugepages = true;
            // More than any machine sets aside.
            config.ring.frames = Some(1 << 18);
            config.ring.copy = Some(CopyMode::Copy);
        }),
    ];
    for (wanted, spoil) in cases {
        let mut config = good.clone();
        spoil(&mut config);
        match receiver(&lab, &config).map(drop) {
            Err(Error::Invalid { field, .. } | Error::Unsupported { field, .. }) => {
                check(field, wanted, "refused")?;
            }
            other => return Err(format!("{wanted}: {other:?}").into()),
        }
    }
    // Nothing of all that is left: the same receiver can be opened.
    receiver(&lab, &good)?;
    Ok(())
}

/// A program in the other mode can only be attached where there is none, and a queue only be bound
/// where there is no socket.
fn nothing_is_left_behind() -> Result<(), Failed> {
    let lab = lab(1500)?;
    let target = target(1, false);
    let mut config = RxConfig::new(target);
    for attach in [Attach::Native, Attach::Generic, Attach::Native] {
        config.ring.attach = Some(attach);
        receiver(&lab, &config)?;
    }
    let mut command = Command::new(std::env::current_exe()?);
    command.env(HOLD, target.to_string());
    let mut child = lab.receiver().spawn(command)?;
    config.ring.attach = Some(Attach::Generic);
    let is_held = || receiver(&lab, &config).is_err();
    check(becomes(is_held), true, "the child's receiver in the way")?;
    child.kill()?;
    check(
        becomes(|| !is_held()),
        true,
        "nothing left of a killed child",
    )
}

/// A receiver that would wait without end, and a sender that would send nowhere, both get an error.
fn an_interface_that_goes_away_is_told() -> Result<(), Failed> {
    for wait in [
        Wait::Block(PATIENCE),
        Wait::Auto(PATIENCE),
        Wait::Epoll(PATIENCE),
        Wait::Spin(PATIENCE),
    ] {
        let lab = lab(1500)?;
        let mut rx = receiver(&lab, &RxConfig::new(target(1, false)))?;
        let mut tx = sender(&lab, "af_xdp", &TxConfig::new(target(1, false)))?;
        send(&mut *tx, 0, 100)?;
        check(receive(&mut *rx, wait)?.len(), 100, "packets")?;
        let interface = lab.sender().interface_index();
        lab.sender().run(|| link::delete(interface))??;
        check(rx.recv(wait).is_err(), true, "told to the receiver")?;
        tx.frames(50).for_each(|payload| payload.fill(1));
        check(tx.send(0, 50).is_err(), true, "told to the sender")?;
        check(tx.counters().accepted, 100, "accepted")?;
    }
    Ok(())
}

/// A program that is started meanwhile must not keep a socket, a ring or an attached program: it
/// would go on taking packets when its parent has gone. That holds for every backend.
fn a_child_inherits_nothing() -> Result<(), Failed> {
    let lab = lab(1500)?;
    let before = inherited()?;
    // DPDK's descriptors are its library's, which begins once in a process and never ends.
    let ours = |row: &&backend::Backend| {
        row.name != "dpdk" && matches!((row.probe)(), backend::Support::Yes)
    };
    for row in backend::BACKENDS.iter().filter(ours) {
        if row.receives() && !row.in_process {
            let config = RxConfig::new(target(1, false));
            let open = || row.open_rx(&config);
            // The second one makes a group of what has groups.
            let mut rx = lab.receiver().run(open)??;
            let _second = share(&lab, &mut rx);
            rx.recv(Wait::Epoll(Duration::from_millis(1)))?;
            check(inherited()?, before.clone(), row.name)?;
        }
        if row.sends() && !row.in_process {
            let config = TxConfig::new(target(1, false));
            let mut tx = lab.sender().run(|| row.open_tx(&config))??;
            tx.send(0, 1)?;
            check(inherited()?, before.clone(), row.name)?;
        }
    }
    Ok(())
}

/// Numbers of the descriptors that a child would have (`O_CLOEXEC` of proc_pid_fdinfo(5)).
fn inherited() -> Result<Vec<String>, Failed> {
    const CLOSE_ON_EXEC: u32 = 0o2_000_000;
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir("/proc/self/fdinfo")? {
        let entry = entry?;
        // The descriptor that reads the directory is gone by now, or is marked itself.
        let info = std::fs::read_to_string(entry.path()).unwrap_or_default();
        let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
        let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
        if flags.is_some_and(|flags| flags & CLOSE_ON_EXEC == 0) {
            numbers.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    numbers.sort();
    Ok(numbers)
}

/// True as soon as it is, false after some seconds.
fn becomes(mut is: impl FnMut() -> bool) -> bool {
    (0..100).any(|_| {
        let is = is();
        if !is {
            std::thread::sleep(Duration::from_millis(50));
        }
        is
    })
}

/// The child of [`nothing_is_left_behind`]: it holds a receiver until it is killed.
pub(crate) fn play() -> Option<ExitCode> {
    let target = std::env::var(HOLD).ok()?.parse().ok()?;
    let mut config = RxConfig::new(target);
    config.ring.attach = Some(Attach::Native);
    let open = || backend::find("af_xdp").and_then(|backend| backend.open_rx(&config));
    // The parent, which tries whether the interface is held, may be in the way for a moment.
    let opened = (0..1000).find_map(|_| {
        std::thread::sleep(Duration::from_millis(5));
        open().ok()
    });
    if opened.is_some() {
        std::thread::sleep(Duration::from_secs(600));
    }
    Some(ExitCode::FAILURE)
}
