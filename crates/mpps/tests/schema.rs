//! Compares the schemas published in `docs/schema/` with the structs. Checks written files against
//! the schemas, by the validator of another program.

use crate::common::{self, Running, mpps, run};
use mpps::BackendsObject;
use mpps::experiment::connections::result::TcpLabBody;
use mpps::experiment::ladder::result::LabBody;
use mpps::experiment::receive_paths::ndr::result::NdrBody;
use mpps::experiment::receive_paths::result::BenchBody;

use mpps::command::doctor::Diagnosis;
use mpps::command::fix::FixObject;
use mpps::command::steer::SteerObject;
use mpps::command::top::{self, TopObject};
use mpps::command::tune::{Proofs, TuneObject};
use mpps::measure::envelope::EnvelopeBody;
use mpps::measure::schema;
use mpps::program::connections::{LoadBody, ServeBody, ServeObject};
use mpps::udp::traffic::{RECV_SCHEMA, RecvObject, SEND_SCHEMA, SendObject};
use mpps_trial::{Need, Trial, trials};
use schemars::JsonSchema;
use serde_json::{Value, json};
use std::fs;
use std::io::Write;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        pure:
            what_is_published_is_made_from_the_structs,
            what_the_schemas_share_is_the_same,
            every_field_is_described;
        waits(Need::Program("python3", "python3"), Need::probe(validator)):
            the_fixtures_are_valid,
            what_a_card_has_is_valid,
            every_published_result_is_valid,
            a_row_is_either_skipped_or_measured,
            units_and_ranges_are_held,
            ranges_of_paths_and_findings_are_held;
        waits(Need::probe(validator), Need::probe(common::lab)): what_commands_write_is_valid;
    ]
}

/// A kind of result file.
#[derive(Debug, Clone, Copy)]
struct Kind {
    /// The name that its files and its schema have.
    name: &'static str,
    /// The schema that its files name.
    schema: &'static str,
    /// A made-up run with everything that a report has to cope with.
    fixture: &'static str,
}

macro_rules! kinds {
    ($($kind:ident: $name:literal $schema:literal;)+) => {
        $(const $kind: Kind = Kind {
            name: $name,
            schema: $schema,
            fixture: include_str!(concat!("fixtures/", $name, ".json")),
        };)+
        /// Every kind.
        const KINDS: [Kind; 9] = [$($kind),+];
    };
}

kinds! {
    LAB: "lab" "mpps.lab.v2";
    BENCH: "bench" "mpps.bench.v2";
    NDR: "ndr" "mpps.ndr.v1";
    LOAD: "load" "mpps.load.v2";
    SERVE: "serve" "mpps.serve.v2";
    RECV: "recv" "mpps.recv.v1";
    SEND: "send" "mpps.send.v1";
    DOCTOR: "doctor" "mpps.doctor.v1";
    LAB_TCP: "lab_tcp" "mpps.lab_tcp.v2";
}

/// Pointers to a measured cell and to a skipped one.
const CELL: &str = "/cells/0";
const NO_CELL: &str = "/cells/10";

/// Pointers to a measured rung of the fixture and to a skipped one.
const MEASURED: &str = "/rungs/1";
const SKIPPED: &str = "/rungs/4";

/// A pointer to a rung whose packets a ring took.
const RING: &str = "/rungs/10";

/// A pointer to a rung's sender.
const SENDER: &str = "/rungs/8/sender";

/// Pointers to a rule that drops, to a receiver, and to a path that was skipped.
const RULE: &str = "/rows/0";
const RECEIVER: &str = "/rows/1";
const LEFT_OUT: &str = "/rows/9";

/// Pointers to a measured row of spread traffic and to a skipped one. The measured row has fields
/// that not every machine or path has.
const SPREAD: &str = "/spread/0";
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

    fn value(&self) -> Value {
        serde_json::from_str(self.fixture).expect("the fixture is JSON")
    }

    /// The fixture with a change.
    fn with(&self, change: impl FnOnce(&mut Value)) -> (&'static str, Value) {
        let mut value = self.value();
        change(&mut value);
        assert_ne!(value, self.value(), "the change changed nothing");
        (self.name, value)
    }
}

/// The first error of each value against the schema of its name, by a validator in Python.
fn faults(cases: &[(&str, Value)]) -> Vec<Vec<String>> {
    const VALIDATE: &str = "import itertools, json, sys, jsonschema\n\
        made, told = {}, []\n\
        for name, value in json.load(sys.stdin):\n\
        \x20   if name not in made:\n\
        \x20       schema = json.load(open(f'{sys.argv[1]}/{name}.schema.json'))\n\
        \x20       jsonschema.Draft202012Validator.check_schema(schema)\n\
        \x20       made[name] = jsonschema.Draft202012Validator(schema)\n\
        \x20   errors = itertools.islice(made[name].iter_errors(value), 1)\n\
        \x20   told.append([f'{list(e.path)}: {e.message[:300]}' for e in errors])\n\
        print(json.dumps(told))";
    let mut validating = Command::new(python().expect("it is needed"))
        .args(["-c", VALIDATE])
        .arg(docs().join("schema"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it is needed");
    let asked = serde_json::to_vec(cases).expect("it is JSON");
    let mut input = validating.stdin.take().expect("a pipe");
    input.write_all(&asked).expect("it reads all first");
    drop(input);
    let ended = validating.wait_with_output().expect("it ends");
    serde_json::from_slice(&ended.stdout).expect("a list for each case")
}

fn are_valid(cases: &[(&str, Value)]) {
    for ((name, value), faults) in cases.iter().zip(faults(cases)) {
        assert_eq!(faults, [""; 0], "{name}: {value:#}");
    }
}

fn are_refused(cases: &[(&str, Value)]) {
    for ((name, value), faults) in cases.iter().zip(faults(cases)) {
        assert!(!faults.is_empty(), "{name} takes {value:#}");
    }
}

/// Why there is no Python with a validator.
fn validator() -> Result<(), String> {
    let none = "no jsonschema for python3 here (package python3-jsonschema)";
    python().map(drop).ok_or_else(|| none.to_owned())
}

/// The Python that has a validator: the first of the path, or Debian's.
fn python() -> Option<&'static str> {
    ["python3", "/usr/bin/python3"].into_iter().find(|python| {
        let tried = Command::new(python)
            .args(["-c", "import jsonschema"])
            .output();
        tried.is_ok_and(|tried| tried.status.success())
    })
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
        ("tune_prove", schema::of::<Proofs>()),
        ("doctor", schema::of::<Diagnosis>()),
        ("load", schema::of::<LoadBody>()),
        ("serve", several::<ServeObject>(ServeBody::SCHEMA, "serve")),
        ("recv", several::<RecvObject>(RECV_SCHEMA, "recv --json")),
        ("send", several::<SendObject>(SEND_SCHEMA, "send --json")),
        ("top", several::<TopObject>(top::SCHEMA, "top --json")),
        ("fix", several::<FixObject>(FixObject::SCHEMA, "fix --json")),
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
        let is_published = published(name) == made;
        assert!(is_published, "{name}: run MPPS_SCHEMA=write cargo test");
    }
}

fn several<O: JsonSchema>(is: &str, command: &str) -> Value {
    schema::of_objects::<O>(is, &format!("mpps {command}"))
}

fn the_fixtures_are_valid() {
    are_valid(&KINDS.map(|kind| (kind.name, kind.value())));
}

/// Of each kind an object that a command writes now.
fn what_commands_write_is_valid() {
    let port = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let target = port.local_addr().expect("it is bound").to_string();
    let own = env!("CARGO_BIN_EXE_mpps");
    let mut cases = Vec::new();
    for (name, arguments) in [
        ("recv", "recv 127.0.0.1:0 --json --duration 1500ms"),
        (
            "send",
            &format!("send {target} --json --duration 1500ms --rate 100"),
        ),
        ("top", "top lo --json --once"),
        ("doctor", "doctor lo --json --seconds 1"),
        (
            "fix",
            &format!(
                "fix --pid {} --json --dry-run --duration 1s",
                std::process::id()
            ),
        ),
        ("steer", "steer --json --queues 4 --flows 3"),
        ("backends", "backends --json"),
        ("backends", "backends lo --json"),
        ("backends", "backends lo --for af_xdp --json"),
        ("tune", &format!("lab -- {own} tune plan mpps-rx --json")),
    ] {
        let ended = run(&mut mpps(&arguments.split(' ').collect::<Vec<_>>()));
        let objects = serde_json::Deserializer::from_str(&ended.out).into_iter::<Value>();
        let before = cases.len();
        cases.extend(objects.map(|object| (name, object.expect("it is JSON"))));
        assert!(cases.len() > before, "{arguments}: {ended:#?}");
    }
    let mut running = Running::start(&mut mpps(&["serve", "127.0.0.1:0", "--json"]));
    running.line("{\"");
    let told = running.interrupt().fine().out;
    let told = told.lines().map(serde_json::from_str);
    cases.extend(told.map(|object| ("serve", object.expect("a JSON object a line"))));
    are_valid(&cases);
}

/// Fields that a card has and a loopback interface does not.
fn what_a_card_has_is_valid() {
    let shown = run(&mut mpps(&["backends", "lo", "--json"])).fine();
    let mut whole: Value = serde_json::from_str(&shown.out).expect("it is JSON");
    let nic = &mut whole["facts"]["nic"];
    nic["function"] = json!({ "address": "0000:03:00.0", "vendor": 5555, "device": 4099 });
    nic["virtual_functions"] = json!({ "total": 8, "now": 0 });
    nic["filters"] = json!("on");
    nic["rules"] = json!({ "is": 3 });
    let spreading = &mut whole["spreading"];
    spreading["fields"][0]["fields"] = json!({ "is": "sdfn" });
    spreading["rss"] =
        json!({ "is": { "indirection": [0, 1], "key": "6d:5a", "function": "toeplitz" } });
    are_valid(&[("backends", whole.clone())]);
    let mut wrong = vec![whole.clone(); 2];
    wrong[0]["facts"]["nic"]["rules"] = json!({ "is": "three" });
    wrong[1]["surprise"] = json!(1);
    let fields = whole.as_object().expect("an object").keys();
    wrong.extend(fields.map(|name| {
        let mut less = whole.clone();
        less.as_object_mut().map(|fields| fields.remove(name));
        less
    }));
    are_refused(
        &wrong
            .into_iter()
            .map(|value| ("backends", value))
            .collect::<Vec<_>>(),
    );
}

/// Each schema is complete, so that one file is enough to check a result with. Their common
/// definitions are the same.
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
    let runs = fs::read_dir(docs().join("results")).expect("results are published");
    let files = runs
        .flatten()
        .flat_map(|directory| fs::read_dir(directory.path()).into_iter().flatten());
    let mut cases = Vec::new();
    for path in files.flatten().map(|file| file.path()) {
        if path.extension().is_none_or(|ending| ending != "json") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("it can be read");
        let value: Value = serde_json::from_str(&text).expect("a published result is JSON");
        // `overload.json` and others are results of `mpps bench` too. A file names its schema.
        let kind = KINDS.iter().find(|kind| value["schema"] == kind.schema);
        cases.extend(kind.map(|kind| (kind.name, value)));
    }
    assert!(!cases.is_empty(), "no published result was found");
    are_valid(&cases);
}

fn a_row_is_either_skipped_or_measured() {
    let mut wrong = Vec::new();
    for (kind, measured, skipped) in [
        (LAB, MEASURED, SKIPPED),
        (BENCH, RECEIVER, LEFT_OUT),
        (LAB_TCP, CELL, NO_CELL),
    ] {
        let ledger = kind.value().pointer(&format!("{measured}/ledger")).cloned();
        wrong.extend([
            kind.with(|value| {
                object(value, measured).insert("skipped".to_owned(), json!("no time"));
            }),
            kind.with(|value| {
                object(value, skipped).insert("ledger".to_owned(), ledger.expect("a ledger"));
            }),
            kind.with(|value| {
                object(value, skipped).remove("skipped");
            }),
        ]);
    }
    are_refused(&wrong);
}

/// Each of these figures, in place of a field's own, makes a file that is none.
fn are_wrong<const N: usize>(wrong: [(Kind, &str, &str, Value); N]) {
    are_refused(&wrong.map(|(kind, pointer, name, wrong)| {
        kind.with(|value| {
            object(value, pointer).insert(name.to_owned(), wrong);
        })
    }));
}

fn units_and_ranges_are_held() {
    are_wrong([
        (RECV, "", "arrival", json!("pigeon")),
        (RECV, "", "type", json!("interval")),
        (RECV, "/threads/0", "share", json!(49.6)),
        (RECV, "/flows/0", "lost", json!(-1)),
        (SEND, "", "departure", json!("pigeon")),
        (SEND, "", "active_seconds", json!(-1)),
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
    ]);
}

fn ranges_of_paths_and_findings_are_held() {
    are_wrong([
        (BENCH, "", "schema", json!("mpps.lab.v2")),
        (LAB, "", "rate_definition", json!("")),
        (LAB, MEASURED, "article_mpps", json!([0.2])),
        (LAB, MEASURED, "mpps_median", json!(-1)),
        (LAB, MEASURED, "offered_mpps_median", json!("much")),
        (DOCTOR, "/findings/0", "evidence", json!([])),
        (DOCTOR, "/findings/0", "count", json!(-1)),
        (DOCTOR, "/findings/0", "confidence", json!("sure")),
        (DOCTOR, "/findings/0", "station", json!("moon")),
        (DOCTOR, "", "port", json!(70_000)),
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
        // Skipped and measured.
        (BENCH, SPREAD, "skipped", json!("too few CPUs")),
        (BENCH, SPREAD_LEFT_OUT, "mpps_median", json!(1.0)),
        // A rule takes no calls.
        (BENCH, RULE, "packets_per_call", json!(1.0)),
        (BENCH, RULE, "calls_per_packet", json!(1.0)),
        // Fields that no schema knows.
        (LAB, "", "surprise", json!(1)),
        (LAB, MEASURED, "surprise", json!(1)),
        (LAB, "/fingerprint", "surprise", json!(1)),
        (DOCTOR, "/findings/0", "surprise", json!(1)),
        (RECV, "/flows/0", "surprise", json!(1)),
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
