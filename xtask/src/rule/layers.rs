//! os ← io, host, lab, http ← mpps, and report beside them. The manifests must keep this order of
//! crates.

use crate::finding::TidyFinding;
use crate::tree::RepositoryTree;
use toml::{Table, Value};

/// One crate of the workspace and the crates of ours that it may use.
struct CrateLayer {
    /// Its folder under `crates/`.
    folder: &'static str,
    uses: &'static [&'static str],
    /// The crates that its tests, examples and benchmarks may use besides.
    tests_use: &'static [&'static str],
}

/// The crates from the lowest to the highest. Tests of the middle ones may run in a lab.
const LAYERS: &[CrateLayer] = &[
    CrateLayer {
        folder: "trial",
        uses: &["mpps-os"],
        tests_use: &[],
    },
    CrateLayer {
        folder: "os",
        uses: &[],
        tests_use: &["mpps-trial"],
    },
    CrateLayer {
        folder: "lab",
        uses: &["mpps-os"],
        tests_use: &["mpps-trial"],
    },
    CrateLayer {
        folder: "io",
        uses: &["mpps-os"],
        tests_use: &["mpps-trial", "mpps-lab"],
    },
    CrateLayer {
        folder: "host",
        uses: &["mpps-os"],
        tests_use: &["mpps-trial", "mpps-lab"],
    },
    CrateLayer {
        folder: "http",
        uses: &["mpps-os"],
        tests_use: &["mpps-trial", "mpps-lab"],
    },
    CrateLayer {
        folder: "report",
        uses: &[],
        tests_use: &[],
    },
    CrateLayer {
        folder: "mpps",
        uses: &[
            "mpps-os",
            "mpps-io",
            "mpps-host",
            "mpps-lab",
            "mpps-http",
            "mpps-report",
        ],
        tests_use: &["mpps-trial"],
    },
];

pub(super) fn check(tree: &RepositoryTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (path, text) in tree.ending("toml") {
        let folder = path
            .strip_prefix("crates/")
            .and_then(|rest| rest.strip_suffix("/Cargo.toml"));
        let Some(folder) = folder else { continue };
        let Some(layer) = LAYERS.iter().find(|layer| layer.folder == folder) else {
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
            let allowed = layer.uses.contains(&&*used)
                || in_tests && (layer.tests_use.contains(&&*used) || used == own_name(layer));
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

fn own_name(layer: &CrateLayer) -> String {
    format!("mpps-{}", layer.folder)
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
