//! Popular servers, each with a private configuration, started and ended by its trial.

use super::{ENGINES, load, result};
use crate::common::Running;
use mpps_trial::{Need, Trial};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// How a server is started, in a directory of its own, at a port.
struct Foreign {
    name: &'static str,
    /// Where Debian has it.
    program: &'static str,
    package: &'static str,
    /// The configuration for a directory and a port.
    config: fn(&Path, u16) -> String,
    /// The arguments before and after the configuration's path.
    arguments: [&'static [&'static str]; 2],
}

const FOREIGN: [Foreign; 3] = [
    Foreign {
        name: "nginx",
        program: "/usr/sbin/nginx",
        package: "nginx-light",
        config: nginx,
        arguments: [&["-e", "stderr", "-c"], &[]],
    },
    Foreign {
        name: "lighttpd",
        program: "/usr/sbin/lighttpd",
        package: "lighttpd",
        config: lighttpd,
        arguments: [&["-D", "-f"], &[]],
    },
    Foreign {
        name: "apache",
        program: "/usr/sbin/apache2",
        package: "apache2",
        config: apache,
        arguments: [&["-X", "-f"], &[]],
    },
];

/// A trial for each.
pub(super) fn trials() -> Vec<Trial> {
    FOREIGN
        .into_iter()
        .map(|foreign| {
            let name = format!("load::servers::{}_is_asked", foreign.name);
            let program = Need::Program(foreign.program, foreign.package);
            Trial::waits(name, move || ask(&foreign)).needs(program)
        })
        .collect()
}

fn nginx(directory: &Path, port: u16) -> String {
    let directory = directory.display();
    // In a user namespace root is the only user that can get its directories.
    format!(
        "user root root; daemon off; master_process off; pid {directory}/pid; error_log {directory}/error;\n\
         events {{ worker_connections 256; }}\n\
         http {{\n  access_log off; client_body_temp_path {directory}/a; proxy_temp_path {directory}/b;\n  \
         fastcgi_temp_path {directory}/c; uwsgi_temp_path {directory}/d; scgi_temp_path {directory}/e;\n  \
         server {{ listen 127.0.0.1:{port}; root {directory}/www; }}\n}}\n"
    )
}

fn lighttpd(directory: &Path, port: u16) -> String {
    let directory = directory.display();
    format!(
        "server.document-root = \"{directory}/www\"\nserver.bind = \"127.0.0.1\"\n\
         server.port = {port}\nserver.errorlog = \"{directory}/error\"\n"
    )
}

fn apache(directory: &Path, port: u16) -> String {
    let directory = directory.display();
    let module =
        |name: &str| format!("LoadModule {name}_module /usr/lib/apache2/modules/mod_{name}.so\n");
    let modules = module("mpm_event") + &module("authz_core");
    format!(
        "{modules}ServerRoot {directory}\nServerName localhost\nListen 127.0.0.1:{port}\n\
         PidFile {directory}/pid\nErrorLog {directory}/error\nDefaultRuntimeDir {directory}\n\
         Mutex file:{directory}\nDocumentRoot {directory}/www\nKeepAlive On\n\
         MaxKeepAliveRequests 100\n<Directory />\nRequire all granted\n</Directory>\n"
    )
}

/// A port that was free a moment ago.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("it has one").port()
}

fn start(foreign: &Foreign, directory: &Path, port: u16) -> Running {
    let config = directory.join("config");
    fs::write(&config, (foreign.config)(directory, port)).expect("written");
    fs::create_dir(directory.join("www")).expect("made");
    fs::write(directory.join("www/a.txt"), "x".repeat(1024)).expect("written");
    let [before, after] = foreign.arguments;
    let mut command = Command::new(foreign.program);
    command.args(before).arg(&config).args(after);
    let server = Running::start(&mut command);
    for _ in 0..2000 {
        if TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return server;
        }
        thread::sleep(Duration::from_millis(5));
    }
    panic!("{} never listened: {:#?}", foreign.name, server.interrupt());
}

fn ask(foreign: &Foreign) {
    let directory = tempfile::tempdir().expect("a directory");
    let port = free_port();
    let server = start(foreign, directory.path(), port);
    let url = format!("http://127.0.0.1:{port}/a.txt");
    for engine in ENGINES {
        for extra in ["", "--keep-alive", "--keep-alive=10"] {
            let ended = load(engine, &url, &format!("--json -n 1000 -c 8 {extra}"));
            let told = result(&ended);
            let name = foreign.name;
            assert_eq!(ended.code(), 0, "{name} {engine} {extra:?}: {ended:#?}");
            assert_eq!(told["ledger"]["requests"]["completed"], 1000, "{name}");
            assert_eq!(told["body_bytes"], 1000 * 1024, "{name}");
        }
        let missing = format!("http://127.0.0.1:{port}/none");
        let ended = load(engine, &missing, "--json -n 10 -c 2");
        assert_eq!(ended.code(), 1, "{ended:#?}");
        assert_eq!(
            result(&ended)["ledger"]["requests"]["failed"]["bad_status"],
            10
        );
    }
    server.signal("TERM");
    server.end();
}
