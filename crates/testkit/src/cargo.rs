// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Builds of other packages and features than those of the test.
#![allow(clippy::panic, reason = "a test that cannot build fails")]

use std::path::Path;
use std::process::{Command, Output};

/// Runs `cargo` in the workspace, until it ends.
///
/// # Panics
/// There is no `cargo`.
pub fn cargo(arguments: &[&str]) -> Output {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut command = Command::new(std::env::var("CARGO").unwrap_or("cargo".to_owned()));
    let ran = command.args(arguments).current_dir(top).output();
    ran.unwrap_or_else(|error| panic!("cargo {}: {error}", arguments.join(" ")))
}

/// The output of a `cargo` run, which has to succeed.
///
/// # Panics
/// It fails.
pub fn cargo_output(arguments: &[&str]) -> String {
    let ran = cargo(arguments);
    let text = format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
    assert!(ran.status.success(), "cargo {}:\n{text}", arguments.join(" "));
    text
}

/// The version of DPDK that is installed.
///
/// # Errors
/// There is none: what to install.
pub fn dpdk_version() -> Result<String, String> {
    let said = Command::new("pkg-config").args(["--modversion", "libdpdk"]).output();
    let found = said.ok().filter(|said| said.status.success());
    let version = found.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
    version.ok_or_else(|| "DPDK is not installed (Debian: libdpdk-dev, pkgconf)".to_owned())
}
