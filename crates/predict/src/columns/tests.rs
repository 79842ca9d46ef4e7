// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Columns against values of single packets, on random graphs.

use super::*;
use crate::value::value;
use flowloom_testkit::Rng;

/// A graph of all kinds of nodes, over bytes, length and port.
fn random_graph(rng: &mut Rng) -> (Graph, Vec<Id>) {
    use flowloom_ir::{Binary as B, Compare as C};
    const ALL: [B; 13] = [
        B::Add,
        B::Sub,
        B::Mul,
        B::Div,
        B::SignedDiv,
        B::Mod,
        B::SignedMod,
        B::And,
        B::Or,
        B::Xor,
        B::ShiftLeft,
        B::ShiftRight,
        B::SignedShiftRight,
    ];
    let mut graph = Graph::default();
    let mut ids: Vec<Id> = (0..20).map(|byte| graph.make(Kind::Input(Input::Byte(byte)), Vec::new(), 8)).collect();
    ids.push(graph.make(Kind::Input(Input::Length), Vec::new(), 16));
    ids.push(graph.make(Kind::Input(Input::Port), Vec::new(), 32));
    for _ in 0..60 {
        let one = *rng.pick(&ids);
        let bits = graph.bits(one);
        let like = |rng: &mut Rng, graph: &mut Graph| match rng.below(3) {
            0 => graph.number(rng.next_u64(), bits),
            _ => {
                let other = *rng.pick(&ids);
                graph.fit(other, bits)
            }
        };
        let id = match rng.below(9) {
            // Adjacent bytes, in both orders.
            0 | 1 => {
                let (first, count) = (rng.below(16), 2 + rng.below(4));
                let mut parts: Vec<Id> = (first..first + count).filter_map(|at| ids.get(at).copied()).collect();
                if rng.chance(1, 2) {
                    parts.reverse();
                }
                if rng.chance(1, 3) {
                    parts.rotate_left(1);
                }
                parts.retain(|part| graph.bits(*part) == 8);
                let (place, zeros) = (rng.below(parts.len() + 1), rng.chance(1, 2));
                let number = if zeros { 0 } else { rng.next_u64() };
                parts.insert(place, graph.number(number, 8));
                graph.concat(parts)
            }
            2 => {
                let low = rng.below(usize::from(bits)) as u16;
                let len = 1 + rng.below(usize::from(bits - low)) as u16;
                graph.slice(one, low, len)
            }
            3 => graph.not(one),
            4 => graph.sign_extend(one, 64),
            5 | 6 => {
                let other = like(rng, &mut graph);
                graph.compare(*rng.pick(&[C::Equal, C::Below, C::SignedBelow]), one, other)
            }
            7 => {
                let other = like(rng, &mut graph);
                graph.binary(*rng.pick(&ALL), one, other)
            }
            _ => {
                let conditions: Vec<Id> = ids.iter().copied().filter(|id| graph.bits(*id) == 1).collect();
                let Some(condition) = conditions.get(rng.below(conditions.len().max(1))) else { continue };
                let other = like(rng, &mut graph);
                graph.select(vec![*condition, other, one])
            }
        };
        if graph.bits(id) > 0 {
            ids.push(id);
        }
    }
    (graph, ids)
}

#[test]
fn columns_equal_evaluation_packet_by_packet() {
    let mut rng = Rng::from_env(11);
    let mut kinds = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let (graph, ids) = random_graph(&mut rng);
        // All nodes, so that no error is masked; or some, so that others are left out.
        let outputs: Vec<Id> = if rng.chance(1, 2) { ids } else { (0..6).map(|_| *rng.pick(&ids)).collect() };
        let mut columns = Columns::of(&graph, &outputs);
        let packets: Vec<Vec<u8>> = (0..LANES)
            .map(|_| {
                let len = rng.below(40);
                rng.bytes(len)
            })
            .collect();
        for (lane, bytes) in packets.iter().enumerate() {
            columns.put(lane, bytes, bytes.len() as u32, lane as u32);
        }
        columns.run();
        for (lane, bytes) in packets.iter().enumerate() {
            let mut values: Vec<u64> = Vec::new();
            for node in graph.nodes() {
                kinds.insert(format!("{:?}", node.kind).split(['(', ' ']).next().unwrap_or_default().to_owned());
                let args: Vec<(u64, u16)> =
                    node.args.iter().map(|arg| (values[arg.index()], graph.bits(*arg))).collect();
                values.push(match node.kind {
                    Kind::Input(Input::Byte(at)) => bytes.get(usize::from(at)).copied().unwrap_or(0).into(),
                    Kind::Input(Input::Length) => bytes.len() as u64,
                    Kind::Input(_) => lane as u64,
                    kind => value(kind, &args, node.bits),
                });
            }
            for id in &outputs {
                let found = match graph.bits(*id) {
                    1 => columns.conditions(*id)[lane / 64] >> (lane % 64) & 1,
                    _ => columns.numbers(*id)[lane],
                };
                assert_eq!(found, values[id.index()], "{:?} of {bytes:02x?}", graph.node(*id));
            }
        }
    }
    assert_eq!(kinds.len(), 9, "{kinds:?}");
}
