// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The operations on columns: a loop over the lanes for each node.

use flowloom_ir::{Binary, Compare, Kind};

use super::columns::{LANES, WORDS};
use super::value::{mask, signed, value};

/// The index of a column of numbers.
pub(super) type Wide = usize;
/// The index of a column of bits.
pub(super) type Bits = usize;

/// An operation whose result is a column of numbers.
#[derive(Debug)]
pub(super) enum Op {
    /// A bit field of 8 or 16 bytes of the packet.
    Load {
        own: Wide,
        next: Option<Wide>,
        low: u16,
        bits: u16,
        is_big: bool,
    },
    Length,
    Port,
    /// Bytes of the packet at a distance from an offset.
    Bytes {
        offset: Wide,
        ahead: i32,
        bytes: usize,
    },
    /// Bits as the numbers 0 and 1.
    Number(Bits),
    /// Bits as all-zeros and all-ones.
    Mask(Bits),
    Concat(Vec<(Wide, u16)>),
    Slice(Wide, u16, u64),
    ShiftLeft(Wide, u16, u64),
    Not(Wide, u64),
    Select(Vec<(Wide, Wide)>, Wide),
    Binary(Binary, Wide, Wide, u64),
    /// A rare operation, lane by lane.
    Other(Kind, Vec<(Wide, u16)>, u16),
}

/// An operation whose result is a column of bits.
#[derive(Debug)]
pub(super) enum Bit {
    Const(bool),
    Slice(Wide, u16),
    Not(Bits),
    And(Bits, Bits),
    Or(Bits, Bits),
    Xor(Bits, Bits),
    Select(Vec<(Bits, Bits)>, Bits),
    Compare(Compare, Wide, Wide, u16),
}

fn one(own: &mut [u64; LANES], a: &[u64; LANES], value: impl Fn(u64) -> u64) {
    own.iter_mut().zip(a).for_each(|(own, a)| *own = value(*a));
}

fn two(own: &mut [u64; LANES], a: &[u64; LANES], b: &[u64; LANES], value: impl Fn(u64, u64) -> u64) {
    own.iter_mut().zip(a).zip(b).for_each(|((own, a), b)| *own = value(*a, *b));
}

impl Op {
    pub(super) fn run(&self, wide: &[[u64; LANES]], bits: &[[u64; WORDS]], own: &mut [u64; LANES]) {
        match self {
            Op::Length | Op::Port | Op::Bytes { .. } => {}
            Op::Load { own: first, next, low, bits, is_big } => {
                let all = mask(*bits);
                match next {
                    None => one(own, &wide[*first], |a| a >> low & all),
                    Some(next) => two(own, &wide[*first], &wide[*next], |a, b| (a >> low | b << (64 - low)) & all),
                }
                if *is_big {
                    own.iter_mut().for_each(|own| *own = own.swap_bytes() >> (64 - bits));
                }
            }
            Op::Number(place) => {
                let word = |lane: usize| bits[*place][lane / 64] >> (lane % 64) & 1;
                own.iter_mut().enumerate().for_each(|(lane, own)| *own = word(lane));
            }
            Op::Mask(place) => {
                for (own, bits) in own.chunks_mut(64).zip(bits[*place]) {
                    own.iter_mut().enumerate().for_each(|(lane, own)| *own = (bits >> lane & 1).wrapping_neg());
                }
            }
            Op::Concat(parts) => {
                let [(first, low), rest @ ..] = &parts[..] else { return own.fill(0) };
                one(own, &wide[*first], |a| a << low);
                for (part, at) in rest {
                    own.iter_mut().zip(&wide[*part]).for_each(|(own, part)| *own |= part << at);
                }
            }
            Op::Slice(a, low, all) => one(own, &wide[*a], |a| a >> low & all),
            Op::ShiftLeft(a, by, all) => one(own, &wide[*a], |a| a << by & all),
            Op::Not(a, all) => one(own, &wide[*a], |a| !a & all),
            Op::Select(pairs, last) => {
                *own = wide[*last];
                for (taken, number) in pairs.iter().rev() {
                    for ((own, number), taken) in own.iter_mut().zip(&wide[*number]).zip(&wide[*taken]) {
                        *own = (*own & !taken) | (number & taken);
                    }
                }
            }
            Op::Binary(op, a, b, all) => {
                let (a, b) = (&wide[*a], &wide[*b]);
                match op {
                    Binary::Add => two(own, a, b, |a, b| a.wrapping_add(b) & all),
                    Binary::Sub => two(own, a, b, |a, b| a.wrapping_sub(b) & all),
                    Binary::Mul => two(own, a, b, |a, b| a.wrapping_mul(b) & all),
                    Binary::And => two(own, a, b, |a, b| a & b),
                    Binary::Or => two(own, a, b, |a, b| a | b),
                    _ => two(own, a, b, |a, b| a ^ b),
                }
            }
            Op::Other(kind, args, bits) => {
                let mut values = vec![(0, 0); args.len()];
                for (lane, own) in own.iter_mut().enumerate() {
                    values.iter_mut().zip(args).for_each(|(value, (place, bits))| *value = (wide[*place][lane], *bits));
                    *own = value(*kind, &values, *bits);
                }
            }
        }
    }
}

impl Bit {
    pub(super) fn run(&self, wide: &[[u64; LANES]], bits: &[[u64; WORDS]], own: &mut [u64; WORDS]) {
        match self {
            Bit::Const(value) => own.fill(if *value { u64::MAX } else { 0 }),
            Bit::Slice(a, low) => pack(own, &wide[*a], &wide[*a], |a, _| a >> low & 1 == 1),
            Bit::Not(a) => *own = bits[*a].map(|a| !a),
            Bit::And(a, b) => *own = std::array::from_fn(|word| bits[*a][word] & bits[*b][word]),
            Bit::Or(a, b) => *own = std::array::from_fn(|word| bits[*a][word] | bits[*b][word]),
            Bit::Xor(a, b) => *own = std::array::from_fn(|word| bits[*a][word] ^ bits[*b][word]),
            Bit::Select(pairs, last) => {
                *own = bits[*last];
                for (condition, value) in pairs.iter().rev() {
                    let (condition, value) = (bits[*condition], bits[*value]);
                    *own = std::array::from_fn(|word| (own[word] & !condition[word]) | (value[word] & condition[word]));
                }
            }
            Bit::Compare(how, a, b, bits) => {
                let (a, b) = (&wide[*a], &wide[*b]);
                match how {
                    Compare::Equal => pack(own, a, b, |a, b| a == b),
                    Compare::Below => pack(own, a, b, |a, b| a < b),
                    Compare::SignedBelow => pack(own, a, b, |a, b| signed(a, *bits) < signed(b, *bits)),
                }
            }
        }
    }
}

/// Packs a comparison of two columns into bits.
fn pack(own: &mut [u64; WORDS], a: &[u64; LANES], b: &[u64; LANES], holds: impl Fn(u64, u64) -> bool) {
    for (own, (a, b)) in own.iter_mut().zip(a.chunks(64).zip(b.chunks(64))) {
        let mut flags = [0; 64];
        flags.iter_mut().zip(a.iter().zip(b)).for_each(|(flag, (a, b))| *flag = u8::from(holds(*a, *b)));
        *own = 0;
        for (byte, flags) in flags.as_chunks().0.iter().enumerate() {
            // The multiplication gathers the low bits of 8 bytes in the highest byte.
            *own |= (u64::from_le_bytes(*flags).wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * byte);
        }
    }
}
