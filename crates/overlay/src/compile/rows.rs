// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The EFSM table of an element: words and comparators are chosen, alternatives multiplied out, rows minimised.

use std::collections::BTreeSet;

use flowloom_efsm::model::{Element, Row};

use super::literals::{Bits, Compare, Cube, Literal};
use super::operands::Registers;
use super::{Compiler, Lack};
use crate::image::{Comparator, ContextStage, Destination, Offset, Operand, Stage, Ternary, TernaryRow};
use crate::parameters::AVERAGES;
use crate::ternary::{cubes_of_labels, minimise};
use crate::word::{Word, presence_of};

/// Most rows of an element before they are minimised.
const MAX_ROWS: usize = 4096;

/// Most words and comparators that a number of 8 bits, or a mask of 32, can name.
const MAX_NUMBER: usize = 32;

impl Compiler<'_> {
    /// A programmed element.
    pub(super) fn element(
        &mut self,
        number: usize,
        element: &Element,
        registers: &Registers,
        context: Option<ContextStage>,
        placed: &[usize],
    ) -> Stage {
        let mut registers = registers.clone();
        let mut literals: Vec<Vec<Literal>> = Vec::new();
        for row in &element.rows {
            let mut of_row = Vec::new();
            for condition in &row.conditions {
                match self.literal(condition, &registers) {
                    Ok(literal) => of_row.push(literal),
                    Err(lack) => self.problem(element, row.span, lack),
                }
            }
            literals.push(of_row);
        }
        let available = (self.parameters.match_words as usize, self.parameters.conditions as usize);
        let match_words = choose_words(&literals, available.0);
        let (forms, comparators) = choose_forms(&literals, &match_words, available.1);
        self.use_of(
            "match_words",
            "words in the EFSM table",
            Some(element.name.clone()),
            Some(element.span),
            match_words.len() as u32,
            self.parameters.match_words,
        );
        self.use_of(
            "conditions",
            "enabling conditions",
            Some(element.name.clone()),
            Some(element.span),
            comparators.len() as u32,
            self.parameters.conditions,
        );
        if match_words.len() > MAX_NUMBER || comparators.len() > MAX_NUMBER {
            let (words, compared) = (match_words.len(), comparators.len());
            let what =
                format!("compares {words} words and has {compared} comparators, expected at most {MAX_NUMBER} of each");
            self.problem(element, element.span, Lack::new(what));
            return self.empty_stage(number, element, context);
        }
        let mut rows: Vec<TernaryRow> = Vec::new();
        for (row_number, row) in element.rows.iter().enumerate() {
            let action = self.action(element, row, &mut registers, placed);
            let presence = self.presence_of_row(row);
            let states = match &element.stateful {
                Some(stateful) => cubes_of_labels(&row.states, stateful.states.len() as u16),
                None => vec![Ternary::default()],
            };
            let start = TernaryRow {
                row: row_number as u16,
                state: Ternary::default(),
                conditions: Ternary::default(),
                presence,
                full: Ternary::default(),
                words: vec![Ternary::default(); match_words.len()],
                action,
            };
            let mut expanded: Vec<TernaryRow> =
                states.into_iter().map(|state| TernaryRow { state, ..start.clone() }).collect();
            for form in &forms[row_number] {
                expanded = expand(&expanded, form, &match_words, &comparators);
                minimise_some(&mut expanded);
                if expanded.len() > MAX_ROWS {
                    self.problem(
                        element,
                        row.span,
                        Lack::new(format!(
                            "has a row that expands to {} ternary rows, expected at most {MAX_ROWS}",
                            expanded.len()
                        )),
                    );
                    break;
                }
            }
            minimise_some(&mut expanded);
            let needed = expanded.len() as u32;
            rows.extend(expanded);
            // The row at which the table overflows is the one to name.
            let span = (rows.len() as u32 - needed < self.parameters.rows).then_some(row.span);
            if span.is_some() || row_number + 1 == element.rows.len() {
                // The last row has the action of packets that no other row matches.
                self.use_of(
                    "rows",
                    "ternary rows, with that of `otherwise`",
                    Some(element.name.clone()),
                    span.or(Some(element.span)),
                    rows.len() as u32 + 1,
                    self.parameters.rows,
                );
            }
        }
        if registers.averages.len() > AVERAGES {
            let what =
                format!("has {} different moving averages, expected at most {AVERAGES}", registers.averages.len());
            self.problem(element, element.span, Lack::new(what));
        }
        let otherwise = self.otherwise(element, placed);
        let match_words: Vec<u8> = match_words.iter().map(|word| self.words.read(*word)).collect();
        let mut stage = Stage {
            element: number as u16,
            match_words,
            comparators,
            averages: registers.averages,
            rows,
            otherwise,
            context,
        };
        let is_serial = reads_written_globals(&stage);
        if let Some(context) = &mut stage.context {
            context.is_serial = is_serial;
        }
        stage
    }

    fn empty_stage(&mut self, number: usize, element: &Element, context: Option<ContextStage>) -> Stage {
        Stage {
            element: number as u16,
            match_words: Vec::new(),
            comparators: Vec::new(),
            averages: Vec::new(),
            rows: Vec::new(),
            otherwise: self.otherwise(element, &vec![0; self.function.elements.len()]),
            context,
        }
    }

    /// The presence bits of the fields that a row reads and writes.
    fn presence_of_row(&mut self, row: &Row) -> Ternary {
        let sets: BTreeSet<u32> = row.fields().into_iter().map(presence_of).filter(|set| *set != 0).collect();
        // A set is implied by a subset of it.
        let implied = |set: &u32| sets.iter().any(|other| other != set && other & !set == 0);
        let mut bits = Ternary::default();
        for set in sets.iter().filter(|set| !implied(set)) {
            let bit = bit_of(self.presence_bit(*set));
            bits = Ternary { mask: bits.mask | bit, value: bits.value | bit };
        }
        bits
    }
}

/// Minimises sets of rows that are small enough for it; larger ones are refused anyway.
fn minimise_some(rows: &mut Vec<TernaryRow>) {
    if rows.len() <= 256 {
        minimise(rows);
    }
}

/// The form that was chosen for a literal.
#[derive(Debug, Clone)]
enum Form {
    Cubes(Vec<Cube>),
    Compares(Vec<Compare>),
    Presence(u32, bool),
    Full(bool),
}

/// The words that the EFSM table compares: those of literals that have no other form, and those that save the most
/// comparators.
fn choose_words(literals: &[Vec<Literal>], available: usize) -> Vec<Word> {
    let mut chosen: BTreeSet<Word> = BTreeSet::new();
    let words_of = |cubes: &[Cube]| cubes.iter().flatten().map(|bits| bits.0).collect::<BTreeSet<Word>>();
    let mut optional: Vec<(BTreeSet<Word>, usize)> = Vec::new();
    for literal in literals.iter().flatten() {
        let Literal::Either { cubes: Some(cubes), compares } = literal else { continue };
        match compares {
            None => chosen.extend(words_of(cubes)),
            Some(compares) if cubes.len() <= 1 => {
                let saved = compares.iter().map(|compare| compare.chain.len()).sum();
                optional.push((words_of(cubes), saved));
            }
            Some(_) => {}
        }
    }
    loop {
        let candidate = optional
            .iter()
            .map(|(words, _)| {
                let added = words.difference(&chosen).count();
                let union: BTreeSet<Word> = words.union(&chosen).copied().collect();
                let saved: usize = optional.iter().filter(|(of, _)| of.is_subset(&union)).map(|(_, saved)| saved).sum();
                (saved, added, words)
            })
            .filter(|(_, added, _)| *added > 0 && chosen.len() + added <= available)
            // The most comparators saved for each word.
            .max_by(|a, b| (a.0 * b.1).cmp(&(b.0 * a.1)).then(b.2.cmp(a.2)));
        match candidate {
            Some((_, _, words)) => chosen.extend(words.iter().copied()),
            None => break,
        }
    }
    chosen.into_iter().collect()
}

/// A form for each literal, and the comparators of all.
fn choose_forms(literals: &[Vec<Literal>], words: &[Word], available: usize) -> (Vec<Vec<Form>>, Vec<Comparator>) {
    // The most alternatives for which bits are chosen instead of comparators; more where comparators run out.
    let mut result = (Vec::new(), Vec::new());
    for most in [1, 2, 4, 8, 16, 32, 64] {
        let mut comparators = Vec::new();
        let forms = literals
            .iter()
            .map(|row| row.iter().map(|literal| form(literal, words, most, &mut comparators)).collect())
            .collect();
        result = (forms, comparators);
        if result.1.len() <= available {
            break;
        }
    }
    result
}

fn form(literal: &Literal, words: &[Word], most: usize, comparators: &mut Vec<Comparator>) -> Form {
    match literal {
        Literal::Presence(bit, is_present) => Form::Presence(*bit, *is_present),
        Literal::Full(is_full) => Form::Full(*is_full),
        Literal::Either { cubes, compares } => {
            let reachable = |cubes: &&Vec<Cube>| cubes.iter().flatten().all(|(word, _, _)| words.contains(word));
            match (cubes.as_ref().filter(reachable), compares) {
                (Some(cubes), Some(_)) if cubes.len() <= most => Form::Cubes(cubes.clone()),
                (Some(cubes), None) => Form::Cubes(cubes.clone()),
                (_, Some(compares)) => {
                    for compare in compares {
                        if find(comparators, &compare.chain).is_none() {
                            comparators.extend(&compare.chain);
                        }
                    }
                    Form::Compares(compares.clone())
                }
                (None, None) => Form::Cubes(Vec::new()),
            }
        }
    }
}

/// The number of the last comparator of a chain.
fn find(comparators: &[Comparator], chain: &[Comparator]) -> Option<usize> {
    let at = comparators.windows(chain.len()).position(|window| window == chain)?;
    Some(at + chain.len() - 1)
}

/// Each row with each alternative of a literal; rows that never match are left out.
fn expand(rows: &[TernaryRow], form: &Form, words: &[Word], comparators: &[Comparator]) -> Vec<TernaryRow> {
    let mut expanded = Vec::new();
    for row in rows {
        match form {
            Form::Presence(bit, is_present) => {
                let presence = both(row.presence, bit_of(*bit), if *is_present { bit_of(*bit) } else { 0 });
                expanded.extend(presence.map(|presence| TernaryRow { presence, ..row.clone() }));
            }
            Form::Full(is_full) => {
                let full = both(row.full, 1, u32::from(*is_full));
                expanded.extend(full.map(|full| TernaryRow { full, ..row.clone() }));
            }
            Form::Compares(compares) => {
                let conditions = compares.iter().try_fold(row.conditions, |conditions, compare| {
                    let bit = find(comparators, &compare.chain)?;
                    both(conditions, 1 << bit, u32::from(compare.holds) << bit)
                });
                expanded.extend(conditions.map(|conditions| TernaryRow { conditions, ..row.clone() }));
            }
            Form::Cubes(cubes) => {
                expanded.extend(cubes.iter().filter_map(|cube| with_cube(row, cube, words)));
            }
        }
    }
    expanded
}

fn with_cube(row: &TernaryRow, cube: &[Bits], words: &[Word]) -> Option<TernaryRow> {
    let mut row = row.clone();
    for &(word, mask, value) in cube {
        let at = words.iter().position(|known| *known == word)?;
        row.words[at] = both(row.words[at], mask, value)?;
    }
    Some(row)
}

/// A presence bit; none for a number beyond those of any machine, which is refused.
fn bit_of(number: u32) -> u32 {
    1_u32.checked_shl(number).unwrap_or(0)
}

/// The intersection with further bits; `None` if they contradict.
fn both(bits: Ternary, mask: u32, value: u32) -> Option<Ternary> {
    let is_consistent = (bits.value ^ value) & bits.mask & mask == 0;
    is_consistent.then_some(Ternary { mask: bits.mask | mask, value: bits.value | value })
}

/// True if comparators or averages read a global register that a row writes.
fn reads_written_globals(stage: &Stage) -> bool {
    let written: BTreeSet<u8> = stage
        .rows
        .iter()
        .flat_map(|row| &row.action.alus)
        .filter_map(|alu| match alu.destination {
            Some(Destination::Global(at)) => Some(at),
            _ => None,
        })
        .collect();
    let of_offset = |offset: Offset| match offset {
        Offset::None => None,
        Offset::Plus(operand) | Offset::Minus(operand) => Some(operand),
    };
    let compared = stage
        .comparators
        .iter()
        .flat_map(|comparator| [Some(comparator.left), Some(comparator.right), of_offset(comparator.offset)]);
    let averaged = stage.averages.iter().flat_map(|average| [Some(average.average), Some(average.sample)]);
    compared.chain(averaged).flatten().any(|operand| matches!(operand, Operand::Global(at) if written.contains(&at)))
}
