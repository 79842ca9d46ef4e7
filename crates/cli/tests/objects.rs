// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects written by `flowloom build --target bpf`, loaded by third-party loaders: `bpftool`, `ip link`, `xdp-loader`.
//! The tests run in mount and network namespaces that end with the process that made them.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use crate::common;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::{BIG_FLOW, PASS_ALL, PORT_KNOCKING, REWRITE, Ran, UDP_FLOWS, kernel, name, ok, top};
use flowloom_testkit::{PacketBuilder, skip};
use serde_json::Value;

const FUNCTIONS: [&str; 5] = [PORT_KNOCKING, BIG_FLOW, REWRITE, UDP_FLOWS, PASS_ALL];

/// A folder for objects and for the output of tools.
struct Lab {
    test: &'static str,
    folder: tempfile::TempDir,
}

impl Lab {
    /// `None`, with a SKIP line, if the kernel, the tools or the namespaces are not available.
    fn new(test: &'static str, tools: &[&str]) -> Option<Lab> {
        if !kernel(test) {
            return None;
        }
        for tool in tools {
            if Command::new(tool).arg("help").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
                skip(test, &format!("`{tool}` is not installed"));
                return None;
            }
        }
        let lab = Lab { test, folder: tempfile::tempdir().unwrap() };
        match lab.sh("mount -t bpf bpf /sys/fs/bpf; mount -t tmpfs tmpfs /run", &[]) {
            Ok(ran) if ran.code == Some(0) => Some(lab),
            Ok(ran) => {
                skip(test, &format!("`unshare` and `mount` say: {}", ran.stderr.trim()));
                None
            }
            Err(error) => {
                skip(test, &format!("`unshare` does not run: {error}"));
                None
            }
        }
    }

    /// Runs a script in new namespaces, in the lab's folder.
    fn sh(&self, script: &str, arguments: &[&str]) -> std::io::Result<Ran> {
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "bash", "-eu", "-c", script, self.test]).args(arguments);
        command.current_dir(self.folder.path()).stdin(Stdio::null()).output().map(Ran::from)
    }

    /// Runs a script that must succeed.
    fn must(&self, script: &str, arguments: &[&str]) -> Ran {
        let ran = self.sh(script, arguments).unwrap();
        assert_eq!(ran.code, Some(0), "{arguments:?}:\n{}\n{}", ran.stdout, ran.stderr);
        ran
    }

    fn build(&self, function: &str, options: &[&str]) -> PathBuf {
        ok(&[&["build", function, "--target", "bpf", "-o", name(self.folder.path())][..], options].concat());
        let stem = Path::new(function).file_stem().unwrap();
        self.folder.path().join(stem).with_extension("o")
    }

    fn read(&self, file: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.folder.path().join(file)).unwrap()).into_owned()
    }

    fn json(&self, file: &str) -> Value {
        let text = self.read(file);
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{file}: {error}:\n{text}"))
    }

    fn put(&self, file: &str, bytes: &[u8]) {
        std::fs::write(self.folder.path().join(file), bytes).unwrap();
    }
}

/// Element, line and source text of each row of a function.
fn rows(function: &str) -> Vec<(String, u32, String)> {
    let text = std::fs::read_to_string(top().join(function)).unwrap();
    let (compiled, _) = flowloom_efsm::compile(function, &text, &[]).unwrap();
    let of_element = |element: &flowloom_efsm::model::Element| -> Vec<_> {
        let place = |row: &flowloom_efsm::model::Row| compiled.source.locate(row.span.start);
        element.rows.iter().map(|row| (element.name.clone(), place(row).0, place(row).2.trim().to_owned())).collect()
    };
    compiled.elements.iter().flat_map(of_element).collect()
}

#[test]
fn bpftool_loads_them_and_the_verifier_names_rows() {
    let Some(lab) = Lab::new("bpftool_loads_them_and_the_verifier_names_rows", &["bpftool"]) else { return };
    for function in FUNCTIONS {
        let object = lab.build(function, &[]);
        lab.must(
            "mount -t bpf bpf /sys/fs/bpf
             bpftool -d prog load $1 /sys/fs/bpf/fl >log 2>&1 || { cat log >&2; exit 1; }
             bpftool -j prog show pinned /sys/fs/bpf/fl >program
             bpftool prog dump xlated pinned /sys/fs/bpf/fl linum >code",
            &[name(&object)],
        );
        let (log, code) = (lab.read("log"), lab.read("code"));
        // Loaders continue without type information that the kernel rejects; this test does not accept that.
        assert!(!log.contains("Error loading .BTF"), "{function}:\n{log}");
        let stem = object.file_stem().unwrap().to_str().unwrap();
        assert!(lab.json("program")["name"].as_str().unwrap().starts_with(stem), "{function}: {}", lab.json("program"));
        let file = Path::new(function).file_name().unwrap().to_str().unwrap();
        let rows = rows(function);
        let named: Vec<_> =
            rows.iter().filter(|(_, line, text)| log.contains(&format!("; {text} @ {file}:{line}"))).collect();
        for (element, ..) in &rows {
            assert!(
                named.iter().any(|(e, ..)| e == element),
                "{function}: the log names no row of `{element}`:\n{log}"
            );
        }
        let placed = rows.iter().filter(|(_, line, text)| {
            code.lines()
                .any(|l| l.contains(&format!("; {text} [file:")) && l.contains(&format!("{file} line_num:{line} ")))
        });
        let placed = placed.count();
        eprintln!("{function}: {} rows, the log names {}, the loaded code {placed}", rows.len(), named.len());
        assert!(placed == rows.len(), "{function}: the loaded code names {placed} of {} rows", rows.len());
    }
}

#[test]
fn bpftool_dumps_contexts_by_name() {
    let Some(lab) = Lab::new("bpftool_dumps_contexts_by_name", &["bpftool"]) else { return };
    let (a, b) = ([10, 0, 0, 1], [192, 0, 2, 9]);
    let there = PacketBuilder::new().ipv4(a, b).udp(5000, 5123).payload(b"0123456789abcdef").build();
    let back = PacketBuilder::new().ipv4(b, a).udp(5123, 5000).payload(b"0123456789abcdef").build();
    lab.put("there", &there);
    lab.put("back", &back);
    let contexts = |function: &str, packets: &[&str]| -> Vec<Value> {
        let object = lab.build(function, &[]);
        lab.must(
            "mount -t bpf bpf /sys/fs/bpf
             object=$1; map=$2; shift 2
             bpftool prog load $object /sys/fs/bpf/fl >log 2>&1 || { cat log >&2; exit 1; }
             for packet; do bpftool prog run pinned /sys/fs/bpf/fl data_in $packet >verdict; done
             for id in $(bpftool -j prog show pinned /sys/fs/bpf/fl | sed 's/.*\"map_ids\":\\[\\([0-9,]*\\)\\].*/\\1/' | tr , ' '); do
                 if bpftool -j map show id $id | grep -q \"\\\"name\\\":\\\"$map\\\"\"; then bpftool -j map dump id $id >dump; fi
             done",
            &[&[name(&object), map_of(function)][..], packets].concat(),
        );
        let dump = lab.json("dump");
        let entries = dump.as_array().unwrap().iter();
        entries.map(|entry| entry["formatted"]["value"].clone()).collect()
    };
    let knock = contexts(PORT_KNOCKING, &["there"]);
    assert_eq!(knock.len(), 1);
    assert_eq!(knock[0]["state"], 1, "after the first knock: {knock:?}");
    assert!(knock[0].to_string().contains("idle"), "the deadline has a name: {knock:?}");

    let flows = contexts(BIG_FLOW, &["there", "there", "there", "back"]);
    let mut packets: Vec<_> = flows.iter().map(|record| record["packets"].as_u64().unwrap()).collect();
    packets.sort_unstable();
    assert_eq!(packets, [1, 3], "{flows:?}");

    let conversations = contexts(UDP_FLOWS, &["there", "back", "there"]);
    assert_eq!(conversations.len(), 1, "both directions are one: {conversations:?}");
    assert_eq!(conversations[0]["packets"], 3, "{conversations:?}");
}

/// The map of a function's contexts, named like the element.
fn map_of(function: &str) -> &'static str {
    match function {
        PORT_KNOCKING => "knock",
        BIG_FLOW => "flows",
        UDP_FLOWS => "conversations",
        other => panic!("{other} has no single map"),
    }
}

#[test]
fn ip_link_attaches_them() {
    let Some(lab) = Lab::new("ip_link_attaches_them", &["ip"]) else { return };
    for function in FUNCTIONS {
        let object = lab.build(function, &[]);
        let ran = lab.must(
            "ip link add fl0 type veth peer name fl1
             for mode in xdp xdpgeneric; do
                 ip link set dev fl0 $mode object $1 section xdp
                 ip -details link show dev fl0
                 ip link set dev fl0 $mode off
                 ip -details link show dev fl0 | grep -q prog/xdp && exit 1
             done
             true",
            &[name(&object)],
        );
        let stem = object.file_stem().unwrap().to_str().unwrap();
        for mode in [" xdp ", " xdpgeneric "] {
            assert!(ran.stdout.contains(mode) && ran.stdout.contains(stem), "{function}: {}", ran.stdout);
        }
    }
}

#[test]
fn xdp_loader_attaches_them() {
    let Some(lab) = Lab::new("xdp_loader_attaches_them", &["ip", "xdp-loader"]) else { return };
    for function in FUNCTIONS {
        let object = lab.build(function, &[]);
        let ran = lab.must(
            "mount -t bpf bpf /sys/fs/bpf
             mount -t tmpfs tmpfs /run
             ip link add fl0 type veth peer name fl1
             xdp-loader load --mode skb fl0 $1
             xdp-loader status fl0
             xdp-loader unload --all fl0",
            &[name(&object)],
        );
        let stem = object.file_stem().unwrap().to_str().unwrap();
        assert!(ran.stdout.contains(stem), "{function}: {}\n{}", ran.stdout, ran.stderr);
    }
}

/// A host knocks at another through real sockets; the kernel of the other host counts the datagrams that arrive.
#[test]
fn a_live_door_opens_for_the_right_knocks() {
    let Some(lab) = Lab::new("a_live_door_opens_for_the_right_knocks", &["ip", "bpftool"]) else { return };
    // On a slow machine, knocks may be a minute apart.
    let object = lab.build(PORT_KNOCKING, &["--param", "protected=4022", "--param", "gap=60s"]);
    let ran = lab.must(
        "mount -t tmpfs tmpfs /run
         mkdir /run/netns
         ip netns add inside
         ip link add out0 address 02:00:00:00:00:0a type veth peer name in0 address 02:00:00:00:00:0b netns inside
         ip address add 10.9.0.1/24 dev out0
         ip -n inside address add 10.9.0.2/24 dev in0
         ip link set dev out0 up
         ip -n inside link set dev in0 up
         ip neighbour replace 10.9.0.2 lladdr 02:00:00:00:00:0b dev out0 nud permanent
         ip -n inside link set dev in0 xdp object $1 section xdp
         # Datagrams to a port that nobody listens on: they came through.
         came() { ip netns exec inside sed -n 's/^Udp: [0-9]* \\([0-9]*\\) .*/\\1/p' /proc/net/snmp; }
         send() { echo hello >/dev/udp/10.9.0.2/$1; }
         wait_for() { for i in $(seq 100); do [ $(came) = $1 ] && return; sleep 0.05; done; }
         send 4022
         send 5123; send 7345; send 4022
         echo closed $(came)
         send 5123; send 6234; send 7345; send 8456
         send 4022
         wait_for 1
         echo open $(came)
         send 4023
         send 4022
         wait_for 2
         echo still $(came)
         id=$(ip netns exec inside ip -details link show dev in0 | sed -n 's/.*prog\\/xdp id \\([0-9]*\\).*/\\1/p')
         maps=$(bpftool -j prog show id $id | sed 's/.*\"map_ids\":\\[\\([0-9,]*\\)\\].*/\\1/')
         for id in ${maps//,/ }; do
             if bpftool -j map show id $id | grep -q '\"name\":\"knock\"'; then bpftool -j map dump id $id >dump; fi
         done",
        &[name(&object)],
    );
    assert_eq!(ran.stdout, "closed 0\nopen 1\nstill 2\n", "{}", ran.stderr);
    let dump = lab.json("dump");
    let states: Vec<_> = dump.as_array().unwrap().iter().map(|e| &e["formatted"]["value"]["state"]).collect();
    assert_eq!(states, [&Value::from(4)], "the knocking host is let in: {dump}");
}
