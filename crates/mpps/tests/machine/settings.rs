//! The effects of a card's settings, by its counters and its interrupts, and their restoration.

use super::card::device;
use super::common::{Running, run};
use super::{ADDRESS, COUNT, RATE, at, meet, resolve, techniques, trial};
use libtest_mimic::Trial;
use mpps_os::ethtool::coalesce::{self, Coalescing};
use mpps_os::namespace::NetNamespace;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::net::UdpSocket;
use std::process::Command;

/// It polls for longer than the gap between two datagrams at `RATE`.
const SUSPENDING: [&str; 8] = [
    "--wait",
    "epoll",
    "--busy-poll",
    "2000",
    "--suspend-irqs",
    "20ms",
    "--rcvbuf",
    "4M",
];

/// The time between two interrupts of the card, as passed to `mpps serve`, and in microseconds.
const MODERATION: [(&str, &str); 3] = [("0", "0"), ("500us", "500"), ("5ms", "5000")];

pub(super) fn trials() -> Vec<Trial> {
    let flows = ["steer", "eth1", "--flows", "1"];
    let table = run(at("b", "mpps").args(flows));
    let no_table = (table.code() != 0).then(|| table.err.trim_end().to_owned());
    let queue = techniques(&["backends", "eth1", "--json"]).into_iter();
    let mut queue = queue.filter(|row| row["technique"] == "bifurcated driver");
    let queue = queue.next().expect("it is judged");
    let why = queue["why"].as_str().unwrap_or_default();
    let no_queue = (queue["usable"] != "yes").then(|| why.to_owned());
    let suspends = ["recv", ADDRESS, "--duration", "100ms"];
    let tried = run(at("b", "mpps").args(suspends).args(SUSPENDING));
    let refused = (tried.code() != 0).then(|| tried.err.trim_end().to_owned());
    let driver = run(at("b", "ethtool").args(["-i", "eth1"])).fine().out;
    // More than one for each packet, while the receiver polls four of five packets itself.
    let igb = driver.contains("driver: igb");
    let igb = igb.then(|| "an emulated igb interrupts while its queue is polled".to_owned());
    let times = run(at("b", "ethtool").args(["-C", "eth1", "rx-usecs", "3"]));
    let no_times = (times.code() != 0).then(|| times.err.trim_end().to_owned());
    let apart = run(&mut coalescing_of(1));
    let no_queues_apart = (apart.code() != 0).then(|| apart.err.trim_end().to_owned());
    let no_key = no_table.clone().or_else(|| {
        let key = key();
        let refused = run(&mut setting_key(&zeros(&key)));
        // It is the same where the card refused the other.
        if refused.code() == 0 {
            run(&mut setting_key(&key)).fine();
        }
        (refused.code() != 0).then(|| refused.err.trim_end().to_owned())
    });
    let trials = [
        ("mpps steer IF --verify", no_table, steers as fn()),
        ("mpps tune apply --only rss-key", no_key, replaces_a_key),
        ("mpps recv --queue-carve-out", no_queue, carves_out),
        (
            "mpps recv --suspend-irqs",
            refused.or(igb),
            suspends_interrupts,
        ),
        ("mpps serve --moderation-by nic", no_times, moderates),
        (
            "coalescing of one queue",
            no_queues_apart,
            coalesces_one_queue,
        ),
    ];
    let made = trials.map(|(name, obstacle, test)| trial(name.to_owned(), obstacle, test));
    made.into()
}

/// The card has the time while the server runs, as another program shows it, and its own before and
/// after. All requests are answered. How many interrupts come is not compared: an emulated card raises
/// them as fast as the emulator gets a CPU.
fn moderates() {
    let settings = || run(at("b", "ethtool").args(["-c", "eth1"])).fine().out;
    let before = settings();
    for (time, us) in MODERATION {
        let mut serving = at("b", "mpps");
        serving.args(["serve", "10.0.0.2:8080", "--json", "--moderation", time]);
        let mut serving = Running::start(serving.args(["--moderation-by", "nic"]));
        serving.line("http://");
        let during = settings();
        let has_it = |line: &str| line.split_ascii_whitespace().eq(["rx-usecs:", us]);
        assert!(during.lines().any(has_it), "{time}: {during}");
        resolve();
        let mut loading = at("a", "mpps");
        loading.args(["load", "http://10.0.0.2:8080/", "--json", "--rate", "200"]);
        let loaded = run(loading.args(["--requests", "400"])).fine().last_json();
        serving.interrupt().fine();
        let completed = &loaded["ledger"]["requests"]["completed"];
        assert_eq!(*completed, 400, "{loaded:#}");
        assert_eq!(settings(), before);
    }
}

/// A setting of one queue applies to that queue only, as another program shows it. No card of
/// QEMU's keeps times for each queue. The driver of virtio keeps a flag in that place: whether the
/// queue learns of sent packets. It is `tx-frames` 0 or 1, and changes only while the link is down.
fn coalesces_one_queue() {
    const TX_PACKETS: usize = 5;
    let shown = || [0, 1, 2].map(|queue| run(&mut coalescing_of(queue)).fine().out);
    let link = |state: &str| run(at("b", "ip").args(["link", "set", "eth1", state])).fine();
    let host = NetNamespace::open("/run/netns/b").expect("it was made");
    let set = |wanted: &Coalescing| host.run(|| coalesce::set_queue("eth1", 1, wanted));
    let before = shown();
    link("down");
    let told = host.run(|| coalesce::read_queue("eth1", 1));
    let told = told.expect("a thread").expect("it is told");
    let mut words = told.words();
    words[TX_PACKETS] = 1 - words[TX_PACKETS];
    let other = Coalescing::from_words(&words).expect("as many words");
    set(&other).expect("a thread").expect("it is set");
    let after = shown();
    set(&told).expect("a thread").expect("it is set");
    link("up");
    assert_eq!(shown(), before);
    // The next trial finds the card as it was.
    meet();
    let line = |packets: u32| format!("tx-frames: {packets}\n");
    let (new, old) = (words[TX_PACKETS], 1 - words[TX_PACKETS]);
    assert!(before[1].contains(&line(old)), "{}", before[1]);
    assert_eq!(after[1], before[1].replace(&line(old), &line(new)));
    assert_eq!([&after[0], &after[2]], [&before[0], &before[2]]);
}

fn coalescing_of(queue: u32) -> Command {
    let mut showing = at("b", "ethtool");
    let mask = format!("0x{:x}", 1 << queue);
    showing.args(["-Q", "eth1", "queue_mask", &mask, "--show-coalesce"]);
    showing
}

/// Each of 10 000 flows comes by its predicted queue, by the card's own counters. The command of
/// the other host then sends all of them at once.
fn steers() {
    assert!(queues_of(10_000) > 1);
    resolve();
    let first = format!("10.0.0.1:20000-{ADDRESS}");
    let mut steering = at("b", "mpps");
    steering.args(["steer", "eth1", "--verify", "--json", "--flow", &first]);
    steering.args(["--flows", "10000", "--seconds", "60"]);
    let ended = run(steering.args(["--sender", "ip netns exec a mpps send"]));
    assert!(ended.code() < 2, "{ended:#?}");
    let found: Value = serde_json::from_str(&ended.out).expect("it is JSON");
    let verified = &found["verified"];
    eprintln!("{verified:#}");
    assert_eq!(verified["agrees"], true, "{verified:#}");
    // The hub between two emulated cards loses some.
    let missing = verified["missing"].as_u64().expect("a number");
    assert!(missing < 1000, "{verified:#}");
    assert_eq!(ended.code(), i32::from(missing > 0), "{ended:#?}");
}

/// With a key of zeros all flows come by one queue. With the planned key they do not. After undo
/// the old key is back.
fn replaces_a_key() {
    const FLOWS: u16 = 1000;
    let before = key();
    assert_ne!(before, zeros(&before));
    run(&mut setting_key(&zeros(&before))).fine();
    assert_eq!(queues_of(FLOWS), 1);
    let tune = |command: &str| {
        let mut tuning = at("b", "mpps");
        tuning.args(["tune", command, "eth1"]);
        tuning
    };
    run(tune("apply").args(["--only", "rss-key"])).fine();
    assert!(queues_of(FLOWS) > 1, "{}", key());
    run(&mut tune("undo")).fine();
    assert_eq!(key(), zeros(&before));
    run(&mut setting_key(&before)).fine();
}

/// The key of the card's hash, in the words of another program.
fn key() -> String {
    let told = run(at("b", "ethtool").args(["-x", "eth1"])).fine().out;
    let mut lines = told
        .lines()
        .skip_while(|line| !line.starts_with("RSS hash key"));
    lines.nth(1).expect("it is told").trim().to_owned()
}

fn zeros(key: &str) -> String {
    vec!["00"; key.split(':').count()].join(":")
}

fn setting_key(key: &str) -> Command {
    let mut setting = at("b", "ethtool");
    setting.args(["-X", "eth1", "hkey", key]);
    setting
}

/// Sends the flows that are predicted for a queue, and then those for the next. Each time only the
/// counter of that queue moves. Returns how many queues got at least a tenth of the flows.
fn queues_of(flows: u16) -> usize {
    // Some cards hash only addresses unless they are set to do more; others always hash the ports.
    let ports = ["-N", "eth1", "rx-flow-hash", "udp4", "sdfn"];
    let _ = run(at("b", "ethtool").args(ports));
    let first = format!("10.0.0.1:20000-{ADDRESS}");
    let mut steering = at("b", "mpps");
    steering.args(["steer", "eth1", "--json", "--flow", &first]);
    let told = run(steering.args(["--flows", &flows.to_string()])).fine();
    let told: Value = serde_json::from_str(&told.out).expect("it is JSON");
    let told = told["flows"].as_array().expect("a list").iter();
    let mut queues: BTreeMap<u64, Vec<u16>> = BTreeMap::new();
    for (port, flow) in (20_000..).zip(told) {
        let queue = flow["queue"].as_u64().expect("a number");
        queues.entry(queue).or_default().push(port);
    }
    for (queue, ports) in &queues {
        come_by(*queue, ports);
    }
    let mut ports = queues.values().map(Vec::len);
    assert_eq!(ports.clone().sum::<usize>(), usize::from(flows));
    let few = usize::from(flows / 10);
    ports.by_ref().filter(|ports| *ports >= few).count()
}

fn come_by(queue: u64, ports: &[u16]) {
    let mut steering = at("b", "mpps");
    steering.args(["steer", "eth1", "--verify", "--json", "--seconds", "600"]);
    let mut steering = Running::start(&mut steering);
    steering.line("counting arrivals");
    resolve();
    let host = NetNamespace::open("/run/netns/a").expect("it was made");
    let sent = host.run(|| {
        ports.iter().try_for_each(|port| {
            let socket = UdpSocket::bind(("0.0.0.0", *port))?;
            // There is no receiver, and the kernel's answer comes when this socket is closed.
            socket.send_to(b"hello", ADDRESS).map(drop)
        })
    });
    sent.expect("a thread").expect("it is sent");
    let ended = steering.interrupt();
    let found: Value = serde_json::from_str(&ended.out).expect("it is JSON");
    let verified = &found["verified"];
    assert_eq!(ended.code(), 0, "{verified:#}");
    let came = found["flows"].as_array().expect("a list").len();
    eprintln!("queue {queue}: {came} of {} flows came", ports.len());
    // The hub between two emulated cards loses some.
    assert!(
        came > ports.len() / 2 && came <= ports.len(),
        "{came} flows"
    );
    for told in verified["queues"].as_array().expect("a list") {
        let [predicted, counted] =
            ["predicted", "counted"].map(|name| told[name].as_u64().expect("a number"));
        match told["queue"] == queue {
            true => assert_eq!(predicted, came as u64, "{verified:#}"),
            // Address resolution, and packets that a host sends by itself.
            false => assert!(predicted == 0 && counted < 50, "{verified:#}"),
        }
    }
}

/// Flows from the source ports that `mpps recv` names come by the queue. No other datagrams to its
/// address do. Other packets in its entry of the table are counted and go on to the kernel. That
/// holds if only addresses are hashed, too. Afterwards the table is what it was.
fn carves_out() {
    // The second is how the other trials found the card. Some cards only have the second.
    for fields in ["sd", "sdfn"] {
        let hash = ["-N", "eth1", "rx-flow-hash", "udp4", fields];
        let is_set = run(at("b", "ethtool").args(hash)).code() == 0;
        if !is_set && fields == "sd" {
            eprintln!("this card always hashes ports");
            continue;
        }
        let (ports, total) = carved(|ports| match ports.is_empty() {
            true => (20_000..20_500).collect(),
            false => ports.to_vec(),
        });
        assert_eq!(fields == "sd", ports.is_empty(), "{total:#}");
        let sent = if ports.is_empty() {
            500
        } else {
            ports.len() as u64
        };
        // The hub between two emulated cards loses some.
        let received = total["received"].as_u64().expect("a number");
        assert!(
            received <= sent && received >= sent - sent / 10,
            "{sent} {total:#}"
        );
        let counted = &total["carve_out"]["counted"];
        assert_eq!(counted["elsewhere"], 0, "{total:#}");
        assert_eq!(counted["is_proved"], true, "{total:#}");
        let by_queue = received + counted["passed_on"].as_u64().expect("a number");
        let by_card = counted["queue_packets"]
            .as_u64()
            .expect("it counts by queue");
        assert!(by_card >= by_queue && by_card <= by_queue + 50, "{total:#}");
    }
    // Flows that were not named: all ports but these.
    let others = |ports: &[u16]| {
        (20_000..20_500)
            .filter(|port| !ports.contains(port))
            .collect()
    };
    let (_, total) = carved(others);
    let counted = &total["carve_out"]["counted"];
    assert_eq!(total["received"], 0, "{total:#}");
    assert_eq!(counted["is_proved"], false, "{total:#}");
    assert!(counted["elsewhere"].as_u64() > Some(400), "{total:#}");
}

/// Keeps a queue for the flow of source port 20000. Sends a datagram from each port that `chosen`
/// picks of the named ones, and others to another program. Returns the named ports, and the totals.
fn carved(chosen: impl Fn(&[u16]) -> Vec<u16>) -> (Vec<u16>, Value) {
    const OTHERS: u16 = 2000;
    const OTHER: &str = "10.0.0.2:5000";
    let table = || run(at("b", "ethtool").args(["-x", "eth1"])).fine().out;
    let before = table();
    let mut other = at("b", "mpps");
    let mut other = Running::start(other.args(["recv", OTHER, "--json", "--rcvbuf", "4M"]));
    other.line("receiving at ");
    let flow = format!("10.0.0.1:20000-{ADDRESS}");
    let mut receiving = at("b", "mpps");
    receiving.args(["recv", ADDRESS, "--json", "--backend", "af_xdp"]);
    receiving.args(["--queue-carve-out", "--flow", &flow]);
    let mut receiving = Running::start(&mut receiving);
    let made: Value = serde_json::from_str(&receiving.line("\"carve_out\"")).expect("it is JSON");
    let made = &made["carve_out"];
    receiving.line("receiving at ");
    assert_eq!(made["how"], "slot", "{made:#}");
    assert_ne!(table(), before);
    let flows = [
        "--flow",
        &format!("10.0.0.1:20000-{OTHER}"),
        "--flows",
        "2000",
        "--json",
    ];
    let predicted = run(at("b", "mpps").args(["steer", "eth1"]).args(flows)).fine();
    let predicted: Value = serde_json::from_str(&predicted.out).expect("it is JSON");
    let predicted = predicted["flows"].as_array().expect("a list").iter();
    let shared = predicted
        .filter(|flow| flow["queue"] == made["queue"])
        .count() as u64;
    let ports = made["ports"].as_array().expect("a list").iter();
    let ports: Vec<u16> = ports
        .map(|port| port.as_u64().expect("a port") as u16)
        .collect();
    resolve();
    let host = NetNamespace::open("/run/netns/a").expect("it was made");
    let wanted = chosen(&ports).into_iter().map(|port| (port, ADDRESS));
    let others = (0..OTHERS).map(|port| (20_000 + port, OTHER));
    let sent = host.run(|| {
        wanted.chain(others).try_for_each(|(port, to)| {
            UdpSocket::bind(("10.0.0.1", port))?
                .send_to(b"hello", to)
                .map(drop)
        })
    });
    sent.expect("a thread").expect("it is sent");
    let total = receiving.interrupt().fine().last_json();
    let others = other.interrupt().fine().last_json()["received"].as_u64();
    let lost = u64::from(OTHERS) - others.expect("a number");
    assert!(lost <= u64::from(OTHERS) / 10, "{lost} of {OTHERS}");
    let passed_on = total["carve_out"]["counted"]["passed_on"].as_u64();
    let passed_on = passed_on.expect("its own program counts");
    eprintln!("{shared} of {OTHERS} share the entry, {passed_on} were passed on, {lost} lost");
    // The hosts say something by themselves as well.
    assert!(
        passed_on + lost >= shared && passed_on <= shared + 50,
        "{total:#}"
    );
    assert_eq!(table(), before);
    (ports, total)
}

/// A receiver that polls gets the same datagrams with fewer interrupts of the card.
fn suspends_interrupts() {
    let interrupted = |options: &[&str]| {
        let mut receiving = at("b", "mpps");
        receiving.args(["recv", ADDRESS, "--json"]).args(options);
        let mut receiving = Running::start(&mut receiving);
        receiving.line("receiving at ");
        resolve();
        let before = interrupts();
        let mut sending = at("a", "mpps");
        let count = COUNT.to_string();
        run(sending.args(["send", ADDRESS, "--rate", RATE, "--count", &count])).fine();
        let after = interrupts();
        let received = receiving.interrupt().fine();
        let received = received.last_json()["received"].as_u64();
        // The hub between two emulated cards loses some.
        assert!(received > Some(COUNT - COUNT / 10), "{received:?}");
        after - before
    };
    let each = interrupted(&SUSPENDING[..2]);
    let suspended = interrupted(&SUSPENDING);
    eprintln!("{COUNT} datagrams: {each} interrupts, suspended {suspended}");
    assert!(
        suspended * 2 < each,
        "{suspended} interrupts against {each}"
    );
}

/// Interrupts of the receiver's card so far, by its place on the bus.
fn interrupts() -> u64 {
    let device = device();
    let place = device.file_name().and_then(|name| name.to_str());
    let place = place.expect("a text");
    let text = fs::read_to_string("/proc/interrupts").expect("it can be read");
    let ours = text.lines().filter(|line| line.contains(place));
    let counts = |line: &str| -> u64 {
        let words = line.split_whitespace().skip(1);
        words.map_while(|word| word.parse::<u64>().ok()).sum()
    };
    ours.map(counts).sum()
}
