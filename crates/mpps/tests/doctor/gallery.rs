//! The table of the gallery, docs/gallery.md: each scenario with the expected finding and the real
//! one. With `MPPS_GALLERY=write` each scenario that runs writes its line anew.

use super::{
    connections, delivery, others, outward, packets, pairs, refusals, servers, sockets, tunnels,
};
use mpps_trial::Trial;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

/// The finding for a host without a fault.
const NOTHING: &str = "nothing";

/// The trials that have a line.
pub(crate) fn scenarios() -> Vec<Trial> {
    let parts = [
        sockets::trials(),
        packets::trials(),
        refusals::trials(),
        delivery::trials(),
        connections::trials(),
        outward::trials(),
        pairs::trials(),
        others::trials(),
        tunnels::trials(),
        servers::trials(),
    ];
    parts.into_iter().flatten().collect()
}

/// The page has all of them, and no other.
pub(crate) fn the_gallery_is_of_these_scenarios() {
    let names = scenarios()
        .iter()
        .map(|trial| short(trial.name()).to_owned())
        .collect::<Vec<_>>();
    let text = fs::read_to_string(page()).expect("it is there");
    let mut told: Vec<_> = rows(&text).into_keys().collect();
    let mut names = names;
    told.sort();
    names.sort();
    assert_eq!(
        told, names,
        "MPPS_GALLERY=write writes the lines of what runs"
    );
}

/// Writes the line of the scenario that this process is, if that is asked for.
pub(crate) fn add(expected: &[&str], found: &[(&str, u64)]) {
    if !std::env::var("MPPS_GALLERY").is_ok_and(|value| value == "write") {
        return;
    }
    let words = |all: Vec<String>| match all.len() {
        0 => NOTHING.to_owned(),
        _ => all.join(", "),
    };
    let expected = words(expected.iter().map(|check| (*check).to_owned()).collect());
    let found = found
        .iter()
        .map(|(check, count)| format!("{check} {count}"));
    let found = words(found.collect());
    let name = mpps_trial::own_name().expect("a trial's own process");
    // Others may write theirs meanwhile.
    let page = page();
    let lock = File::open(&page).expect("it is there");
    lock.lock().expect("it can be locked");
    let mut rows = rows(&fs::read_to_string(&page).expect("it is there"));
    rows.insert(short(&name).to_owned(), format!("| {expected} | {found} |"));
    fs::write(&page, document(&rows)).expect("it can be written");
}

fn short(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// The lines of the table, by their scenarios.
fn rows(text: &str) -> BTreeMap<String, String> {
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` "));
    lines
        .map(|(name, rest)| (name.to_owned(), rest.to_owned()))
        .collect()
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/gallery.md")
}

fn document(rows: &BTreeMap<String, String>) -> String {
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").expect("/proc is mounted");
    let lines = rows
        .iter()
        .map(|(name, rest)| format!("| `{name}` {rest}\n"));
    format!(
        "# The gallery of faults\n\n\
         Each scenario is a host of the lab with one fault, two faults or none. The table shows the \
         findings of `mpps doctor` in their order, each with its lost packets. A test holds the doctor to \
         these counts. Where only the kernel knows the count, the test reads it by another way. \
         [doctor.md](doctor.md) says what each check reads and when it speaks.\n\n\
         One run of `MPPS_GALLERY=write cargo test -p mpps doctor::` (as root), Linux {}, {} \
         scenarios. Counts of full buffers differ from run to run.\n\n\
         | scenario | expected | found |\n| --- | --- | --- |\n{}",
        kernel.trim(),
        rows.len(),
        lines.collect::<String>()
    )
}
