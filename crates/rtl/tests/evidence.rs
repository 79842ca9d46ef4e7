// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long proofs; `make evidence` runs and records them.

use crate::faults::{FAULTS, Fault, found};
use crate::graphs::{Draw, compare};
use crate::instructions::{BATCH, Suite, wrong};

/// Every case of the instruction suite that has a core leaves the interpreter's `r0` in its map. Prints how many cases
/// have a core, and the reasons of the others.
#[test]
#[ignore = "minutes"]
fn evidence_rtl_instructions() {
    let Suite { cases, cores, without } = Suite::rendered();
    let count = cases.len();
    for (number, (cases, cores)) in cases.chunks(BATCH).zip(cores.chunks(BATCH)).enumerate() {
        let Some(wrong) = wrong("evidence_rtl_instructions", cases, cores, number as u64 + 1) else { return };
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        println!("cases {} to {} of {count} agree", number * BATCH + 1, number * BATCH + cases.len());
    }
    println!("{count} cases have a core, {} none:", without.values().map(Vec::len).sum::<usize>());
    for (reason, cases) in &without {
        println!("{:6} {reason}: {}", cases.len(), cases.join(", "));
    }
}

/// 40 random graphs of all pure operations up to 64 bits give the evaluator's results on 20,000 packets each, as cores
/// that take a packet in every cycle. Prints the latencies of the cores.
#[test]
#[ignore = "minutes"]
fn evidence_rtl_graphs() {
    let (graphs, packets, batch) = (40, 20_000, 4);
    for first in (0..graphs).step_by(batch) {
        let draw = Draw { seed: 2, graphs: first..first + batch, widest: 64, packets };
        let Some(latencies) = compare("evidence_rtl_graphs", draw) else { return };
        let latencies: Vec<String> = latencies.iter().map(u32::to_string).collect();
        println!("graphs {first} to {} agree, latencies in cycles: {}", first + batch - 1, latencies.join(", "));
    }
    println!("{} results agree", graphs * packets);
}

/// Each fault of a list, planted in a core or in a block that it instantiates, makes the core differ from the
/// interpreter or the evaluator on 20,000 packets. Prints the first difference of each fault.
#[test]
#[ignore = "minutes"]
fn evidence_rtl_faults() {
    for subject in ["count", "slice", "header", "graph", "arithmetic", "arrays"] {
        let faults: Vec<&Fault> = FAULTS.iter().filter(|fault| fault.subject == subject).collect();
        let Some(differences) = found("evidence_rtl_faults", &faults, 1, 20_000) else { return };
        for (fault, difference) in faults.iter().zip(differences) {
            println!("{subject}: {}: {}", fault.name, difference.as_deref().unwrap_or("not found"));
            assert!(difference.is_some(), "{} is not found", fault.name);
        }
    }
    println!("{} faults are found", FAULTS.len());
}

/// Transactions on the maps of a shell, with packets passing and with stalls on all channels, give the results and
/// errors of the kernel, and counters count all packets, for 30 seeds. Each fault of a list, planted in the shell or in
/// a map, is found.
#[test]
#[ignore = "minutes"]
fn evidence_shell() {
    _ = crate::shell::proof("evidence_shell");
}
