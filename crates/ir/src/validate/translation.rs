// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Translation validation of a pass: the relation between the dataflow before and after it.
//!
//! ```text
//!   before                                  after
//!   v9  store w  @14 if v4                  v7 store w  @14 if v3       the same effects of each sequence
//!   v12 load w   @15 if v6 (unused)                                     an unused effect without side effects
//!   v15 call     @20 if v8                                              LostEffect
//! ```
//!
//! **Steps.** Redirects, the other effects of each map, and those of no map are sequences. Effects are matched by
//! operation and instruction. An effect that is not matched must be unused and without side effects, or a lookup that
//! was merged into another one. Effects that changed places must not conflict. Then waits and the slow-path bit are
//! compared.
//!
//! **Limits.** Values and predicates are not compared: [`Evaluator`](crate::Evaluator) runs both forms on packets.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_isa::op::AtomicOp;
use rustc_hash::{FxHashMap, FxHashSet};

use super::invalid::Invalid;
use crate::access::{Access, Touch};
use crate::dataflow::Dataflow;
use crate::graph::{Binary, Effect, Id, Kind};
use crate::pass::{depends_on, differ};
use crate::predicates::Predicates;

/// The most pairs of effects in a new order that are compared.
const MAX_PAIRS: usize = 1_000_000;

/// An invariant that a pass has broken. Nodes are those before the pass unless said otherwise.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs)]
pub enum Mistranslation {
    /// The result is not well-formed.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// Name, maps or patterns changed.
    #[error("the {part} of the program changed")]
    Definitions { part: &'static str },
    /// Outputs appeared or vanished.
    #[error("the {part} of the packet that leaves changed")]
    Outputs { part: &'static str },
    /// An effect that did not reach the result.
    #[error("effect {effect} of instruction {insn} is lost")]
    LostEffect { effect: Id, insn: usize },
    /// An effect of the result that has no origin: invented, duplicated, or changed.
    #[error("effect {effect} of instruction {insn} after the pass is not one before it")]
    NewEffect { effect: Id, insn: usize },
    /// Two conflicting effects that changed places.
    #[error("effects {first} and {second} conflict and change places")]
    Reordered { first: Id, second: Id },
    /// A side effect that packets of the slow path have as well.
    #[error("effect {effect} after the pass happens for packets of the slow path")]
    SlowEffect { effect: Id },
    /// A read that may overtake a write.
    #[error("a read of instruction {read} no longer waits for the write of instruction {write}")]
    LostWait { read: usize, write: usize },
    /// An access of the result that may overtake a write, where reads are no longer in program order.
    #[error("{read} after the pass accesses what {write} may have written, and does not wait for it")]
    MissingWait { read: Id, write: Id },
}

/// The invariants that a pass has broken: its result is well-formed ([`Dataflow::validate`]), and has the effects,
/// waits and outputs of the dataflow before it.
///
/// # Cost
/// Linear in the nodes; quadratic in the effects that changed places, up to a million pairs.
pub fn mistranslations(before: &Dataflow, after: &Dataflow) -> Vec<Mistranslation> {
    let mut found: Vec<Mistranslation> = after.validate().into_iter().map(Mistranslation::from).collect();
    if !found.is_empty() {
        return found;
    }
    let definitions = [
        ("name", before.name == after.name),
        ("maps", before.maps == after.maps),
        ("patterns", before.patterns == after.patterns),
    ];
    let changed = definitions.into_iter().filter(|(_, is_same)| !is_same);
    found.extend(changed.map(|(part, _)| Mistranslation::Definitions { part }));
    let offsets = |dataflow: &Dataflow| dataflow.ending.packet.keys().copied().collect::<Vec<i64>>();
    let overlays = |dataflow: &Dataflow| {
        let overlays = dataflow.ending.overlays.iter();
        overlays.map(|overlay| overlay.bytes.keys().copied().collect()).collect::<Vec<Vec<i64>>>()
    };
    let outputs = [
        ("bytes", offsets(before) == offsets(after)),
        ("overlays", overlays(before) == overlays(after)),
        ("end", before.ending.kept.is_some() == after.ending.kept.is_some()),
    ];
    let changed = outputs.into_iter().filter(|(_, is_same)| !is_same);
    found.extend(changed.map(|(part, _)| Mistranslation::Outputs { part }));
    if found.is_empty() {
        effects(before, after, &mut found);
        lost_waits(before, after, &mut found);
        slow_effects(before, after, &mut found);
    }
    found
}

/// What identifies an effect across a pass: its operation and its instruction. Iterations of a loop have the same.
type Origin = (Kind, usize);

fn origin(dataflow: &Dataflow, effect: Id) -> Origin {
    let kind = match dataflow.graph.node(effect).kind {
        // A store may become an atomic addition.
        Kind::Effect(Effect::Atomic(AtomicOp::Add { fetch: false }, size)) => Kind::Effect(Effect::Store(size)),
        kind => kind,
    };
    (kind, dataflow.graph.insn(effect))
}

/// Which effects form a sequence: redirects, or the others of a map or of none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Sequence {
    Redirects,
    Of(Option<u32>),
}

/// The effects of each sequence in order.
fn sequences(dataflow: &Dataflow) -> BTreeMap<Sequence, Vec<Id>> {
    let mut effects: BTreeMap<Sequence, Vec<Id>> = BTreeMap::new();
    for id in dataflow.graph.ids() {
        if let Some(access) = dataflow.access(id) {
            let of = if access.redirects() { Sequence::Redirects } else { Sequence::Of(access.map) };
            effects.entry(of).or_default().push(id);
        }
    }
    effects
}

fn effects(before: &Dataflow, after: &Dataflow, found: &mut Vec<Mistranslation>) {
    let (old, new) = (sequences(before), sequences(after));
    let all: BTreeSet<Sequence> = old.keys().chain(new.keys()).copied().collect();
    for of in all {
        let [old, new] = [&old, &new].map(|effects| effects.get(&of).map_or(&[][..], Vec::as_slice));
        if !is_in_order(before, after, old, new) {
            reordered(before, after, old, new, found);
        }
    }
}

/// Whether an effect may be removed if its value is unused.
fn is_removable(before: &Dataflow, after: &Dataflow, effect: Id) -> bool {
    let access = before.access(effect).expect("the node is an effect");
    let is_merged =
        |access: Access| access.touch == Touch::Lookup && after.graph.ids().any(|id| after.access(id) == Some(access));
    before.is_idle(access) || is_merged(access)
}

/// Whether the effects after the pass are those before it in the same order, without removable ones.
fn is_in_order(before: &Dataflow, after: &Dataflow, old: &[Id], new: &[Id]) -> bool {
    let mut new = new.iter().copied().peekable();
    let is_kept = |id: &Id| {
        let is_same = new.next_if(|other| origin(before, *id) == origin(after, *other)).is_some();
        is_same || is_removable(before, after, *id)
    };
    old.iter().all(is_kept) && new.next().is_none()
}

/// Matches effects of which some may have changed places.
fn reordered(before: &Dataflow, after: &Dataflow, old: &[Id], new: &[Id], found: &mut Vec<Mistranslation>) {
    let mut rest: FxHashMap<Origin, Vec<Id>> = FxHashMap::default();
    old.iter().rev().for_each(|id| rest.entry(origin(before, *id)).or_default().push(*id));
    let mut order: Vec<Id> = Vec::new();
    for effect in new.iter().copied() {
        match rest.get_mut(&origin(after, effect)).and_then(Vec::pop) {
            Some(id) => order.push(id),
            None => found.push(Mistranslation::NewEffect { effect, insn: after.graph.insn(effect) }),
        }
    }
    let mut lost: Vec<Id> = rest.into_values().flatten().filter(|id| !is_removable(before, after, *id)).collect();
    lost.sort_unstable();
    found.extend(lost.into_iter().map(|effect| Mistranslation::LostEffect { effect, insn: before.graph.insn(effect) }));
    let mut predicates = Predicates::new(&before.graph);
    let pairs = order.iter().enumerate().flat_map(|(place, second)| {
        let overtaken = order[place + 1..].iter().filter(move |first| *first < second);
        overtaken.map(move |first| (*first, *second))
    });
    for (first, second) in pairs.take(MAX_PAIRS) {
        let [one, other] = [first, second].map(|id| before.graph.node(id).args[0]);
        if before.conflict(first, second) && !may_exclude(&mut predicates, before, one, other) {
            found.push(Mistranslation::Reordered { first, second });
        }
    }
}

/// Whether two predicates are mutually exclusive, or too complex to tell.
fn may_exclude(predicates: &mut Predicates, dataflow: &Dataflow, one: Id, other: Id) -> bool {
    predicates.exclude(&dataflow.graph, one, other) || predicates.is_full()
}

/// Waits by the origins of the read and of the write: as many reads wait after the pass as before it, without those
/// that were removed.
fn lost_waits(before: &Dataflow, after: &Dataflow, found: &mut Vec<Mistranslation>) {
    let waits = |dataflow: &Dataflow| {
        let mut waits: FxHashMap<(Origin, Origin), usize> = FxHashMap::default();
        for (read, writes) in &dataflow.waits {
            let origins: FxHashSet<Origin> = writes.iter().map(|write| origin(dataflow, *write)).collect();
            for write in origins {
                *waits.entry((origin(dataflow, *read), write)).or_default() += 1;
            }
        }
        waits
    };
    let reads = |dataflow: &Dataflow, read: Origin| {
        let effects = dataflow.graph.ids().filter(|id| matches!(dataflow.graph.node(*id).kind, Kind::Effect(_)));
        effects.filter(|id| origin(dataflow, *id) == read).count()
    };
    if before.waits.is_empty() {
        return;
    }
    let now = waits(after);
    for ((read, write), count) in waits(before) {
        let now = now.get(&(read, write)).copied().unwrap_or(0);
        let removed = || reads(before, read).saturating_sub(reads(after, read));
        if now < count && now + removed() < count {
            found.push(Mistranslation::LostWait { read: read.1, write: write.1 });
        }
    }
}

/// Once the window is chosen, no side effect happens for packets of the slow path.
fn slow_effects(before: &Dataflow, after: &Dataflow, found: &mut Vec<Mistranslation>) {
    let slow = after.ending.slow;
    if before.graph.as_const(before.ending.slow) != Some(0) || after.graph.as_const(slow) == Some(0) {
        return;
    }
    for effect in after.graph.ids() {
        let is_side_effect = after.access(effect).is_some_and(|access| !after.is_idle(access));
        if is_side_effect && !excludes(after, after.graph.node(effect).args[0], slow) {
            found.push(Mistranslation::SlowEffect { effect });
        }
    }
}

/// Whether a predicate is 0, the complement of a bit, or a conjunction with it.
fn excludes(dataflow: &Dataflow, predicate: Id, bit: Id) -> bool {
    let graph = &dataflow.graph;
    let is_not = |a: Id, b: Id| graph.node(a).kind == Kind::Not && graph.node(a).args[0] == b;
    let is_complement = |id: Id| is_not(id, bit) || is_not(bit, id);
    let node = graph.node(predicate);
    graph.as_const(predicate) == Some(0)
        || is_complement(predicate)
        || node.kind == Kind::Binary(Binary::And) && node.args.iter().any(|arg| is_complement(*arg))
}

/// The waits that are missing where loads no longer depend on stores: accesses that may be made before an earlier
/// insertion or deletion of an entry of the same map, which may be that of the access.
pub fn missing_waits(dataflow: &Dataflow) -> Vec<Mistranslation> {
    let graph = &dataflow.graph;
    let mut predicates = Predicates::new(graph);
    let mut changes: BTreeMap<u32, Vec<Id>> = BTreeMap::new();
    let mut found = Vec::new();
    for id in graph.ids() {
        let Some(Access { touch, map: Some(map) }) = dataflow.access(id) else { continue };
        let earlier = changes.entry(map).or_default();
        if matches!(touch, Touch::Update | Touch::Delete | Touch::Evict) {
            earlier.push(id);
            continue;
        }
        let waits = dataflow.waits.get(&id).map_or(&[][..], Vec::as_slice);
        let mut depends = |at: &usize| {
            let is_apart = |entry: Id, write: Id| differ(dataflow, map, entry, write);
            let exclude = |one: Id, other: Id| may_exclude(&mut predicates, dataflow, one, other);
            !waits.contains(&earlier[*at]) && depends_on(dataflow, id, (earlier, *at), is_apart, exclude)
        };
        let missing: Vec<usize> = (0..earlier.len()).filter(&mut depends).collect();
        found.extend(missing.into_iter().map(|at| Mistranslation::MissingWait { read: id, write: earlier[at] }));
    }
    found
}
