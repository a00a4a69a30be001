//! `mpps tune apply --confirm-within`: its changes are undone, however it ends.

use super::Place;
use crate::common::{Entered, Running, full_pipe, kill, mpps, run};
use mpps_trial::{Need, Trial, trials};
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::Stdio;
use std::thread;
use std::time::Duration;

pub(crate) fn trials() -> Vec<Trial> {
    trials![
        waits(Need::Root):
            whatever_ends_an_unconfirmed_run_puts_it_back,
            a_stopped_run_is_not_waited_for,
            a_killed_run_is_undone,
            an_undo_waits_for_no_reader,
            an_apply_that_cannot_say_what_it_changed_is_put_back;
    ]
}

/// The process that it started, and that guards it.
fn guard_of(running: &Running) -> String {
    let children = format!("/proc/{0}/task/{0}/children", running.id());
    let children = fs::read_to_string(children).expect("the kernel tells of children");
    children.trim().to_owned()
}

/// A signal for its whole process group, as the keyboard's are, does not reach the guard.
fn whatever_ends_an_unconfirmed_run_puts_it_back() {
    let place = Place::new();
    for (signal, status) in [("QUIT", Some(130)), ("TERM", Some(130)), ("KILL", None)] {
        let words = ["tune", "apply", "near", "--confirm-within", "60m"];
        let mut command = mpps(&words);
        command.process_group(0);
        let start = || Running::start(&mut command);
        let mut waiting = place.near.within(start);
        waiting.line("put back in");
        assert_ne!(place.state(), place.before, "{signal}");
        let guard = guard_of(&waiting);
        kill(signal, &format!("-{}", waiting.id()));
        // This waits for the guard, too, which has the same standard error.
        let ended = waiting.end();
        assert_eq!(ended.status.code(), status, "{signal}: {ended:#?}");
        place.is_as_before();
        assert_eq!(place.journals(), [""; 0], "{signal}");
        let said = [&ended.out, &ended.err].map(|text| text.matches("undone: rx-gro").count());
        let expected = if status.is_some() { [1, 0] } else { [0, 1] };
        assert_eq!(said, expected, "{signal}: {ended:#?}");
        // A killed program does not wait for its guard.
        let is_there = fs::exists(format!("/proc/{guard}")).expect("it can be asked");
        assert!(status.is_none() || !is_there, "{signal}");
    }
}

/// As after Ctrl-Z, or with a terminal that takes no output. A confirmed change is not touched.
fn a_stopped_run_is_not_waited_for() {
    let place = Place::new();
    let stopped = |time: &str| {
        let mut waiting = place.start(&format!("apply near --confirm-within {time}"));
        waiting.line("put back in");
        waiting.signal("STOP");
        assert_ne!(place.state(), place.before);
        waiting
    };
    let ended = stopped("2s").end();
    assert_eq!(ended.status.signal(), Some(9), "{ended:#?}");
    assert!(ended.err.contains("was stuck, and was ended"), "{ended:#?}");
    place.is_as_before();
    assert_eq!(place.journals(), [""; 0]);
    let waiting = stopped("60m");
    place.tune("confirm near").fine();
    waiting.signal("CONT");
    waiting.end().fine();
    assert_ne!(place.state(), place.before);
    place.tune("undo").fine();
    place.is_as_before();
}

/// With the process that guards it, in this case.
fn a_killed_run_is_undone() {
    let place = Place::new();
    let mut waiting = place.start("apply near --confirm-within 60m");
    waiting.line("put back in");
    kill("KILL", &format!("{} {}", guard_of(&waiting), waiting.id()));
    waiting.end();
    assert_ne!(place.state(), place.before);
    let status = place.tune("status").fine();
    assert!(status.out.contains("left behind"), "{status:#?}");
    let undo = || run(&mut mpps(&["undo"]));
    place.near.within(undo).fine();
    place.is_as_before();
}

/// Its standard error takes nothing, as a terminal after Ctrl-S. All is undone before a line is
/// written.
fn an_undo_waits_for_no_reader() {
    let place = Place::new();
    let (reader, writer) = full_pipe();
    let mut command = mpps(&["tune", "apply", "near", "--confirm-within", "60m"]);
    command.stdout(Stdio::piped()).stderr(writer);
    let mut child = place.near.within(|| command.spawn()).expect("it starts");
    let mut lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    let is_there = lines.any(|line| line.expect("text").contains("put back in"));
    assert!(is_there && place.state() != place.before);
    assert!(place.journals().len() > 2, "{:?}", place.journals());
    child.kill().expect("it lives");
    child.wait().expect("it has ended");
    for _ in 0..1500 {
        if place.journals() == [""; 0] {
            break;
        }
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(place.journals(), [""; 0]);
    place.is_as_before();
    // Its output has no reader then, and it ends.
    drop(reader);
}

/// Its standard output takes nothing from the first change on: that is no time to make changes in.
fn an_apply_that_cannot_say_what_it_changed_is_put_back() {
    let place = Place::new();
    let (reader, writer) = full_pipe();
    let mut command = mpps(&["tune", "apply", "near", "--confirm-within", "1s"]);
    command.stdout(writer).stderr(Stdio::piped());
    let child = place.near.within(|| command.spawn()).expect("it starts");
    // Its guard ends it, and has its standard error until all is put back.
    let ended = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(said.contains("was stuck, and was ended"), "{said}");
    place.is_as_before();
    assert_eq!(place.journals(), [""; 0], "{said}");
    drop(reader);
}
