//! Apache's httpd, as Debian packages it: with threads (mpm_event) and with processes
//! (mpm_prefork).

use super::{Server, Setup, shell};
use mpps_http::Switch;
use std::process::Command;

pub(super) const EVENT: Server = Server {
    name: "apache-event",
    package: Some("apache2"),
    program: "/usr/sbin/apache2",
    version: "-v",
    set_up: &[
        "started as apachectl does, with /etc/apache2, unchanged: mpm_event; its access log goes to \
         memory",
        "/run, /var/log and /var/www are in memory and its own",
    ],
    obstacle,
    command: |setup| command(setup, "event"),
    serves_files: true,
};

pub(super) const PREFORK: Server = Server {
    name: "apache-prefork",
    set_up: &[
        "as apache-event, with mpm_prefork in place of mpm_event, as a2dismod and a2enmod would",
        "/run, /var/log and /var/www are in memory and its own",
    ],
    command: |setup| command(setup, "prefork"),
    ..EVENT
};

fn obstacle(switch: Switch) -> Option<&'static str> {
    match switch {
        Switch::Moderation => None,
        Switch::Affinity => Some(super::running::ALREADY_THERE),
        Switch::Buffers | Switch::Fds | Switch::Events => Some(super::running::NOT_ITS_OWN),
    }
}

/// The package's `envvars` are what `apachectl` reads; whichever module for its processes is
/// enabled on this machine is replaced by the wanted one.
fn command(setup: &Setup<'_>, module: &str) -> Command {
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
    shell(
        setup,
        &["/run", "/var/log", "/var/www"],
        "/var/www/html",
        &steps,
    )
}
