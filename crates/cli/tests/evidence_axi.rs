// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The outer ports of generated pipelines, whose shells are in "hdl", driven by cocotbext-axi. Start with `make evidence ONLY=axi`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use flowloom_engine::{Choices, Datapath, MapState, Packet, Port};
use flowloom_plan::Options;
use flowloom_rtl::registers::{COUNTERS, MAP, OPERATIONS, SHELL, SHELL_COUNTERS};
use flowloom_rtl::{MapBlock, Pipeline};
use flowloom_session::{FunctionFile, Loaded};
use flowloom_testkit::Rng;
use flowloom_vm::Interpreter;
use serde_json::{Value, json};

use crate::common::{clang, ok, top};
use crate::evidence_hardware::script;

/// The kind of maps whose values are egress ports.
const PORTS: u32 = 2;

/// The packets of a seed at least.
const PACKETS: usize = 1500;

/// A change of a generated folder that the bench must find.
struct Fault {
    name: &'static str,
    file: &'static str,
    from: &'static str,
    to: &'static str,
    /// A part of the message.
    found: &'static str,
}

const FAULTS: [Fault; 4] = [
    Fault {
        name: "a valid word is withdrawn while the output stalls",
        file: "fl_skid.sv",
        from: "      skid_valid_q <= 1'b1;\n",
        to: "      skid_valid_q <= 1'b1;\n      out_valid_q <= Width <= 64;\n",
        found: "valid falls before ready",
    },
    Fault {
        name: "a word that arrives in a stall replaces the one that waits",
        file: "fl_skid.sv",
        from: "      skid_valid_q <= 1'b1;\n",
        to: "      skid_valid_q <= 1'b1;\n      if (Width > 64) out_data_q <= in_data_i;\n",
        found: "the payload changes before ready",
    },
    Fault {
        name: "a word that arrives in a stall is lost",
        file: "fl_skid.sv",
        from: "      skid_valid_q <= 1'b1;\n",
        to: "      skid_valid_q <= Width <= 64;\n",
        found: "packet",
    },
    Fault {
        name: "a read takes the register of a response that waits",
        file: "fl_axil.sv",
        from: "ar_valid && !was_read_q && !r_valid_q",
        to: "ar_valid && !was_read_q",
        found: "r: the payload changes before ready",
    },
];

/// What the faults replace stands once in its file of "hdl".
#[test]
fn every_fault_of_the_outer_ports_has_its_place() {
    let folders = ["prim", "shell"].map(|folder| top().join("hdl").join(folder));
    for Fault { name, file, from, .. } in FAULTS {
        let path = folders.iter().map(|folder| folder.join(file)).find(|path| path.exists());
        let text = path.map(|path| std::fs::read_to_string(path).unwrap()).unwrap_or_default();
        assert_eq!(text.matches(from).count(), 1, "{name}: {from}");
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
}

/// The packets of `vectors.txt`, of all groups one after another: port, bytes, and times that do not go back.
fn vectors(folder: &Path) -> Vec<(u32, u64, Vec<u8>)> {
    let text = std::fs::read_to_string(folder.join("vectors.txt")).unwrap();
    let mut last_ns = 0;
    let packets = text.lines().filter_map(|line| line.strip_prefix("packet ")).map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        last_ns = last_ns.max(fields[1].parse().unwrap());
        (fields[0].parse().unwrap(), last_ns, unhex(fields[2]))
    });
    packets.collect()
}

/// Packets of the folder, then the same ones in random order, with the interpreter's results, and the entries of its maps
/// in the end, by the names of the maps. All begin with the maps of a pipeline after a reset, without those of the groups.
fn expected(loaded: &Loaded, folder: &Path) -> (Vec<Value>, BTreeMap<String, MapState>) {
    let mut interp = Interpreter::new(loaded.program().unwrap()).unwrap();
    let first = vectors(folder);
    let (mut all, mut rng) = (Vec::new(), Rng::new(1));
    let last_ns = first.iter().map(|(_, time_ns, _)| *time_ns).max().unwrap();
    for number in 0..PACKETS.max(first.len()) {
        let (port, mut time_ns, bytes) = first.get(number).unwrap_or_else(|| rng.pick(&first)).clone();
        if number >= first.len() {
            time_ns = last_ns + 1000 * number as u64;
        }
        let packet = Packet { bytes: &bytes, port: Port(port) };
        let outcome = interp.process(&packet, &Choices::seeded(time_ns, 0, 0)).unwrap();
        let sent = outcome.outputs.first();
        all.push(json!({
            "port": port, "time": time_ns, "bytes": hex(&bytes), "verdict": outcome.verdict.number(),
            "out_port": sent.map_or(0, |output| output.port.0), "out": sent.map(|output| hex(&output.bytes)),
        }));
    }
    (all, interp.snapshot().unwrap().maps)
}

/// A map as the bench takes it, with the entries that the host writes first and those expected in the end.
fn map(block: &MapBlock, entries: &BTreeMap<String, MapState>) -> Value {
    let ports = (0..block.entries).map(|port| [hex(&port.to_le_bytes()), hex(&port.to_le_bytes())]);
    let initial: Vec<_> = if block.kind == PORTS { ports.collect() } else { Vec::new() };
    let own = entries.get(&block.name).into_iter().flatten();
    let own = own.map(|(key, value)| [hex(key), hex(&value[..block.value_bytes as usize])]);
    let expected: Vec<_> = if block.kind == PORTS { initial.clone() } else { own.collect() };
    json!({
        "name": block.name, "kind": block.kind, "address": block.address, "key_address": block.key_address(),
        "value_address": block.value_address(), "key_bytes": block.key_bytes, "value_bytes": block.value_bytes,
        "initial": initial, "expected": expected,
    })
}

/// Writes the case of a function into a folder with its pipeline.
fn write_case(folder: &Path, function: &str, seeds: &[u64]) {
    ok(&["build", function, "--target", "verilog", "-o", &folder.display().to_string()]);
    let loaded = Loaded::open(&FunctionFile { path: top().join(function), ..FunctionFile::default() }).unwrap();
    let pipeline: Pipeline = loaded.pipeline(&Options::default()).unwrap();
    let shell = pipeline.shell();
    let mut sources: Vec<&str> = shell.files.iter().chain(&pipeline.files).map(|file| file.name.as_str()).collect();
    sources.sort_by_key(|name| !name.ends_with("_pkg.sv"));
    let (vectors, entries) = expected(&loaded, folder);
    let maps: Vec<Value> = shell.blocks.iter().map(|block| map(block, &entries)).collect();
    let registers: BTreeMap<&str, u32> = MAP.iter().map(|register| (register.name, register.offset)).collect();
    let counters: BTreeMap<&str, u32> =
        COUNTERS.iter().map(|counter| (counter.name, SHELL_COUNTERS + 8 * counter.value)).collect();
    let operations: BTreeMap<&str, u32> = OPERATIONS.iter().map(|one| (one.name, one.value)).collect();
    let status = SHELL.iter().find(|register| register.name == "STATUS").unwrap().offset;
    let case = json!({
        "top": shell.module, "sources": sources, "seeds": seeds, "status": status, "registers": registers,
        "counters": counters, "operations": operations, "maps": maps, "vectors": vectors,
        "no_address": (1u32 << shell.address_bits) - 4,
    });
    std::fs::write(folder.join("case.json"), case.to_string()).unwrap();
}

/// The folder of a function, which stays: models of the faults are those of the whole shell but for a file.
fn folder(function: &str) -> PathBuf {
    top().join("target/axi").join(Path::new(function).file_stem().unwrap())
}

/// Whether the bench finds nothing, and its figures.
fn bench(tools: &str, folder: &Path) -> (bool, String) {
    let python = Path::new(tools).join("venv/bin/python");
    // Of a run before.
    _ = std::fs::remove_file(folder.join("figures.txt"));
    let mut command = Command::new(python);
    let done = command.arg(top().join("scripts/axi-bench")).arg(folder.join("case.json")).output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout).into_owned();
    let figures = std::fs::read_to_string(folder.join("figures.txt")).unwrap_or_else(|_| {
        let log = std::fs::read_to_string(folder.join("build.log")).unwrap_or_default();
        panic!("no figures: {text}{}{log}", String::from_utf8_lossy(&done.stderr))
    });
    (done.status.success(), figures)
}

/// The shells of two pipelines, driven by cocotbext-axi with random stalls on both streams and on the five channels of
/// AXI4-Lite: no fault of a protocol, no lost word, and packets, counters and map entries as the interpreter has them. Each
/// fault of a list, planted in the shell, is found. Prints the figures of each seed.
#[test]
#[ignore = "minutes; fetches cocotb"]
fn evidence_axi() {
    const TEST: &str = "evidence_axi";
    if !clang(TEST) {
        return;
    }
    let Some(installed) = script(TEST, "scripts/cocotb-tools", &[]) else { return };
    assert!(installed.status.success(), "{}", String::from_utf8_lossy(&installed.stderr));
    let tools = String::from_utf8(installed.stdout).unwrap().trim().to_owned();
    // The map of the second one has 65,536 entries, whose rows are listed in the end.
    let functions = [
        ("functions/ebpf/simple_firewall/simple_firewall.bpf.c", &[1, 2, 3, 4][..]),
        ("functions/port_knocking/port_knocking.efsm", &[1, 2]),
    ];
    for (function, seeds) in functions {
        let folder = folder(function);
        write_case(&folder, function, seeds);
        let (is_good, figures) = bench(&tools, &folder);
        println!("{function}\n{figures}");
        assert!(is_good, "{function}");
    }
    for Fault { name, file, from, to, found } in FAULTS {
        let folder = folder(functions[0].0);
        write_case(&folder, functions[0].0, &[1, 2, 3]);
        let path = folder.join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text.matches(from).count(), 1, "{name}: {from}");
        std::fs::write(&path, text.replace(from, to)).unwrap();
        let (is_good, figures) = bench(&tools, &folder);
        let message = figures.lines().last().unwrap_or_default();
        println!("{name}: {message}");
        assert!(!is_good && message.contains(found), "{name}: {figures}");
    }
}
