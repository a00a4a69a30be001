//! Files that never end, that wait, or that another user has put in the way; and those that do not.

use super::expect_refusal;
use crate::common::{Ended, Running, as_nobody, copy_for_all, directory, mpps, run};
use std::fs::{self, File, Permissions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;
use tempfile::TempDir;

/// The user whose links are in the way.
const OTHER: u32 = 65_534;
const RESULT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/lab.json");
/// A part of its report.
const FACT: &str = "GSO sender to GRO receiver";

fn named_pipe(path: &Path) {
    let made = Command::new("mkfifo").arg(path).status();
    assert!(made.is_ok_and(|status| status.success()), "{path:?}");
}

/// Runs a line of the shell in a directory. `$MPPS` is the command, and `$RESULT` a result. A
/// program that fills its memory fails before the machine does.
fn shell(directory: &Path, line: &str) -> Ended {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v 4000000; {line}")]);
    command.env("MPPS", env!("CARGO_BIN_EXE_mpps"));
    command.env("RESULT", RESULT).env_remove("COLUMNS");
    run(command.current_dir(directory))
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).expect("it can be read")
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
}

/// The names in a directory.
fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("it is still there");
    let name = |entry: fs::DirEntry| entry.file_name().into_string().expect("a plain name");
    let mut names: Vec<String> = entries
        .map(|entry| name(entry.expect("it can be listed")))
        .collect();
    names.sort();
    names
}

pub(crate) fn inputs_that_may_never_end_are_refused() {
    let directory = directory();
    let directory = directory.path();
    named_pipe(&directory.join("pipe"));
    symlink("pipe", directory.join("link")).expect("it can be made");
    for (file, kind) in [
        ("/dev/zero", "a device"),
        ("pipe", "a named pipe"),
        ("link", "a named pipe"),
    ] {
        for arguments in [
            format!("report {file}"),
            format!("compare $RESULT {file}"),
            format!("ledger {file} {file}"),
            format!("steer --queues 4 --file {file}"),
            format!("steer --queues 4 --pcap {file}"),
        ] {
            let ended = shell(directory, &format!("$MPPS {arguments}"));
            expect_refusal(&ended, &[file, kind]);
            assert!(ended.out.is_empty(), "{ended:#?}");
        }
    }
    let ended = shell(directory, "$MPPS doctor --netns ./pipe");
    expect_refusal(&ended, &["--netns ./pipe", "no such namespace"]);
    let ended = shell(directory, "$MPPS report /dev/stdin < /dev/zero");
    expect_refusal(&ended, &["/dev/stdin", "256 MiB"]);
}

pub(crate) fn what_the_shell_has_opened_is_read() {
    let directory = directory();
    let directory = directory.path();
    named_pipe(&directory.join("pipe"));
    for line in [
        "cat $RESULT | $MPPS report /dev/stdin",
        "cat $RESULT | $MPPS report /dev/fd/0",
        "cat $RESULT | $MPPS report -",
        "$MPPS report /dev/stdin < $RESULT",
        "$MPPS report /proc/self/fd/3 3< $RESULT",
        "cat $RESULT > pipe & $MPPS report /dev/stdin < pipe",
        "cat $RESULT > pipe & $MPPS report /dev/fd/3 3< pipe",
    ] {
        let ended = shell(directory, line).fine();
        assert!(ended.out.contains(FACT), "{line}: {ended:#?}");
    }
    // A slow writer, read through a descriptor that returns EAGAIN.
    let (reader, mut writer) = UnixStream::pair().expect("a pair can be had");
    reader.set_nonblocking(true).expect("it is ours");
    let mut slow = mpps(&["report", "-"]);
    slow.stdin(OwnedFd::from(reader)).stdout(Stdio::piped());
    let slow = slow.spawn().expect("it starts");
    thread::sleep(Duration::from_millis(200));
    writer
        .write_all(text(Path::new(RESULT)).as_bytes())
        .expect("it is read");
    drop(writer);
    let ended = slow.wait_with_output().expect("it ends");
    assert!(
        String::from_utf8_lossy(&ended.stdout).contains(FACT),
        "{ended:?}"
    );
    let flow = "echo 10.0.0.1:1-10.0.0.9:9 | $MPPS steer --queues 2 --file";
    for file in ["-", "/dev/stdin"] {
        let ended = shell(directory, &format!("{flow} {file}")).fine();
        assert!(ended.out.contains("10.0.0.1:1-10.0.0.9:9"), "{ended:#?}");
    }
}

pub(crate) fn a_pipe_without_a_reader_is_refused_before_any_traffic() {
    let directory = directory();
    let directory = directory.path();
    for (file, line) in [
        ("lab.json", "lab --quick --only 1"),
        ("lab.html", "lab --quick --only 1"),
        ("bench.json", "bench --quick"),
        ("page", "doctor --seconds 1 --html page"),
        ("page", "load http://127.0.0.1:9/ --html page"),
        ("page", "report $RESULT --html page"),
        ("page", "report $RESULT --svg page"),
    ] {
        let path = directory.join(file);
        named_pipe(&path);
        let ended = shell(directory, &format!("$MPPS {line}"));
        let option = if line.contains("--svg") {
            "--svg"
        } else {
            "--html"
        };
        let option = if file.ends_with("json") {
            "--json"
        } else {
            option
        };
        expect_refusal(&ended, &[file, "no program reads", option]);
        assert!(ended.out.is_empty(), "{ended:#?}");
        assert_eq!(names(directory), [file], "{line}");
        fs::remove_file(path).expect("it is there");
    }
}

pub(crate) fn a_pipe_and_a_redirection_take_a_page() {
    let directory = directory();
    let directory = directory.path();
    let page = |line: &str| shell(directory, &format!("$MPPS report $RESULT --html {line}")).fine();
    page("page.html");
    let expected = text(&directory.join("page.html"));
    assert!(expected.contains(FACT) && expected.len() > 65_536);
    assert_eq!(page("/dev/stdout").out, expected);
    page("/dev/stdout > redirected");
    assert_eq!(text(&directory.join("redirected")), expected);
    page("/dev/fd/3 3> third");
    assert_eq!(text(&directory.join("third")), expected);
    assert_eq!(page("/dev/fd/3 3>&1 | cat").out, expected);
    let pipe = directory.join("pipe");
    named_pipe(&pipe);
    // Opening it for both does not wait for another program (fifo(7)).
    let both = File::options().read(true).write(true).open(&pipe);
    let mut reader = File::open(&pipe).expect("it has a writer");
    let reader = thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).map(|_| text)
    });
    page("pipe");
    drop(both);
    let read = reader.join().expect("no panic").expect("it is text");
    assert_eq!(read, expected);
}

/// The page is written at the end only, so that its place can be taken for certain.
fn a_result_is_kept_if_its_place_is_taken_during_the_run() {
    let directory = directory();
    let directory = directory.path();
    let mut lab = mpps(&["lab", "--quick", "--only", "1"]);
    let mut running = Running::start(lab.current_dir(directory));
    running.line("lost at");
    named_pipe(&directory.join("lab.html"));
    let ended = running.end();
    expect_refusal(&ended, &["could not write lab.html", "no program reads"]);
    let (_, aside) = ended.err.split_once("; the result is in ").expect("a path");
    assert!(text(Path::new(aside.trim())).contains("mpps lab"));
    assert_eq!(names(directory).len(), 3, "{:?}", names(directory));
    // The page does not depend on the data. A failed write to a device keeps no copy of the data.
    fs::remove_file(directory.join("lab.html")).expect("it is there");
    let ended = shell(directory, "$MPPS lab --quick --only 1 --json=/dev/full");
    expect_refusal(&ended, &["cannot write /dev/full"]);
    assert!(!ended.err.contains("the result is in"), "{ended:#?}");
    assert!(text(&directory.join("lab.html")).contains("mpps lab"));
}

/// Root's file, and a directory of another user with links to it.
struct Trap {
    own: TempDir,
    other: TempDir,
}

impl Trap {
    fn set(links: &[&str], mode: u32) -> Self {
        let (own, other) = (directory(), directory());
        let precious = own.path().join("precious");
        fs::write(&precious, "precious").expect("it can be written");
        set_mode(&precious, 0o600);
        for (link, target) in links.iter().zip([&precious, own.path()]) {
            let link = other.path().join(link);
            symlink(target, &link).expect("it can be made");
            lchown(link, Some(OTHER), Some(OTHER)).expect("root may");
        }
        chown(other.path(), Some(OTHER), Some(OTHER)).expect("root may");
        set_mode(other.path(), mode);
        Self { own, other }
    }

    fn precious(&self) -> PathBuf {
        self.own.path().join("precious")
    }

    /// Nothing has come, gone or changed.
    fn is_untouched(&self, links: &[&str]) {
        let precious = self.precious();
        let mode = fs::metadata(&precious).expect("it is there").mode();
        assert_eq!(
            (text(&precious).as_str(), mode & 0o777),
            ("precious", 0o600)
        );
        assert_eq!(names(self.own.path()), ["precious"]);
        assert_eq!(names(self.other.path()), links);
    }
}

pub(crate) fn a_link_of_another_user_is_not_followed() {
    // The second link leads to the directory.
    for (links, line, option) in [
        (&["lab.json"][..], "lab --quick --only 1", "--json"),
        (&["lab.html"], "lab --quick --only 1", "--html"),
        (
            &["a", "b"],
            "lab --quick --only 1 --json=b/precious",
            "--json",
        ),
        (&["a", "b"], "bench --quick --html b/../b/new", "--html"),
        (&["page"], "doctor --seconds 1 --html page", "--html"),
        (&["page"], "load http://127.0.0.1:9/ --html page", "--html"),
        (&["page"], "report $RESULT --html page", "--html"),
        (&["page"], "report $RESULT --svg ./page", "--svg"),
        (&["mpps.1"], "generate --date 2026-01-01 .", "FOLDER"),
        (&["_mpps"], "generate --date 2026-01-01 .", "FOLDER"),
    ] {
        for mode in [0o755, 0o1777] {
            let trap = Trap::set(links, mode);
            let ended = shell(trap.other.path(), &format!("$MPPS {line}"));
            let link = links.last().expect("there is one");
            let owner = format!("{link} is a symbolic link of user {OTHER}");
            expect_refusal(&ended, &["cannot write", &owner, option]);
            assert!(ended.out.is_empty(), "{ended:#?}");
            trap.is_untouched(links);
        }
    }
    a_user_namespace_makes_no_link_trusted();
    // No directory is made beyond a link.
    let trap = Trap::set(&["a", "b"], 0o755);
    let line = "$MPPS generate --date 2026-01-01 b/new/man";
    let ended = shell(trap.other.path(), line);
    let owner = format!("b is a symbolic link of user {OTHER}");
    expect_refusal(&ended, &["cannot write to b/new/man", &owner]);
    trap.is_untouched(&["a", "b"]);
}

/// Root in a user namespace sees all other users as one. An ordinary user runs the command in
/// `work`. `foreign` has another user's links, and `shared` those of root.
fn a_user_namespace_makes_no_link_trusted() {
    let [work, foreign, shared] = [(); 3].map(|()| directory());
    let own = work.path().join("own");
    let precious = own.join("precious");
    fs::create_dir(&own).expect("it can be made");
    fs::write(&precious, "precious").expect("it can be written");
    fs::copy(RESULT, work.path().join("result")).expect("it can be read");
    for path in [&own, &precious] {
        chown(path, Some(OTHER), Some(OTHER)).expect("root may");
    }
    for (link, target) in [("page", &precious), ("way", &own)] {
        for trap in [&foreign, &shared] {
            symlink(target, trap.path().join(link)).expect("it can be made");
        }
        lchown(foreign.path().join(link), Some(1002), None).expect("root may");
    }
    chown(foreign.path(), Some(1002), None).expect("root may");
    for directory in [&foreign, &shared] {
        set_mode(directory.path(), 0o755);
    }
    let binary = copy_for_all(work.path());
    let as_nobody = |line: &str, directory: &TempDir, name: &str| {
        let page = directory.path().join(name);
        let page = page.to_str().expect("a plain name");
        let arguments: Vec<&str> = line.split(' ').chain(["--html", page]).collect();
        as_nobody(work.path(), &arguments)
    };
    let in_namespace = |line: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
        command.args(["unshare", "-Ur"]).arg(&binary);
        run(command.args(line.split(' ')).current_dir(work.path()))
    };
    for name in ["page", "way/precious"] {
        for line in [
            "lab --quick --only 1",
            "bench --quick --only recvmmsg",
            "ndr recvmmsg --quick",
            "placement --quick",
        ] {
            let ended = as_nobody(line, &foreign, name);
            expect_refusal(&ended, &["a symbolic link of user 1002", "--html"]);
        }
        let path = foreign.path().join(name);
        let ended = in_namespace(&format!("report result --html {}", path.display()));
        expect_refusal(&ended, &["a symbolic link of user 65534", "--html"]);
        assert_eq!(text(&precious), "precious");
    }
    assert_eq!(names(work.path()), ["mpps", "own", "result"]);
    assert!(
        in_namespace("report result --html /dev/stdout")
            .fine()
            .out
            .contains(FACT)
    );
    // Through root's link, as it was found before there was a namespace.
    let line = "lab --quick --only 1 --json=lab.json";
    as_nobody(line, &shared, "way/precious").fine();
    assert!(text(&precious).contains("mpps lab"));
    assert_eq!(names(&own), ["precious"]);
}

pub(crate) fn a_link_of_root_is_followed_and_files_keep_their_owners() {
    a_result_is_kept_if_its_place_is_taken_during_the_run();
    let trap = Trap::set(&["page"], 0o755);
    let directory = trap.other.path();
    lchown(directory.join("page"), Some(0), Some(0)).expect("root may");
    let write = "$MPPS report $RESULT --html page";
    let refused = shell(directory, write);
    let owner = format!("in a directory of user {OTHER}");
    expect_refusal(&refused, &["page is a symbolic link", &owner, "--html"]);
    trap.is_untouched(&["page"]);
    for mode in [0o755, 0o1777] {
        chown(directory, Some(0), Some(0)).expect("root may");
        set_mode(directory, mode);
        fs::write(trap.precious(), "precious").expect("it can be written");
        shell(directory, write).fine();
        assert!(directory.join("page").is_symlink());
        assert!(text(&trap.precious()).contains(FACT));
        let mode = fs::metadata(trap.precious()).expect("it is there").mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    chown(directory, Some(OTHER), Some(OTHER)).expect("root may");
    set_mode(directory, 0o755);
    let file = directory.join("file");
    fs::write(&file, "earlier").expect("it can be written");
    chown(&file, Some(OTHER), Some(OTHER)).expect("root may");
    set_mode(&file, 0o640);
    shell(directory, "$MPPS report $RESULT --html file").fine();
    let facts = fs::metadata(&file).expect("it is there");
    let facts = (facts.uid(), facts.gid(), facts.mode() & 0o777);
    assert_eq!(facts, (OTHER, OTHER, 0o640));
    assert!(text(&file).contains(FACT));
    assert_eq!(names(directory), ["file", "page"]);
    // A new file is root's.
    let mut new = mpps(&["report", RESULT, "--html", "new"]);
    run(new.current_dir(directory)).fine();
    let owner = fs::metadata(directory.join("new")).map(|new| new.uid());
    assert_eq!(owner.expect("it is there"), 0);
}

/// A result that finds no room leaves nothing. `serve` opens its file before it gives up root. The directory of
/// `ro/a`, which is `old`, takes no new file. A ramfs reserves no room, and has no end but a limit.
pub(crate) fn a_full_disk_takes_no_result() {
    let (full, endless) = ("mount -t tmpfs -o size=64k", "ulimit -f 8; mount -t ramfs");
    let no_room = "No space left";
    for (disk, line, file, why, kept) in [
        (full, "backends --json=new", "new", no_room, "earlier\n"),
        (
            full,
            "serve 127.0.0.1:0 --json=new",
            "new",
            no_room,
            "earlier\n",
        ),
        (
            full,
            "serve 127.0.0.1:0 --json=old",
            "old",
            no_room,
            "earlier\n",
        ),
        (
            full,
            "report $RESULT --html old",
            "old",
            no_room,
            "earlier\n",
        ),
        (
            full,
            "report $RESULT --html ro/a",
            "ro/a",
            no_room,
            "earlier\n",
        ),
        (
            full,
            "top --interval 100ms --json=ro/a >/dev/null",
            "ro/a",
            no_room,
            "{",
        ),
        (
            endless,
            "report $RESULT --html ro/a",
            "ro/a",
            "the file is empty now",
            "",
        ),
    ] {
        let directory = directory();
        // A host of its own has a first object that has room: that of a busy one is longer than a page.
        let host = if kept == "{" { "--net" } else { "" };
        let script = format!(
            "unshare --mount {host} sh -c '{disk} none . && cd \"$PWD\" && echo earlier >old && mkdir ro &&
            mount -t tmpfs none ro && >ro/a && mount --bind old ro/a && mount -o remount,ro none ro &&
            ! cat /dev/zero 2>/dev/null >fill && timeout 60 $MPPS {line}; status=$?; cat old; ls -A; \
            exit $status'"
        );
        let ended = shell(directory.path(), &script);
        expect_refusal(&ended, &[&format!("cannot write {file}"), why]);
        let left = ended.out.strip_suffix("fill\nold\nro\n");
        let left = left.unwrap_or_else(|| panic!("{line}: {ended:#?}"));
        let is_whole = |line: &str| serde_json::from_str::<serde_json::Value>(line).is_ok();
        let is_kept = match kept {
            "{" => left.ends_with("}\n") && left.lines().all(is_whole),
            kept => left == kept,
        };
        assert!(is_kept, "{line}: {ended:#?}");
    }
}

/// `/dev/tty` where there is no terminal.
pub(crate) fn a_device_that_stands_for_nothing_is_no_pipe() {
    let directory = tempfile::tempdir().expect("a directory can be had");
    let line = "exec setsid -w $MPPS report $RESULT --html /dev/tty";
    let ended = shell(directory.path(), line);
    expect_refusal(&ended, &["/dev/tty", "No such device", "--html"]);
    assert!(!ended.err.contains("pipe"), "{ended:#?}");
}
