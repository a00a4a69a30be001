//! `mpps generate`: the manual pages and the completions of shells, made from the arguments
//! themselves. It is for those who make packages: `--help` does not show it.

use super::help::{self, CommandHelp};
use super::{CommandEnding, completions};
use crate::output::file::OutputFile;
use anyhow::{Context, Result};
use clap::Args;
use clap::Command;
use clap_complete::{Generator, Shell};
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};
use mpps_os::file::create_directories;
use std::io;
use std::path::PathBuf;

/// Arguments of `mpps generate`.
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    /// The folder of the files
    pub(crate) folder: PathBuf,
    /// The date at the foot of the manual pages, as in 2026-11-24
    #[arg(long)]
    pub(crate) date: String,
}

/// Writes all files into the folder, which is made if need be.
pub(super) fn run(args: &GenerateArgs) -> Result<CommandEnding> {
    let folder = &args.folder;
    let cannot = || format!("cannot write to {}", folder.display());
    create_directories(folder).with_context(cannot)?;
    let mut files = pages(&args.date)?;
    for shell in [Shell::Bash, Shell::Fish, Shell::Zsh] {
        files.push((shell.file_name("mpps"), completions::script(shell)));
    }
    let tried = files.into_iter().map(|(name, text)| {
        let file = OutputFile::try_out("FOLDER", &folder.join(name))?;
        Ok((file, text))
    });
    for (file, text) in tried.collect::<Result<Vec<_>>>()? {
        file.write(text.as_bytes())?;
    }
    Ok(CommandEnding::Fine)
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The subcommands that `--help` shows.
fn shown(program: &Command) -> Vec<Command> {
    let subcommands = program.get_subcommands();
    let shown = subcommands.filter(|subcommand| !subcommand.is_hide_set());
    shown.cloned().collect()
}

/// A page of the program and one of each subcommand: the name of the file, and what is in it.
fn pages(date: &str) -> io::Result<Vec<(String, String)>> {
    let mut program = help::command().disable_help_subcommand(true);
    program.build();
    let mut commands = shown(&program);
    let below: Vec<Command> = commands.iter().flat_map(shown).collect();
    commands.extend(
        below
            .into_iter()
            .filter(|command| command.get_name() != "help"),
    );
    commands.push(program);
    commands.iter().map(|command| page(command, date)).collect()
}

/// The sections of man-pages(7). Not all are in a page of [`Man::render`].
fn page(command: &Command, date: &str) -> io::Result<(String, String)> {
    let man = Man::new(command.clone());
    let name = man.get_filename();
    let man = man
        .title(name.trim_end_matches(".1").to_uppercase())
        .date(date)
        .source(format!("mpps {VERSION}"))
        .manual("User Commands");
    let about = command.get_about().map(ToString::to_string);
    let path = name.trim_end_matches(".1").trim_start_matches("mpps");
    let path = path.trim_start_matches('-').replace('-', " ");
    let row = CommandHelp::of(&path);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    let mut roff = Roff::default();
    roff.control("SH", ["DESCRIPTION"]);
    roff.text([roman(about.unwrap_or_default() + ".")]);
    for note in row.map_or(&[][..], |row| &row.notes) {
        roff.control("PP", []);
        roff.text([roman(*note)]);
    }
    roff.to_writer(&mut page)?;
    man.render_options_section(&mut page)?;
    if !shown(command).is_empty() {
        man.render_subcommands_section(&mut page)?;
    }
    let mut roff = Roff::default();
    if let Some(row) = row {
        roff.control("SH", ["EXIT STATUS"]);
        for (status, meaning) in row.statuses() {
            roff.control("TP", []);
            roff.text([bold(status.to_string())]);
            roff.text([roman(meaning)]);
        }
        roff.control("SH", ["EXAMPLES"]);
        for (line, what) in &row.examples {
            roff.control("TP", []);
            roff.text([bold(*line)]);
            roff.text([roman(*what)]);
        }
    }
    if command.get_name() != "mpps" {
        roff.control("SH", ["SEE ALSO"]);
        roff.control("BR", ["mpps", "(1)"]);
    }
    roff.to_writer(&mut page)?;
    // An empty line is no paragraph of man(7), and mandoc(1) says so.
    let page = String::from_utf8_lossy(&page).replace(".br\n\n.br\n", ".sp\n");
    Ok((name, page))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_command_that_is_shown_has_a_page_with_its_sections() {
        let pages = pages("2026-11-24").unwrap();
        let commands = shown(&help::command());
        let below: usize = commands.iter().map(|command| shown(command).len()).sum();
        assert_eq!(pages.len(), commands.len() + below + 1);
        assert!(pages.iter().any(|(name, _)| name == "mpps-tune-plan.1"));
        for (name, page) in pages {
            for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "OPTIONS"] {
                assert!(page.contains(&format!(".SH {section}")), "{name} {section}");
            }
            let told = page.contains("Exit status:") || page.contains("\\fBmpps generate");
            assert!(!told, "{name}");
            let is_program = name == "mpps.1";
            assert_eq!(page.contains(".SH EXAMPLES"), !is_program, "{name}");
        }
    }

    #[test]
    fn each_argument_says_what_it_is_for() {
        let mut program = help::command();
        program.build();
        for command in program.get_subcommands() {
            for argument in command.get_arguments() {
                let names = format!("{} {}", command.get_name(), argument.get_id());
                assert!(argument.get_help().is_some(), "{names}");
            }
        }
    }
}
