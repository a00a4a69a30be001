//! The findings of rules, with their places.

use std::fmt;

/// One place that breaks a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TidyFinding {
    /// The file, from the root of the repository.
    pub(crate) path: String,
    /// The line, from 1.
    pub(crate) line: usize,
    /// The defect, and how to fix it.
    pub(crate) message: String,
    /// True if it is only worth a look.
    pub(crate) hint: bool,
}

impl TidyFinding {
    /// A defect to fix.
    pub(crate) fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            line,
            message: message.into(),
            hint: false,
        }
    }

    /// A place worth a look.
    pub(crate) fn hint(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self {
            hint: true,
            ..Self::new(path, line, message)
        }
    }
}

impl fmt::Display for TidyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, line, message) = (&self.path, self.line, &self.message);
        let hint = if self.hint { "hint: " } else { "" };
        write!(f, "{path}:{line}: {hint}{message}")
    }
}
