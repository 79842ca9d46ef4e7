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
//! Steps: [`shape`] finds the part of the parse graph that the function needs; [`parse`] emits it, split by the sets of
//! valid headers, so that each exit of the parser knows its set; [`key`] builds the flow key; [`element`] looks up the
//! context and checks its timers, [`lock`] excludes other CPUs meanwhile; [`tree`] turns the rows of a state into a
//! decision tree without redundant tests and each row into a body, one for stored and one for absent contexts (whose
//! registers are constants); [`context`] updates and stores; [`value`] computes expressions, [`condition`] compares;
//! [`actions`] and [`write`] change the packet and its checksums; [`log`] reports to user space; [`steps`] and
//! [`frame`] change the frame, which a later element parses again; [`regalloc`] assigns registers.
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
mod frame;
mod hash;
mod key;
mod liveness;
mod lock;
mod log;
mod parse;
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
mod write;

use std::collections::{BTreeMap, BTreeSet};

use flowloom_engine::Verdict;
use flowloom_isa::insn::{helper, jmp};
use flowloom_isa::{BPF_F_MMAPABLE, BPF_F_NO_PREALLOC, Insn, LineInfo, MapDef, MapKind, Program};
use flowloom_wire::field::FieldId;
use flowloom_wire::graph::{Graph, Header, Scope};

use flowloom_efsm::events;
use flowloom_efsm::layout::capacity;
use flowloom_efsm::layout::{self, Counter, CounterTable, RecordLayout, Timers};
use flowloom_efsm::model::{Element, Expr, Function, KeyPart, NewValue, Row, Terminal, Wide, Write, WriteTarget};
pub use place::SourceLine;
pub use unsupported::{UnsupportedFeature, unsupported_by_kernel};

use asm::{Builder, FP, Label, Op, Operand, R0, R1, R2, R3, R4, Reg, Size};
use lock::Locking;
use shape::Shape;
use tree::Facts;

/// ELF section of lowered programs.
const SECTION: &str = "xdp";
/// A licence that lets the program use every helper.
const LICENSE: &str = "Dual MIT/GPL";
/// Limit on virtual operations. A larger program is likely to exceed the verifier's limit of a million instructions.
const MOST_OPS: usize = 400_000;
/// Limit on virtual operations for trying the form that does not minimize the verifier's paths.
const MOST_OPS_UNMERGED: usize = 20_000;
/// Limit on instructions for keeping the form that does not minimize the verifier's paths.
const MOST_INSNS_UNMERGED: usize = 2500;
/// Limit on counters: the kernel's largest map value is 4 MiB.
const MOST_COUNTERS: u32 = 1 << 19;
const BPF_ANY: i32 = 0;
const BPF_NOEXIST: i32 = 1;
const BPF_EXIST: i32 = 2;
/// Flags of `redirect_map`: all ports except the ingress port.
const BROADCAST_EXCLUDE_INGRESS: u64 = 1 << 3 | 1 << 4;

/// Options of the lowering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LowerOptions {
    /// Count hits of rows, expiries and flows in separate maps, which [`crate::Coverage::from_snapshot`] reads.
    pub counters: bool,
    /// The program runs on interfaces, possibly on several CPUs at once and with an unbounded number of flows: packets
    /// lock the contexts that they may change, counters use atomic adds, and flows are not counted.
    pub attached: bool,
}

/// A function that cannot be lowered to eBPF.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LowerError {
    /// Keys, records and values do not fit the frame.
    #[error(
        "the program needs {found} bytes of stack, eBPF has {limit}; {at} needs most of it: shorten keys or contexts"
    )]
    Stack {
        /// Bytes needed.
        found: u32,
        /// Stack limit in bytes.
        limit: u32,
        /// The part that needs most: an element (key and context), an emitted packet, or a row (values).
        at: SourceLine,
    },
    /// The program would be too long.
    #[error(
        "the program would have {found} operations before register allocation, at most {limit} are allowed; \
         {at} has most of them: use fewer rows or states"
    )]
    TooLong {
        /// Number of operations.
        found: usize,
        /// Largest allowed number.
        limit: usize,
        /// The row with most operations, or the element if no row has a large part.
        at: SourceLine,
    },
    /// A jump is too far, and islands cannot bring its target into reach.
    #[error(
        "the program has {found} instructions, and a jump reaches {limit}, even with islands; {at} is the longest part: \
         use fewer rows, or split it"
    )]
    TooFar {
        /// Number of instructions.
        found: usize,
        /// Number of instructions that a jump can pass over.
        limit: usize,
        /// The row with most instructions.
        at: SourceLine,
    },
    /// The program is to run on interfaces, and the function needs something that no kernel offers.
    #[error("no kernel can run this: {feature}")]
    Kernel {
        /// The feature, its place in the source and the reason.
        feature: String,
    },
    /// The frame would grow by more than the headroom.
    #[error("the frame can grow by {found} bytes, XDP has {limit} bytes of headroom; {at} adds most of it: push less")]
    Headroom {
        /// Bytes that steps can add on some path through the elements.
        found: u32,
        /// Headroom in bytes.
        limit: u32,
        /// The row on this path that adds most.
        at: SourceLine,
    },
    /// The function has more counters than a map value holds.
    #[error(
        "the function has {found} counters of states and rows, a map holds {limit}; {at} has most of them: lower it without counters"
    )]
    Counters {
        /// Counters needed.
        found: u32,
        /// Limit on counters.
        limit: u32,
        /// The element with most of them.
        at: SourceLine,
    },
}

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
    if counters > MOST_COUNTERS {
        let at = at(place::of_most_counters(function));
        return Err(LowerError::Counters { found: counters, limit: MOST_COUNTERS, at });
    }
    let (growth, by) = steps::max_growth(function);
    if growth > frame::HEADROOM_BYTES {
        return Err(LowerError::Headroom { found: growth, limit: frame::HEADROOM_BYTES, at: at(by) });
    }
    let unmerged = emit(function, options, false)?;
    let unmerged = match unmerged.builder.ops.len() {
        ..=MOST_OPS_UNMERGED => Some(finish(unmerged)?).filter(|program| program.insns.len() <= MOST_INSNS_UNMERGED),
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
        ..Program::default()
    })
}

/// Instructions with their lines and maps.
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
    if found > MOST_OPS {
        let at = at(place::of_long_program(function, &lowering.builder.ops));
        return Err(LowerError::TooLong { found, limit: MOST_OPS, at });
    }
    Ok(lowering)
}

/// Assigns registers to virtual code and encodes it.
fn finish(lowering: Lowering<'_>) -> Result<Assembled, LowerError> {
    let Lowering { builder, maps, function, .. } = lowering;
    let (insns, lines) = regalloc::finish(builder, &function.source)?;
    Ok(Assembled { insns, lines, maps })
}

/// Labels, maps and layout of one element.
#[derive(Debug, Clone)]
struct ElementPlan {
    entry: Label,
    /// Entry for packets whose frame has changed since it was parsed, if there are any.
    reparse: Option<Label>,
    no_key: Label,
    map: Option<u32>,
    layout: Option<RecordLayout>,
    /// Timers that contexts in each state can have.
    timers: Vec<Timers>,
    /// Entries seen so far, with the facts that hold at each.
    entries: Vec<(Facts, Label)>,
    /// Classes of valid header sets that build the key in the same way, and the label of each class.
    key_classes: Vec<(Vec<u32>, Label)>,
    key_slot: i16,
    record_slot: i16,
    /// Offsets of the global registers in the data section.
    globals: Vec<u32>,
    seen: Option<u32>,
}

/// A function being lowered.
struct Lowering<'a> {
    function: &'a Function,
    graph: &'a Graph,
    builder: Builder,
    maps: Vec<MapDef>,
    plans: Vec<ElementPlan>,
    counters: Option<(u32, CounterTable)>,
    is_attached: bool,
    /// The program is large: the number of paths that the verifier follows matters more than the number of
    /// instructions. Paths to the same code carry no needless differences, and no code is duplicated per path.
    for_verifier: bool,
    globals_map: Option<u32>,
    ports_map: Option<u32>,
    /// The ring buffer of events; where lost events are counted, the next map holds their count.
    events_map: Option<u32>,
    /// All sets of needed headers with which a parse can end.
    masks: Vec<u32>,
    /// Headers that each element and those after it need.
    needed_from: Vec<u32>,
    /// Metadata fields that each element and those after it read in expressions.
    metadata_read_from: Vec<BTreeSet<u16>>,
    /// The XDP context, for steps that change the frame or send copies.
    ctx: Option<Reg>,
    /// Stack slot for emitted packets and event records.
    output_slot: i16,
    /// Exits for packets whose frame cannot be changed, by the locks held there.
    headroom_exit: BTreeMap<lock::HeldLocks, Label>,
    data: Reg,
    data_end: Reg,
    valid: Reg,
    /// Start of each header; mutually exclusive headers share a register.
    pointers: BTreeMap<Header, Reg>,
    now: Reg,
    port: Reg,
    packet_len: Reg,
    /// IP protocol numbers that are needed.
    ip_proto: BTreeMap<Scope, Reg>,
    /// Payload length of each TCP header, in bytes.
    payload_len: BTreeMap<Header, Reg>,
    /// High and low half of each metadata field.
    metadata: Vec<(Reg, Reg)>,
    fields: BTreeMap<(usize, FieldId), (Reg, Reg)>,
    /// Field values in memory byte order.
    raw_fields: BTreeMap<(usize, FieldId), (Reg, Reg)>,
    /// The packet's time in units of the given number of nanoseconds.
    clocks: BTreeMap<(usize, u64), Reg>,
    registers: BTreeMap<(usize, u16), (Reg, Reg)>,
    globals: BTreeMap<(usize, u16), (Reg, Reg)>,
    /// Shared code of rows with steps.
    tails: BTreeMap<actions::TailKey, actions::Tail>,
    path: Facts,
    locking: Locking,
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
        let shape_of = |first: usize| {
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
        let ctx = (changes_frame || copies::are_sent(function)).then(|| builder.reg());
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

    /// Registers in which a parse leaves its results for the elements.
    fn parse_results(&self) -> parse::ParseResults {
        parse::ParseResults {
            pointers: self.pointers.clone(),
            ip_proto: self.ip_proto.clone(),
            payload_len: self.payload_len.clone(),
        }
    }

    fn count(&mut self, element: usize, counter: Counter) {
        let Some((map, table)) = &self.counters else { return };
        let (map, offset) = (*map, table.index(element, counter) * 8);
        let b = &mut self.builder;
        let address = b.reg();
        b.push(Op::MapValue { dst: address, map, offset });
        let value = b.reg();
        if self.is_attached {
            b.set(value, 1);
            b.push(Op::AtomicAdd { size: Size::B8, base: address, offset: 0, src: value });
            return;
        }
        b.load(Size::B8, value, address, 0);
        b.alu64(flowloom_isa::insn::alu::ADD, value, Operand::Imm(1));
        b.store(Size::B8, address, 0, Operand::Reg(value));
    }

    /// Loads the map and the address of the key into the argument registers.
    fn map_arguments(&mut self, map: u32, key_slot: i16) {
        let b = &mut self.builder;
        b.push(Op::Map { dst: R1, map });
        b.copy(R2, FP);
        b.alu64(flowloom_isa::insn::alu::ADD, R2, Operand::Imm(key_slot.into()));
    }

    fn delete_context(&mut self, element: usize) {
        let plan = &self.plans[element];
        if let Some(map) = plan.map {
            let slot = plan.key_slot;
            self.map_arguments(map, slot);
            self.builder.call(helper::MAP_DELETE_ELEM, 2);
        }
    }

    /// Ensures that the packet's time is in its register on the rest of this path.
    fn ensure_now(&mut self) {
        if self.path.now_is_known {
            return;
        }
        let b = &mut self.builder;
        let known = b.label();
        if self.path.now_may_be_known {
            b.jump64(jmp::JNE, self.now, Operand::Imm(0), known);
        }
        b.call(helper::KTIME_GET_NS, 0);
        b.copy(self.now, R0);
        b.place(known);
        self.path.now_is_known = true;
    }

    fn exit(&mut self, verdict: Verdict) {
        self.release();
        self.builder.exit_with(verdict.number());
    }

    /// Emits the terminal action; `port` is its computed port, `reparse` means that the frame has changed since it was
    /// parsed.
    fn emit_terminal(&mut self, terminal: &Terminal, port: Option<Operand>, reparse: bool) {
        match terminal {
            Terminal::Drop => self.exit(Verdict::Drop),
            Terminal::Pass | Terminal::Punt => self.exit(Verdict::Pass),
            Terminal::Reply => self.exit(Verdict::Tx),
            Terminal::Flood => self.redirect(None, BROADCAST_EXCLUDE_INGRESS),
            Terminal::Goto(element) => {
                self.hand_over(usize::from(*element));
                let index = usize::from(*element);
                let entry = match self.plans[index].reparse.filter(|_| reparse) {
                    Some(reparse) => {
                        self.materialize_facts();
                        reparse
                    }
                    None => self.element_entry(index),
                };
                self.builder.goto(entry);
            }
            Terminal::Forward(_) => self.redirect(port, 0),
        }
    }

    /// Redirects to a port, or to the ports that the flags select.
    fn redirect(&mut self, port: Option<Operand>, flags: u64) {
        let Some(map) = self.ports_map else { return };
        self.release();
        let b = &mut self.builder;
        match port {
            Some(Operand::Reg(reg)) => b.copy(R2, reg),
            Some(Operand::Imm(imm)) => b.set(R2, u64::from(imm as u32)),
            None => b.set(R2, 0),
        }
        b.push(Op::Map { dst: R1, map });
        b.set(R3, flags);
        b.call(helper::REDIRECT_MAP, 3);
        b.push(Op::Exit);
    }

    /// All sets of valid headers with which a packet can reach the element, restricted to the headers needed from there
    /// on.
    fn masks(&self, element: usize) -> Vec<u32> {
        let masks: BTreeSet<u32> = self.masks.iter().map(|mask| mask & self.needed_from[element]).collect();
        masks.into_iter().collect()
    }

    /// Updates the element's map with the record in its slot; the result is in r0.
    fn insert_context(&mut self, element: usize, flags: i32) {
        let plan = self.plans[element].clone();
        let Some(map) = plan.map else { return };
        self.map_arguments(map, plan.key_slot);
        let b = &mut self.builder;
        b.copy(R3, FP);
        b.alu64(flowloom_isa::insn::alu::ADD, R3, Operand::Imm(plan.record_slot.into()));
        b.set(R4, flags as u64);
        b.call(helper::MAP_UPDATE_ELEM, 4);
    }

    /// Adds the key to the set of flows that were looked up. The value is ignored, so it is the key too.
    fn mark_seen(&mut self, element: usize) {
        let plan = self.plans[element].clone();
        let Some(map) = plan.seen else { return };
        self.map_arguments(map, plan.key_slot);
        let b = &mut self.builder;
        b.copy(R3, R2);
        b.set(R4, BPF_ANY as u64);
        b.call(helper::MAP_UPDATE_ELEM, 4);
    }
}

fn plain_map(name: &str, kind: MapKind, key_bytes: u32, value_bytes: u32, max_entries: u32, flags: u32) -> MapDef {
    MapDef { name: name.to_owned(), kind, key_bytes, value_bytes, max_entries, flags, ..MapDef::default() }
}

fn key_bytes(function: &Function, stateful: &flowloom_efsm::model::Stateful) -> u32 {
    layout::key_spec(function, stateful).map_or(layout::SINGLE_KEY_BYTES, |spec| spec.key_bytes()) as u32
}

/// All fields that rows, keys or actions of these elements read or write.
fn fields_used(elements: &[Element]) -> BTreeSet<FieldId> {
    let mut used = BTreeSet::new();
    for element in elements {
        used.extend(element.rows.iter().flat_map(Row::fields));
        if let Some(key) = element.stateful.as_ref().and_then(|s| s.key.as_ref()) {
            used.extend(key.fields());
        }
    }
    used
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

/// All metadata fields that these elements read.
fn metadata_read(elements: &[Element]) -> BTreeSet<u16> {
    let keys = elements.iter().filter_map(|element| element.stateful.as_ref()?.key.as_ref());
    let of_key = |part: &KeyPart| match *part {
        KeyPart::Metadata(i) => Some(i),
        KeyPart::Field(_) => None,
    };
    let mut read: BTreeSet<u16> = keys.flat_map(|key| key.parts.iter().filter_map(of_key)).collect();
    for row in elements.iter().flat_map(|element| &element.rows) {
        for expr in row.exprs() {
            expr.walk(&mut |e| {
                if let Expr::Metadata(i) = e {
                    read.insert(*i);
                }
            });
        }
        read.extend(row.wides().into_iter().filter_map(|wide| match wide {
            Wide::Metadata(i) => Some(i),
            _ => None,
        }));
    }
    read
}

/// Constant metadata writes of the `otherwise` block.
fn constant_metadata(writes: &[Write]) -> Vec<(u16, u128)> {
    let constant = |value: &NewValue| match value {
        NewValue::Number { value: Expr::Constant(c), .. } => Some(u128::from(*c)),
        NewValue::Wide(Wide::Constant(c)) => Some(*c),
        _ => None,
    };
    let writes = writes.iter().filter_map(|write| match write.target {
        WriteTarget::Metadata(i) => Some((i, constant(&write.value)?)),
        WriteTarget::Field(_) => None,
    });
    writes.collect()
}
