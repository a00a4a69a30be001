//! The help of every command: groups, the options that `-h` shows, notes, examples, exit statuses.
//!
//! `--help`, the manual pages and the completions are made from this table and the arguments.

use super::Cli;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Command, CommandFactory};
use mpps_os::text;
use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;

/// The parts of a command's help besides its arguments.
#[derive(Debug, Default)]
pub(crate) struct CommandHelp {
    /// Its words: `lab tcp`.
    pub(crate) command: &'static str,
    /// The options that `-h` shows; none for all.
    short: &'static [&'static str],
    /// Facts that a user must know, in short paragraphs.
    pub(crate) notes: &'static [&'static str],
    /// Command lines, and what each does.
    pub(crate) examples: &'static [(&'static str, &'static str)],
    /// Exit statuses beside 0 and 2.
    status: &'static [(u8, &'static str)],
}

/// The commands in the order of `mpps --help`.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "My server",
        &["doctor", "fix", "top", "recv", "send", "ledger"],
    ),
    ("This host", &["backends", "steer", "tune", "undo"]),
    (
        "Experiments",
        &["lab", "bench", "ndr", "placement", "serve", "load"],
    ),
    ("Results", &["report", "compare"]),
    ("Shell", &["completions", "help"]),
];

const UNITS: &str = "TIME: 50us, 500ms, 90s or 1m; a plain number means seconds, unless the option \
                     names another unit. BYTES: k, M, G are powers of 1024. RATE (per second) and N: k, \
                     M, G are powers of 1000.";
const FILES: &str = "Writes a JSON file and an HTML page into the current directory, unless --json and \
                     --html name others. In a directory that takes no files, it measures without them \
                     and ends with status 2. `mpps report` shows the JSON file again.";
const LIVE: &str = "With --sender it receives at --address on this host. Paths such as af_xdp attach to the \
                    interface, and detach at the end.";
const TWO_HOSTS: &str = "The lab is two network namespaces on this machine. They vanish with the program, \
                         which changes no interface, sysctl or socket outside of them.";
const LESS_WITHOUT_ROOT: &str = "Reads counters and changes nothing. Without root it cannot see drop \
                                 reasons and the owners of other users' sockets; a note says so.";
const BALANCE: (u8, &str) = (1, "a ledger does not balance");
const INTERRUPTED: (u8, &str) = (130, "interrupted");

/// One row per command that has options.
pub(crate) const HELP: &[CommandHelp] = &[
    CommandHelp {
        command: "doctor",
        short: &[
            "interface",
            "port",
            "pid",
            "netns",
            "container",
            "duration",
            "json",
            "html",
        ],
        notes: &[
            LESS_WITHOUT_ROOT,
            "Compares counters at the start and the end. Ctrl-C ends it early, with the findings so far.",
        ],
        examples: &[
            ("mpps doctor", "all UDP traffic of this host, for 5 s"),
            ("mpps doctor --port 53", "only the server on port 53"),
            (
                "mpps doctor eth0 --duration 1m --html doctor.html",
                "one interface, with a page",
            ),
        ],
        status: &[
            (1, "problems found"),
            (
                130,
                "interrupted before the first counters were read; a later Ctrl-C gives 0 or 1",
            ),
        ],
    },
    CommandHelp {
        command: "fix",
        notes: &[
            "Looks for losses as `mpps doctor` does, shows the changes that may help, and asks. Then each change is \
             measured on the live traffic, without and with it in turn. It stays if it helps beyond noise.",
            "Changes sockets, threads or the state of the program from outside. It needs the rights of ptrace(2) \
             over the program, and CAP_NET_ADMIN for buffers: run it as root.",
        ],
        examples: &[
            ("mpps fix --port 53 --dry-run", "show the changes"),
            (
                "mpps fix --port 53",
                "ask, change, measure, keep what helps",
            ),
            ("mpps undo", "restore all"),
        ],
        status: &[
            (
                1,
                "losses remain: --dry-run, not agreed to, or no change helps",
            ),
            INTERRUPTED,
        ],
        ..EMPTY
    },
    CommandHelp {
        command: "top",
        short: &[
            "interface",
            "port",
            "pid",
            "netns",
            "interval",
            "once",
            "json",
            "listen",
        ],
        notes: &[LESS_WITHOUT_ROOT],
        examples: &[
            ("mpps top", "the screen; q ends it"),
            ("mpps top --once --port 53", "one page as text"),
            (
                "mpps top --listen 127.0.0.1:9100",
                "metrics for Prometheus at /metrics",
            ),
        ],
        status: &[],
    },
    CommandHelp {
        command: "recv",
        short: &[
            "address",
            "threads",
            "reuseport",
            "gro",
            "rcvbuf",
            "backend",
            "duration",
            "json",
            "verbose",
        ],
        notes: &[
            "Prints packets, bytes and bits per second, and totals at the end. Ctrl-C ends it. Bytes \
             are UDP payload, or whole frames with a backend on an interface.",
            "It recognises the stamps of `mpps send --stamp`, and then reports loss, order and delay.",
            "THREADS and REUSEPORT may follow ADDR:PORT: mpps recv 0.0.0.0:4321 2 1",
            UNITS,
        ],
        examples: &[
            (
                "mpps recv :4321 --duration 10s",
                "count datagrams to port 4321 for 10 s",
            ),
            (
                "mpps recv :4321 --threads 4 --reuseport",
                "four threads, a socket each",
            ),
            ("mpps recv 10.0.0.2:4321 --backend af_xdp", "by AF_XDP"),
        ],
        status: &[],
    },
    CommandHelp {
        command: "send",
        short: &[
            "targets", "threads", "size", "rate", "count", "duration", "stamp", "backend", "json",
        ],
        notes: &[
            "Sends with one thread per target unless --threads is given. Prints the rate each second and \
             the totals at the end. Ctrl-C ends it.",
            UNITS,
        ],
        examples: &[
            (
                "mpps send 192.168.254.1:4321 --rate 100k",
                "100 000 datagrams a second",
            ),
            (
                "mpps send [fd00::1]:4321 --stamp --count 1M --json=send.json",
                "for mpps ledger",
            ),
        ],
        status: &[(
            1,
            "the kernel refused all datagrams, or no next host answers ARP or neighbour discovery",
        )],
    },
    CommandHelp {
        command: "ledger",
        notes: &[
            "UNACCOUNTED is offered less delivered and counted losses. The ledger balances if it is 0.",
        ],
        examples: &[(
            "mpps ledger send.json recv.json",
            "check both ends of a run",
        )],
        status: &[(1, "the ledger does not balance, or cannot be decided")],
        ..EMPTY
    },
    CommandHelp {
        command: "backends",
        examples: &[
            ("mpps backends", "the receive and send paths of this host"),
            ("mpps backends eth0", "the receive paths that work on eth0"),
            (
                "mpps backends eth0 --for af_xdp",
                "predict how AF_XDP will work on eth0",
            ),
        ],
        status: &[(1, "with --for: something prevents it")],
        ..EMPTY
    },
    CommandHelp {
        command: "steer",
        short: &[
            "interface",
            "queues",
            "flow",
            "flows",
            "pcap",
            "port",
            "duration",
            "verify",
            "json",
        ],
        notes: &[
            "With IF it uses the card's RSS settings, and changes none. Without IF it predicts a card with \
             --queues N.",
            "Flows come from --flow, --flows, --file or --pcap. Otherwise it counts the flows that arrive \
             at IF, with a packet socket (needs CAP_NET_RAW).",
            "Assumes unfragmented packets.",
        ],
        examples: &[
            (
                "mpps steer eth0 --duration 10s",
                "the flows that arrive, and their queues",
            ),
            (
                "mpps steer --queues 8 --flows 1000",
                "predict a card with 8 queues",
            ),
            (
                "mpps steer eth0 --pcap trace.pcap",
                "the flows of a capture, on eth0's table",
            ),
        ],
        status: &[(
            1,
            "with --verify: packets used other queues, flows did not come, or nothing could be verified",
        )],
    },
    CommandHelp {
        command: "tune",
        notes: &[
            "A stage is a group of settings; `mpps tune plan` lists them. `plan` needs no rights, the \
             others need root.",
            "`apply` and `prove` record each setting in /run/mpps before they change it. Changes stay \
             until `mpps tune undo` or a reboot.",
        ],
        examples: &[
            ("mpps tune plan eth0", "show the changes and their commands"),
            (
                "mpps tune apply eth0 --confirm-within 60s",
                "change, and revert without a confirmation",
            ),
            ("mpps tune undo eth0", "restore the settings"),
        ],
        status: &[
            (
                1,
                "a step was refused, or another program has changed a setting since",
            ),
            (130, "not confirmed in time; every setting is restored"),
        ],
        ..EMPTY
    },
    CommandHelp {
        command: "tune plan",
        examples: &[(
            "mpps tune plan eth0 --for af_xdp",
            "the plan for AF_XDP on eth0",
        )],
        ..EMPTY
    },
    CommandHelp {
        command: "tune apply",
        notes: &[
            "If the kernel or driver refuses a setting, every setting is restored, unless --keep-going is \
             given.",
            "With --confirm-within it waits for `mpps tune confirm` from another shell. The settings are \
             restored even if it is killed.",
        ],
        examples: &[
            ("mpps tune apply eth0 --only rings", "one stage"),
            (
                "mpps tune apply eth0 --confirm-within 60s",
                "revert unless confirmed",
            ),
        ],
        status: &[
            (1, "a step was refused (with --keep-going)"),
            (
                130,
                "interrupted or not confirmed; every setting is restored",
            ),
        ],
        ..EMPTY
    },
    CommandHelp {
        command: "tune prove",
        short: &[
            "interface",
            "goal",
            "port",
            "only",
            "put_back",
            "quick",
            "json",
            "html",
        ],
        notes: &[
            "Needs live traffic: clients, or `mpps send` on another host, must send to --port during the \
             whole run. If a program has the port, its reads are counted; otherwise mpps reads.",
            "With --for tcp a server must listen there. Accepted connections are counted; clients or \
             `mpps load` on another host must make them.",
            "A stage is a group of settings. Each is measured on top of those kept before it. Stages that \
             help stay applied until `mpps tune undo`. The first row changes nothing and shows the noise. \
             A stage is kept if rate, loss or CPU time improves by more than the noise, and neither rate \
             nor loss gets worse.",
        ],
        examples: &[(
            "mpps tune prove eth0 --port 53",
            "measure each stage on live traffic",
        )],
        status: &[(130, "interrupted; every setting is restored")],
    },
    CommandHelp {
        command: "tune confirm",
        examples: &[("mpps tune confirm eth0", "keep the changes")],
        status: &[(1, "nothing is waiting for a confirmation")],
        ..EMPTY
    },
    CommandHelp {
        command: "tune undo",
        examples: &[
            ("mpps tune undo", "every tuned interface"),
            (
                "mpps tune undo eth0 --force",
                "also what another program has changed since",
            ),
        ],
        status: &[(
            1,
            "another program has changed a setting since; it stays as it is",
        )],
        ..EMPTY
    },
    CommandHelp {
        command: "tune status",
        examples: &[("mpps tune status", "every tuned interface")],
        status: &[(1, "another program has changed a setting since")],
        ..EMPTY
    },
    CommandHelp {
        command: "undo",
        examples: &[
            ("mpps undo --list", "the settings that runs have changed"),
            (
                "mpps undo",
                "restore the settings that killed runs left changed",
            ),
        ],
        status: &[(
            1,
            "another program has changed a setting since; it stays as it is",
        )],
        ..EMPTY
    },
    CommandHelp {
        command: "lab",
        short: &[
            "quick", "only", "list", "repeat", "json", "html", "verbose", "shell", "command",
        ],
        notes: &[
            TWO_HOSTS,
            "A rung is one way to receive, a row of the table. The article of 2015 is \"How to receive a \
             million packets per second\" (Cloudflare).",
            FILES,
        ],
        examples: &[
            ("mpps lab", "every rung that this machine has CPUs for"),
            (
                "mpps lab --quick --only 1,2,4a",
                "three rungs, one short repeat each",
            ),
            ("mpps lab tcp", "short TCP connections instead of UDP"),
            (
                "mpps lab -- mpps recv :4321",
                "a command on the receiving host",
            ),
        ],
        status: &[BALANCE, INTERRUPTED],
    },
    CommandHelp {
        command: "lab tcp",
        short: &[
            "quick",
            "only",
            "list",
            "repeat",
            "connections",
            "json",
            "html",
        ],
        notes: &[
            TWO_HOSTS,
            "--skb-defer is the exception: it changes one sysctl of this machine and restores it.",
            "A cell is EXPERIMENT/SERVER/STEP/BODY, such as 3/mpps/base/16k; --list shows all. Experiment \
             1 tries times between interrupts, 2 adds techniques one by one, 3 does so for more servers \
             and body sizes. The 2014 paper is \"A Performance Improvement of Linux TCP Networking by \
             Data Structure Reuse\".",
            FILES,
        ],
        examples: &[
            ("mpps lab tcp", "the experiments of the 2014 paper"),
            (
                "mpps lab tcp --only 1,3/nginx",
                "experiment 1, and nginx of experiment 3",
            ),
        ],
        status: &[
            (
                1,
                "a ledger does not balance, or a kernel counter contradicts one",
            ),
            INTERRUPTED,
        ],
    },
    CommandHelp {
        command: "bench",
        short: &[
            "quick",
            "only",
            "list",
            "repeat",
            "flows",
            "loss_free",
            "json",
            "html",
            "verbose",
        ],
        notes: &[
            TWO_HOSTS,
            FILES,
            "With --sender it prints the command for HOST, then measures the traffic that arrives at \
             --address. Losses between the hosts are unknown, so the exit status ignores the ledgers.",
            LIVE,
        ],
        examples: &[
            ("mpps bench --only recvmmsg,af_xdp", "two receive paths"),
            (
                "mpps bench --sender HOST --address 10.0.0.2:4321",
                "traffic of another host",
            ),
        ],
        status: &[BALANCE, INTERRUPTED],
    },
    CommandHelp {
        command: "ndr",
        short: &[
            "paths", "quick", "loss", "limit", "sender", "address", "json", "html",
        ],
        notes: &[
            "Searches by MLRsearch (RFC 9971): it accepts a load if loss stays within the goal for at least \
             half of the trial time.",
            TWO_HOSTS,
            FILES,
            "With --sender another host sends to --address, by one command per trial. Losses between the \
             hosts are unknown, so the exit status ignores the ledgers.",
            LIVE,
        ],
        examples: &[
            ("mpps ndr recvmmsg af_xdp", "two receive paths"),
            (
                "mpps ndr recvmmsg --sender 'ssh HOST mpps send' --address 10.0.0.2:4321",
                "traffic of another host",
            ),
        ],
        status: &[BALANCE, (130, "interrupted; results so far are written")],
    },
    CommandHelp {
        command: "placement",
        notes: &[
            "Runs the receiver on the CPU of its receive queue, on the sibling hyper-thread, on another \
             core of the node, and on another node, if this host has them.",
            TWO_HOSTS,
            "With --interface it measures live traffic and changes no setting. The interface counts other \
             frames too, so the exit status ignores the ledgers.",
            FILES,
        ],
        examples: &[
            ("mpps placement", "in the lab"),
            (
                "mpps placement --interface eth0 --port 53",
                "with live traffic",
            ),
        ],
        status: &[BALANCE, INTERRUPTED],
        ..EMPTY
    },
    CommandHelp {
        command: "serve",
        short: &[
            "address", "size", "root", "engine", "workers", "close", "user", "json",
        ],
        notes: &[
            "Prints the granted settings, a line each second, and totals at the end. Ctrl-C or SIGTERM \
             lets open connections end; a second one ends at once.",
            UNITS,
        ],
        examples: &[
            ("mpps serve", "1 KiB at every path of http://0.0.0.0:8080/"),
            (
                "mpps serve 127.0.0.1:8000 --root public",
                "the files below a directory",
            ),
            (
                "mpps serve --engine epoll --no-switches",
                "a plain server, for comparison",
            ),
            ("mpps serve --only fds", "a single switch"),
        ],
        status: &[(1, "the ledger of connections does not balance")],
    },
    CommandHelp {
        command: "load",
        short: &[
            "url",
            "connections",
            "rate",
            "duration",
            "requests",
            "keep_alive",
            "threads",
            "ab",
            "json",
        ],
        notes: &["Connects only to the host in URL.", UNITS],
        examples: &[
            (
                "mpps load http://127.0.0.1:8080/",
                "one connection per request, for 10 s",
            ),
            (
                "mpps load http://127.0.0.1:8080/ --keep-alive",
                "persistent connections",
            ),
            (
                "mpps load http://10.0.0.2/ --rate 20k",
                "20 000 requests a second, without waiting for replies",
            ),
            (
                "mpps load http://10.0.0.2/ -n 100k -c 100 --ab",
                "the summary of ab",
            ),
        ],
        status: &[
            (
                1,
                "requests failed, none was completed, the server stopped answering, or the ledger does \
                 not balance",
            ),
            INTERRUPTED,
        ],
    },
    CommandHelp {
        command: "report",
        examples: &[
            ("mpps report lab.json", "as text"),
            ("mpps report lab.json --html lab.html", "as a page"),
        ],
        ..EMPTY
    },
    CommandHelp {
        command: "compare",
        examples: &[("mpps compare before.json after.json", "after a change")],
        status: &[(
            1,
            "a row of B is worse, or B lacks a row of A that B's --only did not exclude",
        )],
        ..EMPTY
    },
    CommandHelp {
        command: "completions",
        examples: &[(
            "mpps completions bash > /etc/bash_completion.d/mpps",
            "for all users",
        )],
        ..EMPTY
    },
];

const EMPTY: CommandHelp = CommandHelp {
    command: "",
    short: &[],
    notes: &[],
    examples: &[],
    status: &[],
};

impl CommandHelp {
    /// The row of a command.
    pub(crate) fn of(command: &str) -> Option<&'static Self> {
        HELP.iter().find(|row| row.command == command)
    }

    /// Exit statuses, each with its meaning.
    pub(crate) fn statuses(&self) -> Vec<(u8, &'static str)> {
        let mut all = vec![(0, "success"), (2, "error")];
        all.extend(self.status);
        all.sort_unstable();
        all
    }

    /// The text below the arguments in `--help`.
    fn below(&self) -> String {
        let mut text = String::new();
        for note in self.notes {
            let _ = writeln!(text, "{note}\n");
        }
        let _ = writeln!(text, "Examples:");
        for (line, what) in self.examples {
            let _ = writeln!(text, "  {line}\n      {what}");
        }
        let _ = writeln!(text, "\nExit status:");
        for (status, meaning) in self.statuses() {
            let _ = writeln!(text, "  {status:<4} {meaning}");
        }
        text
    }
}

/// The command line of `mpps`, with the help of this table.
pub(crate) fn command() -> Command {
    let program = decorated(Cli::command(), "");
    let list = groups(&program);
    program.help_template(format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}Options:\n{{options}}\n\n\
         `mpps COMMAND -h` lists the usual options, `mpps COMMAND --help` all of them.\n"
    ))
}

/// The subcommands by group.
fn groups(program: &Command) -> String {
    let mut text = String::new();
    for (heading, names) in GROUPS {
        let _ = writeln!(text, "{heading}:");
        for name in *names {
            let about = program.find_subcommand(name).and_then(Command::get_about);
            let about = about.map_or_else(
                || "Print the help of a command".to_owned(),
                ToString::to_string,
            );
            let _ = writeln!(text, "  {name:<12} {about}");
        }
        text.push('\n');
    }
    text
}

/// The command and all below it, each with its row.
fn decorated(command: Command, path: &str) -> Command {
    let names: Vec<String> = command
        .get_subcommands()
        .map(|below| below.get_name().to_owned())
        .collect();
    let command = names.iter().fold(command, |command, name| {
        let path = format!("{path} {name}");
        command.mut_subcommand(name, |below| decorated(below, path.trim_start()))
    });
    let Some(row) = CommandHelp::of(path) else {
        return command;
    };
    let short = |id: &str| row.short.is_empty() || row.short.contains(&id);
    let command = command.mut_args(|arg| {
        // The kernel takes any bytes for a name.
        let arg = match arg.get_id().as_str() {
            "interface" | "netns" | "container" => {
                arg.value_parser(OsStringValueParser::new().map(name_of))
            }
            _ => arg,
        };
        let is_short = short(arg.get_id().as_str()) || arg.is_hide_set();
        arg.hide_short_help(!is_short)
    });
    let hidden = command
        .get_opts()
        .filter(|one| one.is_hide_short_help_set());
    let more = match hidden.count() {
        0 => format!("`mpps {path} --help` has examples and exit statuses."),
        more => {
            format!("`mpps {path} --help` has {more} more options, examples and exit statuses.")
        }
    };
    command.after_help(more).after_long_help(row.below())
}

fn name_of(word: OsString) -> String {
    text::of_bytes(word.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every command below this one, with its words.
    fn all(command: &Command, path: &str) -> Vec<(String, Command)> {
        let shown = command
            .get_subcommands()
            .filter(|below| !below.is_hide_set());
        let shown = shown.filter(|below| below.get_name() != "help");
        shown
            .flat_map(|below| {
                let path = format!("{path} {}", below.get_name()).trim().to_owned();
                let mut found = all(below, &path);
                found.push((path, below.clone()));
                found
            })
            .collect()
    }

    #[test]
    fn every_command_has_a_row_and_every_row_a_command() {
        let commands = all(&command(), "");
        for (path, _) in &commands {
            let row = CommandHelp::of(path).unwrap_or_else(|| panic!("{path} has no row"));
            assert!(!row.examples.is_empty(), "{path}");
        }
        for row in HELP {
            let named = commands.iter().find(|(path, _)| path == row.command);
            let (_, command) = named.unwrap_or_else(|| panic!("{} is no command", row.command));
            for name in row.short {
                assert!(
                    command.get_arguments().any(|arg| arg.get_id() == *name),
                    "{} {name}",
                    row.command
                );
            }
            assert!(row.short.len() <= 9, "{}", row.command);
        }
    }

    #[test]
    fn every_command_is_in_one_group() {
        let program = command();
        let shown = program
            .get_subcommands()
            .filter(|below| !below.is_hide_set());
        for command in shown {
            let name = command.get_name();
            let groups = GROUPS.iter().filter(|(_, names)| names.contains(&name));
            assert_eq!(groups.count(), 1, "{name}");
        }
    }

    #[test]
    fn examples_are_command_lines() {
        for row in HELP {
            for (line, _) in row.examples {
                let line = line.split(" > ").next().unwrap_or_default();
                let words: Vec<&str> = match line.split_once('\'') {
                    None => line.split_whitespace().collect(),
                    Some((before, rest)) => {
                        let (quoted, after) = rest.split_once('\'').expect("it is closed");
                        let before = before.split_whitespace().chain([quoted]);
                        before.chain(after.split_whitespace()).collect()
                    }
                };
                let parsed = command().try_get_matches_from(&words);
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
            }
        }
    }
}
