// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows measured by insertions of the new flows of generated traffic.

use flowloom_state::StashTest;
use flowloom_trace::{FiveTuples, Traffic, TrafficOptions};
use serde_json::json;

use super::experiment::Row;
use super::measured::Measured;
use crate::failure::Failure;

/// Declared entries of the table [FlowBlaze 5.4].
const TABLE_ENTRIES: u32 = 200_000;

/// Measures the occupancy of the stash on the row's traffic.
pub(super) fn measure(row: &Row) -> Result<Measured, Failure> {
    let test = StashTest {
        table_entries: TABLE_ENTRIES,
        stash_entries: row.needed("stash_entries")?,
        moves: row.needed("moves")?,
    };
    let duration_ns = u64::from(row.needed("duration_ms")?) * 1_000_000;
    let options = TrafficOptions { duration_ns: Some(duration_ns), ..TrafficOptions::new(row.profile()?) };
    let mut tuples = FiveTuples::of(Traffic::new(&options).map_err(|e| Failure::input(&e))?);
    let found = test.run(tuples.key_bytes(), &mut tuples).map_err(|e| Failure::input(&e))?;
    let mut measured = Measured::default();
    measured.values.extend([
        ("most", found.max() as f64),
        ("refused", found.refused as f64),
        ("empty_percent", 100.0 * found.empty_share),
        ("packets", tuples.packets() as f64),
        ("flows", found.inserted as f64),
    ]);
    for (waiting, &count) in found.insertions.iter().enumerate().filter(|&(_, &count)| count > 0) {
        let percent = 100.0 * count as f64 / found.inserted as f64;
        measured.reasons.push_str(&format!("  {waiting} in the stash after {percent:.4}% of the insertions\n"));
    }
    if row.is_control && found.refused == 0 {
        measured.failed = Some("the control refuses no flow".to_owned());
    }
    measured.parts = json!({
        "traffic": row.traffic, "table_entries": TABLE_ENTRIES, "stash_entries": test.stash_entries,
        "moves": test.moves, "duration_ns": duration_ns, "insertions_by_stash_entries": found.insertions,
    });
    Ok(measured)
}
