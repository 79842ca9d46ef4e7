// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hash unit against its twin.

use flowloom_random::{Draw, SplitMix64};
use flowloom_state::RowHash;

use crate::common::{block, build, columns, stated_latency};

const BLOCK: &str = "table/fl_hash";

fn rows_equal_the_twin(test: &str, key_bytes: usize, rows: u32) {
    let hash = RowHash::new(key_bytes, rows, 3);
    let design = block(BLOCK)
        .parameter("KeyBits", 8 * key_bytes)
        .parameter("HashBits", hash.hash_bits())
        .parameter("Rows", rows)
        .parameter("Columns", columns(&hash, key_bytes));
    let Some(model) = build(test, &design) else { return };
    let (key_i, rows_o) = (model.input("key_i").unwrap(), model.output("rows_o").unwrap());
    let mut rng = SplitMix64::new(u64::from(rows));
    let mut keys: Vec<Vec<u8>> = (0..2000).map(|_| (0..key_bytes).map(|_| rng.next_u64() as u8).collect()).collect();
    keys.extend((0..8 * key_bytes).map(|bit| (0..key_bytes).map(|at| u8::from(at == bit / 8) << (bit % 8)).collect()));
    let latency = stated_latency(BLOCK);
    let mut inputs = vec![0; model.input_bytes() * (keys.len() + latency)];
    for (key, cycle) in keys.iter().zip(inputs.chunks_mut(model.input_bytes())) {
        key_i.set_bytes(cycle, key);
    }
    let outputs = model.start(1).unwrap().run(&inputs).unwrap();
    let row_bits = rows_o.width_bits() / 4;
    for (key, cycle) in keys.iter().zip(outputs.chunks(model.output_bytes()).skip(latency)) {
        let bytes = rows_o.bytes(cycle);
        let found: [u32; 4] = std::array::from_fn(|way| {
            let bit = |at: u32| u32::from(bytes[at as usize / 8] >> (at % 8) & 1);
            (0..row_bits).map(|at| bit(way as u32 * row_bits + at) << at).sum()
        });
        assert_eq!(found, hash.rows_of(key), "{key:?}");
    }
}

#[test]
fn rows_of_a_5_tuple_in_a_power_of_two() {
    rows_equal_the_twin("rows_of_a_5_tuple_in_a_power_of_two", 13, 1 << 14);
}

#[test]
fn rows_of_an_ipv6_5_tuple_in_any_number() {
    rows_equal_the_twin("rows_of_an_ipv6_5_tuple_in_any_number", 40, 17_247);
}
