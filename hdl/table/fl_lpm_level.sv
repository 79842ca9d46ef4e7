// SPDX-License-Identifier: Apache-2.0 OR MIT
// One level of a multiway search: rows of Fanout ranges in two banks. A row and a key give the last range of the row
// that begins at or before the key.
//
// The first range of a row begins at or before each key that leads to the row, so its start is not compared. Ranges of
// a row that do not exist are marked as such; they are the last ones.
//
// Latency: 2 cycles from the row to the range; the key and the bank come together with the range.
// Throughput: one row a cycle, and one write.
// Handshake: none. A bank is written while no search reads it.
module fl_lpm_level #(
    parameter int unsigned Width = 32,
    parameter int unsigned Rows = 2,
    parameter int unsigned Fanout = 8,
    localparam int unsigned RowBits = (Rows > 1) ? $clog2(Rows) : 1,
    localparam int unsigned LaneBits = $clog2(Fanout)
) (
    input  logic                clk_i,
    input  logic [RowBits-1:0]  row_i,
    // Two cycles later.
    input  logic                bank_i,
    input  logic [Width-1:0]    key_i,
    output logic [LaneBits-1:0] lane_o,
    // A range of the bank that no search reads.
    input  logic                write_i,
    input  logic                write_bank_i,
    input  logic [RowBits-1:0]  write_row_i,
    input  logic [LaneBits-1:0] write_lane_i,
    input  logic                write_exists_i,
    input  logic [Width-1:0]    write_start_i
);

  typedef struct packed {
    logic             exists;
    logic [Width-1:0] start;
  } range_t;

  logic [Fanout-1:1] reached;

  for (genvar lane = 1; lane < Fanout; lane++) begin : gen_lane
    range_t ranges[2];
    range_t range;

    for (genvar bank = 0; bank < 2; bank++) begin : gen_bank
      fl_ram #(
          .Width($bits(range_t)),
          .Depth((Rows < 2) ? 2 : Rows)
      ) u_ram (
          .clk_i,
          .write_i        (write_i && write_bank_i == (bank == 1) && write_lane_i == LaneBits'(lane)),
          .write_address_i(write_row_i),
          .write_data_i   ({write_exists_i, write_start_i}),
          .read_address_i (row_i),
          .read_data_o    (ranges[bank])
      );
    end
    assign range         = ranges[bank_i];
    assign reached[lane] = range.exists && range.start <= key_i;
  end

  always_comb begin
    lane_o = '0;
    for (int unsigned lane = 1; lane < Fanout; lane++) begin
      if (reached[lane]) begin
        lane_o = LaneBits'(lane);
      end
    end
  end

  if (Fanout < 2 || (Fanout & (Fanout - 1)) != 0) begin : gen_bad_fanout
    $error("Fanout is %0d, expected a power of two from 2 on", Fanout);
  end

endmodule
