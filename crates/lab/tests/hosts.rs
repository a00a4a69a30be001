//! The lab with real packets.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::{check, lab, placement, threads};
use mpps_lab::{Delivery, Lab, LabConfig, LabError, LabHost, address};
use mpps_os::netlink::link::{self, LinkStatistics};
use mpps_os::sysfs::Sysfs;
use mpps_os::{ethtool, sched};
use mpps_trial::{Failed, Need, Trial, example, trials};

const PORT: u16 = 4321;
const DATAGRAMS: u64 = 1000;
/// The part of the example that this program is to play.
const PART: &str = "MPPS_TEST_PART";

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::probe(lab)):
            every_address_answers,
            the_receiver_does_not_slow_the_sender,
            a_command_sees_its_host,
            a_command_that_is_not_there_is_named,
            the_background_ends_with_the_command,
            a_socket_of_the_host_is_awaited;
        waits(Need::probe(lab), Need::probe(built)): the_example_joins_two_programs;
        waits(Need::probe(threads)): labs_have_threads_of_their_own;
        waits(Need::probe(placement)):
            threads_are_pinned,
            queues_are_delivered_on_their_cpu,
            a_queue_that_was_full_goes_on,
            a_queue_waits_as_its_traffic_says,
            connections_take_the_queues_of_both_ends,
            a_cpu_that_is_not_there_is_refused;
        // They count all packets of a link. The kernel's reports of its multicast groups come later
        // if its workers wait for a CPU.
        compares(Need::probe(lab)):
            an_idle_lab_is_silent,
            datagrams_take_the_path_through_napi,
            one_datagram_is_one_packet,
            labs_do_not_meet;
        compares(Need::probe(placement)):
            flows_take_the_queue_of_their_address,
            threads_serve_the_queues_in_order;
    ]
}

/// Plays its part in the example, if a trial has started it for that.
pub(crate) fn play() -> Option<ExitCode> {
    let played = match env::var(PART).ok()?.as_str() {
        "answer" => answer(),
        _ => ask(),
    };
    Some(played.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
}

fn built() -> Result<(), String> {
    let build = || "not built: cargo build -p mpps-lab --example two_hosts".to_owned();
    let is_built = example("two_hosts").exists();
    is_built.then_some(()).ok_or_else(build)
}

fn an_idle_lab_is_silent() -> Result<(), Failed> {
    let lab = Lab::new(&LabConfig::default())?;
    let before = link_counters(&lab)?;
    thread::sleep(Duration::from_secs(1));
    let after = link_counters(&lab)?;
    check(before == after, || {
        format!("moved by itself: {before:?} to {after:?}")
    })
}

fn every_address_answers() -> Result<(), Failed> {
    let lab = Lab::new(&LabConfig::default())?;
    let sockets = receivers(&lab)?;
    let sender = senders(&lab)?;
    check(!sockets.is_empty(), || "no addresses".to_owned())?;
    for (address, socket) in &sockets {
        let from = &sender[usize::from(address.is_ipv6())];
        from.send_to(b"who is there", (*address, PORT))?;
        let (length, source) = socket.recv_from(&mut [0; 64])?;
        check(length == 12, || format!("{length} bytes at {address}"))?;
        socket.send_to(b"me", source)?;
        let (length, source) = from.recv_from(&mut [0; 64])?;
        check((length, source.ip()) == (2, *address), || {
            format!("{source} answered for {address}")
        })?;
    }
    Ok(())
}

fn datagrams_take_the_path_through_napi() -> Result<(), Failed> {
    let lab = Lab::new(&LabConfig::default())?;
    let _receivers = receivers(&lab)?;
    let before = queue_packets(&lab)?;
    for (_, target) in targets() {
        send(&lab, target, DATAGRAMS)?;
    }
    lab.settle()?;
    let after = queue_packets(&lab)?;
    let counted: u64 = after.values().sum::<u64>() - before.values().sum::<u64>();
    let sent = DATAGRAMS * targets().len() as u64;
    // Or through no ring, if this kernel's veth has none.
    let expected = if lab.has_rings() { sent } else { 0 };
    check(counted == expected, || {
        format!("{counted} of {sent} went through NAPI: {after:?}")
    })
}

fn one_datagram_is_one_packet() -> Result<(), Failed> {
    let lab = Lab::new(&LabConfig::default())?;
    let _receivers = receivers(&lab)?;
    // One call that the kernel cuts into ten datagrams, itself or in the device.
    let socket = lab
        .sender()
        .run(|| mpps_os::socket::UdpSocket::new(&SocketAddr::from((address::v4(30), 0))))??;
    socket.bind(&SocketAddr::from((address::v4(30), 0)))?;
    socket.connect(&SocketAddr::from((address::v4(1), PORT)))?;
    socket.set_segment(100)?;
    let before = link_counters(&lab)?;
    let mut messages = mpps_os::messages::SendMessages::new(1, 1000, None);
    messages.send_one(std::os::fd::AsFd::as_fd(&socket), 0)?;
    lab.settle()?;
    let after = link_counters(&lab)?;
    let packets = after[1].rx_packets - before[1].rx_packets;
    check(packets == 10, || {
        format!("{packets} packets for 10 datagrams")
    })
}

/// The sender passes its datagrams to the kernel at its own pace, whatever the receiver does. The
/// same number is accepted if the receiver reads, never reads, or is not there.
fn the_receiver_does_not_slow_the_sender() -> Result<(), Failed> {
    const OFFERED: u64 = 50_000;
    let lab = Lab::new(&LabConfig::default())?;
    let target = SocketAddr::from((address::v4(1), PORT));
    let sender = lab
        .sender()
        .run(|| mpps_os::socket::UdpSocket::new(&SocketAddr::from((address::v4(30), 0))))??;
    sender.bind(&SocketAddr::from((address::v4(30), 0)))?;
    sender.set_send_buffer(8 << 20)?;
    let sender = std_socket(&sender)?;
    // A send that would have to wait for the receiver fails, and is counted.
    sender.set_nonblocking(true)?;
    let offer = || {
        (0..OFFERED)
            .filter(|_| would_block(&sender.send_to(&[7; 32], target)))
            .count()
    };

    let nobody = offer();
    lab.settle()?;
    let socket = lab.receiver().run(|| UdpSocket::bind(target))??;
    let idle = offer();
    lab.settle()?;
    socket.set_read_timeout(Some(Duration::from_millis(300)))?;
    let (busy, received) = thread::scope(|scope| {
        let reader = scope.spawn(|| std::iter::from_fn(|| socket.recv(&mut [0; 64]).ok()).count());
        (offer(), reader.join())
    });
    let received = received.map_err(|_| "the reader panicked")?;
    check(received > 0, || "the reader got nothing".to_owned())?;
    check([nobody, idle, busy] == [0; 3], || {
        format!(
            "waits of the sender: {nobody} with no receiver, {idle} with one that does not \
                 read, {busy} with one that does"
        )
    })
}

/// This program is the server and the client that the example starts.
fn the_example_joins_two_programs() -> Result<(), Failed> {
    let own = env::current_exe()?;
    let run = |part: &str| {
        let line = |part: &str| format!("{PART}={part} {}", own.display());
        let words = [PORT.to_string(), line("answer"), line(part)];
        Command::new(example("two_hosts")).args(words).output()
    };
    let output = run("ask")?;
    let said = String::from_utf8_lossy(&output.stdout);
    let client = address::v4(*address::SENDER.start()).to_string();
    check(output.status.success() && said.trim() == client, || {
        format!("not {client}: {output:?}")
    })?;
    let failed = Command::new(example("two_hosts"))
        .args([
            &PORT.to_string(),
            &format!("{PART}=answer {}", own.display()),
            "exit 7",
        ])
        .output()?;
    check(failed.status.code() == Some(7), || format!("{failed:?}"))
}

/// Answers one question with the address of its sender.
fn answer() -> io::Result<()> {
    let socket = UdpSocket::bind(("0.0.0.0", PORT))?;
    let (_, from) = socket.recv_from(&mut [0; 64])?;
    socket.send_to(from.ip().to_string().as_bytes(), from)?;
    Ok(())
}

fn ask() -> io::Result<()> {
    let server = env::var("SERVER").map_err(io::Error::other)?;
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    socket.send_to(b"who am I", (server, PORT))?;
    let mut answer = [0; 64];
    let bytes = socket.recv(&mut answer)?;
    io::stdout().write_all(&answer[..bytes])
}

fn a_command_sees_its_host() -> Result<(), Failed> {
    let lab = Lab::new(&LabConfig::default())?;
    for host in [lab.sender(), lab.receiver()] {
        let script = "echo $$; ls /sys/class/net; echo /proc/[0-9]*; cat /proc/net/dev";
        let mut child = host.spawn(shell(script))?;
        let notes = child.notes().to_vec();
        let output = io::read_to_string(child.stdout().ok_or("no output")?)?;
        let mut lines = output.lines();
        check(lines.next() == Some("2"), || {
            format!("not process 2: {output}")
        })?;
        for other in [lab.sender(), lab.receiver()] {
            let seen = output.lines().any(|line| line == other.interface());
            check(
                !notes.is_empty() || seen == (other.name() == host.name()),
                || format!("/sys of the {}: {output}", host.name()),
            )?;
        }
        check(output.contains(&format!("{}:", host.interface())), || {
            format!("/proc/net/dev of the {}: {output}", host.name())
        })?;
        check(
            !notes.is_empty() || output.contains("/proc/1 /proc/2"),
            || format!("/proc shows others: {output}"),
        )?;
    }
    Ok(())
}

fn a_command_that_is_not_there_is_named() -> Result<(), Failed> {
    let lab = Lab::new(&LabConfig::default())?;
    match lab.receiver().spawn(Command::new("/no/such/command")) {
        Ok(_) => Err("it was started".into()),
        Err(error) => check(error.to_string().contains("/no/such/command"), || {
            error.to_string()
        }),
    }
}

fn the_background_ends_with_the_command() -> Result<(), Failed> {
    let lab = Lab::new(&LabConfig::default())?;
    let script = "sleep 1000 & setsid sleep 1000 & echo started; wait";
    let mut child = lab.receiver().spawn(shell(script))?;
    let mut output = io::BufReader::new(child.stdout().ok_or("no output")?);
    io::BufRead::read_line(&mut output, &mut String::new())?;
    drop(child);
    // The sleepers hold the writing end: it ends when they have.
    let rest = io::read_to_string(output)?;
    check(rest.is_empty(), || rest)
}

/// Only a socket of this host and port counts, also if it comes while the trial waits.
fn a_socket_of_the_host_is_awaited() -> Result<(), Failed> {
    let lab = Lab::new(&LabConfig::default())?;
    let bind = |host: &LabHost, port| host.run(|| UdpSocket::bind(("0.0.0.0", port)));
    let _other_host = bind(lab.sender(), PORT)??;
    let _other_port = bind(lab.receiver(), PORT + 1)??;
    let awaited = |patience| lab.receiver().await_udp(PORT, patience);
    check(!awaited(Duration::ZERO)?, || "found elsewhere".to_owned())?;
    thread::scope(|scope| {
        let waiting = scope.spawn(|| awaited(Duration::from_secs(20)));
        let _socket = bind(lab.receiver(), PORT)??;
        let found = waiting.join().map_err(|_| "it panicked")??;
        check(found, || "not found".to_owned())
    })
}

fn labs_do_not_meet() -> Result<(), Failed> {
    let labs = [
        Lab::new(&LabConfig::default())?,
        Lab::new(&LabConfig::default())?,
    ];
    let _receivers = [receivers(&labs[0])?, receivers(&labs[1])?];
    let before = link_counters(&labs[1])?;
    send(&labs[0], targets()[0].1, DATAGRAMS)?;
    labs[0].settle()?;
    let after = link_counters(&labs[1])?;
    check(before == after, || {
        "packets of one lab were seen in the other".to_owned()
    })
}

fn flows_take_the_queue_of_their_address() -> Result<(), Failed> {
    let lab = Lab::new(&LabConfig::default())?;
    let _receivers = receivers(&lab)?;
    for (last, target) in targets() {
        let before = queue_packets(&lab)?;
        send(&lab, target, DATAGRAMS)?;
        lab.settle()?;
        let queue = lab.queue_of(target).ok_or("not steered")?;
        check(queue == u16::from(last - 1), || {
            format!("{target} is for queue {queue}")
        })?;
        for (counted, packets) in queue_packets(&lab)? {
            let expected = if counted == queue { DATAGRAMS } else { 0 };
            let packets = packets - before[&counted];
            check(packets == expected, || {
                format!("queue {counted} got {packets} of {DATAGRAMS} packets to {target}")
            })?;
        }
    }
    Ok(())
}

fn threads_serve_the_queues_in_order() -> Result<(), Failed> {
    let lab = Lab::new(&LabConfig::default())?;
    let _receivers = receivers(&lab)?;
    check(lab.napi_threads().len() == 4, || {
        format!("{:?}", lab.napi_threads())
    })?;
    for (_, target) in targets() {
        let before = run_times(&lab)?;
        send(&lab, target, DATAGRAMS)?;
        lab.settle()?;
        let after = run_times(&lab)?;
        let busy: Vec<u16> = after
            .iter()
            .filter(|(queue, run_ns)| before[queue] != **run_ns)
            .map(|(queue, _)| *queue)
            .collect();
        let queue = lab.queue_of(target).ok_or("not steered")?;
        check(busy == [queue], || {
            format!("the threads of {busy:?} ran for {target}")
        })?;
    }
    Ok(())
}

fn threads_are_pinned() -> Result<(), Failed> {
    let cpus = own_cpus()?;
    let queue_cpus: Vec<usize> = cpus.iter().copied().cycle().take(4).collect();
    let lab = Lab::new(&LabConfig {
        queue_cpus: queue_cpus.clone(),
        ..LabConfig::default()
    })?;
    for (thread, cpu) in lab.napi_threads().iter().zip(&queue_cpus) {
        let allowed = sched::affinity(thread.pid)?;
        check(allowed == [*cpu] && thread.cpu == Some(*cpu), || {
            format!("{thread:?}: {allowed:?}")
        })?;
    }
    check(lab.napi_threads().len() == 4, || {
        format!("{:?}", lab.napi_threads())
    })
}

/// With both ends of the link, and with other labs that live or are just being made.
fn labs_have_threads_of_their_own() -> Result<(), Failed> {
    let cpu = own_cpus()?[0];
    let config = LabConfig {
        queue_cpus: vec![cpu; 4],
        sender_queue_cpus: vec![cpu; 4],
        ..LabConfig::default()
    };
    let make = || Lab::new(&config);
    let mut labs = vec![make()?];
    let both: Vec<_> = thread::scope(|scope| {
        let making = [scope.spawn(make), scope.spawn(make)];
        making.map(|one| one.join().expect("no panic")).into()
    });
    for lab in both {
        labs.push(lab?);
    }
    let threads = labs
        .iter()
        .flat_map(|lab| lab.napi_threads().iter().chain(lab.sender_napi_threads()));
    let threads: BTreeSet<u32> = threads.map(|thread| thread.pid).collect();
    check(threads.len() == 3 * 2 * 4, || {
        let notes: Vec<_> = labs.iter().map(Lab::notes).collect();
        format!("{threads:?}: {notes:?}")
    })
}

/// A socket for each CPU. A program gives each datagram to the socket of the CPU that received it.
/// Only the socket of the queue's CPU may get any.
fn queues_are_delivered_on_their_cpu() -> Result<(), Failed> {
    let cpus = own_cpus()?;
    for delivery in [Delivery::ThreadedNapi, Delivery::Rps] {
        let queue_cpus: Vec<usize> = cpus.iter().copied().cycle().take(4).collect();
        let lab = Lab::new(&LabConfig {
            queue_cpus: queue_cpus.clone(),
            delivery,
            ..LabConfig::default()
        })?;
        let any = SocketAddr::from(([0, 0, 0, 0], PORT));
        let sockets = lab.receiver().run(|| per_cpu_sockets(any, &cpus))??;
        for (_, target) in targets().into_iter().filter(|(_, target)| target.is_ipv4()) {
            send(&lab, target, 100)?;
            lab.settle()?;
            let queue = lab.queue_of(target).ok_or("not steered")?;
            let right = match delivery {
                Delivery::Rps if queue == 0 => queue_cpus[1],
                _ => queue_cpus[usize::from(queue)],
            };
            check(lab.queue_cpu(queue) == Some(right), || {
                format!("queue {queue} has CPU {:?}", lab.queue_cpu(queue))
            })?;
            for (cpu, socket) in cpus.iter().zip(&sockets) {
                let received = std::iter::from_fn(|| socket.recv(&mut [0; 64]).ok()).count();
                let expected = if *cpu == right { 100 } else { 0 };
                check(received == expected, || {
                    format!("{delivery:?} of queue {queue} to CPU {right}: {received} on CPU {cpu}")
                })?;
            }
        }
    }
    Ok(())
}

fn per_cpu_sockets(any: SocketAddr, cpus: &[usize]) -> Result<Vec<UdpSocket>, Failed> {
    let mut sockets = Vec::new();
    for _ in cpus {
        let socket = mpps_os::socket::UdpSocket::new(&any)?;
        socket.set_reuse_port()?;
        socket.bind(&any)?;
        socket.steer_by_cpu(cpus)?;
        let socket = std_socket(&socket)?;
        socket.set_nonblocking(true)?;
        sockets.push(socket);
    }
    Ok(sockets)
}

/// The function that sets the time sees every byte, and the kernel uses the time that it returns.
fn a_queue_waits_as_its_traffic_says() -> Result<(), Failed> {
    let cpu = own_cpus()?[0];
    let lab = Lab::new(&LabConfig {
        queues: 1,
        queue_cpus: vec![cpu],
        ..LabConfig::default()
    })?;
    let set = || -> Result<String, Failed> {
        let host = lab.receiver();
        let path = format!("class/net/{}/gro_flush_timeout", host.interface());
        Ok(host.run(|| Sysfs::mount()?.read(&path))??)
    };
    lab.defer_polling(Some(Duration::from_micros(10)))?;
    let (stop, told, looks) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let wait = |bytes: u64, _: Duration| {
        looks.fetch_add(1, Ordering::Relaxed);
        let all = told.fetch_add(bytes, Ordering::Relaxed) + bytes;
        Duration::from_micros(if all > 3200 { 77 } else { 10 })
    };
    thread::scope(|scope| {
        let look = Duration::from_millis(1);
        let adapting = scope.spawn({
            let (lab, stop) = (&lab, &stop);
            move || lab.adapt_polling(stop, look, wait)
        });
        let wait_until = |came: &dyn Fn() -> bool| {
            for _ in 0..400 {
                if came() {
                    return;
                }
                thread::sleep(Duration::from_millis(5));
            }
        };
        // Bytes before the first look are not reported.
        wait_until(&|| looks.load(Ordering::Relaxed) > 0);
        let sent = send(&lab, address::v4(1).into(), 100);
        wait_until(&|| set().is_ok_and(|set| set == "77000"));
        stop.store(true, Ordering::Relaxed);
        adapting.join().expect("no panic")?;
        sent
    })?;
    let (set, told) = (set()?, told.load(Ordering::Relaxed));
    check(set == "77000" && told >= 100 * 32, || {
        format!("{set} after {told} bytes")
    })
}

/// With back-pressure, a burst fills the ring of a queue that is not the first. It waits, and all
/// of it arrives: the thread of the queue hardly runs beside the sender.
fn a_queue_that_was_full_goes_on() -> Result<(), Failed> {
    let cpu = own_cpus()?[0];
    let lab = Lab::new(&LabConfig {
        queues: 2,
        queue_cpus: vec![cpu; 2],
        back_pressure: true,
        ..LabConfig::default()
    })?;
    let target = IpAddr::V4(address::v4(2));
    check(lab.queue_of(target) == Some(1), || {
        "another queue".to_owned()
    })?;
    for thread in lab.napi_threads() {
        sched::set_nice(thread.pid, 19)?;
    }
    // The kernel's listener reports, on a busy machine.
    lab.settle()?;
    let unasked = queue_packets(&lab)?.get(&1).copied().unwrap_or(0);
    let sent = lab.sender().run(|| -> Result<u64, String> {
        sched::pin_current(&[cpu]).map_err(|error| error.to_string())?;
        let socket = UdpSocket::bind("0.0.0.0:0").map_err(|error| error.to_string())?;
        socket
            .set_nonblocking(true)
            .map_err(|error| error.to_string())?;
        let sent = (0..5000).filter(|_| socket.send_to(&[1; 32], (target, PORT)).is_ok());
        Ok(sent.count() as u64)
    })??;
    lab.settle()?;
    let arrived = queue_packets(&lab)?;
    check(arrived.get(&1) == Some(&(unasked + sent)), || {
        format!("{arrived:?} of {sent}; before {unasked}")
    })
}

/// The thread of its queue takes every packet from a ring, in both directions, with large bodies
/// too. None goes through the backlog of the CPU that sent it.
fn connections_take_the_queues_of_both_ends() -> Result<(), Failed> {
    let cpus = own_cpus()?;
    let lab = Lab::new(&LabConfig {
        queues: 1,
        queue_cpus: vec![cpus[0]],
        sender_queue_cpus: vec![*cpus.last().ok_or("no CPU")?],
        sender_addresses: 3,
        ..LabConfig::default()
    })?;
    check(lab.sender().v4().len() == 3, || {
        format!("{:?}", lab.sender().v4())
    })?;
    check(lab.sender_napi_threads().len() == 1, || {
        format!("{:?}", lab.sender_napi_threads())
    })?;
    // Packets that came before the queues had their rings do not count.
    let hosts = [lab.sender(), lab.receiver()];
    let before = [received(hosts[0])?, received(hosts[1])?];
    let address = SocketAddr::from((lab.receiver().v4()[0], PORT));
    let listener = lab.receiver().run(|| TcpListener::bind(address))??;
    let server = thread::spawn(move || -> io::Result<()> {
        for _ in 0..20 {
            let (mut stream, _) = listener.accept()?;
            stream.read_exact(&mut [0; 10])?;
            stream.write_all(&[0; 100_000])?;
        }
        Ok(())
    });
    for _ in 0..20 {
        let answer = lab.sender().run(|| -> io::Result<Vec<u8>> {
            let mut stream = TcpStream::connect(address)?;
            stream.write_all(&[1; 10])?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer)?;
            Ok(answer)
        })??;
        check(answer.len() == 100_000, || answer.len().to_string())?;
    }
    server.join().map_err(|_| "the server panicked")??;
    lab.settle()?;
    for (host, before) in hosts.into_iter().zip(before) {
        let (all, polled) = received(host)?;
        let (all, polled) = (all - before.0, polled - before.1);
        check(all > 100 && polled == all, || {
            format!("{}: {polled} of {all}", host.interface())
        })?;
    }
    Ok(())
}

/// Packets that a host's link has received, and those that its first queue has taken from its ring.
fn received(host: &LabHost) -> Result<(u64, u64), Failed> {
    let (all, counters) = host.run(|| {
        let all = link::statistics(host.interface_index());
        (all, ethtool::statistics(host.interface()))
    })?;
    let counters = counters?.into_iter();
    let mut polled = counters.filter(|(name, _)| name == "rx_queue_0_xdp_packets");
    Ok((all?.rx_packets, polled.next().ok_or("no counter")?.1))
}

fn a_cpu_that_is_not_there_is_refused() -> Result<(), Failed> {
    let config = LabConfig {
        queue_cpus: vec![1023; 4],
        ..LabConfig::default()
    };
    match Lab::new(&config) {
        Err(LabError::Kernel(_)) => Ok(()),
        other => Err(format!("{:?}", other.map(|lab| lab.notes().to_vec())).into()),
    }
}

/// Four neighbouring addresses of each family, with their last numbers.
fn targets() -> Vec<(u8, IpAddr)> {
    let v4 = (1..=4).map(|last| (last, IpAddr::V4(address::v4(last))));
    let v6 = (1..=4).map(|last| (last, IpAddr::V6(address::v6(last))));
    let has_v6 = std::fs::read_to_string("/proc/sys/net/ipv6/conf/all/disable_ipv6");
    let has_v6 = has_v6.is_ok_and(|value| value.trim() == "0");
    v4.chain(v6.filter(|_| has_v6)).collect()
}

/// A socket on every address of the receiver.
fn receivers(lab: &Lab) -> Result<BTreeMap<IpAddr, UdpSocket>, Failed> {
    let host = lab.receiver();
    let v4 = host.v4().iter().copied().map(IpAddr::V4);
    let v6 = host.v6().iter().copied().map(IpAddr::V6);
    Ok(host.run(|| {
        v4.chain(v6)
            .map(|address| Ok((address, UdpSocket::bind((address, PORT))?)))
            .collect::<io::Result<_>>()
    })??)
}

/// A socket on the sender for IPv4, and one for IPv6 where it has that.
fn senders(lab: &Lab) -> Result<Vec<UdpSocket>, Failed> {
    let host = lab.sender();
    let v4 = host.v4().iter().copied().map(IpAddr::V4);
    let v6 = host.v6().iter().copied().map(IpAddr::V6);
    Ok(host.run(|| {
        v4.chain(v6)
            .map(|address| UdpSocket::bind((address, 0)))
            .collect::<io::Result<_>>()
    })??)
}

/// Sends, and waits until nothing is on the way any more. It waits before a ring of 256 packets is
/// full, so that none is lost however late it is served.
fn send(lab: &Lab, target: IpAddr, datagrams: u64) -> Result<(), Failed> {
    let senders = senders(lab)?;
    let socket = &senders[usize::from(target.is_ipv6())];
    for number in 1..=datagrams {
        socket.send_to(&[1; 32], (target, PORT))?;
        if number % 200 == 0 || number == datagrams {
            lab.settle()?;
        }
    }
    Ok(())
}

fn would_block(result: &io::Result<usize>) -> bool {
    matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
}

fn link_counters(lab: &Lab) -> Result<[LinkStatistics; 2], Failed> {
    let counters = |host: &mpps_lab::LabHost| host.run(|| link::statistics(host.interface_index()));
    Ok([counters(lab.sender())??, counters(lab.receiver())??])
}

/// How many packets each receive queue of the receiver has taken through its NAPI.
fn queue_packets(lab: &Lab) -> Result<BTreeMap<u16, u64>, Failed> {
    let host = lab.receiver();
    let statistics = host.run(|| ethtool::statistics(host.interface()))??;
    Ok(statistics
        .into_iter()
        .filter_map(|(name, value)| {
            let queue = name
                .strip_prefix("rx_queue_")?
                .strip_suffix("_xdp_packets")?;
            Some((queue.parse().ok()?, value))
        })
        .collect())
}

/// How long the thread of each queue has run, in nanoseconds.
fn run_times(lab: &Lab) -> Result<BTreeMap<u16, u64>, Failed> {
    lab.napi_threads()
        .iter()
        .map(|thread| {
            Ok((
                thread.queue,
                sched::schedstat(thread.pid, thread.pid)?.run_ns,
            ))
        })
        .collect()
}

fn own_cpus() -> Result<Vec<usize>, Failed> {
    Ok(sched::affinity(sched::thread_id())?)
}

fn std_socket(socket: &mpps_os::socket::UdpSocket) -> io::Result<UdpSocket> {
    Ok(UdpSocket::from(
        std::os::fd::AsFd::as_fd(socket).try_clone_to_owned()?,
    ))
}

fn shell(script: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdout(Stdio::piped());
    command
}
