// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules on random graphs, and the graph's own simplifications.

use std::collections::BTreeMap;

use flowloom_testkit::Rng;

use super::drawn;
use super::weights::weight_of;
use crate::arith;
use crate::dataflow::{Dataflow, Ending};
use crate::graph::{Binary, Compare, Graph, Id, Input, Kind};
use crate::rules::apply::rewrite_by;
use crate::rules::instance::instances;
use crate::rules::term::{Bound, Env, Maker, build};
use crate::rules::text::Expr;
use crate::rules::uses::Uses;
use crate::rules::{Rule, rewrite, rules};
use crate::text::BINARY;

/// A graph of leaves, constants and operations, with outputs.
fn random(rng: &mut Rng, size: usize) -> Dataflow {
    let mut graph = Graph::default();
    let mut all: Vec<Id> = (0..6).map(|at| graph.make(Kind::Input(Input::Byte(at)), Vec::new(), 8)).collect();
    for width in [16, 32, 64] {
        all.push(graph.fit(all[rng.below(6)], width));
    }
    let ops: Vec<Binary> = BINARY.map(|(op, _)| op).into_iter().chain([Binary::And, Binary::Or]).collect();
    for _ in 0..size {
        let one = *rng.pick(&all);
        let bits = graph.bits(one);
        let other = match rng.below(3) {
            0 => graph.number(drawn(rng, bits), bits),
            _ => {
                let other = *rng.pick(&all);
                graph.fit(other, bits)
            }
        };
        let bit = |graph: &mut Graph, rng: &mut Rng| {
            let one = *rng.pick(&all);
            let low = rng.below(graph.bits(one).into()) as u16;
            graph.slice(one, low, 1)
        };
        let new = match rng.below(12) {
            0..=4 => graph.binary(*rng.pick(&ops), one, other),
            5 | 6 => graph.compare(*rng.pick(&[Compare::Equal, Compare::Below, Compare::SignedBelow]), one, other),
            7 => graph.not(one),
            8 => {
                let mut parts = Vec::new();
                for _ in 0..1 + rng.below(3) {
                    parts.push(bit(&mut graph, rng));
                    let number = drawn(rng, bits);
                    parts.push(if rng.chance(1, 2) { one } else { graph.number(number, bits) });
                }
                parts.push(other);
                graph.select(parts)
            }
            9 => {
                let low = rng.below(bits.into()) as u16;
                let bits = 1 + rng.below((bits - low).into()) as u16;
                graph.slice(one, low, bits)
            }
            10 if bits <= 32 => {
                let parts = if rng.chance(1, 2) { vec![one, other] } else { vec![other, one] };
                graph.concat(parts)
            }
            10 => graph.slice(one, 3, 17),
            _ => {
                let wide = bits + rng.below(usize::from(65 - bits)) as u16;
                graph.sign_extend(one, wide)
            }
        };
        all.push(new);
    }
    let last = all[all.len() - 1];
    let verdict = if graph.bits(last) < 32 { graph.sign_extend(last, 32) } else { graph.slice(last, 0, 32) };
    let (head, tail, slow) = (graph.number(0, 32), graph.number(60, 32), graph.number(0, 1));
    let mut packet = std::collections::BTreeMap::new();
    for at in 0..4 {
        let one = *rng.pick(&all);
        packet.insert(at, graph.fit(one, 8));
    }
    of_graph(graph, Ending { verdict, head, tail, kept: None, packet, overlays: Vec::new(), slow })
}

/// The outputs for a packet of these bytes.
fn run(dataflow: &Dataflow, bytes: &[u8]) -> Vec<u64> {
    let graph = &dataflow.graph;
    let mut values: Vec<u64> = Vec::new();
    for node in graph.nodes() {
        let args: Vec<u64> = node.args.iter().map(|arg| values[arg.index()]).collect();
        let widths: Vec<u16> = node.args.iter().map(|arg| graph.bits(*arg)).collect();
        values.push(match node.kind {
            Kind::Input(Input::Byte(at)) => bytes[usize::from(at)].into(),
            kind => arith::apply(kind, &args, &widths, node.bits),
        });
    }
    let ending = &dataflow.ending;
    [ending.verdict, ending.head, ending.tail]
        .into_iter()
        .chain(ending.packet.values().copied())
        .map(|id| values[id.index()])
        .collect()
}

/// The weight of the operations that are used.
fn weight(dataflow: &Dataflow) -> u64 {
    let uses = Uses::in_dataflow(dataflow);
    let graph = &dataflow.graph;
    let used = graph.nodes().iter().enumerate().filter(|(at, _)| uses.of(Id(*at as u32)).is_some());
    let own = used.map(|(_, node)| {
        let widths: Vec<u16> = node.args.iter().map(|arg| graph.bits(*arg)).collect();
        weight_of(node.kind, &widths, node.bits)[0]
    });
    own.sum()
}

#[test]
fn rewritten_random_graphs_compute_the_same() {
    let mut rng = Rng::from_env(1);
    let mut heavier = 0;
    let mut all = 0;
    for _ in 0..600 {
        let size = 5 + rng.below(60);
        let old = random(&mut rng, size);
        let (new, _) = rewrite(&old);
        for _ in 0..20 {
            let bytes = (0..6).map(|_| drawn(&mut rng, 8) as u8).collect::<Vec<u8>>();
            assert_eq!(run(&new, &bytes), run(&old, &bytes), "{bytes:?}\n{old:#?}");
        }
        let (_, again) = rewrite(&new);
        assert!(again.is_empty(), "{again:?}");
        all += 1;
        heavier += u32::from(weight(&new) > weight(&old));
    }
    assert_eq!(heavier, 0, "of {all}");
}

#[test]
fn built_in_rules_are_simplifications_of_the_graph() {
    for rule in rules().iter().filter(|rule| rule.is_built_in) {
        for instance in instances(rule, &[1, 2, 8, 32], 500) {
            let mut graph = Made(Graph::default());
            let mut next = 0;
            let mut leaf = |graph: &mut Graph, name: &str, bits: u16| {
                next += 1;
                if name.starts_with(char::is_uppercase) {
                    return graph.number(next.into(), bits);
                }
                let whole = graph.make(Kind::Input(Input::Byte(next)), Vec::new(), 64);
                // Not a slice: slicing a slice is another case.
                let sum = graph.slice(whole, 0, bits);
                graph.binary(Binary::Mul, sum, sum)
            };
            let mut env = Env { values: Vec::new(), numbers: instance.numbers.clone() };
            for one in &instance.variables {
                let bound = match one.pairs {
                    None => Bound::One(leaf(&mut graph.0, one.name, one.bits)),
                    Some(pairs) => Bound::Many((0..pairs).map(|_| leaf(&mut graph.0, one.name, one.bits)).collect()),
                };
                if let (true, Bound::One(id)) = (one.name.starts_with(char::is_uppercase), &bound) {
                    env.numbers.push((one.name, graph.0.as_const(*id).unwrap()));
                }
                env.values.push((one.name, bound));
            }
            let [from, to] = [&rule.from, &rule.to].map(|term| build(&mut graph, term, &env, None));
            assert_eq!(from, to, "{} where {}", rule.name, instance.about());
        }
    }
}

struct Made(Graph);

impl Maker for Made {
    type Value = Id;

    fn bits(&self, value: &Id) -> u16 {
        self.0.bits(*value)
    }

    fn number(&mut self, expr: &Expr, env: &Env<'_, Id>, bits: u16) -> Option<Id> {
        Some(self.0.number(arith::cut(env.eval(expr)?, bits), bits))
    }

    fn make(&mut self, kind: Kind, args: Vec<Id>, bits: u16) -> Id {
        self.0.make(kind, args, bits)
    }
}

#[test]
fn a_rule_of_ones_own_is_used() {
    let own = Rule::parse("swap: (sub x (sub x y)) => y").unwrap();
    let mut graph = Graph::default();
    let x = graph.make(Kind::Input(Input::Length), Vec::new(), 16);
    let y = graph.make(Kind::Input(Input::Port), Vec::new(), 32);
    let x = graph.fit(x, 32);
    let inner = graph.binary(Binary::Sub, x, y);
    let verdict = graph.binary(Binary::Sub, x, inner);
    let zero = graph.number(0, 32);
    let slow = graph.number(0, 1);
    let ending =
        Ending { verdict, head: zero, tail: zero, kept: None, packet: BTreeMap::new(), overlays: Vec::new(), slow };
    let (new, counts) = rewrite_by(&own, &of_graph(graph, ending));
    assert_eq!(counts, [("swap", 1)]);
    assert_eq!(new.graph.nodes().len(), 3);
    assert_eq!(new.graph.node(new.ending.verdict).kind, Kind::Input(Input::Port));
}

fn of_graph(graph: Graph, ending: Ending) -> Dataflow {
    let (patterns, maps, waits) = (Vec::new(), Vec::new(), BTreeMap::new());
    Dataflow {
        name: "random".to_owned(),
        graph,
        patterns,
        maps,
        ending,
        waits,
        wanted: BTreeMap::new(),
        reaches: Vec::new(),
    }
}
