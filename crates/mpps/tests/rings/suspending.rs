//! Interrupts that stay off while a receiver polls, and are put back.

use super::{PORT, address, exchange, on, receiver, threaded};
use crate::common::{Entered, kill, mpps, run, words};
use mpps_host::{Applied, Delta, irq_suspension};
use mpps_lab::{Lab, LabConfig, LabHost};
use mpps_os::netlink::napi::{self, NapiSetting};
use mpps_os::sched;
use mpps_trial::{Need, Trial, trials};
use std::process::{self, Command};
use std::time::Duration;

pub(super) fn trials() -> Vec<Trial> {
    trials![
        measures(Need::Root, Need::Cpus(2), Need::probe(obstacle), Need::Program("chrt", "util-linux")):
            interrupts_are_suspended_and_put_back;
        waits(Need::Root, Need::probe(obstacle)):
            suspension_of_a_killed_receiver_is_undone,
            only_the_queue_of_a_receiver_is_suspended;
    ]
}

const WAYS: &str = "recvmmsg --wait epoll --busy-poll 50 --suspend-irqs 20ms";

/// Why this kernel has no such setting.
fn obstacle() -> Result<(), String> {
    let settings = settings(threaded().receiver());
    match settings.is_empty() || settings.as_flattened().contains(&None) {
        true => Err("this kernel suspends no interrupts (Linux 6.13 does)".to_owned()),
        false => Ok(()),
    }
}

/// How the kernel polls each queue of the receiver's interface, and for how long interrupts stay off.
fn settings(host: &LabHost) -> Vec<[Option<u64>; 3]> {
    // Linux before 6.8 lists no contexts.
    let contexts = || napi::list(host.interface_index()).unwrap_or_default();
    let contexts = host.within(contexts).into_iter();
    let settings = contexts.map(|one| NapiSetting::ALL.map(|setting| one.setting(setting)));
    settings.collect()
}

/// Those of a queue whose interrupts are suspended.
const SUSPENDED: [Option<u64>; 3] = [Some(100), Some(50_000), Some(20_000_000)];

/// The packets that receivers took from the queues themselves, by the kernel's count.
fn polled(host: &Option<Delta>) -> u64 {
    let counted = host
        .as_ref()
        .and_then(|host| host.snmp("TcpExt.BusyPollRxPackets"));
    counted.expect("the kernel counts it").cast_unsigned()
}

/// A receiver polls its queue itself only while packets come. Both ends have priority over all
/// other programs here, so that they come steadily.
fn interrupts_are_suspended_and_put_back() {
    let own = process::id().to_string();
    run(Command::new("chrt").args(["-f", "-p", "1", &own])).fine();
    let cpus = sched::affinity(sched::thread_id()).expect("they can be read");
    let (cpu, other) = (cpus[0], cpus[1].to_string());
    let config = LabConfig {
        queues: 1,
        queue_cpus: vec![cpu],
        ..LabConfig::default()
    };
    let lab = Lab::new(&config).expect("root has a lab");
    let listen = address(&lab, 4, PORT);
    let before = settings(lab.receiver());
    let send = format!("send {listen} --json --stamp --count 20000 --rate 50k --pin {other}");
    let running = receiver(&lab, &listen, &format!("{WAYS} --pin {cpu}"));
    assert_eq!(settings(lab.receiver()), [SUSPENDED]);
    let told = exchange(&lab, running, &send);
    told.balances();
    told.stamps_agree();
    assert!(
        told.people
            .contains("put back: undone: irq-suspend-timeout"),
        "{}",
        told.people
    );
    assert_eq!(settings(lab.receiver()), before);
    let suspended = polled(&told.recv.host);
    // A receiver that sleeps in epoll_wait(2) takes nothing from the queue itself.
    let running = receiver(&lab, &listen, "recvmmsg --wait epoll");
    let told = exchange(&lab, running, &send);
    assert_eq!(polled(&told.recv.host), 0, "{}", told.people);
    assert!(suspended > 0, "none of 20000");
}

fn suspension_of_a_killed_receiver_is_undone() {
    let lab = threaded();
    let listen = address(&lab, 4, PORT);
    let before = settings(lab.receiver());
    let running = receiver(&lab, &listen, WAYS);
    let beside = address(&lab, 4, PORT + 1);
    let second = |more: &str| {
        let line = format!("recv {beside} --backend {WAYS} {more}");
        let second = on(lab.receiver(), &line);
        assert_eq!(second.code(), 2, "{second:#?}");
        second.err
    };
    // A second one would take the first one's settings for the original ones.
    let refused = second("");
    assert!(refused.contains("--suspend-irqs"), "{refused}");
    // A receiver that cannot be opened does not come as far as a change.
    for (option, value) in [("--interface", "mpps-rx"), ("--require", "native")] {
        let refused = second(&format!("{option} {value}"));
        assert!(refused.contains(option), "{refused}");
        assert!(!refused.contains("--suspend-irqs"), "{refused}");
    }
    assert_ne!(settings(lab.receiver()), before);
    kill("KILL", &running.id().to_string());
    running.end();
    let undone = on(lab.receiver(), "undo").fine();
    undone.shows(&["undone: irq-suspend-timeout"]);
    assert_eq!(settings(lab.receiver()), before);
    // Without a call that polls nothing would be suspended.
    let refused = run(&mut mpps(&words("recv --suspend-irqs 20ms")));
    refused.fails(&["--wait epoll"]);
}

/// By the library: AF_XDP does not poll in epoll_wait(2) on a veth.
fn only_the_queue_of_a_receiver_is_suspended() {
    let lab = threaded();
    let host = lab.receiver();
    let before = settings(host);
    let time = Duration::from_millis(20);
    let during = host.within(|| {
        let change = irq_suspension(host.interface(), &[1], time).expect("a plan");
        let applied = Applied::new(&change).expect("root may change it");
        let during = settings(host);
        applied.undo();
        during
    });
    let mut expected = before.clone();
    expected[1] = SUSPENDED;
    assert_eq!(during, expected);
    assert_eq!(settings(host), before);
}
