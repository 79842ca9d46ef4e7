// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What scouts do ahead of the lookups of a program, for the user.
//!
//! ```text
//!  12  lookup of `flows`   wave 1, the code goes on there      the key depends on the packet alone
//!  31  lookup of `hosts`   wave 2                              a lookup is before it on each path
//!  40  update of `flows`   none: scouts end at instruction 35  a helper with effects
//! ```
//!
//! The walk follows all paths of scouts, with the number of keys passed, into the functions that they call.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_isa::insn::helper;
use flowloom_isa::op::Op;
use flowloom_isa::{MapKind, check, helpers};
use flowloom_verifier::{Memory, Proof};
use flowloom_vm::inlined_loops;

use crate::batch::MAX_WAVES;
use crate::compiled::Source;
use crate::engine::{Jit, JitError};
use crate::iterations;

/// A lookup, update or deletion of an entry of a hash table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lookup {
    /// The slot of the call.
    pub insn: usize,
    /// The helper.
    pub helper: &'static str,
    /// The map.
    pub map: String,
    /// The waves of scouts that announce its key, from 1 on; paths to it differ in the keys before it.
    pub waves: Vec<usize>,
    /// True if the code resumes here after the first wave.
    pub resumes: bool,
    /// Why no wave announces it or, if one does, why the code does not go on here.
    pub obstacle: Option<Obstacle>,
}

/// What is in the way of scouts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Obstacle {
    /// The slot of the instruction, if there is a single one.
    pub insn: Option<usize>,
    /// What it does.
    pub kind: ObstacleKind,
}

/// Kinds of obstacles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ObstacleKind {
    /// More keys are before it than there are waves.
    Late,
    /// No scout reaches it: it is in a callback, or in a program that a tail call enters.
    Elsewhere,
    /// A call of a helper that a scout cannot make, or whose result depends on more than the packet.
    Helper(String),
    /// A store that may change more than the scout's stack.
    Store,
    /// A load of a value that packets change.
    Value,
    /// A call of a function of the program.
    Function,
    /// A loop without a small bound.
    Loop,
    /// Another instruction.
    Other,
}

impl std::fmt::Display for ObstacleKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ObstacleKind::Late => "later than the keys that are announced",
            ObstacleKind::Elsewhere => "no scout reaches it: it is in a callback or behind a tail call",
            ObstacleKind::Helper(name) => return write!(f, "a call of `{name}`"),
            ObstacleKind::Store => "a store to other memory than the own stack",
            ObstacleKind::Value => "a load of a value that packets change",
            ObstacleKind::Function => "a call of a function",
            ObstacleKind::Loop => "a loop without a small bound",
            ObstacleKind::Other => "an instruction that scouts do not run",
        })
    }
}

/// The walk along all paths of scouts.
struct Walk<'s, 'a> {
    source: &'s Source<'a>,
    /// By lookup, the numbers of keys before it.
    keys: BTreeMap<usize, BTreeSet<usize>>,
    /// Where scouts end before a key.
    stops: BTreeSet<usize>,
}

impl Walk<'_, '_> {
    /// Follows all paths; more keys than waves count as one more.
    fn run(&mut self) {
        // An instruction, the keys before it, and the function that it is in.
        let mut work = vec![(0, 0, 0)];
        let mut seen = BTreeSet::new();
        let mut returns: BTreeMap<usize, BTreeSet<(usize, usize)>> = BTreeMap::new();
        let mut exits: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        while let Some((at, before, function)) = work.pop() {
            let Some(op) = self.source.code[at].filter(|_| seen.insert((at, before, function))) else { continue };
            let mut after = before;
            match op {
                Op::Call { helper } if self.source.has_key(at) => {
                    self.keys.entry(at).or_default().insert(before);
                    if helper != helper::MAP_LOOKUP_ELEM {
                        self.stops.insert(at);
                        continue;
                    }
                    after = (before + 1).min(MAX_WAVES);
                }
                Op::Call { helper } if !self.source.is_inlined(at, helper) => {
                    self.stops.insert(at);
                    continue;
                }
                Op::Store { .. } | Op::Atomic { .. } if self.source.may_store_elsewhere(at) => {
                    self.stops.insert(at);
                    continue;
                }
                Op::CallLocal { distance } => {
                    let callee = (at as i64 + 1 + i64::from(distance)) as usize;
                    work.push((callee, before, callee));
                    returns.entry(callee).or_default().insert((at + 1, function));
                    let known = exits.get(&callee).into_iter().flatten();
                    work.extend(known.map(|keys| (at + 1, *keys, function)));
                    continue;
                }
                Op::Exit => {
                    exits.entry(function).or_default().insert(before);
                    let callers = returns.get(&function).into_iter().flatten();
                    work.extend(callers.map(|(next, caller)| (*next, before, *caller)));
                    continue;
                }
                _ => {}
            }
            work.extend(self.source.nexts(at, op).into_iter().map(|next| (next, after, function)));
        }
    }
}

impl Source<'_> {
    /// True if scouts make this call of a helper, which has no key.
    pub(crate) fn is_inlined(&self, at: usize, number: i32) -> bool {
        match number {
            helper::SPIN_LOCK
            | helper::SPIN_UNLOCK
            | helper::KTIME_GET_NS
            | helper::KTIME_GET_BOOT_NS
            | helper::KTIME_GET_COARSE_NS
            | helper::KTIME_GET_TAI_NS
            | helper::GET_SMP_PROCESSOR_ID => true,
            helper::MAP_LOOKUP_ELEM => self.map(at).is_some_and(|map| {
                let (def, stride) = (&self.maps[map], self.refs[map].stride as u64);
                matches!(def.kind, MapKind::Array | MapKind::PerCpuArray) && stride == u64::from(def.value_bytes)
            }),
            _ => false,
        }
    }

    /// True if a store may write the stack or something else, so that scouts end there.
    fn may_store_elsewhere(&self, at: usize) -> bool {
        let known = &self.proof.insns[at].memory;
        let on_stack = known.keys().filter(|memory| matches!(memory, Memory::Stack { .. })).count();
        on_stack > 0 && on_stack < known.len()
    }

    /// True if a path leads from an instruction to another one. `passes`: what of those between it may pass.
    fn leads(&self, from: usize, to: usize, passes: &dyn Fn(usize) -> bool) -> bool {
        let (mut seen, mut work) = (BTreeSet::new(), vec![from]);
        while let Some(at) = work.pop() {
            if at == to {
                return true;
            }
            let Some(op) = self.code[at].filter(|_| (at == from || passes(at)) && seen.insert(at)) else { continue };
            work.extend(self.nexts(at, op));
            if let Op::CallLocal { distance } = op {
                work.push((at as i64 + 1 + i64::from(distance)) as usize);
            }
        }
        false
    }

    /// Why scouts end at an instruction, or code does not go on after it.
    fn obstacle(&self, at: usize) -> Obstacle {
        let kind = match self.code[at] {
            _ if self.proof.loops.contains_key(&at) && !self.uncounted.contains(&at) => ObstacleKind::Loop,
            Some(Op::Call { helper }) => ObstacleKind::Helper(helpers::display_name(helper)),
            Some(Op::Store { .. } | Op::Atomic { .. }) => ObstacleKind::Store,
            Some(Op::Load { .. }) => ObstacleKind::Value,
            Some(Op::CallLocal { .. }) => ObstacleKind::Function,
            _ => ObstacleKind::Other,
        };
        Obstacle { insn: Some(at), kind }
    }

    /// Why code does not go on at a key of the first wave: an instruction on a path to it.
    fn why_not_resumed(&self, key: usize) -> Option<Obstacle> {
        let is_way = |at: usize| !self.has_key(at);
        let is_impure = |at: usize| self.code[at].is_some_and(|op| is_way(at) && !self.is_pure(at, op));
        let before = (0..self.code.len()).filter(|at| is_impure(*at) && self.leads(0, *at, &is_way));
        before.into_iter().find(|at| self.leads(*at, key, &is_way)).map(|at| self.obstacle(at))
    }

    /// The lookups of the program, in the order of their slots.
    fn lookups(&self) -> Vec<Lookup> {
        let mut walk = Walk { source: self, keys: BTreeMap::new(), stops: BTreeSet::new() };
        walk.run();
        let points = self.points();
        let lookup = |insn: usize| {
            let Some(Op::Call { helper }) = self.code[insn].filter(|_| self.proof.insns[insn].reached) else {
                return None;
            };
            let map = self.maps.get(self.table(insn)?)?.name.clone();
            let before = walk.keys.get(&insn);
            let waves: Vec<usize> =
                before.into_iter().flatten().filter(|keys| **keys < MAX_WAVES).map(|keys| keys + 1).collect();
            let resumes = waves.contains(&1) && points.iter().any(|point| point.at == insn);
            let obstacle = match (before, waves.first()) {
                (_, Some(1)) if resumes => None,
                (_, Some(1)) => self.why_not_resumed(insn),
                (_, Some(_)) => None,
                (Some(_), None) => Some(Obstacle { insn: None, kind: ObstacleKind::Late }),
                (None, None) => {
                    let stop = walk.stops.iter().find(|stop| **stop != insn && self.leads(**stop, insn, &|_| true));
                    let elsewhere = Obstacle { insn: None, kind: ObstacleKind::Elsewhere };
                    Some(stop.map_or(elsewhere, |stop| self.obstacle(*stop)))
                }
            };
            let helper = helpers::name_of(helper).unwrap_or_default();
            Some(Lookup { insn, helper, map, waves, resumes, obstacle })
        };
        (0..self.code.len()).filter(|at| self.has_key(*at)).filter_map(lookup).collect()
    }
}

impl Jit {
    /// What scouts do ahead of the lookups of the program, which has this proof.
    ///
    /// # Errors
    /// The program is invalid.
    pub fn lookups(&self, proof: &Proof) -> Result<Vec<Lookup>, JitError> {
        let program = self.program();
        let decoded = check::decoded(program)?;
        let (inlined, uncounted) = (inlined_loops(&decoded), iterations::uncounted(&decoded, &proof.loops));
        let source = Source {
            code: &decoded,
            proof,
            inlined: &inlined,
            uncounted: &uncounted,
            maps: &program.maps,
            refs: self.environment.space().refs(),
            helpers: &|_| 0,
            evicts: false,
            passes: false,
            is_first: true,
            points: Vec::new(),
            seconds: BTreeSet::new(),
        };
        Ok(source.lookups())
    }
}
