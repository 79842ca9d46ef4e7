// SPDX-License-Identifier: Apache-2.0 OR MIT
// Pipelined division by a constant: a multiplication by its reciprocal.
//
// With l = ceil(log2(Divisor)) and m = floor(2^(Width + l) / Divisor) + 1, the quotient of every dividend n is
// (n * m) >> (Width + l). The product is made of limbs of 17 bits, the width of an unsigned DSP input: products of
// limbs, rows, pairs of rows, sum.
//
// As in eBPF, signed division truncates towards 0, and the remainder has the sign of the dividend.
//
// Latency: 4 cycles for an unsigned quotient; 2 more for signed operands, and 2 + ceil(Width / 17) more for a
// remainder.
// Throughput: one dividend a cycle.
// Handshake: none; data moves every cycle.
// Source: [Granlund, Montgomery: Division by Invariant Integers using Multiplication, 1994]
module fl_div_const #(
    parameter int unsigned Width = 64,
    parameter bit [63:0] Divisor = 10,
    parameter bit IsSigned = 1'b0,
    // The result is the remainder in place of the quotient.
    parameter bit IsRemainder = 1'b0
) (
    input  logic             clk_i,
    input  logic [Width-1:0] dividend_i,
    output logic [Width-1:0] result_o
);

  localparam int unsigned LimbBits = 17;
  localparam int unsigned Limbs = 4;
  localparam int unsigned Padded = Limbs * LimbBits;
  localparam bit [Width-1:0] Value = Divisor[Width-1:0];
  localparam bit [Width-1:0] Size = (IsSigned && Value[Width-1]) ? -Value : Value;
  localparam int unsigned Log = $clog2(Size);
  localparam bit [128:0] Power = 129'(1) << (Width + Log);
  localparam bit [128:0] Reciprocal = Power / 129'(Size) + 129'(1);
  localparam int unsigned QuotientCycles = 4;
  localparam int unsigned ProductCycles = 1 + (Width + LimbBits - 1) / LimbBits;

  // The size of the dividend.
  logic [Width-1:0] dividend;
  logic unused_sign, is_negative;
  assign unused_sign = is_negative;
  if (IsSigned) begin : gen_size
    always_ff @(posedge clk_i) begin
      dividend <= dividend_i[Width-1] ? -dividend_i : dividend_i;
      is_negative <= dividend_i[Width-1];
    end
  end else begin : gen_plain
    assign dividend = dividend_i;
    assign is_negative = 1'b0;
  end

  logic [Padded-1:0] padded;
  logic [2*LimbBits-1:0] partial_q[Limbs][Limbs];
  // Row i is the product of limb i of the dividend and the reciprocal.
  logic [Padded+LimbBits-1:0] row_q[Limbs];
  logic [Padded+2*LimbBits-1:0] pair_q[2];
  logic [2*Padded-1:0] product_q;
  assign padded = Padded'(dividend);

  always_ff @(posedge clk_i) begin
    for (int unsigned i = 0; i < Limbs; ++i) begin
      for (int unsigned k = 0; k < Limbs; ++k) begin
        partial_q[i][k] <= (2 * LimbBits)'(padded[LimbBits*i+:LimbBits])
            * (2 * LimbBits)'(Reciprocal[LimbBits*k+:LimbBits]);
      end
      // Products of limbs two apart do not overlap.
      row_q[i] <= (Padded + LimbBits)'({partial_q[i][2], partial_q[i][0]})
          + {partial_q[i][3], partial_q[i][1], LimbBits'(0)};
    end
    for (int unsigned i = 0; i < 2; ++i) begin
      pair_q[i] <= (Padded + 2 * LimbBits)'(row_q[2*i]) + {row_q[2*i+1], LimbBits'(0)};
    end
    product_q <= (2 * Padded)'(pair_q[0]) + {pair_q[1], (2 * LimbBits)'(0)};
  end

  logic [Width-1:0] quotient;
  assign quotient = Width'(product_q >> (Width + Log));

  // The signs, and for a remainder the dividend, beside the quotient.
  localparam int unsigned SignCycles = QuotientCycles + (IsRemainder ? ProductCycles + 1 : 0);
  logic negative;
  if (IsSigned) begin : gen_sign
    logic [SignCycles-1:0] negative_q;
    always_ff @(posedge clk_i) begin
      negative_q <= SignCycles'({negative_q, is_negative});
    end
    assign negative = negative_q[SignCycles-1];
  end else begin : gen_no_sign
    assign negative = 1'b0;
  end

  logic [Width-1:0] size;
  logic negates;
  if (IsRemainder) begin : gen_remainder
    logic [Width-1:0] product, remainder_q;
    logic [Width-1:0] dividend_q[QuotientCycles+ProductCycles];
    fl_mul #(
        .Width(Width)
    ) u_mul (
        .clk_i,
        .a_i(quotient),
        .b_i(Size),
        .product_o(product)
    );
    always_ff @(posedge clk_i) begin
      dividend_q[0] <= dividend;
      for (int unsigned k = 1; k < QuotientCycles + ProductCycles; ++k) begin
        dividend_q[k] <= dividend_q[k-1];
      end
      remainder_q <= dividend_q[QuotientCycles+ProductCycles-1] - product;
    end
    assign size = remainder_q;
    assign negates = negative;
  end else begin : gen_quotient
    assign size = quotient;
    assign negates = negative ^ (IsSigned && Value[Width-1]);
  end

  if (IsSigned) begin : gen_result
    always_ff @(posedge clk_i) begin
      result_o <= negates ? -size : size;
    end
  end else begin : gen_plain_result
    logic unused_negates;
    assign unused_negates = negates;
    assign result_o = size;
  end

  if (Width == 0 || Width > 64) begin : gen_bad_width
    $error("Width is %0d, expected 1 to 64", Width);
  end
  if (Value == 0) begin : gen_bad_divisor
    $error("Divisor is 0, expected at least 1");
  end

endmodule
