//! Figures and their units. This module decides how many digits a figure shows.

use std::fmt;

/// A figure with its unit.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Quantity {
    /// Million datagrams, or packets, per second.
    Mpps(f64),
    /// A share of the whole, 0 to 1.
    Share(f64),
    /// How many times as much.
    Times(f64),
    /// Nanoseconds.
    Nanoseconds(f64),
    /// Microseconds.
    Microseconds(f64),
    /// Seconds.
    Seconds(f64),
    /// Bytes, in mebibytes.
    Mebibytes(f64),
    /// Things per second: connections, requests, interrupts.
    PerSecond(f64),
    /// Things for each packet, or packets for each thing: calls per packet, packets per call.
    Each(f64),
    /// A number of things.
    Count(u128),
    /// A number of things that may be below zero, such as unaccounted packets.
    Signed(i128),
}

impl Quantity {
    /// The digits only, for a column whose head names the unit.
    pub fn figure(self) -> String {
        match self {
            Self::Mpps(rate) => mpps(rate),
            Self::Share(share) => percent(share),
            Self::Times(ratio) => digits(ratio, &[(9.995, 2), (f64::INFINITY, 1)]),
            Self::Nanoseconds(time) => digits(time, &[(f64::INFINITY, 0)]),
            Self::Microseconds(time) => digits(time, &[(99.95, 1), (f64::INFINITY, 0)]),
            Self::Seconds(time) => digits(time, &[(9.995, 2), (99.95, 1), (f64::INFINITY, 0)]),
            Self::Mebibytes(bytes) => {
                let mebibytes = bytes / f64::from(1 << 20);
                digits(mebibytes, &[(99.995, 2), (f64::INFINITY, 0)])
            }
            Self::PerSecond(rate) if rate.is_finite() && rate >= 0.0 => {
                grouped(rate.round() as u128)
            }
            Self::PerSecond(_) => "-".to_owned(),
            Self::Each(number) if number > 0.0 && number < 0.0005 => "<0.001".to_owned(),
            Self::Each(number) => digits(number, &[(9.9995, 3), (99.95, 1), (f64::INFINITY, 0)]),
            Self::Count(count) => grouped(count),
            Self::Signed(count) if count < 0 => format!("-{}", grouped(count.unsigned_abs())),
            Self::Signed(count) => grouped(count.unsigned_abs()),
        }
    }

    /// The unit, as it follows the digits.
    fn unit(self) -> &'static str {
        match self {
            Self::Mpps(_) => "\u{a0}Mpps",
            Self::Share(_) => "\u{a0}%",
            Self::Times(_) => "x",
            Self::Nanoseconds(_) => "\u{a0}ns",
            Self::Microseconds(_) => "\u{a0}µs",
            Self::Seconds(_) => "\u{a0}s",
            Self::Mebibytes(_) => "\u{a0}MiB",
            Self::PerSecond(_) => "/s",
            Self::Each(_) | Self::Count(_) | Self::Signed(_) => "",
        }
    }
}

/// The figure and its unit, which a line does not break apart.
impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.figure() {
            "-" => f.write_str("-"),
            figure => write!(f, "{figure}{}", self.unit()),
        }
    }
}

/// The lowest and the highest figure as a range, `0.20-0.35`; one figure if both read the same.
pub fn range([low, high]: [Quantity; 2]) -> String {
    let (from, to) = (low.figure(), high.figure());
    if from == to {
        from
    } else {
        format!("{from}-{to}")
    }
}

/// Digits in groups of three, which a line does not break apart: `1 234 567`.
pub fn grouped(number: u128) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push('\u{a0}');
        }
        text.push(digit);
    }
    text
}

/// `0.052`, `1.14`, `148`.
fn mpps(rate: f64) -> String {
    if rate != 0.0 && rate.abs() < 0.0005 {
        // A rate so low is a trickle, and its digits would not fit the column.
        return "<0.001".to_owned();
    }
    digits(rate, &[(0.1, 3), (99.995, 2), (f64::INFINITY, 0)])
}

/// Per cent. Rounding never makes "all" or "nothing" of another share.
fn percent(share: f64) -> String {
    let value = share * 100.0;
    if value > 0.0 && value < 0.05 {
        "<0.1".to_owned()
    } else if (99.95..100.0).contains(&value) {
        ">99.9".to_owned()
    } else {
        digits(value, &[(f64::INFINITY, 1)])
    }
}

/// Uses the number of decimals of the first limit above the value. Returns a dash if the value is
/// not finite.
fn digits(value: f64, limits: &[(f64, usize)]) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    let size = if value == 0.0 { 0.1 } else { value.abs() };
    let behind = limits.iter().find(|(limit, _)| size < *limit);
    let behind = behind.map_or(0, |(_, behind)| *behind);
    format!("{value:.behind$}")
}

#[cfg(test)]
mod tests {
    use super::Quantity::*;
    use super::*;

    #[test]
    fn a_little_is_not_nothing_and_nearly_all_is_not_all() {
        let shares = [0.0, 0.000_001, 0.390_4, 0.999_999, 1.0].map(|share| Share(share).figure());
        assert_eq!(shares, ["0.0", "<0.1", "39.0", ">99.9", "100.0"]);
        assert_eq!(Each(0.0001).figure(), "<0.001");
        assert_eq!(Mpps(0.000_012).figure(), "<0.001");
    }

    #[test]
    fn figures_have_the_digits_that_mean_something() {
        let rates = [0.0521, 0.0, 1.1437, 11.836, 148.81].map(|rate| Mpps(rate).figure());
        assert_eq!(rates, ["0.052", "0.00", "1.14", "11.84", "149"]);
        let times = [0.43, 2.654, 29.13].map(|ratio| Times(ratio).to_string());
        assert_eq!(times, ["0.43x", "2.65x", "29.1x"]);
        let each = [0.0, 1.0, 32.04, 875.4].map(|number| Each(number).figure());
        assert_eq!(each, ["0.000", "1.000", "32.0", "875"]);
        assert_eq!(Nanoseconds(312.4).to_string(), "312\u{a0}ns");
        assert_eq!(PerSecond(999.6).to_string(), "1\u{a0}000/s");
        assert_eq!(PerSecond(f64::NAN).figure(), "-");
        assert_eq!(Signed(-1234).figure(), "-1\u{a0}234");
        assert_eq!(Seconds(9.995).to_string(), "10.0\u{a0}s");
        assert_eq!(Mebibytes(11_723_080.0).to_string(), "11.18\u{a0}MiB");
        for none in [
            Times(f64::NAN),
            Mpps(f64::INFINITY),
            Share(f64::NAN),
            PerSecond(-1.0),
        ] {
            assert_eq!(none.to_string(), "-");
        }
    }

    #[test]
    fn a_range_of_one_figure_is_one_figure() {
        assert_eq!(range([Mpps(0.197), Mpps(0.352)]), "0.20-0.35");
        assert_eq!(range([Mpps(1.4), Mpps(1.4)]), "1.40");
    }

    #[test]
    fn counts_of_any_size_are_grouped() {
        assert_eq!(grouped(1_234_567), "1\u{a0}234\u{a0}567");
        assert_eq!(grouped(u128::MAX).chars().count(), 39 + 12);
    }
}
