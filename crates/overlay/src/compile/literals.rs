// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Conditions as literals: ternary bits of the header vector, comparators, or both forms to choose from.

use flowloom_efsm::model::{BinaryOp, Condition, Expr, Relation as ModelRelation, Wide, Width};

use super::operands::{Piece, Registers};
use super::{Compiler, Lack};
use crate::image::{Comparator, Offset, Operand, Relation};
use crate::ternary::{complement, prefixes};
use crate::word::{Word, presence_of, words_of};

/// Most alternatives of a condition in ternary form.
const MAX_CUBES: usize = 256;

/// Compared bits of one word: mask and value.
pub(super) type Bits = (Word, u32, u32);

/// A cube: all of these bits are as given.
pub(super) type Cube = Vec<Bits>;

/// Comparators of which each continues the one before it, and the outcome of the last one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Compare {
    pub(super) chain: Vec<Comparator>,
    pub(super) holds: bool,
}

/// A condition in the forms that the machine has for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Literal {
    /// Bits of the header vector, one of several cubes; or comparators, all of them.
    Either {
        /// The cubes, if there is this form.
        cubes: Option<Vec<Cube>>,
        /// The comparators, if there is this form.
        compares: Option<Vec<Compare>>,
    },
    /// A presence bit: its number, and its value.
    Presence(u32, bool),
    /// `full`.
    Full(bool),
}

fn cubes_only(cubes: Vec<Cube>) -> Literal {
    Literal::Either { cubes: Some(cubes), compares: None }
}

/// A term of a sum, with its sign.
#[derive(Clone, Copy)]
struct Term<'e> {
    expr: &'e Expr,
    is_negative: bool,
}

impl Compiler<'_> {
    /// The literal of a condition.
    pub(super) fn literal(&mut self, condition: &Condition, registers: &Registers) -> Result<Literal, Lack> {
        match condition {
            Condition::Compare { left, relation, right, width, signed } => {
                let cubes = self.compared_bits(left, *relation, right, *signed);
                let compares = match relation {
                    ModelRelation::Equal | ModelRelation::NotEqual => {
                        self.equality(left, right, *width, *relation == ModelRelation::Equal, registers)
                    }
                    _ => self.order(left, *relation, right, *width, *signed, registers),
                };
                either(cubes, compares)
            }
            Condition::Serial { left, right, after, negated, serial_bits } => {
                if *serial_bits != 32 {
                    return Err(Lack::with_help(
                        format!("compares serial numbers of {serial_bits} bits"),
                        "use numbers of 32 bits",
                    ));
                }
                let relation = if *after { Relation::After } else { Relation::Before };
                let comparator = self.difference(left, right, relation, registers)?;
                Ok(Literal::Either {
                    cubes: None,
                    compares: Some(vec![Compare { chain: vec![comparator], holds: !negated }]),
                })
            }
            Condition::Masked { operand, mask, value, negated } => {
                let cubes = self.wide_pieces(*operand).map(|pieces| masked(&pieces, *mask, *value, *negated));
                let compares = self.masked_compare(*operand, *mask, *value, !negated, registers);
                either(cubes, compares)
            }
            Condition::Range { field, low, high, negated } => {
                let pieces = self.field_pieces(*field);
                let interval = (u128::from(*low), u128::from(*high));
                let cubes = intervals(&pieces, &[interval], *negated);
                let operand = Expr::Field(*field);
                let max = if field.width_bits() >= 64 { u64::MAX } else { (1 << field.width_bits()) - 1 };
                let width = if field.width_bits() > 32 { Width::W64 } else { Width::W32 };
                let mut compares = Vec::new();
                // Both bounds, or a negated single one, are conjunctions.
                if *low > 0 {
                    compares.push((ModelRelation::GreaterEqual, *low));
                }
                if *high < max {
                    compares.push((ModelRelation::LessEqual, *high));
                }
                let compares = match (compares.len(), negated) {
                    (1, true) => vec![(compares[0].0.inverse(), compares[0].1)],
                    (2, true) => return Ok(cubes_only(limited(cubes)?)),
                    _ => compares,
                };
                let mut all = Vec::new();
                for (relation, bound) in compares {
                    match self.order(&operand, relation, &Expr::Constant(bound), width, false, registers) {
                        Ok(found) => all.extend(found),
                        Err(_) => return Ok(cubes_only(limited(cubes)?)),
                    }
                }
                either(Some(cubes), Ok(all))
            }
            Condition::OneOf { operand, values, width, negated } => {
                if let [value] = values[..] {
                    let relation = if *negated { ModelRelation::NotEqual } else { ModelRelation::Equal };
                    let (left, right) = (operand.clone(), Expr::Constant(value));
                    let compare = Condition::Compare { left, relation, right, width: *width, signed: false };
                    return self.literal(&compare, registers);
                }
                let Some(pieces) = self.pieces(operand) else {
                    return Err(Lack::with_help(
                        "compares a computed value or a register with a set of values",
                        "write a row for each value",
                    ));
                };
                let mut set: Vec<(u128, u128)> = Vec::new();
                for value in values.iter().map(|value| u128::from(*value)) {
                    match set.last_mut() {
                        Some(last) if last.1 + 1 == value => last.1 = value,
                        _ => set.push((value, value)),
                    }
                }
                Ok(cubes_only(limited(intervals(&pieces, &set, *negated))?))
            }
            Condition::Within { operand, values, negated } => {
                let Some(pieces) = self.wide_pieces(*operand) else {
                    return Err(Lack::with_help(
                        "compares a register with a set of addresses",
                        "compare the field, or metadata",
                    ));
                };
                Ok(cubes_only(limited(intervals(&pieces, values, *negated))?))
            }
            Condition::Same { left, right, negated } => {
                let mut chain = Vec::new();
                for index in 0..4 {
                    let (left, right) = (self.wide(*left, index, registers)?, self.wide(*right, index, registers)?);
                    chain.push(equal(left, right, index > 0));
                }
                Ok(Literal::Either { cubes: None, compares: Some(vec![Compare { chain, holds: !negated }]) })
            }
            Condition::Present { field, negated } => {
                let bit = self.presence_bit(presence_of(*field));
                Ok(Literal::Presence(bit, !negated))
            }
            Condition::Full { negated } => Ok(Literal::Full(!negated)),
        }
    }

    /// A comparison of a field or of metadata with a constant, as cubes.
    fn compared_bits(&mut self, left: &Expr, relation: ModelRelation, right: &Expr, signed: bool) -> Option<Vec<Cube>> {
        let (operand, relation, constant) = match (left, right) {
            (operand, Expr::Constant(value)) => (operand, relation, u128::from(*value)),
            (Expr::Constant(value), operand) => (operand, relation.swap_operands(), u128::from(*value)),
            _ => return None,
        };
        // `value & mask == constant`
        if let Expr::Binary(BinaryOp::And, inner, mask) = operand {
            let (inner, mask) = match (&**inner, &**mask) {
                (inner, Expr::Constant(mask)) | (Expr::Constant(mask), inner) => (inner, u128::from(*mask)),
                _ => return None,
            };
            let pieces = self.pieces(inner)?;
            return match relation {
                ModelRelation::Equal => Some(masked(&pieces, mask, constant, false)),
                ModelRelation::NotEqual => Some(masked(&pieces, mask, constant, true)),
                _ => None,
            };
        }
        let pieces = self.pieces(operand)?;
        let width: u32 = pieces.iter().map(|piece| piece.width).sum();
        let max = u128::MAX >> (128 - width);
        let interval = match relation {
            ModelRelation::Equal => return Some(masked(&pieces, u128::from(u64::MAX), constant, false)),
            ModelRelation::NotEqual => return Some(masked(&pieces, u128::from(u64::MAX), constant, true)),
            // Two's complement orders differently where the values may have their sign bit set.
            _ if signed && (width >= 32 || constant > max) => return None,
            ModelRelation::Less => constant.checked_sub(1).map(|last| (0, last.min(max))),
            ModelRelation::LessEqual => Some((0, constant.min(max))),
            ModelRelation::Greater => Some((constant + 1, max)),
            ModelRelation::GreaterEqual => Some((constant, max)),
        };
        let interval: Vec<(u128, u128)> = interval.into_iter().filter(|(first, last)| first <= last).collect();
        Some(intervals(&pieces, &interval, false))
    }

    fn equality(
        &mut self,
        left: &Expr,
        right: &Expr,
        width: Width,
        holds: bool,
        registers: &Registers,
    ) -> Result<Vec<Compare>, Lack> {
        let mut chain = Vec::new();
        match width {
            Width::W32 => chain.push(self.difference(left, right, Relation::Equal, registers)?),
            Width::W64 => {
                for index in 0..2 {
                    let (left, right) = (self.operand(left, index, registers)?, self.operand(right, index, registers)?);
                    one_constant(left, right)?;
                    chain.push(equal(left, right, index > 0));
                }
            }
        }
        Ok(vec![Compare { chain, holds }])
    }

    fn order(
        &mut self,
        left: &Expr,
        relation: ModelRelation,
        right: &Expr,
        width: Width,
        signed: bool,
        registers: &Registers,
    ) -> Result<Vec<Compare>, Lack> {
        let (left, right, holds) = match relation {
            ModelRelation::Less => (left, right, true),
            ModelRelation::GreaterEqual => (left, right, false),
            ModelRelation::Greater => (right, left, true),
            ModelRelation::LessEqual => (right, left, false),
            ModelRelation::Equal | ModelRelation::NotEqual => return Err(Lack::new("is no order")),
        };
        let words = (width.bits() / 32) as u8;
        let mut chain = Vec::new();
        for index in 0..words {
            let is_top = index + 1 == words;
            let (left, right) = (self.operand(left, index, registers)?, self.operand(right, index, registers)?);
            one_constant(left, right)?;
            chain.push(Comparator {
                left,
                right,
                offset: Offset::None,
                relation: if signed && is_top { Relation::Less } else { Relation::Below },
                continues: index > 0,
            });
        }
        Ok(vec![Compare { chain, holds }])
    }

    /// A relation of `left - right` in 32 bits, of at most three terms.
    fn difference(
        &mut self,
        left: &Expr,
        right: &Expr,
        relation: Relation,
        registers: &Registers,
    ) -> Result<Comparator, Lack> {
        let mut terms = Vec::new();
        self.terms(Term { expr: left, is_negative: false }, &mut terms);
        self.terms(Term { expr: right, is_negative: true }, &mut terms);
        // Constants are summed up: a comparator has one.
        let (mut plus, mut minus, mut constant) = (Vec::new(), Vec::new(), 0_u32);
        for Term { expr, is_negative } in terms {
            match (self.operand(expr, 0, registers)?, is_negative) {
                (Operand::Constant(value), false) => constant = constant.wrapping_add(value),
                (Operand::Constant(value), true) => constant = constant.wrapping_sub(value),
                (operand, false) => plus.push(operand),
                (operand, true) => minus.push(operand),
            }
        }
        // Words of the header vector come first, so that an offset is a register or the constant.
        plus.sort_by_key(|operand| !matches!(operand, Operand::Word(_)));
        minus.sort_by_key(|operand| !matches!(operand, Operand::Word(_)));
        let too_many = Err(Lack::with_help(
            "compares sums of more than three terms",
            "compute a part of the sum in an earlier element",
        ));
        let negated = Operand::Constant(constant.wrapping_neg());
        let constant = Operand::Constant(constant);
        let has_constant = constant != Operand::Constant(0);
        let (left, right, offset) = match (&plus[..], &minus[..]) {
            ([], []) => (constant, constant, if has_constant { Offset::Plus(constant) } else { Offset::None }),
            ([a], []) => (*a, negated, Offset::None),
            ([], [b]) => (constant, *b, Offset::None),
            ([a], [b]) if !has_constant => (*a, *b, Offset::None),
            ([a], [b]) => (*a, *b, Offset::Plus(constant)),
            ([a, c], []) => (*a, negated, Offset::Plus(*c)),
            ([], [b, c]) => (constant, *b, Offset::Minus(*c)),
            ([a, c], [b]) if !has_constant => (*a, *b, Offset::Plus(*c)),
            ([a], [b, c]) if !has_constant => (*a, *b, Offset::Minus(*c)),
            _ => return too_many,
        };
        Ok(Comparator { left, right, offset, relation, continues: false })
    }

    /// The terms of a sum.
    fn terms<'e>(&mut self, term: Term<'e>, found: &mut Vec<Term<'e>>) {
        let Term { expr, is_negative } = term;
        match expr {
            Expr::Binary(op @ (BinaryOp::Add | BinaryOp::Sub), left, right) if !self.is_segment_end(expr) => {
                self.terms(Term { expr: left, is_negative }, found);
                self.terms(Term { expr: right, is_negative: is_negative != (*op == BinaryOp::Sub) }, found);
            }
            _ => found.push(term),
        }
    }

    fn masked_compare(
        &mut self,
        operand: Wide,
        mask: u128,
        value: u128,
        holds: bool,
        registers: &Registers,
    ) -> Result<Vec<Compare>, Lack> {
        let width_bits = self.wide_width(operand, registers);
        if mask != u128::MAX >> (128 - u32::from(width_bits)) {
            return Err(Lack::with_help("compares bits of a register", "compare the whole register, or metadata"));
        }
        let mut chain = Vec::new();
        for index in 0..words_of(width_bits) {
            let right = Operand::Constant((value >> (32 * u32::from(index))) as u32);
            chain.push(equal(self.wide(operand, index, registers)?, right, index > 0));
        }
        Ok(vec![Compare { chain, holds }])
    }
}

/// A comparator has one constant.
fn one_constant(left: Operand, right: Operand) -> Result<(), Lack> {
    match (left, right) {
        (Operand::Constant(a), Operand::Constant(b)) if a != b => {
            Err(Lack::with_help("compares 32 bits with more than 32", "use values of one width"))
        }
        _ => Ok(()),
    }
}

fn equal(left: Operand, right: Operand, continues: bool) -> Comparator {
    Comparator { left, right, offset: Offset::None, relation: Relation::Equal, continues }
}

fn either(cubes: Option<Vec<Cube>>, compares: Result<Vec<Compare>, Lack>) -> Result<Literal, Lack> {
    let cubes = cubes.filter(|cubes| cubes.len() <= MAX_CUBES);
    match (cubes, compares) {
        (None, Err(lack)) => Err(lack),
        (cubes, compares) => Ok(Literal::Either { cubes, compares: compares.ok() }),
    }
}

fn limited(cubes: Vec<Cube>) -> Result<Vec<Cube>, Lack> {
    match cubes.len() <= MAX_CUBES {
        true => Ok(cubes),
        false => Err(Lack::with_help(
            format!("has a condition of {} ternary rows, expected at most {MAX_CUBES}", cubes.len()),
            "use fewer ranges, or ranges that are aligned to powers of two: each prefix takes one row",
        )),
    }
}

/// `value & mask == expected`, or its negation: then one cube for each bit.
fn masked(pieces: &[Piece], mask: u128, expected: u128, negated: bool) -> Vec<Cube> {
    let width: u32 = pieces.iter().map(|piece| piece.width).sum();
    let inside = u128::MAX >> (128 - width);
    // Bits above the value are 0.
    if expected & !(mask & inside) != 0 {
        return if negated { vec![Vec::new()] } else { Vec::new() };
    }
    let cube = placed(pieces, mask & inside, expected);
    if !negated {
        return vec![cube];
    }
    cube.into_iter()
        .flat_map(|(word, mask, value)| {
            let bits = (0..32).map(|bit| 1 << bit).filter(move |bit| mask & bit != 0);
            bits.map(move |bit: u32| vec![(word, bit, !value & bit)])
        })
        .collect()
}

/// The cube of the compared bits of a value.
fn placed(pieces: &[Piece], mask: u128, value: u128) -> Cube {
    let mut cube = Vec::new();
    let mut at = 0;
    for piece in pieces {
        let inside = u32::MAX >> (32 - piece.width);
        let bits = (mask >> at) as u32 & inside;
        if bits != 0 {
            cube.push((piece.word, bits << piece.offset, ((value >> at) as u32 & bits) << piece.offset));
        }
        at += piece.width;
    }
    cube
}

/// Membership in intervals, or its negation, as prefixes.
fn intervals(pieces: &[Piece], values: &[(u128, u128)], negated: bool) -> Vec<Cube> {
    let width: u32 = pieces.iter().map(|piece| piece.width).sum();
    let max = u128::MAX >> (128 - width);
    let inside: Vec<(u128, u128)> =
        values.iter().filter(|(first, _)| *first <= max).map(|&(first, last)| (first, last.min(max))).collect();
    let wanted = if negated { complement(&inside, width) } else { inside };
    let found = wanted.into_iter().flat_map(|(first, last)| prefixes(first, last, width));
    found
        .map(|prefix| {
            let mask = max.checked_shr(prefix.free_bits).and_then(|mask| mask.checked_shl(prefix.free_bits));
            placed(pieces, mask.unwrap_or(0), prefix.value)
        })
        .collect()
}
