//! Lines of well-known programs' configurations for larger receive buffers and more threads.

/// A program a line. Its head says what the columns are.
const FILE: &str = include_str!("program_settings.tsv");

/// The programs: names, the line for the buffer, that for threads.
fn programs() -> impl Iterator<Item = [&'static str; 3]> {
    let lines = FILE.lines();
    lines.filter_map(|line| line.split('\t').collect::<Vec<_>>().try_into().ok())
}

/// A line of a program's configuration: of this column, if it has one.
fn line(program: &str, column: usize) -> Option<&'static str> {
    let name = program.split([':', ' ']).next()?;
    let row = programs().find(|[names, ..]| names.split(' ').any(|known| known == name))?;
    Some(row[column]).filter(|line| *line != "-")
}

/// The line of a program's configuration that gives its UDP sockets a receive buffer of this size, by the
/// name of its process (`/proc/PID/comm`). None if it is not known.
pub(super) fn receive_buffer(program: &str, bytes: u64) -> Option<String> {
    Some(line(program, 1)?.replace("BYTES", &bytes.to_string()))
}

/// Names, the line for more connections that wait, and that for more that are open, where it accepts no more than these.
///
/// Sources: nginx's ngx_http_core_module and ngx_core_module, Apache's mpm_common, redis.conf, HAProxy's
/// configuration.txt, memcached(1), the MySQL 8.0 Reference Manual.
const CONNECTIONS: [(&[&str], &str, &str); 6] = [
    (
        &["nginx"],
        "listen PORT backlog=LIMIT; in nginx.conf",
        "worker_connections N in events of nginx.conf",
    ),
    (
        &["apache2", "httpd"],
        "ListenBacklog LIMIT in apache2.conf",
        "MaxRequestWorkers N in apache2.conf",
    ),
    (&["redis-server"], "tcp-backlog LIMIT in redis.conf", ""),
    (
        &["haproxy"],
        "bind :PORT backlog LIMIT in haproxy.cfg",
        "maxconn N in global, defaults and bind of haproxy.cfg",
    ),
    (&["memcached"], "memcached -b LIMIT", "memcached -c N"),
    (&["mysqld", "mariadbd"], "back_log = LIMIT in my.cnf", ""),
];

/// The line of a program's configuration that lets N connections wait. None if it is not known.
pub(super) fn accept_queue(program: &str, limit: u32) -> Option<String> {
    let found = CONNECTIONS
        .iter()
        .find(|(names, ..)| names.contains(&program));
    found.map(|(_, line, _)| line.replace("LIMIT", &limit.to_string()))
}

/// The line for more open connections, of a program that accepts none beyond them.
pub(super) fn connection_limit(program: &str) -> Option<&'static str> {
    let found = CONNECTIONS
        .iter()
        .find(|(names, ..)| names.contains(&program));
    found
        .map(|(.., line)| *line)
        .filter(|line| !line.is_empty())
}

/// The line of a program's configuration for more threads or processes that receive UDP.
pub(super) fn threads(program: &str) -> Option<&'static str> {
    line(program, 2)
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
        assert_eq!(connection_limit("memcached"), Some("memcached -c N"));
        assert_eq!(
            (connection_limit("mysqld"), connection_limit("x")),
            (None, None)
        );
    }

    #[test]
    fn a_process_has_at_most_fifteen_letters() {
        for name in programs().flat_map(|[names, ..]| names.split(' ')) {
            assert!(name.len() <= 15, "{name}");
        }
    }
}
