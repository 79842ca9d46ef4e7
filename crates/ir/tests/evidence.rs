// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The long proofs, with their figures on standard output. Run with `cargo test -p flowloom-ir --release --test all evidence::
//! -- --ignored --nocapture`.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use crate::common;

use std::time::Instant;

use common::{Judged, prover};
use flowloom_ir::rules::{Rule, rules};

/// Questions about a rule at most; of more, those at the ends and in the middle of widths and places.
const LIMIT: usize = 2500;

/// Other widths than 64.
const OTHERS: [u16; 16] = [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 17, 24, 31, 32, 33, 63];

/// Every rewrite rule of the dataflow is true by the prover z3: at 64 bits with all widths of parts and all places (of more than
/// 2500 combinations those at the ends and in the middle), then at other widths. `built in` is what the graph does by itself. A
/// wrong rule, planted, is refuted.
#[test]
#[ignore = "minutes"]
fn evidence_rules() {
    let Some(prover) = prover("evidence_rules") else { return };
    println!("{}\n", prover.version);
    let start = Instant::now();
    let mut proved = 0;
    for rule in rules() {
        let start = Instant::now();
        let wide = prover.judge(rule, &[64], LIMIT);
        let wide_s = start.elapsed().as_secs_f64();
        let other = prover.judge(rule, &OTHERS, LIMIT / 5);
        let (Judged::Proved(wide), Judged::Proved(other)) = (&wide, &other) else {
            panic!("{}: {wide:?} {other:?}", rule.text);
        };
        assert!(wide + other > 0, "{}: no question", rule.name);
        proved += wide + other;
        let mark = if rule.is_built_in { "built in  " } else { "" };
        println!("{mark}{}", rule.text);
        println!("    proved: {wide} questions at 64 bits in {wide_s:.1} s, {other} at others");
    }
    println!("\n{} rules, {proved} questions, {:.0} s", rules().len(), start.elapsed().as_secs_f64());
    let planted = "planted: (sub x:w y) => (zext w (sub (slice 0 m x) (slice 0 m y))) where m = unsigned x y, m < w";
    let judged = prover.judge(&Rule::parse(planted).unwrap()[0], &[64], LIMIT);
    let Judged::Refuted(why) = judged else { panic!("{planted}: {judged:?}") };
    println!("\n{planted}\n    refuted {why}");
}
