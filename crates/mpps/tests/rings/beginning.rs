//! When a run begins: with the carrier, and with counters that were read after it.

use super::{PORT, receiver};
use crate::common::{Entered, Running, mpps, words};
use mpps::udp::traffic::RecvTotal;
use mpps_os::ethtool;
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::{address, link};
use mpps_trial::{Need, Trial, trials};
use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsFd;
use std::thread;
use std::time::Duration;

pub(super) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Root): a_receiver_begins_with_its_carrier, what_nobody_set_is_not_told_as_set;
    ]
}

/// A veth sets nothing of its own when a program comes.
fn what_nobody_set_is_not_told_as_set() {
    let lab = super::lab();
    let at = super::address(&lab, 4, PORT);
    let told = receiver(&lab, &at, "af_xdp").interrupt().fine();
    let total = RecvTotal::parse(&told.out).expect("totals");
    assert!(total.attaching_set.is_empty(), "{:?}", total.attaching_set);
}

/// Attaching takes the link of many cards down; here the other end is not up yet. Some drivers
/// change a setting meanwhile; here this test does.
fn a_receiver_begins_with_its_carrier() {
    let made = || NetNamespace::new().expect("root has namespaces");
    let (near, far) = (made(), made());
    let own = IpAddr::from([10, 9, 0, 2]);
    near.within(|| -> mpps_os::CallResult<()> {
        link::create_veth("near", 1, "far", 1, far.as_fd())?;
        let index = link::index("near")?;
        address::add(index, own, 24)?;
        link::set_up(link::index("lo")?)?;
        link::set_up(index)
    })
    .expect("a pair");
    let command = "recv 10.9.0.2:4321 --backend af_xdp --json";
    let mut running = near.within(|| Running::start(&mut mpps(&words(command))));
    // Once it has attached, it is not far from reading counters.
    while !holds_a_link(running.id()) {
        thread::sleep(Duration::from_millis(5));
    }
    thread::sleep(Duration::from_millis(300));
    assert!(!running.has_said("receiving"), "{running:?}");
    // Packets that came before the carrier do not count for the run.
    let unheard = near.within(|| {
        let socket = UdpSocket::bind((own, 0))?;
        (0..10).try_for_each(|_| socket.send_to(b"x", (own, 9)).map(drop))
    });
    unheard.expect("it can be sent");
    let set = near.within(|| ethtool::set_feature("near", "rx-gro", true));
    set.expect("it can be switched");
    far.within(|| link::set_up(link::index("far")?))
        .expect("it goes up");
    running.line("the carrier came after");
    running.line("receiving at");
    running.line("changed while attaching: rx-gro off -> on");
    let told = running.interrupt().fine();
    let total = RecvTotal::parse(&told.out).expect("totals");
    assert!(total.carrier_seconds > 0.2, "{told:#?}");
    assert_eq!(total.attaching_set, ["rx-gro off -> on"]);
    assert_eq!(total.interface.as_deref(), Some("near"));
    let host = total.host.expect("counters");
    assert_eq!(host.udp("NoPorts"), Some(0), "{:?}", host.anomalies);
}

/// True once a process has attached a program by a descriptor.
fn holds_a_link(process: u32) -> bool {
    let files = fs::read_dir(format!("/proc/{process}/fd")).expect("it runs");
    let targets = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    targets
        .into_iter()
        .any(|target| target.as_os_str() == "anon_inode:bpf_link")
}
