// SPDX-License-Identifier: Apache-2.0 OR MIT
// The shell's own registers: identification, status, and counters of 64 bits.
//
// A read of the lower word of a counter keeps its upper word, which the next read of an upper word gives: so a
// counter is read as one number. Counters start at 0 after a reset, and wrap.
//
// Latency: responses in the next cycle; an event is counted three cycles later.
// Throughput: one request a cycle; all events of a cycle.
// Handshake: none; requests are always accepted.
module fl_shell_registers
  import fl_bus_pkg::*;
  import fl_registers_pkg::*;
#(
    parameter int unsigned WordBytes = 64,
    // A block has 2 to the power of BlockBits bytes.
    parameter int unsigned BlockBits = 8,
    // Maps with a block.
    parameter int unsigned Maps = 0
) (
    input  logic                 clk_i,
    input  logic                 rst_i,
    input  request_t             request_i,
    output answer_t              answer_o,
    // Whether the maps are cleared after a reset.
    input  logic                 ready_i,
    // The streams.
    input  logic                 in_valid_i,
    input  logic                 in_ready_i,
    input  logic                 in_last_i,
    input  logic [WordBytes-1:0] in_keep_i,
    input  logic                 out_valid_i,
    input  logic                 out_ready_i,
    input  logic                 out_last_i,
    input  logic [WordBytes-1:0] out_keep_i,
    // Extra packets, the verdicts of packets, and packets that were discarded.
    input  logic                 extra_valid_i,
    input  logic                 done_valid_i,
    input  logic [2:0]           done_verdict_i,
    input  logic                 discarded_i
);

  localparam int unsigned OffsetBits = BlockBits - 2;
  localparam int unsigned BytesBits = $clog2(WordBytes + 1);
  localparam int unsigned Words = 2 * Counters;
  localparam int unsigned WordBits = $clog2(Words);
  localparam logic [OffsetBits-1:0] First = OffsetBits'(ShellCounters / 4);

  typedef logic [BytesBits-1:0] bytes_t;

  // What each counter adds.
  logic [Counters-1:0][BytesBits-1:0] add_d, add_q;
  logic [63:0]                        counters_q[Counters];
  logic [31:0]                        high_q;
  logic                               mine, is_counter, accepts, gives, unused_data;
  logic [OffsetBits-1:0]              offset, from_first;
  logic [WordBits-1:0]                place;
  logic [63:0]                        counter;
  answer_t                            answer;

  // The pins of a stream in the cycle before, so that no logic is at the pins.
  typedef struct packed {
    logic                 valid;
    logic                 ready;
    logic                 last;
    logic [WordBytes-1:0] keep;
  } word_t;

  word_t      in_q, out_q;
  logic       extra_q, done_q, discarded_q;
  logic [2:0] verdict_q;

  // The bytes of a word. Words before the last one are full, or have no byte. In the last one, kept bytes begin at the
  // first one: the last kept byte is the only one whose next byte is not kept.
  function automatic bytes_t kept(logic last, logic [WordBytes-1:0] keep);
    kept = '0;
    for (int unsigned i = 0; i < WordBytes; i++) begin
      if (keep[i] && (i == WordBytes - 1 || !keep[(i+1)%WordBytes])) kept |= bytes_t'(i + 1);
    end
    if (!last) kept = keep[0] ? bytes_t'(WordBytes) : '0;
  endfunction

  assign accepts = in_q.valid && in_q.ready;
  assign gives   = out_q.valid && out_q.ready;

  always_comb begin
    add_d                       = '0;
    add_d[CounterPacketsIn]     = bytes_t'(accepts && in_q.last);
    add_d[CounterBytesIn]       = accepts ? kept(in_q.last, in_q.keep) : '0;
    add_d[CounterPacketsOut]    = bytes_t'(gives && out_q.last);
    add_d[CounterBytesOut]      = gives ? kept(out_q.last, out_q.keep) : '0;
    add_d[CounterAborted]       = bytes_t'(done_q && verdict_q == 3'd0);
    add_d[CounterDropped]       = bytes_t'(done_q && verdict_q == 3'd1);
    add_d[CounterPassed]        = bytes_t'(done_q && verdict_q == 3'd2);
    add_d[CounterSentBack]      = bytes_t'(done_q && verdict_q == 3'd3);
    add_d[CounterRedirected]    = bytes_t'(done_q && verdict_q inside {3'd4, 3'd6, 3'd7});
    add_d[CounterSlow]          = bytes_t'(done_q && verdict_q == 3'd5);
    add_d[CounterDiscarded]     = bytes_t'(discarded_q);
    add_d[CounterInputStalls]   = bytes_t'(in_q.valid && !in_q.ready);
    add_d[CounterOutputStalls]  = bytes_t'(out_q.valid && !out_q.ready);
    add_d[CounterExtra]         = bytes_t'(extra_q);
  end

  assign mine        = request_i.valid && request_i.address[29:OffsetBits] == '0;
  assign offset      = request_i.address[OffsetBits-1:0];
  assign from_first  = offset - First;
  assign is_counter  = offset >= First && from_first < OffsetBits'(Words);
  assign place       = WordBits'(from_first);
  assign counter     = counters_q[place[WordBits-1:1]];
  assign unused_data = ^request_i.data;

  always_comb begin
    // A write of no byte changes nothing, and has no error.
    answer = '{hit: mine, response: (request_i.write && request_i.strobe != '0) ? Slverr : Okay, data: '0};
    unique case (offset)
      OffsetBits'(ShellIdentification / 4): answer.data = Identification;
      OffsetBits'(ShellLayout / 4):         answer.data = Layout;
      OffsetBits'(ShellStatus / 4):         answer.data = 32'(ready_i);
      OffsetBits'(ShellMaps / 4):           answer.data = 32'(Maps);
      OffsetBits'(ShellBlockBytes / 4):     answer.data = 32'd1 << BlockBits;
      default: begin
        if (is_counter) answer.data = place[0] ? high_q : counter[31:0];
        else answer.response = Decerr;
      end
    endcase
  end

  always_ff @(posedge clk_i) begin
    in_q        <= '{valid: in_valid_i, ready: in_ready_i, last: in_last_i, keep: in_keep_i};
    out_q       <= '{valid: out_valid_i, ready: out_ready_i, last: out_last_i, keep: out_keep_i};
    extra_q     <= extra_valid_i;
    done_q      <= done_valid_i;
    verdict_q   <= done_verdict_i;
    discarded_q <= discarded_i;
    add_q       <= rst_i ? '0 : add_d;
    for (int unsigned i = 0; i < Counters; i++) begin
      counters_q[i] <= rst_i ? '0 : counters_q[i] + 64'(add_q[i]);
    end
    answer_o <= mine ? answer : '0;
    if (mine && !request_i.write && is_counter && !place[0]) begin
      high_q <= counter[63:32];
    end
    if (rst_i) begin
      in_q.valid  <= 1'b0;
      out_q.valid <= 1'b0;
      extra_q     <= 1'b0;
      done_q      <= 1'b0;
      discarded_q <= 1'b0;
      high_q      <= '0;
    end
  end

  if (ShellCounters + 8 * Counters > 2 ** BlockBits) begin : gen_bad_block
    $error("BlockBits is %0d, expected room for %0d bytes", BlockBits, ShellCounters + 8 * Counters);
  end

endmodule
