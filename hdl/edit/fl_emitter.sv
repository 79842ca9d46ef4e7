// SPDX-License-Identifier: Apache-2.0 OR MIT
// Output framer: joins the results of the core with the stored bodies of the packets, in order.
//
//   results ─► job ─► two neighbouring words ─► edits over them ─► from the new start on ─► words
//  fl_results   │          fl_body             ▲                    fl_align
//               └──── the patch: three cycles ─┘
//
// Offsets count from the packet's first byte as received. The result moves the start (head) and the end (tail); bytes
// after the received end are 0. A part outside of this module, the patch, says which bytes of a pair of words are
// replaced; they may lie before the received start. A word of the output needs two neighbouring words at most, so
// packets that move take no further cycles.
//
// A result may be an extra packet, which a packet sends besides itself, from the same body. Extra packets come before
// the result of their packet, and only that one gives up the body.
//
// Latency: 7 cycles from the result to the first word, 10 with HasShift.
// Throughput: one word of the output, or one dropped packet, a cycle.
// Handshake: results are always accepted: start_o limits the packets in the core to the places for their results. With
// HasExtra, the places are outside (fl_jobs), and results have valid and ready.
module fl_emitter #(
    parameter int unsigned WordBytes = 64,
    // Words of the body RAM: a power of two.
    parameter int unsigned BodyWords = 256,
    // Packets in the core and results that wait.
    parameter int unsigned InFlight = 16,
    // The start of the packet may move.
    parameter bit HasShift = 1'b1,
    // Results may be extra packets.
    parameter bit HasExtra = 1'b0,
    // Bits of a result for the patch.
    parameter int unsigned EditBits = 1,
    localparam int unsigned WordBits = 8 * WordBytes,
    localparam int unsigned PlaceBits = $clog2(BodyWords),
    localparam int unsigned CountBits = $clog2(BodyWords + 1),
    localparam int unsigned OffsetBits = $clog2(WordBytes),
    // Indices of words, signed: 0 is the one with the packet's first byte as received.
    localparam int unsigned IndexBits = 16 - OffsetBits
) (
    input  logic                 clk_i,
    input  logic                 rst_i,
    // The body RAM is written; words of the oldest packet are free again.
    input  logic                 write_i,
    input  logic [PlaceBits-1:0] write_place_i,
    input  logic [WordBits-1:0]  write_data_i,
    output logic                 free_o,
    output logic [CountBits-1:0] free_words_o,
    // Another packet may begin; one is about to; one has.
    output logic                 start_o,
    input  logic                 started_i,
    input  logic                 begin_i,
    input  logic [15:0]          length_i,
    input  logic [31:0]          port_i,
    input  logic [PlaceBits-1:0] place_i,
    // The result of the oldest packet in the core. Packets on the slow path leave as they came. The target of an extra
    // packet is its egress port.
    input  logic                 valid_i,
    output logic                 ready_o,
    input  logic                 is_extra_i,
    input  logic [31:0]          verdict_i,
    input  logic                 has_target_i,
    input  logic [31:0]          target_i,
    // The target is a map: to all its ports, or with the lower bit to all but the ingress port.
    input  logic [1:0]           spread_i,
    input  logic [31:0]          head_i,
    input  logic [31:0]          tail_i,
    input  logic [EditBits-1:0]  edits_i,
    input  logic                 slow_i,
    // To the patch: the pair of words that begins with the one of an index. From it, three cycles later: which of their
    // bytes are replaced.
    output logic                 patch_valid_o,
    output logic [IndexBits-1:0] patch_index_o,
    output logic [EditBits-1:0]  patch_edits_o,
    input  logic [2*WordBytes-1:0] patch_mask_i,
    input  logic [2*WordBits-1:0]  patch_data_i,
    // An extra packet leaves; the verdict of its packet follows. At the output it has the verdict 0.
    output logic                 extra_valid_o,
    // The verdict of each packet, in order; 5 for the slow path, 6 and 7 for a redirect to all ports of a map.
    output logic                 done_valid_o,
    output logic [2:0]           done_verdict_o,
    output logic                 out_valid_o,
    input  logic                 out_ready_i,
    output logic                 out_last_o,
    output logic [WordBits-1:0]  out_data_o,
    output logic [WordBytes-1:0] out_keep_o,
    output logic [2:0]           out_verdict_o,
    output logic [31:0]          out_port_o
);

  localparam int unsigned OutDepth = 16;
  localparam int unsigned OutBits = $clog2(OutDepth + 1);

  typedef struct packed {
    logic                  is_extra;
    logic [2:0]            verdict;
    logic                  sends;
    logic [31:0]           port;
    logic [EditBits-1:0]   edits;
    logic                  has_edits;
    logic [OffsetBits-1:0] shift;
    // The word read next, the bytes that leave from there on, the place of the word.
    logic [IndexBits-1:0]  index;
    logic [15:0]           bytes;
    logic [PlaceBits-1:0]  place;
    // The words of the packet as received.
    logic [CountBits-1:0]  stored;
  } job_t;

  typedef struct packed {
    logic        last;
    logic [2:0]  verdict;
    logic [31:0] port;
  } tag_t;

  // A word on its way to the output.
  typedef struct packed {
    logic [OffsetBits:0]   bytes;
    logic [OffsetBits-1:0] shift;
    tag_t                  tag;
  } word_t;

  // ---- Results wait for their turn.

  logic                 result_valid, result_is_extra, result_sends, result_has_edits, take;
  logic [2:0]           result_verdict;
  logic [31:0]          result_port;
  logic [15:0]          result_head, result_tail, result_length;
  logic [EditBits-1:0]  result_edits;
  logic [PlaceBits-1:0] result_place;

  fl_results #(
      .InFlight (InFlight),
      .HasExtra (HasExtra),
      .PlaceBits(PlaceBits),
      .EditBits (EditBits)
  ) u_results (
      .clk_i,
      .rst_i,
      .start_o,
      .started_i,
      .begin_i,
      .length_i,
      .port_i,
      .place_i,
      .valid_i,
      .ready_o,
      .is_extra_i,
      .verdict_i,
      .has_target_i,
      .target_i,
      .spread_i,
      .head_i,
      .tail_i,
      .edits_i,
      .slow_i,
      .valid_o    (result_valid),
      .ready_i    (take),
      .is_extra_o (result_is_extra),
      .verdict_o  (result_verdict),
      .sends_o    (result_sends),
      .port_o     (result_port),
      .head_o     (result_head),
      .tail_o     (result_tail),
      .edits_o    (result_edits),
      .has_edits_o(result_has_edits),
      .length_o   (result_length),
      .place_o    (result_place)
  );

  // ---- The job: which words are read.

  logic        job_valid_q, issue, is_last, job_done, done, has_room;
  job_t        job_d, job_q;
  logic [15:0] head, next_bytes;

  // A job is taken where there is none, or in the cycle of its last word.
  assign take = result_valid && (!job_valid_q || job_done);
  assign head = HasShift ? result_head : '0;

  always_comb begin
    job_d.is_extra  = result_is_extra;
    job_d.verdict   = result_verdict;
    job_d.sends     = result_sends;
    job_d.port      = result_port;
    job_d.edits     = result_edits;
    job_d.has_edits = result_has_edits;
    job_d.shift     = head[OffsetBits-1:0];
    job_d.index     = head[15:OffsetBits];
    job_d.bytes     = result_tail - head;
    job_d.place     = result_place + PlaceBits'($signed(head[15:OffsetBits]));
    job_d.stored    = CountBits'((result_length + 16'(WordBytes - 1)) >> OffsetBits);
  end

  assign is_last    = job_q.bytes <= 16'(WordBytes);
  assign issue      = job_valid_q && job_q.sends && has_room;
  assign job_done   = job_valid_q && (!job_q.sends || (issue && is_last));
  assign done       = job_done && !job_q.is_extra;
  assign next_bytes = job_q.bytes - 16'(WordBytes);

  assign free_o         = done;
  assign free_words_o   = job_q.stored;
  assign extra_valid_o  = job_done && job_q.is_extra;
  assign done_valid_o   = done;
  assign done_verdict_o = job_q.verdict;

  always_ff @(posedge clk_i) begin
    if (take) begin
      job_q <= job_d;
    end else if (issue) begin
      job_q.index <= job_q.index + 1'b1;
      job_q.place <= job_q.place + 1'b1;
      job_q.bytes <= next_bytes;
    end
    job_valid_q <= take || (job_valid_q && !job_done);
    if (rst_i) begin
      job_valid_q <= 1'b0;
    end
  end

  // ---- Two neighbouring words, and their edits three cycles later.

  logic [3:1]            valid_q;
  word_t                 word_d, word1_q, word2_q, word3_q;
  logic [2*WordBits-1:0] stored_pair, pair;

  assign patch_valid_o = job_q.has_edits;
  assign patch_index_o = job_q.index;
  assign patch_edits_o = job_q.edits;
  assign word_d        = '{bytes: is_last ? job_q.bytes[OffsetBits:0] : (OffsetBits + 1)'(WordBytes),
                           shift: job_q.shift, tag: '{last: is_last, verdict: job_q.verdict, port: job_q.port}};

  fl_body #(
      .WordBytes(WordBytes),
      .BodyWords(BodyWords)
  ) u_body (
      .clk_i,
      .write_i,
      .write_place_i,
      .write_data_i,
      .place_i (job_q.place),
      .index_i (job_q.index),
      .stored_i(job_q.stored),
      .pair_o  (stored_pair)
  );

  always_comb begin
    for (int unsigned i = 0; i < 2 * WordBytes; i++) begin
      pair[8*i+:8] = patch_mask_i[i] ? patch_data_i[8*i+:8] : stored_pair[8*i+:8];
    end
  end

  always_ff @(posedge clk_i) begin
    valid_q <= {valid_q[2:1], issue};
    word1_q <= word_d;
    word2_q <= word1_q;
    word3_q <= word2_q;
    if (rst_i) begin
      valid_q <= '0;
    end
  end

  // ---- The word of the output. Words wait for it, and it has room for all that are on their way.

  logic                 aligned_valid;
  logic [WordBits-1:0]  aligned;
  logic [WordBytes-1:0] keep;
  tag_t                 tag;
  logic [OutBits-1:0]   out_q, unused_out;
  logic                 out_ready, unused;

  assign unused = ^{unused_out, out_ready};

  fl_align #(
      .WordBytes(WordBytes),
      .HasShift (HasShift),
      .TagBits  ($bits(tag_t))
  ) u_align (
      .clk_i,
      .rst_i,
      .valid_i(valid_q[3]),
      .pair_i (pair),
      .shift_i(word3_q.shift),
      .bytes_i(word3_q.bytes),
      .tag_i  (word3_q.tag),
      .valid_o(aligned_valid),
      .data_o (aligned),
      .keep_o (keep),
      .tag_o  (tag)
  );

  assign has_room = out_q != OutBits'(OutDepth);

  always_ff @(posedge clk_i) begin
    out_q <= out_q + OutBits'(issue) - OutBits'(out_valid_o && out_ready_i);
    if (rst_i) begin
      out_q <= '0;
    end
  end

  fl_fifo #(
      .Width(WordBits + WordBytes + $bits(tag_t)),
      .Depth(OutDepth)
  ) u_out (
      .clk_i,
      .rst_i,
      .in_valid_i(aligned_valid),
      .in_ready_o(out_ready),
      .in_data_i({aligned, keep, tag}),
      .out_valid_o,
      .out_ready_i,
      .out_data_o({out_data_o, out_keep_o, out_last_o, out_verdict_o, out_port_o}),
      .count_o(unused_out)
  );

`ifndef SYNTHESIS
  // Every word has a place.
  a_words : assert property (@(posedge clk_i) disable iff (rst_i) aligned_valid |-> out_ready);
`endif

endmodule
