//! Whether the packets of a port are left out of connection tracking, by a table of nftables of its own.

use std::io;
use std::process::Command;

use mpps_os::process::end_with_us;
use mpps_os::{CallError, CallResult, On};

use super::super::place::PlaceKind;
use super::super::value::{Form, Value};
use super::row::{ROOT, Risk, SettingRow};

/// The program that talks to nftables (nft(8)).
const PROGRAM: &str = "nft";

/// The value of a table that another program made or changed.
pub(crate) const ALTERED: &str = "altered";

pub(super) fn row(protocol: &str, port: u16) -> SettingRow<'_> {
    let packets = PortPackets { protocol, port };
    let form = Form::Word(|word| ["on", "off", ALTERED].contains(&word));
    let row = SettingRow::new(
        format!("notrack of {protocol} port {port}"),
        matches!(protocol, "udp" | "tcp").then_some(form),
        move |_, _| Ok(packets.read()?.map(|word| Value::Word(word.to_owned()))),
        move |_, _, value| nft(&packets.statement(value.word() == "on")).map(drop),
    );
    SettingRow {
        command: format!("{PROGRAM} 'VALUE'").into(),
        argument: Box::new(move |_, value| packets.statement(value.word() == "on")),
        needs: ROOT,
        risks: &[Risk::WholeNamespace],
        place: PlaceKind::Machine,
        absent: Some("nft(8) is not here"),
        ..row
    }
}

/// The packets of a port.
#[derive(Debug, Clone, Copy)]
struct PortPackets<'a> {
    /// `udp` or `tcp`.
    protocol: &'a str,
    port: u16,
}

impl PortPackets<'_> {
    fn table(self) -> String {
        format!("inet mpps_untracked_{}_{}", self.protocol, self.port)
    }

    /// The statement for nft. It makes all of a table or nothing.
    fn statement(self, is_untracked: bool) -> String {
        let Self { protocol, port } = self;
        let table = self.table();
        let chain = |hook: &str, end: &str| {
            format!(
                "chain {hook} {{ type filter hook {hook} priority raw; policy accept; \
                 {protocol} {end} {port} notrack; }};"
            )
        };
        match is_untracked {
            true => format!(
                "table {table} {{ {} {} }}",
                chain("prerouting", "dport"),
                chain("output", "sport")
            ),
            false => format!("delete table {table}"),
        }
    }

    /// `on` if there is such a table, [`ALTERED`] if it is not exactly as mpps makes it; none without nft.
    fn read(self) -> CallResult<Option<&'static str>> {
        // nft lists a table in the words of the statement, but on lines.
        let words = |text: &str| {
            let text = text.replace(';', " ");
            text.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        match nft(&format!("list table {}", self.table())) {
            Ok(told) if words(&told) == words(&self.statement(true)) => Ok(Some("on")),
            Ok(_) => Ok(Some(ALTERED)),
            Err(error) if error.source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) if error.said.contains("No such file or directory") => Ok(Some("off")),
            Err(error) => Err(error),
        }
    }
}

/// Runs a statement in the network namespace of the calling thread, and returns the output.
fn nft(statement: &str) -> CallResult<String> {
    let mut command = Command::new(PROGRAM);
    // Only the system's own directories (FHS 3.0). `su` keeps the path of the user who called it,
    // and an empty path is the current directory.
    command.env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin");
    command.env("LC_ALL", "C").arg(statement);
    // nft must not act after undo has looked.
    let ended = end_with_us(&mut command).output().on(PROGRAM, statement)?;
    if ended.status.success() {
        return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
    }
    let mut error = CallError::new(PROGRAM, statement, io::ErrorKind::Other.into());
    let said = String::from_utf8_lossy(&ended.stderr);
    said.lines()
        .next()
        .unwrap_or_default()
        .clone_into(&mut error.said);
    Err(error)
}
