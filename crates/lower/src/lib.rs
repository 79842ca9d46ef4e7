// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lowering: a function to eBPF that the kernel accepts.
//!
//! Goal: code of hand-written quality for this one function, with the effect that the reference machine defines.
//!
//! ```text
//!  before: the model                       after:
//!    key ip.src                              parse: only the headers that the function needs
//!    on a when l4.dport == 5123 -> b {..}    element: key on the stack, lookup, expiry, jump by state,
//!                                                     tests in row order, body (update, store, write, verdict)
//! ```
//!
//! Steps: `shape` finds the part of the parse graph that the function needs; `parse` emits it, split by the sets of
//! valid headers, so that each exit of the parser knows its set; `key` builds the flow key; `element` looks up the
//! context and checks its timers, `lock` excludes other CPUs meanwhile; `tree` turns the rows of a state into a
//! decision tree without redundant tests and each row into a body, one for stored and one for absent contexts (whose
//! registers are constants); `context` updates and stores; `value` computes expressions, `condition` compares;
//! `actions` and [`write`] change the packet and its checksums; `log` reports to user space; `steps` and
//! `frame` change the frame, which a later element parses again; `regalloc` assigns registers.
//!
//! Holds before: the model is checked. Holds after: the program is loop-free and terminates, accesses only
//! bounds-checked packet bytes, and leaves maps and packet as the machine does.
//!
//! Limits: several CPUs may handle contexts of one flow at a time only with [`LowerOptions::attached`]; 512 bytes of
//! stack bound the key, the record and spilled registers.

mod actions;
mod asm;
mod condition;
mod context;
mod copies;
mod element;
mod error;
mod facts;
mod fields;
mod frame;
mod hash;
mod key;
mod liveness;
mod lock;
mod locking;
mod log;
mod lowering;
mod maps;
mod options;
mod parse;
mod parser_call;
mod place;
mod reach;
mod regalloc;
mod search;
mod sets;
mod shape;
mod steps;
mod tree;
mod unsupported;
mod value;
mod window;
mod write;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use flowloom_engine::Verdict;
use flowloom_isa::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC, Insn, LineInfo, MapDef, MapKind, Program};
use flowloom_wire::graph::{Header, Scope};

use flowloom_efsm::events;
use flowloom_efsm::layout::capacity;
use flowloom_efsm::layout::{self, CounterTable, RecordLayout};
use flowloom_efsm::model::{Element, Function, Terminal};

pub use error::LowerError;
pub use options::{HeaderParser, LowerOptions};
pub use place::SourceLine;
pub use unsupported::{UnsupportedFeature, unsupported_by_kernel};

use asm::{Builder, Reg};
use facts::Facts;
use fields::metadata_read;
use locking::Locking;
use lowering::{ElementPlan, Lowering};
use maps::{key_bytes, plain_map};
use shape::Shape;

/// ELF section of lowered programs.
const SECTION: &str = "xdp";
/// A licence that lets the program use every helper.
const LICENSE: &str = "Dual MIT/GPL";
/// Limit on virtual operations. A larger program is likely to exceed the verifier's limit of a million instructions.
const MAX_OPS: usize = 400_000;
/// Limit on virtual operations for trying the form that does not minimize the verifier's paths.
const MAX_OPS_UNMERGED: usize = 20_000;
/// Limit on instructions for keeping the form that does not minimize the verifier's paths.
const MAX_INSNS_UNMERGED: usize = 2500;
/// Limit on counters: the kernel's largest map value is 4 MiB.
const MAX_COUNTERS: u32 = 1 << 19;

/// Lowers `function`.
///
/// # Errors
/// The program would exceed eBPF's frame, jump distance or map sizes.
pub fn lower(function: &Function, options: &LowerOptions) -> Result<Program, LowerError> {
    if let Some(feature) = unsupported::unsupported_by_kernel(function).first().filter(|_| options.attached) {
        return Err(LowerError::Kernel { feature: feature.render(function) });
    }
    let at = |span| SourceLine::of(&function.source, span);
    let counters = if options.counters { CounterTable::of(function).len() } else { 0 };
    if counters > MAX_COUNTERS {
        let at = at(place::of_most_counters(function));
        return Err(LowerError::Counters { found: counters, limit: MAX_COUNTERS, at });
    }
    let (growth, by) = steps::max_growth(function);
    if growth > frame::HEADROOM_BYTES {
        return Err(LowerError::Headroom { found: growth, limit: frame::HEADROOM_BYTES, at: at(by) });
    }
    let unmerged = emit(function, options, false)?;
    let unmerged = match unmerged.builder.ops.len() {
        ..=MAX_OPS_UNMERGED => Some(finish(unmerged)?).filter(|program| program.insns.len() <= MAX_INSNS_UNMERGED),
        _ => None,
    };
    let Assembled { insns, lines, maps } = match unmerged {
        Some(program) => program,
        None => finish(emit(function, options, true)?)?,
    };
    // Maps and programs share one namespace in an object.
    let mut name = function.name.clone();
    while maps.iter().any(|map| map.name == name) {
        name.push_str("_xdp");
    }
    Ok(Program {
        name,
        section: SECTION.to_owned(),
        insns,
        maps,
        lines,
        license: LICENSE.to_owned(),
        headers: (options.parser == HeaderParser::Target).then(|| Arc::clone(&function.graph)),
        ..Program::default()
    })
}

struct Assembled {
    insns: Vec<Insn>,
    lines: Vec<LineInfo>,
    maps: Vec<MapDef>,
}

/// Lowers the function to virtual code; with `for_verifier` in the form with the fewest paths for the verifier.
fn emit<'a>(function: &'a Function, options: &LowerOptions, for_verifier: bool) -> Result<Lowering<'a>, LowerError> {
    let at = |span| SourceLine::of(&function.source, span);
    let mut lowering = Lowering::new(function, *options, for_verifier);
    if lowering.builder.stack_bytes > regalloc::STACK_BYTES {
        let at = at(place::of_largest_frame(function));
        return Err(LowerError::Stack { found: lowering.builder.stack_bytes, limit: regalloc::STACK_BYTES, at });
    }
    lowering.emit();
    let found = lowering.builder.ops.len();
    if found > MAX_OPS {
        let at = at(place::of_long_program(function, &lowering.builder.ops));
        return Err(LowerError::TooLong { found, limit: MAX_OPS, at });
    }
    Ok(lowering)
}

/// Assigns registers to virtual code and encodes it.
fn finish(lowering: Lowering<'_>) -> Result<Assembled, LowerError> {
    let Lowering { builder, maps, function, .. } = lowering;
    let (insns, lines) = regalloc::finish(builder, &function.source)?;
    Ok(Assembled { insns, lines, maps })
}

impl<'a> Lowering<'a> {
    fn new(function: &'a Function, options: LowerOptions, for_verifier: bool) -> Lowering<'a> {
        let mut builder = Builder::new();
        let mut maps = Vec::new();
        let mut add_map = |map: MapDef| {
            maps.push(map);
            maps.len() as u32 - 1
        };
        let (global_offsets, data) = layout::globals(function);
        // A packet is in one element at a time, so all elements share the slots of key and record.
        let stateful = || function.elements.iter().filter_map(|e| Some((e, e.stateful.as_ref()?)));
        let key_slot = builder.stack(stateful().map(|(_, s)| key_bytes(function, s)).max().unwrap_or(0));
        let record_bytes = stateful().map(|(e, s)| RecordLayout::of(e, s).len_bytes).max();
        let record_slot = builder.stack(record_bytes.unwrap_or(0));
        // Key and record are dead when a packet or an event is built.
        let made_bytes = copies::longest_bytes(function).max(events::longest_bytes(function));
        let made_bytes = made_bytes.saturating_sub(builder.stack_bytes);
        let output_slot = builder.stack(made_bytes);
        let mut plans: Vec<ElementPlan> = Vec::new();
        for (element, globals) in function.elements.iter().zip(global_offsets) {
            let mut plan = ElementPlan {
                entry: builder.label(),
                reparse: steps::is_entered_with_changed_frame(function, plans.len()).then(|| builder.label()),
                no_key: builder.label(),
                entries: Vec::new(),
                map: None,
                layout: None,
                timers: Vec::new(),
                key_classes: Vec::new(),
                key_slot,
                record_slot,
                globals,
                seen: None,
            };
            if let Some(stateful) = &element.stateful {
                let record = RecordLayout::of(element, stateful);
                let key_bytes = key_bytes(function, stateful);
                plan.map = Some(add_map(MapDef {
                    name: element.name.clone(),
                    kind: MapKind::Hash,
                    key_bytes,
                    value_bytes: record.len_bytes,
                    max_entries: capacity(stateful) as u32,
                    flags: BPF_F_NO_PREALLOC,
                    layout: Some(record.describe(element, stateful)),
                    ..MapDef::default()
                }));
                plan.layout = Some(record);
                plan.timers = layout::timers(element, stateful);
            }
            plans.push(plan);
        }
        let globals_map = (!data.is_empty()).then(|| {
            add_map(MapDef {
                name: layout::GLOBALS_MAP.to_owned(),
                kind: MapKind::Array,
                key_bytes: 4,
                value_bytes: data.len() as u32,
                max_entries: 1,
                flags: BPF_F_MMAPABLE,
                initial: Some(data),
                ..MapDef::default()
            })
        });
        let forwards = |terminal: &Terminal| matches!(terminal, Terminal::Forward(_) | Terminal::Flood);
        let ports_map = function
            .elements
            .iter()
            .any(|e| forwards(&e.otherwise.actions.terminal) || e.rows.iter().any(|r| forwards(&r.actions.terminal)))
            .then(|| add_map(plain_map(layout::PORTS_MAP, MapKind::Devmap, 4, 4, layout::PORT_COUNT, 0)));
        let mut events_map = None;
        for map in log::maps(function, options.attached) {
            let index = add_map(map);
            events_map.get_or_insert(index);
        }
        let counters = options.counters.then(|| {
            let table = CounterTable::of(function);
            for (i, (element, plan)) in function.elements.iter().zip(&mut plans).enumerate() {
                if let Some(stateful) = element.stateful.as_ref().filter(|_| !options.attached) {
                    let name = layout::seen_map(i);
                    let map = plain_map(
                        &name,
                        MapKind::Hash,
                        key_bytes(function, stateful),
                        4,
                        layout::SEEN_ENTRIES,
                        BPF_F_NO_PREALLOC,
                    );
                    plan.seen = Some(add_map(map));
                }
            }
            let bytes = table.len() * 8;
            let hits = plain_map(layout::HITS_MAP, MapKind::Array, 4, bytes, 1, BPF_F_MMAPABLE);
            (add_map(MapDef { initial: Some(vec![0; bytes as usize]), ..hits }), table)
        });

        let mut locking = if options.attached { Locking::of(function, &mut builder) } else { Locking::default() };
        maps.extend(locking.map(maps.len() as u32));
        for (i, plan) in plans.iter().enumerate() {
            if let Some(layout) = plan.map.and_then(|map| maps[map as usize].layout.as_mut()) {
                layout.locks = locking.locks(i);
            }
        }

        let graph = &*function.graph;
        let asks = options.parser == HeaderParser::Target;
        let shape_of = |first: usize| {
            if asks {
                return Shape::whole(&function.elements[first..], graph);
            }
            let metadata = (first == 0).then_some(&function.metadata[..]);
            Shape::of(&function.elements[first..], metadata, first, graph)
        };
        let mut shape = shape_of(0);
        for (index, _) in plans.iter().enumerate().filter(|(_, plan)| plan.reparse.is_some()) {
            shape.masks.extend(shape_of(index).masks);
        }
        let changes_frame = function.elements.iter().flat_map(|e| &e.rows).any(|row| row.actions.changes_frame());
        let mut pointers: BTreeMap<Header, Reg> = BTreeMap::new();
        for header in Header::ALL {
            let excludes = |other: Header| !shape.masks.iter().any(|m| m & header.bit() != 0 && m & other.bit() != 0);
            let shared = pointers
                .values()
                .copied()
                .find(|&reg| pointers.iter().filter(|&(_, &r)| r == reg).all(|(&other, _)| excludes(other)));
            let reg = shared.unwrap_or_else(|| builder.reg());
            pointers.insert(header, reg);
        }
        builder.never_context = pointers.values().copied().collect();
        let ctx = (asks || changes_frame || copies::are_sent(function)).then(|| builder.reg());
        builder.contexts.extend(ctx);
        let metadata = function.metadata.iter().map(|_| (builder.reg(), builder.reg())).collect();
        let mut lowering = Lowering {
            function,
            graph,
            maps,
            plans,
            counters,
            is_attached: options.attached,
            for_verifier,
            parser: options.parser,
            globals_map,
            ports_map,
            events_map,
            masks: shape.masks.iter().copied().collect(),
            needed_from: from_each(&function.elements, |needed, element| needed | shape::needed(element)),
            metadata_read_from: from_each(&function.elements, |read: &BTreeSet<u16>, element| {
                read.union(&metadata_read(element)).copied().collect()
            }),
            ctx,
            output_slot,
            headroom_exit: BTreeMap::new(),
            data: builder.reg(),
            data_end: builder.reg(),
            valid: builder.reg(),
            pointers,
            now: builder.reg(),
            port: builder.reg(),
            packet_len: builder.reg(),
            ip_proto: [Scope::Outer, Scope::Inner]
                .into_iter()
                .filter(|&scope| shape.ip_proto[scope as usize])
                .map(|scope| (scope, builder.reg()))
                .collect(),
            payload_len: [Header::Tcp, Header::InnerTcp].map(|header| (header, builder.reg())).into(),
            metadata,
            fields: BTreeMap::new(),
            raw_fields: BTreeMap::new(),
            clocks: BTreeMap::new(),
            registers: BTreeMap::new(),
            globals: BTreeMap::new(),
            tails: BTreeMap::new(),
            path: Facts::default(),
            locking,
            builder,
        };
        let found = lowering.ip_proto.values().chain(lowering.payload_len.values()).copied();
        lowering.builder.never_context.extend(found);
        lowering
    }

    fn emit(&mut self) {
        for element in 0..self.function.elements.len() {
            self.plans[element].key_classes = self.key_classes(element);
        }
        self.emit_parse();
        for element in 0..self.function.elements.len() {
            self.emit_element(element);
        }
        for (held, label) in std::mem::take(&mut self.headroom_exit) {
            self.builder.place(label);
            self.path.held = held;
            self.exit(Verdict::Aborted);
        }
    }
}

/// Accumulates `add` over the suffix of elements that starts at each; `add` takes a slice of one element.
fn from_each<T: Clone + Default>(elements: &[Element], add: impl Fn(&T, &[Element]) -> T) -> Vec<T> {
    let mut sums = vec![T::default(); elements.len()];
    let mut sum = T::default();
    for index in (0..elements.len()).rev() {
        sum = add(&sum, &elements[index..=index]);
        sums[index].clone_from(&sum);
    }
    sums
}
