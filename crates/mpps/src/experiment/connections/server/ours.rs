//! `mpps serve`: this program, as a process of its own.

use super::{MeasuredServer, Setup, shell};
use mpps_http::{Engine, Switch, Switches};
use std::borrow::Cow;
use std::path::Path;
use std::process::Command;

pub(super) const EPOLL: MeasuredServer = MeasuredServer {
    name: "mpps-epoll",
    package: None,
    program: "",
    version: "--version",
    set_up: &[
        "mpps serve --engine epoll --size BYTES, a worker for each server CPU, the body in its memory",
        "base: accept, epoll_ctl add, read, write, epoll_ctl delete, close, as in the paper",
    ],
    obstacle: |switch| obstacle("epoll", switch),
    command: |setup| serve_body(setup, "epoll"),
    serves_files: false,
};

pub(super) const IO_URING: MeasuredServer = MeasuredServer {
    name: "mpps",
    set_up: &[
        "mpps serve --engine io_uring --size BYTES, a worker for each server CPU, the body in its memory",
        "base: the ring without direct descriptors, multishot requests or a ring of buffers",
    ],
    obstacle: |switch| obstacle("io_uring", switch),
    command: |setup| serve_body(setup, "io_uring"),
    ..EPOLL
};

pub(super) const FILES: MeasuredServer = MeasuredServer {
    name: "mpps-files",
    set_up: &[
        "mpps serve --engine io_uring --root DIR: a file of a directory in memory, as the other \
         servers serve it; all switches on that this kernel has",
    ],
    command: serve_files,
    serves_files: true,
    ..IO_URING
};

/// Why an engine cannot turn a switch on, if it cannot.
fn obstacle(engine: &str, switch: Switch) -> Option<Cow<'static, str>> {
    let switches = Engine::find(engine).ok()?.switches;
    match switches()
        .into_iter()
        .find(|advice| advice.switch == switch)
    {
        Some(advice) => (!advice.possible).then_some(advice.why_not),
        None => Some("epoll has no direct descriptors".into()),
    }
}

fn serve_body(setup: &Setup<'_>, engine: &str) -> Command {
    let mut command = Command::new(setup.program);
    command.args(arguments(setup, engine));
    command.arg(format!("--size={}", setup.body_bytes));
    command
}

/// The directory is mounted where no program is.
fn serve_files(setup: &Setup<'_>) -> Command {
    let place = if setup.program.starts_with("/mnt") {
        "/media"
    } else {
        "/mnt"
    };
    let root = Path::new(place).join("www");
    let root = root.to_string_lossy();
    let words = arguments(setup, "io_uring").join(" ");
    let steps = format!("exec \"$1\" {words} --root {root}\n");
    shell(setup, &[place], &root, &steps)
}

/// A worker for each CPU; the switches are exactly those of the cell, but for moderation, which is the lab's.
fn arguments(setup: &Setup<'_>, engine: &str) -> Vec<String> {
    let own: Switches = setup.switches.without(Switch::Moderation);
    let mut words = vec![
        "serve".to_owned(),
        setup.address.to_string(),
        format!("--engine={engine}"),
        format!("--workers={}", setup.cpus.len()),
        "--json".to_owned(),
    ];
    words.push(match own {
        Switches::NONE => "--no-switches".to_owned(),
        own => format!("--only={}", own.to_string().replace('+', ",")),
    });
    if own.has(Switch::Affinity) {
        let cpus: Vec<String> = setup.cpus.iter().map(usize::to_string).collect();
        words.push(format!("--pin={}", cpus.join(",")));
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_become_flags_and_moderation_stays_outside() {
        let words = |switches: &[Switch]| {
            let setup = Setup {
                program: Path::new("mpps"),
                address: ([192, 168, 254, 1], 80).into(),
                switches: Switches::of(switches),
                body_bytes: 1024,
                cpus: &[3, 2],
                bodies: &[],
            };
            arguments(&setup, "epoll").split_off(3).join(" ")
        };
        let base = "--workers=2 --json --no-switches";
        assert_eq!(words(&[]), base);
        assert_eq!(words(&[Switch::Moderation]), base);
        assert_eq!(
            words(&[Switch::Affinity, Switch::Moderation, Switch::Events]),
            "--workers=2 --json --only=affinity,events --pin=3,2"
        );
    }
}
