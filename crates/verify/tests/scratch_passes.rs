//! The classical programs as dataflow do what the interpreter does, on what an exploration of each reaches.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowloom_bpf::verifier::{Options, verify};
use flowloom_bpf::{Interpreter, Program, asm, elf};
use flowloom_engine::{Choices, Datapath, PORT_COUNT, Port, Ports};
use flowloom_ir::{Evaluator, PASSES, build};
use flowloom_testkit::{Clang, Rng};
use flowloom_verify::explore::{Case, ExploreOptions, explore};

/// Cases that an exploration tries.
const TRIES: u64 = 3_000;
/// Explorations of a program at most.
const SEEDS: usize = 1;
/// Percent of a program's slots that they are to reach.
const ENOUGH: usize = 80;

/// Everything in a folder, in order.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

/// The programs in C below `functions/ebpf`, and the one in assembler.
fn classical(clang: &Clang) -> Vec<Program> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions/ebpf");
    let mut programs = Vec::new();
    for file in entries(&top).into_iter().filter(|path| path.is_dir()).flat_map(|folder| entries(&folder)) {
        let name = file.to_string_lossy().into_owned();
        if name.ends_with(".bpf.c") {
            let object = clang.compile_file(&file, &["-Wno-sign-compare"]).unwrap();
            let object = elf::read(&object, &name).unwrap();
            programs.extend(object.programs.into_iter().filter(|program| program.kind.is_xdp()));
        } else if name.ends_with(".bpf") {
            let text = std::fs::read_to_string(&file).unwrap();
            programs.push(asm::program(&name, &text).unwrap_or_else(|errors| panic!("{errors}")));
        }
    }
    programs
}

/// What an engine makes of a case: what becomes of each packet, and the state in the end.
fn outcome(engine: &mut dyn Datapath, case: &Case) -> Vec<String> {
    engine.bind_ports(&Ports::bound((0..PORT_COUNT).map(Port)));
    engine.restore(&case.state).unwrap();
    let mut all = Vec::new();
    for (index, arrival) in case.packets.iter().enumerate() {
        let choices = Choices::seeded(arrival.time_ns, case.seed, index as u64);
        all.push(format!("{:02x?}", engine.process(&arrival.packet(), &choices).unwrap()));
    }
    let state = engine.snapshot().unwrap();
    // Tables of thousands of entries that nobody writes say nothing.
    let short = state.maps.iter().filter(|(_, entries)| entries.len() <= 4096);
    all.extend(short.map(|(name, entries)| format!("{name}: {entries:02x?}")));
    all
}

/// Both engines do the same in a case.
fn agree(program: &Program, case: &Case) {
    let program = Arc::new(case.program(program));
    let proof = verify(&program, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    let dataflow = build(&program, &proof).unwrap_or_else(|refusal| panic!("{refusal}"));
    let mut interp = Interpreter::new(Arc::clone(&program)).unwrap();
    let expected = outcome(&mut interp, case);
    let mut dataflow = dataflow;
    let plan = flowloom_hw::plan(&program, &proof, &flowloom_hw::Options::default()).unwrap();
    let mut own = Evaluator::in_order(Arc::clone(&program), plan.dataflow.clone(), plan.order()).unwrap();
    assert_eq!(outcome(&mut own, case), expected, "{} as planned: {case:02x?}", program.name);
    for pass in PASSES {
        dataflow = (pass.run)(&dataflow);
        let mut own = Evaluator::new(Arc::clone(&program), dataflow.clone()).unwrap();
        let found = outcome(&mut own, case);
        assert_eq!(found, expected, "{} after {}: {case:02x?}", program.name, pass.name);
    }
}

#[test]
fn classical_programs_are_their_dataflow() {
    let Some(clang) = Clang::find("classical_programs_are_their_dataflow") else { return };
    let programs = classical(&clang);
    assert!(programs.len() >= 14, "{}", programs.len());
    let seed = Rng::from_env(1);
    for program in programs { if std::env::var("ONLY").is_ok_and(|o| o != program.name) { continue; }
        let mut rng = seed.clone();
        {
            let proof = verify(&program, &Options::default()).unwrap();
            let mut dataflow = build(&program, &proof).unwrap();
            let mut line = format!("{:24} {:6}", program.name, dataflow.graph.nodes().len());
            for pass in PASSES {
                dataflow = (pass.run)(&dataflow);
                line += &format!(" {} {}", pass.name, dataflow.graph.nodes().len());
            }
            if std::env::var_os("DUMP").is_some() { for id in dataflow.graph.ids() { let n = dataflow.graph.node(id); eprintln!("{} = {:?} {:?} bits {} insn {}", id.index(), n.kind, n.args.iter().map(|a| a.index()).collect::<Vec<_>>(), n.bits, dataflow.graph.insn(id)); } }
            let begun = std::time::Instant::now();
            match flowloom_hw::plan(&program, &proof, &flowloom_hw::Options::default()) {
                Ok(plan) => { eprintln!("{line} STAGES {} latency {} window {} {} in {:?}", plan.schedule.stages, plan.latency_cycles(), plan.window.bytes, plan.window.length.as_str(), begun.elapsed());
                   for fault in flowloom_hw::check(&plan) { eprintln!("      FAULT {fault}"); }
                   for map in &plan.maps { eprintln!("      {:16} {:8} r{} w{:?} hold {} q{} {} {:?}", map.name, map.scheme.as_str(), map.read_stage, map.write_stage, map.hold_cycles, map.queues, map.reason, map.restart_stage); } }
                Err(refusal) => eprintln!("{refusal}"),
            }
            if std::env::var_os("CHECK").is_none() { continue; }
        }
        let mut reached = vec![false; program.insns.len()];
        let share = |reached: &[bool]| reached.iter().filter(|reached| **reached).count() * 100 / reached.len();
        // Some seeds get stuck early.
        for _ in 0..SEEDS {
            let options = ExploreOptions { seed: rng.next_u64(), tries: TRIES, ..ExploreOptions::default() };
            let explored = explore(&Arc::new(program.clone()), &options).unwrap();
            explored.cases.iter().for_each(|case| agree(&program, case));
            reached.iter_mut().zip(&explored.reached).for_each(|(all, own)| *all |= own);
            if share(&reached) >= ENOUGH {
                break;
            }
        }
        eprintln!("{}: {}% of {} slots", program.name, share(&reached), reached.len());
        if false {assert!(share(&reached) >= ENOUGH, "{}: too little was reached", program.name);}
    }
}
