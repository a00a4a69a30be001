//! The targets of paths, and that none leads out.

use super::*;
use proptest::prelude::*;
use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use tempfile::TempDir;

/// A directory to serve beside a secret file.
fn site() -> (TempDir, ServedSite) {
    let folder = tempfile::tempdir().expect("there is room for a directory");
    let root = folder.path().join("root");
    fs::create_dir_all(root.join("a b/c")).expect("a directory");
    fs::create_dir_all(root.join("empty")).expect("a directory");
    fs::write(folder.path().join("secret"), "secret").expect("a file");
    fs::write(root.join("index.html"), "top").expect("a file");
    fs::write(root.join("a b/c/index.html"), "below").expect("a file");
    fs::write(root.join("a b/100%.TXT"), "percent").expect("a file");
    fs::write(root.join("..."), "dots").expect("a file");
    symlink("../secret", root.join("out")).expect("a link");
    symlink(folder.path().join("secret"), root.join("absolute")).expect("a link");
    symlink("a b/c", root.join("inside")).expect("a link");
    symlink("loop", root.join("loop")).expect("a link");
    symlink("/proc/self/root", root.join("magic")).expect("a link");
    let site = ServedSite::open(&ServedContent::Root(root)).expect("the root is there");
    (folder, site)
}

fn text(site: &ServedSite, path: &str) -> String {
    match site.find(path) {
        PathTarget::File(found) => std::io::read_to_string(found.file).expect("it can be read"),
        PathTarget::Directory => "directory".to_owned(),
        PathTarget::Nothing(status) => status.to_string(),
    }
}

#[test]
fn paths_lead_to_files_below_the_root() {
    let (_folder, site) = site();
    for (path, expected) in [
        ("/", "top"),
        ("/index.html", "top"),
        ("//./index.html", "top"),
        ("/index%2ehtml", "top"),
        ("/a%20b/c/", "below"),
        ("/a%20b%2Fc/index.html", "below"),
        ("/a%20b/100%25.TXT", "percent"),
        ("/inside/", "below"),
        ("/...", "dots"),
        ("/a%20b/c", "directory"),
        ("/inside", "directory"),
        ("/empty/", "404"),
        ("/nothing", "404"),
        ("/index.html/", "404"),
        ("/index.html/x", "404"),
    ] {
        assert_eq!(text(&site, path), expected, "{path}");
    }
    let long = format!("/{}", "x".repeat(300));
    assert_eq!(text(&site, &long), "404");
}

#[test]
fn no_path_leads_out() {
    let (folder, site) = site();
    for (path, expected) in [
        ("/out", "404"),
        ("/absolute", "404"),
        ("/loop", "404"),
        ("/magic/etc/passwd", "404"),
        ("/../secret", "400"),
        ("/a%20b/../index.html", "400"),
        ("/%2e%2e/secret", "400"),
        ("/..%2fsecret", "400"),
        ("/a%20b/..", "400"),
        ("/secret%00", "400"),
        ("/%", "400"),
        ("/%2", "400"),
        ("/%zz", "400"),
    ] {
        assert_eq!(text(&site, path), expected, "{path}");
    }
    let secret = folder.path().join("secret");
    assert_eq!(text(&site, &secret.to_string_lossy()), "404");
}

#[test]
fn only_regular_files_are_sent() {
    let (folder, site) = site();
    let socket = folder.path().join("root/socket");
    let _listener = UnixListener::bind(&socket).expect("a socket");
    assert_eq!(text(&site, "/socket"), "404");
    let root = folder.path().join("root");
    make_fifo(&root.join("fifo"));
    assert_eq!(text(&site, "/fifo"), "403", "and nobody waits for a writer");
}

/// Makes a FIFO; the standard library cannot.
fn make_fifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.expect("coreutils are there").success());
}

#[test]
fn types_are_those_of_the_file() {
    let (_folder, site) = site();
    let content_type = |path| match site.find(path) {
        PathTarget::File(found) => found.content_type,
        other => panic!("{other:?}"),
    };
    assert_eq!(content_type("/"), "text/html; charset=utf-8");
    assert_eq!(
        content_type("/a%20b/100%25.TXT"),
        "application/octet-stream"
    );
}

#[test]
fn what_cannot_be_served_is_refused() {
    assert!(ServedSite::open(&ServedContent::Root("/nonexistent".into())).is_err());
    assert!(ServedSite::open(&ServedContent::Size(SIZE_BYTES_MAX + 1)).is_err());
    let empty = ServedSite::open(&ServedContent::Size(0)).expect("nothing is little");
    assert_eq!(empty.body().map(|body| body.len()), Some(0));
}

proptest! {
    #[test]
    fn what_is_looked_for_lies_below(path in "/([a.%/2ef0]|%2e|%2F|\\.\\./){0,12}") {
        if let Some(relative) = relative_path(&path) {
            let relative = String::from_utf8_lossy(&relative).into_owned();
            prop_assert!(!relative.starts_with('/'));
            prop_assert!(relative.split('/').all(|name| name != ".." && !name.is_empty()));
            prop_assert!(!relative.contains('\0'));
        }
    }
}
