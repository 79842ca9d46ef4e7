// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine in SystemVerilog: its files, and the parameters of its modules.

use flowloom_state::RowHash;

use crate::parameters::Parameters;

/// The seed of the hash functions of context tables.
pub(crate) const HASH_SEED: u64 = 0x0f10_b1a2;

/// The files of the elements, packages first.
pub const FILES: [(&str, &str); 18] = [
    ("fl_config_pkg.sv", include_str!("../../../hdl/overlay/fl_config_pkg.sv")),
    ("fl_config_bank.sv", include_str!("../../../hdl/overlay/fl_config_bank.sv")),
    ("fl_config_rows.sv", include_str!("../../../hdl/overlay/fl_config_rows.sv")),
    ("fl_ram_dual.sv", include_str!("../../../hdl/prim/fl_ram_dual.sv")),
    ("fl_hash.sv", include_str!("../../../hdl/table/fl_hash.sv")),
    ("fl_context_engine.sv", include_str!("../../../hdl/overlay/fl_context_engine.sv")),
    ("fl_context_table.sv", include_str!("../../../hdl/overlay/fl_context_table.sv")),
    ("fl_flow_scheduler.sv", include_str!("../../../hdl/overlay/fl_flow_scheduler.sv")),
    ("fl_efsm_operand.sv", include_str!("../../../hdl/overlay/fl_efsm_operand.sv")),
    ("fl_efsm_comparator.sv", include_str!("../../../hdl/overlay/fl_efsm_comparator.sv")),
    ("fl_efsm_alu.sv", include_str!("../../../hdl/overlay/fl_efsm_alu.sv")),
    ("fl_efsm_table.sv", include_str!("../../../hdl/overlay/fl_efsm_table.sv")),
    ("fl_efsm_match.sv", include_str!("../../../hdl/overlay/fl_efsm_match.sv")),
    ("fl_efsm_act.sv", include_str!("../../../hdl/overlay/fl_efsm_act.sv")),
    ("fl_efsm_key.sv", include_str!("../../../hdl/overlay/fl_efsm_key.sv")),
    ("fl_efsm_stateless.sv", include_str!("../../../hdl/overlay/fl_efsm_stateless.sv")),
    ("fl_efsm_element.sv", include_str!("../../../hdl/overlay/fl_efsm_element.sv")),
    ("fl_efsm_chain.sv", include_str!("../../../hdl/overlay/fl_efsm_chain.sv")),
];

/// The hash functions of the context tables of a machine. A key has one byte more, for the bank of the configuration.
pub(crate) fn hash_of(parameters: &Parameters) -> RowHash {
    let rows = parameters.contexts.div_ceil(4).max(1);
    RowHash::new(parameters.key_bits as usize / 8 + 1, rows, HASH_SEED)
}

/// The parameters of `fl_efsm_chain`, as literals.
pub fn module_parameters(parameters: &Parameters) -> Vec<(&'static str, String)> {
    let hash = hash_of(parameters);
    let numbers = [
        ("Elements", parameters.elements),
        ("Words", parameters.words),
        ("Registers", parameters.registers),
        ("Globals", parameters.globals),
        ("Conditions", parameters.conditions),
        ("Alus", parameters.alus),
        ("Writes", parameters.writes),
        ("MatchWords", parameters.match_words),
        ("Rows", parameters.rows),
        ("KeyWords", parameters.key_bits / 32),
        ("TableRows", hash.rows()),
        ("HashBits", hash.hash_bits()),
        ("Queues", parameters.queues),
        ("QueueDepth", parameters.queue_depth),
    ];
    let mut all: Vec<(&'static str, String)> = numbers.map(|(name, value)| (name, value.to_string())).to_vec();
    all.push(("Columns", columns(&hash, parameters.key_bits + 1)));
    all
}

/// The columns of a hash as a literal: `{right, left}` of each bit of the key, the highest one first.
fn columns(hash: &RowHash, key_bits: u32) -> String {
    let width = 2 * hash.hash_bits();
    let mut bits = Vec::new();
    for at in (0..key_bits).rev() {
        let (left, right) = hash.column(at as usize);
        for half in [right, left] {
            bits.extend((0..width).rev().map(|bit| half >> bit & 1 == 1));
        }
    }
    // Digits count from the lowest bit.
    let digits: String = bits
        .rchunks(4)
        .rev()
        .map(|four| {
            let value = four.iter().fold(0, |value, &bit| value << 1 | u32::from(bit));
            char::from_digit(value, 16).unwrap_or('0')
        })
        .collect();
    format!("{}'h{digits}", bits.len())
}
