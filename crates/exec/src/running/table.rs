// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A map of the kernel, as accessed from another process.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use flowloom_context::LayoutField;
use flowloom_engine::MapState;
use flowloom_isa::MapKind;
use flowloom_isa::btf::{Btf, Type, TypeId};

use super::RunningError;
use crate::sys::RawMap;
use crate::sys::object::{self, Kind, MapInfo};

/// The supported kinds, by the kernel's numbers: hash, array, LRU hash, LPM trie, device map, device hash map.
const KINDS: [u32; 6] = [1, 2, 9, 11, 14, 25];

/// The condition of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UpdateMode {
    /// Unconditionally.
    #[default]
    Any,
    /// Only if the key is new.
    NoExist,
    /// Only if the key exists.
    Exist,
}

/// A map of the kernel.
#[derive(Debug)]
pub struct Table {
    info: MapInfo,
    name: String,
    raw: RawMap,
}

impl Table {
    /// Opens the map with this id; `None` if it no longer exists.
    ///
    /// # Errors
    /// Missing privileges.
    pub fn open(id: u32) -> Result<Option<Table>, RunningError> {
        let fd = object::open(Kind::Map, id).map_err(|e| RunningError::new(format!("open map {id}"), e))?;
        fd.map(Table::of).transpose()
    }

    /// Opens the map with this id.
    ///
    /// # Errors
    /// There is none, or missing privileges.
    pub fn by_id(id: u32) -> Result<Table, RunningError> {
        Table::open(id)?.ok_or(RunningError::NoMap { id })
    }

    /// Opens the map that is pinned at `path`.
    ///
    /// # Errors
    /// There is none, or missing privileges.
    pub fn pinned(path: &Path) -> Result<Table, RunningError> {
        let fd = object::open_pinned(path);
        Table::of(fd.map_err(|e| RunningError::new(format!("open the object pinned at `{}`", path.display()), e))?)
    }

    /// Opens all maps called `name`.
    ///
    /// # Errors
    /// Missing privileges.
    pub fn by_name(name: &str) -> Result<Vec<Table>, RunningError> {
        let ids = object::ids(Kind::Map).map_err(|e| RunningError::new("list maps", e))?;
        let mut found = Vec::new();
        for id in ids {
            found.extend(Table::open(id)?.filter(|table| table.name() == name));
        }
        Ok(found)
    }

    fn of(fd: OwnedFd) -> Result<Table, RunningError> {
        let (info, name) = object::map(fd.as_fd()).map_err(|e| RunningError::new("inspect a map", e))?;
        // Kinds without keys are refused when they are accessed; until then they have a name.
        let (key_bytes, value_bytes) = (info.key_bytes.max(1), info.value_bytes.max(1));
        let raw = RawMap::new(fd, key_bytes, value_bytes).map_err(|e| RunningError::new("use a map", e))?;
        Ok(Table { info, name, raw })
    }

    /// The id.
    pub fn id(&self) -> u32 {
        self.info.id
    }

    /// The name, truncated by the kernel to 15 bytes.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The kind, if supported.
    pub fn kind(&self) -> Option<MapKind> {
        Some(MapKind::from_number(self.info.kind)).filter(|kind| kind.is_known())
    }

    /// The key size in bytes.
    pub fn key_bytes(&self) -> usize {
        self.info.key_bytes as usize
    }

    /// The value size in bytes.
    pub fn value_bytes(&self) -> usize {
        self.info.value_bytes as usize
    }

    /// The capacity in entries.
    pub fn max_entries(&self) -> u32 {
        self.info.max_entries
    }

    /// The integer fields of its values, according to its types.
    pub fn fields(&self) -> Vec<LayoutField> {
        self.fields_from_types().unwrap_or_default()
    }

    fn fields_from_types(&self) -> Option<Vec<LayoutField>> {
        let id = (self.info.btf != 0).then_some(self.info.btf)?;
        let fd = object::open(Kind::Btf, id).ok()??;
        let btf = Btf::parse(&object::btf(fd.as_fd()).ok()?).ok()?;
        let value = btf.resolve(TypeId(self.info.value_type)).ok()?;
        let Type::Struct(record) = btf.get(value)? else { return None };
        let mut fields = Vec::new();
        for member in &record.members {
            let of = btf.resolve(member.of).ok()?;
            let Some(Type::Int { size_bytes, encoding, .. }) = btf.get(of) else { continue };
            let name = btf.name(member.name).ok()?.to_owned();
            if member.offset_bits.is_multiple_of(8) && matches!(size_bytes, 1 | 2 | 4 | 8 | 16) {
                let offset_bytes = member.offset_bits / 8;
                fields.push(LayoutField { name, offset_bytes, size_bytes: *size_bytes, signed: encoding & 1 != 0 });
            }
        }
        Some(fields)
    }

    fn usable(&self) -> Result<(), RunningError> {
        if KINDS.contains(&self.info.kind) {
            Ok(())
        } else {
            Err(RunningError::Kind { map: self.name.clone(), kind: self.info.kind })
        }
    }

    fn fails(&self, action: &str) -> impl FnOnce(std::io::Error) -> RunningError {
        let action = format!("{action} map `{}`", self.name);
        move |source| RunningError::new(action, source)
    }

    /// The value of `key`.
    ///
    /// # Errors
    /// The map is of another kind, the key has another size, or the system call fails.
    pub fn lookup(&self, key: &[u8]) -> Result<Option<Vec<u8>>, RunningError> {
        self.usable()?;
        let mut value = vec![0; self.value_bytes()];
        let found = self.raw.lookup(key, &mut value).map_err(self.fails("read"))?;
        Ok(found.then_some(value))
    }

    /// Updates an entry; returns whether the condition held.
    ///
    /// # Errors
    /// As for [`Table::lookup`].
    pub fn update(&self, key: &[u8], value: &[u8], mode: UpdateMode) -> Result<bool, RunningError> {
        self.usable()?;
        let flags = match mode {
            UpdateMode::Any => 0,
            UpdateMode::NoExist => 1,
            UpdateMode::Exist => 2,
        };
        match self.raw.update_with(key, value, flags) {
            Ok(()) => Ok(true),
            Err(e) if mode == UpdateMode::NoExist && e.raw_os_error() == Some(libc::EEXIST) => Ok(false),
            Err(e) if mode == UpdateMode::Exist && e.raw_os_error() == Some(libc::ENOENT) => Ok(false),
            Err(e) => Err(self.fails("write")(e)),
        }
    }

    /// Deletes an entry; returns whether it existed.
    ///
    /// # Errors
    /// As for [`Table::lookup`].
    pub fn delete(&self, key: &[u8]) -> Result<bool, RunningError> {
        self.usable()?;
        self.raw.delete(key).map_err(self.fails("remove an entry of"))
    }

    /// All entries; those inserted or deleted meanwhile may be included or not.
    ///
    /// # Errors
    /// The map is of another kind, or the system call fails.
    pub fn entries(&self) -> Result<MapState, RunningError> {
        self.usable()?;
        let mut found = MapState::new();
        let mut take = |key: &[u8], value: &[u8]| drop(found.insert(key.to_vec(), value.to_vec()));
        match self.kind() {
            Some(MapKind::Hash | MapKind::Array) => self.raw.entries(&mut take),
            _ => self.raw.walk(self.info.max_entries, &mut take),
        }
        .map_err(self.fails("read"))?;
        Ok(found)
    }
}
