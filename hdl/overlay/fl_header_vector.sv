// SPDX-License-Identifier: Apache-2.0 OR MIT
// Header vector: the words that elements read, each a field of the packet or a constant, and presence bits.
//
// The memory of the configuration unit WordUnit has the number of each word's source among those that it can hold
// (fl_reach_pkg), and from 64 on the constants; that of PresenceUnit the sets of headers of presence bits.
//
// Latency: 2 cycles.
// Throughput: one packet a cycle.
// Handshake: none; data moves every cycle.
module fl_header_vector
  import fl_parse_pkg::*;
  import fl_reach_pkg::*;
  import fl_config_pkg::*;
#(
    parameter int unsigned Words = 32,
    parameter int unsigned PresenceBits = 15,
    parameter int unsigned SidebandBits = 1
) (
    input  logic                    clk_i,
    input  config_t                 config_i,
    input  words_t                  fields_i,
    input  logic [31:0]             valid_i,
    input  logic                    bank_i,
    input  logic [SidebandBits-1:0] sideband_i,
    output logic [Words-1:0][31:0]  words_o,
    output logic [PresenceBits-1:0] presence_o,
    output logic                    bank_o,
    output logic [SidebandBits-1:0] sideband_o
);

  localparam int unsigned SelectBits = $clog2(Choices);
  localparam int unsigned Constants = 64;

  words_t                  fields_q;
  logic [PresenceBits-1:0] presence_q;
  logic                    bank_q;
  logic [SidebandBits-1:0] sideband_q;

  for (genvar i = 0; i < Words; i++) begin : gen_word
    logic [SelectBits-1:0]     select, select_q;
    logic [31:0]               constant, constant_q;
    logic [Choices-1:0][31:0]  choices;

    fl_config_word #(.Unit(WordUnit), .Index(16'(i)), .Width(SelectBits)) u_select (
        .clk_i, .config_i, .bank_i, .data_o(select));
    fl_config_word #(.Unit(WordUnit), .Index(16'(Constants + i))) u_constant (
        .clk_i, .config_i, .bank_i, .data_o(constant));

    assign choices[0] = constant_q;
    for (genvar k = 1; k < Choices; k++) begin : gen_choice
      assign choices[k] = fields_q[Reach[i/2][k]];
    end

    always_ff @(posedge clk_i) begin
      select_q   <= select;
      constant_q <= constant;
      words_o[i] <= choices[select_q];
    end
  end

  for (genvar i = 0; i < PresenceBits; i++) begin : gen_presence
    logic [31:0] headers;

    fl_config_word #(.Unit(PresenceUnit), .Index(16'(i))) u_headers (
        .clk_i, .config_i, .bank_i, .data_o(headers));

    always_ff @(posedge clk_i) presence_q[i] <= (valid_i & headers) != '0;
  end

  always_ff @(posedge clk_i) begin
    fields_q   <= fields_i;
    presence_o <= presence_q;
    bank_q     <= bank_i;
    bank_o     <= bank_q;
    sideband_q <= sideband_i;
    sideband_o <= sideband_q;
  end

  logic unused;
  assign unused = ^fields_q;

  if (Words == 0 || Words > 2 * Pairs) begin : gen_bad_words
    $error("Words is %0d, expected 1 to %0d", Words, 2 * Pairs);
  end

endmodule
