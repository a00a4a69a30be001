//! Unmodified programs over `mpps accelerate`: the same results as without it, a ledger that
//! balances, and the kernel's again when anything changes.

use crate::common::{self, Ended, Entered, Running, mpps, run};
use mpps_os::namespace::NetNamespace;
use mpps_os::netlink::{address, link};
use mpps_trial::{Need, Trial, trials};
use std::fs;
use std::net::{IpAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(5);
const SWITCHED: &str = "goes to the rings";
const SERVER: &str = "10.77.0.1";
const QUERY: &[u8] = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\x03org\0\0\x01\0\x01";

pub(crate) fn trials() -> Vec<Trial> {
    let python = || Need::Program("python3", "python3");
    let rest = |need: fn() -> Need| move |trial: Trial| trial.needs(need());
    let programs = trials![
        waits(Need::Root):
            twins,
            answers_come_without_rights,
            a_killed_launcher_gives_all_back,
            held_answers_leave_in_time,
            a_flood_balances,
            an_installed_program_finds_its_library,
            rules_give_the_port_back,
            signals_are_handed_on;
    ];
    let refused = trials![waits(Need::Root): refused;].into_iter();
    let nsd = trials![waits(Need::Root): nsd_answers_alike;].into_iter();
    let nsd = nsd.map(rest(|| Need::Program("nsd", "nsd")));
    let refused = refused.map(rest(|| {
        Need::Program("python3 nft setcap", "nftables, libcap2-bin")
    }));
    programs
        .into_iter()
        .map(move |trial| trial.needs(python()))
        .chain(nsd)
        .chain(refused)
        .collect()
}

/// Two hosts: the first has the server.
struct Pair {
    near: NetNamespace,
    far: NetNamespace,
}

impl Pair {
    fn new() -> Self {
        let (near, far) = (common::quiet_namespace(), common::quiet_namespace());
        let made =
            near.within(|| link::create_veth("near", 1, "far", 1, std::os::fd::AsFd::as_fd(&far)));
        made.expect("root makes a veth");
        for (namespace, name, last) in [(&near, "near", 1), (&far, "far", 2)] {
            let set_up = || -> mpps_os::CallResult<()> {
                let index = link::index(name)?;
                address::add(index, IpAddr::from([10, 77, 0, last]), 24)?;
                let v6 = [0xfd77, 0, 0, 0, 0, 0, 0, u16::from(last)];
                address::add(index, IpAddr::from(v6), 64)?;
                link::set_up(index)
            };
            namespace.within(set_up).expect("root sets it up");
        }
        Self { near, far }
    }

    fn accelerate(&self, program: &[&str]) -> Running {
        let words = [&["accelerate", "near", "--port", "7777", "--"], program].concat();
        self.near.within(|| Running::start(&mut mpps(&words)))
    }

    fn echo(&self, options: &[&str]) -> Running {
        let echo = script("echo.py");
        let words = [&["python3", &echo], options].concat();
        let mut running = self.accelerate(&words);
        running.line(SWITCHED);
        running
    }

    fn client(&self) -> UdpSocket {
        let socket = self
            .far
            .within(|| UdpSocket::bind("10.77.0.2:0"))
            .expect("its address");
        socket.connect((SERVER, 7777)).expect("there is a route");
        socket
            .set_read_timeout(Some(PATIENCE))
            .expect("any time will do");
        socket
    }
}

fn script(name: &str) -> String {
    format!("{}/tests/accelerate/{name}", env!("CARGO_MANIFEST_DIR"))
}

fn asked(client: &UdpSocket, question: &[u8]) -> Vec<u8> {
    client.send(question).expect("it can be sent");
    let mut answer = [0; 2048];
    let bytes = client.recv(&mut answer).expect("an answer comes");
    answer[..bytes].to_vec()
}

/// The number in front of some words of the ledger.
fn count(ended: &Ended, words: &str) -> u64 {
    let ledger = ended.err.lines().last().unwrap_or_default();
    let before = ledger.split(words).next().unwrap_or_default();
    let before = before
        .rsplit([':', ';', '=', '+'])
        .next()
        .unwrap_or_default();
    let digits: String = before.chars().filter(char::is_ascii_digit).collect();
    digits
        .parse()
        .unwrap_or_else(|_| panic!("no `{words}`: {ledger}"))
}

fn balances(ended: &Ended) {
    assert!(ended.err.contains("UNACCOUNTED 0;"), "{}", ended.err);
}

fn twins() {
    let pair = Pair::new();
    let far = pair.far.inheritable().expect("a copy");
    let words = [
        "python3",
        &script("twin.py"),
        &format!("/proc/self/fd/{}", far.as_raw_fd()),
    ];
    let plain = pair
        .near
        .within(|| run(Command::new(words[0]).args(&words[1..])))
        .fine();
    let fast = pair.accelerate(&words).end();
    for (plain, fast) in plain.out.lines().zip(fast.out.lines()) {
        assert_eq!(plain, fast, "{}", fast);
    }
    assert_eq!(
        plain.out.lines().count(),
        fast.out.lines().count(),
        "{}",
        fast.err
    );
    assert!(!plain.out.contains("failed: "), "{}", plain.out);
    balances(&fast);
    assert!(
        count(&fast, " read") > 250 && count(&fast, " answers by rings") > 50,
        "{}",
        fast.err
    );
}

fn answers_come_without_rights() {
    let pair = Pair::new();
    let running = pair.echo(&["--nobody"]);
    let client = pair.client();
    assert_eq!(asked(&client, b"hello"), b"hello");
    client.send(b"end").expect("it can be sent");
    let ended = running.end().fine();
    balances(&ended);
    assert_eq!(
        (count(&ended, " read"), count(&ended, " answers by rings")),
        (2, 1)
    );
}

fn a_killed_launcher_gives_all_back() {
    let pair = Pair::new();
    let running = pair.echo(&[]);
    let client = pair.client();
    assert_eq!(asked(&client, b"before"), b"before");
    let has_program = || {
        let near = || link::find(link::index("near")?);
        let link = pair
            .near
            .within(near)
            .expect("netlink answers")
            .expect("it is there");
        link.native_xdp.is_some()
    };
    assert!(has_program());
    running.signal("KILL");
    let until = Instant::now() + PATIENCE;
    while has_program() {
        assert!(Instant::now() < until, "the program stays attached");
    }
    assert_eq!(asked(&client, b"after"), b"after");
    client.send(b"end").expect("it can be sent");
}

/// The first of several answers does not wait for a program that computes.
fn held_answers_leave_in_time() {
    let pair = Pair::new();
    let running = pair.echo(&[]);
    let client = pair.client();
    asked(&client, b"warm");
    let began = Instant::now();
    for _ in 0..4 {
        client.send(b"compute").expect("it can be sent");
    }
    let mut answer = [0; 16];
    client.recv(&mut answer).expect("an answer comes");
    let took = began.elapsed();
    assert!(took < Duration::from_millis(90), "{took:?}");
    client.send(b"end").expect("it can be sent");
    balances(&running.end().fine());
}

fn a_flood_balances() {
    let pair = Pair::new();
    let running = pair.echo(&[]);
    let client = pair.client();
    asked(&client, b"warm");
    let sent = (0..20_000)
        .filter(|_| client.send(&[0; 100]).is_ok())
        .count() as u64;
    let until = Instant::now() + PATIENCE;
    let mut answer = [0; 128];
    client
        .set_read_timeout(Some(Duration::from_millis(500)))
        .expect("any time will do");
    while client.recv(&mut answer).is_ok() && Instant::now() < until {}
    client.send(b"end").expect("it can be sent");
    let ended = running.end().fine();
    balances(&ended);
    // The veth may drop some, which its own counter has.
    assert!(count(&ended, " by rings") <= sent + 2, "{}", ended.err);
    assert!(count(&ended, " read") > 1000, "{}", ended.err);
}

/// As the Debian package has it, and as the archive has it.
fn an_installed_program_finds_its_library() {
    let folder = common::directory();
    let built = Path::new(env!("CARGO_BIN_EXE_mpps"));
    let [programs, libraries] = ["bin", "lib/mpps"].map(|name| folder.path().join(name));
    let program = programs.join("mpps");
    let library = "libmpps_accelerate.so";
    let made = built.with_file_name("deps").join(library);
    for directory in [&programs, &libraries] {
        fs::create_dir_all(directory).expect("it can be made");
    }
    fs::copy(built, &program).expect("there is room");
    let pair = Pair::new();
    let start = || {
        let echo = script("echo.py");
        let words = ["accelerate", "near", "--port", "7777", "--"];
        let mut command = Command::new(&program);
        command.args(words).args(["python3", &echo]);
        pair.near.within(|| Running::start(&mut command))
    };
    start()
        .end()
        .refused(&["libmpps_accelerate.so is not beside"]);
    for place in [libraries, programs.clone()] {
        let copy = place.join(library);
        fs::copy(&made, &copy).expect("there is room");
        let mut running = start();
        running.line(SWITCHED);
        let client = pair.client();
        assert_eq!(asked(&client, b"hello"), b"hello");
        client.send(b"end").expect("it can be sent");
        balances(&running.end().fine());
        fs::remove_file(copy).expect("it is there");
    }
}

fn rules_give_the_port_back() {
    let pair = Pair::new();
    let mut running = pair.echo(&[]);
    let client = pair.client();
    assert_eq!(asked(&client, b"before"), b"before");
    let rule = || run(Command::new("ip").args(["rule", "add", "from", "10.77.0.9", "table", "99"]));
    pair.near.within(rule).fine();
    running.line("policy routing would be passed by");
    assert_eq!(asked(&client, b"after"), b"after");
    client.send(b"end").expect("it can be sent");
    let ended = running.end().fine();
    balances(&ended);
    assert_eq!(
        (count(&ended, " read"), count(&ended, " by the kernel")),
        (1, 2),
        "{}",
        ended.err
    );
}

fn refused() {
    let pair = Pair::new();
    let folder = common::directory();
    let made = |name: &str, bytes: &[u8], mode: u32| -> PathBuf {
        let path = folder.path().join(name);
        fs::write(&path, bytes).expect("it can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("the mode can be set");
        path
    };
    let static_program = made("static", b"\x7fELF\x02\x01", 0o755);
    let setuid = made(
        "setuid",
        &fs::read("/bin/true").expect("it is there"),
        0o4755,
    );
    let refused = |interface: &str, program: &Path, part: &str| {
        let program = program.to_str().expect("plain names");
        let words = ["accelerate", interface, "--port", "7777", "--", program];
        pair.near.within(|| run(&mut mpps(&words))).refused(&[part]);
    };
    refused("near", &static_program, "is a static program");
    refused("near", &setuid, "setuid or setgid");
    refused("near", Path::new("/no/such"), "No such file");
    let endless = folder.path().join("endless");
    let line = format!("#!{}\n", endless.display());
    refused(
        "near",
        &made("endless", line.as_bytes(), 0o755),
        "do not end",
    );
    let pipe = folder.path().join("pipe");
    run(Command::new("mkfifo").arg(&pipe)).fine();
    refused("near", &pipe, "is no file");
    let capable = made(
        "capable",
        &fs::read("/bin/true").expect("it is there"),
        0o755,
    );
    run(Command::new("setcap").args(["cap_net_raw+ep", capable.to_str().expect("plain names")]))
        .fine();
    refused("near", &capable, "has file capabilities");
    let rules = |line: &str| {
        pair.near
            .within(|| run(Command::new("nft").args(common::words(line))))
            .fine();
    };
    rules("add table inet filter");
    rules("add chain inet filter in");
    rules("add rule inet filter in udp dport 7777 drop");
    refused(
        "near",
        Path::new("/bin/true"),
        "1 nftables rules would see no datagram",
    );
    rules("flush ruleset");
    rules("add table inet filter");
    rules("add chain inet filter in { type filter hook input priority 0 ; policy drop ; }");
    refused("near", Path::new("/bin/true"), "1 nftables rules");
    rules("flush ruleset");
    refused("lo", Path::new("/bin/true"), "no Ethernet card");
    let first = pair.echo(&[]);
    refused("near", Path::new("/bin/true"), "an XDP program is attached");
    let client = pair.client();
    client.send(b"end").expect("it can be sent");
    first.end().fine();
}

/// A program gets each signal, and so does a daemon whose first process has ended.
fn signals_are_handed_on() {
    let pair = Pair::new();
    let hears = "import signal, time\n\
        signal.signal(2, lambda *_: print('heard', flush=True))\n\
        print('ready', flush=True)\nwhile True: time.sleep(1)";
    let daemon = "import os, time\nfirst = os.getpid()\nif os.fork(): os._exit(7)\n\
        while os.getppid() == first: pass\nprint('ready', flush=True)\nwhile True: time.sleep(1)";
    for (code, hears_first, status) in [(hears, true, 143), (daemon, false, 7)] {
        let mut running = pair.accelerate(&["python3", "-c", code]);
        running.line("ready");
        if hears_first {
            running.signal("INT");
            running.line("heard");
        }
        running.signal("TERM");
        let ended = running.end();
        assert_eq!(ended.code(), status, "{ended:?}");
        balances(&ended);
    }
    // The words of env(1) before the program.
    let folder = common::directory();
    let script = folder.path().join("script");
    fs::write(&script, "#!/usr/bin/env -S A=b python3 -u\nprint('ran')\n").expect("a file");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("the mode can be set");
    let ended = pair
        .accelerate(&[script.to_str().expect("plain names")])
        .end();
    assert_eq!((ended.code(), &*ended.out), (0, "ran\n"), "{ended:?}");
}

fn nsd_answers_alike() {
    let folder = common::directory();
    let at = folder.path().display();
    let zone = "$ORIGIN example.org.\n$TTL 3600\n@ SOA ns host 1 3600 600 86400 300\n@ NS ns\nns A \
                10.77.0.1\nwww A 10.1.2.3\n";
    fs::write(folder.path().join("zone"), zone).expect("it can be written");
    let settings = format!(
        "server:\n ip-address: 10.77.0.1@7777\n ip-address: fd77::1@7777\n username: \"\"\n zonesdir: \
         \"{at}\"\n pidfile: \"{at}/pid\"\n xfrdfile: \"\"\n database: \"\"\n zonelistfile: \
         \"{at}/list\"\n logfile: \"{at}/log\"\nremote-control:\n control-enable: no\nzone:\n name: \
         example.org\n zonefile: zone\n"
    );
    let settings_path = folder.path().join("nsd.conf");
    fs::write(&settings_path, settings).expect("it can be written");
    let words = [
        "nsd",
        "-d",
        "-c",
        settings_path.to_str().expect("plain names"),
    ];
    let answers = |pair: &Pair| -> Vec<Vec<u8>> {
        let bound = pair.far.within(|| {
            (
                UdpSocket::bind("10.77.0.2:0"),
                UdpSocket::bind("[fd77::2]:0"),
            )
        });
        let v4 = bound.0.expect("its address");
        let v6 = bound.1.expect("its address");
        v4.connect("10.77.0.1:7777").expect("there is a route");
        v6.connect("[fd77::1]:7777").expect("there is a route");
        let until = Instant::now() + PATIENCE;
        let ask = |socket: &UdpSocket| {
            socket
                .set_read_timeout(Some(Duration::from_millis(100)))
                .expect("any time will do");
            let mut answer = [0; 2048];
            loop {
                assert!(Instant::now() < until, "no answer");
                // A server that is not there yet refuses.
                if socket.send(QUERY).is_ok()
                    && let Ok(bytes) = socket.recv(&mut answer)
                {
                    return answer[..bytes].to_vec();
                }
            }
        };
        [&v4, &v6].map(ask).to_vec()
    };
    let pair = Pair::new();
    let plain = pair
        .near
        .within(|| Running::start(Command::new(words[0]).args(&words[1..])));
    let without = answers(&pair);
    plain.signal("TERM");
    plain.end();
    let mut fast = pair.accelerate(&words);
    fast.line(SWITCHED);
    assert_eq!(answers(&pair), without);
    fast.signal("TERM");
    let ended = fast.end();
    balances(&ended);
    assert!(count(&ended, " answers by rings") >= 2, "{}", ended.err);
}
