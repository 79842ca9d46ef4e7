// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Objects written by `flowloom build --target bpf`, loaded by third-party loaders: `bpftool`, `ip link`, `xdp-loader`.

use std::path::{Path, PathBuf};

use crate::common::lab::{Lab, shipped};
use crate::common::{BIG_FLOW, PASS_ALL, PORT_KNOCKING, REWRITE, UDP_FLOWS, name, ok};
use flowloom_testkit::PacketBuilder;
use serde_json::Value;

const FUNCTIONS: [&str; 5] = [PORT_KNOCKING, BIG_FLOW, REWRITE, UDP_FLOWS, PASS_ALL];

/// Builds the object of a function in the lab's folder.
fn build(lab: &Lab, function: &str, options: &[&str]) -> PathBuf {
    ok(&[&["build", function, "--target", "bpf", "-o", name(lab.folder())][..], options].concat());
    lab.folder().join(Path::new(function).file_stem().unwrap()).with_extension("o")
}

/// Element, line and source text of each row of a function.
fn rows(function: &str) -> Vec<(String, u32, String)> {
    let text = shipped(function);
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
        let object = build(&lab, function, &[]);
        lab.run(
            "bpftool -d prog load $1 /sys/fs/bpf/fl >log 2>&1 || { cat log >&2; exit 1; }
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
    lab.put("there", there);
    lab.put("back", back);
    let contexts = |function: &str, packets: &[&str]| -> Vec<Value> {
        let object = build(&lab, function, &[]);
        lab.run(
            "object=$1; map=$2; shift 2
             bpftool prog load $object /sys/fs/bpf/fl >log 2>&1 || { cat log >&2; exit 1; }
             for packet; do bpftool prog run pinned /sys/fs/bpf/fl data_in $packet >verdict; done
             for id in $(bpftool -j prog show pinned /sys/fs/bpf/fl | sed 's/.*\"map_ids\":\\[\\([0-9,]*\\)\\].*/\\1/' | tr , ' '); do
                 if bpftool -j map show id $id | grep -q \"\\\"name\\\":\\\"$map\\\"\"; then bpftool -j map dump id $id >dump; fi
             done",
            &[&[name(&object), map_of(function)], packets].concat(),
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

/// Attaches each object by the script to the interface `fl0`; the output has all these words and the object's name.
fn attaches(test: &'static str, tools: &[&'static str], script: &str, words: &[&str]) {
    let Some(lab) = Lab::new(test, tools) else { return };
    for function in FUNCTIONS {
        let object = build(&lab, function, &[]);
        let said = lab.run(&format!("ip link add fl0 type veth peer name fl1\n{script}"), &[name(&object)]);
        let stem = object.file_stem().unwrap().to_str().unwrap();
        assert!(words.iter().chain([&stem]).all(|word| said.contains(word)), "{function}: {said}");
    }
}

#[test]
fn ip_link_attaches_them() {
    let script = "for mode in xdp xdpgeneric; do
                 ip link set dev fl0 $mode object $1 section xdp
                 ip -details link show dev fl0
                 ip link set dev fl0 $mode off
                 ip -details link show dev fl0 | grep -q prog/xdp && exit 1
             done
             true";
    attaches("ip_link_attaches_them", &["ip"], script, &[" xdp ", " xdpgeneric "]);
}

#[test]
fn xdp_loader_attaches_them() {
    let script = "xdp-loader load --mode skb fl0 $1
             xdp-loader status fl0
             xdp-loader unload --all fl0";
    attaches("xdp_loader_attaches_them", &["ip", "xdp-loader"], script, &[]);
}

/// A host knocks at another through real sockets; the kernel of the other host counts the datagrams that arrive.
#[test]
fn a_live_door_opens_for_the_right_knocks() {
    let Some(lab) = Lab::new("a_live_door_opens_for_the_right_knocks", &["ip", "bpftool"]) else { return };
    // On a slow machine, knocks may be a minute apart.
    let object = build(&lab, PORT_KNOCKING, &["--param", "protected=4022", "--param", "gap=60s"]);
    let said = lab.run(
        "ip netns add inside
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
    assert_eq!(said, "closed 0\nopen 1\nstill 2\n");
    let dump = lab.json("dump");
    let states: Vec<_> = dump.as_array().unwrap().iter().map(|e| &e["formatted"]["value"]["state"]).collect();
    assert_eq!(states, [&Value::from(4)], "the knocking host is let in: {dump}");
}
