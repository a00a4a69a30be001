//! One scenario: a server, what is done to it, and what it must have counted then.

use super::client::Client;
use mpps_http::{
    Close, Ending, Engine, Limits, ServeConfig, ServeCounters, ServedContent, Server, Switch,
    Switches,
};
use mpps_trial::Failed;
use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// How long anything may take that is to happen at once, on a machine with other work.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The size of the body, unless a scenario wants another.
pub(crate) const BODY_BYTES: usize = 1024;

/// A test of a server.
pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    /// The switches that change how an engine does it. It is run with none, with all, and once with
    /// each choice of these that the sets between have.
    pub(crate) switches: &'static [Switch],
    body_bytes: usize,
    close: Close,
    /// The other differences from the usual server.
    configure: fn(&mut ServeConfig),
    /// The actions of clients while the server runs.
    act: fn(&Running) -> Result<(), Failed>,
    /// How connections have ended, and how many.
    ending: Option<(Ending, u64)>,
    /// The counts when the server has ended, beside the balance.
    expect: fn(&ServeCounters) -> Result<(), Failed>,
}

/// A server that runs.
pub(crate) struct Running {
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
    pub(crate) config: ServeConfig,
}

/// A scenario with the usual server, no switch that matters, and any counts.
pub(crate) const fn scenario(name: &'static str) -> Scenario {
    Scenario {
        name,
        switches: &[],
        body_bytes: BODY_BYTES,
        close: Close::Server,
        configure: |_| {},
        act: |_| Ok(()),
        ending: None,
        expect: |_| Ok(()),
    }
}

impl Scenario {
    pub(crate) const fn switches(self, switches: &'static [Switch]) -> Self {
        Self { switches, ..self }
    }

    pub(crate) const fn configure(self, configure: fn(&mut ServeConfig)) -> Self {
        Self { configure, ..self }
    }

    /// The size of the body.
    pub(crate) const fn content(self, bytes: usize) -> Self {
        let body_bytes = bytes;
        Self { body_bytes, ..self }
    }

    pub(crate) const fn closes(self, close: Close) -> Self {
        Self { close, ..self }
    }

    pub(crate) const fn act(self, act: fn(&Running) -> Result<(), Failed>) -> Self {
        Self { act, ..self }
    }

    /// This many connections have ended in this way.
    pub(crate) const fn ends(self, ending: Ending, count: u64) -> Self {
        let ending = Some((ending, count));
        Self { ending, ..self }
    }

    pub(crate) const fn expect(self, expect: fn(&ServeCounters) -> Result<(), Failed>) -> Self {
        Self { expect, ..self }
    }

    /// Runs it, drains the server, and looks at what is left.
    pub(crate) fn run(&self, engine: &'static Engine, switches: Switches) -> Result<(), Failed> {
        let before = descriptors()?;
        let mut config = usual(engine, switches);
        config.content = ServedContent::Size(self.body_bytes);
        config.close = self.close;
        (self.configure)(&mut config);
        let server = Server::start(&config)?;
        let running = Running {
            address: server.address(),
            server,
            config,
        };
        (self.act)(&running)?;
        let Running { server, .. } = running;
        check_balance(&server.counters())?;
        server.drain();
        let counters = server.wait()?;
        check_balance(&counters)?;
        check(counters.open == 0, format!("open at the end: {counters:?}"))?;
        let ended = match self.ending {
            Some((ending, count)) => ended(&counters, ending, count),
            None => Ok(()),
        };
        ended
            .and_then(|()| (self.expect)(&counters))
            .map_err(|failed| {
                let why = failed.message().unwrap_or_default().to_owned();
                Failed::from(format!("{why}: {counters:?}"))
            })?;
        let after = descriptors()?;
        check(
            after == before,
            format!("descriptors: {before} before, {after} after"),
        )
    }
}

impl Running {
    /// A new connection.
    pub(crate) fn connect(&self) -> Result<Client, Failed> {
        Ok(Client::connect(self.address)?)
    }

    /// A new connection that sends these bytes.
    pub(crate) fn asks(&self, bytes: &[u8]) -> Result<Client, Failed> {
        let mut client = self.connect()?;
        client.send(bytes)?;
        Ok(client)
    }

    /// The same many times.
    pub(crate) fn many(&self, count: u64, bytes: &[u8]) -> Result<Vec<Client>, Failed> {
        (0..count).map(|_| self.asks(bytes)).collect()
    }

    /// The server answers another, correct client.
    pub(crate) fn serves_others(&self) -> Result<(), Failed> {
        let mut client = self.asks(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
        let reply = client.reply()?;
        check(reply.status == 200, format!("status {}", reply.status))
    }

    /// Waits until something has been counted.
    pub(crate) fn until(
        &self,
        what: &str,
        is_so: impl Fn(&ServeCounters) -> bool,
    ) -> Result<(), Failed> {
        let end = Instant::now() + PATIENCE;
        loop {
            let counters = self.server.counters();
            check_balance(&counters)?;
            if is_so(&counters) {
                return Ok(());
            }
            check(Instant::now() < end, format!("never {what}: {counters:?}"))?;
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits until `count` connections ended in one way.
    pub(crate) fn until_ended(&self, ending: Ending, count: u64) -> Result<(), Failed> {
        self.until(&format!("{count} of {ending:?}"), |counters| {
            counters.ended(ending) >= count
        })
    }
}

/// A server of a body, with limits that no test meets by accident.
pub(crate) fn usual(engine: &'static Engine, switches: Switches) -> ServeConfig {
    ServeConfig {
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        engine,
        switches,
        content: ServedContent::Size(BODY_BYTES),
        close: Close::Server,
        limits: Limits {
            head_time: PATIENCE,
            idle_time: PATIENCE,
            send_time: PATIENCE,
            ..Limits::default()
        },
        workers: 1,
        cpus: Vec::new(),
        drain_time: PATIENCE,
    }
}

/// Every accepted connection is open, or has ended.
fn check_balance(counters: &ServeCounters) -> Result<(), Failed> {
    let balances = counters.accepted == counters.closed() + counters.open;
    check(balances, format!("does not balance: {counters:?}"))
}

/// Descriptors of this process.
fn descriptors() -> Result<usize, Failed> {
    Ok(fs::read_dir("/proc/self/fd")?.count())
}

pub(crate) fn check(is_so: bool, otherwise: impl Into<String>) -> Result<(), Failed> {
    if is_so {
        Ok(())
    } else {
        Err(Failed::from(otherwise.into()))
    }
}

/// Checks that `count` connections ended in one way.
pub(crate) fn ended(counters: &ServeCounters, ending: Ending, count: u64) -> Result<(), Failed> {
    check(
        counters.ended(ending) == count,
        format!("{} of {ending:?}, not {count}", counters.ended(ending)),
    )
}
