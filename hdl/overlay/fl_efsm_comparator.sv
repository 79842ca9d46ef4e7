// SPDX-License-Identifier: Apache-2.0 OR MIT
// Comparator of an enabling condition.
//
// Relations: 0 equal, 1 below (unsigned), 2 less (two's complement), 3 before and 4 after (serial-number order). An
// offset is added to the difference; `below` and `less` have none. A comparator that continues another one compares
// the next higher words.
//
// Latency: 0 cycles. Throughput: one comparison a cycle. Handshake: none.
// Source: crates/overlay/src/model/alu.rs, its twin in software. [FlowBlaze 3.2]
module fl_efsm_comparator (
    input  logic [2:0]  relation_i,
    input  logic [31:0] left_i,
    input  logic [31:0] right_i,
    // The offset, inverted where it is subtracted.
    input  logic [31:0] offset_i,
    input  logic        subtracts_i,
    // The outcome of the comparator before it, if this one continues it; otherwise `does not hold` and `is equal`.
    input  logic        lower_holds_i,
    input  logic        lower_equal_i,
    output logic        holds_o,
    output logic        is_equal_o
);

  // left - right + offset = left + ~right + offset + 1, and one more where the offset is inverted: a carry-save adder,
  // then one carry chain.
  logic [31:0] sum, difference;
  logic [30:0] carries;
  logic        is_zero, is_below, is_same;

  always_comb begin
    sum        = left_i ^ ~right_i ^ offset_i;
    carries    = 31'((left_i & ~right_i) | (left_i & offset_i) | (~right_i & offset_i));
    difference = sum + {carries, 1'b1} + 32'(subtracts_i);
    is_zero    = difference == '0;
    is_same    = left_i == right_i;
    is_below   = left_i < right_i;
    is_equal_o = is_zero && lower_equal_i;
    unique case (relation_i)
      3'd0:    holds_o = is_equal_o;
      3'd1:    holds_o = is_below || (is_same && lower_holds_i);
      3'd2:    holds_o = ((left_i[31] != right_i[31]) ? left_i[31] : is_below) || (is_same && lower_holds_i);
      3'd3:    holds_o = difference[31];
      default: holds_o = !difference[31] && !is_zero;
    endcase
  end

endmodule
