//! A server that runs on the receiving host, and is known to answer.

use super::{MeasuredServer, Setup, body_path};
use anyhow::{Context, Result, bail, ensure};
use mpps_http::{LastHead, ReplyEnd, Response};
use mpps_lab::LabHost;
use mpps_os::process::ContainedChild;
use mpps_os::sched;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

/// The longest wait for a server to answer: Apache starts in a fraction of a second.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often it is tried.
const LOOK: Duration = Duration::from_millis(5);
/// The longest wait for one answer.
const ANSWER: Duration = Duration::from_secs(2);

/// A server that answers. It ends when this is dropped, and with this program.
#[derive(Debug)]
pub(in crate::experiment::connections) struct RunningServer {
    child: ContainedChild,
    name: &'static str,
}

impl RunningServer {
    /// Starts a server on CPUs of a host, and waits until it has served the body whole.
    pub(in crate::experiment::connections) fn start(
        server: &MeasuredServer,
        setup: &Setup<'_>,
        host: &LabHost,
    ) -> Result<Self> {
        let name = server.name;
        await_port(setup.address, host)?;
        let mut command = (server.command)(setup);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let cpus = setup.cpus;
        // The child inherits the CPUs of the thread that starts it. This thread only starts the
        // child.
        let spawned = thread::scope(|scope| {
            let start = || {
                sched::pin_current(cpus)?;
                Ok::<_, anyhow::Error>(host.spawn(command)?)
            };
            let starter = thread::Builder::new().spawn_scoped(scope, start)?;
            starter
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        });
        let child = spawned.with_context(|| format!("cannot start {name}"))?;
        let mut running = Self { child, name };
        running.await_answer(setup, host)?;
        Ok(running)
    }

    /// The first process of its process namespace, which all of the server is in.
    pub(in crate::experiment::connections) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Fails if the server has ended, with what it said.
    pub(in crate::experiment::connections) fn check(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else {
            return Ok(());
        };
        let mut said = String::new();
        if let Some(mut stderr) = self.child.stderr() {
            // Output that is not text is left out.
            let _ = stderr.read_to_string(&mut said);
        }
        let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
        bail!("{} ended ({status}): {said}", self.name)
    }

    fn await_answer(&mut self, setup: &Setup<'_>, host: &LabHost) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let answer = host.run(|| ask(setup.address, setup.body_bytes))?;
            let Err(error) = answer else { return Ok(()) };
            self.check()?;
            if Instant::now() > deadline {
                return Err(error).with_context(|| format!("{} does not answer", self.name));
            }
            thread::sleep(LOOK);
        }
    }
}

/// Waits until no process listens at an address any more. The kernel ends a ring after its process
/// (`io_ring_exit_work` in io_uring/io_uring.c). Until then a ring that was accepting keeps its
/// listener.
fn await_port(address: SocketAddr, host: &LabHost) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match host.run(|| TcpListener::bind(address))? {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() > deadline => {
                return Err(error).with_context(|| format!("{address} does not get free"));
            }
            Err(_) => thread::sleep(LOOK),
        }
    }
}

/// Asks for a body, and answers whether it came whole.
fn ask(address: SocketAddr, bytes: usize) -> Result<()> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    let path = body_path(bytes);
    let host = address.ip();
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    )?;
    let mut reply = Vec::new();
    if let Err(error) = stream.read_to_end(&mut reply) {
        // A read that has a time-out ends with EAGAIN, which says nothing of it (socket(7)).
        ensure!(
            error.kind() != io::ErrorKind::WouldBlock,
            "time-out: {} bytes came, and neither more nor the end of the connection for {} s",
            reply.len(),
            ANSWER.as_secs()
        );
        return Err(error.into());
    }
    let mut response = Response::default();
    response.receive(&reply, &mut LastHead::default())?;
    let (status, body) = (response.status(), response.body_bytes());
    ensure!(
        status == 200 && body == bytes as u64 && response.end() == ReplyEnd::Whole,
        "status {status} with {body} bytes, not {bytes}"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_does_not_close_is_told_by_what_came() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nbody").unwrap();
            stream
        });
        let error = ask(address, 4).unwrap_err();
        drop(server.join());
        assert!(
            error.to_string().starts_with("time-out: 23 bytes came, "),
            "{error}"
        );
    }
}
