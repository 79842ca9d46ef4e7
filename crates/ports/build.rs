// SPDX-License-Identifier: Apache-2.0 OR MIT
//! With feature `dpdk`: compiles the C shim and links DPDK.
#![allow(clippy::print_stdout, reason = "instructions to Cargo")]

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "dpdk")]
    dpdk();
}

#[cfg(feature = "dpdk")]
fn dpdk() {
    const SHIM: &str = "src/dpdk/shim.c";
    println!("cargo::rerun-if-changed={SHIM}");
    let needs = "feature `dpdk` needs DPDK 22.11 or newer with headers (Debian: libdpdk-dev) and pkg-config";
    // Drivers are plugins that DPDK loads at run time; only the libraries that the shim calls are needed.
    if let Err(error) = pkg_config::Config::new().atleast_version("22.11").probe("libdpdk") {
        println!("cargo::error={needs}: {error}");
        return;
    }
    // The library `pkg_config` leaves out flags such as -march, without which the headers do not compile.
    let said = std::process::Command::new("pkg-config").args(["--cflags", "libdpdk"]).output();
    let flags = said.map(|said| String::from_utf8_lossy(&said.stdout).into_owned()).unwrap_or_default();
    let mut build = cc::Build::new();
    build.file(SHIM).opt_level(3).warnings(true).flag("-Wno-deprecated-declarations");
    build.flags(flags.split_whitespace());
    build.compile("flowloom_dpdk");
}
