//! The crates of the program: a software bill of materials in the form of CycloneDX 1.5.

use super::{Release, TARGET};
use crate::vm::run_quietly as run;
use anyhow::{Context, Result};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

/// Writes it. Returns the name of its file.
pub(super) fn write(release: &Release) -> Result<String> {
    let mut metadata = Command::new("cargo");
    metadata.args(["metadata", "--locked", "--format-version", "1"]);
    metadata.args(["--filter-platform", TARGET]);
    let metadata = run(metadata.current_dir(&release.root))?;
    let bill = bill(&serde_json::from_str(&metadata)?, release.version)?;
    let file = format!("mpps-{}-{TARGET}.cdx.json", release.version);
    fs::write(
        release.folder.join(&file),
        serde_json::to_string_pretty(&bill)?,
    )?;
    Ok(file)
}

/// The crates that the program is linked from, without those for tests or the build only.
fn bill(metadata: &Value, version: &str) -> Result<Value> {
    let text = |value: &Value, key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let packages: BTreeMap<String, Value> = list(&metadata["packages"])
        .into_iter()
        .map(|package| (text(&package, "id"), package))
        .collect();
    let nodes: BTreeMap<String, Value> = list(&metadata["resolve"]["nodes"])
        .into_iter()
        .map(|node| (text(&node, "id"), node))
        .collect();
    let program = packages
        .iter()
        .find(|(_, package)| package["name"] == "mpps");
    let program = program
        .context("the workspace has no package mpps")?
        .0
        .clone();
    let (mut linked, mut left) = (BTreeSet::new(), vec![program.clone()]);
    while let Some(id) = left.pop() {
        if !linked.insert(id.clone()) {
            continue;
        }
        let used = list(&nodes[&id]["deps"]).into_iter().filter(|used| {
            let kinds = list(&used["dep_kinds"]);
            kinds.iter().any(|kind| kind["kind"].is_null())
        });
        left.extend(used.map(|used| text(&used, "pkg")));
    }
    let components = linked.iter().filter(|id| **id != program).map(|id| {
        let package = &packages[id];
        let (name, version) = (text(package, "name"), text(package, "version"));
        let mut component = json!({
            "type": "library",
            "name": name,
            "version": version,
            "licenses": [{ "expression": text(package, "license").replace('/', " OR ") }],
        });
        if package["source"].is_string() {
            component["purl"] = json!(format!("pkg:cargo/{name}@{version}"));
        }
        component
    });
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": { "component": { "type": "application", "name": "mpps", "version": version } },
        "components": components.collect::<Vec<_>>(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_linked_is_listed_and_nothing_else() {
        let package = |name: &str, source: Value| {
            json!({ "id": name, "name": name, "version": "1.2.3", "license": "MIT/Apache-2.0",
                "source": source })
        };
        let used =
            |name: &str, kind: Value| json!({ "pkg": name, "dep_kinds": [{ "kind": kind }] });
        let metadata = json!({
            "packages": [
                package("mpps", Value::Null),
                package("ours", Value::Null),
                package("linked", json!("registry")),
                package("tests", json!("registry")),
                package("cc", json!("registry")),
            ],
            "resolve": { "nodes": [
                { "id": "mpps", "deps": [used("ours", Value::Null), used("tests", json!("dev"))] },
                { "id": "ours", "deps": [used("linked", Value::Null), used("cc", json!("build"))] },
                { "id": "linked", "deps": [used("ours", Value::Null)] },
                { "id": "tests", "deps": [] },
                { "id": "cc", "deps": [] },
            ] },
        });
        let bill = bill(&metadata, "0.1.0").unwrap();
        let listed = bill["components"].as_array().unwrap();
        let names: Vec<_> = listed
            .iter()
            .map(|one| one["name"].as_str().unwrap())
            .collect();
        assert_eq!(names, ["linked", "ours"]);
        assert_eq!(listed[0]["purl"], "pkg:cargo/linked@1.2.3");
        assert_eq!(
            listed[1]["purl"],
            Value::Null,
            "it is nowhere to be had by itself"
        );
        assert_eq!(listed[0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
    }
}
