//! The help of every command: groups, the options that `-h` shows, notes, examples, exit statuses.
//!
//! `--help`, the manual pages and the completions are made from `help.md` and the arguments. Its first lines
//! are paragraphs that several commands share, each behind its name. A section is a command. A line of it is
//! the options that `-h` shows (`-h: OPTIONS`), an example (`$ COMMAND LINE: meaning`), an exit status
//! (`NUMBER: meaning`), the name of a shared paragraph, or a note.

use super::Cli;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Command, CommandFactory};
use mpps_os::text;
use std::ffi::OsString;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::sync::LazyLock;

/// The parts of a command's help besides its arguments.
#[derive(Debug, Default)]
pub(crate) struct CommandHelp {
    /// Its words: `lab tcp`.
    pub(crate) command: &'static str,
    /// The options that `-h` shows; none for all.
    short: Vec<&'static str>,
    /// Facts that a user must know, in short paragraphs.
    pub(crate) notes: Vec<&'static str>,
    /// Command lines, and what each does.
    pub(crate) examples: Vec<(&'static str, &'static str)>,
    /// Exit statuses beside 0 and 2.
    status: Vec<(u8, &'static str)>,
}

/// The commands in the order of `mpps --help`.
const GROUPS: &[(&str, &[&str])] = &[
    (
        "My server",
        &[
            "doctor",
            "fix",
            "accelerate",
            "top",
            "recv",
            "send",
            "ledger",
        ],
    ),
    ("This host", &["backends", "steer", "tune", "undo"]),
    (
        "Experiments",
        &["lab", "bench", "ndr", "placement", "serve", "load"],
    ),
    ("Results", &["report", "compare"]),
    ("Shell", &["completions", "help"]),
];

/// One row per command that has options.
static HELP: LazyLock<Vec<CommandHelp>> = LazyLock::new(|| {
    let mut sections = include_str!("help.md").split("\n# ");
    let shared = sections.next().unwrap_or_default().lines();
    let shared: Vec<_> = shared.filter_map(|line| line.split_once(": ")).collect();
    let rows = sections.map(|section| CommandHelp::read(section, &shared));
    rows.collect()
});

impl CommandHelp {
    fn read(section: &'static str, shared: &[(&str, &'static str)]) -> Self {
        let mut lines = section.lines().filter(|line| !line.is_empty());
        let mut row = Self {
            command: lines.next().unwrap_or_default(),
            ..Self::default()
        };
        for line in lines {
            let (head, rest) = line.split_once(": ").unwrap_or((line, ""));
            if head == "-h" {
                row.short = rest.split(' ').collect();
            } else if let Some(command) = head.strip_prefix("$ ") {
                row.examples.push((command, rest));
            } else if let Ok(status) = head.parse() {
                row.status.push((status, rest));
            } else {
                let named = shared.iter().find(|(name, _)| *name == line);
                row.notes.push(named.map_or(line, |(_, text)| text));
            }
        }
        row
    }

    /// The row of a command.
    pub(crate) fn of(command: &str) -> Option<&'static Self> {
        HELP.iter().find(|row| row.command == command)
    }

    /// Exit statuses, each with its meaning.
    pub(crate) fn statuses(&self) -> Vec<(u8, &'static str)> {
        let mut all = vec![(0, "success"), (2, "error")];
        all.extend(&self.status);
        all.sort_unstable();
        all
    }

    /// The text below the arguments in `--help`.
    fn below(&self) -> String {
        let mut text = String::new();
        for note in &self.notes {
            let _ = writeln!(text, "{note}\n");
        }
        let _ = writeln!(text, "Examples:");
        for (line, what) in &self.examples {
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
        for row in &*HELP {
            let named = commands.iter().find(|(path, _)| path == row.command);
            let (_, command) = named.unwrap_or_else(|| panic!("{} is no command", row.command));
            for name in &row.short {
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
        for row in &*HELP {
            for (line, _) in &row.examples {
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
