// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cuckoo table against its twin, operation by operation and step by step.

use std::collections::VecDeque;
use std::path::PathBuf;

use flowloom_cosim::{Design, Model};
use flowloom_random::{Draw, SplitMix64};
use flowloom_state::{Cuckoo, EngineClock, Operations, Parameters, Refusal, RowHash, Slot, Step};

use crate::common::{block_path, build, columns, stated_latency};

const BLOCK: &str = "table/fl_cuckoo";
/// Cycles from an operation to the snapshot that its lookup reads, and to its effect.
const SNAPSHOT: usize = 1;
const EFFECT: usize = 3;
/// The distance in cycles of operations on one key.
const APART: usize = 3;

const LOOKUP: u64 = 0;
const INSERT: u64 = 1;
const DELETE: u64 = 2;

/// The blocks of a table, those that others instantiate first.
pub(crate) const BLOCKS: [&str; 8] = [
    "prim/fl_ram",
    "prim/fl_ram_dual",
    "prim/fl_fifo",
    "prim/fl_fifo_ram",
    "table/fl_hash",
    "table/fl_slots",
    "table/fl_cuckoo_engine",
    BLOCK,
];

/// The table as a design; `path` is the file of a block.
fn design(parameters: &Parameters, path: impl Fn(&str) -> PathBuf) -> Design {
    let hash = RowHash::new(parameters.key_bytes as usize, parameters.rows, parameters.seed);
    let files: Vec<PathBuf> = BLOCKS.iter().map(|block| path(block)).collect();
    Design::new("fl_cuckoo", &files.iter().map(PathBuf::as_path).collect::<Vec<_>>())
        .parameter("KeyBits", 8 * parameters.key_bytes)
        .parameter("HashBits", hash.hash_bits())
        .parameter("Rows", parameters.rows)
        .parameter("Columns", columns(&hash, parameters.key_bytes as usize))
        .parameter("Entries", parameters.entries)
        .parameter("Stash", parameters.stash)
        .parameter("SearchNodes", parameters.search_nodes)
        .parameter("RestCycles", parameters.rest_cycles)
}

/// An operation on a key of the pool.
#[derive(Debug, Clone, Copy)]
struct Operation {
    kind: u64,
    key: u16,
}

/// Of 64 cycles those with an insertion, a deletion, a lookup; the others are gaps.
type Shares = [u64; 3];

/// Random operations in phases of 512 cycles.
fn operations(phases: &[Shares], cycles: usize, keys: u16, seed: u64) -> Vec<Option<Operation>> {
    let mut rng = SplitMix64::new(seed);
    let mut recent: VecDeque<u16> = VecDeque::new();
    let mut drawn = Vec::new();
    for cycle in 0..cycles {
        let shares = phases[cycle / 512 % phases.len()];
        let kind = {
            let at = rng.below(64);
            let mut end = 0;
            [INSERT, DELETE, LOOKUP].into_iter().zip(shares).find(|(_, share)| {
                end += share;
                at < end
            })
        };
        let key = rng.below(keys.into()) as u16;
        let operation = kind.map(|(kind, _)| Operation { kind, key }).filter(|_| !recent.contains(&key));
        recent.push_back(operation.map_or(u16::MAX, |operation| operation.key));
        if recent.len() >= APART {
            recent.pop_front();
        }
        drawn.push(operation);
    }
    drawn
}

/// What a run has reached.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    pub(crate) steps: [u32; 7],
    hits: u32,
    stored: u32,
    deleted: u32,
    full: u32,
    busy: u32,
    most_stored: usize,
}

fn runs_as_its_twin(
    model: &Model,
    parameters: &Parameters,
    phases: &[Shares],
    cycles: usize,
    keys: u16,
    seed: u64,
) -> Reached {
    let input = |name| model.input(name).unwrap();
    let output = |name| model.output(name).unwrap();
    let (valid_i, operation_i, key_i) = (input("valid_i"), input("operation_i"), input("key_i"));
    let outputs =
        ["ready_o", "valid_o", "hit_o", "stored_o", "full_o", "busy_o", "slot_o", "stored_count_o"].map(output);
    let [ready, valid, hit, stored, full, busy, slot, count] = outputs;
    let [stash_count, step_valid, step] = ["stash_count_o", "step_valid_o", "step_o"].map(output);

    // A reset, and the clearing of all rows.
    let start = parameters.rows as usize + 2;
    let operations = operations(phases, cycles, keys, seed);
    let mut inputs = vec![0; model.input_bytes() * (start + cycles + EFFECT + 2)];
    input("rst_i").set(&mut inputs, 1);
    for (operation, cycle) in operations.iter().zip(inputs.chunks_mut(model.input_bytes()).skip(start)) {
        if let Some(operation) = operation {
            valid_i.set(cycle, 1);
            operation_i.set(cycle, operation.kind);
            key_i.set_bytes(cycle, &operation.key.to_be_bytes());
        }
    }
    let answers = model.start(seed as u32).unwrap().run(&inputs).unwrap();
    let answers: Vec<&[u8]> = answers.chunks(model.output_bytes()).skip(start).collect();
    assert_eq!((stated_latency(BLOCK), ready.get(answers[0])), (EFFECT, 1));

    let mut twin = Cuckoo::new(parameters.clone()).unwrap();
    let mut clock = EngineClock::default();
    let mut reached = Reached::default();
    let mut found: Vec<Option<Slot>> = Vec::new();
    for (cycle, outputs) in answers.iter().copied().enumerate().take(cycles + EFFECT) {
        let context = || format!("seed {seed}, cycle {cycle}");
        assert_eq!(count.get(outputs), twin.len() as u64, "{}: stored", context());
        assert_eq!(stash_count.get(outputs), twin.stash_len() as u64, "{}: in the stash", context());
        if let Some(at) = cycle.checked_sub(SNAPSHOT) {
            let operation = operations.get(at).copied().flatten();
            found.push(operation.and_then(|operation| twin.lookup(&operation.key.to_be_bytes())));
        }
        // When the engine makes its steps.
        let kind = |at: usize| operations.get(at).copied().flatten().map(|operation| operation.kind);
        let now = cycle.checked_sub(EFFECT).and_then(|at| Some((kind(at)?, found[at])));
        let made = Operations {
            acts: now.is_some_and(|(kind, _)| kind != LOOKUP),
            deletes: now.is_some_and(|(kind, found)| kind == DELETE && found.is_some()),
            delete_pending: (SNAPSHOT..=EFFECT).any(|age| cycle.checked_sub(age).and_then(kind) == Some(DELETE)),
        };
        assert_eq!(clock.decide(&twin, made), step_valid.get(outputs) == 1, "{}: the engine's step", context());
        if let Some(at) = cycle.checked_sub(EFFECT) {
            let result = outputs;
            let operation = operations[at];
            assert_eq!(valid.get(result), operation.is_some().into(), "{}: valid", context());
            if let Some(operation) = operation {
                let flags = [&hit, &stored, &full, &busy].map(|flag| flag.get(result));
                let key = operation.key.to_be_bytes();
                let expected = match (operation.kind, found[at]) {
                    (INSERT, None) => match twin.insert(&key) {
                        Ok(new) => {
                            assert_eq!(slot.get(result), new.index() as u64, "{}: {operation:?}", context());
                            reached.stored += 1;
                            [0, 1, 0, 0]
                        }
                        Err(Refusal::Full) => [0, 0, 1, 0],
                        Err(Refusal::Busy) => [0, 0, 0, 1],
                    },
                    (_, None) => [0; 4],
                    (kind, Some(old)) => {
                        assert_eq!(slot.get(result), old.index() as u64, "{}: {operation:?}", context());
                        if kind == DELETE {
                            assert_eq!(twin.delete(&key), Some(old));
                            reached.deleted += 1;
                        }
                        [1, 0, 0, 0]
                    }
                };
                assert_eq!(flags, expected, "{}: {operation:?}: hit, stored, full, busy", context());
                reached.hits += flags[0] as u32;
                reached.full += flags[2] as u32;
                reached.busy += flags[3] as u32;
            }
        }
        if step_valid.get(outputs) == 1 {
            let number = match clock.step(&mut twin) {
                Step::Idle => 0,
                Step::Selected => 1,
                Step::Searched => 2,
                Step::Moved(_) => 3,
                Step::Exchanged { .. } => 4,
                Step::Placed(_) => 5,
                Step::GivenUp => 6,
            };
            assert_eq!(step.get(outputs), number, "{}: step", context());
            reached.steps[number as usize] += 1;
        }
        twin.pass_cycles(1);
        reached.most_stored = reached.most_stored.max(twin.len());
        if cycle % 64 == 0 {
            twin.check_invariants();
        }
    }
    reached
}

/// Few rows and nodes, so that chains are long, searches fail, and deletions meet the engine.
fn narrow() -> Parameters {
    Parameters { rows: 7, stash: 3, search_nodes: 12, rest_cycles: 8, ..Parameters::for_entries(28, 2, 0) }
}

/// The narrow table with the blocks at `path`; none without Verilator.
pub(crate) fn build_narrow(test: &str, path: impl Fn(&str) -> PathBuf) -> Option<Model> {
    build(test, &design(&narrow(), path))
}

/// Runs the narrow table beside its twin; panics where they differ.
pub(crate) fn run_narrow(model: &Model, seed: u64) -> Reached {
    let phases = [[6, 0, 4], [20, 0, 20], [3, 2, 4], [4, 1, 1], [24, 24, 16], [8, 0, 0], [4, 3, 4]];
    runs_as_its_twin(model, &narrow(), &phases, 12_000, 48, seed)
}

#[test]
fn a_narrow_table_runs_as_its_twin() {
    let Some(model) = build_narrow("a_narrow_table_runs_as_its_twin", block_path) else { return };
    for seed in 1..=4 {
        let reached = run_narrow(&model, seed);
        assert!(reached.steps[1..].iter().all(|&count| count > 1), "seed {seed}: {reached:?}");
        assert!(reached.full > 10 && reached.busy > 10 && reached.most_stored == 28, "seed {seed}: {reached:?}");
    }
}

#[test]
fn a_usual_table_runs_as_its_twin() {
    let parameters = Parameters { rows: 256, rest_cycles: 30, ..Parameters::for_entries(972, 2, 0) };
    let Some(model) = build("a_usual_table_runs_as_its_twin", &design(&parameters, block_path)) else { return };
    let phases = [[5, 0, 10], [6, 1, 10], [24, 2, 20], [3, 0, 3], [4, 1, 2]];
    let reached = runs_as_its_twin(&model, &parameters, &phases, 40_000, 1200, 1);
    assert!(reached.steps[3] > 100 && reached.stored > 1000 && reached.most_stored > 900, "{reached:?}");
}
