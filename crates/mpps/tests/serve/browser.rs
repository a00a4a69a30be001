//! A browser: a page with its style sheet, script and picture, ranges, and its cache.

use super::{address_of, serve, totals};
use crate::common;
use mpps_os::namespace::NetNamespace;
use mpps_os::process::spawn_contained;
use mpps_trial::{Need, Trial};
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The names of the browser in different packages.
const BROWSERS: &str = "chromium|chromium-browser|google-chrome";
/// No display, and no connection but to the server; all files in its own folder.
const OPTIONS: [&str; 11] = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--no-first-run",
    // Time stands still while a reply is awaited: however slow the machine, the script ends first.
    "--virtual-time-budget=60000",
    "--dump-dom",
];
/// How often it may be looked at before it is killed, and how long after each look.
const LOOKS: u32 = 6000;
const LOOK: Duration = Duration::from_millis(20);

const LETTERS: &str = "abcdefghijklmnopqrstuvwxyz";
const LARGE_BYTES: usize = 3_000_000;

/// The output that the script must write.
const SEEN: &str = "\
colour rgb(1, 20, 40)
picture 7 5
came 3 http/1.1
middle 206 text/plain; charset=utf-8 bytes 10-14/26 5
text klmno
end 206 text/plain; charset=utf-8 bytes 23-25/26 3
text xyz
beyond 416 - bytes */26 0
kept 200 text/plain; charset=utf-8 - 26
text abcdefghijklmnopqrstuvwxyz
asked again 200 text/plain; charset=utf-8 - 26
text abcdefghijklmnopqrstuvwxyz
named 200 text/plain; charset=utf-8 - 5
text named
head 200 text/plain; charset=utf-8 - 0
absent 404 text/plain; charset=utf-8 - 14
posted 405 text/plain; charset=utf-8 - 23
large 200 application/octet-stream - 3000000
sum 9000000
crowd 12 abcdefghijklmnopqrstuvwxyz
metrics true
over";

/// A trial for each engine.
pub(super) fn trial_of(engine: &'static str) -> Trial {
    let name = format!("serve::browser::a_browser_is_content_with_{engine}");
    let browser = Need::Program(BROWSERS, "chromium");
    Trial::waits(name, move || by_browser(engine))
        .needs(Need::Namespace)
        .needs(browser)
}

fn by_browser(engine: &str) {
    let is_there = |name: &&str| mpps_trial::program(name, "chromium").is_ok();
    let program = BROWSERS.split('|').find(is_there).expect("it is needed");
    let directory = tempfile::tempdir().expect("a directory");
    let site = directory.path().join("site");
    write_site(&site);
    let root = site.to_str().expect("plain letters");
    let namespace = common::quiet_namespace();
    let mut server = namespace
        .run(|| serve(&["--json", "--engine", engine, "--root", root]))
        .expect("it can be entered");
    let url = format!("http://{}/", address_of(&mut server));

    let page = page_of(program, &url, directory.path(), &namespace);
    let seen = page.split_once("<pre id=\"seen\">");
    let seen = seen.and_then(|(_, rest)| rest.split_once("</pre>"));
    let (seen, _) = seen.unwrap_or_else(|| panic!("no such page: {page}"));
    assert_eq!(seen, SEEN);

    let total = totals(&server.interrupt().fine());
    // The page and its three parts, ten by hand, the crowd, and the counters.
    assert_eq!(total["requests"], 4 + 10 + 12 + 1);
    let statuses = &total["statuses"];
    let classes = ["2xx", "3xx", "4xx", "5xx"].map(|class| statuses[class].as_u64());
    // The 3xx reply is for a file that was asked for again and had not changed.
    assert_eq!(classes, [Some(23), Some(1), Some(3), Some(0)], "{statuses}");
    let (accepted, ended) = (total["accepted"].as_u64(), &total["ended"]);
    assert!(accepted < Some(27), "no connection was kept: {total}");
    for fault in [
        "error",
        "reset",
        "head_timeout",
        "idle_timeout",
        "send_timeout",
    ] {
        assert_eq!(ended[fault], 0, "{ended}");
    }
}

fn write_site(site: &Path) {
    fs::create_dir_all(site.join("look")).expect("it is ours");
    let write = |name: &str, content: &[u8]| {
        fs::write(site.join(name), content).expect("it is ours");
    };
    write("index.html", include_bytes!("site/index.html"));
    write("look/script.js", include_bytes!("site/script.js"));
    write("look/sheet.css", b"#styled { color: rgb(1, 20, 40) }");
    let picture = br#"<svg xmlns="http://www.w3.org/2000/svg" width="7" height="5"/>"#;
    write("look/picture.svg", picture);
    write("letters.txt", LETTERS.as_bytes());
    write("a b ü.txt", b"named");
    write("large.bin", &vec![3; LARGE_BYTES]);
}

/// The page as it is after its script has run. The browser has a namespace to itself and to the
/// server, and all its processes end with this function.
fn page_of(program: &str, url: &str, directory: &Path, namespace: &NetNamespace) -> String {
    let (page, errors) = (directory.join("page"), directory.join("errors"));
    let create = |path: &Path| File::create(path).expect("it is ours");
    let profile = format!("--user-data-dir={}", directory.join("profile").display());
    let mut command = Command::new(program);
    command
        .args(OPTIONS)
        .args([profile.as_str(), url])
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .envs([("HOME", directory), ("TMPDIR", directory)])
        .stdin(Stdio::null())
        .stdout(create(&page))
        .stderr(create(&errors));
    let mut browser = spawn_contained(command, namespace).expect("it is there");
    let read =
        |path: &Path| String::from_utf8_lossy(&fs::read(path).expect("it is ours")).into_owned();
    for _ in 0..LOOKS {
        if let Some(status) = browser.try_wait().expect("a child can be asked") {
            assert!(status.success(), "{status}: {}", read(&errors));
            return read(&page);
        }
        std::thread::sleep(LOOK);
    }
    panic!("it does not end: {}{}", read(&page), read(&errors));
}
