// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Transactions on the registers and maps of a shell, with and without packets: results and errors are the kernel's.

use std::collections::BTreeMap;

use flowloom_cosim::Model;
use flowloom_rtl::Shell;
use flowloom_rtl::registers::{IDENTIFICATION, LAYOUT, MAP, SHELL_COUNTERS, value_offset};

use super::{
    ALL, Bench, CLASSES, DECERR, E2BIG, EEXIST, EINVAL, ENOENT, KNOWN, NEXT, OKAY, PORTS, SLVERR, UPDATE, offset,
    packet,
};

/// All transactions, on a bench of a seed.
pub(super) fn run(model: &Model, shell: &Shell, seed: u64, rounds: usize) {
    let mut bench = Bench::new(model, shell, seed);
    bench.until_ready();
    bench.stalls = [0, 2, 5][seed as usize % 3];
    assert_eq!(bench.register(0), IDENTIFICATION);
    assert_eq!(bench.register(4), LAYOUT);
    addresses(&mut bench);
    busy(&mut bench);
    let mut classes = vec![vec![0u8; 11]; 5];
    errors(&mut bench, &mut classes);
    under_load(&mut bench, &mut classes, rounds);
}

/// Addresses without a register, registers that are only read, partial strobes.
fn addresses(bench: &mut Bench) {
    for address in [0x14, 0xb0, 0x12c, 0x144, 0x188, 0x500, 0x400 + offset("COUNT"), 0x00ff_0000, 0x00ff_fffc] {
        assert_eq!(bench.read(address), (0, DECERR), "{address:#x}");
        assert_eq!(bench.write(address, 1, 0xf), DECERR, "{address:#x}");
    }
    for address in
        [0, 8, SHELL_COUNTERS, 0x100 + MAP[1].offset, 0x100 + offset("COUNT"), 0x100 + offset("VALUE_OFFSET")]
    {
        assert_eq!(bench.write(address, 1, 0xf), SLVERR, "{address:#x}");
        assert_eq!(bench.read(address).1, OKAY, "{address:#x}");
    }
    // A write of no byte changes nothing, and has no error.
    for address in [0, SHELL_COUNTERS, 0x100, 0x104, 0x108, 0x100 + offset("COUNT"), 0x140] {
        assert_eq!(bench.write(address, 1, 0), OKAY, "{address:#x}");
    }
    assert_eq!(bench.register(0x104), 0);
    assert_eq!(bench.register(0x140), 0);
    // An operation that does not exist starts nothing.
    assert_eq!(bench.write(0x100, 4, 0xf), SLVERR);
    assert_eq!(bench.register(0x104), 0);
    let blocks = bench.blocks.clone();
    for block in &blocks {
        let rows = [
            ("INDEX", block.map),
            ("KIND", block.kind),
            ("KEY_BYTES", block.key_bytes),
            ("VALUE_BYTES", block.value_bytes),
            ("ENTRIES", block.entries),
            ("ROWS", block.rows),
            ("VALUE_OFFSET", value_offset(block.key_bytes)),
        ];
        for (name, value) in rows {
            assert_eq!(bench.register(block.address + offset(name)), value, "{}: {name}", block.name);
        }
        let mut word = 0u32;
        for strobe in 0..16 {
            let data = bench.rng.next_u64() as u32;
            let mask = (0..4).filter(|byte| strobe >> byte & 1 == 1).fold(0, |mask, byte| mask | 0xff << (8 * byte));
            word = word & !mask | data & mask;
            assert_eq!(bench.write(block.key_address(), data, strobe), OKAY);
            assert_eq!(bench.register(block.key_address()), word, "strobe {strobe:#x}");
        }
    }
    // Flags alone start nothing; the operation alone starts with them: EINVAL.
    let block = &blocks[KNOWN];
    assert_eq!(bench.write(block.address, 0x0300, 2), OKAY);
    assert_eq!(bench.register(block.address + 4), 0);
    assert_eq!(bench.write(block.address, UPDATE, 1), OKAY);
    while bench.register(block.address + 4) & 1 == 1 {}
    assert_eq!(bench.register(block.address + 4), EINVAL << 8);
    assert_eq!(bench.register(block.address), 0x0301);
}

/// While a map is busy, all registers are read but key and value, and none is written. A long listing of an empty map
/// keeps it busy.
fn busy(bench: &mut Bench) {
    let block = bench.blocks[KNOWN].clone();
    let base = block.address;
    bench.put(base + offset("CURSOR"), &[0; 4]);
    let found = |bench: &mut Bench, address: u32, write: Option<u8>| {
        assert_eq!(bench.write(base, NEXT, 0xf), OKAY);
        let response = match write {
            Some(strobe) => bench.write(address, 0, strobe),
            None => bench.read(address).1,
        };
        let was_busy = bench.register(base + MAP[1].offset) & 1 == 1;
        while bench.register(base + MAP[1].offset) & 1 == 1 {}
        assert_eq!(bench.write(base + offset("CURSOR"), 0, 0xf), OKAY);
        (response, was_busy)
    };
    let addresses = MAP.iter().map(|register| (base + register.offset, OKAY));
    let others = [(block.key_address(), SLVERR), (block.value_address(), SLVERR)];
    for (address, expected) in addresses.chain(others) {
        // Stalls of the bus may be longer than the transaction.
        match found(bench, address, None) {
            (response, true) => assert_eq!(response, expected, "{address:#x}"),
            (_, false) => assert!(bench.stalls > 0, "the transaction is too short for a read of {address:#x}"),
        }
    }
    for address in [base, base + offset("CURSOR"), block.key_address(), block.value_address()] {
        match found(bench, address, Some(0xf)) {
            (response, true) => assert_eq!(response, SLVERR, "{address:#x}"),
            (_, false) => assert!(bench.stalls > 0, "the transaction is too short for a write of {address:#x}"),
        }
        assert_eq!(found(bench, address, Some(0)).0, OKAY, "{address:#x}");
    }
}

/// The errors of all kinds of maps.
fn errors(bench: &mut Bench, classes: &mut [Vec<u8>]) {
    let value = [1, 2, 3, 4, 5, 6, 7, 8];
    assert_eq!(bench.lookup(KNOWN, 100), Err(ENOENT));
    assert_eq!(bench.delete(KNOWN, 100), ENOENT);
    assert_eq!(bench.update(KNOWN, 100, &value, 2), ENOENT);
    assert_eq!(bench.update(KNOWN, 100, &value, 3), EINVAL);
    assert_eq!(bench.update(KNOWN, 100, &value, 1), 0);
    assert_eq!(bench.update(KNOWN, 100, &[9; 8], 1), EEXIST);
    assert_eq!(bench.lookup(KNOWN, 100), Ok(value.to_vec()));
    assert_eq!(bench.update(KNOWN, 100, &[7; 8], 2), 0);
    assert_eq!(bench.lookup(KNOWN, 100), Ok(vec![7; 8]));
    for key in 101..116 {
        assert_eq!(bench.update(KNOWN, key, &[key as u8; 8], key & 1), 0);
    }
    assert_eq!(bench.update(KNOWN, 116, &value, 0), E2BIG);
    assert_eq!(bench.update(KNOWN, 116, &value, 1), E2BIG);
    assert_eq!(bench.update(KNOWN, 116, &value, 2), ENOENT);
    assert_eq!(bench.update(KNOWN, 101, &value, 1), EEXIST);
    assert_eq!(bench.update(KNOWN, 101, &value, 0), 0);
    assert_eq!(bench.register(0x100 + offset("COUNT")), 16);
    let listed: Vec<u32> = bench.list(KNOWN).into_keys().collect();
    assert_eq!(listed, (100..116).collect::<Vec<u32>>());
    for key in 100..116 {
        assert_eq!(bench.delete(KNOWN, key), 0);
    }
    assert_eq!(bench.list(KNOWN), BTreeMap::new());
    assert_eq!(bench.command(KNOWN, NEXT, 0), ENOENT);

    for (map, entries, bytes) in [(CLASSES, 5, 11), (ALL, 1, 8)] {
        let value: Vec<u8> = (0..bytes).map(|byte| 0x10 + byte).collect();
        assert_eq!(bench.lookup(map, entries), Err(ENOENT));
        assert_eq!(bench.lookup(map, u32::MAX), Err(ENOENT));
        assert_eq!(bench.update(map, entries, &value, 0), E2BIG);
        assert_eq!(bench.update(map, 0, &value, 1), EEXIST);
        assert_eq!(bench.update(map, 0, &value, 3), EINVAL);
        assert_eq!(bench.delete(map, 0), EINVAL);
        assert_eq!(bench.update(map, entries - 1, &value, 2), 0);
        assert_eq!(bench.lookup(map, entries - 1), Ok(value.clone()));
        if map == CLASSES {
            classes[4] = value;
            let listed: Vec<Vec<u8>> = bench.list(map).into_values().collect();
            assert_eq!(listed, *classes);
        } else {
            assert_eq!(bench.update(map, 0, &[0; 8], 0), 0);
        }
    }

    assert_eq!(bench.lookup(PORTS, 3), Err(ENOENT));
    assert_eq!(bench.update(PORTS, 3, &[9, 0, 0, 1], 0), 0);
    assert_eq!(bench.update(PORTS, 5, &[0; 4], 0), 0);
    assert_eq!(bench.update(PORTS, 0, &[4; 4], 0), 0);
    assert_eq!(bench.update(PORTS, 6, &[4; 4], 0), E2BIG);
    assert_eq!(bench.update(PORTS, 5, &[4; 4], 1), EEXIST);
    assert_eq!(bench.lookup(PORTS, 3), Ok(vec![9, 0, 0, 1]));
    assert_eq!(bench.lookup(PORTS, 5), Ok(vec![0; 4]));
    assert_eq!(bench.delete(PORTS, 6), EINVAL);
    assert_eq!(bench.delete(PORTS, 0), 0);
    assert_eq!(bench.lookup(PORTS, 0), Err(ENOENT));
    assert_eq!(bench.list(PORTS), [(3, vec![9, 0, 0, 1]), (5, vec![0; 4])].into());
}

/// Transactions while packets change the same maps: the host's keys are its own, and all counts add up in the end.
fn under_load(bench: &mut Bench, classes: &mut [Vec<u8>], rounds: usize) {
    let before = ["PACKETS_IN", "BYTES_IN", "REDIRECTED", "PASSED", "DROPPED"].map(|name| bench.counter(name));
    assert_eq!(before, [0; 5]);
    let (mut sent, mut bytes, mut redirected, mut dropped) = (0u64, 0u64, 0u64, 0u64);
    let mut expected: Vec<(Vec<u8>, (u32, u8))> = Vec::new();
    let mut counts: BTreeMap<u32, u64> = BTreeMap::new();
    let mut own: BTreeMap<u32, Vec<u8>> = BTreeMap::new();
    let mut transactions = 0;
    for round in 0..rounds {
        // At full rate, so that the host has to wait for room.
        for _ in 0..1 + bench.rng.below(60) {
            let (key, class, port) = (bench.rng.below(4) as u32, bench.rng.below(8) as u8, bench.rng.below(8) as u8);
            let len = if bench.rng.chance(1, 8) { 1 + bench.rng.below(300) } else { 60 };
            let packet = packet(key, class, port, len.max(6));
            bench.send(&packet);
            (sent, bytes) = (sent + 1, bytes + packet.len() as u64);
            if packet.len() < 8 {
                dropped += 1;
                continue;
            }
            *counts.entry(key).or_default() += 1;
            if let Some(class) = classes.get_mut(usize::from(class)) {
                let count = u64::from_le_bytes(*class.first_chunk().unwrap()).wrapping_add(1);
                class[..8].copy_from_slice(&count.to_le_bytes());
            }
            redirected += u64::from(matches!(port, 3 | 5));
            let user = match port {
                3 => (0x0100_0009, 4),
                5 => (0, 4),
                _ => (0, 2),
            };
            expected.push((packet, user));
        }
        // A limit of 16, of which packets have 4.
        if round == 0 {
            bench.drain();
        }
        for _ in 0..bench.rng.below(6) {
            let key = 1000 + bench.rng.below(16) as u32;
            let value = bench.rng.bytes(8);
            let flags = bench.rng.below(3) as u32;
            transactions += 1;
            match bench.rng.below(4) {
                0 => assert_eq!(bench.lookup(KNOWN, key).ok(), own.get(&key).cloned(), "key {key}"),
                1 => assert_eq!(bench.delete(KNOWN, key), own.remove(&key).map_or(ENOENT, |_| 0), "key {key}"),
                _ => {
                    let error = match (flags, own.contains_key(&key)) {
                        (1, true) => EEXIST,
                        (2, false) => ENOENT,
                        (_, false) if own.len() + counts.len() == 16 => E2BIG,
                        _ => 0,
                    };
                    assert_eq!(bench.update(KNOWN, key, &value, flags), error, "key {key}, flags {flags}");
                    if error == 0 {
                        own.insert(key, value);
                    }
                }
            }
        }
    }
    bench.drain();
    let packets: Vec<(Vec<u8>, (u32, u8))> = bench.received.iter().cloned().zip(bench.users.iter().copied()).collect();
    assert_eq!(packets.len(), expected.len());
    for (number, (found, expected)) in packets.iter().zip(&expected).enumerate() {
        assert_eq!(found.0, expected.0, "packet {number}");
        assert_eq!(found.1.1, expected.1.1, "packet {number}: verdict");
        if expected.1.1 == 4 {
            assert_eq!(found.1.0, expected.1.0, "packet {number}: port");
        }
    }
    let all: BTreeMap<u32, Vec<u8>> =
        counts.iter().map(|(key, count)| (*key, count.to_le_bytes().to_vec())).chain(own).collect();
    assert_eq!(bench.list(KNOWN), all, "after {transactions} transactions");
    assert_eq!(bench.list(CLASSES).into_values().collect::<Vec<_>>(), *classes);
    let total: u64 = counts.values().sum();
    assert_eq!(bench.lookup(ALL, 0), Ok(total.to_le_bytes().to_vec()));
    let given = expected.iter().map(|(bytes, _)| bytes.len() as u64).sum();
    for (name, count) in [
        ("PACKETS_IN", sent),
        ("BYTES_IN", bytes),
        ("PACKETS_OUT", expected.len() as u64),
        ("BYTES_OUT", given),
        ("ABORTED", 0),
        ("DROPPED", dropped),
        ("PASSED", expected.len() as u64 - redirected),
        ("SENT_BACK", 0),
        ("REDIRECTED", redirected),
        ("SLOW", 0),
        ("DISCARDED", 0),
    ] {
        assert_eq!(bench.counter(name), count, "{name}");
    }
    assert_eq!(bench.counter("OUTPUT_STALLS") > 0, bench.stalls > 0);
}
