// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The shell: AXI4-Stream around a pipeline, and AXI4-Lite to its maps and counters.
//!
//! ```text
//!  s_axis ─► fl_skid ─► fl_pipeline_<name> ─► fl_skid ─► m_axis
//!                          ▲ one port a map
//!  s_axil ─► fl_axil ─► fl_map_access, one a map; fl_shell_registers
//! ```

use std::fmt::Write as _;

use flowloom_isa::MapKind;

use crate::port::{Access, MapPort};
use crate::registers::{self, KINDS, MAP_KEY, camel, value_offset};
use crate::top::{File, Pipeline, range};

/// The bits of `s_axis_tuser`: the ingress port, and above it the time in nanoseconds.
const IN_USER_BITS: u32 = 96;
/// The bits of `m_axis_tuser`: the egress port, and above it the verdict.
const OUT_USER_BITS: u32 = 35;
/// The bytes of an egress port.
const PORT_BYTES: u32 = 4;

/// The files of the shell besides its top module, packages first.
const BLOCKS: [(&str, &str); 7] = [
    ("fl_bus_pkg.sv", include_str!("../../../hdl/shell/fl_bus_pkg.sv")),
    ("fl_registers_pkg.sv", include_str!("../../../hdl/shell/fl_registers_pkg.sv")),
    ("fl_skid.sv", include_str!("../../../hdl/prim/fl_skid.sv")),
    ("fl_random.sv", include_str!("../../../hdl/prim/fl_random.sv")),
    ("fl_axil.sv", include_str!("../../../hdl/shell/fl_axil.sv")),
    ("fl_shell_registers.sv", include_str!("../../../hdl/shell/fl_shell_registers.sv")),
    ("fl_map_access.sv", include_str!("../../../hdl/shell/fl_map_access.sv")),
];

/// A shell around a pipeline.
///
/// # Layout
/// The ports have AXI's names: `aclk`, `aresetn` (synchronous), `s_axis_*`, `m_axis_*`, `s_axil_*`. The first byte of
/// a packet is in the lowest bits of a word. `s_axis_tuser` is the ingress port in its lower 32 bits and the time in
/// nanoseconds above; the last word of a packet counts. `m_axis_tuser` is `out_port_o` and above it `out_verdict_o`
/// of [`Pipeline`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shell {
    /// The name of the module.
    pub module: String,
    /// The files besides those of the pipeline: packages first, the top module last.
    pub files: Vec<File>,
    /// The width of addresses.
    pub address_bits: u32,
    /// The log2 of the bytes of a block.
    pub block_bits: u32,
    /// The maps.
    pub blocks: Vec<MapBlock>,
}

/// The block of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapBlock {
    /// The index of the map in the program.
    pub map: u32,
    /// The name of the map.
    pub name: String,
    /// The address of its first register.
    pub address: u32,
    /// The kind, one of [`KINDS`].
    pub kind: u32,
    /// The kind in the program.
    pub own_kind: MapKind,
    /// The size of a key in bytes.
    pub key_bytes: u32,
    /// The size of a value in bytes.
    pub value_bytes: u32,
    /// The number of entries.
    pub entries: u32,
    /// The rows that a listing reads.
    pub rows: u32,
}

impl MapBlock {
    fn of(port: &MapPort, number: usize, block_bits: u32) -> MapBlock {
        let MapPort { map, name, value_bytes, entries, kind: own, access } = port;
        let (kind, key_bytes, value_bytes, rows) = match *access {
            Access::Single | Access::Index { .. } => ("ARRAY", 4, *value_bytes, *entries),
            Access::Key { bytes, rows, is_prefix } => match own {
                _ if is_prefix => ("LPM", bytes, *value_bytes, rows),
                MapKind::LruHash | MapKind::LruPerCpuHash => ("LRU", bytes, *value_bytes, rows),
                _ => ("HASH", bytes, *value_bytes, rows),
            },
            Access::Ports { .. } => ("PORTS", 4, PORT_BYTES, *entries),
        };
        let address = (number as u32 + 1) << block_bits;
        let kind = KINDS.iter().find(|one| one.name == kind).map_or(0, |one| one.value);
        let (map, name, entries) = (*map, name.clone(), *entries);
        MapBlock { map, name, address, kind, own_kind: *own, key_bytes, value_bytes, entries, rows }
    }

    /// The address of the first byte of the key.
    pub fn key_address(&self) -> u32 {
        self.address + MAP_KEY
    }

    /// The address of the first byte of the value.
    pub fn value_address(&self) -> u32 {
        self.address + value_offset(self.key_bytes)
    }
}

impl Pipeline {
    /// The shell around the pipeline.
    pub fn shell(&self) -> Shell {
        let maps = &self.core.maps;
        let sizes = maps.iter().map(|map| {
            let block = MapBlock::of(map, 0, 0);
            (block.key_bytes, block.value_bytes)
        });
        let block_bits = registers::block_bits(sizes);
        let address_bits = registers::address_bits(block_bits, maps.len());
        let blocks: Vec<MapBlock> =
            maps.iter().enumerate().map(|(number, map)| MapBlock::of(map, number, block_bits)).collect();
        let module = self.module.replacen("fl_pipeline_", "fl_shell_", 1);
        let files = BLOCKS.iter().filter(|(name, _)| maps.is_empty().then_some("fl_map_access.sv") != Some(*name));
        let files = files.filter(|(name, _)| *name != "fl_random.sv" || self.core.random_words > 0);
        let files = files.map(|(name, text)| File { name: (*name).to_owned(), text: (*text).to_owned() });
        let own = files.filter(|file| self.files.iter().all(|known| known.name != file.name));
        let text = Writer { pipeline: self, blocks: &blocks, block_bits, address_bits }.module(&module);
        let files = own.chain([File { name: format!("{module}.sv"), text }]).collect();
        Shell { module, files, address_bits, block_bits, blocks }
    }
}

struct Writer<'a> {
    pipeline: &'a Pipeline,
    blocks: &'a [MapBlock],
    block_bits: u32,
    address_bits: u32,
}

impl Writer<'_> {
    fn module(&self, module: &str) -> String {
        let word_bytes = self.pipeline.word_bytes();
        let (data, keep, address) = (8 * word_bytes - 1, word_bytes - 1, self.address_bits - 1);
        let (in_user, out_user) = (IN_USER_BITS - 1, OUT_USER_BITS - 1);
        let (mut accesses, mut pins) = (String::new(), String::new());
        let maps = self.pipeline.core.maps.iter().zip(self.blocks).enumerate();
        maps.for_each(|(number, (port, block))| self.access(number + 1, port, block, &mut accesses, &mut pins));
        let all = |suffix: &str| -> String {
            self.blocks.iter().map(|block| format!(" | map{}_{suffix}", block.map)).collect()
        };
        let answers = all("answer");
        let (random, random_pin) = match self.pipeline.core.random_words {
            0 => (String::new(), ""),
            words => (
                format!(
                    "  // Random numbers: another set in every cycle.\n  logic [{}:0] random;\n  fl_random #(\n      .Words({words})\n  ) \
                     u_random (\n      .clk_i,\n      .rst_i,\n      .words_o(random)\n  );\n\n",
                    32 * words - 1
                ),
                "\n      .in_random_i(random),",
            ),
        };
        format!(
            "// Generated by Flowloom: AXI4-Stream and AXI4-Lite around `{pipeline}`.
//
// s_axis_tuser is {{time in nanoseconds, ingress port}}, of which the last word of a packet counts; m_axis_tuser is
// {{verdict, egress port}}, with the verdict 0 for extra packets. A time before that of an earlier packet counts as that
// one. Packets have no gaps in tkeep, and words before the last one are full; words without a byte are left out, and
// packets without one are discarded. registers.md has the register map.
//
// Latency: that of the pipeline and 2 cycles.
// Throughput: one word a cycle at both streams.
// Handshake: AXI4-Stream and AXI4-Lite. No output depends on an input in the same cycle.
module {module}
  import fl_bus_pkg::*;
  import fl_registers_pkg::*;
(
    input  logic aclk,
    // Synchronous.
    input  logic aresetn,
    input  logic s_axis_tvalid,
    output logic s_axis_tready,
    input  logic s_axis_tlast,
    input  logic [{data}:0] s_axis_tdata,
    input  logic [{keep}:0] s_axis_tkeep,
    input  logic [{in_user}:0] s_axis_tuser,
    output logic m_axis_tvalid,
    input  logic m_axis_tready,
    output logic m_axis_tlast,
    output logic [{data}:0] m_axis_tdata,
    output logic [{keep}:0] m_axis_tkeep,
    output logic [{out_user}:0] m_axis_tuser,
    input  logic s_axil_awvalid,
    output logic s_axil_awready,
    input  logic [{address}:0] s_axil_awaddr,
    input  logic [2:0] s_axil_awprot,
    input  logic s_axil_wvalid,
    output logic s_axil_wready,
    input  logic [31:0] s_axil_wdata,
    input  logic [3:0] s_axil_wstrb,
    output logic s_axil_bvalid,
    input  logic s_axil_bready,
    output logic [1:0] s_axil_bresp,
    input  logic s_axil_arvalid,
    output logic s_axil_arready,
    input  logic [{address}:0] s_axil_araddr,
    input  logic [2:0] s_axil_arprot,
    output logic s_axil_rvalid,
    input  logic s_axil_rready,
    output logic [31:0] s_axil_rdata,
    output logic [1:0] s_axil_rresp
);

  typedef struct packed {{
    logic last;
    logic [{keep}:0] keep;
    logic [{in_user}:0] user;
    logic [{data}:0] data;
  }} in_word_t;

  typedef struct packed {{
    logic last;
    logic [{keep}:0] keep;
    logic [2:0] verdict;
    logic [31:0] port;
    logic [{data}:0] data;
  }} out_word_t;

  logic clk_i, rst_i;
  in_word_t in_new, in_word;
  out_word_t out_new, out_word;
  logic in_valid, in_ready, out_valid, out_ready;
  logic ready, extra_valid, done_valid, discarded, unused_prot;
  logic [2:0] done_verdict;
  request_t request;
  answer_t shell_answer, answer;

  assign clk_i = aclk;
  assign rst_i = !aresetn;
  assign unused_prot = ^{{s_axil_awprot, s_axil_arprot}};

  assign in_new = '{{last: s_axis_tlast, keep: s_axis_tkeep, user: s_axis_tuser, data: s_axis_tdata}};
  fl_skid #(
      .Width($bits(in_word_t))
  ) u_in (
      .clk_i,
      .rst_i,
      .in_valid_i(s_axis_tvalid),
      .in_ready_o(s_axis_tready),
      .in_data_i(in_new),
      .out_valid_o(in_valid),
      .out_ready_i(in_ready),
      .out_data_o(in_word)
  );

  fl_skid #(
      .Width($bits(out_word_t))
  ) u_out (
      .clk_i,
      .rst_i,
      .in_valid_i(out_valid),
      .in_ready_o(out_ready),
      .in_data_i(out_new),
      .out_valid_o(m_axis_tvalid),
      .out_ready_i(m_axis_tready),
      .out_data_o(out_word)
  );
  assign m_axis_tlast = out_word.last;
  assign m_axis_tkeep = out_word.keep;
  assign m_axis_tdata = out_word.data;
  assign m_axis_tuser = {{out_word.verdict, out_word.port}};

  fl_axil #(
      .AddressBits({address_bits})
  ) u_axil (
      .clk_i,
      .rst_i,
      .aw_valid_i(s_axil_awvalid),
      .aw_ready_o(s_axil_awready),
      .aw_address_i(s_axil_awaddr),
      .w_valid_i(s_axil_wvalid),
      .w_ready_o(s_axil_wready),
      .w_data_i(s_axil_wdata),
      .w_strobe_i(s_axil_wstrb),
      .b_valid_o(s_axil_bvalid),
      .b_ready_i(s_axil_bready),
      .b_response_o(s_axil_bresp),
      .ar_valid_i(s_axil_arvalid),
      .ar_ready_o(s_axil_arready),
      .ar_address_i(s_axil_araddr),
      .r_valid_o(s_axil_rvalid),
      .r_ready_i(s_axil_rready),
      .r_data_o(s_axil_rdata),
      .r_response_o(s_axil_rresp),
      .request_o(request),
      .answer_i(answer)
  );

  fl_shell_registers #(
      .WordBytes({word_bytes}),
      .BlockBits({block_bits}),
      .Maps({maps})
  ) u_registers (
      .clk_i,
      .rst_i,
      .request_i(request),
      .answer_o(shell_answer),
      .ready_i(ready),
      .in_valid_i(s_axis_tvalid),
      .in_ready_i(s_axis_tready),
      .in_last_i(s_axis_tlast),
      .in_keep_i(s_axis_tkeep),
      .out_valid_i(m_axis_tvalid),
      .out_ready_i(m_axis_tready),
      .out_last_i(m_axis_tlast),
      .out_keep_i(m_axis_tkeep),
      .extra_valid_i(extra_valid),
      .done_valid_i(done_valid),
      .done_verdict_i(done_verdict),
      .discarded_i(discarded)
  );
{accesses}
  assign answer = shell_answer{answers};

{random}  {pipeline} u_pipeline (
      .clk_i,
      .rst_i,
      .ready_o(ready),
      .in_valid_i(in_valid),
      .in_ready_o(in_ready),
      .in_last_i(in_word.last),
      .in_data_i(in_word.data),
      .in_keep_i(in_word.keep),
      .in_port_i(in_word.user[31:0]),
      .in_time_i(in_word.user[95:32]),
      .restart_i(1'b0),{random_pin}
      .out_valid_o(out_valid),
      .out_ready_i(out_ready),
      .out_last_o(out_new.last),
      .out_data_o(out_new.data),
      .out_keep_o(out_new.keep),
      .out_verdict_o(out_new.verdict),
      .out_port_o(out_new.port),
      .done_valid_o(done_valid),
      .done_verdict_o(done_verdict),
      .discarded_o(discarded){extra}{pins}
  );
{no_extra}
endmodule
",
            random = random,
            random_pin = random_pin,
            pipeline = self.pipeline.module,
            extra = if self.pipeline.core.sends.is_empty() { "" } else { ",\n      .extra_valid_o(extra_valid)" },
            no_extra = if self.pipeline.core.sends.is_empty() { "  assign extra_valid = 1'b0;\n" } else { "" },
            address_bits = self.address_bits,
            block_bits = self.block_bits,
            maps = self.blocks.len(),
        )
    }

    /// The transactions on a map, and the pins of the pipeline for it.
    fn access(&self, number: usize, port: &MapPort, block: &MapBlock, text: &mut String, pins: &mut String) {
        let map = format!("map{}", port.map);
        let (key, value) = (8 * block.key_bytes - 1, 8 * block.value_bytes - 1);
        let (key, value) = (range(key + 1), range(value + 1));
        let kind = format!("Kind{}", camel(KINDS[block.kind as usize].name));
        let is_hash = matches!(port.access, Access::Key { .. });
        _ = write!(
            text,
            "\n  // Map `{}`.\n  logic {map}_valid, {map}_ready, {map}_write, {map}_answers, {map}_present, {map}_full, {map}_room;\n  \
             logic [2:0] {map}_operation;\n  logic {key}{map}_key, {map}_found_key;\n  logic {value}{map}_value, {map}_found;\n  \
             logic [31:0] {map}_count;\n  answer_t {map}_answer;\n",
            block.name
        );
        let mut unused = if is_hash { vec!["write"] } else { vec!["operation", "key"] };
        for (pin, signal) in [("valid_i", "valid"), ("ready_o", "ready"), ("valid_o", "answers")] {
            _ = write!(pins, ",\n      .{map}_{pin}({map}_{signal})");
        }
        match port.access {
            Access::Key { .. } => {
                let signals = [
                    ("operation_i", "operation"),
                    ("key_i", "key"),
                    ("value_i", "value"),
                    ("present_o", "present"),
                    ("full_o", "full"),
                    ("key_o", "found_key"),
                    ("count_o", "count"),
                    ("value_o", "found"),
                ];
                for (pin, signal) in signals {
                    _ = write!(pins, ",\n      .{map}_{pin}({map}_{signal})");
                }
                if port.has_room() {
                    _ = write!(pins, ",\n      .{map}_room_o({map}_room)");
                }
            }
            Access::Single => {
                _ = write!(
                    pins,
                    ",\n      .{map}_write_i({map}_write),\n      .{map}_value_i({map}_value),\n      .{map}_value_o({map}_found)"
                );
            }
            Access::Index { bits } | Access::Ports { bits } => {
                let index = format!("{map}_key[{}:0]", bits - 1);
                _ = write!(pins, ",\n      .{map}_write_i({map}_write),\n      .{map}_index_i({index})");
                if let Access::Index { .. } = port.access {
                    _ = write!(pins, ",\n      .{map}_value_i({map}_value),\n      .{map}_value_o({map}_found)");
                } else {
                    // The port, and a byte that is 1 if there is one.
                    _ = write!(
                        text,
                        "  logic [39:0] {map}_new_port, {map}_old_port;\n  \
                         assign {map}_new_port = {{7'h0, {map}_operation != 3'd2, {map}_value}};\n  \
                         assign {map}_present = {map}_old_port[32];\n  assign {map}_found = {map}_old_port[31:0];\n"
                    );
                    unused.push("old_port");
                    _ = write!(pins, ",\n      .{map}_value_i({map}_new_port),\n      .{map}_value_o({map}_old_port)");
                }
            }
        }
        if !is_hash {
            let present = match port.access {
                Access::Single | Access::Index { .. } => format!("  assign {map}_present = 1'b1;\n"),
                Access::Key { .. } | Access::Ports { .. } => String::new(),
            };
            _ = write!(
                text,
                "{present}  assign {map}_full = 1'b0;\n  assign {map}_found_key = '0;\n  assign {map}_count = '0;\n"
            );
        }
        if !port.has_room() {
            _ = writeln!(text, "  assign {map}_room = 1'b1;");
        }
        let unused: Vec<String> = unused.iter().map(|name| format!("{map}_{name}")).collect();
        _ = write!(
            text,
            "  logic unused_{map};\n  assign unused_{map} = ^{{{}}};\n  fl_map_access #(\n      .Block({number}),\n      \
             .BlockBits({}),\n      .Map({}),\n      .Kind({kind}),\n      .KeyBytes({}),\n      .ValueBytes({}),\n      \
             .Entries({}),\n      .Rows({})\n  ) u_{map} (\n      .clk_i,\n      .rst_i,\n      \
             .request_i(request),\n      .answer_o({map}_answer),\n      .valid_o({map}_valid),\n      \
             .ready_i({map}_ready),\n      .write_o({map}_write),\n      .operation_o({map}_operation),\n      .key_o({map}_key),\n      \
             .value_o({map}_value),\n      .room_i({map}_room),\n      .valid_i({map}_answers),\n      .present_i({map}_present),\n      .full_i({map}_full),\n      \
             .key_i({map}_found_key),\n      .value_i({map}_found),\n      .count_i({map}_count)\n  );\n",
            unused.join(", "),
            self.block_bits,
            port.map,
            block.key_bytes,
            block.value_bytes,
            block.entries,
            block.rows,
        );
    }
}
