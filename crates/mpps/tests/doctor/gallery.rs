//! The table of the gallery: each scenario with what was to be found and what was. It is printed at the
//! end of a run, and docs/gallery.md has it; with `MPPS_GALLERY=write` a run of all writes that page.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::process::parent_id;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What a trial's own process has in its environment.
const APART: &str = "MPPS_TRIAL_APART";
/// What is found of a host with which nothing is wrong.
const NOTHING: &str = "nothing";

/// What one scenario was to show, and what it did.
type Row = (String, String);

/// Adds the line of the scenario that this process runs, which its arguments name.
pub(crate) fn add(expected: &[&str], found: &[(&str, u64)]) {
    let mut arguments = std::env::args().skip(1);
    let name = arguments
        .find(|argument| !argument.starts_with('-'))
        .unwrap_or_default();
    let words = |all: Vec<String>| match all.len() {
        0 => NOTHING.to_owned(),
        _ => all.join(", "),
    };
    let expected = words(expected.iter().map(|check| (*check).to_owned()).collect());
    let found = words(
        found
            .iter()
            .map(|(check, count)| format!("{check} {count}"))
            .collect(),
    );
    // A trial's process that was started by hand has no table.
    let Ok(mut file) = OpenOptions::new().append(true).open(file(parent_id())) else {
        return;
    };
    writeln!(file, "{name}\t{expected}\t{found}").expect("it can be written");
}

/// Runs the trials and shows their table; a run of so many scenarios, which is all of them, is held to
/// the page.
pub(crate) fn show(scenarios: usize, run: impl FnOnce() -> ExitCode) -> ExitCode {
    if std::env::var_os(APART).is_some() {
        return run();
    }
    let file = file(std::process::id());
    fs::write(&file, "").expect("a directory for such files");
    let status = run();
    let rows = rows(&fs::read_to_string(&file).expect("it is there"));
    fs::remove_file(&file).expect("it is there");
    for (name, (expected, found)) in &rows {
        let line = format!("{name:42} expected {expected:34} found {found}");
        writeln!(std::io::stdout(), "{line}").expect("standard output is open");
    }
    // Some were filtered out, could not be run here, or failed.
    if rows.len() < scenarios || status != ExitCode::SUCCESS {
        return status;
    }
    if std::env::var("MPPS_GALLERY").is_ok_and(|value| value == "write") {
        fs::write(page(), document(&rows)).expect("it can be written");
    }
    // What is expected depends on the kernel in some of them.
    let text = fs::read_to_string(page()).unwrap_or_default();
    let told = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    match told.eq(rows.keys()) {
        true => status,
        false => {
            let said = "docs/gallery.md is of other scenarios; MPPS_GALLERY=write writes it anew";
            writeln!(std::io::stdout(), "{said}").expect("standard output is open");
            ExitCode::FAILURE
        }
    }
}

/// Where the trials of the process with this number add their lines.
fn file(process: u32) -> PathBuf {
    std::env::temp_dir().join(format!("mpps-gallery-{process}"))
}

/// The last line of each scenario: one that was disturbed is run again.
fn rows(text: &str) -> BTreeMap<String, Row> {
    let rows = text.lines().filter_map(|line| {
        let mut columns = line.split('\t').map(str::to_owned);
        Some((columns.next()?, (columns.next()?, columns.next()?)))
    });
    rows.collect()
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/gallery.md")
}

fn document(rows: &BTreeMap<String, Row>) -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").expect("/proc is mounted");
    let lines = rows
        .iter()
        .map(|(name, (expected, found))| format!("| `{name}` | {expected} | {found} |\n"));
    format!(
        "# The gallery of faults\n\n\
         Hosts of a lab with one fault each, made on purpose, with two, or with none, and what `mpps doctor` \
         said of them: its findings in their order, with the packets that each cost. Counts are exact; where \
         only the kernel knows the count, the test reads it by another way, and holds the doctor to that. \
         What each check reads and when it speaks: [doctor.md](doctor.md).\n\n\
         One run of `cargo test -p mpps --test doctor` (as root; it prints this table), Linux {}, {} \
         scenarios. Counts of full buffers differ from run to run.\n\n\
         | scenario | expected | found |\n| --- | --- | --- |\n{}",
        kernel.trim(),
        rows.len(),
        lines.collect::<String>()
    )
}
