//! nginx, as Debian packages it: a process per CPU, epoll.

use super::{Server, Setup, shell};
use mpps_http::Switch;
use std::process::Command;

pub(super) const SERVER: Server = Server {
    name: "nginx",
    package: Some("nginx-light"),
    program: "/usr/sbin/nginx",
    version: "-v",
    set_up: &[
        "started with /etc/nginx/nginx.conf, unchanged but for `daemon off`; its access log goes to \
         memory",
        "/run, /var/log and /var/www are in memory and its own",
        "affinity: one worker and not one per CPU of the machine, worker_cpu_affinity, and reuseport \
         on its listeners",
    ],
    obstacle,
    command,
    serves_files: true,
};

fn obstacle(switch: Switch) -> Option<&'static str> {
    match switch {
        Switch::Affinity | Switch::Moderation => None,
        Switch::Buffers | Switch::Fds | Switch::Events => Some(super::running::NOT_ITS_OWN),
    }
}

fn command(setup: &Setup<'_>) -> Command {
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
    shell(
        setup,
        &["/run", "/var/log", "/var/www"],
        "/var/www/html",
        &steps,
    )
}
