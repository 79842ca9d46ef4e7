// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Small functions, one for each corner case; every row is reached.

use flowloom_efsm::{Coverage, ElementCoverage};
use flowloom_testkit::{PacketBuilder, Rng, sources};

use super::agree::{agree, function, random_steps_of, unreached};

/// Time increments around the timeouts of the functions, so that packets arrive before, at and after a deadline.
const GAPS_NS: [u64; 10] = [0, 0, 0, 1, 1, 2, 4, 5, 6, 11];

#[test]
fn machine_and_lowered_program_agree_on_every_row() {
    let mut rng = Rng::from_env(0x6c6f_7765);
    let sources = sources("tests/lowering");
    assert!(sources.len() >= 9, "{}", sources.len());
    for (path, text) in sources {
        let name = path.display();
        let function = function(&text);
        // Repeat for rows that are reached rarely.
        let mut missing: Option<Vec<String>> = None;
        let mut coverage = Coverage::default();
        for _ in 0..100 {
            let steps = random_steps_of(&mut rng, 3000, &GAPS_NS, |rng| match rng.below(8) {
                0..4 if text.contains("inner.") => PacketBuilder::random_tunnel(rng, 4),
                4 if text.contains("icmpx.") => {
                    PacketBuilder::random(rng, 4).icmp(*rng.pick(&[0, 129]), 0, 1, rng.below(4) as u16)
                }
                4 if text.contains("after eth") => {
                    let ethertype = *rng.pick(&[0x88b5, 0x88b6, 0x88b7]);
                    let payload = rng.bytes(20);
                    PacketBuilder::random(rng, 4).ethertype(ethertype).payload(&payload)
                }
                _ => PacketBuilder::random(rng, 4),
            });
            coverage = agree(&function, &steps, 7, None);
            let now = unreached(&function, &coverage).into_iter().filter(|row| !row.contains("never:"));
            let still = now.filter(|row| missing.as_ref().is_none_or(|before| before.contains(row))).collect();
            if missing.insert(still).is_empty() {
                break;
            }
        }
        let missing = missing.unwrap_or_default();
        assert!(missing.is_empty(), "{name}: not reached\n{}", missing.join("\n"));
        let sum = |pick: fn(&ElementCoverage) -> u64| coverage.elements.iter().map(pick).sum::<u64>();
        println!(
            "{name}: {} created, {} removed, {} rejected, {} evicted, {} idle and {} hard timers, {} without match, {} without key",
            sum(|e| e.created),
            sum(|e| e.removed),
            sum(|e| e.rejected),
            sum(|e| e.evicted),
            sum(|e| e.idle_expired.values().sum()),
            sum(|e| e.hard_expired.values().sum()),
            sum(|e| e.no_match),
            sum(|e| e.no_key),
        );
    }
}
