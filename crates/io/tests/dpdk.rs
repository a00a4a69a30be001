//! The backend `dpdk` in the lab, through those of DPDK's drivers that need no hardware. Built with
//! the feature `dpdk` only.

use crate::{has_lab, lab};
use mpps_io::{Rx, RxConfig, Tx, TxConfig, Wait, backend};
use mpps_lab::Lab;
use mpps_os::netlink::link;
use mpps_trial::{Failed, Need, Trial, trials};
use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::{Duration, Instant};

/// Datagrams of a test that counts them all.
const DATAGRAMS: u64 = 100_000;
/// How long a test waits for what must come; only a failure takes that long.
const PATIENCE: Duration = Duration::from_secs(20);
const PORT: u16 = 4321;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::probe(has_lab)):
            every_datagram_comes_by_the_default_tap,
            every_datagram_comes_by_net_af_packet,
            every_datagram_comes_by_net_af_xdp,
            what_net_af_packet_drops_is_counted,
            what_net_af_xdp_drops_is_counted,
            sharers_divide_the_packets,
            a_flood_that_is_read_is_accounted_for,
            packets_of_others_are_left_out,
            opening_again_leaves_nothing_behind,
            what_cannot_be_is_refused;
    ]
}

fn every_datagram_comes_by_the_default_tap() -> Result<(), Failed> {
    let lab = lab()?;
    for address in addresses(lab) {
        all_come(lab, &config(address));
    }
    Ok(())
}

fn every_datagram_comes_by_net_af_packet() -> Result<(), Failed> {
    let lab = lab()?;
    let mut config = config(addresses(lab)[0]);
    config.ring.arguments = vec![af_packet(1, 4096)];
    all_come(lab, &config);
    Ok(())
}

fn every_datagram_comes_by_net_af_xdp() -> Result<(), Failed> {
    let lab = lab()?;
    for address in addresses(lab) {
        let mut config = config(address);
        config.ring.arguments = vec![af_xdp()];
        all_come(lab, &config);
    }
    Ok(())
}

fn what_net_af_packet_drops_is_counted() -> Result<(), Failed> {
    let lab = lab()?;
    let mut config = config(addresses(lab)[0]);
    config.ring.arguments = vec![af_packet(1, 64)];
    all_are_accounted_for(lab, &config);
    Ok(())
}

fn what_net_af_xdp_drops_is_counted() -> Result<(), Failed> {
    let lab = lab()?;
    let mut config = config(addresses(lab)[0]);
    config.ring.arguments = vec![af_xdp()];
    config.ring.frames = Some(64);
    all_are_accounted_for(lab, &config);
    Ok(())
}

/// The receiver's first address of each version of IP; their packets take queue 0.
fn addresses(lab: &Lab) -> Vec<IpAddr> {
    let v4 = lab.receiver().v4().iter().take(1).copied().map(IpAddr::V4);
    let v6 = lab.receiver().v6().iter().take(1).copied().map(IpAddr::V6);
    v4.chain(v6).collect()
}

fn config(address: IpAddr) -> RxConfig {
    let mut config = RxConfig::new(SocketAddr::new(address, PORT));
    config.batch = 256;
    config
}

fn af_packet(queues: u32, frames: u32) -> String {
    format!(
        "--vdev=net_af_packet0,iface=mpps-rx,qpairs={queues},blocksz=4096,framesz=2048,framecnt={frames}"
    )
}

fn af_xdp() -> String {
    "--vdev=net_af_xdp0,iface=mpps-rx,start_queue=0,queue_count=1".to_owned()
}

/// Opens a receiver on the receiving host.
fn open_rx(lab: &Lab, config: &RxConfig) -> Box<dyn Rx> {
    let dpdk = backend::find("dpdk").expect("it is in the table");
    let opened = lab.receiver().run(|| dpdk.open_rx(config));
    let opened = opened.expect("the lab has threads");
    opened.unwrap_or_else(|error| panic!("{:?}: {error}", config.ring.arguments))
}

fn open_tx(lab: &Lab, target: SocketAddr, flows: usize) -> Box<dyn Tx> {
    let sendmmsg = backend::find("sendmmsg").expect("it is in the table");
    let mut config = TxConfig::new(target);
    config.flows = flows;
    // A connected socket fails when the kernel answers that no program listens.
    config.connect = false;
    config.batch = 32;
    config.send_buffer_bytes = Some(8 << 20);
    let opened = lab.sender().run(|| sendmmsg.open_tx(&config));
    opened
        .expect("the lab has threads")
        .expect("an ordinary socket")
}

/// Sends `count` datagrams, a batch of each flow in turn.
fn send(tx: &mut dyn Tx, count: u64) {
    let flows = tx.caps().flows;
    let mut left = count;
    for flow in (0..flows).cycle() {
        if left == 0 {
            break;
        }
        let some = left.min(32);
        send_flow(tx, flow, some);
        left -= some;
    }
}

/// Sends `count` datagrams of one flow.
fn send_flow(tx: &mut dyn Tx, flow: usize, count: u64) {
    let mut left = count;
    while left > 0 {
        let sent = tx.send(flow, left.min(32) as usize).expect("sending works");
        assert_eq!(sent.refused, 0, "{:?}", tx.counters().refused);
        left -= sent.accepted;
    }
}

/// Receives until `count` came, or until patience is over.
fn receive(rx: &mut dyn Rx, count: u64) -> u64 {
    let deadline = Instant::now() + PATIENCE;
    let mut came = 0;
    while came < count && Instant::now() < deadline {
        let batch = rx.recv(Wait::Block(Duration::from_millis(100)));
        came += batch.expect("receiving works").datagrams();
    }
    came
}

/// Receives until nothing more comes at once.
fn receive_rest(rx: &mut dyn Rx) -> u64 {
    let mut came = 0;
    loop {
        let batch = rx.recv(Wait::Block(Duration::from_millis(20)));
        match batch.expect("receiving works").datagrams() {
            0 => return came,
            some => came += some,
        }
    }
}

/// Sends as much as the link's ring holds, receives it, and so on.
fn all_come(lab: &Lab, config: &RxConfig) {
    const AT_ONCE: u64 = 128;
    let mut rx = open_rx(lab, config);
    let mut tx = open_tx(lab, config.address, 4);
    let mut came = 0;
    while came < DATAGRAMS {
        let count = AT_ONCE.min(DATAGRAMS - came);
        send(&mut *tx, count);
        let some = receive(&mut *rx, count);
        assert_eq!(
            some,
            count,
            "after {came}: {:?} {:?}",
            rx.drops(),
            rx.caps()
        );
        came += some;
    }
    let more = rx.recv(Wait::Block(Duration::from_millis(20)));
    assert!(more.expect("receiving works").is_empty());
    let counters = rx.counters();
    assert_eq!(
        (counters.datagrams, counters.dropped),
        (came, 0),
        "{:?}",
        rx.drops()
    );
}

/// The packets that a lab's link has dropped on the sender's side.
fn link_drops(lab: &Lab) -> u64 {
    let of = |host: &mpps_lab::LabHost| {
        let index = host.interface_index();
        let statistics = host.run(|| link::statistics(index)).expect("a thread");
        statistics.expect("the link is there")
    };
    of(lab.sender()).tx_dropped
}

/// Sends without looking, so that a small ring overflows, and then accounts for all.
fn all_are_accounted_for(lab: &Lab, config: &RxConfig) {
    let mut rx = open_rx(lab, config);
    let mut tx = open_tx(lab, config.address, 1);
    let before = link_drops(lab);
    send(&mut *tx, DATAGRAMS);
    lab.settle().expect("packets come to rest");
    let came = receive_rest(&mut *rx);
    let link = link_drops(lab) - before;
    let dropped = rx.counters().dropped;
    assert!(came > 0 && dropped > 0, "{came} came, {dropped} dropped");
    assert_eq!(
        came + dropped + link,
        DATAGRAMS,
        "{came} came, link {link}, {:?}",
        rx.drops()
    );
}

fn sharers_divide_the_packets() -> Result<(), Failed> {
    let lab = lab()?;
    let mut config = config(addresses(lab)[0]);
    config.ring.arguments = vec![af_packet(3, 8192)];
    let first = open_rx(lab, &config);
    let mut receivers = vec![first.share().expect("there are three queues")];
    receivers.push(first.share().expect("there are three queues"));
    let refused = first.share().expect_err("there is no fourth");
    assert!(
        refused.to_string().contains("3 receive queues"),
        "{refused}"
    );
    receivers.push(first);
    let mut tx = open_tx(lab, config.address, 32);
    // No more at once than the link's ring holds.
    for flow in 0..32 {
        send_flow(&mut *tx, flow, 100);
        lab.settle().expect("packets come to rest");
    }
    let mut came = Vec::new();
    for rx in &mut receivers {
        came.push(receive_rest(&mut **rx));
    }
    assert_eq!(came.iter().sum::<u64>(), 3200, "{came:?}");
    // The chance that one of three queues gets none of 32 flows is one in 144 000.
    assert!(came.iter().all(|of_one| *of_one > 0), "{came:?}");
    // The queues of closed sharers go back to the others.
    receivers.truncate(1);
    send(&mut *tx, 128);
    lab.settle().expect("packets come to rest");
    let fourth = receivers[0].share().expect("two are gone");
    receivers.push(fourth);
    let rest: u64 = receivers.iter_mut().map(|rx| receive_rest(&mut **rx)).sum();
    assert_eq!(rest, 128);
    Ok(())
}

/// Reads while a flood is on, which is when rings wrap around.
fn a_flood_that_is_read_is_accounted_for() -> Result<(), Failed> {
    let lab = lab()?;
    for address in addresses(lab) {
        let config = config(address);
        let mut rx = open_rx(lab, &config);
        let mut tx = open_tx(lab, config.address, 4);
        let before = link_drops(lab);
        let came = thread::scope(|scope| {
            let sending = scope.spawn(|| send(&mut *tx, DATAGRAMS));
            let mut came = 0;
            while !sending.is_finished() {
                let batch = rx.recv(Wait::Block(Duration::from_millis(20)));
                came += batch.expect("receiving works").datagrams();
            }
            came + receive_rest(&mut *rx)
        });
        let link = link_drops(lab) - before;
        let drops = rx.drops();
        let dropped = rx.counters().dropped;
        assert_eq!(
            came + dropped + link,
            DATAGRAMS,
            "{came} came, link {link}, {drops:?}"
        );
    }
    Ok(())
}

fn packets_of_others_are_left_out() -> Result<(), Failed> {
    let lab = lab()?;
    let address = addresses(lab)[0];
    let mut wanted = open_rx(lab, &config(address));
    let other = SocketAddr::new(address, PORT + 1);
    send(&mut *open_tx(lab, other, 1), 100);
    send(&mut *open_tx(lab, SocketAddr::new(address, PORT), 1), 50);
    lab.settle().expect("packets come to rest");
    assert_eq!(receive(&mut *wanted, 50), 50);
    drop(wanted);

    let mut config = config(address);
    config.ring.all_traffic = true;
    let mut all = open_rx(lab, &config);
    send(&mut *open_tx(lab, other, 1), 100);
    lab.settle().expect("packets come to rest");
    // The kernel's answers "port unreachable" go out by the same tap.
    assert!(receive(&mut *all, 100) >= 100);
    Ok(())
}

fn opening_again_leaves_nothing_behind() -> Result<(), Failed> {
    let lab = lab()?;
    // libxdp 1.3.1, under `net_af_xdp`, forgets programs and maps that it has loaded.
    let is_ours = |path: std::path::PathBuf| {
        let name = std::fs::read_link(path).unwrap_or_default();
        !name.to_string_lossy().starts_with("anon_inode:bpf")
    };
    let open_descriptors = || {
        let listed = std::fs::read_dir("/proc/self/fd").expect("/proc is mounted");
        let paths = listed.map(|entry| entry.expect("a descriptor").path());
        paths.filter(|path| is_ours(path.clone())).count()
    };
    let mut config = config(addresses(lab)[0]);
    let round = |config: &RxConfig| {
        let mut rx = open_rx(lab, config);
        send(&mut *open_tx(lab, config.address, 1), 1);
        assert_eq!(receive(&mut *rx, 1), 1);
    };
    // The first round may open what the process keeps for good.
    round(&config);
    let before = open_descriptors();
    for turn in 0..20 {
        config.ring.arguments = match turn % 3 {
            0 => vec![],
            1 => vec![af_packet(2, 512)],
            _ => vec![af_xdp()],
        };
        round(&config);
    }
    assert_eq!(open_descriptors(), before);
    // A thread of DPDK's would keep the host alive.
    let inode = format!("net:[{}]", lab.receiver().inode());
    for thread in std::fs::read_dir("/proc/self/task").expect("/proc is mounted") {
        let path = thread.expect("a thread").path().join("ns/net");
        let namespace = std::fs::read_link(path).unwrap_or_default();
        assert_ne!(namespace.to_string_lossy(), inode);
    }
    Ok(())
}

fn what_cannot_be_is_refused() -> Result<(), Failed> {
    let lab = lab()?;
    let dpdk = backend::find("dpdk").expect("it is in the table");
    let address = addresses(lab)[0];
    let refusal = |config: &RxConfig| {
        let opened = lab.receiver().run(|| dpdk.open_rx(config));
        let refused = opened.expect("the lab has threads").expect_err("cannot be");
        refused.to_string()
    };
    let with = |text: &str| {
        let mut config = config(address);
        config.ring.arguments = vec![text.to_owned()];
        refusal(&config)
    };
    let text = with("--vdev=net_af_packet0,iface=nosuch0");
    assert!(text.contains("nosuch0"), "{text}");
    let text = with("--vdev=net_nosuch0");
    assert!(text.contains("net_nosuch0"), "{text}");
    let text = with("--vdev=net_af_packet0,iface=mpps-rx -m 64");
    assert!(text.contains("with other arguments"), "{text}");
    let mut without_port = config(address);
    without_port.address.set_port(0);
    without_port.ring.arguments = vec![af_xdp()];
    assert!(refusal(&without_port).contains("choose a port"));
    let text = refusal(&config(IpAddr::from([192, 0, 2, 1])));
    assert!(
        text.contains("192.0.2.1") && text.contains("ring.interface"),
        "{text}"
    );
    let text = refusal(&config(IpAddr::from([0, 0, 0, 0])));
    assert!(text.contains("ring.interface"), "{text}");
    // After a refusal all is as it was.
    drop(open_rx(lab, &config(address)));
    Ok(())
}
