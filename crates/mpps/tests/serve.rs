//! `mpps serve`: requests that it grants and refuses, its end, and real clients.

mod clients;

use crate::common::{self, Entered, Running, mpps, quiet_namespace, run};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::{address, link};
use mpps_os::sysfs::Sysfs;
use mpps_trial::{Need, Trial, trials};
use serde_json::Value;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

const ENGINES: [&str; 2] = ["epoll", "io_uring"];

pub(crate) fn trials() -> Vec<Trial> {
    let clients = ENGINES.into_iter().flat_map(clients::trials);
    of_this_file().into_iter().chain(clients).collect()
}

fn of_this_file() -> Vec<Trial> {
    trials![
        waits:
            replies_and_ends_on_a_signal,
            every_combination_of_switches_replies,
            every_switch_is_told,
            a_directory_is_served,
            a_second_signal_ends_it_at_once,
            a_taken_port_is_named,
            a_closed_pipe_ends_it;
        waits(Need::Root):
            root_gives_its_rights_up,
            an_ordinary_user_stays_what_it_is,
            moderation_is_put_back,
            moderation_is_put_back_before_a_second_signal,
            two_signals_at_once_leave_no_moderation_behind,
            a_stopped_undo_helper_keeps_no_server_from_ending,
            moderation_of_a_killed_server_is_undone;
    ]
}

/// A server on a free port of the loopback interface.
fn serve(arguments: &[&str]) -> Running {
    let mut words = vec!["serve", "127.0.0.1:0"];
    words.extend(arguments);
    Running::start(&mut mpps(&words))
}

/// Its address, as soon as it says it.
fn address_of(server: &mut Running) -> String {
    let line = server.line("serving at ");
    let url = line.rsplit(' ').next().expect("a URL");
    url.trim_start_matches("http://")
        .trim_end_matches('/')
        .to_owned()
}

/// All that comes for a request, to the end of the connection.
fn ask(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut reply = Vec::new();
    stream
        .read_to_end(&mut reply)
        .expect("it replies and closes");
    String::from_utf8_lossy(&reply).into_owned()
}

fn get(address: &str, path: &str) -> String {
    ask(
        address,
        &format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
    )
}

/// The totals, which account for every connection.
fn totals(ended: &common::Ended) -> Value {
    let total = ended.last_json();
    let count = |value: &Value| value.as_u64().expect("a count");
    let ended: u64 = total["ended"]
        .as_object()
        .expect("an object")
        .values()
        .map(count)
        .sum();
    assert_eq!(
        count(&total["accepted"]),
        ended + count(&total["open"]),
        "{total}"
    );
    assert_eq!(total["unaccounted"], 0);
    assert_eq!(total["open"], 0);
    total
}

fn replies_and_ends_on_a_signal() {
    for engine in ENGINES {
        for signal in ["INT", "TERM"] {
            let mut server = serve(&["--json", "--size", "2k", "--engine", engine]);
            let address = address_of(&mut server);
            for _ in 0..4 {
                let reply = get(&address, "/any");
                let (head, body) = reply.split_once("\r\n\r\n").expect("a head");
                assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
                assert_eq!(body.len(), 2048);
            }
            server.signal(signal);
            let total = totals(&server.end().fine());
            assert_eq!(
                (&total["accepted"], &total["requests"]),
                (&4.into(), &4.into())
            );
            assert_eq!(total["engine"], engine);
            assert_eq!(total["statuses"]["2xx"], 4);
        }
    }
}

fn every_combination_of_switches_replies() {
    for (engine, names) in [
        ("epoll", &["affinity", "buffers", "events"][..]),
        ("io_uring", &["affinity", "buffers", "fds", "events"]),
    ] {
        for set in 0..1_usize << names.len() {
            let asked = names
                .iter()
                .enumerate()
                .filter(|(at, _)| set & 1 << at != 0);
            let asked: Vec<&str> = asked.map(|(_, name)| *name).collect();
            let only = match &*asked {
                [] => "--no-switches".to_owned(),
                some => format!("--only={}", some.join(",")),
            };
            let arguments = ["--json", "--engine", engine, "--workers", "1", &only];
            let mut server = serve(&arguments);
            let address = address_of(&mut server);
            for _ in 0..5 {
                let reply = get(&address, "/");
                let is_whole = reply.starts_with("HTTP/1.1 200 ") && reply.len() > 1024;
                assert!(is_whole, "{arguments:?}");
            }
            let total = totals(&server.interrupt().fine());
            assert_eq!(total["accepted"], 5, "{arguments:?}");
            let switches = total["switches"].as_array().expect("a list").iter();
            let told = switches.filter(|switch| switch["on"] == true);
            let told: Vec<&str> = told.filter_map(|switch| switch["name"].as_str()).collect();
            assert_eq!(told, asked, "{arguments:?}");
        }
    }
}

fn every_switch_is_told() {
    let mut server = serve(&["--without=events", "--engine", "io_uring"]);
    server.line(" affinity    o");
    server.line(" moderation  off");
    server.line(" buffers     o");
    server.line(" fds         o");
    server.line(" events      off");
    let ended = server.interrupt().fine();
    assert!(ended.out.contains("as asked"), "{ended:#?}");
    assert!(ended.out.contains("UNACCOUNTED 0"), "{ended:#?}");
}

fn a_directory_is_served() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("a.txt"), "hello").expect("written");
    let root = directory.path().to_str().expect("plain letters").to_owned();
    for engine in ENGINES {
        let mut server = serve(&["--root", &root, "--engine", engine]);
        let address = address_of(&mut server);
        let reply = get(&address, "/a.txt");
        assert!(
            reply.starts_with("HTTP/1.1 200 ") && reply.ends_with("\r\n\r\nhello"),
            "{reply}"
        );
        for path in ["/none", "/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd"] {
            let reply = get(&address, path);
            assert!(reply.starts_with("HTTP/1.1 4"), "{path}: {reply}");
        }
        server.interrupt().fine();
    }
}

fn a_second_signal_ends_it_at_once() {
    for engine in ENGINES {
        let mut server = serve(&["--json", "--engine", engine, "--drain-time", "10m"]);
        let address = address_of(&mut server);
        let mut slow = TcpStream::connect(&address).expect("it listens");
        slow.write_all(b"GET / HTTP/1.1\r\n\r\nGET /")
            .expect("it reads");
        let mut some = [0; 16];
        slow.read_exact(&mut some).expect("a reply");
        server.signal("TERM");
        server.line("draining");
        server.signal("TERM");
        assert_eq!(server.end().code(), 128 + 15);
    }
}

fn a_taken_port_is_named() {
    let mut server = serve(&[]);
    let taken = address_of(&mut server);
    run(&mut mpps(&["serve", &taken])).refused(&["in use", "ss -tlpn"]);
    server.interrupt().fine();
}

fn a_closed_pipe_ends_it() {
    let binary = env!("CARGO_BIN_EXE_mpps");
    let command = format!("{binary} serve 127.0.0.1:0 | head -n 1; exit ${{PIPESTATUS[0]}}");
    let ended = run(Command::new("bash").args(["-c", &command])).fine();
    assert!(ended.out.starts_with("serving at "), "{ended:#?}");
}

/// A line of `/proc` for every thread of a process, without the name of the line.
fn rights(server: &Running, line: &str) -> Vec<String> {
    let threads = fs::read_dir(format!("/proc/{}/task", server.id())).expect("it runs");
    let status = threads.map(|thread| {
        let path = thread.expect("it is listed").path().join("status");
        fs::read_to_string(path).expect("it is there")
    });
    let value = |status: String| {
        let found = status.lines().find_map(|one| one.strip_prefix(line));
        let words = found.expect("the kernel has it").split_ascii_whitespace();
        words.collect::<Vec<_>>().join(" ")
    };
    status.map(value).collect()
}

/// Every thread runs as the user `nobody`, without root's rights.
fn has_no_rights(server: &Running) {
    let status = fs::read_to_string("/etc/passwd").expect("it is there");
    let nobody = status.lines().find(|line| line.starts_with("nobody:"));
    let ids: Vec<&str> = nobody.expect("nobody is").split(':').collect();
    let four = |id: &str| [id; 4].join(" ");
    let none = "0000000000000000".to_owned();
    for (line, wanted) in [
        ("Uid:", four(ids[2])),
        ("Gid:", four(ids[3])),
        ("Groups:", String::new()),
        ("CapInh:", none.clone()),
        ("CapPrm:", none.clone()),
        ("CapEff:", none.clone()),
        ("CapAmb:", none),
        ("NoNewPrivs:", "1".to_owned()),
    ] {
        let all = rights(server, line);
        assert!(
            all.len() > 1 && all.iter().all(|one| *one == wanted),
            "{line} {all:?}"
        );
    }
}

fn root_gives_its_rights_up() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let page = directory.path().join("page.txt");
    fs::write(&page, "for everybody").expect("it can be written");
    let root = directory.path().to_str().expect("a plain name");
    let mode = |path: &Path, mode| {
        fs::set_permissions(path, Permissions::from_mode(mode)).expect("it is ours");
    };
    mode(directory.path(), 0o711);
    for engine in ENGINES {
        let mut server = serve(&["--engine", engine, "--workers", "2", "--root", root]);
        let address = address_of(&mut server);
        mode(&page, 0o644);
        assert!(get(&address, "/page.txt").ends_with("for everybody"));
        mode(&page, 0o600);
        assert!(get(&address, "/page.txt").starts_with("HTTP/1.1 403"));
        server.line("user nobody, without rights");
        has_no_rights(&server);
        server.interrupt().fine();
    }
    mode(directory.path(), 0o700);
    let ended = run(&mut mpps(&["serve", "127.0.0.1:0", "--root", root]));
    assert_eq!(
        (ended.code(), ended.err.lines().count()),
        (2, 1),
        "{ended:#?}"
    );
    assert!(
        ended.err.contains(root) && ended.err.contains("--user"),
        "{ended:#?}"
    );
    let mut server = serve(&["--user", "root", "--root", root]);
    server.line("; user root");
    assert!(get(&address_of(&mut server), "/page.txt").ends_with("for everybody"));
    let uids = rights(&server, "Uid:");
    assert!(uids.iter().all(|uid| uid == "0 0 0 0"), "{uids:?}");
    server.interrupt().fine();
}

fn an_ordinary_user_stays_what_it_is() {
    let directory = tempfile::tempdir().expect("a directory can be made");
    let serve = |user| {
        let arguments = ["serve", "127.0.0.1:0", "--size", "2g", "--user", user];
        common::as_nobody(directory.path(), &arguments).err
    };
    // Its own name is no obstacle, but the size is.
    assert!(serve("nobody").contains("--size"));
    let refused = serve("root");
    for part in [
        "--user root: only root becomes another user",
        "start the server as root",
    ] {
        assert!(refused.contains(part), "{refused}");
    }
}

/// A namespace whose veth has NAPI and an address; the other end is kept alive.
fn veth() -> (NetNamespace, NetNamespace) {
    let (near, far) = (quiet_namespace(), quiet_namespace());
    near.within(|| {
        link::create_veth("near", 1, "far", 1, far.as_fd())?;
        mpps_os::ethtool::set_feature("near", "rx-gro", true)?;
        let index = link::index("near")?;
        address::add(index, [10, 9, 8, 7].into(), 24)?;
        link::set_up(index)
    })
    .expect("a pair with an address");
    far.within(|| link::set_up(link::index("far")?))
        .expect("it is there");
    (near, far)
}

fn deferral(namespace: &NetNamespace) -> [String; 2] {
    namespace
        .within(|| {
            let sysfs = Sysfs::mount()?;
            let read = |name: &str| sysfs.read(&format!("class/net/near/{name}"));
            Ok::<_, mpps_os::CallError>([read("gro_flush_timeout")?, read("napi_defer_hard_irqs")?])
        })
        .expect("root may read them")
}

/// A server in the namespace that throttles the interface of its address.
fn throttled(namespace: &NetNamespace) -> Running {
    let arguments = ["serve", "10.9.8.7:0", "--moderation", "50us", "--json"];
    let mut server = namespace.within(|| Running::start(&mut mpps(&arguments)));
    server.line(" moderation  on");
    assert_eq!(deferral(namespace), ["50000", "2"]);
    server
}

fn moderation_is_put_back() {
    let (near, _far) = veth();
    let before = deferral(&near);
    let server = throttled(&near);
    // Another process restores the setting.
    has_no_rights(&server);
    let ended = server.interrupt().fine();
    ended.warns(&["put back: undone: gro_flush_timeout"]);
    assert_eq!(deferral(&near), before);
    let total = totals(&ended);
    let switch = &total["switches"][1];
    assert_eq!(
        (&switch["name"], &switch["on"]),
        (&"moderation".into(), &true.into())
    );
}

fn moderation_is_put_back_before_a_second_signal() {
    let (near, _far) = veth();
    let before = deferral(&near);
    let mut server = throttled(&near);
    let address = address_of(&mut server);
    let mut slow = near
        .within(|| TcpStream::connect(&address))
        .expect("it listens");
    slow.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET /")
        .expect("it reads");
    let mut some = [0; 16];
    slow.read_exact(&mut some).expect("a reply");
    server.signal("INT");
    server.line("draining");
    server.signal("INT");
    assert_eq!(server.end().code(), 128 + 2);
    assert_eq!(deferral(&near), before);
}

fn two_signals_at_once_leave_no_moderation_behind() {
    let (near, _far) = veth();
    let before = deferral(&near);
    for _ in 0..4 {
        let server = throttled(&near);
        server.signal("INT");
        server.signal("INT");
        server.end();
        assert_eq!(deferral(&near), before);
    }
}

/// The process that keeps the settings of a server.
fn keeper(server: &Running) -> String {
    let children = format!("/proc/{0}/task/{0}/children", server.id());
    let keeper = fs::read_to_string(children).expect("the kernel tells of children");
    keeper.trim().to_owned()
}

fn a_stopped_undo_helper_keeps_no_server_from_ending() {
    let (near, _far) = veth();
    let before = deferral(&near);
    let mut server = throttled(&near);
    let keeper = keeper(&server);
    common::kill("STOP", &keeper);
    server.signal("INT");
    server.line("`mpps undo` tries again");
    // It goes on, does what it was asked for, and closes standard error.
    common::kill("CONT", &keeper);
    assert_eq!(server.end().code(), 2);
    assert_eq!(deferral(&near), before);
}

fn moderation_of_a_killed_server_is_undone() {
    let (near, _far) = veth();
    let before = deferral(&near);
    let server = throttled(&near);
    server.signal("KILL");
    // It ends with the process that keeps the settings, which has its standard error.
    server.end();
    assert_eq!(deferral(&near), before);
    // If that process is killed, no process is left that could.
    let server = throttled(&near);
    common::kill("KILL", &keeper(&server));
    let ended = server.interrupt();
    ended.fails(&["`mpps undo` tries again"]);
    assert_eq!(deferral(&near), ["50000", "2"]);
    let undone = near.within(|| run(&mut mpps(&["undo"])));
    let said = "near, moderation: undone: gro_flush_timeout";
    assert!(undone.out.contains(said), "{undone:#?}");
    assert_eq!(deferral(&near), before);
}
