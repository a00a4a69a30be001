//! Trials are tests that start programs, make namespaces, or take time, under one scheduler.
//!
//! A crate has one program of them, `tests/main.rs`. It lists its trials by [`trials!`] and hands
//! them to [`run()`]. Each trial declares its use of the machine:
//!
//! * [`Trial::pure`] computes.
//! * [`Trial::waits`] shares the CPUs with others.
//! * [`Trial::compares`] shares them only with others of its kind, after those that wait.
//! * [`Trial::measures`] has the machine to itself, after all others.
//!
//! All but the pure ones run as processes of their own. So they may become root in a user namespace
//! or count their descriptors. If the user is root, they have a `/run` of their own as well.
//!
//! A trial whose [`Need`] is not met is ignored with its reason. With `MPPS_REQUIRE_LAB=1` it
//! fails.

mod need;
mod process;
mod run;
mod trial;

pub use libtest_mimic::Failed;
pub use need::{Need, able, program, root};
pub use process::own_name;
pub use run::{example, run};
pub use trial::{TestReturn, Trial};

/// Trials of functions of this module. A trial has its function's name:
///
/// ```text
/// trials![
///     pure: a_hash_is_the_standards;
///     waits(Need::Root, Need::Program("nft", "nftables")): a_rule_drops, a_rule_goes;
/// ]
/// ```
#[macro_export]
macro_rules! trials {
    ($($kind:ident $(($($need:expr),+ $(,)?))? : $($test:path),+ $(,)?;)*) => {{
        let mut trials: Vec<$crate::Trial> = Vec::new();
        $(
            let needs: Vec<$crate::Need> = vec![$($($need),+)?];
            for trial in [$($crate::Trial::$kind(
                $crate::name(module_path!(), stringify!($test)),
                $test,
            )),+] {
                trials.push(needs.iter().cloned().fold(trial, $crate::Trial::needs));
            }
        )*
        trials
    }};
}

/// The name of a trial: its function's path without the program.
#[must_use]
pub fn name(module: &str, function: &str) -> String {
    match module.split_once("::") {
        Some((_, inner)) => format!("{inner}::{function}"),
        None => function.to_owned(),
    }
}

/// A text has each of these parts: `lacked a CPU | !bursts | ^begins | ends$`. `!` is before a part that
/// it may not have.
///
/// # Panics
/// If it differs.
#[track_caller]
pub fn mentions(text: &str, parts: &str) {
    for part in parts.split(" | ") {
        let is_so = match (
            part.split_at_checked(1).unwrap_or_default(),
            part.strip_suffix('$'),
        ) {
            (("!", never), _) => !text.contains(never),
            (("^", first), _) => text.starts_with(first),
            (_, Some(last)) => text.ends_with(last),
            _ => text.contains(part),
        };
        assert!(is_so, "{part}: {text}");
    }
}
