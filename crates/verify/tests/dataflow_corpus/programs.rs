// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Programs whose dataflow is compared with the interpreter.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowloom_isa::{Program, asm};
use flowloom_testkit::{Clang, Rng};
use flowloom_verify::explore::{Case, ExploreOptions, explore};
use flowloom_verify::{Arrival, sweep_period};

use super::{Subject, packets};
use crate::common::engines;
use crate::common::shipped::{self, Variant};

/// Maximum number of explorations of a program: some seeds get stuck early.
const SEEDS: usize = 4;

/// Entries of a folder, sorted.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let mut entries: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    entries.sort();
    entries
}

/// The C programs below `functions/ebpf`, compiled with one additional compiler argument, and the one in assembler.
pub fn classical(clang: &Clang, argument: &str) -> Vec<Program> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions/ebpf");
    let mut programs = Vec::new();
    for file in entries(&top).into_iter().filter(|path| path.is_dir()).flat_map(|folder| entries(&folder)) {
        let name = file.to_string_lossy().into_owned();
        if name.ends_with(".bpf.c") {
            let object = clang.compile_file(&file, &["-Wno-sign-compare", argument]).unwrap();
            let object = flowloom_object::read(&object, &name).unwrap();
            programs.extend(object.programs.into_iter().filter(|program| program.kind.is_xdp()));
        } else if name.ends_with(".bpf") {
            let text = std::fs::read_to_string(&file).unwrap();
            programs.push(asm::program(&name, &text).unwrap_or_else(|errors| panic!("{errors}")));
        }
    }
    programs
}

/// Cases that together reach `enough` percent of a program's slots, or as much as possible, and the percentage.
pub fn explored(program: &Program, rng: &mut Rng, tries: u64, enough: usize) -> (Vec<Case>, usize) {
    let mut cases = Vec::new();
    let mut reached = vec![false; program.insns.len()];
    let mut percent = 0;
    for _ in 0..SEEDS {
        let options = ExploreOptions { seed: rng.next_u64(), tries, ..ExploreOptions::default() };
        let explored = explore(&Arc::new(program.clone()), &options).unwrap();
        cases.extend(explored.cases);
        reached.iter_mut().zip(&explored.reached).for_each(|(all, own)| *all |= own);
        percent = reached.iter().filter(|reached| **reached).count() * 100 / reached.len();
        if percent >= enough {
            break;
        }
    }
    (cases, percent)
}

/// A case with packets only.
pub fn case(packets: Vec<Arrival>, rng: &mut Rng) -> Case {
    Case { packets, seed: rng.next_u64(), ..Case::default() }
}

/// A lowered function on packets generated for it, and on others.
pub fn lowered(variant: &Variant, rng: &mut Rng, count: usize) -> Subject {
    let program = engines::pipeline_program(&variant.function);
    let made = shipped::made(&variant.function, rng.next_u64(), count);
    let cases = [made, packets::made(rng, count), packets::short(rng, 61)];
    let cases = cases.map(|packets| case(packets, rng)).into();
    Subject { program, cases, sweep_ns: sweep_period(&variant.function), routes: None }
}
