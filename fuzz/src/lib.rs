//! The targets of the fuzzers, without the fuzzer: one function each.
//!
//! Each takes any bytes, and panics if the code under test breaks a promise. It returns something if
//! the bytes were of the kind that it reads. A plain `cargo test` replays all of `seeds/<target>/`.
#![forbid(unsafe_code)]

mod datagrams;
mod http;
mod kernel;
mod load;
mod results;

/// A target of the fuzzer.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Its name. Its file in `fuzz_targets/` and its folder in `seeds/` have the same name.
    pub name: &'static str,
    /// Tries it on some bytes. Returns something if they were of its kind.
    pub run: fn(&[u8]) -> Option<()>,
}

const fn target(name: &'static str, run: fn(&[u8]) -> Option<()>) -> Target {
    Target { name, run }
}

/// Every target.
pub const TARGETS: &[Target] = &[
    target("stamp", datagrams::stamp),
    target("capture", datagrams::capture),
    target("snmp_pairs", kernel::snmp_pairs),
    target("snmp_rows", kernel::snmp_rows),
    target("softnet", kernel::softnet),
    target("proc_stat", kernel::proc_stat),
    target("cpu_list", kernel::cpu_list),
    target("interrupts", kernel::interrupts),
    target("sockets", kernel::sockets),
    target("netfilter_rule", kernel::netfilter_rule),
    target("btf", kernel::btf),
    target("lab_result", results::lab_result),
    target("bench_result", results::bench_result),
    target("journal", results::journal),
    target("totals", results::totals),
    target("http_request", http::http_request),
    target("http_response", load::http_response),
    target("url", load::url),
];

/// Tries the target of that name.
///
/// # Panics
/// If there is none, or if the target finds something.
pub fn run(name: &str, data: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    let target = target.expect("every file in fuzz_targets/ has a row in TARGETS");
    let _ = (target.run)(data);
}
