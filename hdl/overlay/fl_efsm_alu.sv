// SPDX-License-Identifier: Apache-2.0 OR MIT
// ALU of the update block.
//
// Operations: 0 move, 1 not, 2 and, 3 or, 4 xor, 5 add, 6 subtract, 7 add with carry, 8 subtract with borrow, 9 shift
// left, 10 shift right, 11 rotate right, 12 minimum, 13 maximum, 14 and 15 the same of two's complement. Carries come
// from the ALU before it.
//
// Latency: 0 cycles. Throughput: one operation a cycle. Handshake: none.
// Source: crates/overlay/src/model/alu.rs, its twin in software. [FlowBlaze, Table 7]
module fl_efsm_alu (
    input  logic [3:0]  operation_i,
    input  logic [31:0] left_i,
    input  logic [31:0] right_i,
    input  logic        carry_i,
    output logic [31:0] result_o,
    output logic        carry_o
);

  logic        subtracts, takes_carry, carry, is_below, is_less, is_wide, picks_right;
  logic [32:0] sum;
  logic [31:0] shifted;
  logic [63:0] doubled;
  logic        unused;

  always_comb begin
    subtracts   = !(operation_i inside {4'd5, 4'd7});
    takes_carry = operation_i inside {4'd7, 4'd8};
    // left + right + carry, or left + ~right + 1 - borrow.
    carry       = takes_carry ? (carry_i ^ subtracts) : subtracts;
    sum         = {1'b0, left_i} + {1'b0, right_i ^ {32{subtracts}}} + 33'(carry);
    is_below    = !sum[32];
    is_less     = (left_i[31] != right_i[31]) ? left_i[31] : is_below;
    picks_right = (operation_i[1] ? is_less : is_below) == operation_i[0];
    is_wide     = right_i[31:5] != '0;
    // A rotation takes the word twice; a shift to the right takes zeros above it.
    doubled     = {(operation_i == 4'd11) ? left_i : 32'd0, left_i};
    shifted     = (operation_i == 4'd9) ? left_i << right_i[4:0] : 32'(doubled >> right_i[4:0]);
    unique case (operation_i)
      4'd0:    result_o = left_i;
      4'd1:    result_o = ~left_i;
      4'd2:    result_o = left_i & right_i;
      4'd3:    result_o = left_i | right_i;
      4'd4:    result_o = left_i ^ right_i;
      4'd5, 4'd6, 4'd7, 4'd8: result_o = sum[31:0];
      4'd9, 4'd10: result_o = is_wide ? '0 : shifted;
      4'd11:   result_o = shifted;
      default: result_o = picks_right ? right_i : left_i;
    endcase
    carry_o = (operation_i inside {4'd5, 4'd7}) ? sum[32]
        : (operation_i inside {4'd6, 4'd8}) ? !sum[32] : 1'b0;
    unused = ^doubled[63:32];
  end

endmodule
