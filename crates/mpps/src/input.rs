//! Files that users name to be read, none of which keeps a command waiting or fills its memory.

use anyhow::{Context, Result, anyhow, ensure};
use mpps_os::capability::of_file;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::path::Path;

/// Results are smaller, and a list of five million flows.
const MIB_MAX: u64 = 256;

/// Opens a regular file, or what this process has open already; `-` is standard input.
///
/// # Errors
/// If it cannot be opened, or is another kind of file.
pub(crate) fn open(path: &Path) -> Result<File> {
    let opened = match path.as_os_str() == "-" {
        true => io::stdin().as_fd().try_clone_to_owned().map(File::from),
        false => mpps_os::file::open_input(path),
    };
    opened
        .map_err(|error| anyhow!(of_file(&error)))
        .with_context(|| format!("cannot read {}", path.display()))
}

/// The text of such a file.
///
/// # Errors
/// As [`open`]'s, and if it is too large or no text.
pub(crate) fn text(path: &Path) -> Result<String> {
    read(open(path)?, MIB_MAX << 20).with_context(|| format!("cannot read {}", path.display()))
}

fn read(file: impl Read, bytes_max: u64) -> Result<String> {
    let mut bytes = Vec::new();
    file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    let fits = bytes.len() as u64 <= bytes_max;
    ensure!(fits, "it has more than {MIB_MAX} MiB; name a smaller file");
    String::from_utf8(bytes).context("it is no text")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_is_refused_and_no_text_is_cut() {
        assert_eq!(read(&b"1234"[..], 4).unwrap(), "1234");
        for endless in [b'1', 0xff] {
            let error = read(io::repeat(endless), 4).unwrap_err();
            assert!(error.to_string().contains("256 MiB"), "{error}");
        }
        let error = read(&[0xff][..], 4).unwrap_err();
        assert_eq!(error.to_string(), "it is no text");
    }
}
