//! The published schema of a kind of result file, made from its structs.

use super::envelope::{Envelope, EnvelopeBody};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value, json};

/// The schema of a file with one result.
pub fn of<T: EnvelopeBody + JsonSchema>() -> Value {
    of_objects::<Envelope<T>>(T::SCHEMA, T::COMMAND)
}

/// The schema of that name of what a command writes as `O`, one or several kinds of objects, which
/// take no field that they do not know.
pub fn of_objects<O: JsonSchema>(is: &str, command: &str) -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    let generator = settings.into_generator();
    let mut schema = generator.into_root_schema_for::<O>().to_value();
    tighten(&mut schema);
    schema["$id"] = is.into();
    schema["title"] = format!("Result of `{command}`").into();
    name(&mut schema, is);
    schema
}

/// Each object that says of what schema it is says so.
fn name(schema: &mut Value, is: &str) {
    if let Some(field) = schema.pointer_mut("/properties/schema") {
        field["const"] = is.into();
    }
    let kinds = schema.get_mut("$defs").and_then(Value::as_object_mut);
    kinds
        .into_iter()
        .flatten()
        .for_each(|(_, kind)| name(kind, is));
}

/// Adds what holds of every result file: no figure is below zero, an object has its own fields and
/// no others, and a field that may be left out is left out where it would say nothing.
fn tighten(schema: &mut Value) {
    match schema {
        Value::Array(all) => all.iter_mut().for_each(tighten),
        Value::Object(object) => {
            object.remove("format");
            object.remove("default");
            if is_of(object, "number") && !object.contains_key("exclusiveMinimum") {
                object.entry("minimum").or_insert_with(|| json!(0));
            }
            tighten_fields(object);
            // Conditions speak of some fields, and of no others.
            let whole = object.iter_mut();
            let whole = whole.filter(|(key, _)| !["if", "then", "else"].contains(&key.as_str()));
            whole.for_each(|(_, inner)| tighten(inner));
        }
        _ => {}
    }
}

fn is_of(object: &Map<String, Value>, kind: &str) -> bool {
    match object.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|one| one == kind),
        Some(one) => one == kind,
        None => false,
    }
}

fn tighten_fields(object: &mut Map<String, Value>) {
    let required = object.get("required").and_then(Value::as_array).cloned();
    let required = required.unwrap_or_default();
    let Some(Value::Object(fields)) = object.get_mut("properties") else {
        return;
    };
    for (name, field) in fields {
        let is_required = required.iter().any(|one| one == name);
        if let (false, Some(field)) = (is_required, field.as_object_mut()) {
            never_empty(field);
        }
    }
    object.insert("additionalProperties".to_owned(), json!(false));
}

fn never_empty(field: &mut Map<String, Value>) {
    // A field that may be unknown means something when it is false.
    if is_of(field, "boolean") && !is_of(field, "null") {
        field.insert("const".to_owned(), json!(true));
    }
    if let Some(Value::Array(kinds)) = field.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [kind] = &kinds[..] {
            let kind = kind.clone();
            field.insert("type".to_owned(), kind);
        }
    }
    if let Some(Value::Array(either)) = field.remove("anyOf") {
        let some = either.into_iter().find(|one| one["type"] != "null");
        field.extend(
            some.and_then(|some| some.as_object().cloned())
                .unwrap_or_default(),
        );
    }
    if is_of(field, "array") {
        field.insert("minItems".to_owned(), json!(1));
    }
}
