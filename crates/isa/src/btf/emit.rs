// SPDX-License-Identifier: Apache-2.0 OR MIT
//! [`Btf`] to `.BTF` bytes, and building one.

use std::collections::HashMap;

use super::{Btf, BtfError, Composite, MAGIC, MAX_NAME_OFFSET, Name, Type, TypeId};

/// Builds a [`Btf`]: interns names and numbers types in the order in which they are added.
///
/// Ids may point forward: [`Builder::next_id`] returns the id of the next type. Dangling references are found when the
/// bytes are parsed.
#[derive(Debug)]
pub struct Builder {
    btf: Btf,
    names: HashMap<String, Name>,
}

impl Default for Builder {
    fn default() -> Self {
        Builder { btf: Btf { types: Vec::new(), strings: vec![0] }, names: HashMap::new() }
    }
}

impl Builder {
    /// Interns a string, which must not contain a zero byte.
    ///
    /// # Errors
    /// [`BtfError::TooLarge`] when the table is full.
    pub fn string(&mut self, text: &str) -> Result<Name, BtfError> {
        if text.is_empty() {
            return Ok(Name(0));
        }
        if let Some(name) = self.names.get(text) {
            return Ok(*name);
        }
        let at = self.btf.strings.len();
        if at + text.len() > MAX_NAME_OFFSET {
            return Err(BtfError::TooLarge { what: "strings", found: at + text.len(), limit: MAX_NAME_OFFSET });
        }
        let name = Name(at as u32);
        self.btf.strings.extend_from_slice(text.as_bytes());
        self.btf.strings.push(0);
        self.names.insert(text.to_owned(), name);
        Ok(name)
    }

    /// The id of the next type.
    pub fn next_id(&self) -> TypeId {
        TypeId(self.btf.types.len() as u32 + 1)
    }

    /// Adds a type.
    pub fn add(&mut self, ty: Type) -> TypeId {
        let id = self.next_id();
        self.btf.types.push(ty);
        id
    }

    /// The finished types.
    pub fn finish(self) -> Btf {
        self.btf
    }
}

impl Btf {
    /// The contents of a `.BTF` section.
    ///
    /// # Errors
    /// [`BtfError::TooLarge`] if a type has more than 65535 entries or the types more than 4 GiB.
    pub fn emit(&self) -> Result<Vec<u8>, BtfError> {
        let mut types = Vec::new();
        for ty in &self.types {
            emit_type(&mut types, ty)?;
        }
        let limit = u32::MAX as usize;
        if types.len() > limit || self.strings.len() > limit {
            return Err(BtfError::TooLarge { what: "types", found: types.len(), limit });
        }
        let mut out = Vec::with_capacity(24 + types.len() + self.strings.len());
        out.extend_from_slice(&MAGIC.to_le_bytes());
        out.extend_from_slice(&[1, 0]);
        put(&mut out, &[24, 0, types.len() as u32, types.len() as u32, self.strings.len() as u32]);
        out.extend_from_slice(&types);
        out.extend_from_slice(&self.strings);
        Ok(out)
    }
}

fn put(out: &mut Vec<u8>, words: &[u32]) {
    words.iter().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

fn head(out: &mut Vec<u8>, name: Name, kind: u32, count: usize, flag: bool, last: u32) -> Result<(), BtfError> {
    if count > 0xffff {
        return Err(BtfError::TooLarge { what: "entries of a type", found: count, limit: 0xffff });
    }
    put(out, &[name.0, u32::from(flag) << 31 | kind << 24 | count as u32, last]);
    Ok(())
}

fn emit_composite(out: &mut Vec<u8>, kind: u32, c: &Composite) -> Result<(), BtfError> {
    head(out, c.name, kind, c.members.len(), c.bitfields, c.size_bytes)?;
    for member in &c.members {
        let width = if c.bitfields { u32::from(member.width_bits) << 24 } else { 0 };
        put(out, &[member.name.0, member.of.0, member.offset_bits | width]);
    }
    Ok(())
}

fn emit_type(out: &mut Vec<u8>, ty: &Type) -> Result<(), BtfError> {
    const NONE: Name = Name(0);
    match ty {
        Type::Int { name, size_bytes, encoding, offset_bits, bits } => {
            head(out, *name, 1, 0, false, *size_bytes)?;
            put(out, &[u32::from(*encoding & 0x0f) << 24 | u32::from(*offset_bits) << 16 | u32::from(*bits)]);
        }
        Type::Ptr(to) => head(out, NONE, 2, 0, false, to.0)?,
        Type::Array { element, index, count } => {
            head(out, NONE, 3, 0, false, 0)?;
            put(out, &[element.0, index.0, *count]);
        }
        Type::Struct(c) => emit_composite(out, 4, c)?,
        Type::Union(c) => emit_composite(out, 5, c)?,
        Type::Enum { name, size_bytes, signed, values } => {
            head(out, *name, 6, values.len(), *signed, *size_bytes)?;
            values.iter().for_each(|(name, value)| put(out, &[name.0, *value as u32]));
        }
        Type::Fwd { name, union } => head(out, *name, 7, 0, *union, 0)?,
        Type::Typedef { name, to } => head(out, *name, 8, 0, false, to.0)?,
        Type::Volatile(to) => head(out, NONE, 9, 0, false, to.0)?,
        Type::Const(to) => head(out, NONE, 10, 0, false, to.0)?,
        Type::Restrict(to) => head(out, NONE, 11, 0, false, to.0)?,
        Type::Func { name, proto, linkage } => head(out, *name, 12, linkage.number() as usize, false, proto.0)?,
        Type::FuncProto { ret, params } => {
            head(out, NONE, 13, params.len(), false, ret.0)?;
            params.iter().for_each(|(name, of)| put(out, &[name.0, of.0]));
        }
        Type::Var { name, of, linkage } => {
            head(out, *name, 14, 0, false, of.0)?;
            put(out, &[linkage.number()]);
        }
        Type::DataSec { name, size_bytes, vars } => {
            head(out, *name, 15, vars.len(), false, *size_bytes)?;
            vars.iter().for_each(|var| put(out, &[var.var.0, var.offset_bytes, var.size_bytes]));
        }
        Type::Float { name, size_bytes } => head(out, *name, 16, 0, false, *size_bytes)?,
        Type::DeclTag { name, of, component, attribute } => {
            head(out, *name, 17, 0, *attribute, of.0)?;
            put(out, &[*component as u32]);
        }
        Type::TypeTag { name, to, attribute } => head(out, *name, 18, 0, *attribute, to.0)?,
        Type::Enum64 { name, size_bytes, signed, values } => {
            head(out, *name, 19, values.len(), *signed, *size_bytes)?;
            values.iter().for_each(|(name, value)| put(out, &[name.0, *value as u32, (*value >> 32) as u32]));
        }
    }
    Ok(())
}
