//! `mpps top` and its exporter: their output about a host of a lab with known traffic. It goes to a terminal too, and to Debian's Prometheus with the files of
//! `packaging`.

mod exporter;
mod readers;
mod terminal;

use crate::common::{self, Ended, Entered, Running, mpps, run};
use mpps_lab::{Delivery, Lab, LabConfig, address};
use mpps_trial::{Need, Trial, trials};
use serde_json::Value;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;

const PYTHON: Need = Need::Program("python3", "python3");
const PORT: u16 = 4321;
/// More than a socket's buffer holds.
const SENT: u64 = 2000;

pub(crate) fn trials() -> Vec<Trial> {
    let parts = [
        of_pages(),
        exporter::trials(),
        readers::trials(),
        terminal::trials(),
    ];
    parts.into_iter().flatten().collect()
}

fn of_pages() -> Vec<Trial> {
    trials![
        waits(Need::Namespace):
            pages_add_up,
            one_page_is_text,
            a_reader_that_goes_ends_it;
        measures(Need::Root, PYTHON): frames_that_no_protocol_takes_are_no_drops;
        waits(Need::Root): an_ordinary_user_is_told_what_is_hidden;
    ]
}

/// Two hosts. The receiver has a socket, which a trial reads when it wants to.
struct Scenario {
    lab: Lab,
    socket: UdpSocket,
}

impl Scenario {
    fn new() -> Self {
        let config = LabConfig {
            queues: 2,
            // A sender cannot overrun a ring that it empties itself.
            delivery: Delivery::SoftInterrupt,
            ..LabConfig::default()
        };
        let lab = Lab::new(&config).expect("the probe made a namespace");
        let bind = || UdpSocket::bind((address::v4(1), PORT));
        let socket = lab.receiver().within(bind);
        Self {
            lab,
            socket: socket.expect("the port is free"),
        }
    }

    /// The receiver, as `--netns` takes it.
    fn receiver(&self) -> String {
        let namespace = self.lab.receiver().namespace().as_fd().as_raw_fd();
        format!("/proc/{}/fd/{namespace}", std::process::id())
    }

    /// Sends datagrams, and waits until nothing moves.
    fn send(&self, datagrams: u64) {
        let send = || {
            let socket = UdpSocket::bind((address::v4(30), 0)).expect("it is the sender's");
            let to = SocketAddr::from((address::v4(1), PORT));
            for _ in 0..datagrams {
                socket.send_to(&[0; 100], to).expect("it can be sent");
            }
        };
        self.lab.sender().within(send);
        self.lab.settle().expect("it comes to rest");
    }

    /// Reads the datagrams that wait in the buffer, and returns their number.
    fn read(&self) -> u64 {
        self.socket.set_nonblocking(true).expect("an option");
        let mut read = 0;
        while self.socket.recv(&mut [0; 100]).is_ok() {
            read += 1;
        }
        read
    }

    /// The output of a command about the receiver, one object a line. The command is ended after
    /// `happen`.
    fn objects(&self, command: &[&str], happen: impl FnOnce()) -> Vec<Value> {
        let mut command = mpps(command);
        command.args(["--json", "--netns", &self.receiver()]);
        let mut running = Running::start(&mut command);
        running.line("\"schema\"");
        happen();
        let ended = running.interrupt().fine();
        let objects = ended.out.lines().map(serde_json::from_str);
        let objects: Vec<Value> = objects.collect::<Result<_, _>>().expect("they are JSON");
        assert!(
            objects.len() >= 2,
            "the last look is at the end: {ended:#?}"
        );
        objects
    }
}

/// The sum of a figure over all objects.
fn sum(objects: &[Value], pointer: &str) -> u64 {
    let figures = objects.iter().map(|object| object.pointer(pointer));
    let figures = figures.map(|figure| figure.and_then(Value::as_u64).unwrap_or(0));
    figures.sum()
}

/// The sum of losses in full buffers.
fn lost(objects: &[Value], ledger: &str) -> u64 {
    let losses = objects.iter().flat_map(|object| {
        let losses = object.pointer(&format!("{ledger}/losses"));
        losses.and_then(Value::as_array).into_iter().flatten()
    });
    let losses: Vec<&Value> = losses.collect();
    let is_full = |loss: &&Value| loss["reason"] == "socket buffer full";
    assert!(losses.iter().all(is_full), "{losses:#?}");
    losses
        .iter()
        .filter_map(|loss| loss["count"].as_u64())
        .sum()
}

fn pages_add_up() {
    let scenario = Scenario::new();
    let mut read = 0;
    let objects = scenario.objects(&["top"], || {
        scenario.send(SENT);
        read = scenario.read();
    });
    assert_eq!(sum(&objects, "/page/ledger/offered"), SENT);
    assert_eq!(sum(&objects, "/page/ledger/delivered"), read);
    let dropped = SENT - read;
    assert!(read > 0 && dropped > 0, "{read} of {SENT} were read");
    assert_eq!(lost(&objects, "/page/ledger"), dropped);
    let sockets = objects
        .iter()
        .flat_map(|object| object["page"]["sockets"].as_array());
    let sockets: Vec<&Value> = sockets.flatten().collect();
    let drops = sockets
        .iter()
        .filter_map(|socket| socket["dropped"].as_u64());
    assert_eq!(
        drops.sum::<u64>(),
        dropped,
        "those of the socket are the same"
    );
    let local = format!("{}:{PORT}", address::v4(1));
    for socket in sockets {
        assert_eq!(
            (&socket["local"], &socket["pid"]),
            (&local.clone().into(), &std::process::id().into())
        );
    }
    let received: f64 = objects
        .iter()
        .flat_map(|object| {
            let seconds = object["page"]["seconds"].as_f64().unwrap_or(0.0);
            let queues = object["page"]["queues"].as_array().into_iter().flatten();
            let whole = queues.filter(|row| row["queue"].is_null() && row["interface"] != "lo");
            whole.map(move |row| row["received_pps"].as_f64().unwrap_or(0.0) * seconds)
        })
        .sum();
    assert!(
        received.round() as u64 >= SENT,
        "{received} came by the interface"
    );
}

fn frames_that_no_protocol_takes_are_no_drops() {
    const FRAMES: u64 = 50;
    let scenario = Scenario::new();
    let sender = scenario.lab.sender();
    let index = sender.interface_index();
    // LLDP, a length as of STP, and a type that no standard has.
    let text = format!(
        "import socket\ns = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
         s.bind((socket.if_indextoname({index}), 0))\n\
         for kind in (b'\\x88\\xcc', b'\\x99\\x99'):\n for _ in range({}):\n  \
         s.send(bytes.fromhex('0180c200000e020000000001') + kind + bytes(60))",
        FRAMES / 2
    );
    let objects = scenario.objects(&["top", "--interval", "100ms"], || {
        let send = || run(Command::new("python3").args(["-c", &text])).fine();
        sender.within(send);
        scenario.lab.settle().expect("it comes to rest");
        scenario.send(10);
    });
    let all = |name: &str| -> f64 {
        let pages = objects.iter().map(|object| &object["page"]);
        let rates = pages.flat_map(|page| {
            let seconds = page["seconds"].as_f64().unwrap_or(0.0);
            let rows = page["queues"].as_array().into_iter().flatten();
            rows.map(move |row| row[name].as_f64().unwrap_or(0.0) * seconds)
        });
        rates.sum()
    };
    assert_eq!(all("dropped_pps").round(), 0.0, "{objects:#?}");
    assert_eq!(all("unhandled_pps").round(), FRAMES as f64, "{objects:#?}");
    assert_eq!(lost(&objects, "/page/ledger"), 0);
    let told = objects
        .iter()
        .map(|object| object["page"]["ledger"]["notes"].to_string());
    assert!(
        told.clone().any(|notes| notes.contains("UNHANDLED_PROTO")),
        "{objects:#?}"
    );
    let totals = &objects.last().expect("there are some")["totals"];
    assert_eq!(
        (&totals["offered"], &totals["lost"]),
        (&10.into(), &0.into())
    );
}

fn one_page_is_text() {
    let scenario = Scenario::new();
    scenario.send(10);
    for columns in ["60", "80", "200"] {
        let mut command = mpps(&["top", "--once", "--netns", &scenario.receiver()]);
        let ended = run(command.env("COLUMNS", columns)).fine();
        let text = ended.out.replace('\u{a0}', " ");
        for part in [
            "INTERFACE",
            "PROGRAMS%",
            "PROGRAM",
            "nothing is lost",
            "UNACCOUNTED",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.contains(&PORT.to_string()), "{text}");
    }
}

fn an_ordinary_user_is_told_what_is_hidden() {
    let directory = tempfile::tempdir().expect("a directory");
    let told =
        |arguments: &[&str]| -> Ended { common::as_nobody(directory.path(), arguments).fine() };
    let text = told(&["top", "lo", "--once"]).out;
    assert!(text.contains("drop reasons are not seen"), "{text}");
    let object = told(&["top", "--once", "--json"]).last_json();
    assert!(
        object["notes"]
            .to_string()
            .contains("drop reasons are not seen"),
        "{object:#}"
    );
    assert!(object["drop_reasons"].is_null(), "{object:#}");
}

/// As `mpps top --json | head -n 1` does.
fn a_reader_that_goes_ends_it() {
    let scenario = Scenario::new();
    let piped = format!(
        "({program} top --json --netns {}; echo ended $? >&2) | head -n 1",
        scenario.receiver(),
        program = env!("CARGO_BIN_EXE_mpps"),
    );
    let ended = run(std::process::Command::new("sh").args(["-c", &piped])).fine();
    assert!(ended.err.contains("ended 0"), "{ended:#?}");
    assert_eq!(ended.out.lines().count(), 1, "{ended:#?}");
}
