// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The software model of the machine. It runs images; of the function it uses the parse graph and the names of maps.

mod alu;
mod extract;
mod table;

use std::collections::BTreeMap;
use std::sync::Arc;

use flowloom_efsm::layout::{self, RecordLayout, capacity};
use flowloom_efsm::model::Function;
use flowloom_efsm::{Context as ModelContext, Machine as Reference};
use flowloom_engine::{
    Choices, Datapath, EngineError, Eviction, MapState, Outcome, Output, Packet, Port, Ports, Snapshot, Verdict,
};
use flowloom_wire::field::FieldId;
use flowloom_wire::{Header, Layers, edit, rewrite};

use crate::image::{
    Action, ContextStage, Destination, Entry, Image, KeyPart, KeySelect, Next, Policy, Stage, Step, Terminal,
    TernaryRow, Write, WriteSource,
};
use crate::stored::StoredContext;
use crate::vector::USER_BYTES;
use crate::word::{Word, words_of};
use alu::Operands;
use extract::Extract;
pub(crate) use table::Context;
pub(crate) use table::MAX_REGISTERS;
use table::{Key, MAX_KEY, NO_DEADLINE, Place, Table};

/// Most words of a header vector.
const MAX_WORDS: usize = 64;
/// Most ALUs of an element.
const MAX_ALUS: usize = 32;
/// Bytes of a packet that the parse block reads.
const WINDOW_BYTES: usize = 128;
/// Steps of the engine of a context table between two packets.
const ENGINE_STEPS: u32 = 8;

/// A machine with a loaded image.
#[derive(Debug, Clone)]
pub struct Overlay {
    function: Arc<Function>,
    image: Arc<Image>,
    /// By word of the header vector.
    extracts: Arc<[Extract]>,
    /// By stage.
    states: Vec<Option<State>>,
    ports: Ports,
    evicted: Vec<Eviction>,
    /// The accesses to context tables, if they are traced.
    accesses: Option<Vec<Access>>,
}

/// An access of a packet to a context table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Access {
    /// The stage.
    pub stage: u8,
    /// The words of the key.
    pub key: Box<[u32]>,
    /// The row of the key in each bank.
    pub rows: [u32; 4],
    /// FK1, the hash by which the scheduler tells flows apart.
    pub flow: u16,
    /// Whether a context is stored after it.
    pub is_stored: bool,
}

/// The state of a stateful element.
#[derive(Debug, Clone)]
struct State {
    table: Table,
    globals: Vec<u32>,
    layout: RecordLayout,
}

/// The header vector of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderVector {
    /// The words.
    pub words: [u32; MAX_WORDS],
    /// Words that were written, by number.
    pub written: u64,
    /// The presence bits.
    pub presence: u32,
    /// True for an IPv4 packet, whose addresses have one word: writes of their other words have no effect.
    pub is_ipv4: bool,
    /// The arrival time.
    pub now_ns: u64,
}

/// The bytes of a packet.
#[derive(Debug)]
struct Frame<'p> {
    packet: Packet<'p>,
    bytes: Vec<u8>,
    layers: Layers,
    outputs: Vec<Output>,
}

/// The context of a packet in an element.
struct Found {
    place: Option<Place>,
    context: Context,
    is_full: bool,
}

impl Overlay {
    /// A machine with this image of a function, whose contexts are the preloaded ones.
    ///
    /// # Panics
    /// If the image is not of this function.
    pub fn new(function: Arc<Function>, image: Arc<Image>) -> Overlay {
        let states = image
            .stages
            .iter()
            .map(|stage| {
                let stage = stage.as_ref()?;
                let context = stage.context.as_ref()?;
                let element = &function.elements[usize::from(stage.element)];
                let stateful = element.stateful.as_ref()?;
                Some(State {
                    table: Table::new(&image.parameters),
                    globals: context.globals.iter().map(|global| global.initial).collect(),
                    layout: RecordLayout::of(element, stateful),
                })
            })
            .collect();
        let reference = Reference::new(Arc::clone(&function));
        let (ports, evicted, accesses) = (Ports::default(), Vec::new(), None);
        let extracts = image.words.iter().map(|word| Extract::of(*word)).collect();
        let mut overlay = Overlay { function, image, extracts, states, ports, evicted, accesses };
        overlay.load(&reference);
        overlay
    }

    /// The image.
    pub fn image(&self) -> &Arc<Image> {
        &self.image
    }

    /// The contexts of each stateful stage by the words of their keys, as the hardware stores them.
    pub fn contexts(&self) -> Vec<(u8, KeyedContexts)> {
        let stages = self.image.stages.iter().zip(&self.states).enumerate();
        let stored = stages.filter_map(|(number, (stage, state))| {
            let (stage, state) = (stage.as_ref()?, state.as_ref()?);
            let parameters = &self.image.parameters;
            let entry = |(key, context): (&Key, &Context)| {
                let key = key[..parameters.key_bits as usize / 32].to_vec();
                (key, StoredContext::of(parameters, stage, context))
            };
            Some((number as u8, state.table.entries().map(entry).collect()))
        });
        stored.collect()
    }

    /// The global registers of each stateful stage.
    pub fn globals(&self) -> Vec<(u8, &[u32])> {
        let states = self.states.iter().enumerate();
        states.filter_map(|(number, state)| Some((number as u8, &state.as_ref()?.globals[..]))).collect()
    }

    /// As [`Datapath::process`], with the accesses of the packet to context tables.
    pub fn process_traced(&mut self, packet: &Packet<'_>, choices: &Choices) -> (Outcome, Vec<Access>) {
        self.accesses = Some(Vec::new());
        let outcome = self.run(packet, choices);
        (outcome, self.accesses.take().unwrap_or_default())
    }

    /// True if a sweep would remove a context.
    pub fn has_expired(&self, now_ns: u64) -> bool {
        let mut tables = self.states.iter().flatten().map(|state| &state.table);
        tables.any(|table| table.entries().any(|(_, context)| context.is_expired(now_ns)))
    }

    /// Replaces contexts and global registers of a stage by those of the hardware.
    pub fn replace(&mut self, stage: u8, contexts: &KeyedContexts, globals: &[u32]) {
        let Overlay { image, states, .. } = self;
        let number = usize::from(stage);
        let (Some(Some(stage)), Some(Some(state))) = (image.stages.get(number), states.get_mut(number)) else { return };
        state.table.clear();
        for (key, context) in contexts {
            _ = state.table.insert(&padded(key), &context.to_model(stage));
        }
        for (own, value) in state.globals.iter_mut().zip(globals) {
            *own = *value;
        }
    }

    /// Takes over contexts and global registers.
    fn load(&mut self, reference: &Reference) {
        let Overlay { image, states, function, .. } = self;
        for (stage, state) in image.stages.iter().zip(states) {
            let (Some(stage), Some(state)) = (stage, state) else { continue };
            let Some(context) = &stage.context else { continue };
            let element = usize::from(stage.element);
            let Some(stateful) = &function.elements[element].stateful else { continue };
            state.table.clear();
            for (key, found) in reference.contexts(element) {
                let key = context.key.as_ref().map_or_else(Vec::new, |select| select.words_of(key));
                _ = state.table.insert(&padded(&key), &loaded(context, stateful, found));
            }
            let mut at = 0;
            for (value, variable) in reference.globals(element).iter().zip(&stateful.globals) {
                for index in 0..words_of(variable.ty.width_bits) {
                    let word = (value >> (32 * u32::from(index))) as u32;
                    state.globals[at] = context.globals[at].narrow.of(word);
                    at += 1;
                }
            }
        }
    }

    fn run(&mut self, packet: &Packet<'_>, choices: &Choices) -> Outcome {
        let layers = Layers::parse(&self.function.graph, packet.bytes);
        let mut header = self.header(packet, &layers, choices.now_ns);
        let mut frame = Frame { packet: *packet, bytes: packet.bytes.to_vec(), layers, outputs: Vec::new() };
        self.evicted.clear();
        let image = Arc::clone(&self.image);
        let mut at = usize::from(image.entry);
        loop {
            let Some(stage) = &image.stages[at] else { break Outcome::without_output(Verdict::Aborted) };
            let (action, steps, terminal) = self.element(at, stage, &mut header);
            self.write_fields(action, &header, &mut frame);
            for step in steps {
                step.apply(&mut frame, &self.function, &self.ports);
            }
            match terminal {
                Continues::Goto(next) => at = next,
                Continues::Leave(verdict, port) => break self.leave(frame, verdict, port),
                Continues::Flood => {
                    let mut outputs = frame.outputs;
                    for port in self.ports.flooded(packet.port) {
                        outputs.push(Output { port, bytes: frame.bytes.clone() });
                    }
                    break Outcome { verdict: Verdict::Redirect, outputs, events: Vec::new() };
                }
            }
        }
    }

    /// True if the parse block may send the packet to the slow path: it is longer than the window, and a header that the
    /// function may need is not known to be within it.
    pub fn may_be_slow(&self, packet: &Packet<'_>) -> bool {
        let graph = &self.function.graph;
        if packet.bytes.len() <= WINDOW_BYTES {
            return false;
        }
        let layers = Layers::parse(graph, packet.bytes);
        let is_near = |header: Header| {
            let bytes = graph.min_bytes(header).map_or(0, usize::from).min(USER_BYTES);
            layers.offset(header).is_none_or(|at| at + bytes <= WINDOW_BYTES)
        };
        let transport = [Header::Tcp, Header::Udp, Header::Icmp, Header::Icmp6].into_iter().find(|&h| layers.has(h));
        let has_user = graph.user_headers().is_empty() || layers.has(Header::User0) || layers.has(Header::User1);
        let is_fast = transport
            .is_some_and(|header| is_near(header) && has_user && is_near(Header::User0) && is_near(Header::User1));
        !is_fast
    }

    /// The header vector of an arriving packet: the parse block.
    pub fn arrive(&self, packet: &Packet<'_>, now_ns: u64) -> HeaderVector {
        self.header(packet, &Layers::parse(&self.function.graph, packet.bytes), now_ns)
    }

    /// Runs the elements on a header vector without the packet's bytes; returns the terminal action and its port.
    pub fn run_header(&mut self, header: &mut HeaderVector) -> Departed {
        let image = Arc::clone(&self.image);
        let mut at = usize::from(image.entry);
        loop {
            let Some(stage) = &image.stages[at] else { return Departed { terminal: 0, port: 0 } };
            let (action, _, continues) = self.element(at, stage, header);
            let terminal = match action.terminal {
                Terminal::Drop => 0,
                Terminal::Pass => 1,
                Terminal::Punt => 2,
                Terminal::Reply => 3,
                Terminal::Flood => 4,
                Terminal::Forward(_) => 5,
                Terminal::Goto(_) => 6,
            };
            match continues {
                Continues::Goto(next) => at = next,
                Continues::Leave(Verdict::Redirect, Some(port)) => return Departed { terminal, port },
                Continues::Leave(..) | Continues::Flood => return Departed { terminal, port: 0 },
            }
        }
    }

    fn header(&self, packet: &Packet<'_>, layers: &Layers, now_ns: u64) -> HeaderVector {
        let mut clocks = [0; 2];
        for (clock, unit_ns) in clocks.iter_mut().zip(&self.image.clocks_ns) {
            *clock = (now_ns / unit_ns) as u32;
        }
        let mut words = [0; MAX_WORDS];
        for (value, extract) in words.iter_mut().zip(&*self.extracts) {
            *value = extract.value(packet.bytes, layers, packet.port.0, &clocks);
        }
        for (word, value) in &self.image.initial_metadata {
            words[usize::from(*word)] = *value;
        }
        let presence = self
            .image
            .presence
            .iter()
            .enumerate()
            .fold(0, |bits, (at, headers)| bits | u32::from(layers.valid() & headers != 0) << at);
        HeaderVector { words, written: 0, presence, is_ipv4: layers.has(Header::Ipv4), now_ns }
    }

    fn leave(&self, frame: Frame<'_>, verdict: Verdict, port: Option<u32>) -> Outcome {
        let Frame { packet, bytes, mut outputs, .. } = frame;
        let verdict = match (verdict, port) {
            (Verdict::Redirect, Some(port)) if !self.ports.is_bound(Port(port)) => Verdict::Aborted,
            (verdict, _) => verdict,
        };
        if !matches!(verdict, Verdict::Drop | Verdict::Aborted) {
            outputs.push(Output { port: port.map_or(packet.port, Port), bytes });
        }
        Outcome { verdict, outputs, events: Vec::new() }
    }

    fn element<'s>(
        &mut self,
        at: usize,
        stage: &'s Stage,
        header: &mut HeaderVector,
    ) -> (&'s Action, Vec<Change>, Continues) {
        let Some(select) = &stage.context else {
            let operands = Operands { words: &header.words, registers: &[], globals: &[], averages: &[], state: 0 };
            let conditions = operands.conditions(&stage.comparators);
            let row = matching(stage, header, 0, conditions, false);
            let action = row.map_or(&stage.otherwise, |row| &row.action);
            return self.act(action, header, &Before::stateless(), false);
        };
        let Some(key) = key_of(select, header) else {
            return self.act(&stage.otherwise, header, &Before::stateless(), false);
        };
        let Some(state) = &mut self.states[at] else {
            return self.act(&stage.otherwise, header, &Before::stateless(), false);
        };
        let found = state.look_up(select, &key, header.now_ns);
        let mut before = Before {
            registers: found.context.registers,
            globals: [0; MAX_WORDS],
            averages: [0; crate::parameters::AVERAGES],
            state: found.context.state,
        };
        before.globals[..state.globals.len()].copy_from_slice(&state.globals);
        for (at, average) in stage.averages.iter().enumerate() {
            before.averages[at] = before.operands(&header.words).average(*average);
        }
        let conditions = before.operands(&header.words).conditions(&stage.comparators);
        let row = matching(stage, header, before.state, conditions, found.is_full);
        let (rejected, victim) = match row {
            Some(row) => state.update(select, &key, found, &row.action, &before, header),
            None => (false, None),
        };
        if let Some(accesses) = &mut self.accesses {
            let (rows, flow) = state.table.rows_of(&key);
            let is_stored = state.table.find(&key).is_some();
            let key = key[..self.image.parameters.key_bits as usize / 32].into();
            accesses.push(Access { stage: at as u8, key, rows, flow, is_stored });
        }
        let Some(row) = row else { return self.act(&stage.otherwise, header, &before, false) };
        if let Some(victim) = victim {
            let element = &self.function.elements[usize::from(stage.element)];
            let key = select.key.as_ref().map_or_else(Vec::new, |key| key.bytes_of(&victim[..key.words.len()]));
            self.evicted.push(Eviction { map: element.name.clone(), key, free_entries: 0 });
        }
        self.act(&row.action, header, &before, rejected)
    }

    /// The action block.
    fn act<'s>(
        &self,
        action: &'s Action,
        header: &mut HeaderVector,
        before: &Before,
        rejected: bool,
    ) -> (&'s Action, Vec<Change>, Continues) {
        let old = header.words;
        let operands = before.operands(&old);
        let mut results = [0; MAX_ALUS];
        let mut carry = false;
        for (alu, result) in action.alus.iter().zip(&mut results) {
            (*result, carry) = operands.compute(alu.value, carry);
        }
        for &(a, b) in &action.swaps {
            self.write_word(header, a, old[usize::from(b)]);
            self.write_word(header, b, old[usize::from(a)]);
        }
        for Write { word, source, if_rejected, narrow } in &action.writes {
            let value = match (if_rejected, source) {
                (Some(old), _) if rejected => operands.get(*old),
                (_, WriteSource::Operand(operand)) => operands.get(*operand),
                (_, WriteSource::Alu(at)) => results[usize::from(*at)],
            };
            self.write_word(header, *word, narrow.of(value));
        }
        let terminal = match action.terminal {
            Terminal::Drop => Continues::Leave(Verdict::Drop, None),
            Terminal::Pass | Terminal::Punt => Continues::Leave(Verdict::Pass, None),
            Terminal::Reply => Continues::Leave(Verdict::Tx, None),
            Terminal::Flood => Continues::Flood,
            Terminal::Forward(port) => Continues::Leave(Verdict::Redirect, Some(operands.get(port))),
            Terminal::Goto(next) => Continues::Goto(usize::from(next)),
        };
        let steps = action.steps.iter().map(|step| Change::of(step, before, &old)).collect();
        (action, steps, terminal)
    }

    /// Writes a word. In an IPv4 packet, the upper words of an address are constant, and writes to them are ignored.
    fn write_word(&self, header: &mut HeaderVector, number: u8, value: u32) {
        let number = usize::from(number);
        if header.is_ipv4 && self.image.words[number].is_upper_address() {
            return;
        }
        header.words[number] = value;
        header.written |= 1 << number;
    }

    /// Writes the fields whose words an action has written, and updates the checksums that cover them.
    fn write_fields(&self, action: &Action, header: &HeaderVector, frame: &mut Frame<'_>) {
        let mut fields: Vec<(FieldId, u128)> = Vec::new();
        let swapped = action.swaps.iter().flat_map(|&(a, b)| [a, b]);
        for number in action.writes.iter().map(|write| write.word).chain(swapped) {
            let Word::Field { field, index } = self.image.words[usize::from(number)] else { continue };
            let value = u128::from(header.words[usize::from(number)]) << (32 * u32::from(index));
            match fields.iter_mut().find(|(known, _)| *known == field) {
                Some((_, whole)) => *whole |= value,
                None => fields.push((field, value)),
            }
        }
        if !fields.is_empty() {
            rewrite(&mut frame.bytes, &frame.layers, &fields);
        }
    }
}

/// Contexts by the words of their keys.
pub type KeyedContexts = BTreeMap<Vec<u32>, StoredContext>;

/// The departure of a header vector from the elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Departed {
    /// The number of the terminal action: drop, pass, punt, reply, flood, forward.
    pub terminal: u8,
    /// The port of `forward`, otherwise 0.
    pub port: u32,
}

/// The destination of a packet after an element.
enum Continues {
    Goto(usize),
    Leave(Verdict, Option<u32>),
    Flood,
}

/// Operand values before the packet's updates.
struct Before {
    registers: [u32; MAX_REGISTERS],
    globals: [u32; MAX_WORDS],
    averages: [u32; crate::parameters::AVERAGES],
    state: u16,
}

impl Before {
    fn stateless() -> Before {
        Before { registers: [0; MAX_REGISTERS], globals: [0; MAX_WORDS], averages: [0; 2], state: 0 }
    }

    fn operands<'a>(&'a self, words: &'a [u32]) -> Operands<'a> {
        let Before { registers, globals, averages, state } = self;
        Operands { words, registers, globals, averages, state: *state }
    }
}

/// The first row that matches.
fn matching<'s>(
    stage: &'s Stage,
    header: &HeaderVector,
    state: u16,
    conditions: u32,
    is_full: bool,
) -> Option<&'s TernaryRow> {
    stage.rows.iter().find(|row| {
        row.state.matches(state.into())
            && row.conditions.matches(conditions)
            && row.presence.matches(header.presence)
            && row.full.matches(is_full.into())
            && row
                .words
                .iter()
                .zip(&stage.match_words)
                .all(|(bits, word)| bits.matches(header.words[usize::from(*word)]))
    })
}

/// The key extractor; `None` if a field of the key is absent.
fn key_of(context: &ContextStage, header: &HeaderVector) -> Option<Key> {
    let mut key = [0; MAX_KEY];
    let Some(KeySelect { words, sides, presence, .. }) = &context.key else { return Some(key) };
    if header.presence & presence != *presence {
        return None;
    }
    let part = |part: KeyPart| match part {
        KeyPart::Whole(at) => header.words[usize::from(at)],
        KeyPart::Upper(at) => header.words[usize::from(at)] >> 16,
        KeyPart::Lower(at) => header.words[usize::from(at)] & 0xffff,
    };
    let is_mirrored = sides
        .iter()
        .map(|&(left, right)| part(left).cmp(&part(right)))
        .find(|order| order.is_ne())
        .is_some_and(std::cmp::Ordering::is_gt);
    for (value, word) in key.iter_mut().zip(words) {
        *value = match is_mirrored {
            false => header.words[usize::from(word.word)],
            true => {
                let mirrored = header.words[usize::from(word.mirrored)];
                if word.rotates { mirrored.rotate_left(16) } else { mirrored }
            }
        };
    }
    Some(key)
}

fn padded(words: &[u32]) -> Key {
    let mut key = [0; MAX_KEY];
    key[..words.len()].copy_from_slice(words);
    key
}

impl Context {
    fn initial(stage: &ContextStage) -> Context {
        let mut registers = [0; MAX_REGISTERS];
        for (value, register) in registers.iter_mut().zip(&stage.registers) {
            *value = register.initial;
        }
        let (idle_deadline_ns, hard_deadline_ns) = (NO_DEADLINE, NO_DEADLINE);
        Context { state: 0, registers, idle_ns: 0, idle_deadline_ns, hard_deadline_ns }
    }

    /// Enters a state: the old timers stop, these start.
    fn enter(&mut self, next: Next, at_ns: u64) {
        let deadline = |timeout: Option<u64>| timeout.map_or(NO_DEADLINE, |timeout| at_ns.wrapping_add(timeout));
        self.state = next.state;
        self.idle_ns = next.idle_ns.unwrap_or(0);
        self.idle_deadline_ns = deadline(next.idle_ns);
        self.hard_deadline_ns = deadline(next.hard_ns);
    }

    /// True if a timer has expired at `now_ns`.
    fn is_expired(&self, now_ns: u64) -> bool {
        let deadline_ns = self.idle_deadline_ns.min(self.hard_deadline_ns);
        deadline_ns != NO_DEADLINE && deadline_ns <= now_ns
    }
}

impl State {
    fn look_up(&mut self, stage: &ContextStage, key: &Key, now_ns: u64) -> Found {
        let mut place = self.table.find(key);
        let mut context = place.and_then(|place| self.table.get(place).cloned());
        if let Some(live) = &mut context {
            if live.is_expired(now_ns) {
                if let Some(place) = place {
                    self.table.remove(place);
                }
                (place, context) = (None, None);
            } else if live.idle_ns != 0 {
                live.idle_deadline_ns = now_ns.wrapping_add(live.idle_ns);
            }
        }
        if let (Some(place), Some(context)) = (place, &context) {
            self.table.set(place, context);
        }
        let is_full = place.is_none() && self.table.len() >= stage.size as usize;
        Found { place, context: context.unwrap_or_else(|| Context::initial(stage)), is_full }
    }

    /// The update block. Returns true if the updates were dropped, and the key of the evicted context.
    fn update(
        &mut self,
        stage: &ContextStage,
        key: &Key,
        found: Found,
        action: &Action,
        before: &Before,
        header: &HeaderVector,
    ) -> (bool, Option<Key>) {
        let Found { place, mut context, is_full } = found;
        let operands = before.operands(&header.words);
        let mut globals = before.globals;
        let (mut carry, mut writes_register) = (false, false);
        for alu in &action.alus {
            let (value, out) = operands.compute(alu.value, carry);
            carry = out;
            match alu.destination {
                None => {}
                Some(Destination::Register(at)) => {
                    let at = usize::from(at);
                    context.registers[at] = stage.registers[at].narrow.of(value);
                    writes_register = true;
                }
                Some(Destination::Global(at)) => {
                    let at = usize::from(at);
                    globals[at] = stage.globals[at].narrow.of(value);
                }
            }
        }
        if let Some(next) = action.next {
            context.enter(next, header.now_ns);
        }
        let may_be_default = match action.next {
            Some(next) => next.idle_ns.is_none() && next.hard_ns.is_none(),
            None => place.is_none() || writes_register,
        };
        let is_default = may_be_default && context == Context::initial(stage);
        let mut victim = None;
        match (place, is_default) {
            (None, true) => {}
            (Some(place), true) => self.table.remove(place),
            (Some(place), false) => self.table.set(place, &context),
            (None, false) => {
                if is_full {
                    let rank = |context: &Context| {
                        let value = context.registers[0];
                        if stage.rank_is_signed { i64::from(value as i32) } else { i64::from(value) }
                    };
                    let chosen = match stage.policy {
                        Policy::Reject => None,
                        Policy::EvictLowest => self.table.victim(key, rank),
                        Policy::EvictHighest => self.table.victim(key, |context| -rank(context)),
                    };
                    let Some((place, evicted)) = chosen else { return (true, None) };
                    self.table.remove(place);
                    victim = Some(evicted);
                }
                if !self.table.insert(key, &context) {
                    return (true, victim);
                }
            }
        }
        self.globals.iter_mut().zip(globals).for_each(|(own, value)| *own = value);
        for _ in 0..ENGINE_STEPS {
            if !self.table.step() {
                break;
            }
        }
        (false, victim)
    }
}

/// A step with its values.
enum Change {
    PushVlan(u16),
    PushMpls(u32),
    PopVlan,
    PopMpls,
    Clone(u32),
}

impl Change {
    fn of(step: &Step, before: &Before, words: &[u32]) -> Change {
        let operands = before.operands(words);
        let entry = |entry: &Entry| {
            let inside = u32::MAX >> (32 - u32::from(entry.width_bits));
            entry.constant | (operands.get(entry.operand) & inside) << entry.shift
        };
        match step {
            Step::PushVlan(pushed) => Change::PushVlan((entry(pushed) >> 16) as u16),
            Step::PushMpls(pushed) => Change::PushMpls(entry(pushed)),
            Step::PopVlan => Change::PopVlan,
            Step::PopMpls => Change::PopMpls,
            Step::Clone(port) => Change::Clone(operands.get(*port)),
        }
    }

    fn apply(self, frame: &mut Frame<'_>, function: &Function, ports: &Ports) {
        let Frame { bytes, layers, outputs, .. } = frame;
        let changed = match self {
            Change::PushVlan(tci) => edit::push_vlan(bytes, layers, tci),
            Change::PushMpls(entry) => edit::push_mpls(bytes, layers, entry),
            Change::PopVlan => edit::pop_vlan(bytes, layers),
            Change::PopMpls => edit::pop_mpls(bytes, layers),
            Change::Clone(port) => {
                if ports.is_bound(Port(port)) {
                    outputs.push(Output { port: Port(port), bytes: bytes.clone() });
                }
                false
            }
        };
        if changed {
            *layers = Layers::parse(&function.graph, bytes);
        }
    }
}

/// The context of a reference machine as words.
fn loaded(stage: &ContextStage, stateful: &flowloom_efsm::model::Stateful, found: &ModelContext) -> Context {
    let mut context = Context::initial(stage);
    let bases = crate::compile::register_words(stateful);
    for ((value, variable), base) in found.registers.iter().zip(&stateful.registers).zip(bases) {
        for index in 0..words_of(variable.ty.width_bits) {
            let at = usize::from(base + index);
            context.registers[at] = stage.registers[at].narrow.of((value >> (32 * u32::from(index))) as u32);
        }
    }
    context.state = found.state;
    context.idle_ns = found.idle_ns;
    context.idle_deadline_ns = found.idle_deadline_ns;
    context.hard_deadline_ns = found.hard_deadline_ns;
    context
}

impl Datapath for Overlay {
    fn name(&self) -> &str {
        "overlay"
    }

    fn bind_ports(&mut self, ports: &Ports) {
        self.ports = ports.clone();
    }

    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
        Ok(self.run(packet, choices))
    }

    fn chooses_victims(&self) -> bool {
        let evicts = |stage: &Stage| stage.context.as_ref().is_some_and(|context| context.policy != Policy::Reject);
        self.image.stages.iter().flatten().any(evicts)
    }

    fn evicted(&mut self) -> Vec<Eviction> {
        std::mem::take(&mut self.evicted)
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        for state in self.states.iter_mut().flatten() {
            state.table.retain(|found| !found.is_expired(now_ns));
        }
        Ok(())
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        let mut snapshot = Snapshot::default();
        let (offsets, mut data) = layout::globals(&self.function);
        for (stage, state) in self.image.stages.iter().zip(&self.states) {
            let (Some(stage), Some(state)) = (stage, state) else { continue };
            let element = &self.function.elements[usize::from(stage.element)];
            let (Some(context), Some(stateful)) = (&stage.context, &element.stateful) else { continue };
            let bases = crate::compile::register_words(stateful);
            let mut entries = MapState::new();
            for (key, found) in state.table.entries() {
                let wide = |base: u8, width_bits: u8| {
                    (0..words_of(width_bits)).rev().fold(0_u128, |value, index| {
                        value << 32 | u128::from(found.registers[usize::from(base + index)])
                    }) & u128::MAX >> (128 - u32::from(width_bits))
                };
                let registers =
                    stateful.registers.iter().zip(&bases).map(|(variable, base)| wide(*base, variable.ty.width_bits));
                let model = ModelContext {
                    state: found.state,
                    registers: registers.collect(),
                    idle_deadline_ns: found.idle_deadline_ns,
                    idle_ns: found.idle_ns,
                    hard_deadline_ns: found.hard_deadline_ns,
                    touched_ns: 0,
                };
                let key = match &context.key {
                    Some(select) => select.bytes_of(key),
                    None => vec![0; layout::SINGLE_KEY_BYTES],
                };
                entries.insert(key, model.encode(stateful, &state.layout));
            }
            debug_assert!(entries.len() <= capacity(stateful));
            snapshot.maps.insert(element.name.clone(), entries);
            let mut at = 0;
            for (variable, &offset) in stateful.globals.iter().zip(&offsets[usize::from(stage.element)]) {
                let words = words_of(variable.ty.width_bits);
                let value = (0..words)
                    .rev()
                    .fold(0_u128, |value, index| value << 32 | u128::from(state.globals[at + usize::from(index)]));
                at += usize::from(words);
                let size = layout::size_bytes(variable) as usize;
                let offset = offset as usize;
                data[offset..offset + size].copy_from_slice(&value.to_le_bytes()[..size]);
            }
        }
        if !data.is_empty() {
            snapshot.maps.insert(layout::GLOBALS_MAP.to_owned(), MapState::from([(vec![0; 4], data)]));
        }
        Ok(snapshot)
    }

    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
        let mut reference = Reference::new(Arc::clone(&self.function));
        reference.restore(state)?;
        self.load(&reference);
        Ok(())
    }
}
