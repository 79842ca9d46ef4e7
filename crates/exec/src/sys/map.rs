// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The map commands of bpf(2), on raw bytes.
//!
//! Every pointer passed to the kernel here is that of a slice whose size was compared with the size with which the map
//! was created, or that the kernel reports for it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use flowloom_isa::btf::TypeId;
use flowloom_isa::{BPF_F_MMAPABLE, MapDef, MapKind};

use super::memory::{Memory, page_bytes};
use super::{bpf, cpu, object_name};

const BATCH_ENTRIES: u32 = 1024;

/// A map of the kernel, as raw bytes.
#[derive(Debug)]
pub(crate) struct RawMap {
    fd: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
    /// The size of all values in a memory mapping of the map, if it can be mapped.
    mapped_bytes: Option<usize>,
}

fn invalid(part: &str, found: usize, expected: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{part} has a length of {found} in bytes, expected {expected}"))
}

impl RawMap {
    /// Creates a map; `inner` is the template of a map of maps.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn create(
        def: &MapDef,
        btf: BorrowedFd<'_>,
        types: Option<(TypeId, TypeId)>,
        inner: Option<&RawMap>,
    ) -> io::Result<RawMap> {
        RawMap::create_with(def, types.map(|(key, value)| (btf, key, value)), inner)
    }

    /// Creates a map without types.
    ///
    /// # Errors
    /// As for [`RawMap::create`].
    pub(crate) fn create_untyped(def: &MapDef) -> io::Result<RawMap> {
        RawMap::create_with(def, None, None)
    }

    fn create_with(
        def: &MapDef,
        types: Option<(BorrowedFd<'_>, TypeId, TypeId)>,
        inner: Option<&RawMap>,
    ) -> io::Result<RawMap> {
        let mut value_bytes = def.value_bytes as usize;
        if def.kind.is_per_cpu() {
            value_bytes = value_bytes.next_multiple_of(8) * cpu::possible()? as usize;
        }
        let mut attr = bpf::MapCreate {
            kind: def.kind.number(),
            key_bytes: def.key_bytes,
            value_bytes: def.value_bytes,
            max_entries: def.max_entries,
            flags: def.flags,
            inner_fd: inner.map_or(0, |map| map.number() as u32),
            name: object_name(&def.name),
            ..bpf::MapCreate::default()
        };
        if let Some((btf, key, value)) = types {
            (attr.btf_fd, attr.key_type, attr.value_type) = (btf.as_raw_fd() as u32, key.0, value.0);
        }
        // SAFETY: the attributes contain no addresses.
        let fd = unsafe { bpf::open(bpf::MAP_CREATE, &mut attr)? };
        let is_mapped = def.kind == MapKind::Array && def.flags & BPF_F_MMAPABLE != 0;
        let entry_bytes = value_bytes.next_multiple_of(8);
        let mapped_bytes = entry_bytes.checked_mul(def.max_entries as usize).filter(|_| is_mapped);
        Ok(RawMap { fd, key_bytes: def.key_bytes as usize, value_bytes, mapped_bytes })
    }

    /// Takes over `fd`, with the sizes reported by the kernel; not for per-CPU maps.
    ///
    /// # Errors
    /// A size is 0.
    pub(crate) fn new(fd: OwnedFd, key_bytes: u32, value_bytes: u32) -> io::Result<RawMap> {
        if key_bytes == 0 || value_bytes == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "map without keys or values"));
        }
        Ok(RawMap { fd, key_bytes: key_bytes as usize, value_bytes: value_bytes as usize, mapped_bytes: None })
    }

    /// The size of a value when read or written: for per-CPU maps, that of the values of all CPUs, each rounded up to
    /// eight bytes.
    pub(crate) fn value_bytes(&self) -> usize {
        self.value_bytes
    }

    /// Maps `bytes` bytes of it into memory, from `offset` on.
    pub(crate) fn memory(&self, offset: usize, bytes: usize, writable: bool) -> io::Result<Memory> {
        Memory::map(self.fd.as_fd(), offset, bytes, writable)
    }

    /// Puts a file descriptor under `key`: of a map or a program, into a map of such.
    pub(crate) fn store_fd(&self, key: &[u8], fd: i32) -> io::Result<()> {
        self.update(key, &fd.to_ne_bytes())
    }

    /// The file descriptor number in instructions while they are loaded.
    pub(crate) fn number(&self) -> i32 {
        self.fd.as_raw_fd()
    }

    fn attr(&self, key: &[u8], value: u64) -> io::Result<bpf::Element> {
        if key.len() != self.key_bytes {
            return Err(invalid("key", key.len(), self.key_bytes));
        }
        let map_fd = self.fd.as_raw_fd() as u32;
        Ok(bpf::Element { map_fd, key: key.as_ptr() as u64, value, ..bpf::Element::default() })
    }

    /// Reads the value of `key` into `value`; returns whether there is one.
    pub(crate) fn lookup(&self, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
        if value.len() != self.value_bytes {
            return Err(invalid("value", value.len(), self.value_bytes));
        }
        let mut attr = self.attr(key, value.as_mut_ptr() as u64)?;
        // SAFETY: key and value have the map's sizes; the value is mutable.
        match unsafe { bpf::call(bpf::MAP_LOOKUP_ELEM, &mut attr) } {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sets the value of `key`, inserting the entry if necessary.
    pub(crate) fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        self.update_with(key, value, 0)
    }

    /// Updates the value of `key` with `BPF_*` flags.
    pub(crate) fn update_with(&self, key: &[u8], value: &[u8], flags: u64) -> io::Result<()> {
        if value.len() != self.value_bytes {
            return Err(invalid("value", value.len(), self.value_bytes));
        }
        let mut attr = bpf::Element { flags, ..self.attr(key, value.as_ptr() as u64)? };
        // SAFETY: key and value have the map's sizes.
        unsafe { bpf::call(bpf::MAP_UPDATE_ELEM, &mut attr) }.map(drop)
    }

    /// Deletes `key`; returns whether it existed.
    pub(crate) fn delete(&self, key: &[u8]) -> io::Result<bool> {
        let mut attr = self.attr(key, 0)?;
        // SAFETY: the key has the map's size; there is no value.
        match unsafe { bpf::call(bpf::MAP_DELETE_ELEM, &mut attr) } {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Makes it read-only for user space from now on.
    pub(crate) fn freeze(&self) -> io::Result<()> {
        let mut attr = bpf::Element { map_fd: self.fd.as_raw_fd() as u32, ..bpf::Element::default() };
        // SAFETY: the command only reads the descriptor in the attributes.
        unsafe { bpf::call(bpf::MAP_FREEZE, &mut attr) }.map(drop)
    }

    /// Calls `each` with every key and value, one by one: for kinds without batch commands. If an entry is deleted
    /// meanwhile the kernel restarts, so there are at most `limit` calls.
    pub(crate) fn walk(&self, limit: u32, mut each: impl FnMut(&[u8], &[u8])) -> io::Result<()> {
        let mut key: Option<Vec<u8>> = None;
        let mut value = vec![0; self.value_bytes];
        for _ in 0..limit {
            let mut next = vec![0; self.key_bytes];
            let mut attr = bpf::Element {
                map_fd: self.fd.as_raw_fd() as u32,
                key: key.as_ref().map_or(0, |key| key.as_ptr() as u64),
                value: next.as_mut_ptr() as u64,
                ..bpf::Element::default()
            };
            // SAFETY: both keys have the map's size, the next one is mutable; a null key asks for the first.
            match unsafe { bpf::call(bpf::MAP_GET_NEXT_KEY, &mut attr) } {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(error),
            }
            if self.lookup(&next, &mut value)? {
                each(&next, &value);
            }
            key = Some(next);
        }
        Ok(())
    }

    /// Calls `each` with every key and value of an array that is not all zeros.
    ///
    /// # Cost
    /// If the array can be mapped, that of reading its memory; otherwise a system call for each [`BATCH_ENTRIES`].
    pub(crate) fn nonzero(&self, mut each: impl FnMut(&[u8], &[u8])) -> io::Result<()> {
        let is_zero = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
        let page = page_bytes();
        let mapped = self.mapped_bytes.map(|bytes| (bytes, self.memory(0, bytes.next_multiple_of(page), false)));
        // Values with special fields of the kernel cannot be mapped.
        let Some((bytes, Ok(memory))) = mapped else {
            return self.entries(|key, value| {
                if !is_zero(value) {
                    each(key, value);
                }
            });
        };
        let entry_bytes = self.value_bytes.next_multiple_of(8);
        let (mut block, zeros) = (vec![0; page], vec![0; page]);
        let mut value = vec![0; self.value_bytes];
        let mut next = 0;
        for at in (0..bytes).step_by(page) {
            let block = &mut block[..page.min(bytes - at)];
            memory.read(at, block)?;
            if block == &zeros[..block.len()] {
                continue;
            }
            // All entries with bytes in the block; those that began in an earlier block have been visited.
            let (first, last) = (at / entry_bytes, (at + block.len() - 1) / entry_bytes);
            for index in first.max(next)..=last {
                memory.read(index * entry_bytes, &mut value)?;
                if !is_zero(&value) {
                    each(&(index as u32).to_ne_bytes(), &value);
                }
            }
            next = last + 1;
        }
        Ok(())
    }

    pub(crate) fn entries(&self, mut each: impl FnMut(&[u8], &[u8])) -> io::Result<()> {
        if self.key_bytes == 0 || self.value_bytes == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "map without keys or values"));
        }
        let mut capacity = BATCH_ENTRIES;
        let cursor_bytes = self.key_bytes.max(4);
        let (mut cursor, mut next) = (vec![0; cursor_bytes], vec![0; cursor_bytes]);
        let mut keys = vec![0; capacity as usize * self.key_bytes];
        let mut values = vec![0; capacity as usize * self.value_bytes];
        let mut started = false;
        loop {
            let mut attr = bpf::Batch {
                in_batch: if started { cursor.as_mut_ptr() as u64 } else { 0 },
                out_batch: next.as_mut_ptr() as u64,
                keys: keys.as_mut_ptr() as u64,
                values: values.as_mut_ptr() as u64,
                count: capacity,
                map_fd: self.fd.as_raw_fd() as u32,
                elem_flags: 0,
                flags: 0,
            };
            // SAFETY: room for `count` keys and values of the map's sizes, and cursors of at least a key's size and
            // four bytes, all live and mutable.
            let last = match unsafe { bpf::call(bpf::MAP_LOOKUP_BATCH, &mut attr) } {
                Ok(_) => false,
                Err(error) if error.kind() == io::ErrorKind::NotFound => true,
                // A hash map returns whole buckets: this one does not fit, so retry with more room.
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => {
                    capacity = capacity.checked_mul(2).ok_or(error)?;
                    keys.resize(capacity as usize * self.key_bytes, 0);
                    values.resize(capacity as usize * self.value_bytes, 0);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let found = attr.count.min(capacity) as usize;
            let pairs = keys.chunks_exact(self.key_bytes).zip(values.chunks_exact(self.value_bytes));
            pairs.take(found).for_each(|(key, value)| each(key, value));
            if last {
                return Ok(());
            }
            std::mem::swap(&mut cursor, &mut next);
            started = true;
        }
    }
}
