// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Liveness: registers, stack bytes and packet bytes that each stage passes to the next.
//!
//! **Goal.** A stage carries values that an earlier stage writes and a later one reads [eHDL 4.3]. There are two
//! results for the same stages:
//!
//! - [`Stage::carried`](super::Stage::carried): along the pipeline, as the papers' tool prunes. A block that packets
//!   may pass disabled forwards its input, so its writes kill no value that later blocks read. The first stage has the
//!   registers that are live at entry, `r1` and `r10`.
//! - [`Stage::needed`](super::Stage::needed): along the paths of the program. A value is carried only past blocks that
//!   are between its write and its read on some path.
//!
//! Packet bytes count if they are read later, or if they are written and leave; the others wait in a buffer outside the
//! stages. Addresses of context, packet and stack are constants and do not count.

use std::collections::{BTreeMap, BTreeSet};

use super::access::{Access, Region};
use super::graph::Block;

/// Registers and memory that a stage carries.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Carried {
    /// The registers; callee-saved ones once per active function.
    pub registers: Vec<Region>,
    /// Number of stack bytes.
    pub stack_bytes: usize,
    /// Number of packet bytes.
    pub packet_bytes: usize,
}

/// A register or byte that may be carried; the flag marks a written packet byte on its way to the output.
type Byte = (Region, i64, bool);

/// Per step of a block: its stage in the block, and the stage from which its result is available.
pub(super) type Times = Vec<(u32, u32)>;

const STACK_BYTES: i64 = flowloom_isa::limits::STACK_BYTES as i64;

fn bytes(access: &Access, window: i64) -> impl Iterator<Item = Byte> + '_ {
    let (first, end) = match access.region {
        Region::Register { .. } => (0, 1),
        Region::Stack { .. } => access.bytes.unwrap_or((-STACK_BYTES, 0)),
        // A call that moves the packet does not change its bytes.
        Region::Packet => access.bytes.map_or((0, 0), |(first, end)| (first, end.min(window.max(first)))),
        _ => (0, 0),
    };
    (first..end).map(|at| (access.region, at, false))
}

/// Upward-exposed reads and writes of a block.
struct Summary {
    reads: BTreeSet<Byte>,
    writes: BTreeSet<Byte>,
}

/// Stages of a block that read and write one byte.
#[derive(Default)]
struct Uses {
    reads: Vec<u32>,
    writes: Vec<u32>,
}

/// State of all stages: carried along the pipeline, and needed along the paths.
pub(super) fn states(blocks: &[Block], times: &[Times], lengths: &[u32], window: i64) -> Vec<(Carried, Carried)> {
    let uses: Vec<BTreeMap<Byte, Uses>> = blocks.iter().zip(times).map(|(b, t)| uses(b, t, window)).collect();
    let summaries: Vec<Summary> = uses.iter().map(summary).collect();
    let along = along_pipeline(blocks, &summaries);
    let (by_path, written_before) = along_paths(blocks, &summaries);
    let output_bytes = output_bytes(&summaries);
    let mut all = Vec::new();
    let mut written: BTreeSet<Byte> = BTreeSet::new();
    // Bytes that bypass blocks on the way to each later block.
    let mut bypassing: BTreeMap<usize, BTreeSet<Byte>> = BTreeMap::new();
    for (number, block) in blocks.iter().enumerate() {
        bypassing.remove(&number);
        let bypass_live: BTreeSet<Byte> = bypassing.values().flatten().copied().collect();
        let out_by_path = live_out(block, &by_path, &output_bytes);
        for stage in 0..lengths[number] {
            let may_be_written = |byte: &Byte, before: &BTreeSet<Byte>| {
                let here = uses[number].get(byte).is_some_and(|uses| uses.writes.iter().any(|done| *done <= stage));
                here || before.contains(byte) || (byte.0 == Region::Packet && !byte.2)
            };
            let mut carried = inside(&uses[number], stage, &along.out[number], along.on_all_paths[number]);
            carried.retain(|byte| may_be_written(byte, &written));
            let mut needed = inside(&uses[number], stage, &out_by_path, true);
            needed.retain(|byte| may_be_written(byte, &written_before[number]));
            needed.extend(&bypass_live);
            all.push((counted(&carried), counted(&needed)));
        }
        written.extend(&summaries[number].writes);
        let after: BTreeSet<Byte> = written_before[number].union(&summaries[number].writes).copied().collect();
        for next in &block.successors {
            let live_in =
                by_path[*next].iter().filter(|byte| after.contains(byte) || (byte.0 == Region::Packet && !byte.2));
            bypassing.entry(*next).or_default().extend(live_in);
        }
        if block.successors.is_empty() {
            // Output bytes travel to the end of the pipeline, wherever the program exits.
            bypassing.entry(blocks.len()).or_default().extend(after.iter().filter(|byte| byte.2));
        }
    }
    if let Some((carried, _)) = all.first_mut() {
        carried.registers = [1, 10].map(|number| Region::Register { depth: 0, number }).to_vec();
    }
    all
}

fn counted(bytes: &BTreeSet<Byte>) -> Carried {
    let mut carried = Carried::default();
    let mut packet = BTreeSet::new();
    for (region, at, _) in bytes {
        match region {
            Region::Register { .. } => carried.registers.push(*region),
            Region::Stack { .. } => carried.stack_bytes += 1,
            _ => {
                packet.insert(at);
            }
        }
    }
    carried.packet_bytes = packet.len();
    carried
}

fn uses(block: &Block, times: &Times, window: i64) -> BTreeMap<Byte, Uses> {
    let mut uses: BTreeMap<Byte, Uses> = BTreeMap::new();
    for (step, (stage, done)) in block.steps.iter().zip(times) {
        for access in &step.accesses {
            for byte in bytes(access, window) {
                if !access.writes {
                    uses.entry(byte).or_default().reads.push(*stage);
                    continue;
                }
                // A write to unknown bytes may leave each byte as it was, and kills none.
                if access.bytes.is_some() {
                    uses.entry(byte).or_default().writes.push(*done);
                }
                if byte.0 == Region::Packet {
                    uses.entry((byte.0, byte.1, true)).or_default().writes.push(*done);
                }
            }
        }
    }
    uses
}

fn summary(uses: &BTreeMap<Byte, Uses>) -> Summary {
    let mut summary = Summary { reads: BTreeSet::new(), writes: BTreeSet::new() };
    for (byte, uses) in uses {
        if !uses.writes.is_empty() {
            summary.writes.insert(*byte);
        }
        if uses.reads.iter().any(|read| uses.writes.iter().all(|done| done > read)) {
            summary.reads.insert(*byte);
        }
    }
    summary
}

/// Live-in bytes of a stage of a block; `out` is the block's live-out, and `kills` says whether writes kill.
fn inside(uses: &BTreeMap<Byte, Uses>, stage: u32, out: &BTreeSet<Byte>, kills: bool) -> BTreeSet<Byte> {
    let mut live: BTreeSet<Byte> = BTreeSet::new();
    for (byte, uses) in uses {
        let written_until = |read: u32| uses.writes.iter().any(|done| *done > stage && *done <= read);
        if uses.reads.iter().any(|read| *read >= stage && !written_until(*read)) {
            live.insert(*byte);
        }
    }
    let is_overwritten =
        |byte: &Byte| kills && uses.get(byte).is_some_and(|uses| uses.writes.iter().any(|done| *done > stage));
    live.extend(out.iter().filter(|byte| !is_overwritten(byte)));
    live
}

struct PipelineLiveness {
    /// Live-out of each block along the pipeline.
    out: Vec<BTreeSet<Byte>>,
    /// Whether all packets run the block.
    on_all_paths: Vec<bool>,
}

fn along_pipeline(blocks: &[Block], summaries: &[Summary]) -> PipelineLiveness {
    let on_all_paths = on_all_paths(blocks);
    let mut out = vec![BTreeSet::new(); blocks.len()];
    let mut live: BTreeSet<Byte> = output_bytes(summaries);
    for number in (0..blocks.len()).rev() {
        out[number] = live.clone();
        if on_all_paths[number] {
            live.retain(|byte| !summaries[number].writes.contains(byte));
        }
        live.extend(&summaries[number].reads);
    }
    PipelineLiveness { out, on_all_paths }
}

/// Packet bytes that may leave changed.
fn output_bytes(summaries: &[Summary]) -> BTreeSet<Byte> {
    summaries.iter().flat_map(|summary| &summary.writes).filter(|byte| byte.2).copied().collect()
}

/// Live-out of a block along the paths.
fn live_out(block: &Block, live: &[BTreeSet<Byte>], output_bytes: &BTreeSet<Byte>) -> BTreeSet<Byte> {
    if block.successors.is_empty() {
        return output_bytes.clone();
    }
    block.successors.iter().flat_map(|next| &live[*next]).copied().collect()
}

/// Blocks on all paths, which are those that no edge skips.
fn on_all_paths(blocks: &[Block]) -> Vec<bool> {
    let mut furthest = 0;
    let mut on_all_paths = Vec::new();
    for (number, block) in blocks.iter().enumerate() {
        on_all_paths.push(furthest <= number);
        // An exit skips all later blocks.
        let last = if block.successors.is_empty() { Some(&blocks.len()) } else { block.successors.iter().max() };
        furthest = furthest.max(last.copied().unwrap_or(0));
    }
    on_all_paths
}

/// Live-in of each block along the paths, and the bytes that some path to it has written.
fn along_paths(blocks: &[Block], summaries: &[Summary]) -> (Vec<BTreeSet<Byte>>, Vec<BTreeSet<Byte>>) {
    let output_bytes = output_bytes(summaries);
    let mut live: Vec<BTreeSet<Byte>> = vec![BTreeSet::new(); blocks.len()];
    for number in (0..blocks.len()).rev() {
        let mut now = live_out(&blocks[number], &live, &output_bytes);
        now.retain(|byte| !summaries[number].writes.contains(byte));
        now.extend(&summaries[number].reads);
        live[number] = now;
    }
    let mut written_before: Vec<BTreeSet<Byte>> = vec![BTreeSet::new(); blocks.len()];
    for number in 0..blocks.len() {
        let after: BTreeSet<Byte> = written_before[number].union(&summaries[number].writes).copied().collect();
        blocks[number].successors.iter().for_each(|next| written_before[*next].extend(&after));
    }
    (live, written_before)
}
