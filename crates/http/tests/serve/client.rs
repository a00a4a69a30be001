//! A client that each test drives, and that reads replies the plain way.

use super::scenario::PATIENCE;
use mpps_os::tcp::TcpStream as Raw;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

/// One connection.
pub(crate) struct Client {
    stream: TcpStream,
    /// The bytes behind the last reply.
    rest: Vec<u8>,
}

/// One reply.
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// The head, lower case.
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self {
            stream,
            rest: Vec::new(),
        })
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// A GET that leaves the connection open.
    pub(crate) fn get(&mut self, path: &str) -> io::Result<Reply> {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes())?;
        self.reply()
    }

    /// The next reply, whole.
    pub(crate) fn reply(&mut self) -> io::Result<Reply> {
        self.reply_to(true)
    }

    /// The next reply, to HEAD if it has no body.
    pub(crate) fn reply_to(&mut self, has_body: bool) -> io::Result<Reply> {
        let head_bytes = loop {
            if let Some(at) = self.rest.windows(4).position(|four| four == b"\r\n\r\n") {
                break at + 4;
            }
            self.more()?;
        };
        let head = String::from_utf8_lossy(&self.rest[..head_bytes]).to_ascii_lowercase();
        let status = head.get(9..12).and_then(|code| code.parse().ok());
        let status: u16 = status.ok_or(io::ErrorKind::InvalidData)?;
        let length = field(&head, "content-length").and_then(|length| length.parse().ok());
        let body_bytes = match has_body {
            false => 0,
            true => length.ok_or(io::ErrorKind::InvalidData)?,
        };
        while self.rest.len() < head_bytes + body_bytes {
            self.more()?;
        }
        let after = self.rest.split_off(head_bytes + body_bytes);
        let body = self.rest.split_off(head_bytes);
        self.rest = after;
        Ok(Reply { status, head, body })
    }

    /// Everything up to the server's end, what was read before included.
    pub(crate) fn read_to_end(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = std::mem::take(&mut self.rest);
        self.stream.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Whether the server has ended its side and sent nothing more.
    pub(crate) fn sees_end(&mut self) -> io::Result<bool> {
        Ok(self.rest.is_empty() && self.read(&mut [0; 1])? == 0)
    }

    /// Reads at least one byte of what comes.
    pub(crate) fn read_some(&mut self, most: usize) -> io::Result<usize> {
        let mut bytes = vec![0; most];
        self.read(&mut bytes)
    }

    /// Ends the own side.
    pub(crate) fn finish(&self) -> io::Result<()> {
        self.stream.shutdown(Shutdown::Write)
    }

    /// Closes with a RST.
    pub(crate) fn reset(self) {
        Raw::from(OwnedFd::from(self.stream)).reset();
    }

    /// Reads once. The kernel ends a ring that this thread has opened by way of a signal to it, some
    /// time after the ring was closed (io_ring_exit_work, io_uring/io_uring.c), and a read with a
    /// time-out does not go on by itself then.
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(bytes) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                other => return other,
            }
        }
    }

    fn more(&mut self) -> io::Result<()> {
        let mut bytes = [0; 64 << 10];
        match self.read(&mut bytes)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            count => {
                self.rest.extend_from_slice(&bytes[..count]);
                Ok(())
            }
        }
    }
}

impl Reply {
    /// The value of a field, lower case.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        field(&self.head, name)
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key == name).then(|| value.trim())
    })
}
