// SPDX-License-Identifier: Apache-2.0 OR MIT
// Pipelined multiplier: the low Width bits of the product.
//
// Operands are split into limbs of 17 bits, the width of an unsigned DSP input. In cycle k the products of column k are
// registered; in cycle k + 1 they are added to the carry of the column before.
//
// Latency: 1 + ceil(Width / 17) cycles.
// Throughput: one pair of operands a cycle.
// Handshake: none; data moves every cycle.
module fl_mul #(
    parameter int unsigned Width = 64
) (
    input  logic             clk_i,
    input  logic [Width-1:0] a_i,
    input  logic [Width-1:0] b_i,
    output logic [Width-1:0] product_o
);

  localparam int unsigned LimbBits = 17;
  localparam int unsigned Limbs = (Width + LimbBits - 1) / LimbBits;
  localparam int unsigned Padded = Limbs * LimbBits;
  // A column adds at most Limbs products and the carry.
  localparam int unsigned SumBits = 2 * LimbBits + $clog2(Limbs + 1) + 1;

  // The operands, by cycle.
  logic [Padded-1:0] a_at[Limbs], b_at[Limbs];
  logic [2*LimbBits-1:0] partial_q[Limbs][Limbs];
  logic [SumBits-1:0] sum[Limbs], carry_q[Limbs];
  // The limbs of the result so far, by cycle.
  logic [Padded-1:0] low[Limbs], low_q[Limbs];

  for (genvar k = 0; k < Limbs; ++k) begin : gen_column
    if (k == 0) begin : gen_first
      assign a_at[0] = Padded'(a_i);
      assign b_at[0] = Padded'(b_i);
    end else begin : gen_next
      logic [Padded-1:0] a_q, b_q;
      always_ff @(posedge clk_i) begin
        a_q <= a_at[k-1];
        b_q <= b_at[k-1];
      end
      assign a_at[k] = a_q;
      assign b_at[k] = b_q;
    end

    for (genvar i = 0; i < Limbs; ++i) begin : gen_partial
      if (i <= k) begin : gen_used
        always_ff @(posedge clk_i) begin
          partial_q[k][i] <= (2 * LimbBits)'(a_at[k][LimbBits*i+:LimbBits])
              * (2 * LimbBits)'(b_at[k][LimbBits*(k-i)+:LimbBits]);
        end
      end else begin : gen_zero
        assign partial_q[k][i] = '0;
      end
    end

    always_comb begin
      sum[k] = (k == 0) ? '0 : carry_q[(k == 0) ? 0 : k-1];
      for (int unsigned i = 0; i < Limbs; ++i) begin
        sum[k] += SumBits'(partial_q[k][i]);
      end
      low[k] = (k == 0) ? '0 : low_q[(k == 0) ? 0 : k-1];
      low[k][LimbBits*k+:LimbBits] = sum[k][LimbBits-1:0];
    end

    always_ff @(posedge clk_i) begin
      carry_q[k] <= sum[k] >> LimbBits;
      low_q[k]   <= low[k];
    end
  end

  assign product_o = low_q[Limbs-1][Width-1:0];

  if (Width == 0) begin : gen_bad_width
    $error("Width is 0, expected at least 1");
  end

endmodule
