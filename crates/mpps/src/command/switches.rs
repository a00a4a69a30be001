//! The switches of a server, as a user turns them on and off.

use crate::value::{self, Named, one_of};
use anyhow::{Result, bail};
use clap::Args;
use mpps_http::{Switch, Switches};
use std::time::Duration;

/// The switches of an engine, as a user sets them.
#[derive(Debug, Args)]
#[command(next_help_heading = "Switches")]
pub(crate) struct SwitchArgs {
    /// Turn these switches on, in addition to the defaults: affinity, buffers and events; fds too with
    /// io_uring from Linux 6.15
    #[arg(long, value_name = "SWITCH,...", value_delimiter = ',', value_parser = one_of(SWITCH))]
    with: Vec<Switch>,
    /// Turn these switches of --with off
    #[arg(
        long,
        value_name = "SWITCH,...",
        value_delimiter = ',',
        value_parser = one_of(SWITCH),
        hide_possible_values = true
    )]
    without: Vec<Switch>,
    /// Turn on only these switches of --with
    #[arg(long, value_name = "SWITCH,...", value_delimiter = ',', value_parser = one_of(SWITCH),
          hide_possible_values = true, conflicts_with_all = ["with", "without"])]
    only: Vec<Switch>,
    /// Turn all switches off; with --engine epoll this is a plain server for comparison
    #[arg(long, conflicts_with_all = ["with", "only"])]
    no_switches: bool,
    /// Set the time between interrupts of the interface, such as 50us; a plain number means microseconds.
    /// Restored at the end [default: unchanged]
    #[arg(long, value_name = "TIME", help_heading = "Moderation", value_parser = value::moderation)]
    pub(crate) moderation: Option<Duration>,
}

/// Moderation is not among them: it takes a time.
const SWITCH: &[Named<Switch>] = &[
    (
        "affinity",
        "A listener and a CPU per worker; a connection stays on the CPU that received its SYN",
        Switch::Affinity,
    ),
    (
        "buffers",
        "Keep buffers instead of allocating them per connection",
        Switch::Buffers,
    ),
    (
        "fds",
        "Register sockets with io_uring instead of using file descriptors (io_uring only)",
        Switch::Fds,
    ),
    (
        "events",
        "Accept a connection only when its request is there, and register for its events at most once",
        Switch::Events,
    ),
];

impl SwitchArgs {
    /// The switches that are to be on, given those that an engine turns on by itself.
    pub(crate) fn choose(&self, default: Switches) -> Result<Switches> {
        let mut with = self.with.iter();
        if let Some(switch) = with.find(|switch| self.without.contains(switch)) {
            bail!("--with {switch} and --without {switch}: on or off?");
        }
        if self.no_switches || !self.only.is_empty() {
            return Ok(Switches::of(&self.only));
        }
        let on = self.with.iter().copied().fold(default, Switches::with);
        let off = self.without.iter().copied();
        Ok(off.fold(on, Switches::without))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::{Cli, Subcommands};
    use clap::Parser;

    fn parsed(words: &[&str]) -> Option<SwitchArgs> {
        let words = ["mpps", "serve"].iter().chain(words);
        match Cli::try_parse_from(words).ok()?.command {
            Subcommands::Serve(args) => Some(args.switches),
            _ => None,
        }
    }

    fn chosen(words: &[&str], default: &[Switch]) -> String {
        let args = parsed(words).expect("a valid command line");
        let chosen = args
            .choose(Switches::of(default))
            .expect("no contradiction");
        chosen.to_string()
    }

    #[test]
    fn flags_change_what_the_engine_would_choose() {
        use Switch::{Buffers, Events};
        let default = [Buffers, Events];
        assert_eq!(chosen(&[], &default), "buffers+events");
        assert_eq!(chosen(&["--with", "fds"], &default), "buffers+fds+events");
        assert_eq!(chosen(&["--without", "events"], &default), "buffers");
        assert_eq!(
            chosen(&["--with=fds", "--without=events"], &default),
            "buffers+fds"
        );
        assert_eq!(chosen(&["--only", "fds"], &default), "fds");
        for only in [
            &["--only=fds,affinity"][..],
            &["--only=fds", "--only=affinity"],
        ] {
            assert_eq!(chosen(only, &default), "affinity+fds");
        }
        assert_eq!(chosen(&["--no-switches"], &default), "none");
    }

    #[test]
    fn moderation_takes_a_time() {
        for words in [
            &["--moderation", "50us"][..],
            &["--no-switches", "--moderation=50us"],
        ] {
            let args = parsed(words).expect("a time");
            assert_eq!(args.moderation, Some(Duration::from_micros(50)));
        }
        for words in [
            &["--moderation"][..],
            &["--with", "moderation"],
            &["--only", "moderation"],
        ] {
            assert!(parsed(words).is_none(), "{words:?}");
        }
    }

    #[test]
    fn whatever_names_a_time_may_name_an_interface() {
        let about: [&[&str]; 2] = [&["--interface", "eth9"], &["--moderation-by", "kernel"]];
        for words in about {
            assert!(parsed(words).is_none(), "{words:?}");
            let timed = [words, &["--moderation", "50us"]].concat();
            assert!(parsed(&timed).is_some(), "{timed:?}");
        }
    }

    #[test]
    fn every_switch_but_moderation_can_be_named() {
        for switch in Switch::ALL {
            let is_named = parsed(&["--only", &switch.to_string()]).is_some();
            assert_eq!(is_named, switch != Switch::Moderation);
        }
    }

    #[test]
    fn contradictions_are_refused() {
        for words in [
            &["--only", "fds", "--without", "fds"][..],
            &["--only", "fds", "--with", "events"],
            &["--only", "fds", "--no-switches"],
            &["--with", "fds", "--no-switches"],
        ] {
            assert!(parsed(words).is_none(), "{words:?}");
        }
        let both = parsed(&["--with", "fds", "--without", "events,fds"]).expect("words that exist");
        assert!(both.choose(Switches::NONE).is_err());
    }
}
