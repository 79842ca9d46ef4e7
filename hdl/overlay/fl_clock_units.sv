// SPDX-License-Identifier: Apache-2.0 OR MIT
// Time in units that are set at run time: the low 32 bits of the quotients.
//
// With l = ceil(log2(unit)) and m = floor(2^(64 + l) / unit) + 1, which has 65 bits, the quotient of every time n is
// (n * m) >> (64 + l).
//
// Latency: Cycles, at least 12.
// Throughput: one time a cycle.
// Handshake: none.
// Source: [Granlund, Montgomery: Division by Invariant Integers using Multiplication, 1994]
module fl_clock_units
  import fl_parse_pkg::*;
  import fl_config_pkg::*;
#(
    parameter int unsigned Cycles = 12
) (
    input  logic                    clk_i,
    input  config_t                 config_i,
    input  logic                    bank_i,
    input  logic [63:0]             time_i,
    output logic [Clocks-1:0][31:0] clocks_o
);

  localparam int unsigned TimeBits = 64;
  localparam int unsigned ProductBits = 2 * TimeBits + 1;
  localparam int unsigned ProductCycles = 1 + (ProductBits + 16) / 17;
  localparam int unsigned OwnCycles = ProductCycles + 3;

  logic [63:0] time_q;
  always_ff @(posedge clk_i) time_q <= time_i;

  for (genvar i = 0; i < Clocks; i++) begin : gen_clock
    logic [31:0]            low, high;
    logic [6:0]             rest;
    logic [64:0]            reciprocal_q;
    logic [5:0]             shift_q[ProductCycles+1];
    logic [2:0]             fine_q;
    logic [ProductBits-1:0] product;
    logic [38:0]            coarse_q;
    // By cycle.
    logic [31:0]            clock_q[Cycles-OwnCycles+1];

    fl_config_word #(.Unit(ClockUnit), .Index(16'(4 * i))) u_low (.clk_i, .config_i, .bank_i, .data_o(low));
    fl_config_word #(.Unit(ClockUnit), .Index(16'(4 * i + 1))) u_high (.clk_i, .config_i, .bank_i, .data_o(high));
    fl_config_word #(.Unit(ClockUnit), .Index(16'(4 * i + 2)), .Width(7)) u_rest (
        .clk_i, .config_i, .bank_i, .data_o(rest));

    fl_mul #(.Width(ProductBits)) u_product (
        .clk_i,
        .a_i(ProductBits'(time_q)),
        .b_i(ProductBits'(reciprocal_q)),
        .product_o(product)
    );

    always_ff @(posedge clk_i) begin
      reciprocal_q <= {rest[0], high, low};
      shift_q[0]   <= rest[6:1];
      for (int unsigned k = 1; k <= ProductCycles; k++) shift_q[k] <= shift_q[k-1];
      coarse_q   <= 39'(product[ProductBits-1:TimeBits] >> {shift_q[ProductCycles][5:3], 3'b0});
      fine_q     <= shift_q[ProductCycles][2:0];
      clock_q[0] <= 32'(coarse_q >> fine_q);
      for (int unsigned k = 1; k <= Cycles - OwnCycles; k++) clock_q[k] <= clock_q[k-1];
    end
    assign clocks_o[i] = clock_q[Cycles-OwnCycles];

    logic unused;
    assign unused = ^product[TimeBits-1:0];
  end

  if (Cycles < OwnCycles) begin : gen_bad_cycles
    $error("Cycles is %0d, expected at least %0d", Cycles, OwnCycles);
  end

endmodule
