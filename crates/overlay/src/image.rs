// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The image of a function: the contents of a machine's configuration memories.
//!
//! ```text
//!  header vector ─┬─► key ─► context ─┐
//!                 ├─► averages ───────┤
//!                 └─► comparators ────┴─► EFSM table ─► row ─┬─► ALUs ─► registers, globals
//!                                                            ├─► write units ─► header vector
//!                                                            └─► next state, timers, terminal action
//! ```
//!
//! All operands of a packet in an element are from before its row.

use crate::parameters::Parameters;
use crate::word::Word;

/// A function as data for a machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// The name of the function.
    pub function: String,
    /// The parameters of the machine that it is for.
    pub parameters: Parameters,
    /// Units of the clock words, in nanoseconds.
    pub clocks_ns: Vec<u64>,
    /// The header vector.
    pub words: Vec<Word>,
    /// Initial values of the words that hold metadata: (word, value), for values other than 0.
    pub initial_metadata: Vec<(u8, u32)>,
    /// Presence bits: each is set if any header of a set is valid, by its validity bits.
    pub presence: Vec<u32>,
    /// The stages in order: even ones are stateless, odd ones stateful; `None` for a stage that packets skip.
    pub stages: Vec<Option<Stage>>,
    /// The stage that packets enter.
    pub entry: u8,
}

/// A programmed element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stage {
    /// The number of the element in the function.
    pub element: u16,
    /// The words that the EFSM table compares.
    pub match_words: Vec<u8>,
    /// Enabling conditions.
    pub comparators: Vec<Comparator>,
    /// Moving averages.
    pub averages: Vec<Average>,
    /// The EFSM table in priority order.
    pub rows: Vec<TernaryRow>,
    /// The action if no row matches or a key field is absent.
    pub otherwise: Action,
    /// The part with state, if it is stateful.
    pub context: Option<ContextStage>,
}

/// The context table, key and registers of a stateful element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextStage {
    /// The key; `None` for one instance of all packets.
    pub key: Option<KeySelect>,
    /// The most contexts.
    pub size: u32,
    /// The policy of a full table.
    pub policy: Policy,
    /// True if an eviction compares the first register as two's complement.
    pub rank_is_signed: bool,
    /// The initial value of each register.
    pub registers: Vec<Register>,
    /// Global registers.
    pub globals: Vec<Register>,
    /// The number of states.
    pub states: u16,
    /// True if a comparator or an average reads a global register that a row writes: then one packet at a time is in
    /// the element, whatever its key.
    pub is_serial: bool,
    /// Preloaded contexts.
    pub preloaded: Vec<Preloaded>,
}

/// A preloaded context, without timers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Preloaded {
    /// The words of its key.
    pub key: Vec<u32>,
    /// Its state.
    pub state: u16,
    /// Its registers.
    pub registers: Vec<u32>,
}

/// A 32-bit register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register {
    /// Its initial value.
    pub initial: u32,
    /// The values that it holds.
    pub narrow: Narrow,
}

/// The values of a word: results are cut to the width and extended by their sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Narrow {
    /// 1 to 32.
    pub width_bits: u8,
    /// True for two's complement.
    pub is_signed: bool,
}

impl Narrow {
    /// All 32 bits.
    pub const WORD: Narrow = Narrow { width_bits: 32, is_signed: false };

    /// A value cut to the width, and extended.
    #[inline]
    pub fn of(self, value: u32) -> u32 {
        let unused = 32 - u32::from(self.width_bits);
        match self.is_signed {
            true => ((value << unused) as i32 >> unused) as u32,
            false => value << unused >> unused,
        }
    }
}

/// The policy of a full table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Policy {
    /// The updates and the transition of a row that would create a context are dropped.
    Reject,
    /// The context with the smallest first register is evicted, of those in the places of the key.
    EvictLowest,
    /// The context with the largest first register is evicted, of those in the places of the key.
    EvictHighest,
}

/// The key extractor of an element.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySelect {
    /// The words of the key.
    pub words: Vec<KeyWord>,
    /// For a key of both directions: pairs of words, compared as unsigned numbers, most significant first. If the left
    /// side is larger, the mirrored words are taken.
    pub sides: Vec<(KeyPart, KeyPart)>,
    /// Presence bits, all of which a packet with a key has.
    pub presence: u32,
    /// The words of each part of the key, in declared order.
    pub fields: Vec<KeyField>,
    /// Offset and size in bytes of each part in the key's own form.
    pub bytes: Vec<(u8, u8)>,
}

/// The place of a part of the key in its words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyField {
    /// The first word.
    pub first: u8,
    /// The offset of the part in its word.
    pub shift: u8,
    /// The width of the part.
    pub width_bits: u8,
    /// True if both ports share the word.
    pub is_port: bool,
}

impl KeySelect {
    /// The size of a key in its own form, in bytes.
    pub fn key_bytes(&self) -> usize {
        let end = self.bytes.iter().map(|(offset, size)| usize::from(offset + size)).max();
        end.unwrap_or(0).next_multiple_of(4)
    }

    /// The words of a key.
    pub fn words_of(&self, key: &[u8]) -> Vec<u32> {
        let mut words = vec![0; self.words.len()];
        for (field, &(offset, size)) in self.fields.iter().zip(&self.bytes) {
            let bytes = &key[usize::from(offset)..usize::from(offset + size)];
            let value = bytes.iter().fold(0_u128, |value, &byte| value << 8 | u128::from(byte));
            for index in 0..field.width_bits.div_ceil(32) {
                let word = (value >> (32 * u32::from(index))) as u32;
                words[usize::from(field.first + index)] |= word << field.shift;
            }
        }
        words
    }

    /// The bytes of a key.
    pub fn bytes_of(&self, words: &[u32]) -> Vec<u8> {
        let mut key = vec![0; self.key_bytes()];
        for (field, &(offset, size)) in self.fields.iter().zip(&self.bytes) {
            let mut value = 0_u128;
            for index in (0..field.width_bits.div_ceil(32)).rev() {
                value = value << 32 | u128::from(words[usize::from(field.first + index)] >> field.shift);
            }
            // A preloaded context may have a key that no packet has: bits above the field's.
            if size < 16 {
                value &= (1 << (8 * size)) - 1;
            }
            let (offset, size) = (usize::from(offset), usize::from(size));
            key[offset..offset + size].copy_from_slice(&value.to_be_bytes()[16 - size..]);
        }
        key
    }
}

/// A word of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyWord {
    /// The word.
    pub word: u8,
    /// The word used in its place for a packet of the reverse direction.
    pub mirrored: u8,
    /// True if the mirrored word is also rotated by 16 bits.
    pub rotates: bool,
}

/// A part of a word in the comparison of directions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyPart {
    /// A whole word.
    Whole(u8),
    /// The upper half of a word.
    Upper(u8),
    /// The lower half of a word.
    Lower(u8),
}

/// An operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operand {
    /// The constant of the instruction.
    Constant(u32),
    /// A word of the header vector.
    Word(u8),
    /// A flow register.
    Register(u8),
    /// A global register.
    Global(u8),
    /// The number of the state before the packet.
    State,
    /// The shifted difference of a moving average.
    Average(u8),
}

/// A comparison of two operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Comparator {
    /// Left operand.
    pub left: Operand,
    /// Right operand.
    pub right: Operand,
    /// A value that is added to the difference of both, in relations of the difference.
    pub offset: Offset,
    /// The relation.
    pub relation: Relation,
    /// True if it continues the comparator before it, which compares the next lower words.
    pub continues: bool,
}

/// The addend of a comparator's difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Offset {
    /// Nothing.
    None,
    /// An operand is added.
    Plus(Operand),
    /// An operand is subtracted.
    Minus(Operand),
}

/// Relations of comparators; the EFSM table matches their negations too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Relation {
    /// The difference is 0.
    Equal,
    /// left < right, unsigned.
    Below,
    /// left < right, as two's complement.
    Less,
    /// The difference is negative: left is before right in serial-number order.
    Before,
    /// The difference is positive.
    After,
}

/// A moving average: `(sample - average) >> shift`, arithmetic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Average {
    /// The register that holds the average.
    pub average: Operand,
    /// The sample.
    pub sample: Operand,
    /// The shift; 32 and more give 0.
    pub shift: u8,
}

/// A row of the EFSM table: bits that are compared, and their values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TernaryRow {
    /// The row of the element that it is a part of.
    pub row: u16,
    /// State label: mask, value.
    pub state: Ternary,
    /// Conditions, by number.
    pub conditions: Ternary,
    /// Presence bits, by number.
    pub presence: Ternary,
    /// `full`.
    pub full: Ternary,
    /// The match words.
    pub words: Vec<Ternary>,
    /// The instruction of the row.
    pub action: Action,
}

/// Ternary bits: those in the mask are compared with the value; the value is 0 outside of the mask.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Ternary {
    /// Bits that are compared.
    pub mask: u32,
    /// Their values.
    pub value: u32,
}

impl Ternary {
    /// True if the compared bits of `found` have their values.
    #[inline]
    pub fn matches(self, found: u32) -> bool {
        found & self.mask == self.value
    }
}

/// The instruction of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    /// The transition; `None` to stay, with the timers kept.
    pub next: Option<Next>,
    /// The ALUs, in order.
    pub alus: Vec<Alu>,
    /// The write units.
    pub writes: Vec<Write>,
    /// Pairs of words that change places; the first one has an even number, the second the next.
    pub swaps: Vec<(u8, u8)>,
    /// Structural edits and copies, in order.
    pub steps: Vec<Step>,
    /// The end of the packet in this element.
    pub terminal: Terminal,
}

impl Action {
    /// The condition under which the row creates a context if there is none.
    pub fn creates(&self) -> Creates {
        let writes_register = self.alus.iter().any(|alu| matches!(alu.destination, Some(Destination::Register(_))));
        match self.next {
            Some(Next { state: 0, idle_ns: None, hard_ns: None }) | None if writes_register => Creates::UnlessDefault,
            Some(Next { state: 0, idle_ns: None, hard_ns: None }) | None => Creates::Never,
            Some(_) => Creates::Always,
        }
    }
}

/// The condition under which a row creates a context where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Creates {
    /// The context stays the default one.
    Never,
    /// The row sets a state or a timer.
    Always,
    /// The row creates one unless the resulting context equals the default context.
    UnlessDefault,
}

/// A transition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Next {
    /// The next state.
    pub state: u16,
    /// Idle timeout.
    pub idle_ns: Option<u64>,
    /// Hard timeout.
    pub hard_ns: Option<u64>,
}

/// Operations of ALUs.
///
/// # Source
/// [FlowBlaze, Table 7]; `Min`, `Max` and the operations with a carry are Flowloom's. ADDI and SUBI are `Add` and
/// `Subtract` with a constant operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// left
    Move,
    /// ~left
    Not,
    /// left & right
    And,
    /// left | right
    Or,
    /// left ^ right
    Xor,
    /// left + right
    Add,
    /// left - right
    Subtract,
    /// left + right + the carry of the unit before
    AddCarry,
    /// left - right - the borrow of the unit before
    SubtractBorrow,
    /// left << right; 32 and more give 0
    ShiftLeft,
    /// left >> right, logical; 32 and more give 0
    ShiftRight,
    /// left rotated right
    RotateRight,
    /// The smaller, unsigned.
    Min,
    /// The larger, unsigned.
    Max,
    /// The smaller, as two's complement.
    MinSigned,
    /// The larger, as two's complement.
    MaxSigned,
}

/// A computed value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Value {
    /// The operation.
    pub operation: Operation,
    /// Left operand.
    pub left: Operand,
    /// Right operand.
    pub right: Operand,
}

/// The destination of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Destination {
    /// A flow register.
    Register(u8),
    /// A global register.
    Global(u8),
}

/// An operation of an ALU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alu {
    /// The register that it updates; `None` if only write units take the result.
    pub destination: Option<Destination>,
    /// The value.
    pub value: Value,
}

/// The source of a write unit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteSource {
    /// An operand.
    Operand(Operand),
    /// The result of an ALU, by its number.
    Alu(u8),
}

/// A write of a word of the header vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Write {
    /// The word.
    pub word: u8,
    /// The width and sign of the value.
    pub narrow: Narrow,
    /// The value.
    pub source: WriteSource,
    /// The value where the row's updates are dropped because the table is full, if it is another one.
    pub if_rejected: Option<Operand>,
}

/// A structural edit or a copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Pushes a VLAN tag.
    PushVlan(Entry),
    /// Pushes an MPLS label.
    PushMpls(Entry),
    /// Pops the outermost VLAN tag.
    PopVlan,
    /// Pops the outermost MPLS label.
    PopMpls,
    /// Sends a copy through a port.
    Clone(Operand),
}

/// Four bytes that are pushed: a constant and at most one operand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// The constant bits.
    pub constant: u32,
    /// The operand.
    pub operand: Operand,
    /// Its bits that are taken.
    pub width_bits: u8,
    /// Their place.
    pub shift: u8,
}

/// The end of a packet in an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Terminal {
    /// Dropped.
    Drop,
    /// Passed on.
    Pass,
    /// Passed on, for a reason.
    Punt,
    /// Sent back.
    Reply,
    /// Sent through all ports but its own.
    Flood,
    /// Sent through a port.
    Forward(Operand),
    /// Continues in a later stage.
    Goto(u8),
}
