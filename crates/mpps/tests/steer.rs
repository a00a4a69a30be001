//! `mpps steer`: flows to hashes and queues, as a user asks for them.

use crate::common::{self, Entered, Running, mpps, run, words};
use mpps_io::wire::Template;
use mpps_lab::Lab;
use mpps_trial::{Need, Trial, trials};
use serde_json::Value;
use std::fs;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{self, Command};
use std::time::Instant;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits:
            captures_of_other_kinds_are_read,
            tags_are_looked_behind_and_the_rest_is_told,
            microsofts_vectors,
            a_million_flows_are_even,
            many_queues_take_no_time_for_each_pair,
            flows_of_a_list_and_of_a_capture,
            both_directions_go_to_one_queue,
            what_is_uneven_is_mended;
        waits(Need::Root): what_arrives_is_counted_by_flow, named_flows_are_sent_and_seen;
    ]
}

fn steer(options: &str) -> Command {
    mpps(&words(&format!("steer {options}")))
}

fn found(options: &str) -> Value {
    let ended = run(steer(options).arg("--json")).fine();
    serde_json::from_str(&ended.out).expect("it is JSON")
}

fn numbers(found: &Value, list: &str, field: &str) -> Vec<u64> {
    let rows = found[list].as_array().expect("a list");
    rows.iter()
        .map(|row| row[field].as_u64().expect("a number"))
        .collect()
}

/// "Verifying the RSS Hash Calculation", without a host.
fn microsofts_vectors() {
    let flows = [
        ("66.9.149.187:2794-161.142.100.80:1766", 0x51cc_c178),
        ("199.92.111.2:14230-65.69.140.83:4739", 0xc626_b0ea),
        (
            "[3ffe:2501:200:1fff::7]:2794-[3ffe:2501:200:3::1]:1766",
            0x4020_7d3d,
        ),
    ];
    let first = flows[0].0;
    let named = flows.map(|(flow, _)| format!("--flow {flow}")).join(" ");
    let by_ports = found(&format!("--queues 4 {named}"));
    let hashes: Vec<u64> = flows.iter().map(|(_, hash)| *hash).collect();
    assert_eq!(numbers(&by_ports, "flows", "hash"), hashes);
    // 128 entries, by turns: the hash modulo 128, modulo 4.
    let queues: Vec<u64> = hashes.iter().map(|hash| hash % 128 % 4).collect();
    assert_eq!(numbers(&by_ports, "flows", "queue"), queues);
    let by_addresses = found(&format!("--queues 4 --fields sd --flow {first}"));
    assert_eq!(numbers(&by_addresses, "flows", "hash"), [0x323e_8fc2]);
    let key = "00".repeat(40);
    let by_zeros = found(&format!("--queues 4 --key {key} --flow {first}"));
    assert_eq!(numbers(&by_zeros, "flows", "hash"), [0]);
}

/// Their square took minutes.
fn many_queues_take_no_time_for_each_pair() {
    let began = Instant::now();
    let many = found("--queues 65536 --entries 65536 --flows 4");
    let queues = numbers(&many, "queues", "entries");
    assert_eq!(queues, [1; 65_536]);
    assert!(began.elapsed().as_secs() < 20, "{:?}", began.elapsed());
}

fn a_million_flows_are_even() {
    let ended = run(&mut steer("--queues 64 --flows 1000000")).fine();
    assert!(ended.out.contains("1 000 000 UDP flows"), "{}", ended.out);
    let found = found("--queues 64 --flows 100000");
    let loads = numbers(&found, "queues", "flows");
    assert_eq!((loads.len(), loads.iter().sum::<u64>()), (64, 100_000));
    assert!(
        found["imbalance"].as_f64().is_some_and(|times| times < 1.1),
        "{loads:?}"
    );
}

/// A capture of these frames.
fn capture_of(frames: &[&[u8]]) -> Vec<u8> {
    let mut capture = [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65_535, 1]
        .map(u32::to_le_bytes)
        .concat();
    for frame in frames {
        let bytes = frame.len() as u32;
        capture.extend([0, 0, bytes, bytes].map(u32::to_le_bytes).concat());
        capture.extend(*frame);
    }
    capture
}

fn tags_are_looked_behind_and_the_rest_is_told() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("capture");
    let path = path.to_str().expect("a path");
    let ends = ["10.0.0.1:1", "10.0.0.9:9"].map(|end| end.parse().expect("an address"));
    let template = Template::new([2; 6], [4; 6], ends[0], ends[1], 3);
    let mut plain = vec![0; template.frame_bytes()];
    template.write(&mut plain, 0, b"abc");
    let tagged = |tags: &[[u8; 4]]| [&plain[..12], &tags.concat(), &plain[12..]].concat();
    let (inner, outer) = ([0x81, 0, 0, 7], [0x88, 0xa8, 0, 9]);
    let mut fragment = tagged(&[inner]);
    fragment[4 + 20] = 0x20;
    let mut tcp = plain.clone();
    tcp[14 + 9] = 6;
    let (one, two) = (tagged(&[inner]), tagged(&[outer, inner]));

    fs::write(path, capture_of(&[&one, &two, &plain])).expect("it can be written");
    let all = found(&format!("--queues 2 --pcap {path}"));
    assert_eq!(numbers(&all, "flows", "packets"), [3]);
    assert_eq!(all["flows"][0]["flow"], "10.0.0.1:1-10.0.0.9:9");
    assert!(
        !all["notes"].to_string().contains("no such flow"),
        "{all:#}"
    );

    let rest = "3 frames are of no such flow: 1 fragmented, 1 cut or damaged, 1 of other protocols";
    let frames = [&fragment, &plain[..40], &tcp];
    fs::write(path, capture_of(&[&frames[..], &[&one]].concat())).expect("it can be written");
    let some = found(&format!("--queues 2 --pcap {path}"));
    assert_eq!(numbers(&some, "flows", "packets"), [1]);
    assert_eq!(some["notes"][0], rest);
    fs::write(path, capture_of(&frames)).expect("it can be written");
    let none = run(&mut steer(&format!("--queues 2 --pcap {path}")));
    assert_eq!(none.code(), 2, "{none:#?}");
    let told = none.err.contains("no UDP flow was seen") && none.err.contains(rest);
    assert!(told, "{none:#?}");
}

/// Of all interfaces, as `tcpdump -i any` writes it, and of less than whole frames (`tcpdump -s`).
fn captures_of_other_kinds_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("capture");
    let path = path.to_str().expect("a path");
    let ends = ["10.0.0.1:1", "10.0.0.9:9"].map(|end| end.parse().expect("an address"));
    let template = Template::new([2; 6], [4; 6], ends[0], ends[1], 300);
    let mut frame = vec![0; template.frame_bytes()];
    template.write(&mut frame, 0, &[7; 300]);
    let cooked = |link: u8, header: &[u8]| {
        let frame = [header, &frame[14..]].concat();
        let mut capture = capture_of(&[&frame]);
        capture[20..22].copy_from_slice(&[link, u8::from(link == 20)]);
        capture
    };
    let mut short = capture_of(&[&frame[..64]]);
    short[24 + 12..][..4].copy_from_slice(&(frame.len() as u32).to_le_bytes());
    for (capture, note) in [
        (
            cooked(113, &[&[0; 14][..], &[8, 0]].concat()),
            "all interfaces",
        ),
        (
            cooked(20, &[&[8, 0][..], &[0; 18]].concat()),
            "all interfaces",
        ),
        (short, "hold only a part"),
    ] {
        fs::write(path, capture).expect("it can be written");
        let all = found(&format!("--queues 2 --pcap {path}"));
        assert_eq!(all["flows"][0]["flow"], "10.0.0.1:1-10.0.0.9:9", "{all:#}");
        assert!(all["notes"].to_string().contains(note), "{all:#}");
    }
}

fn flows_of_a_list_and_of_a_capture() {
    let folder = tempfile::tempdir().expect("a folder");
    let list = folder.path().join("flows");
    fs::write(&list, "# two\n10.0.0.1:1-10.0.0.9:9\n[::1]:1-[::2]:9\n").expect("it can be written");
    let found_in = |option: &str, path: &std::path::Path| {
        found(&format!("--queues 2 {option} {}", path.display()))
    };
    let listed = found_in("--file", &list);
    assert_eq!(listed["flows"][1]["flow"], "[::1]:1-[::2]:9");

    // Three packets of one flow, one of another, and one without a flow.
    let to: SocketAddr = "10.0.0.9:9".parse().expect("an address");
    let frame = |from: &str| {
        let from: SocketAddr = from.parse().expect("an address");
        let template = Template::new([2; 6], [4; 6], from, to, 3);
        let mut frame = vec![0; template.frame_bytes()];
        template.write(&mut frame, 0, b"abc");
        frame
    };
    let [first, second] = ["10.0.0.1:1", "10.0.0.2:2"].map(frame);
    // The protocol's place: the same packet of TCP, with the ports where they were.
    let mut tcp = frame("10.0.0.3:3");
    tcp[14 + 9] = 6;
    let mut capture = capture_of(&[&first, &second, &first, &[0; 60], &first, &tcp]);
    let path = folder.path().join("capture");
    fs::write(&path, &capture).expect("it can be written");
    let captured = found_in("--pcap", &path);
    let said = |found: &Value| found["notes"].to_string().contains("record");
    assert!(!said(&captured), "{captured:#}");
    assert_eq!(numbers(&captured, "flows", "packets"), [3, 1]);
    assert_eq!(captured["flows"][0]["flow"], "10.0.0.1:1-10.0.0.9:9");
    let path = path.to_str().expect("a path");
    let captured = found(&format!("--queues 2 --pcap {path} --tcp"));
    assert_eq!(numbers(&captured, "flows", "packets"), [1]);
    assert_eq!(captured["flows"][0]["flow"], "10.0.0.3:3-10.0.0.9:9");
    assert_eq!(captured["kinds"], serde_json::json!(["tcp4", "tcp6"]));

    // A killed program leaves a part of the last record. The rest is used, and a note says so.
    fs::write(path, &capture[..capture.len() - 1]).expect("it can be written");
    let cut = found_in("--pcap", path.as_ref());
    assert_eq!(numbers(&cut, "flows", "packets"), [3, 1]);
    let at = capture.len() - 16 - tcp.len();
    let told = format!("within record 6, which begins at byte {at},");
    assert!(cut["notes"].to_string().contains(&told), "{cut:#}");
    // Behind a damaged record no other can be found.
    capture[24 + 8] = 0xff;
    fs::write(path, &capture).expect("it can be written");
    let refused = run(&mut mpps(&["steer", "--queues", "2", "--pcap", path]));
    assert_eq!((refused.code(), &*refused.out), (2, ""), "{refused:#?}");
    refused.warns(&["record 1 at byte 24 is damaged"]);
}

/// Both directions of a flow go to one queue, by each of the two ways that Linux documents.
fn both_directions_go_to_one_queue() {
    let queues = |rest: &str| {
        let there = "10.0.0.1:1000-10.9.0.6:53";
        let back = "10.9.0.6:53-10.0.0.1:1000";
        let flows = format!("--queues 64 --flow {there} --flow {back}");
        numbers(&found(&format!("{flows} {rest}")), "flows", "queue")
    };
    let plain = queues("");
    assert_ne!(plain[0], plain[1]);
    for xfrm in ["symmetric-xor", "symmetric-or-xor"] {
        let both = queues(&format!("--xfrm {xfrm}"));
        assert_eq!(both[0], both[1], "{xfrm}");
    }
}

/// Each remedy, once applied, leaves the imbalance that was predicted.
fn what_is_uneven_is_mended() {
    let with = |more: &str| found(&format!("--flows 100 --queues 4 {more}"));
    let uneven = with("--fields sd");
    assert_eq!(uneven["imbalance"], 4.0);
    let remedy = &uneven["remedies"][0];
    assert_eq!(remedy["command"], "ethtool -N IF rx-flow-hash udp4 sdfn");
    assert_eq!(with("")["imbalance"], remedy["imbalance"]);

    let uneven = found("--flow 10.0.0.1:1-10.0.0.2:2 --flows 20 --queues 4");
    let rows = uneven["remedies"].as_array().expect("a list");
    let key = rows
        .iter()
        .find(|row| row["what"] == "key")
        .expect("one of 64 is better");
    let command = key["command"].as_str().expect("a text");
    let key_words = command
        .strip_prefix("ethtool -X IF hkey ")
        .expect("as ethtool has it");
    let mended = found(&format!(
        "--flow 10.0.0.1:1-10.0.0.2:2 --flows 20 --queues 4 --key {key_words}"
    ));
    assert_eq!(mended["imbalance"], key["imbalance"]);
    // The ports lead where they are said to.
    for port in uneven["ports"].as_array().expect("a list") {
        let flow = format!("10.0.0.1:{}-10.0.0.2:2", port["port"]);
        assert_eq!(
            found(&format!("--queues 4 --flow {flow}"))["flows"][0]["queue"],
            port["queue"]
        );
    }
}

/// A veth chooses by the sender's queue. Arriving packets are still counted. The output shows what
/// a card with this many queues would do with them.
fn what_arrives_is_counted_by_flow() {
    const FLOWS: u64 = 10;
    const EACH: u64 = 7;
    let lab = Lab::new(&common::unhurried()).expect("it was tried");
    let host = lab.receiver();
    let interface = host.interface().to_owned();
    let mut command = steer(&format!("{interface} --queues 4 --port 4321 --seconds 600"));
    command.arg("--json");
    let mut steering = host.within(|| Running::start(&mut command));
    steering.line("counting arrivals");
    let address = SocketAddr::new(host.v4()[0].into(), 4321);
    let sockets = lab
        .sender()
        .within(|| {
            (0..FLOWS)
                .map(|_| UdpSocket::bind("0.0.0.0:0"))
                .collect::<Result<Vec<_>, _>>()
        })
        .expect("sockets");
    for _ in 0..EACH {
        for socket in &sockets {
            socket.send_to(b"hello", address).expect("it is sent");
        }
        lab.settle().expect("silence comes");
    }
    let ended = steering.interrupt().fine();
    let found: Value = serde_json::from_str(&ended.out).expect("it is JSON");
    assert_eq!(numbers(&found, "flows", "packets"), [EACH; FLOWS as usize]);
    let by_queue: u64 = numbers(&found, "queues", "packets").iter().sum();
    assert_eq!(by_queue, FLOWS * EACH);
}

/// The command of another host sends one datagram of each named flow, and no other is counted. A
/// veth has no counters of queues, so nothing is verified. The status shows that.
fn named_flows_are_sent_and_seen() {
    const FLOWS: u64 = 300;
    let lab = Lab::new(&common::unhurried()).expect("it was tried");
    let host = lab.receiver();
    let interface = host.interface().to_owned();
    let namespace = lab.sender().namespace().as_fd().as_raw_fd();
    let sender = format!(
        "nsenter --net=/proc/{}/fd/{} {} send",
        process::id(),
        namespace,
        env!("CARGO_BIN_EXE_mpps")
    );
    let [from, to] = [&lab.sender().v4()[0], &host.v4()[0]];
    let verify = |flows: u64, sender: &str| {
        let mut command = steer(&format!("{interface} --queues 4 --verify --json"));
        let flow = format!("{from}:20000-{to}:4321");
        command.args(["--flow", &flow, "--flows", &flows.to_string()]);
        command.args(["--sender", sender, "--seconds", "60"]);
        host.within(|| run(&mut command))
    };
    let ended = verify(FLOWS, &sender);
    assert_eq!(ended.code(), 1, "{ended:#?}");
    let found: Value = serde_json::from_str(&ended.out).expect("it is JSON");
    // Some 5000 datagrams, equally from each flow. The first may be lost while the neighbour is
    // looked for.
    let packets = numbers(&found, "flows", "packets");
    assert_eq!(packets.len() as u64, FLOWS);
    assert!(
        packets.iter().all(|packets| [16, 17].contains(packets)),
        "{packets:?}"
    );
    assert_eq!(found["verified"]["missing"], 0, "{found:#}");
    // All but the flows that are not sent.
    let few = format!("few() {{ {sender} $1 --source-port 20000 --flows 100 --count 100; }}; few");
    let ended = verify(FLOWS, &few);
    assert_eq!(ended.code(), 1, "{ended:#?}");
    let found: Value = serde_json::from_str(&ended.out).expect("it is JSON");
    assert_eq!(found["verified"]["missing"], FLOWS - 100, "{found:#}");
    let ended = verify(FLOWS, "true");
    assert_eq!(ended.code(), 1, "{ended:#?}");
    let found: Value = serde_json::from_str(&ended.out).expect("it is JSON");
    assert_eq!(found["verified"]["missing"], FLOWS, "{found:#}");
    let ended = verify(FLOWS, "false");
    assert_eq!(ended.code(), 2, "{ended:#?}");
    assert!(ended.err.contains("--sender: `false "), "{}", ended.err);
}
