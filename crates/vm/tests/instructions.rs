// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The instruction suite on the interpreter, and that the suite leaves no instruction out.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use common::program;
use flowloom_isa::Insn;
use flowloom_isa::insn::{alu, class, jmp, mode};
use flowloom_isa::op::Op;
use flowloom_testkit::{Expected, InstructionCase, instruction_cases, message_fragment};
use flowloom_vm::Plugin;

/// What is wrong with what the interpreter does.
fn judge(case: &InstructionCase) -> Result<(), String> {
    let plugin = Plugin::new(Arc::new(program(case)));
    let found = plugin.and_then(|mut plugin| Ok((plugin.run(&case.memory)?, plugin.memory().to_vec())));
    match (&case.expected, found) {
        (Expected::Ends { r0, memory }, Ok((found, left))) => {
            let memory = memory.as_ref().unwrap_or(&left);
            match *r0 == found && *memory == left {
                true => Ok(()),
                false => Err(format!("found 0x{found:x} and {left:02x?}, expected 0x{r0:x} and {memory:02x?}")),
            }
        }
        (Expected::Error(kind), Err(error)) if error.to_string().contains(message_fragment(kind).unwrap()) => Ok(()),
        (expected, found) => Err(format!("found {found:?}, expected {expected:?}")),
    }
}

#[test]
fn the_interpreter_does_what_the_suite_says() {
    let cases = instruction_cases();
    let wrong: Vec<String> = cases
        .iter()
        .filter_map(|case| judge(case).err().map(|error| format!("{} `{}`: {error}", case.place, case.name)))
        .collect();
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    assert!(cases.len() > 600, "{} cases are no suite", cases.len());
}

/// An instruction without its operands: its code, and the fields that choose what it does.
fn shape(insn: Insn) -> (u8, u8, i16, i32) {
    let is_alu = matches!(insn.class(), class::ALU | class::ALU64);
    let is_call = insn.code == class::JMP | jmp::CALL;
    let src = if insn.is_wide() || is_call { insn.src } else { 0 };
    let off = if is_alu && matches!(insn.op(), alu::DIV | alu::MOD | alu::MOV) { insn.off } else { 0 };
    let is_atomic = insn.class() == class::STX && insn.code & 0xe0 == mode::ATOMIC;
    let imm = if is_atomic || is_alu && insn.op() == alu::END { insn.imm } else { 0 };
    (insn.code, src, off, imm)
}

/// All shapes that decode, with what they are.
fn shapes() -> BTreeMap<(u8, u8, i16, i32), Op> {
    let mut shapes = BTreeMap::new();
    for code in 0..=u8::MAX {
        for src in 0..16 {
            for off in [-1, 0, 1, 2, 8, 16, 24, 32, 64] {
                for imm in -1..=0x1ff {
                    let insn = Insn { code, dst: 0, src, off, imm };
                    if let Ok(op) = Op::decode(&[insn, Insn::default()], 0) {
                        shapes.entry(shape(insn)).or_insert(op);
                    }
                }
            }
        }
    }
    shapes
}

#[test]
fn the_suite_has_every_instruction() {
    let mut ending = BTreeSet::new();
    let mut refused = BTreeSet::new();
    for case in instruction_cases() {
        let found = if matches!(case.expected, Expected::Ends { .. }) { &mut ending } else { &mut refused };
        let insns = program(&case).insns;
        let mut at = 0;
        while let Ok(op) = Op::decode(&insns, at) {
            found.insert(shape(insns[at]));
            at += op.slots();
        }
    }
    let shapes = shapes();
    assert!(shapes.len() > 150, "{} instructions are not the set", shapes.len());
    let missing: Vec<_> = shapes
        .iter()
        .filter(|(shape, op)| {
            // What no program on packets can mean is in the suite as an error.
            let is_refused = matches!(
                op,
                Op::LoadPacket { .. }
                    | Op::LoadVar { .. }
                    | Op::LoadMapIdx { .. }
                    | Op::LoadMapIdxValue { .. }
                    | Op::CallKfunc { .. }
            );
            !if is_refused { &refused } else { &ending }.contains(*shape)
        })
        .collect();
    assert!(missing.is_empty(), "not in the suite: {missing:#x?}");
}
