//! The target `bench_result` of the table, for the fuzzer.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| mpps_fuzz::run("bench_result", data));
