// SPDX-License-Identifier: Apache-2.0 OR MIT
// Output framer: joins the results of the core with the stored bodies of the packets, in order.
//
//   results ─► job ─► read two neighbouring words ─► edits over them ─► rotate to the packet's new start ─► words
//               │     (even and odd bank of the body RAM)  ▲
//               └──── the patch: three cycles ─────────────┘
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

  localparam int unsigned Rows = BodyWords / 2;
  localparam int unsigned OutDepth = 16;
  localparam int unsigned OutBits = $clog2(OutDepth + 1);
  localparam int unsigned FlightBits = $clog2(InFlight + 1);
  localparam int unsigned Places = HasExtra ? 4 : InFlight;
  localparam int unsigned PlacesBits = $clog2(Places + 1);

  typedef enum logic [2:0] {
    Aborted  = 3'd0,
    Drop     = 3'd1,
    Pass     = 3'd2,
    Tx       = 3'd3,
    Redirect = 3'd4,
    Slow     = 3'd5,
    All      = 3'd6,
    Others   = 3'd7
  } verdict_e;

  typedef struct packed {
    logic [15:0]          length;
    logic [31:0]          port;
    logic [PlaceBits-1:0] place;
  } packet_t;

  typedef struct packed {
    logic                is_extra;
    logic [2:0]          verdict;
    logic [31:0]         target;
    logic [15:0]         head;
    logic [15:0]         tail;
    logic [EditBits-1:0] edits;
  } result_t;

  typedef struct packed {
    logic                  is_extra;
    logic [2:0]            verdict;
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

  // A word on its way to the output.
  typedef struct packed {
    logic                  last;
    logic [OffsetBits:0]   bytes;
    logic [2:0]            verdict;
    logic [31:0]           port;
    logic [OffsetBits-1:0] shift;
  } word_t;

  // ---- Results wait for their turn.

  logic [FlightBits-1:0] flight_q;
  packet_t               packet;
  result_t               result_d, result;
  logic                  packet_valid, packet_ready, result_valid, result_ready, take, take_packet;
  logic [FlightBits-1:0] unused_packets;
  logic [PlacesBits-1:0] unused_results;
  logic                  out_ready, unused;

  assign start_o = flight_q != FlightBits'(InFlight);
  assign ready_o = result_ready;
  assign unused  = ^{unused_packets, unused_results, head_i[31:16], tail_i[31:16], packet_valid, packet_ready,
                     result_ready, out_ready};

  always_comb begin
    result_d = '{is_extra: is_extra_i, verdict: Aborted, target: target_i, head: head_i[15:0], tail: tail_i[15:0],
                 edits: edits_i};
    if (slow_i) begin
      result_d.verdict = Slow;
    end else if (verdict_i <= 32'(Tx) || (verdict_i == 32'(Redirect) && has_target_i)) begin
      result_d.verdict = verdict_i[2:0];
    end
    if (result_d.verdict == Redirect && spread_i[1]) begin
      result_d.verdict = spread_i[0] ? Others : All;
    end
    if (is_extra_i) begin
      result_d.verdict = Aborted;
    end
  end

  fl_fifo #(
      .Width($bits(packet_t)),
      .Depth(InFlight)
  ) u_packets (
      .clk_i,
      .rst_i,
      .in_valid_i(begin_i),
      .in_ready_o(packet_ready),
      .in_data_i({length_i, port_i, place_i}),
      .out_valid_o(packet_valid),
      .out_ready_i(take_packet),
      .out_data_o(packet),
      .count_o(unused_packets)
  );

  fl_fifo #(
      .Width($bits(result_t)),
      .Depth(Places)
  ) u_results (
      .clk_i,
      .rst_i,
      .in_valid_i(valid_i),
      .in_ready_o(result_ready),
      .in_data_i(result_d),
      .out_valid_o(result_valid),
      .out_ready_i(take),
      .out_data_o(result),
      .count_o(unused_results)
  );

  // ---- The job: which words are read.

  logic        job_valid_q, sends, issue, is_last, job_done, done, has_room;
  job_t        job_d, job_q;
  logic [15:0] head, tail, next_bytes;

  assign take        = result_valid && (!job_valid_q || job_done);
  assign take_packet = take && !result.is_extra;

  always_comb begin
    head = HasShift ? result.head : '0;
    tail = result.tail;
    if (result.verdict == Slow) begin
      head = '0;
      tail = packet.length;
    end
    job_d.is_extra   = result.is_extra;
    job_d.verdict   = result.verdict;
    job_d.port      = (result.is_extra || result.verdict inside {Redirect, All, Others}) ? result.target : packet.port;
    job_d.edits     = result.edits;
    job_d.has_edits = result.verdict != Slow;
    job_d.shift     = head[OffsetBits-1:0];
    job_d.index     = head[15:OffsetBits];
    job_d.bytes     = tail - head;
    job_d.place     = packet.place + PlaceBits'($signed(head[15:OffsetBits]));
    job_d.stored    = CountBits'((packet.length + 16'(WordBytes - 1)) >> OffsetBits);
  end

  assign sends      = job_q.is_extra || job_q.verdict inside {Pass, Tx, Redirect, Slow, All, Others};
  assign is_last    = job_q.bytes <= 16'(WordBytes);
  assign issue      = job_valid_q && sends && has_room;
  assign job_done   = job_valid_q && (!sends || (issue && is_last));
  assign done       = job_done && !job_q.is_extra;
  assign next_bytes = job_q.bytes - 16'(WordBytes);

  assign free_o         = done;
  assign free_words_o   = job_q.stored;
  assign extra_valid_o = job_done && job_q.is_extra;
  assign done_valid_o   = done;
  assign done_verdict_o = job_q.verdict;

  always_ff @(posedge clk_i) begin
    flight_q <= flight_q + FlightBits'(started_i) - FlightBits'(take_packet);
    if (take) begin
      job_q <= job_d;
    end else if (issue) begin
      job_q.index <= job_q.index + 1'b1;
      job_q.place <= job_q.place + 1'b1;
      job_q.bytes <= next_bytes;
    end
    job_valid_q <= take || (job_valid_q && !job_done);
    if (rst_i) begin
      flight_q    <= '0;
      job_valid_q <= 1'b0;
    end
  end

  // ---- Two neighbouring words: the one at `place`, and the next one.

  logic [PlaceBits-2:0]  odd_row, even_row;
  logic [WordBits-1:0]   even, odd;
  logic [2:1]            is_odd_q, has_low_q, has_high_q;
  logic [3:1]            valid_q;
  logic [IndexBits-1:0]  next_index;
  word_t                 word_d, word1_q, word2_q, word3_q;
  logic [2*WordBits-1:0] pair_d, pair_q, pair;

  assign patch_valid_o = job_q.has_edits;
  assign patch_index_o = job_q.index;
  assign patch_edits_o = job_q.edits;

  assign odd_row    = job_q.place[PlaceBits-1:1];
  assign even_row   = odd_row + (PlaceBits - 1)'(job_q.place[0]);
  assign next_index = job_q.index + 1'b1;
  assign word_d     = '{last: is_last, bytes: is_last ? job_q.bytes[OffsetBits:0] : (OffsetBits + 1)'(WordBytes),
                        verdict: job_q.verdict, port: job_q.port, shift: job_q.shift};

  fl_ram #(
      .Width(WordBits),
      .Depth(Rows)
  ) u_even (
      .clk_i,
      .write_i(write_i && !write_place_i[0]),
      .write_address_i(write_place_i[PlaceBits-1:1]),
      .write_data_i,
      .read_address_i(even_row),
      .read_data_o(even)
  );

  fl_ram #(
      .Width(WordBits),
      .Depth(Rows)
  ) u_odd (
      .clk_i,
      .write_i(write_i && write_place_i[0]),
      .write_address_i(write_place_i[PlaceBits-1:1]),
      .write_data_i,
      .read_address_i(odd_row),
      .read_data_o(odd)
  );

  // Whether a word is one of those received.
  function automatic logic is_stored(logic [IndexBits-1:0] index, logic [CountBits-1:0] stored);
    return !index[IndexBits-1] && 16'(index) < 16'(stored);
  endfunction

  always_ff @(posedge clk_i) begin
    valid_q    <= {valid_q[2:1], issue};
    is_odd_q   <= {is_odd_q[1], job_q.place[0]};
    has_low_q  <= {has_low_q[1], is_stored(job_q.index, job_q.stored)};
    has_high_q <= {has_high_q[1], is_stored(next_index, job_q.stored)};
    word1_q    <= word_d;
    word2_q    <= word1_q;
    word3_q    <= word2_q;
    pair_q     <= pair_d;
    if (rst_i) begin
      valid_q <= '0;
    end
  end

  always_comb begin
    pair_d[WordBits-1:0]          = is_odd_q[2] ? odd : even;
    pair_d[2*WordBits-1:WordBits] = is_odd_q[2] ? even : odd;
    if (!has_low_q[2]) begin
      pair_d[WordBits-1:0] = '0;
    end
    if (!has_high_q[2]) begin
      pair_d[2*WordBits-1:WordBits] = '0;
    end
  end

  always_comb begin
    for (int unsigned i = 0; i < 2 * WordBytes; i++) begin
      pair[8*i+:8] = patch_mask_i[i] ? patch_data_i[8*i+:8] : pair_q[8*i+:8];
    end
  end

  // ---- The word of the output starts `shift` bytes into the pair: muxes of four, one for each two bits.

  logic                aligned_valid_q;
  word_t               aligned_word_q;
  logic [WordBits-1:0] aligned_q, cut;

  if (HasShift) begin : gen_shift
    localparam int unsigned Bits16 = WordBits + 8 * 15;
    localparam int unsigned Bits4 = WordBits + 8 * 3;

    logic [2:0]            shift_valid_q;
    word_t                 shift_word_q[3];
    logic [2*WordBits-1:0] patched_q;
    logic [Bits16-1:0]     by16_q;
    logic [Bits4-1:0]      by4_q;

    always_ff @(posedge clk_i) begin
      shift_valid_q   <= {shift_valid_q[1:0], valid_q[3]};
      shift_word_q[0] <= word3_q;
      shift_word_q[1] <= shift_word_q[0];
      shift_word_q[2] <= shift_word_q[1];
      patched_q       <= pair;
      by16_q          <= Bits16'(patched_q >> {shift_word_q[0].shift[OffsetBits-1:4], 7'b0});
      by4_q           <= Bits4'(by16_q >> {shift_word_q[1].shift[3:2], 5'b0});
      aligned_q       <= WordBits'(by4_q >> {shift_word_q[2].shift[1:0], 3'b0});
      aligned_valid_q <= shift_valid_q[2];
      aligned_word_q  <= shift_word_q[2];
      if (rst_i) begin
        shift_valid_q   <= '0;
        aligned_valid_q <= 1'b0;
      end
    end
  end else begin : gen_straight
    always_ff @(posedge clk_i) begin
      aligned_q       <= pair[WordBits-1:0];
      aligned_valid_q <= valid_q[3];
      aligned_word_q  <= word3_q;
      if (rst_i) begin
        aligned_valid_q <= 1'b0;
      end
    end
    logic unused_pair;
    assign unused_pair = ^pair[2*WordBits-1:WordBits];
  end

  // ---- Bytes after the end are 0. Words wait for the output, which has room for all that are on their way.

  logic [WordBytes-1:0] keep;
  logic [OutBits-1:0]   out_q, unused_out;
  logic                 unused_shift;

  assign unused_shift = ^{aligned_word_q.shift, unused_out};

  always_comb begin
    for (int unsigned i = 0; i < WordBytes; i++) begin
      keep[i]     = (OffsetBits + 1)'(i) < aligned_word_q.bytes;
      cut[8*i+:8] = keep[i] ? aligned_q[8*i+:8] : 8'h0;
    end
  end

  assign has_room = out_q != OutBits'(OutDepth);

  always_ff @(posedge clk_i) begin
    out_q <= out_q + OutBits'(issue) - OutBits'(out_valid_o && out_ready_i);
    if (rst_i) begin
      out_q <= '0;
    end
  end

  fl_fifo #(
      .Width(WordBits + WordBytes + 36),
      .Depth(OutDepth)
  ) u_out (
      .clk_i,
      .rst_i,
      .in_valid_i(aligned_valid_q),
      .in_ready_o(out_ready),
      .in_data_i({cut, keep, aligned_word_q.last, aligned_word_q.verdict, aligned_word_q.port}),
      .out_valid_o,
      .out_ready_i,
      .out_data_o({out_data_o, out_keep_o, out_last_o, out_verdict_o, out_port_o}),
      .count_o(unused_out)
  );

  if (BodyWords < 4 || (BodyWords & (BodyWords - 1)) != 0) begin : gen_bad_body
    $error("BodyWords is %0d, expected a power of two from 4 on", BodyWords);
  end
  if (WordBytes != 64 && WordBytes != 32) begin : gen_bad_word
    $error("WordBytes is %0d, expected 32 or 64", WordBytes);
  end

`ifndef SYNTHESIS
  // Every result and every word has a place; every result is one of a packet that began.
  a_packets : assert property (@(posedge clk_i) disable iff (rst_i) begin_i |-> packet_ready);
  a_results : assert property (@(posedge clk_i) disable iff (rst_i) valid_i && !HasExtra |-> result_ready);
  // A register of its own, as in fl_framer.
  logic is_extra_q;
  always_ff @(posedge clk_i) is_extra_q <= valid_i && is_extra_i && !rst_i;
  a_extra : assert property (@(posedge clk_i) disable iff (rst_i) is_extra_q |-> HasExtra);
  a_order : assert property (@(posedge clk_i) disable iff (rst_i) result_valid |-> packet_valid);
  a_words : assert property (@(posedge clk_i) disable iff (rst_i) aligned_valid_q |-> out_ready);
`endif

endmodule
