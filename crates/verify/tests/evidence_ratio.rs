//! How the lowered functions compare with hand-written C.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

mod twin;

use twin::{CPUS, Clang, Costs, DEFAULTS, captures, side_by_side, stimulus};

/// Most instructions that a lowered function may take for one of its twin's.
const MAX_RATIO: f64 = 1.25;

/// Every lowered function that has a hand-written C twin executes at most 1.25 times the instructions of it and calls as many
/// helpers on maps, on packets that reach every row and on each capture of `FLOWLOOM_TRACES`. All helper calls, those that read
/// the clock or redirect too, are reported beside them.
#[test]
#[ignore = "a proof: run by `make evidence`"]
fn evidence_instruction_ratio() {
    let Some(clang) = Clang::find("evidence_instruction_ratio") else { return };
    let captures = captures("evidence_instruction_ratio");
    println!("instructions and helper calls a packet; the twin by clang -O2 for two versions of the instruction set");
    println!(
        "{:20} {:34} {:>8} {:>8} {:>8} {:>8} {:>6} {:>8} {:>8} {:>8} {:>8}",
        "function",
        "packets of",
        "packets",
        "lowered",
        "clang",
        "twin",
        "ratio",
        "calls",
        "twin's",
        "on maps",
        "twin's"
    );
    let mut findings = Vec::new();
    for variant in &DEFAULTS {
        let stimulus = ("every row".to_owned(), stimulus(&variant.compile(), 1, 100_000));
        for (name, packets) in std::iter::once(&stimulus).chain(&captures) {
            for cpu in CPUS {
                let costs = side_by_side(variant.function, variant.lowered(), variant.twin(&clang, cpu), packets);
                let Costs { lowered, twin, .. } = costs;
                let each = |total: u64| total as f64 / costs.packets as f64;
                println!(
                    "{:20} {name:34} {:8} {:8.2} {cpu:>8} {:8.2} {:6.3} {:8.3} {:8.3} {:8.3} {:8.3}",
                    variant.function,
                    costs.packets,
                    each(lowered.instructions),
                    each(twin.instructions),
                    costs.ratio(),
                    each(lowered.calls),
                    each(twin.calls),
                    each(lowered.map_calls),
                    each(twin.map_calls)
                );
                let title = format!("{} on {name}, {cpu}", variant.function);
                if costs.ratio() > MAX_RATIO {
                    findings.push(format!("{title}: ratio {:.3} above {MAX_RATIO}", costs.ratio()));
                }
                if lowered.map_calls != twin.map_calls {
                    let (found, expected) = (lowered.map_calls, twin.map_calls);
                    findings.push(format!("{title}: {found} calls on maps, the twin makes {expected}"));
                }
            }
        }
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
