//! Values as people write them on a command line.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use mpps_io::{Wait, Work};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV6, ToSocketAddrs};
use std::time::{Duration, SystemTime};

/// A word with what the help says of it, and what it stands for.
pub(crate) type Named<T> = (&'static str, &'static str, T);

/// How long a wait lasts at most.
const WAIT_TIME: Duration = Duration::from_secs(1);

/// How a receiver waits.
pub(crate) const WAIT: &[Named<Wait>] = &[
    (
        "auto",
        "Sleep at low rates; at high rates sleep or spin, whichever receives more",
        Wait::Auto(WAIT_TIME),
    ),
    (
        "block",
        "Sleep in the kernel until a packet comes: in the receive call, or in poll(2)",
        Wait::Block(WAIT_TIME),
    ),
    (
        "epoll",
        "Sleep in epoll_wait(2); for --suspend-irqs",
        Wait::Epoll(WAIT_TIME),
    ),
    (
        "spin",
        "Ask for packets again and again without sleep; uses all of the CPU",
        Wait::Spin(WAIT_TIME),
    ),
];

/// One of these words.
pub(crate) fn one_of<T>(known: &'static [Named<T>]) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    let words = known
        .iter()
        .map(|(word, help, _)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(words).try_map(|said| {
        let named = known.iter().find(|(word, ..)| *word == said);
        named.map(|(.., value)| *value).ok_or("unknown")
    })
}

/// A number of things with a decimal suffix: `1500000`, `1.5M`, `300k`.
pub(crate) fn count(text: &str) -> Result<u64, String> {
    let value = scaled(text, 1000.0)?;
    whole(value, text)
}

/// A moment in seconds since 1970.
pub(crate) fn unix_time(text: &str) -> Result<SystemTime, String> {
    let seconds = text.parse().ok().and_then(|seconds| {
        let since = Duration::try_from_secs_f64(seconds).ok()?;
        SystemTime::UNIX_EPOCH.checked_add(since)
    });
    seconds
        .ok_or_else(|| format!("`{text}` is no time in seconds since 1970, as `date +%s` shows it"))
}

/// A number of things above zero, with a decimal suffix.
pub(crate) fn some(text: &str) -> Result<u64, String> {
    match count(text)? {
        0 => Err(format!("`{text}`: there must be one at least")),
        number => Ok(number),
    }
}

/// A number of bytes with a binary suffix: `4194304`, `4096k`, `4M`.
pub(crate) fn bytes(text: &str) -> Result<usize, String> {
    let value = whole(scaled(text, 1024.0)?, text)?;
    usize::try_from(value).map_err(|_| format!("`{text}` is too large"))
}

/// A rate in packets per second, with a decimal suffix, above zero.
pub(crate) fn rate(text: &str) -> Result<f64, String> {
    let value = scaled(text, 1000.0)?;
    if value > 0.0 {
        Ok(value)
    } else {
        Err(format!(
            "`{text}`: a rate is above zero; leave it out to send as fast as possible"
        ))
    }
}

/// The rate of a link in bits per second, with a unit as `tc` writes it: `100mbit`, `2.5gbit`.
pub(crate) fn link_rate(text: &str) -> Result<u64, String> {
    let units = [("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9), ("tbit", 1e12)];
    let rate = units.iter().find_map(|(unit, bits)| {
        let number: f64 = text.trim().strip_suffix(unit)?.trim().parse().ok()?;
        Some(number * bits)
    });
    rate.filter(|rate| (1e6..=1e12).contains(rate))
        .map(|rate| rate as u64)
        .ok_or_else(|| format!("`{text}` is not a rate from 1mbit to 1tbit, such as 100mbit"))
}

/// A share below all, as per cent or as a number: `0.5%`, `0.005`, `0`.
pub(crate) fn share(text: &str) -> Result<f64, String> {
    let (number, whole) = match text.trim().strip_suffix('%') {
        Some(number) => (number, 100.0),
        None => (text, 1.0),
    };
    let share = number.trim().parse().map(|number: f64| number / whole);
    share
        .ok()
        .filter(|share| (0.0..1.0).contains(share))
        .ok_or_else(|| {
            format!("`{text}` is not a share from 0 to below 1, such as 0, 0.5% or 0.005")
        })
}

/// A length of time in seconds: `2`, `0.5`, `2.5s`, `300ms`, `50us`, `2m`.
pub(crate) fn seconds(text: &str) -> Result<Duration, String> {
    let (number, unit) = if let Some(number) = text.strip_suffix("ms") {
        (number, 0.001)
    } else if let Some(number) = text.strip_suffix("us").or_else(|| text.strip_suffix("µs")) {
        (number, 0.000_001)
    } else if let Some(number) = text.strip_suffix('m') {
        (number, 60.0)
    } else {
        (text.strip_suffix('s').unwrap_or(text), 1.0)
    };
    let wrong = || format!("`{text}` is not a time above zero, such as 10, 0.5 or 300ms");
    let value: f64 = number.trim().parse().map_err(|_| wrong())?;
    if value.is_nan() || value * unit <= 0.0 {
        return Err(wrong());
    }
    // A year is longer than any run and fits into every clock.
    Duration::try_from_secs_f64((value * unit).min(31_536_000.0)).map_err(|_| wrong())
}

/// Work per datagram: a time from 100 ns to 10 ms, or `parse`.
pub(crate) fn work(text: &str) -> Result<Work, String> {
    if text == "parse" {
        return Ok(Work::Parse);
    }
    let time = match text.strip_suffix("ns") {
        Some(number) => number.parse().ok().map(Duration::from_nanos),
        None => seconds(text).ok(),
    };
    let range = Duration::from_nanos(100)..=Duration::from_millis(10);
    let time = time.filter(|time| range.contains(time));
    time.map(Work::Time).ok_or_else(|| {
        format!("`{text}` is not a time from 100ns to 10ms, such as 20us, or `parse`")
    })
}

/// The time from one look to the next: 100 ms to an hour.
pub(crate) fn pace(text: &str) -> Result<Duration, String> {
    let pace = seconds(text)?;
    let range = Duration::from_millis(100)..=Duration::from_secs(3600);
    match range.contains(&pace) {
        true => Ok(pace),
        false => Err(format!("`{text}` is not a time from 100ms to 60m")),
    }
}

/// How long an interface is to wait between interrupts: `50us`, `0.2ms`, or `0` for no wait. A
/// number without a unit is in microseconds, because seconds are never meant.
pub(crate) fn moderation(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is not a time up to 1s, such as 50us, or 0 for none");
    let number = text.trim();
    let time = match number.parse::<f64>() {
        Ok(0.0) => return Ok(Duration::ZERO),
        Ok(_) => seconds(&format!("{number}us")),
        Err(_) => seconds(number),
    };
    time.ok()
        .filter(|time| *time <= Duration::from_secs(1) && *time >= Duration::from_micros(1))
        .ok_or_else(wrong)
}

/// A hardware address: six bytes in hexadecimal, `02:00:00:00:00:01`.
pub(crate) fn mac(text: &str) -> Result<[u8; 6], String> {
    let wrong = || format!("`{text}` is no hardware address, such as 02:00:00:00:00:01");
    let mut address = [0; 6];
    let mut parts = text.split([':', '-']);
    for byte in &mut address {
        let part = parts.next().filter(|part| part.len() == 2);
        // `from_str_radix` takes a sign.
        let part = part
            .filter(|part| !part.starts_with('+'))
            .ok_or_else(wrong)?;
        *byte = u8::from_str_radix(part, 16).map_err(|_| wrong())?;
    }
    if parts.next().is_some() {
        return Err(wrong());
    }
    Ok(address)
}

/// An address and port: `192.168.254.1:4321`, `[fd00::1]:4321`, `[ff02::1%eth1]:4321`.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let wrong = || {
        format!(
            "`{text}` is no ADDR:PORT, such as 192.168.254.1:4321, [fd00::1]:4321 or [ff02::1%eth1]:4321"
        )
    };
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    // The standard library takes a zone as a number only.
    let zoned = text.strip_prefix('[').and_then(|rest| rest.split_once('%'));
    let Some((ip, (zone, port))) = zoned.and_then(|(ip, rest)| Some((ip, rest.split_once("]:")?)))
    else {
        return Err(wrong());
    };
    let (Ok(ip), Ok(port)) = (ip.parse(), port.parse()) else {
        return Err(wrong());
    };
    let index = mpps_os::netlink::link::index(zone)
        .map_err(|_| format!("`{text}`: there is no interface {zone}; `ip link` lists them"))?;
    Ok(SocketAddrV6::new(ip, port, 0, index).into())
}

/// An address to listen at. Without a host it is every IPv4 address of this host: `:4321`, `4321`.
pub(crate) fn listen(text: &str) -> Result<SocketAddr, String> {
    named(text, Ipv4Addr::UNSPECIFIED)
}

/// An address to send to. Without a host it is this host: `:4321`, `4321`.
pub(crate) fn target(text: &str) -> Result<SocketAddr, String> {
    named(text, Ipv4Addr::LOCALHOST)
}

/// An address as [`address`] takes it, a name and a port, or only a port.
fn named(text: &str, without: Ipv4Addr) -> Result<SocketAddr, String> {
    let wrong = match address(text) {
        Ok(address) => return Ok(address),
        Err(wrong) => wrong,
    };
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let Ok(port) = port.parse::<u16>() else {
        return Err(wrong);
    };
    let is_name = |host: &str| {
        let of_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
        host.chars().all(of_name)
    };
    match host {
        "" => Ok((without, port).into()),
        host if is_name(host) => {
            let found = (host, port).to_socket_addrs();
            let found = found.map_err(|error| format!("`{text}`: cannot resolve {host}: {error}"));
            found?.next().ok_or(wrong)
        }
        _ => Err(wrong),
    }
}

fn scaled(text: &str, thousand: f64) -> Result<f64, String> {
    let (number, scale) = match text.trim().as_bytes().last() {
        Some(b'k' | b'K') => (&text.trim()[..text.trim().len() - 1], thousand),
        Some(b'm' | b'M') => (&text.trim()[..text.trim().len() - 1], thousand.powi(2)),
        Some(b'g' | b'G') => (&text.trim()[..text.trim().len() - 1], thousand.powi(3)),
        _ => (text.trim(), 1.0),
    };
    match number.trim().parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value * scale),
        _ => Err(format!(
            "`{text}` is not a number, such as 250000, 300k or 1.5M"
        )),
    }
}

fn whole(value: f64, text: &str) -> Result<u64, String> {
    // 2^53: beyond it a double has no exact whole numbers.
    if value.fract() == 0.0 && value <= 9_007_199_254_740_992.0 {
        Ok(value as u64)
    } else {
        Err(format!("`{text}` is not a whole number"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn suffixes_are_decimal_for_packets_and_binary_for_bytes() {
        assert_eq!(count("1.5M"), Ok(1_500_000));
        assert_eq!(bytes("4M"), Ok(4 << 20));
        assert_eq!(rate("300k"), Ok(300_000.0));
        assert_eq!(seconds("300ms"), Ok(Duration::from_millis(300)));
        assert_eq!(seconds("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(seconds("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(seconds("50µs"), Ok(Duration::from_micros(50)));
    }

    #[test]
    fn a_link_has_a_rate_with_a_unit() {
        assert_eq!(link_rate("100mbit"), Ok(100_000_000));
        assert_eq!(link_rate("2.5gbit"), Ok(2_500_000_000));
        for wrong in [
            "100", "0mbit", "999kbit", "2tbit", "-1gbit", "NaNgbit", "1gbps",
        ] {
            assert!(link_rate(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_share_is_below_all_of_it() {
        for (text, expected) in [
            ("0", 0.0),
            ("0.5%", 0.005),
            ("0.005", 0.005),
            (" 50 %", 0.5),
        ] {
            assert_eq!(share(text), Ok(expected), "{text}");
        }
        for wrong in ["", "%", "1", "100%", "-1%", "nan", "0.5 per cent"] {
            assert!(share(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn interrupts_wait_for_microseconds() {
        assert_eq!(moderation("50"), Ok(Duration::from_micros(50)));
        assert_eq!(moderation("0.2ms"), Ok(Duration::from_micros(200)));
        assert_eq!(moderation("0"), Ok(Duration::ZERO));
        for text in ["", "-1", "2s", "0.5", "x", "nan", "inf"] {
            assert!(moderation(text).is_err(), "{text}");
        }
        assert_eq!(some("1k"), Ok(1000));
        assert!(some("0").is_err());
    }

    #[test]
    fn hardware_addresses_have_six_bytes() {
        assert_eq!(mac("02:00:00:00:00:fF"), Ok([2, 0, 0, 0, 0, 255]));
        assert_eq!(mac("02-00-00-00-00-01"), Ok([2, 0, 0, 0, 0, 1]));
        for text in [
            "",
            "02:00:00:00:00",
            "02:00:00:00:00:01:02",
            "2:0:0:0:0:1",
            "+1:00:00:00:00:00",
            "zz:00:00:00:00:00",
        ] {
            assert!(mac(text).is_err(), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused_with_what_was_said() {
        for text in ["", "x", "-1", "nan", "inf", "1e999", "1.5", "k"] {
            assert!(count(text).unwrap_err().contains(text), "{text}");
        }
        for text in ["0", "-1s", "", "nan"] {
            assert!(seconds(text).is_err(), "{text}");
            assert!(rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_zone_may_be_an_interfaces_name() {
        assert_eq!(
            address("127.0.0.1:1"),
            Ok(SocketAddr::from(([127, 0, 0, 1], 1)))
        );
        let zoned = address("[ff02::1%lo]:4321").unwrap();
        assert!(matches!(zoned, SocketAddr::V6(v6) if v6.scope_id() > 0 && v6.port() == 4321));
        assert!(
            address("[ff02::1%nosuch0]:1")
                .unwrap_err()
                .contains("nosuch0")
        );
        for text in [":4321", "[::1", "[%]:1", "[::1%lo]:x", "host:1"] {
            assert!(address(text).unwrap_err().contains("ADDR:PORT"), "{text}");
        }
    }

    #[test]
    fn a_host_may_be_a_name_or_left_out() {
        for text in [":53", "53"] {
            assert_eq!(listen(text), Ok(SocketAddr::from(([0, 0, 0, 0], 53))));
            assert_eq!(target(text), Ok(SocketAddr::from(([127, 0, 0, 1], 53))));
        }
        assert!(target("localhost:53").is_ok_and(|address| address.ip().is_loopback()));
        assert_eq!(target("[::1]:53"), address("[::1]:53"));
        for text in ["", ":", "x", "a b:1", ":65536", "::1:53", "host:x"] {
            assert!(target(text).unwrap_err().contains("ADDR:PORT"), "{text}");
        }
    }

    #[test]
    fn work_is_a_short_time_or_a_word() {
        for text in ["100ns", "20us", "1.5ms", "10ms", "parse"] {
            assert_eq!(work(text).map(|work| work.to_string()).as_deref(), Ok(text));
        }
        for text in ["", "20", "99ns", "11ms", "-1us", "1.5ns", "Parse", "none"] {
            assert!(work(text).unwrap_err().contains("such as 20us"), "{text}");
        }
    }

    #[test]
    fn looks_have_a_pace() {
        assert_eq!(pace("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(pace("60m"), Ok(Duration::from_secs(3600)));
        for text in ["0", "99ms", "61m", "1x"] {
            assert!(pace(text).is_err(), "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC{0,12}") {
            let _ = (count(&text), bytes(&text), rate(&text), seconds(&text), address(&text));
            if let Ok(share) = share(&text) {
                prop_assert!((0.0..1.0).contains(&share));
            }
            let _ = (some(&text), moderation(&text));
        }

        #[test]
        fn plain_numbers_are_themselves(number in 0_u64..1 << 50) {
            prop_assert_eq!(count(&number.to_string()), Ok(number));
        }
    }
}
