// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images as writes of configuration words: the layout of the memories of `hdl/overlay`.
//!
//! # Layout
//! A memory is a unit: 16 times the stage, and the number of the memory. Its fields are packed from the lowest bit of
//! its word 0 on, in the order in which they are written here, which is that of the packed structures in the modules.

use flowloom_wire::Graph;

use crate::image::{
    Action, Alu, Average, Comparator, Creates, Destination, Image, KeyPart, KeySelect, Narrow, Offset, Operand,
    Operation, Policy, Register, Relation, Stage, Terminal, TernaryRow, WriteSource,
};
use crate::parameters::{Parameters, STATELESS_ALUS, TIMEOUTS};
use crate::vector::{VectorError, encode_vector, place};

/// A write of a configuration word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfigWrite {
    /// The memory.
    pub unit: u8,
    /// The word.
    pub index: u16,
    /// Its value.
    pub data: u32,
}

/// Memories of an element.
mod unit {
    pub(super) const MATCH: u8 = 0;
    pub(super) const TABLE: u8 = 1;
    pub(super) const INSTRUCTIONS: u8 = 2;
    pub(super) const TYPES: u8 = 3;
    pub(super) const KEY: u8 = 4;
    pub(super) const CONTEXTS: u8 = 5;
    pub(super) const TIMEOUTS: u8 = 6;
    pub(super) const REGISTERS: u8 = 7;
    pub(super) const AVERAGES: u8 = 8;
}

/// Words of the element's registers: size, serial, and the initial values of global registers.
const FIRST_GLOBAL: u16 = 2;

/// A piece of the key of the EFSM table.
const PIECE_BITS: u32 = 5;

/// Bits, from the lowest on.
#[derive(Debug, Default)]
struct Bits {
    words: Vec<u32>,
    len: u32,
}

impl Bits {
    fn push(&mut self, value: u32, width: u32) {
        for bit in 0..width {
            if self.len.is_multiple_of(32) {
                self.words.push(0);
            }
            if let Some(last) = self.words.last_mut() {
                *last |= (value >> bit & 1) << (self.len % 32);
            }
            self.len += 1;
        }
    }

    fn push_wide(&mut self, value: u64) {
        self.push(value as u32, 32);
        self.push((value >> 32) as u32, 32);
    }
}

/// Operand counts of an element; a stateless one has one unused register of each kind.
#[derive(Debug, Clone, Copy)]
struct Sizes {
    words: u32,
    registers: u32,
    globals: u32,
    alus: u32,
}

impl Sizes {
    fn of(parameters: &Parameters, is_stateful: bool) -> Sizes {
        match is_stateful {
            true => Sizes {
                words: parameters.words,
                registers: parameters.registers,
                globals: parameters.globals,
                alus: parameters.alus,
            },
            false => Sizes { words: parameters.words, registers: 1, globals: 1, alus: STATELESS_ALUS },
        }
    }

    /// The number of an operand.
    fn operand(self, operand: Operand) -> u32 {
        let after_globals = self.words + self.registers + self.globals;
        match operand {
            Operand::Word(at) => at.into(),
            Operand::Register(at) => self.words + u32::from(at),
            Operand::Global(at) => self.words + self.registers + u32::from(at),
            Operand::State => after_globals,
            Operand::Average(at) => after_globals + 1 + u32::from(at),
            Operand::Constant(_) => after_globals + 3,
        }
    }

    fn operand_bits(self) -> u32 {
        bits_for(self.words + self.registers + self.globals + 4)
    }

    fn push(self, bits: &mut Bits, operand: Operand) {
        bits.push(self.operand(operand), self.operand_bits());
    }
}

/// Bits that number `count` things.
pub(crate) fn bits_for(count: u32) -> u32 {
    u32::BITS - count.saturating_sub(1).leading_zeros()
}

fn constant_of(operands: &[Operand]) -> u32 {
    let constants = operands.iter().filter_map(|operand| match operand {
        Operand::Constant(value) => Some(*value),
        _ => None,
    });
    // An instruction has one constant: the others are unused operands, encoded as 0, or are equal to it.
    constants.max().unwrap_or(0)
}

/// The image with its words where the header vector can hold them, and all words of its configuration: those of the parse
/// and rewrite blocks, then those of the elements.
///
/// # Errors
/// The function needs more than the parse and rewrite blocks have.
pub fn configure(image: &Image, graph: &Graph) -> Result<(Image, Vec<ConfigWrite>), VectorError> {
    let image = place(image, graph)?;
    let mut writes = encode_vector(&image, graph)?;
    writes.extend(encode(&image));
    Ok((image, writes))
}

/// The configuration of all elements. Stages without an element are left as they are: no packet enters them.
pub fn encode(image: &Image) -> Vec<ConfigWrite> {
    let mut writes = Vec::new();
    for (number, stage) in image.stages.iter().enumerate() {
        if let Some(stage) = stage {
            Encoder { image, writes: &mut writes, first: 16 * number as u8 }.stage(stage);
        }
    }
    writes
}

/// The writes of the global registers of a stage.
pub(crate) fn globals_of(stage: u8, globals: &[u32]) -> Vec<ConfigWrite> {
    let write = |(at, &data): (usize, &u32)| ConfigWrite {
        unit: 16 * stage + unit::REGISTERS,
        index: FIRST_GLOBAL + at as u16,
        data,
    };
    globals.iter().enumerate().map(write).collect()
}

struct Encoder<'a> {
    image: &'a Image,
    writes: &'a mut Vec<ConfigWrite>,
    /// The first memory of the stage.
    first: u8,
}

impl Encoder<'_> {
    fn write(&mut self, unit: u8, index: u16, data: u32) {
        self.writes.push(ConfigWrite { unit: self.first + unit, index, data });
    }

    fn write_bank(&mut self, unit: u8, bits: &Bits) {
        for (index, word) in bits.words.iter().enumerate() {
            self.write(unit, index as u16, *word);
        }
    }

    fn write_row(&mut self, unit: u8, row: u32, bits: &Bits) {
        let lane_bits = bits_for(bits.words.len() as u32).max(1);
        for (lane, word) in bits.words.iter().enumerate() {
            self.write(unit, (row << lane_bits) as u16 + lane as u16, *word);
        }
    }

    fn stage(&mut self, stage: &Stage) {
        let parameters = &self.image.parameters;
        let sizes = Sizes::of(parameters, stage.context.is_some());
        self.matches(stage, sizes);
        self.table(stage);
        let timeouts = self.timeouts(stage);
        for (number, row) in stage.rows.iter().enumerate() {
            let bits = self.instruction(&row.action, sizes, &timeouts);
            self.write_row(unit::INSTRUCTIONS, number as u32, &bits);
        }
        let bits = self.instruction(&stage.otherwise, sizes, &timeouts);
        self.write_row(unit::INSTRUCTIONS, parameters.rows - 1, &bits);
        self.types(stage, sizes);
        let Some(context) = &stage.context else { return };

        self.key(context.key.as_ref());
        let mut bits = Bits::default();
        let policy = match context.policy {
            Policy::Reject => 0,
            Policy::EvictLowest => 1,
            Policy::EvictHighest => 2,
        };
        bits.push(policy, 2);
        bits.push(context.rank_is_signed.into(), 1);
        for at in 0..sizes.registers as usize {
            bits.push(context.registers.get(at).map_or(0, |register| register.initial), 32);
        }
        self.write_bank(unit::CONTEXTS, &bits);
        let mut bits = Bits::default();
        for at in 0..2 {
            let none = Average { average: Operand::Constant(0), sample: Operand::Constant(0), shift: 32 };
            let Average { average, sample, shift } = stage.averages.get(at).copied().unwrap_or(none);
            sizes.push(&mut bits, average);
            sizes.push(&mut bits, sample);
            bits.push(u32::from(shift.min(32)), 6);
        }
        self.write_bank(unit::AVERAGES, &bits);
        self.write(unit::REGISTERS, 0, context.size);
        self.write(unit::REGISTERS, 1, context.is_serial.into());
        for at in 0..sizes.globals as usize {
            let initial = context.globals.get(at).map_or(0, |global| global.initial);
            self.write(unit::REGISTERS, FIRST_GLOBAL + at as u16, initial);
        }
    }

    /// Comparators and match words.
    fn matches(&mut self, stage: &Stage, sizes: Sizes) {
        let parameters = &self.image.parameters;
        let mut bits = Bits::default();
        for at in 0..parameters.conditions as usize {
            let none = Comparator {
                left: Operand::Constant(0),
                right: Operand::Constant(0),
                offset: Offset::None,
                relation: Relation::Equal,
                continues: false,
            };
            let Comparator { left, right, offset, relation, continues } =
                stage.comparators.get(at).copied().unwrap_or(none);
            let relation = match relation {
                Relation::Equal => 0,
                Relation::Below => 1,
                Relation::Less => 2,
                Relation::Before => 3,
                Relation::After => 4,
            };
            let (kind, operand) = match offset {
                Offset::None => (0, Operand::Constant(0)),
                Offset::Plus(operand) => (1, operand),
                Offset::Minus(operand) => (2, operand),
            };
            bits.push(relation, 3);
            bits.push(continues.into(), 1);
            let constant = constant_of(&[left, right, operand]);
            sizes.push(&mut bits, left);
            sizes.push(&mut bits, right);
            bits.push(kind, 2);
            sizes.push(&mut bits, operand);
            bits.push(constant, 32);
        }
        for at in 0..parameters.match_words as usize {
            bits.push(stage.match_words.get(at).copied().unwrap_or(0).into(), bits_for(parameters.words));
        }
        self.write_bank(unit::MATCH, &bits);
    }

    /// The EFSM table: for each piece of the key and each of its values, the rows that admit it.
    fn table(&mut self, stage: &Stage) {
        let parameters = &self.image.parameters;
        let keys: Vec<(Bits, Bits)> = stage.rows.iter().map(|row| ternary_key(row, parameters)).collect();
        let key_bits = 8 + parameters.conditions + 16 + 32 * parameters.match_words;
        for piece in 0..key_bits.div_ceil(PIECE_BITS) {
            for value in 0..1_u32 << PIECE_BITS {
                let mut admitted = 0_u64;
                for (row, (mask, expected)) in keys.iter().enumerate() {
                    let bit_of =
                        |bits: &Bits, at: u32| bits.words.get(at as usize / 32).map_or(0, |w| w >> (at % 32) & 1);
                    let admits = (0..PIECE_BITS).all(|bit| {
                        let at = piece * PIECE_BITS + bit;
                        bit_of(mask, at) == 0 || bit_of(expected, at) == value >> bit & 1
                    });
                    admitted |= u64::from(admits) << row;
                }
                let index = (piece * (1 << PIECE_BITS) + value) as u16;
                self.write(unit::TABLE, index, admitted as u32);
                if parameters.rows > 32 {
                    self.write(unit::TABLE, 1 << 15 | index, (admitted >> 32) as u32);
                }
            }
        }
    }

    /// Writes the pairs of timeouts.
    fn timeouts(&mut self, stage: &Stage) -> Vec<(u64, u64)> {
        let pairs = timeouts_of(stage);
        if stage.context.is_some() {
            for row in 0..TIMEOUTS {
                let (idle, hard) = pairs.get(row).copied().unwrap_or((NO_TIMEOUT, NO_TIMEOUT));
                let mut bits = Bits::default();
                bits.push_wide(idle);
                bits.push_wide(hard);
                self.write_row(unit::TIMEOUTS, row as u32, &bits);
            }
        }
        pairs
    }

    fn instruction(&self, action: &Action, sizes: Sizes, timeouts: &[(u64, u64)]) -> Bits {
        let parameters = &self.image.parameters;
        let mut bits = Bits::default();
        let (state, pair) = match action.next {
            None => (0, (NO_TIMEOUT, NO_TIMEOUT)),
            Some(next) => (next.state, (next.idle_ns.unwrap_or(NO_TIMEOUT), next.hard_ns.unwrap_or(NO_TIMEOUT))),
        };
        bits.push(action.next.is_some().into(), 1);
        bits.push(state.into(), 8);
        bits.push(timeouts.iter().position(|known| *known == pair).unwrap_or(0) as u32, 4);
        let creates = match action.creates() {
            Creates::Never => 0,
            Creates::Always => 1,
            Creates::UnlessDefault => 2,
        };
        bits.push(creates, 2);
        let zero = Operand::Constant(0);
        for at in 0..sizes.alus as usize {
            let none = Alu {
                destination: None,
                value: crate::image::Value { operation: Operation::Move, left: zero, right: zero },
            };
            let Alu { destination, value } = action.alus.get(at).copied().unwrap_or(none);
            bits.push(operation_number(value.operation), 4);
            sizes.push(&mut bits, value.left);
            sizes.push(&mut bits, value.right);
            bits.push(constant_of(&[value.left, value.right]), 32);
            let (kind, index) = match destination {
                None => (0, 0),
                Some(Destination::Register(at)) => (1, at),
                Some(Destination::Global(at)) => (2, at),
            };
            bits.push(index.into(), 4);
            bits.push(kind, 2);
        }
        for at in 0..parameters.writes as usize {
            let write = action.writes.get(at);
            let (operand, alu) = match write.map(|write| write.source) {
                None => (zero, None),
                Some(WriteSource::Operand(operand)) => (operand, None),
                Some(WriteSource::Alu(alu)) => (zero, Some(alu)),
            };
            bits.push(write.is_some().into(), 1);
            bits.push(write.map_or(0, |write| write.word).into(), bits_for(parameters.words));
            bits.push(alu.is_some().into(), 1);
            sizes.push(&mut bits, operand);
            bits.push(alu.unwrap_or(0).into(), bits_for(sizes.alus).max(1));
            bits.push(constant_of(&[operand]), 32);
            let narrow = write.map_or(Narrow::WORD, |write| write.narrow);
            bits.push(u32::from(narrow.width_bits) - 1, 5);
            bits.push(narrow.is_signed.into(), 1);
            let rejected = write.and_then(|write| write.if_rejected);
            bits.push(rejected.is_some().into(), 1);
            sizes.push(&mut bits, rejected.unwrap_or(zero));
        }
        for pair in 0..parameters.words / 2 {
            let is_swapped = action.swaps.iter().any(|(first, _)| u32::from(*first) == 2 * pair);
            bits.push(is_swapped.into(), 1);
        }
        let (terminal, stage, port) = match action.terminal {
            Terminal::Drop => (0, 0, zero),
            Terminal::Pass => (1, 0, zero),
            Terminal::Punt => (2, 0, zero),
            Terminal::Reply => (3, 0, zero),
            Terminal::Flood => (4, 0, zero),
            Terminal::Forward(port) => (5, 0, port),
            Terminal::Goto(stage) => (6, stage, zero),
        };
        bits.push(terminal, 3);
        bits.push(stage.into(), 4);
        sizes.push(&mut bits, port);
        bits.push(constant_of(&[port]), 32);
        bits
    }

    /// The values of registers, and the words that are constant in IPv4 packets.
    fn types(&mut self, stage: &Stage, sizes: Sizes) {
        let mut bits = Bits::default();
        let mut push = |register: Option<&Register>| {
            let narrow = register.map_or(Narrow::WORD, |register| register.narrow);
            bits.push(u32::from(narrow.width_bits) - 1, 5);
            bits.push(narrow.is_signed.into(), 1);
        };
        let (registers, globals) =
            stage.context.as_ref().map_or((&[][..], &[][..]), |context| (&context.registers, &context.globals));
        (0..sizes.registers as usize).for_each(|at| push(registers.get(at)));
        (0..sizes.globals as usize).for_each(|at| push(globals.get(at)));
        for at in 0..sizes.words as usize {
            let is_upper = self.image.words.get(at).is_some_and(|word| word.is_upper_address());
            bits.push(is_upper.into(), 1);
        }
        self.write_bank(unit::TYPES, &bits);
    }

    fn key(&mut self, key: Option<&KeySelect>) {
        let parameters = &self.image.parameters;
        let word_bits = bits_for(parameters.words);
        let key_words = parameters.key_bits / 32;
        let index_bits = bits_for(key_words).max(1);
        // Mirrored words and sides are words of the key.
        let index_of = |wanted: u8| {
            let position = key.and_then(|key| key.words.iter().position(|word| word.word == wanted));
            position.unwrap_or(0) as u32
        };
        let mut bits = Bits::default();
        for at in 0..key_words as usize {
            let word = key.and_then(|key| key.words.get(at));
            bits.push(word.is_some().into(), 1);
            bits.push(word.map_or(0, |word| word.word).into(), word_bits);
            bits.push(word.map_or(0, |word| index_of(word.mirrored)), index_bits);
            bits.push(word.is_some_and(|word| word.rotates).into(), 1);
        }
        let sides = key_words as usize / 2 + 1;
        let pairs: Vec<_> = key.map_or_else(Vec::new, |key| key.sides.iter().rev().collect());
        for at in 0..sides {
            let part = |part: KeyPart| match part {
                KeyPart::Whole(word) => (word, 0),
                KeyPart::Upper(word) => (word, 1),
                KeyPart::Lower(word) => (word, 2),
            };
            let (left, right) = pairs.get(at).map_or(((0, 0), (0, 0)), |(l, r)| (part(*l), part(*r)));
            bits.push((at < pairs.len()).into(), 1);
            for (word, half) in [left, right] {
                bits.push(index_of(word), index_bits);
                bits.push(half, 2);
            }
        }
        bits.push(key.map_or(0, |key| key.presence), 15);
        self.write_bank(unit::KEY, &bits);
    }
}

/// A timeout that is not set.
const NO_TIMEOUT: u64 = u64::MAX;

/// The pairs of timeouts, idle and hard, that the rows of an element set: number 0 is none.
pub(crate) fn timeouts_of(stage: &Stage) -> Vec<(u64, u64)> {
    let mut pairs = vec![(NO_TIMEOUT, NO_TIMEOUT)];
    for next in stage.rows.iter().filter_map(|row| row.action.next) {
        let pair = (next.idle_ns.unwrap_or(NO_TIMEOUT), next.hard_ns.unwrap_or(NO_TIMEOUT));
        if !pairs.contains(&pair) {
            pairs.push(pair);
        }
    }
    pairs
}

fn operation_number(operation: Operation) -> u32 {
    match operation {
        Operation::Move => 0,
        Operation::Not => 1,
        Operation::And => 2,
        Operation::Or => 3,
        Operation::Xor => 4,
        Operation::Add => 5,
        Operation::Subtract => 6,
        Operation::AddCarry => 7,
        Operation::SubtractBorrow => 8,
        Operation::ShiftLeft => 9,
        Operation::ShiftRight => 10,
        Operation::RotateRight => 11,
        Operation::Min => 12,
        Operation::Max => 13,
        Operation::MinSigned => 14,
        Operation::MaxSigned => 15,
    }
}

/// Mask and value of a row, in the order of the key: state, conditions, presence, `full`, words.
fn ternary_key(row: &TernaryRow, parameters: &Parameters) -> (Bits, Bits) {
    let (mut mask, mut value) = (Bits::default(), Bits::default());
    let mut push = |ternary: crate::image::Ternary, width| {
        mask.push(ternary.mask, width);
        value.push(ternary.value, width);
    };
    push(row.state, 8);
    push(row.conditions, parameters.conditions);
    push(row.presence, 15);
    push(row.full, 1);
    for at in 0..parameters.match_words as usize {
        push(row.words.get(at).copied().unwrap_or_default(), 32);
    }
    (mask, value)
}
