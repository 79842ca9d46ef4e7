//! What we write, loaded by the kernel with other people's loaders.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use super::samples::everything;
use crate::elf::write;

/// A private directory, removed with what is in it; a BPF file system may be mounted on `bpf` below it.
pub(super) struct Scratch {
    path: PathBuf,
    mounted: bool,
}

impl Scratch {
    pub(super) fn new() -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("flowloom-elf-{}-{number}", std::process::id()));
        std::fs::create_dir_all(path.join("bpf")).unwrap();
        Scratch { path, mounted: false }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    pub(super) fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    fn mount(&mut self) -> Result<(), String> {
        let out = run("mount", &["-t", "bpf", "bpf", self.path("bpf").to_str().unwrap()])?;
        self.mounted = out.status.success();
        if self.mounted { Ok(()) } else { Err(text(&out)) }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if self.mounted {
            let _ = run("umount", &[self.path("bpf").to_str().unwrap()]);
        }
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// Runs a tool; `Err` if it is not installed.
pub(super) fn run(tool: &str, args: &[&str]) -> Result<Output, String> {
    Command::new(tool).args(args).output().map_err(|e| format!("`{tool}` does not start: {e}"))
}

pub(super) fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// Whether the kernel lets us load: root, `bpftool`, a BPF file system.
fn kernel(test: &str) -> Option<Scratch> {
    let mut scratch = Scratch::new();
    let ready = run("bpftool", &["version"]).and_then(|_| scratch.mount());
    match ready {
        Ok(()) => Some(scratch),
        Err(reason) => {
            eprintln!("SKIP {test}: {}", reason.trim());
            None
        }
    }
}

fn load(scratch: &Scratch, object: &Path) -> String {
    let pin = scratch.path("bpf/prog");
    let out = run("bpftool", &["-d", "prog", "load", object.to_str().unwrap(), pin.to_str().unwrap()]).unwrap();
    let log = text(&out);
    assert!(out.status.success(), "bpftool refuses the object:\n{log}");
    log
}

#[test]
fn the_kernel_takes_everything_and_names_source_lines() {
    let Some(scratch) = kernel("the_kernel_takes_everything_and_names_source_lines") else { return };
    let object = scratch.put("everything.o", &write(&everything()).unwrap());
    let log = load(&scratch, &object);
    for line in ["; element knock key (5-tuple) {", "; in closed when tcp.dport == 7000", "knock.efsm:12"] {
        assert!(log.contains(line), "`{line}` is not in the log:\n{log}");
    }
}
