// SPDX-License-Identifier: Apache-2.0 OR MIT
// Input framer: stores packets, and starts each one in the core once it is complete.
//
//   words ──┬─► body RAM, a ring that the emitter reads
//           ├─► window: the first words of each packet ──► core, without gaps, zeros after the packet's end
//           └─► at the last word: length, port, place ───► core, emitter
//
// At the core a packet takes one cycle for each of its words in the window. Gaps between words on the bus end here.
// A packet of more than MaxWords words is discarded as a whole. Words of which no byte is kept are left out, and a
// packet without a byte is discarded. Times do not go back: a packet has the largest time of those so far that were not
// discarded, its own included, as of the last cycle with restart_i.
//
// Latency: 2 cycles from the last word of a packet to its first word at the core.
// Throughput: one word a cycle at the input; one packet a cycle where packets have one word in the window.
// Handshake: valid and ready at the input. At the core, valid and accept_i for the first word; the others follow in the
// next cycles, without valid. start_i allows a packet to be taken.
module fl_framer #(
    parameter int unsigned WordBytes = 64,
    // Words of a packet that the core reads.
    parameter int unsigned WindowWords = 1,
    parameter int unsigned MaxWords = 144,
    // Words of the body RAM.
    parameter int unsigned BodyWords = 256,
    // Complete packets that wait for the core.
    parameter int unsigned WaitingPackets = 16,
    // The time, and random words above it.
    parameter int unsigned TimeBits = 64,
    localparam int unsigned WordBits = 8 * WordBytes,
    localparam int unsigned PlaceBits = $clog2(BodyWords),
    localparam int unsigned CountBits = $clog2(BodyWords + 1)
) (
    input  logic                 clk_i,
    input  logic                 rst_i,
    input  logic                 in_valid_i,
    output logic                 in_ready_o,
    input  logic                 in_last_i,
    input  logic [WordBits-1:0]  in_data_i,
    input  logic [WordBytes-1:0] in_keep_i,
    input  logic [31:0]          in_port_i,
    // The time in nanoseconds, of which that of a packet's last word counts.
    input  logic [TimeBits-1:0]  in_time_i,
    // The times before it do not count from the next packet on: for a clock that was set back.
    input  logic                 restart_i,
    // The body RAM: a word is written; words of the oldest packet are free again.
    output logic                 write_o,
    output logic [PlaceBits-1:0] write_place_o,
    output logic [WordBits-1:0]  write_data_o,
    input  logic                 free_i,
    input  logic [CountBits-1:0] free_words_i,
    // A packet is taken from the queue, if start_i allows it. It begins when accept_i is high; its other words follow
    // in the next cycles.
    input  logic                 start_i,
    output logic                 started_o,
    input  logic                 accept_i,
    output logic                 valid_o,
    output logic [15:0]          length_o,
    output logic [31:0]          port_o,
    output logic [TimeBits-1:0]  time_o,
    output logic [PlaceBits-1:0] place_o,
    output logic [WordBits-1:0]  word_o,
    // A packet is discarded.
    output logic                 discarded_o
);

  localparam int unsigned WindowDepth = WaitingPackets + WindowWords;
  localparam int unsigned SlotBits = $clog2(WindowDepth);
  localparam int unsigned SlotCountBits = $clog2(WindowDepth + 1);
  localparam int unsigned LeftBits = $clog2(WindowWords + 1);
  localparam logic [PlaceBits-1:0] LastPlace = PlaceBits'(BodyWords - 1);
  localparam logic [SlotBits-1:0] LastSlot = SlotBits'(WindowDepth - 1);

  typedef struct packed {
    logic [15:0]          length;
    logic [31:0]          port;
    logic [TimeBits-1:0]  arrival;
    logic [PlaceBits-1:0] place;
    // Its words in the window.
    logic [LeftBits-1:0]  words;
  } packet_t;

  // The packet that arrives: where its words are, and how many there are.
  logic [PlaceBits-1:0] place_q, first_q, first;
  logic [SlotBits-1:0]  slot_q, first_slot_q, first_slot;
  logic [CountBits-1:0] words_q;
  logic                 is_first, is_full, is_too_long, is_void, too_long_q, accept, ends, discard, in_window;
  logic [LeftBits-1:0]  window_words;
  // Words in both stores, those of the arriving packet included.
  logic [CountBits-1:0]     stored_q;
  logic [SlotCountBits-1:0] waiting_q;
  logic [15:0]              last_bytes, kept_bytes;
  logic [WordBits-1:0]      masked;
  logic                     packet_ready;
  packet_t                  arrived;
  // The largest time so far.
  logic [63:0]              latest_q;
  logic [TimeBits-1:0]      arrival;

  // The packet that begins, and how many words of it the core still needs.
  logic                packet_valid, start, take, waits;
  packet_t             packet;
  logic [LeftBits-1:0] left_q;
  logic [SlotBits-1:0] read_q;
  logic [WordBits-1:0] window_q[WindowDepth];

  assign is_first    = words_q == '0;
  assign is_void     = in_keep_i == '0;
  assign is_full     = words_q == CountBits'(MaxWords);
  assign is_too_long = is_full && (too_long_q || !is_void);
  assign in_window   = words_q < CountBits'(WindowWords);
  assign in_ready_o  = is_full ? packet_ready : (stored_q != CountBits'(BodyWords) && waiting_q != SlotCountBits'(WindowDepth)
                       && packet_ready);
  assign accept      = in_valid_i && in_ready_o;
  assign discard     = accept && is_too_long && in_last_i;
  // A packet is complete.
  assign ends        = accept && !is_too_long && in_last_i && !(is_first && is_void);
  assign discarded_o = accept && in_last_i && !ends;
  assign first       = is_first ? place_q : first_q;
  assign first_slot  = is_first ? slot_q : first_slot_q;

  // Bytes after the packet's end are 0. The last byte that is kept says how many there are.
  always_comb begin
    last_bytes = '0;
    for (int unsigned i = 0; i < WordBytes; i++) begin
      masked[8*i+:8] = in_keep_i[i] ? in_data_i[8*i+:8] : 8'h0;
      if (in_keep_i[i] && (i == WordBytes - 1 || !in_keep_i[(i+1)%WordBytes])) begin
        last_bytes |= 16'(i + 1);
      end
    end
  end

  // In bits with gaps, which are not allowed, the ends of runs are joined; the word counts as one all the same.
  assign kept_bytes = last_bytes[$clog2(WordBytes)] ? 16'(WordBytes) : last_bytes;

  always_comb begin
    arrival = in_time_i;
    if (in_time_i[63:0] < latest_q) begin
      arrival[63:0] = latest_q;
    end
  end

  assign write_o       = accept && !is_full && !is_void;
  assign write_place_o = place_q;
  assign write_data_o  = masked;
  assign window_words  = in_window ? LeftBits'(words_q) + LeftBits'(!is_void) : LeftBits'(WindowWords);
  assign arrived = '{length: 16'(WordBytes) * 16'(words_q) + kept_bytes, port: in_port_i,
                     arrival: arrival, place: first, words: window_words};

  always_ff @(posedge clk_i) begin
    if (write_o) begin
      place_q <= (place_q == LastPlace) ? '0 : place_q + 1'b1;
      words_q <= words_q + 1'b1;
      first_q <= first;
      if (in_window) begin
        window_q[slot_q] <= masked;
        slot_q           <= (slot_q == LastSlot) ? '0 : slot_q + 1'b1;
        first_slot_q     <= first_slot;
      end
    end
    if (discard) begin
      place_q <= first_q;
      slot_q  <= first_slot_q;
    end
    if (accept && is_too_long) begin
      too_long_q <= 1'b1;
    end
    if (accept && in_last_i) begin
      words_q    <= '0;
      too_long_q <= 1'b0;
    end
    if (ends) begin
      latest_q <= arrival[63:0];
    end
    if (restart_i) begin
      latest_q <= '0;
    end
    stored_q  <= stored_q + CountBits'(write_o) - (free_i ? free_words_i : '0) - (discard ? CountBits'(MaxWords) : '0);
    waiting_q <= waiting_q + SlotCountBits'(write_o && in_window) - SlotCountBits'(take)
                 - (discard ? SlotCountBits'(WindowWords) : '0);
    if (rst_i) begin
      place_q    <= '0;
      slot_q     <= '0;
      words_q    <= '0;
      too_long_q <= 1'b0;
      latest_q   <= '0;
      stored_q   <= '0;
      waiting_q  <= '0;
    end
  end

  logic [$clog2(WaitingPackets+1)-1:0] unused_count;

  fl_fifo #(
      .Width($bits(packet_t)),
      .Depth(WaitingPackets)
  ) u_packets (
      .clk_i,
      .rst_i,
      .in_valid_i(ends),
      .in_ready_o(packet_ready),
      .in_data_i(arrived),
      .out_valid_o(packet_valid),
      .out_ready_i(start),
      .out_data_o(packet),
      .count_o(unused_count)
  );

  assign waits     = valid_o && !accept_i;
  assign start     = packet_valid && start_i && left_q == '0 && !waits;
  assign started_o = start;
  assign take      = start || (left_q != '0 && !waits);

  always_ff @(posedge clk_i) begin
    if (!waits) begin
      valid_o  <= start;
      length_o <= packet.length;
      port_o   <= packet.port;
      time_o   <= packet.arrival;
      place_o  <= packet.place;
      word_o   <= window_q[read_q];
    end
    if (take) begin
      read_q <= (read_q == LastSlot) ? '0 : read_q + 1'b1;
      left_q <= start ? packet.words - 1'b1 : left_q - 1'b1;
    end
    if (rst_i) begin
      valid_o <= 1'b0;
      read_q  <= '0;
      left_q  <= '0;
    end
  end

  if (WindowWords == 0 || WindowWords >= MaxWords) begin : gen_bad_window
    $error("WindowWords is %0d, expected 1 to %0d", WindowWords, MaxWords - 1);
  end
  if (MaxWords > BodyWords || MaxWords * WordBytes > 65535) begin : gen_bad_max
    $error("MaxWords is %0d, expected at most %0d words and 65535 bytes", MaxWords, BodyWords);
  end

`ifndef SYNTHESIS
  // Bytes are kept from the first one on, all of them in words before the last one; or no byte of a word.
  a_keep : assert property (@(posedge clk_i) disable iff (rst_i)
      in_valid_i |-> (in_last_i || &in_keep_i || is_void) && (in_keep_i & (in_keep_i + 1'b1)) == '0);
  // Words are given back once. A register of its own: Verilator 5.006 copies all that an assertion depends on, here the
  // job of the emitter with its edits.
  logic too_many_q;
  always_ff @(posedge clk_i) too_many_q <= free_i && free_words_i > stored_q && !rst_i;
  a_free : assert property (@(posedge clk_i) disable iff (rst_i) !too_many_q);
`endif

endmodule
