//! `mpps recv` and `mpps send` against bare C loops with the 2015 article's parameters
//! (`bench/*.c`), its rings against libxdp and its generator against bare live frames, interleaved A B A B on the same two CPUs, medians and spread.
//!
//! `cargo bench -p mpps --bench article` needs root, two CPUs and a C compiler; everything runs in
//! namespaces of its own. A pair takes about four seconds; `MPPS_BENCH_PAIRS` changes their number.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]

use mpps_lab::{Delivery, EarlyDrop, Lab, LabConfig, LabHost};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::link;
use mpps_os::sched;
use serde_json::Value;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const MPPS: &str = env!("CARGO_BIN_EXE_mpps");
const TARGET: &str = "192.168.254.1:4321";
/// Length of one side of a pair.
const SECONDS: &str = "1.5";
/// The sender has one CPU and the receiver the other, as in the lab.
const SENDER_CPU: &str = "0";
const RECEIVER_CPU: &str = "1";
/// Time for a receiver to be there, and for the last packets to arrive.
const PAUSE: Duration = Duration::from_millis(200);

/// One run of one receiver.
#[derive(Debug, Clone, Copy)]
struct Run {
    /// Million datagrams received per second, first to last.
    mpps: f64,
    /// CPU time of the whole receiving process per datagram, by the scheduler.
    cpu_ns: f64,
    /// Million datagrams sent per second.
    sent_mpps: f64,
    /// Resident memory of the receiver in KiB: half way and at the end.
    resident_kib: (u64, u64),
}

fn main() -> Result<()> {
    if std::env::args().any(|argument| argument == "--test") {
        return Ok(());
    }
    let pairs = std::env::var("MPPS_BENCH_PAIRS")
        .ok()
        .and_then(|text| text.parse().ok());
    let pairs = pairs.unwrap_or(7);
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
    println!(
        "Linux {}, {pairs} interleaved pairs of {SECONDS} s",
        kernel.trim()
    );
    let directory = tempfile::tempdir()?;
    let reference = Reference {
        recvmmsg: compile(directory.path(), "recvmmsg", &[])?,
        sendmmsg: compile(directory.path(), "sendmmsg", &[])?,
    };
    in_the_lab(&reference, pairs)?;
    over_loopback(&reference, pairs)?;
    from_rings(directory.path(), pairs)?;
    generators(directory.path(), pairs)
}

/// The C programs.
#[derive(Debug)]
struct Reference {
    recvmmsg: PathBuf,
    sendmmsg: PathBuf,
}

impl Reference {
    fn recv(&self) -> Vec<String> {
        words(
            &self.recvmmsg.to_string_lossy(),
            &["0.0.0.0", "4321", RECEIVER_CPU],
            &[],
        )
    }

    fn send(&self, to: &str) -> Vec<String> {
        words(
            &self.sendmmsg.to_string_lossy(),
            &[to, "4321", SENDER_CPU, SECONDS],
            &[],
        )
    }
}

fn recv(more: &[&str]) -> Vec<String> {
    words(
        MPPS,
        &["recv", "0.0.0.0:4321", "--pin", RECEIVER_CPU, "--json"],
        more,
    )
}

fn send(to: &str, more: &[&str]) -> Vec<String> {
    words(
        MPPS,
        &[
            "send",
            to,
            "--pin",
            SENDER_CPU,
            "--duration",
            SECONDS,
            "--json",
        ],
        more,
    )
}

/// One host sends to the other.
fn in_the_lab(reference: &Reference, pairs: usize) -> Result<()> {
    let lab = || -> Result<Hosts> {
        let queue_cpus = vec![1; 4];
        Ok(Hosts::Lab(Box::new(Lab::new(&LabConfig {
            queue_cpus,
            ..LabConfig::default()
        })?)))
    };
    let overload = send(TARGET, &["--gso", "4"]);
    compare("receive: mpps recv / bare recvmmsg in C", pairs, || {
        Ok((
            run(&lab()?, &recv(&[]), &overload)?,
            run(&lab()?, &reference.recv(), &overload)?,
        ))
    })?;
    compare("receive: mpps recv -v / bare recvmmsg in C", pairs, || {
        Ok((
            run(&lab()?, &recv(&["-v"]), &overload)?,
            run(&lab()?, &reference.recv(), &overload)?,
        ))
    })?;
    compare("send: mpps send / bare sendmmsg in C", pairs, || {
        let bare = reference.send(TARGET.trim_end_matches(":4321"));
        Ok((
            run(&lab()?, &recv(&[]), &send(TARGET, &[]))?,
            run(&lab()?, &recv(&[]), &bare)?,
        ))
    })
}

/// Trains against single datagrams, on one host.
fn over_loopback(reference: &Reference, pairs: usize) -> Result<()> {
    compare(
        "loopback: --gso 64 to --gro / bare sendmmsg to bare recvmmsg in C",
        pairs,
        || {
            let trains = send("127.0.0.1:4321", &["--gso", "64"]);
            Ok((
                run(&Hosts::loopback()?, &recv(&["--gro"]), &trains)?,
                run(
                    &Hosts::loopback()?,
                    &reference.recv(),
                    &reference.send("127.0.0.1"),
                )?,
            ))
        },
    )
}

/// Rings, the queue served by whoever sends: what a receiver costs more than the least that a
/// program can do. Needs libxdp-dev.
fn from_rings(directory: &Path, pairs: usize) -> Result<()> {
    let bare = compile(directory, "xsk_recycle", &["-lxdp", "-lbpf"])?;
    let bare = bare.to_string_lossy().into_owned();
    let lab = |queue_cpu: usize, delivery| -> Result<Hosts> {
        Ok(Hosts::Lab(Box::new(Lab::new(&LabConfig {
            queues: 1,
            queue_cpus: vec![queue_cpu],
            delivery,
            ..LabConfig::default()
        })?)))
    };
    let flood = send(TARGET, &["--backend", "xdp"]);
    for (mode, wait) in [("poll", "block"), ("spin", "spin")] {
        let name = format!("receive: mpps recv --backend af_xdp ({mode}) / libxdp recycling in C");
        compare(&name, pairs, || {
            let ours = words(
                MPPS,
                &[
                    "recv",
                    TARGET,
                    "--backend",
                    "af_xdp",
                    "--pin",
                    RECEIVER_CPU,
                    "--json",
                ],
                &["--wait", wait],
            );
            let theirs = words(&bare, &["mpps-rx", RECEIVER_CPU, mode], &[]);
            Ok((
                run(&lab(0, Delivery::SoftInterrupt)?, &ours, &flood)?,
                run(&lab(0, Delivery::SoftInterrupt)?, &theirs, &flood)?,
            ))
        })?;
    }
    Ok(())
}

/// Generators inside the kernel, from one CPU into XDP drop, which is the least that can be done
/// with a frame. The soft interrupts of the same CPU drop, so that none is lost in between.
fn generators(directory: &Path, pairs: usize) -> Result<()> {
    let bare = compile(directory, "live_frames", &["-lbpf"])?;
    let bare = bare.to_string_lossy().into_owned();
    let ours = send(TARGET, &["--backend", "xdp"]);
    let many = send(TARGET, &["--backend", "xdp", "--flows", "1024"]);
    compare(
        "generate: mpps send --backend xdp / redirected live frames in C",
        pairs,
        || {
            let (hosts, macs) = dropping_hosts()?;
            let theirs = words(
                &bare,
                &[
                    hosts.sender().interface(),
                    &macs.0,
                    &macs.1,
                    SENDER_CPU,
                    SECONDS,
                ],
                &[],
            );
            Ok((generate(&hosts, &ours)?, generate(&hosts, &theirs)?))
        },
    )?;
    compare(
        "generate: mpps send --backend xdp, 1024 flows / 1 flow",
        pairs,
        || {
            let (hosts, _) = dropping_hosts()?;
            Ok((generate(&hosts, &many)?, generate(&hosts, &ours)?))
        },
    )
}

/// A lab of one queue, and the hardware addresses of its receiver and sender.
fn dropping_hosts() -> Result<(Lab, (String, String))> {
    let lab = Lab::new(&LabConfig {
        queues: 1,
        queue_cpus: vec![0],
        delivery: Delivery::SoftInterrupt,
        ..LabConfig::default()
    })?;
    let mac = |host: &LabHost| -> Result<String> {
        let links = host.run(link::list)??;
        let link = links.iter().find(|link| link.name == host.interface());
        let address = &link.ok_or("no link")?.address;
        let bytes: Vec<String> = address.iter().map(|byte| format!("{byte:02x}")).collect();
        Ok(bytes.join(":"))
    };
    let macs = (mac(lab.receiver())?, mac(lab.sender())?);
    Ok((lab, macs))
}

/// One side of a pair of generators: what was dropped on arrival is what was received.
fn generate(lab: &Lab, send: &[String]) -> Result<Run> {
    let sink = EarlyDrop::XdpUntouched.install(lab, 4321)?;
    let output = lab.sender().run(|| {
        Command::new(&send[0])
            .args(&send[1..])
            .stderr(Stdio::null())
            .output()
    })??;
    let sent = last_object(&output.stdout)?;
    lab.settle()?;
    let seconds = sent["active_seconds"].as_f64().unwrap_or(0.0);
    Ok(Run {
        mpps: sink.dropped()? as f64 / seconds / 1e6,
        cpu_ns: 0.0,
        sent_mpps: sent["sent"].as_f64().unwrap_or(0.0) / seconds / 1e6,
        resident_kib: (0, 0),
    })
}

/// Where sender and receiver run.
#[derive(Debug)]
enum Hosts {
    Lab(Box<Lab>),
    Loopback(NetNamespace),
}

impl Hosts {
    fn loopback() -> Result<Self> {
        let namespace = NetNamespace::new()?;
        namespace.run(|| link::set_up(link::index("lo")?))??;
        Ok(Self::Loopback(namespace))
    }

    fn spawn(&self, words: &[String], sends: bool) -> Result<Child> {
        let mut command = Command::new(&words[0]);
        command
            .args(&words[1..])
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let child = match self {
            Self::Lab(lab) if sends => lab.sender().run(|| command.spawn())?,
            Self::Lab(lab) => lab.receiver().run(|| command.spawn())?,
            Self::Loopback(namespace) => namespace.run(|| command.spawn())?,
        };
        Ok(child?)
    }
}

fn words(program: &str, first: &[&str], more: &[&str]) -> Vec<String> {
    let all = [program]
        .into_iter()
        .chain(first.iter().copied())
        .chain(more.iter().copied());
    all.map(str::to_owned).collect()
}

fn compile(directory: &Path, name: &str, libraries: &[&str]) -> Result<PathBuf> {
    let source = format!("{}/../../bench/{name}.c", env!("CARGO_MANIFEST_DIR"));
    let program = directory.join(name);
    let status = Command::new("cc")
        .args(["-O2", "-Wall", "-o"])
        .arg(&program)
        .arg(&source)
        .args(libraries)
        .status()?;
    if status.success() {
        Ok(program)
    } else {
        Err(format!("cc {source}: {status}").into())
    }
}

/// One side of a pair: the receiver, then the sender, then the sums.
fn run(hosts: &Hosts, receive: &[String], send: &[String]) -> Result<Run> {
    let receiver = hosts.spawn(receive, false)?;
    sleep(PAUSE);
    // From here on: starting up is not what the packets cost.
    let started_ns = process_cpu_ns(receiver.id())?;
    let sender = hosts.spawn(send, true)?;
    sleep(PAUSE);
    let half_way = resident_kib(receiver.id());
    let sent = last_object(&sender.wait_with_output()?.stdout)?;
    sleep(PAUSE);
    let resident_kib = (half_way, resident_kib(receiver.id()));
    // Nothing moves any more: what the process has used is what the packets cost.
    let cpu_ns = process_cpu_ns(receiver.id())?.saturating_sub(started_ns);
    let interrupted = Command::new("kill")
        .args(["-INT", &receiver.id().to_string()])
        .status()?;
    if !interrupted.success() {
        return Err("the receiver is gone".into());
    }
    let received = last_object(&receiver.wait_with_output()?.stdout)?;
    let rate = |object: &Value, count: &str| {
        let seconds = object["active_seconds"].as_f64().unwrap_or(0.0);
        object[count].as_f64().unwrap_or(0.0) / seconds / 1e6
    };
    Ok(Run {
        mpps: rate(&received, "received"),
        cpu_ns: cpu_ns as f64 / received["received"].as_f64().unwrap_or(0.0),
        sent_mpps: rate(&sent, "sent"),
        resident_kib,
    })
}

/// The last JSON object, one a line, that a program wrote.
fn last_object(output: &[u8]) -> Result<Value> {
    let text = String::from_utf8_lossy(output);
    let line = text.lines().last().ok_or("a program wrote nothing")?;
    Ok(serde_json::from_str(line)?)
}

/// CPU time of all threads of a process.
fn process_cpu_ns(process: u32) -> Result<u64> {
    let mut sum = 0;
    for task in fs::read_dir(format!("/proc/{process}/task"))? {
        let thread = task?.file_name().to_string_lossy().parse()?;
        sum += sched::schedstat(process, thread)?.run_ns;
    }
    Ok(sum)
}

fn resident_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok())
        .unwrap_or(0)
}

/// Runs so many pairs and prints each figure of both sides with the ratio A/B, pair by pair.
fn compare(name: &str, pairs: usize, mut pair: impl FnMut() -> Result<(Run, Run)>) -> Result<()> {
    // As with other benchmarks, a word on the command line chooses by name.
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'))
        .collect();
    if !words.is_empty() && !words.iter().any(|word| name.contains(word.as_str())) {
        return Ok(());
    }
    let runs: Vec<(Run, Run)> = (0..pairs).map(|_| pair()).collect::<Result<_>>()?;
    println!("\n{name}");
    for (figure, of) in [
        ("received Mpps", (|run: &Run| run.mpps) as fn(&Run) -> f64),
        ("sent Mpps", |run| run.sent_mpps),
        ("receiver CPU ns per packet", |run| run.cpu_ns),
        ("receiver resident KiB, half way", |run| {
            run.resident_kib.0 as f64
        }),
        ("receiver resident KiB, at the end", |run| {
            run.resident_kib.1 as f64
        }),
    ] {
        if runs.iter().all(|(a, b)| of(a) == 0.0 && of(b) == 0.0) {
            continue; // Generators have no receiver.
        }
        let side =
            |of_pair: fn(&(Run, Run)) -> &Run| spread(runs.iter().map(|pair| of(of_pair(pair))));
        let ratio = spread(runs.iter().map(|(a, b)| of(a) / of(b)));
        println!(
            "  {figure:<34} A {}   B {}   A/B {ratio}",
            side(|pair| &pair.0),
            side(|pair| &pair.1)
        );
    }
    Ok(())
}

/// `median (minimum to maximum)`.
fn spread(values: impl Iterator<Item = f64>) -> String {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    let (Some(low), Some(high)) = (sorted.first(), sorted.last()) else {
        return "-".to_owned();
    };
    format!("{:.3} ({low:.3} to {high:.3})", sorted[sorted.len() / 2])
}
