// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maps of the core: which blocks they take, and in which stages those are asked and have their values.
//!
//! ```text
//!   written by packets    all accesses in one stage S; the block is asked some stages before
//!                         map3_value ──► map3_step0 ──► map3_step1 ──► written back at the end of S
//!   only read             a block for each lookup; its value travels from the end of the lookup to the last load
//! ```
//!
//! A map with one entry, such as the global variables of a program, is a register.
//!
//! `slice` renders the accesses; the host accesses a whole entry in a cycle in which no packet does.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use flowloom_ir::{Compare, Dataflow, Effect, Id, Input, Kind, Touch};
use flowloom_isa::limits::LOCK_BYTES;
use flowloom_isa::{MapKind, Program};
use flowloom_plan::{ARRAY_STAGES, HASH_STAGES, LPM_STAGES, MAX_PREFIXES, Plan, prefix_fanout};

use crate::error::RtlError;
use crate::needs::{Needs, begins, happens};
use crate::node::{is_lookup, is_travelling};
use crate::replay::{has_steps, is_step};
use crate::scheduler::may_use;
use crate::slice::{MAX_ENTRIES, low};

/// The bits of the flags of `redirect_map` that are the verdict for an absent key.
const ACTION_MASK: u64 = 3;
/// Flag of `redirect_map`: to all ports of the map.
const BROADCAST: u64 = 1 << 3;
/// Flag beside [`BROADCAST`]: except the ingress port.
const EXCLUDE_INGRESS: u64 = 1 << 4;
/// The bits of an entry of a map of ports: the port, and whether there is one, in bytes of their own.
const PORT_BITS: u32 = 40;

/// The bits of the key of a map of ports.
pub(crate) const PORT_KEY_BITS: u16 = 32;
/// The largest value, in bytes: a packet reads and writes it whole.
const MAX_VALUE_BYTES: u32 = 1 << 20;

/// The bits of a prefix length, before the address.
const LENGTH_BITS: u32 = 32;
/// The longest address of a prefix.
const MAX_ADDRESS_BITS: u32 = 128;

/// The lookups of an LRU map, which use its entry.
pub(crate) fn uses(dataflow: &Dataflow, own: &Map) -> Vec<Id> {
    let calls = own.tables.iter().filter(|_| own.is_lru).flat_map(|table| &table.calls);
    calls.copied().filter(|call| is_lookup(dataflow, *call)).collect()
}

/// The kinds of blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Block {
    /// An array, or a register for one entry.
    Array,
    /// A hash map, also one that evicts the entry with the least recent use.
    Hash,
    /// Longest prefix match.
    Lpm,
    /// An array of egress ports.
    Ports,
}

/// A map that is rendered.
#[derive(Debug)]
pub(crate) struct Map {
    pub(crate) map: u32,
    pub(crate) block: Block,
    /// Whether a full hash map evicts the entry with the least recent use.
    pub(crate) is_lru: bool,
    pub(crate) entries: u32,
    pub(crate) key_bits: u32,
    pub(crate) bits: u32,
    /// The state slice, if packets write the map.
    pub(crate) slice: Option<Slice>,
    /// The initial value of the register of a map with one entry.
    pub(crate) initial: Vec<u8>,
    /// The copies of the contents; none for a register.
    pub(crate) tables: Vec<Table>,
    /// The offset in bytes of the lock in each value, which updates clear.
    pub(crate) lock: Option<u32>,
    /// The last stage in which a packet reads the value at its lookup after it may have replaced it.
    pub(crate) old_until: Option<u32>,
    /// Its accesses by stage, in program order.
    pub(crate) accesses: BTreeMap<u32, Vec<Id>>,
    /// Whether its tables are partial arrays whose sum is the contents: packets only add to it, each table has a slice.
    pub(crate) is_summed: bool,
}

/// The stages in which a packet reads, changes and writes back an entry. If it is more than one, packets are kept apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slice {
    /// The stage in which the value is there.
    pub(crate) first: u32,
    /// The stage at whose end the result is written back.
    pub(crate) last: u32,
}

impl Slice {
    /// The cycles from the value to the result.
    pub(crate) fn delay(self) -> u32 {
        self.last - self.first
    }
}

/// A copy of the contents of a map, with a port to read.
#[derive(Debug)]
pub(crate) struct Table {
    /// The name of its signals.
    pub(crate) name: String,
    /// The calls that it serves, which have one key.
    pub(crate) calls: Vec<Id>,
    /// The stage in which its value is there.
    pub(crate) stage: u32,
    /// The last stage that uses its value.
    pub(crate) last: u32,
}

impl Table {
    /// The name of its value in a stage.
    pub(crate) fn value(&self, stage: u32) -> String {
        format!("{}_s{stage}{}", self.name, if stage == self.stage { "" } else { "_q" })
    }
}

impl Map {
    /// The name of its signals.
    pub(crate) fn name(&self) -> String {
        format!("map{}", self.map)
    }

    /// An error if the table does not fit, or a lookup is not by a whole address.
    fn prefixes(&self, dataflow: &Dataflow, id: Id) -> Result<(), RtlError> {
        let name = || dataflow.maps[self.map as usize].name.clone();
        let address_bits = self.key_bits.saturating_sub(LENGTH_BITS);
        if address_bits > MAX_ADDRESS_BITS {
            return Err(RtlError::Address { map: name(), found: address_bits, expected: MAX_ADDRESS_BITS });
        }
        if prefix_fanout(self.entries).is_none() {
            return Err(RtlError::Prefixes { map: name(), found: self.entries, expected: MAX_PREFIXES });
        }
        if dataflow.access(id).is_none_or(|access| access.touch != Touch::Lookup) {
            return Ok(());
        }
        let byte = |id: &Id| dataflow.graph.as_const(*id);
        let length = key(dataflow, id)[..4].iter().rev().try_fold(0, |all, id| Some(all << 8 | byte(id)?));
        match length {
            Some(length) if length == u64::from(address_bits) => Ok(()),
            found => {
                let insn = dataflow.graph.insn(id);
                Err(RtlError::Prefix { insn, map: name(), found, expected: address_bits })
            }
        }
    }

    /// Whether a byte of a value is one of the lock.
    pub(crate) fn is_lock(&self, byte: usize) -> bool {
        self.lock.is_some_and(|lock| (lock as usize..(lock + LOCK_BYTES) as usize).contains(&byte))
    }

    /// Whether the value at the lookups travels into a stage of the slice beside the one that the packet leaves.
    pub(crate) fn keeps_old_value(&self, stage: u32) -> bool {
        self.slice.is_some_and(|slice| slice.first < stage) && self.old_until.is_some_and(|until| stage <= until)
    }

    /// Whether an update of a packet may have replaced the entry before a stage.
    pub(crate) fn is_replaced_before(&self, dataflow: &Dataflow, stage: u32) -> bool {
        self.accesses.range(..stage).flat_map(|(_, ids)| ids).any(|id| is_update(dataflow, *id))
    }

    /// The last stage in which a load follows an update.
    fn last_old_load(&self, dataflow: &Dataflow) -> Option<u32> {
        let mut all = self.accesses.iter().flat_map(|(stage, ids)| ids.iter().map(move |id| (*stage, *id)));
        all.find(|(_, id)| is_update(dataflow, *id))?;
        let is_load = |id: &Id| dataflow.access(*id).is_some_and(|access| access.touch == Touch::Load);
        all.filter(|(_, id)| is_load(id)).map(|(stage, _)| stage).max()
    }

    fn write_in(&mut self, stage: u32) {
        let last = self.slice.map_or(stage, |slice| slice.last.max(stage));
        self.slice = Some(Slice { first: stage, last });
    }

    /// The name of the register of a map without tables.
    pub(crate) fn register(&self) -> String {
        format!("{}_q", self.name())
    }

    /// The table that serves a call.
    pub(crate) fn table(&self, call: Id) -> Option<&Table> {
        self.tables.iter().find(|table| table.calls.contains(&call))
    }

    pub(crate) fn index_bits(&self) -> u32 {
        // An array has two rows at least.
        u32::BITS - (self.entries.max(2) - 1).leading_zeros()
    }

    /// The cycles from key to value.
    pub(crate) fn cycles(&self) -> u32 {
        match self.block {
            Block::Array | Block::Ports => ARRAY_STAGES,
            Block::Hash => HASH_STAGES,
            Block::Lpm => LPM_STAGES,
        }
    }

    /// Whether the host names entries by keys.
    pub(crate) fn is_keyed(&self) -> bool {
        matches!(self.block, Block::Hash | Block::Lpm)
    }

    /// The cycles from the value to the result; 0 for a map that packets do not write.
    pub(crate) fn delay(&self) -> u32 {
        self.slice.map_or(0, Slice::delay)
    }

    /// The cycles after a packet in which no other packet with its key may ask the map (`hdl/table/fl_hash_map.sv`).
    pub(crate) fn hold_cycles(&self, dataflow: &Dataflow) -> u32 {
        match self.delay() {
            delay @ (0 | 1) if self.is_lru && self.changes(dataflow) => delay + 1,
            delay => delay,
        }
    }

    /// The stage in which packets ask a map that they write: from there to the result it must not be cut.
    pub(crate) fn asked(&self) -> u32 {
        match self.tables.first() {
            Some(table) => table.stage - self.cycles(),
            None => self.slice.map_or(0, |slice| slice.first),
        }
    }

    /// Whether packets insert or delete entries.
    pub(crate) fn changes(&self, dataflow: &Dataflow) -> bool {
        let touch = |id: &Id| dataflow.access(*id).map(|access| access.touch);
        self.accesses.values().flatten().any(|id| matches!(touch(id), Some(Touch::Update | Touch::Delete)))
    }
}

/// Whether an access updates an entry.
fn is_update(dataflow: &Dataflow, id: Id) -> bool {
    dataflow.access(id).is_some_and(|access| access.touch == Touch::Update)
}

/// All maps that the plan accesses, or the first access that has no rendering.
pub(crate) fn maps(plan: &Plan, program: &Program) -> Result<Vec<Map>, RtlError> {
    let dataflow = &plan.dataflow;
    let mut found: BTreeMap<u32, Map> = BTreeMap::new();
    for map in plan.replay.iter().flat_map(|replay| &replay.maps) {
        found.insert(*map, empty(dataflow, program, *map)?);
    }
    for id in dataflow.used() {
        let Some(access) = dataflow.access(id) else { continue };
        if is_travelling(dataflow, id) || is_step(plan, id) {
            continue;
        }
        if spread(dataflow, id).is_some() {
            continue;
        }
        let (insn, Some(map)) = (dataflow.graph.insn(id), access.map) else {
            return Err(RtlError::Effect { insn: dataflow.graph.insn(id), effect: effect_name(dataflow, id) });
        };
        let name = &dataflow.maps[map as usize].name;
        let is_entry = matches!(access.touch, Touch::Update | Touch::Delete) && flags(dataflow, id).is_some();
        if access.touch == Touch::RedirectMap && flags(dataflow, id).is_none_or(|flags| flags > ACTION_MASK) {
            let (map, found) = (name.clone(), flags(dataflow, id));
            return Err(RtlError::Flags { insn, map, found, spreads: can_spread(dataflow, access.map) });
        }
        let is_redirect = access.touch == Touch::RedirectMap;
        let is_value = matches!(access.touch, Touch::Lookup | Touch::Load | Touch::Store | Touch::Atomic);
        if !is_value && !is_entry && !is_redirect {
            return Err(RtlError::Effect { insn, effect: effect_name(dataflow, id) });
        }
        let own = match found.entry(map) {
            std::collections::btree_map::Entry::Occupied(own) => own.into_mut(),
            std::collections::btree_map::Entry::Vacant(vacant) => vacant.insert(empty(dataflow, program, map)?),
        };
        let node = dataflow.graph.node(id);
        if is_entry && own.block != Block::Hash {
            return Err(RtlError::Effect { insn, effect: effect_name(dataflow, id) });
        }
        if own.block == Block::Lpm {
            own.prefixes(dataflow, id)?;
        }
        if is_entry || is_redirect || access.touch == Touch::Lookup {
            own.tables.push(Table { name: String::new(), calls: vec![id], stage: 0, last: 0 });
        }
        if is_entry {
            let stage = happens(plan, id);
            own.write_in(stage);
            own.accesses.entry(stage).or_default().push(id);
            continue;
        }
        if own.is_lru && access.touch == Touch::Lookup {
            // A use changes the order.
            own.write_in(plan.schedule.spans[id.index()].ends.stage);
        }
        if is_redirect || access.touch == Touch::Lookup {
            continue;
        }
        let base = dataflow.graph.node(node.args[1]).kind;
        let is_direct = matches!(base, Kind::Input(Input::Only(only)) if only == map)
            || dataflow.access(node.args[1]).is_some_and(|base| base.touch == Touch::Lookup);
        if !is_direct {
            return Err(RtlError::Joined { insn, map: name.clone() });
        }
        if place(dataflow, id).is_none_or(|(first, len)| first + len > own.bits) {
            return Err(RtlError::Offset { insn, map: name.clone() });
        }
        let stage = match access.touch {
            Touch::Load => begins(plan, id),
            _ => happens(plan, id),
        };
        if plan.schedule.spans[node.args[0].index()].ends.stage > stage {
            return Err(RtlError::Speculated { insn, map: name.clone() });
        }
        if access.touch != Touch::Load {
            own.write_in(stage);
        }
        own.accesses.entry(stage).or_default().push(id);
    }
    for own in found.values_mut() {
        own.is_summed = plan.maps.iter().any(|planned| planned.map == own.map && planned.parts > 1);
        arrange(plan, own)?;
        own.old_until = own.last_old_load(dataflow);
        if own.tables.is_empty() && has_steps(plan, own.map) {
            // Only packets that run alone access it.
            let (name, stage) = (own.name(), own.cycles());
            own.tables.push(Table { name, calls: Vec::new(), stage, last: stage });
        }
    }
    joined(plan)?;
    Ok(found.into_values().collect())
}

/// An error if the address of an entry is used for more than to access the entry, to compare it with 0, or, in steps, with
/// another one.
fn joined(plan: &Plan) -> Result<(), RtlError> {
    let dataflow = &plan.dataflow;
    let graph = &dataflow.graph;
    for id in dataflow.used() {
        let node = graph.node(id);
        let is_tested =
            node.kind == Kind::Compare(Compare::Equal) && node.args.iter().any(|arg| graph.as_const(*arg) == Some(0));
        for (at, arg) in node.args.iter().enumerate().filter(|(_, arg)| is_lookup(dataflow, **arg)) {
            let is_base = at == 1 && matches!(node.kind, Kind::Effect(_));
            // Two entries that steps have looked up are compared by their keys.
            let map_of = |id: &Id| dataflow.access(*id).and_then(|access| access.map);
            let is_compared = node.kind == Kind::Compare(Compare::Equal)
                && node
                    .args
                    .iter()
                    .all(|other| is_step(plan, *other) && is_lookup(dataflow, *other) && map_of(other) == map_of(arg));
            if !is_tested && !is_base && !is_compared {
                let map = dataflow.access(*arg).and_then(|access| access.map).unwrap_or(0);
                return Err(RtlError::Joined { insn: graph.insn(id), map: dataflow.maps[map as usize].name.clone() });
            }
        }
    }
    Ok(())
}

fn empty(dataflow: &Dataflow, program: &Program, map: u32) -> Result<Map, RtlError> {
    let table = &dataflow.maps[map as usize];
    let block = match table.kind {
        MapKind::Array | MapKind::PerCpuArray => Block::Array,
        MapKind::Hash | MapKind::PerCpuHash | MapKind::LruHash | MapKind::LruPerCpuHash => Block::Hash,
        MapKind::LpmTrie => Block::Lpm,
        MapKind::Devmap | MapKind::Cpumap | MapKind::Xskmap => Block::Ports,
        kind => {
            let kind = kind.name().unwrap_or("unknown").to_owned();
            return Err(RtlError::Kind { map: table.name.clone(), kind });
        }
    };
    let definition = program.maps.get(map as usize);
    let initial = definition.and_then(|definition| definition.initial.clone());
    if table.value_bytes > MAX_VALUE_BYTES {
        let (map, found) = (table.name.clone(), table.value_bytes);
        return Err(RtlError::Value { map, found, expected: MAX_VALUE_BYTES });
    }
    let bits = if block == Block::Ports { PORT_BITS } else { 8 * table.value_bytes };
    let key_bits = 8 * table.key_bytes;
    let entries = match block {
        // There are no more keys.
        Block::Hash if key_bits < u32::BITS => table.max_entries.min(1 << key_bits),
        _ => table.max_entries,
    };
    if block == Block::Hash && entries > MAX_ENTRIES {
        return Err(RtlError::Entries { map: table.name.clone(), found: entries, expected: MAX_ENTRIES });
    }
    Ok(Map {
        map,
        block,
        is_lru: table.kind.is_lru(),
        entries,
        key_bits,
        bits,
        slice: None,
        initial: initial.unwrap_or_else(|| vec![0; table.value_bytes as usize]),
        tables: Vec::new(),
        lock: definition.and_then(|definition| definition.spin_lock),
        old_until: None,
        accesses: BTreeMap::new(),
        is_summed: false,
    })
}

/// The flags of a call, if they are constant and supported: of an update 0 to 2, of a redirect the verdict for an absent
/// key, 0 for calls without flags.
pub(crate) fn flags(dataflow: &Dataflow, call: Id) -> Option<u64> {
    let touch = dataflow.access(call)?.touch;
    let last = *dataflow.graph.node(call).args.last()?;
    match touch {
        Touch::Update => dataflow.graph.as_const(last).filter(|flags| *flags <= 2),
        Touch::RedirectMap => dataflow.graph.as_const(last),
        _ => Some(0),
    }
}

/// The map of a redirect to all its ports, and whether the ingress port is one of them.
pub(crate) fn spread(dataflow: &Dataflow, call: Id) -> Option<(u32, bool)> {
    let access = dataflow.access(call).filter(|access| access.touch == Touch::RedirectMap)?;
    let flags = flags(dataflow, call)?;
    let is_known = flags & !(ACTION_MASK | BROADCAST | EXCLUDE_INGRESS) == 0 && flags & BROADCAST != 0;
    let map = access.map.filter(|_| is_known && can_spread(dataflow, access.map));
    map.map(|map| (map, flags & EXCLUDE_INGRESS == 0))
}

/// Whether a map has ports to all of which a packet may be sent: CPUs and sockets have not.
fn can_spread(dataflow: &Dataflow, map: Option<u32>) -> bool {
    let kind = map.and_then(|map| dataflow.maps.get(map as usize)).map(|map| map.kind);
    matches!(kind, Some(MapKind::Devmap | MapKind::DevmapHash))
}

/// The bytes of the key of a call; of a redirect the key itself.
pub(crate) fn key(dataflow: &Dataflow, call: Id) -> Vec<Id> {
    match dataflow.access(call).map(|access| access.touch) {
        Some(Touch::RedirectMap) => vec![dataflow.graph.node(call).args[1]],
        _ => dataflow.key(call).unwrap_or_default().to_vec(),
    }
}

/// Decides which tables a map takes, and in which stages they have their values.
fn arrange(plan: &Plan, own: &mut Map) -> Result<(), RtlError> {
    let dataflow = &plan.dataflow;
    let name = dataflow.maps[own.map as usize].name.clone();
    let map = || name.clone();
    let first = own.accesses.first_key_value().map(|(stage, _)| *stage);
    if let (Some(slice), Some(first)) = (&mut own.slice, first) {
        (slice.first, slice.last) =
            (first, slice.last.max(*own.accesses.last_key_value().map_or(&0, |(stage, _)| stage)));
    }
    // The only entry of an array is a register.
    if own.block == Block::Array && own.entries == 1 {
        own.tables.clear();
    }
    if own.tables.is_empty() {
        return Ok(());
    }
    let calls: Vec<Id> = own.tables.drain(..).flat_map(|table| table.calls).collect();
    let keys: BTreeSet<Vec<Id>> = calls.iter().map(|call| key(dataflow, *call)).collect();
    let is_value = |id: &Id| {
        let touch = dataflow.access(*id).map(|access| access.touch);
        matches!(touch, Some(Touch::Load | Touch::Store | Touch::Atomic))
    };
    let base = |id: &Id| dataflow.graph.node(*id).args[1];
    let by_stage = own.accesses.clone();
    let accesses = || {
        let all = by_stage.iter().flat_map(|(stage, ids)| ids.iter().map(|id| (*stage, *id)));
        all.filter(|(_, id)| is_value(id)).map(|(stage, id)| (stage, base(&id)))
    };
    if accesses().any(|(_, base)| !calls.contains(&base)) {
        return Err(RtlError::Keys { map: map(), keys: keys.len() + 1 });
    }
    let (block, number) = (own.block, own.map);
    let name_of = |call: Id| format!("map{number}_v{}", call.index());
    let found = |id: Id| match block {
        Block::Ports => begins(plan, id) + plan.options.target.redirect_stages,
        Block::Array | Block::Hash | Block::Lpm => begins(plan, id) + plan.options.target.block_stages(dataflow, id),
    };
    own.tables = match own.slice {
        // Packets are kept apart by their keys, but many addresses have one prefix.
        Some(slice) if block == Block::Lpm && slice.delay() > 0 => {
            return Err(RtlError::Shared { map: map(), stages: slice.delay() + 1 });
        }
        // All are asked in one stage, and so the host sees each packet in all of them or in none.
        Some(slice) if own.is_summed && slice.delay() == 0 => {
            if let Some(late) = calls.iter().find(|call| found(**call) > slice.first) {
                return Err(RtlError::Early { map: map(), stage: found(*late) });
            }
            let table =
                |&call: &Id| Table { name: name_of(call), calls: vec![call], stage: slice.first, last: slice.first };
            calls.iter().map(table).collect()
        }
        Some(_) if keys.len() != 1 => return Err(RtlError::Keys { map: map(), keys: keys.len() }),
        Some(ref mut slice) => {
            // A slice of several stages begins as soon as the value is there, so that the others need not wait.
            let lookups = calls.iter().filter(|id| is_lookup(dataflow, **id)).map(|id| found(*id));
            let known = lookups.min().unwrap_or(slice.first);
            if slice.delay() > 0 {
                slice.first = slice.first.min(known);
            }
            if known > slice.first {
                return Err(RtlError::Early { map: map(), stage: slice.first });
            }
            vec![Table { name: format!("map{}", own.map), calls, stage: slice.first, last: slice.first }]
        }
        None => {
            let last = |call: Id| {
                let loads = accesses().filter(|(_, base)| *base == call).map(|(stage, _)| stage);
                match block {
                    // The target of a redirect is an output.
                    Block::Ports => plan.schedule.stages,
                    // A lookup without a load takes a table too: the host needs all entries.
                    Block::Array | Block::Hash | Block::Lpm => loads.fold(found(call), u32::max),
                }
            };
            let table =
                |&call: &Id| Table { name: name_of(call), calls: vec![call], stage: found(call), last: last(call) };
            calls.iter().map(table).collect()
        }
    };
    let asked = |table: &&Table| {
        let known = table.calls.iter().filter(|call| !own.accesses.values().flatten().any(|id| id == *call));
        let first = known.map(|call| begins(plan, *call)).max();
        let key = key(dataflow, table.calls[0]);
        let ready = key.iter().map(|byte| plan.schedule.spans[byte.index()].ends.registered()).max();
        first.or(ready).unwrap_or(0) + own.cycles() > table.stage
    };
    match own.tables.iter().find(asked) {
        Some(table) => Err(RtlError::Early { map: map(), stage: table.stage }),
        None => Ok(()),
    }
}

/// Adds what the tables of a map need: the key in the stage that asks, and what redirects need in the end.
pub(crate) fn add_needs(plan: &Plan, own: &Map, needs: &mut Needs) {
    for table in own.tables.iter().filter(|table| !table.calls.is_empty()) {
        let asked = table.stage - own.cycles();
        for byte in key(&plan.dataflow, table.calls[0]) {
            needs.add(plan, byte, asked);
        }
        if own.block == Block::Array {
            needs.add(plan, table.calls[0], asked);
        }
        if own.block == Block::Hash && own.slice.is_some() && !has_steps(plan, own.map) {
            may_use(plan, own, asked).add_needs(plan, asked, needs);
        }
        for call in uses(&plan.dataflow, own) {
            let last = own.slice.map_or(table.stage, |slice| slice.last);
            needs.add(plan, plan.dataflow.graph.node(call).args[0], last);
        }
    }
}

/// The bits of the value that an access concerns: the first one, and their number.
pub(crate) fn place(dataflow: &Dataflow, id: Id) -> Option<(u32, u32)> {
    let node = dataflow.graph.node(id);
    let size = match node.kind {
        Kind::Effect(Effect::Load(size) | Effect::Store(size) | Effect::Atomic(_, size)) => size,
        _ => return None,
    };
    let offset = u32::try_from(dataflow.graph.as_const(node.args[2])?).ok()?;
    Some((8 * offset, 8 * size.bytes() as u32))
}

/// The name of an effect in an error.
fn effect_name(dataflow: &Dataflow, id: Id) -> String {
    match dataflow.graph.node(id).kind {
        Kind::Effect(Effect::Call { helper, .. }) => {
            format!("`{}`", flowloom_isa::helpers::name_of(helper).unwrap_or("an unknown helper"))
        }
        kind => format!("{kind:?}"),
    }
}

/// The key of a call, its first byte in the lowest bits.
pub(crate) fn index(dataflow: &Dataflow, lookup: Id, signal: &dyn Fn(Id) -> String) -> String {
    let bytes = key(dataflow, lookup);
    if dataflow.access(lookup).is_some_and(|access| access.touch == Touch::RedirectMap) {
        return low(dataflow, bytes[0], PORT_KEY_BITS, signal);
    }
    format!("{{{}}}", bytes.iter().rev().map(|byte| signal(*byte)).collect::<Vec<_>>().join(", "))
}

/// Whether a lookup in an array finds an entry.
pub(crate) fn hit(dataflow: &Dataflow, lookup: Id, signal: &dyn Fn(Id) -> String) -> String {
    let map = dataflow.access(lookup).and_then(|access| access.map);
    let entries = map.map_or(0, |map| dataflow.maps[map as usize].max_entries);
    let index = index(dataflow, lookup, signal);
    match dataflow.graph.as_const(dataflow.graph.node(lookup).args[0]) {
        Some(1) => format!("{index} < 32'd{entries}"),
        _ => format!("{} && {index} < 32'd{entries}", signal(dataflow.graph.node(lookup).args[0])),
    }
}

/// The signals of a map of which some bits may have no use.
pub(crate) fn partly_used(own: &Map) -> Vec<String> {
    let parts = match own.block {
        Block::Hash if own.is_lru => &["value", "present", "full", "wrote", "used", "evicts"][..],
        Block::Hash => &["value", "present", "full", "wrote"],
        _ => &["value", "wrote"],
    };
    let carried = own.slice.into_iter().flat_map(|slice| slice.first + 1..=slice.last);
    let carried = carried.flat_map(|stage| {
        let old = own.keeps_old_value(stage).then_some("old");
        parts.iter().copied().chain(old).map(move |part| format!("{}_{part}_s{stage}_q", own.name()))
    });
    let values = own.tables.iter().flat_map(|table| match own.slice {
        Some(_) if !own.is_summed => vec![format!("{}_value", own.name())],
        _ => (table.stage..=table.last).map(|stage| table.value(stage)).collect(),
    });
    let hash = ["room", "tight", "full", "count", "present", "host_present", "host_full", "host_key"];
    let hash = match own.block {
        Block::Hash => &hash[..],
        Block::Lpm => &hash[3..],
        Block::Array | Block::Ports => &[],
    };
    let present = own.tables.iter().flat_map(|table| hash.iter().map(move |suffix| format!("{}_{suffix}", table.name)));
    let others = own.tables.iter().skip(1);
    let unread = if own.block == Block::Lpm {
        &["host_valid", "host_value", "wants"][..]
    } else {
        &["host_valid", "host_value"]
    };
    let others = others.flat_map(|table| unread.iter().map(move |suffix| format!("{}_{suffix}", table.name)));
    carried.chain(values).chain(present).chain(others).collect()
}

/// The stages in which no packet may be for the host to access a register.
pub(crate) fn host_stages(own: &Map) -> std::ops::RangeInclusive<u32> {
    let stage = |access: Option<(&u32, &Vec<Id>)>| access.map_or(0, |(stage, _)| *stage);
    let (first, last) = (own.accesses.first_key_value(), own.accesses.last_key_value());
    own.slice.map_or(stage(first)..=stage(last), |slice| slice.first..=slice.last)
}

/// The stages from which a packet asks the first copy of a map to that from which it asks the last one; what packets see
/// changes while no packet is in them. The first one counts: at the end of its cycle the packet has asked.
pub(crate) fn between(own: &Map) -> Option<std::ops::RangeInclusive<u32>> {
    let asked = || own.tables.iter().map(|table| table.stage - own.cycles());
    let (first, last) = asked().min().zip(asked().max())?;
    // A copy of prefixes reads the value later.
    let late = if own.block == Block::Lpm { own.cycles() - ARRAY_STAGES } else { 0 };
    (first < last).then(|| first..=last + late)
}

/// The assignments of the ports of the host. `valid` is high while a packet is in one of the stages of [`between`], or of
/// [`host_stages`] where the map has one copy.
pub(crate) fn host(plan: &Plan, own: &Map, valid: &str) -> String {
    let (dataflow, name) = (&plan.dataflow, own.name());
    // A packet that runs alone reads all maps as they are when it begins. The port of a map with steps is its own, and so
    // is the answer that it awaits.
    let apart = if plan.replay.is_some() { " && !alone" } else { "" };
    let own_answer = if has_steps(plan, own.map) { " && !awaits" } else { "" };
    let Some(first) = own.tables.first() else {
        return format!(
            "  assign {name}_ready_o = !({valid}){apart};\n  assign {name}_valid_o = {name}_valid_i && {name}_ready_o;\n  \
             assign {name}_value_o = {name}_q;\n"
        );
    };
    let all: Vec<String> = own.tables.iter().map(|table| format!("{}_host_ready", table.name)).collect();
    let first = &first.name;
    let writes = match own.block {
        Block::Hash => Some(format!("{name}_operation_i inside {{3'd1, 3'd2, 3'd4, 3'd5}}")),
        Block::Array | Block::Ports => Some(format!("{name}_write_i")),
        Block::Lpm => None,
    };
    // A packet sees a change in all copies or in none.
    let whole = writes.filter(|_| between(own).is_some());
    let whole = whole.map_or(String::new(), |writes| format!(" && !({writes} && ({valid}))"));
    let mut text = format!(
        "  assign {name}_ready_o = {}{apart}{whole};\n  assign {name}_valid_o = {first}_host_valid{own_answer};\n",
        all.join(" && "),
    );
    if own.block == Block::Lpm {
        let busy: Vec<String> = own.tables.iter().map(|table| format!("{}_busy", table.name)).collect();
        let whole = between(own).map_or(String::new(), |_| format!(" && !({valid})"));
        _ = writeln!(text, "  assign {name}_goes = !({}){whole}{apart};", busy.join(" || "));
    }
    match own.is_summed {
        true => text.push_str(&summed(dataflow, own)),
        false => _ = writeln!(text, "  assign {name}_value_o = {first}_host_value;"),
    }
    if own.is_keyed() {
        for port in ["present", "full", "key"] {
            _ = writeln!(text, "  assign {name}_{port}_o = {first}_host_{port};");
        }
        _ = writeln!(text, "  assign {name}_count_o = {first}_count;");
    }
    if own.block == Block::Hash {
        let all: Vec<String> = own.tables.iter().map(|table| format!("{}_room", table.name)).collect();
        _ = writeln!(text, "  assign {name}_room_o = {};", all.join(" && "));
    }
    text
}

/// The value of an entry of partial arrays: the sum of each place that packets add to; of other bits, those of the first one,
/// which alone takes what the host writes.
fn summed(dataflow: &Dataflow, own: &Map) -> String {
    let name = own.name();
    let first = &own.tables[0].name;
    let places: BTreeSet<(u32, u32)> = own.accesses.values().flatten().filter_map(|id| place(dataflow, *id)).collect();
    let mut text = format!(
        "  // Each partial array has a part of each sum.\n  always_comb begin\n    {name}_value_o = {first}_host_value;\n"
    );
    for (low, bits) in places {
        let part = if bits == own.bits { String::new() } else { format!("[{low}+:{bits}]") };
        let all: Vec<String> = own.tables.iter().map(|table| format!("{}_host_value{part}", table.name)).collect();
        _ = writeln!(text, "    {name}_value_o{part} = {};", all.join(" + "));
    }
    text.push_str("  end\n");
    text
}

/// The signals that are high when the tables are ready after a reset.
pub(crate) fn ready(own: &Map) -> impl Iterator<Item = String> + '_ {
    own.tables.iter().map(|table| format!("{}_ready", table.name))
}

/// The signals that are high while packets may come; by the stage in which the table is asked.
pub(crate) fn room(own: &Map) -> impl Iterator<Item = (u32, String)> + '_ {
    let tables = own.tables.iter().filter(|_| own.block == Block::Hash);
    tables.map(|table| (table.stage - own.cycles(), format!("{}_room", table.name)))
}

/// The declarations of signals of the tables that stages before theirs read.
pub(crate) fn declarations(own: &Map) -> String {
    let declared = |table: &Table| match own.block {
        Block::Hash => format!("  logic {0}_room, {0}_tight;\n", table.name),
        Block::Lpm => format!("  logic {0}_wants, {0}_busy;\n", table.name),
        Block::Array | Block::Ports => String::new(),
    };
    let goes = (own.block == Block::Lpm).then(|| format!("  logic {}_goes;\n", own.name()));
    own.tables.iter().map(declared).chain(goes).collect()
}

/// The condition under which the host waits for a cycle without a packet. A map of prefixes takes a request at once and
/// waits later, except to read a row.
pub(crate) fn waits(own: &Map) -> String {
    match own.block {
        Block::Lpm => {
            let (name, wants) = (own.name(), &own.tables[0].name);
            format!(
                "({wants}_wants && !{name}_goes) || ({name}_valid_i && {name}_operation_i == 3'd3 && !{name}_ready_o)"
            )
        }
        Block::Array | Block::Hash | Block::Ports => format!("({0}_valid_i && !{0}_ready_o)", own.name()),
    }
}
