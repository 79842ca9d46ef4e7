// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Set membership as a binary search over the set's intervals.
//!
//! A set of n intervals costs a packet about log2(n) comparisons and the program about 2.5 n instructions, more for
//! 128-bit addresses: they are searched by their high half, then by the low one. IPv4 addresses are searched as 32
//! bits.

use flowloom_isa::op::{AluOp, Cond};
use flowloom_wire::field::IPV4_MAPPED;

use super::asm::{Label, Operand, Reg};
use super::lowering::Lowering;
use super::value::{Pair, Value};
use flowloom_efsm::intervals::{self, Interval};

/// Limit on intervals up to which the value itself is compared, not an unlinked copy.
const MAX_LINKED: usize = 8;

/// First and last value of an interval of halves.
type Half = (u64, u64);

impl Lowering<'_> {
    /// Jumps to `inside` if a value of `bits` bits is in one of the intervals, otherwise to `outside`. Returns `Some`
    /// and emits nothing if the outcome is known at compile time.
    pub(super) fn search_set(
        &mut self,
        value: Pair,
        bits: u32,
        values: &[Interval],
        inside: Label,
        outside: Label,
    ) -> Option<bool> {
        let all = u128::MAX >> (128 - bits.clamp(1, 128));
        match (value.high, value.low, values) {
            (Value::Const(high), Value::Const(low), _) => {
                return Some(intervals::contain(values, u128::from(high) << 64 | u128::from(low)));
            }
            (.., []) => return Some(false),
            (.., [(0, last)]) if *last >= all => return Some(true),
            (Value::Const(_), Value::Reg(low), _) => {
                let low = if values.len() > MAX_LINKED { self.unlinked(low) } else { low };
                let pieces: Vec<Half> = values.iter().map(|&(low, high)| (low as u64, high as u64)).collect();
                self.search_half(low, all as u64, &pieces, inside, outside);
            }
            (Value::Reg(high), low, _) => {
                let low = match low {
                    Value::Reg(low) => low,
                    constant => self.own(constant),
                };
                let (high, low) = match values.len() > MAX_LINKED {
                    true => (self.unlinked(high), self.unlinked(low)),
                    false => (high, low),
                };
                self.search_halves(high, low, values, inside, outside);
            }
        }
        None
    }

    fn search_halves(&mut self, high: Reg, low: Reg, values: &[Interval], inside: Label, outside: Label) {
        // High halves with all low halves in the set, and high halves with some of them.
        let mut by_high: Vec<(u64, u64, Label)> = Vec::new();
        let mut parts: Vec<(Label, Vec<Half>)> = Vec::new();
        for &(first, last) in values {
            let ((mut from, least), (mut to, most)) = (halves(first), halves(last));
            if from == to && (least, most) != (0, u64::MAX) {
                self.add_part(&mut by_high, &mut parts, from, (least, most));
                continue;
            }
            if least > 0 {
                self.add_part(&mut by_high, &mut parts, from, (least, u64::MAX));
                from += 1;
            }
            let ends_in_part = most < u64::MAX;
            if ends_in_part {
                to -= 1;
            }
            if from <= to {
                by_high.push((from, to, inside));
            }
            if ends_in_part {
                self.add_part(&mut by_high, &mut parts, to + 1, (0, most));
            }
        }
        self.search_intervals(high, true, &by_high, (0, u64::MAX), outside);
        let mapped = IPV4_MAPPED as u64..=IPV4_MAPPED as u64 | u64::from(u32::MAX);
        for (label, pieces) in parts {
            self.builder.place(label);
            if !pieces.iter().all(|(low, high)| mapped.contains(low) && mapped.contains(high)) {
                self.search_half(low, u64::MAX, &pieces, inside, outside);
                continue;
            }
            let prefix = self.own(Value::Reg(low));
            self.builder.alu64(AluOp::Rsh, prefix, Operand::Imm(32));
            self.builder.jump64(Cond::Ne, prefix, Operand::Imm((IPV4_MAPPED >> 32) as i32), outside);
            let part = |end: u64| u64::from(end as u32);
            let pieces: Vec<Half> = pieces.into_iter().map(|(low, high)| (part(low), part(high))).collect();
            self.search_half(low, u64::from(u32::MAX), &pieces, inside, outside);
        }
    }

    /// Adds an interval of low halves for a high half; the high halves ascend.
    fn add_part(
        &mut self,
        by_high: &mut Vec<(u64, u64, Label)>,
        parts: &mut Vec<(Label, Vec<Half>)>,
        high: u64,
        low: Half,
    ) {
        match (by_high.last(), parts.last_mut()) {
            (Some(&(_, last, label)), Some((of, pieces))) if last == high && *of == label => pieces.push(low),
            _ => {
                let label = self.builder.label();
                by_high.push((high, high, label));
                parts.push((label, vec![low]));
            }
        }
    }

    /// The same for a value of at most 64 bits that is at most `most`.
    fn search_half(&mut self, value: Reg, most: u64, pieces: &[Half], inside: Label, outside: Label) {
        let pieces: Vec<(u64, u64, Label)> =
            pieces.iter().filter(|(low, _)| *low <= most).map(|&(low, high)| (low, high.min(most), inside)).collect();
        self.search_intervals(value, most > u64::from(u32::MAX), &pieces, (0, most), outside);
    }
}

fn halves(value: u128) -> (u64, u64) {
    ((value >> 64) as u64, value as u64)
}
