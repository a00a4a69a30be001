//! `mpps completions SHELL`: the completions of a shell, made from the arguments themselves.
//!
//! The shell itself lists the interfaces and network namespaces of the host.

use super::CommandEnding;
use super::help;
use crate::output::{self, OutputStream};
use anyhow::{Context, Result};
use clap::Args;
use clap::Command;
use clap::builder::PossibleValuesParser;
use clap_complete::Shell;
use mpps_io::BACKENDS;

/// Arguments of `mpps completions`.
#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", value_parser = ["bash", "fish", "zsh"])]
    pub(crate) shell: String,
}

/// The directories of the interfaces, and of the network namespaces.
const INTERFACES: &str = "/sys/class/net";
const NAMESPACES: &str = "/run/netns";

/// Prints the completions.
pub(super) fn run(args: &CompletionsArgs) -> Result<CommandEnding> {
    let shell: Shell = args.shell.parse().ok().context("SHELL")?;
    output::text(OutputStream::Out, &script(shell))?;
    Ok(CommandEnding::Fine)
}

/// The script of a shell.
pub(super) fn script(shell: Shell) -> String {
    let mut program = program();
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut program, "mpps", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    match shell {
        Shell::Bash => bash(&script),
        Shell::Fish => fish(&script),
        _ => zsh(&script),
    }
}

/// The commands that `--help` shows, with the names of the backends as values.
fn program() -> Command {
    let program = help::command();
    let shown = program.get_subcommands().filter(|one| !one.is_hide_set());
    let shown = shown.cloned().map(|command| {
        command.mut_args(|arg| match arg.get_id().as_str() == "backend" {
            true => arg.value_parser(PossibleValuesParser::new(
                BACKENDS.iter().map(|backend| backend.name),
            )),
            false => arg,
        })
    });
    let shown: Vec<Command> = shown.collect();
    Command::new("mpps")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommands(shown)
}

/// Bash completes the value of an option by `compgen -f` below a line `--OPTION)`. Another list is one of
/// files, too: `compgen -W` would run a name such as `$(id)`, and only names of files are quoted.
fn bash(script: &str) -> String {
    let mut list = None;
    let lines = script.lines().map(|line| {
        match line.trim() {
            "--interface)" => list = Some(INTERFACES),
            "--netns)" => list = Some(NAMESPACES),
            other if other.ends_with(')') && other.starts_with('-') => list = None,
            _ => {}
        }
        match list {
            Some(directory) => line.replace(
                "COMPREPLY=($(compgen -f \"${cur}\"))",
                &format!(
                    "mapfile -t COMPREPLY < <(builtin cd {directory} 2>/dev/null && compgen -f -- \"${{cur}}\"); \
                     compopt -o filenames 2>/dev/null"
                ),
            ),
            None => line.to_owned(),
        }
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Fish has a line for each option, and takes a command's words as its values.
fn fish(script: &str) -> String {
    let lines = script.lines().map(|line| {
        let list = match line {
            line if line.contains(" -l interface ") => INTERFACES,
            line if line.contains(" -l netns ") => NAMESPACES,
            _ => return line.to_owned(),
        };
        format!("{line} -f -a \"(command ls {list} 2>/dev/null)\"")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// Zsh names what completes a value behind the value's name.
fn zsh(script: &str) -> String {
    let namespaces = format!(":NAME|PID|FILE:($(command ls {NAMESPACES} 2>/dev/null))");
    script
        .replace(":IF:_default", ":IF:_net_interfaces")
        .replace("::interface:_default", "::interface:_net_interfaces")
        .replace(":NAME|PID|FILE:_default", &namespaces)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shell_completes_backends_interfaces_and_namespaces() {
        for (shell, words) in [
            (
                Shell::Bash,
                [
                    "(builtin cd /sys/class/net 2>/dev/null && compgen",
                    "/run/netns",
                ],
            ),
            (
                Shell::Fish,
                ["-a \"(command ls /sys/class/net ", "/run/netns"],
            ),
            (Shell::Zsh, [":IF:_net_interfaces", "/run/netns"]),
        ] {
            let script = script(shell);
            for word in words.into_iter().chain(["af_xdp", "recvmmsg"]) {
                assert!(script.contains(word), "{shell}: {word}");
            }
            let mut words = script.split(|letter: char| !letter.is_alphanumeric());
            assert!(!words.any(|word| word == "generate"), "{shell}");
        }
    }
}
