// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hand-written C as an engine in user space: the same source that clang compiles for the kernel, compiled by gcc for
//! this processor, with hash tables in C.
#![allow(unsafe_code, reason = "a library in C")]

use std::borrow::BorrowMut;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use flowloom_engine::{EngineError, Fate, Frame, InPlace, Output, Port, Ports};
use flowloom_isa::Program;
use libloading::Library;

use crate::error::LabError;

/// The headers that replace those of eBPF, and the loop over a batch.
const SOURCES: [(&str, &str); 4] = [
    ("linux/bpf.h", include_str!("../peers/user/linux/bpf.h")),
    ("bpf/bpf_helpers.h", include_str!("../peers/user/bpf/bpf_helpers.h")),
    ("bpf/bpf_endian.h", include_str!("../peers/user/bpf/bpf_endian.h")),
    ("run.c", include_str!("../peers/user/run.c")),
];

/// A packet of a batch, as `struct user_packet` in `bpf_helpers.h`.
#[repr(C)]
struct NativePacket {
    data: *mut u8,
    end: *mut u8,
    time_ns: u64,
    port: u32,
    verdict: u32,
    target: u32,
}

type Run = unsafe extern "C" fn(*mut NativePacket, usize);

/// A folder that is removed with all it holds.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

fn folder() -> std::io::Result<Folder> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("flowloom-native-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let folder = std::env::temp_dir().join(name);
    // Not `create_dir_all`: a folder of this name is another user's.
    std::fs::create_dir(&folder)?;
    let folder = Folder(folder);
    for (name, text) in SOURCES {
        let path = folder.0.join(name);
        path.parent().map_or(Ok(()), std::fs::create_dir_all)?;
        std::fs::write(path, text)?;
    }
    Ok(folder)
}

/// A function in C. Each instance has a state of its own.
#[derive(Debug)]
pub struct Native {
    name: String,
    run: Run,
    packets: Vec<NativePacket>,
    // Unloaded last.
    _library: Library,
}

impl std::fmt::Debug for NativePacket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NativePacket").field("port", &self.port).finish_non_exhaustive()
    }
}

impl Native {
    /// Compiles a `.bpf.c`, whose function has the name of the file, with `params` as macros.
    ///
    /// # Errors
    /// There is no gcc, or the file cannot be compiled.
    pub fn compile(source: &Path, params: &[(String, String)]) -> Result<Native, LabError> {
        let file = source.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        let name = file.trim_end_matches(".bpf.c").to_owned();
        let failed = |what: String| LabError::Native { name: name.clone(), what };
        let source =
            source.canonicalize().map_err(|e| failed(format!("`{}` cannot be read: {e}", source.display())))?;
        let folder = folder().map_err(|e| failed(format!("a temporary folder cannot be made: {e}")))?;
        let library = folder.0.join("function.so");
        let mut gcc = Command::new("gcc");
        gcc.args(["-O2", "-march=native", "-shared", "-fPIC", "-fno-strict-aliasing", "-w"]);
        gcc.arg("-I").arg(&folder.0).arg(format!("-DSOURCE=\"{}\"", source.display())).arg(format!("-DENTRY={name}"));
        gcc.args(params.iter().map(|(name, value)| format!("-D{name}={value}")));
        gcc.arg("-o").arg(&library).arg(folder.0.join("run.c"));
        let output = gcc.output().map_err(|source| LabError::Tool { tool: "gcc", package: "gcc libc6-dev", source })?;
        if !output.status.success() {
            return Err(failed(format!("gcc: {}", String::from_utf8_lossy(&output.stderr).trim())));
        }
        // SAFETY: the code has no initialisers.
        let library = unsafe { Library::new(&library) }.map_err(|e| failed(e.to_string()))?;
        // SAFETY: the signature is that of run.c; the library lives as long as the pointer.
        let run = *unsafe { library.get::<Run>(b"user_run") }.map_err(|e| failed(e.to_string()))?;
        Ok(Native { name, run, packets: Vec::new(), _library: library })
    }
}

impl Drop for Native {
    fn drop(&mut self) {
        // SAFETY: the signature is that of the C source; no packet is running.
        unsafe {
            if let Ok(free) = self._library.get::<unsafe extern "C" fn()>(b"user_free_tables") {
                free();
            }
        }
    }
}

// SAFETY: the state of the C is in static variables of a library of its own, loaded for this instance alone, and none
// is local to a thread (`peers/user`); all calls have `&mut self`. The addresses of packets are used during a run
// alone.
unsafe impl Send for Native {}

impl Native {
    /// Runs packets, whose frames need not lie side by side.
    pub(crate) fn run_each<'b, F: BorrowMut<Frame<'b>>>(&mut self, frames: &mut [F]) {
        self.packets.clear();
        self.packets.extend(frames.iter_mut().map(|frame| {
            let frame: &mut Frame<'b> = frame.borrow_mut();
            let (time_ns, port) = (frame.time_ns, frame.port.0);
            let range = frame.bytes_mut().as_mut_ptr_range();
            NativePacket { data: range.start, end: range.end, time_ns, port, verdict: 0, target: 0 }
        }));
        // SAFETY: the packets lie in the frames, which are borrowed mutably; the function checks their ends.
        unsafe { (self.run)(self.packets.as_mut_ptr(), self.packets.len()) };
        for (frame, packet) in frames.iter_mut().zip(&self.packets) {
            frame.borrow_mut().fate = match packet.verdict {
                1 => Fate::Drop,
                2 => Fate::Pass,
                3 => Fate::Tx,
                4 => Fate::Redirect(Port(packet.target)),
                _ => Fate::Aborted,
            };
        }
    }
}

impl InPlace for Native {
    fn name(&self) -> &str {
        &self.name
    }

    fn bind_ports(&mut self, _: &Ports) {}

    fn run(&mut self, frames: &mut [Frame<'_>], _: &mut Vec<(usize, Output)>) -> Result<(), EngineError> {
        self.run_each(frames);
        Ok(())
    }

    fn sweep(&mut self, _: u64) -> Result<(), EngineError> {
        // Entries that have expired are replaced by the packets that find them, as in the kernel.
        Ok(())
    }
}

/// Redirects each packet of port 1 to port 2 and of port 2 to port 1, and touches no header.
#[derive(Debug, Clone, Copy, Default)]
pub struct Forward;

impl Forward {
    pub(crate) fn forward(frame: &mut Frame<'_>) {
        frame.fate = Fate::Redirect(Port(3 - frame.port.0.min(2)));
    }
}

impl InPlace for Forward {
    fn name(&self) -> &str {
        "forward"
    }

    fn bind_ports(&mut self, _: &Ports) {}

    fn run(&mut self, frames: &mut [Frame<'_>], _: &mut Vec<(usize, Output)>) -> Result<(), EngineError> {
        frames.iter_mut().for_each(Forward::forward);
        Ok(())
    }

    fn sweep(&mut self, _: u64) -> Result<(), EngineError> {
        Ok(())
    }
}

/// The program of [`Forward`], for the kernel.
///
/// # Errors
/// None but for a fault of its source.
pub fn forwarder() -> Result<Program, LabError> {
    let text = include_str!("../peers/forward.bpf");
    flowloom_isa::asm::program("forward.bpf", text).map_err(|e| LabError::Engine(e.to_string()))
}
