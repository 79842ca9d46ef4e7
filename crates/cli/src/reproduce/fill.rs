// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rows measured by insertions of random keys until one finds no place: load, and contexts in a device's memory.

use flowloom_state::FillTest;
use serde_json::json;

use super::experiment::Row;
use super::measured::Measured;
use crate::failure::Failure;

/// Depth of a block RAM of 36 Kb whose words have 36 bits.
const RAM_DEPTH: u32 = 1024;
const RAM_BITS: u32 = 36;

/// Measures the row's table in all block RAMs of the row's device.
pub(super) fn measure(row: &Row) -> Result<Measured, Failure> {
    let (rams, entry_bits) = (row.needed("block_rams")?, row.needed("entry_bits")?);
    let memory_bits = u64::from(rams) * u64::from(RAM_DEPTH * RAM_BITS);
    let test = FillTest { places: (memory_bits / u64::from(entry_bits)) as u32, tables: row.needed("tables")? };
    let keys = match row.number("bucket_places") {
        Some(bucket_places) if bucket_places > 0 => test.four_left(bucket_places, row.number("stash").unwrap_or(0)),
        _ => test.cuckoo(),
    };
    let load = f64::from(keys.median) / f64::from(test.places);
    let word_places = rams / entry_bits.div_ceil(RAM_BITS) * RAM_DEPTH;
    let mut measured = Measured::default();
    measured.values.extend([
        ("load_percent", 100.0 * load),
        ("contexts", f64::from(keys.median)),
        ("contexts_in_words", (load * f64::from(word_places)).floor()),
    ]);
    measured.reasons = format!(
        "  {rams} block RAMs hold {} places of {entry_bits} bits, or {word_places} of whole RAM words; {} tables: \
         median {} keys, most {}\n",
        test.places, test.tables, keys.median, keys.max
    );
    measured.parts = json!({
        "places": test.places, "places_in_words": word_places, "tables": test.tables, "median": keys.median,
        "most": keys.max,
    });
    Ok(measured)
}
