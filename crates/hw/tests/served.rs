//! What has dataflow and no block in hardware is refused, with its place and a way out.
#![allow(clippy::unwrap_used, clippy::panic)]

use flowloom_bpf::verifier::{self, verify};
use flowloom_bpf::{MapDef, MapKind, Program, Sibling, asm};
use flowloom_hw::{Options, Why, plan};

/// Why an XDP program on these maps has no plan, and what is said.
fn refused(text: &str, maps: Vec<MapDef>) -> (Why, String) {
    let text = format!("r6 = r1\n{text}\nout: r0 = 2\nexit");
    let insns = asm::assemble(&text, &maps).unwrap_or_else(|errors| panic!("{errors}"));
    let other = asm::assemble("r0 = 1\nexit", &[]).unwrap();
    let other = Sibling { name: "other".into(), section: "xdp".into(), insns: other, lines: Vec::new() };
    let (name, section) = ("asks".into(), "xdp".into());
    let program = Program { name, section, insns, maps, siblings: [other].into(), ..Program::default() };
    let proof = verify(&program, &verifier::Options::default()).unwrap_or_else(|error| panic!("{error}"));
    let refusal = plan(&program, &proof, &Options::default()).map(|plan| plan.schedule.stages).unwrap_err();
    (refusal.why.clone(), refusal.to_string())
}

#[test]
fn what_no_block_does_is_refused_by_name() {
    let map = |name: &str, kind, max_entries| MapDef {
        name: name.into(),
        kind,
        key_bytes: 4,
        value_bytes: 4,
        max_entries,
        ..MapDef::default()
    };
    let inner = Some(Box::new(map("inner", MapKind::Array, 2)));
    let outer = MapDef { inner, ..map("outer", MapKind::ArrayOfMaps, 2) };
    let lookup = "*(u32 *)(r10 - 4) = 0\nr1 = map[0] ll\nr2 = r10\nr2 += -4\ncall map_lookup_elem";
    let mtu = "*(u32 *)(r10 - 4) = 0\nr2 = 0\nr3 = r10\nr3 += -4\nr4 = 0\nr5 = 0\ncall check_mtu";
    let tail = "r2 = -4\ncall xdp_adjust_tail\nr1 = r6\nr2 = 8\ncall xdp_adjust_tail";
    let call = "r2 = map[0] ll\nr3 = 0\ncall tail_call";
    for (text, maps, why, words) in [
        (
            mtu,
            vec![],
            Why::Helper("check_mtu".into()),
            "instruction 7: `check_mtu` is called, for which hardware has no block; leave",
        ),
        (
            lookup,
            vec![outer],
            Why::MapOfMaps("outer".into()),
            "map `outer` gives other maps, for which hardware has no block; make",
        ),
        (tail, vec![], Why::CutTwice, "the packet's end is moved twice, for which hardware has no block; move"),
        (
            call,
            vec![map("programs", MapKind::ProgArray, 2)],
            Why::Helper("tail_call".into()),
            "`tail_call` is called, for which hardware has no block; leave",
        ),
    ] {
        let (found, said) = refused(text, maps);
        assert_eq!(found, why, "{said}");
        assert!(said.starts_with("program `asks`, instruction ") && said.contains(words), "{said}");
    }
}
