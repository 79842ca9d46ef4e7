// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the dataflow of a program tells about the accesses of packets to maps, before it runs.
//!
//! ```text
//!   v12 = call map_lookup_elem if v7 (buckets, v3 v4 v5 v6)     an access: if v7 holds, with the key v3 v4 v5 v6
//!   store if v20 (v12 + 8, v19)                                 a write: if v20 holds
//! ```
//!
//! Keys and conditions that depend on the packet alone are evaluated for many packets at once. A condition that depends
//! on map contents is weakened to one that does not: it holds wherever the original does, and in further cases.

use std::collections::HashMap;

use flowloom_ir::{Argument, Binary, Dataflow, Effect, Graph, Id, Input, Kind, Node};
use flowloom_isa::Program;
use flowloom_isa::insn::helper;
use serde::Serialize;

use super::columns::is_pure;
use flowloom_plan::{MapTiming, Scheme, Timing};

/// The depth to which nested selects are examined.
const MAX_NESTED: u32 = 6;
/// The bytes of a key that are packed into one number.
const CHUNK_BYTES: usize = 8;

/// How the key of a packet, and whether it writes the entry, are determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// Not needed: the scheme of the map costs nothing with any keys.
    Unasked,
    /// Given by the traffic: every packet reads and writes every map.
    Flows,
    /// From the packet alone; exact.
    Packet,
    /// From the packet alone; conditions on map contents are assumed to hold.
    Assumed,
    /// By running the program packet by packet; exact for packets that take effect in the order of arrival.
    Run,
}

impl Known {
    /// A short description.
    pub fn as_str(self) -> &'static str {
        match self {
            Known::Unasked => "not needed",
            Known::Flows => "by flow",
            Known::Packet => "from the packet",
            Known::Assumed => "from the packet, worst case",
            Known::Run => "by running the program",
        }
    }
}

/// An access to a map with a key.
#[derive(Debug, Clone)]
pub(super) struct Access {
    pub(super) effect: Id,
    pub(super) condition: Id,
    /// The key, in parts of at most 8 bytes; none for a map with one entry.
    pub(super) parts: Vec<Vec<Id>>,
    /// Each part as one number.
    pub(super) key: Vec<Id>,
}

/// A write to an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    pub(super) effect: Id,
    pub(super) condition: Id,
}

/// The accesses of packets to a map.
#[derive(Debug, Clone)]
pub(super) struct Uses {
    pub(super) accesses: Vec<Access>,
    pub(super) changes: Vec<Change>,
    /// Whether keys and conditions depend on the packet alone, keys only, or not even keys.
    pub(super) known: Known,
}

/// The accesses to the maps of a timing, and the outputs.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// The graph of the program, with the weakened conditions.
    pub(super) graph: Graph,
    pub(super) maps: Vec<Uses>,
    /// The verdict, if it depends on the packet alone.
    pub(super) verdict: Option<Id>,
    /// The start and end of the packet on departure.
    pub(super) ends: Option<(Id, Id)>,
}

impl Facts {
    /// The accesses to the maps of a timing.
    pub(super) fn of(program: &Program, dataflow: &Dataflow, timing: &Timing) -> Facts {
        let needs_keys = |map: &MapTiming| matches!(map.scheme, Scheme::Schedule | Scheme::Flush);
        let number = |map: &MapTiming| program.maps.iter().position(|def| needs_keys(map) && def.name == map.name);
        let numbers: Vec<Option<usize>> = timing.maps.iter().map(number).collect();
        let mut graph = dataflow.graph.clone();
        let mut maps = vec![Uses { accesses: Vec::new(), changes: Vec::new(), known: Known::Unasked }; numbers.len()];
        for at in dataflow.graph.ids() {
            let node = dataflow.graph.node(at);
            let Kind::Effect(effect) = node.kind else { continue };
            let Some((map, access, is_change)) = map_access(dataflow, effect, &node.args) else { continue };
            let condition = node.args[0];
            for uses in maps.iter_mut().zip(&numbers).filter(|(_, own)| **own == Some(map)).map(|(uses, _)| uses) {
                if let Some(bytes) = &access {
                    let parts: Vec<Vec<Id>> = bytes.chunks(CHUNK_BYTES).map(<[Id]>::to_vec).collect();
                    let key = parts.iter().map(|part| joined(&mut graph, part, MAX_NESTED)).collect();
                    uses.accesses.push(Access { effect: at, condition, parts, key });
                }
                if is_change {
                    uses.changes.push(Change { effect: at, condition });
                }
            }
        }
        let pure = is_pure(&graph);
        let mut without_state = WithoutState { graph, pure, weakened: HashMap::new() };
        for (uses, number) in maps.iter_mut().zip(&numbers) {
            uses.known = if number.is_some() { known(uses, &without_state.pure) } else { Known::Unasked };
            let conditions = uses.accesses.iter_mut().map(|access| &mut access.condition);
            for condition in conditions.chain(uses.changes.iter_mut().map(|change| &mut change.condition)) {
                *condition = without_state.weaken(*condition);
            }
        }
        let ending = &dataflow.ending;
        let is_known = |id: Id| without_state.pure[id.index()];
        let verdict = Some(ending.verdict).filter(|id| is_known(*id));
        let ends = Some((ending.head, ending.tail)).filter(|(head, tail)| is_known(*head) && is_known(*tail));
        Facts { graph: without_state.graph, maps, verdict, ends }
    }

    /// Whether all packets that access a map use the same key.
    pub(super) fn is_shared(&self, map: usize) -> bool {
        let keys = self.maps[map]
            .accesses
            .iter()
            .map(|access| access.key.iter().map(|id| self.graph.as_const(*id)).collect::<Option<Vec<u64>>>());
        let mut keys = keys.collect::<Vec<_>>();
        keys.dedup();
        matches!(&keys[..], [Some(_)])
    }

    /// Whether a key depends on map contents, so that the program has to run.
    pub(super) fn needs_run(&self) -> bool {
        self.maps.iter().any(|uses| uses.known == Known::Run)
    }
}

/// By map of a timing, whether all packets access the same entry, as in global variables.
pub fn shared_maps(program: &Program, dataflow: &Dataflow, timing: &Timing) -> Vec<bool> {
    let facts = Facts::of(program, dataflow, timing);
    (0..timing.maps.len()).map(|map| facts.is_shared(map)).collect()
}

/// The parts as one number. Bytes selected by the same conditions are selected as a whole.
fn joined(graph: &mut Graph, parts: &[Id], nested: u32) -> Id {
    let conditions = |graph: &Graph, id: Id| match graph.node(id) {
        Node { kind: Kind::Select, args, .. } => args.chunks_exact(2).map(|pair| pair[0]).collect(),
        _ => Vec::new(),
    };
    let all: Vec<Vec<Id>> = parts.iter().map(|part| conditions(graph, *part)).collect();
    let Some(own) = all.iter().find(|own| !own.is_empty()).cloned().filter(|_| nested > 0) else {
        return graph.concat(parts.to_vec());
    };
    // Bytes that are not selected are the same in either arm.
    let count = all.iter().take_while(|other| other.is_empty() || **other == own).count();
    if count < parts.len() {
        let (first, rest) = (joined(graph, &parts[..count], nested), joined(graph, &parts[count..], nested));
        return graph.concat(vec![first, rest]);
    }
    let mut chosen = Vec::new();
    for way in 0..=own.len() {
        let value = |graph: &Graph, id: Id| match graph.node(id) {
            Node { kind: Kind::Select, args, .. } => args.get(2 * way + 1).or(args.last()).copied().unwrap_or(id),
            _ => id,
        };
        let values: Vec<Id> = parts.iter().map(|part| value(graph, *part)).collect();
        chosen.extend(own.get(way));
        chosen.push(joined(graph, &values, nested - 1));
    }
    graph.select(chosen)
}

/// How much about the accesses to a map depends on the packet alone.
fn known(uses: &Uses, pure: &[bool]) -> Known {
    let is_pure = |id: &Id| pure[id.index()];
    if !uses.accesses.iter().flat_map(|access| &access.key).all(is_pure) {
        return Known::Run;
    }
    let conditions = uses.accesses.iter().map(|access| access.condition);
    match conditions.chain(uses.changes.iter().map(|change| change.condition)).all(|id| is_pure(&id)) {
        true => Known::Packet,
        false => Known::Assumed,
    }
}

/// The map of an effect; the bytes or numbers of its key, if it has one; whether it writes the entry.
fn map_access(dataflow: &Dataflow, effect: Effect, args: &[Id]) -> Option<(usize, Option<Vec<Id>>, bool)> {
    let is_change = !matches!(effect, Effect::Load(_));
    match effect {
        Effect::Call { helper, pattern } => {
            let arguments = &dataflow.patterns.get(usize::from(pattern))?.arguments;
            let mut rest = &args[1..];
            let mut map = None;
            for argument in arguments {
                if let Argument::Map(index) = argument {
                    map = Some(*index as usize);
                    continue;
                }
                let (own, others) = rest.split_at_checked(argument.nodes())?;
                rest = others;
                let Some(map) = map else { continue };
                return match helper {
                    helper::MAP_LOOKUP_ELEM | helper::MAP_LOOKUP_PERCPU_ELEM | helper::REDIRECT_MAP => {
                        Some((map, Some(own.to_vec()), false))
                    }
                    helper::MAP_UPDATE_ELEM | helper::MAP_DELETE_ELEM => Some((map, Some(own.to_vec()), true)),
                    // A map without keys counts as one entry.
                    _ => Some((map, Some(Vec::new()), true)),
                };
            }
            None
        }
        Effect::Load(_) | Effect::Store(_) | Effect::Atomic(..) => {
            let base = dataflow.graph.node(*args.get(1)?);
            match base.kind {
                Kind::Input(Input::Only(map)) => Some((map as usize, Some(Vec::new()), is_change)),
                Kind::Effect(call) => map_access(dataflow, call, &base.args).map(|(map, ..)| (map, None, is_change)),
                _ => None,
            }
        }
    }
}

/// Weakens conditions so that they depend on no state: the result holds wherever the original does.
struct WithoutState {
    graph: Graph,
    pure: Vec<bool>,
    weakened: HashMap<Id, Id>,
}

impl WithoutState {
    fn is_pure(&self, id: Id) -> bool {
        // Nodes made here are pure.
        self.pure.get(id.index()).copied().unwrap_or(true)
    }

    fn weaken(&mut self, id: Id) -> Id {
        if self.is_pure(id) {
            return id;
        }
        if let Some(known) = self.weakened.get(&id) {
            return *known;
        }
        let node = self.graph.node(id).clone();
        let weaker = match (node.kind, &node.args[..]) {
            (Kind::Binary(Binary::And), [a, b]) if node.bits == 1 => {
                let (a, b) = (self.weaken(*a), self.weaken(*b));
                self.graph.and(a, b)
            }
            (Kind::Binary(Binary::Or), [a, b]) if node.bits == 1 => {
                let (a, b) = (self.weaken(*a), self.weaken(*b));
                self.graph.or(a, b)
            }
            (Kind::Select, parts) if node.bits == 1 => self.weaken_select(parts),
            _ => self.graph.number(1, 1),
        };
        self.weakened.insert(id, weaker);
        weaker
    }

    /// If a condition of it is unknown, either arm may be taken.
    fn weaken_select(&mut self, parts: &[Id]) -> Id {
        let Some((last, pairs)) = parts.split_last() else { return self.graph.number(1, 1) };
        let mut weaker = self.weaken(*last);
        for pair in pairs.chunks_exact(2).rev() {
            let value = self.weaken(pair[1]);
            weaker = if self.is_pure(pair[0]) {
                self.graph.select(vec![pair[0], value, weaker])
            } else {
                self.graph.or(value, weaker)
            };
        }
        weaker
    }
}

#[cfg(test)]
mod tests;
