//! Servers of other projects, as Debian packages them.

use super::{MeasuredServer, Setup, shell};
use mpps_http::Switch;
use std::borrow::Cow;
use std::process::Command;

/// The part of the set-up that all of them share.
const IN_MEMORY: &str = "/run, /var/log and /var/www are in memory and its own";

/// A process of one thread for each CPU, epoll.
pub(super) const LIGHTTPD: MeasuredServer = MeasuredServer {
    name: "lighttpd",
    package: Some("lighttpd"),
    program: "/usr/sbin/lighttpd",
    version: "-v",
    set_up: &[
        "started as its unit file does: lighttpd -D -f /etc/lighttpd/lighttpd.conf, unchanged; on \
         several server CPUs with server.max-worker beside it, so that it uses them",
        IN_MEMORY,
    ],
    obstacle,
    // The directories are those of the package's tmpfiles.d.
    command: |setup| {
        let places = "for place in /run/lighttpd /var/log/lighttpd; do
    mkdir -p $place
    chown www-data:www-data $place
done
";
        let original = "/etc/lighttpd/lighttpd.conf";
        let become_it = match setup.cpus.len() {
            1 => format!("exec \"$1\" -D -f {original}\n"),
            workers => format!(
                "printf 'include \"{original}\"\\nserver.max-worker = {workers}\\n' > /run/own.conf
exec \"$1\" -D -f /run/own.conf
"
            ),
        };
        become_server(setup, &format!("{places}{become_it}"))
    },
    serves_files: true,
};

/// A process per CPU, epoll.
pub(super) const NGINX: MeasuredServer = MeasuredServer {
    name: "nginx",
    package: Some("nginx-light"),
    program: "/usr/sbin/nginx",
    set_up: &[
        "started with /etc/nginx/nginx.conf, unchanged but for `daemon off`: a worker for each CPU of \
         the machine; its access log goes to memory",
        IN_MEMORY,
    ],
    command: nginx,
    ..LIGHTTPD
};

/// Apache's httpd with threads.
pub(super) const APACHE_EVENT: MeasuredServer = MeasuredServer {
    name: "apache-event",
    package: Some("apache2"),
    program: "/usr/sbin/apache2",
    set_up: &[
        "started as apachectl does, with /etc/apache2, unchanged: mpm_event; its access log goes to \
         memory",
        IN_MEMORY,
    ],
    command: |setup| apache(setup, "event"),
    ..LIGHTTPD
};

/// Apache's httpd with processes.
pub(super) const APACHE_PREFORK: MeasuredServer = MeasuredServer {
    name: "apache-prefork",
    set_up: &[
        "as apache-event, with mpm_prefork in place of mpm_event, as a2dismod and a2enmod would",
        IN_MEMORY,
    ],
    command: |setup| apache(setup, "prefork"),
    ..APACHE_EVENT
};

fn obstacle(switch: Switch) -> Option<Cow<'static, str>> {
    let why = match switch {
        Switch::Moderation => return None,
        Switch::Affinity => "it has no listener that is chosen by the CPU of the queue",
        Switch::Buffers | Switch::Fds | Switch::Events => "the server would have to be changed",
    };
    Some(why.into())
}

fn become_server(setup: &Setup<'_>, steps: &str) -> Command {
    let places = ["/run", "/var/log", "/var/www"];
    shell(setup, &places, "/var/www/html", steps)
}

fn nginx(setup: &Setup<'_>) -> Command {
    let steps = "mkdir -p /var/log/nginx\nexec \"$1\" -g 'daemon off;'\n";
    become_server(setup, steps)
}

/// The package's `envvars` are what `apachectl` reads; whichever module for its processes is
/// enabled on this machine is replaced by the wanted one.
fn apache(setup: &Setup<'_>, module: &str) -> Command {
    let steps = format!(
        ". /etc/apache2/envvars
mkdir -p /run/lock $APACHE_RUN_DIR $APACHE_LOCK_DIR $APACHE_LOG_DIR
chown $APACHE_RUN_USER $APACHE_LOCK_DIR
mkdir /run/enabled
cp -a /etc/apache2/mods-enabled/. /run/enabled
mount -t tmpfs -o mode=0755 mpps /etc/apache2/mods-enabled
cp -a /run/enabled/. /etc/apache2/mods-enabled
rm -f /etc/apache2/mods-enabled/mpm_*
for kind in load conf; do
    ln -s ../mods-available/mpm_{module}.$kind /etc/apache2/mods-enabled/
done
exec \"$1\" -D FOREGROUND
"
    );
    become_server(setup, &steps)
}
