// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The pipeline: input framer, core, and output framer.
//!
//! ```text
//!             ┌──────────────────── bodies of packets ────────────────────┐
//!  words ─► fl_framer ─► first words ─► fl_core_<name> ─► results ─► fl_emitter ─► words
//! ```

use std::fmt::Write as _;

use crate::core::Core;

/// The words of the longest packet: 9,216 bytes in words of 64.
pub const MAX_WORDS: u32 = 144;
/// The words of packets that a pipeline stores.
pub const BODY_WORDS: u32 = 256;

/// The port of a pipeline whose packets send others besides themselves.
const EXTRA_PORT: &str = "// A packet that another one sends besides itself, before the verdict of that one.\n    output logic extra_valid_o";

/// A file of SystemVerilog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its name.
    pub name: String,
    /// Its text.
    pub text: String,
}

/// The blocks that pipelines instantiate.
const BLOCKS: [(&str, &str); 31] = [
    ("fl_fifo.sv", include_str!("../../../hdl/prim/fl_fifo.sv")),
    ("fl_fifo_ram.sv", include_str!("../../../hdl/prim/fl_fifo_ram.sv")),
    ("fl_ram.sv", include_str!("../../../hdl/prim/fl_ram.sv")),
    ("fl_mul.sv", include_str!("../../../hdl/prim/fl_mul.sv")),
    ("fl_div.sv", include_str!("../../../hdl/prim/fl_div.sv")),
    ("fl_div_const.sv", include_str!("../../../hdl/prim/fl_div_const.sv")),
    ("fl_ram_dual.sv", include_str!("../../../hdl/prim/fl_ram_dual.sv")),
    ("fl_ram_forward.sv", include_str!("../../../hdl/prim/fl_ram_forward.sv")),
    ("fl_hash.sv", include_str!("../../../hdl/table/fl_hash.sv")),
    ("fl_slots.sv", include_str!("../../../hdl/table/fl_slots.sv")),
    ("fl_cuckoo_engine.sv", include_str!("../../../hdl/table/fl_cuckoo_engine.sv")),
    ("fl_cuckoo.sv", include_str!("../../../hdl/table/fl_cuckoo.sv")),
    ("fl_pending.sv", include_str!("../../../hdl/table/fl_pending.sv")),
    ("fl_lru.sv", include_str!("../../../hdl/table/fl_lru.sv")),
    ("fl_evicted.sv", include_str!("../../../hdl/table/fl_evicted.sv")),
    ("fl_hash_map.sv", include_str!("../../../hdl/table/fl_hash_map.sv")),
    ("fl_scoreboard.sv", include_str!("../../../hdl/flow/fl_scoreboard.sv")),
    ("fl_replay.sv", include_str!("../../../hdl/flow/fl_replay.sv")),
    ("fl_alone.sv", include_str!("../../../hdl/flow/fl_alone.sv")),
    ("fl_lpm_level.sv", include_str!("../../../hdl/table/fl_lpm_level.sv")),
    ("fl_lpm_ranges.sv", include_str!("../../../hdl/table/fl_lpm_ranges.sv")),
    ("fl_lpm.sv", include_str!("../../../hdl/table/fl_lpm.sv")),
    ("fl_array.sv", include_str!("../../../hdl/table/fl_array.sv")),
    ("fl_framer.sv", include_str!("../../../hdl/parse/fl_framer.sv")),
    ("fl_results.sv", include_str!("../../../hdl/edit/fl_results.sv")),
    ("fl_body.sv", include_str!("../../../hdl/edit/fl_body.sv")),
    ("fl_align.sv", include_str!("../../../hdl/edit/fl_align.sv")),
    ("fl_emitter.sv", include_str!("../../../hdl/edit/fl_emitter.sv")),
    ("fl_jobs.sv", include_str!("../../../hdl/edit/fl_jobs.sv")),
    ("fl_overlay.sv", include_str!("../../../hdl/edit/fl_overlay.sv")),
    ("fl_skid.sv", include_str!("../../../hdl/prim/fl_skid.sv")),
];

/// The blocks that a text instantiates, and those that they instantiate: unused files would be unused modules.
fn instantiated(text: &str) -> Vec<(&'static str, &'static str)> {
    let mut used = [false; BLOCKS.len()];
    let mut work = vec![text];
    while let Some(text) = work.pop() {
        for ((name, block), used) in BLOCKS.iter().zip(&mut used) {
            let instance = format!("{} #(", name.trim_end_matches(".sv"));
            if !*used && text.contains(&instance) {
                *used = true;
                work.push(block);
            }
        }
    }
    BLOCKS.iter().zip(used).filter(|(_, used)| *used).map(|(block, _)| *block).collect()
}

/// A pipeline: a stream of words in, a stream of words out, and the host's accesses to maps.
///
/// # Layout
/// The packet's first byte is in the lowest bits of a word. `in_port_i` is its ingress port; `out_port_o` its egress
/// port; `out_verdict_o` is the verdict's number in XDP, 5 for a packet that leaves for the slow path as it came, 6 for
/// one that goes to all ports of the map whose index is `out_port_o`, 7 for one that goes to all but the ingress port.
/// `done_valid_o` and `done_verdict_o` are the verdict of each packet, dropped ones included, in order. An extra
/// packet, which a packet sends besides itself, has `out_verdict_o` 0 and leaves before its packet. `extra_valid_o`,
/// which only pipelines of programs with such calls have, is high once for each one, before the verdict of its packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pipeline {
    /// The name of the module.
    pub module: String,
    /// The core.
    pub core: Core,
    /// The files that contain it and what it instantiates, the top module last.
    pub files: Vec<File>,
    word_bytes: u32,
}

impl Pipeline {
    /// The cycles from the last word of a packet to its first word at the core.
    pub const FRAMER_CYCLES: u32 = 2;

    /// The cycles from a result of the core to the first word at the output.
    pub fn emitter_cycles(&self) -> u32 {
        emitter_cycles(&self.core)
    }

    /// The pipeline around a core. A word of the bus has `word_bytes` bytes.
    pub fn around(core: Core, word_bytes: u16) -> Pipeline {
        let name = core.module.strip_prefix("fl_core_").unwrap_or(&core.module);
        let module = format!("fl_pipeline_{name}");
        let word_bytes = u32::from(word_bytes);
        let patch_module = format!("fl_patch_{name}");
        let patch = (core.edits.bits() > 0).then(|| core.edits.module(&patch_module, word_bytes));
        let sends_module = format!("fl_sends_{name}");
        let sends = (!core.sends.is_empty()).then(|| core.sends.module(&sends_module));
        let text = text(&module, &core, (&patch_module, &sends_module), word_bytes);
        let blocks = instantiated(&format!("{}{}{text}", core.text, patch.as_deref().unwrap_or("")));
        let mut files: Vec<File> = blocks
            .into_iter()
            .map(|(name, text)| File { name: (*name).to_owned(), text: (*text).to_owned() })
            .collect();
        files.push(File { name: format!("{}.sv", core.module), text: core.text.clone() });
        files.extend(sends.map(|text| File { name: format!("{sends_module}.sv"), text }));
        files.extend(patch.map(|text| File { name: format!("{patch_module}.sv"), text }));
        files.push(File { name: format!("{module}.sv"), text });
        Pipeline { module, core, files, word_bytes }
    }

    /// The bytes of a word of the bus.
    pub fn word_bytes(&self) -> u32 {
        self.word_bytes
    }

    /// The length of the longest packet in bytes; longer ones are discarded.
    pub fn max_bytes(&self) -> u32 {
        MAX_WORDS * self.word_bytes
    }

    /// The packets that may be in the core, or have results that wait for the output.
    pub fn in_flight(&self) -> u32 {
        in_flight(&self.core)
    }

    /// The cycles from the last word of a packet at the input to its first word at the output, without contention.
    pub fn latency_cycles(&self) -> u32 {
        latency_cycles(&self.core)
    }
}

/// The packets in the core, and results that wait for their turn.
fn in_flight(core: &Core) -> u32 {
    core.latency_cycles + core.queued_packets + 16
}

/// The latencies of framer, core and emitter.
fn latency_cycles(core: &Core) -> u32 {
    Pipeline::FRAMER_CYCLES + core.latency_cycles + emitter_cycles(core)
}

/// The emitter, and where packets send others besides themselves the jobs before it.
fn emitter_cycles(core: &Core) -> u32 {
    u32::from(!core.sends.is_empty()) + if core.moves { 10 } else { 7 }
}

pub(crate) fn range(bits: u32) -> String {
    if bits == 1 { String::new() } else { format!("[{}:0] ", bits - 1) }
}

/// How random words travel with the time of a packet.
struct Random {
    port: Option<String>,
    time_bits: u32,
    parameter: String,
    time_pin: &'static str,
    now: &'static str,
    pin: String,
}

impl Random {
    fn of(core: &Core) -> Random {
        let time_bits = 64 + 32 * core.random_words;
        if core.random_words == 0 {
            return Random {
                port: None,
                time_bits,
                parameter: String::new(),
                time_pin: "",
                now: "",
                pin: String::new(),
            };
        }
        Random {
            port: Some(format!(
                "// Random words; a packet takes those of its last word.\n    input  logic [{}:0] in_random_i",
                32 * core.random_words - 1
            )),
            time_bits,
            parameter: format!(",\n      .TimeBits({time_bits})"),
            time_pin: "({in_random_i, in_time_i})",
            now: "[63:0]",
            pin: format!(",\n      .random_i(arrival[{}:64])", time_bits - 1),
        }
    }
}

fn text(module: &str, core: &Core, (patch_module, sends_module): (&str, &str), word_bytes: u32) -> String {
    let word = 8 * word_bytes;
    let in_flight = in_flight(core);
    let place = BODY_WORDS.trailing_zeros();
    let mut ports = vec![
        "input  logic clk_i".to_owned(),
        "input  logic rst_i".to_owned(),
        "// High from when maps are cleared after a reset: no packet enters before.\n    output logic ready_o".to_owned(),
        "input  logic in_valid_i".to_owned(),
        "output logic in_ready_o".to_owned(),
        "input  logic in_last_i".to_owned(),
        format!("input  logic [{}:0] in_data_i", word - 1),
        format!("input  logic [{}:0] in_keep_i", word_bytes - 1),
        "input  logic [31:0] in_port_i".to_owned(),
        "// The time in nanoseconds.\n    input  logic [63:0] in_time_i".to_owned(),
        "// Times before it do not count from the next packet on: for a clock that was set back.\n    \
         input  logic restart_i"
            .to_owned(),
        "output logic out_valid_o".to_owned(),
        "input  logic out_ready_i".to_owned(),
        "output logic out_last_o".to_owned(),
        format!("output logic [{}:0] out_data_o", word - 1),
        format!("output logic [{}:0] out_keep_o", word_bytes - 1),
        "output logic [2:0] out_verdict_o".to_owned(),
        "output logic [31:0] out_port_o".to_owned(),
        "// The verdict of each packet; a packet that is too long or has no byte is discarded without one.\n    output logic done_valid_o"
            .to_owned(),
        "output logic [2:0] done_verdict_o".to_owned(),
        "output logic discarded_o".to_owned(),
    ];
    let has_sends = !core.sends.is_empty();
    if has_sends {
        ports.push(EXTRA_PORT.to_owned());
    }
    let mut pins = String::new();
    let random = Random::of(core);
    if let Some(port) = &random.port {
        let time = ports.iter().position(|port| port.ends_with("in_time_i")).map_or(ports.len(), |at| at + 1);
        ports.insert(time, port.clone());
    }
    for map in &core.maps {
        for (direction, bits, suffix) in map.ports() {
            let comment = match suffix {
                "valid_i" => format!("// The host's accesses to map `{}`.\n    ", map.name),
                _ => String::new(),
            };
            ports.push(format!("{comment}{direction} logic {}map{}_{suffix}", range(bits), map.map));
            _ = write!(pins, ",\n      .map{}_{suffix}", map.map);
        }
    }
    let bits = core.edits.bits();
    let (edits_pin, patch) = match bits {
        0 => (String::new(), "  assign patch_mask = '0;\n  assign patch_data = '0;\n".to_owned()),
        _ => (
            ",\n      .edits_o(edits)".to_owned(),
            format!(
                "  {patch_module} u_patch (\n      .clk_i,\n      .valid_i(patch_valid),\n      .index_i(patch_index),\n      \
                 .edits_i(patch_edits),\n      .mask_o(patch_mask),\n      .data_o(patch_data)\n  );\n"
            ),
        ),
    };
    let edits = bits.max(1);
    // Between core and emitter are jobs where packets send others besides themselves.
    let of_core = if has_sends { "core_" } else { "" };
    let jobs = if has_sends { core.sends.instances(sends_module, in_flight, bits > 0) } else { String::new() };
    let result_pins = if has_sends {
        ",\n      .sends_o(core_sends),\n      .record_o(core_record)".to_owned()
    } else {
        format!(",\n      .head_o(head),\n      .tail_o(tail){edits_pin}")
    };
    let has_extra = if has_sends { "\n      .HasExtra(1'b1)," } else { "" };
    let [ready, is_extra, extra] =
        if has_sends { ["(ready)", "(is_extra)", ""] } else { ["(unused_ready)", "(1'b0)", "(unused_extra)"] };
    let job_signals =
        if has_sends { core.sends.declarations() } else { "  logic unused_ready, unused_extra;\n".to_owned() };
    // Nothing drives or reads these where nothing is replaced.
    let unused = match bits {
        0 => "  assign edits = '0;\n  logic unused;\n  assign unused = ^{patch_valid, patch_index, patch_edits};\n",
        _ => "",
    };
    format!(
        "// Generated by Flowloom: the pipeline around `{core_module}`.
//
// Latency: {framing} cycles from the last word of a packet to its first word at the output, without contention.
// Throughput: one word a cycle at both ends; a dropped packet takes no cycle of the output.
// Handshake: valid and ready at both ends.
module {module} (
    {ports}
);

  // The stored bodies of packets.
  logic write, free;
  logic [{last_place}:0] write_place, place;
  logic [{place}:0] free_words;
  logic [{last_bit}:0] write_data, word;
  // The packet that begins in the core, and the result of another one.
  logic start, room, started, accept, begins, valid, has_target, slow;
  logic [15:0] length;
  logic [31:0] port, verdict, target, head, tail;
  logic [1:0] spread;
  logic [{last_time}:0] arrival;
  logic [{last_edit}:0] edits, patch_edits;
  logic patch_valid;
  logic [{last_index}:0] patch_index;
  logic [{last_lane}:0] patch_mask;
  logic [{last_data}:0] patch_data;
  logic framer_ready;
{job_signals}{unused}
  assign in_ready_o = framer_ready && ready_o;

  fl_framer #(
      .WordBytes({word_bytes}),
      .WindowWords({words}),
      .MaxWords({MAX_WORDS}),
      .BodyWords({BODY_WORDS}){time_parameter}
  ) u_framer (
      .clk_i,
      .rst_i,
      .in_valid_i(in_valid_i && ready_o),
      .in_ready_o(framer_ready),
      .in_last_i,
      .in_data_i,
      .in_keep_i,
      .in_port_i,
      .in_time_i{time_pin},
      .restart_i,
      .write_o(write),
      .write_place_o(write_place),
      .write_data_o(write_data),
      .free_i(free),
      .free_words_i(free_words),
      .start_i(start && room),
      .started_o(started),
      .accept_i(accept),
      .valid_o(begins),
      .length_o(length),
      .port_o(port),
      .time_o(arrival),
      .place_o(place),
      .word_o(word),
      .discarded_o
  );

  {core_module} u_core (
      .clk_i,
      .rst_i,
      .valid_i(begins),
      .length_i(length),
      .port_i(port),
      .word_i(word),
      .now_i(arrival{now}){random_pin}{pins},
      .accept_o(accept),
      .room_o(room),
      .ready_o,
      .valid_o({of_core}valid),
      .verdict_o({of_core}verdict),
      .has_target_o({of_core}has_target),
      .target_o({of_core}target),
      .spread_o({of_core}spread),
      .slow_o({of_core}slow){result_pins}
  );
{jobs}
{patch}

  fl_emitter #(
      .WordBytes({word_bytes}),
      .BodyWords({BODY_WORDS}),
      .InFlight({in_flight}),
      .HasShift(1'b{moves}),{has_extra}
      .EditBits({edits})
  ) u_emitter (
      .clk_i,
      .rst_i,
      .write_i(write),
      .write_place_i(write_place),
      .write_data_i(write_data),
      .free_o(free),
      .free_words_o(free_words),
      .start_o(start),
      .started_i(started),
      .begin_i(begins && accept),
      .length_i(length),
      .port_i(port),
      .place_i(place),
      .valid_i(valid),
      .ready_o{ready},
      .is_extra_i{is_extra},
      .verdict_i(verdict),
      .has_target_i(has_target),
      .target_i(target),
      .spread_i(spread),
      .head_i(head),
      .tail_i(tail),
      .edits_i(edits),
      .slow_i(slow),
      .patch_valid_o(patch_valid),
      .patch_index_o(patch_index),
      .patch_edits_o(patch_edits),
      .patch_mask_i(patch_mask),
      .patch_data_i(patch_data),
      .extra_valid_o{extra},
      .done_valid_o,
      .done_verdict_o,
      .out_valid_o,
      .out_ready_i,
      .out_last_o,
      .out_data_o,
      .out_keep_o,
      .out_verdict_o,
      .out_port_o
  );

endmodule
",
        core_module = core.module,
        last_time = random.time_bits - 1,
        time_parameter = random.parameter,
        time_pin = random.time_pin,
        now = random.now,
        random_pin = random.pin,
        ports = ports.join(",\n    ").replace("output\n", "output"),
        last_place = place - 1,
        last_bit = word - 1,
        words = core.words,
        moves = u8::from(core.moves),
        last_edit = edits - 1,
        last_index = 15 - word_bytes.trailing_zeros(),
        last_lane = 2 * word_bytes - 1,
        last_data = 2 * word - 1,
        framing = latency_cycles(core),
    )
}
