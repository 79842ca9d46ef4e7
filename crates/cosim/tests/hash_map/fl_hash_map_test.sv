// SPDX-License-Identifier: Apache-2.0 OR MIT
// A hash map with a slice that inserts, changes and deletes entries as the packet says.
module fl_hash_map_test #(
    parameter int unsigned HashBits = 10,
    parameter int unsigned Rows = 64,
    parameter logic [15:0][4*HashBits-1:0] Columns = '0,
    parameter int unsigned Entries = 40,
    parameter int unsigned Delay = 0,
    parameter bit Lru = 1'b0,
    parameter bit Changes = 1'b1
) (
    input  logic        clk_i,
    input  logic        rst_i,
    output logic        ready_o,
    output logic        room_o,
    output logic        tight_o,
    input  logic        valid_i,
    // 0 reads, 1 inserts or changes, 2 deletes, 3 adds to an entry that exists, 4 inserts or changes and then deletes.
    input  logic [2:0]  operation_i,
    input  logic [15:0] key_i,
    input  logic [31:0] value_i,
    // With Lru: the packet uses its entry.
    input  logic        touch_i,
    output logic        valid_o,
    output logic        present_o,
    output logic        full_o,
    output logic [31:0] value_o,
    input  logic        host_valid_i,
    output logic        host_ready_o,
    input  logic [2:0]  host_operation_i,
    input  logic [15:0] host_key_i,
    input  logic [31:0] host_value_i,
    output logic        host_valid_o,
    output logic        host_present_o,
    output logic        host_full_o,
    output logic [15:0] host_key_o,
    output logic [31:0] host_value_o,
    output logic [31:0] count_o
);

  typedef struct packed {
    logic        valid;
    logic [2:0]  operation;
    logic        touches;
    logic [31:0] value;
  } packet_t;

  typedef struct packed {
    logic        present;
    logic        full;
    logic [31:0] value;
  } entry_t;

  localparam int unsigned Slice = 6 + Delay;

  packet_t [Slice:1] packets_q;
  entry_t  [Delay+1:1] entries_q;
  packet_t           packet;
  entry_t            entry;
  logic              write, present, map_present, map_full, unused;
  logic [31:0]       value, map_value;

  entry_t            now;

  assign now          = '{present: map_present, full: map_full, value: map_value};
  assign packet       = packets_q[Slice];
  assign entry        = (Delay == 0) ? now : entries_q[(Delay == 0) ? 1 : Delay];
  assign valid_o      = packet.valid;
  assign present_o    = entry.present;
  assign full_o       = entry.full;
  assign value_o      = entry.value;
  assign unused       = ^{packets_q, entries_q};

  always_comb begin
    write   = 1'b0;
    present = entry.present;
    value   = entry.value;
    unique case (packet.operation)
      3'd1: begin
        write   = entry.present || !entry.full || Lru;
        present = 1'b1;
        value   = packet.value;
      end
      3'd2, 3'd4: begin
        write   = entry.present;
        present = 1'b0;
      end
      3'd3: begin
        write = entry.present;
        value = entry.value + packet.value;
      end
      default: write = 1'b0;
    endcase
  end

  always_ff @(posedge clk_i) begin
    packets_q <= {packets_q[Slice-1:1], packet_t'{valid: valid_i, operation: operation_i, touches: touch_i, value: value_i}};
    entries_q[1] <= now;
    for (int unsigned i = 2; i <= Delay + 1; i++) entries_q[i] <= entries_q[i-1];
    if (rst_i) begin
      for (int unsigned i = 1; i <= Slice; i++) packets_q[i].valid <= 1'b0;
    end
  end

  fl_hash_map #(
      .KeyBits  (16),
      .ValueBits(32),
      .HashBits (HashBits),
      .Rows     (Rows),
      .Columns  (Columns),
      .Entries  (Entries),
      .Lru      (Lru),
      .Changes  (Changes),
      .Delay    (Delay),
      .Ahead    (1)
  ) u_map (
      .clk_i,
      .rst_i,
      .ready_o,
      .room_o,
      .tight_o,
      .valid_i,
      .key_i,
      .present_o       (map_present),
      .value_o         (map_value),
      .full_o          (map_full),
      .write_i         (packet.valid && write),
      .present_i       (present),
      .value_i         (value),
      .touch_i         (packet.valid && (packet.touches || packet.operation == 3'd1)),
      .evict_i         (packet.valid && packet.operation inside {3'd1, 3'd4} && !entry.present && entry.full),
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
