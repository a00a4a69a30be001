//! What the fuzzers try, without the fuzzer: one function a target.
//!
//! Each takes any bytes, panics if the code under test breaks a promise, and returns whether the
//! bytes were of the kind that it reads. `seeds/<target>/` holds examples; a plain `cargo test`
//! here replays them all, so what a fuzzer once found stays found without one.
#![forbid(unsafe_code)]

mod datagrams;
mod http;
mod kernel;
mod load;
mod results;

/// Something to fuzz.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name, which is also that of its file in `fuzz_targets/` and its folder in `seeds/`.
    pub name: &'static str,
    /// Tries it on some bytes; true if they were of its kind.
    pub run: fn(&[u8]) -> bool,
}

/// Every target.
pub const TARGETS: &[Target] = &[
    Target {
        name: "stamp",
        run: datagrams::stamp,
    },
    Target {
        name: "capture",
        run: datagrams::capture,
    },
    Target {
        name: "snmp_pairs",
        run: kernel::snmp_pairs,
    },
    Target {
        name: "snmp_rows",
        run: kernel::snmp_rows,
    },
    Target {
        name: "softnet",
        run: kernel::softnet,
    },
    Target {
        name: "proc_stat",
        run: kernel::proc_stat,
    },
    Target {
        name: "cpu_list",
        run: kernel::cpu_list,
    },
    Target {
        name: "interrupts",
        run: kernel::interrupts,
    },
    Target {
        name: "sockets",
        run: kernel::sockets,
    },
    Target {
        name: "btf",
        run: kernel::btf,
    },
    Target {
        name: "lab_result",
        run: results::lab_result,
    },
    Target {
        name: "bench_result",
        run: results::bench_result,
    },
    Target {
        name: "journal",
        run: results::journal,
    },
    Target {
        name: "totals",
        run: results::totals,
    },
    Target {
        name: "http_request",
        run: http::http_request,
    },
    Target {
        name: "http_response",
        run: load::http_response,
    },
    Target {
        name: "url",
        run: load::url,
    },
];

/// Tries the target of that name.
///
/// # Panics
/// If there is none, or if the target finds something.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    let target = target.expect("every file in fuzz_targets/ has a row in TARGETS");
    (target.run)(data);
}
