// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compiles eBPF programs from C at test time.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::skip;

/// A clang with the headers for eBPF, and a temporary directory, removed on drop.
#[derive(Debug)]
pub struct Clang {
    command: &'static str,
    folder: PathBuf,
}

impl Clang {
    /// Returns the compiler if it and the headers are installed; otherwise prints that the test is skipped.
    pub fn find(test: &str) -> Option<Clang> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let folder = std::env::temp_dir().join(format!("flowloom-clang-{}-{number}", std::process::id()));
        let mut reason = match std::fs::create_dir_all(&folder) {
            Ok(()) => String::new(),
            Err(error) => format!("cannot create `{}`: {error}", folder.display()),
        };
        for command in ["clang-14", "clang"] {
            let clang = Clang { command, folder: folder.clone() };
            match clang.compile("#include <linux/bpf.h>\n#include <bpf/bpf_helpers.h>\n", &[]) {
                Ok(_) => return Some(clang),
                Err(why) => reason = why,
            }
        }
        skip(test, reason.lines().next().unwrap_or("clang does not work"));
        None
    }

    /// Compiles source text to an object, with warnings as errors.
    ///
    /// # Errors
    /// The compiler's output.
    pub fn compile(&self, source: &str, arguments: &[&str]) -> Result<Vec<u8>, String> {
        let path = self.folder.join("source.bpf.c");
        std::fs::write(&path, source).map_err(|e| format!("`{}` cannot be written: {e}", path.display()))?;
        self.compile_file(&path, arguments)
    }

    /// Compiles a file.
    ///
    /// # Errors
    /// The compiler's output.
    pub fn compile_file(&self, source: &Path, arguments: &[&str]) -> Result<Vec<u8>, String> {
        let object = self.folder.join("object.o");
        let mut clang = Command::new(self.command);
        clang.args(["-O2", "-g", "-Wall", "-Wextra", "-Werror", "-target", "bpf"]);
        // Debian keeps architecture headers in a directory that clang does not search for this target.
        clang.arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH));
        clang.args(arguments).arg("-c").arg(source).arg("-o").arg(&object);
        let out = clang.output().map_err(|e| format!("`{}` does not start: {e}", self.command))?;
        match out.status.success() {
            true => std::fs::read(&object).map_err(|e| format!("`{}` cannot be read: {e}", object.display())),
            false => Err(output_text(&out)),
        }
    }
}

impl Drop for Clang {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The whole output of a tool.
fn output_text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr)).trim().to_owned()
}
