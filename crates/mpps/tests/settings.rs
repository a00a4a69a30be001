//! `mpps backends` and `mpps undo`: the features of an interface, and leftovers of a killed run.

use crate::common::{Ended, Entered, mpps, run};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::link;
use mpps_trial::{Need, Trial, trials};
use serde_json::{Value, json};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits:
            every_technique_has_its_reason,
            an_interface_that_is_not_there_is_told_from_those_that_are,
            a_table_fits_its_terminal,
            // Of `mpps undo`.
            what_a_dead_run_left_is_undone_once,
            what_cannot_be_undone_is_kept,
            a_run_that_lives_is_left_alone,
            a_foreign_file_is_an_error,
            a_run_that_changed_nothing_is_told_and_forgotten,
            a_directory_that_cannot_be_listed_is_an_error,
            what_mpps_did_not_write_is_refused_beside_what_it_did,
            a_closed_pipe_does_not_stop_it;
        waits(Need::Namespace):
            the_veth_of_a_namespace_is_judged,
            another_namespace_is_entered_if_asked,
            a_setting_of_the_machine_is_looked_for_where_it_was;
        waits(Need::Root, Need::Program("ip", "iproute2")):
            an_interface_that_was_moved_is_not_taken_for_gone;
        waits(Need::Root):
            a_journal_that_a_user_planted_is_not_obeyed,
            a_live_run_is_not_taken_for_dead_by_another_clock,
            what_is_tried_says_what_was_granted;
    ]
}

fn techniques(shown: &Ended) -> Vec<Value> {
    let whole: Value = serde_json::from_str(&shown.out).expect("it is JSON");
    assert_eq!(whole["schema"], "mpps.backends.v1");
    let rows = whole["techniques"].as_array().expect("a list");
    rows.clone()
}

fn every_technique_has_its_reason() {
    let shown = run(&mut mpps(&["backends", "lo", "--json"])).fine();
    let rows = techniques(&shown);
    assert_eq!(rows.len(), mpps_host::RECEIVE_PATHS.len());
    for row in &rows {
        let why = row["why"].as_str().expect("a text");
        assert!(!why.is_empty(), "{row}");
        assert!(["yes", "no", "unknown"].contains(&row["usable"].as_str().unwrap_or_default()));
    }
    let whole: Value = serde_json::from_str(&shown.out).expect("it is JSON");
    assert_eq!(whole["facts"]["nic"]["name"], "lo");
    let shown = run(&mut mpps(&["backends", "lo"])).fine().out;
    let told = shown.matches("not shown by the driver").count();
    assert_eq!(
        told, 6,
        "four kinds of traffic, the table and the key: {shown}"
    );
}

fn an_interface_that_is_not_there_is_told_from_those_that_are() {
    let ended = run(&mut mpps(&["backends", "mpps-nowhere"]));
    ended.refused(&["mpps-nowhere", "this host has", "lo"]);
}

fn a_table_fits_its_terminal() {
    for width in [40, 80, 100, 160] {
        for arguments in [&["backends"][..], &["backends", "lo"]] {
            let shown = run(mpps(arguments).env("COLUMNS", width.to_string())).fine();
            let widest = shown.out.lines().map(|line| line.chars().count()).max();
            // Without an interface the columns before the last one need their room.
            let most = if arguments.len() == 1 {
                width.max(70)
            } else {
                width
            };
            assert!(widest <= Some(most), "{width}: {}", shown.out);
        }
    }
}

fn the_veth_of_a_namespace_is_judged() {
    use mpps_os::netlink::link;
    use std::os::fd::AsFd;
    let (near, far) = [0; 2]
        .map(|_| NetNamespace::new().expect("the probe made one"))
        .into();
    near.within(|| link::create_veth("near", 2, "far", 2, far.as_fd()))
        .expect("a pair is made");
    let shown = near
        .within(|| run(&mut mpps(&["backends", "near", "--json"])))
        .fine();
    let rows = techniques(&shown);
    let row = |name: &str| {
        rows.iter()
            .find(|row| row["technique"] == name)
            .expect("a row")
    };
    // The pair is not up yet.
    assert_eq!(row("recvmmsg")["usable"], "no");
    assert_eq!(row("recvmmsg")["remedy"], "ip link set dev near up");
    let why = row("bifurcated driver")["why"].as_str().expect("a text");
    assert!(why.contains("veth") && why.contains("[fixed]"), "{why}");
}

fn what_is_tried_says_what_was_granted() {
    let lab = mpps_lab::Lab::new(&mpps_lab::LabConfig::default()).expect("root has a lab");
    let host = lab.receiver();
    let judge = |more: &[&str]| {
        let arguments = [&["backends", host.interface(), "--json"], more].concat();
        host.within(|| run(&mut mpps(&arguments))).fine()
    };
    let rows = techniques(&judge(&[]));
    assert!(rows.iter().all(|row| row["tried"].is_null()), "unasked");
    // Twice: nothing that the first left behind is in the way of the second.
    for _ in 0..2 {
        let shown = judge(&["--try"]);
        assert!(shown.err.contains("its link may go down"), "{shown:#?}");
        let rows = techniques(&shown);
        let tried: Vec<&Value> = rows.iter().filter(|row| row["tried"] == true).collect();
        let expected = [
            ("AF_XDP generic", "yes", "generic XDP, copy"),
            ("AF_XDP native", "yes", "native XDP, copy"),
            ("AF_XDP zero-copy", "no", "--copy zero"),
        ];
        assert_eq!(tried.len(), expected.len(), "{tried:?}");
        for (row, (name, usable, why)) in tried.into_iter().zip(expected) {
            assert_eq!(
                (&row["technique"], &row["usable"]),
                (&json!(name), &json!(usable))
            );
            assert!(
                row["why"].as_str().is_some_and(|said| said.contains(why)),
                "{row}"
            );
        }
    }
    let ended = run(&mut mpps(&["backends", "--try"]));
    assert_eq!(ended.code(), 2, "{ended:#?}");
}

/// A journal as a run on interface 99999 would leave it, with one step.
fn journal(namespace: u32, index: u32, owner: Value) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let own = directory.path().join("mpps");
    fs::create_dir(&own).expect("made");
    let edit = json!({
        "setting": {"kind": "rss_table"}, "old": [0, 1], "new": [0, 0], "became": null,
    });
    let change = json!({
        "name": "carve-out", "object": "eth9", "interface_index": index, "namespace": namespace,
        "heading": "eth9, queue 1", "edits": [edit],
    });
    let record = json!({"schema": 2, "owner": owner, "change": change, "begun": 1});
    let path = own.join("carve-out-1-1.json");
    fs::write(&path, record.to_string()).expect("written");
    (directory, path)
}

/// A dead process, or a living one: this process.
fn owner(alive: bool) -> Value {
    let stat = fs::read_to_string("/proc/self/stat").expect("/proc is here");
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split(' ').collect();
    let start: u64 = fields[20].parse().expect("a number");
    let link = fs::read_link("/proc/self/ns/pid").expect("a link");
    let link = link.to_string_lossy().into_owned();
    let inode: u64 = link
        .trim_start_matches("pid:[")
        .trim_end_matches(']')
        .parse()
        .expect("a number");
    let start = if alive { start } else { start + 1 };
    json!({"pid": std::process::id(), "start_time_ticks": start, "pid_namespace": inode})
}

fn here() -> u32 {
    NetNamespace::current().expect("/proc is here").inode()
}

/// The command, with the folder `mpps` of a directory as this user's journals. Root's journals are
/// in `/run`, which is private to this command.
fn with_journals(command: &Command, directory: &Path) -> Command {
    let is_root = fs::metadata("/run").is_ok_and(|run| run.uid() == 0) && mpps_os::user::is_root();
    let mut whole = match is_root {
        true => Command::new("unshare"),
        false => Command::new("sh"),
    };
    if is_root {
        whole.args(["--mount", "sh"]);
    }
    let bind = ["exec \"$@\"", "mount --bind \"$0\" /run && exec \"$@\""][usize::from(is_root)];
    whole.args(["-c", bind]).arg(directory);
    whole.arg(command.get_program()).args(command.get_args());
    whole
        .env("XDG_RUNTIME_DIR", directory)
        .env_remove("COLUMNS");
    whole
}

fn undo(directory: &TempDir, arguments: &[&str]) -> Ended {
    let mut words = vec!["undo"];
    words.extend(arguments);
    run(&mut with_journals(&mpps(&words), directory.path()))
}

fn what_a_dead_run_left_is_undone_once() {
    // The interface has gone, and its settings with it.
    let (directory, path) = journal(here(), 99_999, owner(false));
    let listed = undo(&directory, &["--list"]).fine();
    assert!(listed.out.contains("eth9, queue 1, process"), "{listed:#?}");
    assert!(listed.out.contains("is dead"), "{listed:#?}");
    assert!(path.exists());
    let undone = undo(&directory, &[]).fine();
    undone.shows(&["nothing to undo: queue 1"]);
    assert!(!path.exists());
    let again = undo(&directory, &[]).fine();
    assert!(again.out.contains("nothing to undo"), "{again:#?}");
}

/// In a time namespace all processes seem to have started at another time. This is an older
/// journal, which does not name its time namespace.
fn a_live_run_is_not_taken_for_dead_by_another_clock() {
    let (directory, path) = journal(here(), 99_999, owner(true));
    let mut elsewhere = Command::new("unshare");
    elsewhere.args(["--time", "--boottime", "1000", "--fork"]);
    elsewhere.arg(mpps(&[]).get_program()).arg("undo");
    let ended = run(&mut with_journals(&elsewhere, directory.path()));
    ended.fails(&["time namespace"]);
    let ended = undo(&directory, &[]).fine();
    assert!(ended.out.contains("is alive"), "{ended:#?}");
    assert!(path.exists());
}

fn what_cannot_be_undone_is_kept() {
    // The loopback interface has no table.
    let (directory, path) = journal(here(), 1, owner(false));
    let ended = undo(&directory, &[]);
    assert_eq!(ended.code(), 2, "{ended:#?}");
    assert!(ended.out.contains("ETHTOOL_GRSSH lo"), "{ended:#?}");
    assert!(ended.err.contains("carve-out-1-1.json"), "{ended:#?}");
    assert!(path.exists());
}

fn a_run_that_lives_is_left_alone() {
    let (directory, path) = journal(here(), 99_999, owner(true));
    let ended = undo(&directory, &["--all"]).fine();
    assert!(ended.out.contains("is alive"), "{ended:#?}");
    assert!(path.exists());
}

fn another_namespace_is_entered_if_asked() {
    let there = NetNamespace::new().expect("the probe made one");
    let (directory, path) = journal(there.inode(), 99_999, owner(false));
    let ended = undo(&directory, &[]);
    ended.fails(&["--all"]);
    // Only this descriptor holds it, so no other program can find it.
    let ended = undo(&directory, &["--all"]);
    assert_eq!(ended.code(), 2, "{ended:#?}");
    assert!(path.exists());
    let mut child = there
        .within(|| std::process::Command::new("sleep").arg("60").spawn())
        .expect("sleep is everywhere");
    let ended = undo(&directory, &["--all"]);
    let _ = child.kill();
    let _ = child.wait();
    assert!(ended.fine().out.contains("nothing to undo"));
    assert!(!path.exists());
}

fn an_interface_that_was_moved_is_not_taken_for_gone() {
    let made = || NetNamespace::new().expect("root has namespaces");
    let (here, there, far) = (made(), made(), made());
    let create = || {
        link::create_veth("eth9", 1, "far", 1, far.as_fd())?;
        link::index("eth9")
    };
    let index = here.within(create).expect("a pair");
    let (directory, path) = journal(here.inode(), index, owner(false));
    let mut child = Command::new("sleep");
    let child = there.within(|| child.arg("60").spawn());
    let mut child = child.expect("sleep is everywhere");
    let ip = |host: &NetNamespace, words: &str| {
        let ip = || run(Command::new("ip").args(words.split(' ')));
        host.within(ip).fine();
    };
    ip(&here, &format!("link set eth9 netns {}", child.id()));
    let undo = || here.within(|| undo(&directory, &[]));
    let ended = undo();
    let said = ended.out.contains("eth9 is not in this network namespace");
    let said = said && ended.out.contains(&format!("net:[{}]", there.inode()));
    assert_eq!((ended.code(), said), (2, true), "{ended:#?}");
    assert!(!ended.out.contains("nothing to undo"), "{ended:#?}");
    assert!(path.exists());
    ip(&there, "link delete eth9");
    let gone = undo();
    let _ = child.kill();
    let _ = child.wait();
    assert!(gone.fine().out.contains("nothing to undo: queue 1"));
    assert!(!path.exists());
}

/// The journal of `mpps lab tcp --skb-defer`, in a namespace that has no such setting. A test must
/// not touch the machine's own setting.
fn a_setting_of_the_machine_is_looked_for_where_it_was() {
    let there = NetNamespace::new().expect("the probe made one");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory
        .path()
        .join("mpps/setting-net.core.skb_defer_max.json");
    fs::create_dir(path.parent().expect("it has one")).expect("made");
    let edit = json!({
        "setting": {"kind": "skb_defer"}, "old": "64", "new": "0", "became": null,
    });
    let change = json!({
        "name": "setting", "object": "net.core.skb_defer_max", "interface_index": null,
        "namespace": there.inode(), "heading": "this machine", "edits": [edit],
    });
    let record = json!({"schema": 2, "owner": owner(false), "change": change, "begun": 1});
    fs::write(&path, record.to_string()).expect("written");
    let listed = undo(&directory, &["--list"]).fine();
    for word in ["this machine", "is dead", "net.core.skb_defer_max 64 -> 0"] {
        assert!(listed.out.contains(word), "{word}: {listed:#?}");
    }
    assert_eq!(undo(&directory, &[]).code(), 2);
    assert!(path.exists());
    let undone = there.within(|| undo(&directory, &[])).fine();
    undone.shows(&["nothing to undo: net.core"]);
    assert!(!path.exists());
}

fn a_run_that_changed_nothing_is_told_and_forgotten() {
    let (directory, path) = journal(here(), 99_999, owner(false));
    let text = fs::read_to_string(&path).expect("readable");
    fs::write(&path, text.replace(r#""begun":1"#, r#""begun":0"#)).expect("written");
    let undone = undo(&directory, &[]).fine();
    undone.shows(&["nothing had been changed"]);
    assert!(!path.exists());
}

/// Root may list a forbidden directory, but no user can list a file.
fn a_directory_that_cannot_be_listed_is_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join("mpps"), "").expect("written");
    let ended = undo(&directory, &[]);
    assert_eq!(ended.code(), 2, "{ended:#?}");
    assert!(!ended.out.contains("nothing to undo"), "{ended:#?}");
    let told = ended.err.matches("/mpps: Not a directory").count();
    assert_eq!(told, 1, "{ended:#?}");
}

/// A journal of a dead process that sets one setting back.
fn journal_of(setting: &Value, old: &str, new: &str) -> String {
    let edit = json!({"setting": setting, "old": old, "new": new, "became": new});
    let change = json!({
        "name": "tune-buffers", "object": "eth9", "interface_index": 99_999,
        "namespace": here(), "heading": "eth9, buffers", "edits": [edit],
    });
    json!({"schema": 2, "owner": owner(false), "change": change, "begun": 1}).to_string()
}

/// `su` keeps `XDG_RUNTIME_DIR`. Root neither obeys nor removes files there, whatever user they
/// belong to.
fn a_journal_that_a_user_planted_is_not_obeyed() {
    let directory = tempfile::tempdir().expect("a directory");
    let own = directory.path().join("mpps");
    fs::create_dir(&own).expect("made");
    let victim = directory.path().join("victim");
    fs::write(&victim, "as it was").expect("written");
    // As sysctl(8) does, a dot and a slash stand for each other.
    let swap = |letter| match letter {
        '.' => '/',
        '/' => '.',
        other => other,
    };
    let path = format!("../..{}", victim.display());
    let name: String = path.chars().map(swap).collect();
    let setting = json!({"kind": "sysctl", "name": name});
    let text = journal_of(&setting, "by root", "as it was");
    let of_root = directory.path().join("of-root");
    fs::write(&of_root, &text).expect("written");
    symlink(&of_root, own.join("tune-1-1.json")).expect("made");
    fs::write(own.join("tune-1-2.json"), &text).expect("written");
    let half = own.join("tune-1-3.new-4294967295");
    fs::write(&half, "").expect("written");
    for path in [directory.path(), &own, &own.join("tune-1-2.json")] {
        chown(path, Some(65534), Some(65534)).expect("root may");
    }
    let empty = tempfile::tempdir().expect("a directory");
    for words in [&["undo"][..], &["undo", "--all"], &["tune", "undo"]] {
        let mut command = with_journals(&mpps(words), empty.path());
        let ended = run(command.env("XDG_RUNTIME_DIR", directory.path())).fine();
        assert_eq!(ended.err, "", "{ended:#?}");
    }
    assert_eq!(fs::read_to_string(&victim).expect("there"), "as it was");
    assert!(half.exists());
}

/// Also in the right place: a link, a pipe without a writer, and a setting that no plan makes.
fn what_mpps_did_not_write_is_refused_beside_what_it_did() {
    let (directory, good) = journal(here(), 99_999, owner(false));
    let own = good.parent().expect("it has one");
    let outside = directory.path().join("outside.json");
    fs::copy(&good, &outside).expect("copied");
    symlink(&outside, own.join("a-link.json")).expect("made");
    let made = Command::new("mkfifo").arg(own.join("b-pipe.json")).status();
    assert!(made.is_ok_and(|status| status.success()));
    let setting = json!({"kind": "sysctl", "name": "//.//.tmp.x"});
    fs::write(own.join("c-path.json"), journal_of(&setting, "1", "0")).expect("written");
    let ended = undo(&directory, &[]);
    assert_eq!(ended.code(), 2, "{ended:#?}");
    for why in [
        "a-link.json: it is a symbolic link",
        "b-pipe.json: it is no regular file",
        "c-path.json: mpps writes no such journal: //.//.tmp.x is no setting",
    ] {
        assert!(ended.err.contains(why), "{why}: {ended:#?}");
    }
    assert!(ended.out.contains("nothing to undo: queue 1"), "{ended:#?}");
    assert!(!good.exists() && outside.exists());
}

/// The output has no reader, but the second journal is still undone.
fn a_closed_pipe_does_not_stop_it() {
    let (directory, first) = journal(here(), 99_999, owner(false));
    let second = first.with_file_name("carve-out-1-2.json");
    fs::copy(&first, &second).expect("copied");
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let mut command = with_journals(&mpps(&["undo"]), directory.path());
    let status = command.stdout(writer).status().expect("it starts");
    assert!(status.success(), "{status}");
    assert!(!first.exists() && !second.exists());
}

fn a_foreign_file_is_an_error() {
    let (directory, path) = journal(here(), 99_999, owner(false));
    for (text, why) in [
        ("{}", "missing field"),
        (
            r#"{"schema": 1}"#,
            "a journal of form 1; this mpps knows forms 2 and 3",
        ),
    ] {
        fs::write(&path, text).expect("written");
        let ended = undo(&directory, &[]);
        assert_eq!(ended.code(), 2, "{ended:#?}");
        for word in ["carve-out-1-1.json", why] {
            assert!(ended.err.contains(word), "{ended:#?}");
        }
        assert!(path.exists());
    }
}
