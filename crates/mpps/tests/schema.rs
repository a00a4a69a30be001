//! Holds result files to the schema that is published in `docs/schema/`.

use jsonschema::Validator;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};

const FIXTURE: &str = include_str!("fixtures/lab.json");

/// A pointer to a rung of the fixture that was measured, and one to a rung that was skipped.
const MEASURED: &str = "/rungs/1";
const SKIPPED: &str = "/rungs/5";

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn schema() -> Value {
    let text =
        fs::read_to_string(docs().join("schema/lab.schema.json")).expect("the schema is published");
    serde_json::from_str(&text).expect("the schema is JSON")
}

fn validator() -> Validator {
    jsonschema::draft202012::new(&schema()).expect("the schema is a schema")
}

fn fixture() -> Value {
    serde_json::from_str(FIXTURE).expect("the fixture is JSON")
}

/// Every error as a line with its place, so that a failure names the field.
fn faults(validator: &Validator, value: &Value) -> Vec<String> {
    validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

fn is_refused(change: impl FnOnce(&mut Value)) -> bool {
    let mut value = fixture();
    change(&mut value);
    assert_ne!(value, fixture(), "the change changed nothing");
    !validator().is_valid(&value)
}

fn object<'a>(value: &'a mut Value, pointer: &str) -> &'a mut serde_json::Map<String, Value> {
    let found = value.pointer_mut(pointer).and_then(Value::as_object_mut);
    found.unwrap_or_else(|| panic!("the fixture has no object at {pointer}"))
}

#[test]
fn the_schema_is_one() {
    jsonschema::draft202012::meta::validate(&schema()).expect("a schema by its own meta-schema");
}

#[test]
fn the_fixture_is_valid() {
    assert_eq!(faults(&validator(), &fixture()), [""; 0]);
}

#[test]
fn every_published_result_is_valid() {
    let validator = validator();
    for directory in fs::read_dir(docs().join("results"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let path = directory.path().join("lab.json");
        if let Ok(text) = fs::read_to_string(&path) {
            let value = serde_json::from_str(&text).expect("a published result is JSON");
            assert_eq!(faults(&validator, &value), [""; 0], "{}", path.display());
        }
    }
}

#[test]
fn no_field_may_be_missing() {
    let optional = [(MEASURED, "notes"), (MEASURED, "sample_ledgers")];
    for pointer in [
        "",
        "/fingerprint",
        "/fingerprint/interfaces/receiver",
        MEASURED,
        SKIPPED,
        "/rungs/1/ledger",
        "/rungs/1/ledger/losses/0",
        "/rungs/1/ledger/witnesses/0",
        "/rungs/1/threads/0",
        "/rungs/1/cpu_busy/0",
        "/rungs/1/limited_by",
        "/rungs/1/path",
        "/rungs/1/path/queues/0",
    ] {
        let names: Vec<String> = object(&mut fixture(), pointer).keys().cloned().collect();
        for name in names
            .into_iter()
            .filter(|name| !optional.contains(&(pointer, name.as_str())))
        {
            let refused = is_refused(|value| {
                object(value, pointer).remove(&name);
            });
            assert!(refused, "{pointer} without {name} is accepted");
        }
    }
}

#[test]
fn a_rung_is_either_skipped_or_measured() {
    assert!(is_refused(|value| {
        object(value, MEASURED).insert("skipped".to_owned(), json!("no time"));
    }));
    let ledger = fixture()
        .pointer("/rungs/1/ledger")
        .cloned()
        .expect("a ledger");
    assert!(is_refused(|value| {
        object(value, SKIPPED).insert("ledger".to_owned(), ledger);
    }));
    assert!(is_refused(|value| {
        object(value, SKIPPED).remove("skipped");
    }));
}

#[test]
fn what_the_schema_does_not_know_is_refused() {
    for pointer in [
        "",
        "/fingerprint",
        MEASURED,
        SKIPPED,
        "/rungs/1/ledger",
        "/rungs/1/path",
    ] {
        let refused = is_refused(|value| {
            object(value, pointer).insert("surprise".to_owned(), json!(1));
        });
        assert!(refused, "{pointer} takes any field");
    }
}

#[test]
fn units_and_ranges_are_held() {
    for (pointer, name, wrong) in [
        ("", "schema", json!("mpps.lab.v0")),
        ("", "started", json!("yesterday")),
        (MEASURED, "mpps_median", json!(-0.1)),
        (MEASURED, "mpps_samples", json!([])),
        (MEASURED, "article_mpps", json!([0.2])),
        (MEASURED, "article_mpps", json!([0.2, 0.3, 0.4])),
        ("/rungs/1/ledger", "delivered", json!(-1)),
        ("/rungs/1/ledger", "offered", json!(1.5)),
        ("/rungs/1/ledger/losses/0", "station", json!("moon")),
        ("/rungs/1/cpu_busy/0", "busy", json!(97)),
    ] {
        let refused = is_refused(|value| {
            object(value, pointer).insert(name.to_owned(), wrong.clone());
        });
        assert!(refused, "{pointer}/{name} = {wrong} is accepted");
    }
}

#[test]
fn every_field_is_described() {
    fn look(at: &Value, place: &str, undescribed: &mut Vec<String>) {
        for (name, field) in at
            .get("properties")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let place = format!("{place}/{name}");
            let described = field.get("description").is_some() || field.get("$ref").is_some();
            if !described {
                undescribed.push(place.clone());
            }
            look(field, &place, undescribed);
            look(
                field.get("items").unwrap_or(&Value::Null),
                &place,
                undescribed,
            );
        }
    }
    let schema = schema();
    let mut undescribed = Vec::new();
    look(&schema, "", &mut undescribed);
    for (name, definition) in schema["$defs"].as_object().expect("definitions") {
        assert!(definition.get("description").is_some(), "{name}");
        look(definition, name, &mut undescribed);
    }
    assert_eq!(undescribed, [""; 0]);
}
