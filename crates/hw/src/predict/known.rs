//! What a program's dataflow says of the maps that packets use, before anything runs.
//!
//! ```text
//!   v12 = call map_lookup_elem if v7 (buckets, v3 v4 v5 v6)     an access: where v7 holds, the key is v3 v4 v5 v6
//!   store if v20 (v12 + 8, v19)                                 a change: where v20 holds
//! ```
//!
//! Keys and conditions that come out of the packet alone are computed for many packets at once. Where a condition depends on
//! what a map holds, what is left of it without that may be computed: it holds wherever the condition does, and elsewhere too.

use std::collections::HashMap;

use flowloom_bpf::Program;
use flowloom_bpf::insn::helper;
use flowloom_ir::{Argument, Binary, Dataflow, Effect, Graph, Id, Input, Kind, Node};
use serde::Serialize;

use super::columns::is_pure;
use crate::{MapTiming, Scheme, Timing};

/// How deep choices within choices are looked at.
const MOST_NESTED: u32 = 6;
/// Bytes of a key that are put into one number.
const CHUNK_BYTES: usize = 8;

/// How it is known which key a packet uses, and whether it changes the entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Known {
    /// Not asked for: the scheme of the map costs nothing, whatever the keys.
    Unasked,
    /// By the traffic itself: every packet uses and changes every map.
    Flows,
    /// Out of the packet alone; exact.
    Packet,
    /// Out of the packet alone; where a condition depends on what maps hold, it is taken to hold.
    Assumed,
    /// The program was run, packet after packet; exact, for packets that take effect in the order in which they come.
    Run,
}

impl Known {
    /// In a few words.
    pub fn as_str(self) -> &'static str {
        match self {
            Known::Unasked => "not needed",
            Known::Flows => "by flow",
            Known::Packet => "from the packet",
            Known::Assumed => "from the packet, at worst",
            Known::Run => "by running the program",
        }
    }
}

/// A use of a map with a key.
#[derive(Debug, Clone)]
pub(super) struct Access {
    /// The node of the effect.
    pub(super) effect: Id,
    pub(super) condition: Id,
    /// The key, in parts of at most 8 bytes; none where it is the only one of the map.
    pub(super) parts: Vec<Vec<Id>>,
    /// Each part as one number.
    pub(super) key: Vec<Id>,
}

/// A change of an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Change {
    pub(super) effect: Id,
    pub(super) condition: Id,
}

/// What packets do with a map.
#[derive(Debug, Clone)]
pub(super) struct Uses {
    pub(super) accesses: Vec<Access>,
    pub(super) changes: Vec<Change>,
    /// Whether all of it comes out of the packet alone, or keys do, or not even they.
    pub(super) known: Known,
}

/// What packets do with the maps of a timing, and what becomes of them.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// The program's graph, and conditions without what maps hold.
    pub(super) graph: Graph,
    pub(super) maps: Vec<Uses>,
    /// What the program returns, where that comes out of the packet alone.
    pub(super) verdict: Option<Id>,
    /// Where the packet begins and ends then.
    pub(super) ends: Option<(Id, Id)>,
}

impl Facts {
    /// What a dataflow says of the maps that a timing names.
    pub(super) fn of(program: &Program, dataflow: &Dataflow, timing: &Timing) -> Facts {
        let is_asked = |map: &MapTiming| matches!(map.scheme, Scheme::Schedule | Scheme::Flush);
        let number = |map: &MapTiming| program.maps.iter().position(|def| is_asked(map) && def.name == map.name);
        let numbers: Vec<Option<usize>> = timing.maps.iter().map(number).collect();
        let mut graph = dataflow.graph.clone();
        let mut maps = vec![Uses { accesses: Vec::new(), changes: Vec::new(), known: Known::Unasked }; numbers.len()];
        for at in dataflow.graph.ids() {
            let node = dataflow.graph.node(at);
            let Kind::Effect(effect) = node.kind else { continue };
            let Some((map, access, is_change)) = touched(dataflow, effect, &node.args) else { continue };
            let condition = node.args[0];
            for uses in maps.iter_mut().zip(&numbers).filter(|(_, own)| **own == Some(map)).map(|(uses, _)| uses) {
                if let Some(bytes) = &access {
                    let parts: Vec<Vec<Id>> = bytes.chunks(CHUNK_BYTES).map(<[Id]>::to_vec).collect();
                    let key = parts.iter().map(|part| joined(&mut graph, part, MOST_NESTED)).collect();
                    uses.accesses.push(Access { effect: at, condition, parts, key });
                }
                if is_change {
                    uses.changes.push(Change { effect: at, condition });
                }
            }
        }
        let mut pure = is_pure(&graph);
        let mut without_state = WithoutState { graph, pure: std::mem::take(&mut pure), done: HashMap::new() };
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

    /// Whether all packets that use a map do so with the same key.
    pub(super) fn is_shared(&self, map: usize) -> bool {
        let keys = self.maps[map]
            .accesses
            .iter()
            .map(|access| access.key.iter().map(|id| self.graph.as_const(*id)).collect::<Option<Vec<u64>>>());
        let mut keys = keys.collect::<Vec<_>>();
        keys.dedup();
        matches!(&keys[..], [Some(_)])
    }

    /// Whether a key of some map depends on what maps hold, so that the program has to run.
    pub(super) fn needs_run(&self) -> bool {
        self.maps.iter().any(|uses| uses.known == Known::Run)
    }
}

/// The maps of a timing of which all packets use the same entry, such as global variables.
pub fn shared_maps(program: &Program, dataflow: &Dataflow, timing: &Timing) -> Vec<bool> {
    let facts = Facts::of(program, dataflow, timing);
    (0..timing.maps.len()).map(|map| facts.is_shared(map)).collect()
}

/// The parts as one number. What is chosen byte by byte, always by the same conditions, is chosen as a whole.
fn joined(graph: &mut Graph, parts: &[Id], nested: u32) -> Id {
    let conditions = |graph: &Graph, id: Id| match graph.node(id) {
        Node { kind: Kind::Select, args, .. } => args.chunks_exact(2).map(|pair| pair[0]).collect(),
        _ => Vec::new(),
    };
    let all: Vec<Vec<Id>> = parts.iter().map(|part| conditions(graph, *part)).collect();
    let Some(own) = all.iter().find(|own| !own.is_empty()).cloned().filter(|_| nested > 0) else {
        return graph.concat(parts.to_vec());
    };
    // What is not chosen at all is the same either way.
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

/// How much of what packets do with a map comes out of them alone.
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

/// The map that an effect touches; the bytes or numbers of its key where it says one; whether it changes the entry.
fn touched(dataflow: &Dataflow, effect: Effect, args: &[Id]) -> Option<(usize, Option<Vec<Id>>, bool)> {
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
                    // What has no keys is one entry.
                    _ => Some((map, Some(Vec::new()), true)),
                };
            }
            None
        }
        Effect::Load(_) | Effect::Store(_) | Effect::Atomic(..) => {
            let base = dataflow.graph.node(*args.get(1)?);
            match base.kind {
                Kind::Input(Input::Only(map)) => Some((map as usize, Some(Vec::new()), is_change)),
                Kind::Effect(call) => touched(dataflow, call, &base.args).map(|(map, ..)| (map, None, is_change)),
                _ => None,
            }
        }
    }
}

/// Makes conditions that need no state: each holds at least where the one it was made of does.
struct WithoutState {
    graph: Graph,
    pure: Vec<bool>,
    done: HashMap<Id, Id>,
}

impl WithoutState {
    fn is_pure(&self, id: Id) -> bool {
        // What was made here is pure.
        self.pure.get(id.index()).copied().unwrap_or(true)
    }

    fn weaken(&mut self, id: Id) -> Id {
        if self.is_pure(id) {
            return id;
        }
        if let Some(known) = self.done.get(&id) {
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
        self.done.insert(id, weaker);
        weaker
    }

    /// Where a condition of it is not known, either way may be taken.
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
