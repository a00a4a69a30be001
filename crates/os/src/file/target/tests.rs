//! Links of this and of other users, open files, and the rights of what takes a place.

use super::*;
use rustix::fs::mknodat;
use std::fs::{self, Permissions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use tempfile::TempDir;

/// Some user who is neither this one nor root.
const OTHER: u32 = 65_533;

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// The links of a test belong to the user who runs it. They are foreign only to another user, and
/// never to root. So root gives them away.
fn give(link: &Path) -> u32 {
    let own = geteuid().as_raw();
    if own != 0 {
        return own;
    }
    let given = lchown(link, Some(OTHER - 1), None);
    if given.is_ok() { OTHER - 1 } else { 0 }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().mode() & 0o7777
}

/// Writes by a new file, as a result is written.
fn replace(path: &Path, text: &str) {
    let target = FileTarget::find(path).unwrap();
    let old = target.open().unwrap();
    let mut new = target.create_beside(old.as_ref()).unwrap();
    new.write(text.as_bytes()).unwrap();
    new.take_place().unwrap();
}

#[test]
fn only_links_of_the_user_and_of_root_are_followed() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("there")).unwrap();
    fs::write(at("there/file"), "").unwrap();
    symlink("there/file", at("last")).unwrap();
    symlink(at("there"), at("middle")).unwrap();
    symlink("last", at("chain")).unwrap();
    symlink("there/new", at("dangling")).unwrap();
    let there = FileTarget::find(&at("there/file")).unwrap();
    for (path, is_there) in [
        ("last", true),
        ("middle/file", true),
        ("middle/../there/file", true),
        ("chain", true),
        ("dangling", false),
    ] {
        let path = at(path);
        let found = FileTarget::find(&path).unwrap();
        assert_eq!(found.is_same(&there).unwrap(), is_there, "{path:?}");
    }
    let owner = ["last", "middle", "dangling"].map(|link| give(&at(link)))[0];
    if owner == 0 {
        // This root has no other user.
        return;
    }
    // The first link of a chain that is foreign: root keeps its own.
    let first = if geteuid().is_root() { "last" } else { "chain" };
    for (path, link) in [
        ("last", "last"),
        ("chain", first),
        ("middle/file", "middle"),
        ("middle/../there/file", "middle"),
        ("dangling", "dangling"),
    ] {
        let error = FileTarget::find_as(&at(path), OTHER).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        let text = format!("{} is a symbolic link of user {owner}", at(link).display());
        assert!(error.to_string().contains(&text), "{error}");
        // Their owner follows them, and root what root has made.
        assert!(FileTarget::find_as(&at(path), owner).is_ok(), "{path}");
    }
    assert!(FileTarget::find_as(&at("there/file"), OTHER).is_ok());
    assert!(FileTarget::find_as(Path::new("/dev/stdout"), OTHER).is_ok());
}

#[test]
fn no_link_is_followed_where_another_user_may_rename_it() {
    let directory = directory();
    let link = directory.path().join("link");
    symlink("file", &link).unwrap();
    for (mode, is_safe) in [(0o755, true), (0o777, false), (0o1777, true), (0o775, true)] {
        set_mode(directory.path(), mode);
        assert_eq!(FileTarget::find(&link).is_ok(), is_safe, "{mode:o}");
    }
    if chown(directory.path(), None, Some(OTHER)).is_ok() {
        for (mode, is_safe) in [(0o755, true), (0o775, false), (0o1775, true)] {
            set_mode(directory.path(), mode);
            assert_eq!(FileTarget::find(&link).is_ok(), is_safe, "{mode:o}");
        }
    }
    if chown(directory.path(), Some(OTHER), None).is_ok() {
        for mode in [0o755, 0o1777] {
            set_mode(directory.path(), mode);
            let error = FileTarget::find(&link).unwrap_err().to_string();
            assert!(error.contains("in a directory of user 65533"), "{error}");
        }
    }
}

#[test]
fn a_path_that_is_no_file_is_refused() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("file"), "").unwrap();
    symlink("circle", at("circle")).unwrap();
    symlink(".", at("dot")).unwrap();
    for (path, errno) in [
        ("file/x", Errno::NOTDIR),
        ("absent/x", Errno::NOENT),
        ("circle", Errno::LOOP),
        ("circle/x", Errno::LOOP),
    ] {
        let error = FileTarget::find(&at(path)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(errno.raw_os_error()), "{path}");
    }
    for path in [at("dot"), at("absent/.."), "/".into(), "".into()] {
        assert!(FileTarget::find(&path).is_err(), "{path:?}");
    }
    let error = FileTarget::find(directory.path())
        .unwrap()
        .open()
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::IsADirectory);
}

#[test]
fn a_link_that_comes_later_is_not_opened_but_replaced() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    let target = FileTarget::find(&at("result")).unwrap();
    fs::write(at("other"), "other").unwrap();
    symlink("other", at("result")).unwrap();
    assert!(target.open().unwrap().is_none());
    let mut new = target.create_beside(None).unwrap();
    new.write(b"new").unwrap();
    new.take_place().unwrap();
    let texts = ["other", "result"].map(|name| fs::read_to_string(at(name)).unwrap());
    assert_eq!(texts, ["other", "new"]);
    assert!(!at("result").is_symlink());
}

#[test]
fn a_directory_that_moves_takes_its_file_along() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("a")).unwrap();
    fs::create_dir(at("trap")).unwrap();
    let target = FileTarget::find(&at("a/result")).unwrap();
    fs::rename(at("a"), at("b")).unwrap();
    symlink("trap", at("a")).unwrap();
    target.create_beside(None).unwrap().take_place().unwrap();
    assert!(at("b/result").is_file());
    assert_eq!(fs::read_dir(at("trap")).unwrap().count(), 0);
}

#[test]
fn open_files_are_found_by_their_numbers() {
    let directory = directory();
    let file = File::create(directory.path().join("file")).unwrap();
    let number = file.as_raw_fd() as u32;
    for path in [
        format!("/dev/fd/{number}"),
        format!("/proc/self/fd/{number}"),
    ] {
        let target = FileTarget::find(Path::new(&path)).unwrap();
        assert_eq!(target.own_descriptor(), Some(number));
        assert!(target.is_in_proc() && target.keeps());
        let opened = target.open().unwrap().unwrap();
        target.overwrite(&opened, b"more", || false).unwrap();
    }
    // An open file is not cut.
    assert_eq!(file.metadata().unwrap().len(), 8);
    let by_number = |path: &str| FileTarget::find(Path::new(path)).unwrap().own_descriptor();
    assert_eq!(by_number("/proc/1/fd/1"), None);
    assert_eq!(by_number("/proc/self/1"), None);
    assert_eq!(by_number("/tmp/1"), None);
}

#[test]
fn rights_stay_and_a_new_file_has_those_of_any() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    File::create(at("any")).unwrap();
    replace(&at("result"), "first");
    assert_eq!(mode(&at("result")), mode(&at("any")));
    for kept in [0o600, 0o664, 0o646] {
        set_mode(&at("result"), kept);
        replace(&at("result"), "again");
        assert_eq!(mode(&at("result")), kept);
    }
    // An entry for user 4242, and the mask, which stands in the mode as the group's rights (acl(5)).
    let entries = [
        (1, 6, -1),
        (2, 6, 4242),
        (4, 0, -1),
        (16, 6, -1),
        (32, 0, -1),
    ];
    let entries = entries.map(|(tag, rights, id): (u16, u16, i32)| {
        let head = [tag.to_ne_bytes(), rights.to_ne_bytes()].concat();
        [head, id.to_ne_bytes().to_vec()].concat()
    });
    let list = [2_u32.to_ne_bytes().to_vec(), entries.concat()].concat();
    let of = |path: &Path| {
        let mut list = vec![0; ACL_BYTES];
        let bytes = fgetxattr(File::open(path).unwrap(), ACL, &mut *list).ok()?;
        Some(list[..bytes].to_vec())
    };
    // This file system, or this user namespace, may have none. First those of new files only.
    let opened = File::open(directory.path()).unwrap();
    let default = "system.posix_acl_default";
    if fsetxattr(&opened, default, &list, XattrFlags::empty()).is_ok() {
        set_mode(&at("result"), 0o640);
        replace(&at("result"), "in a list's directory");
        assert_eq!((mode(&at("result")), of(&at("result"))), (0o640, None));
        fremovexattr(&opened, default).unwrap();
    }
    let result = File::open(at("result")).unwrap();
    if fsetxattr(&result, ACL, &list, XattrFlags::empty()).is_ok() {
        replace(&at("result"), "once more");
        assert_eq!(
            (mode(&at("result")), of(&at("result"))),
            (0o660, Some(list))
        );
    }
}

#[test]
fn the_file_of_another_user_stays_his_but_where_all_may_write() {
    let directory = directory();
    let path = directory.path().join("result");
    fs::write(&path, "").unwrap();
    if chown(&path, Some(OTHER), Some(OTHER)).is_err() {
        return;
    }
    set_mode(&path, 0o640);
    let facts = || {
        let file = fs::metadata(&path).unwrap();
        (file.uid(), file.gid(), file.mode() & 0o7777)
    };
    replace(&path, "of another");
    assert_eq!(facts(), (OTHER, OTHER, 0o640));
    set_mode(directory.path(), 0o1777);
    set_mode(&path, 0o602);
    let own = (geteuid().as_raw(), rustix::process::getegid().as_raw());
    replace(&path, "of this user");
    let (user, group, rights) = facts();
    assert_eq!(((user, group), rights & 0o170), (own, 0));
    assert_eq!(rights & 0o600, 0o600);
    // As far as any new file has it: the mask of this process takes that of all others.
    let any = directory.path().join("any");
    File::create(&any).unwrap();
    assert_eq!(rights & !mode(&any), 0);
}

#[test]
fn a_hard_link_in_a_directory_of_others_is_not_overwritten() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("result"), "earlier").unwrap();
    fs::hard_link(at("result"), at("other")).unwrap();
    let target = FileTarget::find(&at("result")).unwrap();
    let opened = target.open().unwrap().unwrap();
    set_mode(directory.path(), 0o777);
    let error = target.overwrite(&opened, b"new", || false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert_eq!(fs::read_to_string(at("other")).unwrap(), "earlier");
    // A new file takes the place of one name only.
    replace(&at("result"), "new");
    assert_eq!(fs::read_to_string(at("other")).unwrap(), "earlier");
    set_mode(directory.path(), 0o755);
    fs::hard_link(at("other"), at("own")).unwrap();
    let target = FileTarget::find(&at("own")).unwrap();
    let opened = target.open().unwrap().unwrap();
    target.overwrite(&opened, b"new", || false).unwrap();
    assert_eq!(fs::read_to_string(at("other")).unwrap(), "new");
}

#[test]
fn a_pipe_needs_a_reader_and_an_owner_who_is_trusted() {
    let directory = directory();
    let path = directory.path().join("pipe");
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    let target = FileTarget::find(&path).unwrap();
    assert!(!target.keeps());
    let error = target.open().unwrap_err();
    assert!(error.to_string().contains("no program reads"), "{error}");
    let mut options = File::options();
    let both = options.read(true).write(true).open(&path).unwrap();
    let pipe = target.open().unwrap().unwrap();
    // Its reader does not read.
    (&both).write_all(&[b' '; 1 << 16]).unwrap();
    let error = target.overwrite(&pipe, b"new", || true).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    if chown(&path, Some(OTHER), None).is_ok() {
        let error = target.open().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(error.to_string().contains("user 65533"), "{error}");
        let number = both.as_raw_fd();
        let by_number = FileTarget::find(Path::new(&format!("/dev/fd/{number}"))).unwrap();
        assert!(by_number.open().unwrap().is_some());
    }
}

#[test]
fn only_what_a_killed_program_of_this_user_left_is_removed() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    let stale = SystemTime::now() - Duration::from_secs(60);
    let make = |name: &str| File::create(at(name)).unwrap();
    let left = ".mpps-0123abcd";
    make(left).set_modified(stale).unwrap();
    make(".mpps-00000000");
    let kept = [
        ".mpps-notes-of-mine",
        ".mpps-0123ABCD",
        ".mpps-0123abc",
        ".mpps-0123abcde",
        "mpps-0123abcd",
        ".result.backup",
    ];
    for name in kept {
        make(name).set_modified(stale).unwrap();
    }
    symlink("absent", at(".mpps-11111111")).unwrap();
    let foreign = ".mpps-22222222";
    make(foreign).set_modified(stale).unwrap();
    let is_root = chown(at(foreign), Some(OTHER), None).is_ok();
    let target = FileTarget::find(&at("result")).unwrap();
    target.remove_left(Duration::from_secs(30));
    assert!(!at(left).exists() && at(".mpps-00000000").exists());
    assert_eq!(kept.map(|name| at(name).exists()), [true; 6]);
    assert_eq!(at(foreign).exists(), is_root);
    target.remove_left(Duration::ZERO);
    assert!(at(".mpps-11111111").is_symlink());
}

#[test]
fn a_result_that_finds_no_place_stays_beside_it() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    symlink("result", at("link")).unwrap();
    fs::create_dir(at("result")).unwrap();
    let target = FileTarget::find(&at("link")).unwrap();
    let aside = target.write_aside(b"new").unwrap();
    assert_eq!(fs::read_to_string(&aside).unwrap(), "new");
    assert_eq!(mode(&aside), 0o600);
    assert_ne!(target.write_aside(b"again").unwrap(), aside);
    // No later run takes it for what a killed one left.
    let old = File::options().write(true).open(&aside).unwrap();
    old.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    target.remove_left(Duration::ZERO);
    assert!(aside.starts_with(directory.path()) && aside.exists());
}

#[test]
fn directories_are_made_through_no_link_of_another_user() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("own")).unwrap();
    symlink("own", at("link")).unwrap();
    for path in ["a/b/../c/./d", "link/e/f", "link/e/f/"] {
        create_directories(&at(path)).unwrap();
        assert!(at(path).is_dir(), "{path}");
    }
    assert!(at("own/e/f").is_dir() && at("a/b").is_dir());
    create_directories(Path::new("")).unwrap();
    create_directories(Path::new("/")).unwrap();
    File::create(at("file")).unwrap();
    assert!(create_directories(&at("file/x")).is_err());
    if lchown(at("link"), Some(OTHER), None).is_ok() {
        let error = create_directories(&at("link/new/x")).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::PermissionDenied);
        assert!(!at("own/new").exists());
    }
}

#[test]
fn only_a_regular_file_of_this_user_is_believed() {
    let directory = directory();
    let at = |name: &str| directory.path().join(name);
    fs::write(at("file"), "").unwrap();
    symlink("file", at("link")).unwrap();
    mknodat(CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    symlink("/dev/zero", at("zero")).unwrap();
    let opened = |name: &str| open_believed(&at(name)).map(drop).map_err(|it| it.kind());
    let names = ["file", "link", "pipe", "zero", "absent"];
    let unfit = Err(ErrorKind::InvalidInput);
    let absent = Err(ErrorKind::NotFound);
    assert_eq!(names.map(opened), [Ok(()), Ok(()), unfit, unfit, absent]);
    let foreign = Err(ErrorKind::PermissionDenied);
    set_mode(directory.path(), 0o777);
    assert_eq!(opened("file"), foreign);
    set_mode(directory.path(), 0o755);
    for given in ["link", "file"] {
        if lchown(at(given), Some(OTHER), None).is_ok() {
            assert_eq!(opened(given), foreign);
        }
    }
}

#[test]
fn a_new_file_that_takes_no_place_is_removed() {
    let directory = directory();
    let target = FileTarget::find(&directory.path().join("result")).unwrap();
    let new = target.create_beside(None).unwrap();
    let file = fs::read_dir(directory.path()).unwrap().next().unwrap();
    let name = file.unwrap().file_name().into_string().unwrap();
    assert!(name.starts_with(".mpps-"), "{name}");
    drop(new);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
}
