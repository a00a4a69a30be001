//! The account of connections, driven without sockets.

use super::*;
use crate::load::endless;
use proptest::prelude::*;

const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const LAST: &[u8] = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
const MISSING: &[u8] = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n";
const SECOND: u64 = 1_000_000_000;

fn flights(per_connection: Option<u64>, tickets: Option<u64>, rate: Option<f64>) -> Flights {
    let config = LoadConfig {
        requests_per_connection: per_connection,
        ..endless()
    };
    let pace = rate.map(|rate| StartPace::new(rate, 0, 1));
    let tickets = tickets.map(|count| Arc::new(AtomicU64::new(count)));
    let mut flights = Flights::new(&config, config.connections, pace, tickets);
    flights.begin(0);
    flights
}

/// Starts a connection and makes it.
fn connect(flights: &mut Flights, now: u64) -> u32 {
    let (slot, step) = flights.start(now).expect("there is room");
    assert_eq!(step, LoadStep::Connect);
    assert!(matches!(flights.connected(slot, now), LoadStep::Send(_)));
    slot
}

fn balances(flights: &Flights) {
    assert_eq!(flights.tally.connections.remainder(), 0);
    assert_eq!(flights.tally.requests.remainder(), 0);
}

#[test]
fn a_connection_of_one_request_waits_for_the_servers_end() {
    let mut flights = flights(Some(1), Some(1), None);
    let (slot, step) = flights.start(5).unwrap();
    assert_eq!(step, LoadStep::Connect);
    assert_eq!(
        flights.connected(slot, 7),
        LoadStep::Send(NextRequest::Last)
    );
    assert_eq!(flights.received(slot, &LAST[..20], 8), LoadStep::Receive);
    assert_eq!(flights.received(slot, &LAST[20..], 9), LoadStep::Receive);
    assert_eq!(flights.tally.requests.completed, 1);
    assert!(!flights.is_done() && flights.start(9).is_none());
    assert_eq!(flights.ended(slot, 10), LoadStep::Close);
    flights.free(slot);
    assert!(flights.start(10).is_none() && flights.is_done());
    assert_eq!(flights.tally.connections.completed, 1);
    assert_eq!(flights.tally.body_bytes, 2);
    balances(&flights);
}

#[test]
fn a_client_that_closes_first_does_not_wait() {
    let config = LoadConfig {
        close: Close::Client,
        ..endless()
    };
    let mut flights = Flights::new(&config, 1, None, None);
    let slot = connect(&mut flights, 0);
    assert_eq!(flights.received(slot, LAST, 1), LoadStep::Close);
    assert_eq!(flights.tally.connections.completed, 1);
    balances(&flights);
}

#[test]
fn a_kept_connection_goes_on_at_once_and_ends_with_its_last_request() {
    let mut flights = flights(Some(2), None, None);
    let slot = connect(&mut flights, 0);
    assert_eq!(
        flights.received(slot, REPLY, 1),
        LoadStep::Send(NextRequest::Last)
    );
    // The server does not close although it announced it: then the client does.
    assert_eq!(flights.received(slot, REPLY, 2), LoadStep::Close);
    assert_eq!(flights.tally.requests.completed, 2);
    assert_eq!(flights.tally.connections.completed, 1);
    balances(&flights);
}

#[test]
fn a_close_between_requests_is_a_reconnect_and_no_failure() {
    let mut flights = flights(None, None, None);
    let slot = connect(&mut flights, 0);
    assert!(matches!(
        flights.received(slot, REPLY, 1),
        LoadStep::Send(_)
    ));
    assert_eq!(flights.ended(slot, 2), LoadStep::Reopen);
    assert!(matches!(flights.connected(slot, 3), LoadStep::Send(_)));
    assert!(matches!(
        flights.received(slot, REPLY, 4),
        LoadStep::Send(_)
    ));
    assert_eq!(flights.failed(slot, libc::ECONNRESET, 5), LoadStep::Reopen);
    // A new connection that is closed without a reply is one.
    assert!(matches!(flights.connected(slot, 6), LoadStep::Send(_)));
    assert_eq!(flights.ended(slot, 7), LoadStep::Close);
    assert_eq!(flights.tally.closed_early, 2);
    assert_eq!(flights.tally.connections.completed, 2);
    assert_eq!(flights.tally.connections.failed(Failure::NoReply), 1);
    assert_eq!(flights.tally.requests.failed(Failure::NoReply), 1);
    assert_eq!(flights.tally.requests.completed, 2);
    balances(&flights);
}

#[test]
fn each_failure_is_counted_by_its_name() {
    type Happens = fn(&mut Flights, u32) -> LoadStep;
    let cases: [(Failure, bool, Happens); 10] = [
        (Failure::Refused, false, |f, s| {
            f.failed(s, libc::ECONNREFUSED, 1)
        }),
        (Failure::Unreachable, false, |f, s| {
            f.failed(s, libc::ENETUNREACH, 1)
        }),
        (Failure::NoPort, false, |f, s| {
            f.failed(s, libc::EADDRNOTAVAIL, 1)
        }),
        (Failure::NoDescriptor, false, |f, s| {
            f.failed(s, libc::EMFILE, 1)
        }),
        (Failure::ResetConnecting, false, |f, s| {
            f.failed(s, libc::ECONNRESET, 1)
        }),
        (Failure::Reset, true, |f, s| {
            f.failed(s, libc::ECONNRESET, 1)
        }),
        (Failure::NoReply, true, |f, s| f.ended(s, 1)),
        (Failure::BadReply, true, |f, s| {
            f.received(s, b"SSH-2.0\r\n", 1)
        }),
        (Failure::ShortBody, true, |f, s| {
            f.received(s, &REPLY[..REPLY.len() - 1], 1);
            f.ended(s, 1)
        }),
        (Failure::Other, true, |f, s| f.failed(s, libc::EIO, 1)),
    ];
    for (failure, is_connected, happens) in cases {
        let mut flights = flights(Some(1), None, None);
        let (slot, _) = flights.start(0).unwrap();
        if is_connected {
            flights.connected(slot, 0);
        }
        assert_eq!(happens(&mut flights, slot), LoadStep::Close, "{failure:?}");
        assert_eq!(flights.tally.connections.failed(failure), 1, "{failure:?}");
        assert_eq!(flights.tally.requests.failed(failure), 1, "{failure:?}");
        balances(&flights);
    }
}

#[test]
fn a_bad_status_fails_its_request_and_in_the_end_its_connection() {
    let mut flights = flights(Some(2), None, None);
    let slot = connect(&mut flights, 0);
    assert!(matches!(
        flights.received(slot, MISSING, 1),
        LoadStep::Send(_)
    ));
    assert_eq!(flights.received(slot, LAST, 1), LoadStep::Receive);
    flights.ended(slot, 1);
    assert_eq!(flights.tally.requests.failed(Failure::BadStatus), 1);
    assert_eq!(flights.tally.requests.completed, 1);
    assert_eq!(flights.tally.connections.failed(Failure::BadStatus), 1);
    assert_eq!(flights.tally.statuses, [0, 0, 1, 0, 1, 0]);
    assert_eq!(
        flights
            .tally
            .examples
            .get(&Failure::BadStatus)
            .map(String::as_str),
        Some("status 404")
    );
    balances(&flights);
}

#[test]
fn a_reset_after_a_whole_reply_is_the_servers_way_to_close() {
    let mut flights = flights(Some(1), None, None);
    let slot = connect(&mut flights, 0);
    assert_eq!(flights.received(slot, LAST, 1), LoadStep::Receive);
    assert_eq!(flights.failed(slot, libc::ECONNRESET, 2), LoadStep::Close);
    assert_eq!(flights.tally.connections.completed, 1);
    balances(&flights);
}

#[test]
fn time_outs_are_told_by_what_was_waited_for() {
    let mut flights = flights(Some(1), None, None);
    let (connecting, _) = flights.start(0).unwrap();
    let waiting = connect(&mut flights, 0);
    let closing = connect(&mut flights, 0);
    flights.received(closing, LAST, 0);
    let mut expired = Vec::new();
    flights.expire(SECOND / 2, |slot| expired.push(slot));
    assert!(expired.is_empty());
    flights.expire(2 * SECOND, |slot| expired.push(slot));
    assert_eq!(expired, [closing]);
    flights.expire(10 * SECOND, |slot| expired.push(slot));
    assert_eq!(expired.len(), 3);
    assert!(expired.contains(&connecting) && expired.contains(&waiting));
    let ledger = &flights.tally.connections;
    assert_eq!(ledger.failed(Failure::TimedOutConnecting), 1);
    assert_eq!(ledger.failed(Failure::TimedOut), 1);
    assert_eq!(ledger.completed, 1);
    balances(&flights);
}

#[test]
fn an_open_loop_starts_at_its_times_and_uses_connections_again() {
    let mut flights = flights(None, None, Some(1000.0));
    let slot = connect(&mut flights, 0);
    assert!(flights.start(1).is_none());
    assert_eq!(flights.wake_ns(), 1_000_000);
    assert_eq!(flights.received(slot, REPLY, 10_000), LoadStep::Receive);
    let (again, step) = flights.start(1_000_000).unwrap();
    assert_eq!((again, step), (slot, LoadStep::Send(NextRequest::Ordinary)));
    // Three became due meanwhile; the first of them goes out with the reply.
    assert!(matches!(
        flights.received(slot, REPLY, 4_500_000),
        LoadStep::Send(_)
    ));
    assert_eq!(flights.tally.requests.started, 3);
    // An idle connection that the server closes is forgotten.
    for _ in 0..2 {
        connect(&mut flights, 4_500_000);
    }
    assert!(matches!(
        flights.received(slot, REPLY, 4_600_000),
        LoadStep::Receive
    ));
    assert_eq!(flights.ended(slot, 4_700_000), LoadStep::Close);
    flights.free(slot);
    assert_eq!(flights.start(5_000_000), Some((slot, LoadStep::Connect)));
    flights.finish(9_500_000);
    assert_eq!(flights.tally.not_started, 4);
    assert!(flights.tally.lateness_ns_max >= 2_500_000);
    // A late request counts from its intended start.
    assert!(flights.tally.latency.last_byte.times().max >= 3500.0);
    balances(&flights);
}

#[test]
fn connections_are_to_blame_only_if_all_were_busy() {
    let mut flights = flights(None, None, Some(1000.0));
    for at in 0..4 {
        connect(&mut flights, at * 1_000_000);
    }
    // All are busy, but nothing is due before the fourth millisecond.
    assert!(flights.start(3_500_000).is_none());
    assert!(!flights.tally.was_busy);
    assert!(flights.start(4_500_000).is_none());
    assert!(flights.tally.was_busy);

    // A thread that comes too late to start anything had connections enough.
    let mut late = self::flights(None, None, Some(1000.0));
    late.finish(4_500_000);
    assert_eq!((late.tally.not_started, late.tally.was_busy), (5, false));
}

#[test]
fn a_lack_of_ports_makes_a_pause() {
    let mut flights = flights(Some(1), None, None);
    let (slot, _) = flights.start(0).unwrap();
    flights.failed(slot, libc::EADDRNOTAVAIL, 0);
    flights.free(slot);
    assert!(flights.start(1).is_none());
    assert_eq!(flights.wake_ns(), PAUSE_NS);
    assert!(flights.start(PAUSE_NS).is_some());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 256 }))]

    /// Whatever happens at the sockets, nothing is lost in the account.
    #[test]
    fn the_account_balances_at_every_moment(
        per_connection in proptest::option::of(1_u64..4),
        tickets in proptest::option::of(1_u64..40),
        rate in proptest::option::of(100.0_f64..2e6),
        turns in proptest::collection::vec((0_u8..8, 0_u32..4, 0_u64..SECOND), 1..300),
    ) {
        let mut flights = flights(per_connection, tickets, rate);
        let mut open = [false; 4];
        let mut now = 0;
        for (what, slot, later) in turns {
            now += later >> (slot * 8);
            let had = open[slot as usize];
            let step = match what {
                0 => flights.start(now),
                1 if had => Some((slot, flights.connected(slot, now))),
                2 if had => Some((slot, flights.received(slot, REPLY, now))),
                3 if had => Some((slot, flights.received(slot, LAST, now))),
                4 if had => Some((slot, flights.received(slot, &MISSING[..9], now))),
                5 if had => Some((slot, flights.ended(slot, now))),
                6 if had => Some((slot, flights.failed(slot, libc::ECONNRESET, now))),
                _ => {
                    flights.expire(now, |slot| open[slot as usize] = false);
                    for slot in 0..4 {
                        if !open[slot as usize] {
                            flights.free(slot);
                        }
                    }
                    None
                }
            };
            match step {
                Some((slot, LoadStep::Close)) => {
                    open[slot as usize] = false;
                    flights.free(slot);
                }
                Some((slot, _)) => open[slot as usize] = true,
                None => {}
            }
            let flying = |phases: &[FlightPhase]| {
                let of = |flight: &&Flight| phases.contains(&flight.phase);
                flights.slots.iter().filter(of).count() as i64
            };
            let requests = flying(&[FlightPhase::Connecting, FlightPhase::Waiting, FlightPhase::Replying]);
            let others = flying(&[FlightPhase::Closing, FlightPhase::Idle]);
            prop_assert_eq!(flights.tally.requests.remainder(), requests);
            prop_assert_eq!(flights.tally.connections.remainder(), requests + others);
            prop_assert_eq!(flights.active as i64, requests + flying(&[FlightPhase::Closing]));
            let closed = flying(&[FlightPhase::Free, FlightPhase::Ended]);
            prop_assert_eq!(requests + others + closed, 4);
        }
        flights.finish(now);
        balances(&flights);
        if let Some(tickets) = tickets {
            prop_assert!(flights.tally.requests.started <= tickets);
        }
    }
}
