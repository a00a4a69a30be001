//! Drivers' own counters of packets that were lost before the network stack got them.
//!
//! There is no rule for the names of these counters: the file `driver_counters.tsv` names them driver by
//! driver, each with the place in Linux where it stands. A virtual device, such as a tunnel, has only the
//! counters of every interface; each means something of its own, and no cable.

use std::collections::BTreeMap;
use std::sync::LazyLock;

/// Drivers and counters, a line each; what the columns are, its head says.
const FILE: &str = include_str!("driver_counters.tsv");
/// The name for the kernel's counters of any driver; see [`crate::counters::queue_packets::by_kernel`].
const ANY: &str = "*";

/// The fate of the packets that a counter counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// No descriptor was free, or the card's own memory was full.
    NoRoom,
    /// The driver had no memory for them.
    NoMemory,
    /// The cloud or the hypervisor held them back.
    Allowance,
    /// The same on their way out.
    AllowanceOut,
    /// They came damaged.
    Damaged,
    /// The card or the driver dropped them for other causes.
    Refused,
    /// A program at XDP dropped them.
    Xdp,
    /// A virtual device dropped them; the line has the cause.
    Virtual,
}

/// The cause of a virtual device's loss.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct VirtualLoss {
    /// One of the counters that every interface has, or what it counts beyond its parts.
    pub(crate) counter: &'static str,
    /// True if the driver has no other cause to count it.
    pub(crate) is_certain: bool,
    /// The cause, as the rest of a sentence about the interface.
    pub(crate) what: &'static str,
    /// The fix; `IF` is the interface.
    pub(crate) remedy: &'static str,
}

#[derive(Debug)]
struct CounterMeaning {
    driver: &'static str,
    /// The counter's name, with `*` for a number.
    counter: &'static str,
    meaning: Meaning,
    /// Only for [`Meaning::Virtual`].
    cause: Option<VirtualLoss>,
}

static LINES: LazyLock<Vec<CounterMeaning>> =
    LazyLock::new(|| FILE.lines().filter_map(line).flatten().collect());

/// The lines of each driver: they are looked up for each of a thousand interfaces.
static BY_DRIVER: LazyLock<BTreeMap<&str, Vec<&CounterMeaning>>> = LazyLock::new(|| {
    let mut lines: BTreeMap<&str, Vec<&CounterMeaning>> = BTreeMap::new();
    for line in LINES.iter() {
        lines.entry(line.driver).or_default().push(line);
    }
    lines
});

/// Drivers, counter, meaning, source, and of a virtual device cause and fix; none for a head or a remark.
fn line(text: &'static str) -> Option<impl Iterator<Item = CounterMeaning>> {
    let mut columns = text.split('\t');
    let (drivers, counter) = (columns.next()?, columns.next()?);
    let word = columns.next()?;
    let meaning = match word {
        "no_room" => Meaning::NoRoom,
        "no_memory" => Meaning::NoMemory,
        "allowance" => Meaning::Allowance,
        "allowance_out" => Meaning::AllowanceOut,
        "damaged" => Meaning::Damaged,
        "refused" => Meaning::Refused,
        "xdp" => Meaning::Xdp,
        "virtual" | "virtual_likely" => Meaning::Virtual,
        _ => return None,
    };
    let cause = match meaning {
        Meaning::Virtual => Some(VirtualLoss {
            counter,
            is_certain: word == "virtual",
            what: columns.nth(1)?,
            remedy: columns.next()?,
        }),
        _ => None,
    };
    let lines = drivers.split(',').map(move |driver| CounterMeaning {
        driver,
        counter,
        meaning,
        cause,
    });
    Some(lines)
}

/// The causes of what a virtual device drops; none for the driver of a card.
pub(crate) fn of_virtual(driver: &str) -> impl Iterator<Item = &'static VirtualLoss> {
    let lines = BY_DRIVER.get(driver).into_iter().flatten();
    lines.filter_map(|line| line.cause.as_ref())
}

/// True if the counters of every interface mean something of their own here.
pub(crate) fn is_virtual(driver: &str) -> bool {
    of_virtual(driver).next().is_some()
}

/// The counters of a driver that have this meaning and count different packets. For an unknown
/// driver, or one without such counters, those that the kernel keeps for it.
pub(crate) fn of<'a>(
    driver: &str,
    meaning: Meaning,
    counters: impl Iterator<Item = &'a str> + Clone,
) -> Vec<&'a str> {
    let of = |driver: &str| -> Vec<&'a str> {
        let lines = BY_DRIVER.get(driver).into_iter().flatten();
        let lines = lines.filter(|line| line.meaning == meaning);
        let patterns: Vec<&str> = lines.map(|line| line.counter).collect();
        if patterns.is_empty() {
            return Vec::new();
        }
        let named = |name: &&str| {
            patterns
                .iter()
                .any(|pattern| is(name.trim_start(), pattern))
        };
        counters.clone().filter(named).collect()
    };
    let own = of(driver);
    if own.is_empty() { of(ANY) } else { own }
}

/// Returns true if a name matches a pattern. A `*` in the pattern is a number. The name may end in
/// `#2` and so on, as [`crate::LinkSnapshot`] numbers counters of one name.
fn is(name: &str, pattern: &str) -> bool {
    let name = match name.rsplit_once('#') {
        Some((name, number)) if number.parse::<u32>().is_ok() => name,
        _ => name,
    };
    let Some((before, after)) = pattern.split_once('*') else {
        return name == pattern;
    };
    let number = name
        .strip_prefix(before)
        .and_then(|rest| rest.strip_suffix(after));
    number.is_some_and(|number| {
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters of drivers that show no loss, or that a line of the file counts already.
    const LEFT_OUT: [(&str, &str); 24] = [
        ("rx_missed_errors", "igb: part of rx_fifo_errors"),
        ("rx_queue_*_drops", "igb: part of rx_fifo_errors"),
        ("rx_long_length_errors", "part of rx_length_errors"),
        ("rx_short_length_errors", "part of rx_length_errors"),
        ("rx_frame_errors", "the same as rx_align_errors"),
        ("rx_errors", "the sum of the damaged"),
        ("rx_over_errors", "the drivers leave it at zero"),
        ("rx_no_buffer_count", "stored late, and not lost"),
        ("dropped_smbus", "for the management processor"),
        ("rx_queue_*_csum_err", "given to the stack as they are"),
        ("rx_csum_offload_errors", "given to the stack as they are"),
        ("rx_queue_*_alloc_failed", "tried again"),
        ("alloc_rx_buff_failed", "tried again"),
        ("rx_dma_failed", "tried again"),
        (
            "uncorr_ecc_errors",
            "events of the card's memory, no packets",
        ),
        ("corr_ecc_errors", "events of the card's memory, no packets"),
        ("rx*_drops", "virtio_net: part of rx_drops"),
        ("rx_xdp_drops", "virtio_net: the sum of its queues"),
        ("rx*_xdp_drops", "an XDP program's, for all drivers"),
        ("err", "vmxnet3: part of `drv dropped rx total`"),
        ("fcs", "vmxnet3: part of `drv dropped rx total`"),
        ("rx buf alloc fail", "vmxnet3: tried again"),
        ("hdr err", "vmxnet3: of what it sends"),
        ("xdp xmit err", "vmxnet3: of what it sends"),
    ];

    #[test]
    fn each_line_has_a_known_meaning_and_a_source() {
        let lines: Vec<&str> = FILE.lines().filter(|line| !line.starts_with('#')).collect();
        let meant = |text: &&&'static str| line(text).is_none();
        assert_eq!(lines.iter().find(meant), None, "it has no meaning");
        for (at, text) in lines.iter().enumerate() {
            let columns: Vec<&str> = text.split('\t').collect();
            let is_virtual = columns[2].starts_with("virtual");
            assert_eq!(columns.len(), if is_virtual { 6 } else { 4 }, "{text}");
            let is_place = columns[3].contains(".c ") || columns[3].contains(".yaml");
            assert!(is_place && !columns[1].trim().is_empty(), "{text}");
            let same = |other: &&str| {
                other
                    .split('\t')
                    .take(2)
                    .eq(columns.iter().take(2).copied())
            };
            assert!(!lines[..at].iter().any(same), "twice: {text}");
        }
        let drivers = "virtio_net veth e1000e igb igc ixgbe i40e ice iavf mlx5_core mlx4_en bnxt_en \
                       ena gve mana hv_netvsc vmxnet3 sfc tg3 r8169";
        for driver in drivers.split(' ') {
            assert!(LINES.iter().any(|line| line.driver == driver), "{driver}");
        }
    }

    #[test]
    fn patterns_are_numbers_and_nothing_else() {
        for (name, pattern, expected) in [
            ("rx0_xdp_drops", "rx*_xdp_drops", true),
            ("rx12_xdp_drops#3", "rx*_xdp_drops", true),
            ("rx_xdp_drops", "rx*_xdp_drops", false),
            ("rx+1_xdp_drops", "rx*_xdp_drops", false),
            ("pkts rx OOB#2", "pkts rx OOB", true),
            ("pkts rx OOB#x", "pkts rx OOB", false),
            ("[3]: rx_discards", "[*]: rx_discards", true),
        ] {
            assert_eq!(is(name, pattern), expected, "{name}");
        }
    }

    /// The counters that these drivers printed in a machine. `LEFT_OUT` has those that the file
    /// omits, and why.
    #[test]
    fn no_loss_that_a_recorded_driver_prints_is_unknown() {
        for (driver, _, tree) in crate::root::fixture::DRIVERS {
            let names = tree
                .lines()
                .filter_map(|line| line.strip_prefix("ethtool-S: "));
            let names = names.filter_map(|line| Some(line.split_once(" = ")?.0));
            let known: Vec<&CounterMeaning> =
                LINES.iter().filter(|line| line.driver == driver).collect();
            let mut unknown: Vec<&str> = names
                .clone()
                .filter(|name| {
                    let name = name.to_ascii_lowercase();
                    let words = [
                        "drop",
                        "miss",
                        "err",
                        "fail",
                        "no_buffer",
                        "oob",
                        "fifo",
                        "discard",
                    ];
                    !name.contains("tx") && words.iter().any(|word| name.contains(word))
                })
                .filter(|name| !known.iter().any(|line| is(name, line.counter)))
                .filter(|name| !LEFT_OUT.iter().any(|(pattern, _)| is(name, pattern)))
                .collect();
            unknown.dedup();
            assert_eq!(unknown, [""; 0], "{driver}");
            let printed =
                |line: &&&CounterMeaning| names.clone().any(|name| is(name, line.counter));
            assert!(known.iter().any(|line| printed(&line)), "{driver}");
        }
    }
}
