// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Optimization passes for a target, in the order in which they run. Those that no target decides are in `ir`.
//!
//! Builds with debug assertions check the result of each pass ([`Pass::check`]).

mod atomic_adds;
mod early_keys;
mod late_bits;
mod lookups;
mod mux_trees;
mod reassociate;
mod shannon;
mod shared_keys;

use flowloom_ir::{Dataflow, Mistranslation, missing_waits, mistranslations, pass};

use crate::target::Target;

/// A pass.
#[derive(Debug, Clone, Copy)]
pub struct Pass {
    /// The name.
    pub name: &'static str,
    /// The transformation, in a line.
    pub does: &'static str,
    /// The function.
    pub run: fn(&Dataflow, &Target) -> Dataflow,
}

/// The pass after which reads are ordered by waits and values only, no longer by the order of their nodes.
const FORWARDING: &str = "store-forwarding";

impl Pass {
    /// The dataflow after the pass.
    ///
    /// # Panics
    /// In builds with debug assertions, if the pass breaks an invariant ([`Pass::check`]).
    pub fn apply(&self, dataflow: &Dataflow, target: &Target) -> Dataflow {
        let after = (self.run)(dataflow, target);
        if cfg!(debug_assertions) {
            let broken = self.check(dataflow, &after);
            let list: Vec<String> = broken.iter().map(Mistranslation::to_string).collect();
            assert!(broken.is_empty(), "pass `{}` breaks program `{}`: {}", self.name, dataflow.name, list.join("; "));
        }
        after
    }

    /// The invariants that the pass has broken, given the dataflow before and after it: those of dataflow
    /// ([`Dataflow::validate`]), and those that relate the two ([`mistranslations`]).
    pub fn check(&self, before: &Dataflow, after: &Dataflow) -> Vec<Mistranslation> {
        let mut broken = mistranslations(before, after);
        if broken.is_empty() && self.name == FORWARDING {
            broken = missing_waits(after);
        }
        broken
    }
}

const REASSOCIATION: Pass =
    Pass { name: "reassociation", does: "balances chains of adders, gates and muxes", run: reassociate::run };

const KNOWN_BITS: Pass =
    Pass { name: "known-bits", does: "removes known and unused bits", run: |dataflow, _| pass::known_bits(dataflow) };

/// All passes in the order in which they run.
pub const PASSES: &[Pass] = &[
    Pass { name: "dead-code", does: "removes nodes without uses", run: |dataflow, _| pass::dead_code(dataflow) },
    Pass {
        name: "one-hot-offsets",
        does: "encodes header offsets one-hot",
        run: |dataflow, target| pass::one_hot_offsets(dataflow, target.word_bytes, target.window_bytes),
    },
    REASSOCIATION,
    KNOWN_BITS,
    Pass { name: "lookup-merging", does: "merges equal and mutually exclusive lookups", run: lookups::run },
    Pass { name: "atomic-adds", does: "turns load-add-store sequences into atomic additions", run: atomic_adds::run },
    Pass {
        name: FORWARDING,
        does: "replaces loads by the values that the same packet stored",
        run: |dataflow, _| pass::forward_stores(dataflow),
    },
    Pass {
        name: "early-keys",
        does: "chooses keys by conditions that are known before the predicates of their lookups",
        run: early_keys::run,
    },
    Pass {
        name: "speculation",
        does: "executes lookups and loads before their predicates are known",
        run: |dataflow, _| pass::speculate(dataflow),
    },
    REASSOCIATION,
    Pass {
        name: "rewriting",
        does: "applies proved rewrite rules that turn operations into wires",
        run: |dataflow, _| pass::rewrite(dataflow),
    },
    Pass { name: "late-bits", does: "tests the latest of many bits last", run: late_bits::run },
    Pass {
        name: "shannon-expansion",
        does: "computes both outcomes of a late condition and selects one",
        run: shannon::run,
    },
    KNOWN_BITS,
];

/// The dataflow after all passes.
pub fn optimize(dataflow: &Dataflow, target: &Target) -> Dataflow {
    PASSES.iter().fold(dataflow.clone(), |dataflow, pass| pass.apply(&dataflow, target))
}
