// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long proofs about the parse and rewrite blocks of the FlowBlaze machine. Start with `make evidence`.

use crate::faults::missed;
use crate::parse::parses_as_the_reference;
use crate::rewrite::rewrites_as_the_reference;

/// The parse block gives the reference parser's headers and fields, or calls a packet slow, with windows of 64 and 128
/// bytes: captures of `FLOWLOOM_TRACES`, packets of builders with mutations, and every truncation of some. Prints the
/// packets.
#[test]
#[ignore = "minutes"]
fn evidence_overlay_parse() {
    for (window_bytes, packets) in [(64, 20_000), (128, 20_000)] {
        let Some(counts) = parses_as_the_reference("evidence_overlay_parse", window_bytes, packets, None) else {
            return;
        };
        let (run, slow, user) = (counts.packets, counts.slow, counts.user);
        println!("{window_bytes} bytes: {run} packets, {slow} slow, {user} with a user header");
        assert!(user > 20 && slow > 100 && slow < run);
    }
}

/// The rewrite block replaces the bytes that `wire::rewrite` changes, checksums included, with windows of 64 and 128
/// bytes. Prints the packets.
#[test]
#[ignore = "minutes"]
fn evidence_overlay_rewrite() {
    for (window_bytes, packets) in [(64, 4000), (128, 4000)] {
        let test = "evidence_overlay_rewrite";
        let Some(counts) = rewrites_as_the_reference(test, window_bytes, packets, None) else { return };
        println!("{window_bytes} bytes: {} packets, {} changed", counts.packets, counts.changed);
        assert!(counts.changed > counts.packets / 2);
    }
}

/// Each fault of a list, planted in the parse block, the header vector or the rewrite block, makes it differ from the
/// reference. Prints what finds each. `FLOWLOOM_FAULT` selects faults by a part of their names.
#[test]
#[ignore = "minutes: a model is built for each fault"]
fn evidence_overlay_faults() {
    let missed = missed(&std::env::var("FLOWLOOM_FAULT").unwrap_or_default());
    assert!(missed.is_empty(), "not found: {}", missed.join("; "));
}
