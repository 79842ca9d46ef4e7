// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows measured by insertions of random keys into a table of a given load.

use flowloom_state::{LoadTest, Quantiles};
use serde_json::{Value as Json, json};

use super::experiment::Row;
use super::measured::Measured;
use crate::failure::Failure;

/// Measures the row's load. A load that the table does not reach has no values.
pub(super) fn measure(row: &Row) -> Result<Measured, Failure> {
    let test = LoadTest {
        rows: row.needed("rows")?,
        load_percent: row.needed("load_percent")?,
        tables: row.needed("tables")?,
        insertions: row.needed("insertions")?,
    };
    let Some(costs) = test.run() else {
        let missing = Some("a key finds no place at this load".to_owned());
        return Ok(Measured { missing, ..Measured::default() });
    };
    let of = |quantiles: Quantiles| [quantiles.median, quantiles.percentile_99, quantiles.max].map(f64::from);
    let [moves, steps, walk] = [costs.moves, costs.steps, costs.walk_moves].map(of);
    let mut measured = Measured::default();
    measured.values.extend([
        ("moves_median", moves[0]),
        ("moves_99", moves[1]),
        ("moves_max", moves[2]),
        ("steps_median", steps[0]),
        ("steps_max", steps[2]),
        ("walk_median", walk[0]),
        ("walk_99", walk[1]),
        ("walk_max", walk[2]),
    ]);
    measured.reasons = format!(
        "  {} insertions, {} tables of {} places, {} of them used; steps: median {}, 99% {}, most {}\n",
        test.insertions,
        test.tables,
        test.places(),
        test.entries(),
        steps[0],
        steps[1],
        steps[2]
    );
    let as_json = |[median, percentile_99, max]: [f64; 3]| -> Json {
        json!({ "median": median, "percentile_99": percentile_99, "max": max })
    };
    measured.parts = json!({
        "places": test.places(), "entries": test.entries(), "tables": test.tables, "insertions": test.insertions,
        "moves": as_json(moves), "steps": as_json(steps), "walk_moves": as_json(walk),
    });
    Ok(measured)
}
