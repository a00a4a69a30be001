//! Servers of other projects, as Debian packages them.

use super::{Server, Setup, shell};
use mpps_http::Switch;
use std::process::Command;

/// What all of them have in common of their set-up.
const IN_MEMORY: &str = "/run, /var/log and /var/www are in memory and its own";

/// One process, one thread, epoll.
pub(super) const LIGHTTPD: Server = Server {
    name: "lighttpd",
    package: Some("lighttpd"),
    program: "/usr/sbin/lighttpd",
    version: "-v",
    set_up: &[
        "started as its unit file does: lighttpd -D -f /etc/lighttpd/lighttpd.conf, unchanged",
        IN_MEMORY,
    ],
    obstacle,
    // The directories are those of the package's tmpfiles.d.
    command: |setup| {
        let steps = "for place in /run/lighttpd /var/log/lighttpd; do
    mkdir -p $place
    chown www-data:www-data $place
done
exec \"$1\" -D -f /etc/lighttpd/lighttpd.conf
";
        become_server(setup, steps)
    },
    serves_files: true,
};

/// A process per CPU, epoll.
pub(super) const NGINX: Server = Server {
    name: "nginx",
    package: Some("nginx-light"),
    program: "/usr/sbin/nginx",
    set_up: &[
        "started with /etc/nginx/nginx.conf, unchanged but for `daemon off`; its access log goes to \
         memory",
        IN_MEMORY,
        "affinity: one worker and not one per CPU of the machine, worker_cpu_affinity, and reuseport \
         on its listeners",
    ],
    obstacle: |switch| match switch {
        Switch::Affinity => None,
        other => obstacle(other),
    },
    command: nginx,
    ..LIGHTTPD
};

/// Apache's httpd with threads.
pub(super) const APACHE_EVENT: Server = Server {
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
pub(super) const APACHE_PREFORK: Server = Server {
    name: "apache-prefork",
    set_up: &[
        "as apache-event, with mpm_prefork in place of mpm_event, as a2dismod and a2enmod would",
        IN_MEMORY,
    ],
    command: |setup| apache(setup, "prefork"),
    ..APACHE_EVENT
};

fn obstacle(switch: Switch) -> Option<&'static str> {
    match switch {
        Switch::Moderation => None,
        Switch::Affinity => {
            Some("all of it runs on its queue's CPU at base, and it has no reuseport")
        }
        Switch::Buffers | Switch::Fds | Switch::Events => {
            Some("the server would have to be changed")
        }
    }
}

fn become_server(setup: &Setup<'_>, steps: &str) -> Command {
    let places = ["/run", "/var/log", "/var/www"];
    shell(setup, &places, "/var/www/html", steps)
}

fn nginx(setup: &Setup<'_>) -> Command {
    let mut steps = String::from("mkdir -p /var/log/nginx\n");
    if setup.switches.has(Switch::Affinity) {
        // A mask is written in binary, the last digit being CPU 0.
        let mask = format!("1{}", "0".repeat(setup.cpu));
        // A copy of its configuration in memory, over the one that is there.
        steps.push_str(&format!(
            "mkdir /run/etc
cp -a /etc/nginx/. /run/etc
mount -t tmpfs -o mode=0755 mpps /etc/nginx
cp -a /run/etc/. /etc/nginx
sed -i 's/^worker_processes .*/worker_processes 1; worker_cpu_affinity {mask};/' /etc/nginx/nginx.conf
rm -f /etc/nginx/sites-enabled/default
sed 's/^\\([^#]*listen .*default_server\\);/\\1 reuseport;/' /etc/nginx/sites-available/default \
> /etc/nginx/sites-enabled/default
"
        ));
    }
    steps.push_str("exec \"$1\" -g 'daemon off;'\n");
    become_server(setup, &steps)
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
