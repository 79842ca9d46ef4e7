// SPDX-License-Identifier: Apache-2.0 OR MIT

use super::*;

fn room(packets: usize) -> Vec<AtomicU8> {
    (0..packets).map(|_| AtomicU8::new(u8::MAX)).collect()
}

/// A core that differs from packet to packet, also between chunks and parts.
fn core_of(packet: usize) -> u8 {
    (packet % 251) as u8
}

#[test]
fn all_cores_find_each_packet_once() {
    for packets in [1, CHUNK - 1, CHUNK, CHUNK + 1, PART, PART + 1, 3 * PART + 700, WINDOW] {
        for threads in 1..=3 {
            let room = room(packets);
            let owners = Owners::new(&room);
            let found = AtomicUsize::new(0);
            let run = || {
                let _alarm = Alarm(&owners.is_abandoned);
                let mut seen = 0;
                for part in owners.parts(0..packets) {
                    let first = part.start;
                    let cores = owners.of(part, |chunk, cores| {
                        found.fetch_add(chunk.len(), Ordering::Relaxed);
                        assert_eq!(chunk.len(), cores.len());
                        chunk.zip(cores).for_each(|(packet, core)| core.store(core_of(packet), Ordering::Relaxed));
                    });
                    let cores = cores.expect("no thread panics");
                    for (packet, core) in (first..).zip(cores) {
                        assert_eq!(core.load(Ordering::Relaxed), core_of(packet), "packet {packet} of {packets}");
                    }
                    seen += cores.len();
                }
                assert_eq!(seen, packets);
            };
            std::thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(run)));
            assert_eq!(found.into_inner(), packets, "{threads} threads");
        }
    }
}

/// A core may take a chunk and panic, so that its part is never known: no other core waits for it.
#[test]
fn a_panic_ends_the_wait_of_others() {
    let room = room(2 * CHUNK);
    let owners = Owners::new(&room);
    std::thread::scope(|scope| {
        let panics = scope.spawn(|| {
            let _alarm = Alarm(&owners.is_abandoned);
            owners.of(0..2 * CHUNK, |_, _| std::panic::resume_unwind(Box::new("in the first chunk")));
        });
        assert!(panics.join().is_err());
        assert!(owners.of(0..2 * CHUNK, |_, _| ()).is_none());
    });
}

#[test]
fn a_turn_has_the_parts_that_it_begins_and_ends_in() {
    let room = room(2 * PART + 10);
    let owners = Owners::new(&room);
    let parts = |packets| owners.parts(packets).collect::<Vec<_>>();
    let all = [0..PART, PART..2 * PART, 2 * PART..2 * PART + 10];
    assert_eq!(parts(0..2 * PART + 10), all);
    assert_eq!(parts(0..1), all[..1]);
    assert_eq!(parts(PART - 1..PART + 1), all[..2]);
    assert_eq!(parts(PART..2 * PART), all[1..2]);
    assert_eq!(parts(2 * PART + 9..2 * PART + 10), all[2..]);
}

#[test]
fn a_core_lists_its_packets_in_order() {
    let room = room(PART);
    for (packet, core) in room.iter().enumerate() {
        core.store((packet % 3) as u8, Ordering::Relaxed);
    }
    let mut own = Own::default();
    for (packets, core) in [(PART, 0), (PART - 1, 1), (17, 2), (2, 2), (0, 0)] {
        let expected: Vec<u32> = (0..packets as u32).filter(|packet| packet % 3 == core).map(|at| 100 + at).collect();
        assert_eq!(own.list(core as u8, &room[..packets], 100), expected, "{packets} packets");
    }
}
