//! Type information made by a small writer, so that the reader is tried on shapes of our choice.

use super::*;
use proptest::prelude::*;

/// Writes BTF: the counterpart of the reader.
#[derive(Default)]
struct Writer {
    types: Vec<u8>,
    strings: Vec<u8>,
    count: u32,
}

impl Writer {
    fn new() -> Self {
        Self {
            strings: vec![0],
            ..Self::default()
        }
    }

    fn string(&mut self, text: &str) -> u32 {
        if text.is_empty() {
            return 0;
        }
        let at = self.strings.len() as u32;
        self.strings.extend(text.bytes());
        self.strings.push(0);
        at
    }

    fn words(&mut self, words: &[u32]) {
        for word in words {
            self.types.extend(word.to_ne_bytes());
        }
    }

    fn add(&mut self, name: &str, kind: u32, count: usize, flag: bool, size_or_type: u32) -> u32 {
        let name = self.string(name);
        let info = u32::from(flag) << 31 | kind << 24 | count as u32;
        self.words(&[name, info, size_or_type]);
        self.count += 1;
        self.count
    }

    fn integer(&mut self, name: &str, size: u32) -> u32 {
        let id = self.add(name, kind::INTEGER, 0, false, size);
        self.words(&[size * 8]);
        id
    }

    /// Members are name, type, offset in bits and, if not zero, width in bits.
    fn structure(&mut self, name: &str, kind: u32, members: &[(&str, u32, u32, u32)]) -> u32 {
        let flag = members.iter().any(|member| member.3 != 0);
        let id = self.add(name, kind, members.len(), flag, 64);
        for (name, member_type, bits, width) in members {
            let name = self.string(name);
            self.words(&[name, *member_type, width << 24 | bits]);
        }
        id
    }

    fn finish(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_ne_bytes().to_vec();
        bytes.extend([VERSION, 0]);
        let types = self.types.len() as u32;
        for word in [24, 0, types, types, self.strings.len() as u32] {
            bytes.extend(u32::to_ne_bytes(word));
        }
        bytes.extend(&self.types);
        bytes.extend(&self.strings);
        bytes
    }

    fn parse(&self) -> Btf {
        Btf::parse(self.finish()).expect("the writer writes what the reader reads")
    }
}

/// `struct packet { int first; union { struct { short a; long b; }; typedef name { char inner; } c;
/// }; int flag : 1; }`, with other types in between.
fn sample() -> Writer {
    let mut writer = Writer::new();
    let int = writer.integer("int", 4);
    let short = writer.integer("short", 2);
    let pointer = writer.add("", kind::POINTER, 0, false, int);
    let constant = writer.add("", kind::CONST, 0, false, pointer);
    let inner = writer.structure(
        "",
        kind::STRUCT,
        &[("a", short, 0, 0), ("b", constant, 64, 0)],
    );
    let plain = writer.structure(
        "plain",
        kind::STRUCT,
        &[("pad", short, 0, 0), ("inner", short, 16, 0)],
    );
    let alias = writer.add("name", kind::TYPEDEF, 0, false, plain);
    let union = writer.structure("", kind::UNION, &[("", inner, 0, 0), ("c", alias, 0, 0)]);
    writer.structure(
        "packet",
        kind::STRUCT,
        &[
            ("first", int, 0, 0),
            ("", union, 64, 0),
            ("flag", int, 193, 1),
            ("last", int, 224, 0),
        ],
    );
    writer
}

#[test]
fn fields_are_found_through_unnamed_structures_names_and_paths() {
    let btf = sample().parse();
    let at = |path| btf.member("packet", path).map(|m| (m.offset, m.size));
    assert_eq!(at("first"), Ok((0, 4)));
    assert_eq!(at("a"), Ok((8, 2)));
    assert_eq!(at("b"), Ok((16, 8)));
    assert_eq!(at("c"), Ok((8, 64)));
    assert_eq!(at("c.inner"), Ok((10, 2)));
    assert_eq!(at("last"), Ok((28, 4)));
}

#[test]
fn what_is_not_there_is_named() {
    let btf = sample().parse();
    for path in ["nothing", "flag", "first.more", ""] {
        let refusal = btf.member("packet", path).expect_err("it is not there");
        assert_eq!(refusal.to_string(), format!("packet has no field {path}"));
    }
    let refusal = btf.member("parcel", "first").expect_err("not there either");
    assert_eq!(refusal.to_string(), "there is no struct parcel");
}

#[test]
fn enumerators_and_tracepoints_are_read() {
    let mut writer = Writer::new();
    writer.add("reason", kind::ENUM, 2, false, 4);
    let (none, full) = (writer.string("NONE"), writer.string("FULL"));
    writer.words(&[none, 0, full, 7]);
    let prototype = writer.add("", kind::PROTOTYPE, 3, false, 0);
    writer.words(&[0; 6]);
    let pointer = writer.add("", kind::POINTER, 0, false, prototype);
    writer.add("btf_trace_drop", kind::TYPEDEF, 0, false, pointer);
    let btf = writer.parse();
    let expected = vec![("NONE".to_owned(), 0), ("FULL".to_owned(), 7)];
    assert_eq!(btf.enumeration("reason"), Ok(expected));
    assert_eq!(btf.tracepoint_arguments("drop"), Ok(2));
    assert!(btf.enumeration("drop").is_err());
    assert!(btf.tracepoint_arguments("reason").is_err());
}

#[test]
fn a_structure_that_contains_itself_ends() {
    let mut writer = Writer::new();
    writer.structure("snake", kind::STRUCT, &[("", 1, 0, 0), ("", 1, 8, 0)]);
    writer.add("loop", kind::TYPEDEF, 0, false, 2);
    writer.structure("twist", kind::STRUCT, &[("x", 2, 0, 0)]);
    let btf = writer.parse();
    assert!(btf.member("snake", "tail").is_err());
    assert_eq!(btf.member("twist", "x").map(|member| member.size), Ok(0));
    assert!(btf.member("twist", "x.y").is_err());
}

#[test]
fn every_shorter_file_is_refused() {
    let whole = sample().finish();
    for length in 0..whole.len() {
        let refusal = Btf::parse(whole[..length].to_vec()).expect_err("it is cut off");
        assert!(
            matches!(refusal, BtfError::Truncated(_)),
            "{length}: {refusal}"
        );
    }
    assert_eq!(Btf::parse(vec![0; 100]).err(), Some(BtfError::Foreign));
}

#[test]
fn an_unknown_kind_is_named() {
    let mut writer = Writer::new();
    writer.integer("int", 4);
    writer.add("future", 20, 0, false, 0);
    let refusal = Btf::parse(writer.finish()).err();
    assert_eq!(refusal, Some(BtfError::UnknownKind { id: 2, kind: 20 }));
}

/// The offsets of the running kernel, where it has type information: `sk_buff.next` has always
/// been first, and the names used must exist.
#[test]
fn the_running_kernel_is_read() {
    if !std::path::Path::new(KERNEL_BTF).exists() {
        return;
    }
    let btf = Btf::kernel().expect("the kernel's own type information is whole");
    let next = btf.member("sk_buff", "next");
    assert_eq!(next, Ok(Member { offset: 0, size: 8 }));
    assert_eq!(btf.member("sk_buff", "protocol").map(|m| m.size), Ok(2));
    assert!(
        btf.tracepoint_arguments("kfree_skb")
            .is_ok_and(|count| count >= 2)
    );
}

/// Asks everything of type information that may be nonsense; the answers do not matter, that there
/// are answers does.
fn ask(btf: &Btf) {
    for name in ["", "a", "packet"] {
        let _ = btf.member(name, "b.c");
        let _ = btf.member(name, "");
        let _ = btf.enumeration(name);
    }
    let _ = btf.tracepoint_arguments("drop");
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(btf) = Btf::parse(bytes) {
            ask(&btf);
        }
    }

    #[test]
    fn arbitrary_types_never_panic(types in proptest::collection::vec(any::<u8>(), 0..400)) {
        let writer = Writer { types, ..Writer::new() };
        if let Ok(btf) = Btf::parse(writer.finish()) {
            ask(&btf);
        }
    }

    #[test]
    fn damaged_files_never_panic(at in 0usize..400, byte: u8) {
        let mut bytes = sample().finish();
        let at = at % bytes.len();
        bytes[at] = byte;
        if let Ok(btf) = Btf::parse(bytes) {
            ask(&btf);
        }
    }

    #[test]
    fn written_structures_are_read_back(offsets in proptest::collection::vec(0u32..100_000, 1..50)) {
        let mut writer = Writer::new();
        let int = writer.integer("int", 4);
        let names: Vec<String> = (0..offsets.len()).map(|i| format!("m{i}")).collect();
        let members: Vec<(&str, u32, u32, u32)> = names
            .iter()
            .zip(&offsets)
            .map(|(name, offset)| (name.as_str(), int, offset * 8, 0))
            .collect();
        writer.structure("s", kind::STRUCT, &members);
        let btf = writer.parse();
        for (name, &offset) in names.iter().zip(&offsets) {
            let expected = Member { offset: offset as usize, size: 4 };
            prop_assert_eq!(btf.member("s", name), Ok(expected));
        }
    }
}
