//! Files that a user names to be read.

use rustix::fs::{FileType, Mode, OFlags, Stat, fcntl_getfl, fcntl_setfl, fstat};
use rustix::io::Errno;
use std::fs::{self, DirEntry, File};
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Opens a regular file for reading (`open(2)`). A pipe or a terminal must be open in this process
/// already, as those of `/dev/stdin` and `/dev/fd/N` are: a named pipe may wait for its writer for
/// ever, and other devices never end. A regular file never waits: `/proc/kmsg` answers `EAGAIN`.
///
/// # Errors
/// The kernel's refusal; [`ErrorKind::InvalidInput`] for a file of another kind.
pub fn open_input(path: &Path) -> io::Result<File> {
    // Some devices act when they are opened, as a watchdog does.
    let file = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let named = fstat(&file)?;
    if let Some(text) = refusal(&named) {
        return Err(io::Error::new(ErrorKind::InvalidInput, text));
    }
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    // The file that was looked at, whatever has its name by now.
    let again = format!("/proc/self/fd/{}", file.as_raw_fd());
    let opened = match rustix::fs::open(again, flags, Mode::empty()) {
        // There is no /proc.
        Err(Errno::NOENT) => rustix::fs::open(path, flags, Mode::empty())?,
        opened => opened?,
    };
    let status = fstat(&opened)?;
    if kind(&status) != FileType::RegularFile {
        let identity = |file: &Stat| (file.st_dev, file.st_ino, file.st_mode);
        if identity(&status) != identity(&named) {
            let text = "another file took its place; try again";
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        fcntl_setfl(&opened, fcntl_getfl(&opened)? - OFlags::NONBLOCK)?;
    }
    Ok(File::from(opened))
}

fn kind(status: &Stat) -> FileType {
    FileType::from_raw_mode(status.st_mode)
}

/// Why a file is not read, and what helps; none if it is.
fn refusal(status: &Stat) -> Option<&'static str> {
    match kind(status) {
        FileType::RegularFile => None,
        FileType::Directory => Some("it is a directory; name a file in it"),
        FileType::Socket => Some("it is a socket; name a regular file"),
        _ if is_open_here(status) => None,
        FileType::Fifo => Some(
            "it is a named pipe, and its writer may never come; name /dev/stdin, and \
             redirect the pipe to it",
        ),
        _ => Some("it is a device, which may never end; name a regular file"),
    }
}

/// True if a descriptor of this process stands for the file. A descriptor opened with `O_PATH` does
/// not count: its link gives no right.
fn is_open_here(status: &Stat) -> bool {
    let descriptors = fs::read_dir("/proc/self/fd").into_iter().flatten();
    let is_open = |it: &DirEntry| it.metadata().is_ok_and(|link| link.mode() & 0o700 != 0);
    let open = descriptors.flatten().filter(is_open);
    let files = open.filter_map(|entry| fs::metadata(entry.path()).ok());
    let identity = (status.st_dev, status.st_ino);
    files
        .map(|file| (file.dev(), file.ino()))
        .any(|other| other == identity)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, mknodat};
    use std::io::{Read, Write};
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicBool, Ordering};

    fn text(path: impl AsRef<Path>) -> String {
        io::read_to_string(open_input(path.as_ref()).unwrap()).unwrap()
    }

    #[test]
    fn a_regular_file_is_read_by_any_of_its_names() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("file"), "a result").unwrap();
        symlink("file", at("link")).unwrap();
        let open = File::open(at("file")).unwrap();
        let number = open.as_raw_fd();
        for path in [
            at("file"),
            at("link"),
            format!("/dev/fd/{number}").into(),
            format!("/proc/self/fd/{number}").into(),
        ] {
            assert_eq!(text(&path), "a result", "{path:?}");
        }
        assert!(!text("/proc/self/status").is_empty());
    }

    #[test]
    fn what_may_never_end_is_refused_without_a_wait() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        symlink("pipe", at("link")).unwrap();
        symlink("/dev/zero", at("zero")).unwrap();
        let _listener = UnixListener::bind(at("socket")).unwrap();
        for (path, kind) in [
            (at("pipe"), "named pipe"),
            (at("link"), "named pipe"),
            (at("zero"), "device"),
            ("/dev/full".into(), "device"),
            (at("socket"), "socket"),
            (at(""), "directory"),
        ] {
            let error = open_input(&path).unwrap_err().to_string();
            assert!(error.contains(kind), "{path:?}: {error}");
        }
        let absent = open_input(&at("absent")).unwrap_err();
        assert_eq!(absent.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn what_takes_the_place_of_a_file_is_not_opened() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("file"), "a result").unwrap();
        mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        symlink("file", at("name")).unwrap();
        let (is_over, was_opened) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let targets = ["pipe", "file"].iter().cycle();
                for target in targets.take_while(|_| !is_over.load(Ordering::Relaxed)) {
                    symlink(target, at("new")).unwrap();
                    fs::rename(at("new"), at("name")).unwrap();
                }
            });
            scope.spawn(|| {
                // It waits for the first that opens the pipe to read.
                File::options().write(true).open(at("pipe")).unwrap();
                was_opened.store(true, Ordering::Relaxed);
            });
            for _ in 0..5_000 {
                let _ = open_input(&at("name"));
            }
            is_over.store(true, Ordering::Relaxed);
            let is_clean = !was_opened.load(Ordering::Relaxed);
            // Opening for both does not wait (fifo(7)), even if the writer has gone.
            let mut both = File::options();
            both.read(true).write(true).open(at("pipe")).unwrap();
            assert!(is_clean);
        });
    }

    #[test]
    fn a_pipe_that_is_open_here_is_read_to_its_end() {
        let (reader, mut writer) = io::pipe().unwrap();
        let path = format!("/dev/fd/{}", reader.as_raw_fd());
        let mut again = open_input(Path::new(&path)).unwrap();
        let late = std::thread::spawn(move || writer.write_all(b"a result"));
        // It waits for what is not there yet.
        let mut text = [0; 8];
        again.read_exact(&mut text).unwrap();
        late.join().unwrap().unwrap();
        assert_eq!((&text, again.read(&mut [0]).unwrap()), (b"a result", 0));
        let path = format!("/proc/self/fd/{}", again.as_raw_fd());
        assert!(open_input(Path::new(&path)).is_ok());
    }
}
