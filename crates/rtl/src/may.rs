// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Conditions that are known in an early stage and hold wherever a later one does.
//!
//! ```text
//!   v9 = is_udp & matches      is_udp is known in stage 4, matches in stage 12: in stage 4, v9 may hold if is_udp does
//! ```

use flowloom_ir::{Binary, Id, Kind};
use flowloom_plan::Plan;

use crate::needs::Needs;

/// The most nodes that are looked at for a condition.
const MAX_NODES: u32 = 64;

/// A condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum May {
    /// It holds.
    Always,
    /// It does not.
    Never,
    /// It holds where a node of one bit does.
    Node(Id),
    /// Where all of these hold.
    All(Vec<May>),
    /// Where one of these holds.
    Any(Vec<May>),
}

impl May {
    /// Where a node of one bit may hold, by what `is_known` says is known.
    pub(crate) fn of(plan: &Plan, id: Id, is_known: &dyn Fn(Id) -> bool) -> May {
        let mut left = MAX_NODES;
        node(plan, id, is_known, &mut left)
    }

    /// Where one of several conditions holds.
    pub(crate) fn any(all: impl IntoIterator<Item = May>) -> May {
        let mut some = Vec::new();
        for one in all {
            match one {
                May::Always => return May::Always,
                May::Never => {}
                May::Any(inner) => inner.into_iter().for_each(|one| {
                    if !some.contains(&one) {
                        some.push(one)
                    }
                }),
                one if some.contains(&one) => {}
                one => some.push(one),
            }
        }
        match some.len() {
            0 => May::Never,
            1 => some.remove(0),
            _ => May::Any(some),
        }
    }

    fn all(all: impl IntoIterator<Item = May>) -> May {
        let mut some = Vec::new();
        for one in all {
            match one {
                May::Never => return May::Never,
                May::Always => {}
                May::All(inner) => inner.into_iter().for_each(|one| {
                    if !some.contains(&one) {
                        some.push(one)
                    }
                }),
                one if some.contains(&one) => {}
                one => some.push(one),
            }
        }
        match some.len() {
            0 => May::Always,
            1 => some.remove(0),
            _ => May::All(some),
        }
    }

    /// Whether it holds, by the values of nodes.
    pub fn holds(&self, value: &dyn Fn(Id) -> u64) -> bool {
        match self {
            May::Always => true,
            May::Never => false,
            May::Node(id) => value(*id) & 1 == 1,
            May::All(all) => all.iter().all(|one| one.holds(value)),
            May::Any(all) => all.iter().any(|one| one.holds(value)),
        }
    }

    /// Adds the nodes that it reads in a stage.
    pub(crate) fn add_needs(&self, plan: &Plan, stage: u32, needs: &mut Needs) {
        match self {
            May::Always | May::Never => {}
            May::Node(id) => needs.add(plan, *id, stage),
            May::All(all) | May::Any(all) => all.iter().for_each(|one| one.add_needs(plan, stage, needs)),
        }
    }

    /// The expression.
    pub(crate) fn text(&self, signal: &dyn Fn(Id) -> String) -> String {
        let joined = |all: &[May], operator: &str| {
            let all: Vec<String> = all.iter().map(|one| one.text(signal)).collect();
            format!("({})", all.join(operator))
        };
        match self {
            May::Always => "1'b1".to_owned(),
            May::Never => "1'b0".to_owned(),
            May::Node(id) => signal(*id),
            May::All(all) => joined(all, " && "),
            May::Any(all) => joined(all, " || "),
        }
    }
}

fn node(plan: &Plan, id: Id, is_known: &dyn Fn(Id) -> bool, left: &mut u32) -> May {
    let graph = &plan.dataflow.graph;
    let Some(fewer) = left.checked_sub(1) else { return May::Always };
    *left = fewer;
    let node_of = graph.node(id);
    if graph.bits(id) != 1 {
        return May::Always;
    }
    match node_of.kind {
        Kind::Const(value) => {
            if value == 0 {
                May::Never
            } else {
                May::Always
            }
        }
        _ if is_known(id) => May::Node(id),
        Kind::Binary(Binary::And) => May::all(node_of.args.iter().map(|arg| node(plan, *arg, is_known, left))),
        Kind::Binary(Binary::Or) => May::any(node_of.args.iter().map(|arg| node(plan, *arg, is_known, left))),
        // Pairs of a condition and a value, then the value where no condition holds.
        Kind::Select => {
            let mut values = Vec::new();
            for pair in node_of.args.chunks(2) {
                values.push(match pair {
                    [when, value] => {
                        let value = node(plan, *value, is_known, left);
                        May::all([node(plan, *when, is_known, left), value])
                    }
                    _ => node(plan, pair[0], is_known, left),
                });
            }
            May::any(values)
        }
        _ => May::Always,
    }
}

#[cfg(test)]
mod tests {
    use super::May::{self, All, Always, Any, Never, Node};
    use flowloom_ir::Id;

    #[test]
    fn conditions_are_joined() {
        let [a, b] = [1, 2].map(|number| Node(Id::new(number)));
        assert_eq!(May::all([Always, a.clone()]), a);
        assert_eq!(May::all([Never, a.clone()]), Never);
        assert_eq!(May::any([Never, a.clone(), a.clone()]), a);
        assert_eq!(May::any([Always, a.clone()]), Always);
        assert_eq!(May::all([a.clone(), b.clone()]), All(vec![a.clone(), b.clone()]));
        assert_eq!(May::any([a.clone(), All(vec![a.clone(), b.clone()])]), Any(vec![a.clone(), All(vec![a, b])]));
    }
}
