// SPDX-License-Identifier: Apache-2.0 OR MIT
// Longest prefix match whose entries one stage of a pipeline reads and changes: the state slice lies outside of it.
// Only the host inserts and deletes prefixes.
//
//   address ──► ranges ──► slot ──► array of values ──► slice ──► written back
//                 ▲ two banks
//   host ──► prefixes by slot ──► the next list of ranges
//
// The ends of the prefixes divide the addresses into ranges in which one prefix is the longest: at most 2 * Entries +
// 1, whatever the prefixes are. A prefix P that is inserted takes over the ranges within it that belong to the longest
// prefix Q around it; if it is deleted, Q takes them back. The host's request first goes through all prefixes, for P
// and Q; then the list of ranges is copied with the change, and adjacent ranges with one result become one.
//
// A key is a prefix length, 32 bits, then the address, whose first byte is the most significant one. Lookups are by
// whole addresses: the length of key_i does not count.
//
// A slice of several stages takes Delay cycles more; packets of one prefix are Delay + 1 cycles apart then.
//
// Latency: 8 cycles from key to slice. A result is seen by the packet Delay + 1 cycles later.
// Throughput: one packet a cycle. A request of the host takes as many cycles as there are prefixes, and about 5 for
// each range.
// Handshake: packets are always accepted. host_ready_o is low during a request of the host; the answer comes at its
// end. write_i is for packets with present_o. Copies with the same requests and one go_i stay equal in every cycle.
// Source: [Ranges] for the search; [Linux kernel/bpf/lpm_trie.c] for keys.
module fl_lpm #(
    parameter int unsigned KeyBits = 64,
    parameter int unsigned ValueBits = 32,
    // Prefixes at most.
    parameter int unsigned Entries = 4,
    parameter int unsigned Fanout = 8,
    // Cycles from the value to the result.
    parameter int unsigned Delay = 0
) (
    input  logic                 clk_i,
    input  logic                 rst_i,
    output logic                 ready_o,
    // The request of the host is where it reads a value or where packets begin to see it: it goes on where go_i is
    // high. While busy_o is high, go_i must be low.
    output logic                 wants_o,
    output logic                 busy_o,
    input  logic                 go_i,
    // A packet enters.
    input  logic                 valid_i,
    input  logic [KeyBits-1:0]   key_i,
    // In its slice: whether a prefix matches, its value; and the result.
    output logic                 present_o,
    output logic [ValueBits-1:0] value_o,
    input  logic                 write_i,
    input  logic [ValueBits-1:0] value_i,
    // The number of prefixes.
    output logic [31:0]          count_o,
    // An access of the host: 0 finds the longest prefix of a key, 1 updates, 2 deletes exactly this prefix; 3 reads the
    // row with the index in {value, key}, to list all entries; 4 updates only if it is absent, 5 only if present. The
    // answer is the entry before the access; host_full_o says whether an update was refused.
    input  logic                 host_valid_i,
    output logic                 host_ready_o,
    input  logic [2:0]           host_operation_i,
    input  logic [KeyBits-1:0]   host_key_i,
    input  logic [ValueBits-1:0] host_value_i,
    output logic                 host_valid_o,
    output logic                 host_present_o,
    output logic                 host_full_o,
    output logic [KeyBits-1:0]   host_key_o,
    output logic [ValueBits-1:0] host_value_o
);

  localparam int unsigned Width = KeyBits - 32;
  localparam int unsigned LengthBits = $clog2(Width + 1);
  localparam int unsigned Slots = (Entries < 2) ? 2 : Entries;
  localparam int unsigned SlotBits = $clog2(Slots);
  localparam int unsigned StoredBits = $clog2(Entries + 1);
  localparam int unsigned Ranges = 2 * Entries + 1;
  localparam int unsigned CountBits = $clog2(Ranges + 1);
  localparam int unsigned Found = 6;  // The cycle of the slot.
  // A packet that began its search before a swap has its result after so many cycles.
  localparam int unsigned SettleCycles = 10 + Delay;
  localparam int unsigned SettleBits = $clog2(SettleCycles + 1);

  typedef struct packed {
    logic                found;
    logic [SlotBits-1:0] slot;
  } owner_t;

  typedef struct packed {
    logic                  present;
    logic [LengthBits-1:0] length;
    logic [Width-1:0]      address;
  } prefix_t;

  typedef enum logic [3:0] {
    First,
    Idle,
    Scan,
    Decide,
    Access,
    Value,
    Fetch,
    Merge,
    Finish,
    Settle,
    Answer
  } state_e;

  function automatic logic [Width-1:0] address_of(logic [KeyBits-1:0] key);
    logic [Width-1:0] address;
    for (int unsigned i = 0; i < Width / 8; i++) address[8*(Width/8-1-i)+:8] = key[32+8*i+:8];
    return address;
  endfunction

  function automatic logic [Width-1:0] mask_of(logic [LengthBits-1:0] length);
    return ~({Width{1'b1}} >> length);
  endfunction

  // ---- Packets.

  logic                array_ready, array_host_valid, array_host_ready, array_answer, unused;
  logic [SlotBits-1:0] array_index;
  logic                valid_q[1:Found], found_q[1:2];
  owner_t              owner;
  logic [ValueBits-1:0] value_q, array_value;

  assign unused = ^key_i[31:0];

  // ---- The host's request.

  state_e                state_q;
  logic [2:0]            operation_q;
  logic                  is_void;
  logic [KeyBits-1:0]    key_q;
  // The list of a table without prefixes is written after a reset.
  logic                  is_first_q;
  logic                  is_known, reads_row, starts, is_update, is_delete, is_refused, grows, shrinks;
  logic [LengthBits-1:0] length_q;
  logic [Width-1:0]      address_q, first, last_address;
  logic [StoredBits-1:0] stored_q, high_q;
  logic [31:0]           wanted_length;

  // What the scan has found: the prefix itself, the longest one around it, a free slot.
  owner_t                own_q, around_q, free_q, target, from, to;
  logic [LengthBits-1:0] around_length_q;
  logic [StoredBits-1:0] scan_q;
  logic [1:0]            scanning_q;
  logic [SlotBits-1:0]   scanned_q[1:2];
  prefix_t               row, new_row;
  logic                  row_write, covers;
  logic [SlotBits-1:0]   row_address, row_slot;
  logic                  reading_q[1:2], row_known_q[1:2], present_q;

  assign reads_row     = host_operation_i == 3'd3;
  assign starts        = host_valid_i && host_ready_o && !reads_row;
  assign host_ready_o  = state_q == Idle && !is_first_q && (!reads_row || array_host_ready);
  assign is_update     = operation_q inside {3'd1, 3'd4, 3'd5};
  assign is_delete     = operation_q == 3'd2;
  // An update that its condition rules out; from then on it is a lookup.
  assign is_void       = is_known && operation_q == (own_q.found ? 3'd4 : 3'd5);
  assign wanted_length = key_q[31:0];
  assign is_known      = wanted_length <= 32'(Width);
  assign is_refused    = is_update && !is_void && (!is_known || (!own_q.found && stored_q == StoredBits'(Entries)));
  assign grows         = is_update && !own_q.found;
  assign shrinks       = is_delete && is_known && own_q.found;
  assign target        = own_q.found ? own_q : free_q.found ? free_q : '{found: 1'b1, slot: SlotBits'(high_q)};
  assign ready_o       = array_ready && !is_first_q;
  assign count_o       = 32'(stored_q);

  // The prefixes, by slot.
  assign row_slot    = SlotBits'({host_value_i, host_key_i});
  assign row_address = row_write ? target.slot : (state_q == Idle) ? row_slot : SlotBits'(scan_q);
  assign row_write   = (state_q == Decide && is_update && !is_refused && !is_void) || (state_q == Answer && shrinks);
  assign new_row     = '{present: is_update, length: length_q, address: address_q};
  assign covers      = row.present && ((row.address ^ address_q) & mask_of(row.length)) == '0;

  fl_ram #(
      .Width($bits(prefix_t)),
      .Depth(Slots)
  ) u_prefixes (
      .clk_i,
      .write_i        (row_write),
      .write_address_i(row_address),
      .write_data_i   (new_row),
      .read_address_i (row_address),
      .read_data_o    (row)
  );

  // ---- The copy of the list: a prefix begins a range at its first address, and another one after its last address.

  logic [CountBits-1:0] count, fetch_q;
  logic [Width-1:0]     range_start, begin_start, cut;
  owner_t               range_owner, before_q, last_q, next;
  logic [1:0]           wait_q, cut_q;
  logic                 has_cut, is_over, cuts, begins, puts, complete, swapped, has_last_q, has_end;
  logic [SettleBits-1:0] settle_q;

  assign first        = address_q & mask_of(length_q);
  assign last_address = address_q | ~mask_of(length_q);
  assign from         = grows ? around_q : own_q;
  assign to           = grows ? target : around_q;
  assign has_end      = last_address != '1;
  assign cut          = (cut_q == 2'd0) ? first : last_address + 1'b1;
  assign has_cut      = cut_q == 2'd0 || (cut_q == 2'd1 && has_end);
  assign is_over      = fetch_q == count;
  assign cuts         = state_q == Merge && has_cut && (is_over || cut < range_start);
  assign begins       = state_q == Merge && !cuts && !is_over;
  assign begin_start  = cuts ? cut : range_start;

  always_comb begin
    next = cuts ? before_q : range_owner;
    if (begin_start >= first && begin_start <= last_address && next == from) begin
      next = to;
    end
    if (state_q == First) begin
      next = '0;
    end
  end
  assign puts = (state_q == First && array_ready) || ((cuts || begins) && (!has_last_q || next != last_q));

  fl_lpm_ranges #(
      .Width     (Width),
      .ResultBits($bits(owner_t)),
      .Ranges    (Ranges),
      .Fanout    (Fanout)
  ) u_ranges (
      .clk_i,
      .rst_i,
      .key_i       (address_of(key_i)),
      .result_o    (owner),
      .put_i       (puts),
      .put_start_i (state_q == First ? '0 : begin_start),
      .put_result_i(next),
      .end_i       (state_q == Finish),
      .complete_o  (complete),
      .go_i,
      .swapped_o   (swapped),
      .count_o     (count),
      .index_i     (fetch_q),
      .start_o     (range_start),
      .own_o       (range_owner)
  );

  // ---- Values.

  assign wants_o          = state_q == Access || complete;
  assign busy_o           = state_q == Access && !array_host_ready;
  assign array_host_valid = (state_q == Access && go_i) || (state_q == Idle && host_valid_i && reads_row);
  assign array_index      = (state_q == Idle) ? row_slot : target.slot;

  fl_array #(
      .Entries  (Slots),
      .ValueBits(ValueBits),
      .Delay    (Delay)
  ) u_values (
      .clk_i,
      .rst_i,
      .ready_o      (array_ready),
      .valid_i      (valid_q[Found] && owner.found),
      .early_i      (1'b0),
      .index_i      (owner.slot),
      .value_o      (value_o),
      .write_i,
      .value_i,
      .host_valid_i (array_host_valid),
      .host_ready_o (array_host_ready),
      .host_write_i (state_q == Access && is_update),
      .host_copy_i  (1'b0),
      .host_target_i('0),
      .host_index_i (array_index),
      .host_value_i (value_q),
      .host_valid_o (array_answer),
      .host_value_o (array_value)
  );

  assign present_o      = found_q[2];
  assign host_valid_o   = state_q == Answer || reading_q[2];
  assign host_present_o = (state_q == Answer) ? present_q : row_known_q[2] && row.present;
  assign host_full_o    = state_q == Answer && is_refused;
  assign host_value_o   = (state_q == Answer) ? value_q : array_value;

  always_comb begin
    host_key_o = key_q;
    if (reading_q[2]) begin
      host_key_o[31:0] = 32'(row.length);
      for (int unsigned i = 0; i < Width / 8; i++) host_key_o[32+8*i+:8] = row.address[8*(Width/8-1-i)+:8];
    end
  end

  always_ff @(posedge clk_i) begin
    valid_q[1] <= valid_i;
    for (int unsigned cycle = 2; cycle <= Found; cycle++) valid_q[cycle] <= valid_q[cycle-1];
    found_q[1] <= valid_q[Found] && owner.found;
    found_q[2] <= found_q[1];
    reading_q[1]   <= host_valid_i && host_ready_o && reads_row;
    reading_q[2]   <= reading_q[1];
    row_known_q[1] <= {host_value_i, host_key_i} < (ValueBits + KeyBits)'(high_q);
    row_known_q[2] <= row_known_q[1];
    if (rst_i) begin
      for (int unsigned cycle = 1; cycle <= Found; cycle++) valid_q[cycle] <= 1'b0;
      reading_q[1] <= 1'b0;
      reading_q[2] <= 1'b0;
    end
  end

  // What the scan finds. Slots from high_q on have not been used.
  always_ff @(posedge clk_i) begin
    scanning_q   <= {scanning_q[0], state_q == Scan && scan_q != high_q};
    scanned_q[1] <= SlotBits'(scan_q);
    scanned_q[2] <= scanned_q[1];
    if (starts) begin
      own_q    <= '0;
      around_q <= '0;
      free_q   <= '0;
    end
    if (scanning_q[1]) begin
      if (covers && row.length == length_q) begin
        own_q <= '{found: 1'b1, slot: scanned_q[2]};
      end
      if (covers && row.length < length_q && (!around_q.found || row.length > around_length_q)) begin
        around_q        <= '{found: 1'b1, slot: scanned_q[2]};
        around_length_q <= row.length;
      end
      if (!row.present && !free_q.found) begin
        free_q <= '{found: 1'b1, slot: scanned_q[2]};
      end
    end
    // The host's lookup is by the longest prefix.
    if (state_q == Decide && operation_q == 3'd0 && !own_q.found) begin
      own_q <= around_q;
    end
    if (rst_i) begin
      scanning_q <= '0;
    end
  end

  always_ff @(posedge clk_i) begin
    unique case (state_q)
      First: begin
        has_last_q <= 1'b0;
        if (array_ready) state_q <= Finish;
      end
      Idle: begin
        cut_q      <= '0;
        fetch_q    <= '0;
        wait_q     <= '0;
        scan_q     <= '0;
        has_last_q <= 1'b0;
        if (starts) begin
          state_q     <= Scan;
          operation_q <= host_operation_i;
          key_q       <= host_key_i;
          length_q    <= LengthBits'(host_key_i[31:0]);
          address_q   <= address_of(host_key_i);
          value_q     <= host_value_i;
          present_q   <= 1'b0;
        end
      end
      Scan: begin
        if (scan_q != high_q) scan_q <= scan_q + 1'b1;
        else if (scanning_q == '0) state_q <= Decide;
      end
      Decide: begin
        present_q <= is_known && (own_q.found || (operation_q == 3'd0 && around_q.found));
        state_q   <= Access;
        if (!is_known || is_refused || (!is_update && !own_q.found && (is_delete || !around_q.found))) begin
          state_q   <= Answer;
        end
        if (is_void) begin
          operation_q <= 3'd0;
          state_q     <= own_q.found ? Access : Answer;
        end
      end
      Access: begin
        if (go_i) state_q <= Value;
      end
      Value: begin
        if (array_answer) begin
          value_q <= array_value;
          state_q <= (grows || shrinks) ? Fetch : Answer;
        end
      end
      // A range takes two cycles to come.
      Fetch: begin
        wait_q <= wait_q + 1'b1;
        if (wait_q == 2'd2) begin
          wait_q  <= '0;
          state_q <= Merge;
        end
      end
      Merge: begin
        if (puts) begin
          last_q     <= next;
          has_last_q <= 1'b1;
        end
        if (cuts || (begins && has_cut && cut == range_start)) cut_q <= cut_q + 1'b1;
        if (begins) begin
          before_q <= range_owner;
          fetch_q  <= fetch_q + 1'b1;
          state_q  <= Fetch;
        end
        if (!cuts && !begins) state_q <= Finish;
      end
      Finish: begin
        state_q  <= Settle;
        settle_q <= SettleBits'(SettleCycles);
      end
      Settle: begin
        if (swapped) begin
          settle_q <= SettleBits'(SettleCycles - 1);
        end else if (settle_q != SettleBits'(SettleCycles)) begin
          settle_q <= settle_q - 1'b1;
          if (settle_q == '0) begin
            is_first_q <= 1'b0;
            state_q    <= is_first_q ? Idle : Answer;
          end
        end
      end
      default: begin
        state_q <= Idle;
        if (grows && !is_refused) begin
          stored_q <= stored_q + 1'b1;
          if (!free_q.found) high_q <= high_q + 1'b1;
        end
        if (shrinks) stored_q <= stored_q - 1'b1;
      end
    endcase
    if (rst_i) begin
      state_q     <= First;
      is_first_q  <= 1'b1;
      operation_q <= '0;
      stored_q    <= '0;
      high_q      <= '0;
    end
  end

  if (KeyBits < 40 || KeyBits > 160 || KeyBits % 8 != 0) begin : gen_bad_key
    $error("KeyBits is %0d, expected 40 to 160 in whole bytes", KeyBits);
  end
  if (Entries == 0) begin : gen_bad_entries
    $error("Entries is 0, expected at least 1");
  end

`ifndef SYNTHESIS
  a_count : assert property (@(posedge clk_i) disable iff (rst_i) stored_q <= StoredBits'(Entries));
  a_go : assert property (@(posedge clk_i) disable iff (rst_i) go_i |-> !busy_o);
`endif

endmodule
