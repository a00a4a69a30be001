//! Interrupts that stay off while a receiver polls, and are put back.

use super::{PORT, address, exchange, on, receiver, threaded};
use crate::common::{Entered, kill, mpps, run, words};
use mpps_host::Delta;
use mpps_lab::{Lab, LabConfig, LabHost};
use mpps_os::netlink::napi;
use mpps_os::sched;
use mpps_os::sysfs::Sysfs;
use mpps_trial::{Need, Trial, trials};
use std::process::{self, Command};

pub(super) fn trials() -> Vec<Trial> {
    trials![
        measures(Need::Root, Need::Cpus(2), Need::probe(obstacle), Need::Program("chrt", "util-linux")):
            interrupts_are_suspended_and_put_back;
        waits(Need::Root, Need::probe(obstacle)):
            suspension_of_a_killed_receiver_is_undone;
    ]
}

const WAYS: &str = "recvmmsg --wait epoll --busy-poll 50 --suspend-irqs 20ms";

/// Why this kernel has no such setting.
fn obstacle() -> Result<(), String> {
    let (_, times) = settings(threaded().receiver());
    match times.iter().any(Option::is_none) {
        true => Err("this kernel suspends no interrupts (Linux 6.13 does)".to_owned()),
        false => Ok(()),
    }
}

/// How the kernel polls the receiver's interface, and for how long interrupts stay off.
fn settings(host: &LabHost) -> ([String; 2], Vec<Option<u64>>) {
    let read = || {
        let sysfs = Sysfs::mount()?;
        let file = |name| sysfs.read(&format!("class/net/{}/{name}", host.interface()));
        let files = [file("gro_flush_timeout")?, file("napi_defer_hard_irqs")?];
        // Linux before 6.8 lists no contexts.
        let contexts = napi::list(host.interface_index()).unwrap_or_default();
        let times = contexts.iter().map(|one| one.irq_suspend_timeout_ns);
        Ok::<_, mpps_os::CallError>((files, times.collect()))
    };
    host.within(read).expect("the settings can be read")
}

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
    let (files, times) = settings(lab.receiver());
    assert_eq!(files, ["50000", "100"]);
    assert!(!times.is_empty() && times.iter().all(|time| *time == Some(20_000_000)));
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
