// SPDX-License-Identifier: Apache-2.0 OR MIT
// Packets on their way from the elements: in order again, rewritten, with their verdicts.
//
//   elements ─► fl_reorder ─┬─► notes (by tag) ─► fl_header_rewriter ─► edits (by tag) ─► patch of the emitter
//                           └─► retired time                        └─► result
//
// Latency: 17 cycles from the elements to the result; 3 more with Reorders.
// Throughput: one packet a cycle.
// Handshake: none; the emitter has a place for each result.
module fl_machine_departure
  import fl_parse_pkg::*;
  import fl_config_pkg::*;
  import fl_machine_pkg::*;
#(
    parameter int unsigned WordBytes = 64,
    parameter int unsigned Words = 24,
    // Packets leave the elements in another order than they entered them.
    parameter bit Reorders = 1'b0,
    localparam int unsigned WordBits = 8 * WordBytes,
    localparam int unsigned IndexBits = 16 - $clog2(WordBytes)
) (
    input  logic                   clk_i,
    input  logic                   rst_i,
    input  config_t                config_i,
    // By number, whether a port is bound.
    input  logic [255:0]           bound_i,
    // Results of the parser (fl_machine_arrival).
    input  logic                   note_valid_i,
    input  tag_t                  note_tag_i,
    input  note_t                  note_i,
    // A packet leaves the elements.
    input  logic                   valid_i,
    input  side_t                  side_i,
    input  logic                   bank_i,
    input  logic [63:0]            time_i,
    input  logic [Words-1:0][31:0] words_i,
    input  logic [Words-1:0]       written_i,
    input  logic [2:0]             terminal_i,
    input  logic [31:0]            port_i,
    // A packet has left the elements, and all packets before it.
    output logic                   retired_valid_o,
    output logic [63:0]            retired_time_o,
    // A packet uses the configuration of its bank no more.
    output logic                   done_valid_o,
    output logic                   done_bank_o,
    // The result, to fl_emitter.
    output logic                   result_valid_o,
    output tag_t                  result_tag_o,
    output logic                   result_slow_o,
    output logic [31:0]            result_verdict_o,
    output logic                   result_has_target_o,
    output logic [31:0]            result_target_o,
    output logic [1:0]             result_spread_o,
    output logic [15:0]            result_tail_o,
    // The patch: three cycles later, which bytes of a pair of words are replaced.
    input  logic                   patch_valid_i,
    input  logic [IndexBits-1:0]   patch_index_i,
    input  tag_t                  patch_tag_i,
    output logic [2*WordBytes-1:0] patch_mask_o,
    output logic [2*WordBits-1:0]  patch_data_o
);

  localparam int unsigned RewriterCycles = 14;

  typedef struct packed {
    departed_t              departed;
    logic [Words-1:0][31:0] words;
    logic [Words-1:0]       written;
  } leaving_t;

  typedef struct packed {
    departed_t   departed;
    tag_t       tag;
    logic [15:0] length;
  } rewriting_t;

  // ---- In order.

  leaving_t leaving, ordered;
  logic     ordered_valid;
  tag_t    ordered_tag;

  assign leaving = '{
      departed: '{slow: side_i.slow, bank: bank_i, arrival: time_i, terminal: terminal_i, port: port_i},
      words: words_i,
      written: written_i
  };

  if (Reorders) begin : gen_reorder
    fl_reorder #(
        .Slots(2 ** TagBits),
        .Width($bits(leaving_t))
    ) u_reorder (
        .clk_i,
        .rst_i,
        .valid_i,
        .slot_i (side_i.tag),
        .data_i (leaving),
        .valid_o(ordered_valid),
        .slot_o (ordered_tag),
        .data_o (ordered)
    );
  end else begin : gen_ordered
    assign ordered_valid = valid_i;
    assign ordered_tag  = side_i.tag;
    assign ordered       = leaving;
  end

  assign retired_valid_o = ordered_valid;
  assign retired_time_o  = ordered.departed.arrival;

  // ---- The notes of the packet; the rewriter.

  note_t                       note;
  leaving_t                    leaving1_q, leaving2_q;
  tag_t                       tag1_q, tag2_q;
  rewriting_t                  rewriting_d, rewriting;
  logic [RewriterCycles+2:1]   valid_q;
  logic [8*WindowBytes-1:0]    data;
  logic [WindowBytes-1:0]      mask;

  fl_ram #(
      .Width($bits(note_t)),
      .Depth(2 ** TagBits)
  ) u_notes (
      .clk_i,
      .write_i        (note_valid_i),
      .write_address_i(note_tag_i),
      .write_data_i   (note_i),
      .read_address_i (ordered_tag),
      .read_data_o    (note)
  );

  always_ff @(posedge clk_i) begin
    leaving1_q <= ordered;
    leaving2_q <= leaving1_q;
    tag1_q    <= ordered_tag;
    tag2_q    <= tag1_q;
    valid_q    <= {valid_q[RewriterCycles+1:1], ordered_valid};
    if (rst_i) valid_q <= '0;
  end

  assign rewriting_d = '{departed: leaving2_q.departed, tag: tag2_q, length: note.length};

  fl_header_rewriter #(
      .WindowBytes (WindowBytes),
      .Words       (Words),
      .SidebandBits($bits(rewriting_t))
  ) u_rewriter (
      .clk_i,
      .config_i,
      .words_i   (leaving2_q.words),
      .written_i (leaving2_q.written),
      .valid_i   (note.valid),
      .headers_i (note.headers),
      .places_i  (note.places),
      .bank_i    (leaving2_q.departed.bank),
      .sideband_i(rewriting_d),
      .data_o    (data),
      .mask_o    (mask),
      .sideband_o(rewriting)
  );

  // ---- The result.

  typedef enum logic [2:0] {
    Drop,
    Pass,
    Punt,
    Reply,
    Flood,
    Forward
  } terminal_e;

  // Verdicts, as XDP numbers them.
  localparam logic [31:0] Aborted = 32'd0;
  localparam logic [31:0] Dropped = 32'd1;
  localparam logic [31:0] Passed = 32'd2;
  localparam logic [31:0] SentBack = 32'd3;
  localparam logic [31:0] Redirected = 32'd4;

  logic        valid;
  logic [31:0] verdict;

  assign valid        = valid_q[RewriterCycles+2];
  assign done_valid_o = valid;
  assign done_bank_o  = rewriting.departed.bank;

  always_comb begin
    unique case (rewriting.departed.terminal)
      Drop:           verdict = Dropped;
      Pass, Punt:     verdict = Passed;
      Reply:          verdict = SentBack;
      Flood, Forward: verdict = Redirected;
      default:        verdict = Aborted;
    endcase
  end

  always_ff @(posedge clk_i) begin
    result_valid_o      <= valid && !rst_i;
    result_tag_o       <= rewriting.tag;
    result_slow_o       <= rewriting.departed.slow;
    result_verdict_o    <= verdict;
    result_has_target_o <= rewriting.departed.terminal == Flood
        || (rewriting.departed.port[31:8] == '0 && bound_i[rewriting.departed.port[7:0]]);
    result_target_o     <= (rewriting.departed.terminal == Flood) ? '0 : rewriting.departed.port;
    // A flood: all ports of map 0 but the ingress port.
    result_spread_o     <= {2{rewriting.departed.terminal == Flood}};
    result_tail_o       <= rewriting.length;
  end

  // ---- The edits of a packet, until it has left.

  logic [8*WindowBytes-1:0] edit_data;
  logic [WindowBytes-1:0]   edit_mask;
  logic [2:1][IndexBits:0]  patch_q;

  fl_ram #(
      .Width(9 * WindowBytes),
      .Depth(2 ** TagBits)
  ) u_edits (
      .clk_i,
      .write_i        (valid),
      .write_address_i(rewriting.tag),
      .write_data_i   ({mask, data}),
      .read_address_i (patch_tag_i),
      .read_data_o    ({edit_mask, edit_data})
  );

  localparam int unsigned WindowWords = WindowBytes / WordBytes;

  // Words beyond the window are not replaced.
  logic [WindowWords:0][WordBits-1:0]  edit_words;
  logic [WindowWords:0][WordBytes-1:0] edit_keeps;
  assign edit_words = {WordBits'(0), edit_data};
  assign edit_keeps = {WordBytes'(0), edit_mask};

  always_ff @(posedge clk_i) begin
    patch_q      <= {patch_q[1], {patch_valid_i, patch_index_i}};
    patch_mask_o <= '0;
    for (int unsigned word = 0; word < WindowWords; word++) begin
      if (patch_q[2] == {1'b1, IndexBits'(word)}) begin
        patch_mask_o <= {edit_keeps[word+1], edit_keeps[word]};
        patch_data_o <= {edit_words[word+1], edit_words[word]};
      end
    end
  end

endmodule
