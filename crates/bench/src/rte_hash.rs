// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hash table of DPDK, compiled when the benchmark runs and loaded as a library.
#![allow(unsafe_code, reason = "a library in C")]

use std::ffi::{c_int, c_void};
use std::path::Path;

use libloading::Library;

use crate::error::BenchError;
use crate::tables::KEY_BYTES;
use crate::tool;

type Keys = *const [u8; KEY_BYTES];

/// DPDK, started.
pub(crate) struct Dpdk {
    library: Library,
}

/// A table.
pub(crate) struct RteHash<'a> {
    dpdk: &'a Dpdk,
    table: *mut c_void,
}

impl Dpdk {
    /// Compiles the peer for this processor in a folder, and starts DPDK with this much memory for tables.
    pub(crate) fn start(folder: &Path, heap_bytes: u64) -> Result<Dpdk, BenchError> {
        let options = ["-O3", "-march=native"];
        let library = tool::library(folder, "rte_hash", include_str!("../peers/rte_hash.c"), &options, &["libdpdk"])?;
        let dpdk = Dpdk { library };
        // SAFETY: the signature is that of the C source.
        let started = unsafe {
            let start: libloading::Symbol<'_, unsafe extern "C" fn(u64) -> c_int> = dpdk.symbol(b"peer_start")?;
            start(heap_bytes)
        };
        if started < 0 {
            return Err(BenchError::Peer { what: format!("DPDK cannot be started with {heap_bytes} bytes of memory") });
        }
        Ok(dpdk)
    }

    /// # Safety
    /// `T` is the type of the function of this name.
    unsafe fn symbol<T>(&self, name: &[u8]) -> Result<libloading::Symbol<'_, T>, BenchError> {
        // SAFETY: the caller's.
        unsafe { self.library.get(name) }.map_err(|error| BenchError::Peer { what: error.to_string() })
    }

    /// The bytes that it has allocated.
    pub(crate) fn bytes(&self) -> Result<u64, BenchError> {
        // SAFETY: the signature is that of the C source.
        unsafe {
            let bytes: libloading::Symbol<'_, unsafe extern "C" fn() -> u64> = self.symbol(b"peer_bytes")?;
            Ok(bytes())
        }
    }

    /// A table of this capacity.
    pub(crate) fn table(&self, entries: u32) -> Result<RteHash<'_>, BenchError> {
        // SAFETY: the signature is that of the C source.
        let table = unsafe {
            let new: libloading::Symbol<'_, unsafe extern "C" fn(u32) -> *mut c_void> = self.symbol(b"peer_new")?;
            new(entries)
        };
        if table.is_null() {
            return Err(BenchError::Peer { what: format!("rte_hash has no memory for {entries} entries") });
        }
        Ok(RteHash { dpdk: self, table })
    }
}

impl RteHash<'_> {
    fn call(&self, name: &[u8], keys: &[[u8; KEY_BYTES]]) -> Result<u64, BenchError> {
        // SAFETY: the functions that are called so have this signature; they read `keys.len()` keys.
        unsafe {
            let function: libloading::Symbol<'_, unsafe extern "C" fn(*mut c_void, Keys, u64) -> u64> =
                self.dpdk.symbol(name)?;
            Ok(function(self.table, keys.as_ptr(), keys.len() as u64))
        }
    }

    /// Adds keys; returns the number of those without room.
    pub(crate) fn add(&mut self, keys: &[[u8; KEY_BYTES]]) -> Result<u64, BenchError> {
        self.call(b"peer_add", keys)
    }

    /// Removes all keys.
    pub(crate) fn clear(&mut self) -> Result<(), BenchError> {
        // SAFETY: the signature is that of the C source.
        unsafe {
            let clear: libloading::Symbol<'_, unsafe extern "C" fn(*mut c_void)> = self.dpdk.symbol(b"peer_clear")?;
            clear(self.table);
        }
        Ok(())
    }

    /// Counts keys one by one; returns the number of absent ones.
    pub(crate) fn count(&mut self, keys: &[[u8; KEY_BYTES]]) -> Result<u64, BenchError> {
        self.call(b"peer_lookup", keys)
    }

    /// Counts keys in bulks of 32.
    pub(crate) fn count_bulk(&mut self, keys: &[[u8; KEY_BYTES]]) -> Result<u64, BenchError> {
        self.call(b"peer_lookup_bulk_32", keys)
    }

    /// Counts keys in bulks of 64.
    pub(crate) fn count_large_bulk(&mut self, keys: &[[u8; KEY_BYTES]]) -> Result<u64, BenchError> {
        self.call(b"peer_lookup_bulk_64", keys)
    }
}

impl Drop for RteHash<'_> {
    fn drop(&mut self) {
        // SAFETY: the signature is that of the C source; the table was made there and is not used again.
        unsafe {
            if let Ok(free) = self.dpdk.symbol::<unsafe extern "C" fn(*mut c_void)>(b"peer_free") {
                free(self.table);
            }
        }
    }
}
