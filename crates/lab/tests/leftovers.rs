//! Nothing of a lab is left, however its program ends.
//!
//! The program that ends is this one, started again with a role to play.

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::UdpSocket;
use std::process::{Child, ChildStdout, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::{check, lab};
use mpps_lab::{Lab, LabConfig, LabHost};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::{link, napi};
use mpps_os::{capability, process::ContainedChild};
use mpps_trial::{Failed, Need, Trial, able, trials};

/// The role of the program started again.
const ROLE: &str = "MPPS_LAB_TEST_ROLE";
/// Marks the program started again and all programs that it starts.
const MARK: &str = "MPPS_LAB_TEST_MARK";

/// The kernel takes namespaces down when it finds the time.
const PATIENCE: Duration = Duration::from_secs(15);

/// When to kill: a delay after the program has said that it reached a stage.
const MOMENTS: [(&str, u64); 10] = [
    ("start", 0),
    ("start", 3),
    ("start", 8),
    ("start", 15),
    ("lab", 0),
    ("lab", 2),
    ("children", 0),
    ("traffic", 5),
    ("traffic", 40),
    ("down", 0),
];

/// Plays a role, if a trial has started this program for that.
pub(crate) fn play() -> Option<ExitCode> {
    let role = std::env::var(ROLE).ok()?;
    let played = act(&role);
    if let Err(error) = &played {
        let _ = writeln!(std::io::stderr(), "{role}: {error}");
    }
    Some(played.map_or(ExitCode::FAILURE, |()| ExitCode::SUCCESS))
}

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::probe(lab)):
            after_kill,
            after_stop_and_kill,
            after_ignored_ends,
            after_interrupt,
            after_panic,
            after_normal_end;
    ]
}

fn after_kill() -> Result<(), Failed> {
    for (stage, delay_ms) in MOMENTS {
        let before = Surroundings::look()?;
        let stays = stage == "children";
        let mut actor = Actor::start(if stays { stage } else { "forever" })?;
        actor.wait_for(stage)?;
        thread::sleep(Duration::from_millis(delay_ms));
        actor.child.kill()?;
        actor.child.wait()?;
        actor
            .expect_nothing_left(&before)
            .map_err(|left| format!("killed {delay_ms} ms after {stage}: {left}"))?;
    }
    Ok(())
}

/// Stopping the program's whole process group must not stop the process that watches over its
/// commands.
fn after_stop_and_kill() -> Result<(), Failed> {
    let before = Surroundings::look()?;
    // A session of its own has a process group of its own, named after its leader.
    let mut command = Command::new("setsid");
    command.arg(std::env::current_exe()?);
    let mut actor = Actor::start_by(command, "children")?;
    actor.wait_for("children")?;
    let group = format!("-{}", actor.child.id());
    // The shell's own `kill`, which is everywhere.
    let stopped = Command::new("sh")
        .args(["-c", &format!("kill -STOP {group}")])
        .status()?;
    check(stopped.success(), || "kill -STOP failed".to_owned())?;
    actor.child.kill()?;
    actor.child.wait()?;
    Ok(actor.expect_nothing_left(&before)?)
}

/// A program that inherits an ignored `SIGCHLD` still learns how its commands end.
fn after_ignored_ends() -> Result<(), Failed> {
    let before = Surroundings::look()?;
    let mut command = Command::new("env");
    command.args(["--ignore-signal=CHLD,INT,QUIT,TERM,HUP,PIPE"]);
    command.arg(std::env::current_exe()?);
    let mut actor = Actor::start_by(command, "ends")?;
    let status = actor.child.wait()?;
    check(status.success(), || format!("no good end: {status}"))?;
    Ok(actor.expect_nothing_left(&before)?)
}

fn after_interrupt() -> Result<(), Failed> {
    let before = Surroundings::look()?;
    // A shell starts its background commands with this signal ignored.
    let mut command = Command::new("env");
    command.arg("--default-signal=INT");
    command.arg(std::env::current_exe()?);
    let mut actor = Actor::start_by(command, "forever")?;
    actor.wait_for("traffic")?;
    let killed = Command::new("sh")
        .args(["-c", &format!("kill -INT {}", actor.child.id())])
        .status()?;
    check(killed.success(), || "kill -INT failed".to_owned())?;
    actor.child.wait()?;
    Ok(actor.expect_nothing_left(&before)?)
}

fn after_panic() -> Result<(), Failed> {
    let before = Surroundings::look()?;
    let mut actor = Actor::start("panic")?;
    actor.wait_for("traffic")?;
    let status = actor.child.wait()?;
    check(status.code() == Some(101), || format!("no panic: {status}"))?;
    Ok(actor.expect_nothing_left(&before)?)
}

fn after_normal_end() -> Result<(), Failed> {
    let before = Surroundings::look()?;
    let mut actor = Actor::start("once")?;
    actor.wait_for("down")?;
    let status = actor.child.wait()?;
    check(status.success(), || format!("no good end: {status}"))?;
    Ok(actor.expect_nothing_left(&before)?)
}

/// The work of the program started again. It prints a word for each stage that it reaches.
fn act(role: &str) -> Result<(), Box<dyn std::error::Error>> {
    able()?;
    if role == "ends" {
        return end_commands();
    }
    loop {
        say("start");
        let lab = Lab::new(&LabConfig::default())?;
        let threads = lab
            .napi_threads()
            .iter()
            .map(|thread| thread.pid.to_string());
        let facts = [lab.sender().inode(), lab.receiver().inode()].map(|inode| inode.to_string());
        say(&format!(
            "facts {} {}",
            facts.join(","),
            threads.collect::<Vec<_>>().join(",")
        ));
        say("lab");
        let _commands = [
            restless_shell(lab.sender())?,
            restless_shell(lab.receiver())?,
        ];
        say("children");
        // It keeps what is looked for.
        if role == "children" {
            loop {
                thread::park();
            }
        }
        exchange(&lab)?;
        assert_ne!(role, "panic", "as it was told to");
        drop(lab);
        say("down");
        if role == "once" {
            return Ok(());
        }
    }
}

/// Commands have their own ends, and default answers to signals.
fn end_commands() -> Result<(), Box<dyn std::error::Error>> {
    let lab = Lab::new(&LabConfig::default())?;
    // The last one looks at the signals 1 to 28: the C library has its way with 32 and 33.
    let ignores = "! grep -E '^SigIgn:.*[1-9a-f].{0,6}$' /proc/self/status >&2";
    for (script, expected) in [("exit 7", 7), ("kill -INT $$", 128 + 2), (ignores, 0)] {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(Stdio::null());
        let code = lab.sender().spawn(command)?.wait()?.code();
        if code != Some(expected) {
            return Err(format!("{script}: {code:?}").into());
        }
    }
    Ok(())
}

/// A shell that tries to leave something behind, in the background and in another session.
fn restless_shell(host: &LabHost) -> Result<ContainedChild, mpps_lab::LabError> {
    let mut command = Command::new("sh");
    let script = "trap '' INT TERM HUP; sleep 1000 & setsid sleep 1000 & setsid sh -c 'sleep 1000 & \
                  sleep 1000' & wait";
    command.args(["-c", script]).stdout(Stdio::null());
    host.spawn(command)
}

/// Traffic for a tenth of a second.
fn exchange(lab: &Lab) -> Result<(), Box<dyn std::error::Error>> {
    let target = lab.receiver().v4()[0];
    let _receiver = lab.receiver().run(|| UdpSocket::bind((target, 4321)))??;
    let sender = lab.sender().run(|| UdpSocket::bind("0.0.0.0:0"))??;
    let deadline = Instant::now() + Duration::from_millis(100);
    say("traffic");
    while Instant::now() < deadline {
        sender.send_to(&[1; 32], (target, 4321))?;
    }
    Ok(())
}

fn say(word: &str) {
    // If this fails the listener is gone, and this program will end too.
    let _ = writeln!(std::io::stdout(), "{word}");
}

/// This program, started again.
struct Actor {
    child: Child,
    output: BufReader<ChildStdout>,
    mark: String,
    /// The network namespaces and kernel threads that it has reported.
    namespaces: BTreeSet<u32>,
    threads: BTreeSet<u32>,
}

impl Drop for Actor {
    /// Both fail if it has ended, which is fine.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Actor {
    fn start(role: &str) -> Result<Self, Failed> {
        Self::start_by(Command::new(std::env::current_exe()?), role)
    }

    /// Starts it by a command that becomes this program.
    fn start_by(mut command: Command, role: &str) -> Result<Self, Failed> {
        let now = std::time::UNIX_EPOCH.elapsed()?.as_nanos();
        let mark = format!("{}-{now}", std::process::id());
        let mut child = command
            .env(ROLE, role)
            .env(MARK, &mark)
            .stdout(Stdio::piped())
            .stderr(if role == "panic" {
                Stdio::null()
            } else {
                Stdio::inherit()
            })
            .spawn()?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Self {
            child,
            output,
            mark,
            namespaces: BTreeSet::new(),
            threads: BTreeSet::new(),
        })
    }

    fn wait_for(&mut self, stage: &str) -> Result<(), Failed> {
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line)? == 0 {
                return Err(format!("ended before it came to {stage}").into());
            }
            let mut words = line.split_whitespace();
            match words.next() {
                Some("facts") => {
                    self.namespaces.extend(numbers(words.next()));
                    self.threads.extend(numbers(words.next()));
                }
                Some(word) if word == stage => break,
                _ => {}
            }
        }
        if stage == "children" {
            self.expect_to_be_seen()?;
        }
        Ok(())
    }

    /// The search finds them while they are there.
    fn expect_to_be_seen(&self) -> Result<(), Failed> {
        let seen = self.leftovers();
        for kind in ["process", "namespace", "kernel thread"] {
            check(seen.iter().any(|left| left.starts_with(kind)), || {
                format!("no {kind} of a living lab is seen: {seen:?}")
            })?;
        }
        Ok(())
    }

    /// Waits until nothing is left, or returns the rest.
    fn expect_nothing_left(&self, before: &Surroundings) -> Result<(), String> {
        let deadline = Instant::now() + PATIENCE;
        // A thread that begins after this program's end belongs to another lab.
        let threads: Vec<u32> = napi_threads().collect();
        loop {
            let mut left = self.leftovers();
            left.extend(Surroundings::look()?.differences(before, &threads));
            if left.is_empty() {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(left.join(", "));
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Everything left of this actor, by its mark and by its own reports.
    fn leftovers(&self) -> Vec<String> {
        let mut left = Vec::new();
        for pid in processes() {
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            let mark = format!("{MARK}={}", self.mark).into_bytes();
            if environment
                .split(|byte| *byte == 0)
                .any(|variable| variable == mark)
            {
                left.push(format!("process {pid}"));
            }
        }
        let held = namespace_files();
        let namespaces = held
            .iter()
            .filter(|(inode, _)| self.namespaces.contains(inode));
        left.extend(namespaces.map(|(inode, path)| format!("namespace {inode} at {path}")));
        let threads = self.threads.iter().filter(|pid| is_napi_thread(**pid));
        left.extend(threads.map(|pid| format!("kernel thread {pid}")));
        left
    }
}

/// The things that a lab must leave as they were.
#[derive(Debug)]
struct Surroundings {
    links: Vec<String>,
    mounts: String,
    /// Kernel threads of labs whose network namespace no process holds.
    stray_threads: Vec<u32>,
}

impl Surroundings {
    fn look() -> Result<Self, String> {
        let links = link::list().map_err(|error| error.to_string())?;
        let mounts =
            fs::read_to_string("/proc/self/mountinfo").map_err(|error| error.to_string())?;
        // An ordinary user cannot see what the labs of other users hold.
        let sees_all = capability::in_initial_user_namespace();
        Ok(Self {
            links: links.into_iter().map(|link| link.name).collect(),
            mounts,
            stray_threads: if sees_all {
                stray_threads()
            } else {
                Vec::new()
            },
        })
    }

    /// Compares only the kernel threads of this list.
    fn differences(&self, before: &Self, threads: &[u32]) -> Vec<String> {
        let mut found = Vec::new();
        if self.links != before.links {
            found.push(format!("links {:?}, before {:?}", self.links, before.links));
        }
        if self.mounts != before.mounts {
            found.push(format!("mounts {}, before {}", self.mounts, before.mounts));
        }
        // Leftovers of another program do not count.
        let is_new =
            |thread: &&u32| threads.contains(thread) && !before.stray_threads.contains(thread);
        let stray: Vec<&u32> = self.stray_threads.iter().filter(is_new).collect();
        if !stray.is_empty() {
            found.push(format!("kernel threads {stray:?} of no namespace"));
        }
        found
    }
}

/// Threads that serve a lab's receiver and that no process could reach.
fn stray_threads() -> Vec<u32> {
    let mut owned = BTreeSet::new();
    let mut seen = BTreeSet::new();
    for (inode, path) in namespace_files() {
        if !seen.insert(inode) {
            continue;
        }
        // A process that ends meanwhile takes its files with it. The next look will show that.
        let Ok(namespace) = NetNamespace::open(&path) else {
            continue;
        };
        let threads = namespace.run(|| {
            let links = link::list().unwrap_or_default();
            let contexts = links
                .iter()
                .flat_map(|link| napi::list(link.index).unwrap_or_default());
            contexts
                .filter_map(|context| context.thread)
                .collect::<Vec<_>>()
        });
        owned.extend(threads.unwrap_or_default());
    }
    napi_threads().filter(|pid| !owned.contains(pid)).collect()
}

fn napi_threads() -> impl Iterator<Item = u32> {
    processes().into_iter().filter(|pid| is_napi_thread(*pid))
}

/// Every file that holds a network namespace for a process, with the number of the namespace.
fn namespace_files() -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for pid in processes() {
        let mut paths = vec![format!("/proc/{pid}/ns/net")];
        if let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) {
            paths.extend(
                files
                    .flatten()
                    .map(|file| file.path().display().to_string()),
            );
        }
        for path in paths {
            let target = fs::read_link(&path).unwrap_or_default();
            let inode = target.to_str().and_then(|target| {
                target
                    .strip_prefix("net:[")?
                    .strip_suffix(']')?
                    .parse()
                    .ok()
            });
            found.extend(inode.map(|inode| (inode, path)));
        }
    }
    found
}

fn is_napi_thread(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm"))
        .is_ok_and(|name| name.starts_with("napi/mpps-rx"))
}

fn processes() -> Vec<u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

fn numbers(list: Option<&str>) -> impl Iterator<Item = u32> {
    list.unwrap_or_default()
        .split(',')
        .filter_map(|number| number.parse().ok())
}
