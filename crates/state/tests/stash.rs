// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Occupancy of the stash under traffic, with insertions of a fixed duration.

use flowloom_state::{Cuckoo, Parameters, Refusal, Step};
use flowloom_trace::{Profile, Traffic, TrafficOptions};
use flowloom_wire::field::FIVE_TUPLE;
use flowloom_wire::{FieldId, Graph, KeySpec, Layers};

/// Duration of a move [FlowBlaze 4.2].
const MOVE_NS: f64 = 6.4;

/// The stash in a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Occupancy {
    pub(crate) packets: u64,
    pub(crate) flows: u64,
    /// New flows that found the stash full.
    pub(crate) refused: u64,
    /// Arrivals of new flows by the number of entries that wait in the stash after it.
    pub(crate) arrivals: Vec<u64>,
}

impl Occupancy {
    pub(crate) fn max(&self) -> usize {
        self.arrivals.iter().rposition(|&count| count > 0).unwrap_or(0)
    }
}

/// Inserts the 5-tuple of each new flow of the profile's traffic into a table of 200,000 entries. The engine takes
/// `moves` times 6.4 ns for each.
pub(crate) fn run(profile: Profile, duration_ns: u64, moves: u32, stash: u32) -> Occupancy {
    let fields: Vec<FieldId> = FIVE_TUPLE.iter().map(|name| FieldId::by_name(name).unwrap()).collect();
    let spec = KeySpec::of_fields(&fields, false).unwrap();
    let options = TrafficOptions { duration_ns: Some(duration_ns), ..TrafficOptions::new(profile) };
    let mut traffic = Traffic::new(&options).unwrap();
    let parameters = Parameters::for_entries(200_000, spec.key_bytes() as u32, 0);
    let mut table = Cuckoo::new(Parameters { stash, ..parameters }).unwrap();
    let mut found = Occupancy { packets: 0, flows: 0, refused: 0, arrivals: vec![0; stash as usize + 1] };
    // When the entry that is served is placed.
    let mut placed_ns: Option<f64> = None;
    while let Some(packet) = traffic.next_packet() {
        found.packets += 1;
        let now_ns = (packet.time_ns - flowloom_trace::START_NS) as f64;
        while let Some(then_ns) = placed_ns.filter(|&then_ns| then_ns <= now_ns) {
            while !matches!(table.step(), Step::Placed(_)) {}
            placed_ns = (table.stash_len() > 0).then_some(then_ns + f64::from(moves) * MOVE_NS);
        }
        let layers = Layers::parse(Graph::standard(), packet.bytes);
        let Some(key) = spec.extract(&layers, packet.bytes, packet.port, &[]) else { continue };
        if table.lookup(&key).is_some() {
            continue;
        }
        match table.insert(&key) {
            Ok(_) => {
                found.flows += 1;
                found.arrivals[table.stash_len()] += 1;
                placed_ns = placed_ns.or(Some(now_ns + f64::from(moves) * MOVE_NS));
            }
            Err(Refusal::Busy) => found.refused += 1,
            Err(Refusal::Full) => break,
        }
    }
    found
}

#[test]
fn eight_entries_suffice() {
    let found = run(Profile::Chi15, 100_000_000, 450, 8);
    assert!(found.flows > 5_000 && found.refused == 0 && found.max() > 2, "{found:?}");
}

#[test]
fn two_entries_do_not_suffice() {
    assert!(run(Profile::Chi15, 100_000_000, 450, 2).refused > 0);
}
