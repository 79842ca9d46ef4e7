// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom build`: compiles a function for a target.

use std::fs;
use std::path::PathBuf;

use flowloom_efsm::layout;
use flowloom_engine::{Choices, Datapath, Verdict};
use flowloom_ir::Evaluator;
use flowloom_plan::Options;
use flowloom_rtl::{Core, File, Pipeline, Vector};
use flowloom_session::Loaded;
use flowloom_session::engines::PipelineError;
use flowloom_verify::explore::{ExploreOptions, explore};
use flowloom_vm::Interpreter;
use serde_json::json;

use crate::args::{BuildArgs, Target};
use crate::check::source::make_lines_relative;
use crate::explain::{fit, plan, plan_failure};
use crate::failure::{Failure, with_causes};
use crate::files::Files;
use crate::output::{counted, print, print_json, print_note, warn};

/// Packets of a test bench at most.
const VECTORS: usize = 1000;

pub(crate) fn build(args: &BuildArgs) -> Result<(), Failure> {
    match args.target {
        Target::Bpf => object(args),
        Target::Verilog => verilog(args),
    }
}

fn object(args: &BuildArgs) -> Result<(), Failure> {
    if args.device.device.is_some() {
        return Err(Failure::Input("--device requires --target verilog: an object fits any machine".to_owned()));
    }
    if args.hash_seed.is_some() {
        return Err(Failure::Input(
            "--hash-seed requires --target verilog: the kernel seeds the hash of each map itself".to_owned(),
        ));
    }
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

fn verilog(args: &BuildArgs) -> Result<(), Failure> {
    if args.counters {
        return Err(Failure::Input("--counters requires --target bpf: a pipeline has no counters of rows".to_owned()));
    }
    let loaded = args.function.load()?;
    warn(loaded.warnings());
    // The form with the parser of the target, which `explain` plans too.
    let mut program = loaded.pipeline_program()?.as_ref().clone();
    make_lines_relative(&mut program.lines);
    let loaded = Loaded::of_program(program);
    let options = Options::default();
    let plan = plan(&loaded, &options, args.json)?;
    let fit = fit(&plan, &args.device, args.json)?;
    let hash_seed = args.hash_seed.unwrap_or(Core::DEFAULT_HASH_SEED);
    let pipeline = loaded.rendered_with_hash_seed(&plan, hash_seed).map_err(|error| match error {
        PipelineError::Plan(error) => plan_failure(&loaded, error, args.json),
        error => {
            let message = format!("`{}` has no pipeline: {}", loaded.name(), with_causes(&error));
            if args.json {
                let printed = print_json(&json!({"error": {"code": "no-rendering", "message": message}}));
                return printed.err().unwrap_or(Failure::Finding);
            }
            Failure::Found(message)
        }
    })?;
    let has_hash = pipeline.core.text.contains(" fl_hash_map #(");
    if args.hash_seed.is_some() && !has_hash {
        print_note("--hash-seed changes nothing: the pipeline has no hash map");
    }
    let vectors = vectors(&loaded, &pipeline)?;
    let shell = pipeline.shell();
    let document = File { name: "registers.md".to_owned(), text: shell.document.clone() };
    let sources = pipeline.files.iter().chain(&shell.files).cloned();
    let files: Vec<File> = sources.chain(pipeline.bench(&vectors)).chain([document]).collect();
    fs::create_dir_all(&args.output).map_err(|e| Failure::file("created", &args.output, &e))?;
    let paths: Vec<PathBuf> = files.iter().map(|file| args.output.join(&file.name)).collect();
    let mut checked = Files::default().reads("the function", [&args.function.path]);
    for path in &paths {
        checked = checked.writes("-o", Some(path));
    }
    checked.check()?;
    for (file, path) in files.iter().zip(&paths) {
        fs::write(path, &file.text).map_err(|e| Failure::file("written", path, &e))?;
    }
    if args.json {
        return print_json(&json!({
            "folder": args.output.display().to_string(),
            "top": pipeline.module,
            "shell": shell.module,
            "device": fit,
            "latency_cycles": pipeline.latency_cycles(),
            "stages": pipeline.core.stages,
            "vectors": vectors.len(),
            "hash_seed": has_hash.then_some(hash_seed),
            "files": files.iter().map(|file| &file.name).collect::<Vec<_>>(),
            "maps": pipeline.core.maps.iter().map(|map| json!({
                "name": map.name, "index": map.map, "entries": map.entries, "value_bytes": map.value_bytes,
            })).collect::<Vec<_>>(),
        }));
    }
    print(&format!(
        "{}: top module `{}`, {}, latency {} cycles; `make -C {} sim` simulates {}\n",
        args.output.display(),
        pipeline.module,
        counted(files.len(), "file"),
        pipeline.latency_cycles(),
        args.output.display(),
        counted(vectors.len(), "packet")
    ))
}

/// Packets that reach many instructions, and what the interpreter makes of them. Packets of the slow path are left out.
fn vectors(loaded: &Loaded, pipeline: &Pipeline) -> Result<Vec<Vector>, Failure> {
    let max_bytes = pipeline.max_bytes();
    let program = loaded.program()?;
    let explored = explore(&program, &ExploreOptions::default()).map_err(|e| Failure::input(&e))?;
    let dataflow = loaded.dataflow().map_err(|e| Failure::Found(with_causes(&e)))?;
    let dataflow = flowloom_plan::optimize(&dataflow, &Options::default().target);
    let mut evaluator = Evaluator::new(loaded.pipeline_program()?, dataflow).map_err(|e| Failure::input(&e))?;
    let mut interp = Interpreter::new(program).map_err(|e| Failure::input(&e))?;
    let mut vectors = Vec::new();
    let packets = explored.cases.iter().flat_map(|case| &case.packets);
    for arrival in packets.take(VECTORS) {
        let (packet, choices) = (arrival.packet(), Choices::seeded(arrival.time_ns, 0, 0));
        let before = evaluator.slow_packets();
        evaluator.process(&packet, &choices).map_err(|e| Failure::input(&e))?;
        if evaluator.slow_packets() > before || packet.bytes.len() > max_bytes as usize {
            continue;
        }
        let outcome = interp.process(&packet, &choices).map_err(|e| Failure::input(&e))?;
        // The ports of a map are those of the switch behind the pipeline.
        if pipeline.core.spreads && outcome.verdict == Verdict::Redirect {
            continue;
        }
        let sent = outcome.outputs.into_iter().map(|output| (output.port.0, output.bytes)).collect();
        let (bytes, port, verdict) = (arrival.bytes.clone(), arrival.port.0, outcome.verdict.number() as u8);
        vectors.push(Vector { bytes, port, now_ns: choices.now_ns, verdict, random: choices.random, sent });
    }
    Ok(vectors)
}
