//! Why a program or an interface cannot be accelerated.

use anyhow::{Context, Result, bail, ensure};
use mpps_os::netlink::link::NetlinkLink;
use mpps_os::netlink::{netfilter_rule, route};
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::FileExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// The name of the attribute with a file's capabilities.
const CAPABILITIES: &str = "security.capability";
const ELF: &[u8] = b"\x7fELF\x02\x01";
const PT_INTERP: u32 = 3;
/// Scripts that run scripts, as the kernel limits them (`exec_binprm` in fs/exec.c).
const INTERPRETERS_MAX: u32 = 5;
/// The first line of a script, with room for a long one (`BINPRM_BUF_SIZE` is 256).
const LINE_BYTES_MAX: u64 = 4096;
/// `PATH_MAX` of limits.h.
const PATH_BYTES_MAX: usize = 4096;
/// The headroom in front of a packet (`XDP_PACKET_HEADROOM`), and the Ethernet header.
const IN_FRONT_BYTES: u32 = 256 + 14;

/// Bytes of a frame that a packet of this interface fits in.
pub(super) fn frame_bytes(link: &NetlinkLink) -> Result<u32> {
    let frame_bytes = [2048, 4096]
        .into_iter()
        .find(|bytes| link.mtu + IN_FRONT_BYTES <= *bytes);
    let name = &link.name;
    frame_bytes.with_context(|| format!("the MTU of {name} is {}, above 3826: lower it", link.mtu))
}

/// Refuses an interface whose datagrams take another way than into this host's sockets.
pub(super) fn check_interface(link: &NetlinkLink, tx_queues: u32, rx_queues: u32) -> Result<()> {
    let name = &link.name;
    ensure!(
        link.address.len() == 6 && link.address != [0; 6] && ["", "veth"].contains(&&*link.kind),
        "{name} is no Ethernet card and no veth: name the card below it"
    );
    ensure!(
        link.controller.is_none(),
        "{name} is a port of a bridge or bond: name another interface"
    );
    ensure!(link.up, "{name} is down: ip link set {name} up");
    ensure!(
        link.native_xdp.is_none(),
        "an XDP program is attached to {name}: detach it (ip link set {name} xdp off)"
    );
    ensure!(
        rx_queues <= tx_queues && rx_queues <= 64,
        "{name} has {rx_queues} receive and {tx_queues} transmit queues: it needs at most 64, and a \
         transmit queue for each (ethtool -L)"
    );
    Ok(())
}

/// Why datagrams would go around rules of this host; none if there are no such rules.
pub(super) fn rules_in_the_way() -> Option<String> {
    match netfilter_rule::count() {
        Ok(0) => {}
        Ok(count) => {
            return Some(format!(
                "{count} nftables rules would see no datagram: nft list ruleset"
            ));
        }
        // A kernel without nftables.
        Err(error) if error.errno() == Some(22) => {}
        Err(error) => return Some(error.to_string()),
    }
    for file in ["ip_tables_names", "ip6_tables_names"] {
        let tables =
            fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap_or_default();
        if !tables.trim().is_empty() {
            return Some(
                "tables of iptables-legacy would see no datagram: iptables-legacy-save".to_owned(),
            );
        }
    }
    match route::has_policies() {
        Ok(false) => None,
        Ok(true) => Some("policy routing would be passed by: ip rule".to_owned()),
        Err(error) => Some(error.to_string()),
    }
}

/// Refuses a program that loads no library, and answers where it is.
pub(super) fn check_program(name: &str) -> Result<PathBuf> {
    check_at(name, INTERPRETERS_MAX)
}

fn check_at(name: &str, interpreters: u32) -> Result<PathBuf> {
    let path = found(name).with_context(|| format!("{name}: no such program"))?;
    let metadata = fs::metadata(&path).with_context(|| name.to_owned())?;
    ensure!(metadata.is_file(), "{name} is no file");
    let mode = metadata.permissions().mode();
    ensure!(
        mode & 0o6000 == 0,
        "{name} is setuid or setgid: no library can be loaded into it"
    );
    ensure!(
        !mpps_os::file::has_attribute(&path, CAPABILITIES),
        "{name} has file capabilities: no library can be loaded into it; `setcap -r` and start it as root"
    );
    let file = File::open(&path).with_context(|| name.to_owned())?;
    let mut line = Vec::new();
    let mut beginning = BufReader::new(&file).take(LINE_BYTES_MAX);
    beginning
        .read_until(b'\n', &mut line)
        .with_context(|| name.to_owned())?;
    if let Some(script) = line.strip_prefix(b"#!") {
        let line = String::from_utf8_lossy(script).into_owned();
        let mut words = line.split_ascii_whitespace();
        let interpreter = words.next().unwrap_or_default();
        let is_env = interpreter.ends_with("/env");
        // Options and variables come before env's program.
        let mut words = words.filter(|word| !word.starts_with('-') && !word.contains('='));
        let next = words.next().filter(|_| is_env).unwrap_or(interpreter);
        ensure!(interpreters > 0, "{name}: its interpreters do not end");
        check_at(next, interpreters - 1)?;
        return Ok(path);
    }
    match interpreter(&file) {
        None => bail!("{name} is a static program: no library can be loaded into it"),
        Some(loader) if loader.contains("musl") => {
            bail!("{name} is for musl: the library is for the GNU C library")
        }
        Some(_) => Ok(path),
    }
}

fn found(name: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(name.into());
    }
    let path = std::env::var_os("PATH")?;
    let all = std::env::split_paths(&path).map(|directory| directory.join(name));
    all.into_iter().find(|path| Path::is_file(path))
}

/// The loader that an ELF file of 64 bits asks for (elf(5)).
fn interpreter(file: &File) -> Option<String> {
    let bytes = |at: u64, size: usize| {
        let mut field = vec![0; size];
        file.read_exact_at(&mut field, at).ok().map(|()| field)
    };
    let number = |at: u64, size: usize| {
        let field = bytes(at, size)?;
        let digits = field.iter().rev();
        Some(digits.fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    if bytes(0, ELF.len())? != ELF {
        return None;
    }
    let (first, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    (0..count).find_map(|at| {
        let header = first.checked_add(at * size)?;
        let is_interpreter = number(header, 4)? == u64::from(PT_INTERP);
        let from = header.checked_add(8).filter(|_| is_interpreter)?;
        let length = usize::try_from(number(from.checked_add(24)?, 8)?).ok()?;
        let text = bytes(number(from, 8)?, length.min(PATH_BYTES_MAX))?;
        Some(String::from_utf8_lossy(&text).into_owned())
    })
}
