//! The kernel's own description of its types (BTF), read for field offsets and enumerators.
//!
//! Where a field is in a kernel structure depends on version and configuration, so no offset is
//! compiled in. Format: `Documentation/bpf/btf.rst` and `include/uapi/linux/btf.h`.

use crate::native::word;
use std::fs;
use std::io;

use crate::error::On;
use crate::{CallError, CallResult};

/// Where the running kernel keeps its type information (`CONFIG_DEBUG_INFO_BTF`).
const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";

/// Type information, checked so far that every record is known to lie inside it.
#[derive(Debug)]
pub struct Btf {
    bytes: Vec<u8>,
    strings: std::ops::Range<usize>,
    /// Where each type's record starts; type 0 is `void` and has none.
    records: Vec<usize>,
}

/// A field of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// Bytes from the start of the structure.
    pub offset: usize,
    /// Bytes of the field itself; zero where the type says nothing (arrays, forward declarations).
    pub size: usize,
}

/// Type information that says no.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BtfError {
    /// It does not start as BTF of this byte order and version does.
    #[error("not BTF of this machine's byte order, version 1")]
    Foreign,
    /// It ends before the part named.
    #[error("cut off in its {0}")]
    Truncated(&'static str),
    /// A kind of type that this reader does not know, so it cannot know where the next one starts.
    #[error("type {id} is of the unknown kind {kind}")]
    UnknownKind {
        /// The number of the type.
        id: usize,
        /// Its kind.
        kind: u32,
    },
    /// No type of that kind has this name.
    #[error("there is no {0}")]
    NoType(String),
    /// The structure has no such field, or it is a bit-field.
    #[error("{structure} has no field {member}")]
    NoMember {
        /// The structure.
        structure: String,
        /// The field that was asked for.
        member: String,
    },
}

/// Kinds of types (`BTF_KIND_*`).
mod kind {
    pub(super) const INTEGER: u32 = 1;
    pub(super) const POINTER: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const FORWARD: u32 = 7;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNCTION: u32 = 12;
    pub(super) const PROTOTYPE: u32 = 13;
    pub(super) const VARIABLE: u32 = 14;
    pub(super) const SECTION: u32 = 15;
    pub(super) const FLOAT: u32 = 16;
    pub(super) const DECLARATION_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

/// `BTF_MAGIC`, `BTF_VERSION` and the size of `struct btf_header`.
const MAGIC: u16 = 0xeb9f;
const VERSION: u8 = 1;
const HEADER_SIZE: usize = 24;
/// The size of `struct btf_type`, and of the entries that follow structures and enumerations.
const TYPE_SIZE: usize = 12;
const MEMBER_SIZE: usize = 12;
const ENUMERATOR_SIZE: usize = 8;
/// A search through unnamed members looks at this many structures at most, so that type information
/// which contains itself ends too. The deepest nest in Linux has less than ten.
const SEARCH_LIMIT: usize = 1000;

/// One record, taken apart.
#[derive(Clone, Copy, Debug)]
struct Type {
    name: usize,
    kind: u32,
    count: usize,
    flag: bool,
    /// A size or a type number, as the kind has it.
    size_or_type: u32,
    /// Where what follows the record starts.
    rest: usize,
}

impl Btf {
    /// Reads the running kernel's type information.
    ///
    /// # Errors
    ///
    /// `ENOENT` on a kernel built without it; what [`Btf::parse`] objects to as invalid data.
    pub fn kernel() -> CallResult<Self> {
        let bytes = fs::read(KERNEL_BTF).on("read", KERNEL_BTF)?;
        Self::parse(bytes).map_err(CallError::from)
    }

    /// Checks type information and finds the start of each type.
    ///
    /// # Errors
    ///
    /// Bytes that are not BTF, or not whole, or newer than this reader.
    pub fn parse(bytes: Vec<u8>) -> CallResult<Self, BtfError> {
        let header = BtfHeader::parse(&bytes)?;
        let mut btf = Self {
            bytes,
            strings: header.strings,
            records: vec![0],
        };
        let mut at = header.types.start;
        while at < header.types.end {
            let id = btf.records.len();
            let record = btf.record(at).ok_or(BtfError::Truncated("types"))?;
            let rest = record.rest_size().ok_or(BtfError::UnknownKind {
                id,
                kind: record.kind,
            })?;
            // Neither can overflow: the record is in the file, the rest is under a megabyte.
            let end = record.rest + rest;
            if end > header.types.end {
                return Err(BtfError::Truncated("types"));
            }
            btf.records.push(at);
            at = end;
        }
        Ok(btf)
    }

    /// Finds a field by its path: `"dev"` also inside unnamed structures and unions, and
    /// `"ns.inum"` through a field that is itself a structure.
    ///
    /// # Errors
    ///
    /// No such structure or field.
    pub fn member(&self, structure: &str, path: &str) -> CallResult<Member, BtfError> {
        let mut inside = self
            .find(structure, &[kind::STRUCT, kind::UNION])
            .ok_or_else(|| BtfError::NoType(format!("struct {structure}")))?;
        let mut found = Member { offset: 0, size: 0 };
        for name in path.split('.') {
            let (offset, member_type) =
                self.search(inside, name)
                    .ok_or_else(|| BtfError::NoMember {
                        structure: structure.to_owned(),
                        member: path.to_owned(),
                    })?;
            inside = member_type;
            found = Member {
                offset: found.offset + offset,
                size: self.size(member_type),
            };
        }
        Ok(found)
    }

    /// The names and values of an enumeration, in its order.
    ///
    /// # Errors
    ///
    /// No such enumeration.
    pub fn enumeration(&self, name: &str) -> CallResult<Vec<(String, u32)>, BtfError> {
        let missing = || BtfError::NoType(format!("enum {name}"));
        let id = self.find(name, &[kind::ENUM]).ok_or_else(missing)?;
        let record = self.type_of(id).ok_or_else(missing)?;
        let entry = |index: usize| {
            let at = record.rest + index * ENUMERATOR_SIZE;
            let name = self.name(self.word(at)? as usize);
            Some((
                String::from_utf8_lossy(name).into_owned(),
                self.word(at + 4)?,
            ))
        };
        Ok((0..record.count).filter_map(entry).collect())
    }

    /// How many arguments a tracepoint hands to a program.
    ///
    /// The kernel describes them as the function type `btf_trace_NAME`, whose first parameter is
    /// its own (`include/trace/bpf_probe.h`).
    ///
    /// # Errors
    ///
    /// No such tracepoint.
    pub fn tracepoint_arguments(&self, name: &str) -> CallResult<usize, BtfError> {
        let missing = || BtfError::NoType(format!("tracepoint {name}"));
        let id = self
            .find(&format!("btf_trace_{name}"), &[kind::TYPEDEF])
            .ok_or_else(missing)?;
        let follow = |id: u32| Some(self.type_of(id)?.size_or_type);
        let prototype = follow(id)
            .and_then(follow)
            .and_then(|id| self.type_of(id))
            .filter(|record| record.kind == kind::PROTOTYPE)
            .ok_or_else(missing)?;
        Ok(prototype.count.saturating_sub(1))
    }

    /// A function of the kernel: its number, and how many arguments it has.
    ///
    /// # Errors
    ///
    /// No such function, as in a module, or because the compiler has inlined it everywhere.
    pub fn function(&self, name: &str) -> CallResult<(u32, usize), BtfError> {
        let missing = || BtfError::NoType(format!("function {name}"));
        let id = self.find(name, &[kind::FUNCTION]).ok_or_else(missing)?;
        let prototype = self
            .type_of(id)
            .and_then(|function| self.type_of(function.size_or_type))
            .ok_or_else(missing)?;
        Ok((id, prototype.count))
    }

    /// The number of the first type with a name, of one of the kinds.
    fn find(&self, name: &str, kinds: &[u32]) -> Option<u32> {
        let id = (1..self.records.len()).find(|&id| {
            self.record(self.records[id]).is_some_and(|record| {
                kinds.contains(&record.kind) && self.name(record.name) == name.as_bytes()
            })
        })?;
        u32::try_from(id).ok()
    }

    /// Looks for a field in a structure and in the unnamed ones inside it: offset and type.
    fn search(&self, structure: u32, name: &str) -> Option<(usize, u32)> {
        if name.is_empty() {
            return None;
        }
        let mut waiting = vec![(0, structure)];
        for _ in 0..SEARCH_LIMIT {
            let (base, id) = waiting.pop()?;
            let record = self.type_of(self.resolve(id))?;
            if !matches!(record.kind, kind::STRUCT | kind::UNION) {
                continue;
            }
            for index in 0..record.count {
                let at = record.rest + index * MEMBER_SIZE;
                let member_type = self.word(at + 4)?;
                let packed = self.word(at + 8)?;
                // With the flag, the top byte is the width of a bit-field and zero for others.
                let (width, bits) = match record.flag {
                    true => (packed >> 24, packed & 0x00ff_ffff),
                    false => (0, packed),
                };
                let offset = base + bits as usize / 8;
                let member_name = self.name(self.word(at)? as usize);
                if member_name == name.as_bytes() {
                    return (width == 0).then_some((offset, member_type));
                }
                if member_name.is_empty() {
                    waiting.push((offset, member_type));
                }
            }
        }
        None
    }

    /// The type behind names and qualifiers.
    fn resolve(&self, id: u32) -> u32 {
        let mut id = id;
        for _ in 0..SEARCH_LIMIT {
            match self.type_of(id) {
                Some(record) if record.is_alias() => id = record.size_or_type,
                _ => break,
            }
        }
        id
    }

    fn size(&self, id: u32) -> usize {
        match self.type_of(self.resolve(id)) {
            Some(record) => match record.kind {
                kind::POINTER => size_of::<usize>(),
                kind::INTEGER
                | kind::STRUCT
                | kind::UNION
                | kind::ENUM
                | kind::ENUM64
                | kind::FLOAT => record.size_or_type as usize,
                _ => 0,
            },
            None => 0,
        }
    }

    fn type_of(&self, id: u32) -> Option<Type> {
        if id == 0 {
            return None;
        }
        self.record(*self.records.get(id as usize)?)
    }

    fn record(&self, at: usize) -> Option<Type> {
        let info = self.word(at + 4)?;
        Some(Type {
            name: self.word(at)? as usize,
            kind: info >> 24 & 0x1f,
            count: (info & 0xffff) as usize,
            flag: info >> 31 == 1,
            size_or_type: self.word(at + 8)?,
            rest: at + TYPE_SIZE,
        })
    }

    /// A name from the string section; empty if it is not there. No search asks for an empty name.
    fn name(&self, offset: usize) -> &[u8] {
        let strings = &self.bytes[self.strings.clone()];
        let tail = strings.get(offset..).unwrap_or_default();
        tail.split(|&byte| byte == 0).next().unwrap_or_default()
    }

    fn word(&self, at: usize) -> Option<u32> {
        word(&self.bytes, at)
    }
}

impl Type {
    /// How many bytes follow the record; `None` for a kind that is not known.
    fn rest_size(&self) -> Option<usize> {
        Some(match self.kind {
            kind::POINTER
            | kind::FORWARD
            | kind::TYPEDEF
            | kind::VOLATILE
            | kind::CONST
            | kind::RESTRICT
            | kind::FUNCTION
            | kind::FLOAT
            | kind::TYPE_TAG => 0,
            kind::INTEGER | kind::VARIABLE | kind::DECLARATION_TAG => 4,
            kind::ARRAY => 12,
            kind::STRUCT | kind::UNION => MEMBER_SIZE * self.count,
            kind::ENUM => ENUMERATOR_SIZE * self.count,
            kind::PROTOTYPE => 8 * self.count,
            kind::SECTION | kind::ENUM64 => 12 * self.count,
            _ => return None,
        })
    }

    fn is_alias(&self) -> bool {
        matches!(
            self.kind,
            kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG
        )
    }
}

/// The sections, as places in the file.
struct BtfHeader {
    types: std::ops::Range<usize>,
    strings: std::ops::Range<usize>,
}

impl BtfHeader {
    fn parse(bytes: &[u8]) -> CallResult<Self, BtfError> {
        let cut = BtfError::Truncated("header");
        let start = bytes.get(..HEADER_SIZE).ok_or(cut.clone())?;
        if start[..2] != MAGIC.to_ne_bytes() || start[2] != VERSION {
            return Err(BtfError::Foreign);
        }
        let size = word(bytes, 4).ok_or(cut.clone())? as usize;
        let section = |at: usize, what: &'static str| {
            let offset = word(bytes, at).ok_or(cut.clone())? as usize;
            let length = word(bytes, at + 4).ok_or(cut.clone())? as usize;
            // Three 32-bit numbers cannot overflow a 64-bit size.
            let range = size + offset..size + offset + length;
            match bytes.get(range.clone()) {
                Some(_) => Ok(range),
                None => Err(BtfError::Truncated(what)),
            }
        };
        Ok(Self {
            types: section(8, "types")?,
            strings: section(16, "strings")?,
        })
    }
}

impl From<BtfError> for CallError {
    fn from(error: BtfError) -> Self {
        Self::new(
            "parse",
            KERNEL_BTF,
            io::Error::new(io::ErrorKind::InvalidData, error),
        )
    }
}

#[cfg(test)]
mod tests;
