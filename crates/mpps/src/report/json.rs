//! Writes a result as the JSON file that its schema in `docs/schema` describes.

use serde::Serialize;
use std::io::{self, Write};

/// Writes the whole result, indented, with a line end.
///
/// # Errors
/// If the writer fails, or if the result has a number that JSON cannot say.
pub(crate) fn write(result: &impl Serialize, mut to: impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut to, result)?;
    to.write_all(b"\n")?;
    to.flush()
}

#[cfg(test)]
mod tests {
    use crate::report::tests::{FIXTURE, fixture};

    #[test]
    fn what_was_read_is_written_back_byte_for_byte() {
        let mut text = Vec::new();
        super::write(&fixture(), &mut text).unwrap();
        assert_eq!(String::from_utf8(text).unwrap(), FIXTURE);
    }

    #[test]
    fn a_full_disk_is_an_error() {
        let mut room = [0_u8; 100];
        assert!(super::write(&fixture(), &mut room[..]).is_err());
    }
}
