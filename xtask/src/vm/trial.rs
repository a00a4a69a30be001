//! `cargo xtask vm test`: runs test programs in machines, two machines at a time.

use super::kernel::VmKernel;
use super::machine::{Cards, VmMachine};
use super::qemu::Early;
use super::{Hall, quoted};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::process::ExitCode;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

/// One for each CPU of this project's machines.
const AT_ONCE: usize = 2;
/// How long the tests of one machine may take.
const BOUND: Duration = Duration::from_secs(12 * 60);
/// How long the tests of all machines may take, once everything is built and fetched.
const BOUND_ALL: Duration = Duration::from_secs(25 * 60);
/// Lines shown of a machine that failed and names no trial, from the end.
const LINES: usize = 40;

/// The results of a machine's tests, counted from their lines `test result:`.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct TestCounts {
    passed: u32,
    failed: u32,
    ignored: u32,
}

/// The result of a machine.
#[derive(Debug)]
enum MachineResult {
    /// Its programs ran.
    Ran(TestCounts, i32),
    /// It did not run to its end.
    Lost(String),
    /// It could not be prepared.
    Absent(String),
}

/// Runs the tests of machines. Status 1 if a machine of a released suite fails. With
/// `MPPS_REQUIRE_LAB=1`, a machine that cannot be prepared fails too.
pub(super) fn run(hall: &Hall<'_>, machines: &[&VmMachine]) -> Result<ExitCode> {
    let strict = std::env::var("MPPS_REQUIRE_LAB").is_ok_and(|value| value == "1");
    if let Some(obstacle) = hall.obstacle() {
        println!("vm: {} machines skipped: {obstacle}", machines.len());
        println!(
            "vm: 0 passed, 0 failed, {} machines skipped",
            machines.len()
        );
        return Ok(ExitCode::from(u8::from(strict)));
    }
    hall.build(&["build", "--release"])?;
    hall.build(&[
        "build",
        "--release",
        "--package",
        "mpps-io",
        "--example",
        "readme",
    ])?;
    let programs = programs(hall, machines)?;
    // Kernels are fetched before anything runs: two machines may have the same one.
    let ready = machines
        .iter()
        .map(|machine| (*machine, hall.kernel(machine)));
    let mut ready: Vec<(&VmMachine, Result<VmKernel>)> = ready.collect();
    // If time runs out, it does so for machines that do not count.
    ready.sort_by_key(|(machine, _)| hall.machines.source(machine).moves);
    let deadline = Instant::now() + BOUND_ALL;
    let queue = Mutex::new(ready.iter());
    let tally = Mutex::new(MachineTally::default());
    let next = || queue.lock().ok()?.next();
    let work = || {
        while let Some((machine, kernel)) = next() {
            let started = Instant::now();
            let outcome = match kernel {
                Ok(kernel) => tried(hall, machine, kernel, &programs, deadline),
                Err(why) => MachineResult::Absent(format!("{why:#}")),
            };
            let fails = report(machine, &outcome, started.elapsed());
            let is_absent = matches!(outcome, MachineResult::Absent(_));
            let excused = hall.machines.source(machine).moves || is_absent && !strict;
            if fails && excused {
                println!("vm: {}: NOT COUNTED as a failure", machine.name);
            }
            if let Ok(mut tally) = tally.lock() {
                tally.add(&outcome, fails, excused);
                if fails && !is_absent {
                    tally.told.push((!excused, told(hall, machine)));
                }
                if fails && !excused {
                    tally.names.push(&machine.name);
                }
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(work);
        }
    });
    let mut tally = tally.into_inner().unwrap_or_default();
    // Failures that count come last, because a reader looks there first.
    tally.told.sort_by_key(|(counts, _)| *counts);
    tally.told.iter().for_each(|(_, told)| println!("{told}"));
    println!("vm: {} machines, {tally}", machines.len());
    Ok(ExitCode::from(u8::from(!tally.names.is_empty())))
}

/// The results of all machines.
#[derive(Debug, Default)]
struct MachineTally<'a> {
    trials: TestCounts,
    /// The machines whose failure counts.
    names: Vec<&'a str>,
    excused: u32,
    /// The reports of the machines that failed, and whether each counts.
    told: Vec<(bool, String)>,
}

impl MachineTally<'_> {
    fn add(&mut self, outcome: &MachineResult, fails: bool, excused: bool) {
        if let MachineResult::Ran(count, _) = outcome {
            self.trials.passed += count.passed;
            self.trials.failed += count.failed;
            self.trials.ignored += count.ignored;
        }
        self.excused += u32::from(fails && excused);
    }
}

impl fmt::Display for MachineTally<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let TestCounts {
            passed,
            failed,
            ignored,
        } = self.trials;
        let names = match &self.names[..] {
            [] => String::new(),
            names => format!(" ({})", names.join(", ")),
        };
        let (machines, excused) = (self.names.len(), self.excused);
        write!(f, "{machines} failed{names}, {excused} not counted; ")?;
        write!(
            f,
            "{passed} trials passed, {failed} failed, {ignored} ignored"
        )
    }
}

/// The folder and the file of each test program, by its package and name.
fn programs(
    hall: &Hall<'_>,
    machines: &[&VmMachine],
) -> Result<BTreeMap<(String, String), [String; 2]>> {
    let mut programs = BTreeMap::new();
    for test in machines.iter().flat_map(|machine| tests(machine)) {
        let [package, name, ..] = test.as_slice() else {
            anyhow::bail!("a test is a package and a program: {test:?}");
        };
        if programs.contains_key(&(package.clone(), name.clone())) {
            continue;
        }
        let build = [
            "test",
            "--no-run",
            "--message-format=json",
            "--package",
            package,
        ];
        let listing = hall.build(&[&build[..], &["--test", name]].concat())?;
        let found = listing.lines().find_map(|line| {
            let artifact: Value = serde_json::from_str(line).ok()?;
            let target = &artifact["target"];
            let is_it = target["name"] == name.as_str() && target["kind"][0] == "test";
            let folder = artifact["manifest_path"]
                .as_str()?
                .strip_suffix("/Cargo.toml")?;
            let file = artifact["executable"].as_str()?;
            is_it.then(|| [folder.to_owned(), file.to_owned()])
        });
        let found = found.with_context(|| format!("{package} has no test program {name}"))?;
        programs.insert((package.clone(), name.clone()), found);
    }
    Ok(programs)
}

/// The programs that a machine runs: package, program, and filters.
fn tests(machine: &VmMachine) -> Vec<Vec<String>> {
    let program = ["mpps", "machine"].map(str::to_owned);
    let own = [&program, &machine.only[..]].concat();
    [&[own], &machine.tests[..]].concat()
}

/// Runs one machine's programs.
fn tried(
    hall: &Hall<'_>,
    machine: &VmMachine,
    kernel: &VmKernel,
    programs: &BTreeMap<(String, String), [String; 2]>,
    deadline: Instant,
) -> MachineResult {
    let run = || -> Result<MachineResult> {
        let output = hall.output(machine);
        if output.exists() {
            fs::remove_file(&output)?;
        }
        let start = hall.start(machine, kernel);
        let driver = machine.cards.map_or("veth", Cards::driver);
        let mut job = format!(
            "status=0\necho '{} {} '$(uname -r)' {driver}'\n",
            crate::seen::HEAD,
            machine.name
        );
        for test in tests(machine) {
            let [folder, file] = &programs[&(test[0].clone(), test[1].clone())];
            let filters: Vec<String> = test[2..].iter().map(|word| quoted(word)).collect();
            job.push_str(&format!(
                "cd {} && {} --test-threads=1 --color=never {} || status=1\n",
                quoted(folder),
                quoted(file),
                filters.join(" ")
            ));
        }
        job.push_str("exit $status\n");
        fs::create_dir_all(hall.root.join("target/vm"))?;
        let attempt = || {
            let left = deadline.saturating_duration_since(Instant::now());
            ensure!(!left.is_zero(), "no time was left for it");
            start.job(&job, File::create(&output)?.into(), left.min(BOUND))
        };
        let status = attempt().or_else(|error| match error.downcast_ref::<Early>() {
            Some(early) if early.is_of_qemu() => {
                println!("vm: {}: started once more: {early}", machine.name);
                attempt()
            }
            _ => Err(error),
        })?;
        Ok(MachineResult::Ran(
            counted(&fs::read_to_string(output)?),
            status,
        ))
    };
    run().unwrap_or_else(|error| MachineResult::Lost(format!("{error:#}")))
}

/// Adds up the results that test programs printed at their end.
fn counted(output: &str) -> TestCounts {
    let mut count = TestCounts::default();
    for line in output
        .lines()
        .filter_map(|line| line.strip_prefix("test result:"))
    {
        for part in line.split([';', '.']) {
            let mut words = part.split_whitespace();
            let number = words.next().and_then(|word| word.parse::<u32>().ok());
            match (number, words.next()) {
                (Some(number), Some("passed")) => count.passed += number,
                (Some(number), Some("failed")) => count.failed += number,
                (Some(number), Some("ignored")) => count.ignored += number,
                _ => {}
            }
        }
    }
    count
}

/// Prints the result. Returns true if it is a failure.
fn report(machine: &VmMachine, outcome: &MachineResult, time: Duration) -> bool {
    let (name, seconds) = (&machine.name, time.as_secs());
    match outcome {
        MachineResult::Ran(count, 0) if count.passed > 0 && count.ignored == machine.ignored => {
            let TestCounts {
                passed, ignored, ..
            } = count;
            println!("vm: {name}: {passed} passed, {ignored} ignored, {seconds} s");
            false
        }
        MachineResult::Ran(count, status) => {
            let expected = machine.ignored;
            println!(
                "vm: {name}: FAILED, status {status}, {count:?}, {expected} to be ignored, \
                 {seconds} s"
            );
            true
        }
        MachineResult::Absent(why) => {
            println!("vm: {name}: FAILED, it cannot be had: {why}");
            true
        }
        MachineResult::Lost(why) => {
            println!("vm: {name}: FAILED, {seconds} s: {why}");
            true
        }
    }
}

/// The output of failed trials of a machine, and the file with the rest.
fn told(hall: &Hall<'_>, machine: &VmMachine) -> String {
    let file = hall.output(machine);
    let text = fs::read_to_string(&file).unwrap_or_default();
    format!(
        "vm: {}: {}\n{}",
        machine.name,
        file.display(),
        failures(&text)
    )
}

/// The output of failed trials, which test programs print before their result. If no trial failed,
/// the last lines of the output.
fn failures(output: &str) -> String {
    let mut is_told = false;
    let failed: Vec<&str> = output
        .lines()
        .filter(|line| {
            is_told = (is_told || *line == "failures:") && !line.starts_with("test result:");
            is_told
        })
        .collect();
    if !failed.is_empty() {
        return failed.join("\n");
    }
    let lines: Vec<&str> = output.lines().collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_several_programs_are_added_up() {
        let output = "test a ... ok\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 1.20s\n\
            test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out\n";
        let count = TestCounts {
            passed: 7,
            failed: 2,
            ignored: 1,
        };
        assert_eq!(counted(output), count);
        assert_eq!(counted("nothing ran\n"), TestCounts::default());
    }

    #[test]
    fn what_failed_is_told_and_without_it_the_end() {
        let output = "test a ... FAILED\n\nfailures:\n\n---- a ----\nwhy\n\nfailures:\n    a\n\n\
            test result: FAILED. 0 passed; 1 failed\ntest b ... ok\n";
        assert_eq!(
            failures(output),
            "failures:\n\n---- a ----\nwhy\n\nfailures:\n    a\n"
        );
        let lines: Vec<String> = (0..100).map(|line| line.to_string()).collect();
        assert_eq!(failures(&lines.join("\n")), lines[60..].join("\n"));
        assert_eq!(failures(""), "");
    }
}
