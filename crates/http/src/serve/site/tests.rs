//! The targets of paths, and that none leads out.

use super::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::process::Command;
use tempfile::TempDir;

/// A directory to serve beside a secret file.
fn site() -> (TempDir, ServedSite) {
    let folder = tempfile::tempdir().expect("there is room for a directory");
    let root = folder.path().join("root");
    fs::create_dir_all(root.join("a/b")).expect("a directory");
    for (name, content) in [
        ("secret", "secret"),
        ("root/top", "top"),
        ("root/a/b/below", "below"),
        ("root/...", "dots"),
        ("root/%2e", "percent"),
    ] {
        fs::write(folder.path().join(name), content).expect("a file");
    }
    symlink("../secret", root.join("out")).expect("a link");
    symlink(folder.path().join("secret"), root.join("absolute")).expect("a link");
    symlink("a/b", root.join("inside")).expect("a link");
    symlink("loop", root.join("loop")).expect("a link");
    symlink("/proc/self/root", root.join("magic")).expect("a link");
    let _listener = UnixListener::bind(root.join("socket")).expect("a socket");
    // The standard library cannot make one.
    let made = Command::new("mkfifo").arg(root.join("fifo")).status();
    assert!(made.expect("coreutils are there").success());
    let site = ServedSite::open(&ServedContent::Root(root)).expect("the root is there");
    (folder, site)
}

#[test]
fn paths_lead_to_regular_files_below_the_root_and_nowhere_else() {
    let (folder, site) = site();
    let (long, secret) = (
        format!("/{}", "x".repeat(300)),
        folder.path().join("secret"),
    );
    for (path, expected) in [
        ("/top", Ok("top")),
        ("//./top", Ok("top")),
        ("/a/../top", Ok("top")),
        ("/inside/below", Ok("below")),
        ("/...", Ok("dots")),
        // Names are taken as they are.
        ("/%2e", Ok("percent")),
        ("/", Err(404)),
        ("/a", Err(404)),
        ("/nothing", Err(404)),
        ("/top/", Err(404)),
        ("/top/x", Err(404)),
        (&long, Err(404)),
        ("/out", Err(404)),
        ("/absolute", Err(404)),
        ("/loop", Err(404)),
        ("/magic/etc/passwd", Err(404)),
        ("/../secret", Err(404)),
        ("/a/../../secret", Err(404)),
        (&secret.to_string_lossy(), Err(404)),
        ("/socket", Err(404)),
        // No writer of a FIFO is waited for.
        ("/fifo", Err(404)),
    ] {
        let found = site.find(path).map(|mut found| {
            let mut text = Vec::new();
            found.read(&mut text).expect("it can be read");
            assert_eq!(found.left(), 0);
            String::from_utf8(text).expect("it is text")
        });
        assert_eq!(
            found.as_deref(),
            expected.as_ref().map(|text| *text),
            "{path}"
        );
    }
}

#[test]
fn what_cannot_be_served_is_refused() {
    assert!(ServedSite::open(&ServedContent::Root("/nonexistent".into())).is_err());
    assert!(ServedSite::open(&ServedContent::Size(SIZE_BYTES_MAX + 1)).is_err());
    let empty = ServedSite::open(&ServedContent::Size(0)).expect("nothing is little");
    assert!(matches!(empty, ServedSite::Body(body) if body.is_empty()));
}
