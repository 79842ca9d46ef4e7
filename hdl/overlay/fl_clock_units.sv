// SPDX-License-Identifier: Apache-2.0 OR MIT
// Time in units that are set at run time: the low 32 bits of the quotients.
//
// With l = ceil(log2(unit)) and m = floor(2^(64 + l) / unit) + 1, which has 65 bits, the quotient of every time n is
// (n * m) >> (64 + l).
//
// Latency: Cycles, at least 14.
// Throughput: one time a cycle.
// Handshake: none.
// Source: [Granlund, Montgomery: Division by Invariant Integers using Multiplication, 1994]
module fl_clock_units
  import fl_parse_pkg::*;
  import fl_config_pkg::*;
#(
    parameter int unsigned Cycles = 14
) (
    input  logic                    clk_i,
    input  config_t                 config_i,
    input  logic                    bank_i,
    input  logic [63:0]             time_i,
    output logic [1:0][31:0] clocks_o
);

  localparam int unsigned Clocks = 2;
  // The product is made of limbs of 17 bits, the width of an unsigned DSP input.
  localparam int unsigned LimbBits = 17;
  localparam int unsigned Limbs = 4;
  // The upper digits of the product are added one after the other.
  localparam int unsigned Digits = 5;
  localparam int unsigned ShiftCycles = 7 + Digits;
  localparam int unsigned OwnCycles = ShiftCycles + 2;

  logic [Limbs-1:0][LimbBits-1:0] time_q;
  always_ff @(posedge clk_i) time_q <= 68'(time_i);

  for (genvar i = 0; i < Clocks; i++) begin : gen_clock
    logic [31:0]                    low, high;
    logic [6:0]                     rest;
    logic [Limbs-1:0][LimbBits-1:0] reciprocal_q;
    // Products of limbs; two registers, so that the sums stay out of the DSPs.
    logic [33:0]                    partial_q[Limbs][Limbs], partial2_q[Limbs][Limbs];
    // Products of the same weight, by the sum of their limbs.
    logic [34:0]                    half_q[7][2];
    logic [35:0]                    column_q[8];
    // Two neighbouring columns, and four.
    logic [53:0]                    two_q[4];
    logic [87:0]                    four_q[2];
    // The digits of the lower addend above bit 68.
    logic [15:0]                    addend[Digits];
    logic [3:0]                     addend_q;
    logic [5:0]                     shift_q[ShiftCycles];
    logic [38:0]                    coarse_q;
    logic [2:0]                     fine_q;
    // By cycle.
    logic [31:0]                    clock_q[Cycles-OwnCycles+1];

    fl_config_word #(.Unit(ClockUnit), .Index(16'(4 * i))) u_low (.clk_i, .config_i, .bank_i, .data_o(low));
    fl_config_word #(.Unit(ClockUnit), .Index(16'(4 * i + 1))) u_high (.clk_i, .config_i, .bank_i, .data_o(high));
    fl_config_word #(.Unit(ClockUnit), .Index(16'(4 * i + 2)), .Width(7)) u_rest (
        .clk_i, .config_i, .bank_i, .data_o(rest));

    always_ff @(posedge clk_i) begin
      reciprocal_q <= 68'({rest[0], high, low});
      for (int unsigned a = 0; a < Limbs; a++) begin
        for (int unsigned b = 0; b < Limbs; b++) begin
          partial_q[a][b]  <= 34'(time_q[a]) * 34'(reciprocal_q[b]);
          partial2_q[a][b] <= partial_q[a][b];
        end
      end
      half_q[0][0] <= 35'(partial2_q[0][0]);
      half_q[0][1] <= '0;
      half_q[1][0] <= 35'(partial2_q[0][1]) + 35'(partial2_q[1][0]);
      half_q[1][1] <= '0;
      half_q[2][0] <= 35'(partial2_q[0][2]) + 35'(partial2_q[1][1]);
      half_q[2][1] <= 35'(partial2_q[2][0]);
      half_q[3][0] <= 35'(partial2_q[0][3]) + 35'(partial2_q[1][2]);
      half_q[3][1] <= 35'(partial2_q[2][1]) + 35'(partial2_q[3][0]);
      half_q[4][0] <= 35'(partial2_q[1][3]) + 35'(partial2_q[2][2]);
      half_q[4][1] <= 35'(partial2_q[3][1]);
      half_q[5][0] <= 35'(partial2_q[2][3]) + 35'(partial2_q[3][2]);
      half_q[5][1] <= '0;
      half_q[6][0] <= 35'(partial2_q[3][3]);
      half_q[6][1] <= '0;
      for (int unsigned k = 0; k < 7; k++) column_q[k] <= 36'(half_q[k][0]) + 36'(half_q[k][1]);
      column_q[7] <= '0;
      for (int unsigned k = 0; k < 4; k++) two_q[k] <= 54'(column_q[2*k]) + {1'b0, column_q[2*k+1], 17'h0};
      for (int unsigned k = 0; k < 2; k++) four_q[k] <= 88'(two_q[2*k]) + {two_q[2*k+1], 34'h0};
      addend_q <= four_q[0][87:84];

      shift_q[0] <= rest[6:1];
      for (int unsigned k = 1; k < ShiftCycles; k++) shift_q[k] <= shift_q[k-1];
      coarse_q   <= 39'({gen_digit[Digits-1].sum_q, gen_digit[Digits-1].below_q}
          >> {shift_q[ShiftCycles-1][5:3], 3'b0});
      fine_q     <= shift_q[ShiftCycles-1][2:0];
      clock_q[0] <= 32'(coarse_q >> fine_q);
      for (int unsigned k = 1; k <= Cycles - OwnCycles; k++) clock_q[k] <= clock_q[k-1];
    end
    assign addend[0] = four_q[0][83:68];
    assign addend[1] = 16'(addend_q);
    for (genvar k = 2; k < Digits; k++) begin : gen_no_addend
      assign addend[k] = '0;
    end

    // By cycle: the bits from 68 on, of which the lower digits are sums, and the four bits below.
    for (genvar k = 0; k < Digits; k++) begin : gen_digit
      logic [Digits-1:0][15:0] upper, sum_q;
      logic [16:0]             sum;
      logic [3:0]              below, below_q;
      logic                    carry, carry_q;

      if (k == 0) begin : gen_first
        assign upper = 80'(four_q[1][68:0]);
        assign below = four_q[0][67:64];
        assign carry = 1'b0;
      end else begin : gen_next
        assign upper = gen_digit[k-1].sum_q;
        assign below = gen_digit[k-1].below_q;
        assign carry = gen_digit[k-1].carry_q;
      end

      assign sum = 17'(upper[k]) + 17'(addend[k]) + 17'(carry);
      always_ff @(posedge clk_i) begin
        sum_q    <= upper;
        sum_q[k] <= sum[15:0];
        carry_q  <= sum[16];
        below_q  <= below;
      end
    end

    assign clocks_o[i] = clock_q[Cycles-OwnCycles];

    logic unused;
    assign unused = ^{four_q[0], four_q[1], gen_digit[Digits-1].carry_q};
  end

  if (Cycles < OwnCycles) begin : gen_bad_cycles
    $error("Cycles is %0d, expected at least %0d", Cycles, OwnCycles);
  end

endmodule
