// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom build`: compiles a function for a target.

mod folder;
mod image;

use std::fs;
use std::path::{Path, PathBuf};

use flowloom_context::ContextLayout;
use flowloom_efsm::layout;
use flowloom_isa::Program;
use flowloom_plan::{Fit, Options, Plan, Target as Hardware};
use flowloom_rtl::{Core, Expiring, Facts, File, Rendering};
use flowloom_session::Loaded;
use flowloom_session::engines::PipelineError;
use serde_json::json;

use crate::args::{BuildArgs, Target};
use crate::check::source::make_lines_relative;
use crate::entries::entries;
use crate::explain::{fit, plan, plan_failure};
use crate::failure::{Failure, with_causes};
use crate::files::Files;
use crate::output::{counted, grouped, print, print_json, print_note, warn};
use crate::vectors;

pub(crate) fn build(args: &BuildArgs) -> Result<(), Failure> {
    if args.parameters.is_some() && args.target != Target::Overlay {
        return Err(Failure::Input(
            "--parameters requires --target overlay: other targets have no named sets of parameters".to_owned(),
        ));
    }
    match args.target {
        Target::Bpf => object(args),
        Target::Verilog => verilog(args),
        Target::Overlay => image::image(args),
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
    if args.clock.is_some() {
        return Err(Failure::Input("--clock requires --target verilog: an object has no clock".to_owned()));
    }
    is_folder(&args.output)?;
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
    is_folder(&args.output)?;
    let loaded = args.function.load()?;
    warn(loaded.warnings());
    let function = loaded.function().cloned();
    // The form with the parser of the target, which `explain` plans too.
    let mut program = loaded.pipeline_program()?.as_ref().clone();
    make_lines_relative(&mut program.lines);
    let entries = entries(&loaded, &args.function.file())?;
    let loaded = Loaded::of_program(program);
    let usual = Options::default();
    let options = Options { target: args.clock.map_or(usual.target, Hardware::at), ..usual };
    let plan = plan(&loaded, &options, args.json)?;
    let fit = fit(&plan, &args.device, args.json)?;
    let hash_seed = args.hash_seed.unwrap_or(Core::DEFAULT_HASH_SEED);
    let rendering = Rendering { hash_seed, ..Rendering::default() };
    let rendering = fit.iter().fold(rendering, |rendering, fit| rendering.placed(&plan, fit));
    let pipeline = loaded.rendered_as(&plan, &rendering).map_err(|error| match error {
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
    let groups = vectors::groups(function.as_ref(), &loaded, &plan, &pipeline)?;
    let packets: usize = groups.iter().map(|group| group.vectors.len()).sum();
    if packets == 0 {
        print_note(
            "`vectors.txt` has no packets, so that `make sim` compares no verdicts: no generated packet has a result that \
             the interpreter tells; `verify` runs a trace of yours",
        );
    }
    for placed in fit.iter().flat_map(|fit| rendering.left(fit)) {
        let (map, holds) = (placed.memory.map.as_deref().unwrap_or("no map"), placed.memory.holds);
        print_note(&format!(
            "the device needs UltraRAMs for the {holds} of `{map}`, whose RAMs in the folder say `block`: change `ram_style` \
             where its module has them"
        ));
    }
    let shell = pipeline.shell();
    let document = File { name: "registers.md".to_owned(), text: shell.document(&entries) };
    let header = File { name: shell.header_name(), text: shell.header(&entries) };
    let facts = facts(&*loaded.program()?, &plan, fit.as_ref());
    let sources = pipeline.files.iter().chain(&shell.files).cloned();
    let files = sources.chain(pipeline.bench(&groups, &facts)).chain([document, header]).map(with_license);
    let files = folder::with_manifest(files.collect());
    fs::create_dir_all(&args.output).map_err(|e| Failure::file("created", &args.output, &e))?;
    let paths: Vec<PathBuf> = files.iter().map(|file| args.output.join(&file.name)).collect();
    let mut checked = Files::default().reads("the function", [&args.function.path]);
    for path in &paths {
        checked = checked.writes("-o", Some(path));
    }
    checked.check()?;
    folder::prepare(&args.output, &files)?;
    for (file, path) in files.iter().zip(&paths) {
        fs::write(path, &file.text).map_err(|e| Failure::file("written", path, &e))?;
    }
    for Expiring { map, .. } in &facts.expiring {
        print_note(&format!("nothing in hardware sweeps `{map}`: software has to delete expired contexts (README.md)"));
    }
    if facts.window_bytes.is_some() {
        print_note("some packets leave unprocessed for the slow path, with verdict 5 (README.md)");
    }
    if args.json {
        return print_json(&json!({
            "folder": args.output.display().to_string(),
            "top": pipeline.module,
            "shell": shell.module,
            "device": fit,
            "latency_cycles": pipeline.latency_cycles(),
            "stages": pipeline.core.stages,
            "clock_mhz": plan.options.target.clock_mhz,
            "vectors": packets,
            "groups": groups.len(),
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
        counted(packets, "packet")
    ))
}

/// Rejects a file in place of the folder to build into.
fn is_folder(path: &Path) -> Result<(), Failure> {
    match fs::metadata(path) {
        Ok(found) if !found.is_dir() => Err(Failure::Input(format!(
            "-o `{}` is a file, expected a folder; name a new or existing one",
            path.display()
        ))),
        _ => Ok(()),
    }
}

/// The facts of the plan for the description of the folder.
fn facts(program: &Program, plan: &Plan, fit: Option<&Fit>) -> Facts {
    let layouts = program.maps.iter().filter_map(|map| Some((map.name.clone(), map.layout.as_ref()?)));
    let layouts: Vec<_> = layouts.collect();
    let expiring = layouts.iter().filter(|(_, layout)| !layout.deadline_offsets.is_empty());
    let preloaded = layouts.iter().filter(|(_, layout)| !layout.preloaded.is_empty());
    Facts {
        clock_mhz: plan.options.target.clock_mhz,
        device: fit.map(|fit| {
            let used = fit.resources().into_iter().filter(|(_, used)| used.needed > 0);
            let used =
                used.map(|(name, used)| format!("{} of {} {name}", grouped(used.needed), grouped(used.available)));
            let used: Vec<String> = used.collect();
            format!("{} ({}); {} by the plan's figures, LUTs are not estimated", fit.name, fit.about, used.join(", "))
        }),
        window_bytes: plan.window.reaches_beyond.then_some(plan.window.bytes),
        expiring: expiring.map(|(name, layout)| expiring_map(name, layout)).collect(),
        preloaded: preloaded.map(|(name, _)| name.clone()).collect(),
    }
}

/// The properties of a map that software needs to sweep it.
fn expiring_map(name: &str, layout: &ContextLayout) -> Expiring {
    let state =
        |number: usize| layout.states.get(number).map_or_else(|| number.to_string(), |name| format!("`{name}`"));
    let succession = layout.succession.iter().flat_map(|succession| {
        let timer = |name: &str, offset: Option<u32>, timeout_ns: Option<u64>| {
            let timeout = timeout_ns.map_or_else(|| "none".to_owned(), |ns| format!("that deadline + {ns} ns"));
            offset.map_or_else(String::new, |offset| format!(", {name} deadline at {offset}: {timeout}"))
        };
        let successors = succession.successors.iter().enumerate().filter_map(|(from, to)| Some((from, (*to)?)));
        successors.map(move |(from, to)| {
            let period = succession.idle_offsets.map_or_else(String::new, |(_, offset)| {
                format!(", idle period at {offset}: {} ns", to.idle_ns.unwrap_or(0))
            });
            format!(
                "A context in state {} ({from}, 16 bits at offset {}) is not deleted: it enters state {} ({}{}{period}{}); if a \
                 deadline has passed then too, it is deleted.",
                state(from),
                succession.state_offset,
                state(to.state.into()),
                to.state,
                timer("idle", succession.idle_offsets.map(|(deadline, _)| deadline), to.idle_ns),
                timer("hard", succession.hard_offset, to.hard_ns),
            )
        })
    });
    Expiring {
        map: name.to_owned(),
        deadline_offsets: layout.deadline_offsets.clone(),
        sweep_ns: layout.sweep_ns,
        successors: succession.collect(),
    }
}

/// The file with the license of Flowloom's blocks and templates in its first line, if its form has comments.
fn with_license(file: File) -> File {
    let comment = match file.name.rsplit_once('.') {
        Some((_, "sv" | "cpp" | "f")) => "//",
        Some((_, "xdc" | "txt")) => "#",
        None if file.name == "Makefile" => "#",
        _ => return file,
    };
    if file.text.lines().next().is_some_and(|line| line.contains("SPDX-License-Identifier")) {
        return file;
    }
    File { text: format!("{comment} SPDX-License-Identifier: Apache-2.0 OR MIT\n{}", file.text), ..file }
}
