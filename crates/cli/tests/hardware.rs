// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of `flowloom build --target verilog` and of the engine `pipeline`.

use std::path::Path;
use std::process::Command;

use crate::common::{Ran, exits, flowloom, json, ok};
use flowloom_testkit::skip;
use serde_json::Value;

const TOY: &str = "functions/ebpf/toy/toy_printed.bpf";
const POLICER: &str = "functions/policer/policer.efsm";

/// Whether Verilator is installed; otherwise prints the reason to skip.
fn has_verilator(test: &str) -> bool {
    let found = Command::new("verilator").arg("--version").output().is_ok_and(|done| done.status.success());
    if !found {
        skip(test, "Verilator is not installed");
    }
    found
}

#[test]
fn a_folder_with_a_pipeline_simulates_by_itself() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("toy").display().to_string();
    let text = ok(&["build", TOY, "--target", "verilog", "-o", &path]);
    assert!(text.contains("top module `fl_pipeline_toy_printed`"), "{text}");
    let value = json(&["build", TOY, "--target", "verilog", "-o", &path, "--json"]);
    assert_eq!(value["top"], "fl_pipeline_toy_printed");
    assert_eq!(value["latency_cycles"].as_u64().unwrap(), value["stages"].as_u64().unwrap() + 9);
    let files: Vec<&str> = value["files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap()).collect();
    let shell =
        ["fl_registers_pkg.sv", "fl_axil.sv", "fl_shell_toy_printed.sv", "registers.md", "toy_printed_registers.h"];
    let own = ["Makefile", "README.md", "bench.cpp", "fl_framer.sv", "fl_pipeline_toy_printed.sv", "vectors.txt"];
    for file in own.into_iter().chain(shell) {
        assert!(files.contains(&file), "{file} of {files:?}");
        assert!(folder.path().join("toy").join(file).is_file(), "{file}");
    }
    if has_verilator("a_folder_with_a_pipeline_simulates_by_itself") {
        let ran = Command::new("make").args(["-s", "-C", &path, "lint", "sim"]).output().unwrap();
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(
            ran.status.success() && text.contains("all as expected"),
            "{text}{}",
            String::from_utf8_lossy(&ran.stderr)
        );
        // The list of sources alone is enough for a tool.
        let lint = ["--lint-only", "-Wall", "-f", "toy_printed.f", "--top-module", "fl_shell_toy_printed"];
        let ran = Command::new("verilator").args(lint).current_dir(&path).output().unwrap();
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    }
}

/// A driver needs no more than the folder: fields of keys and values with their bytes, from the function or its types.
#[test]
fn registers_have_the_layouts_of_entries() {
    let folder = tempfile::tempdir().unwrap();
    let cases = [
        (
            "functions/port_knocking/port_knocking.efsm",
            "port_knocking_registers.h",
            &[
                "number of the state: 0 `",
                "time in ns at which the context expires",
                "bytes | IPv6 address, or an IPv4 address as",
            ][..],
        ),
        (
            "functions/ebpf/simple_firewall/simple_firewall.bpf.c",
            "simple_firewall_registers.h",
            &["(HASH) | `hash` | ", "big endian |"][..],
        ),
    ];
    for (number, (function, header, expected)) in cases.into_iter().enumerate() {
        let path = folder.path().join(number.to_string());
        ok(&["build", function, "--target", "verilog", "-o", path.to_str().unwrap()]);
        let document = std::fs::read_to_string(path.join("registers.md")).unwrap();
        for text in expected {
            assert!(document.contains(text), "no `{text}` in {document}");
        }
        assert!(!document.contains("the program has no types"), "{document}");
        match Command::new("cc").args(["-std=c11", "-Wall", "-Werror", "-fsyntax-only"]).arg(path.join(header)).output()
        {
            Ok(done) => assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr)),
            Err(error) => skip("registers_have_the_layouts_of_entries", &format!("no C compiler `cc`: {error}")),
        }
    }
}

/// The seed is in the columns of the hash units; the results are those of the interpreter.
#[test]
fn a_hash_seed_changes_the_hash_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let function = "functions/ebpf/simple_firewall/simple_firewall.bpf.c";
    let build = |name: &str, seed: &[&str]| {
        let path = folder.path().join(name);
        let mut arguments = vec!["build", function, "--target", "verilog", "--json", "-o", path.to_str().unwrap()];
        arguments.extend(seed);
        (json(&arguments), path.clone())
    };
    let [usual, first, other] =
        [("usual", &[][..]), ("first", &["--hash-seed", "1"]), ("other", &["--hash-seed", "0xfeed"])]
            .map(|(name, seed)| build(name, seed));
    assert_eq!([&usual, &first, &other].map(|(value, _)| value["hash_seed"].as_u64().unwrap()), [1, 1, 65_261]);
    let mut changed = Vec::new();
    for file in usual.0["files"].as_array().unwrap().iter().map(|file| file.as_str().unwrap()) {
        let [usual, first, other] =
            [&usual, &first, &other].map(|(_, path)| std::fs::read_to_string(path.join(file)).unwrap());
        assert_eq!(usual, first, "{file}");
        let lines = usual.lines().zip(other.lines()).filter(|(usual, other)| usual != other);
        changed.extend(lines.map(|(line, _)| (file.to_owned(), line.trim().starts_with(".Columns("))));
        assert_eq!(usual.lines().count(), other.lines().count(), "{file}");
    }
    assert_eq!(changed, [("fl_core_simple_firewall.sv".to_owned(), true)]);
    if has_verilator("a_hash_seed_changes_the_hash_and_nothing_else") {
        let ran = Command::new("make").args(["-s", "-C", other.1.to_str().unwrap(), "sim"]).output().unwrap();
        let text = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success() && text.contains("all as expected"), "{text}{ran:?}");
        // Packets meet flows: both verdicts occur, and there are entries in the end.
        let mix = text.lines().find(|line| line.contains(" packets: ")).unwrap();
        assert!(mix.contains(" drop") && mix.contains(" redirect"), "{text}");
        assert!(!text.contains("\n0 entries"), "{text}");
        a_bench_finds_what_differs(&other.1);
    }
}

/// Changes a line of the vectors of a folder at a time, each in the last group that has such a line.
fn a_bench_finds_what_differs(folder: &std::path::Path) {
    let vectors = std::fs::read_to_string(folder.join("vectors.txt")).unwrap();
    let changed = |what: &str, change: &dyn Fn(Vec<String>) -> Vec<String>| {
        let mut lines: Vec<String> = vectors.lines().map(str::to_owned).collect();
        let is_wanted = |line: &&String| line.starts_with(what) && (what != "packet" || line.split(' ').count() > 6);
        let at = lines.iter().rposition(|line| is_wanted(&line)).unwrap_or_else(|| panic!("no `{what}`"));
        lines[at] = change(lines[at].split(' ').map(str::to_owned).collect()).join(" ");
        std::fs::write(folder.join("changed.txt"), lines.join("\n")).unwrap();
        let ran = Command::new("build/bench").arg("changed.txt").current_dir(folder).output().unwrap();
        (ran.status.code(), String::from_utf8_lossy(&ran.stdout).into_owned())
    };
    let set = |at: usize, text: &'static str| {
        move |mut fields: Vec<String>| {
            fields[at] = text.to_owned();
            fields
        }
    };
    let last = |fields: Vec<String>| fields[..6].to_vec();
    type Edit<'a> = &'a dyn Fn(Vec<String>) -> Vec<String>;
    let cases: [(&str, Edit<'_>, &str); 7] = [
        ("packet", &set(4, "1"), "found verdict 4 (redirect), expected 1 (drop)"),
        ("packet", &set(6, "77"), "expected 77"),
        ("packet", &set(7, "00"), "found other bytes from byte"),
        // The packet leaves nevertheless.
        ("packet", &last, "expected no more packets"),
        ("entry", &set(3, "0000000000000000"), "expected 0000000000000000"),
        ("group", &set(2, "12\nwrite 0 0a0000020a0000020050005011000000 01000000"), "found 01000000, expected none"),
        ("write", &set(1, "9"), "there is no map 9"),
    ];
    for (what, change, message) in cases {
        let (code, text) = changed(what, change);
        assert!(code == Some(1) && text.contains(message) && !text.contains("as expected"), "{message}: {text}");
    }
}

/// The contexts of a source expire, so that verdicts depend on times.
const TIMED: &str = "function timed;
stateful timed {
    key ip.src;
    states closed, open;
    reg bytes: u64;
    on closed when tcp.is_syn -> open (idle 60s) { bytes = pkt.len; pass; }
    on open { bytes += pkt.len; pass; }
    otherwise { drop; }
}
";

/// The second group begins before the end of the first one.
#[test]
fn groups_of_vectors_have_their_own_times() {
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("timed.efsm").display().to_string();
    std::fs::write(&source, TIMED).unwrap();
    let path = folder.path().join("timed");
    exits(0, &["build", &source, "--target", "verilog", "-o", path.to_str().unwrap()]);
    let text = std::fs::read_to_string(path.join("vectors.txt")).unwrap();
    let groups = text.split("\ngroup ").skip(1);
    let times = groups.map(|group| {
        let packets = group.lines().filter(|line| line.starts_with("packet "));
        packets.map(|line| line.split(' ').nth(2).unwrap().parse().unwrap()).collect::<Vec<u64>>()
    });
    let times: Vec<Vec<u64>> = times.collect();
    assert!(times.len() == 2 && times[0].last() > times[1].first() && times.iter().all(|all| all.is_sorted()));
    if !has_verilator("groups_of_vectors_have_their_own_times") {
        return;
    }
    let ran = Command::new("make").args(["-s", "-C", path.to_str().unwrap(), "sim"]).output().unwrap();
    let text = String::from_utf8_lossy(&ran.stdout).into_owned();
    let mix = text.lines().find(|line| line.contains(" packets: ")).unwrap_or_default();
    assert!(ran.status.success() && text.contains("all as expected"), "{ran:?}");
    assert!(mix.contains(" drop, ") && mix.contains(" pass"), "{text}");
}

/// A folder that simulates nothing says so. Of a large map of ports, only ports that packets take are written.
#[test]
fn vectors_have_the_ports_that_packets_take() {
    let folder = tempfile::tempdir().unwrap();
    let build = |key: u32| {
        let source = folder.path().join("ports.bpf").display().to_string();
        let text = format!(
            ".program ports\n.license \"GPL\"\n.map ports devmap key 4 value 4 entries 65536\nr1 = map[ports] ll\n\
             r2 = {key}\nr3 = 0\ncall redirect_map\nexit\n"
        );
        std::fs::write(&source, text).unwrap();
        let path = folder.path().join(key.to_string());
        let ran = exits(0, &["build", &source, "--target", "verilog", "-o", path.to_str().unwrap()]);
        (ran.stderr, std::fs::read_to_string(path.join("vectors.txt")).unwrap())
    };
    let (notes, text) = build(3);
    let writes: Vec<&str> = text.lines().filter(|line| line.starts_with("write ")).collect();
    assert_eq!(writes, ["write 0 03000000 0300000001"]);
    assert!(text.contains("\npacket ") && !notes.contains("no packets"), "{notes}");
    let (notes, text) = build(70_000);
    assert!(!text.contains("\npacket ") && notes.contains("`vectors.txt` has no packets"), "{notes}");
}

/// Packets of a function that go to all ports of a map stay in the vectors: later ones depend on what they changed.
#[test]
fn vectors_have_the_broadcasts_of_a_function_with_state() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    ok(&["build", "functions/paxos_acceptor/paxos_acceptor.efsm", "--target", "verilog", "-o", &path]);
    let text = std::fs::read_to_string(folder.path().join("vectors.txt")).unwrap();
    let verdicts = text.lines().filter(|line| line.starts_with("packet")).map(|line| line.split(' ').nth(4).unwrap());
    let spread = verdicts.filter(|verdict| ["6", "7", "8"].contains(verdict)).count();
    assert!(spread > 10 && text.contains("\nentry "), "{spread}");
}

/// What a designer has to know besides the ports.
#[test]
fn the_readme_says_what_host_and_design_have_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let ran = exits(0, &["build", POLICER, "--target", "verilog", "-o", &path, "--clock", "200"]);
    assert!(ran.stderr.contains("nothing in hardware sweeps `buckets`"), "{ran:?}");
    let text = std::fs::read_to_string(folder.path().join("README.md")).unwrap();
    for part in [
        "the plan assumes 200 MHz",
        "not placed and routed",
        "xcu50",
        "beyond byte 128 leaves as it came",
        "Sweeps of `buckets`",
        "Every 1000000000 ns",
        "`s_axis_tuser` | 31:0",
        "cycles after the reset",
        "bad FCS",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(read("policer.xdc").contains("-period 5.000 [get_ports aclk]"));
    let list = read("policer.f");
    let names: Vec<&str> = list.lines().filter(|line| !line.starts_with("//")).collect();
    assert!(names[0].ends_with("_pkg.sv") && *names.last().unwrap() == "fl_shell_policer.sv", "{names:?}");
    assert!(names.iter().all(|name| folder.path().join(name).is_file()), "{names:?}");
    for name in names.into_iter().chain(["policer.f", "policer.xdc", "Makefile", "bench.cpp", "vectors.txt"]) {
        let text = read(name);
        assert!(text.lines().next().unwrap().contains("SPDX-License-Identifier"), "{name}");
    }
    assert!(read("LICENSE-APACHE").contains("Apache License") && read("LICENSE-MIT").contains("MIT"));
    let ran = exits(2, &["build", TOY, "--target", "bpf", "--clock", "200", "-o", &path]);
    assert!(ran.stderr.contains("--clock requires --target verilog"), "{ran:?}");
    // A map of ports: the byte that says that there is a port, and what happens before the host writes it.
    ok(&["build", "functions/ebpf/simple_firewall/simple_firewall.bpf.c", "--target", "verilog", "-o", &path]);
    let text = read("README.md");
    assert!(text.contains("in byte 4 a 1 if there is") && text.contains("is empty after a reset"), "{text}");
}

/// An expired context with a successor state is not deleted by a sweep.
#[test]
fn the_readme_says_which_contexts_a_sweep_keeps() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("door.efsm").display().to_string();
    let output = folder.path().join("door");
    let text = "function door;\nstateful door {\n    key ip.src;\n    states closed, open, closing;\n    reg bytes: u64;\n    \
                expire open -> closing (idle 5s);\n    on closed when tcp.is_syn -> open (idle 60s) { bytes = pkt.len; pass; }\n    \
                on open { bytes += pkt.len; pass; }\n    on closing { drop; }\n}\n";
    std::fs::write(&path, text).unwrap();
    ok(&["build", &path, "--target", "verilog", "-o", &output.display().to_string()]);
    let text = std::fs::read_to_string(output.join("README.md")).unwrap();
    let line = text.lines().find(|line| line.contains("is not deleted")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("in state `open` (1,") && line.contains("enters state `closing` (2,"), "{line}");
    assert!(line.contains("that deadline + 5000000000 ns"), "{line}");
}

/// A later build removes what it does not write, and nothing else.
#[test]
fn a_later_build_removes_the_files_of_an_earlier_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    ok(&["build", POLICER, "--target", "verilog", "-o", &path]);
    for own in ["own.sv", "notes.txt"] {
        std::fs::write(folder.path().join(own), "// mine\n").unwrap();
    }
    let outside = folder.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("kept.sv"), "").unwrap();
    let manifest = folder.path().join("manifest.txt");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, format!("{text}outside/kept.sv\n")).unwrap();
    let ran = exits(0, &["build", TOY, "--target", "verilog", "-o", &path]);
    assert!(ran.stderr.contains("has other sources, which are not part of the pipeline: `own.sv`"), "{ran:?}");
    let removed = ran.stderr.lines().find(|line| line.contains("removed files of an earlier build")).unwrap();
    assert!(removed.contains("`fl_core_policer.sv`") && !removed.contains("own.sv"), "{removed}");
    for (name, is_there) in [
        ("fl_core_policer.sv", false),
        ("policer.xdc", false),
        ("fl_core_toy_printed.sv", true),
        ("own.sv", true),
        ("notes.txt", true),
        ("outside/kept.sv", true),
    ] {
        assert_eq!(folder.path().join(name).exists(), is_there, "{name}");
    }
    std::fs::write(&manifest, "fl_core_toy_printed.sv\n").unwrap();
    let ran = exits(2, &["build", TOY, "--target", "verilog", "-o", &path]);
    assert!(ran.stderr.contains("is no manifest of Flowloom"), "{ran:?}");
}

/// Nothing is overwritten that no manifest names.
#[test]
fn a_folder_with_files_of_others_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let own = |name: &str| folder.path().join(name);
    std::fs::write(own("Makefile"), "mine\n").unwrap();
    std::fs::write(own("notes.txt"), "mine\n").unwrap();
    let names = || std::fs::read_dir(folder.path()).unwrap().count();
    let ran = exits(2, &["build", TOY, "--target", "verilog", "-o", &path]);
    assert!(ran.stderr.contains("would be overwritten: `Makefile`; build into another folder"), "{ran:?}");
    assert_eq!((std::fs::read_to_string(own("Makefile")).unwrap().as_str(), names()), ("mine\n", 2));
    std::fs::remove_file(own("Makefile")).unwrap();
    ok(&["build", TOY, "--target", "verilog", "-o", &path]);
    // A manifest does not name what came after it.
    std::fs::write(own("fl_core_policer.sv"), "mine\n").unwrap();
    let before = names();
    let ran = exits(2, &["build", POLICER, "--target", "verilog", "-o", &path]);
    assert!(ran.stderr.contains("would be overwritten: `fl_core_policer.sv`;"), "{ran:?}");
    assert_eq!((std::fs::read_to_string(own("fl_core_policer.sv")).unwrap().as_str(), names()), ("mine\n", before));
}

#[test]
fn a_folder_to_build_into_is_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "kept").unwrap();
    for target in ["verilog", "bpf"] {
        let ran = exits(2, &["build", TOY, "--target", target, "-o", &file.display().to_string()]);
        assert!(ran.stderr.contains("is a file, expected a folder"), "{ran:?}");
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
}

#[test]
fn a_hash_seed_is_for_pipelines_with_hash_maps() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let ran = exits(2, &["build", TOY, "--target", "bpf", "--hash-seed", "7", "-o", &path]);
    assert!(ran.stderr.contains("--hash-seed requires --target verilog"), "{ran:?}");
    let ran = exits(2, &["build", TOY, "--target", "verilog", "--hash-seed", "0xyz", "-o", &path]);
    assert!(ran.stderr.contains("decimal or hexadecimal with 0x, found `0xyz`"), "{ran:?}");
    let ran = exits(0, &["build", TOY, "--target", "verilog", "--hash-seed", "0x7", "-o", &path]);
    assert!(ran.stderr.contains("--hash-seed changes nothing: the pipeline has no hash map"), "{ran:?}");
}

/// A function has two forms; pipelines are made of the one with the parser of the target.
#[test]
fn a_folder_has_the_plan_that_explain_prints() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let built = json(&["build", POLICER, "--target", "verilog", "-o", &path, "--json"]);
    assert_eq!(built["stages"], json(&["explain", POLICER, "--json"])["stages"]);
}

#[test]
fn functions_without_a_pipeline_are_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().display().to_string();
    let node = folder.path().join("node.bpf");
    std::fs::write(&node, ".program node\n.license \"GPL\"\ncall get_numa_node_id\nr0 &= 1\nexit\n").unwrap();
    let ran = exits(1, &["build", &node.display().to_string(), "--target", "verilog", "-o", &path]);
    assert!(ran.stderr.contains("no hardware block is rendered for `get_numa_node_id`"), "{ran:?}");
    let ran = exits(2, &["build", TOY, "--target", "verilog", "-o", &path, "--counters"]);
    assert!(ran.stderr.contains("--counters requires --target bpf"), "{ran:?}");
}

/// The part of a report that says what a plan uses of a device.
fn device(arguments: &[&str]) -> Value {
    let mut all = vec!["explain", "--json"];
    all.extend(arguments);
    json(&all)["device"].clone()
}

#[test]
fn a_plan_that_fits_says_what_it_uses() {
    let used = device(&[TOY]);
    assert_eq!(used["name"], "xcu50");
    // 512 bits of a word in two banks of 8 RAMs, and four counters of 64 bits.
    assert_eq!(used["block_rams"], serde_json::json!({"needed": 17, "available": 1344}));
    assert_eq!(used["dsps"], serde_json::json!({"needed": 0, "available": 5952}));
    assert_eq!(used["memories"][1]["map"], "stats");
    assert_eq!(device(&[TOY, "--device", "xc7vx690t"])["register_bits"]["available"], 866_400);
    assert_eq!(device(&[TOY, "--device", "none"]), Value::Null);
    let text = ok(&["explain", TOY]);
    assert!(text.contains(" block RAMs; LUTs are not estimated\n"), "{text}");
}

/// A program whose map has this number of entries.
fn with_entries(entries: u64) -> String {
    format!(
        ".program large\n.license \"GPL\"\n.map flows hash key 4 value 8 entries {entries}\n\
         r1 = 7\n*(u32 *)(r10 - 4) = r1\nr1 = map[flows] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem\n\
         if r0 == 0 goto out\nr1 = 1\nlock *(u64 *)(r0 + 0) += r1\nout: r0 = 2\nexit\n"
    )
}

#[test]
fn a_plan_that_does_not_fit_is_refused_with_the_figures() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.bpf").display().to_string();
    let output = folder.path().join("large").display().to_string();
    // 2^24 rows of 97 bits, and four banks of keys; as UltraRAMs 8,194 and more.
    std::fs::write(&path, with_entries(1 << 24)).unwrap();
    for arguments in [vec!["explain", &path], vec!["build", &path, "--target", "verilog", "-o", &output]] {
        let ran = exits(1, &arguments);
        for part in [
            "program `large` does not fit xcu50",
            "block RAMs are needed, xcu50 has 1344",
            "the entries of map `flows` (16777360 rows of 97 bits)",
            "lower its max_entries",
            "it fits no known device; --device none plans without limits",
        ] {
            assert!(ran.stderr.contains(part), "{part}: {ran:?}");
        }
    }
    assert!(!folder.path().join("large").exists());
    let ran = exits(1, &["explain", &path, "--json"]);
    let value: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(value["refusal"]["code"], "does-not-fit");
    ok(&["explain", &path, "--device", "none"]);

    // Too large for block RAMs alone.
    std::fs::write(&path, with_entries(1 << 19)).unwrap();
    let used = device(&[&path]);
    assert!(used["memories"][1]["is_ultra"] == true && used["ultra_rams"]["needed"].as_u64() > Some(0), "{used}");
    let ran = exits(1, &["explain", &path, "--device", "xc7vx690t"]);
    assert!(ran.stderr.contains("it fits xcu50 and xcvu9p; --device none"), "{ran:?}");
}

#[test]
fn a_device_is_for_pipelines_of_the_dataflow() {
    let ran = exits(2, &["explain", TOY, "--device", "xcu50", "--schedule", "blocks"]);
    assert!(ran.stderr.contains("--device xcu50 requires --schedule dataflow"), "{ran:?}");
    let ran = exits(2, &["build", TOY, "--target", "bpf", "--device", "xcu50"]);
    assert!(ran.stderr.contains("--device requires --target verilog"), "{ran:?}");
    let ran = exits(2, &["explain", TOY, "--device", "xcu200"]);
    assert!(ran.stderr.contains("xc7vx690t"), "{ran:?}");
}

#[test]
fn the_pipeline_is_an_engine() {
    if !has_verilator("the_pipeline_is_an_engine") {
        return;
    }
    let cache = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| {
        Ran::from(flowloom().args(arguments).env("XDG_CACHE_HOME", cache.path()).output().unwrap())
    };
    let ran = run(&["verify", TOY, "--targets", "pipeline"]);
    assert!(ran.code == Some(0) && ran.stdout.contains("pipeline: equal to `interp`"), "{ran:?}");
    let ran = run(&["test", "functions/ebpf/toy/toy_printed.scenario", "--engine", "pipeline"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
}

/// Adds a byte at an offset from the packet to a sum.
const FAR: &str = "
.program far
.license \"GPL\"
.map sums array key 4 value 8 entries 1
        r2 = *(u32 *)(r1 + 4)
        r8 = *(u32 *)(r1 + 0)
        r0 = 1
        r3 = r8
        r3 += 14
        if r3 > r2 goto out
        r7 = *(u8 *)(r8 + 12)
        r8 += r7
        r3 = r8
        r3 += 1
        if r3 > r2 goto out
        r7 = *(u8 *)(r8 + 0)
        r5 = map[sums][0]+0 ll
        r1 = *(u64 *)(r5 + 0)
        r1 += r7
        *(u64 *)(r5 + 0) = r1
        r0 = 2
out:    exit
";

/// Packets that the host runs are counted apart, and alone are no comparison.
#[test]
fn packets_of_the_slow_path_alone_are_no_comparison() {
    if !has_verilator("packets_of_the_slow_path_alone_are_no_comparison") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(file("far.bpf"), FAR).unwrap();
    let run = |offsets: &[u8], more: &[&str]| {
        let mut writer = flowloom_trace::CaptureWriter::create(Path::new(&file("in.pcap"))).unwrap();
        for offset in offsets {
            let mut bytes = [7; 250];
            bytes[12] = *offset;
            writer.write(0, 0, 250, None, &bytes).unwrap();
        }
        writer.finish().unwrap();
        let (program, trace) = (file("far.bpf"), file("in.pcap"));
        let arguments = ["verify", &program, "-r", &trace, "--targets"];
        let all = arguments.iter().chain(more);
        Ran::from(flowloom().args(all).output().unwrap())
    };
    let ran = run(&[200, 20, 201], &["pipeline"]);
    let row = ran.stdout.lines().find(|line| line.starts_with("pipeline")).unwrap_or_default();
    let row: Vec<&str> = row.split_whitespace().collect();
    assert!(ran.code == Some(0) && row[..4] == ["pipeline", "equal", "3", "2"], "{ran:?}");
    assert!(ran.stdout.contains("slow path"), "{ran:?}");
    let ran = run(&[200, 20, 201], &["pipeline", "--json"]);
    assert!(ran.code == Some(0) && ran.stdout.contains("\"packets_slow\": 2"), "{ran:?}");
    // The dataflow leaves the same packets to the host.
    for targets in ["pipeline", "pipeline,dataflow"] {
        let ran = run(&[200, 201], &[targets]);
        assert_eq!(ran.code, Some(2), "{ran:?}");
        assert!(
            ran.stdout.contains("not compared") && ran.stdout.contains("all 2 packets took the slow path"),
            "{ran:?}"
        );
    }
    let ran = run(&[200, 201], &["pipeline", "--json"]);
    assert!(ran.code == Some(2) && ran.stdout.contains("\"agrees\": null"), "{ran:?}");
}

/// Packets of a function behind one another, on its own traffic: a slice of several stages with a division.
#[test]
fn packets_follow_one_another_through_a_pipeline() {
    if !has_verilator("packets_follow_one_another_through_a_pipeline") {
        return;
    }
    let ran = exits(0, &["verify", POLICER, "--targets", "interp,pipeline", "--packets", "2000"]);
    assert!(ran.stdout.contains("pipeline"), "{ran:?}");
}
