//! Lines of well-known programs' configurations for larger receive buffers and more threads.

/// The settings of a program.
struct ProgramSettings {
    /// Its names, as `/proc/PID/comm` has them up to a colon.
    names: &'static [&'static str],
    /// The line for its receive buffer, with `BYTES` for the size.
    buffer: &'static str,
    /// The line for more threads or processes that receive; empty where it has none.
    threads: &'static str,
}

/// Sources: nsd.conf(5) 4.6, unbound.conf(5) 1.17, the BIND 9.18 Administrator Reference Manual (`options`;
/// named(8)), knot.conf(5) 3.2, rsyslog's documentation of imudp, syslog-ng's of `so-rcvbuf()`, Telegraf's of
/// `inputs.statsd` and `inputs.socket_listener`, nfcapd(1), FreeRADIUS' sites-available/default, coturn's
/// turnserver.conf, chrony.conf(5), dnsdist's reference/config.
const PROGRAMS: [ProgramSettings; 12] = [
    row(
        &["nsd"],
        "receive-buffer-size: BYTES in server: of nsd.conf",
        "server-count: N and reuseport: yes in server: of nsd.conf",
    ),
    row(
        &["unbound"],
        "so-rcvbuf: BYTES in server: of unbound.conf",
        "num-threads: N and so-reuseport: yes in server: of unbound.conf",
    ),
    row(
        &["named"],
        "udp-receive-buffer BYTES; in options of named.conf",
        "named -n N",
    ),
    row(&["knotd"], "", "udp-workers: N in server: of knot.conf"),
    row(
        &["rsyslogd"],
        "input(type=\"imudp\" port=\"PORT\" rcvbufSize=\"BYTES\") in rsyslog.conf",
        "module(load=\"imudp\" threads=\"N\") in rsyslog.conf",
    ),
    row(
        &["syslog-ng"],
        "so-rcvbuf(BYTES) in the UDP source of syslog-ng.conf",
        "",
    ),
    row(
        &["telegraf"],
        "read_buffer_size = BYTES in [[inputs.statsd]] of telegraf.conf, read_buffer_size = \"BYTESB\" in \
         [[inputs.socket_listener]]",
        "",
    ),
    row(&["statsd", "chronyd"], DEFAULT, ""),
    row(&["nfcapd"], "nfcapd -B BYTES", ""),
    row(
        &["freeradius", "radiusd"],
        "recv_buff = BYTES in listen of sites-enabled/default",
        "",
    ),
    row(
        &["turnserver"],
        "sock-buf-size=BYTES in turnserver.conf",
        "relay-threads=N in turnserver.conf",
    ),
    row(
        &["dnsdist"],
        "setUDPSocketBufferSizes(BYTES, 0) in dnsdist.conf",
        "addLocal(ADDRESS, {reusePort=true}) once for each thread in dnsdist.conf",
    ),
];

/// For a program that takes what the kernel gives.
const DEFAULT: &str =
    "it has no setting of its own, so sysctl -w net.core.rmem_default=BYTES before it starts";

const fn row(
    names: &'static [&'static str],
    buffer: &'static str,
    threads: &'static str,
) -> ProgramSettings {
    ProgramSettings {
        names,
        buffer,
        threads,
    }
}

fn settings(program: &str) -> Option<&'static ProgramSettings> {
    let name = program.split([':', ' ']).next()?;
    PROGRAMS.iter().find(|known| known.names.contains(&name))
}

/// The line of a program's configuration that gives its UDP sockets a receive buffer of this size, by the
/// name of its process (`/proc/PID/comm`). None if it is not known.
pub(super) fn receive_buffer(program: &str, bytes: u64) -> Option<String> {
    let line = settings(program)?.buffer;
    (!line.is_empty()).then(|| line.replace("BYTES", &bytes.to_string()))
}

/// Sources: nginx's ngx_http_core_module, Apache's mpm_common, redis.conf, HAProxy's configuration.txt,
/// memcached(1), the MySQL 8.0 Reference Manual.
const BACKLOGS: [(&[&str], &str); 6] = [
    (&["nginx"], "listen PORT backlog=LIMIT; in nginx.conf"),
    (&["apache2", "httpd"], "ListenBacklog LIMIT in apache2.conf"),
    (&["redis-server"], "tcp-backlog LIMIT in redis.conf"),
    (&["haproxy"], "bind :PORT backlog LIMIT in haproxy.cfg"),
    (&["memcached"], "memcached -b LIMIT"),
    (&["mysqld", "mariadbd"], "back_log = LIMIT in my.cnf"),
];

/// The line of a program's configuration that lets N connections wait. None if it is not known.
pub(super) fn accept_queue(program: &str, limit: u32) -> Option<String> {
    let found = BACKLOGS.iter().find(|(names, _)| names.contains(&program));
    found.map(|(_, line)| line.replace("LIMIT", &limit.to_string()))
}

/// The line of a program's configuration for more threads or processes that receive UDP.
pub(super) fn threads(program: &str) -> Option<&'static str> {
    Some(settings(program)?.threads).filter(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_known_program_has_its_own_line() {
        for (name, part) in [
            ("nsd: server 1", "receive-buffer-size: 4096 "),
            ("unbound", "so-rcvbuf: 4096 "),
            ("chronyd", "rmem_default=4096 "),
            ("dnsdist", "(4096, 0)"),
        ] {
            let line = receive_buffer(name, 4096).unwrap_or_default();
            assert!(line.contains(part) && !line.contains("BYTES"), "{line}");
        }
        for unknown in ["knotd", "nsdx", "", "x: nsd"] {
            assert_eq!(receive_buffer(unknown, 1), None, "{unknown}");
        }
        assert!(threads("knotd").is_some_and(|line| line.contains("udp-workers")));
        assert_eq!((threads("nfcapd"), threads("x")), (None, None));
    }

    #[test]
    fn a_process_has_at_most_fifteen_letters() {
        for name in PROGRAMS.iter().flat_map(|known| known.names) {
            assert!(name.len() <= 15, "{name}");
        }
    }
}
