//! probe
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stderr, dead_code)]
mod common;
use flowloom_bpf::verifier::{Options, verify};
use flowloom_ir::{Kind, build};
use std::sync::Arc;
use std::time::Instant;

#[test]
fn probe() {
    for shipped in common::shipped::shipped() {
        let variant = &shipped.variants[0];
        let program = Arc::new(common::engines::program(&variant.function));
        let t = Instant::now();
        let proof = verify(&program, &Options::default()).unwrap_or_else(|e| panic!("{e}"));
        let tv = t.elapsed();
        let t = Instant::now();
        match build(&program, &proof) {
            Ok(d) => {
                let nodes = d.graph.nodes();
                let mut live = vec![false; nodes.len()];
                for id in [d.ending.verdict, d.ending.head, d.ending.tail]
                    .into_iter()
                    .chain(d.ending.packet.values().copied())
                    .chain(
                        d.ending
                            .overlays
                            .iter()
                            .flat_map(|o| o.bytes.values().flat_map(|l| [l.when, l.byte]).chain([o.base])),
                    )
                {
                    live[id.index()] = true;
                }
                let mut kinds = std::collections::BTreeMap::<String, usize>::new();
                for (i, n) in nodes.iter().enumerate().rev() {
                    if live[i] || matches!(n.kind, Kind::Effect(_)) {
                        live[i] = true;
                        *kinds
                            .entry(
                                format!("{:?}", n.kind)
                                    .split(|c: char| !c.is_alphanumeric())
                                    .next()
                                    .unwrap()
                                    .to_owned(),
                            )
                            .or_default() += 1;
                        n.args.iter().for_each(|a| live[a.index()] = true);
                    }
                }
                let live = live.iter().filter(|l| **l).count();
                let effects = d.graph.nodes().iter().filter(|n| matches!(n.kind, Kind::Effect(_))).count();
                eprintln!(
                    "{:28} {:5} insns verify {:?} build {:?}: {live} of {} nodes {} effects {} overlays {kinds:?}",
                    shipped.name,
                    program.insns.len(),
                    tv,
                    t.elapsed(),
                    d.graph.nodes().len(),
                    effects,
                    d.ending.overlays.len()
                )
            }
            Err(e) => eprintln!(
                "{:28} {:5} insns verify {:?} build {:?}: {e}",
                shipped.name,
                program.insns.len(),
                tv,
                t.elapsed()
            ),
        }
    }
}

#[test]
#[ignore]
fn dump() {
    let name = std::env::var("FN").unwrap();
    for shipped in common::shipped::shipped().into_iter().filter(|s| s.name == name) {
        let program = common::engines::program(&shipped.variants[0].function);
        eprintln!("{}", flowloom_bpf::disasm::disassemble(&program.insns, &program.maps).unwrap());
    }
}
