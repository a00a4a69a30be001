//! Files in their places, links, pipes, open files without a name, and directories that refuse.

use super::*;
use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::process::Command;
use std::time::SystemTime;

fn try_out(path: &Path) -> Result<OutputFile> {
    OutputFile::try_out("--json", path)
}

#[test]
fn keeps_what_was_there_until_it_is_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lab.json");
    fs::write(&path, "a long earlier result").unwrap();
    drop(try_out(&path).unwrap());
    assert_eq!(fs::read_to_string(&path).unwrap(), "a long earlier result");
    try_out(&path).unwrap().write(b"new").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn what_is_known_so_far_is_there_until_it_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lab.json");
    let output = try_out(&path).unwrap();
    for text in ["one round", "two", "all of them"] {
        output.keep(text.as_bytes());
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    assert_eq!(
        fs::metadata(&path).unwrap().permissions().mode() & 0o600,
        0o600
    );
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn what_a_killed_run_left_is_removed_by_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let in_it = |name: &str| directory.path().join(name);
    let names = [".mpps-aaaaaaaa", ".mpps-bbbbbbbb", ".mpps-notes-of-mine"];
    for name in names {
        let file = File::create(in_it(name)).unwrap();
        if name != names[1] {
            file.set_modified(SystemTime::now() - 2 * STALE).unwrap();
        }
    }
    try_out(&in_it("lab.json")).unwrap();
    assert_eq!(names.map(|name| in_it(name).exists()), [false, true, true]);
}

#[test]
fn a_link_stays_a_link() {
    let directory = tempfile::tempdir().unwrap();
    let [file, link] = ["file", "link"].map(|name| directory.path().join(name));
    // The target is named from the place of the link, and need not exist yet.
    symlink("file", &link).unwrap();
    for text in ["first", "second"] {
        let output = try_out(&link).unwrap();
        output.write(text.as_bytes()).unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
    }
}

#[test]
fn a_link_that_comes_after_the_trial_stays_too() {
    let directory = tempfile::tempdir().unwrap();
    let [file, link] = ["file", "link"].map(|name| directory.path().join(name));
    let output = try_out(&link).unwrap();
    symlink(&file, &link).unwrap();
    output.write(b"new").unwrap();
    assert!(link.is_symlink());
    assert_eq!(fs::read_to_string(&file).unwrap(), "new");
}

#[test]
fn the_result_of_another_run_is_not_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lab.json");
    let [first, second] = [(); 2].map(|()| try_out(&path).unwrap());
    first.keep(b"so far");
    second.keep(b"lost");
    let error = second.write(b"second").unwrap_err().to_string();
    let (_, aside) = error.split_once("; the result is in ").expect(&error);
    assert_eq!(fs::read_to_string(aside).unwrap(), "second");
    first.write(b"first").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "first");
    // Lines of the first replace nothing if the second has begun, and are not lost if it replaced them.
    let [first, second] = [(); 2].map(|()| try_out(&path).unwrap().into_lines().unwrap());
    first.write(b"1\n").unwrap();
    second.write(b"2\n").unwrap_err();
    let third = try_out(&path).unwrap().into_lines().unwrap();
    third.write(b"3\n").unwrap();
    let error = first.write(b"total\n").unwrap_err().to_string();
    assert!(error.contains("another program replaced"), "{error}");
    third.write(b"total\n").unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), "3\ntotal\n");
}

#[test]
fn all_lines_of_a_run_are_in_the_file_of_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    for name in ["a", "b", "c"] {
        fs::create_dir(at(name)).unwrap();
    }
    let lead_to = |target: &str| {
        let _ = fs::remove_file(at("way"));
        symlink(target, at("way")).unwrap();
    };
    lead_to("a");
    let lines = try_out(&at("way/lines")).unwrap().into_lines().unwrap();
    lead_to("b");
    // It leads on, from a name that was free.
    symlink("file", at("b/lines")).unwrap();
    lines.write(b"1\n").unwrap();
    lead_to("c");
    lines.write(b"2\n").unwrap();
    assert_eq!(fs::read_to_string(at("b/file")).unwrap(), "1\n2\n");
    assert!(!at("a/lines").exists() && !at("c/lines").exists());
}

#[test]
fn an_open_file_without_a_name_is_appended_to() {
    let directory = tempfile::tempdir().unwrap();
    let [path, link] = ["file", "link"].map(|name| directory.path().join(name));
    let mut open = File::options()
        .read(true)
        .append(true)
        .create(true)
        .open(&path)
        .unwrap();
    open.write_all(b"before, ").unwrap();
    fs::remove_file(&path).unwrap();
    symlink(format!("/proc/self/fd/{}", open.as_raw_fd()), &link).unwrap();
    let output = try_out(&link).unwrap();
    output.keep(b"half");
    output.write(b"new").unwrap();
    let mut text = String::new();
    let mut whole = File::open(&link).unwrap();
    whole.read_to_string(&mut text).unwrap();
    assert_eq!(text, "before, new");
    // Nothing has come or gone under any name.
    assert!(link.is_symlink());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn the_streams_are_not_opened_a_second_time() {
    for (path, stream) in [
        ("/dev/stdout", OutputStream::Out),
        ("/dev/fd/1", OutputStream::Out),
        ("/proc/self/fd/2", OutputStream::Err),
    ] {
        let target = FileTarget::find(Path::new(path)).unwrap();
        let way = way(&target).unwrap();
        assert!(
            matches!(way, WrittenHow::Stream(it) if it == stream),
            "{path}"
        );
    }
    let target = FileTarget::find(Path::new("/dev/null")).unwrap();
    assert!(matches!(way(&target).unwrap(), WrittenHow::Open(_)));
}

#[test]
fn a_pipe_is_closed_once_after_all_was_written_and_must_have_a_reader() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("pipe");
    let made = Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    // Without a reader this must not wait for one.
    let error = format!("{:#}", try_out(&path).unwrap_err());
    assert!(error.contains("no program reads"), "{error}");
    assert!(error.ends_with("name another file by --json"), "{error}");
    // Opening for both does not wait for another end (fifo(7)).
    let mut options = File::options();
    let both = options.read(true).write(true).open(&path).unwrap();
    let mut reader = File::open(&path).unwrap();
    let output = try_out(&path).unwrap();
    drop(both);
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        reader.read_to_string(&mut text).map(|_| text)
    });
    output.keep(b"half");
    // More than a pipe holds (pipe(7)).
    let new = "new".repeat(100_000);
    output.write(new.as_bytes()).unwrap();
    drop(output);
    assert_eq!(reader.join().unwrap().unwrap(), new);
}

#[test]
fn where_nothing_can_take_its_place_the_file_is_overwritten() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lab.json");
    fs::write(&path, "a long earlier result").unwrap();
    let target = FileTarget::find(&path).unwrap();
    let replace = |bytes: &[u8], is_last, kind: ErrorKind| {
        let old = target.open().unwrap();
        replace(&target, old, bytes, is_last, |_| Err(kind.into()))
    };
    for kind in [ErrorKind::ResourceBusy, ErrorKind::PermissionDenied] {
        // Not by what is not the last: half of it may stay.
        replace(b"half", false, kind).unwrap_err();
        assert_ne!(fs::read_to_string(&path).unwrap(), "half");
        replace(b"new", true, kind).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    }
    replace(b"lost", true, ErrorKind::StorageFull).unwrap_err();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new");
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn what_takes_the_place_has_the_rights_of_the_old_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lab.json");
    fs::write(&path, "a long earlier result").unwrap();
    for mode in [0o600, 0o664, 0o640] {
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let output = try_out(&path).unwrap();
        for _ in 0..2 {
            output.keep(b"half");
            output.write(b"new").unwrap();
            let now = fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
            assert_eq!(now, mode, "{now:o} of {mode:o}");
        }
    }
}

#[test]
fn a_name_taken_by_another_users_link_during_the_run_does_not_lose_the_result() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("other"), "of another").unwrap();
    let output = try_out(&at("lab.json")).unwrap();
    symlink("other", at("lab.json")).unwrap();
    let is_root = mpps_os::capability::Rights::own().is_root;
    if is_root {
        lchown(at("lab.json"), Some(65_534), None).unwrap();
    }
    output.write(b"new").unwrap();
    assert_eq!(fs::read_to_string(at("lab.json")).unwrap(), "new");
    // That of this user is followed.
    let other = if is_root { "of another" } else { "new" };
    assert_eq!(fs::read_to_string(at("other")).unwrap(), other);
    assert_eq!(at("lab.json").is_symlink(), !is_root);
}

#[test]
fn the_longest_name_is_replaced_as_any_other() {
    let directory = tempfile::tempdir().unwrap();
    // 255 bytes are the longest name (limits.h, NAME_MAX).
    let path = directory.path().join("x".repeat(255));
    for text in ["a long earlier result", "new"] {
        let output = try_out(&path).unwrap();
        let target = FileTarget::find(&path).unwrap();
        assert!(matches!(way(&target).unwrap(), WrittenHow::Replace(_)));
        output.write(text.as_bytes()).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
    }
    // Its result finds a place beside it.
    fs::remove_file(&path).unwrap();
    let output = try_out(&path).unwrap();
    fs::create_dir(&path).unwrap();
    let error = output.write(b"aside").unwrap_err().to_string();
    assert!(error.contains("the result is in"), "{error}");
    try_out(&directory.path().join("x".repeat(256))).unwrap_err();
}

#[test]
fn standard_output_is_no_file() {
    let error = try_out(Path::new("-")).unwrap_err();
    assert!(error.to_string().contains("standard output"));
}

#[test]
fn leaves_no_empty_file_behind() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lab.json");
    drop(try_out(&path).unwrap());
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}

#[test]
fn names_what_cannot_be_written() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().display().to_string();
    let inside = format!("{text}/file");
    fs::write(&inside, "").unwrap();
    for path in [
        "/nosuch/lab.json".to_owned(),
        format!("{text}/"),
        format!("{text}/new/"),
        format!("{text}/new/."),
        format!("{text}/.."),
        format!("{inside}/x"),
        text,
    ] {
        let error = try_out(Path::new(&path)).unwrap_err();
        assert!(format!("{error:#}").contains(&path), "{error:#}");
    }
}

#[test]
fn one_file_by_two_names_is_one_file() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("lab.json"), "what was measured").unwrap();
    symlink("lab.json", at("link")).unwrap();
    let link = try_out(&at("link")).unwrap();
    assert!(link.overwrites(&at("lab.json")) && link.overwrites(&at("./lab.json")));
    assert!(!link.overwrites(&at("lab.html")));
    let new = try_out(&at("new")).unwrap();
    assert!(new.overwrites(&at("./new")));
    // A file that keeps nothing may be named twice.
    let null = try_out(Path::new("/dev/null")).unwrap();
    assert!(!null.overwrites(Path::new("/dev/null")));
}
