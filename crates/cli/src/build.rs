// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom build`: compiles a function to an object for a target.

use std::fs;

use flowloom_efsm::layout;
use serde_json::json;

use crate::args::{BuildArgs, Target};
use crate::failure::Failure;
use crate::files::Files;
use crate::output::{counted, print, print_json, print_note, warn};

pub(crate) fn build(args: &BuildArgs) -> Result<(), Failure> {
    let Target::Bpf = args.target;
    let loaded = args.function.load()?;
    warn(loaded.warnings());
    let program = loaded.attached_program(args.counters)?;
    let bytes = flowloom_object::write(&program).map_err(|e| Failure::input(&e))?;
    fs::create_dir_all(&args.output).map_err(|e| Failure::file("created", &args.output, &e))?;
    let path = args.output.join(format!("{}.o", loaded.name()));
    Files::default().reads("the function", [&args.function.path]).writes("-o", Some(&path)).check()?;
    fs::write(&path, &bytes).map_err(|e| Failure::file("written", &path, &e))?;
    if program.maps.iter().any(|m| m.name == layout::PORTS_MAP) {
        print_note(
            "the function forwards to ports: fill its map `fl_ports` (port number to interface index) once it is attached; \
             a packet to a port without an entry is ABORTED",
        );
    }
    if program.maps.iter().any(|m| m.layout.as_ref().is_some_and(|l| !l.deadline_offsets.is_empty())) {
        print_note("attached objects are not swept: an expired context stays until its flow returns");
    }
    if program.map_index(layout::LOCKS_MAP).is_some() {
        print_note(
            "packets lock their contexts, so that any number of CPUs may run the object: it needs Linux 6.9 or later",
        );
    }
    if args.json {
        return print_json(&json!({
            "object": path.display().to_string(),
            "section": program.section,
            "instructions": program.insns.len(),
            "bytes": bytes.len(),
            "maps": program.maps.iter().map(|m| json!({
                "name": m.name, "key_bytes": m.key_bytes, "value_bytes": m.value_bytes, "max_entries": m.max_entries,
            })).collect::<Vec<_>>(),
        }));
    }
    print(&format!(
        "{}: section `{}`, {}, {}\n",
        path.display(),
        program.section,
        counted(program.insns.len(), "instruction"),
        counted(program.maps.len(), "map")
    ))
}
