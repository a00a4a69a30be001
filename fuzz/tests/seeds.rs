//! Replays the seeds, and holds the table, the manifest and the folders together.

use mpps_fuzz::TARGETS;
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn names(folder: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let entries = fs::read_dir(folder).expect("the folder is part of the repository");
    let paths = entries.map(|entry| entry.expect("it can be listed").path());
    let stem = |path: &Path| Some(path.file_stem()?.to_string_lossy().into_owned());
    paths.filter_map(|path| stem(&path)).collect()
}

#[test]
fn every_target_has_its_file_and_its_seeds() {
    let table: BTreeSet<String> = TARGETS
        .iter()
        .map(|target| target.name.to_owned())
        .collect();
    assert_eq!(names("fuzz_targets"), table);
    assert_eq!(names("seeds"), table);
    let manifest = include_str!("../Cargo.toml");
    for name in table {
        assert!(
            manifest.contains(&format!("path = \"fuzz_targets/{name}.rs\"")),
            "{name}"
        );
    }
}

/// A seed that is no longer of its target's kind leads the fuzzer nowhere.
#[test]
fn seeds_are_read_and_break_nothing() {
    for target in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("seeds")
            .join(target.name);
        let mut read = 0;
        for seed in fs::read_dir(&folder).expect("the folder is there") {
            let seed = seed.expect("it can be listed").path();
            let data = fs::read(&seed).expect("it can be read");
            let of_its_kind = (target.run)(&data).is_some();
            let refused = seed.to_string_lossy().contains("refused");
            assert_ne!(of_its_kind, refused, "{}", seed.display());
            read += usize::from(of_its_kind);
        }
        assert!(read > 0, "{} has no seed of its kind", target.name);
    }
}
