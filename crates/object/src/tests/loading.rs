// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Our objects, loaded into the kernel by other loaders.

use std::sync::atomic::{AtomicU32, Ordering};

use aya::programs::Xdp;
use flowloom_testkit::{Rng, skip};

use super::compiled::{bpftool, maps_of};
use super::random;
use super::samples::{everything, minimal};
use crate::write;
use flowloom_testkit::scratch::{Scratch, name, output, run, text};

#[test]
fn the_kernel_takes_everything_and_names_source_lines() {
    let test = "the_kernel_takes_everything_and_names_source_lines";
    let Some(scratch) = Scratch::with_kernel(test) else { return };
    let (pin, log) = scratch.load(&write(&everything()).unwrap(), "everything");
    for line in ["; element knock key (5-tuple) {", "; in closed when tcp.dport == 7000", "; otherwise drop"] {
        assert!(log.contains(line), "`{line}` is not in the log:\n{log}");
    }
    let dump = output("bpftool", &["prog", "dump", "xlated", "pinned", name(&pin), "linum"]);
    for line in ["int knock(struct xdp_md * ctx)", "[file:knock.efsm line_num:12 line_col:9]", "int knock_2()"] {
        assert!(dump.contains(line), "`{line}` is not in the dump:\n{dump}");
    }
}

#[test]
fn records_of_context_tables_are_dumped_by_name() {
    let Some(scratch) = Scratch::with_kernel("records_of_context_tables_are_dumped_by_name") else { return };
    let (pin, _) = scratch.load(&write(&everything()).unwrap(), "everything");
    let maps = maps_of(name(&pin));
    let (_, id) = maps.iter().find(|(name, _)| name == "knock_ctx").expect("the context table is loaded");
    let mut args = vec!["map", "update", "id", id, "key", "hex"];
    let key = ["01"; 13];
    let value = "02 00 34 12 00 00 00 00 08 07 06 05 04 03 02 01 fd ff ff ff 00 00 00 00";
    args.extend(key);
    args.extend(["value", "hex"]);
    args.extend(value.split(' '));
    output("bpftool", &args);
    let dump = bpftool(&["map", "dump", "id", id]);
    let record = &dump[0]["formatted"]["value"];
    assert_eq!(record["state"], 2, "{dump}");
    assert_eq!(record["odd_name"], 0x1234, "{dump}");
    assert_eq!(record["idle_deadline"], 0x0102_0304_0506_0708_u64, "{dump}");
    assert_eq!(record["credit"], -3, "{dump}");
    assert_eq!(dump[0]["formatted"]["key"].as_array().map(Vec::len), Some(13), "{dump}");
}

#[test]
fn the_kernel_takes_the_types_of_random_maps() {
    let Some(scratch) = Scratch::with_kernel("the_kernel_takes_the_types_of_random_maps") else { return };
    let mut rng = Rng::from_env(11);
    for round in 0..24 {
        let mut program = minimal();
        program.maps = random::loadable_maps(&mut rng);
        let (pin, log) = scratch.load(&write(&program).unwrap(), &format!("maps{round}"));
        for map in program.maps.iter().filter(|m| m.initial.is_none()) {
            assert!(log.contains(&format!("map '{}': created successfully", map.name)), "{map:?}\n{log}");
        }
        std::fs::remove_file(pin).unwrap();
    }
}

#[test]
fn aya_loads_it() {
    let Some(_scratch) = Scratch::with_kernel("aya_loads_it") else { return };
    let mut loaded = aya::Ebpf::load(&write(&everything()).unwrap()).expect("aya takes the object");
    let program: &mut Xdp = loaded.program_mut("knock").unwrap().try_into().unwrap();
    program.load().expect("the kernel takes the program");
    let data: aya::maps::Array<_, [u8; 12]> = loaded.map(".rodata.k").unwrap().try_into().unwrap();
    assert_eq!(data.get(&0, 0).unwrap(), [9; 12]);
    let table = loaded.map("knock_ctx").unwrap();
    let table: aya::maps::HashMap<_, [u8; 13], [u8; 24]> = table.try_into().unwrap();
    assert_eq!(table.keys().count(), 0);
}

/// A veth pair, removed at the end.
struct Pair {
    names: [String; 2],
}

impl Pair {
    fn new(test: &str) -> Option<Pair> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (id, tag) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        // Interface names have at most 15 bytes.
        let names = [format!("fle{tag}{id:x}a"), format!("fle{tag}{id:x}b")];
        let made = run("ip", &["link", "add", &names[0], "type", "veth", "peer", "name", &names[1]]);
        match made {
            Ok(out) if out.status.success() => Some(Pair { names }),
            Ok(out) => {
                skip(test, text(&out).trim());
                None
            }
            Err(reason) => {
                skip(test, &reason);
                None
            }
        }
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = run("ip", &["link", "del", &self.names[0]]);
    }
}

#[test]
fn ip_link_attaches_it() {
    let test = "ip_link_attaches_it";
    let Some(scratch) = Scratch::with_kernel(test) else { return };
    let Some(pair) = Pair::new(test) else { return };
    let object = scratch.put("everything.o", &write(&everything()).unwrap());
    for mode in ["xdp", "xdpgeneric"] {
        output("ip", &["link", "set", "dev", &pair.names[0], mode, "obj", name(&object), "sec", "xdp"]);
        let shown = output("ip", &["link", "show", "dev", &pair.names[0]]);
        assert!(shown.contains("name knock"), "{shown}");
        output("ip", &["link", "set", "dev", &pair.names[0], mode, "off"]);
    }
}

#[test]
fn xdp_loader_attaches_it() {
    let test = "xdp_loader_attaches_it";
    let Some(scratch) = Scratch::with_kernel(test) else { return };
    if let Err(reason) = run("xdp-loader", &["help"]) {
        return skip(test, &reason);
    }
    let Some(pair) = Pair::new(test) else { return };
    let object = scratch.put("everything.o", &write(&everything()).unwrap());
    output("xdp-loader", &["load", "-m", "skb", &pair.names[0], name(&object)]);
    let shown = output("xdp-loader", &["status", &pair.names[0]]);
    assert!(shown.contains("knock"), "{shown}");
    output("xdp-loader", &["unload", "-a", &pair.names[0]]);
}

#[test]
fn readelf_and_bpftool_understand_it() {
    let test = "readelf_and_bpftool_understand_it";
    let scratch = Scratch::new();
    let object = scratch.put("everything.o", &write(&everything()).unwrap());
    match run("llvm-readelf", &["-S", "-r", "-s", name(&object)]) {
        Err(reason) => skip(test, &reason),
        Ok(out) => {
            let said = text(&out);
            assert!(out.status.success() && !said.contains("warning"), "{said}");
            for part in ["R_BPF_64_64", "R_BPF_64_32", "knock_ctx", ".flowloom", ".BTF.ext"] {
                assert!(said.contains(part), "`{part}` is missing:\n{said}");
            }
        }
    }
    match run("bpftool", &["btf", "dump", "file", name(&object)]) {
        Err(reason) => skip(test, &reason),
        Ok(out) => {
            let said = text(&out);
            assert!(out.status.success(), "{said}");
            for part in ["STRUCT 'knock_context' size=24", "FUNC 'knock'", "DATASEC '.maps'", "'credit' type_id"] {
                assert!(said.contains(part), "`{part}` is missing:\n{said}");
            }
        }
    }
}
