// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rules on numbers, on weights, and on random graphs.

mod graphs;
mod numbers;
mod weights;

use flowloom_testkit::Rng;

use super::Rule;
use crate::arith;

/// A boundary value, or a random one.
pub(super) fn drawn(rng: &mut Rng, bits: u16) -> u64 {
    let value = match rng.below(4) {
        0 => rng.below(4) as u64,
        1 => (rng.below(4) as u64).wrapping_neg(),
        2 => 1 << rng.below(64),
        _ => rng.next_u64(),
    };
    arith::cut(value, bits)
}

#[test]
fn syntax_errors_in_rules_are_reported() {
    let said = |text: &str| Rule::parse(text).unwrap_err().to_string();
    assert_eq!(said("a: (plus x y) => x"), "rule `a`: expected an operation, found `plus`");
    assert_eq!(said("b: (add x y => x"), "rule `b`: expected `)`, found `the end`");
    assert_eq!(said("c: (not x) => x where n zeros x"), "rule `c`: expected a comparison, found `zeros`");
    assert_eq!(
        said("d: (not x) => x where n = zeros x"),
        "rule `d`: expected as many names as the fact gives, found `n = zeros x`"
    );
}
