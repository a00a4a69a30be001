//! The target `proc_stat` of the table, for the fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mpps_fuzz::run("proc_stat", data));
