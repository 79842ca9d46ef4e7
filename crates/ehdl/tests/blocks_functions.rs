// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The block schedule of every classical program, against what it says of itself: the dependences that it must keep,
//! each instruction as early as they allow, and every register there where it is read.
#![allow(clippy::unwrap_used)]

use std::path::PathBuf;

use flowloom_ehdl::{Access, Region, Schedule, schedule};
use flowloom_isa::{Program, asm};
use flowloom_plan::Target;
use flowloom_testkit::Clang;
use flowloom_verifier::{Options, verify};

fn programs(clang: &Clang) -> Vec<Program> {
    let mut sources: Vec<PathBuf> = Vec::new();
    for folder in std::fs::read_dir("../../functions/ebpf").unwrap() {
        let Ok(files) = std::fs::read_dir(folder.unwrap().path()) else { continue };
        let files = files.map(|file| file.unwrap().path());
        sources.extend(files.filter(|path| path.to_string_lossy().ends_with(".bpf.c")));
    }
    sources.sort();
    let objects = sources.iter().map(|source| {
        let bytes = clang.compile_file(source, &["-mcpu=v3", "-Wno-error"]).unwrap();
        flowloom_object::read(&bytes, &source.display().to_string()).unwrap()
    });
    let mut programs: Vec<Program> = objects.flat_map(|object| object.xdp().cloned().collect::<Vec<_>>()).collect();
    let printed = std::fs::read_to_string("../../functions/ebpf/toy/toy_printed.bpf").unwrap();
    programs.push(asm::program("toy_printed.bpf", &printed).unwrap());
    programs
}

fn meet(a: &Access, b: &Access) -> bool {
    let (Some(x), Some(y)) = (a.bytes, b.bytes) else { return a.region == b.region };
    a.region == b.region && x.0 < y.1 && y.0 < x.1
}

/// For each step, the first stage that its dependences on earlier steps of its block allow.
fn earliest(schedule: &Schedule) -> Vec<usize> {
    let first_of_block = |stage: usize| {
        let block = schedule.stages[stage].block;
        schedule.stages.iter().position(|stage| stage.block == block).unwrap()
    };
    let mut earliest = Vec::new();
    for (number, later) in schedule.steps.iter().enumerate() {
        let begin = first_of_block(later.stage);
        let before = schedule.steps[..number].iter().filter(|step| step.stage >= begin);
        let stages = before.flat_map(|earlier| {
            let done = earlier.stage + earlier.step.stages as usize;
            let pairs = earlier.step.accesses.iter().flat_map(|a| later.step.accesses.iter().map(move |b| (a, b)));
            pairs.filter(|(a, b)| meet(a, b)).filter_map(move |(a, b)| match (a.writes, b.writes) {
                (true, _) => Some(done),
                (false, true) => Some(earlier.stage),
                (false, false) => None,
            })
        });
        earliest.push(stages.max().unwrap_or(begin).max(begin));
    }
    earliest
}

#[test]
fn each_instruction_is_in_its_earliest_stage() {
    let Some(clang) = Clang::find("each_instruction_is_in_its_earliest_stage") else { return };
    let programs = programs(&clang);
    assert!(programs.len() >= 14, "{}", programs.len());
    for program in programs {
        let proof = verify(&program, &Options::default()).unwrap();
        let schedule = schedule(&program, &proof, &Target::default()).unwrap();
        let stages: Vec<usize> = schedule.steps.iter().map(|step| step.stage).collect();
        assert_eq!(stages, earliest(&schedule), "{}", program.name);
        assert!(!schedule.checks.is_empty(), "{}", program.name);
        for (number, stage) in schedule.stages.iter().enumerate() {
            for step in &stage.begins {
                let reads = schedule.steps[*step].step.accesses.iter().filter(|access| !access.writes);
                let mut registers = reads.map(|access| access.region).filter(|r| matches!(r, Region::Register { .. }));
                assert!(
                    registers.all(|region| stage.needed.registers.contains(&region)),
                    "{}, stage {number}: {:?}",
                    program.name,
                    schedule.steps[*step]
                );
            }
            if number > 0 {
                let (needed, carried) = (&stage.needed, &stage.carried);
                assert!(needed.registers.iter().all(|region| carried.registers.contains(region)), "{}", program.name);
                assert!(needed.stack_bytes <= carried.stack_bytes, "{}, stage {number}", program.name);
                assert!(needed.packet_bytes <= carried.packet_bytes, "{}, stage {number}", program.name);
            }
        }
    }
}
