// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Damaged objects: a meaningful error, or a program; never a panic.

use std::collections::BTreeMap;

use flowloom_testkit::Rng;

use super::random;
use super::samples::everything;
use crate::{Object, ReadError, ReadFault, read, write};

/// How an object is read.
pub(crate) type Reading<'r> = dyn Fn(&[u8]) -> Result<Object, ReadError> + 'r;

/// The outcome of reading without the numbers, which shows how deep the damage reached.
fn outcome(bytes: &[u8], read_it: &Reading<'_>) -> String {
    let kind = |fault: &ReadFault| {
        let text = format!("{fault:?}");
        let end = text.find([' ', '{', '(']).unwrap_or(text.len());
        let inner = text.split("source: ").nth(1).map_or("", |s| s.split([' ', '{']).next().unwrap_or(""));
        assert!(!fault.to_string().is_empty());
        format!("{} {inner}", &text[..end])
    };
    match read_it(bytes) {
        Err(error) => kind(&error.fault),
        Ok(object) if object.programs.is_empty() => {
            let refused = object.refused.first().expect("a program, or one that is refused");
            format!("refused {}", kind(&refused.fault))
        }
        Ok(object) => {
            for program in &object.programs {
                // What was read can be written or is refused, and what was written can be read back.
                let Ok(bytes) = write(program) else { continue };
                let back = read(&bytes, "x").unwrap_or_else(|e| panic!("{e}\n{program:?}"));
                let [back] = &back.programs[..] else { panic!("one program") };
                assert_eq!((&back.insns, &back.maps, &back.license), (&program.insns, &program.maps, &program.license));
                let again = write(back).unwrap();
                assert_eq!(
                    read(&again, "x").unwrap().programs,
                    std::slice::from_ref(back),
                    "the normal form is not stable"
                );
            }
            "read".to_owned()
        }
    }
}

/// Truncates `bytes` at `cuts` places (all, if there are fewer) and changes it `changes` times.
pub(super) fn torture(bytes: &[u8], cuts: usize, changes: usize, rng: &mut Rng) -> BTreeMap<String, usize> {
    torture_with(bytes, cuts, changes, rng, &|bytes| read(bytes, "x"))
}

/// The same for other readers.
pub(crate) fn torture_with(
    bytes: &[u8],
    cuts: usize,
    changes: usize,
    rng: &mut Rng,
    read_it: &Reading<'_>,
) -> BTreeMap<String, usize> {
    let step = (bytes.len() / cuts).max(1);
    let mut outcomes = BTreeMap::new();
    for end in (0..bytes.len()).step_by(step) {
        let result = outcome(&bytes[..end], read_it);
        assert_ne!(result, "read", "cut at byte {end} of {}, it is still read", bytes.len());
        *outcomes.entry(result).or_insert(0) += 1;
    }
    for _ in 0..changes {
        let mut damaged = bytes.to_vec();
        for _ in 0..1 + rng.below(4) {
            damage(&mut damaged, rng);
        }
        *outcomes.entry(outcome(&damaged, read_it)).or_insert(0) += 1;
    }
    outcomes
}

pub(crate) fn damage(bytes: &mut [u8], rng: &mut Rng) {
    let at = rng.below(bytes.len().max(1));
    match rng.below(6) {
        0 | 1 => {
            if let Some(byte) = bytes.get_mut(at) {
                *byte ^= 1 << rng.below(8);
            }
        }
        2 => {
            // Boundary values for arithmetic.
            let words: [u32; 7] = [0, 1, 7, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 0xffff_fff8];
            let word = rng.pick(&words).to_le_bytes();
            let at = at & !3;
            if let Some(place) = bytes.get_mut(at..at + 4) {
                place.copy_from_slice(&word);
            }
        }
        3 => {
            // A small number changed slightly: an index, a count, a kind.
            if let Some(byte) = bytes.get_mut(at & !3) {
                *byte = byte.wrapping_add(rng.below(5) as u8).wrapping_sub(2);
            }
        }
        4 => {
            let (from, len) = (rng.below(bytes.len().max(1)), rng.below(32));
            let piece: Vec<u8> = bytes.iter().skip(from).take(len).copied().collect();
            for (place, byte) in bytes.iter_mut().skip(at).zip(piece) {
                *place = byte;
            }
        }
        _ => {
            // The tables of sections and symbols are at the end and rarely hit by chance.
            let back = rng.below(bytes.len().min(1400)) + 1;
            let at = bytes.len() - back;
            bytes[at] = rng.next_u64() as u8;
        }
    }
}

#[test]
fn every_truncation_is_refused() {
    let bytes = write(&everything()).unwrap();
    let outcomes = torture(&bytes, usize::MAX, 0, &mut Rng::new(0));
    assert_eq!(outcomes.values().sum::<usize>(), bytes.len());
}

#[test]
fn damaged_objects_do_not_panic() {
    let mut rng = Rng::from_env(2);
    let mut outcomes = BTreeMap::new();
    for round in 0..40 {
        let program = if round == 0 { everything() } else { random::program(&mut rng) };
        let changes = if round == 0 { 12_000 } else { 400 };
        for (key, count) in torture(&write(&program).unwrap(), 60, changes, &mut rng) {
            *outcomes.entry(key).or_insert(0) += count;
        }
    }
    eprintln!("{outcomes:#?}");
    // Damage has to reach all layers, or the test shows little.
    for layer in
        ["read", "Contents ", "Btf Truncated", "Btf Kind", "Btf Reference", "refused Instruction ", "Definition "]
    {
        assert!(outcomes.contains_key(layer), "nothing ended in `{layer}`: {outcomes:#?}");
    }
    assert!(outcomes.len() >= 25, "{} kinds of outcomes: {outcomes:#?}", outcomes.len());
}

#[test]
fn a_relocation_outside_of_its_section_is_refused() {
    let mut bytes = write(&everything()).unwrap();
    // The first relocation of the program: byte 32 of its section, kind 1.
    let entry: Vec<u8> = [32_u64.to_le_bytes(), (6_u64 << 32 | 1).to_le_bytes()].concat();
    let at = bytes.windows(16).position(|w| w[..12] == entry[..12]).expect("a relocation");
    for (offset, wanted) in [(168_u64, "offset 168"), (33, "offset 33"), (u64::MAX - 7, "offset 18446744073709551608")]
    {
        bytes[at..at + 8].copy_from_slice(&offset.to_le_bytes());
        let error = read(&bytes, "x").unwrap_err().to_string();
        assert!(error.contains("section `.relxdp`") && error.contains(wanted), "{error}");
    }
}

#[test]
fn without_the_flowloom_section_maps_are_ordered_by_place() {
    let mut bytes = write(&everything()).unwrap();
    let at = bytes.windows(10).position(|w| w == b".flowloom\0").expect("its name");
    bytes[at + 1] = b'F';
    // Symbols of `knock_ctx` and `counters`: 40 bytes at 0 and 80 of `.maps`, which is section 5.
    let symbol = |value: u64| [&[5_u8, 0][..], &value.to_le_bytes(), &40_u64.to_le_bytes()].concat();
    let place = |bytes: &[u8], value| bytes.windows(18).position(|w| w == symbol(value)).expect("a symbol");
    let (first, third) = (place(&bytes, 0), place(&bytes, 80));
    bytes[first..first + 18].copy_from_slice(&symbol(80));
    bytes[third..third + 18].copy_from_slice(&symbol(0));
    let program = read(&bytes, "x").unwrap().programs.remove(0);
    let names: Vec<_> = program.maps.iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["counters", "ports", "knock_ctx", "blob", ".data", ".rodata.k", ".bss"]);
    assert!(program.maps.iter().all(|m| m.layout.is_none()));
    // Loads follow the symbols.
    assert_eq!((program.insns[4].imm, program.insns[9].imm, program.insns[12].imm), (2, 5, 6));
}

#[test]
fn small_files_cannot_exhaust_memory() {
    let bytes = write(&everything()).unwrap();
    let table = u64::from_le_bytes(bytes[40..48].try_into().unwrap()) as usize;
    let count = usize::from(u16::from_le_bytes(bytes[60..62].try_into().unwrap()));
    // The section without bytes in the file (`.bss`) claims 2^40 bytes.
    let mut huge = bytes.clone();
    let header = (0..count).map(|i| table + i * 64).find(|at| bytes[at + 4] == 8).unwrap();
    huge[header + 32..header + 40].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    let error = read(&huge, "x").unwrap_err().to_string();
    assert!(error.contains("unfolds to more than"), "{error}");
}
