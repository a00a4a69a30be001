//! A ledger: its equation, and where everything went.

/// How a ledger came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Balance {
    /// Nothing is unaccounted for.
    Balances,
    /// Something is, or is counted twice.
    Unbalanced,
    /// A term is not exact, so the remainder proves nothing.
    Inexact,
}

/// A ledger as the equation it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Equation {
    /// The subject: `ledger of rung 9a`; empty if the context makes it clear.
    pub name: String,
    /// All terms but the last: `offered 100 = delivered 98 + no port 2`.
    pub terms: String,
    /// The last term: `UNACCOUNTED 0`.
    pub remainder: String,
    /// How it came out.
    pub balance: Balance,
    /// Remarks on the equation.
    pub notes: Vec<String>,
}

/// Where everything went, as one bar and its table.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Shares {
    /// The unit counted: `datagrams`.
    pub unit: String,
    /// The parts of the whole, from the left.
    pub parts: Vec<EquationPart>,
}

/// A part of a whole.
#[derive(Debug, Clone, PartialEq)]
pub struct EquationPart {
    /// The class of its colour in the style sheet: `delivered`, `socket`, `unaccounted`.
    pub class: &'static str,
    /// Where this part went: `socket: buffer full`.
    pub name: String,
    /// How many; below zero if something was counted twice.
    pub count: i128,
    /// Its share of the whole, 0 to 1; none if a share means nothing.
    pub share: Option<f64>,
    /// The counter that says so.
    pub source: String,
}

impl Equation {
    /// The equation with its name before it, in one line.
    pub(crate) fn words(&self) -> String {
        let name = match &*self.name {
            "" => String::new(),
            name => format!("{name}: "),
        };
        format!("{name}{} + {}", self.terms, self.remainder)
    }
}
