// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The text of a core.

use flowloom_testkit::golden;

use crate::programs::{core, program};

#[test]
fn the_core_of_a_counter() {
    golden("tests/text/count.sv", &core(&program("count")).text);
}
