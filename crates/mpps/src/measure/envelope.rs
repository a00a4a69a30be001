//! The head of every result file, and the one way to read it.

use mpps_host::Fingerprint;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::ops::{Deref, DerefMut};

/// The result of one kind of experiment.
pub trait EnvelopeBody: DeserializeOwned {
    /// The name and version of the files' schema: `mpps.lab.v2`.
    const SCHEMA: &'static str;
    /// The command that writes such files: `mpps lab`.
    const COMMAND: &'static str;

    /// Whose ledger has terms that do not give the remainder it claims, if one has.
    fn unsound(&self) -> Option<String>;
}

/// One result: where, when and how it was measured, and what was found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Envelope<T> {
    /// [`EnvelopeBody::SCHEMA`].
    pub schema: String,
    /// The machine and its settings.
    pub fingerprint: Fingerprint,
    /// The full command line.
    pub command: String,
    /// The version of mpps.
    pub version: String,
    /// When the run began, RFC 3339, UTC.
    #[schemars(regex(
        pattern = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z$"
    ))]
    pub started: String,
    /// True for `--quick`: too short to be compared with another run.
    pub quick: bool,
    /// False if the run ended before its last part.
    pub complete: bool,
    /// The results, beside these fields.
    #[serde(flatten)]
    pub body: T,
}

impl<T> Deref for Envelope<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.body
    }
}

impl<T> DerefMut for Envelope<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.body
    }
}

/// The schema name of a file, without the rest.
#[derive(Debug, Deserialize)]
pub(crate) struct SchemaOnly {
    pub(crate) schema: String,
}

/// Why a file is not a result.
#[derive(Debug, thiserror::Error)]
pub enum EnvelopeError {
    /// Not JSON, cut short, or JSON of another shape.
    #[error("not a result of `{command}`: {source}")]
    Shape {
        /// The command that writes what was expected.
        command: &'static str,
        /// The error.
        source: serde_json::Error,
    },
    /// A result, but of another schema.
    #[error("{}", of_schema(.found, .expected))]
    Schema {
        /// The schema that the file names.
        found: String,
        /// The schema that this version reads.
        expected: &'static str,
    },
    /// A ledger whose terms do not give the remainder it claims.
    #[error("a ledger of {of} does not add up: the file was changed after it was written")]
    Ledger {
        /// Whose: `rung 4a`.
        of: String,
    },
}

/// Why a file of another schema is not read: it is of another command, or of another version.
fn of_schema(found: &str, expected: &str) -> String {
    let command = |schema: &str| {
        let name = schema.strip_prefix("mpps.")?.split('.').next()?;
        Some(name.replace(['-', '_'], " "))
    };
    match (command(found), command(expected)) {
        (Some(one), Some(other)) if one != other => {
            format!("a result of `mpps {one}`, not of `mpps {other}`; `mpps report FILE` shows it")
        }
        _ => format!(
            "schema `{found}`, but this version of mpps reads `{expected}`: measure again, or use \
             the version of mpps that wrote the file (its `version`)"
        ),
    }
}

impl<T: EnvelopeBody> Envelope<T> {
    /// Encloses the results of this version of mpps on a machine, by a command that began then. The
    /// result is neither quick nor complete until the caller sets that.
    pub(crate) fn new(fingerprint: Fingerprint, command: String, started: String, body: T) -> Self {
        Self {
            schema: T::SCHEMA.to_owned(),
            fingerprint,
            command,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started,
            quick: false,
            complete: false,
            body,
        }
    }

    /// Reads a result file's text.
    ///
    /// # Errors
    /// If the text is cut short, is of another shape or schema, or has a ledger that does not add up.
    pub fn parse(text: &str) -> Result<Self, EnvelopeError> {
        let shape = |source| EnvelopeError::Shape {
            command: T::COMMAND,
            source,
        };
        let SchemaOnly { schema } = serde_json::from_str(text).map_err(shape)?;
        if schema != T::SCHEMA {
            return Err(EnvelopeError::Schema {
                found: schema,
                expected: T::SCHEMA,
            });
        }
        let result: Self = serde_json::from_str(text).map_err(shape)?;
        match result.unsound() {
            Some(of) => Err(EnvelopeError::Ledger { of }),
            None => Ok(result),
        }
    }
}
