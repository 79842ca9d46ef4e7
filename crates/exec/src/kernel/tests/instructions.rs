// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The instruction suite in the kernel: its results are those of the suite, and the cases that it refuses are errors in
//! the suite, unless the suite lists a difference.

use std::sync::Arc;

use flowloom_testkit::{Expected, InstructionCase, KernelBehaviour, instruction_cases};
use flowloom_vm::Plugin;
use flowloom_vm::plugin::OnPackets;

use super::*;
use crate::kernel::load::Maps;

#[path = "../../../../vm/tests/common/mod.rs"]
mod common;

/// `r0` and the memory afterwards, or the reason why the kernel refuses the case.
fn run(case: &InstructionCase) -> Result<(u64, Vec<u8>), String> {
    let OnPackets { program, memory, result } = OnPackets::of(&common::program(case), &case.memory);
    let nothing = Program { insns: vec![mov(0, 2), exit()], ..program.clone() };
    let maps = Maps::create(&nothing).unwrap_or_else(|error| panic!("{}: {error}", case.place));
    let loaded = match maps.load_other(&program) {
        // Programs that have no types may still load without.
        Err(ExecError::Object { .. }) => maps.load_untyped(&program),
        loaded => loaded,
    };
    let loaded = loaded.map_err(|error| error.to_string())?;
    let ran = loaded.test_run(&[0; MIN_FRAME_BYTES], &mut [0; 64], 1).unwrap_or_else(|e| panic!("{}: {e}", case.place));
    assert_eq!(ran.verdict, 2, "{}", case.place);
    let read = |map: usize, len: usize| {
        let mut value = vec![0; len];
        maps.raw[map].lookup(&[0; 4], &mut value).unwrap_or_else(|error| panic!("{}: {error}", case.place));
        value
    };
    let r0 = u64::from_le_bytes(*read(result, 8).first_chunk().expect("8 bytes"));
    Ok((r0, memory.map(|map| read(map, case.memory.len())).unwrap_or_default()))
}

fn judge(case: &InstructionCase) -> Result<(), String> {
    match (&case.expected, &case.kernel, run(case)) {
        (Expected::Ends { .. }, KernelBehaviour::Same, Ok((found, left))) => {
            let mut plugin = Plugin::new(Arc::new(common::program(case))).map_err(|error| error.to_string())?;
            let expected = plugin.run(&case.memory).map_err(|error| error.to_string())?;
            match expected == found && plugin.memory() == left {
                true => Ok(()),
                false => Err(format!(
                    "found 0x{found:x} and {left:02x?}, the interpreter has 0x{expected:x} and {:02x?}",
                    plugin.memory()
                )),
            }
        }
        (Expected::Ends { .. }, KernelBehaviour::Rejects(_), Err(_)) => Ok(()),
        (Expected::Error(_), KernelBehaviour::Same, Err(_)) => Ok(()),
        (Expected::Error(_), KernelBehaviour::Accepts(_), Ok(_)) => Ok(()),
        (expected, kernel, found) => Err(format!("found {found:?}, expected {expected:?}, {kernel:?}")),
    }
}

#[test]
fn the_kernel_matches_the_instruction_suite() {
    require!(KernelEngine::available());
    let cases = instruction_cases();
    let mut wrong = Vec::new();
    let (mut alike, mut refused, mut apart) = (0, 0, 0);
    for case in &cases {
        match (judge(case), &case.kernel, &case.expected) {
            (Err(error), ..) => wrong.push(format!("{} `{}`: {error}", case.place, case.name)),
            (Ok(()), KernelBehaviour::Same, Expected::Ends { .. }) => alike += 1,
            (Ok(()), KernelBehaviour::Same, Expected::Error(_)) => refused += 1,
            (Ok(()), ..) => apart += 1,
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), cases.len(), wrong.join("\n"));
    eprintln!("{alike} cases agree, {refused} refused by both, {apart} differ with a reason");
    assert!(alike > 600 && refused > 100, "{alike} alike, {refused} refused");
}
