//! `cargo xtask docs`: tables of the documentation that come from the code and from results.

use crate::habits;
use crate::seen;
use crate::tree::RepositoryTree;
use anyhow::{Context, Result, bail};
use mpps_host::{CHECKS, Check};
use mpps_io::{BACKENDS, Layer};
use std::fs;
use std::path::Path;
use std::process::ExitCode;

/// A table between the lines `<!-- NAME -->` and `<!-- /NAME -->` of a file.
pub(crate) struct MarkedTable {
    pub(crate) path: &'static str,
    pub(crate) name: &'static str,
    make: fn(&RepositoryTree) -> String,
}

/// Every table. It leaves out files and results that the tree does not have.
pub(crate) const TABLES: &[MarkedTable] = &[
    MarkedTable {
        path: "docs/backends.md",
        name: "backends",
        make: |_| backends(),
    },
    MarkedTable {
        path: "docs/doctor.md",
        name: "checks",
        make: |_| checks(),
    },
    MarkedTable {
        path: "docs/kernels.md",
        name: "kernels",
        make: seen::kernels,
    },
    MarkedTable {
        path: "docs/cards.md",
        name: "cards",
        make: seen::cards,
    },
];

/// Writes the tables into their files.
pub(crate) fn run(root: &Path, _: &[String]) -> Result<ExitCode> {
    let tree = RepositoryTree::read(root)?;
    for table in TABLES {
        let path = table.path;
        let text = tree.text(path).context(path)?;
        let Some(written) = table.written(&tree, text) else {
            let name = table.name;
            bail!("{path} has no place for the table: lines <!-- {name} --> and <!-- /{name} -->");
        };
        if written != text {
            fs::write(root.join(path), written).context(path)?;
            println!("docs: wrote the table `{}` in {path}", table.name);
        }
    }
    fs::write(root.join(habits::FILE), habits::counts(&tree)).context(habits::FILE)?;
    Ok(ExitCode::SUCCESS)
}

impl MarkedTable {
    /// The text with the table between its two markers, if it has them.
    pub(crate) fn written(&self, tree: &RepositoryTree, text: &str) -> Option<String> {
        let open = format!("<!-- {} -->\n", self.name);
        let start = text.find(&open)? + open.len();
        let end = start + text[start..].find(&format!("<!-- /{} -->", self.name))?;
        let (before, after) = (&text[..start], &text[end..]);
        Some(format!("{before}{}{after}", (self.make)(tree)))
    }
}

/// The checks of `mpps doctor`, in their order.
fn checks() -> String {
    let rows = CHECKS.iter().map(|check| {
        let Check {
            name,
            reads,
            speaks,
            ..
        } = check;
        format!("| `{name}` | {speaks} | {reads} |\n")
    });
    let head = "| check | it speaks when | it reads |\n|---|---|---|\n";
    head.to_owned() + &rows.collect::<String>()
}

/// The table of backends in Markdown.
fn backends() -> String {
    let mut table = String::from(
        "| backend | direction | packets are | needs | takes the NIC | what it is |\n\
         |---|---|---|---|---|---|\n",
    );
    for backend in BACKENDS {
        let direction = match (backend.receives(), backend.sends()) {
            (true, true) => "receives, sends",
            (true, false) => "receives",
            (false, true) => "sends",
            (false, false) => "none",
        };
        let layer = match backend.layer {
            Layer::Payload => "UDP payloads",
            Layer::Frame => "frames",
        };
        let takes_nic = if backend.takes_nic { "yes" } else { "no" };
        let (name, needs, summary) = (backend.name, backend.needs, backend.summary);
        table.push_str(&format!(
            "| `{name}` | {direction} | {layer} | {needs} | {takes_nic} | {summary} |\n"
        ));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_backend_has_a_row_of_six_cells() {
        let table = backends();
        assert_eq!(table.lines().count(), BACKENDS.len() + 2);
        for line in table.lines() {
            assert_eq!(line.matches('|').count(), 7, "{line}");
        }
    }

    #[test]
    fn the_table_is_put_between_the_markers_and_stays() {
        let (tree, table) = (RepositoryTree::of(&[]), &TABLES[0]);
        let text = "a\n<!-- backends -->\nold\n<!-- /backends -->\nb\n";
        let written = table.written(&tree, text).unwrap();
        let expected = format!(
            "a\n<!-- backends -->\n{}<!-- /backends -->\nb\n",
            backends()
        );
        assert_eq!(written, expected);
        assert_eq!(table.written(&tree, &written), Some(written));
    }

    #[test]
    fn without_both_markers_there_is_no_place() {
        let tree = RepositoryTree::of(&[]);
        for text in [
            "a\n",
            "<!-- backends -->\n",
            "<!-- /backends -->\n<!-- backends -->\n",
        ] {
            assert_eq!(TABLES[0].written(&tree, text), None);
        }
    }
}
