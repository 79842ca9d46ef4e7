// SPDX-License-Identifier: Apache-2.0 OR MIT
// Order of use of the rows of a table: a doubly linked list, whose oldest row is the next one to be evicted.
//
//   cycle  0             1                      2
//          operation     rows of the links      links written, ends of the list changed
//
// An operation takes a row out of the list, appends one as the newest, or both: a use does both with one row, an
// eviction takes the oldest row out and appends another one. A replacement puts a row in the place of another one.
//
// Each operation changes two links on each side, but each memory is written once in a cycle. So a row has two links to
// its newer neighbour, one written when that is appended (u_next) and one when that is taken out (u_newer), and two to
// its older one: one from its own appending (u_own) and one from the taking out of the neighbour (u_older). Which one
// counts is decided by tags: a link from a taking out counts if its tag is the one that the row has in u_own, and an
// appended row chooses tags that no such link has. A link to a row holds the tag that a change of that row's link back
// needs.
//
// Latency: 3 cycles from an operation to the oldest row after it. The row that an eviction takes is known in cycle 1,
// or in cycle 2 if the eviction waits.
// Throughput: one operation a cycle; after an eviction that waits, in the second cycle after it.
// Handshake: none. An eviction waits a cycle if the rows of the operation before are read in its cycle: that operation
// may change the oldest row. In this cycle there is no place for another operation, so none comes in the cycle after
// such an eviction: fl_hash_map keeps packets two cycles apart where one of them may evict, and the host and copies
// wait while evicting_o is high. An eviction waits once only, as nothing enters cycle 2 while it does. ready_o is high
// from the end of the clearing after a reset on.
// A copy in cycle t-1 would make an eviction in t wait, so that its row is known in t+2. In slices of three stages or
// more the next packet reads its row in t+1 already. It enters the array in t-1, which takes no copy then (fl_array).
// In shorter slices the next packet reads in t+2.
// Source: crates/state/src/lru.rs; docs/adr/0025-least-recent-use.md.
module fl_lru #(
    parameter int unsigned Rows = 4,
    localparam int unsigned RowBits = (Rows > 1) ? $clog2(Rows) : 1
) (
    input  logic               clk_i,
    input  logic               rst_i,
    output logic               ready_o,
    input  logic               valid_i,
    // Takes row_i out.
    input  logic               unlink_i,
    // Takes the oldest row out.
    input  logic               evict_i,
    // Puts to_i in the place of row_i.
    input  logic               replace_i,
    // Makes to_i the newest row.
    input  logic               append_i,
    input  logic [RowBits-1:0] row_i,
    input  logic [RowBits-1:0] to_i,
    // An eviction began one cycle ago or two; its row.
    output logic               evicting_o,
    output logic               victim_valid_o,
    output logic [RowBits-1:0] victim_o
);

  localparam logic [RowBits-1:0] Last = RowBits'(Rows - 1);

  typedef struct packed {
    logic               valid;
    logic               unlinks;
    logic               replaces;
    logic               appends;
    logic [RowBits-1:0] row;
    logic [RowBits-1:0] to;
  } operation_t;

  // A neighbour, and the tag of its link back.
  typedef struct packed {
    logic               tag;
    logic [RowBits-1:0] row;
  } link_t;

  // The tags of the links that count, and the older neighbour at the time of the appending.
  typedef struct packed {
    logic  newer_tag;
    logic  older_tag;
    link_t older;
  } own_t;

  // A link that was written when a neighbour was taken out or replaced.
  typedef struct packed {
    logic  tag;
    link_t link;
  } later_t;

  typedef struct packed {
    logic               valid;
    logic [RowBits-1:0] row;
    own_t               word;
  } own_write_t;

  typedef struct packed {
    logic               valid;
    logic [RowBits-1:0] row;
    link_t              word;
  } next_write_t;

  typedef struct packed {
    logic               valid;
    logic [RowBits-1:0] row;
    later_t             word;
  } later_write_t;

  operation_t         read_q, write_q;
  logic               evicts_q, stalls, clearing_q, is_empty_q;
  logic [RowBits-1:0] clear_q, read_row;
  // The ends: the newest row with the tag of its link to a newer one.
  logic [RowBits-1:0] oldest_q;
  link_t              newest_q;

  // ---- Cycle 1: the rows are read. An eviction waits until the oldest row is known.

  assign stalls         = read_q.valid && evicts_q && write_q.valid;
  assign read_row       = evicts_q ? oldest_q : read_q.row;
  assign evicting_o     = read_q.valid && evicts_q;
  assign victim_valid_o = evicting_o && !stalls;
  assign victim_o       = oldest_q;
  assign ready_o        = !clearing_q;

  own_write_t   own_d;
  next_write_t  next_d;
  later_write_t newer_d, older_d;
  own_t         own;
  link_t        next;
  later_t       later_newer, later_older;
  logic         last_newer_tag, last_older_tag;

  fl_ram_forward #(
      .Width($bits(own_t)),
      .Depth(Rows)
  ) u_own (
      .clk_i,
      .write_i        (own_d.valid),
      .write_address_i(own_d.row),
      .write_data_i   (own_d.word),
      .read_address_i (read_row),
      .read_data_o    (own)
  );

  fl_ram_forward #(
      .Width($bits(link_t)),
      .Depth(Rows)
  ) u_next (
      .clk_i,
      .write_i        (next_d.valid),
      .write_address_i(next_d.row),
      .write_data_i   (next_d.word),
      .read_address_i (read_row),
      .read_data_o    (next)
  );

  fl_ram_forward #(
      .Width($bits(later_t)),
      .Depth(Rows)
  ) u_newer (
      .clk_i,
      .write_i        (newer_d.valid),
      .write_address_i(newer_d.row),
      .write_data_i   (newer_d.word),
      .read_address_i (read_row),
      .read_data_o    (later_newer)
  );

  fl_ram_forward #(
      .Width($bits(later_t)),
      .Depth(Rows)
  ) u_older (
      .clk_i,
      .write_i        (older_d.valid),
      .write_address_i(older_d.row),
      .write_data_i   (older_d.word),
      .read_address_i (read_row),
      .read_data_o    (later_older)
  );

  // The tags of the row that is appended.
  fl_ram_forward #(
      .Width(1),
      .Depth(Rows)
  ) u_newer_tag (
      .clk_i,
      .write_i        (newer_d.valid),
      .write_address_i(newer_d.row),
      .write_data_i   (newer_d.word.tag),
      .read_address_i (read_q.to),
      .read_data_o    (last_newer_tag)
  );

  fl_ram_forward #(
      .Width(1),
      .Depth(Rows)
  ) u_older_tag (
      .clk_i,
      .write_i        (older_d.valid),
      .write_address_i(older_d.row),
      .write_data_i   (older_d.word.tag),
      .read_address_i (read_q.to),
      .read_data_o    (last_older_tag)
  );

  // ---- Cycle 2: the neighbours, and the new links.

  link_t newer, older;
  logic  newer_tag, older_tag, is_oldest, is_newest, takes, stays, empties;

  // An appended row takes the tags that its links from neighbours do not have.
  assign newer_tag = !last_newer_tag;
  assign older_tag = !last_older_tag;
  assign newer     = (later_newer.tag == own.newer_tag) ? later_newer.link : next;
  assign older     = (later_older.tag == own.older_tag) ? later_older.link : own.older;
  assign is_oldest = write_q.row == oldest_q;
  assign is_newest = write_q.row == newest_q.row;
  // The newest row is used again.
  assign stays     = write_q.unlinks && write_q.appends && is_newest && write_q.row == write_q.to;
  assign takes     = write_q.valid && !stays && (write_q.unlinks || write_q.replaces);
  assign empties   = write_q.unlinks && is_oldest && is_newest;

  always_comb begin
    // The link of a row that becomes the newest one must not count: the next appending writes u_next.
    newer_d = '{valid: takes && !is_oldest, row: older.row,
                word: '{tag: older.tag ^ (write_q.unlinks && is_newest), link: newer}};
    older_d = '{valid: takes && !is_newest, row: newer.row, word: '{tag: newer.tag, link: older}};
    own_d   = '{valid: write_q.valid && !stays && (write_q.appends || write_q.replaces), row: write_q.to,
                word: '{newer_tag: newer_tag, older_tag: older_tag, older: newest_q}};
    next_d  = '{valid: write_q.valid && !stays && write_q.appends && !is_empty_q && !empties, row: newest_q.row,
                word: '{tag: older_tag, row: write_q.to}};
    if (write_q.replaces) begin
      newer_d.word.link = '{tag: older_tag, row: write_q.to};
      older_d.word.link = '{tag: newer_tag, row: write_q.to};
      own_d.word.older  = older;
      next_d            = '{valid: write_q.valid, row: write_q.to, word: newer};
    end
    if (clearing_q) begin
      newer_d = '{valid: 1'b1, row: clear_q, word: '0};
      older_d = newer_d;
    end
  end

  always_ff @(posedge clk_i) begin
    if (!stalls) begin
      read_q   <= '{valid: valid_i, unlinks: unlink_i || evict_i, replaces: replace_i, appends: append_i, row: row_i,
                    to: to_i};
      evicts_q <= evict_i;
    end
    write_q       <= read_q;
    write_q.valid <= read_q.valid && !stalls;
    write_q.row   <= read_row;
    if (write_q.valid && !stays) begin
      if (write_q.unlinks) begin
        if (is_oldest) oldest_q <= newer.row;
        if (is_newest) newest_q <= older;
        is_empty_q <= is_empty_q || empties;
      end
      if (write_q.replaces) begin
        if (is_oldest) oldest_q <= write_q.to;
        if (is_newest) newest_q <= '{tag: newer_tag, row: write_q.to};
      end
      if (write_q.appends) begin
        if (is_empty_q || empties) oldest_q <= write_q.to;
        newest_q   <= '{tag: newer_tag, row: write_q.to};
        is_empty_q <= 1'b0;
      end
    end
    if (clearing_q) begin
      clear_q    <= clear_q + 1'b1;
      clearing_q <= clear_q != Last;
    end
    if (rst_i) begin
      read_q.valid  <= 1'b0;
      write_q.valid <= 1'b0;
      is_empty_q    <= 1'b1;
      clearing_q    <= 1'b1;
      clear_q       <= '0;
    end
  end

  if (Rows < 2) begin : gen_bad_rows
    $error("Rows is %0d, expected at least 2", Rows);
  end

`ifndef SYNTHESIS
  logic is_lost_q, is_missing_q;
  always_ff @(posedge clk_i) begin
    is_lost_q    <= valid_i && (stalls || clearing_q) && !rst_i;
    is_missing_q <= takes && is_empty_q && !rst_i;
  end
  // No operation comes while an eviction waits.
  a_stall : assert property (@(posedge clk_i) disable iff (rst_i) !is_lost_q);
  // Rows are taken out of a list that has them.
  a_row : assert property (@(posedge clk_i) disable iff (rst_i) !is_missing_q);
`endif

endmodule
