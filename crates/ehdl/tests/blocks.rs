// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The block schedule: the paper's example, and programs whose stages can be counted by hand.
#![allow(clippy::unwrap_used)]

use flowloom_ehdl::{Reason, Refusal, Schedule, SparseReason, Stage, schedule};
use flowloom_isa::{Explained, MapKind, Program, asm};
use flowloom_plan::Target;
use flowloom_testkit::golden;
use flowloom_verifier::{Options, verify};

fn program(text: &str) -> Program {
    let maps = ".map counts hash key 4 value 8 entries 4\n.map progs array key 4 value 4 entries 4\n";
    let mut program = asm::program("test.bpf", &format!(".program test\n.license \"GPL\"\n{maps}{text}")).unwrap();
    // The assembler has no word for it.
    program.maps[1].kind = MapKind::ProgArray;
    program
}

fn laid_out(program: &Program) -> Schedule {
    let proof = verify(program, &Options::default()).unwrap();
    schedule(program, &proof, &Target::default()).unwrap()
}

fn refused(text: &str) -> Refusal {
    let program = program(text);
    let proof = verify(&program, &Options::default()).unwrap();
    *schedule(&program, &proof, &Target::default()).unwrap_err()
}

/// Number of instructions that begin in each stage.
fn counts(schedule: &Schedule) -> Vec<usize> {
    schedule.stages.iter().map(|stage| stage.begins.len()).collect()
}

fn toy() -> Program {
    let path = "../../functions/ebpf/toy/toy_printed.bpf";
    asm::program("toy_printed.bpf", &std::fs::read_to_string(path).unwrap()).unwrap()
}

/// [eHDL 4.4]: 20 stages; two instructions in stages 1, 11 and 16, no more in any; 9 stages with one register, 6 with
/// two, one with three; the stack in 2 stages, 4 bytes; 88 bytes at most.
#[test]
fn the_toy_has_the_stages_of_the_paper() {
    let program = toy();
    let schedule = laid_out(&program);
    assert_eq!(schedule.stages.len(), 20);
    assert_eq!(schedule.max_ilp(), 2);
    let parallel: Vec<usize> = (1..=20).filter(|number| schedule.stages[number - 1].begins.len() == 2).collect();
    assert_eq!(parallel, [1, 11, 16]);
    let with = |number: usize| schedule.stages.iter().filter(|stage| stage.carried.registers.len() == number).count();
    assert_eq!([1, 2, 3].map(with), [9, 6, 1]);
    let stack: Vec<usize> = schedule.stages.iter().map(|stage| stage.carried.stack_bytes).collect();
    assert_eq!(stack.iter().filter(|bytes| **bytes == 4).count(), 2);
    assert_eq!(stack.iter().sum::<usize>(), 8);
    let bytes = |stage: &Stage| 8 * stage.carried.registers.len() as u64 + schedule.frame_bytes;
    assert_eq!(schedule.stages.iter().map(bytes).max(), Some(88));
    let without = schedule.unpruned();
    assert_eq!((without.registers, without.stack_bytes, without.packet_bytes), (11, 512, 64));
    assert_eq!(schedule.checks, [7]);
    assert_eq!(schedule.dropped, [2, 4, 5, 6]);
    golden("tests/golden/toy_printed.blocks", &schedule.render(&program));
    golden("tests/golden/toy_printed.alone", &schedule.explain(&program));
}

#[test]
fn paths_need_less_than_the_pipeline_carries() {
    let schedule = laid_out(&toy());
    // Paths through stage 7 overwrite `r1` before they read it.
    let needed: Vec<usize> = schedule.stages.iter().map(|stage| stage.needed.registers.len()).collect();
    assert_eq!(needed, [0, 2, 2, 1, 1, 1, 0, 1, 1, 1, 0, 2, 0, 0, 0, 1, 2, 2, 3, 1]);
}

#[test]
fn independent_instructions_share_a_stage_and_registers_are_not_renamed() {
    let schedule = laid_out(&program("r0 = 2\nr3 = 5\nr4 = 6\nr3 += r4\nr4 = r3\nr3 = 7\nr4 += r3\nr0 += r4\nexit"));
    // r4 | r3 = 5 + r4 | r4 = r3, r3 = 7: not fused with the addition, since r3 changes | r4 += r3 | r0 = 2 + r4 | exit
    assert_eq!(counts(&schedule), [1, 1, 2, 1, 1, 1]);
    assert_eq!((schedule.max_ilp(), schedule.average_ilp()), (2, 7.0 / 6.0));
}

#[test]
fn loops_are_unrolled_to_their_proved_trip_count() {
    // Each round but the last branch is an addition; counter and branches are decided by unrolling.
    let schedule =
        laid_out(&program("r0 = 0\nr1 = 0\nr2 = *(u32 *)(r10 - 8)\na: r0 += r2\nr1 += 1\nif r1 < 5 goto a\nexit"));
    let adds = schedule.steps.iter().filter(|step| step.step.insn == 3).count();
    assert_eq!(adds, 5);
    assert!(schedule.steps.iter().all(|step| ![4, 5].contains(&step.step.insn)), "{schedule:?}");
    assert_eq!(counts(&schedule), [1; 7]);
}

#[test]
fn data_dependent_iterations_stay_blocks() {
    let text = "call 7\nr6 = r0\nr6 &= 3\nr0 = 0\nr1 = 0\na: r0 += 2\nr1 += 1\nif r1 < r6 goto a\nexit";
    let schedule = laid_out(&program(text));
    let branches = schedule.steps.iter().filter(|step| step.step.insn == 7).count();
    assert_eq!(branches, 3);
}

#[test]
fn functions_are_inlined() {
    let text = "r6 = 3\nr1 = 1\ncall f\nr6 += r0\nr1 = r6\ncall f\nexit\nf: r6 = r1\nr6 *= r6\nr0 = r6\nexit";
    let schedule = laid_out(&program(text));
    // Each function has its own copy of the callee-saved registers.
    assert_eq!(schedule.steps.iter().filter(|step| step.step.insn == 8).count(), 2);
    assert_eq!(schedule.steps.iter().filter(|step| step.step.insn == 10).count(), 0);
    // r1 | r6' = r1 | r6' *= r6' | r0 = r6' | r6 = 3 + r0 | r1 = r6 | the same three | exit
    assert_eq!(counts(&schedule), [1; 10]);
}

#[test]
fn maps_are_distinct_and_calls_take_their_stages() {
    let text = "r6 = 0\n*(u32 *)(r10 - 4) = r6\nr2 = r10\nr2 += -4\nr1 = map[counts] ll\ncall 1\nif r0 == 0 goto out\n\
                r1 = *(u64 *)(r0 + 0)\nr1 += 1\n*(u64 *)(r0 + 0) = r1\nout: r0 = 2\nexit";
    let schedule = laid_out(&program(text));
    assert_eq!(counts(&schedule), [2, 1, 0, 0, 0, 1, 1, 1, 1, 1, 1]);
    let waits = schedule
        .sparse_stages()
        .into_iter()
        .filter(|sparse| matches!(sparse.reason, SparseReason::CallInProgress(_)))
        .count();
    assert_eq!(waits, 3);
    let redirect = program("r1 = 1\nr2 = 0\ncall 23\nexit");
    let proof = verify(&redirect, &Options::default()).unwrap();
    let stages = |redirect_stages| {
        let target = Target { redirect_stages, ..Target::default() };
        flowloom_ehdl::schedule(&redirect, &proof, &target).unwrap().stages.len()
    };
    assert_eq!(stages(5) - stages(1), 4);
}

#[test]
fn packets_are_written_by_byte() {
    let text = "r6 = *(u32 *)(r1 + 0)\nr2 = *(u32 *)(r1 + 4)\nr3 = r6\nr3 += 14\nr0 = 1\nif r3 > r2 goto out\n\
                r3 = *(u8 *)(r6 + 0)\nr4 = *(u8 *)(r6 + 6)\n*(u8 *)(r6 + 0) = r4\n*(u8 *)(r6 + 6) = r3\n\
                r5 = *(u16 *)(r6 + 0)\nr0 = r5\nout: exit";
    let schedule = laid_out(&program(text));
    // Both loads | both stores | the load of what the first wrote | r0 | exit
    assert_eq!(counts(&schedule), [2, 2, 1, 1, 1]);
    let packet: Vec<usize> = schedule.stages.iter().map(|stage| stage.needed.packet_bytes).collect();
    // Bytes 0, 1 and 6 are read later, and bytes 0 and 6 leave changed.
    assert_eq!(packet, [3, 1, 3, 2, 2]);
}

#[test]
fn unsupported_programs_are_refused_with_their_instruction() {
    let endless = refused("r0 = 2\na: may_goto out\ngoto a\nout: exit");
    assert_eq!((endless.insn, &endless.reason), (Some(1), &Reason::Unbounded));
    let tail = refused("r2 = map[progs] ll\nr3 = 0\ncall 12\nr0 = 2\nexit");
    assert_eq!((tail.insn, &tail.reason), (Some(3), &Reason::TailCall));
    let callback = refused("r1 = 4\nr2 = subprog[+6] ll\nr3 = 0\nr4 = 0\ncall 181\nr0 = 2\nexit\nf: r0 = 0\nexit");
    assert_eq!((callback.insn, &callback.reason), (Some(5), &Reason::Callback("loop".to_owned())));
    let long = refused("r1 = 0\nr0 = 2\na: r1 += 1\nif r1 < 30000 goto a\nexit");
    assert_eq!((long.insn, &long.reason), (Some(2), &Reason::TooLong(40_000)));
    for refusal in [endless, tail, callback, long] {
        let text = refusal.to_string();
        assert!(
            text.starts_with(&format!("program `test`, instruction {}, test.bpf:", refusal.insn.unwrap())),
            "{text}"
        );
        assert!(text.ends_with(refusal.reason.help().unwrap()), "{text}");
    }
}
