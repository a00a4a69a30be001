//! The kernel's own generator against the kernel: in a lab.

use crate::{can, check, has_lab, lab};
use mpps_io::backend;
use mpps_io::{Rx, RxConfig, Stamp, StampKind, Tx, TxConfig, Wait};
use mpps_lab::{Lab, LabHost};
use mpps_os::ethtool;
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::{address, link, neighbour};
use mpps_trial::{Failed, Need, Trial, trials};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::probe(|| can("xdp")), Need::probe(has_lab)):
            every_frame_is_accounted_for,
            flows_take_turns,
            stamps_tell_every_loss,
            an_interface_that_would_lose_all_is_refused,
            an_interface_that_goes_away_is_told;
    ]
}

fn every_frame_is_accounted_for() -> Result<(), Failed> {
    const FRAMES: u64 = 1_000_000;
    let lab = lab()?;
    for target in targets(lab) {
        let mut rx = receiver(lab.receiver(), target)?;
        let mut tx = sender(lab.sender(), target, 3)?;
        let before = counts(lab)?;
        send(&mut *tx, FRAMES)?;
        let datagrams = drain(lab, &mut *rx, |_, _| {})?;
        let after = counts(lab)?;
        let grown = |name: &str| after[name] - before.get(name).copied().unwrap_or(0);
        // Another program of this host may have been heard meanwhile, but never at this link.
        check(grown("sent") + grown("refused"), FRAMES, "sent and refused")?;
        check(grown("arrived"), grown("sent"), "arrived")?;
        let dropped = rx.counters().dropped;
        check(datagrams + dropped, grown("sent"), "received and dropped")?;
    }
    Ok(())
}

fn flows_take_turns() -> Result<(), Failed> {
    const FLOWS: u16 = 50;
    let lab = lab()?;
    for target in targets(lab) {
        let mut rx = receiver(lab.receiver(), target)?;
        let mut tx = sender(lab.sender(), target, FLOWS.into())?;
        // As many as the ring of a veth holds in any case, and one.
        send(&mut *tx, u64::from(FLOWS) * 2 + 1)?;
        let mut ports: BTreeMap<u16, u64> = BTreeMap::new();
        drain(lab, &mut *rx, |source, _| {
            *ports.entry(source.port()).or_default() += 1;
        })?;
        let own: BTreeSet<u16> = tx
            .caps()
            .local_addresses
            .iter()
            .map(SocketAddr::port)
            .collect();
        check(ports.len(), usize::from(FLOWS), "flows")?;
        check(ports.keys().copied().collect(), own, "ports")?;
        let first = ports.values().next().copied();
        check(first, Some(3), "datagrams of the first flow")?;
        check(
            ports.values().skip(1).all(|count| *count == 2),
            true,
            "of all others",
        )?;
    }
    Ok(())
}

fn stamps_tell_every_loss() -> Result<(), Failed> {
    const FRAMES: u64 = 100_001;
    const FLOWS: u64 = 7;
    let lab = lab()?;
    let target = SocketAddr::new(lab.receiver().v4()[0].into(), 4321);
    let mut rx = receiver(lab.receiver(), target)?;
    let mut tx = sender(lab.sender(), target, FLOWS as usize)?;
    write_stamp(&mut *tx, StampKind::Data);
    send(&mut *tx, FRAMES)?;
    // The marker finds room once all other frames have been received.
    let mut seen: BTreeSet<(u16, u64)> = BTreeSet::new();
    let mut torn = 0_u64;
    let datagrams = drain(lab, &mut *rx, |_, payload| match Stamp::read(payload) {
        Some(stamp) if (stamp.sender, stamp.run) == (5, 77) => {
            seen.insert((stamp.flow, stamp.sequence));
        }
        _ => torn += 1,
    })?;
    check(torn, 0, "unreadable stamps")?;
    check(seen.len() as u64, datagrams, "different stamps")?;
    let behind = |(flow, sequence): &(u16, u64)| sequence * FLOWS + u64::from(*flow) >= FRAMES;
    check(
        seen.iter().any(behind),
        false,
        "stamps of frames that were not sent",
    )?;

    write_stamp(&mut *tx, StampKind::End);
    check(tx.send(0, 1)?.accepted, FLOWS, "markers")?;
    let mut totals = BTreeMap::new();
    drain(lab, &mut *rx, |_, payload| {
        if let Some(stamp) = Stamp::read(payload) {
            totals.insert(stamp.flow, (stamp.kind, stamp.sequence));
        }
    })?;
    check(totals.len() as u64, FLOWS, "flows with a total")?;
    check(
        totals.values().map(|(_, total)| total).sum(),
        FRAMES,
        "totals",
    )?;
    let all_end = totals.values().all(|(kind, _)| *kind == StampKind::End);
    check(all_end, true, "all markers")
}

fn an_interface_that_would_lose_all_is_refused() -> Result<(), Failed> {
    let (near, far) = (NetNamespace::new()?, NetNamespace::new()?);
    near.run(|| link::create_veth("near", 1, "far", 1, far.as_fd()))??;
    let [here, there]: [IpAddr; 2] = ["10.9.0.1".parse()?, "10.9.0.2".parse()?];
    near.run(|| -> mpps_os::CallResult<()> {
        let index = link::index("near")?;
        address::add(index, here, 24)?;
        link::set_up(index)
    })??;
    far.run(|| link::set_up(link::index("far")?))??;
    let config = TxConfig::new(SocketAddr::new(there, 9));
    let open = || near.run(|| backend::find("xdp")?.open_tx(&config).map(drop));

    let error = open()?
        .err()
        .ok_or("opened without a neighbour")?
        .to_string();
    check(
        error.contains("ring.target_mac"),
        true,
        "names ring.target_mac",
    )?;
    near.run(|| neighbour::add_permanent(link::index("near")?, there, &[2, 0, 0, 0, 0, 9]))??;
    let error = open()?.err().ok_or("opened without NAPI")?.to_string();
    check(error.contains("gro on"), true, "names the remedy")?;
    far.run(|| ethtool::set_feature("far", "rx-gro", true))??;
    Ok(open()??)
}

fn an_interface_that_goes_away_is_told() -> Result<(), Failed> {
    let lab = lab()?;
    let target = *targets(lab).first().ok_or("no address")?;
    let mut tx = sender(lab.sender(), target, 3)?;
    send(&mut *tx, 1000)?;
    let interface = lab.sender().interface_index();
    lab.sender().run(|| link::delete(interface))??;
    check(tx.send(0, 1000).is_err(), true, "told")?;
    check(tx.counters().accepted, 1000, "accepted")
}

/// An address of the receiver of each IP version.
fn targets(lab: &Lab) -> Vec<SocketAddr> {
    let v4 = lab.receiver().v4().first().copied().map(IpAddr::V4);
    let v6 = lab.receiver().v6().first().copied().map(IpAddr::V6);
    let both = v4.into_iter().chain(v6);
    both.map(|address| SocketAddr::new(address, 4321)).collect()
}

fn receiver(host: &LabHost, target: SocketAddr) -> Result<Box<dyn Rx>, Failed> {
    let mut config = RxConfig::new(target);
    config.details.source = true;
    config.receive_buffer_bytes = Some(8 << 20);
    Ok(host.run(|| backend::find("recvmmsg")?.open_rx(&config))??)
}

fn sender(host: &LabHost, target: SocketAddr, flows: usize) -> Result<Box<dyn Tx>, Failed> {
    let mut config = TxConfig::new(target);
    config.flows = flows;
    Ok(host.run(|| backend::find("xdp")?.open_tx(&config))??)
}

fn send(tx: &mut dyn Tx, frames: u64) -> Result<(), Failed> {
    let mut left = frames;
    while left > 0 {
        let sent = tx.send(0, left.min(tx.caps().batch as u64) as usize)?;
        left -= sent.offered();
    }
    check(tx.counters().accepted, frames, "accepted")
}

fn write_stamp(tx: &mut dyn Tx, kind: StampKind) {
    let stamp = Stamp {
        kind,
        sender: 5,
        flow: 0,
        run: 77,
        sequence: 0,
        time_ns: 0,
    };
    tx.frames(1).for_each(|payload| stamp.write(payload));
}

/// Receives what was sent, once no packet moves; answers how many datagrams came.
fn drain(
    lab: &Lab,
    rx: &mut dyn Rx,
    mut inspect: impl FnMut(SocketAddr, &[u8]),
) -> Result<u64, Failed> {
    lab.settle()?;
    let mut datagrams = 0;
    loop {
        let batch = rx.recv(Wait::Poll)?;
        if batch.is_empty() {
            return Ok(datagrams);
        }
        datagrams += batch.datagrams();
        for packet in batch.packets() {
            inspect(packet.source().ok_or("no source")?, packet.data);
        }
    }
}

/// The counts of the veth's driver: frames put into the ring of the peer, refused by it, and taken
/// out of it there (`veth_get_ethtool_stats`, drivers/net/veth.c).
fn counts(lab: &Lab) -> Result<BTreeMap<&'static str, u64>, Failed> {
    let sum = |host: &LabHost, prefix: &str, suffix: &str| -> Result<u64, Failed> {
        let all = host.run(|| ethtool::statistics(host.interface()))??;
        let wanted = |name: &str| name.starts_with(prefix) && name.ends_with(suffix);
        let own = all.iter().filter(|(name, _)| wanted(name));
        Ok(own.map(|(_, count)| count).sum())
    };
    Ok(BTreeMap::from([
        ("sent", sum(lab.sender(), "tx_queue_", "_xdp_xmit")?),
        (
            "refused",
            sum(lab.sender(), "tx_queue_", "_xdp_xmit_errors")?,
        ),
        ("arrived", sum(lab.receiver(), "rx_queue_", "_xdp_packets")?),
    ]))
}
