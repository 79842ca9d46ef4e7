// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the model of a function to an image.
//!
//! ```text
//!  element ─► literals: condition as ternary bits, as comparators, or both
//!          ─► the words that the EFSM table compares, the comparators that are left
//!          ─► rows: alternatives multiplied out, then minimised
//!          ─► actions: one operation for each destination
//! ```
//!
//! Resources are counted as [`Use`]s, also where they exceed the parameters. Constructs that no machine supports are
//! collected as [`Problem`]s.

mod actions;
mod key;
mod literals;
mod operands;
mod rows;

use std::fmt;

use flowloom_efsm::layout;
use flowloom_efsm::model::{Condition, Element, Function, Key, Policy as ModelPolicy, Span, Stateful, Variable};
use flowloom_wire::Header;
use flowloom_wire::field::FieldId;

use crate::image::{ContextStage, Image, Narrow, Policy, Preloaded, Register, Stage};
use crate::parameters::{CLOCKS, PRESENCE_BITS, Parameters, STATE_BITS, TIMEOUTS};
use crate::word::Word;
use operands::{Registers, Words};

/// The result of a compilation.
#[derive(Debug, Clone)]
pub struct Compilation {
    /// The image; incomplete if there are problems, and larger than the machine if a use exceeds its parameter.
    pub image: Image,
    /// Resources that the function uses, by parameter.
    pub uses: Vec<Use>,
    /// Constructs that no machine supports.
    pub problems: Vec<Problem>,
}

impl Compilation {
    /// True if the machine runs the function.
    pub fn fits(&self) -> bool {
        self.problems.is_empty() && !self.uses.iter().any(Use::exceeds)
    }

    /// The reasons why `function` does not fit, each with its file and line; empty if it fits.
    pub fn refusals(&self, function: &Function) -> Vec<Refusal> {
        let at = |span: &Span| format!("{}:{}: ", function.source.name, function.source.locate(span.start).0);
        let problem = |Problem { element, span, what, help }: &Problem| Refusal {
            what: format!("{}element `{element}` {what}", at(span)),
            help: *help,
        };
        let exceeded = |used: &Use| Refusal {
            what: format!("{}{used}", used.span.as_ref().map(at).unwrap_or_default()),
            help: None,
        };
        let exceeding = self.uses.iter().filter(|used| used.exceeds());
        self.problems.iter().map(problem).chain(exceeding.map(exceeded)).collect()
    }
}

/// The use of a resource of the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// The parameter of [`Parameters`], or a limit of all machines.
    pub parameter: &'static str,
    /// The name of the resource, for messages.
    pub what: &'static str,
    /// The element that uses the most, if it is counted for each.
    pub element: Option<String>,
    /// The row of the source that uses the most, or the declaration.
    pub span: Option<Span>,
    /// The number that is needed.
    pub needed: u32,
    /// The number that the machine has.
    pub available: u32,
}

impl Use {
    /// True if the machine has less than is needed.
    pub fn exceeds(&self) -> bool {
        self.needed > self.available
    }
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Use { parameter, what, element, needed, available, .. } = self;
        if let Some(element) = element {
            write!(f, "element `{element}`: ")?;
        }
        write!(f, "{needed} {what}, the machine has {available} (`{parameter}`)")
    }
}

/// A construct that no machine supports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The element.
    pub element: String,
    /// The place in the source.
    pub span: Span,
    /// The construct, as a verb phrase after the element's name.
    pub what: String,
    /// A remedy, if one is known.
    pub help: Option<&'static str>,
}

/// A problem whose place is not known yet.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Lack {
    what: String,
    help: Option<&'static str>,
}

impl Lack {
    fn new(what: impl Into<String>) -> Lack {
        Lack { what: what.into(), help: None }
    }

    fn with_help(what: impl Into<String>, help: &'static str) -> Lack {
        Lack { what: what.into(), help: Some(help) }
    }
}

/// A reason why a function does not fit the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The place in the source, and the failure.
    pub what: String,
    /// A remedy, if one is known.
    pub help: Option<&'static str>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)?;
        self.help.map_or(Ok(()), |help| write!(f, " ({help})"))
    }
}

/// Compiles a function for a machine.
pub fn compile(function: &Function, parameters: &Parameters) -> Compilation {
    let mut compiler = Compiler {
        function,
        parameters,
        words: Words::new(function),
        presence: Vec::new(),
        uses: Vec::new(),
        problems: Vec::new(),
    };
    compiler.check_parser();
    compiler.words.pair_swapped();
    let placed = compiler.place_elements();
    let mut stages = vec![None; placed.iter().map(|at| at + 1).max().unwrap_or(1)];
    for (number, element) in function.elements.iter().enumerate() {
        stages[placed[number]] = Some(compiler.stage(number, element, &placed));
    }
    compiler.finish(stages, placed[0] as u8)
}

struct Compiler<'f> {
    function: &'f Function,
    parameters: &'f Parameters,
    words: Words<'f>,
    /// Presence bits.
    presence: Vec<u32>,
    uses: Vec<Use>,
    problems: Vec<Problem>,
}

impl Compiler<'_> {
    /// Rejects fields that the parse block does not extract: those of tunnelled packets and of TCP options.
    fn check_parser(&mut self) {
        for element in &self.function.elements {
            let rows = element.rows.iter().flat_map(|row| {
                let absent = row.conditions.iter().filter_map(Condition::absent);
                row.fields().into_iter().chain(absent).map(|field| (field, row.span))
            });
            let key = element.stateful.iter().flat_map(|stateful| &stateful.key).flat_map(Key::fields);
            let mut named: Vec<(FieldId, Span)> = rows.chain(key.map(|field| (field, element.span))).collect();
            named.retain(|(field, _)| field.headers().iter().any(|header| !is_parsed(*header)));
            named.dedup_by_key(|(_, span)| *span);
            for (field, span) in named {
                let what = format!(
                    "names `{}`, which the parse block does not extract",
                    self.function.graph.field_name(field)
                );
                self.problem(element, span, Lack::new(what));
            }
        }
    }

    /// The stage of each element: the next one of its kind.
    fn place_elements(&mut self) -> Vec<usize> {
        let mut next = 0;
        let placed: Vec<usize> = self
            .function
            .elements
            .iter()
            .map(|element| {
                let stage = if (next % 2 == 1) == element.stateful.is_some() { next } else { next + 1 };
                next = stage + 1;
                stage
            })
            .collect();
        let needed = placed.iter().max().map_or(0, |last| last.div_ceil(2)) as u32;
        self.use_of("elements", "stateful elements", None, None, needed, self.parameters.elements);
        placed
    }

    fn stage(&mut self, number: usize, element: &Element, placed: &[usize]) -> Stage {
        self.words.element = number;
        let registers = element.stateful.as_ref().map_or_else(Registers::default, Registers::of);
        let context = element.stateful.as_ref().map(|stateful| self.context(element, stateful, &registers));
        self.element(number, element, &registers, context, placed)
    }

    fn context(&mut self, element: &Element, stateful: &Stateful, registers: &Registers) -> ContextStage {
        let name = Some(element.name.clone());
        let span = Some(element.span);
        let states = stateful.states.len() as u16;
        self.use_of("states", "states", name.clone(), span, states.into(), 1 << STATE_BITS);
        self.use_of("registers", "register words", name.clone(), span, registers.words(), self.parameters.registers);
        self.use_of(
            "globals",
            "global register words",
            name.clone(),
            span,
            registers.global_words(),
            self.parameters.globals,
        );
        let size = layout::capacity(stateful) as u32;
        if stateful.key.is_some() {
            self.use_of("contexts", "contexts", name.clone(), span, size, self.parameters.max_size());
        }
        let policy = match stateful.policy {
            ModelPolicy::Reject => Policy::Reject,
            ModelPolicy::EvictLowest(_) => Policy::EvictLowest,
            ModelPolicy::EvictHighest(_) => Policy::EvictHighest,
            ModelPolicy::EvictOldest => {
                self.problem(
                    element,
                    stateful.policy_span,
                    Lack::with_help(
                        "evicts the oldest context, but the machine does not store the time of the last packet",
                        "store `now` in a register, and use `evict lowest`",
                    ),
                );
                Policy::Reject
            }
        };
        let ranked = match stateful.policy {
            ModelPolicy::EvictLowest(at) | ModelPolicy::EvictHighest(at) => Some(&stateful.registers[usize::from(at)]),
            ModelPolicy::Reject | ModelPolicy::EvictOldest => None,
        };
        if ranked.is_some_and(|register| register.ty.width_bits > 32) {
            let lack = Lack::with_help("evicts by a register of more than 32 bits", "use a register of 32 bits");
            self.problem(element, stateful.policy_span, lack);
        }
        let key = match &stateful.key {
            None => None,
            Some(_) => match self.key(stateful) {
                Ok(key) => {
                    let bits = 32 * key.words.len() as u32;
                    self.use_of("key_bits", "bits of key", name, span, bits, self.parameters.key_bits);
                    Some(key)
                }
                Err(lack) => {
                    self.problem(element, element.span, lack);
                    None
                }
            },
        };
        let preloaded = stateful
            .preloaded
            .iter()
            .map(|context| Preloaded {
                key: key.as_ref().map_or_else(Vec::new, |key| key.words_of(&context.key)),
                state: context.state,
                registers: registers.values(stateful, &context.registers),
            })
            .collect();
        if stateful.successors.iter().any(Option::is_some) {
            let lack = Lack::with_help(
                "has a timer whose expiry enters a state other than the initial one",
                "let the context expire, and enter the state with the next packet",
            );
            self.problem(element, element.span, lack);
        }
        ContextStage {
            key,
            size,
            policy,
            rank_is_signed: ranked.is_some_and(|register| register.ty.signed),
            registers: registers.described(&stateful.registers, &registers.flow),
            globals: registers.described(&stateful.globals, &registers.global),
            states,
            is_serial: false,
            preloaded,
        }
    }

    /// Records a use: the largest one of each resource counts.
    fn use_of(
        &mut self,
        parameter: &'static str,
        what: &'static str,
        element: Option<String>,
        span: Option<Span>,
        needed: u32,
        available: u32,
    ) {
        let found = Use { parameter, what, element, span, needed, available };
        match self.uses.iter_mut().find(|known| known.parameter == parameter) {
            Some(known) if known.needed >= needed => {}
            Some(known) => *known = found,
            None => self.uses.push(found),
        }
    }

    fn problem(&mut self, element: &Element, span: Span, lack: Lack) {
        let Lack { what, help } = lack;
        self.problems.push(Problem { element: element.name.clone(), span, what, help });
    }

    /// The number of the presence bit of a set of headers.
    fn presence_bit(&mut self, headers: u32) -> u32 {
        let at = self.presence.iter().position(|known| *known == headers).unwrap_or_else(|| {
            self.presence.push(headers);
            self.presence.len() - 1
        });
        at as u32
    }

    fn finish(mut self, stages: Vec<Option<Stage>>, entry: u8) -> Compilation {
        self.check_views();
        let metadata = self.words.list.iter().filter(|word| matches!(word, Word::Metadata { .. })).count() as u32;
        self.use_of("metadata_bits", "bits of metadata", None, None, 32 * metadata, self.parameters.metadata_bits);
        let words = self.words.list.len() as u32;
        self.use_of("words", "words of the header vector", None, None, words, self.parameters.words);
        let presence = self.presence.len() as u32;
        self.use_of("presence", "sets of headers", None, None, presence, PRESENCE_BITS);
        let clocks = self.words.clocks.len() as u32;
        self.use_of("clocks", "units of time", None, None, clocks, CLOCKS as u32);
        for (at, element) in
            stages.iter().flatten().map(|stage| (stage, &self.function.elements[usize::from(stage.element)]))
        {
            if at.context.is_none() {
                continue;
            }
            let found = Use {
                parameter: "timeouts",
                what: "pairs of timeouts, with that of contexts without timers",
                element: Some(element.name.clone()),
                span: Some(element.span),
                needed: crate::encode::timeouts_of(at).len() as u32,
                available: TIMEOUTS as u32,
            };
            if self.uses.iter().all(|known| known.parameter != "timeouts" || known.needed < found.needed) {
                self.uses.retain(|known| known.parameter != "timeouts");
                self.uses.push(found);
            }
        }
        let initial_metadata = self
            .words
            .list
            .iter()
            .enumerate()
            .filter_map(|(at, word)| match word {
                Word::Metadata { variable, index } => {
                    let initial = self.function.metadata[usize::from(*variable)].initial >> (32 * u32::from(*index));
                    (initial as u32 != 0).then_some((at as u8, initial as u32))
                }
                _ => None,
            })
            .collect();
        let image = Image {
            function: self.function.name.clone(),
            parameters: self.parameters.clone(),
            clocks_ns: self.words.clocks.clone(),
            words: self.words.list,
            initial_metadata,
            presence: self.presence,
            stages,
            entry,
        };
        Compilation { image, uses: self.uses, problems: self.problems }
    }

    /// Rejects reads of stale views: a view is copied when the packet arrives, and a later write to its field does not
    /// update it.
    fn check_views(&mut self) {
        let mut outdated = Vec::new();
        for (at, word) in self.words.list.iter().enumerate() {
            let Some(last_read) = self.words.last_read[at] else { continue };
            for (writer, storage) in &self.words.written {
                if word.depends_on().contains(storage) && *writer < last_read {
                    outdated.push((last_read, word.name(self.function)));
                }
            }
        }
        for (reader, name) in outdated {
            let element = &self.function.elements[reader];
            let what = format!("reads `{name}` after an earlier element has changed it");
            self.problem(element, element.span, Lack::with_help(what, "keep the value in metadata before the change"));
        }
    }
}

/// True for the headers that the parse block of the machine extracts.
fn is_parsed(header: Header) -> bool {
    !header.name().starts_with("inner.") && !matches!(header, Header::Gtpu | Header::WindowScale)
}

/// The values of a variable in one word.
fn narrow(variable: &Variable, index: u8) -> Narrow {
    let width = u32::from(variable.ty.width_bits) - 32 * u32::from(index);
    let is_last = width <= 32;
    Narrow { width_bits: width.min(32) as u8, is_signed: variable.ty.signed && is_last && width < 32 }
}

impl Registers {
    /// The initial values and types of the words of variables.
    fn described(&self, variables: &[Variable], bases: &[u8]) -> Vec<Register> {
        let mut described = vec![Register { initial: 0, narrow: Narrow::WORD }; bases_words(variables)];
        for (variable, base) in variables.iter().zip(bases) {
            for index in 0..crate::word::words_of(variable.ty.width_bits) {
                let narrow = narrow(variable, index);
                let initial = narrow.of((variable.initial >> (32 * u32::from(index))) as u32);
                described[usize::from(base + index)] = Register { initial, narrow };
            }
        }
        described
    }
}

/// The first word of each flow register.
pub(crate) fn register_words(stateful: &Stateful) -> Vec<u8> {
    Registers::of(stateful).flow
}

fn bases_words(variables: &[Variable]) -> usize {
    variables.iter().map(|variable| usize::from(crate::word::words_of(variable.ty.width_bits))).sum()
}
