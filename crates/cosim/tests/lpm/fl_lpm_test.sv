// SPDX-License-Identifier: Apache-2.0 OR MIT
// A table of prefixes with a slice that adds to a value if the packet says so.
module fl_lpm_test #(
    parameter int unsigned KeyBits = 48,
    parameter int unsigned Entries = 24,
    parameter int unsigned Fanout = 4,
    parameter int unsigned Delay = 0
) (
    input  logic               clk_i,
    input  logic               rst_i,
    output logic               ready_o,
    input  logic               valid_i,
    input  logic               add_i,
    input  logic [KeyBits-1:0] key_i,
    input  logic [31:0]        value_i,
    output logic               valid_o,
    output logic               present_o,
    output logic [31:0]        value_o,
    output logic [31:0]        count_o,
    input  logic               host_valid_i,
    output logic               host_ready_o,
    input  logic [2:0]         host_operation_i,
    input  logic [KeyBits-1:0] host_key_i,
    input  logic [31:0]        host_value_i,
    output logic               host_valid_o,
    output logic               host_present_o,
    output logic               host_full_o,
    output logic [KeyBits-1:0] host_key_o,
    output logic [31:0]        host_value_o
);

  localparam int unsigned Slice = 8 + Delay;

  typedef struct packed {
    logic        valid;
    logic        add;
    logic [31:0] value;
  } packet_t;

  typedef struct packed {
    logic        present;
    logic [31:0] value;
  } entry_t;

  packet_t [Slice:1]   packets_q;
  entry_t  [Delay+1:1] entries_q;
  packet_t             packet;
  entry_t              now, entry;
  logic                wants, busy, unused;

  assign packet    = packets_q[Slice];
  assign entry     = (Delay == 0) ? now : entries_q[(Delay == 0) ? 1 : Delay];
  assign valid_o   = packet.valid;
  assign present_o = entry.present;
  assign value_o   = entry.value;
  assign unused    = ^{packets_q, entries_q, wants};

  always_ff @(posedge clk_i) begin
    packets_q    <= {packets_q[Slice-1:1], packet_t'{valid: valid_i, add: add_i, value: value_i}};
    entries_q[1] <= now;
    for (int unsigned i = 2; i <= Delay + 1; i++) entries_q[i] <= entries_q[i-1];
    if (rst_i) begin
      for (int unsigned i = 1; i <= Slice; i++) packets_q[i].valid <= 1'b0;
    end
  end

  fl_lpm #(
      .KeyBits  (KeyBits),
      .ValueBits(32),
      .Entries  (Entries),
      .Fanout   (Fanout),
      .Delay    (Delay)
  ) u_map (
      .clk_i,
      .rst_i,
      .ready_o,
      .wants_o  (wants),
      .busy_o   (busy),
      .go_i     (!busy),
      .valid_i,
      .key_i,
      .present_o(now.present),
      .value_o  (now.value),
      .write_i  (packet.valid && packet.add && entry.present),
      .value_i  (entry.value + packet.value),
      .count_o,
      .host_valid_i,
      .host_ready_o,
      .host_operation_i,
      .host_key_i,
      .host_value_i,
      .host_valid_o,
      .host_present_o,
      .host_full_o,
      .host_key_o,
      .host_value_o
  );

endmodule
