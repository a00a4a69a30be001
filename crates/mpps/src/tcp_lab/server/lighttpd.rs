//! lighttpd, as Debian packages it: one process, one thread, epoll.

use super::{Server, Setup, shell};
use mpps_http::Switch;
use std::process::Command;

pub(super) const SERVER: Server = Server {
    name: "lighttpd",
    package: Some("lighttpd"),
    program: "/usr/sbin/lighttpd",
    version: "-v",
    set_up: &[
        "started as its unit file does: lighttpd -D -f /etc/lighttpd/lighttpd.conf, unchanged",
        "/run, /var/log and /var/www are in memory and its own",
    ],
    obstacle,
    command,
    serves_files: true,
};

fn obstacle(switch: Switch) -> Option<&'static str> {
    match switch {
        Switch::Moderation => None,
        Switch::Affinity => Some(super::running::ALREADY_THERE),
        Switch::Buffers | Switch::Fds | Switch::Events => Some(super::running::NOT_ITS_OWN),
    }
}

/// The directories are those of the package's tmpfiles.d.
fn command(setup: &Setup<'_>) -> Command {
    let steps = "for place in /run/lighttpd /var/log/lighttpd; do
    mkdir -p $place
    chown www-data:www-data $place
done
exec \"$1\" -D -f /etc/lighttpd/lighttpd.conf
";
    shell(
        setup,
        &["/run", "/var/log", "/var/www"],
        "/var/www/html",
        steps,
    )
}
