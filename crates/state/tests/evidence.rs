// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long proofs about the tables.

use flowloom_random::SplitMix64;
use flowloom_state::{RandomWalk, RowHash};
use flowloom_trace::Profile;

use crate::load::{fill, insert, key, quantiles, table};
use crate::stash;

/// Rows of a bank: 65,536 places.
const ROWS: u32 = 1 << 14;
/// Measurements at each load [FlowBlaze figure 10a].
const MEASUREMENTS: u32 = 10_000;
/// Tables among which the measurements are divided.
const TABLES: u64 = 20;

/// The cuckoo table takes random keys up to 97% load. The median of moved entries for an insertion at 95% load is at most
/// 10 (FlowBlaze figure 10a: 125). Prints median, 99th percentile and maximum of moves and of the engine's steps by
/// load, beside a random walk over the same places.
#[test]
#[ignore = "minutes"]
fn evidence_cuckoo_moves() {
    println!("{} places, {MEASUREMENTS} insertions of random keys at each load, {TABLES} tables", ROWS * 4);
    println!(
        "load        moves: median   99%    max   steps: median    99%    max   random walk: median    99%     max"
    );
    for percent in [50, 60, 70, 80, 85, 90, 93, 95, 96, 97] {
        let (mut moves, mut steps, mut walked) = (Vec::new(), Vec::new(), Vec::new());
        for seed in 1..=TABLES {
            let mut rng = SplitMix64::new(seed);
            let mut table = table(ROWS, seed);
            fill(&mut table, f64::from(percent) / 100.0, &mut rng);
            for _ in 0..MEASUREMENTS / TABLES as u32 {
                let key = key(&mut rng);
                let cost = insert(&mut table, &key, 1_000_000).expect("a place is found");
                moves.push(cost.moves);
                steps.push(cost.steps);
                table.delete(&key);
            }
            table.check_invariants();
            let mut walk = RandomWalk::new(RowHash::new(13, ROWS, seed), seed);
            for _ in 0..ROWS * 4 * percent / 100 {
                walk.insert(&key(&mut rng), u32::MAX - 1).unwrap();
            }
            for _ in 0..MEASUREMENTS / TABLES as u32 {
                let key = key(&mut rng);
                walked.push(walk.insert(&key, u32::MAX - 1).unwrap());
                walk.delete(&key);
            }
        }
        let [moves, steps, walked] = [moves, steps, walked].map(quantiles);
        println!(
            "{percent} % {:>19} {:>5} {:>6} {:>15} {:>6} {:>6} {:>21} {:>6} {:>7}",
            moves[0], moves[1], moves[2], steps[0], steps[1], steps[2], walked[0], walked[1], walked[2]
        );
        assert!(percent != 95 || moves[0] <= 10, "the median is {}", moves[0]);
    }
}

/// A stash of eight entries suffices for the new 5-tuples of ten seconds of generated CHI15 and MAWI15 traffic if each
/// insertion takes 450 moves of 6.4 ns (FlowBlaze figure 10b). Controls with a smaller stash and with more moves
/// overflow. Prints the share of arrivals that leave each number of entries in the stash.
#[test]
#[ignore = "minutes"]
fn evidence_cuckoo_stash() {
    for (profile, name, moves, entries, suffices) in [
        (Profile::Chi15, "CHI15", 450, 8, true),
        (Profile::Mawi15, "MAWI15", 450, 8, true),
        (Profile::Chi15, "CHI15", 450, 2, false),
        (Profile::Chi15, "CHI15", 2000, 8, false),
    ] {
        let found = stash::run(profile, 10_000_000_000, moves, entries);
        println!(
            "{name}, {moves} moves, {entries} entries: {} packets, {} flows, at most {} in the stash, {} refused",
            found.packets,
            found.flows,
            found.max(),
            found.refused
        );
        for (waiting, &arrivals) in found.arrivals.iter().enumerate().filter(|&(_, &arrivals)| arrivals > 0) {
            println!("  {waiting} in the stash: {:9.5} %", arrivals as f64 * 100.0 / found.flows as f64);
        }
        assert_eq!(found.refused == 0, suffices);
    }
}
