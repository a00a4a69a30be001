//! Runs that are granted, and runs that are refused with a remedy before anything is opened.

use super::{Lab, PORT, address, lab, link, on, receiver};
use crate::common::{Ended, Entered, run};
use mpps::udp::traffic::RecvTotal;
use mpps_trial::{Need, Trial, trials};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

pub(super) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Root):
            what_is_required_is_granted_or_an_error,
            what_cannot_be_is_refused,
            a_queue_has_a_thread,
            a_second_receiver_is_told_of_the_first,
            an_ordinary_user_is_told_what_is_missing,
            a_veth_has_no_queue_to_carve_out,
            a_root_is_told_which_right_it_lacks,
            a_sender_of_two_rings,
            all_traffic_is_all;
    ]
}

/// A receiver for a moment.
fn recv(lab: &Lab, line: &str) -> Ended {
    on(lab.receiver(), &format!("recv --duration 100ms {line}"))
}

fn what_is_required_is_granted_or_an_error() {
    let lab = lab();
    let at = address(&lab, 4, PORT);
    let require = |rest: &str| recv(&lab, &format!("{at} --backend af_xdp {rest}"));
    // A veth copies.
    require("--require zerocopy").refused(&["--require zerocopy", "native XDP, copy"]);
    require("--require steered").refused(&["--require steered"]);
    require("--require native --xdp generic").refused(&["--require native", "generic XDP"]);
    require("--require busy-poll").refused(&["busy-poll"]);
    require("--copy zero").refused(&["--copy zero"]);
    let generic = |rest: &str| require(&format!("--xdp generic {rest}"));
    generic("--copy zero").refused(&["--copy zero", "generic XDP"]);
    generic("--require zerocopy").refused(&["--require zerocopy", "--xdp generic", "copied"]);
    let granted = generic("").fine();
    assert!(granted.out.contains("generic XDP, copy"), "{granted:#?}");
    let granted = require("--require native").fine();
    assert!(granted.out.contains("mode: native XDP"), "{granted:#?}");
    let polling = require("--require native,busy-poll --busy-poll 50");
    match polling.code() {
        0 => assert!(polling.out.contains("busy polling"), "{polling:#?}"),
        // It is of Linux 5.11.
        _ if polling.err.contains("too old") => polling.refused(&["SO_PREFER_BUSY_POLL"]),
        // As of Linux 6.12 a veth does not report its NAPI for polling.
        _ => polling.refused(&["--busy-poll 50", "NAPI"]),
    }
    let other = recv(&lab, &format!("{at} --require native"));
    other.refused(&["--require native", "recvmmsg"]);
    let send = format!("send {at} --backend af_xdp --count 1 --require zerocopy");
    on(lab.sender(), &send).refused(&["--require zerocopy", "copy"]);
    assert!(link(lab.receiver()).native_xdp.is_none(), "nothing is left");
}

fn what_cannot_be_is_refused() {
    let lab = lab();
    let at = address(&lab, 4, PORT);
    for (line, parts) in [
        ("0.0.0.0:4321 --backend af_xdp", "--interface"),
        ("10.9.9.9:4321 --backend af_xdp", "10.9.9.9; --interface"),
        (
            "AT --backend af_xdp --interface nosuch0",
            "nosuch0; this host has",
        ),
        (
            "AT --backend packet_mmap --interface nosuch0",
            "nosuch0; this host has",
        ),
        (
            "AT --backend af_xdp --queue 99",
            "--queue 99; 4 receive queues; ethtool -L",
        ),
        (
            "AT --backend af_xdp --threads 5",
            "thread 4 of 5; 4 receive queues",
        ),
        ("AT --backend af_xdp --gro", "af_xdp; --gro"),
        ("AT --backend af_xdp --take", "af_xdp; --take"),
        ("AT --interface lo", "recvmmsg; --interface"),
        (
            "AT --backend packet_mmap --reuseport",
            "packet_mmap; --reuseport",
        ),
        ("AT --queue-carve-out", "--backend af_xdp"),
        ("AT --backend xdp", "only sends"),
    ] {
        let ended = recv(&lab, &line.replace("AT", &at));
        ended.refused(&parts.split("; ").collect::<Vec<_>>());
    }
    for (line, parts) in [
        ("--backend xdp --gso 4", "xdp; --gso"),
        ("--backend recvmmsg", "only receives"),
        ("--backend packet_mmap --size 9000", "--size 9000; MTU"),
        (
            "--backend xdp --interface nosuch0",
            "nosuch0; this host has",
        ),
        ("--ring 64", "sendmmsg; --ring"),
    ] {
        let ended = on(lab.sender(), &format!("send {at} --count 1 {line}"));
        ended.refused(&parts.split("; ").collect::<Vec<_>>());
    }
}

fn a_queue_has_a_thread() {
    let lab = lab();
    let at = address(&lab, 6, PORT);
    let told = recv(&lab, &format!("{at} --backend af_xdp --json")).fine();
    let total = RecvTotal::parse(&told.out).expect("totals");
    assert_eq!(total.threads.len(), 4, "{told:#?}");
    assert!(told.err.contains("4 threads, a queue each"), "{told:#?}");
    let each = |thread: &mpps::udp::traffic::RecvThread| thread.socket_drops;
    assert!(total.threads.iter().all(|thread| each(thread).is_some()));
    let told = recv(&lab, &format!("{at} --backend af_xdp --queue 2")).fine();
    assert!(told.out.contains("one thread"), "{told:#?}");
    assert!(told.out.contains("queue 2 of 4"), "{told:#?}");
    let told = recv(&lab, &format!("{at} --backend packet_mmap --threads 3")).fine();
    assert!(told.out.contains("3 threads, a ring each"), "{told:#?}");
}

fn a_second_receiver_is_told_of_the_first() {
    let lab = lab();
    let (at, other) = (address(&lab, 4, PORT), address(&lab, 4, PORT + 1));
    let first = receiver(&lab, &at, "af_xdp");
    let name = lab.receiver().interface();
    for mode in ["", "--xdp generic"] {
        let second = recv(&lab, &format!("{other} --backend af_xdp {mode}"));
        second.refused(&["XDP program is there already", "ip link", name]);
    }
    // The port is held, so that no program takes it for free and gets nothing.
    for backend in ["recvmmsg", "af_xdp"] {
        let second = recv(&lab, &format!("{at} --backend {backend}"));
        second.refused(&["another program has it", "ss -ulpn"]);
    }
    first.interrupt().fine();
    recv(&lab, &format!("{other} --backend af_xdp")).fine();
}

fn an_ordinary_user_is_told_what_is_missing() {
    let lab = lab();
    let at = address(&lab, 4, PORT);
    let directory = tempfile::tempdir().expect("a directory can be had");
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let binary = directory.path().join("mpps");
    fs::copy(env!("CARGO_BIN_EXE_mpps"), &binary).expect("it can be copied");
    let as_nobody = |line: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.arg(&binary).args(line.split(' '));
        let host = match line.starts_with("recv") {
            true => lab.receiver(),
            false => lab.sender(),
        };
        host.within(|| run(&mut command))
    };
    for (direction, backend, capability) in [
        ("recv", "af_xdp", "CAP_BPF"),
        ("recv", "packet_mmap", "CAP_NET_RAW"),
        ("send", "af_xdp", "CAP_NET_RAW"),
        ("send", "packet_mmap", "CAP_NET_RAW"),
        ("send", "xdp", "CAP_BPF"),
    ] {
        let ended = as_nobody(&format!("{direction} {at} --backend {backend}"));
        ended.refused(&["root", capability]);
    }
    as_nobody(&format!("recv {at} --backend io_uring --duration 50ms")).fine();
}

/// The root of a container has some capabilities, and a limit of locked memory.
fn a_root_is_told_which_right_it_lacks() {
    let lab = lab();
    let at = address(&lab, 4, PORT);
    let within = |bounds: &str, line: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", bounds, "sh", "-c"]);
        let script = "ulimit -l 64; exec \"$0\" \"$@\"";
        command.args([script, env!("CARGO_BIN_EXE_mpps")]);
        command.args(line.split(' '));
        let ended = lab.receiver().within(|| run(&mut command));
        assert!(!ended.err.contains("run as root"), "{ended:#?}");
        assert!(!ended.err.contains("out of memory"), "{ended:#?}");
        ended
    };
    for (bounds, backend, lacks) in [
        ("-net_raw", "packet_mmap", "CAP_NET_RAW"),
        ("-net_raw", "af_xdp", "CAP_NET_RAW"),
        ("-sys_admin,-bpf", "af_xdp", "CAP_BPF"),
    ] {
        let ended = within(bounds, &format!("recv {at} --backend {backend}"));
        ended.refused(&[&format!("root without {lacks} "), "--cap-add"]);
    }
    let locked = "-ipc_lock,-sys_resource";
    let send = "send 127.0.0.1:9 --backend io_uring --copy zero";
    for line in [send, &format!("recv {at} --backend af_xdp")] {
        let ended = within(locked, line);
        ended.refused(&["64 KiB", "ulimit -l unlimited", "CAP_IPC_LOCK"]);
    }
    // With the capability the limit does not apply.
    within("-sys_resource", &format!("{send} --count 1")).fine();
}

fn a_veth_has_no_queue_to_carve_out() {
    let lab = lab();
    let at = address(&lab, 4, PORT);
    let before = link(lab.receiver());
    let flow = format!("10.9.9.9:1-{at}");
    let away = "10.9.9.9:1-10.9.9.8:4321";
    let interface = lab.receiver().interface();
    let no_queue = ["--queue-carve-out", interface];
    for (options, parts) in [
        ("--queue-carve-out", &no_queue[..]),
        ("--queue-carve-out=slot --flow FLOW", &no_queue),
        ("--queue-carve-out --flow AWAY", &["--flow", away, &at]),
        ("--queue-carve-out=rule --flow FLOW", &["--flow", "=slot"]),
        ("--flow FLOW", &["--queue-carve-out"]),
    ] {
        let options = options.replace("FLOW", &flow).replace("AWAY", away);
        recv(&lab, &format!("{at} --backend af_xdp {options}")).refused(parts);
    }
    assert_eq!(link(lab.receiver()), before);
    let undone = on(lab.receiver(), "undo").fine();
    assert!(undone.out.contains("nothing to undo"), "{undone:#?}");
}

/// Each thread has a transmit queue of its own.
fn a_sender_of_two_rings() {
    let lab = lab();
    let at = address(&lab, 4, PORT);
    for backend in ["af_xdp", "packet_mmap", "xdp", "io_uring"] {
        let running = receiver(&lab, &at, "recvmmsg --rcvbuf 4M");
        let send = format!("send {at} --json --backend {backend} --threads 2");
        let rest = "--count 2000 --rate 10k --stamp";
        let told = super::exchange(&lab, running, &format!("{send} {rest}"));
        assert_eq!(told.send.threads.len(), 2, "{}", told.people);
        told.balances();
        told.stamps_agree();
    }
}

fn all_traffic_is_all() {
    let lab = lab();
    let (at, other) = (address(&lab, 4, PORT), address(&lab, 4, PORT + 1));
    for backend in ["af_xdp", "packet_mmap"] {
        let running = receiver(&lab, &at, &format!("{backend} --all-traffic"));
        let send = format!("send {other} --count 1000 --rate 10k");
        on(lab.sender(), &send).fine();
        lab.settle().expect("silence comes");
        let told = running.interrupt().fine();
        let total = RecvTotal::parse(&told.out).expect("totals");
        assert!(total.received >= 900, "{told:#?}");
        assert!(told.err.contains("all traffic"), "{told:#?}");
    }
}
