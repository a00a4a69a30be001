//! A server whose descriptors run out, in a process of its own that may have few.

use super::client::Client;
use super::scenario::{Running, Scenario, check, scenario, usual};
use mpps_http::{Ending, Engine, Server, Switch, Switches};
use mpps_os::limit::forbid_descriptors;
use mpps_trial::Failed;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Command, ExitCode, Stdio};

pub(crate) const SCENARIOS: &[Scenario] = &[scenario("without_descriptors_connections_are_shed")
    .switches(&[Switch::Fds, Switch::Events])
    .act(exhaust)];

/// Names the engine and the switches to the child.
const CHILD: &str = "MPPS_TEST_SERVE_FEW_DESCRIPTORS";

/// Descriptors of the child. Some dozen are its own.
const DESCRIPTORS: u64 = 64;

/// Clients of good will that are shed before the others leave.
const SHED: usize = 8;

/// Serves, if this process is the child, until standard input ends.
pub(crate) fn child() -> Option<ExitCode> {
    let what = std::env::var(CHILD).ok()?;
    match serve_with_few(&what) {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(failed) => {
            let _ = writeln!(io::stderr(), "{}", failed.message().unwrap_or_default());
            Some(ExitCode::FAILURE)
        }
    }
}

fn serve_with_few(what: &str) -> Result<(), Failed> {
    forbid_descriptors(DESCRIPTORS)?;
    let (engine, switches) = what.split_once('/').ok_or("no engine and switches")?;
    let switches: Vec<Switch> = Switch::ALL
        .into_iter()
        .filter(|switch| switches.split('+').any(|name| name == switch.to_string()))
        .collect();
    let config = usual(Engine::find(engine)?, Switches::of(&switches));
    let server = Server::start(&config)?;
    writeln!(io::stdout(), "{}", server.address())?;
    io::stdin().read_to_end(&mut Vec::new())?;
    server.drain();
    let counters = server.wait()?;
    let shed = counters.ended(Ending::NoDescriptor);
    writeln!(
        io::stdout(),
        "{} {} {} {shed} {}",
        counters.accepted,
        counters.closed(),
        counters.open,
        counters.accept_errors
    )?;
    Ok(())
}

fn exhaust(running: &Running) -> Result<(), Failed> {
    let config = &running.config;
    let mut child = Command::new("/proc/self/exe")
        .env(CHILD, format!("{}/{}", config.engine.name, config.switches))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut output = BufReader::new(child.stdout.take().ok_or("no output")?);
    let outcome = meet(&mut output);
    drop(child.stdin.take());
    let mut line = String::new();
    output.read_line(&mut line)?;
    check(child.wait()?.success(), "the child failed")?;
    let made = outcome?;
    let counts: Vec<u64> = line
        .split_whitespace()
        .map(str::parse)
        .collect::<Result<_, _>>()?;
    let [accepted, closed, open, shed, errors] = counts[..] else {
        return Err(Failed::from(format!("not five counts: {line}")));
    };
    check(accepted == closed && open == 0, line.clone())?;
    // There are no more slots for direct descriptors than ordinary ones.
    check(shed > 0 && errors > 0, line.clone())?;
    // No client is counted twice, or not at all.
    check(accepted == made, format!("{made} connections: {line}"))?;
    // Trying again and again would have made thousands of errors.
    check(errors < 2_000, line)
}

/// Meets the child with more clients than it has descriptors for. Returns how many.
fn meet(output: &mut impl BufRead) -> Result<u64, Failed> {
    let mut line = String::new();
    output.read_line(&mut line)?;
    let address: SocketAddr = line.trim().parse()?;
    let mut clients = Vec::new();
    let (mut served, mut shed) = (0, 0);
    while shed < SHED && served < DESCRIPTORS {
        let mut client = Client::connect(address)?;
        // Those that are shed see an end or a reset, and not silence.
        match client.get("/").is_ok_and(|reply| reply.status == 200) {
            true => served += 1,
            false => shed += 1,
        }
        clients.push(client);
    }
    check(served > 20, format!("{served} served"))?;
    let made = clients.len() as u64;
    let first = clients.first_mut().ok_or("no clients")?;
    check(first.get("/")?.status == 200, "the first is not served")?;
    clients.clear();
    // There is room again, at once or after the pause.
    for more in 1..=100 {
        let mut client = Client::connect(address)?;
        if client.get("/").is_ok_and(|reply| reply.status == 200) {
            return Ok(made + more);
        }
    }
    Err(Failed::from("nobody is served any more"))
}
