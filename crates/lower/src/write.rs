// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Header writes with their checksums [RFC 1624 equation 3].
//!
//! The code is specialized on the valid headers that the writes and their checksums depend on. In each case, the old
//! words are summed inverted, the fields are written, the new words are added, and the sum is folded into each checksum
//! that covers them. Words are read in memory byte order: a one's complement sum does not depend on byte order.

use std::collections::BTreeMap;

use flowloom_isa::op::{AluOp, Cond};
use flowloom_wire::field::{CHECKSUMS, Checksum, FieldId};
use flowloom_wire::graph::{Header, Slice};

use super::asm::{Op, Operand, Reg, Size};
use super::lowering::Lowering;
use super::value::Value;
use super::window::{Window, windows};

/// A written value.
#[derive(Debug, Clone, Copy)]
pub(super) enum Source {
    /// A number; the field takes its low bits.
    Number(Value),
    /// A constant wider than 64 bits.
    Wide(u128),
    /// High and low half.
    Halves(Value, Value),
}

impl Source {
    pub(super) fn for_each_value(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        match self {
            Source::Number(value) => visit(value),
            Source::Wide(_) => {}
            Source::Halves(high, low) => {
                visit(high);
                visit(low);
            }
        }
    }
}

/// Bytes of a header that a checksum reads at once: 2 or 4, at an even offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unit {
    offset: u16,
    size: Size,
}

impl Lowering<'_> {
    /// Writes the fields in parallel and updates the checksums.
    pub(super) fn emit_writes(&mut self, writes: &[(FieldId, Source)]) {
        if writes.is_empty() {
            return;
        }
        // Headers that the code below depends on.
        let mut involved = 0;
        for &(field, _) in writes {
            let headers = field.headers();
            involved |= headers.iter().map(|h| h.bit()).fold(0, |a, b| a | b);
        }
        let places: Vec<(Header, Slice)> = writes.iter().flat_map(|&(field, _)| Lowering::places(field)).collect();
        for checksum in &CHECKSUMS {
            if places.iter().any(|&(header, slice)| words_of(slice).any(|word| covers(checksum, header, word))) {
                involved |= checksum.header.bit();
            }
        }
        let mut cases: Vec<u32> = self.path.masks.iter().map(|m| m & involved).collect();
        cases.sort_unstable();
        cases.dedup();
        let done = self.builder.label();
        self.split(&cases, involved, &mut |this, case| {
            this.write_case(writes, case);
            this.builder.goto(done);
        });
        self.builder.place(done);
    }

    /// Emits `body` for each case, reached if exactly these of the involved headers are valid.
    fn split(&mut self, cases: &[u32], involved: u32, body: &mut dyn FnMut(&mut Self, u32)) {
        let undecided = Header::ALL.into_iter().map(Header::bit).find(|bit| {
            involved & bit != 0 && cases.iter().any(|c| c & bit != 0) && cases.iter().any(|c| c & bit == 0)
        });
        let Some(bit) = undecided else {
            if let Some(&case) = cases.first() {
                body(self, case);
            }
            return;
        };
        let (with, without): (Vec<u32>, Vec<u32>) = cases.iter().partition(|&&c| c & bit != 0);
        let valid_label = self.builder.label();
        let valid = self.valid;
        self.builder.jump64(Cond::Set, valid, Operand::Imm(bit as i32), valid_label);
        self.split(&without, involved & !bit, body);
        self.builder.place(valid_label);
        self.split(&with, involved & !bit, body);
    }

    fn write_case(&mut self, writes: &[(FieldId, Source)], case: u32) {
        let concrete: Vec<(Header, Slice, Source)> = writes
            .iter()
            .filter_map(|&(field, source)| {
                let place = Lowering::places(field).into_iter().find(|(h, _)| case & h.bit() != 0)?;
                Some((place.0, place.1, source))
            })
            .collect();
        let mut touched: BTreeMap<Header, Vec<bool>> = BTreeMap::new();
        for &(header, slice, _) in &concrete {
            let words = touched.entry(header).or_insert_with(|| vec![false; self.min_bytes(header) as usize / 2]);
            words_of(slice).for_each(|word| words[word] = true);
        }
        let mut checksums: Vec<&Checksum> = Vec::new();
        for checksum in CHECKSUMS.iter().filter(|c| case & c.header.bit() != 0) {
            if touched.keys().any(|h| !self.covered_units(checksum, *h, &touched).is_empty()) {
                checksums.push(checksum);
                // The checksum field changes too, which affects an enclosing checksum.
                let words = touched
                    .entry(checksum.header)
                    .or_insert_with(|| vec![false; self.min_bytes(checksum.header) as usize / 2]);
                words_of(checksum.slice()).for_each(|word| words[word] = true);
            }
        }
        let mut sums: Vec<((Header, Unit), Reg)> = Vec::new();
        for checksum in &checksums {
            for &header in touched.keys() {
                for unit in self.covered_units(checksum, header, &touched) {
                    if !sums.iter().any(|(key, _)| *key == (header, unit)) {
                        let sum = self.load_unit(header, unit);
                        self.builder.alu32(AluOp::Xor, sum, Operand::Imm(inverting(unit)));
                        sums.push(((header, unit), sum));
                    }
                }
            }
        }
        let mut written: Vec<((Header, Unit), Operand)> = Vec::new();
        for &(header, slice, source) in &concrete {
            let values = self.write_slice_at(self.pointers[&header], slice, self.min_bytes(header), source);
            // A partial overwrite invalidates the known values of these bytes.
            let bytes = slice.offset_bits / 8..(slice.offset_bits + u16::from(slice.width_bits)).div_ceil(8);
            written.retain(|&((of, unit), _)| {
                of != header || unit.offset >= bytes.end || unit.offset + unit.size.bytes() as u16 <= bytes.start
            });
            written.extend(values.into_iter().map(|(unit, value)| ((header, unit), value)));
        }
        // Inner checksums first, since an enclosing checksum covers them.
        let mut complete: Vec<(Header, Unit)> = Vec::new();
        let mut shared: Option<(Vec<(Header, Unit)>, Reg)> = None;
        let count = checksums.len();
        for checksum in checksums {
            let mut covered: Vec<((Header, Unit), Reg)> = Vec::new();
            for &header in touched.keys() {
                for unit in self.covered_units(checksum, header, &touched) {
                    let key = (header, unit);
                    let Some(&(_, sum)) = sums.iter().find(|(of, _)| *of == key) else { continue };
                    if !complete.contains(&key) {
                        complete.push(key);
                        let new = match written.iter().find(|(of, _)| *of == key) {
                            Some(&(_, value)) => value,
                            None => Operand::Reg(self.load_unit(header, unit)),
                        };
                        self.builder.alu64(AluOp::Add, sum, new);
                    }
                    covered.push((key, sum));
                }
            }
            // The sum of units that several checksums cover is computed and folded once.
            let first = shared.is_none() && count > 1 && covered.iter().any(|((_, unit), _)| unit.size == Size::W);
            if first {
                let sum = self.builder.reg();
                let mut largest = 0;
                for (i, &((_, unit), change)) in covered.iter().enumerate() {
                    match i {
                        0 => self.builder.copy(sum, change),
                        _ => self.builder.alu64(AluOp::Add, sum, Operand::Reg(change)),
                    }
                    largest += largest_change(unit);
                }
                self.fold_once(sum);
                shared = Some((covered.iter().map(|&(key, _)| key).collect(), sum));
                self.apply(checksum, &[(sum, fold_bound(largest))]);
                continue;
            }
            let mut changes: Vec<(Reg, u64)> = Vec::new();
            let folded =
                shared.as_ref().filter(|(keys, _)| keys.iter().all(|key| covered.iter().any(|(k, _)| k == key)));
            if let Some((keys, sum)) = folded {
                let largest = keys.iter().map(|&(_, unit)| largest_change(unit)).sum();
                changes.push((*sum, fold_bound(largest)));
                covered.retain(|(key, _)| !keys.contains(key));
            }
            changes.extend(covered.into_iter().map(|((_, unit), sum)| (sum, largest_change(unit))));
            self.apply(checksum, &changes);
        }
    }

    /// The touched words of `header` that `checksum` covers, as aligned 4-byte units where possible.
    fn covered_units(&self, checksum: &Checksum, header: Header, touched: &BTreeMap<Header, Vec<bool>>) -> Vec<Unit> {
        let Some(words) = touched.get(&header) else { return Vec::new() };
        let is_covered = |word: usize| words.get(word).copied().unwrap_or(false) && covers(checksum, header, word);
        let mut units = Vec::new();
        let mut word = 0;
        while word < words.len() {
            let pair = word % 2 == 0 && is_covered(word) && is_covered(word + 1);
            if pair {
                units.push(Unit { offset: word as u16 * 2, size: Size::W });
                word += 2;
            } else {
                if is_covered(word) {
                    units.push(Unit { offset: word as u16 * 2, size: Size::H });
                }
                word += 1;
            }
        }
        units
    }

    fn load_unit(&mut self, header: Header, unit: Unit) -> Reg {
        let value = self.builder.reg();
        let base = self.pointers[&header];
        self.builder.load(unit.size, value, base, unit.offset as i16);
        value
    }

    /// Writes bits among the first `limit_bytes` after `base`. Returns the new values of units that a single store
    /// covers.
    pub(super) fn write_slice_at(
        &mut self,
        base: Reg,
        slice: Slice,
        limit_bytes: u32,
        source: Source,
    ) -> Vec<(Unit, Operand)> {
        let offset = (slice.offset_bits / 8) as i16;
        let value = match source {
            Source::Number(value) => value,
            Source::Wide(wide) if slice.width_bits == 128 => {
                for (half, at) in [((wide >> 64) as u64, offset), (wide as u64, offset + 8)] {
                    let half = self.builder.operand(half.swap_bytes());
                    self.builder.store(Size::Dw, base, at, half);
                }
                let words = (0..4).map(|i| (wide >> (96 - 32 * i)) as u32).enumerate();
                let unit = |i: usize| Unit { offset: offset as u16 + 4 * i as u16, size: Size::W };
                return words
                    .filter_map(|(i, word)| Some((unit(i), Operand::Imm(i32::try_from(word.swap_bytes()).ok()?))))
                    .collect();
            }
            Source::Wide(wide) => Value::Const(wide as u64),
            Source::Halves(high, low) if slice.width_bits == 128 => {
                for (half, at) in [(high, offset), (low, offset + 8)] {
                    let swapped = self.swapped(half, 64);
                    self.builder.store(Size::Dw, base, at, swapped);
                }
                return Vec::new();
            }
            Source::Halves(_, low) => low,
        };
        let mut below = u32::from(slice.width_bits);
        let mut written = Vec::new();
        for window in windows(slice, limit_bytes) {
            below -= window.width_bits;
            let part = match value {
                _ if below == 0 => value,
                Value::Const(c) => Value::Const(c >> below),
                Value::Reg(reg) => {
                    let part = self.builder.dup(reg);
                    self.builder.alu64(AluOp::Rsh, part, Operand::Imm(below as i32));
                    Value::Reg(part)
                }
            };
            if let Some(value) = self.write_window(base, &window, part) {
                written.push((Unit { offset: window.offset as u16, size: window.size }, value));
            }
        }
        written
    }

    /// Writes the low bits of a number to one window. Returns the new value as a load would yield it, if it is
    /// available.
    fn write_window(&mut self, base: Reg, window: &Window, value: Value) -> Option<Operand> {
        if window.width_bits == window.size_bits {
            let swapped = self.swapped(value, window.size_bits);
            self.builder.store(window.size, base, window.offset, swapped);
            return match swapped {
                // Sign-extended in an addition.
                Operand::Imm(imm) => (imm >= 0).then_some(swapped),
                // The register may have bits above the byte.
                Operand::Reg(_) => (window.size_bits > 8).then_some(swapped),
            };
        }
        // A part of the window: read, modify, write back, as numbers.
        let mask = ((1u64 << window.width_bits) - 1) << window.shift;
        let all = if window.size_bits == 64 { u64::MAX } else { (1 << window.size_bits) - 1 };
        let b = &mut self.builder;
        let old = b.reg();
        b.load(window.size, old, base, window.offset);
        let to_number = |b: &mut super::asm::Builder, reg| {
            if window.size_bits > 8 {
                b.push(Op::FromBe { dst: reg, bits: window.size_bits as i32 });
            }
        };
        to_number(b, old);
        let keep = b.operand(!mask & all);
        b.alu64(AluOp::And, old, keep);
        match value {
            Value::Const(c) => {
                let bits = b.operand(c << window.shift & mask);
                b.alu64(AluOp::Or, old, bits);
            }
            Value::Reg(reg) => {
                let new = b.dup(reg);
                if window.shift > 0 {
                    b.alu64(AluOp::Lsh, new, Operand::Imm(window.shift as i32));
                }
                let bits = b.operand(mask);
                b.alu64(AluOp::And, new, bits);
                b.alu64(AluOp::Or, old, Operand::Reg(new));
            }
        }
        to_number(b, old);
        b.store(window.size, base, window.offset, Operand::Reg(old));
        (window.size_bits > 8).then_some(Operand::Reg(old))
    }

    /// The operand for a store of `bits` bits that writes `value` big endian.
    pub(super) fn swapped(&mut self, value: Value, bits: u32) -> Operand {
        match value {
            Value::Const(c) => {
                let swapped = c.swap_bytes() >> (64 - bits);
                if bits == 64 { self.builder.operand(swapped) } else { Operand::Imm(swapped as u32 as i32) }
            }
            Value::Reg(reg) if bits == 8 => Operand::Reg(reg),
            Value::Reg(reg) => {
                let swapped = self.builder.dup(reg);
                self.builder.push(Op::FromBe { dst: swapped, bits: bits as i32 });
                Operand::Reg(swapped)
            }
        }
    }

    /// Folds the changes, each with its upper bound, into a checksum.
    fn apply(&mut self, checksum: &Checksum, changes: &[(Reg, u64)]) {
        let base = self.pointers[&checksum.header];
        let offset = checksum.offset_bytes as i16;
        let none = self.builder.label();
        let b = &mut self.builder;
        let sum = b.reg();
        b.load(Size::H, sum, base, offset);
        if checksum.zero_is_none {
            b.jump64(Cond::Eq, sum, Operand::Imm(0), none);
        }
        b.alu64(AluOp::Xor, sum, Operand::Imm(0xffff));
        let mut largest: u64 = 0xffff;
        for &(change, most) in changes {
            b.alu64(AluOp::Add, sum, Operand::Reg(change));
            largest += most;
        }
        while fold_bound(largest) > 0xffff {
            self.fold_once(sum);
            largest = fold_bound(largest);
        }
        let b = &mut self.builder;
        if largest > 0xffff {
            let high = b.dup(sum);
            b.alu64(AluOp::Rsh, high, Operand::Imm(16));
            b.alu64(AluOp::Add, sum, Operand::Reg(high));
            if checksum.zero_is_none {
                b.alu64(AluOp::And, sum, Operand::Imm(0xffff));
            }
        }
        // The store takes the low 16 bits.
        b.alu64(AluOp::Xor, sum, Operand::Imm(0xffff));
        if checksum.zero_is_none {
            let some = b.label();
            b.jump64(Cond::Ne, sum, Operand::Imm(0), some);
            b.set(sum, 0xffff);
            b.place(some);
        }
        b.store(Size::H, base, offset, Operand::Reg(sum));
        b.place(none);
    }
}

impl Lowering<'_> {
    /// Folds a sum of at most `largest` to 16 bits.
    pub(super) fn fold(&mut self, sum: Reg, mut largest: u64) {
        while largest > 0xffff {
            self.fold_once(sum);
            largest = fold_bound(largest);
        }
    }

    fn fold_once(&mut self, sum: Reg) {
        let b = &mut self.builder;
        let high = b.dup(sum);
        b.alu64(AluOp::Rsh, high, Operand::Imm(16));
        b.alu64(AluOp::And, sum, Operand::Imm(0xffff));
        b.alu64(AluOp::Add, sum, Operand::Reg(high));
    }
}

/// Upper bound of the sum of a unit's inverted old value and its new value.
fn largest_change(unit: Unit) -> u64 {
    2 * if unit.size == Size::W { u64::from(u32::MAX) } else { 0xffff }
}

/// Upper bound of a fold of a value of at most `largest`.
fn fold_bound(largest: u64) -> u64 {
    if largest <= 0xffff {
        largest
    } else if largest <= 0x1fffe {
        // The carry is 1, and the low half below 0xffff.
        0xffff
    } else {
        0xffff + (largest >> 16)
    }
}

fn inverting(unit: Unit) -> i32 {
    if unit.size == Size::W { -1 } else { 0xffff }
}

/// The 16-bit words of its header that a slice overlaps.
fn words_of(slice: Slice) -> std::ops::RangeInclusive<usize> {
    let (start, width) = (usize::from(slice.offset_bits), usize::from(slice.width_bits));
    start / 16..=(start + width - 1) / 16
}

fn covers(checksum: &Checksum, header: Header, word: usize) -> bool {
    checksum.words_covered(header) >> word & 1 != 0
}
