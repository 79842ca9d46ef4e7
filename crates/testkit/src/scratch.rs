// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Temporary directories, external tools, and a check whether the kernel permits loading programs.
#![allow(clippy::unwrap_used, clippy::new_without_default, reason = "a test that cannot write its files fails")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::skip;

/// A temporary directory, removed with its contents; a BPF file system may be mounted on `bpf` in it.
pub struct Scratch {
    path: PathBuf,
    mounted: bool,
}

impl Scratch {
    pub fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("flowloom-elf-{}-{number}", std::process::id()));
        std::fs::create_dir_all(path.join("bpf")).unwrap();
        Scratch { path, mounted: false }
    }

    /// Mounts a BPF file system if running as root with `bpftool`; otherwise prints the reason.
    pub fn with_kernel(test: &str) -> Option<Scratch> {
        let mut scratch = Scratch::new();
        match run("bpftool", &["version"]).and_then(|_| scratch.mount()) {
            Ok(()) => Some(scratch),
            Err(reason) => {
                skip(test, reason.trim());
                None
            }
        }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn mount(&mut self) -> Result<(), String> {
        let out = run("mount", &["-t", "bpf", "bpf", name(&self.path("bpf"))])?;
        self.mounted = out.status.success();
        if self.mounted { Ok(()) } else { Err(text(&out)) }
    }

    /// Loads an object with `bpftool` and pins its (first) program; returns the pin and the output.
    pub fn load(&self, object: &[u8], pin: &str) -> (PathBuf, String) {
        let object = self.put(&format!("{pin}.o"), object);
        let pin = self.path("bpf").join(pin);
        let out = run("bpftool", &["-d", "prog", "load", name(&object), name(&pin)]).unwrap();
        let log = text(&out);
        assert!(out.status.success(), "bpftool refuses the object:\n{log}");
        // Loaders continue without type information that the kernel refuses; the test does not.
        assert!(!log.contains("Error loading .BTF"), "the kernel refuses the type information:\n{log}");
        (pin, log)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.mounted {
            let _ = run("umount", &[name(&self.path("bpf"))]);
        }
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

pub fn name(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Runs a tool; `Err` if it is not installed.
pub fn run(tool: &str, args: &[&str]) -> Result<Output, String> {
    Command::new(tool).args(args).output().map_err(|e| format!("`{tool}` does not start: {e}"))
}

/// The whole output of a tool.
pub fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// Runs a tool that must succeed; returns its standard output.
pub fn output(tool: &str, args: &[&str]) -> String {
    let out = run(tool, args).unwrap();
    assert!(out.status.success(), "{tool} {args:?}:\n{}", text(&out));
    String::from_utf8(out.stdout).unwrap()
}
