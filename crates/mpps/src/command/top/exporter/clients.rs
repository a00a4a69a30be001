//! Many clients on one thread: an honest one has its answer at once, however many slow ones hang on.

use mpps_os::epoll::{Epoll, Events, Interest};
use mpps_os::limit;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

/// The longest request that is read, in bytes.
const REQUEST_MAX: usize = 8192;
/// How long one client may take, from its connection to the last byte of its answer.
const EXCHANGE: Duration = Duration::from_secs(5);
/// So many are connected at a time. One more costs the address that has most of them its oldest; of
/// equals, one whose request is not whole goes first.
const CLIENTS_MAX: usize = 64;
/// Descriptors that clients leave to the looks at the host, of those that the process may have
/// (`RLIMIT_NOFILE`).
const RESERVE: u64 = 32;
/// How often it is looked whose time is over.
const LOOK: Duration = Duration::from_millis(500);
/// How long none is accepted if the kernel has no descriptor for it, and no client can go.
const PAUSE: Duration = Duration::from_millis(10);
/// Stands for the listening socket, as the numbers of clients do for theirs.
const LISTENER: u64 = 0;

/// The clients of a listening socket, and what each has got so far.
pub(super) struct Clients<A> {
    listener: TcpListener,
    epoll: Epoll,
    clients: HashMap<u64, ExporterClient>,
    /// So many may be connected.
    most: usize,
    /// The last client's number: a later one has a higher number.
    last: u64,
    /// The answer to a request.
    answer: A,
}

struct ExporterClient {
    stream: TcpStream,
    address: IpAddr,
    until: Instant,
    request: Vec<u8>,
    /// The answer, once the request is whole.
    answer: Option<Vec<u8>>,
    sent: usize,
}

/// The next step for a client.
#[derive(Debug, PartialEq, Eq)]
enum ClientNext {
    Read,
    Write,
    End,
}

impl<A: Fn(&[u8]) -> Vec<u8>> Clients<A> {
    /// # Errors
    /// If the kernel has no descriptor left.
    pub(super) fn new(listener: TcpListener, answer: A) -> io::Result<Self> {
        let epoll = Epoll::new().map_err(|error| error.source)?;
        let allowed = limit::allow_descriptors(RESERVE + CLIENTS_MAX as u64);
        let left = allowed
            .map_err(|error| error.source)?
            .saturating_sub(RESERVE);
        listener.set_nonblocking(true)?;
        epoll.add(&listener, LISTENER, Interest::READ)?;
        Ok(Self {
            listener,
            epoll,
            clients: HashMap::new(),
            most: usize::try_from(left).map_or(CLIENTS_MAX, |left| left.clamp(1, CLIENTS_MAX)),
            last: LISTENER,
            answer,
        })
    }

    /// Answers for as long as the program lives.
    pub(super) fn serve(mut self) {
        let mut events = Events::new(CLIENTS_MAX + 1);
        loop {
            // An interrupted wait has no events.
            let _ = self.epoll.wait(&mut events, Some(LOOK));
            let ready: Vec<u64> = (0..events.len())
                .filter_map(|at| Some(events.at(at)?.key))
                .collect();
            for number in ready {
                match number {
                    LISTENER => self.accept(),
                    client => self.go_on(client),
                }
            }
            self.expire(Instant::now());
        }
    }

    /// Closes those whose time is over.
    fn expire(&mut self, now: Instant) {
        self.clients.retain(|_, client| client.until > now);
    }

    /// Takes in those that wait, at most as many as there may be: those behind them come next.
    fn accept(&mut self) {
        let mut has_made_room = false;
        for _ in 0..CLIENTS_MAX {
            match self.listener.accept() {
                Ok((stream, from)) => {
                    has_made_room = false;
                    self.admit(stream, from.ip());
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                // It has gone before it was accepted.
                Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
                // No descriptor is left. Closing a second client for the same one does not help.
                Err(_) if !has_made_room && self.make_room() => has_made_room = true,
                Err(_) => return thread::sleep(PAUSE),
            }
        }
    }

    fn admit(&mut self, stream: TcpStream, from: IpAddr) {
        if stream.set_nonblocking(true).is_err() {
            return;
        }
        let mut client = ExporterClient {
            stream,
            address: block(from),
            until: Instant::now() + EXCHANGE,
            request: Vec::new(),
            answer: None,
            sent: 0,
        };
        // The request is often here already. Then no other client has to make room.
        let watched = match client.go_on(&self.answer) {
            Ok(ClientNext::Read) => Interest::READ,
            Ok(ClientNext::Write) => Interest::WRITE,
            Ok(ClientNext::End) | Err(_) => return,
        };
        if self.clients.len() >= self.most && !self.make_room() {
            return;
        }
        self.last += 1;
        if self.epoll.add(&client.stream, self.last, watched).is_ok() {
            self.clients.insert(self.last, client);
        }
    }

    /// Closes one of the address that has most, the oldest whose request is not whole before others. Where each has one,
    /// a scraper has its answer before many others came. False if there is none.
    fn make_room(&mut self) -> bool {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for client in self.clients.values() {
            *counts.entry(client.address).or_default() += 1;
        }
        let rank = |(number, client): &(&u64, &ExporterClient)| {
            let count = counts.get(&client.address).copied();
            (count, client.answer.is_none(), Reverse(**number))
        };
        let first = self.clients.iter().max_by_key(rank);
        let number = first.map(|(&number, _)| number);
        number.is_some_and(|number| self.clients.remove(&number).is_some())
    }

    /// Reads and writes what can be.
    fn go_on(&mut self, number: u64) {
        let Some(client) = self.clients.get_mut(&number) else {
            return;
        };
        let next = client.go_on(&self.answer).unwrap_or(ClientNext::End);
        let watched = match next {
            ClientNext::Read => Ok(()),
            ClientNext::Write => self.epoll.modify(&client.stream, number, Interest::WRITE),
            ClientNext::End => Err(ErrorKind::UnexpectedEof.into()),
        };
        if watched.is_err() {
            self.clients.remove(&number);
        }
    }
}

impl ExporterClient {
    fn go_on(&mut self, answer: impl Fn(&[u8]) -> Vec<u8>) -> io::Result<ClientNext> {
        if self.answer.is_none() {
            match self.read() {
                Ok(()) => self.answer = Some(answer(&self.request)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(ClientNext::Read),
                Err(error) => return Err(error),
            }
        }
        let all = self.answer.as_deref().unwrap_or_default();
        while self.sent < all.len() {
            match self.stream.write(&all[self.sent..]) {
                Ok(written) => self.sent += written,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return Ok(ClientNext::Write);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(ClientNext::End)
    }

    /// Reads until the request is whole, too long, or all that comes.
    fn read(&mut self) -> io::Result<()> {
        let mut part = [0; 1024];
        while self.request.len() < REQUEST_MAX {
            let read = match self.stream.read(&mut part) {
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                read => read?,
            };
            // The end of the head may have begun in the part before.
            let looked_at = self.request.len().saturating_sub(3);
            self.request.extend_from_slice(&part[..read]);
            let mut ends = self.request[looked_at..].windows(4);
            if read == 0 || ends.any(|end| end == b"\r\n\r\n") {
                break;
            }
        }
        Ok(())
    }
}

/// Returns the block of addresses that counts as one: all of this host's own, 48 bits of IPv6 (one
/// site), or 24 bits of IPv4.
fn block(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        own if own.is_loopback() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) >> 80 << 80).into()),
        IpAddr::V4(address) => IpAddr::V4((u32::from(address) >> 8 << 8).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clients() -> Clients<impl Fn(&[u8]) -> Vec<u8>> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        Clients::new(listener, |request| request.to_vec()).expect("a descriptor")
    }

    /// A connection that says it comes from there. The other end is kept, so that it stays open.
    fn come(clients: &mut Clients<impl Fn(&[u8]) -> Vec<u8>>, from: &str) -> (u64, TcpStream) {
        say(clients, from, b"")
    }

    /// Connects a client that sends bytes before it is accepted.
    fn say(
        clients: &mut Clients<impl Fn(&[u8]) -> Vec<u8>>,
        from: &str,
        said: &[u8],
    ) -> (u64, TcpStream) {
        let address = clients.listener.local_addr().expect("it is bound");
        let mut far = TcpStream::connect(address).expect("it listens");
        far.write_all(said).expect("it reads");
        let near = loop {
            match clients.listener.accept() {
                Ok((near, _)) => break near,
                Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        };
        if !said.is_empty() {
            near.peek(&mut [0; 1]).expect("it has come");
        }
        clients.admit(near, from.parse().expect("an address"));
        (clients.last, far)
    }

    #[test]
    fn an_address_that_has_most_makes_room_for_others() {
        // A host has as many addresses of its own as it likes, and a site of IPv6.
        let own: fn(usize) -> String = |host| format!("127.0.{host}.1");
        let mapped: fn(usize) -> String = |host| format!("::ffff:127.1.0.{host}");
        let net: fn(usize) -> String = |host| format!("192.0.2.{host}");
        let site: fn(usize) -> String = |host| format!("2001:db8:7:{host:x}::{host:x}");
        for address in [own, mapped, net, site] {
            let mut clients = clients();
            let (honest, _kept) = come(&mut clients, "10.0.0.1");
            let mut far = Vec::new();
            let mut hogs = Vec::new();
            for host in 0..2 * CLIENTS_MAX {
                let (hog, stream) = come(&mut clients, &address(host));
                hogs.push(hog);
                far.push(stream);
            }
            assert_eq!(clients.clients.len(), CLIENTS_MAX);
            assert!(clients.clients.contains_key(&honest));
            // Its newest are there, the others have gone.
            let (gone, stay) = hogs.split_at(CLIENTS_MAX + 1);
            assert!(gone.iter().all(|hog| !clients.clients.contains_key(hog)));
            assert!(stay.iter().all(|hog| clients.clients.contains_key(hog)));
        }
    }

    #[test]
    fn slow_clients_of_many_addresses_keep_no_answer_from_others() {
        const WHOLE: &[u8] = b"GET /metrics HTTP/1.1\r\n\r\n";
        let mut clients = clients();
        let mut kept = Vec::new();
        let mut flood = |clients: &mut _, count: usize| {
            for _ in 0..count {
                let at = kept.len();
                let from = format!("10.{}.{}.1", at / 256, at % 256);
                kept.push(say(clients, &from, b"GET /met"));
            }
        };
        flood(&mut clients, 2 * CLIENTS_MAX);
        for _ in 0..20 {
            flood(&mut clients, CLIENTS_MAX / 2);
            // One whose request is there, and one whose request takes a moment.
            let (_, at_once) = say(&mut clients, "192.0.2.1", WHOLE);
            let (number, mut soon) = come(&mut clients, "192.0.2.1");
            flood(&mut clients, CLIENTS_MAX / 2);
            soon.write_all(WHOLE).expect("it is read");
            while clients.clients.contains_key(&number) {
                clients.go_on(number);
            }
            for mut far in [at_once, soon] {
                let mut answer = Vec::new();
                far.read_to_end(&mut answer).expect("an answer");
                assert_eq!(answer, WHOLE);
            }
            assert!(clients.clients.len() <= CLIENTS_MAX);
        }
    }

    #[test]
    fn among_many_addresses_the_oldest_go() {
        let mut clients = clients();
        let come = |clients: &mut _, host| come(clients, &format!("10.0.{host}.1"));
        let all: Vec<_> = (0..CLIENTS_MAX)
            .map(|host| come(&mut clients, host))
            .collect();
        // All have their answers on the way.
        for client in clients.clients.values_mut() {
            client.answer = Some(Vec::new());
        }
        // A client without a whole request is the first to go.
        let slow = all[7].0;
        clients.clients.get_mut(&slow).expect("it is there").answer = None;
        let (mut number, _far) = come(&mut clients, CLIENTS_MAX);
        assert!(!clients.clients.contains_key(&slow));
        assert!(clients.clients.contains_key(&all[0].0));
        // Then each that comes is taken in.
        for host in 1..4 {
            clients
                .clients
                .get_mut(&number)
                .expect("it is there")
                .answer = Some(Vec::new());
            number = come(&mut clients, CLIENTS_MAX + host).0;
            assert!(clients.clients.contains_key(&number));
            assert!(!clients.clients.contains_key(&all[host - 1].0));
            assert!(clients.clients.contains_key(&all[host].0));
            assert_eq!(clients.clients.len(), CLIENTS_MAX);
        }
    }

    #[test]
    fn one_that_dribbles_has_no_more_time_than_others() {
        let mut clients = clients();
        let (number, mut far) = come(&mut clients, "10.0.0.1");
        let came = Instant::now();
        far.write_all(b"GET").expect("it reads");
        clients.go_on(number);
        clients.expire(came);
        assert_eq!(clients.clients.len(), 1);
        clients.expire(came + EXCHANGE);
        assert_eq!(clients.clients.len(), 0);
    }

    #[test]
    fn a_request_in_pieces_is_answered_when_it_is_whole() {
        let mut clients = clients();
        let (number, mut far) = come(&mut clients, "10.0.0.1");
        let whole = "GET /metrics HTTP/1.1\r\n\r\n";
        let (last, first) = whole.as_bytes().split_last().expect("bytes");
        for byte in first {
            far.write_all(&[*byte]).expect("it reads");
            clients.go_on(number);
        }
        assert!(clients.clients.contains_key(&number), "it is waited for");
        far.write_all(&[*last]).expect("it reads");
        // It may take a moment over loopback.
        while clients.clients.contains_key(&number) {
            clients.go_on(number);
        }
        let mut answer = String::new();
        far.read_to_string(&mut answer).expect("an answer");
        assert_eq!(answer, whole);
    }

    #[test]
    fn a_request_without_end_is_cut_off() {
        let mut clients = clients();
        let (number, mut far) = come(&mut clients, "10.0.0.1");
        far.write_all(&[b'x'; REQUEST_MAX]).expect("it is read");
        while clients.clients.contains_key(&number) {
            clients.go_on(number);
        }
        let mut answer = Vec::new();
        far.read_to_end(&mut answer).expect("an answer");
        assert_eq!(answer.len(), REQUEST_MAX);
    }
}
