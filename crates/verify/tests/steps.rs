//! Steps on all engines: random functions whose rows change the frame.
#![allow(clippy::panic, clippy::print_stdout)]

mod common;

use common::random;
use flowloom_efsm::model::Function;
use flowloom_verify::Reach;

/// Packets that each random function runs.
const PACKETS: usize = 120;

fn changes_frame(function: &Function) -> bool {
    function.elements.iter().flat_map(|e| &e.rows).any(|row| row.actions.changes_frame())
}

#[test]
fn random_functions_that_change_frames_agree() {
    let seed = random::seed(5);
    let kernel = random::is_kernel_there("random_functions_that_change_frames_agree");
    let tally = random::run_some(Reach::Common, changes_frame, seed, 0..random::count(150), PACKETS, kernel);
    println!("{} functions, {:?}, {:?}, {:?}", tally.functions, tally.compared, tally.refused, tally.too_large);
    assert!(tally.disagreements.is_empty(), "{}", tally.disagreements.join("\n"));
}
