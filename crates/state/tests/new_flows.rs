// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rate at which a hash map takes packets whose flows are all new.

use std::collections::VecDeque;
use std::rc::Rc;

use flowloom_state::{Change, MapAccess, MapClock, MapParameters, Parameters, RowHash};

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
        let hash_seed = Parameters::DEFAULT_SEED;
        let parameters = MapParameters { entries: ENTRIES, key_bytes: 8, delay_cycles, ahead: stages + 2, hash_seed };
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
        let least = [110.0, 110.0, 110.0, 100.0, 50.0, 15.0, 6.0, 1.0];
        for ((percent, rate), least) in loads.iter().zip(rates).zip(least) {
            assert!(rate >= least, "delay {delay_cycles}, {percent} % full: {rate:.1} Mpps, expected {least}");
        }
    }
}

/// Keys with the same four places, more than table and pending keys hold, stop a map. With hash functions of another seed
/// they have places of their own.
#[test]
fn keys_that_stop_a_map_do_not_stop_one_of_another_seed() {
    let entries = 40;
    let at = |hash_seed: u64| MapParameters { entries, key_bytes: 4, delay_cycles: 0, ahead: 4, hash_seed };
    let default = Parameters::DEFAULT_SEED;
    // The rows of the map's table (`MapParameters::keys`).
    let rows = Parameters::for_entries(entries + 64 + 32, 4, 0).rows;
    let hash = RowHash::new(4, rows, default);
    let aim = hash.rows_of(&[0; 4]);
    let keys: Vec<[u8; 4]> =
        (0..u32::MAX).map(u32::to_be_bytes).filter(|key| hash.rows_of(key) == aim).take(entries as usize - 2).collect();
    for (seed, stops) in [(default, true), (default + 1, false), (0x5eed, false), (u64::MAX, false)] {
        let mut map = MapClock::new(at(seed)).unwrap();
        let changes: Rc<[Change]> = Rc::from([Change::Update]);
        let mut left = keys.iter();
        for _ in 0..20_000 {
            let next = if map.has_room() { left.next() } else { None };
            map.cycle(next.map(|key| MapAccess { key: Rc::from(*key), changes: Rc::clone(&changes) }));
        }
        let found = (left.len() > 0, map.has_room(), map.pending_keys() > 0);
        assert_eq!(found, (stops, !stops, stops), "seed {seed}: {} keys are pending", map.pending_keys());
    }
}

/// Keys that find no place are tried in turn with the others, and so do not hold them up.
#[test]
fn keys_without_a_place_let_others_in() {
    let (entries, without_place) = (40, 8);
    let hash_seed = Parameters::DEFAULT_SEED;
    let rows = Parameters::for_entries(entries + 64 + 32, 4, 0).rows;
    let hash = RowHash::new(4, rows, hash_seed);
    let aim = hash.rows_of(&[0; 4]);
    let all = || (0..u32::MAX).map(u32::to_be_bytes);
    let colliding = all().filter(|key| hash.rows_of(key) == aim).take(12 + without_place);
    let others = all().filter(|key| hash.rows_of(key) != aim).take(entries as usize - 12 - without_place);
    let parameters = MapParameters { entries, key_bytes: 4, delay_cycles: 0, ahead: 4, hash_seed };
    let mut map = MapClock::new(parameters).unwrap();
    let changes: Rc<[Change]> = Rc::from([Change::Update]);
    let mut left = colliding.chain(others).fuse();
    let mut sent = 0;
    // The first ones alone, so that those without a place have the lowest pending entries.
    for cycle in 0..5000 {
        let comes = sent >= 12 + without_place as u32 || cycle % 100 == 0;
        let next = if comes && map.has_room() { left.next() } else { None };
        sent += u32::from(next.is_some());
        map.cycle(next.map(|key| MapAccess { key: Rc::from(key), changes: Rc::clone(&changes) }));
    }
    let found = (sent, map.len(), map.has_room(), map.pending_keys() as usize);
    assert_eq!(found, (entries, entries, true, without_place), "sent, entries, room, pending keys");
}
