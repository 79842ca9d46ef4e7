// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The part of the parse graph that a function needs.
//!
//! A node is skipped if nothing after it can matter: no element needs those headers, or no row that needs them can be
//! reached with the headers that the packet has by then.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_wire::field::{CHECKSUMS, FieldId, Source};
use flowloom_wire::graph::{ETHERNET, Extent, Graph, Header, Slice};

use super::fields::{fields_used, mask_of};
use super::lowering::Lowering;
use super::steps;
use flowloom_efsm::model::{Condition, Element, Expr, NewValue, Relation, Row, Terminal, Variable, Wide, WriteTarget};

/// Limit on sets of known metadata per element; beyond it nothing is known there.
const MAX_KNOWN: usize = 16;

/// The needed part of the parse graph.
pub(super) struct Shape {
    /// Headers that are needed.
    pub(super) needed: u32,
    /// All sets of needed headers with which a parse can end.
    pub(super) masks: BTreeSet<u32>,
    /// Whether the protocol numbers of the outer and the inner IP packet are needed.
    pub(super) ip_proto: [bool; 2],
    /// Nodes on the way to needed headers or protocol numbers, or needed themselves.
    relevant: Vec<bool>,
    /// Of these, (node, headers before it) that need no parsing.
    pruned: BTreeSet<(usize, u32)>,
    /// Nodes after which the remaining length of the IP packet is read.
    pub(super) needs_length: Vec<bool>,
}

impl Shape {
    /// The needs of these elements. The first one is entered with the declared metadata, or with arbitrary metadata if
    /// `None`.
    pub(super) fn of(elements: &[Element], metadata: Option<&[Variable]>, first: usize, graph: &Graph) -> Shape {
        let uses = Uses {
            elements,
            rows: elements.iter().map(|e| e.rows.iter().map(RowUses::of).collect()).collect(),
            metadata,
            first,
        };
        Shape::new(needed(elements), protocols(elements), graph, Some(&uses))
    }

    /// The needs of these elements on any path, for a parser that knows nothing of their rows.
    pub(super) fn whole(elements: &[Element], graph: &Graph) -> Shape {
        Shape::new(needed(elements), protocols(elements), graph, None)
    }

    /// The part that leads to these headers and protocol numbers, restricted to what can matter to `uses`.
    pub(super) fn new(needed: u32, ip_proto: [bool; 2], graph: &Graph, uses: Option<&Uses<'_>>) -> Shape {
        let nodes = graph.nodes();
        let (mut relevant, mut needs_length) = (vec![false; nodes.len()], vec![false; nodes.len()]);
        // Nodes are in topological order.
        for (index, node) in nodes.iter().enumerate().rev() {
            relevant[index] = node.valid_after(0).any(|valid| valid & needed != 0)
                || node.next.ip_proto.is_some_and(|(scope, _)| ip_proto[scope as usize])
                || node.next.successors().any(|to| relevant[to]);
            needs_length[index] = node.next.successors().filter(|&to| relevant[to]).any(|to| match nodes[to].extent {
                Extent::Within | Extent::TotalWithin(_) | Extent::AfterWithin(_) => true,
                Extent::Open => needs_length[to],
                Extent::Total(_) | Extent::After(_) => false,
            });
        }
        let mut shape =
            Shape { needed, masks: BTreeSet::new(), ip_proto, relevant, pruned: BTreeSet::new(), needs_length };
        if let Some(uses) = uses {
            let mut ends =
                Ends { uses, shape: &shape, graph, known: Vec::new(), of_mask: BTreeMap::new(), memo: BTreeMap::new() };
            ends.from(ETHERNET, 0);
            shape.pruned = ends.pruned();
        }
        shape.masks = shape.all_masks(graph);
        shape
    }

    /// True if the parse needs the node when it is reached with these headers.
    pub(super) fn is_relevant(&self, node: usize, mask: u32) -> bool {
        self.relevant[node] && !self.pruned.contains(&(node, mask))
    }

    fn all_masks(&self, graph: &Graph) -> BTreeSet<u32> {
        let nodes = graph.nodes();
        let mut masks = BTreeSet::from([0]);
        let mut seen = BTreeSet::new();
        let mut todo = vec![(ETHERNET, 0u32)];
        while let Some((index, mask)) = todo.pop() {
            if !seen.insert((index, mask)) {
                continue;
            }
            masks.insert(mask);
            for after in nodes[index].valid_after(mask).map(|valid| valid & self.needed) {
                masks.insert(after);
                todo.extend(
                    nodes[index].next.successors().filter(|&to| self.is_relevant(to, after)).map(|to| (to, after)),
                );
            }
        }
        masks
    }
}

/// Whether the protocol numbers of the outer and the inner IP packet are needed.
fn protocols(elements: &[Element]) -> [bool; 2] {
    let mut ip_proto = [false; 2];
    for field in fields_used(elements) {
        if let Source::IpProto(scope) = field.source() {
            ip_proto[scope as usize] = true;
        }
    }
    ip_proto
}

/// Elements whose rows determine what can matter in a parse.
pub(super) struct Uses<'a> {
    elements: &'a [Element],
    /// Uses of each row, by element.
    rows: Vec<Vec<RowUses>>,
    /// The initial metadata, if known.
    metadata: Option<&'a [Variable]>,
    /// Index of the first element in the function.
    first: usize,
}

struct RowUses {
    /// For each field, the headers of which one makes it present.
    needs: Vec<u32>,
    /// Protocol numbers that it reads, by scope.
    protos: [bool; 2],
    /// All headers that it may need.
    headers: u32,
}

impl RowUses {
    fn of(row: &Row) -> RowUses {
        let fields = row.fields();
        let mut protos = [false; 2];
        for field in &fields {
            if let Source::IpProto(scope) = field.source() {
                protos[scope as usize] = true;
            }
        }
        let mut needs: Vec<u32> = fields.into_iter().map(mask_of).filter(|&mask| mask != 0).collect();
        needs.sort_unstable();
        needs.dedup();
        RowUses { needs, protos, headers: row_headers(row) }
    }
}

/// Metadata fields with known values.
type Known = BTreeMap<u16, u128>;

/// Reachable uses of the headers: element, row (`None` for its key) and headers.
type Effect = BTreeSet<(usize, Option<usize>, u32)>;

impl Uses<'_> {
    /// The uses that a packet with these headers can reach, and the protocol numbers that can matter to it.
    fn effect(&self, mask: u32) -> (Effect, [bool; 2]) {
        let has = |field: FieldId| mask_of(field) == 0 || mask & mask_of(field) != 0;
        let (mut effect, mut protos) = (Effect::new(), [false; 2]);
        let mut ask = |field: FieldId| {
            if let Source::IpProto(scope) = field.source() {
                protos[scope as usize] = true;
            }
        };
        let mut rows_ask = [false; 2];
        let mut entered: Vec<Vec<Known>> = vec![Vec::new(); self.elements.len()];
        let declared = (0..).zip(self.metadata.unwrap_or_default()).map(|(i, variable)| (i, variable.initial));
        entered[0].push(declared.collect());
        for (index, element) in self.elements.iter().enumerate() {
            let mut entries = std::mem::take(&mut entered[index]);
            if entries.len() > MAX_KNOWN {
                entries = vec![Known::new()];
            }
            for known in entries {
                let mut go = |terminal: &Terminal, known: Known| {
                    if let Terminal::Goto(to) = terminal
                        && let Some(entered) = entered.get_mut(usize::from(*to).wrapping_sub(self.first))
                        && !entered.contains(&known)
                    {
                        entered.push(known);
                    }
                };
                let otherwise = &element.otherwise.actions;
                go(
                    &otherwise.terminal,
                    after(otherwise.writes.iter().map(|write| (write.target, &write.value)), &known),
                );
                let key = element.stateful.as_ref().and_then(|stateful| stateful.key.as_ref());
                if let Some(key) = key {
                    if !key.fields().all(has) {
                        continue;
                    }
                    key.fields().for_each(&mut ask);
                    effect.insert((index, None, mask & key.fields().map(mask_of).fold(0, |a, b| a | b)));
                }
                for (number, (row, uses)) in element.rows.iter().zip(&self.rows[index]).enumerate() {
                    if !uses.needs.iter().all(|any| mask & any != 0)
                        || row.conditions.iter().any(|c| holds(c, &known) == Some(false))
                    {
                        continue;
                    }
                    rows_ask = [rows_ask[0] | uses.protos[0], rows_ask[1] | uses.protos[1]];
                    effect.insert((index, Some(number), mask & uses.headers));
                    let actions = &row.actions;
                    go(
                        &actions.terminal,
                        after(actions.writes.iter().map(|write| (write.target, &write.value)), &known),
                    );
                }
            }
        }
        (effect, [protos[0] | rows_ask[0], protos[1] | rows_ask[1]])
    }
}

/// Known metadata after these writes.
fn after<'a>(writes: impl Iterator<Item = (WriteTarget, &'a NewValue)>, known: &Known) -> Known {
    let mut after = known.clone();
    for (target, value) in writes {
        let WriteTarget::Metadata(i) = target else { continue };
        let value = match value {
            NewValue::Number { value, .. } => number(value, known),
            NewValue::Wide(Wide::Constant(value)) => Some(*value),
            NewValue::Wide(_) => None,
        };
        match value {
            Some(value) => drop(after.insert(i, value)),
            None => drop(after.remove(&i)),
        }
    }
    after
}

fn number(expr: &Expr, known: &Known) -> Option<u128> {
    match expr {
        Expr::Constant(value) => Some(u128::from(*value)),
        Expr::Metadata(i) => known.get(i).copied(),
        _ => None,
    }
}

/// Outcome of a comparison of known values.
fn holds(condition: &Condition, known: &Known) -> Option<bool> {
    let Condition::Compare { left, relation, right, .. } = condition else { return None };
    // Small numbers are the same in every width, signed or unsigned.
    let small = |expr| number(expr, known).filter(|&value| value < 1 << 7);
    let (left, right) = (small(left)?, small(right)?);
    match relation {
        Relation::Equal => Some(left == right),
        Relation::NotEqual => Some(left != right),
        _ => None,
    }
}

/// Outcomes of parses.
struct Ends<'a> {
    uses: &'a Uses<'a>,
    shape: &'a Shape,
    graph: &'a Graph,
    /// All distinct effects.
    known: Vec<(Effect, [bool; 2])>,
    of_mask: BTreeMap<u32, usize>,
    /// For a node and the headers before it: all effects that a packet can have from there, and the protocol numbers
    /// that are read on the way.
    memo: BTreeMap<(usize, u32), (BTreeSet<usize>, [bool; 2])>,
}

impl Ends<'_> {
    fn effect(&mut self, mask: u32) -> usize {
        if let Some(&number) = self.of_mask.get(&mask) {
            return number;
        }
        let effect = self.uses.effect(mask);
        let number = self.known.iter().position(|known| *known == effect).unwrap_or_else(|| {
            self.known.push(effect);
            self.known.len() - 1
        });
        self.of_mask.insert(mask, number);
        number
    }

    fn from(&mut self, index: usize, mask: u32) -> (BTreeSet<usize>, [bool; 2]) {
        if let Some(found) = self.memo.get(&(index, mask)) {
            return found.clone();
        }
        let node = &self.graph.nodes()[index];
        let mut protos = [false; 2];
        if let Some((scope, _)) = node.next.ip_proto {
            protos[scope as usize] = true;
        }
        let mut ends = BTreeSet::from([self.effect(mask)]);
        for after in node.valid_after(mask) {
            let after = after & self.shape.needed;
            ends.insert(self.effect(after));
            for to in node.next.successors().filter(|&to| self.shape.relevant[to]) {
                let (more, read) = self.from(to, after);
                ends.extend(more);
                protos = [protos[0] | read[0], protos[1] | read[1]];
            }
        }
        self.memo.insert((index, mask), (ends.clone(), protos));
        (ends, protos)
    }

    /// Nodes, with the headers before them, after which all paths have the same effect.
    fn pruned(&self) -> BTreeSet<(usize, u32)> {
        let all = self.memo.iter().filter(|(_, (ends, read))| {
            let mut ends = ends.iter();
            let (Some(&end), None) = (ends.next(), ends.next()) else { return false };
            let needs_length = self.known[end].1;
            (0..2).all(|scope| !(read[scope] && needs_length[scope]))
        });
        all.map(|(&at, _)| at).collect()
    }
}

/// Headers that these elements may need: those of their fields, and those with a checksum over written fields.
pub(super) fn needed(elements: &[Element]) -> u32 {
    let mut needed = fields_used(elements).into_iter().map(mask_of).fold(0, |a, b| a | b);
    needed |= elements.iter().flat_map(|e| &e.rows).map(row_headers).fold(0, |a, b| a | b);
    needed
}

/// The same for one row.
fn row_headers(row: &Row) -> u32 {
    let absent = row.conditions.iter().filter_map(Condition::absent);
    let mut needed = row.fields().into_iter().chain(absent).map(mask_of).fold(0, |a, b| a | b);
    needed |= steps::needed(&row.actions);
    let written: Vec<(Header, Slice)> = row.actions.fields_written().into_iter().flat_map(Lowering::places).collect();
    for checksum in &CHECKSUMS {
        let covers = |(header, slice): &(Header, Slice)| checksum.words_covered(*header) & slice.words() != 0;
        if written.iter().any(covers) {
            needed |= checksum.header.bit();
        }
    }
    needed
}
