//! Sends datagrams at a rate, measures the delays of their echoes, and compares each with the
//! datagram sent. It polls, with all of a CPU, so that no wake-up of its own is measured.
//!
//!     peer-rtt ADDR:PORT RATE COUNT BYTES|varied

use hdrhistogram::Histogram;
use std::error::Error;
use std::io::ErrorKind;
use std::net::UdpSocket;
use std::time::{Duration, Instant};

/// How long echoes are waited for after the last datagram.
const LAST: Duration = Duration::from_millis(300);
const BYTES_MAX: usize = 1472;

struct Client {
    socket: UdpSocket,
    /// Bytes of a payload; none is another length for each.
    bytes: Option<usize>,
    /// When each datagram was sent; none once its echo came.
    sent: Vec<Option<Instant>>,
    delays: Histogram<u64>,
    wrong: u64,
}

impl Client {
    /// The payload of a datagram: its number, and bytes that follow from it.
    fn payload<'a>(&self, number: usize, room: &'a mut [u8; BYTES_MAX]) -> &'a [u8] {
        let bytes = self.bytes.unwrap_or(8 + number % (BYTES_MAX - 8));
        let (start, rest) = room.split_at_mut(8);
        start.copy_from_slice(&(number as u64).to_be_bytes());
        rest.fill(number as u8);
        &room[..bytes]
    }

    fn send(&mut self) -> Result<(), Box<dyn Error>> {
        let mut room = [0; BYTES_MAX];
        let payload = self.payload(self.sent.len(), &mut room);
        self.sent.push(Some(Instant::now()));
        self.socket.send(payload)?;
        Ok(())
    }

    /// Takes one echo, if one is there.
    fn receive(&mut self) -> Result<(), Box<dyn Error>> {
        let mut came = [0; BYTES_MAX + 1];
        let bytes = match self.socket.recv(&mut came) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
            came => came?,
        };
        let now = Instant::now();
        let number = came
            .first_chunk()
            .map_or(0, |start| u64::from_be_bytes(*start)) as usize;
        let sent = self.sent.get_mut(number).and_then(Option::take);
        let mut room = [0; BYTES_MAX];
        match sent {
            Some(sent) if self.payload(number, &mut room) == &came[..bytes] => {
                self.delays.record((now - sent).as_nanos() as u64)?;
            }
            // A second echo, one of no datagram, or another payload.
            _ => self.wrong += 1,
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [address, rate, count, bytes] = &words[..] else {
        return Err("ADDR:PORT RATE COUNT BYTES|varied".into());
    };
    let (rate, count): (f64, usize) = (rate.parse()?, count.parse()?);
    let bytes = match bytes.as_str() {
        "varied" => None,
        bytes => Some(bytes.parse::<usize>()?.clamp(8, BYTES_MAX)),
    };
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.connect(address)?;
    socket.set_nonblocking(true)?;
    let mut client = Client {
        socket,
        bytes,
        sent: Vec::with_capacity(count),
        delays: Histogram::new(3)?,
        wrong: 0,
    };
    let start = Instant::now();
    let due = |number: usize| start + Duration::from_secs_f64(number as f64 / rate);
    while client.sent.len() < count {
        if Instant::now() >= due(client.sent.len()) {
            client.send()?;
        }
        client.receive()?;
    }
    let end = Instant::now() + LAST;
    while client.delays.len() < count as u64 && Instant::now() < end {
        client.receive()?;
    }
    let Client { delays, wrong, .. } = client;
    let us = |quantile| delays.value_at_quantile(quantile) as f64 / 1000.0;
    println!(
        "{{\"sent\":{count},\"echoed\":{},\"wrong\":{wrong},\"p50_us\":{:.2},\"p99_us\":{:.2},\
         \"max_us\":{:.2}}}",
        delays.len(),
        us(0.5),
        us(0.99),
        delays.max() as f64 / 1000.0
    );
    Ok(())
}
