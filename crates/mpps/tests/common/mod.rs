//! The common part of the command's tests: running it with a time limit, and requirements on the
//! machine.
#![allow(dead_code, reason = "each test program uses some of it")]

use mpps::measure::envelope::{Envelope, EnvelopeBody};
use mpps_lab::{Delivery, LabConfig, LabHost};
use mpps_os::capability;
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::link;
use serde::Serialize;
use serde_json::Value;
use std::fs;
use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;
use tempfile::TempDir;

/// How long a command may take to print the expected text, or to end. Only a failure takes that
/// long.
const PATIENCE: Duration = Duration::from_secs(300);
/// The time between two looks.
const LOOK: Duration = Duration::from_millis(5);

/// Checks that an interrupted command keeps its finished rounds. It interrupts later and later
/// until `kept` returns true, because the first round was over.
pub(crate) fn interrupted(command: &mut Command, kept: impl Fn() -> bool) {
    for seconds in [2, 4, 8, 16] {
        let running = Running::start(command);
        thread::sleep(Duration::from_secs(seconds));
        let ended = running.interrupt();
        assert_eq!(ended.code(), 130, "{ended:#?}");
        if kept() {
            return;
        }
    }
    panic!("nothing is kept: {command:?}");
}

/// Sends a signal by the shell's own `kill`, which is everywhere.
pub(crate) fn kill(signal: &str, process: &str) {
    let kill = format!("kill -{signal} {process}");
    let sent = Command::new("sh").args(["-c", &kill]).status();
    assert!(sent.is_ok_and(|status| status.success()), "{kill}");
}

/// A lab whose link loses no paced traffic. The sender serves the ring itself and so cannot overrun
/// it, however busy the machine is.
pub(crate) fn unhurried() -> LabConfig {
    LabConfig {
        delivery: Delivery::SoftInterrupt,
        ..LabConfig::default()
    }
}

/// Returns why the command cannot make a lab, if so. This process does not change its user: the
/// command makes itself able.
pub(crate) fn lab() -> Result<(), String> {
    let probe = run(&mut mpps(&["lab", "--", "true"]));
    match probe.status.code() {
        Some(0) => Ok(()),
        _ => Err(probe.err.trim().to_owned()),
    }
}

/// The words of a command line. None has a blank in it.
pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// The command itself with these arguments.
pub(crate) fn mpps(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mpps"));
    command.args(arguments).env_remove("COLUMNS");
    command
}

/// The text of a result file. The structs write it back as they read it: no field is lost or added.
pub(crate) fn valid<B: EnvelopeBody + Serialize>(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("it was written");
    let value: Value = serde_json::from_str(&text).expect("it is JSON");
    let read: Envelope<B> = Envelope::parse(&text).expect("it reads what it wrote");
    assert_eq!(serde_json::to_value(&read).expect("it is JSON"), value);
    text
}

/// A copy of the command in a directory where any user may write.
pub(crate) fn copy_for_all(directory: &Path) -> PathBuf {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).expect("it is ours");
    let binary = directory.join("mpps");
    if !binary.exists() {
        fs::copy(env!("CARGO_BIN_EXE_mpps"), &binary).expect("it can be copied");
    }
    binary
}

/// Runs such a copy as an ordinary user, in that directory.
pub(crate) fn as_nobody(directory: &Path, arguments: &[&str]) -> Ended {
    assert!(capability::effective(capability::CAP_SYS_ADMIN));
    let binary = copy_for_all(directory);
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command.arg(&binary).args(arguments).env_remove("COLUMNS");
    run(command.current_dir(directory))
}

/// A network namespace with nothing but its loopback interface, which is up.
pub(crate) fn quiet_namespace() -> NetNamespace {
    let namespace = NetNamespace::new().expect("the probe made one");
    namespace
        .within(|| link::index("lo").and_then(link::set_up))
        .expect("it has a loopback interface");
    namespace
}

/// The numbers of the processes with this marker in their environment.
pub(crate) fn marked(marker: &str) -> Vec<String> {
    let all = fs::read_dir("/proc").expect("/proc is mounted").flatten();
    let marked = all.filter(|entry| {
        let environment = fs::read(entry.path().join("environ")).unwrap_or_default();
        let mut words = environment.split(|byte| *byte == 0);
        words.any(|word| word == marker.as_bytes())
    });
    marked
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect()
}

/// A new directory, removed at its end.
pub(crate) fn directory() -> TempDir {
    tempfile::tempdir().expect("a directory can be had")
}

/// A host of a trial.
pub(crate) trait Entered {
    /// Does this on the host.
    fn within<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R;
}

impl Entered for NetNamespace {
    #[track_caller]
    fn within<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.run(work).expect("it can be entered")
    }
}

impl Entered for LabHost {
    #[track_caller]
    fn within<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        self.namespace().within(work)
    }
}

/// The exit status of a command, and its output.
#[derive(Debug, Clone)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    /// The exit status. Panics if a signal ended the command.
    pub(crate) fn code(&self) -> i32 {
        let signal = self.status.signal();
        self.status
            .code()
            .unwrap_or_else(|| panic!("ended by signal {signal:?}: {self:#?}"))
    }

    /// Fails unless the status was 0; answers itself.
    pub(crate) fn fine(self) -> Self {
        assert_eq!(self.code(), 0, "{self:#?}");
        self
    }

    /// Fails unless the status was 0 or 1, as of a fix that leaves some losses; answers itself.
    pub(crate) fn without_error(self) -> Self {
        assert!(self.code() <= 1, "{self:#?}");
        self
    }

    /// Fails unless the status was 2, and the only line on standard error has each of these in it.
    #[track_caller]
    pub(crate) fn refused(&self, parts: &[&str]) {
        self.fails(parts);
        assert_eq!(self.err.lines().count(), 1, "{self:#?}");
    }

    /// Fails unless the status was 2, and standard error has each of these in it.
    #[track_caller]
    pub(crate) fn fails(&self, parts: &[&str]) {
        assert_eq!(self.code(), 2, "{self:#?}");
        self.warns(parts);
    }

    /// Fails unless standard error has each of these in it.
    #[track_caller]
    pub(crate) fn warns(&self, parts: &[&str]) {
        self.has(&self.err, parts);
    }

    /// Fails unless standard output has each of these in it.
    #[track_caller]
    pub(crate) fn shows(&self, parts: &[&str]) {
        self.has(&self.out, parts);
    }

    #[track_caller]
    fn has(&self, text: &str, parts: &[&str]) {
        for part in parts {
            assert!(text.contains(part), "`{part}` is missing: {self:#?}");
        }
    }

    /// The last line of standard output as JSON.
    pub(crate) fn last_json(&self) -> Value {
        let line = self.out.lines().last().unwrap_or_default();
        serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

/// A pipe that takes nothing more, as a terminal after Ctrl-S, until its reader reads.
pub(crate) fn full_pipe() -> (PipeReader, PipeWriter) {
    let (reader, mut writer) = std::io::pipe().expect("a pipe can be had");
    // The capacity of a pipe (pipe(7)).
    writer.write_all(&[b' '; 1 << 16]).expect("it has room");
    (reader, writer)
}

/// Runs a command to its end.
pub(crate) fn run(command: &mut Command) -> Ended {
    Running::start(command).end()
}

/// A command under way, killed if it is dropped.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    written: [Arc<Mutex<String>>; 2],
    readers: Vec<JoinHandle<()>>,
}

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let written: [Arc<Mutex<String>>; 2] = Default::default();
        let streams: [Option<Box<dyn Read + Send>>; 2] = [
            child.stdout.take().map(|stream| Box::new(stream) as _),
            child.stderr.take().map(|stream| Box::new(stream) as _),
        ];
        let mut readers = Vec::new();
        for (stream, text) in streams.into_iter().flatten().zip(&written) {
            let text = Arc::clone(text);
            readers.push(thread::spawn(move || collect(stream, &text)));
        }
        Self {
            child,
            written,
            readers,
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line, on either stream, that has `part` in it.
    pub(crate) fn line(&mut self, part: &str) -> String {
        for _ in 0..PATIENCE.as_millis() / LOOK.as_millis() {
            let ended = self.child.try_wait().expect("a child can be asked");
            if ended.is_some() {
                // Its last output may still be in the pipes.
                self.readers
                    .drain(..)
                    .for_each(|reader| reader.join().expect("no panic"));
            }
            let texts = self.texts();
            let found = texts
                .iter()
                .flat_map(|text| text.lines())
                .find(|line| line.contains(part));
            if let Some(line) = found {
                return line.to_owned();
            }
            assert!(ended.is_none(), "ended without `{part}`: {texts:#?}");
            thread::sleep(LOOK);
        }
        panic!("never said `{part}`: {:#?}", self.texts());
    }

    /// Whether there is a line, on either stream, that has `part` in it.
    pub(crate) fn has_said(&self, part: &str) -> bool {
        self.texts().iter().any(|text| text.contains(part))
    }

    /// The address that `mpps recv` says it listens at, as soon as it does.
    pub(crate) fn address(&mut self) -> String {
        let line = self.line("receiving at ");
        let rest = line.trim_start_matches("receiving at ");
        rest.split(' ').next().expect("an address").to_owned()
    }

    /// Sends a signal: `INT`, `TERM`, `KILL`.
    pub(crate) fn signal(&self, name: &str) {
        kill(name, &self.child.id().to_string());
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Ended {
        let (mut written, mut silent) = (0, Duration::ZERO);
        for _ in 0..3 * PATIENCE.as_millis() / LOOK.as_millis() {
            if let Some(status) = self.child.try_wait().expect("a child can be asked") {
                self.readers
                    .drain(..)
                    .for_each(|reader| reader.join().expect("no panic"));
                let [out, err] = self.texts();
                return Ended { status, out, err };
            }
            thread::sleep(LOOK);
            silent += LOOK;
            let now = self.texts().iter().map(String::len).sum();
            if now != written {
                (written, silent) = (now, Duration::ZERO);
            }
            if silent > PATIENCE {
                break;
            }
        }
        panic!("it does not end: {:#?}", self.texts());
    }

    /// Interrupts it as Ctrl-C does, and waits for its end.
    pub(crate) fn interrupt(self) -> Ended {
        self.signal("INT");
        self.end()
    }

    fn texts(&self) -> [String; 2] {
        let text = |at: usize| {
            let text = self.written[at].lock();
            text.unwrap_or_else(PoisonError::into_inner).clone()
        };
        [text(0), text(1)]
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail if it has ended, which is fine.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn collect(stream: impl Read, text: &Mutex<String>) {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = Vec::new();
        match stream.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => text
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .push_str(&String::from_utf8_lossy(&line)),
        }
    }
}
