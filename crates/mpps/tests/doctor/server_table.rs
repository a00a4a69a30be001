//! The table of servers from Debian 12, each with its smallest configuration, and one of a few lines for Node.

/// A server. In its texts, `{DIR}` is its folder and `{PORT}` is its port.
pub(crate) struct Server {
    pub(crate) name: &'static str,
    pub(crate) package: &'static str,
    /// It drops root's rights for this user's.
    pub(crate) user: &'static str,
    /// It stays in the foreground.
    pub(crate) arguments: &'static str,
    /// The text of `{DIR}/server.conf`. `{DIR}/example` is a zone.
    pub(crate) conf: &'static str,
    /// A datagram that it accepts.
    pub(crate) datagram: &'static [u8],
    pub(crate) answers: bool,
}

const fn server(
    [name, package, user]: [&'static str; 3],
    arguments: &'static str,
    conf: &'static str,
    (datagram, answers): (&'static [u8], bool),
) -> Server {
    Server {
        name,
        package,
        user,
        arguments,
        conf,
        datagram,
        answers,
    }
}

pub(crate) const SERVERS: [Server; 13] = [
    // Two threads have a socket each, with the smallest buffer.
    server(
        ["unbound", "unbound", "unbound"],
        "-d -c {DIR}/server.conf",
        UNBOUND,
        DNS,
    ),
    // One thread and one socket.
    server(
        ["dnsmasq", "dnsmasq-base", "nobody"],
        "-k -C {DIR}/server.conf",
        DNSMASQ,
        DNS,
    ),
    // Two of its 17 threads read.
    server(["knotd", "knot", "knot"], "-c {DIR}/server.conf", KNOT, DNS),
    server(
        ["named", "bind9", "bind"],
        "-f -n 2 -u bind -c {DIR}/server.conf -L {DIR}/log",
        NAMED,
        DNS,
    ),
    // A parent, two children and a process for transfers share two sockets.
    server(["nsd", "nsd", "nsd"], "-d -c {DIR}/server.conf", NSD, DNS),
    server(
        ["rsyslogd", "rsyslog", "nobody"],
        "-n -f {DIR}/server.conf -i {DIR}/pid",
        RSYSLOG,
        SYSLOG,
    ),
    // A child without the socket starts `true` for each file.
    server(
        ["nfcapd", "nfdump", "nobody"],
        "-b 192.168.254.1 -p {PORT} -w {DIR} -u nobody -g nogroup -x true",
        "",
        NETFLOW,
    ),
    // Two sockets have buffers as large as the kernel allows.
    server(
        ["turnserver", "coturn", "turnserver"],
        "-n --no-cli -L 192.168.254.1 -p {PORT} --no-tls --no-dtls --no-tcp -z -m 2 \
         --log-file stdout --pidfile {DIR}/pid --db {DIR}/db --proc-user turnserver \
         --proc-group turnserver",
        "",
        STUN,
    ),
    server(
        ["chronyd", "chrony", "_chrony"],
        "-d -x -f {DIR}/server.conf -u _chrony",
        CHRONY,
        NTP,
    ),
    server(
        ["syslog-ng", "syslog-ng-core", "nobody"],
        "-F --no-caps -f {DIR}/server.conf -R {DIR}/persist -c {DIR}/ctl -p {DIR}/pid -u nobody -g nogroup",
        SYSLOG_NG,
        SYSLOG,
    ),
    // Go: any of its threads reads.
    server(
        ["influxd", "influxdb", "root"],
        "-config {DIR}/server.conf",
        INFLUX,
        (b"load,host=a value=1", false),
    ),
    // One thread reads, two work.
    server(
        ["freeradius", "freeradius", "root"],
        "-f -l stdout -d {DIR} -n server",
        FREERADIUS,
        RADIUS,
    ),
    server(
        ["node", "nodejs", "nobody"],
        "{DIR}/server.conf",
        NODE,
        (b"load:1|g", true),
    ),
];

/// A question for the address of ns.example. With each datagram: whether it gets an answer.
const DNS: (&[u8], bool) = (
    b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x02ns\x07example\0\0\x01\0\x01",
    true,
);
const SYSLOG: (&[u8], bool) = (b"<13>Nov 28 01:00:00 host tag: text", false);
/// NetFlow 5: a header of 24 bytes, and a record of 48 bytes from 10.0.0.1 to 10.0.0.2.
const NETFLOW: (&[u8], bool) = (
    b"\0\x05\0\x01\0\0\x03\xe8\x69\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\
      \x0a\0\0\x01\x0a\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x64\
      \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    false,
);
/// A Binding request.
const STUN: (&[u8], bool) = (b"\0\x01\0\0\x21\x12\xa4\x42abcdefghijkl", true);
/// A client's request of NTP version 4.
const NTP: (&[u8], bool) = (
    &{
        let mut request = [0; 48];
        request[0] = 0x23;
        request
    },
    true,
);

/// Status-Server (RFC 5997) with the secret `x`.
const RADIUS: (&[u8], bool) = (
    b"\x0c\x01\0\x26mpps mpps mpps m\x50\x12\
      \x16\x55\x39\x4b\x27\x2a\x50\x27\xdc\x7b\x15\x20\x21\x43\x96\xed",
    true,
);

pub(crate) const ZONE: &str = "$ORIGIN example.\n$TTL 60\n@ SOA ns.example. h.example. 1 60 60 60 60\n\
    @ NS ns\nns A 192.0.2.1\n";

const UNBOUND: &str = r#"server:
 interface: 192.168.254.1 port: {PORT} access-control: 192.168.254.0/24 allow
 username: unbound chroot: "" directory: "{DIR}" pidfile: "" use-syslog: no
 num-threads: 2 so-rcvbuf: 4096
 local-zone: "example." static local-data: "ns.example. A 192.0.2.1"
"#;

const DNSMASQ: &str = "listen-address=192.168.254.1\nbind-interfaces\nport={PORT}\nuser=nobody\n\
    no-resolv\nno-hosts\npid-file={DIR}/pid\naddress=/ns.example/192.0.2.1\n";

const KNOT: &str = "server:\n rundir: {DIR}\n user: knot\n listen: 192.168.254.1@{PORT}\n udp-workers: 2\n\
database:\n storage: {DIR}\n\
zone:\n - domain: example\n   storage: {DIR}\n   file: example\n";

const NAMED: &str = r#"options {
 directory "{DIR}"; managed-keys-directory "{DIR}"; pid-file none; session-keyfile none;
 listen-on port {PORT} { 192.168.254.1; }; listen-on-v6 { none; };
 recursion no; dnssec-validation no;
};
controls { };
zone "example" { type primary; file "example"; };
"#;

const NSD: &str = r#"server:
 ip-address: 192.168.254.1 port: {PORT} username: nsd chroot: "" zonesdir: "{DIR}"
 database: "" pidfile: "{DIR}/pid" xfrdfile: "{DIR}/xfrd" xfrdir: "{DIR}"
 zonelistfile: "{DIR}/zones" server-count: 2 reuseport: yes rrl-ratelimit: 0 receive-buffer-size: 4096
remote-control: control-enable: no
zone: name: example zonefile: example
"#;

const RSYSLOG: &str = r#"global(workDirectory="{DIR}")
$PrivDropToUser nobody
$PrivDropToGroup nogroup
module(load="imudp")
input(type="imudp" address="192.168.254.1" port="{PORT}")
*.* action(type="omfile" file="{DIR}/log")
"#;

const CHRONY: &str = "bindaddress 192.168.254.1\nport {PORT}\ncmdport 0\nbindcmdaddress /\n\
    allow 192.168.254.0/24\nlocal\npidfile {DIR}/pid\n";

const SYSLOG_NG: &str = r#"@version: 3.38
options { stats-freq(0); use-dns(no); };
source s { network(ip("192.168.254.1") port({PORT}) transport("udp")); };
destination d { file("{DIR}/log"); };
log { source(s); destination(d); };
"#;

const INFLUX: &str = r#"reporting-disabled = true
bind-address = "127.0.0.1:8088"
[meta]
 dir = "{DIR}/meta"
[data]
 dir = "{DIR}/data"
 wal-dir = "{DIR}/wal"
[http]
 enabled = false
[[udp]]
 enabled = true
 bind-address = "192.168.254.1:{PORT}"
"#;

const FREERADIUS: &str = "prefix = /usr
logdir = {DIR}
run_dir = {DIR}
db_dir = {DIR}
libdir = /usr/lib/freeradius
pidfile = {DIR}/pid
log { destination = stdout }
client lan { ipaddr = 192.168.254.0/24
 secret = x }
thread pool { start_servers = 2
 max_servers = 2 }
modules { always ok { rcode = ok } }
server default {
 listen { type = status
  ipaddr = 192.168.254.1
  port = {PORT} }
 authorize {
  Autz-Type Status-Server {
   ok
  }
 }
}
";

const NODE: &str = "const socket = require('dgram').createSocket('udp4')
socket.on('message', (message, from) => socket.send(message, from.port, from.address))
socket.bind({PORT}, '192.168.254.1', () => { process.setgid('nogroup'); process.setuid('nobody') })
";
