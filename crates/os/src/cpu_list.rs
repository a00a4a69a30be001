//! Lists of CPUs as people and the kernel write them: `0-3,8,10-11`.

use std::fmt;
use std::str::FromStr;

/// The highest CPU number that a list may name.
///
/// Linux is built for at most 8192 CPUs (`CONFIG_NR_CPUS` in `arch/x86/Kconfig`), and a limit
/// keeps a mistyped range from asking for memory without end.
pub const CPU_MAX: usize = 8191;

/// The most CPUs that one list may hold, repetitions included.
pub const CPUS_MAX: usize = 65_536;

/// CPUs in the order given; a CPU may occur twice.
///
/// The order matters to `--pin`: thread `i` runs on the `i`-th CPU of the list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuList(pub Vec<usize>);

/// An error in a list of CPUs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CpuListError {
    /// Nothing was given.
    #[error("an empty CPU list; write CPUs like 0-3,8")]
    Empty,
    /// There is nothing between two commas.
    #[error("CPU list `{list}`: nothing between two commas; write CPUs like 0-3,8")]
    EmptyItem {
        /// The whole list.
        list: String,
    },
    /// An item is neither a number nor a range.
    #[error("CPU list: `{item}` is not a CPU number or a range like 0-3")]
    NotANumber {
        /// The item.
        item: String,
    },
    /// A range runs downwards.
    #[error("CPU list: the range `{item}` runs backwards; write {end}-{start}")]
    Backwards {
        /// The range.
        item: String,
        /// Its first number.
        start: usize,
        /// Its second number, which is lower.
        end: usize,
    },
    /// A number is beyond any CPU that Linux can have.
    #[error("CPU list: `{item}` is beyond {CPU_MAX}, the highest CPU number of Linux")]
    TooHigh {
        /// The item.
        item: String,
    },
    /// The list names more CPUs than it may.
    #[error("CPU list: more than {CPUS_MAX} CPUs are named")]
    TooMany,
}

impl CpuList {
    /// Reads a list that the kernel wrote, where nothing means no CPU.
    ///
    /// # Errors
    /// As for [`str::parse`], but an empty list is fine.
    pub fn from_kernel(text: &str) -> Result<Self, CpuListError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        text.parse()
    }

    /// Reads a mask that the kernel wrote (`%*pb`): words of 32 bits in hexadecimal, the highest first,
    /// with commas in between. None if it is damaged.
    pub fn from_mask(text: &str) -> Option<Self> {
        let mut cpus = Vec::new();
        for (at, word) in text.trim().rsplit(',').enumerate() {
            let bits = u32::from_str_radix(word, 16).ok()?;
            let set = (0..32).filter(|bit| bits >> bit & 1 == 1);
            cpus.extend(set.map(|bit| 32 * at + bit));
        }
        Some(Self(cpus))
    }
}

impl FromStr for CpuList {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, CpuListError> {
        if text.trim().is_empty() {
            return Err(CpuListError::Empty);
        }
        let mut cpus = Vec::new();
        for item in text.trim().split(',').map(str::trim) {
            if item.is_empty() {
                return Err(CpuListError::EmptyItem {
                    list: text.trim().to_owned(),
                });
            }
            let (start, end) = range(item)?;
            if cpus.len() + (end - start) >= CPUS_MAX {
                return Err(CpuListError::TooMany);
            }
            cpus.extend(start..=end);
        }
        Ok(Self(cpus))
    }
}

/// The first and the last CPU of one item.
fn range(item: &str) -> Result<(usize, usize), CpuListError> {
    let (start, end) = match item.split_once('-') {
        Some((start, end)) => (number(start, item)?, number(end, item)?),
        None => (number(item, item)?, number(item, item)?),
    };
    if end < start {
        return Err(CpuListError::Backwards {
            item: item.to_owned(),
            start,
            end,
        });
    }
    Ok((start, end))
}

/// One CPU number. Digits only, because `+1` and `0x1` are more likely slips than wishes.
fn number(text: &str, item: &str) -> Result<usize, CpuListError> {
    let text = text.trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(CpuListError::NotANumber {
            item: item.to_owned(),
        });
    }
    // A number too long for `usize` is too high as well.
    match text.parse() {
        Ok(cpu) if cpu <= CPU_MAX => Ok(cpu),
        _ => Err(CpuListError::TooHigh {
            item: item.to_owned(),
        }),
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut comma = "";
        while let Some(&start) = rest.first() {
            let length = rest
                .iter()
                .enumerate()
                .take_while(|&(offset, &cpu)| Some(cpu) == start.checked_add(offset))
                .count();
            let end = rest[length - 1];
            match length {
                1 => write!(f, "{comma}{start}")?,
                _ => write!(f, "{comma}{start}-{end}")?,
            }
            rest = &rest[length..];
            comma = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parsed(text: &str) -> Result<Vec<usize>, CpuListError> {
        text.parse::<CpuList>().map(|list| list.0)
    }

    #[test]
    fn masks_of_the_kernel() {
        for (mask, cpus) in [
            ("0", &[][..]),
            ("5", &[0, 2]),
            ("00000001,80000000", &[31, 32]),
            ("00000000,00000000,00000003", &[0, 1]),
        ] {
            assert_eq!(CpuList::from_mask(mask).expect("a mask").0, cpus, "{mask}");
        }
        let all = ["ffffffff"; 32].join(",");
        assert_eq!(CpuList::from_mask(&all).expect("a mask").0.len(), 1024);
        for damaged in ["", "x", "1,", "123456789"] {
            assert_eq!(CpuList::from_mask(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn reads_what_people_write() {
        assert_eq!(parsed("0-3,8,10-11"), Ok(vec![0, 1, 2, 3, 8, 10, 11]));
        assert_eq!(parsed(" 3, 1 ,2\n"), Ok(vec![3, 1, 2]), "the order is kept");
        assert_eq!(parsed("1,1"), Ok(vec![1, 1]), "two threads may share a CPU");
        assert_eq!(CpuList::from_kernel("\n"), Ok(CpuList::default()));
    }

    #[test]
    fn names_what_is_wrong() {
        assert_eq!(parsed(""), Err(CpuListError::Empty));
        assert!(matches!(
            parsed("1,,2"),
            Err(CpuListError::EmptyItem { .. })
        ));
        assert!(matches!(parsed("1,"), Err(CpuListError::EmptyItem { .. })));
        for bad in ["x", "+1", "-1", "1-", "1-2-3", "0x1", "1.5", "1-3:2"] {
            assert!(
                matches!(parsed(bad), Err(CpuListError::NotANumber { .. })),
                "{bad}: {:?}",
                parsed(bad)
            );
        }
        assert!(matches!(parsed("8192"), Err(CpuListError::TooHigh { .. })));
        assert!(matches!(
            parsed("0-99999999999999999999999"),
            Err(CpuListError::TooHigh { .. })
        ));
        assert_eq!(
            parsed("3-1").unwrap_err().to_string(),
            "CPU list: the range `3-1` runs backwards; write 1-3"
        );
        let many = ["0-8191"; 9].join(",");
        assert_eq!(parsed(&many), Err(CpuListError::TooMany));
    }

    #[test]
    fn writes_ranges() {
        assert_eq!(CpuList(vec![0, 1, 2, 8, 10, 11]).to_string(), "0-2,8,10-11");
        assert_eq!(CpuList(vec![2, 1, 0]).to_string(), "2,1,0");
        assert_eq!(
            CpuList(vec![usize::MAX]).to_string(),
            usize::MAX.to_string()
        );
        assert_eq!(CpuList::default().to_string(), "");
    }

    proptest! {
        #[test]
        fn foreign_masks_never_panic(text in "\\PC{0,60}", mask in "[0-9a-fx+,-]{0,60}") {
            let _ = (CpuList::from_mask(&text), CpuList::from_mask(&mask));
        }

        #[test]
        fn never_panics(text in "\\PC*") {
            let _ = parsed(&text);
        }

        #[test]
        fn never_panics_on_likely_text(text in "[0-9,\\- ]{0,40}") {
            let _ = parsed(&text);
        }

        #[test]
        fn round_trip(cpus in proptest::collection::vec(0..=CPU_MAX, 1..60)) {
            let list = CpuList(cpus);
            prop_assert_eq!(list.to_string().parse::<CpuList>(), Ok(list));
        }

        #[test]
        fn round_trip_of_runs(starts in proptest::collection::vec((0usize..40, 1usize..9), 1..12)) {
            let list = CpuList(starts.into_iter().flat_map(|(start, length)| start..start + length).collect());
            prop_assert_eq!(list.to_string().parse::<CpuList>(), Ok(list));
        }
    }
}
