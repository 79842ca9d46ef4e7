// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The types of an object: keys and values of maps, signatures of functions.

use std::collections::HashMap;

use super::WriteError;
use crate::sidecar::check_layout;
use flowloom_context::ContextLayout;
use flowloom_isa::btf::{Btf, BtfError, Builder, Composite, Linkage, Member, Name, SecVar, Type, TypeId};
use flowloom_isa::limits::LOCK_BYTES;
use flowloom_isa::{ArgumentKind, GlobalFunction, MapDef, MapKind, UnknownArgument};

/// The longest name in type information; the kernel accepts more, `bpftool` prints less.
const MAX_IDENTIFIER: usize = 127;

/// Whether `name` is a valid name in type information.
pub(super) fn is_identifier(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '.';
    (1..=MAX_IDENTIFIER).contains(&name.len())
        && name.chars().all(fits)
        && !name.starts_with(|c: char| c.is_ascii_digit())
}

/// `name` made valid for type information: invalid characters become `_`.
pub(super) fn identifier(name: &str) -> String {
    let fit = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    let digit = if name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() { "_" } else { "" };
    digit.chars().chain(name.chars().map(fit)).take(MAX_IDENTIFIER).collect()
}

/// Whether the kernel accepts types of keys and values for the map. Those of LPM tries would have to be structures of
/// unknown layout.
pub(super) fn is_typed(map: &MapDef) -> bool {
    map.layout.is_some() || map.kind.has_values() && map.kind != MapKind::LpmTrie
}

/// A variable of `.maps`.
pub(super) struct Definition {
    pub(super) var: TypeId,
    pub(super) size_bytes: u32,
}

#[derive(Default)]
pub(super) struct Types {
    builder: Builder,
    integers: HashMap<&'static str, TypeId>,
    packet: Option<TypeId>,
}

impl Types {
    pub(super) fn finish(self) -> Btf {
        self.builder.finish()
    }

    pub(super) fn string(&mut self, text: &str) -> Result<Name, BtfError> {
        self.builder.string(text)
    }

    /// The integer of this name, made on first use.
    fn integer(&mut self, name: &'static str, size_bytes: u32, encoding: u8) -> Result<TypeId, BtfError> {
        if let Some(id) = self.integers.get(name) {
            return Ok(*id);
        }
        let text = self.string(name)?;
        let bits = size_bytes as u8 * 8;
        let id = self.builder.add(Type::Int { name: text, size_bytes, encoding, offset_bits: 0, bits });
        self.integers.insert(name, id);
        Ok(id)
    }

    fn int(&mut self) -> Result<TypeId, BtfError> {
        self.integer("int", 4, 1)
    }

    /// The integer of 1, 2, 4, 8 or 16 bytes.
    fn sized(&mut self, size_bytes: u32, signed: bool) -> Result<TypeId, BtfError> {
        let name = match (size_bytes, signed) {
            (1, false) => "__u8",
            (2, false) => "__u16",
            (4, false) => "__u32",
            (8, false) => "__u64",
            (_, false) => "__uint128",
            (1, true) => "__s8",
            (2, true) => "__s16",
            (4, true) => "__s32",
            (8, true) => "__s64",
            (_, true) => "__int128",
        };
        self.integer(name, size_bytes, u8::from(signed))
    }

    fn array(&mut self, element: TypeId, count: u32) -> Result<TypeId, BtfError> {
        let index = self.integer("__ARRAY_SIZE_TYPE__", 4, 0)?;
        Ok(self.builder.add(Type::Array { element, index, count }))
    }

    fn bytes(&mut self, count: u32) -> Result<TypeId, BtfError> {
        let byte = self.sized(1, false)?;
        self.array(byte, count)
    }

    fn composite(
        &mut self,
        name: &str,
        size_bytes: u32,
        members: &[(String, TypeId, u32)],
    ) -> Result<TypeId, BtfError> {
        let name = self.string(name)?;
        let mut list = Vec::with_capacity(members.len());
        for (member, of, offset_bytes) in members {
            let name = self.string(member)?;
            list.push(Member { name, of: *of, offset_bits: offset_bytes * 8, width_bits: 0 });
        }
        Ok(self.builder.add(Type::Struct(Composite { name, size_bytes, bitfields: false, members: list })))
    }

    /// The context pointer of a program of the section.
    fn context(&mut self, section: &str) -> Result<TypeId, BtfError> {
        if let Some(id) = self.packet {
            return Ok(id);
        }
        let kind = section.split(['/', '.']).next().unwrap_or_default();
        let target = if kind == "xdp" {
            let word = self.sized(4, false)?;
            let names = ["data", "data_end", "data_meta", "ingress_ifindex", "rx_queue_index", "egress_ifindex"];
            let members: Vec<_> = names.iter().zip(0..).map(|(name, i)| ((*name).to_owned(), word, i * 4)).collect();
            self.composite("xdp_md", 24, &members)?
        } else {
            // Another kind of program: the layout of its context is unknown.
            TypeId(0)
        };
        let id = self.builder.add(Type::Ptr(target));
        Ok(*self.packet.insert(id))
    }

    /// The program's function, or a callee.
    ///
    /// The arguments of a callee are unknown, and a static function need not declare them: the kernel verifies its
    /// instructions instead.
    pub(super) fn function(&mut self, name: &str, section: &str, called: bool) -> Result<TypeId, BtfError> {
        let ret = self.int()?;
        let (params, linkage) = if called {
            (Vec::new(), Linkage::Static)
        } else {
            (vec![(self.string("ctx")?, self.context(section)?)], Linkage::Global)
        };
        let proto = self.builder.add(Type::FuncProto { ret, params });
        let name = self.string(&identifier(name))?;
        Ok(self.builder.add(Type::Func { name, proto, linkage }))
    }

    /// A global function with its declared arguments: the kernel verifies it separately.
    pub(super) fn global(&mut self, function: &GlobalFunction, section: &str) -> Result<TypeId, BtfError> {
        let ret = self.int()?;
        let (mut params, mut tags) = (Vec::new(), Vec::new());
        for (number, argument) in (0..).zip(&function.arguments) {
            let of = match &argument.kind {
                ArgumentKind::Number => self.sized(8, false)?,
                ArgumentKind::Context => self.context(section)?,
                ArgumentKind::Memory { bytes, nullable } => {
                    tags.extend((!nullable).then_some((number, "arg:nonnull")));
                    let memory = self.bytes(*bytes)?;
                    self.builder.add(Type::Ptr(memory))
                }
                ArgumentKind::Unknown(UnknownArgument::NoScalar) => self.composite("no_scalar", 8, &[])?,
                ArgumentKind::Unknown(UnknownArgument::Unsized) => {
                    let name = self.string("without_length")?;
                    let target = self.builder.add(Type::Fwd { name, union: false });
                    self.builder.add(Type::Ptr(target))
                }
                ArgumentKind::Unknown(UnknownArgument::Dynptr) => {
                    let target = self.composite("bpf_dynptr", 16, &[])?;
                    self.builder.add(Type::Ptr(target))
                }
                ArgumentKind::Unknown(UnknownArgument::Tagged(tag)) => {
                    tags.push((number, tag.as_str()));
                    let target = self.sized(8, false)?;
                    self.builder.add(Type::Ptr(target))
                }
            };
            let name = if argument.name.is_empty() { format!("arg{number}") } else { identifier(&argument.name) };
            params.push((self.string(&name)?, of));
        }
        let proto = self.builder.add(Type::FuncProto { ret, params });
        let name = self.string(&identifier(&function.name))?;
        let of = self.builder.add(Type::Func { name, proto, linkage: Linkage::Global });
        for (component, tag) in tags {
            let name = self.string(tag)?;
            self.builder.add(Type::DeclTag { name, of, component, attribute: false });
        }
        Ok(of)
    }

    /// `int (*)[number]`: the encoding of a number in a definition.
    fn number(&mut self, number: u32) -> Result<TypeId, BtfError> {
        let int = self.int()?;
        let array = self.array(int, number)?;
        Ok(self.builder.add(Type::Ptr(array)))
    }

    /// The variable that defines a map.
    pub(super) fn map(&mut self, map: &MapDef) -> Result<Definition, WriteError> {
        let mut members = vec![
            ("type", self.number(map.kind.number())?),
            ("max_entries", self.number(map.max_entries)?),
            ("map_flags", self.number(map.flags)?),
        ];
        if !is_typed(map) {
            members.push(("key_size", self.number(map.key_bytes)?));
            members.push(("value_size", self.number(map.value_bytes)?));
        } else {
            let (key, value) = self.key_and_value(map)?;
            members.push(("key", self.builder.add(Type::Ptr(key))));
            members.push(("value", self.builder.add(Type::Ptr(value))));
        }
        let size_bytes = members.len() as u32 * 8;
        let members: Vec<_> =
            members.into_iter().zip(0..).map(|((name, of), i)| (name.to_owned(), of, i * 8)).collect();
        let of = self.composite("", size_bytes, &members)?;
        let name = self.string(&map.name)?;
        let var = self.builder.add(Type::Var { name, of, linkage: Linkage::Global });
        Ok(Definition { var, size_bytes })
    }

    /// The types of a map's keys and values.
    pub(super) fn key_and_value(&mut self, map: &MapDef) -> Result<(TypeId, TypeId), WriteError> {
        let key = match map.kind {
            // The kernel requires the index of an array to be an integer.
            kind if kind.is_indexed() && map.key_bytes == 4 => self.sized(4, false)?,
            _ => self.bytes(map.key_bytes)?,
        };
        let value = match &map.layout {
            Some(layout) => self.record(map, layout)?,
            None if map.spin_lock.is_some() => self.locked(map)?,
            None if matches!(map.value_bytes, 1 | 2 | 4 | 8) => self.sized(map.value_bytes, false)?,
            None => self.bytes(map.value_bytes)?,
        };
        Ok((key, value))
    }

    /// The record of a context table: its fields at their offsets, and byte arrays in between.
    fn record(&mut self, map: &MapDef, layout: &ContextLayout) -> Result<TypeId, WriteError> {
        if map.value_bytes > u32::MAX / 8 {
            let (found, expected) = (map.value_bytes.to_string(), format!("at most {}", u32::MAX / 8));
            return Err(WriteError::Map { map: map.name.clone(), what: "length of a record", found, expected });
        }
        let fields = check_layout(layout, map)
            .map_err(|fault| WriteError::Layout { map: map.name.clone(), why: fault.to_string() })?;
        let mut members = Vec::new();
        let mut end: u32 = 0;
        for field in fields {
            self.pad(&mut members, end, field.offset_bytes)?;
            let of = self.sized(field.size_bytes, field.signed)?;
            members.push((identifier(&field.name), of, field.offset_bytes));
            end = field.offset_bytes + field.size_bytes;
        }
        self.pad(&mut members, end, map.value_bytes)?;
        let name = identifier(&format!("{}_context", layout.element));
        Ok(self.composite(&name, map.value_bytes, &members)?)
    }

    /// A value with a `struct bpf_spin_lock` in it, which the kernel finds by its name.
    fn locked(&mut self, map: &MapDef) -> Result<TypeId, WriteError> {
        let at = map.spin_lock.unwrap_or(0);
        let end = at.checked_add(LOCK_BYTES).filter(|end| at.is_multiple_of(4) && *end <= map.value_bytes);
        let Some(end) = end else {
            let expected = format!("a multiple of 4 with {LOCK_BYTES} bytes inside of the value");
            let (map, what) = (map.name.clone(), "offset of a spin lock");
            return Err(WriteError::Map { map, what, found: at.to_string(), expected });
        };
        let word = self.sized(4, false)?;
        let lock = self.composite("bpf_spin_lock", LOCK_BYTES, &[("val".to_owned(), word, 0)])?;
        let mut members = Vec::new();
        self.pad(&mut members, 0, at)?;
        members.push(("lock".to_owned(), lock, at));
        self.pad(&mut members, end, map.value_bytes)?;
        let name = identifier(&format!("{}_value", map.name));
        Ok(self.composite(&name, map.value_bytes, &members)?)
    }

    fn pad(&mut self, members: &mut Vec<(String, TypeId, u32)>, from: u32, to: u32) -> Result<(), BtfError> {
        if from < to {
            let of = self.bytes(to - from)?;
            members.push((format!("pad_{from}"), of, from));
        }
        Ok(())
    }

    /// The variable of a whole data section.
    pub(super) fn data_variable(&mut self, name: &str, size_bytes: u32, shared: bool) -> Result<TypeId, BtfError> {
        let of = self.bytes(size_bytes)?;
        let name = self.string(name)?;
        let linkage = if shared { Linkage::Global } else { Linkage::Static };
        Ok(self.builder.add(Type::Var { name, of, linkage }))
    }

    /// A section with its variables: id, offset, length.
    pub(super) fn data_section(&mut self, name: &str, vars: &[(TypeId, u32, u32)]) -> Result<(), BtfError> {
        let name = self.string(name)?;
        let size_bytes = vars.iter().map(|(_, offset, size)| offset + size).max().unwrap_or(0);
        let vars = vars.iter().map(|&(var, offset_bytes, size_bytes)| SecVar { var, offset_bytes, size_bytes });
        self.builder.add(Type::DataSec { name, size_bytes, vars: vars.collect() });
        Ok(())
    }
}
