// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine in SystemVerilog: its files, and the parameters of its modules.

use flowloom_state::RowHash;

use crate::parameters::Parameters;

/// The seed of the hash functions of context tables.
pub(crate) const HASH_SEED: u64 = 0x0f10_b1a2;

/// The files of the machine, in the order in which compilers read them.
const FILES: [(&str, &str); 56] = [
    ("fl_config_pkg", include_str!("../../../hdl/overlay/fl_config_pkg.sv")),
    ("fl_parse_pkg", include_str!("../../../hdl/overlay/fl_parse_pkg.sv")),
    ("fl_reach_pkg", include_str!("../../../hdl/overlay/fl_reach_pkg.sv")),
    ("fl_machine_pkg", include_str!("../../../hdl/overlay/fl_machine_pkg.sv")),
    ("fl_machine_registers_pkg", include_str!("../../../hdl/overlay/fl_machine_registers_pkg.sv")),
    ("fl_bus_pkg", include_str!("../../../hdl/shell/fl_bus_pkg.sv")),
    ("fl_registers_pkg", include_str!("../../../hdl/shell/fl_registers_pkg.sv")),
    ("fl_config_bank", include_str!("../../../hdl/overlay/fl_config_bank.sv")),
    ("fl_config_rows", include_str!("../../../hdl/overlay/fl_config_rows.sv")),
    ("fl_config_word", include_str!("../../../hdl/overlay/fl_config_word.sv")),
    ("fl_fifo", include_str!("../../../hdl/prim/fl_fifo.sv")),
    ("fl_ram", include_str!("../../../hdl/prim/fl_ram.sv")),
    ("fl_ram_dual", include_str!("../../../hdl/prim/fl_ram_dual.sv")),
    ("fl_skid", include_str!("../../../hdl/prim/fl_skid.sv")),
    ("fl_hash", include_str!("../../../hdl/table/fl_hash.sv")),
    ("fl_context_engine", include_str!("../../../hdl/overlay/fl_context_engine.sv")),
    ("fl_context_table", include_str!("../../../hdl/overlay/fl_context_table.sv")),
    ("fl_flow_scheduler", include_str!("../../../hdl/overlay/fl_flow_scheduler.sv")),
    ("fl_efsm_operand", include_str!("../../../hdl/overlay/fl_efsm_operand.sv")),
    ("fl_efsm_comparator", include_str!("../../../hdl/overlay/fl_efsm_comparator.sv")),
    ("fl_efsm_alu", include_str!("../../../hdl/overlay/fl_efsm_alu.sv")),
    ("fl_efsm_table", include_str!("../../../hdl/overlay/fl_efsm_table.sv")),
    ("fl_efsm_match", include_str!("../../../hdl/overlay/fl_efsm_match.sv")),
    ("fl_efsm_act", include_str!("../../../hdl/overlay/fl_efsm_act.sv")),
    ("fl_efsm_key", include_str!("../../../hdl/overlay/fl_efsm_key.sv")),
    ("fl_efsm_stateless", include_str!("../../../hdl/overlay/fl_efsm_stateless.sv")),
    ("fl_efsm_element", include_str!("../../../hdl/overlay/fl_efsm_element.sv")),
    ("fl_efsm_chain", include_str!("../../../hdl/overlay/fl_efsm_chain.sv")),
    ("fl_window_words", include_str!("../../../hdl/overlay/fl_window_words.sv")),
    ("fl_place_words", include_str!("../../../hdl/overlay/fl_place_words.sv")),
    ("fl_parse_link", include_str!("../../../hdl/overlay/fl_parse_link.sv")),
    ("fl_parse_ip", include_str!("../../../hdl/overlay/fl_parse_ip.sv")),
    ("fl_parse_extension", include_str!("../../../hdl/overlay/fl_parse_extension.sv")),
    ("fl_parse_transport", include_str!("../../../hdl/overlay/fl_parse_transport.sv")),
    ("fl_parse_user", include_str!("../../../hdl/overlay/fl_parse_user.sv")),
    ("fl_parse_fields", include_str!("../../../hdl/overlay/fl_parse_fields.sv")),
    ("fl_clock_units", include_str!("../../../hdl/overlay/fl_clock_units.sv")),
    ("fl_header_parser", include_str!("../../../hdl/overlay/fl_header_parser.sv")),
    ("fl_header_vector", include_str!("../../../hdl/overlay/fl_header_vector.sv")),
    ("fl_rewrite_targets", include_str!("../../../hdl/overlay/fl_rewrite_targets.sv")),
    ("fl_rewrite_headers", include_str!("../../../hdl/overlay/fl_rewrite_headers.sv")),
    ("fl_rewrite_checksum", include_str!("../../../hdl/overlay/fl_rewrite_checksum.sv")),
    ("fl_header_rewriter", include_str!("../../../hdl/overlay/fl_header_rewriter.sv")),
    ("fl_window_join", include_str!("../../../hdl/overlay/fl_window_join.sv")),
    ("fl_reorder", include_str!("../../../hdl/overlay/fl_reorder.sv")),
    ("fl_machine_arrival", include_str!("../../../hdl/overlay/fl_machine_arrival.sv")),
    ("fl_machine_departure", include_str!("../../../hdl/overlay/fl_machine_departure.sv")),
    ("fl_machine_control", include_str!("../../../hdl/overlay/fl_machine_control.sv")),
    ("fl_framer", include_str!("../../../hdl/parse/fl_framer.sv")),
    ("fl_results", include_str!("../../../hdl/edit/fl_results.sv")),
    ("fl_body", include_str!("../../../hdl/edit/fl_body.sv")),
    ("fl_align", include_str!("../../../hdl/edit/fl_align.sv")),
    ("fl_emitter", include_str!("../../../hdl/edit/fl_emitter.sv")),
    ("fl_axil", include_str!("../../../hdl/shell/fl_axil.sv")),
    ("fl_shell_registers", include_str!("../../../hdl/shell/fl_shell_registers.sv")),
    ("fl_efsm_machine", include_str!("../../../hdl/overlay/fl_efsm_machine.sv")),
];

/// A file of SystemVerilog.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct File<'f> {
    /// The module or package; the name of the file without `.sv`.
    pub module: &'f str,
    /// Its text.
    pub text: &'f str,
}

/// The module of the elements without the parts around them.
pub const CHAIN: &str = "fl_efsm_chain";
/// The module of the machine.
pub const MACHINE: &str = "fl_efsm_machine";

/// The files that contain a module and what it instantiates and imports, packages first, the module last.
pub fn files_of(module: &str) -> Vec<File<'static>> {
    let mut used = [false; FILES.len()];
    // A file comes after those that it uses.
    for (at, (name, _)) in FILES.iter().enumerate().rev() {
        let uses = |text: &str| [" u_", " #(", "::"].iter().any(|after| text.contains(&format!(" {name}{after}")));
        used[at] = *name == module || FILES.iter().zip(&used).any(|((_, text), &is_used)| is_used && uses(text));
    }
    let found = FILES.iter().zip(used).filter(|(_, is_used)| *is_used);
    found.map(|(&(module, text), _)| File { module, text }).collect()
}

/// The hash functions of the context tables of a machine. A key has one byte more, for the bank of the configuration.
pub(crate) fn hash_of(parameters: &Parameters) -> RowHash {
    let rows = parameters.contexts.div_ceil(4).max(1);
    RowHash::new(parameters.key_bits as usize / 8 + 1, rows, HASH_SEED)
}

/// The rows of a context table, each of four places.
pub(crate) fn table_rows(parameters: &Parameters) -> u32 {
    hash_of(parameters).rows()
}

/// The parameters of [`CHAIN`] and [`MACHINE`], as literals.
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
