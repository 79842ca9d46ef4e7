// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A function in the kernel, which runs it on many packets in one call.
#![allow(unsafe_code, reason = "a library in C")]

use std::ffi::{CStr, CString, c_char, c_int, c_long, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libloading::{Library, Symbol};

use crate::error::BenchError;
use crate::tool;

/// The packets of a call: as long as signals are not waited for.
const REPEAT: u32 = 1 << 17;

/// Test runs of the kernel, ready for functions.
pub(crate) struct Kernel {
    library: Library,
    driver: PathBuf,
}

/// What the driver calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Empty = 0,
    Function = 1,
}

/// The flows of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flows {
    InOrder = 0,
    /// Each once, from the first one.
    InTurn = 1,
}

/// A function that is loaded.
pub(crate) struct TestRuns<'a> {
    kernel: &'a Kernel,
    peer: *mut c_void,
}

type Open = unsafe extern "C" fn(*const c_char, *const c_char, u32, *const u64, u32) -> *mut c_void;
type Run = unsafe extern "C" fn(*mut c_void, u32, u32, *const u8, u32, u32, *mut u32) -> c_int;

fn c_string(path: &Path) -> Result<CString, BenchError> {
    let wrong = |_| BenchError::Wrong { what: format!("`{}` has a zero byte", path.display()) };
    CString::new(path.as_os_str().as_bytes()).map_err(wrong)
}

impl Kernel {
    /// Compiles the peer in a folder.
    pub(crate) fn start(folder: &Path) -> Result<Kernel, BenchError> {
        // SAFETY: the call has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            return Err(BenchError::Peer { what: "test runs of XDP need root".to_owned() });
        }
        let source = folder.join("driver.bpf.c");
        tool::write(&source, include_str!("../peers/driver.bpf.c"))?;
        let driver = tool::object(folder, &source, "driver.bpf", &["-mcpu=v3"])?;
        let library = tool::library(folder, "test_run", include_str!("../peers/test_run.c"), &["-O2"], &["libbpf"])?;
        Ok(Kernel { library, driver })
    }

    /// # Safety
    /// `T` is the type of the function of this name.
    unsafe fn symbol<T>(&self, name: &[u8]) -> Result<Symbol<'_, T>, BenchError> {
        // SAFETY: the caller's.
        unsafe { self.library.get(name) }.map_err(|error| BenchError::Peer { what: error.to_string() })
    }

    /// Loads a function; `order` has a power of 2 of flows, which test runs repeat.
    pub(crate) fn load(&self, object: &Path, entries: u32, order: &[u64]) -> Result<TestRuns<'_>, BenchError> {
        let (driver, function) = (c_string(&self.driver)?, c_string(object)?);
        // SAFETY: the signatures are those of the C source, which copies the order; texts end with a zero.
        unsafe {
            let open: Symbol<'_, Open> = self.symbol(b"peer_open")?;
            let peer = open(driver.as_ptr(), function.as_ptr(), entries, order.as_ptr(), order.len() as u32);
            if peer.is_null() {
                let message: Symbol<'_, unsafe extern "C" fn() -> *const c_char> = self.symbol(b"peer_message")?;
                let what = CStr::from_ptr(message()).to_string_lossy().trim().to_owned();
                return Err(BenchError::Peer { what });
            }
            Ok(TestRuns { kernel: self, peer })
        }
    }
}

impl TestRuns<'_> {
    /// Runs packets; returns the kernel's time of all, and the last verdict.
    pub(crate) fn run(
        &self,
        target: Target,
        flows: Flows,
        packet: &[u8],
        packets: u32,
    ) -> Result<(Duration, u32), BenchError> {
        let (mut ns, mut left, mut verdict) = (0, packets, 0);
        while left > 0 {
            // Flows in turn begin with each call.
            let repeat = if flows == Flows::InTurn { left } else { left.min(REPEAT) };
            // SAFETY: the signature is that of the C source; packet and verdict live during the call.
            let mean_ns = unsafe {
                let run: Symbol<'_, Run> = self.kernel.symbol(b"peer_run")?;
                run(
                    self.peer,
                    target as u32,
                    flows as u32,
                    packet.as_ptr(),
                    packet.len() as u32,
                    repeat,
                    &raw mut verdict,
                )
            };
            let mean_ns = u64::try_from(mean_ns).map_err(|_| BenchError::Peer {
                what: format!("test run: {}", std::io::Error::from_raw_os_error(-mean_ns)),
            })?;
            ns += mean_ns * u64::from(repeat);
            left -= repeat;
        }
        Ok((Duration::from_nanos(ns), verdict))
    }

    /// The entries of the function's table.
    pub(crate) fn entries(&self) -> Result<u64, BenchError> {
        // SAFETY: the signature is that of the C source.
        let entries = unsafe {
            let entries: Symbol<'_, unsafe extern "C" fn(*mut c_void) -> c_long> =
                self.kernel.symbol(b"peer_entries")?;
            entries(self.peer)
        };
        u64::try_from(entries).map_err(|_| BenchError::Peer {
            what: format!("count entries: {}", std::io::Error::from_raw_os_error(-entries as i32)),
        })
    }
}

impl Drop for TestRuns<'_> {
    fn drop(&mut self) {
        // SAFETY: the signature is that of the C source; the peer was made there and is not used again.
        unsafe {
            if let Ok(close) = self.kernel.symbol::<unsafe extern "C" fn(*mut c_void)>(b"peer_close") {
                close(self.peer);
            }
        }
    }
}
