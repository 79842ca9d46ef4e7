// SPDX-License-Identifier: Apache-2.0 OR MIT
// Array of values that one stage of a pipeline reads, changes and writes back: the state slice lies outside of it.
//
//   cycle  0       1               2                3              4
//          index   block RAM       value ──► slice  result_q       block RAM holds the result
//                  │ distances 2,3 ▲ distance 1
//                  └── forwarding ─┴──────────────── result_q, older_q
//
// A slice of several stages takes Delay cycles more: its result is seen by packets that enter Delay + 1 cycles later,
// and packets of one entry are kept that far apart (fl_scoreboard). Accesses of the host, and of packets marked early,
// write in cycle 2 all the same. They come while no packet of the entry is between its index and its result, and not
// Delay cycles after any packet, whose result is written in their cycle 2.
//
// Latency: 2 cycles from index to value. A result is seen by the packet Delay + 1 cycles later.
// Throughput: one access a cycle; to one entry, one in Delay + 1 cycles.
// Handshake: packets are always accepted; a host access where no packet enters. ready_o is high from the end of the
// clearing after a reset on.
// Source: the state slice of eHDL's atomic primitives, for any function. [eHDL 4.1]
module fl_array #(
    parameter int unsigned Entries = 2,
    parameter int unsigned ValueBits = 8,
    // Cycles from the value to the result.
    parameter int unsigned Delay = 0,
    // Whether accesses of the host wait until no packet is between its index and its result. Otherwise the caller
    // guarantees that no packet of that entry is.
    parameter bit HostWaits = 1'b1,
    // The kind of RAM, as synthesis tools name it: block, or ultra for the UltraRAMs of UltraScale+.
    parameter string RamStyle = "block",
    localparam int unsigned IndexBits = (Entries > 1) ? $clog2(Entries) : 1
) (
    input  logic                 clk_i,
    input  logic                 rst_i,
    output logic                 ready_o,
    // A packet enters. An early one has its result together with its value.
    input  logic                 valid_i,
    input  logic                 early_i,
    input  logic [IndexBits-1:0] index_i,
    // Two cycles later: its value. Delay cycles after that: the result of its slice.
    output logic [ValueBits-1:0] value_o,
    input  logic                 write_i,
    input  logic [ValueBits-1:0] value_i,
    // An access of the host: the answer is the value before a write.
    input  logic                 host_valid_i,
    output logic                 host_ready_o,
    input  logic                 host_write_i,
    // The value that is read is written to another entry.
    input  logic                 host_copy_i,
    input  logic [IndexBits-1:0] host_target_i,
    input  logic [IndexBits-1:0] host_index_i,
    input  logic [ValueBits-1:0] host_value_i,
    output logic                 host_valid_o,
    output logic [ValueBits-1:0] host_value_o
);

  localparam logic [IndexBits-1:0] Last = IndexBits'(Entries - 1);

  // An access, by the cycle in which it is.
  typedef struct packed {
    logic                 packet;
    logic                 early;
    logic                 host;
    logic                 host_write;
    logic                 host_copy;
    logic [IndexBits-1:0] index;
    logic [IndexBits-1:0] host_target;
    logic [ValueBits-1:0] host_value;
  } access_t;

  typedef struct packed {
    logic                 valid;
    logic [IndexBits-1:0] index;
    logic [ValueBits-1:0] value;
  } result_t;

  (* ram_style = RamStyle *)
  logic [ValueBits-1:0] values_q[Entries];

  logic                 clearing_q;
  logic [IndexBits-1:0] clear_q;
  access_t              access_d, access1_q, access2_q;
  // Of a packet whose result is there. The host has to wait.
  logic [IndexBits-1:0] late_index;
  logic                 busy;
  logic [ValueBits-1:0] word_q, value1, value2_q;
  // The access in cycle 1 is to the entry of the result.
  logic                 same_q;
  result_t              result_d, result_q, older_q;

  assign ready_o      = !clearing_q;
  assign host_ready_o = !valid_i && !clearing_q && !busy;
  assign host_valid_o = access2_q.host;
  assign host_value_o = value_o;

  always_comb begin
    access_d = '{packet: valid_i, early: early_i, host: host_valid_i && host_ready_o, host_write: host_write_i,
                 host_copy: host_copy_i, index: host_index_i, host_target: host_target_i, host_value: host_value_i};
    if (valid_i) begin
      access_d.index = index_i;
    end
  end

  // Results that the RAM does not have yet: the newest one counts.
  always_comb begin
    value1 = word_q;
    if (older_q.valid && older_q.index == access1_q.index) begin
      value1 = older_q.value;
    end
    if (result_q.valid && result_q.index == access1_q.index) begin
      value1 = result_q.value;
    end
  end
  assign value_o = (same_q && result_q.valid) ? result_q.value : value2_q;

  always_comb begin
    result_d = '{valid: write_i, index: access2_q.early || access2_q.host ? access2_q.index : late_index,
                 value: value_i};
    if (access2_q.host) begin
      result_d.valid = access2_q.host_write || access2_q.host_copy;
      if (access2_q.host_copy) begin
        result_d.index = access2_q.host_target;
        result_d.value = value_o;
      end else begin
        result_d.value = access2_q.host_value;
      end
    end
    if (clearing_q) begin
      result_d = '{valid: 1'b1, index: clear_q, value: '0};
    end
  end

  if (Delay == 0) begin : gen_now
    logic unused_packet;

    assign late_index    = access2_q.index;
    assign busy          = 1'b0;
    assign unused_packet = access2_q.packet;
  end else begin : gen_late
    logic [Delay:0][IndexBits-1:0] late_index_q;
    logic [Delay:0]                late_packet_q;
    logic                          unused_late;

    // Packets by their age, from the cycle after their index on.
    logic [Delay+2:1]              packets;

    assign packets     = {late_packet_q[Delay-1:0], access2_q.packet && !access2_q.early,
                          access1_q.packet && !access1_q.early};
    assign late_index  = late_index_q[Delay-1];
    assign busy        = HostWaits ? packets != '0 : packets[Delay];
    assign unused_late = ^{late_index_q[Delay], late_packet_q[Delay], packets};

    always_ff @(posedge clk_i) begin
      late_index_q  <= {late_index_q[Delay-1:0], access2_q.index};
      late_packet_q <= {late_packet_q[Delay-1:0], access2_q.packet && !access2_q.early};
      if (rst_i) begin
        late_packet_q <= '0;
      end
    end
  end

  always_ff @(posedge clk_i) begin
    if (result_q.valid) begin
      values_q[result_q.index] <= result_q.value;
    end
    word_q <= values_q[access_d.index];
  end

  always_ff @(posedge clk_i) begin
    access1_q <= access_d;
    access2_q <= access1_q;
    value2_q  <= value1;
    same_q    <= access1_q.index == result_d.index;
    result_q  <= result_d;
    older_q   <= result_q;
    if (clearing_q) begin
      clear_q    <= clear_q + 1'b1;
      clearing_q <= clear_q != Last;
    end
    if (rst_i) begin
      clearing_q     <= 1'b1;
      clear_q        <= '0;
      access1_q.host   <= 1'b0;
      access2_q.host   <= 1'b0;
      access1_q.packet <= 1'b0;
      access2_q.packet <= 1'b0;
      result_q.valid <= 1'b0;
      older_q.valid  <= 1'b0;
    end
  end

  if (Entries < 2) begin : gen_bad_entries
    $error("Entries is %0d, expected at least 2", Entries);
  end
  if (ValueBits == 0) begin : gen_bad_value
    $error("ValueBits is 0, expected at least 1");
  end
  if (RamStyle != "block" && RamStyle != "ultra") begin : gen_bad_style
    $error("RamStyle is %s, expected block or ultra", RamStyle);
  end

`ifndef SYNTHESIS
  // No result of a packet comes together with an access of the host.
  a_slice : assert property (@(posedge clk_i) disable iff (rst_i) write_i |-> !access2_q.host && !clearing_q);
  // No packet enters during the clearing.
  a_ready : assert property (@(posedge clk_i) disable iff (rst_i) valid_i |-> ready_o);
`endif

endmodule
