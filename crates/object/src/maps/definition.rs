// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One definition of `.maps`: `struct { __uint(type, …); __type(key, …); … } NAME SEC(".maps")`.

use super::entries::complete;
use super::special::Finder;
use crate::bytes_of;
use crate::error::ReadFault;
use flowloom_isa::btf::{Btf, Composite, Type, TypeId};
use flowloom_isa::{MapDef, MapKind};

/// The most fields of a map definition; libbpf's conventions have twelve.
const MAX_FIELDS: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Definition {
    pub(super) def: MapDef,
    /// The offset in the variable of the initial entries of a map of maps or programs.
    pub(super) values_offset: Option<u64>,
    /// The fields of each value that the kernel treats specially, besides the lock: name and offset.
    pub(super) fields: Vec<(String, u32)>,
    /// Requests to the loader, in words.
    pub(super) notes: Vec<String>,
}

/// Parses the definition of map `map`, whose variable has type `of`.
pub(super) fn read(btf: &Btf, map: &str, of: TypeId, finder: &mut Finder) -> Result<Definition, ReadFault> {
    let fields = structure(btf, map, of)?;
    let mut reader = Reader::new(btf, map, finder);
    for member in &fields.members {
        let name = btf.name(member.name)?;
        if name == "values" {
            reader.out.values_offset = Some(u64::from(member.offset_bits / 8));
            reader.values(member.of)?;
        } else {
            reader.field(name, member.of)?;
        }
    }
    reader.finish()
}

fn fault(map: &str, what: &str, why: &str) -> ReadFault {
    ReadFault::Definition { map: map.to_owned(), what: what.to_owned(), why: why.to_owned() }
}

fn structure<'b>(btf: &'b Btf, map: &str, of: TypeId) -> Result<&'b Composite, ReadFault> {
    let Some(Type::Struct(fields)) = btf.get(btf.resolve(of)?) else {
        return Err(fault(map, "its type", "it is not a struct"));
    };
    if fields.members.len() > MAX_FIELDS {
        return Err(fault(map, "its type", "it has more than 64 fields"));
    }
    Ok(fields)
}

struct Reader<'b> {
    btf: &'b Btf,
    map: &'b str,
    finder: &'b mut Finder,
    out: Definition,
    kind: Option<MapKind>,
    key: Size,
    value: Size,
}

impl<'b> Reader<'b> {
    fn new(btf: &'b Btf, map: &'b str, finder: &'b mut Finder) -> Reader<'b> {
        let (key, value) = (Size::default(), Size::default());
        Reader { btf, map, finder, out: Definition::default(), kind: None, key, value }
    }
}

impl Reader<'_> {
    fn fail(&self, what: &str, why: &str) -> ReadFault {
        fault(self.map, what, why)
    }

    /// The number encoded by `__uint` (a pointer to an array) or `__ulong` (an enumeration of one).
    fn number(&self, name: &str, of: TypeId) -> Result<u64, ReadFault> {
        let wrong = || self.fail(name, "it is not a pointer to an array, as `__uint` makes");
        match self.btf.get(self.btf.resolve(of)?) {
            Some(Type::Ptr(target)) => match self.btf.get(self.btf.resolve(*target)?) {
                Some(Type::Array { count, .. }) => Ok((*count).into()),
                _ => Err(wrong()),
            },
            Some(Type::Enum { values, .. }) => {
                values.first().map(|(_, value)| u64::from(*value as u32)).ok_or_else(wrong)
            }
            Some(Type::Enum64 { values, .. }) => values.first().map(|(_, value)| *value).ok_or_else(wrong),
            _ => Err(wrong()),
        }
    }

    fn word(&self, name: &str, of: TypeId) -> Result<u32, ReadFault> {
        let number = self.number(name, of)?;
        u32::try_from(number).map_err(|_| self.fail(name, "it is 2^32 or more"))
    }

    /// The pointee of the pointer that `__type` makes.
    fn target(&self, name: &str, of: TypeId) -> Result<TypeId, ReadFault> {
        match self.btf.get(self.btf.resolve(of)?) {
            Some(Type::Ptr(target)) => Ok(*target),
            _ => Err(self.fail(name, "it is not a pointer, as `__uint` and `__type` make")),
        }
    }

    fn field(&mut self, name: &str, of: TypeId) -> Result<(), ReadFault> {
        match name {
            "type" => self.kind = Some(MapKind::from_number(self.word(name, of)?)),
            "max_entries" => self.out.def.max_entries = self.word(name, of)?,
            "map_flags" => self.out.def.flags = self.word(name, of)?,
            "key_size" => self.key.set(self.map, name, self.word(name, of)?)?,
            "value_size" => self.value.set(self.map, name, self.word(name, of)?)?,
            "key" => {
                let target = self.target(name, of)?;
                self.key.set(self.map, name, self.btf.size_bytes(target)?)?;
            }
            "value" => {
                let target = self.target(name, of)?;
                self.value.set(self.map, name, self.btf.size_bytes(target)?)?;
                let found = self.finder.fields(self.btf, target)?;
                self.out.def.spin_lock = found.spin_lock;
                self.out.fields.clone_from(&found.others);
            }
            "pinning" => match self.word(name, of)? {
                0 => {}
                1 => self.note("being pinned by its name"),
                other => self.note(&format!("a kind of pinning of number {other}")),
            },
            "numa_node" => match self.word(name, of)? {
                0 => {}
                node => self.note(&format!("memory of NUMA node {node}")),
            },
            "map_extra" => match self.number(name, of)? {
                0 => {}
                extra => self.note(&format!("`map_extra` {extra:#x}")),
            },
            _ => {
                let place = format!("the definition of map `{}`", self.map);
                return Err(ReadFault::Unsupported { what: format!("field `{name}`"), place });
            }
        }
        Ok(())
    }

    fn note(&mut self, what: &str) {
        self.out.notes.push(format!("map `{}` asks for {what}, which is left to the loader", self.map));
    }

    /// `__array(values, …)`: the template of a map of maps, or a map of programs.
    fn values(&mut self, of: TypeId) -> Result<(), ReadFault> {
        let wrong = || self.fail("values", "it is not an array of pointers, as `__array` makes");
        let Some(Type::Array { element, .. }) = self.btf.get(self.btf.resolve(of)?) else { return Err(wrong()) };
        let Some(Type::Ptr(target)) = self.btf.get(self.btf.resolve(*element)?) else { return Err(wrong()) };
        // The kernel's values are 4 bytes, whatever they stand for.
        self.value.set(self.map, "values", 4)?;
        if !matches!(self.btf.get(self.btf.resolve(*target)?), Some(Type::Struct(_))) {
            return Ok(());
        }
        let name = format!("{}.inner", self.map);
        let fields = structure(self.btf, &name, *target)?;
        let mut reader = Reader::new(self.btf, &name, self.finder);
        for member in &fields.members {
            match self.btf.name(member.name)? {
                "values" => return Err(reader.fail("values", "a map of maps cannot hold maps of maps")),
                field => reader.field(field, member.of)?,
            }
        }
        let inner = reader.finish()?;
        self.out.notes.extend(inner.notes);
        self.out.fields.extend(inner.fields);
        self.out.def.inner = Some(Box::new(inner.def));
        Ok(())
    }

    fn finish(self) -> Result<Definition, ReadFault> {
        let mut out = self.out;
        out.def.kind = self.kind.ok_or_else(|| fault(self.map, "type", "it is missing"))?;
        out.def.name = self.map.to_owned();
        out.def.key_bytes = self.key.bytes.unwrap_or(0);
        out.def.value_bytes = self.value.bytes.unwrap_or(0);
        out.notes.extend(complete(&mut out.def));
        Ok(out)
    }
}

/// A size that may be given twice, if both agree.
#[derive(Default)]
struct Size {
    bytes: Option<u32>,
}

impl Size {
    fn set(&mut self, map: &str, what: &str, bytes: u32) -> Result<(), ReadFault> {
        match self.bytes.replace(bytes) {
            Some(before) if before != bytes => {
                Err(fault(map, what, &format!("its size is {} here and {} before", bytes_of(bytes), bytes_of(before))))
            }
            _ => Ok(()),
        }
    }
}
