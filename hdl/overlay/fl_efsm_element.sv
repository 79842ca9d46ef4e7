// SPDX-License-Identifier: Apache-2.0 OR MIT
// Stateful element of the FlowBlaze machine.
//
//   cycle  1 key extractor      2 hash      3 scheduler, read      4 compare      5 context, its age
//          6 conditions         7 EFSM table, instruction          8 ALUs, write units       9 write-back
//
// A packet addressed to another stage passes through. A packet without a key, or without a matching row, executes the
// last instruction. Accesses of the host enter as packets do, where none enters, and pass the same scheduler.
//
// Latency: 8 cycles, if the packet is not held.
// Throughput: one packet a cycle; packets of one flow, one in Hold cycles.
// Handshake: packets are always accepted: room_o is low where fewer than Ahead more fit. Grants wait for room_i.
// Source: [FlowBlaze 3.2, 4]
module fl_efsm_element
  import fl_config_pkg::*;
#(
    parameter int unsigned Words = 24,
    parameter int unsigned Registers = 4,
    parameter int unsigned Globals = 8,
    parameter int unsigned Conditions = 8,
    parameter int unsigned Alus = 5,
    parameter int unsigned Writes = 6,
    parameter int unsigned MatchWords = 4,
    parameter int unsigned Rows = 32,
    parameter int unsigned KeyWords = 4,
    parameter int unsigned TableRows = 4096,
    parameter int unsigned HashBits = 12,
    parameter logic [32*KeyWords:0][4*HashBits-1:0] Columns = '0,
    parameter int unsigned Queues = 1,
    parameter int unsigned QueueDepth = 20,
    parameter int unsigned SideBits = 32,
    parameter int unsigned Ahead = 12,
    parameter logic [3:0] Stage = 4'd1,
    localparam int unsigned KeyBits = 32 * KeyWords,
    localparam int unsigned ContextBits = 128 + 4 + 8 + 32 * Registers,
    localparam int unsigned PlaceBits = $clog2(TableRows) + 4,
    localparam int unsigned CountBits = $clog2(4 * TableRows + 9)
) (
    input  logic                   clk_i,
    input  logic                   rst_i,
    output logic                   ready_o,
    input  config_t                config_i,
    input  logic                   valid_i,
    output logic                   room_o,
    input  logic [SideBits-1:0]    side_i,
    input  logic [63:0]            now_i,
    input  logic                   bank_i,
    input  logic                   ipv4_i,
    input  logic [14:0]            presence_i,
    input  logic [Words-1:0][31:0] words_i,
    input  logic [Words-1:0]       written_i,
    input  logic [3:0]             stage_i,
    input  logic [2:0]             terminal_i,
    input  logic [31:0]            port_i,
    output logic                   valid_o,
    input  logic                   room_i,
    output logic [SideBits-1:0]    side_o,
    output logic [63:0]            now_o,
    output logic                   bank_o,
    output logic                   ipv4_o,
    output logic [14:0]            presence_o,
    output logic [Words-1:0][31:0] words_o,
    output logic [Words-1:0]       written_o,
    output logic [3:0]             stage_o,
    output logic [2:0]             terminal_o,
    output logic [31:0]            port_o,
    // An access of the host to the context of a key: 0 lookup, 1 update, 2 delete. The answer is the context before it;
    // an update of an absent context is refused if the table is full.
    input  logic                   host_valid_i,
    output logic                   host_ready_o,
    input  logic [1:0]             host_operation_i,
    input  logic                   host_bank_i,
    input  logic [KeyBits-1:0]     host_key_i,
    input  logic [ContextBits-1:0] host_context_i,
    output logic                   host_done_o,
    output logic                   host_found_o,
    output logic                   host_refused_o,
    output logic [ContextBits-1:0] host_context_o,
    // The sweep, while sweep_i or clear_i is high: expired contexts are removed, and with clear_i those of a bank. Its
    // time, which is that of accesses of the host, too, is at most the arrival time of each packet that has not left.
    input  logic [63:0]            sweep_now_i,
    input  logic                   sweep_i,
    input  logic                   clear_i,
    input  logic                   clear_bank_i,
    output logic [31:0]            swept_o,
    output logic [1:0][CountBits-1:0] stored_o,
    // A read of the entry at {way, row}.
    input  logic                   read_valid_i,
    output logic                   read_ready_o,
    input  logic [PlaceBits-1:0]   read_place_i,
    output logic                   read_valid_o,
    output logic                   read_found_o,
    output logic [KeyBits:0]       read_key_o,
    output logic [ContextBits-1:0] read_context_o,
    input  logic                   still_i,
    // A read of a global register.
    input  logic                   global_bank_i,
    output logic [Globals-1:0][31:0] globals_o
);

  localparam logic [7:0] Unit = {Stage, 4'd0};
  localparam int unsigned Hold = 7;
  localparam int unsigned RowBits = $clog2(TableRows);
  // FK1 is made of the lower bits of two rows: their upper bits are uneven where TableRows is not a power of two.
  localparam int unsigned FlowHalf = (RowBits < 8) ? RowBits : 8;
  localparam int unsigned FlowBits = 2 * FlowHalf;
  localparam int unsigned InstructionBits = $clog2(Rows);
  localparam int unsigned Operands = Words + Registers + Globals + 4;
  localparam int unsigned OperandBits = $clog2(Operands);
  localparam int unsigned WaitingBits = $clog2(QueueDepth + 1);

  typedef struct packed {
    logic [SideBits-1:0]    side;
    logic [63:0]            arrival;
    logic                   bank;
    logic                   ipv4;
    logic [14:0]            presence;
    logic [Words-1:0][31:0] words;
    logic [Words-1:0]       written;
    logic [3:0]             stage;
    logic [2:0]             terminal;
    logic [31:0]            port;
    logic                   host;
    // The packet executes a row of this element; the packet has a key.
    logic                   active;
    logic                   keyed;
  } packet_t;

  typedef struct packed {
    logic [63:0]                hard_deadline;
    logic [63:0]                idle_deadline;
    logic [3:0]                 timeouts;
    logic [7:0]                 state;
    logic [Registers-1:0][31:0] registers;
  } context_t;

  typedef struct packed {
    logic [63:0] hard;
    logic [63:0] idle;
  } timeouts_t;

  // Configuration of the context table, by bank.
  typedef struct packed {
    logic [Registers-1:0][31:0] initial_;
    logic                       is_signed;
    // 0 reject, 1 evict the lowest, 2 evict the highest.
    logic [1:0]                 policy;
  } contexts_t;

  typedef struct packed {
    logic [5:0]             shift;
    logic [OperandBits-1:0] sample;
    logic [OperandBits-1:0] average;
  } average_t;

  packet_t                     entering, packet_q[1:8], granted;
  logic [8:1]                  valid_q;
  logic [KeyBits:0]            key, key_q[1:2], granted_key;
  logic [3:0][RowBits-1:0]     rows, granted_rows;
  logic                        grant, grant_uses;

  // ---- Cycle 1: the key. An access of the host enters where no packet does.

  logic                     is_active, is_present, takes_host;
  logic [KeyWords-1:0][31:0] extracted;

  assign takes_host   = host_valid_i && !valid_i && room_o && ready_o;
  assign host_ready_o = takes_host;
  assign is_active    = valid_i && stage_i == Stage;

  fl_efsm_key #(
      .Words   (Words),
      .KeyWords(KeyWords),
      .Unit    (Unit + 8'd4)
  ) u_key (
      .clk_i,
      .config_i,
      .bank_i,
      .words_i,
      .presence_i,
      .present_o(is_present),
      .key_o    (extracted)
  );

  assign entering = '{
      side: side_i,
      arrival: takes_host ? sweep_now_i : now_i,
      bank: takes_host ? host_bank_i : bank_i,
      ipv4: ipv4_i,
      presence: presence_i,
      words: words_i,
      written: written_i,
      stage: stage_i,
      terminal: terminal_i,
      port: port_i,
      host: takes_host,
      active: is_active,
      keyed: takes_host || (is_active && is_present)
  };
  assign key = takes_host ? {host_bank_i, host_key_i} : {bank_i, extracted};

  // ---- Cycle 2: the hash.

  fl_hash #(
      .KeyBits (KeyBits + 1),
      .HashBits(HashBits),
      .Rows    (TableRows),
      .Columns (Columns)
  ) u_hash (
      .clk_i,
      .key_i (key_q[1]),
      .rows_o(rows)
  );

  // ---- Cycle 3: the scheduler.

  // Of each bank: its size, whether one packet at a time is in the element.
  logic [1:0][31:0]                 sizes_q;
  logic [1:0]                       serial_q;
  logic                             alone, stall, scheduler_ready;
  logic [1:0]                       lock_valid;
  logic [1:0][FlowBits-1:0]         lock_hash;
  logic [Hold-1:1]                  flight_valid;
  logic [Hold-1:1][FlowBits-1:0]    flight_hash;
  logic [WaitingBits-1:0]           waiting;
  logic [1:0][CountBits-1:0]        stored;
  logic [3:0]                       stash_room, users;

  always_comb begin
    alone = 1'b0;
    for (int unsigned bank = 0; bank < 2; bank++) begin
      alone |= serial_q[bank] || 32'(stored[bank]) + 32'(Hold) >= sizes_q[bank];
    end
    users = '0;
    for (int unsigned age = 1; age < Hold; age++) users += 4'(flight_valid[age]);
    stall = !room_i || stash_room <= users;
  end

  fl_flow_scheduler #(
      .Queues  (Queues),
      .Depth   (QueueDepth),
      .HashBits(FlowBits),
      .Hold    (Hold),
      .DataBits($bits(packet_t) + KeyBits + 1 + 4 * RowBits)
  ) u_scheduler (
      .clk_i,
      .rst_i,
      .valid_i       (valid_q[2]),
      .ready_o       (scheduler_ready),
      .uses_i        (packet_q[2].keyed),
      .hash_i        ({rows[1][FlowHalf-1:0], rows[0][FlowHalf-1:0]}),
      .data_i        ({packet_q[2], key_q[2], rows}),
      .stall_i       (stall),
      .alone_i       (alone),
      .lock_valid_i  (lock_valid),
      .lock_hash_i   (lock_hash),
      .valid_o       (grant),
      .uses_o        (grant_uses),
      .data_o        ({granted, granted_key, granted_rows}),
      .flight_valid_o(flight_valid),
      .flight_hash_o (flight_hash),
      .waiting_o     (waiting)
  );
  // Packets in cycles 1 to 3 are on their way to the queue.
  assign room_o = 32'(waiting) + 32'(Ahead) + 32'd3 <= 32'(QueueDepth);

  // ---- Cycles 3 to 5: the context.

  logic                   found, write, keep, evicts;
  logic [ContextBits-1:0] found_bits;
  context_t               found_context, written_context;
  logic [3:0]             taken;
  logic [3:0][31:0]       candidates;
  logic [1:0]             victim;

  fl_context_table #(
      .KeyBits    (KeyBits + 1),
      .ContextBits(ContextBits),
      .Rows       (TableRows),
      .HashBits   (HashBits),
      .Columns    (Columns),
      .Stash      (8),
      .FlowBits   (FlowBits),
      .Hold       (Hold)
  ) u_table (
      .clk_i,
      .rst_i,
      .ready_o,
      .valid_i       (grant_uses),
      .rows_i        (granted_rows),
      .key_i         (granted_key),
      .found_o       (found),
      .context_o     (found_bits),
      .taken_o       (taken),
      .candidates_o  (candidates),
      .write_i       (write),
      .keep_i        (keep),
      .evict_i       (evicts),
      .victim_i      (victim),
      .context_i     (written_context),
      .flight_valid_i(flight_valid),
      .flight_hash_i (flight_hash),
      .lock_valid_o  (lock_valid),
      .lock_hash_o   (lock_hash),
      .stored_o      (stored),
      .room_o        (stash_room),
      .now_i         (sweep_now_i),
      .sweep_i,
      .clear_i,
      .clear_bank_i,
      .swept_o,
      .read_valid_i,
      .read_ready_o,
      .read_place_i,
      .read_valid_o,
      .read_found_o,
      .read_key_o,
      .read_context_o,
      .still_i       (still_i || (alone && flight_valid != '0))
  );
  assign found_context = found_bits;
  assign stored_o      = stored;

  // A context as it is in one cycle.
  typedef struct packed {
    logic       present;
    logic       full;
    logic       has_victim;
    logic [1:0] victim;
    context_t   context_;
  } lookup_t;

  contexts_t  contexts, contexts_late;
  lookup_t    lookup, lookup_q[5:8];

  fl_config_bank #(
      .Bits($bits(contexts_t)),
      .Unit(Unit + 8'd5)
  ) u_contexts (
      .clk_i,
      .config_i,
      .bank_i  (packet_q[4].bank),
      .config_o(contexts)
  );

  always_comb begin
    automatic logic is_expired, is_live;
    automatic logic [31:0] rank_mask;
    automatic logic [63:0] at = packet_q[4].arrival;
    is_expired = found && ((found_context.idle_deadline <= at && found_context.idle_deadline != '1)
        || (found_context.hard_deadline <= at && found_context.hard_deadline != '1));
    is_live           = found && !is_expired;
    lookup            = '0;
    lookup.present    = is_live;
    lookup.full       = !is_live
        && 32'(stored[packet_q[4].bank]) - 32'(is_expired) >= sizes_q[packet_q[4].bank];
    lookup.context_   = is_live ? found_context
        : '{hard_deadline: '1, idle_deadline: '1, timeouts: '0, state: '0, registers: contexts.initial_};
    // The victim of an eviction: the smallest first register; the mask inverts the order, or moves the sign.
    rank_mask = {contexts.is_signed ^ (contexts.policy == 2'd2), {31{contexts.policy == 2'd2}}};
    for (int unsigned way = 4; way > 0; way--) begin
      automatic logic [31:0] mine, best;
      mine = candidates[way-1] ^ rank_mask;
      best = candidates[lookup.victim] ^ rank_mask;
      if (contexts.policy != 2'd0 && taken[way-1] && (!lookup.has_victim || mine <= best)) begin
        lookup.has_victim = 1'b1;
        lookup.victim     = 2'(way - 1);
      end
    end
  end

  // ---- Cycle 6: the idle timer of a context that was found restarts; moving averages.

  timeouts_t               own_timeouts, new_timeouts;
  logic [63:0]             rearmed;
  average_t [1:0]          averages;
  logic [1:0][31:0]        average_d, average_q[6:7];
  // The registers of both banks.
  logic [1:0][Globals-1:0][31:0] globals_q;

  // Operands of conditions and averages; those of ALUs and write units.
  logic [Operands-2:0][31:0] early_operands, late_operands;
  assign early_operands = {64'd0, 32'(lookup_q[5].context_.state), globals_q[packet_q[5].bank],
      lookup_q[5].context_.registers, packet_q[5].words};
  assign late_operands  = {average_q[7], 32'(lookup_q[7].context_.state), globals_q[packet_q[7].bank],
      lookup_q[7].context_.registers, packet_q[7].words};

  fl_config_rows #(
      .Bits(128),
      .Rows(16),
      .Unit(Unit + 8'd6)
  ) u_own_timeouts (
      .clk_i,
      .config_i,
      .bank_i  (packet_q[5].bank),
      .row_i   (lookup_q[5].context_.timeouts),
      .config_o(own_timeouts)
  );
  // An access of the host restarts no timer.
  assign rearmed = (own_timeouts.idle == '1 || !lookup_q[5].present || packet_q[5].host)
      ? lookup_q[5].context_.idle_deadline
      : packet_q[5].arrival + own_timeouts.idle;

  fl_config_bank #(
      .Bits(2 * $bits(average_t)),
      .Unit(Unit + 8'd8)
  ) u_averages (
      .clk_i,
      .config_i,
      .bank_i  (packet_q[5].bank),
      .config_o(averages)
  );

  for (genvar number = 0; number < 2; number++) begin : gen_average
    logic [31:0] average, sample;

    fl_efsm_operand #(
        .Operands(Operands)
    ) u_average (
        .select_i   (averages[number].average),
        .operands_i(early_operands),
        .constant_i ('0),
        .operand_o  (average)
    );
    fl_efsm_operand #(
        .Operands(Operands)
    ) u_sample (
        .select_i   (averages[number].sample),
        .operands_i(early_operands),
        .constant_i ('0),
        .operand_o  (sample)
    );
    logic [31:0] difference;
    assign difference        = sample - average;
    assign average_d[number] = averages[number].shift[5] ? '0
        : 32'($signed(difference) >>> averages[number].shift[4:0]);
  end

  // ---- Cycles 6 and 7: conditions, EFSM table.

  logic                       hit;
  logic [InstructionBits-1:0] row;

  fl_efsm_match #(
      .Words     (Words),
      .Registers (Registers),
      .Globals   (Globals),
      .Conditions(Conditions),
      .MatchWords(MatchWords),
      .Rows      (Rows),
      .Unit      (Unit)
  ) u_match (
      .clk_i,
      .config_i,
      .bank_i     (packet_q[5].bank),
      .operands_i (early_operands),
      .presence_i (packet_q[5].presence),
      .full_i     (lookup_q[5].full),
      .hit_o      (hit),
      .row_o      (row)
  );

  // ---- Cycle 8: the row's instruction.

  logic                       has_row, refused, is_refusing;
  logic [Words-1:0][31:0]     new_words;
  logic [Words-1:0]           new_written;
  logic [Registers-1:0][31:0] new_registers;
  logic [Registers-1:0]       register_writes;
  logic [Globals-1:0][31:0]   new_globals;
  logic [Globals-1:0]         global_writes;
  logic                       moves;
  logic [7:0]                 new_state;
  logic [3:0]                 new_timeout;
  logic [1:0]                 creates;
  logic [2:0]                 new_terminal;
  logic [3:0]                 new_stage;
  logic [31:0]                new_port;

  assign has_row     = hit && packet_q[7].keyed;
  assign is_refusing = !lookup_q[7].present && lookup_q[7].full && !lookup_q[7].has_victim;

  fl_efsm_act #(
      .Words    (Words),
      .Registers(Registers),
      .Globals  (Globals),
      .Alus     (Alus),
      .Writes   (Writes),
      .Rows     (Rows),
      .Unit     (Unit + 8'd2)
  ) u_act (
      .clk_i,
      .config_i,
      .bank_i           (packet_q[7].bank),
      .active_i         (packet_q[7].active),
      .row_i            (has_row ? row : InstructionBits'(Rows - 1)),
      .operands_i       (late_operands),
      .ipv4_i           (packet_q[7].ipv4),
      .refused_i        (is_refusing && creates != 2'd0),
      .words_o          (new_words),
      .written_o        (new_written),
      .registers_o      (new_registers),
      .register_writes_o(register_writes),
      .globals_o        (new_globals),
      .global_writes_o  (global_writes),
      .moves_o          (moves),
      .state_o          (new_state),
      .timeouts_o       (new_timeout),
      .creates_o        (creates),
      .terminal_o       (new_terminal),
      .stage_o          (new_stage),
      .port_o           (new_port)
  );
  assign refused = packet_q[7].active && is_refusing && creates != 2'd0;

  fl_config_rows #(
      .Bits(128),
      .Rows(16),
      .Unit(Unit + 8'd6)
  ) u_new_timeouts (
      .clk_i,
      .config_i,
      .bank_i  (packet_q[7].bank),
      .row_i   (new_timeout),
      .config_o(new_timeouts)
  );

  function automatic logic [63:0] deadline(logic [63:0] at, logic [63:0] timeout);
    return (timeout == '1) ? '1 : at + timeout;
  endfunction

  // ---- Cycle 9: the write-back. A context that is the default one is not stored.

  context_t after_q;
  logic     may_vanish_q, refused_q, is_default;

  fl_config_bank #(
      .Bits($bits(contexts_t)),
      .Unit(Unit + 8'd5)
  ) u_contexts_late (
      .clk_i,
      .config_i,
      .bank_i  (packet_q[8].bank),
      .config_o(contexts_late)
  );

  always_comb begin
    is_default = after_q.state == '0 && after_q.idle_deadline == '1 && after_q.hard_deadline == '1
        && after_q.registers == contexts_late.initial_;
    write           = valid_q[8] && packet_q[8].keyed;
    keep            = !(may_vanish_q && is_default) && !refused_q;
    written_context = after_q;
    evicts          = lookup_q[8].full && lookup_q[8].has_victim && contexts_late.policy != 2'd0;
    victim          = lookup_q[8].victim;
    host_refused_o  = lookup_q[8].full;
    if (packet_q[8].host) begin
      write           = valid_q[8] && host_operation_i != 2'd0;
      keep            = host_operation_i == 2'd1 && !lookup_q[8].full;
      written_context = host_context_i;
      evicts          = 1'b0;
    end
  end
  assign host_done_o    = valid_q[8] && packet_q[8].host;
  assign host_found_o   = lookup_q[8].present;
  assign host_context_o = lookup_q[8].context_;

  assign valid_o    = valid_q[8] && !packet_q[8].host;
  assign side_o     = packet_q[8].side;
  assign now_o      = packet_q[8].arrival;
  assign bank_o     = packet_q[8].bank;
  assign ipv4_o     = packet_q[8].ipv4;
  assign presence_o = packet_q[8].presence;
  assign words_o    = packet_q[8].words;
  assign written_o  = packet_q[8].written;
  assign stage_o    = packet_q[8].stage;
  assign terminal_o = packet_q[8].terminal;
  assign port_o     = packet_q[8].port;
  assign globals_o  = globals_q[global_bank_i];

  always_ff @(posedge clk_i) begin
    valid_q     <= {valid_q[7:3], grant, valid_q[1], valid_i || takes_host};
    packet_q[1] <= entering;
    packet_q[2] <= packet_q[1];
    packet_q[3] <= granted;
    for (int unsigned cycle = 4; cycle <= 8; cycle++) packet_q[cycle] <= packet_q[cycle-1];
    key_q[1]    <= key;
    key_q[2]    <= key_q[1];
    lookup_q[5] <= lookup;
    lookup_q[6] <= lookup_q[5];
    lookup_q[6].context_.idle_deadline <= rearmed;
    lookup_q[7] <= lookup_q[6];
    lookup_q[8] <= lookup_q[7];
    average_q[6] <= average_d;
    average_q[7] <= average_q[6];

    if (packet_q[7].active) begin
      packet_q[8].words    <= new_words;
      packet_q[8].written  <= packet_q[7].written | new_written;
      packet_q[8].terminal <= new_terminal;
      packet_q[8].port     <= new_port;
      packet_q[8].stage    <= (new_terminal == 3'd6) ? new_stage : '1;
    end
    after_q.registers     <= new_registers;
    after_q.state         <= moves ? new_state : lookup_q[7].context_.state;
    after_q.timeouts      <= moves ? new_timeout : lookup_q[7].context_.timeouts;
    after_q.idle_deadline <= moves ? deadline(packet_q[7].arrival, new_timeouts.idle)
        : lookup_q[7].context_.idle_deadline;
    after_q.hard_deadline <= moves ? deadline(packet_q[7].arrival, new_timeouts.hard)
        : lookup_q[7].context_.hard_deadline;
    may_vanish_q <= moves || !lookup_q[7].present || register_writes != '0;
    refused_q    <= refused;
    if (valid_q[7] && packet_q[7].active && !refused) begin
      for (int unsigned at = 0; at < Globals; at++) begin
        if (global_writes[at]) globals_q[packet_q[7].bank][at] <= new_globals[at];
      end
    end

    if (config_i.valid && config_i.unit == Unit + 8'd7) begin
      if (config_i.index == 16'd0) sizes_q[config_i.bank] <= config_i.data;
      if (config_i.index == 16'd1) serial_q[config_i.bank] <= config_i.data[0];
      for (int unsigned at = 0; at < Globals; at++) begin
        if (config_i.index == 16'd2 + 16'(at)) globals_q[config_i.bank][at] <= config_i.data;
      end
    end
    if (rst_i) begin
      valid_q  <= '0;
      sizes_q  <= '1;
      serial_q <= '0;
    end
  end

  logic unused;
  assign unused = ^{contexts_late.is_signed, own_timeouts.hard, scheduler_ready};

`ifndef SYNTHESIS
  a_room : assert property (@(posedge clk_i) disable iff (rst_i) valid_q[2] |-> scheduler_ready);
`endif

endmodule
