// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Consistency of maps in this layout, by the method of the papers' tool [eHDL 4.1, A.1, A.2].
//!
//! ```text
//!   stage  0          5             9        12
//!          │ start    │ lookup      │ load   │ store
//!          └── K: restarted packets ─────────┘ + 4 cycles to load the pipeline
//!                                   └── L ───┘
//! ```
//!
//! - A map that packets only read, or whose written values no packet reads, needs nothing.
//! - A map that only atomic instructions change is changed in one stage.
//! - For any other map, packets that have read too early are flushed and restart: from the first stage, or after the
//!   last write of another map before the first read, where an elastic buffer is. Maps with overlapping regions restart
//!   in one place.

use std::collections::BTreeMap;

use flowloom_isa::Program;
use flowloom_isa::op::Op;
use flowloom_verifier::MapId;

use super::{Region, Schedule};
use flowloom_plan::{Arbiter, MapTiming, Scheme, Timing};

/// Capacity, in packets, of the elastic buffer before a restart stage.
const QUEUE_DEPTH: u32 = 32;

/// The accesses of a map and its consistency scheme.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapUse {
    /// Its number in the program.
    pub map: u32,
    pub name: String,
    /// The consistency scheme: none, atomic or flush.
    pub scheme: Scheme,
    /// The reason for it.
    pub reason: &'static str,
    /// The first stage that may read too early, from 0; without such a stage, the first that accesses the map.
    pub read_stage: u32,
    /// The stage at whose end the last write is visible; `None` if packets only read it.
    pub write_stage: Option<u32>,
    /// L: number of cycles in which a later packet reads too early; 1 if there is no hazard.
    pub hold_cycles: u32,
    /// The stage in which flushed packets restart.
    pub restart_stage: Option<u32>,
    /// Maps that a restarted packet writes a second time.
    pub repeats: Vec<String>,
}

/// The stages that access a map.
#[derive(Debug, Default)]
struct Stages {
    first: Option<u32>,
    lookups: Vec<u32>,
    loads: Vec<u32>,
    stores: Vec<u32>,
    /// The last stages of calls that insert or delete entries.
    entries: Vec<u32>,
    atomics: Vec<u32>,
}

impl Stages {
    fn writes(&self) -> impl Iterator<Item = u32> + '_ {
        self.stores.iter().chain(&self.entries).chain(&self.atomics).copied()
    }
}

impl Schedule {
    /// The maps that the program accesses, by number.
    pub fn maps(&self, program: &Program) -> Vec<MapUse> {
        let touched = self.touched();
        let name = |map: u32| program.maps.get(map as usize).map_or_else(String::new, |def| def.name.clone());
        let mut maps: Vec<MapUse> = touched.iter().map(|(map, stages)| chosen(*map, name(*map), stages)).collect();
        for map in maps.iter_mut().filter(|map| map.scheme == Scheme::Flush) {
            let others = touched.iter().filter(|(other, _)| **other != map.map);
            let before = others.flat_map(|(_, stages)| stages.writes()).filter(|stage| *stage < map.read_stage);
            map.restart_stage = Some(before.max().map_or(0, |stage| stage + 1));
        }
        join(&mut maps);
        for map in &mut maps {
            let (Some(restart), Some(write)) = (map.restart_stage, map.write_stage) else { continue };
            let is_within = |stage: u32| restart <= stage && stage < write;
            let restarted = touched.iter().filter(|(_, stages)| stages.writes().any(is_within));
            map.repeats = restarted.map(|(map, _)| name(*map)).collect();
        }
        maps
    }

    /// The inputs of the timing model; `latency_cycles` are those outside the stages.
    pub fn timing(&self, maps: &[MapUse], clock_mhz: f64, latency_cycles: u32) -> Timing {
        let changed = maps.iter().filter(|map| map.scheme != Scheme::None);
        let mut maps: Vec<MapTiming> = changed
            .map(|map| MapTiming {
                name: map.name.clone(),
                scheme: map.scheme,
                read_stage: map.read_stage,
                write_stage: map.write_stage.unwrap_or(map.read_stage),
                hold_cycles: map.hold_cycles,
                queues: 0,
                queue_depth: QUEUE_DEPTH,
                restart_stage: map.restart_stage.unwrap_or(0),
            })
            .collect();
        maps.sort_by_key(|map| map.read_stage);
        let (stages, reload_cycles) = (self.stages.len() as u32, Timing::RELOAD_CYCLES);
        Timing { clock_mhz, stages, latency_cycles, reload_cycles, arbiter: Arbiter::default(), maps }
    }

    fn touched(&self) -> BTreeMap<u32, Stages> {
        let mut maps: BTreeMap<u32, Stages> = BTreeMap::new();
        for placed in &self.steps {
            let (begins, op) = (placed.stage as u32, placed.step.op);
            let ends = begins + placed.step.stages.saturating_sub(1);
            for access in &placed.step.accesses {
                let (Region::Value(MapId::Of(map) | MapId::In(map)) | Region::Keys(MapId::Of(map) | MapId::In(map))) =
                    access.region
                else {
                    continue;
                };
                let stages = maps.entry(map).or_default();
                stages.first = Some(stages.first.map_or(begins, |first| first.min(begins)));
                let kept = match (op, access.region, access.writes) {
                    (Op::Atomic { .. }, ..) => &mut stages.atomics,
                    (Op::Call { .. }, _, true) => &mut stages.entries,
                    (_, Region::Keys(_), false) => &mut stages.lookups,
                    (_, _, false) => &mut stages.loads,
                    (_, _, true) => &mut stages.stores,
                };
                kept.push(if access.writes { ends } else { begins });
            }
        }
        maps
    }
}

/// Selects the scheme of a map and its stages.
fn chosen(map: u32, name: String, stages: &Stages) -> MapUse {
    let write_stage = stages.writes().max();
    let first = stages.first.unwrap_or(0);
    // The result of a lookup stays valid if no entry is inserted or deleted.
    let early = stages.loads.iter().chain(stages.lookups.iter().filter(|_| !stages.entries.is_empty()));
    let atomics = stages.atomics.iter().filter(|_| !stages.loads.is_empty() || !stages.stores.is_empty());
    let read = early.chain(atomics).min().copied();
    let is_atomic = stages.stores.is_empty() && stages.entries.is_empty() && stages.loads.is_empty();
    let (scheme, reason) = match (write_stage, read) {
        (None, _) => (Scheme::None, "packets only read it"),
        (Some(_), _) if is_atomic => (Scheme::Atomic, "only atomic instructions access its values"),
        (Some(_), None) => (Scheme::None, "no packet reads the written values"),
        (Some(write), Some(read)) if write < read => (Scheme::None, "each packet writes it before reading it"),
        (Some(_), Some(_)) => (Scheme::Flush, "read in one stage and written in a later one"),
    };
    let is_flushed = scheme == Scheme::Flush;
    let read_stage = if is_flushed { read.unwrap_or(first) } else { first };
    let hold_cycles = if is_flushed { write_stage.unwrap_or(read_stage) + 1 - read_stage } else { 1 };
    let repeats = Vec::new();
    MapUse { map, name, scheme, reason, read_stage, write_stage, hold_cycles, restart_stage: None, repeats }
}

/// Moves each restart stage inside another map's flush region to the start of that region, until a fixpoint.
fn join(maps: &mut [MapUse]) {
    loop {
        let regions: Vec<(u32, u32)> =
            maps.iter().filter_map(|map| Some((map.restart_stage?, map.write_stage?))).collect();
        let mut has_moved = false;
        for map in maps.iter_mut() {
            let Some(own) = map.restart_stage else { continue };
            let around = regions.iter().filter(|(first, last)| *first < own && own <= *last);
            if let Some(first) = around.map(|(first, _)| *first).min() {
                map.restart_stage = Some(first);
                has_moved = true;
            }
        }
        if !has_moved {
            return;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use flowloom_isa::asm;
    use flowloom_plan::Target;
    use flowloom_verifier::{Options, verify};

    use super::*;

    const MAPS: &str =
        ".program test\n.license \"GPL\"\n.map a hash key 4 value 8 entries 4\n.map b hash key 4 value 8 entries 4\n";
    const KEY: &str = "r1 = 0\n*(u32 *)(r10 - 4) = r1\n";

    fn lookup(map: &str) -> String {
        format!("r2 = r10\nr2 += -4\nr1 = map[{map}] ll\ncall 1\nif r0 == 0 goto out\n")
    }

    fn maps(body: &str) -> Vec<MapUse> {
        let text = format!("{MAPS}{KEY}{body}out: r0 = 2\nexit\n");
        let program = asm::program("test.bpf", &text).unwrap();
        let proof = verify(&program, &Options::default()).unwrap();
        super::super::schedule(&program, &proof, &Target::default()).unwrap().maps(&program)
    }

    #[test]
    fn schemes_distinguish_reads_atomics_and_stores() {
        let read = maps(&format!("{}r6 = *(u64 *)(r0 + 0)\n", lookup("a")));
        assert_eq!((read[0].scheme, read[0].write_stage, read[0].hold_cycles), (Scheme::None, None, 1));
        let counted = maps(&format!("{}r6 = 1\nlock *(u64 *)(r0 + 0) += r6\n", lookup("a")));
        assert_eq!((counted[0].scheme, counted[0].hold_cycles), (Scheme::Atomic, 1));
        let written = maps(&format!("{}r6 = 7\n*(u64 *)(r0 + 0) = r6\n", lookup("a")));
        assert_eq!((written[0].scheme, written[0].write_stage.is_some()), (Scheme::None, true));
        // Load, add and store in three stages; the lookup does not count, since no entry is inserted or deleted.
        let changed = maps(&format!("{}r6 = *(u64 *)(r0 + 0)\nr6 += 1\n*(u64 *)(r0 + 0) = r6\n", lookup("a")));
        let own = &changed[0];
        assert_eq!((own.scheme, own.hold_cycles, own.restart_stage), (Scheme::Flush, 3, Some(0)));
        assert_eq!(own.write_stage, Some(own.read_stage + 2));
        assert!(own.read_stage > crate::LOOKUP_STAGES && own.repeats.is_empty());
    }

    #[test]
    fn a_second_map_restarts_after_the_first() {
        let change = |register: u8| {
            format!("r{register} = *(u64 *)(r0 + 0)\nr{register} += 1\n*(u64 *)(r0 + 0) = r{register}\n")
        };
        let own = maps(&format!("{}{}{}{}", lookup("a"), change(6), lookup("b"), change(7)));
        let [a, b] = &own[..] else { panic!("{own:?}") };
        assert_eq!((a.restart_stage, b.restart_stage), (Some(0), Some(a.write_stage.unwrap() + 1)));
        assert!(a.repeats.is_empty() && b.repeats.is_empty());
        // Read a, read b, write a, write b: a buffer between them does not help, and a flush of b repeats the write of
        // a.
        let crossed = format!(
            "{}r6 = *(u64 *)(r0 + 0)\nr7 = r0\n{}r8 = *(u64 *)(r0 + 0)\nr6 += r8\n*(u64 *)(r7 + 0) = r6\nr8 += r6\n*(u64 *)(r0 + 0) = r8\n",
            lookup("a"),
            lookup("b")
        );
        let own = maps(&crossed);
        let [a, b] = &own[..] else { panic!("{own:?}") };
        assert_eq!((a.restart_stage, b.restart_stage), (Some(0), Some(0)));
        assert_eq!(b.repeats, ["a"]);
    }
}
