//! Where `/proc` and `/sys` are read and written: the machine itself, or a recorded tree in a test.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use mpps_os::{CallError, text};

/// Most files of `/proc` and `/sys` are shorter, in bytes.
const PAGE: usize = 4096;

/// The directory that holds `proc` and `sys`.
#[derive(Debug, Clone)]
pub(crate) struct Root(PathBuf);

impl Root {
    /// The machine that this program runs on.
    pub(crate) fn machine() -> Self {
        Self(PathBuf::from("/"))
    }

    /// A recorded tree.
    #[cfg(test)]
    pub(crate) fn at(path: &Path) -> Self {
        Self(path.to_path_buf())
    }

    /// The directory.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The full name of a file, for messages.
    pub(crate) fn name(&self, path: &str) -> String {
        self.0.join(path).display().to_string()
    }

    /// The path of a file, which may have the name of an interface.
    fn full(&self, path: &str) -> PathBuf {
        self.0.join(text::to_bytes(path))
    }

    /// The content of a file without the white space around it.
    ///
    /// Bytes that are not UTF-8 are kept as [`text::of_bytes`] does: a strange byte in one line of `/proc`
    /// must not hide all the others.
    pub(crate) fn read(&self, path: &str) -> Result<String, CallError> {
        let full = self.full(path);
        // `/proc` and `/sys` do not show a file's length. `std::fs::read` asks for it and then
        // probes for the end, which costs as many calls again.
        let mut bytes = Vec::with_capacity(PAGE);
        File::open(&full)
            .and_then(|file| file.take(u64::MAX).read_to_end(&mut bytes))
            .map_err(|source| CallError::new("read", full.display(), source))?;
        Ok(text::of_bytes(&bytes).trim().to_owned())
    }

    /// The same, where the file may be absent on some kernels.
    pub(crate) fn read_if_present(&self, path: &str) -> Result<Option<String>, CallError> {
        match self.read(path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The same, where the answer is only nice to have: a refusal of any kind is no answer.
    pub(crate) fn read_if_possible(&self, path: &str) -> Option<String> {
        self.read(path).ok().filter(|text| !text.is_empty())
    }

    /// Writes a value to a file that exists. Each write to `/proc/sys` is a command of its own
    /// (`proc_sys(5)`), so the value goes there in one.
    pub(crate) fn write(&self, path: &str, value: &str) -> Result<(), CallError> {
        let failed = |call| move |source| CallError::new(call, self.name(path), source);
        // Truncated, which /proc ignores, for the file of a test.
        let mut file = OpenOptions::new()
            .write(true)
            .truncate(true)
            .open(self.full(path))
            .map_err(failed("open"))?;
        file.write_all(value.as_bytes()).map_err(failed("write"))
    }

    /// True if the file has no write permission, not even for its owner.
    pub(crate) fn is_read_only(&self, path: &str) -> bool {
        let path = self.full(path);
        std::fs::metadata(path).is_ok_and(|file| file.permissions().readonly())
    }

    /// Whether there is such a file or directory, as far as this user may see.
    pub(crate) fn exists(&self, path: &str) -> bool {
        self.full(path).exists()
    }

    /// The target of a symbolic link; none if this user cannot read it.
    pub(crate) fn link(&self, path: &str) -> Option<String> {
        let target = std::fs::read_link(self.full(path)).ok()?;
        Some(target.to_string_lossy().into_owned())
    }

    /// Makes a symbolic link in a recorded tree.
    #[cfg(test)]
    pub(crate) fn set_link(&self, path: &str, target: &str) {
        let path = self.0.join(path);
        std::fs::create_dir_all(path.parent().expect("a link has a parent")).expect("a directory");
        std::os::unix::fs::symlink(target, path).expect("a link of a test");
    }

    /// The names in a directory in order; none where there is no such directory.
    pub(crate) fn names(&self, path: &str) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(self.full(path))
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(text::of_bytes(entry.ok()?.file_name().as_bytes())))
            .collect();
        names.sort();
        names
    }
}

#[cfg(test)]
pub(crate) mod fixture {
    //! Recorded trees, one file each: `path = content` per line, `\n` and `\t` for themselves.

    use super::Root;

    /// A tree unpacked for one test, removed afterwards.
    #[derive(Debug)]
    pub(crate) struct Tree {
        pub(crate) root: Root,
        _directory: tempfile::TempDir,
    }

    /// Hosts with a card in a machine, as recorded with Linux 6.12: the driver, its receive queues, and
    /// the tree with its counters.
    pub(crate) const DRIVERS: [(&str, usize, &str); 4] = [
        ("igb", 4, include_str!("../tests/fixtures/driver-igb.txt")),
        (
            "e1000e",
            1,
            include_str!("../tests/fixtures/driver-e1000e.txt"),
        ),
        (
            "virtio_net",
            4,
            include_str!("../tests/fixtures/driver-virtio_net.txt"),
        ),
        (
            "vmxnet3",
            4,
            include_str!("../tests/fixtures/driver-vmxnet3.txt"),
        ),
    ];

    /// Unpacks `tests/fixtures/<name>.tree`.
    pub(crate) fn tree(text: &str) -> Tree {
        let directory = tempfile::tempdir().expect("a temporary directory");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let Some((path, content)) = line.split_once(" = ") else {
                continue;
            };
            let path = directory.path().join(path.trim());
            std::fs::create_dir_all(path.parent().expect("a file has a parent"))
                .expect("a directory of the fixture");
            let content = content.replace("\\n", "\n").replace("\\t", "\t") + "\n";
            std::fs::write(path, content).expect("a fixture file");
        }
        Tree {
            root: Root::at(directory.path()),
            _directory: directory,
        }
    }
}
