//! Values of settings, and their types.

use std::io::ErrorKind;

use mpps_os::cpu_list::CPU_MAX;
use mpps_os::{CallError, CallResult, CpuList};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(i64),
    /// A switch that is on or off.
    Switch(bool),
    /// Words, entries of a table, or, before a rule is added, the places of the others.
    Numbers(Vec<u32>),
    /// A set of CPUs or queues.
    Set {
        /// Their numbers, in order.
        set: Vec<usize>,
    },
    /// A rule that was added.
    Rule {
        /// Its place, once it is known.
        location: Option<u32>,
        /// The rule as the driver shows it, once it is there.
        shown: Option<String>,
    },
    /// A word.
    Word(String),
}

impl Value {
    pub(crate) fn number(number: impl Into<i64>) -> Self {
        Self::Number(number.into())
    }

    pub(crate) fn set(numbers: impl IntoIterator<Item = usize>) -> Self {
        let set = numbers.into_iter().collect();
        Self::Set { set }
    }

    pub(crate) fn count(&self) -> Option<u32> {
        let Self::Number(number) = self else {
            return None;
        };
        u32::try_from(*number).ok()
    }

    pub(crate) fn numbers(&self) -> &[u32] {
        let Self::Numbers(numbers) = self else {
            return &[];
        };
        numbers
    }

    pub(crate) fn word(&self) -> &str {
        let Self::Word(word) = self else { return "" };
        word
    }
}

/// The type of a setting's value.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    Number,
    Switch,
    /// A set. Its text is a mask: words of 32 bits in hexadecimal, the highest first.
    Mask,
    /// A set. Its text is a list with ranges.
    List,
    /// Numbers that this accepts.
    Numbers(fn(&[u32]) -> bool),
    /// A rule; before it is added, the places of the others.
    Rule,
    /// A word that this accepts.
    Word(fn(&str) -> bool),
}

impl Form {
    /// The value of a text from the kernel, or from a journal of an earlier form.
    pub(crate) fn parse(self, text: &str) -> Option<Value> {
        let set = |list: CpuList| Value::Set { set: list.0 };
        match self {
            Self::Number => text.parse().ok().map(Value::Number),
            Self::Switch => matches!(text, "on" | "off").then_some(Value::Switch(text == "on")),
            Self::Mask if text.len() > CPU_MAX => None,
            Self::Mask => CpuList::from_mask(text).map(set),
            Self::List => CpuList::from_kernel(text).ok().map(set),
            Self::Word(_) => Some(Value::Word(text.to_owned())),
            Self::Numbers(_) | Self::Rule => None,
        }
    }

    /// The value of a file; none without a text.
    pub(crate) fn read(self, text: Option<String>, file: &str) -> CallResult<Option<Value>> {
        let malformed = || CallError::new("read", file, ErrorKind::InvalidData.into());
        let value = |text: String| self.parse(&text).ok_or_else(malformed);
        text.map(value).transpose()
    }

    /// Whether a value is of this type.
    pub(crate) fn takes(self, value: &Value) -> bool {
        match (self, value) {
            (Self::Number, Value::Number(_))
            | (Self::Switch, Value::Switch(_))
            | (Self::Rule, Value::Numbers(_) | Value::Rule { .. }) => true,
            (Self::Mask | Self::List, Value::Set { set }) => {
                set.is_sorted_by(|one, next| one < next)
                    && set.last().is_none_or(|most| *most <= CPU_MAX)
            }
            (Self::Numbers(is_fit), Value::Numbers(numbers)) => is_fit(numbers),
            (Self::Word(is_fit), Value::Word(word)) => is_fit(word),
            _ => false,
        }
    }

    /// The value as a file or a command has it.
    pub(crate) fn text(self, value: &Value) -> String {
        match value {
            Value::Number(number) => number.to_string(),
            Value::Switch(is_on) => ["off", "on"][usize::from(*is_on)].to_owned(),
            Value::Set { set } if matches!(self, Self::Mask) => mask(set),
            Value::Set { set } => CpuList(set.clone()).to_string(),
            Value::Word(word) => word.clone(),
            Value::Numbers(numbers) => format!("{numbers:?}"),
            Value::Rule { .. } => format!("{value:?}"),
        }
    }
}

fn mask(bits: &[usize]) -> String {
    let mut words = vec![0_u32; bits.iter().max().map_or(1, |most| most / 32 + 1)];
    for bit in bits {
        words[bit / 32] |= 1 << (bit % 32);
    }
    let mut words = words.iter().rev();
    let highest = format!("{:x}", words.next().unwrap_or(&0));
    words.fold(highest, |text, word| format!("{text},{word:08x}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_of_the_kernel_is_a_value_and_a_value_a_text() {
        let word = Form::Word(|_| true);
        for (form, text, value, again) in [
            (Form::Number, "-1", Value::Number(-1), "-1"),
            (Form::Switch, "on", Value::Switch(true), "on"),
            (Form::Mask, "00000000,0000000f", Value::set(0..4), "f"),
            (Form::Mask, "2,00000001", Value::set([0, 33]), "2,00000001"),
            (Form::Mask, "00", Value::set([]), "0"),
            (Form::List, "0-3,5", Value::set([0, 1, 2, 3, 5]), "0-3,5"),
            (Form::List, "", Value::set([]), ""),
            (word, "sdfn", Value::Word("sdfn".to_owned()), "sdfn"),
        ] {
            assert_eq!(form.parse(text).as_ref(), Some(&value), "{text}");
            assert!(form.takes(&value), "{text}");
            assert_eq!(form.text(&value), again);
            let written = serde_json::to_value(&value).expect("plain data");
            assert_eq!(
                serde_json::from_value::<Value>(written).expect("read"),
                value
            );
        }
        for (form, text) in [
            (Form::Number, "1\n"),
            (Form::Switch, "yes"),
            (Form::Mask, "f; id"),
            (Form::Mask, ""),
            (Form::List, "all"),
        ] {
            assert_eq!(form.parse(text), None, "{text}");
        }
        for set in [vec![1, 0], vec![1, 1], vec![usize::MAX]] {
            assert!(!Form::Mask.takes(&Value::Set { set }));
        }
    }
}
