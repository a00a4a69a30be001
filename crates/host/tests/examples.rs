//! Runs the examples without a loss, with a socket that is not read, and with a port without a
//! listener. This program is also the server and the client that they start.

use mpps_lab::{Lab, LabConfig};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::link;
use mpps_os::socket;
use mpps_trial::{Failed, Need, Trial, able, example, trials};
use std::env;
use std::fs::{self, File};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::process::{Command, ExitCode, Output};
use std::thread;
use std::time::Duration;

const PORT: &str = "4321";
/// The number of datagrams that `udp_losses` sends.
const DATAGRAMS: u64 = 100_000;
/// Room for some dozens of datagrams.
const SMALL_BUFFER: usize = 30_000;

/// The part of this process, if a trial has started it.
pub(crate) fn play() -> Option<ExitCode> {
    let words: Vec<String> = env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let played = match words[..] {
        ["held-server", count] => held_server(count),
        ["sender", target, datagrams] => sender(target, datagrams),
        ["asker", target, questions] => asker(target, questions),
        _ => return None,
    };
    played.expect("a part that a trial gave out");
    Some(ExitCode::SUCCESS)
}

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::probe(built), Need::probe(back_pressure), Need::probe(lab)):
            a_server_that_keeps_up;
        waits(Need::probe(built), Need::probe(lab)):
            a_server_that_is_held,
            no_server,
            no_program;
        waits(Need::probe(built), Need::Namespace):
            every_question_is_answered,
            a_socket_that_nobody_reads,
            no_port,
            no_workload;
        pure: the_guide_has_the_example;
    ]
}

/// `cargo test` builds examples; `cargo test --test trials` does not.
fn built() -> Result<(), String> {
    let build = || "the examples are not built: cargo build -p mpps-host --examples".to_owned();
    let is_built = example("udp_losses").exists();
    is_built.then_some(()).ok_or_else(build)
}

fn lab() -> Result<(), String> {
    able()?;
    let lab = Lab::new(&LabConfig::default());
    lab.map(drop).map_err(|error| error.to_string())
}

/// Older drivers drop what finds a ring full, and do not let it wait.
fn back_pressure() -> Result<(), String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release
        .split(['.', '-'])
        .map_while(|word| word.parse::<u32>().ok());
    let version = numbers.next().zip(numbers.next());
    match version.is_some_and(|version| version < (6, 16)) {
        true => Err(format!(
            "a veth waits for room since Linux 6.16; here {release}"
        )),
        false => Ok(()),
    }
}

/// The output of an example that ended with this status.
fn said(output: &Output, status: i32) -> Result<String, Failed> {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    match output.status.code() == Some(status) {
        true => Ok(text),
        false => Err(format!("{}, not {status}: {text}{errors}", output.status).into()),
    }
}

/// The counts of the lines `lost N: REASON (STATION, COUNTER)`, with what follows each count.
fn losses(text: &str) -> Vec<(u64, &str)> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("lost "));
    let split = lines.filter_map(|line| line.split_once(": "));
    split
        .map(|(count, rest)| (count.parse().expect("a count"), rest))
        .collect()
}

fn expect<T: PartialEq + std::fmt::Debug>(found: T, expected: T, text: &str) -> Result<(), Failed> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{found:?}, not {expected:?}: {text}").into()),
    }
}

fn a_server_that_keeps_up() -> Result<(), Failed> {
    let text = said(&Command::new(example("udp_losses")).output()?, 0)?;
    let balanced = "offered 100 000 = delivered 100 000 + still queued 0 + UNACCOUNTED 0\n";
    expect(&*text, balanced, "")
}

/// The loss is the difference between sent and received datagrams, by the server's own count.
fn a_server_that_is_held() -> Result<(), Failed> {
    let directory = tempfile::tempdir()?;
    let count = directory.path().join("received");
    let mut command = Command::new(example("udp_losses"));
    command
        .arg(PORT)
        .arg(env::current_exe()?)
        .arg("held-server")
        .arg(&count);
    let text = said(&command.output()?, 1)?;
    let received = u64::from_le_bytes(fs::read(&count)?[..].try_into()?);
    let losses = losses(&text);
    let lost: u64 = losses.iter().map(|(count, _)| count).sum();
    expect(lost, DATAGRAMS - received, &text)?;
    let (at_socket, counter) = *losses.last().ok_or("nothing was lost")?;
    expect(
        counter,
        "socket buffer full (socket, receiver Udp.RcvbufErrors)",
        &text,
    )?;
    expect(at_socket >= DATAGRAMS / 2, true, &text)?;
    expect(text.contains("UNACCOUNTED 0\n"), true, &text)
}

fn no_server() -> Result<(), Failed> {
    let output = Command::new(example("udp_losses"))
        .args([PORT, "sleep", "1000"])
        .output()?;
    let text = said(&output, 1)?;
    let reason = "no socket on the port (UDP, receiver Udp.NoPorts)";
    let at_port = losses(&text).into_iter().find(|(_, rest)| *rest == reason);
    let lost: u64 = losses(&text).iter().map(|(count, _)| count).sum();
    expect((at_port.is_some(), lost), (true, DATAGRAMS), &text)
}

fn no_program() -> Result<(), Failed> {
    let output = Command::new(example("udp_losses"))
        .args([PORT, "no-such-server"])
        .output()?;
    said(&output, 2)?;
    let errors = String::from_utf8_lossy(&output.stderr);
    expect(errors.contains("no-such-server"), true, &errors)
}

/// A host of its own, with nothing but a loopback.
fn host() -> Result<NetNamespace, Failed> {
    let host = NetNamespace::new()?;
    host.run(|| link::set_up(link::index("lo")?))??;
    Ok(host)
}

/// The example `ledger` on that host, around this program in one of its parts.
fn ledger(host: &NetNamespace, part: [&str; 3], status: i32) -> Result<String, Failed> {
    let mut command = Command::new(example("ledger"));
    command.arg(env::current_exe()?).args(part);
    said(&host.run(|| command.output())??, status)
}

fn every_question_is_answered() -> Result<(), Failed> {
    let host = host()?;
    let server = host.run(|| UdpSocket::bind("127.0.0.1:0"))??;
    let target = server.local_addr()?.to_string();
    let text = thread::scope(|scope| {
        scope.spawn(move || {
            for _ in 0..1000 {
                let (bytes, from) = server.recv_from(&mut [0; 64]).expect("a question");
                server.send_to(&[1; 64][..bytes], from).expect("an answer");
            }
        });
        ledger(&host, ["asker", &target, "1000"], 0)
    })?;
    let balanced = "offered 2 000 = delivered 2 000 + still queued 0 + UNACCOUNTED 0\n";
    expect(text.starts_with(balanced), true, &text)
}

fn a_socket_that_nobody_reads() -> Result<(), Failed> {
    let host = host()?;
    let held = host.run(|| small_socket("127.0.0.1:4321"))??;
    let text = ledger(&host, ["sender", "127.0.0.1:4321", "3000"], 1)?;
    held.set_nonblocking(true)?;
    let received = std::iter::from_fn(|| held.recv(&mut [0; 64]).ok()).count() as u64;
    let lost = 3000 - received;
    let counted = "socket buffer full (socket, Udp.RcvbufErrors)";
    expect(losses(&text), vec![(lost, counted)], &text)?;
    let own = fs::read_to_string("/proc/self/comm")?;
    let own = own.trim_end();
    let named = format!("127.0.0.1:4321 of {own} dropped {lost}: its buffer has");
    expect(text.contains(&named), true, &text)
}

fn no_port() -> Result<(), Failed> {
    let text = ledger(&host()?, ["sender", "127.0.0.1:4321", "1000"], 1)?;
    let lost = vec![(1000, "no socket on the port (UDP, Udp.NoPorts)")];
    expect(losses(&text), lost, &text)
}

fn no_workload() -> Result<(), Failed> {
    let output = Command::new(example("ledger"))
        .arg("no-such-program")
        .output()?;
    said(&output, 2).map(drop)
}

/// A stranger copies the one from the guide, and the tests here try the other.
fn the_guide_has_the_example() -> Result<(), Failed> {
    let code = include_str!("../examples/udp_losses.rs");
    let guide = include_str!("../../../docs/library.md");
    let from = code
        .find("/// Where the datagrams")
        .ok_or("no such function")?;
    let to = code.find("fn main").ok_or("no main")?;
    expect(
        guide.contains(code[from..to].trim_end()),
        true,
        "docs/library.md differs",
    )
}

/// A socket whose buffer is soon full.
fn small_socket(address: &str) -> std::io::Result<UdpSocket> {
    let address: SocketAddr = address.parse().expect("an address");
    let opened = || {
        let socket = socket::UdpSocket::new(&address)?;
        socket.set_receive_buffer(SMALL_BUFFER)?;
        socket.bind(&address)?;
        Ok::<_, mpps_os::CallError>(socket)
    };
    let socket = opened().map_err(std::io::Error::other)?;
    Ok(socket.as_fd().try_clone_to_owned()?.into())
}

/// Reads only once half of the datagrams have found its buffer full, and keeps the count of those that it
/// got in a file. It is killed when its buffer is empty, so it counts before it takes.
fn held_server(count: &str) -> Result<(), Failed> {
    let address: SocketAddr = format!("0.0.0.0:{PORT}").parse()?;
    let socket = socket::UdpSocket::new(&address)?;
    socket.set_receive_buffer(SMALL_BUFFER)?;
    socket.bind(&address)?;
    while u64::from(socket.memory()?.drops) < DATAGRAMS / 2 {
        thread::sleep(Duration::from_millis(1));
    }
    let (socket, file) = (
        UdpSocket::from(socket.as_fd().try_clone_to_owned()?),
        File::create(count)?,
    );
    for received in 1_u64.. {
        socket.peek(&mut [0; 64])?;
        file.write_all_at(&received.to_le_bytes(), 0)?;
        socket.recv(&mut [0; 64])?;
    }
    Ok(())
}

fn sender(target: &str, datagrams: &str) -> Result<(), Failed> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    for _ in 0..datagrams.parse::<u64>()? {
        socket.send_to(&[7; 32], target)?;
    }
    Ok(())
}

fn asker(target: &str, questions: &str) -> Result<(), Failed> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.set_read_timeout(Some(Duration::from_secs(20)))?;
    for _ in 0..questions.parse::<u64>()? {
        socket.send_to(&[7; 32], target)?;
        socket.recv(&mut [0; 64])?;
    }
    Ok(())
}
