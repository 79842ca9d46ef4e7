// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long proofs about the tables.

use flowloom_state::{LoadCosts, LoadTest};
use flowloom_trace::Profile;

use crate::stash;

/// Rows of a bank: 65,536 places.
const ROWS: u32 = 1 << 14;
/// Measurements at each load [FlowBlaze figure 10a].
const MEASUREMENTS: u32 = 10_000;
/// Tables among which the measurements are divided.
const TABLES: u32 = 20;

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
    for load_percent in [50, 60, 70, 80, 85, 90, 93, 95, 96, 97] {
        let test = LoadTest { rows: ROWS, load_percent, tables: TABLES, insertions: MEASUREMENTS };
        let LoadCosts { moves, steps, walk_moves } = test.run().expect("every key finds a place");
        println!(
            "{load_percent} % {:>19} {:>5} {:>6} {:>15} {:>6} {:>6} {:>21} {:>6} {:>7}",
            moves.median,
            moves.percentile_99,
            moves.max,
            steps.median,
            steps.percentile_99,
            steps.max,
            walk_moves.median,
            walk_moves.percentile_99,
            walk_moves.max
        );
        assert!(load_percent != 95 || moves.median <= 10, "the median is {}", moves.median);
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
        let (packets, found) = stash::run(profile, 10_000_000_000, moves, entries);
        println!(
            "{name}, {moves} moves, {entries} entries: {packets} packets, {} flows, at most {} in the stash, {} refused, empty {:.1} % \
             of the time",
            found.inserted,
            found.max(),
            found.refused,
            found.empty_share * 100.0
        );
        for (waiting, &count) in found.insertions.iter().enumerate().filter(|&(_, &count)| count > 0) {
            println!("  {waiting} in the stash: {:9.5} %", count as f64 * 100.0 / found.inserted as f64);
        }
        assert_eq!(found.refused == 0, suffices);
    }
}
