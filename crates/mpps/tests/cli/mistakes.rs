//! Command lines that cannot work, and the error for each.

use super::{expect_named, expect_refusal};
use crate::common::{mpps, run};
use std::fs;

/// A command line that cannot work.
pub(crate) struct Mistake {
    pub(crate) name: &'static str,
    arguments: &'static [&'static str],
    /// Words that the error must contain: the mistake, and the remedy.
    names: &'static [&'static str],
    /// The argument parser's own errors show the usage as well.
    usage: bool,
}

const fn mistake(
    name: &'static str,
    arguments: &'static [&'static str],
    names: &'static [&'static str],
) -> Mistake {
    Mistake {
        name,
        arguments,
        names,
        usage: false,
    }
}

const fn misuse(
    name: &'static str,
    arguments: &'static [&'static str],
    names: &'static [&'static str],
) -> Mistake {
    Mistake {
        name,
        arguments,
        names,
        usage: true,
    }
}

/// The discard port of RFC 863. These commands never send to it.
const TO: &str = "127.0.0.1:9";
/// An address of a documentation range (RFC 5737), which no interface has.
pub(crate) const NOT_OURS: &str = "192.0.2.77:4321";

pub(crate) const MISTAKES: &[Mistake] = &[
    mistake(
        "interface_of_placement",
        &["placement", "--interface", "nosuch0", "--port", "4321"],
        &[
            "--interface",
            "there is no interface nosuch0",
            "this host has lo",
        ],
    ),
    mistake(
        "path_of_ndr",
        &["ndr", "nosuch"],
        &["nosuch", "mpps bench --list"],
    ),
    misuse(
        "loss_of_ndr",
        &["ndr", "--loss", "0,150%"],
        &["--loss", "150%", "0.5%"],
    ),
    mistake(
        "loads_of_ndr",
        &["ndr", "--min", "20k", "--max", "10k"],
        &["--min 20000", "--max 10000"],
    ),
    mistake(
        "no_such_address",
        &["recv", NOT_OURS],
        &[NOT_OURS, "ip address"],
    ),
    mistake(
        "cpu_of_recv",
        &["recv", "127.0.0.1:0", "--pin", "8191"],
        &["--pin", "CPU 8191", "this host has 0"],
    ),
    mistake(
        "cpu_of_send",
        &["send", TO, "--pin", "0,8191"],
        &["--pin", "CPU 8191", "this host has 0"],
    ),
    mistake(
        "size_v4",
        &["send", TO, "--size", "65508"],
        &["--size 65508", "65507"],
    ),
    mistake(
        "size_v6",
        &["send", "[::1]:9", "--size", "65528"],
        &["--size 65528", "65527"],
    ),
    mistake(
        "gso_segments",
        &["send", TO, "--gso", "129"],
        &["--gso 129", "128"],
    ),
    mistake(
        "gso_none",
        &["send", TO, "--gso", "0"],
        &["--gso 0", "1 to 128"],
    ),
    mistake(
        "gso_bytes",
        &["send", TO, "--gso", "64", "--size", "1400"],
        &["--gso 64", "46 segments"],
    ),
    mistake(
        "batch_recv",
        &["recv", "127.0.0.1:0", "--batch", "0"],
        &["--batch 0", "1 to 1024"],
    ),
    mistake(
        "batch_send",
        &["send", TO, "--batch", "1025"],
        &["--batch 1025", "1 to 1024"],
    ),
    mistake(
        "buffer",
        &["recv", "127.0.0.1:0", "--buffer", "1M"],
        &["--buffer 1048576", "65536"],
    ),
    mistake(
        "flows",
        &["send", TO, "--flows", "0"],
        &["--flows 0", "1 to 65535"],
    ),
    mistake(
        "flows_beyond_the_last_port",
        &["send", TO, "--source-port", "65000", "--flows", "1000"],
        &["--flows 1000", "65000"],
    ),
    mistake(
        "port_zero",
        &["send", "127.0.0.1:0"],
        &["127.0.0.1:0", "ADDR:PORT"],
    ),
    mistake(
        "stamp_without_room",
        &["send", TO, "--stamp", "--size", "15"],
        &["--stamp", "--size 16"],
    ),
    mistake(
        "fewer_threads_than_targets",
        &["send", TO, "127.0.0.1:10", "--threads", "1"],
        &["--threads 1", "2 targets"],
    ),
    mistake(
        "backend_unknown_to_recv",
        &["recv", "--backend", "nosuch"],
        &["--backend", "`nosuch`", "recvmmsg"],
    ),
    mistake(
        "backend_unknown_to_send",
        &["send", TO, "--backend", "nosuch"],
        &["--backend", "`nosuch`", "sendmmsg"],
    ),
    mistake(
        "backend_that_sends",
        &["recv", "--backend", "sendmmsg"],
        &["--backend sendmmsg", "mpps backends"],
    ),
    mistake(
        "backend_that_receives",
        &["send", TO, "--backend", "recv"],
        &["--backend recv", "mpps backends"],
    ),
    mistake(
        "backend_inside_one_process",
        &["recv", "--backend", "memory"],
        &["--backend memory", "one process"],
    ),
    mistake(
        "steer_without_reuseport",
        &["recv", "--steer", "cpu"],
        &["--steer cpu", "--reuseport"],
    ),
    mistake(
        "steer_without_pin",
        &["recv", "--steer", "cpu", "--reuseport"],
        &["--steer cpu", "--pin"],
    ),
    mistake(
        "join_of_no_group",
        &["recv", "--join", "10.0.0.1"],
        &["--join 10.0.0.1", "224.0.0.0/4"],
    ),
    mistake(
        "join_of_no_address",
        &["recv", "--join", "eth0"],
        &["--join eth0", "239.1.2.3"],
    ),
    mistake(
        "join_at_no_interface",
        &["recv", "--join", "239.1.2.3%nosuch0"],
        &["nosuch0", "this host has lo"],
    ),
    mistake(
        "join_of_the_other_ip",
        &["recv", "--join", "ff02::1%lo"],
        &["--join ff02::1", "IP version"],
    ),
    mistake(
        "rung",
        &["lab", "--only", "1,99"],
        &["--only 99", "mpps lab --list"],
    ),
    misuse(
        "json_without_an_equals_sign",
        &["lab", "--json", "x.json"],
        &["did you mean --json=x.json?"],
    ),
    misuse(
        "json_of_bench_without_an_equals_sign",
        &["bench", "--json", "x.json"],
        &["did you mean --json=x.json?"],
    ),
    mistake(
        "one_file_for_two",
        &["lab", "--json=x", "--html", "x"],
        &["--json", "--html", "same file"],
    ),
    mistake(
        "no_such_program",
        &["lab", "--", "nosuch-program"],
        &["nosuch-program"],
    ),
    mistake(
        "no_such_result",
        &["compare", "/nosuch/a.json", "b.json"],
        &["/nosuch/a.json"],
    ),
    mistake(
        "no_such_total",
        &["ledger", "/nosuch/s.json", "r.json"],
        &["/nosuch/s.json"],
    ),
    misuse(
        "interface_without_port",
        &["placement", "--interface", "lo"],
        &["--port"],
    ),
    misuse(
        "port_without_interface",
        &["placement", "--port", "4321"],
        &["--interface"],
    ),
    misuse(
        "port_zero",
        &["placement", "--interface", "lo", "--port", "0"],
        &["--port", "1..=65535"],
    ),
    misuse(
        "zero_threads",
        &["recv", "127.0.0.1:0", "--threads", "0"],
        &["--threads", "1..=1024"],
    ),
    misuse(
        "zero_threads_by_place",
        &["recv", "127.0.0.1:0", "0"],
        &["[THREADS]", "1..=1024"],
    ),
    misuse(
        "zero_sending_threads",
        &["send", TO, "--threads", "0"],
        &["--threads", "1..=127"],
    ),
    misuse(
        "threads_said_twice",
        &["recv", "127.0.0.1:0", "4", "--threads", "4"],
        &["[THREADS]", "--threads"],
    ),
    misuse(
        "reuseport_said_twice",
        &["recv", "127.0.0.1:0", "4", "1", "--shared"],
        &["[REUSEPORT]", "--shared"],
    ),
    misuse(
        "reuseport_of_two",
        &["recv", "127.0.0.1:0", "4", "2"],
        &["[REUSEPORT]", "0..=1"],
    ),
    misuse(
        "no_address",
        &["recv", "localhost"],
        &["localhost", "ADDR:PORT"],
    ),
    misuse("no_target", &["send"], &["ADDR:PORT"]),
    misuse(
        "rate_of_zero",
        &["send", TO, "--rate", "0"],
        &["--rate", "above zero"],
    ),
    misuse(
        "no_time",
        &["send", TO, "--duration", "soon"],
        &["--duration", "soon", "300ms"],
    ),
    misuse("no_cpus", &["recv", "--pin", "3-1"], &["--pin", "3-1"]),
    misuse("ladder", &["lab", "sctp"], &["sctp"]),
    misuse(
        "no_repeats",
        &["lab", "--repeat", "0"],
        &["--repeat", "1..=1000"],
    ),
    misuse(
        "quick_and_slow",
        &["lab", "--quick", "--seconds", "2"],
        &["--quick", "--duration"],
    ),
    misuse("no_subcommand", &[], &["Usage: mpps"]),
    misuse("subcommand", &["recieve"], &["recieve"]),
];

/// Makes the mistake, and checks the error.
pub(crate) fn make(mistake: &Mistake) {
    let directory = tempfile::tempdir().expect("a directory can be had");
    let ended = run(mpps(mistake.arguments).current_dir(&directory));
    if mistake.usage {
        assert_eq!(ended.code(), 2, "{ended:#?}");
        assert!(ended.out.is_empty(), "{ended:#?}");
        expect_named(&ended, mistake.names);
    } else {
        expect_refusal(&ended, mistake.names);
    }
    let left = fs::read_dir(&directory).expect("it is still there").count();
    assert_eq!(left, 0, "files were left behind");
}
