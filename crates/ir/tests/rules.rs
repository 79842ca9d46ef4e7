// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A few rules and the meaning of the operations before the prover; all rules are a long proof (`make evidence ONLY=rules`).
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use crate::common;

use common::{Judged, prover};
use flowloom_ir::rules::{Rule, meaning_of_operations, rules};
use flowloom_testkit::Rng;

#[test]
fn the_prover_takes_operations_as_the_evaluator_does() {
    let Some(prover) = prover("the_prover_takes_operations_as_the_evaluator_does") else { return };
    let mut rng = Rng::from_env(1);
    let mut numbers = vec![0, 1, 2, 7, 0x80, u64::MAX, 1 << 63, i64::MAX as u64];
    numbers.extend((0..4).map(|_| rng.next_u64()));
    for question in meaning_of_operations(&numbers, &[1, 2, 8, 17, 32, 64]) {
        assert_eq!(prover.says(&question.smt).trim(), "unsat", "{}", question.about);
    }
}

#[test]
fn a_few_rules_are_proved_at_64_bits() {
    let Some(prover) = prover("a_few_rules_are_proved_at_64_bits") else { return };
    for name in
        ["slt-zero", "below-one", "add-unsigned", "or-zeros", "eq-numbers", "mul-power", "sub-mul-div", "div-plus"]
    {
        let rule = rules().iter().find(|rule| rule.name == name).unwrap();
        let judged = prover.judge(rule, &[64], 20);
        assert!(matches!(judged, Judged::Proved(1..)), "{name}: {judged:?}");
    }
    println!("{}", prover.version);
}

#[test]
fn a_wrong_rule_is_refuted() {
    let Some(prover) = prover("a_wrong_rule_is_refuted") else { return };
    for text in [
        // One bit too few for the carry.
        "add-unsigned: (add x:w y) => (zext w (add (slice 0 m x) (slice 0 m y))) where m = unsigned x y, m+1 < w",
        // The other way round.
        "not-below: (not (below x C)) => (below C x) where C > 0",
        // Where the divisor is 0.
        "div-itself: (div x:w x) => 1:w",
    ] {
        let rule = &Rule::parse(text).unwrap()[0];
        let judged = prover.judge(rule, &[64], 20);
        assert!(matches!(&judged, Judged::Refuted(why) if why.contains("define-fun x")), "{text}: {judged:?}");
    }
}
