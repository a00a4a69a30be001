//! Holds result files to the schemas that are published in `docs/schema/`, and those to the structs.

use jsonschema::Validator;
use mpps::BackendsObject;
use mpps::experiment::connections::result::TcpLabBody;
use mpps::experiment::ladder::result::LabBody;
use mpps::experiment::paths::ndr::result::NdrBody;
use mpps::experiment::paths::result::BenchBody;
use mpps::experiment::placement::Placements;

use mpps::measure::envelope::Body;
use mpps::measure::schema;
use mpps::program::connections::{LoadBody, ServeBody, ServeObject};
use mpps::program::doctor::Diagnosis;
use mpps::program::ledger::{self, LedgerObject};
use mpps::program::steer::SteerObject;
use mpps::program::top::{self, TopObject};
use mpps::program::tune::{Proofs, TuneObject};
use mpps::udp::traffic::{RECV_SCHEMA, RecvObject, SEND_SCHEMA, SendObject};
use mpps_trial::{Trial, trials};
use schemars::JsonSchema;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        pure:
            what_is_published_is_made_from_the_structs,
            the_schemas_are_some,
            the_fixtures_are_valid,
            what_the_schemas_share_is_the_same,
            every_published_result_is_valid,
            no_field_may_be_missing,
            a_row_is_either_skipped_or_measured,
            spread_traffic_is_either_skipped_or_measured,
            nobody_calls_a_rule,
            what_the_schema_does_not_know_is_refused,
            units_and_ranges_of_traffic_are_held,
            units_and_ranges_are_held,
            every_field_is_described;
    ]
}

/// A kind of result file.
#[derive(Debug, Clone, Copy)]
struct Kind {
    /// The name that its files and its schema have.
    name: &'static str,
    /// What its files say they are.
    schema: &'static str,
    /// A made-up run with everything that a report has to cope with.
    fixture: &'static str,
    /// Where the fixture has objects, and which of their fields may be missing.
    objects: &'static [(&'static str, &'static [&'static str])],
}

const LAB: Kind = Kind {
    name: "lab",
    schema: "mpps.lab.v2",
    fixture: include_str!("fixtures/lab.json"),
    objects: &[
        ("", &["sender", "answer"]),
        ("/fingerprint", &[]),
        ("/fingerprint/interfaces/receiver", &[]),
        ("/answer", &["million", "most", "ceiling"]),
        ("/answer/most", &[]),
        (RING, &["notes", "delivered_ratio", "sender"]),
        (
            MEASURED,
            &["notes", "delivered_ratio", "sample_ledgers", "sender"],
        ),
        (SKIPPED, &[]),
        ("/rungs/1/sender", &["train"]),
        (SENDER, &[]),
        ("/rungs/1/ledger", &[]),
        ("/rungs/1/ledger/losses/0", &[]),
        ("/rungs/1/ledger/witnesses/0", &[]),
        ("/rungs/1/threads/0", &[]),
        ("/rungs/1/cpu_busy/0", &[]),
        ("/rungs/1/limited_by", &[]),
        ("/rungs/1/path", &[]),
        ("/rungs/1/path/queues/0", &[]),
    ],
};

const BENCH: Kind = Kind {
    name: "bench",
    schema: "mpps.bench.v2",
    fixture: include_str!("fixtures/bench.json"),
    objects: &[
        ("", &["overload", "spread", "loss_free_goal"]),
        ("/fingerprint", &[]),
        ("/loss_free_goal", &[]),
        ("/rows/1/loss_free", &["found", "trials", "sender_mpps"]),
        (RULE, &["notes", "flows"]),
        (
            RECEIVER,
            &[
                "notes",
                "flows",
                "loss_free",
                "packets_per_call",
                "calls_per_packet",
            ],
        ),
        (LEFT_OUT, &["flows"]),
        ("/rows/1/cpu_ns_per_packet", &["samples"]),
        ("/rows/1/ledger", &[]),
        ("/rows/1/ledger/losses/0", &[]),
        ("/rows/1/ledger/witnesses/0", &[]),
        ("/rows/1/sample_ledgers/0", &[]),
        ("/overload/0", &[]),
        ("/overload/0/points/0", &["asked_mpps"]),
        ("/overload/0/points/0/ledger", &[]),
        (FLOOD, &[]),
        (SPREAD, &SPREAD_OPTIONAL),
        (SPREAD_LEFT_OUT, &["article_mpps_per_cpu"]),
        ("/spread/0/sample_ledgers/0", &[]),
    ],
};

const NDR: Kind = Kind {
    name: "ndr",
    schema: "mpps.ndr.v1",
    fixture: include_str!("fixtures/ndr.json"),
    objects: &[
        ("", &["throttle_mpps"]),
        ("/fingerprint", &[]),
        ("/goals/0", &[]),
        ("/rows/0", &["sender_mpps"]),
        ("/rows/2", &["notes"]),
        ("/rows/4", &["skipped"]),
        (
            "/rows/1/found/0",
            &["lower_mpps", "upper_mpps", "conditional_mpps", "loses"],
        ),
        ("/rows/1/found/0/loses", &[]),
        ("/rows/1/trials/0", &[]),
        ("/rows/1/trials/0/ledger", &[]),
    ],
};

const LOAD: Kind = Kind {
    name: "load",
    schema: "mpps.load.v2",
    fixture: include_str!("fixtures/load.json"),
    objects: &[
        ("", &["cut_off_us_max", "silent_us"]),
        ("/fingerprint", &[]),
        ("/statuses", &[]),
        ("/latency_us", &[]),
        ("/latency_us/connect", &[]),
        ("/ledger", &[]),
        ("/ledger/connections", &[]),
        ("/ledger/requests/failed", &FAILURES),
    ],
};

/// A lab leaves out what did not happen, and a load does not: their schema of a ledger is the same.
const FAILURES: [&str; 13] = [
    "refused",
    "unreachable",
    "no_port",
    "no_descriptor",
    "reset_connecting",
    "timed_out_connecting",
    "reset",
    "timed_out",
    "no_reply",
    "short_body",
    "bad_status",
    "bad_reply",
    "other",
];

const SERVE: Kind = Kind {
    name: "serve",
    schema: "mpps.serve.v2",
    fixture: include_str!("fixtures/serve.json"),
    objects: &[
        ("", &[]),
        ("/fingerprint", &[]),
        ("/ended", &[]),
        ("/statuses", &[]),
        ("/switches/0", &[]),
    ],
};

const RECV: Kind = Kind {
    name: "recv",
    schema: "mpps.recv.v1",
    fixture: include_str!("fixtures/recv.json"),
    objects: &[
        ("", &[]),
        ("/threads/0", &[]),
        ("/flows/0", &[]),
        ("/flows/0/delay_us", &[]),
        ("/host", &[]),
        ("/host/softnet/0", &[]),
        ("/host/links/lo", &[]),
        ("/host/links/lo/counters", &[]),
    ],
};

const SEND: Kind = Kind {
    name: "send",
    schema: "mpps.send.v1",
    fixture: include_str!("fixtures/send.json"),
    objects: &[
        ("", &[]),
        ("/threads/0", &[]),
        ("/host", &[]),
        ("/host/softnet/0", &[]),
        ("/host/links/lo", &[]),
        ("/host/links/lo/counters", &[]),
    ],
};

const PLACEMENT: Kind = Kind {
    name: "placement",
    schema: "mpps.placement.v2",
    fixture: include_str!("fixtures/placement.json"),
    objects: &[
        ("", &["interface"]),
        ("/fingerprint", &[]),
        ("/rows/0", &["delivered_ratio", "ledger"]),
        ("/rows/1", &["skipped"]),
        ("/rows/0/ledger", &[]),
        ("/rows/0/sample_ledgers/0", &[]),
    ],
};

const DOCTOR: Kind = Kind {
    name: "doctor",
    schema: "mpps.doctor.v1",
    fixture: include_str!("fixtures/doctor.json"),
    objects: &[
        ("", &[]),
        ("/fingerprint", &[]),
        ("/findings/0", &[]),
        ("/findings/0/evidence/0", &[]),
        ("/ledger", &["notes"]),
        ("/ledger/losses/0", &[]),
    ],
};

const LAB_TCP: Kind = Kind {
    name: "lab_tcp",
    schema: "mpps.lab_tcp.v2",
    fixture: include_str!("fixtures/lab_tcp.json"),
    objects: &[
        ("", &[]),
        ("/fingerprint", &[]),
        ("/servers/0", &[]),
        (CELL, &["paper", "notes", "skb_defer_max"]),
        (NO_CELL, &["paper"]),
        ("/cells/0/figures", &[]),
        ("/cells/0/ledger", &["examples"]),
        ("/cells/0/ledger/failed", &FAILURES),
        ("/cells/0/ledger/witnesses/0", &[]),
    ],
};

/// Pointers to a cell that was measured, and to one that was skipped.
const CELL: &str = "/cells/0";
const NO_CELL: &str = "/cells/10";

/// Every kind.
const KINDS: [Kind; 10] = [
    LAB, BENCH, NDR, PLACEMENT, DOCTOR, LAB_TCP, LOAD, SERVE, RECV, SEND,
];

/// A pointer to a rung of the fixture that was measured, and one to a rung that was skipped.
const MEASURED: &str = "/rungs/1";
const SKIPPED: &str = "/rungs/5";

/// A pointer to a rung whose packets a ring took.
const RING: &str = "/rungs/15";

/// A pointer to a rung's sender.
const SENDER: &str = "/rungs/13/sender";

/// Pointers to a rule that drops, to a receiver, and to a path that was skipped.
const RULE: &str = "/rows/0";
const RECEIVER: &str = "/rows/1";
const LEFT_OUT: &str = "/rows/13";

/// Pointers to the point of a flood, and to rows of spread traffic: one that was
/// measured, with what not every machine or path has, and one that was skipped.
const FLOOD: &str = "/overload/2/points/6";
const SPREAD: &str = "/spread/0";
const SPREAD_OPTIONAL: [&str; 5] = [
    "queue_cpus",
    "queue_mpps",
    "napi_ns_per_packet",
    "mpps_per_cpu",
    "article_mpps_per_cpu",
];
const SPREAD_LEFT_OUT: &str = "/spread/2";

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
}

fn path(name: &str) -> PathBuf {
    docs().join(format!("schema/{name}.schema.json"))
}

fn published(name: &str) -> Value {
    let text = fs::read_to_string(path(name)).expect("the schema is published");
    serde_json::from_str(&text).expect("the schema is JSON")
}

impl Kind {
    fn schema(&self) -> Value {
        published(self.name)
    }

    /// Made once, since a made-up fault costs nothing against making it.
    fn validator(&self) -> Arc<Validator> {
        static MADE: Mutex<BTreeMap<&str, Arc<Validator>>> = Mutex::new(BTreeMap::new());
        let make = || jsonschema::draft202012::new(&self.schema()).expect("the schema is a schema");
        let mut made = MADE.lock().expect("no test fails in here");
        Arc::clone(made.entry(self.name).or_insert_with(|| Arc::new(make())))
    }

    fn value(&self) -> Value {
        serde_json::from_str(self.fixture).expect("the fixture is JSON")
    }

    fn refuses(&self, change: impl FnOnce(&mut Value)) -> bool {
        let mut value = self.value();
        change(&mut value);
        assert_ne!(value, self.value(), "the change changed nothing");
        !self.validator().is_valid(&value)
    }
}

/// Every error as a line with its place, so that a failure names the field.
fn faults(validator: &Validator, value: &Value) -> Vec<String> {
    validator
        .iter_errors(value)
        .map(|error| format!("{}: {error}", error.instance_path()))
        .collect()
}

fn object<'a>(value: &'a mut Value, pointer: &str) -> &'a mut serde_json::Map<String, Value> {
    let found = value.pointer_mut(pointer).and_then(Value::as_object_mut);
    found.unwrap_or_else(|| panic!("the fixture has no object at {pointer}"))
}

/// Run with `MPPS_SCHEMA=write` after a change of the structs.
fn what_is_published_is_made_from_the_structs() {
    for (name, made) in [
        ("lab", schema::of::<LabBody>()),
        ("bench", schema::of::<BenchBody>()),
        ("ndr", schema::of::<NdrBody>()),
        ("lab_tcp", schema::of::<TcpLabBody>()),
        ("placement", schema::of::<Placements>()),
        ("tune_prove", schema::of::<Proofs>()),
        ("doctor", schema::of::<Diagnosis>()),
        ("load", schema::of::<LoadBody>()),
        ("serve", several::<ServeObject>(ServeBody::SCHEMA, "serve")),
        ("recv", several::<RecvObject>(RECV_SCHEMA, "recv --json")),
        ("send", several::<SendObject>(SEND_SCHEMA, "send --json")),
        ("top", several::<TopObject>(top::SCHEMA, "top --json")),
        (
            "ledger",
            several::<LedgerObject>(ledger::SCHEMA, "ledger --json"),
        ),
        (
            "steer",
            several::<SteerObject>(SteerObject::SCHEMA, "steer --json"),
        ),
        (
            "tune",
            several::<TuneObject>(TuneObject::SCHEMA, "tune plan --json"),
        ),
        (
            "backends",
            several::<BackendsObject>(BackendsObject::SCHEMA, "backends --json"),
        ),
    ] {
        if std::env::var_os("MPPS_SCHEMA").is_some_and(|what| what == "write") {
            let text = serde_json::to_string_pretty(&made).expect("it is JSON");
            fs::write(path(name), text + "\n").expect("it can be written");
        }
        let published = published(name);
        assert_eq!(published, made, "{name}: run MPPS_SCHEMA=write cargo test");
    }
}

fn several<O: JsonSchema>(is: &str, command: &str) -> Value {
    schema::of_objects::<O>(is, &format!("mpps {command}"))
}

fn the_schemas_are_some() {
    for kind in KINDS {
        let schema = kind.schema();
        jsonschema::draft202012::meta::validate(&schema).expect("valid by its own meta-schema");
    }
}

fn the_fixtures_are_valid() {
    for kind in KINDS {
        assert_eq!(faults(&kind.validator(), &kind.value()), [""; 0]);
    }
}

/// Each schema stands alone, so that one file is enough to check a result with. What both have
/// is the same.
fn what_the_schemas_share_is_the_same() {
    let (lab, bench) = (LAB.schema(), BENCH.schema());
    for name in ["Ledger", "Loss", "Witness", "Fingerprint", "InterfaceFacts"] {
        assert!(lab["$defs"][name].is_object(), "{name}");
        assert_eq!(lab["$defs"][name], bench["$defs"][name], "{name}");
    }
    for name in ["fingerprint", "command", "version", "started", "quick"] {
        assert_eq!(lab["properties"][name], bench["properties"][name], "{name}");
    }
}

fn every_published_result_is_valid() {
    let runs = fs::read_dir(docs().join("results"));
    let files = runs
        .into_iter()
        .flatten()
        .flatten()
        .flat_map(|directory| fs::read_dir(directory.path()).into_iter().flatten());
    let mut checked = 0;
    for path in files.flatten().map(|file| file.path()) {
        if path.extension().is_none_or(|ending| ending != "json") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("it can be read");
        let value: Value = serde_json::from_str(&text).expect("a published result is JSON");
        // `overload.json` and others are results of `mpps bench` too: a file says what it is.
        let is_of = |kind: &&Kind| value["schema"] == kind.schema;
        if let Some(kind) = KINDS.iter().find(is_of) {
            let faults = faults(&kind.validator(), &value);
            assert_eq!(faults, [""; 0], "{}", path.display());
            checked += 1;
        }
    }
    assert!(checked > 0, "no published result was found");
}

fn no_field_may_be_missing() {
    for kind in KINDS {
        for (pointer, optional) in kind.objects {
            let names: Vec<String> = object(&mut kind.value(), pointer).keys().cloned().collect();
            for name in names
                .iter()
                .filter(|name| !optional.contains(&name.as_str()))
            {
                let refused = kind.refuses(|value| {
                    object(value, pointer).remove(name);
                });
                assert!(
                    refused,
                    "{} {pointer} without {name} is accepted",
                    kind.name
                );
            }
        }
    }
}

fn a_row_is_either_skipped_or_measured() {
    for (kind, measured, skipped) in [
        (LAB, MEASURED, SKIPPED),
        (BENCH, RECEIVER, LEFT_OUT),
        (LAB_TCP, CELL, NO_CELL),
    ] {
        assert!(kind.refuses(|value| {
            object(value, measured).insert("skipped".to_owned(), json!("no time"));
        }));
        let ledger = kind.value().pointer(&format!("{measured}/ledger")).cloned();
        assert!(kind.refuses(|value| {
            object(value, skipped).insert("ledger".to_owned(), ledger.expect("a ledger"));
        }));
        assert!(kind.refuses(|value| {
            object(value, skipped).remove("skipped");
        }));
    }
}

fn spread_traffic_is_either_skipped_or_measured() {
    assert!(BENCH.refuses(|value| {
        object(value, SPREAD).insert("skipped".to_owned(), json!("too few CPUs"));
    }));
    assert!(BENCH.refuses(|value| {
        object(value, SPREAD_LEFT_OUT).insert("mpps_median".to_owned(), json!(1.0));
    }));
}

fn nobody_calls_a_rule() {
    for name in ["packets_per_call", "calls_per_packet"] {
        assert!(BENCH.refuses(|value| {
            object(value, RULE).insert(name.to_owned(), json!(1.0));
        }));
    }
}

fn what_the_schema_does_not_know_is_refused() {
    for kind in KINDS {
        for (pointer, _) in kind.objects {
            let refused = kind.refuses(|value| {
                object(value, pointer).insert("surprise".to_owned(), json!(1));
            });
            assert!(refused, "{} {pointer} takes any field", kind.name);
        }
    }
}

/// Each of these figures, in place of a field's own, makes a file that is none.
fn are_refused<const N: usize>(wrong: [(Kind, &str, &str, Value); N]) {
    for (kind, pointer, name, wrong) in wrong {
        let refused = kind.refuses(|value| {
            object(value, pointer).insert(name.to_owned(), wrong.clone());
        });
        assert!(refused, "{pointer}/{name} = {wrong} is accepted");
    }
}

fn units_and_ranges_of_traffic_are_held() {
    are_refused([
        (RECV, "", "arrival", json!("pigeon")),
        (RECV, "", "type", json!("interval")),
        (RECV, "/threads/0", "share", json!(49.6)),
        (RECV, "/flows/0", "lost", json!(-1)),
        (SEND, "", "departure", json!("pigeon")),
        (SEND, "", "active_seconds", json!(-1)),
    ]);
}

fn units_and_ranges_are_held() {
    are_refused([
        (LAB, "", "schema", json!("mpps.lab.v1")),
        (LAB, "", "started", json!("yesterday")),
        (LAB, MEASURED, "mpps_median", json!(-0.1)),
        (LAB, MEASURED, "mpps_samples", json!([])),
        (LAB, MEASURED, "article_mpps", json!([0.2])),
        (LAB, MEASURED, "article_mpps", json!([0.2, 0.3, 0.4])),
        (LAB, "/rungs/1/ledger", "delivered", json!(-1)),
        (LAB, "/rungs/1/ledger", "offered", json!(1.5)),
        (LAB, "/rungs/1/ledger/losses/0", "station", json!("moon")),
        (LAB, "/rungs/1/cpu_busy/0", "busy", json!(97)),
        (LAB, SENDER, "backend", json!("carrier pigeon")),
        (LAB, RING, "taken_by", json!("carrier pigeon")),
        (LAB, "/answer/most", "mpps", json!(-1)),
        (LAB, SENDER, "offered_per_received", json!(-1)),
        (LAB, "/rungs/1/sender", "train", json!(0)),
        (LAB_TCP, CELL, "experiment", json!(4)),
        (LAB_TCP, CELL, "server", json!("thttpd")),
        (LAB_TCP, CELL, "switches", json!(["luck"])),
        (LAB_TCP, CELL, "body_bytes", json!(0)),
        (LAB_TCP, CELL, "moderation_us", json!(0)),
        (LAB_TCP, "/servers/0", "set_up", json!([])),
        (LAB_TCP, "/cells/0/figures", "cps_samples", json!([])),
        (
            LAB_TCP,
            "/cells/0/figures",
            "load_cpu_busy_median",
            json!(97),
        ),
        (LAB_TCP, "/cells/0/ledger/failed", "luck", json!(1)),
        (LOAD, "", "schema", json!("mpps.lab.v1")),
        (LOAD, "", "close", json!("fin")),
        (LOAD, "", "rate", json!("fast")),
        (LOAD, "/ledger/requests/failed", "reset", json!(-1)),
        (LOAD, "/ledger/requests", "unaccounted", json!(0.5)),
        (LOAD, "/latency_us/connect", "percentiles", json!([[50.0]])),
        (SERVE, "", "type", json!("interval")),
        (SERVE, "", "engine", json!("poll")),
        (SERVE, "/switches/0", "name", json!("luck")),
        (BENCH, "", "schema", json!("mpps.lab.v2")),
        (PLACEMENT, "", "rate_definition", json!("")),
        (DOCTOR, "/findings/0", "evidence", json!([])),
        (DOCTOR, "/findings/0", "count", json!(-1)),
        (DOCTOR, "/findings/0", "confidence", json!("sure")),
        (DOCTOR, "/findings/0", "station", json!("moon")),
        (DOCTOR, "", "port", json!(70_000)),
        (PLACEMENT, "/rows/0", "article_mpps", json!([0.2])),
        (PLACEMENT, "/rows/0", "mpps_median", json!(-1)),
        (PLACEMENT, "/rows/0", "offered_mpps_median", json!("much")),
        (BENCH, "", "flows", json!(0)),
        (BENCH, RECEIVER, "path", json!("carrier pigeon")),
        (BENCH, RECEIVER, "delivered_ratio", json!(97)),
        (BENCH, RECEIVER, "queues", json!(0)),
        (BENCH, "/rows/1/cpu_ns_per_packet", "app", json!("58 ns")),
        (BENCH, "/overload/0", "kept", json!(91)),
        (BENCH, "/overload/0", "points", json!([])),
        (BENCH, "/overload/0/points/0", "load", json!(0)),
        (BENCH, "/overload/0/points/0", "unpaced", json!(false)),
        (BENCH, SPREAD, "path", json!("recvmmsg")),
        (BENCH, SPREAD, "queues", json!(0)),
        (BENCH, SPREAD, "delivered_ratio", json!(1.01)),
        (BENCH, SPREAD, "sample_ledgers", json!([])),
    ]);
}

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
    let mut undescribed = Vec::new();
    for kind in KINDS {
        let schema = kind.schema();
        look(&schema, kind.name, &mut undescribed);
        for (name, definition) in schema["$defs"].as_object().expect("definitions") {
            assert!(definition.get("description").is_some(), "{name}");
            look(definition, name, &mut undescribed);
        }
    }
    assert_eq!(undescribed, [""; 0]);
}
