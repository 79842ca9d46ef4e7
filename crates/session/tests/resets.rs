// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Resets while packets and accesses of the host are in a pipeline: nothing of them leaves it, its maps are empty, and
//! new packets have the results and the cycles of a pipeline that was idle when it was reset.
//!
//! ```text
//!   packets, accesses ── reset at any cycle ── reset again ── maps cleared ── idle ── maps read ── new packets
//!                                               (some)                       (some)     (some)
//! ```

use flowloom_engine::Datapath;
use flowloom_rtl::{Access, MapPort};
use flowloom_session::engines::{
    HostAccess, Interrupted, Interruption, Operation, OutputStalls, Simulated, cache_folder,
};
use flowloom_testkit::{Rng, skip};
use flowloom_vm::Interpreter;

use crate::faults::{Fault, planted};
use crate::stream::{Case, arrivals, case, compare_after_reset, start};
use crate::traffic::Traffic;

/// A hash map, an LRU map, a scheduler with a queue and late results, extra packets, random numbers.
const CASES: [&str; 5] = ["simple_firewall", "recent", "queued", "clones", "draws"];
/// Resets of each case.
const ROUNDS: usize = 30;
/// Packets before a reset, and after it.
const PACKETS: usize = 80;
/// The latest cycle of a reset.
const MAX_CYCLES: usize = 250;

/// Faults in what a reset clears. At power-on registers have random values, but maps are cleared for longer than
/// packets and accesses take, so pipelines that are idle when they are reset hide these faults.
pub(crate) const FAULTS: &[Fault] = &[
    Fault {
        name: "a reset leaves packets in the core",
        subject: "simple_firewall",
        file: "fl_core_",
        changes: &[("valid_s3_q <= valid_s2_q && !rst_i;", "valid_s3_q <= valid_s2_q && (!rst_i || 1'b1);")],
    },
    Fault {
        name: "a reset leaves accesses of the host in a hash map",
        subject: "recent",
        file: "fl_hash_map.sv",
        changes: &[("access_q[cycle].valid <= 1'b0;", "access_q[cycle].valid <= access_q[cycle].valid;")],
    },
];

/// What the resets of a case have met.
#[derive(Debug, Default, Clone, Copy)]
struct Met {
    /// Resets with packets between input and verdict.
    in_flight: usize,
    /// Resets in the middle of a packet.
    split: usize,
    /// Resets with accesses of the host on their way.
    accesses: usize,
    /// Resets with another one while maps are cleared.
    again: usize,
}

/// Accesses of the host at any time.
fn accesses(maps: &[&MapPort], rng: &mut Rng) -> Vec<HostAccess> {
    let mut all = Vec::new();
    while !maps.is_empty() && all.len() < 20 {
        let map = rng.pick(maps);
        let key = match map.access {
            Access::Key { bytes, .. } => rng.bytes(bytes as usize),
            _ => (rng.below(map.entries as usize) as u32).to_le_bytes().to_vec(),
        };
        let operation = match rng.chance(1, 2) {
            true => Operation::Lookup,
            false => Operation::Update(rng.bytes(map.value_bytes as usize)),
        };
        let (after_packets, delay_cycles) = (rng.below(4), rng.below(30) as u32);
        all.push(HostAccess { after_packets, delay_cycles, map: map.map, key, operation });
    }
    all
}

/// Resets a pipeline again and again; the first difference.
fn reset(case: &Case, simulated: &mut Simulated, seed: u64, rounds: usize) -> Result<Met, String> {
    let loaded = case.load();
    let mut interp = Interpreter::new(loaded.program().unwrap()).unwrap();
    let initial = interp.snapshot().map_err(|e| e.to_string())?;
    let maps: Vec<MapPort> =
        simulated.maps().filter(|map| !matches!(map.access, Access::Ports { .. })).cloned().collect();
    let mut rng = Rng::new(seed);
    let mut met = Met::default();
    for round in 0..rounds {
        let draw = |rng: &mut Rng| rng.pick(&Traffic::ALL).packets(rng, PACKETS, simulated.max_bytes());
        let (old, new) = (draw(&mut rng), draw(&mut rng));
        let accesses = accesses(&maps.iter().collect::<Vec<_>>(), &mut rng);
        let mut stalls = || OutputStalls { of_256: *rng.pick(&[0, 100, 230]), seed: rng.next_u64() as u32 };
        let (old_stalls, new_stalls) = (stalls(), stalls());
        let interruption = Interruption {
            after_cycles: 1 + rng.below(MAX_CYCLES) as u32,
            reset_cycles: 1 + rng.below(3) as u32,
            again_cycles: rng.chance(1, 4).then(|| 1 + rng.below(60) as u32),
            settles: rng.chance(1, 2),
        };
        let place = |found: &dyn std::fmt::Display| format!("round {round}, {interruption:?}: {found}");
        // The same new packets after a reset without any others.
        simulated.reset().map_err(|e| place(&e))?;
        let (_, expected) =
            compare_after_reset(case, simulated, &mut interp, &new, new_stalls).map_err(|e| place(&e))?;
        let interrupted = simulated.interrupt(&arrivals(&old), &accesses, old_stalls, interruption);
        let Interrupted { taken, is_split, verdicts, made, answered } = interrupted.map_err(|e| place(&e))?;
        met.in_flight += usize::from(taken > verdicts);
        met.split += usize::from(is_split);
        met.accesses += usize::from(made > answered);
        met.again += usize::from(interruption.again_cycles.is_some());
        if rng.chance(1, 2) {
            for map in &maps {
                let found = simulated.read(map.map).map_err(|e| place(&e))?;
                let expected = initial.maps[&map.name].clone();
                let is_equal = found.len() == expected.len()
                    && found
                        .iter()
                        .zip(&expected)
                        .all(|((key, value), (own, whole))| key == own && whole.starts_with(value));
                if !is_equal {
                    return Err(place(&format!("map `{}` after the reset: {found:02x?}", map.name)));
                }
            }
        }
        let (_, found) = compare_after_reset(case, simulated, &mut interp, &new, new_stalls).map_err(|e| place(&e))?;
        if let Some(number) = (0..new.len()).find(|number| found[*number] != expected[*number]) {
            let (found, expected) = (&found[number], &expected[number]);
            return Err(place(&format!("packet {number}: found {found:02x?}, expected {expected:02x?}")));
        }
    }
    Ok(met)
}

#[test]
fn a_reset_among_packets_leaves_nothing_of_them() {
    let seed = Rng::from_env(1).next_u64();
    let mut all_accesses = 0;
    for name in CASES {
        let case = case(name);
        let pipeline = case.pipeline(&case.load());
        let Some(mut simulated) = start("a_reset_among_packets_leaves_nothing_of_them", &pipeline, seed as u32) else {
            return;
        };
        let met =
            reset(case, &mut simulated, seed, ROUNDS).unwrap_or_else(|found| panic!("seed {seed}, {name}: {found}"));
        println!("{name}: {met:?}");
        let Met { in_flight, split, accesses, again } = met;
        assert!(in_flight > ROUNDS / 2 && split > 2 && again > 2, "{name}: {met:?}");
        all_accesses += accesses;
    }
    assert!(all_accesses > 1, "{all_accesses} resets with accesses on their way");
}

#[test]
fn faults_of_resets_are_found() {
    for (number, fault) in FAULTS.iter().enumerate() {
        let case = case(fault.subject);
        let pipeline = planted(3000 + number, fault, case.pipeline(&case.load()));
        // The random values at power-on may make a fault seen before the first packet.
        let found = match Simulated::start(&pipeline, &cache_folder(), 1) {
            Ok(mut simulated) => reset(case, &mut simulated, 1, ROUNDS),
            Err(error) if error.is_missing_tool() => return skip("faults_of_resets_are_found", &error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        match found {
            Err(found) => println!("{}: {found:.300}", fault.name),
            Ok(_) => panic!("{} is not found", fault.name),
        }
    }
}
