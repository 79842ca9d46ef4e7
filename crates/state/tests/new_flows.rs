// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rate at which a hash map takes packets whose flows are all new.

use std::collections::VecDeque;
use std::rc::Rc;

use flowloom_state::{Change, MapAccess, MapClock, MapParameters};

/// Declared entries of the map.
const ENTRIES: u32 = 16_384;
/// The clock of pipelines.
const CLOCK_MHZ: f64 = 250.0;

/// A map behind as many stages as packets are on their way to it; one packet is offered in each cycle.
struct Bench {
    map: MapClock,
    stages: VecDeque<Option<MapAccess>>,
    changes: Rc<[Change]>,
    next_key: u64,
    cycles: u64,
}

impl Bench {
    fn new(delay_cycles: u32) -> Bench {
        let stages = 2;
        let parameters = MapParameters { entries: ENTRIES, key_bytes: 8, delay_cycles, ahead: stages + 2 };
        Bench {
            map: MapClock::new(parameters).unwrap(),
            stages: vec![None; stages as usize + 1].into(),
            changes: Rc::from([Change::Update]),
            next_key: 0,
            cycles: 0,
        }
    }

    /// Cycles pass until the map has so many entries.
    fn fill(&mut self, entries: u32) {
        while self.map.len() < entries {
            let sends = self.map.has_room();
            let key = Rc::from(self.next_key.to_be_bytes());
            self.next_key += u64::from(sends);
            self.stages.push_front(sends.then(|| MapAccess { key, changes: Rc::clone(&self.changes) }));
            let entering = self.stages.pop_back().flatten();
            self.map.cycle(entering);
            self.cycles += 1;
        }
    }

    /// The rate from one number of entries to another one, in millions of packets a second.
    fn rate(&mut self, from: u32, to: u32) -> f64 {
        self.fill(from);
        let before = self.cycles;
        self.fill(to);
        CLOCK_MHZ * f64::from(to - from) / (self.cycles - before) as f64
    }
}

/// Each new flow takes a cycle for its packet and one for its insertion, until all places of many keys are taken.
#[test]
fn new_flows_take_two_cycles_each_at_moderate_load() {
    for delay_cycles in [0, 3] {
        let mut bench = Bench::new(delay_cycles);
        let loads = [10, 25, 50, 60, 70, 80, 90, 98];
        let rates = loads.map(|percent| {
            let from = ENTRIES * percent / 100;
            bench.rate(from, from + ENTRIES / 100)
        });
        println!("delay {delay_cycles}: {loads:?} % full: {rates:.1?} Mpps of new flows");
        let least = [110.0, 110.0, 110.0, 110.0, 50.0, 15.0, 6.0, 1.0];
        for ((percent, rate), least) in loads.iter().zip(rates).zip(least) {
            assert!(rate >= least, "delay {delay_cycles}, {percent} % full: {rate:.1} Mpps, expected {least}");
        }
    }
}
