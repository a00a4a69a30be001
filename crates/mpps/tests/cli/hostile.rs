//! Names that a user chose to steer a terminal or a shell: each command shows them in each of its
//! forms, and none of it steers.

use crate::common::{Ended, Entered, Running, mpps, quiet_namespace, run};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::link;
use mpps_os::text::{ShellWord, is_clean};
use serde_json::Value;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// The first sets a title and rings the bell. The second runs a command. The third clears the
/// screen by C1, turns the direction of writing, and has markup.
const NAMES: [&str; 3] = ["\x1b]0;x\x07", "a;id;$(id)", "\u{9b}2J\u{202e}|`<b>"];
/// The second of them, for shells.
const TEMPTING: &str = NAMES[1];

/// The beginning of a command to paste, or of a path in one.
const COMMANDS: [&str; 6] = ["ethtool -", "ip link ", "mpps ", "net/", "echo ", "sysctl "];
/// The greatest distance of a name from that beginning, in characters.
const NEAR: usize = 70;

/// A host with two veth pairs. Three of the four ends have hostile names; all are up.
fn host() -> NetNamespace {
    let namespace = quiet_namespace();
    let [first, second, third] = NAMES;
    let made: Result<mpps_os::CallResult<()>, _> = namespace.run(|| {
        let own = NetNamespace::current()?;
        link::create_veth(first, 2, second, 2, own.as_fd())?;
        link::create_veth(third, 2, "plain0", 2, own.as_fd())?;
        for name in [first, second, third, "plain0"] {
            link::set_up(link::index(name)?)?;
        }
        Ok(())
    });
    made.expect("it can be entered").expect("names are free");
    namespace
}

#[track_caller]
fn expect_clean(words: &[&str], ended: &Ended) {
    for text in [&ended.out, &ended.err] {
        let steers = |letter: char| letter != '\n' && !is_clean(letter);
        assert!(!text.contains(steers), "{words:?}: {ended:#?}");
        for (at, _) in COMMANDS.iter().flat_map(|begin| text.match_indices(begin)) {
            let line = text[at..].lines().next().unwrap_or_default();
            let near: String = line.chars().take(NEAR).collect();
            let name = near.find(TEMPTING);
            let is_quoted = name.is_none_or(|name| near[..name].ends_with('\''));
            assert!(is_quoted, "{words:?}: {near}: {ended:#?}");
        }
    }
}

/// Runs them all at once; their output fits no narrow terminal, so that no name is broken.
fn run_all(namespace: &NetNamespace, commands: &[Vec<&str>]) -> Vec<Ended> {
    let start = |words: &Vec<&str>| {
        let mut command = mpps(words);
        command.env("COLUMNS", "400");
        namespace.within(|| Running::start(&mut command))
    };
    let running: Vec<Running> = commands.iter().map(start).collect();
    running.into_iter().map(Running::end).collect()
}

/// The output of each command about an interface with a hostile name.
pub(crate) fn names_of_interfaces_steer_nothing() {
    let namespace = host();
    let joins = NAMES.map(|name| format!("239.0.0.1%{name}"));
    let of = |(name, join)| {
        [
            vec!["backends", name],
            vec!["backends", name, "--json"],
            vec!["backends", name, "--for", "af_xdp"],
            vec!["backends", "--try", name],
            vec!["doctor", name, "--seconds", "1"],
            vec!["tune", "plan", name],
            vec!["tune", "plan", name, "--json", "--for", "af_xdp"],
            vec!["tune", "status", name],
            vec!["tune", "undo", name],
            vec!["steer", name, "--seconds", "1"],
            vec!["top", name, "--once"],
            vec![
                "recv",
                "[::]:0",
                "--interface",
                name,
                "--queue",
                "9",
                "--backend",
                "af_xdp",
            ],
            vec!["recv", "0.0.0.0:0", "--join", join, "--duration", "1"],
            vec!["send", "192.0.2.1:7", "--interface", name, "--count", "1"],
        ]
    };
    let commands = NAMES.into_iter().zip(joins.iter().map(String::as_str));
    let commands: Vec<Vec<&str>> = commands.flat_map(of).collect();
    for (words, ended) in commands.iter().zip(run_all(&namespace, &commands)) {
        expect_clean(words, &ended);
        assert!(ended.code() <= 2, "{words:?}: {ended:#?}");
        match words[..] {
            ["backends", name] => {
                let word = ShellWord::new(name).to_string();
                assert!(ended.fine().out.contains(&word), "{words:?}");
            }
            ["backends", name, "--json"] => {
                let told: Value = serde_json::from_str(&ended.fine().out).expect("it is JSON");
                assert_eq!(told["interface"], name);
            }
            _ => {}
        }
    }
    // It waits for traffic, and then nothing comes.
    for name in NAMES {
        let mut command = mpps(&["placement", "--interface", name, "--port", "7", "--quick"]);
        let directory = tempfile::tempdir().expect("a directory");
        command.current_dir(&directory);
        let mut running = namespace.within(|| Running::start(&mut command));
        running.line("waiting for packets");
        expect_clean(&[name], &running.interrupt());
    }
}

/// A shell that completes the names of interfaces runs none of them.
pub(crate) fn a_completed_name_runs_nothing() {
    let script = "mount -t sysfs none /sys && source <(\"$0\" completions bash) && COMP_CWORD=3 &&
        COMP_WORDS=(mpps recv --interface '') && _mpps mpps '' --interface &&
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "bash", "-c", script, env!("CARGO_BIN_EXE_mpps")]);
    let completed = host().within(|| run(&mut shell));
    assert_eq!(completed.err, "", "{completed:#?}");
    let names: BTreeSet<&str> = completed.out.lines().collect();
    let all = NAMES.into_iter().chain(["plain0", "lo"]);
    assert_eq!(names, all.collect());
}

/// Does this while datagrams go to the address.
fn flooded<T>(namespace: &NetNamespace, address: &str, work: impl FnOnce() -> T) -> T {
    let is_over = AtomicBool::new(false);
    let flood = || {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        // It ends also where the work fails.
        for _ in 0..100_000 {
            let _ = socket.send_to(&[0; 1000], address);
            thread::sleep(Duration::from_micros(100));
            if is_over.load(Ordering::Relaxed) {
                break;
            }
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| namespace.within(flood));
        let done = work();
        is_over.store(true, Ordering::Relaxed);
        done
    })
}

/// The output about both: the interfaces, and a program with a hostile name whose socket overflows.
pub(crate) fn names_of_programs_and_files_steer_nothing() {
    let namespace = host();
    let directory = tempfile::tempdir().expect("a directory");
    // 15 bytes of it are the program's name.
    let program = directory.path().join("\x1b]2;p\x07\n`id`\u{202e}");
    symlink(env!("CARGO_BIN_EXE_mpps"), &program).expect("it is ours");
    let mut command = Command::new(&program);
    command.args(["recv", "127.0.0.1:0"]);
    let mut receiver = namespace.within(|| Running::start(&mut command));
    let address = receiver.address();
    receiver.signal("STOP");
    let page = directory.path().join("\x1b[2J\u{9b}.html");
    let page = page.to_str().expect("it is text");
    let absent = "\x1b[2J\nabsent.json";
    let commands = [
        vec!["doctor", "--seconds", "1"],
        vec!["doctor", "--seconds", "1", "--json"],
        vec!["doctor", "--seconds", "1", "--markdown", "--html", page],
        vec!["top", "--once"],
        vec!["top", "--once", "--json"],
        vec!["undo", "--list"],
        vec!["report", absent],
        vec!["ledger", absent, absent],
        vec!["recv", "--json", "--count", absent],
        vec!["send", "\x1b[2J\u{202e}:1"],
        vec!["recv", "--interface", absent],
        vec!["doctor", "--netns", absent],
    ];
    let all = flooded(&namespace, &address, || run_all(&namespace, &commands));
    for (words, ended) in commands.iter().zip(&all) {
        expect_clean(words, ended);
        assert!(ended.code() <= 2, "{words:?}: {ended:#?}");
    }
    for doctor in &all[..3] {
        assert!(doctor.out.contains("socket_buffer"), "{doctor:#?}");
        assert!(
            doctor.out.contains("`id`") || doctor.out.contains("\\`id\\`"),
            "{doctor:#?}"
        );
    }
    let html = fs::read_to_string(page).expect("a page");
    assert!(!html.contains(|letter: char| letter != '\n' && !is_clean(letter)));
    assert!(
        html.contains("|`&lt;b&gt;") && !html.contains("|`<b>"),
        "{html}"
    );
    // The JSON output, read as a file, gives the same report.
    let file = directory.path().join("\x1b]0;f\x07.json");
    fs::write(&file, &all[1].out).expect("it can be written");
    for more in [&[][..], &["--markdown"]] {
        let told = run(mpps(&["report"]).arg(&file).args(more)).fine();
        expect_clean(more, &told);
        assert!(told.out.contains("socket_buffer"), "{told:#?}");
    }
    for help in [
        &["--help"][..],
        &["recv", "--help"],
        &[],
        &["recv", "--no-such"],
    ] {
        expect_clean(help, &run(Command::new(&program).args(help)));
    }
    receiver.signal("CONT");
    expect_clean(&["recv"], &receiver.interrupt());
}

/// Commands about an interface.
const ABOUT: [&[&str]; 7] = [
    &["doctor", "IF", "--seconds", "1"],
    &["top", "IF", "--once"],
    &["backends", "IF"],
    &["backends", "IF", "--for", "af_xdp"],
    &["steer", "IF", "--queues", "2", "--flows", "10"],
    &["tune", "plan", "IF"],
    &[
        "recv",
        "127.0.0.1:0",
        "--interface",
        "IF",
        "--backend",
        "packet_mmap",
        "--duration",
        "1",
    ],
];

/// A name that is no text hides no other interface, stops no command, and can be given.
pub(crate) fn a_name_that_is_no_text_is_a_name() {
    let namespace = quiet_namespace();
    // Two names of one text, if bytes were replaced.
    let names = [b"x\xff\x1b[2J", b"x\xfe\x1b[2J"].map(|name| OsStr::from_bytes(name));
    for (name, peer) in names.iter().zip(["plain0", "plain1"]) {
        let mut add = Command::new("ip");
        add.args(["link", "add"]).arg(name);
        add.args(["type", "veth", "peer", "name", peer]);
        namespace.within(|| run(&mut add).fine());
    }
    let commands = [
        vec!["doctor", "--seconds", "1"],
        vec!["doctor", "--seconds", "1", "--json"],
        vec!["top", "--once"],
        vec!["top", "--once", "--json"],
        vec!["backends", "plain0"],
        vec!["tune", "plan", "plain0"],
        vec!["recv", "127.0.0.1:0", "--duration", "1"],
        vec!["send", "127.0.0.1:9", "--count", "1"],
    ];
    let all = run_all(&namespace, &commands);
    for (words, ended) in commands.iter().zip(&all) {
        expect_clean(words, ended);
        assert!(ended.code() < 2, "{words:?}: {ended:#?}");
    }
    let shown = |ended: &Ended| ended.out.matches("x\u{fffd}\u{fffd}[2J").count();
    assert!(shown(&all[0]) >= 2 && shown(&all[2]) >= 2, "{all:#?}");
    let absent = OsStr::from_bytes(b"x\xfd\x1b[2J");
    for (words, name) in ABOUT
        .iter()
        .flat_map(|words| [(words, names[0]), (words, absent)])
    {
        let mut command = mpps(&[]);
        for word in *words {
            command.arg(if *word == "IF" {
                name
            } else {
                OsStr::new(word)
            });
        }
        let ended = namespace.within(|| run(&mut command));
        expect_clean(words, &ended);
        match name == absent {
            true => assert_eq!(ended.err.lines().count(), 1, "{words:?}: {ended:#?}"),
            false => assert!(ended.code() < 2, "{words:?}: {ended:#?}"),
        }
        assert_eq!(ended.code() == 2, name == absent, "{words:?}: {ended:#?}");
    }
    // A shell that is given the command of a result gets the same words.
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("x\u{10ffff}.json");
    let mut send = mpps(&["send", "127.0.0.1:9", "--count", "1"]);
    send.arg(format!("--json={}", file.display()));
    namespace.within(|| run(&mut send).fine());
    let result = fs::read_to_string(file).expect("a result");
    let result: Value = serde_json::from_str(&result).expect("it is JSON");
    let command = result["command"].as_str().expect("it is text");
    assert!(command.ends_with(r"x\364\217\277\277.json'"), "{command}");
    // Another word that is no text is an error like any other.
    let ended = run(mpps(&[]).arg(absent));
    expect_clean(&["no text"], &ended);
    let told = (ended.code(), ended.err.lines().count());
    assert_eq!(told, (2, 1), "{ended:#?}");
}

/// Names of `ip netns` that are no text, and a number that may be a process.
pub(crate) fn a_namespace_may_have_any_name() {
    let names = [&b"x\xff"[..], b"x\xfe", b"1"].map(OsStr::from_bytes);
    let ip = |words: &[&OsStr]| run(Command::new("ip").args(words)).fine();
    for name in names {
        ip(&["netns".as_ref(), "add".as_ref(), name]);
    }
    let pair = "link add v0 type veth peer name v1 netns";
    let pair: Vec<&OsStr> = pair.split(' ').map(OsStr::new).collect();
    ip(&[&["-n".as_ref(), names[0]], &pair[..], &[names[1]]].concat());
    for (name, link) in names.iter().zip(["v0", "v1"]) {
        let up = ["link", "set", link, "up"].map(OsStr::new);
        ip(&[&["-n".as_ref(), *name], &up[..]].concat());
    }
    let doctor = |name: &OsStr| {
        let mut command = mpps(&["doctor", "--seconds", "1", "--port", "9", "--netns"]);
        run(command.arg(name).env("COLUMNS", "400"))
    };
    let found = doctor(names[0]);
    expect_clean(&["--netns"], &found);
    assert_eq!(found.code(), 1, "{found:#?}");
    for command in [r"--netns $'x\376' --port 9", r"--netns $'x\377' --port 9"] {
        assert!(found.out.contains(command), "{found:#?}");
    }
    for (name, words) in [
        (names[2], &["/proc/1/ns/net", "/run/netns/1"][..]),
        (OsStr::from_bytes(b"x\xfd"), &["no such namespace"]),
    ] {
        let refused = doctor(name);
        expect_clean(&["--netns"], &refused);
        super::expect_refusal(&refused, words);
    }
}
