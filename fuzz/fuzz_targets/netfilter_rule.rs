//! The target `netfilter_rule` of the table, for the fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mpps_fuzz::run("netfilter_rule", data));
