// SPDX-License-Identifier: Apache-2.0 OR MIT
// Overlay: places bytes at an offset known only at run time into two neighbouring words of a packet.
//
//   bytes at base + 0, 1, ... ──► by 16 bytes ──► by 1 byte ──► the word `index`, the next one
//
// Latency: 3 cycles.
// Throughput: one pair of words a cycle.
// Handshake: none.
module fl_overlay #(
    parameter int unsigned WordBytes = 64,
    // Bytes of the overlay, from the first one that may be written to the last one.
    parameter int unsigned Bytes = 1,
    localparam int unsigned PairBytes = 2 * WordBytes,
    localparam int unsigned OffsetBits = $clog2(WordBytes),
    localparam int unsigned IndexBits = 16 - OffsetBits
) (
    input  logic                   clk_i,
    // The offset of the first byte in the packet, and the index of the first word: both signed.
    input  logic [15:0]            base_i,
    input  logic [IndexBits-1:0]   index_i,
    // By byte, whether it is written.
    input  logic [Bytes-1:0]       when_i,
    input  logic [8*Bytes-1:0]     bytes_i,
    output logic [PairBytes-1:0]   mask_o,
    output logic [8*PairBytes-1:0] data_o
);

  // Lanes of the pair, after room for an overlay that begins before it.
  localparam int unsigned Lanes = PairBytes + Bytes;
  localparam int unsigned CoarseBits = $clog2(Lanes / 16 + 1);

  // The first lane.
  logic [15:0]           first;
  logic                  is_inside_q;
  logic [CoarseBits-1:0] coarse_q;
  logic [3:0]            fine1_q, fine2_q;
  logic [Bytes-1:0]      when_q;
  logic [8*Bytes-1:0]    bytes_q;
  logic [Lanes-1:0]      mask2_q, mask3_q;
  logic [8*Lanes-1:0]    data2_q, data3_q;
  logic                  unused;

  assign first  = base_i - {index_i, OffsetBits'(0)} + 16'(Bytes);
  assign mask_o = mask3_q[Lanes-1:Bytes];
  assign data_o = data3_q[8*Lanes-1:8*Bytes];
  assign unused = ^{mask3_q[Bytes-1:0], data3_q[8*Bytes-1:0]};

  always_ff @(posedge clk_i) begin
    when_q      <= when_i;
    bytes_q     <= bytes_i;
    is_inside_q <= first < 16'(Lanes);
    coarse_q    <= CoarseBits'(first >> 4);
    fine1_q     <= first[3:0];
    // By 16 lanes: a lane has few sources, since the overlay is short.
    mask2_q     <= is_inside_q ? Lanes'(when_q) << {coarse_q, 4'b0} : '0;
    data2_q     <= (8 * Lanes)'(bytes_q) << {coarse_q, 7'b0};
    fine2_q     <= fine1_q;
    // By 0 to 15 lanes.
    mask3_q     <= mask2_q << fine2_q;
    data3_q     <= data2_q << {fine2_q, 3'b0};
  end

  if (Bytes == 0 || Bytes > 256) begin : gen_bad_bytes
    $error("Bytes is %0d, expected 1 to 256", Bytes);
  end

endmodule
