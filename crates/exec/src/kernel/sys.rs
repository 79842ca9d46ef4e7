//! The map commands of bpf(2), by raw bytes.
//!
//! `aya`'s typed maps want keys and values whose length the compiler knows; the maps of a network function have lengths
//! that its object declares. Every pointer handed to the kernel here is that of a slice whose length was compared with
//! the length that the kernel itself reports for the map.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

const MAP_LOOKUP_ELEM: libc::c_int = 1;
const MAP_UPDATE_ELEM: libc::c_int = 2;
const MAP_DELETE_ELEM: libc::c_int = 3;
const MAP_LOOKUP_BATCH: libc::c_int = 24;

/// Entries asked for at once.
const BATCH_ENTRIES: u32 = 1024;

/// `bpf_attr` of the commands on one entry.
#[repr(C)]
struct ElementAttr {
    map_fd: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// `bpf_attr` of the commands on many entries.
#[repr(C)]
struct BatchAttr {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// A map of the kernel, by raw bytes.
#[derive(Debug)]
pub(super) struct RawMap {
    fd: OwnedFd,
    key_bytes: usize,
    value_bytes: usize,
}

fn invalid(part: &str, found: usize, expected: usize) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{part} is {found} bytes, expected {expected}"))
}

fn element(command: libc::c_int, attr: &mut ElementAttr) -> io::Result<()> {
    // SAFETY: `attr` is a `bpf_attr` of the size given; the methods below put only addresses of live slices of the
    // map's own key and value lengths into it, the value mutable where the command writes it.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<ElementAttr>()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn batch(command: libc::c_int, attr: &mut BatchAttr) -> io::Result<()> {
    // SAFETY: `attr` is a `bpf_attr` of the size given; `RawMap::entries`, its only user, gives buffers of `count` keys
    // and values of the map's lengths and cursors of at least a key's and four bytes, all live and mutable.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(attr), size_of::<BatchAttr>()) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl RawMap {
    /// Takes over `fd`, whose lengths the kernel says are these.
    ///
    /// # Errors
    /// A length is 0.
    pub(super) fn new(fd: BorrowedFd<'_>, key_bytes: u32, value_bytes: u32) -> io::Result<RawMap> {
        if key_bytes == 0 || value_bytes == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "map without keys or values"));
        }
        let fd = fd.try_clone_to_owned()?;
        Ok(RawMap { fd, key_bytes: key_bytes as usize, value_bytes: value_bytes as usize })
    }

    fn attr(&self, key: &[u8], value: u64) -> io::Result<ElementAttr> {
        if key.len() != self.key_bytes {
            return Err(invalid("key", key.len(), self.key_bytes));
        }
        let map_fd = self.fd.as_raw_fd() as u32;
        Ok(ElementAttr { map_fd, padding: 0, key: key.as_ptr() as u64, value, flags: 0 })
    }

    /// Reads the value of `key` into `value`; whether there is one.
    pub(super) fn lookup(&self, key: &[u8], value: &mut [u8]) -> io::Result<bool> {
        if value.len() != self.value_bytes {
            return Err(invalid("value", value.len(), self.value_bytes));
        }
        let mut attr = self.attr(key, value.as_mut_ptr() as u64)?;
        match element(MAP_LOOKUP_ELEM, &mut attr) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Sets the value of `key`, making the entry if need be.
    pub(super) fn update(&self, key: &[u8], value: &[u8]) -> io::Result<()> {
        if value.len() != self.value_bytes {
            return Err(invalid("value", value.len(), self.value_bytes));
        }
        let mut attr = self.attr(key, value.as_ptr() as u64)?;
        element(MAP_UPDATE_ELEM, &mut attr)
    }

    /// Removes `key`; whether it was there.
    pub(super) fn delete(&self, key: &[u8]) -> io::Result<bool> {
        let mut attr = self.attr(key, 0)?;
        match element(MAP_DELETE_ELEM, &mut attr) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Calls `each` with every key and value.
    pub(super) fn entries(&self, mut each: impl FnMut(&[u8], &[u8])) -> io::Result<()> {
        let mut capacity = BATCH_ENTRIES;
        let cursor_bytes = self.key_bytes.max(4);
        let (mut cursor, mut next) = (vec![0; cursor_bytes], vec![0; cursor_bytes]);
        let mut keys = vec![0; capacity as usize * self.key_bytes];
        let mut values = vec![0; capacity as usize * self.value_bytes];
        let mut started = false;
        loop {
            let mut attr = BatchAttr {
                in_batch: if started { cursor.as_mut_ptr() as u64 } else { 0 },
                out_batch: next.as_mut_ptr() as u64,
                keys: keys.as_mut_ptr() as u64,
                values: values.as_mut_ptr() as u64,
                count: capacity,
                map_fd: self.fd.as_raw_fd() as u32,
                elem_flags: 0,
                flags: 0,
            };
            let last = match batch(MAP_LOOKUP_BATCH, &mut attr) {
                Ok(()) => false,
                Err(error) if error.kind() == io::ErrorKind::NotFound => true,
                // A hash map hands out whole buckets: this one does not fit, so ask again with more room.
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
