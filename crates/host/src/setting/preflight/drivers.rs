//! The behaviour of drivers when an XDP program or a zero-copy socket comes. Each line of the file
//! `drivers.tsv` names its place in Linux.

use std::sync::LazyLock;

/// A line each; what the columns are, its head says.
const FILE: &str = include_str!("drivers.tsv");

/// One thing that a driver does.
#[derive(Debug, Clone, Copy)]
pub(super) struct Habit {
    driver: &'static str,
    topic: &'static str,
    /// The behaviour, in a word or a number.
    pub(super) value: &'static str,
    /// True if a program that it refuses can still be the generic one.
    pub(super) falls_back: bool,
    /// The same for people.
    pub(super) text: &'static str,
    /// Where Linux has it.
    pub(super) source: &'static str,
}

static HABITS: LazyLock<Vec<Habit>> = LazyLock::new(|| FILE.lines().filter_map(habit).collect());

/// None for a remark.
fn habit(line: &'static str) -> Option<Habit> {
    let columns: Vec<&str> = line.split('\t').collect();
    let [driver, topic, value, text, source] = columns[..] else {
        return None;
    };
    let whole = value.strip_suffix(" generic");
    Some(Habit {
        driver,
        topic,
        value: whole.unwrap_or(value),
        falls_back: whole.is_some(),
        text,
        source,
    })
}

/// The known behaviour of a driver on a topic.
pub(super) fn of(driver: &str, topic: &str) -> Option<&'static Habit> {
    let mut habits = HABITS.iter();
    habits.find(|habit| habit.driver == driver && habit.topic == topic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_line_is_known_and_has_its_source() {
        let lines = FILE.lines().filter(|line| !line.starts_with('#'));
        assert_eq!(lines.count(), HABITS.len());
        for habit in HABITS.iter() {
            let Habit { topic, value, .. } = habit;
            let is_known = match *topic {
                "link" => ["down", "pause", "same", "other"].contains(value),
                "mtu" => value.parse::<u32>().is_ok_and(|mtu| mtu >= 1500),
                "merging" => ["refuse", "off"].contains(value),
                "functions" => *value == "refuse",
                "rings" => *value == "power_of_two",
                "channels" => ["half", "half_each", "combined", "spare"].contains(value),
                "zero_copy" | "besides" | "sets" => value.is_empty(),
                _ => false,
            };
            assert!(is_known, "{habit:?}");
            // The text on these topics names the errno.
            let refuses = ["mtu", "merging"].contains(topic) && *value != "off";
            let is_generic = habit.text.contains("EOPNOTSUPP");
            assert!(!refuses || habit.falls_back == is_generic, "{habit:?}");
            assert!(!habit.text.is_empty() && habit.source.starts_with("drivers/net/"));
        }
        let topics = HABITS.iter().map(|habit| (habit.driver, habit.topic));
        assert_eq!(topics.collect::<BTreeSet<_>>().len(), HABITS.len());
    }
}
