//! Tables of trials by kernel and network card, from the newest results of `cargo xtask vm test`.

use crate::tree::RepositoryTree;
use std::collections::BTreeMap;

/// The name of a results folder, after its date.
pub(crate) const FOLDER: &str = "machines";
/// The first word of a machine's results. Its name, its kernel, and the driver of its cards follow.
pub(crate) const HEAD: &str = "machine:";
/// Only trials of the program `machine` count.
const TRIAL: &str = "test mpps ";

/// One machine's results.
#[derive(Debug, Default)]
struct SeenMachine<'a> {
    name: &'a str,
    kernel: &'a str,
    driver: &'a str,
    /// The trials, and their outcomes.
    trials: BTreeMap<&'a str, &'a str>,
}

/// The outcome of each command and backend on each kernel, between two hosts joined by a veth.
pub(crate) fn kernels(tree: &RepositoryTree) -> String {
    let mut machines = machines(tree);
    // Machines that only differ in their CPUs show nothing new here.
    machines.retain(|machine| machine.driver == "veth" && machine.name == series(machine));
    machines.sort_by_key(|machine| numbers(machine.kernel));
    table(&machines, "oldest kernel seen", |machine| {
        machine.kernel.to_owned()
    })
}

/// The outcome of each command and backend between two cards.
pub(crate) fn cards(tree: &RepositoryTree) -> String {
    let mut machines = machines(tree);
    machines.retain(|machine| machine.driver != "veth" && !machine.trials.is_empty());
    table(&machines, "", |machine| {
        format!("{}, {}", machine.name, machine.kernel)
    })
}

/// The name of the machine that represents a kernel: its first two numbers, or `newest`.
fn series<'a>(machine: &SeenMachine<'a>) -> &'a str {
    if machine.name == "newest" {
        return "newest";
    }
    let end = machine.kernel.match_indices('.').nth(1);
    end.map_or(machine.kernel, |(at, _)| &machine.kernel[..at])
}

fn numbers(kernel: &str) -> Vec<u32> {
    let words = kernel.split(|c: char| !c.is_ascii_digit());
    words.map_while(|word| word.parse().ok()).collect()
}

/// The machines of the newest folder of results.
fn machines(tree: &RepositoryTree) -> Vec<SeenMachine<'_>> {
    let results = || {
        tree.ending("txt").filter_map(|(path, text)| {
            let (folder, _) = path.strip_prefix("docs/results/")?.split_once('/')?;
            folder.ends_with(FOLDER).then_some((folder, text))
        })
    };
    let newest = results().map(|(folder, _)| folder).max();
    let texts = results().filter(|(folder, _)| Some(*folder) == newest);
    texts.filter_map(|(_, text)| read(text)).collect()
}

fn read(text: &str) -> Option<SeenMachine<'_>> {
    let head = text.lines().find_map(|line| line.strip_prefix(HEAD))?;
    let mut words = head.split_whitespace();
    let mut machine = SeenMachine {
        name: words.next()?,
        kernel: words.next()?,
        driver: words.next()?,
        trials: BTreeMap::new(),
    };
    // A trial that prints something has its outcome on a later line.
    let mut speaking = None;
    for line in text.lines() {
        if line.starts_with(TRIAL) {
            let (name, outcome) = line["test ".len()..].split_once("...")?;
            let (name, outcome) = (name.trim(), outcome.trim());
            let is_told = is_outcome(outcome) || outcome.starts_with("ignored");
            speaking = (!is_told).then_some(name);
            machine.trials.insert(name, outcome);
        } else if let Some(name) = speaking.filter(|_| is_outcome(line)) {
            machine.trials.insert(name, line);
            speaking = None;
        }
    }
    Some(machine)
}

fn is_outcome(line: &str) -> bool {
    ["ok", "FAILED"].contains(&line)
}

/// A row for each trial, and a column for each machine. Below them are the reasons of trials that
/// do not work.
fn table(
    machines: &[SeenMachine<'_>],
    oldest: &str,
    column: impl Fn(&SeenMachine<'_>) -> String,
) -> String {
    let mut names: Vec<&str> = machines
        .iter()
        .flat_map(|m| m.trials.keys().copied())
        .collect();
    names.sort_unstable();
    names.dedup();
    let columns: Vec<String> = machines.iter().map(column).collect();
    let mut table = format!("| | {} |", columns.join(" | "));
    let mut rule = format!("|---|{}", "---|".repeat(machines.len()));
    if !oldest.is_empty() {
        table.push_str(&format!(" {oldest} |"));
        rule.push_str("---|");
    }
    table.push_str(&format!("\n{rule}\n"));
    let mut reasons = String::new();
    for name in names {
        table.push_str(&format!("| `{name}` |"));
        for (machine, column) in machines.iter().zip(&columns) {
            let outcome = machine.trials.get(name).copied().unwrap_or("not tried");
            let (word, why) = told(outcome);
            table.push_str(&format!(" {word} |"));
            if !why.is_empty() {
                reasons.push_str(&format!("* `{name}` on {column}: {why}\n"));
            }
        }
        if !oldest.is_empty() {
            let works = |machine: &&SeenMachine<'_>| machine.trials.get(name) == Some(&"ok");
            let first = machines.iter().find(works);
            table.push_str(&format!(" {} |", first.map_or("none", |m| m.kernel)));
        }
        table.push('\n');
    }
    if !reasons.is_empty() {
        table.push_str(&format!(
            "\nWhat does not work there, and why:\n\n{reasons}"
        ));
    }
    table
}

/// A cell of the table, and the reason for it.
fn told(outcome: &str) -> (&str, &str) {
    if let Some(why) = outcome.strip_prefix("ignored") {
        let why = why.trim().strip_prefix('(').unwrap_or(why.trim());
        let why = why.strip_suffix(')').unwrap_or(why);
        return ("no", why.trim_start_matches("mpps: "));
    }
    match outcome {
        "ok" => ("yes", ""),
        "FAILED" => ("**fails**", ""),
        other => (other, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &str = "machine: 5.10 5.10.0-46-amd64 veth\n\
        test mpps lab ... ok\ntest mpps recv --backend io_uring ... ignored (mpps: Linux 6.1 (or later))\n";
    const NEW: &str = "machine: newest 7.2.13+deb14-amd64 veth\n\
        test mpps lab ... ok\ntest mpps recv --backend io_uring ... ok\n";
    const CARD: &str = "machine: igb 6.12.117+deb12-amd64 igb\n\
        test mpps recv --backend io_uring   ... FAILED\ntest other ... ok\n\
        test mpps serve ... 400 requests\n2 queues\nok\ntest mpps steer ... 3 flows\nFAILED\n";

    #[test]
    fn kernels_and_cards_have_their_tables() {
        let tree = RepositoryTree::of(&[
            (
                "docs/results/2026-01-01-machines/5.10.txt",
                "machine: 5.10 5.9 veth\n",
            ),
            ("docs/results/2026-01-02-machines/5.10.txt", OLD),
            ("docs/results/2026-01-02-machines/igb.txt", CARD),
            ("docs/results/2026-01-02-machines/newest.txt", NEW),
        ]);
        let kernels = kernels(&tree);
        let lines: Vec<&str> = kernels.lines().collect();
        assert_eq!(
            lines[0],
            "| | 5.10.0-46-amd64 | 7.2.13+deb14-amd64 | oldest kernel seen |"
        );
        assert_eq!(lines[2], "| `mpps lab` | yes | yes | 5.10.0-46-amd64 |");
        assert_eq!(
            lines[3],
            "| `mpps recv --backend io_uring` | no | yes | 7.2.13+deb14-amd64 |"
        );
        assert!(
            lines
                .last()
                .unwrap()
                .ends_with("5.10.0-46-amd64: Linux 6.1 (or later)")
        );
        let cards = cards(&tree);
        assert!(
            cards.contains("| `mpps recv --backend io_uring` | **fails** |\n"),
            "{cards}"
        );
        assert!(!cards.contains("other"));
        assert!(cards.contains("| `mpps serve` | yes |\n"), "{cards}");
        assert!(cards.contains("| `mpps steer` | **fails** |\n"), "{cards}");
    }

    #[test]
    fn without_results_there_is_an_empty_table() {
        assert_eq!(kernels(&RepositoryTree::of(&[])).lines().count(), 2);
    }
}
