// SPDX-License-Identifier: Apache-2.0 OR MIT
// Pipelined restoring divider: quotient and remainder.
//
// As in eBPF, a division by 0 gives 0, its remainder is the dividend, and signed division truncates towards 0.
//
// Latency: ceil(Width / StageBits) + 1 cycles; the last one applies signs.
// Throughput: one pair of operands a cycle.
// Handshake: none; data moves every cycle.
// Source: [RFC 9669 4.1]
module fl_div #(
    parameter int unsigned Width = 64,
    // Quotient bits of a stage.
    parameter int unsigned StageBits = 1,
    parameter bit IsSigned = 1'b0
) (
    input  logic             clk_i,
    input  logic [Width-1:0] dividend_i,
    input  logic [Width-1:0] divisor_i,
    output logic [Width-1:0] quotient_o,
    output logic [Width-1:0] remainder_o
);

  localparam int unsigned Stages = (Width + StageBits - 1) / ((StageBits == 0) ? 1 : StageBits);
  // The first stage takes the bits that the others leave.
  localparam int unsigned FirstBits = Width - (Stages - 1) * StageBits;

  logic [Width-1:0] dividend, divisor;
  logic negates_quotient, negates_remainder;

  assign dividend = (IsSigned && dividend_i[Width-1]) ? -dividend_i : dividend_i;
  assign divisor = (IsSigned && divisor_i[Width-1]) ? -divisor_i : divisor_i;
  assign negates_quotient = IsSigned && (dividend_i[Width-1] ^ divisor_i[Width-1]);
  assign negates_remainder = IsSigned && dividend_i[Width-1];

  for (genvar k = 0; k < Stages; ++k) begin : gen_stage
    // The bits of the dividend that are left, and below them those of the quotient so far.
    logic [Width-1:0] bits_before, bits_d, bits_q;
    logic [Width-1:0] remainder_before, remainder_d, remainder_q;
    logic [Width-1:0] divisor_before, divisor_q;
    logic negates_quotient_before, negates_quotient_q;
    logic negates_remainder_before, negates_remainder_q;
    logic fits;

    if (k == 0) begin : gen_first
      assign bits_before = dividend;
      assign remainder_before = '0;
      assign divisor_before = divisor;
      assign negates_quotient_before = negates_quotient;
      assign negates_remainder_before = negates_remainder;
    end else begin : gen_next
      assign bits_before = gen_stage[k-1].bits_q;
      assign remainder_before = gen_stage[k-1].remainder_q;
      assign divisor_before = gen_stage[k-1].divisor_q;
      assign negates_quotient_before = gen_stage[k-1].negates_quotient_q;
      assign negates_remainder_before = gen_stage[k-1].negates_remainder_q;
    end

    // After i steps in all, the remainder has at most i bits, so the last step does not need more than Width.
    always_comb begin
      bits_d = bits_before;
      remainder_d = remainder_before;
      fits = 1'b0;
      for (int unsigned i = 0; i < ((k == 0) ? FirstBits : StageBits); ++i) begin
        remainder_d = (remainder_d << 1) | Width'(bits_d[Width-1]);
        fits = remainder_d >= divisor_before;
        remainder_d = fits ? remainder_d - divisor_before : remainder_d;
        bits_d = (bits_d << 1) | Width'(fits);
      end
    end

    always_ff @(posedge clk_i) begin
      bits_q <= bits_d;
      remainder_q <= remainder_d;
      divisor_q <= divisor_before;
      negates_quotient_q <= negates_quotient_before;
      negates_remainder_q <= negates_remainder_before;
    end

    if (k == Stages - 1) begin : gen_last
      logic [Width-1:0] quotient;
      assign quotient = negates_quotient_q ? -bits_q : bits_q;
      always_ff @(posedge clk_i) begin
        quotient_o  <= (divisor_q == '0) ? '0 : quotient;
        remainder_o <= negates_remainder_q ? -remainder_q : remainder_q;
      end
    end
  end

  if (Width == 0) begin : gen_bad_width
    $error("Width is 0, expected at least 1");
  end
  if (StageBits == 0) begin : gen_bad_stage_bits
    $error("StageBits is 0, expected at least 1");
  end

endmodule
