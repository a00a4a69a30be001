//! Files that users name for reading, and those of other programs. None of them keeps a command waiting or fills its memory.

use crate::output::file::ensure_kept;
use anyhow::{Context, Result, anyhow, ensure};
use mpps_os::capability::of_file;
use mpps_os::poll::Waiter;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

/// Results are smaller, and a list of five million flows.
const MIB_MAX: u64 = 256;

/// An open input.
#[derive(Debug)]
pub(crate) struct Input {
    file: File,
    /// It is standard input, which may be set to answer `EAGAIN` (`O_NONBLOCK`). To change that would change
    /// it for other programs.
    waits: bool,
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read(buffer) {
                Err(error) if self.waits && error.kind() == ErrorKind::WouldBlock => {
                    Waiter::new().poll(self.file.as_fd(), Duration::MAX)?;
                }
                read => return read,
            }
        }
    }
}

/// Opens a regular file, or what this process has open already; `-` is standard input.
pub(crate) fn open(path: &Path) -> Result<Input> {
    let waits = path.as_os_str() == "-";
    if !waits {
        ensure_kept(path)?;
    }
    let opened = match waits {
        true => io::stdin().as_fd().try_clone_to_owned().map(File::from),
        false => mpps_os::file::open_input(path),
    };
    opened
        .map(|file| Input { file, waits })
        .map_err(|error| anyhow!(of_file(&error)))
        .with_context(|| format!("cannot read {}", path.display()))
}

/// The text of such a file.
pub(crate) fn text(path: &Path) -> Result<String> {
    read(open(path)?, MIB_MAX << 20).with_context(|| format!("cannot read {}", path.display()))
}

/// The text of a file that only root or this user can have put there; none if another could.
pub(crate) fn believed(path: &Path) -> Option<String> {
    let file = mpps_os::file::open_believed(path).ok()?;
    read(file, MIB_MAX << 20).ok()
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
