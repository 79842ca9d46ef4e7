// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operands: the words of expressions, allocated in the header vector and in the registers.

use std::collections::HashMap;

use flowloom_efsm::model::{
    BinaryOp, Destination, Expr, Function, NewValue, Policy, Stateful, Type, Variable, Wide, Write, WriteTarget,
};
use flowloom_wire::field::FieldId;

use super::{Compiler, Lack};
use crate::image::{Average, Operand};
use crate::word::{Place, Word, words_of};

/// The header vector.
pub(super) struct Words<'f> {
    function: &'f Function,
    pub(super) list: Vec<Word>,
    /// The last element that reads each word.
    pub(super) last_read: Vec<Option<usize>>,
    /// Written fields, with the number of the element.
    pub(super) written: Vec<(usize, FieldId)>,
    /// Units of time.
    pub(super) clocks: Vec<u64>,
    /// The element that is compiled.
    pub(super) element: usize,
}

impl<'f> Words<'f> {
    pub(super) fn new(function: &'f Function) -> Words<'f> {
        let (list, last_read, written, clocks) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Words { function, list, last_read, written, clocks, element: 0 }
    }

    /// Numbers the words of fields that a row exchanges: adjacent numbers, the even one first.
    pub(super) fn pair_swapped(&mut self) {
        let rows = self.function.elements.iter().flat_map(|element| &element.rows);
        for (a, b) in rows.flat_map(|row| swapped_fields(&row.actions.writes)) {
            for index in 0..words_of(a.width_bits()) {
                let word = |field| Word::Field { field: Place::of(field).storage, index };
                if !self.list.contains(&word(a)) && !self.list.contains(&word(b)) {
                    self.number(word(a));
                    self.number(word(b));
                }
            }
        }
    }

    /// The number of a word.
    pub(super) fn number(&mut self, word: Word) -> u8 {
        let at = self.list.iter().position(|known| *known == word).unwrap_or_else(|| {
            self.list.push(word);
            self.last_read.push(None);
            self.list.len() - 1
        });
        at as u8
    }

    /// The number of a word that the element reads.
    pub(super) fn read(&mut self, word: Word) -> u8 {
        let number = self.number(word);
        let last = &mut self.last_read[usize::from(number)];
        *last = (*last).max(Some(self.element));
        number
    }

    fn clock(&mut self, unit_ns: u64) -> Word {
        let at = self.clocks.iter().position(|known| *known == unit_ns).unwrap_or_else(|| {
            self.clocks.push(unit_ns);
            self.clocks.len() - 1
        });
        Word::Clock(at as u8)
    }

    fn metadata(&self, variable: u16) -> &'f Variable {
        &self.function.metadata[usize::from(variable)]
    }
}

/// The pairs of whole fields that writes exchange.
fn swapped_fields(writes: &[Write]) -> Vec<(FieldId, FieldId)> {
    let moved = |write: &Write| {
        let WriteTarget::Field(to) = write.target else { return None };
        let from = match &write.value {
            NewValue::Number { value: Expr::Field(from), .. } | NewValue::Wide(Wide::Field(from)) => *from,
            _ => return None,
        };
        let is_whole = [to, from].into_iter().all(|field| Place::of(field).is_whole(field));
        (is_whole && to.width_bits() == from.width_bits()).then_some((to, from))
    };
    let moves: Vec<(FieldId, FieldId)> = writes.iter().filter_map(moved).collect();
    moves.iter().copied().filter(|&(to, from)| to < from && moves.contains(&(from, to))).collect()
}

/// The registers of an element: the first word of each variable.
#[derive(Debug, Clone, Default)]
pub(super) struct Registers {
    pub(super) flow: Vec<u8>,
    pub(super) global: Vec<u8>,
    types: (Vec<Type>, Vec<Type>),
    /// Moving averages.
    pub(super) averages: Vec<Average>,
}

impl Registers {
    /// The registers in declared order; the one that decides evictions comes first.
    pub(super) fn of(stateful: &Stateful) -> Registers {
        let first = match stateful.policy {
            Policy::EvictLowest(first) | Policy::EvictHighest(first) => usize::from(first),
            Policy::Reject | Policy::EvictOldest => 0,
        };
        let mut flow = vec![0; stateful.registers.len()];
        let order = [first].into_iter().chain((0..flow.len()).filter(|at| *at != first)).take(flow.len());
        let mut next = 0_u8;
        for at in order {
            flow[at] = next;
            next = next.saturating_add(words_of(stateful.registers[at].ty.width_bits));
        }
        let mut global = Vec::new();
        let mut next = 0_u8;
        for variable in &stateful.globals {
            global.push(next);
            next = next.saturating_add(words_of(variable.ty.width_bits));
        }
        let types = |variables: &[Variable]| variables.iter().map(|variable| variable.ty).collect();
        let types = (types(&stateful.registers), types(&stateful.globals));
        Registers { flow, global, types, averages: Vec::new() }
    }

    pub(super) fn words(&self) -> u32 {
        self.types.0.iter().map(|ty| u32::from(words_of(ty.width_bits))).sum()
    }

    pub(super) fn global_words(&self) -> u32 {
        self.types.1.iter().map(|ty| u32::from(words_of(ty.width_bits))).sum()
    }

    pub(super) fn ty(&self, destination: Destination) -> Type {
        match destination {
            Destination::Register(at) => self.types.0[usize::from(at)],
            Destination::Global(at) => self.types.1[usize::from(at)],
        }
    }

    /// A word of a register.
    pub(super) fn word(&self, of: Destination, index: u8) -> crate::image::Destination {
        match of {
            Destination::Register(at) => crate::image::Destination::Register(self.flow[usize::from(at)] + index),
            Destination::Global(at) => crate::image::Destination::Global(self.global[usize::from(at)] + index),
        }
    }

    /// The words of registers with these values.
    pub(super) fn values(&self, stateful: &Stateful, values: &[u128]) -> Vec<u32> {
        let mut words = vec![0; self.words() as usize];
        for ((variable, base), value) in stateful.registers.iter().zip(&self.flow).zip(values) {
            for index in 0..words_of(variable.ty.width_bits) {
                words[usize::from(base + index)] =
                    super::narrow(variable, index).of((value >> (32 * u32::from(index))) as u32);
            }
        }
        words
    }
}

/// Values that the row has computed for registers; its actions read these.
pub(super) type NewValues = HashMap<crate::image::Destination, crate::image::Value>;

/// A piece of a value: bits of a word.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) word: Word,
    /// The offset of the piece in the word.
    pub(super) offset: u32,
    pub(super) width: u32,
}

fn operand_of(destination: crate::image::Destination) -> Operand {
    match destination {
        crate::image::Destination::Register(at) => Operand::Register(at),
        crate::image::Destination::Global(at) => Operand::Global(at),
    }
}

impl Compiler<'_> {
    /// Word number `index` of an expression that is a value by itself; `None` if it is an operation.
    pub(super) fn atom(&mut self, expr: &Expr, index: u8, registers: &Registers) -> Result<Option<Operand>, Lack> {
        if let Some(word) = self.sum_of_segment(expr) {
            return match index {
                0 => Ok(Some(Operand::Word(self.words.read(word)))),
                _ => Err(Lack::with_help("adds sequence numbers in 64 bits", "use values of 32 bits")),
            };
        }
        let operand = match expr {
            Expr::Constant(value) => Operand::Constant((u128::from(*value) >> (32 * u32::from(index))) as u32),
            Expr::Register(at) | Expr::Old(Destination::Register(at)) => {
                self.register(Destination::Register(*at), index, registers)?
            }
            Expr::Global(at) | Expr::Old(Destination::Global(at)) => {
                self.register(Destination::Global(*at), index, registers)?
            }
            Expr::Metadata(variable) => {
                let ty = self.words.metadata(*variable).ty;
                match self.extended(ty, index)? {
                    Some(index) => Operand::Word(self.words.read(Word::Metadata { variable: *variable, index })),
                    None => Operand::Constant(0),
                }
            }
            Expr::Field(field) => self.field(*field, index),
            Expr::Now { unit_ns } if index == 0 => {
                let word = self.words.clock(*unit_ns);
                Operand::Word(self.words.read(word))
            }
            Expr::Now { .. } => return Err(Lack::with_help("reads the time with more than 32 bits", CLOCK_HELP)),
            Expr::State if index == 0 => Operand::State,
            Expr::State => Operand::Constant(0),
            Expr::Word { of, index: word } if index == 0 => self.wide(*of, *word, registers)?,
            Expr::Word { .. } => Operand::Constant(0),
            Expr::Not(_)
            | Expr::Binary(..)
            | Expr::RotateRight { .. }
            | Expr::MinMax { .. }
            | Expr::Ewma { .. }
            | Expr::Hash(_) => return Ok(None),
        };
        Ok(Some(operand))
    }

    /// As [`Compiler::atom`], for an expression that has to be a value by itself.
    pub(super) fn operand(&mut self, expr: &Expr, index: u8, registers: &Registers) -> Result<Operand, Lack> {
        self.atom(expr, index, registers)?.ok_or_else(|| {
            Lack::with_help("takes more than one operation for one value", "compute a part of it in an earlier element")
        })
    }

    /// Word number `index` of a value that is only moved and compared.
    pub(super) fn wide(&mut self, wide: Wide, index: u8, registers: &Registers) -> Result<Operand, Lack> {
        Ok(match wide {
            Wide::Constant(value) => Operand::Constant((value >> (32 * u32::from(index))) as u32),
            Wide::Field(field) => self.field(field, index),
            Wide::Register(at) | Wide::Old(Destination::Register(at)) => {
                self.register(Destination::Register(at), index, registers)?
            }
            Wide::Global(at) | Wide::Old(Destination::Global(at)) => {
                self.register(Destination::Global(at), index, registers)?
            }
            Wide::Metadata(variable) => match self.extended(self.words.metadata(variable).ty, index)? {
                Some(index) => Operand::Word(self.words.read(Word::Metadata { variable, index })),
                None => Operand::Constant(0),
            },
        })
    }

    fn field(&mut self, field: FieldId, index: u8) -> Operand {
        let place = Place::of(field);
        if u32::from(index) * 32 >= place.width_bits {
            return Operand::Constant(0);
        }
        let word = match place.is_whole(field) {
            true => Word::Field { field: place.storage, index },
            false => Word::View(field),
        };
        Operand::Word(self.words.read(word))
    }

    fn register(&mut self, of: Destination, index: u8, registers: &Registers) -> Result<Operand, Lack> {
        Ok(match self.extended(registers.ty(of), index)? {
            Some(index) => operand_of(registers.word(of, index)),
            None => Operand::Constant(0),
        })
    }

    /// The word of a variable, or none for one above the variable, which is 0.
    fn extended(&self, ty: Type, index: u8) -> Result<Option<u8>, Lack> {
        match index < words_of(ty.width_bits) {
            true => Ok(Some(index)),
            false if ty.signed => {
                Err(Lack::with_help("extends a signed value to 64 bits", "declare the variable with 64 bits"))
            }
            false => Ok(None),
        }
    }

    /// The word that holds `tcp.seq + tcp.payload_len + tcp.is_syn + tcp.is_fin`, if the expression is that sum.
    fn sum_of_segment(&self, expr: &Expr) -> Option<Word> {
        fn terms<'e>(expr: &'e Expr, found: &mut Vec<&'e Expr>) {
            match expr {
                Expr::Binary(BinaryOp::Add, left, right) => {
                    terms(left, found);
                    terms(right, found);
                }
                other => found.push(other),
            }
        }
        let mut found = Vec::new();
        terms(expr, &mut found);
        let mut names: Vec<_> = found
            .into_iter()
            .map(|term| match term {
                Expr::Field(field) => Some(field.name().into_owned()),
                _ => None,
            })
            .collect::<Option<_>>()?;
        names.sort_unstable();
        (names == ["tcp.is_fin", "tcp.is_syn", "tcp.payload_len", "tcp.seq"]).then_some(Word::NextSequence)
    }

    pub(super) fn is_segment_end(&self, expr: &Expr) -> bool {
        self.sum_of_segment(expr).is_some()
    }

    /// The width of a value that is only moved and compared.
    pub(super) fn wide_width(&self, wide: Wide, registers: &Registers) -> u8 {
        match wide {
            Wide::Constant(_) => 128,
            Wide::Field(field) => field.width_bits(),
            Wide::Register(at) | Wide::Old(Destination::Register(at)) => {
                registers.ty(Destination::Register(at)).width_bits
            }
            Wide::Global(at) | Wide::Old(Destination::Global(at)) => registers.ty(Destination::Global(at)).width_bits,
            Wide::Metadata(variable) => self.words.metadata(variable).ty.width_bits,
        }
    }

    /// The pieces of a field or metadata variable, from its lowest bit on; `None` for any other expression.
    pub(super) fn pieces(&mut self, expr: &Expr) -> Option<Vec<Piece>> {
        match expr {
            Expr::Field(field) => Some(self.field_pieces(*field)),
            Expr::Metadata(variable) => self.metadata_pieces(*variable),
            _ => None,
        }
    }

    /// As [`Compiler::pieces`].
    pub(super) fn wide_pieces(&mut self, wide: Wide) -> Option<Vec<Piece>> {
        match wide {
            Wide::Field(field) => Some(self.field_pieces(field)),
            Wide::Metadata(variable) => self.metadata_pieces(variable),
            _ => None,
        }
    }

    pub(super) fn field_pieces(&mut self, field: FieldId) -> Vec<Piece> {
        let place = Place::of(field);
        if !place.is_whole(field) {
            let offset = place.offset_bits % 32;
            return vec![Piece { word: place.word(), offset, width: place.width_bits }];
        }
        (0..words_of(place.width_bits as u8))
            .map(|index| Piece {
                word: Word::Field { field: place.storage, index },
                offset: 0,
                width: (place.width_bits - 32 * u32::from(index)).min(32),
            })
            .collect()
    }

    fn metadata_pieces(&mut self, variable: u16) -> Option<Vec<Piece>> {
        let ty = self.words.metadata(variable).ty;
        let width = |index: u8| (u32::from(ty.width_bits) - 32 * u32::from(index)).min(32);
        let piece = |index| Piece { word: Word::Metadata { variable, index }, offset: 0, width: width(index) };
        (!ty.signed).then(|| (0..words_of(ty.width_bits)).map(piece).collect())
    }
}

const CLOCK_HELP: &str = "give the register that holds the time a unit, as in `time(1us)`, and 32 bits";
