// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares the lowered functions with hand-written C.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use crate::twin;

use twin::timed::{Nanoseconds, TIMED, measure};
use twin::{CPUS, Clang, Costs, DEFAULTS, LOCKED, captured, side_by_side, stimulus};

/// Maximum ratio of instructions executed by a lowered function without locks to those of its twin.
const MAX_RATIO: f64 = 1.1;

/// The same for what `flowloom build` writes, which holds locks, beside twins without any. Fitted to the largest result.
const MAX_BUILT_RATIO: f64 = 1.4;

/// The same beside the twin that takes a `bpf_spin_lock`, which holds it for the update of the context only. Fitted to
/// the largest result, 1.242.
const MAX_LOCKED_RATIO: f64 = 1.25;

/// Every lowered function that has a hand-written C twin executes at most 1.1 times its instructions and calls as many
/// map helpers, on packets that reach every row and on each capture of `FLOWLOOM_TRACES`, when lowered without locks as
/// the twin is. What `flowloom build` writes, with the locks for several CPUs, stands beside it: at most 1.4 times, a
/// bound that is fitted to the results, and at most 1.25 times the twin that takes a `bpf_spin_lock` for each packet,
/// fitted too. Also prints all helper calls, including those that read the clock or redirect, and nanoseconds in the kernel, from
/// alternating test runs, which decide nothing.
#[test]
#[ignore = "a proof: run by `make evidence`"]
fn evidence_instruction_ratio() {
    let Some(clang) = Clang::find("evidence_instruction_ratio") else { return };
    let captures = captured("evidence_instruction_ratio");
    println!("instructions and helper calls a packet; the twin by clang -O2 for two versions of the instruction set");
    println!("built: as `flowloom build` writes it, with locks for several CPUs; lowered: the same without locks");
    println!(
        "{:20} {:34} {:>8} {:>8} {:>8} {:>8} {:>8} {:>6} {:>6} {:>8} {:>8} {:>8} {:>8}",
        "function",
        "packets of",
        "packets",
        "built",
        "lowered",
        "clang",
        "twin",
        "ratio",
        "ratio",
        "calls",
        "twin's",
        "on maps",
        "twin's"
    );
    let mut findings = Vec::new();
    for variant in DEFAULTS.iter().chain([&LOCKED]) {
        let is_locked = std::ptr::eq(variant, &LOCKED);
        let shown = if is_locked { format!("{}, locked", variant.function) } else { variant.function.to_owned() };
        let stimulus = ("every row".to_owned(), stimulus(&variant.compile(), 1, 100_000));
        for (name, packets) in std::iter::once(&stimulus).chain(&captures) {
            for cpu in CPUS {
                let twin = variant.twin(&clang, cpu);
                let costs = side_by_side(variant.function, variant.lowered(), twin.clone(), packets);
                let built = side_by_side(variant.function, variant.built(), twin, packets);
                let Costs { lowered, twin, .. } = costs;
                let each = |total: u64| total as f64 / costs.packets as f64;
                println!(
                    "{shown:20} {name:34} {:8} {:8.2} {:8.2} {cpu:>8} {:8.2} {:6.3} {:6.3} {:8.3} {:8.3} {:8.3} {:8.3}",
                    costs.packets,
                    each(built.lowered.instructions),
                    each(lowered.instructions),
                    each(twin.instructions),
                    built.ratio(),
                    costs.ratio(),
                    each(lowered.calls),
                    each(twin.calls),
                    each(lowered.map_calls),
                    each(twin.map_calls)
                );
                let title = format!("{shown} on {name}, {cpu}");
                let bounds = [
                    ("lowered", costs.ratio(), MAX_RATIO),
                    ("built", built.ratio(), if is_locked { MAX_LOCKED_RATIO } else { MAX_BUILT_RATIO }),
                ];
                for (form, ratio, bound) in bounds.into_iter().filter(|(_, ratio, bound)| ratio > bound) {
                    findings.push(format!("{title}, {form}: ratio {ratio:.3} above {bound}"));
                }
                if lowered.map_calls != twin.map_calls {
                    let (found, expected) = (lowered.map_calls, twin.map_calls);
                    findings.push(format!("{title}: {found} calls on maps, the twin makes {expected}"));
                }
            }
        }
    }
    println!("\nnanoseconds a run in the kernel, median (quartiles), of rounds in which each program has its turn");
    println!(
        "{:20} {:36} {:>16} {:>16} {:>16} {:>6} {:>16} {:>6}",
        "function", "a frame that", "built", "lowered", "twin", "", "twin, v3", ""
    );
    for timed in &TIMED {
        let Some(found) = measure("evidence_instruction_ratio", &clang, timed) else { break };
        let show = |ns: Nanoseconds| format!("{} ({} to {})", ns.median, ns.low, ns.high);
        let ratio = |twin: Nanoseconds| f64::from(found[1].median) / f64::from(twin.median);
        println!(
            "{:20} {:36} {:>16} {:>16} {:>16} {:6.3} {:>16} {:6.3}",
            timed.variant.function,
            timed.does,
            show(found[0]),
            show(found[1]),
            show(found[2]),
            ratio(found[2]),
            show(found[3]),
            ratio(found[3])
        );
    }
    assert!(findings.is_empty(), "{}", findings.join("\n"));
}
