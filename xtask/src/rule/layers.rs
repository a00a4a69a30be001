//! os ← io, host, lab, http ← mpps, and report beside them. The manifests must keep this order of
//! crates.

use crate::finding::TidyFinding;
use crate::tree::RepositoryTree;
use toml::{Table, Value};

/// The crates from the lowest to the highest: the folder under `crates/` of each, the crates of ours
/// that it may use, and those that its tests and examples may use besides. Tests of the middle ones
/// may run in a lab.
const LAYERS: &[(&str, &[&str], &[&str])] = &[
    ("trial", OS, &[]),
    ("os", &[], &["mpps-trial"]),
    ("lab", OS, &["mpps-trial"]),
    ("io", OS, &["mpps-trial", "mpps-lab"]),
    ("host", OS, &["mpps-trial", "mpps-lab"]),
    ("http", OS, &["mpps-trial", "mpps-lab"]),
    ("report", &[], &[]),
    ("accelerate", OS, &[]),
    ("mpps", ALL, &["mpps-trial"]),
];
const OS: &[&str] = &["mpps-os"];
const ALL: &[&str] = &[
    "mpps-accelerate",
    "mpps-os",
    "mpps-io",
    "mpps-host",
    "mpps-lab",
    "mpps-http",
    "mpps-report",
];

pub(super) fn check(tree: &RepositoryTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending("toml") {
        let folder = path
            .strip_prefix("crates/")
            .and_then(|rest| rest.strip_suffix("/Cargo.toml"));
        let Some(folder) = folder else { continue };
        let Some((_, uses, tests_use)) = LAYERS.iter().find(|(known, ..)| *known == folder) else {
            let message = format!("{folder} has no layer: add a row to LAYERS in {}", file!());
            findings.push(TidyFinding::new(path, 1, message));
            continue;
        };
        let manifest = match text.parse::<Table>() {
            Ok(manifest) => manifest,
            Err(error) => {
                findings.push(TidyFinding::new(path, 1, error.message()));
                continue;
            }
        };
        for (used, in_tests) in ours(&manifest) {
            let is_own = used.strip_prefix("mpps-") == Some(folder);
            let allowed =
                uses.contains(&&*used) || in_tests && (is_own || tests_use.contains(&&*used));
            if !allowed {
                let line = text.lines().position(|line| line.contains(&used));
                let message = format!(
                    "{folder} may not use {used}{}: move what both need one layer down, or join \
                     the two in mpps",
                    if in_tests { " in tests" } else { "" }
                );
                findings.push(TidyFinding::new(
                    path,
                    line.map_or(1, |line| line + 1),
                    message,
                ));
            }
        }
    }
    findings
}

/// The crates of ours that a manifest names, and whether only for its tests.
fn ours(manifest: &Table) -> Vec<(String, bool)> {
    let mut found = Vec::new();
    let targets = manifest.get("target").and_then(Value::as_table);
    let targets = targets.into_iter().flat_map(|table| table.values());
    for table in targets.filter_map(Value::as_table).chain([manifest]) {
        for (kind, in_tests) in [
            ("dependencies", false),
            ("build-dependencies", false),
            ("dev-dependencies", true),
        ] {
            let dependencies = table.get(kind).and_then(Value::as_table);
            for (key, value) in dependencies.into_iter().flatten() {
                let renamed = value.get("package").and_then(Value::as_str);
                let name = renamed.unwrap_or(key);
                if name == "mpps" || name.starts_with("mpps-") {
                    found.push((name.to_owned(), in_tests));
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::places;

    #[test]
    fn edges_that_go_sideways_or_up_are_found() {
        let files = [
            ("crates/os/Cargo.toml", "[dependencies]\nmpps-io = \"1\""),
            (
                "crates/io/Cargo.toml",
                "[dependencies.mpps-host]\npath = \"x\"",
            ),
            (
                "crates/host/Cargo.toml",
                "[dev-dependencies]\nmpps-io = \"1\"",
            ),
            (
                "crates/lab/Cargo.toml",
                "[target.'cfg(unix)'.dependencies]\nx = {package = \"mpps\"}",
            ),
            ("crates/quic/Cargo.toml", ""),
            ("crates/mpps/Cargo.toml", "[dependencies"),
        ];
        let found = [
            "crates/host/Cargo.toml:2",
            "crates/io/Cargo.toml:1",
            "crates/lab/Cargo.toml:2",
            "crates/mpps/Cargo.toml:1",
            "crates/os/Cargo.toml:2",
            "crates/quic/Cargo.toml:1",
        ];
        assert_eq!(places(check, &files), found);
    }

    #[test]
    fn edges_that_go_down_and_labs_in_tests_are_fine() {
        let io = "[dependencies]\nmpps-os.workspace = true\n[dev-dependencies]\nmpps-lab = \"1\"";
        let mpps = "[dependencies]\nmpps-io = \"1\"\nmpps-lab = \"1\"";
        let files = [
            ("crates/io/Cargo.toml", io),
            ("crates/mpps/Cargo.toml", mpps),
            ("xtask/Cargo.toml", "[dependencies]\nmpps-io = \"1\""),
        ];
        assert!(places(check, &files).is_empty());
    }

    #[test]
    fn a_lab_is_for_tests_only() {
        let files = [("crates/io/Cargo.toml", "[dependencies]\nmpps-lab = \"1\"")];
        assert_eq!(places(check, &files), ["crates/io/Cargo.toml:2"]);
    }
}
