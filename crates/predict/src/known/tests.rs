// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Weakened conditions and joined selects, on random graphs.

use super::*;
use crate::value::value;
use flowloom_isa::op::Size;
use flowloom_testkit::Rng;

/// The values of all nodes for these bytes of the packet and results of effects.
fn values(graph: &Graph, bytes: &[u8], effects: u64) -> Vec<u64> {
    let mut values: Vec<u64> = Vec::new();
    for node in graph.nodes() {
        let args: Vec<(u64, u16)> = node.args.iter().map(|arg| (values[arg.index()], graph.bits(*arg))).collect();
        values.push(match node.kind {
            Kind::Input(Input::Byte(at)) => bytes[usize::from(at)].into(),
            Kind::Effect(_) => effects >> (values.len() % 64) & 1,
            kind => value(kind, &args, node.bits),
        });
    }
    values
}

/// Bits that depend on the packet, and bits that depend on map contents.
fn bits(graph: &mut Graph, rng: &mut Rng) -> Vec<Id> {
    let always = graph.number(1, 1);
    let mut bits = Vec::new();
    for byte in 0..4 {
        let byte = graph.make(Kind::Input(Input::Byte(byte)), Vec::new(), 8);
        bits.extend((0..2).map(|low| graph.slice(byte, low, 1)));
        bits.push(graph.effect(Effect::Load(Size::B), vec![always, always], 1));
    }
    for _ in 0..30 {
        let mut one = || *rng.pick(&bits);
        let (a, b, c) = (one(), one(), one());
        let new = match rng.below(4) {
            0 => graph.and(a, b),
            1 => graph.or(a, b),
            2 => graph.select(vec![a, b, c]),
            _ => graph.not(a),
        };
        bits.push(new);
    }
    bits
}

#[test]
fn weakened_conditions_are_stateless_and_implied() {
    let mut rng = Rng::from_env(21);
    let (mut weaker_somewhere, mut as_strong) = (0, 0);
    for _ in 0..200 {
        let mut graph = Graph::default();
        let bits = bits(&mut graph, &mut rng);
        let pure = is_pure(&graph);
        let mut without_state = WithoutState { graph, pure: pure.clone(), weakened: HashMap::new() };
        let all: Vec<(Id, Id)> = bits.iter().map(|bit| (*bit, without_state.weaken(*bit))).collect();
        let graph = &without_state.graph;
        for (bit, weaker) in &all {
            assert!(is_pure(graph)[weaker.index()]);
            assert!(!pure[bit.index()] || bit == weaker);
        }
        for _ in 0..40 {
            let values = values(graph, &rng.bytes(4), rng.next_u64());
            for (bit, weaker) in &all {
                let (own, weak) = (values[bit.index()], values[weaker.index()]);
                assert!(own <= weak);
                weaker_somewhere += u64::from(own < weak);
                as_strong += u64::from(weak == 0 && !pure[bit.index()]);
            }
        }
    }
    // Some conditions are weakened, and some stay exact.
    assert!(weaker_somewhere > 1000 && as_strong > 1000, "{weaker_somewhere} {as_strong}");
}

#[test]
fn a_select_of_concatenations_is_a_concatenation_of_selects() {
    let mut rng = Rng::from_env(22);
    let mut fewer = 0;
    for _ in 0..300 {
        let mut graph = Graph::default();
        let bits = bits(&mut graph, &mut rng);
        let mut bytes: Vec<Id> = (0..8).map(|byte| graph.make(Kind::Input(Input::Byte(byte)), Vec::new(), 8)).collect();
        let conditions: Vec<Id> = (0..3).map(|_| *rng.pick(&bits)).collect();
        for _ in 0..30 {
            let mut one = || *rng.pick(&bytes);
            let (a, b, c) = (one(), one(), one());
            let condition = *rng.pick(&conditions);
            let new = match rng.below(3) {
                0 => graph.select(vec![condition, a, conditions[0], b, c]),
                _ => graph.select(vec![condition, a, b]),
            };
            bytes.push(new);
        }
        let parts: Vec<Id> = (0..1 + rng.below(8)).map(|_| *rng.pick(&bytes)).collect();
        let (plain, whole) = (graph.concat(parts.clone()), joined(&mut graph, &parts, MAX_NESTED));
        fewer += u64::from(plain != whole);
        for _ in 0..20 {
            let values = values(&graph, &rng.bytes(8), rng.next_u64());
            assert_eq!(values[plain.index()], values[whole.index()]);
        }
    }
    assert!(fewer > 100, "{fewer}");
}
