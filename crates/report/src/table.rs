//! Tables. On a narrow terminal, cells without a column go below the row, so nothing is lost.

use crate::Text;
use serde_json::Value;

/// A table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Table {
    /// Its columns, from the left.
    pub columns: Vec<Column>,
    /// Its rows, from the top.
    pub rows: Vec<Row>,
}

/// A column of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Its name, with the unit of its figures.
    pub head: String,
    /// The kind of its cells.
    pub kind: ColumnKind,
    /// Width in characters: that of the widest figure, or the minimum for words.
    pub width: usize,
    /// More characters that words may take on a wide terminal.
    pub grow: usize,
    /// Of the columns that do not fit, those of the highest number go below the row first. A column
    /// of priority 0 stays as long as any does.
    pub priority: u8,
}

/// The kind of a column's cells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// Words, aligned left. They wrap.
    Words,
    /// Figures, aligned right. They do not wrap.
    Figure,
    /// Bars, aligned left. They are as wide as there is room for.
    Bar,
}

impl Column {
    /// A column of words, at least `width` characters wide.
    pub fn words(head: impl Into<String>, width: usize) -> Self {
        Self {
            head: head.into(),
            kind: ColumnKind::Words,
            width,
            grow: 0,
            priority: 0,
        }
    }

    /// A column of figures. The widest figure has `width` characters.
    pub fn figure(head: impl Into<String>, width: usize) -> Self {
        Self {
            kind: ColumnKind::Figure,
            ..Self::words(head, width)
        }
    }

    /// A column of bars, at most `width` characters wide.
    pub fn bar(head: impl Into<String>, width: usize) -> Self {
        Self {
            kind: ColumnKind::Bar,
            grow: width.saturating_sub(2),
            ..Self::words(head, 2)
        }
    }

    /// Lets the words take up to `grow` more characters.
    #[must_use]
    pub fn grow(self, grow: usize) -> Self {
        Self { grow, ..self }
    }

    /// Sets the priority. Columns of higher numbers go below the row first.
    #[must_use]
    pub fn priority(self, priority: u8) -> Self {
        Self { priority, ..self }
    }
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Row {
    /// Its cells, from the left. If there are fewer cells than columns, the last one takes the
    /// remaining room.
    pub cells: Vec<Cell>,
    /// Sentences below the row.
    pub below: Vec<Text>,
    /// The target of links to it; empty if there is none.
    pub anchor: String,
}

/// The contents of a cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cell {
    /// Words or a figure.
    Text(Text),
    /// A bar. Both parts are in thousandths of the column's width.
    Bar {
        /// The full part.
        full: u16,
        /// The missing part, behind the full one.
        missing: u16,
    },
}

impl<T: Into<Text>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self::Text(text.into())
    }
}

impl Row {
    /// A row of these cells.
    pub fn new(cells: impl IntoIterator<Item = Cell>) -> Self {
        Self {
            cells: cells.into_iter().collect(),
            ..Self::default()
        }
    }

    /// The row with a sentence below it.
    #[must_use]
    pub fn below(mut self, text: impl Into<Text>) -> Self {
        let text = text.into();
        if !text.is_empty() {
            self.below.push(text);
        }
        self
    }
}

impl Table {
    /// A table of these columns, without rows.
    pub fn new(columns: impl IntoIterator<Item = Column>) -> Self {
        Self {
            columns: columns.into_iter().collect(),
            rows: Vec::new(),
        }
    }

    /// The table with these rows.
    #[must_use]
    pub fn rows(mut self, rows: impl IntoIterator<Item = Row>) -> Self {
        self.rows.extend(rows);
        self
    }

    /// Every value of a JSON object, one row each, so that no field can be forgotten.
    pub fn of_json(value: &Value) -> Self {
        let mut rows = Vec::new();
        flatten(String::new(), value, &mut rows);
        let rows = rows
            .into_iter()
            .map(|(name, value)| Row::new([Text::new().faint(name).into(), value.into()]));
        Self::new([
            Column::words("What", 24),
            Column::words("Value", 24).grow(80),
        ])
        .rows(rows)
    }
}

fn flatten(name: String, value: &Value, rows: &mut Vec<(String, String)>) {
    let inside = |key: &str| {
        let key = key.replace('_', " ");
        if name.is_empty() {
            key
        } else {
            format!("{name} {key}")
        }
    };
    let is_nested = |value: &Value| value.is_object() || value.is_array();
    match value {
        Value::Null => {}
        Value::Object(fields) => {
            for (key, value) in fields {
                flatten(inside(key), value, rows);
            }
        }
        Value::Array(values) if values.iter().any(is_nested) => {
            for (at, value) in values.iter().enumerate() {
                flatten(inside(&at.to_string()), value, rows);
            }
        }
        Value::Array(values) => {
            let values: Vec<_> = values.iter().map(scalar).collect();
            rows.push((name, values.join(", ")));
        }
        other => rows.push((name, scalar(other))),
    }
}

fn scalar(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Bool(true) => "yes".to_owned(),
        Value::Bool(false) => "no".to_owned(),
        other => other.to_string(),
    }
}
