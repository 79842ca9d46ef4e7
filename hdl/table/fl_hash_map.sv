// SPDX-License-Identifier: Apache-2.0 OR MIT
// Hash map whose entries a pipeline reads, inserts, changes and deletes: the state slice lies outside of it.
//
//   key ──► cuckoo table ──► slot ──┐
//     └───► pending keys ──► row ───┴─► array of {present, key, value} ──► slice ──► written back
//
// If packets change entries, a key that is in neither takes a pending entry, so that packets with the same key meet in
// one row from the next cycle on, and the slice decides whether the entry exists. The rest is done while no packet
// refers to an entry: pending rows that are present move into the cuckoo table, several at once, the others are given
// up, and keys whose entry was deleted leave the cuckoo table by way of a pending entry. Whether the row of a pending
// entry is present, fl_pending knows. A map is full when as many entries are present as were declared.
//
// With Lru, a full map evicts the entry with the least recent use. Each packet that uses its entry moves its row in a
// list (fl_lru). The row of the evicted entry is absent to the packets that read it from then on (fl_evicted), and
// cleared where no packet comes. While tight_o is high, packets are kept max(Delay + 1, 2) cycles apart, 3 if Delay is
// 1.
//
// A slice of several stages takes Delay cycles more. Packets with one key are then kept Delay + 1 cycles apart, and all
// packets while tight_o is high, because the map may be full before the slice of the packet (fl_scoreboard).
//
// Latency: 6 cycles from key to slice. A result is seen by the packet Delay + 1 cycles later.
// Throughput: one packet a cycle; with one key, one in Delay + 1 cycles. A new entry takes a cycle without a packet for
// its insertion, and where all places of its key are taken, about 20 cycles of the cuckoo table's engine; while few
// pending entries are free, room_o is low.
// Handshake: packets are always accepted; Ahead of them may follow after room_o has become low. A host access is made
// where no packet enters and there is room for what it may add; with Delay, while no packet is in the map. It takes 6
// cycles in any case.
// Source: [FlowBlaze 4.2] for table and stash; the pending keys are Flowloom's (docs/adr/0019-pipelines-in-rtl.md).
module fl_hash_map #(
    parameter int unsigned KeyBits = 32,
    parameter int unsigned ValueBits = 32,
    parameter int unsigned HashBits = 10,
    parameter int unsigned Rows = 1024,
    parameter logic [KeyBits-1:0][4*HashBits-1:0] Columns = '0,
    // Entries at most.
    parameter int unsigned Entries = 3800,
    // Whether a full map evicts the entry with the least recent use.
    parameter bit Lru = 1'b0,
    // Whether packets insert or delete entries.
    parameter bit Changes = 1'b1,
    // Cycles from the value to the result.
    parameter int unsigned Delay = 0,
    // Packets that may enter after room_o has become low.
    parameter int unsigned Ahead = 4,
    parameter int unsigned Pending = 32,
    parameter int unsigned SearchNodes = 256,
    // The kind of RAM of the entries, as in fl_array.
    parameter string RamStyle = "block"
) (
    input  logic                 clk_i,
    input  logic                 rst_i,
    output logic                 ready_o,
    output logic                 room_o,
    // Packets that are on their way could fill the map.
    output logic                 tight_o,
    // A packet enters.
    input  logic                 valid_i,
    input  logic [KeyBits-1:0]   key_i,
    // In its slice: whether there is an entry, its value, whether the map is full; and the result.
    output logic                 present_o,
    output logic [ValueBits-1:0] value_o,
    output logic                 full_o,
    input  logic                 write_i,
    input  logic                 present_i,
    input  logic [ValueBits-1:0] value_i,
    // With Lru: the packet uses its entry, if that is present in the end; it has inserted one when the map was full.
    input  logic                 touch_i,
    input  logic                 evict_i,
    // The number of entries.
    output logic [31:0]          count_o,
    // An access of the host: 0 lookup, 1 update, 2 delete; 3 reads the row with the index in {value, key}, to list all
    // entries; 4 updates an absent entry only, 5 a present one only. The answer is the entry before the access;
    // host_full_o says whether an update was refused, as the map is full.
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

  localparam int unsigned Hit = 3;  // The cycle in which the cuckoo table answers.
  localparam int unsigned Value = Hit + 3;
  localparam int unsigned Slice = Value + Delay;
  localparam int unsigned Candidates = 64;
  // So many may wait that each packet on its way and two copies can add one.
  localparam int unsigned MaxWaiting = Candidates - Ahead - Slice - (Lru ? 10 : 6);
  // From the cycle in which a packet finds an entry, cycle 3, to the one after its result.
  localparam int unsigned Quiet = 5 + Delay;
  // Keys without an entry stay in the cuckoo table until the mover takes them out.
  localparam int unsigned Keys = Entries + Candidates + Pending;
  localparam int unsigned RestCycles = 16 + Delay;
  localparam int unsigned Slots = Keys + RestCycles;
  localparam int unsigned SlotBits = $clog2(Slots);
  localparam int unsigned ArrayRows = Slots + Pending;
  localparam int unsigned IndexBits = $clog2(ArrayRows);
  localparam int unsigned PendingBits = $clog2(Pending);
  localparam int unsigned FreeBits = $clog2(Pending + 1);
  localparam int unsigned StoredBits = $clog2(Entries + 1);
  localparam int unsigned CandidateBits = $clog2(Candidates + 1);

  typedef enum logic [2:0] {
    Packet = 3'd0,
    Host   = 3'd1,
    Insert = 3'd2,
    Delete = 3'd3,
    Adopt  = 3'd4
  } source_e;

  typedef struct packed {
    logic                 valid;
    source_e              source;
    logic [2:0]           operation;
    logic [KeyBits-1:0]   key;
    logic [ValueBits-1:0] value;
    // Of an insertion: its pending entry.
    logic [PendingBits-1:0] entry;
  } request_t;

  // A request on its way to the slice.
  typedef struct packed {
    logic                 valid;
    logic                 host;
    // The row of an evicted entry is cleared.
    logic                 clear;
    logic [2:0]           operation;
    logic                 found;
    logic [IndexBits-1:0] index;
    logic [KeyBits-1:0]   key;
    logic [ValueBits-1:0] value;
  } access_t;

  typedef struct packed {
    logic                 present;
    logic [KeyBits-1:0]   key;
    logic [ValueBits-1:0] value;
  } row_t;

  typedef enum logic [2:0] {
    Idle,
    Inspect,
    Inspected,
    Remove,
    Removed
  } state_e;

  // ---- Requests: packets first, then the host, then the mover.

  request_t             request_d, request_q[1:Hit];
  logic                 busy;
  logic                 deletes, inserts, adopts, op_free, insert_valid;
  logic [KeyBits-1:0]   work_key, insert_key, candidate_key;
  logic [PendingBits-1:0] insert_entry;
  // Room for keys without an entry, and for keys whose entry is deleted.
  logic                 candidate_valid, new_room_q, old_room_q, host_room, tight_q;

  // With Lru, a change by the host comes alone.
  logic                 is_changing;

  // An operation that takes no place is served when there is none: a deletion can end what packets wait for.
  always_comb begin
    unique case (host_operation_i)
      3'd1, 3'd4: host_room = new_room_q && old_room_q;
      3'd2:       host_room = old_room_q;
      default:    host_room = 1'b1;
    endcase
  end
  assign host_ready_o = !valid_i && host_room && ready_o && !busy && !is_changing;
  assign op_free      = !valid_i && !(host_valid_i && host_ready_o) && ready_o;

  always_comb begin
    request_d = '{valid: valid_i, source: Packet, operation: 3'd0, key: key_i, value: host_value_i, entry: insert_entry};
    if (host_valid_i && host_ready_o) begin
      request_d.valid     = 1'b1;
      request_d.source    = Host;
      request_d.operation = host_operation_i;
      request_d.key       = host_key_i;
    end else if (op_free) begin
      request_d.valid = deletes || inserts || adopts;
      if (deletes) begin
        request_d.source = Delete;
        request_d.key    = work_key;
      end else if (inserts) begin
        request_d.source = Insert;
        request_d.key    = insert_key;
      end else begin
        request_d.source = Adopt;
        request_d.key    = candidate_key;
      end
    end
  end

  logic                cuckoo_ready, array_ready, order_ready;
  logic                cuckoo_valid, cuckoo_hit, cuckoo_stored, cuckoo_full, cuckoo_busy, unused_step;
  logic [SlotBits-1:0] cuckoo_slot;
  logic [2:0]          unused_steps;
  logic [$clog2(Keys+1)-1:0] unused_count;
  logic [3:0]          unused_stash;
  logic                unused;
  assign unused = ^{cuckoo_valid, cuckoo_full, cuckoo_busy, unused_step, unused_steps, unused_count, unused_stash};

  fl_cuckoo #(
      .KeyBits    (KeyBits),
      .HashBits   (HashBits),
      .Rows       (Rows),
      .Columns    (Columns),
      .Entries    (Keys),
      .Stash      (8),
      .SearchNodes(SearchNodes),
      .RestCycles (RestCycles)
  ) u_cuckoo (
      .clk_i,
      .rst_i,
      .ready_o       (cuckoo_ready),
      .valid_i       (request_d.valid),
      .operation_i   (request_d.source == Insert ? 2'd1 : request_d.source == Delete ? 2'd2 : 2'd0),
      .key_i         (request_d.key),
      .valid_o       (cuckoo_valid),
      .hit_o         (cuckoo_hit),
      .stored_o      (cuckoo_stored),
      .full_o        (cuckoo_full),
      .busy_o        (cuckoo_busy),
      .slot_o        (cuckoo_slot),
      .stored_count_o(unused_count),
      .stash_count_o (unused_stash),
      .step_valid_o  (unused_step),
      .step_o        (unused_steps)
  );
  assign ready_o = cuckoo_ready && array_ready && order_ready;

  access_t [Slice:Hit+1] access_q;

  // Where the slice takes several cycles, or changes the order, an access of the host waits until no packet is in the
  // map.
  always_comb begin
    busy = 1'b0;
    if (Delay != 0 || Lru) begin
      for (int unsigned cycle = 1; cycle <= Hit; cycle++) begin
        busy |= request_q[cycle].valid && request_q[cycle].source == Packet;
      end
      for (int unsigned cycle = Hit + 1; cycle <= Slice; cycle++) begin
        busy |= access_q[cycle].valid && !access_q[cycle].host && !access_q[cycle].clear;
      end
    end
  end

  // ---- Cycle 3: the row of the key. A pending entry is before the cuckoo table.

  request_t               now;
  logic                   looks, reads_row, pending_hit, pending_adopted, allocates;
  logic [PendingBits-1:0] pending_entry, free_entry, quiet_entry, work_q, copy_entry, row_entry, mark_entry;
  logic [SlotBits-1:0]    pending_slot, work_slot, copy_slot;
  logic [KeyBits-1:0]     copy_key;
  logic [FreeBits-1:0]    free_entries;
  logic                   quiet_valid, work_quiet, next, releases, disowns, lets_go, copy_valid, copy_present, copies;
  logic                   own_present, marks, slice_present;
  logic                   clears, clear_valid, clear_take;
  logic [IndexBits-1:0]   clear_row;
  access_t                access_d, access_next;

  assign now   = request_q[Hit];
  assign reads_row = now.source == Host && now.operation == 3'd3;
  assign looks     = now.valid && now.source inside {Packet, Host, Adopt} && !reads_row;

  function automatic logic [IndexBits-1:0] own_row(logic [PendingBits-1:0] entry);
    return IndexBits'(Slots) + IndexBits'(entry);
  endfunction

  always_comb begin
    allocates = 1'b0;
    if (looks && !pending_hit) begin
      unique case (now.source)
        Packet:  allocates = Changes && !cuckoo_hit;
        Host:    allocates = !cuckoo_hit && now.operation inside {3'd1, 3'd4};
        default: allocates = cuckoo_hit && free_entries != '0;
      endcase
    end
    access_d = '{
        valid: now.valid && now.source inside {Packet, Host},
        host: now.source == Host,
        clear: 1'b0,
        operation: now.operation,
        found: pending_hit || cuckoo_hit || allocates || reads_row,
        index: IndexBits'(cuckoo_slot),
        key: now.key,
        value: now.value
    };
    if (reads_row) begin
      access_d.index = IndexBits'({now.value, now.key});
    end else if (pending_hit) begin
      access_d.index = pending_adopted ? IndexBits'(pending_slot) : own_row(pending_entry);
    end else if (!cuckoo_hit) begin
      access_d.index = own_row(free_entry);
    end
  end

  always_comb begin
    access_next = access_d;
    if (clear_take) begin
      access_next.valid = 1'b1;
      access_next.host  = 1'b0;
      access_next.clear = 1'b1;
      access_next.found = 1'b1;
      access_next.index = clear_row;
    end
  end

  fl_pending #(
      .KeyBits (KeyBits),
      .Entries (Pending),
      .SlotBits(SlotBits),
      .Quiet   (Quiet)
  ) u_pending (
      .clk_i,
      .rst_i,
      .valid_i       (looks),
      .key_i         (now.key),
      .hit_o         (pending_hit),
      .entry_o       (pending_entry),
      .adopted_o     (pending_adopted),
      .slot_o        (pending_slot),
      .allocate_i    (allocates),
      .adopt_i       (now.source == Adopt),
      .adopt_slot_i  (cuckoo_slot),
      .free_entry_o  (free_entry),
      .free_o        (free_entries),
      .row_entry_i   (row_entry),
      .row_present_o (own_present),
      .mark_i        (marks),
      .mark_entry_i  (mark_entry),
      .mark_present_i(slice_present && !clears),
      .insert_valid_o(insert_valid),
      .insert_entry_o(insert_entry),
      .insert_key_o  (insert_key),
      .insert_take_i (op_free && inserts),
      .inserted_i    (now.valid && now.source == Insert),
      .inserted_stored_i(cuckoo_stored),
      .inserted_entry_i (now.entry),
      .inserted_slot_i  (cuckoo_slot),
      .copy_valid_o  (copy_valid),
      .copy_entry_o  (copy_entry),
      .copy_present_o(copy_present),
      .copy_key_o    (copy_key),
      .copy_slot_o   (copy_slot),
      .copy_take_i   (copies),
      .next_i        (next),
      .quiet_valid_o (quiet_valid),
      .quiet_entry_o (quiet_entry),
      .work_entry_i  (work_q),
      .work_key_o    (work_key),
      .work_slot_o   (work_slot),
      .work_quiet_o  (work_quiet),
      .release_i     (releases),
      .disown_i      (disowns),
      .let_go_i      (lets_go)
  );

  // ---- Cycles 4 to 6: the array, then the slice.

  access_t                slice;
  row_t                   slice_row, late_row;
  logic                   host_now, in_slice;
  logic                   array_host_valid, array_host_ready, array_answer;
  logic [IndexBits-1:0]   array_index, written_row;
  // A row as it was read, and with the presence that fl_pending knows.
  row_t                   word, row, result, written;
  logic                   slice_write, was_present, is_full, is_evicted, evicts;
  logic [StoredBits-1:0]  stored_q;
  row_t                   unused_row;
  logic                   unused_access;
  assign unused_access = ^{access_q[Slice-1].valid, unused_row};

  fl_array #(
      .Entries  (ArrayRows),
      .ValueBits($bits(row_t)),
      .Delay    (Delay),
      .HostWaits(1'b0),
      .RamStyle (RamStyle)
  ) u_rows (
      .clk_i,
      .rst_i,
      .ready_o      (array_ready),
      .valid_i      (access_q[Hit+1].valid && access_q[Hit+1].found),
      .early_i      (access_q[Hit+1].host || access_q[Hit+1].clear),
      .index_i      (access_q[Hit+1].index),
      .value_o      (word),
      .write_i      (slice_write || clears),
      .value_i      (written),
      .host_valid_i (array_host_valid),
      .host_ready_o (array_host_ready),
      .host_write_i (1'b0),
      .host_copy_i  (copies),
      .host_target_i(IndexBits'(copy_slot)),
      .host_index_i (array_index),
      .host_value_i ('0),
      .host_valid_o (array_answer),
      .host_value_o (unused_row)
  );

  // The host's result is there together with its value.
  assign host_now    = access_q[Value].valid && access_q[Value].host;
  assign slice       = host_now ? access_q[Value] : access_q[Slice];
  assign slice_row   = host_now ? row : late_row;
  assign in_slice    = slice.valid && !slice.clear && (host_now || !slice.host);
  assign row_entry   = PendingBits'(access_q[Value].index - IndexBits'(Slots));
  always_comb begin
    row = word;
    if (access_q[Value].index >= IndexBits'(Slots)) begin
      row.present = own_present;
    end
    if (is_evicted) begin
      row.present = 1'b0;
    end
  end
  assign written     = clears ? '{present: 1'b0, key: word.key, value: word.value} : result;
  assign written_row = clears ? access_q[Value].index : slice.index;
  assign marks       = (slice_write || clears) && written_row >= IndexBits'(Slots);
  assign mark_entry  = PendingBits'(written_row - IndexBits'(Slots));
  assign count_o     = 32'(stored_q);
  assign is_full     = stored_q == StoredBits'(Entries);
  assign full_o      = is_full;
  assign present_o   = access_q[Value].valid && access_q[Value].found && row.present;
  assign was_present = in_slice && slice.found && slice_row.present;
  assign value_o     = row.value;

  assign host_valid_o   = host_now;
  assign host_present_o = was_present;
  assign host_key_o     = slice_row.key;
  assign host_value_o   = slice_row.value;
  assign host_full_o    = slice.operation inside {3'd1, 3'd4} && !was_present && is_full && !Lru;

  always_comb begin
    slice_write   = write_i;
    evicts        = Lru && evict_i;
    slice_present = present_i;
    result        = '{present: present_i, key: slice.key, value: value_i};
    if (slice.host) begin
      unique case (slice.operation)
        3'd1: begin
          slice_write   = was_present || !is_full || Lru;
          slice_present = 1'b1;
        end
        3'd4: begin
          slice_write   = !was_present && (!is_full || Lru);
          slice_present = 1'b1;
        end
        3'd5: begin
          slice_write   = was_present;
          slice_present = 1'b1;
        end
        3'd2: begin
          slice_write   = was_present;
          slice_present = 1'b0;
        end
        default: slice_write = 1'b0;
      endcase
      result = '{present: slice_present, key: slice.key, value: slice.value};
      evicts = Lru && is_full && slice_write && !was_present && slice.operation inside {3'd1, 3'd4};
    end
    if (!slice_write) begin
      slice_present = was_present;
    end
    slice_write = in_slice && slice.found && slice_write;
    evicts      = in_slice && slice.found && evicts;
  end

  if (Delay == 0) begin : gen_now
    assign late_row = row;
  end else begin : gen_late
    row_t [Delay:0] late_q;
    logic           unused_late;

    assign late_row    = late_q[Delay-1];
    assign unused_late = ^late_q[Delay];

    always_ff @(posedge clk_i) begin
      late_q <= {late_q[Delay-1:0], row};
    end
  end

  // Whether a request has its value before a result of the same row is there.
  logic is_early;
  always_comb begin
    is_early = 1'b0;
    for (int unsigned cycle = Value + 1; cycle <= Slice; cycle++) begin
      is_early |= access_q[Value].valid && access_q[Value].found && access_q[cycle].valid && access_q[cycle].found
                  && !access_q[cycle].host && !access_q[cycle].clear && !access_q[Value].clear && access_q[cycle].index == access_q[Value].index;
    end
  end

  // ---- Rows move. A row is copied to its slot by an access of the array's host; so is the row of an adopted entry
  // read.

  state_e               state_q;
  logic                 adopting_q, inspects, may_copy, is_ordering;
  // An insertion that was refused is tried again after some cycles, which the engine and deletions need.
  logic [2:0]           refused_q;
  logic [KeyBits-1:0]   pushed_key;
  logic                 push, push_ready;
  logic [CandidateBits-1:0] waiting;
  // The copies of the last cycles: the newest one is in entry 1, the answer comes for entry 2.
  logic [2:1]              copied_q;
  logic [2:1][KeyBits-1:0] copied_key_q;

  assign deletes  = state_q == Remove;
  assign inserts  = !deletes && insert_valid && refused_q == '0;
  assign adopts   = !deletes && !inserts && candidate_valid && !adopting_q && free_entries > FreeBits'(2);
  assign inspects = state_q == Inspect && work_quiet;
  assign may_copy = copy_valid && waiting < CandidateBits'(MaxWaiting) && !is_ordering;
  assign copies   = may_copy && !inspects && array_host_ready;

  assign array_host_valid = inspects || may_copy;
  assign array_index      = inspects ? IndexBits'(work_slot) : own_row(copy_entry);

  // An adopted entry that is present goes back to the cuckoo table, which has its slot still. The key of one that is
  // absent leaves the table, while its entry has a row of its own.
  assign next     = state_q == Idle && quiet_valid;
  assign releases = state_q == Inspected && array_answer && !copied_q[2] && work_quiet && word.present;
  assign disowns  = state_q == Inspected && array_answer && !copied_q[2] && work_quiet && !word.present;
  assign lets_go  = state_q == Removed && now.valid && now.source == Delete;

  always_ff @(posedge clk_i) begin
    unique case (state_q)
      Idle: begin
        if (quiet_valid) begin
          work_q  <= quiet_entry;
          state_q <= Inspect;
        end
      end
      Inspect: begin
        if (!work_quiet) state_q <= Idle;
        else if (array_host_ready) state_q <= Inspected;
      end
      Inspected: if (array_answer && !copied_q[2]) state_q <= disowns ? Remove : Idle;
      Remove:    if (op_free) state_q <= Removed;
      default:   if (lets_go) state_q <= Idle;  // Removed
    endcase
    if (rst_i) begin
      state_q <= Idle;
    end
  end

  // Keys whose entry was deleted leave the cuckoo table later.
  assign push       = array_answer ? copied_q[2] && !word.present
                      : clears ? written_row < IndexBits'(Slots)
                      : slice_write && slice.index < IndexBits'(Slots) && was_present && !slice_present;
  assign pushed_key = array_answer ? copied_key_q[2] : clears ? word.key : slice.key;

  // ---- The order of use.

  if (Lru) begin : gen_lru
    logic used, gone, replaces, order_valid, evicting, victim_valid, evicted_busy, clear_now, clears_late;
    logic [IndexBits-1:0] victim;

    // A lookup by the host is no use.
    assign used        = in_slice && slice.found && slice_present
                         && (slice.host ? slice_write : touch_i || !was_present);
    assign gone        = slice_write && was_present && !slice_present;
    // A present row that is copied takes its place in the order along.
    assign replaces    = copies && copy_present;
    assign order_valid = used || gone || evicts || replaces;

    fl_lru #(
        .Rows(ArrayRows)
    ) u_order (
        .clk_i,
        .rst_i,
        .ready_o       (order_ready),
        .valid_i       (order_valid),
        .unlink_i      ((used || gone) && was_present),
        .evict_i       (evicts),
        .replace_i     (replaces),
        .append_i      (used),
        .row_i         (replaces ? own_row(copy_entry) : slice.index),
        .to_i          (replaces ? IndexBits'(copy_slot) : slice.index),
        .evicting_o    (evicting),
        .victim_valid_o(victim_valid),
        .victim_o      (victim)
    );

    fl_evicted #(
        .RowBits(IndexBits)
    ) u_evicted (
        .clk_i,
        .rst_i,
        .add_i        (victim_valid),
        .add_row_i    (victim),
        .row_i        (access_q[Value].index),
        .evicted_o    (is_evicted),
        .written_i    ((slice_write && slice_present) || clears),
        .written_row_i(written_row),
        .clear_valid_o(clear_valid),
        .clear_row_o  (clear_row),
        .clear_take_i (clear_take),
        .busy_o       (evicted_busy)
    );

    // A row is cleared where no packet reads, and none writes when its clearing does.
    if (Delay == 0) begin : gen_now
      assign clears_late = 1'b0;
    end else begin : gen_late
      assign clears_late = access_q[Slice-3].valid && !access_q[Slice-3].host && !access_q[Slice-3].clear;
    end
    assign clear_take = clear_valid && !access_d.valid && !clears_late;
    assign clear_now  = access_q[Value].valid && access_q[Value].clear;
    assign clears     = clear_now && is_evicted;

    always_comb begin
      is_changing = evicting || evicted_busy;
      // Copies come where neither a packet nor the host changes the order, and while no evicted row is known otherwise.
      is_ordering = evicting || evicted_busy || (access_q[Slice].valid && !access_q[Slice].host);
      for (int unsigned cycle = 1; cycle <= Hit; cycle++) begin
        is_changing |= request_q[cycle].valid && request_q[cycle].source == Host && request_q[cycle].operation inside {3'd1, 3'd2, 3'd4, 3'd5};
        is_ordering |= request_q[cycle].valid && request_q[cycle].source == Host;
      end
      for (int unsigned cycle = Hit + 1; cycle <= Value; cycle++) begin
        is_changing |= access_q[cycle].valid && access_q[cycle].host && access_q[cycle].operation inside {3'd1, 3'd2, 3'd4, 3'd5};
        is_ordering |= access_q[cycle].valid && access_q[cycle].host;
      end
    end

`ifndef SYNTHESIS
    logic is_twice_q;
    always_ff @(posedge clk_i) begin
      is_twice_q <= ((slice_write && clears) || (replaces && (used || gone || evicts))) && !rst_i;
    end
    a_once : assert property (@(posedge clk_i) disable iff (rst_i) !is_twice_q);
`endif
  end else begin : gen_plain
    logic unused_lru;
    assign unused_lru  = ^{touch_i, evicts, clear_valid, copy_present};
    assign order_ready = 1'b1;
    assign is_evicted  = 1'b0;
    assign is_changing = 1'b0;
    assign is_ordering = 1'b0;
    assign clear_valid = 1'b0;
    assign clear_take  = 1'b0;
    assign clear_row   = '0;
    assign clears      = 1'b0;
  end

  fl_fifo #(
      .Width(KeyBits),
      .Depth(Candidates)
  ) u_candidates (
      .clk_i,
      .rst_i,
      .in_valid_i (push),
      .in_ready_o (push_ready),
      .in_data_i  (pushed_key),
      .out_valid_o(candidate_valid),
      .out_ready_i(op_free && adopts),
      .out_data_o (candidate_key),
      .count_o    (waiting)
  );

  always_ff @(posedge clk_i) begin
    request_q[1] <= request_d;
    for (int unsigned cycle = 2; cycle <= Hit; cycle++) request_q[cycle] <= request_q[cycle-1];
    access_q <= {access_q[Slice-1:Hit+1], access_next};
    copied_q     <= {copied_q[1], copies};
    copied_key_q <= {copied_key_q[1], copy_key};
    if (now.valid && now.source == Insert && !cuckoo_stored) begin
      refused_q <= '1;
    end else if (refused_q != '0) begin
      refused_q <= refused_q - 1'b1;
    end
    if (op_free && adopts) begin
      adopting_q <= 1'b1;
    end else if (now.valid && now.source == Adopt) begin
      adopting_q <= 1'b0;
    end
    if (slice_write || evicts) begin
      stored_q <= stored_q + StoredBits'(slice_write && slice_present && !was_present)
                  - StoredBits'(slice_write && !slice_present && was_present) - StoredBits'(evicts);
    end
    // Room for what may enter, and what is on its way: one entry a key, one candidate a deletion.
    new_room_q <= free_entries > FreeBits'(Ahead + Hit + 3);
    old_room_q <= waiting < CandidateBits'(MaxWaiting);
    tight_q <= (Delay != 0 || Lru) && 32'(stored_q) + 32'(Ahead + Slice + 4) > 32'(Entries);
    if (rst_i) begin
      adopting_q <= 1'b0;
      refused_q  <= '0;
      copied_q   <= '0;
      stored_q   <= '0;
      new_room_q <= 1'b0;
      old_room_q <= 1'b0;
      tight_q    <= 1'b1;
      for (int unsigned cycle = 1; cycle <= Hit; cycle++) request_q[cycle].valid <= 1'b0;
      for (int unsigned cycle = Hit + 1; cycle <= Slice; cycle++) access_q[cycle].valid <= 1'b0;
    end
  end

  assign room_o  = (new_room_q && old_room_q) || !Changes;
  assign tight_o = tight_q && Changes;

  if (Pending <= Ahead + Hit + 4) begin : gen_bad_pending
    $error("Pending is %0d, expected at least %0d", Pending, Ahead + Hit + 5);
  end
  if (Ahead + Slice + (Lru ? 12 : 8) > Candidates) begin : gen_bad_ahead
    $error("Ahead is %0d, expected at most %0d", Ahead, Candidates - Slice - (Lru ? 12 : 8));
  end

`ifndef SYNTHESIS
  // In registers of their own: Verilator 5.006 copies all that an assertion depends on, and fails at wide arrays.
  logic is_early_q, is_lost_q, is_stuck_q, moves;
  // Cycles without room, a request or an adopted entry.
  logic [7:0] still_q;
  assign moves = (new_room_q && old_room_q) || state_q != Idle || adopting_q || quiet_valid
                 || (request_d.valid && request_d.source inside {Packet, Host});
  always_ff @(posedge clk_i) begin
    is_early_q <= is_early && !rst_i;
    is_lost_q  <= push && !push_ready && !rst_i;
    still_q    <= (moves || rst_i) ? '0 : still_q + 8'(still_q != '1);
    is_stuck_q <= 32'(still_q) > Ahead + Slice + Quiet && free_entries < FreeBits'(3) && !moves && !rst_i;
  end
  // Packets of one row are far enough apart that each sees the result of the one before.
  a_apart : assert property (@(posedge clk_i) disable iff (rst_i) !is_early_q);
  a_candidates : assert property (@(posedge clk_i) disable iff (rst_i) !is_lost_q);
  // Waiting keys can be adopted in the end: copies wait for that.
  a_adopts : assert property (@(posedge clk_i) disable iff (rst_i) !is_stuck_q);
  a_count : assert property (@(posedge clk_i) disable iff (rst_i) stored_q <= StoredBits'(Entries));
  a_row : assert property (@(posedge clk_i) disable iff (rst_i) allocates |-> free_entries != '0);
`endif

endmodule
