// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects that Flowloom writes, attached to a device by `ip link` in a network namespace of their own.
#![allow(clippy::expect_used, clippy::panic, clippy::print_stderr)]

use std::path::PathBuf;
use std::process::{Command, Output};

use flowloom_exec::KernelEngine;
use flowloom_isa::asm;
use flowloom_testkit::require;

/// Counts packets by first byte, redirects those of port 1 through the devmap, passes the others.
const CODE: &str = "
.program attached
.license \"GPL\"
.map seen hash key 4 value 8 entries 16
.map ports devmap key 4 value 4 entries 16
        r6 = r1
        r1 = *(u32 *)(r6 + 12)
        r2 = *(u32 *)(r6 + 0)
        r3 = *(u32 *)(r6 + 4)
        r4 = r2
        r4 += 14
        if r4 > r3 goto out
        r5 = *(u8 *)(r2 + 0)
        *(u32 *)(r10 - 4) = r5
        *(u64 *)(r10 - 16) = r1
        r1 = map[seen] ll
        r2 = r10
        r2 += -4
        r3 = r10
        r3 += -16
        r4 = 0
        call map_update_elem
        call ktime_get_ns
        if r0 == 0 goto out
        r1 = *(u64 *)(r10 - 16)
        if r1 != 1 goto out
        r1 = map[ports] ll
        r2 = 0
        r3 = 2
        call redirect_map
        exit
out:    r0 = 2
        exit
";

/// A namespace and a file that are removed at the end of the test.
struct Place {
    namespace: String,
    object: PathBuf,
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "delete", &self.namespace]).output();
        let _ = std::fs::remove_file(&self.object);
    }
}

fn ip(arguments: &[&str]) -> std::io::Result<Output> {
    Command::new("ip").args(arguments).output()
}

fn must(arguments: &[&str]) -> String {
    let output = ip(arguments).expect("ip runs");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "ip {}: {}", arguments.join(" "), text(&output.stderr));
    text(&output.stdout)
}

#[test]
fn ip_link_attaches_a_written_object() {
    require!(KernelEngine::available());
    let id = std::process::id();
    let place = Place {
        namespace: format!("flowloom-attach-{id}"),
        object: std::env::temp_dir().join(format!("flowloom-attach-{id}.o")),
    };
    let added = require!(ip(&["netns", "add", &place.namespace]).map_err(|e| format!("`ip` of iproute2: {e}")));
    let said = String::from_utf8_lossy(&added.stderr);
    require!(added.status.success().then_some(()).ok_or(format!("`ip netns add`: {}", said.trim())));
    let program = asm::program("attached.bpf", CODE).unwrap_or_else(|errors| panic!("{errors}"));
    // A program that the engine accepts is accepted on a device.
    KernelEngine::load(&program).unwrap_or_else(|error| panic!("{error}"));
    std::fs::write(&place.object, flowloom_object::write(&program).expect("writable")).expect("written");

    let object = place.object.to_str().expect("a path of ours");
    let inside = ["-n", place.namespace.as_str()];
    let run = |arguments: &[&str]| must(&[&inside[..], arguments].concat());
    run(&["link", "add", "fl0", "type", "veth", "peer", "name", "fl1"]);
    for mode in ["xdp", "xdpgeneric"] {
        run(&["link", "set", "dev", "fl0", mode, "object", object, "section", "xdp"]);
        let shown = run(&["-details", "link", "show", "dev", "fl0"]);
        assert!(shown.contains(&format!(" {mode} ")) && shown.contains("name attached"), "{shown}");
        run(&["link", "set", "dev", "fl0", mode, "off"]);
    }
}
