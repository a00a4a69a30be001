//! Fields of `/proc/PID/stat` (proc_pid_stat(5)), by their numbers there.

use std::str::FromStr;

/// The number of the process that started it.
pub(super) const PARENT: usize = 4;
/// The process group.
pub(super) const GROUP: usize = 5;
/// The priority.
pub(super) const PRIORITY: usize = 18;
/// How many threads it has.
pub(super) const THREADS: usize = 20;
/// The CPU that it last ran on.
pub(super) const CPU: usize = 39;

/// The fields of a `stat` (proc_pid_stat(5)) after the name, which may hold anything. The first of
/// them is field 3.
pub(super) fn fields(stat: &str) -> Option<&str> {
    Some(stat.rsplit_once(") ")?.1)
}

/// One of these fields.
pub(super) fn field<T: FromStr>(stat: &str, number: usize) -> Option<T> {
    let mut words = fields(stat)?.split_ascii_whitespace();
    words.nth(number - 3)?.parse().ok()
}
