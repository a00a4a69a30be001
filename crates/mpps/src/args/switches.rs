//! The flags of a server's switches: `--SWITCH`, `--no-SWITCH` and `--only-SWITCH` for each.

use crate::value;
use clap::{Arg, ArgAction, ArgGroup, ArgMatches, Args, Command, FromArgMatches};
use mpps_http::{Switch, Switches};
use std::time::Duration;

/// What a user said about the switches of an engine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SwitchArgs {
    /// To be turned on, whatever the engine thinks of it.
    pub(crate) on: Switches,
    /// To be turned off.
    pub(crate) off: Switches,
    /// Nothing but these is to be on; none said nothing.
    pub(crate) only: Option<Switches>,
    /// How long the interface of the address is to wait between interrupts.
    pub(crate) moderation: Option<Duration>,
}

/// The heading of the flags in the help.
const HEADING: &str = "Switches (each with --no-SWITCH and --only-SWITCH)";
/// Turns all of them off.
const NONE: &str = "no-switches";
/// The flags that name a time for an interface, of which flags about that interface need one.
pub(super) const MODERATES: &str = "moderates";

/// What a switch does, in the help.
fn help(switch: Switch) -> &'static str {
    match switch {
        Switch::Affinity => {
            "A listener and a CPU per worker; a connection stays on the CPU that received its SYN"
        }
        Switch::Moderation => {
            "Let the interface wait so long between interrupts, such as 50us; put back at the end"
        }
        Switch::Buffers => "Keep buffers; do not allocate them for each connection",
        Switch::Fds => "Direct descriptors: slots of the ring, not of the process",
        Switch::Events => "Arm events once; receive as soon as a connection is accepted",
    }
}

/// The three forms of a switch's flag.
fn flags(switch: Switch) -> [&'static str; 3] {
    match switch {
        Switch::Affinity => ["affinity", "no-affinity", "only-affinity"],
        Switch::Moderation => ["moderation", "no-moderation", "only-moderation"],
        Switch::Buffers => ["buffers", "no-buffers", "only-buffers"],
        Switch::Fds => ["fds", "no-fds", "only-fds"],
        Switch::Events => ["events", "no-events", "only-events"],
    }
}

impl SwitchArgs {
    /// The switches that are to be on, given those that an engine turns on by itself. Moderation
    /// is none of the engine's: it acts on an interface, and only if a user names a time.
    pub(crate) fn choose(&self, default: Switches) -> Switches {
        let start = self.only.unwrap_or(default);
        let with = self.on.iter().fold(start, Switches::with);
        self.off
            .iter()
            .fold(with, Switches::without)
            .without(Switch::Moderation)
    }
}

impl Args for SwitchArgs {
    fn augment_args(command: Command) -> Command {
        let command = command.arg(
            Arg::new(NONE)
                .long(NONE)
                .action(ArgAction::SetTrue)
                .help_heading(HEADING)
                .help("None of them; with --engine epoll the baseline of the 2014 paper"),
        );
        let [on, _, only] = flags(Switch::Moderation);
        let command = command.group(ArgGroup::new(MODERATES).args([on, only]).multiple(true));
        Switch::ALL.into_iter().fold(command, |command, switch| {
            let [on, off, only] = flags(switch);
            let action = |arg: Arg| match switch {
                Switch::Moderation => arg
                    .value_name("TIME")
                    .value_parser(value::moderation)
                    .action(ArgAction::Set),
                _ => arg.action(ArgAction::SetTrue),
            };
            let flag = |name: &'static str| Arg::new(name).long(name);
            let plain = action(flag(on)).help(help(switch)).help_heading(HEADING);
            command
                .arg(plain.conflicts_with_all([off, NONE]))
                .arg(
                    flag(off)
                        .action(ArgAction::SetTrue)
                        .hide(true)
                        .conflicts_with(only),
                )
                .arg(action(flag(only)).hide(true).conflicts_with_all([on, NONE]))
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SwitchArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut args = Self::default();
        args.update_from_arg_matches(matches)?;
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        let given = |name: &str, switch: Switch, plain: bool| match switch {
            Switch::Moderation if !plain => matches.contains_id(name),
            _ => matches.get_flag(name),
        };
        if matches.get_flag(NONE) {
            self.only = Some(Switches::NONE);
        }
        for switch in Switch::ALL {
            let [on, off, only] = flags(switch);
            if given(on, switch, false) {
                self.on = self.on.with(switch);
            }
            if given(off, switch, true) {
                self.off = self.off.with(switch);
            }
            if given(only, switch, false) {
                self.only = Some(self.only.unwrap_or_default().with(switch));
            }
        }
        let [on, _, only] = flags(Switch::Moderation);
        let time = |name: &str| matches.get_one::<Duration>(name).copied();
        self.moderation = time(on).or(time(only));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &[&str]) -> Result<SwitchArgs, clap::Error> {
        let command = SwitchArgs::augment_args(Command::new("serve"));
        let words = std::iter::once("serve").chain(words.iter().copied());
        SwitchArgs::from_arg_matches(&command.try_get_matches_from(words)?)
    }

    fn chosen(words: &[&str], default: &[Switch]) -> String {
        let args = parsed(words).expect("a valid command line");
        args.choose(Switches::of(default)).to_string()
    }

    #[test]
    fn flags_change_what_the_engine_would_choose() {
        use Switch::{Buffers, Events, Fds};
        let default = [Buffers, Events];
        assert_eq!(chosen(&[], &default), "buffers+events");
        assert_eq!(chosen(&["--fds"], &default), "buffers+fds+events");
        assert_eq!(chosen(&["--no-events"], &default), "buffers");
        assert_eq!(chosen(&["--only-fds"], &default), "fds");
        assert_eq!(
            chosen(&["--only-fds", "--only-affinity"], &default),
            "affinity+fds"
        );
        assert_eq!(chosen(&["--no-switches"], &default), "none");
        let every = [Fds, Buffers, Events, Switch::Affinity, Switch::Moderation];
        assert_eq!(chosen(&[], &every), "affinity+buffers+fds+events");
    }

    #[test]
    fn moderation_takes_a_time() {
        let args = parsed(&["--moderation", "50us"]).expect("a time");
        assert_eq!(args.moderation, Some(Duration::from_micros(50)));
        let args = parsed(&["--only-moderation", "100us"]).expect("a time");
        assert_eq!(args.moderation, Some(Duration::from_micros(100)));
        assert_eq!(chosen(&["--only-moderation", "1ms"], &Switch::ALL), "none");
        assert!(parsed(&["--moderation"]).is_err());
        assert_eq!(
            parsed(&["--no-moderation"]).expect("plain").moderation,
            None
        );
    }

    #[test]
    fn whatever_names_a_time_may_name_an_interface() {
        use crate::args::Cli;
        use clap::Parser;
        for flag in ["--moderation", "--only-moderation"] {
            let about: [&[&str]; 2] = [&["--interface", "eth9"], &["--moderation-by", "kernel"]];
            for words in about {
                let serve = [&["mpps", "serve"], words].concat();
                assert!(Cli::try_parse_from(&serve).is_err(), "{serve:?}");
                let timed = [&serve[..], &[flag, "50us"]].concat();
                assert!(Cli::try_parse_from(&timed).is_ok(), "{timed:?}");
            }
        }
    }

    #[test]
    fn every_switch_has_the_flags_of_its_name() {
        for switch in Switch::ALL {
            let [on, off, only] = flags(switch);
            assert_eq!(on, switch.name());
            assert_eq!(off, format!("no-{on}"));
            assert_eq!(only, format!("only-{on}"));
        }
    }

    #[test]
    fn contradictions_are_refused() {
        for words in [
            &["--fds", "--no-fds"][..],
            &["--only-fds", "--no-fds"],
            &["--only-fds", "--no-switches"],
            &["--moderation", "50us", "--no-moderation"],
        ] {
            assert!(parsed(words).is_err(), "{words:?}");
        }
    }
}
