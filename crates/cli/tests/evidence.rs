// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long tests of this crate: `make evidence` runs and records them.

use crate::common::tshark::judge_rewriting;
use crate::common::{EVERYWHERE, captures, kernel, read, stem};

/// On every engine, the rewriting function makes no checksum bad in any packet of the captures that `FLOWLOOM_TRACES`
/// names, as checked by `tshark`.
#[test]
#[ignore = "a proof"]
fn evidence_checksums() {
    let test = "evidence_checksums";
    let mut engines = EVERYWHERE.to_vec();
    if kernel(test) {
        engines.push("kernel");
    }
    println!("capture                  engine   packets  not judged  outputs  rewritten");
    let mut outputs = 0;
    for capture in captures(test) {
        let Some(judged) = judge_rewriting(test, &stem(&capture), read(&capture), &engines, false) else { return };
        for (engine, j) in engines.iter().zip(judged) {
            let (name, packets, apart) = (stem(&capture), j.packets, j.out_of_reach);
            println!("{name:23}  {engine:7}  {packets:7}  {apart:10}  {:7}  {:9}", j.outputs, j.rewritten);
            outputs += j.outputs;
        }
    }
    // The comparison panics at the first checksum that became bad.
    println!("in {outputs} packets that left, no checksum is bad that was not bad before");
}
