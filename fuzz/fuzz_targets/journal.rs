//! The target `journal` of the table, for the fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mpps_fuzz::run("journal", data));
