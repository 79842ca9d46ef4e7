// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report of the papers' layout of a program, for comparison with its plan.

mod page;

use flowloom_isa::Program;
use flowloom_verifier::Proof;
use serde::Serialize;

use flowloom_plan::{Options, Scheme, Timing, Window, optimized, window};
use flowloom_report::text::{headed, table};
use flowloom_report::{Latency, counted, hundredths, last_word_reason, nanoseconds};

use crate::{Carried, Refusal, Schedule, schedule};

/// The counting rule.
const COUNTED: &str =
    "instructions that begin in a stage, a fused pair being one; bounds checks and unconditional jumps are none";
/// The input and output registers.
const FRAMING_CYCLES: u32 = 2;

/// The report of a program laid out block by block.
///
/// # Units
/// As [`Explanation`](flowloom_report::Explanation); stages count from 0.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BlockExplanation {
    /// The name of the program.
    pub program: String,
    /// The kind of schedule: `blocks`.
    pub schedule: &'static str,
    /// The clock in MHz.
    pub clock_mhz: u32,
    /// The number of stages.
    pub stages: u32,
    /// The latency without contention in cycles, from the first word in to the first word out.
    pub latency_cycles: u32,
    /// Its parts.
    pub latency: Latency,
    /// The most instructions in a stage.
    pub ilp_max: usize,
    /// The mean number of instructions a stage.
    pub ilp_avg: f64,
    /// The mean over the stages in which an instruction begins.
    pub ilp_busy: f64,
    /// The counting rule.
    pub ilp_counts: &'static str,
    /// The instructions of the program.
    pub instructions: usize,
    /// The instructions of the layout: loops unrolled, calls inlined, pairs fused.
    pub operations: usize,
    /// The number of blocks with stages.
    pub blocks: usize,
    /// The bounds checks that framing replaces, by their instruction.
    pub bounds_checks: Vec<usize>,
    /// The window of the program in bytes: whole frames.
    pub window_bytes: u32,
    /// The use of the packet length: `unused`, `checked`, `given`, `awaited`; none if unknown.
    pub length: Option<&'static str>,
    /// Whether stages carry only values that are read later.
    pub pruned: bool,
    /// The greatest state before a stage in bytes: registers, stack and packet.
    pub state_bytes: usize,
    /// The maps, in the order of their index.
    pub maps: Vec<BlockMap>,
    pub stage: Vec<BlockStage>,
}

/// The accesses and the consistency of a map.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlockMap {
    pub name: String,
    /// The kind, as in bpftool.
    pub kind: String,
    /// The scheme: `none`, `atomic` or `flush`.
    pub hazard: &'static str,
    /// The reason for the scheme.
    pub reason: &'static str,
    /// The first stage that may read too early.
    pub read_stage: u32,
    /// The stage at whose end the last write commits; none for read-only maps.
    pub write_stage: Option<u32>,
    /// L: the window in cycles within which a later packet reads too early.
    pub hold_cycles: u32,
    /// K: the cost of a flush in cycles.
    pub flush_cycles: Option<u32>,
    /// The stage at which packets restart.
    pub restart_stage: Option<u32>,
    /// Maps that a restarting packet writes a second time.
    pub repeats: Vec<String>,
}

/// A stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlockStage {
    /// The number.
    pub stage: u32,
    /// The number of its block.
    pub block: usize,
    /// The instructions that begin in it; none while a call is in progress.
    pub instructions: Vec<BlockInstruction>,
    /// The live registers from earlier stages.
    pub registers: Vec<String>,
    /// The live stack bytes from earlier stages.
    pub stack_bytes: usize,
    /// The bytes of the packet: the frames of the window, which travel along.
    pub packet_bytes: usize,
}

/// An instruction in its stage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlockInstruction {
    /// Its first slot.
    pub instruction: usize,
    /// Its text, fused instructions included.
    pub text: String,
    /// Its source line: `prog.c:12`.
    pub source: Option<String>,
}

impl BlockStage {
    /// Registers, stack and packet.
    fn bytes(&self) -> usize {
        8 * self.registers.len() + self.stack_bytes + self.packet_bytes
    }
}

impl BlockExplanation {
    /// Lays a program out. Of the options, clock, length and pruning apply.
    ///
    /// # Errors
    /// The reason why there is no layout, with its place.
    pub fn of(program: &Program, proof: &Proof, options: &Options) -> Result<BlockExplanation, Box<Refusal>> {
        let schedule = schedule(program, proof, &options.target)?;
        // The use of the length, and whether the packet moves, are taken from the dataflow, if there is one.
        let dataflow = flowloom_ir::build(program, proof).ok();
        let window = dataflow
            .and_then(|dataflow| optimized(&dataflow, &options.target).ok())
            .map(|(dataflow, _)| window(&dataflow, &options.target, options.length_given));
        let uses = schedule.maps(program);
        let latency = latency(&schedule, &uses, window.as_ref(), options.target.clock_mhz);
        let latency_cycles =
            latency.stages + latency.framing + latency.buffers + latency.realignment + latency.last_word;
        let timing = schedule.timing(&uses, f64::from(options.target.clock_mhz), latency_cycles);
        let stage = stages(program, &schedule, options.prune);
        Ok(BlockExplanation {
            program: program.name.clone(),
            schedule: "blocks",
            clock_mhz: options.target.clock_mhz,
            stages: latency.stages,
            latency_cycles,
            ilp_max: schedule.max_ilp(),
            ilp_avg: hundredths(schedule.average_ilp()),
            ilp_busy: hundredths(schedule.busy_ilp()),
            ilp_counts: COUNTED,
            instructions: proof.insns.iter().filter(|known| known.begins).count(),
            operations: schedule.steps.len(),
            blocks: schedule.blocks,
            bounds_checks: schedule.checks.clone(),
            window_bytes: schedule.frame_bytes as u32,
            length: window.as_ref().map(|window| window.length.as_str()),
            pruned: options.prune,
            state_bytes: stage.iter().map(BlockStage::bytes).max().unwrap_or(0),
            maps: uses.iter().map(|own| map(program, own, &timing)).collect(),
            latency,
            stage,
        })
    }

    /// The figures, the maps with reasons, and one line per stage; with `verbose` also one line per instruction with
    /// its source, and the live values of each stage.
    pub fn text(&self, verbose: bool) -> String {
        let mut text = self.figures();
        text.push('\n');
        text.push_str(&self.map_table());
        for map in self.maps.iter().filter(|map| !map.repeats.is_empty()) {
            text.push_str(&format!("a flush of {} writes a second time: {}\n", map.name, map.repeats.join(", ")));
        }
        text.push('\n');
        text.push_str(&self.stage_table(verbose));
        text
    }

    fn figures(&self) -> String {
        let latency = &self.latency;
        let pruned = if self.pruned { "" } else { "; not pruned" };
        let rows = [
            (
                "stages",
                format!(
                    "{}, out of {}: {} in {}, {} a stage, {} at most; {} omitted",
                    self.stages,
                    counted(self.instructions, "instruction"),
                    self.operations,
                    counted(self.blocks, "block"),
                    self.ilp_avg,
                    self.ilp_max,
                    counted(self.bounds_checks.len(), "bounds check"),
                ),
            ),
            ("latency", latency.text(self.latency_cycles)),
            ("window", format!("{}; {}", counted(self.window_bytes as usize, "byte"), latency.last_word_reason)),
            ("state", format!("{} at most before a stage{pruned}", counted(self.state_bytes, "byte"))),
        ];
        headed(&format!("{} at {} MHz, scheduled by its {}", self.program, self.clock_mhz, self.schedule), &rows)
    }

    fn map_table(&self) -> String {
        if self.maps.is_empty() {
            return "no maps\n".to_owned();
        }
        let number = |number: Option<u32>| number.map_or_else(|| "–".to_owned(), |number| number.to_string());
        let rows = self.maps.iter().map(|map| {
            vec![
                map.name.clone(),
                map.kind.clone(),
                map.hazard.to_owned(),
                map.read_stage.to_string(),
                number(map.write_stage),
                map.hold_cycles.to_string(),
                number(map.flush_cycles),
                map.reason.to_owned(),
            ]
        });
        let header = ["map", "kind", "hazard", "read", "write", "hold", "flush", "why"];
        table(&header, &rows.collect::<Vec<_>>(), &[3, 4, 5, 6])
    }

    fn stage_table(&self, verbose: bool) -> String {
        let mut rows = Vec::new();
        for stage in &self.stage {
            let head = [stage.stage.to_string(), stage.block.to_string(), stage.bytes().to_string()];
            let render_instruction = |own: &BlockInstruction| match &own.source {
                Some(source) if verbose => format!("{}: {}  ; {source}", own.instruction, own.text),
                _ if verbose => format!("{}: {}", own.instruction, own.text),
                _ => own.text.clone(),
            };
            let all: Vec<String> = stage.instructions.iter().map(render_instruction).collect();
            if !verbose || all.len() < 2 {
                let what = if all.is_empty() { "waits for a call".to_owned() } else { all.join("; ") };
                rows.push(head.into_iter().chain([what]).collect());
                continue;
            }
            for (place, what) in all.into_iter().enumerate() {
                let head = if place == 0 { head.clone() } else { [const { String::new() }; 3] };
                rows.push(head.into_iter().chain([what]).collect());
            }
        }
        let table = table(&["stage", "block", "bytes", "what"], &rows, &[0, 1, 2]);
        table + "bytes: registers of 8 bytes, stack and packet bytes before the stage\n"
    }
}

fn latency(schedule: &Schedule, maps: &[crate::MapUse], window: Option<&Window>, clock_mhz: u32) -> Latency {
    let stages = schedule.stages.len() as u32;
    let mut restarts: Vec<u32> = maps.iter().filter_map(|map| map.restart_stage).filter(|stage| *stage > 0).collect();
    restarts.sort_unstable();
    restarts.dedup();
    let buffers = restarts.len() as u32;
    let realignment = window.map_or(0, |window| u32::from(window.moves));
    let last_word = window.map_or(0, |window| window.framing_cycles() - FRAMING_CYCLES - realignment);
    let all = stages + FRAMING_CYCLES + buffers + realignment + last_word;
    Latency {
        stages,
        framing: FRAMING_CYCLES,
        emitter: 0,
        late_results: 0,
        schedulers: 0,
        buffers,
        realignment,
        last_word,
        last_word_reason: window
            .map_or("use of the length unknown: the program has no dataflow", |window| last_word_reason(window.length)),
        ns: nanoseconds(all, clock_mhz),
    }
}

fn map(program: &Program, own: &crate::MapUse, timing: &Timing) -> BlockMap {
    let timed = timing.maps.iter().find(|map| map.name == own.name && map.scheme == Scheme::Flush);
    BlockMap {
        name: own.name.clone(),
        kind: program.maps.get(own.map as usize).map_or_else(String::new, |def| def.kind.to_string()),
        hazard: own.scheme.as_str(),
        reason: own.reason,
        read_stage: own.read_stage,
        write_stage: own.write_stage,
        hold_cycles: own.hold_cycles,
        flush_cycles: timed.map(|map| timing.flush_cycles(map)),
        restart_stage: own.restart_stage,
        repeats: own.repeats.clone(),
    }
}

fn stages(program: &Program, schedule: &Schedule, prune: bool) -> Vec<BlockStage> {
    let instruction = |step: &usize| {
        let insn = schedule.steps[*step].step.insn;
        let line = program.line_of(insn).filter(|line| line.line > 0);
        BlockInstruction {
            instruction: insn,
            text: schedule.text(program, *step),
            source: line.map(|line| format!("{}:{}", line.file, line.line)),
        }
    };
    let unpruned = schedule.unpruned();
    let all = |stage: (usize, &crate::Stage)| {
        let (number, stage) = stage;
        let Carried { registers, stack_bytes, .. } = &stage.carried;
        let mut own = BlockStage {
            stage: number as u32,
            block: stage.block,
            instructions: stage.begins.iter().map(instruction).collect(),
            registers: registers.iter().map(ToString::to_string).collect(),
            stack_bytes: *stack_bytes,
            packet_bytes: unpruned.packet_bytes,
        };
        if !prune {
            // Callee-saved registers of several frames have the same names.
            own.registers = (0..unpruned.registers).map(|number| format!("r{}", place(number))).collect();
            own.stack_bytes = unpruned.stack_bytes;
        }
        own
    };
    schedule.stages.iter().enumerate().map(all).collect()
}

/// The number of a register: `r0` to `r10`, then `r6` to `r9` of each further frame.
fn place(number: usize) -> usize {
    if number <= 10 { number } else { 6 + (number - 11) % 4 }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use flowloom_isa::asm;
    use flowloom_verifier::verify;

    use super::*;

    fn explained(options: &Options) -> BlockExplanation {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../functions/ebpf/toy/toy_printed.bpf");
        let program = asm::program("toy.bpf", &std::fs::read_to_string(path).unwrap()).unwrap();
        let proof = verify(&program, &flowloom_verifier::Options::default()).unwrap();
        BlockExplanation::of(&program, &proof, options).unwrap()
    }

    /// [eHDL 4.4]: 20 stages, 88 bytes at most; an atomic block changes the counter.
    #[test]
    fn the_toy_matches_the_paper() {
        let explanation = explained(&Options::default());
        assert_eq!(
            (explanation.stages, explanation.latency_cycles, explanation.ilp_max, explanation.state_bytes),
            (20, 22, 2, 88)
        );
        assert_eq!((explanation.ilp_avg, explanation.window_bytes, explanation.length), (1.0, 64, Some("checked")));
        let [stats] = &explanation.maps[..] else { unreachable!("{:?}", explanation.maps) };
        assert_eq!((stats.name.as_str(), stats.hazard, stats.hold_cycles), ("stats", "atomic", 1));
        let two: Vec<u32> = explanation
            .stage
            .iter()
            .filter(|stage| stage.instructions.len() == 2)
            .map(|stage| stage.stage + 1)
            .collect();
        assert_eq!(two, [1, 11, 16]);
        let unpruned = explained(&Options { prune: false, ..Options::default() });
        assert_eq!((unpruned.state_bytes, unpruned.pruned), (88 + 512 + 64, false));
    }

    #[test]
    fn all_stages_and_instructions_are_in_the_text() {
        let explanation = explained(&Options::default());
        let (short, long) = (explanation.text(false), explanation.text(true));
        assert!(short.starts_with("toy_printed at 250 MHz, scheduled by its blocks\n"), "{short}");
        assert!(short.contains("waits for a call") && short.contains("lock *("), "{short}");
        for own in explanation.stage.iter().flat_map(|stage| &stage.instructions) {
            assert!(short.contains(&own.text) && long.contains(&format!("{}: {}", own.instruction, own.text)));
            assert!(long.contains(own.source.as_ref().unwrap()));
        }
    }
}
