// SPDX-License-Identifier: Apache-2.0 OR MIT
#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::plan::{Options, plan};
use flowloom_isa::asm;
use flowloom_verifier::verify;

/// Byte 0 is the key of a lookup; four bits of byte 9 are added to what is found there. Byte 5 is compared at once.
const LATE: &str = "
.program late
.license \"GPL\"
.map table hash key 4 value 8 entries 100
        r6 = *(u32 *)(r1 + 0)
        r7 = *(u32 *)(r1 + 4)
        r2 = r6
        r2 += 14
        r0 = 1
        if r2 > r7 goto out
        r8 = *(u8 *)(r6 + 9)
        r8 >>= 4
        r3 = *(u8 *)(r6 + 5)
        if r3 == 7 goto out
        r3 = *(u8 *)(r6 + 0)
        *(u32 *)(r10 - 4) = r3
        r2 = r10
        r2 += -4
        r1 = map[table] ll
        call map_lookup_elem
        if r0 == 0 goto none
        r1 = *(u8 *)(r0 + 2)
        r1 += r8
        r0 = r1
        goto out
none:   r0 = 2
out:    exit
";

fn planned(prune: bool) -> Plan {
    let program = asm::program("late.bpf", LATE).unwrap_or_else(|errors| panic!("{errors}"));
    let proof = verify(&program, &flowloom_verifier::Options::default()).unwrap();
    let options = Options { prune, ..Options::default() };
    plan(&program, &proof, &options).unwrap_or_else(|refusal| panic!("{refusal}"))
}

fn byte(live: &Liveness, byte: u16) -> Vec<u8> {
    live.boundaries.iter().map(|boundary| boundary.packet.get(&byte).copied().unwrap_or(0)).collect()
}

#[test]
fn bits_live_from_definition_to_last_use() {
    let plan = planned(true);
    let live = Liveness::of(&plan);
    let graph = &plan.dataflow.graph;
    let used = plan.dataflow.used();
    let of = |kind: fn(Kind) -> bool| *used.iter().find(|id| kind(graph.node(**id).kind)).unwrap();
    let sum = of(|kind| matches!(kind, Kind::Binary(flowloom_ir::Binary::Add)));
    let load = of(|kind| matches!(kind, Kind::Effect(Effect::Load(_))));
    let begins = |id: Id| plan.schedule.spans[id.index()].begins.stage as usize;
    // What is compared in stage 0 goes no further than there, the key no further than to its lookup.
    assert_eq!(byte(&live, 5)[..2], [0xff, 0]);
    assert_eq!(byte(&live, 0)[..2], [0xff, 0]);
    // Four bits wait for the sum, and no bit of any other byte.
    let added = byte(&live, 9);
    let (before, behind) = added.split_at(begins(sum) + 1);
    assert!(begins(sum) >= 4 && before.iter().all(|bits| *bits == 0xf0), "{before:?}");
    assert!(behind.iter().all(|bits| *bits == 0), "{behind:?}");
    let bytes: BTreeSet<u16> = live.boundaries.iter().flat_map(|boundary| boundary.packet.keys().copied()).collect();
    assert_eq!(bytes.into_iter().collect::<Vec<u16>>(), [0, 5, 9]);
    // No later stage uses the place of the entry: its byte comes with the answer, and one bit says whether it exists.
    let carried =
        |boundary: usize, id: Id| live.boundaries[boundary].values.iter().find(|value| value.node == id).copied();
    let lookup = graph.node(load).args[1];
    let found = begins(load);
    let entry = Carried { node: lookup, holds: ValueKind::Answer, bits: 1 };
    assert_eq!(carried(found, lookup), Some(entry));
    assert_eq!(carried(found, load), Some(Carried { node: load, holds: ValueKind::Answer, bits: 8 }));
    assert_eq!(carried(found - 1, lookup), None);
    // What leaves is the verdict.
    let end = live.boundaries.last().unwrap();
    assert_eq!(end.packet_bits(), 0);
    assert!((1..=32).contains(&end.bits()), "{end:?}");
}

/// A model that knows nothing of bits: a value that is used in a stage, through wires, is in a register before it if it
/// was there by then.
#[test]
fn used_values_are_live_at_their_use() {
    let plan = planned(true);
    let live = Liveness::of(&plan);
    let graph = &plan.dataflow.graph;
    let mut processed = 0;
    for id in plan.dataflow.used() {
        if !plan.is_operation(id) || plan.dataflow.access(id).is_some() {
            continue;
        }
        let stage = plan.schedule.spans[id.index()].begins.stage;
        let mut work = graph.node(id).args.clone();
        while let Some(arg) = work.pop() {
            let node = graph.node(arg);
            let is_source = matches!(node.kind, Kind::Input(_)) || plan.is_operation(arg);
            let is_found = matches!(node.kind, Kind::Compare(_))
                && node.args.iter().any(|arg| plan.dataflow.access(*arg).is_some());
            if !is_source || is_found {
                work.extend(&node.args);
            } else if plan.schedule.spans[arg.index()].ends.registered() <= stage {
                let boundary = &live.boundaries[stage as usize];
                let lies = match node.kind {
                    Kind::Input(Input::Byte(at)) => boundary.packet.contains_key(&at),
                    _ => boundary.values.iter().any(|value| value.node == arg),
                };
                assert!(lies, "v{} of v{} in stage {stage}", arg.index(), id.index());
                processed += 1;
            }
        }
    }
    assert!(processed >= 5, "{processed}");
}

#[test]
fn values_live_to_the_end_without_pruning() {
    let (pruned, plan) = (Liveness::of(&planned(true)), planned(false));
    let all = Liveness::of(&plan);
    for (some, all) in pruned.boundaries.iter().zip(&all.boundaries) {
        assert_eq!(all.packet_bits(), 8 * plan.window.bytes);
        assert!(some.bits() < all.bits());
        for value in &some.values {
            assert!(all.values.iter().any(|other| other.node == value.node && other.bits >= value.bits), "{value:?}");
        }
    }
    for pair in all.boundaries.windows(2) {
        let [before, behind] = pair else { continue };
        assert!(before.values.iter().all(|value| behind.values.contains(value)));
    }
    assert!(all.register_bits() > 2 * pruned.register_bits());
}
