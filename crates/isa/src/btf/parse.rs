// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `.BTF` bytes to [`Btf`].

use super::{Btf, BtfError, Composite, Linkage, MAGIC, Member, Name, SecVar, Type, TypeId};

/// A bounds-checked reader of little-endian numbers.
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    /// The offset of the next number.
    pub(super) at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, at: 0 }
    }

    pub(super) fn is_done(&self) -> bool {
        self.at >= self.bytes.len()
    }

    pub(super) fn take(&mut self, what: &'static str, len: usize) -> Result<&'a [u8], BtfError> {
        let available = self.bytes.len().saturating_sub(self.at);
        let short = BtfError::Truncated { what, offset: self.at, needed: len, available };
        let end = self.at.checked_add(len).ok_or(short.clone())?;
        let taken = self.bytes.get(self.at..end).ok_or(short)?;
        self.at = end;
        Ok(taken)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, BtfError> {
        let mut word = [0; 4];
        word.copy_from_slice(self.take(what, 4)?);
        Ok(u32::from_le_bytes(word))
    }
}

/// Checks the first eight bytes of the header; returns the length of the header.
pub(super) fn header_len(bytes: &[u8], what: &'static str, least: u32) -> Result<u32, BtfError> {
    let mut cursor = Cursor::new(bytes);
    let first = cursor.take(what, 4)?;
    let magic = u16::from_le_bytes([first[0], first[1]]);
    if magic != MAGIC {
        return Err(BtfError::Magic { found: magic });
    }
    if first[2] != 1 {
        return Err(BtfError::Version { found: first[2] });
    }
    let len = cursor.u32(what)?;
    if len < least || len as usize > bytes.len() {
        return Err(BtfError::Truncated {
            what,
            offset: 0,
            needed: len.max(least) as usize,
            available: bytes.len().min(len as usize),
        });
    }
    Ok(len)
}

/// The range `[offset, offset + len)` after a header of `header` bytes.
pub(super) fn part<'a>(
    bytes: &'a [u8],
    what: &'static str,
    header: u32,
    offset: u32,
    len: u32,
) -> Result<&'a [u8], BtfError> {
    let start = header as usize + offset as usize;
    let mut cursor = Cursor { bytes, at: start };
    cursor.take(what, len as usize)
}

impl Btf {
    /// Parses the contents of a `.BTF` section.
    ///
    /// # Errors
    /// The first error and its place; every offset, length, name and reference is checked.
    ///
    /// # Cost
    /// One pass; memory linear in the input.
    pub fn parse(bytes: &[u8]) -> Result<Btf, BtfError> {
        let header = header_len(bytes, "header", 24)?;
        let mut cursor = Cursor { bytes, at: 8 };
        let (type_off, type_len) = (cursor.u32("header")?, cursor.u32("header")?);
        let (str_off, str_len) = (cursor.u32("header")?, cursor.u32("header")?);
        let strings = part(bytes, "string table", header, str_off, str_len)?;
        if strings.first() != Some(&0) || strings.last() != Some(&0) {
            return Err(BtfError::Strings { len: strings.len() });
        }
        let mut parser = Parser {
            cursor: Cursor::new(part(bytes, "type table", header, type_off, type_len)?),
            strings: strings.len(),
            id: 0,
            start: 0,
            highest: (0, 0),
        };
        let mut types = Vec::new();
        while !parser.cursor.is_done() {
            parser.id += 1;
            parser.start = parser.cursor.at;
            types.push(parser.next()?);
        }
        let (id, target) = parser.highest;
        if target > parser.id {
            return Err(BtfError::Reference { id, target, last: parser.id });
        }
        Ok(Btf { types, strings: strings.to_vec() })
    }
}

struct Parser<'a> {
    cursor: Cursor<'a>,
    strings: usize,
    id: u32,
    start: usize,
    /// The greatest reference so far: (from, to). Types refer forward too, so it is checked at the end.
    highest: (u32, u32),
}

impl Parser<'_> {
    fn word(&mut self) -> Result<u32, BtfError> {
        self.cursor.u32("type")
    }

    fn name(&self, offset: u32) -> Result<Name, BtfError> {
        if (offset as usize) < self.strings {
            Ok(Name(offset))
        } else {
            Err(BtfError::NameOffset { what: "a type", offset, len: self.strings })
        }
    }

    fn named(&mut self) -> Result<Name, BtfError> {
        let offset = self.word()?;
        self.name(offset)
    }

    fn refer(&mut self, target: u32) -> TypeId {
        if target > self.highest.1 {
            self.highest = (self.id, target);
        }
        TypeId(target)
    }

    fn reference(&mut self) -> Result<TypeId, BtfError> {
        let target = self.word()?;
        Ok(self.refer(target))
    }

    fn field(&self, what: &'static str, found: u32) -> BtfError {
        BtfError::Field { id: self.id, offset: self.start, what, found }
    }

    fn linkage(&self, number: u32) -> Result<Linkage, BtfError> {
        Linkage::from_number(number).ok_or_else(|| self.field("linkage", number))
    }

    fn next(&mut self) -> Result<Type, BtfError> {
        let name = self.named()?;
        let info = self.word()?;
        let last = self.word()?;
        if info & 0x60ff_0000 != 0 {
            return Err(self.field("a reserved bit of the information word", info));
        }
        let (kind, count, flag) = (info >> 24 & 0x1f, info & 0xffff, info >> 31 == 1);
        let has_count = matches!(kind, 4..=6 | 13 | 15 | 19);
        if !has_count && kind != 12 && count != 0 {
            return Err(self.field("the number of entries of a kind without entries", count));
        }
        // The kernel accepts the kind flag on tags too: it marks an attribute instead of a tag.
        if flag && !matches!(kind, 4..=7 | 17..=19) {
            return Err(self.field("the kind flag of a kind without one", info));
        }
        let count = count as usize;
        Ok(match kind {
            1 => {
                let data = self.word()?;
                if data & 0xf000_ff00 != 0 {
                    return Err(self.field("a reserved bit of the integer word", data));
                }
                Type::Int {
                    name,
                    size_bytes: last,
                    encoding: (data >> 24) as u8,
                    offset_bits: (data >> 16) as u8,
                    bits: data as u8,
                }
            }
            // bpf-linker names pointers and qualifiers all the same; the name is dropped.
            2 => Type::Ptr(self.refer(last)),
            3 => {
                if last != 0 || name.0 != 0 {
                    return Err(self.field("name or size of an array", last));
                }
                Type::Array { element: self.reference()?, index: self.reference()?, count: self.word()? }
            }
            4 => Type::Struct(self.composite(name, last, count, flag)?),
            5 => Type::Union(self.composite(name, last, count, flag)?),
            6 => {
                let values = self.list(count, |parser| Ok((parser.named()?, parser.word()? as i32)))?;
                Type::Enum { name, size_bytes: last, signed: flag, values }
            }
            7 => match last {
                0 => Type::Fwd { name, union: flag },
                _ => return Err(self.field("size of a declaration", last)),
            },
            8 => Type::Typedef { name, to: self.refer(last) },
            9 => Type::Volatile(self.refer(last)),
            10 => Type::Const(self.refer(last)),
            11 => Type::Restrict(self.refer(last)),
            12 => Type::Func { name, proto: self.refer(last), linkage: self.linkage(count as u32)? },
            13 => {
                if name.0 != 0 {
                    return Err(self.field("name of a prototype", name.0));
                }
                let ret = self.refer(last);
                Type::FuncProto { ret, params: self.list(count, |parser| Ok((parser.named()?, parser.reference()?)))? }
            }
            14 => {
                let of = self.refer(last);
                let linkage = self.word()?;
                Type::Var { name, of, linkage: self.linkage(linkage)? }
            }
            15 => {
                let vars = self.list(count, |parser| {
                    let (var, offset_bytes, size_bytes) = (parser.reference()?, parser.word()?, parser.word()?);
                    Ok(SecVar { var, offset_bytes, size_bytes })
                })?;
                Type::DataSec { name, size_bytes: last, vars }
            }
            16 => Type::Float { name, size_bytes: last },
            17 => Type::DeclTag { name, of: self.refer(last), component: self.word()? as i32, attribute: flag },
            18 => Type::TypeTag { name, to: self.refer(last), attribute: flag },
            19 => {
                let values = self.list(count, |parser| {
                    let (name, low, high) = (parser.named()?, parser.word()?, parser.word()?);
                    Ok((name, u64::from(high) << 32 | u64::from(low)))
                })?;
                Type::Enum64 { name, size_bytes: last, signed: flag, values }
            }
            _ => return Err(BtfError::Kind { id: self.id, offset: self.start, kind }),
        })
    }

    fn list<T>(&mut self, count: usize, entry: impl Fn(&mut Self) -> Result<T, BtfError>) -> Result<Vec<T>, BtfError> {
        (0..count).map(|_| entry(self)).collect()
    }

    fn composite(&mut self, name: Name, size_bytes: u32, count: usize, bitfields: bool) -> Result<Composite, BtfError> {
        let members = self.list(count, |parser| {
            let (name, of, place) = (parser.named()?, parser.reference()?, parser.word()?);
            let (offset_bits, width_bits) =
                if bitfields { (place & 0x00ff_ffff, (place >> 24) as u8) } else { (place, 0) };
            Ok(Member { name, of, offset_bits, width_bits })
        })?;
        Ok(Composite { name, size_bytes, bitfields, members })
    }
}
