//! Where a function of the running kernel is.

use std::collections::BTreeMap;
use std::ops::Range;

/// The kernel's table of symbols: address, kind, name, and the module if it is in one
/// (`kernel/kallsyms.c`). Without `CAP_SYSLOG` all addresses may read as zero.
pub(super) const KALLSYMS: &str = "/proc/kallsyms";

/// The places of a function's code. A compiler may have split it (`NAME.cold`, `NAME.part.0`), so
/// there may be several; none if the kernel has no such function, or hides where it is.
pub(super) fn code_of(function: &str, kallsyms: &str) -> Vec<Range<u64>> {
    let starts = symbols(kallsyms).filter(|&(address, name)| {
        let suffix = name.strip_prefix(function);
        address != 0 && suffix.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    });
    let mut code: Vec<Range<u64>> = starts.map(|(start, _)| start..u64::MAX).collect();
    // A function ends where the next symbol starts; modules are not in the order of addresses.
    for (address, _) in symbols(kallsyms) {
        for range in &mut code {
            if address > range.start && address < range.end {
                range.end = address;
            }
        }
    }
    code
}

/// The functions with these return addresses, without what a compiler adds to a name (`.isra.0`,
/// `.cold`). An address before the first symbol has none.
pub(super) fn functions_at(addresses: &[u64], kallsyms: &str) -> BTreeMap<u64, String> {
    let mut nearest: Vec<(u64, u64, &str)> = addresses.iter().map(|&at| (at, 0, "")).collect();
    for (start, name) in symbols(kallsyms) {
        for (at, best, function) in &mut nearest {
            // A call that does not return may be the last instruction of a function.
            if start < *at && start > *best {
                (*best, *function) = (start, name);
            }
        }
    }
    let named = nearest.into_iter().map(|(at, _, name)| {
        let name = name.split('.').next().unwrap_or(name);
        (at, name.to_owned())
    });
    named.collect()
}

fn symbols(kallsyms: &str) -> impl Iterator<Item = (u64, &str)> {
    kallsyms.lines().filter_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let address = u64::from_str_radix(words.next()?, 16).ok()?;
        Some((address, words.nth(1)?))
    })
}

#[cfg(test)]
mod tests {
    use super::{code_of, functions_at};
    use proptest::prelude::*;

    #[test]
    fn a_function_ends_at_the_next_symbol() {
        let table = "ffffffff81000000 T _text\nffffffff81000040 t release\n\
                     ffffffff81000040 t __pfx_x\nffffffff81000090 T other\n\
                     ffffffffc0000000 t far\t[module]\nffffffff81000060 r middle\n\
                     ffffffff82000000 t release.cold\nffffffff83000000 t release_more\n";
        assert_eq!(
            code_of("release", table),
            [
                0xffff_ffff_8100_0040..0xffff_ffff_8100_0060,
                0xffff_ffff_8200_0000..0xffff_ffff_8300_0000
            ]
        );
    }

    #[test]
    fn an_address_is_in_the_last_function_before_it() {
        let table = "ffffffff81000000 T _text\nffffffff81000040 t queue.isra.0\n\
                     ffffffffc0000000 t far\t[module]\nffffffff81000060 t middle\n";
        for (at, name) in [
            (0xffff_ffff_8100_0041, "queue"),
            (0xffff_ffff_8100_0060, "queue"),
            (0xffff_ffff_8100_0061, "middle"),
            (0xffff_ffff_c000_0300, "far"),
            (0x1000, ""),
        ] {
            assert_eq!(functions_at(&[at], table)[&at], name);
        }
    }

    #[test]
    fn hidden_and_missing_functions_have_no_place() {
        assert_eq!(code_of("release", "0000000000000000 t release\n"), []);
        assert_eq!(code_of("release", "ffffffff81000000 T _text\n"), []);
        assert_eq!(code_of("release", ""), []);
    }

    proptest! {
        #[test]
        fn arbitrary_text_never_panics(text: String) {
            let _ = code_of("a", &text);
        }

        #[test]
        fn ranges_start_at_their_symbol(addresses in proptest::collection::btree_set(1u64.., 1..20), pick: usize) {
            let addresses: Vec<u64> = addresses.into_iter().collect();
            let pick = pick % addresses.len();
            let line = |(i, address): (usize, &u64)| {
                let name = if i == pick { "wanted" } else { "other" };
                format!("{address:016x} T {name}\n")
            };
            let table: String = addresses.iter().enumerate().map(line).collect();
            let end = addresses.get(pick + 1).copied().unwrap_or(u64::MAX);
            let expected = addresses[pick]..end;
            if !expected.is_empty() {
                prop_assert_eq!(code_of("wanted", &table), vec![expected]);
            }
        }
    }
}
