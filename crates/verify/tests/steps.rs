// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Steps on all engines: random functions whose rows change the frame.
#![allow(clippy::panic, clippy::print_stdout)]

use crate::common;

use common::random::{self, Reach};

/// Number of packets per random function.
const PACKETS: usize = 120;

#[test]
fn random_functions_that_change_frames_agree() {
    let seed = random::seed(5);
    let kernel = random::is_kernel_there("random_functions_that_change_frames_agree");
    let tally = random::run_some(Reach::Common, random::changes_frame, seed, 0..random::count(60), PACKETS, kernel);
    println!("{} functions, {:?}, {:?}, {:?}", tally.functions, tally.compared, tally.refused, tally.too_large);
    assert!(tally.functions * 4 > random::count(60), "{} functions", tally.functions);
    assert!(tally.disagreements.is_empty(), "{}", tally.disagreements.join("\n"));
}
