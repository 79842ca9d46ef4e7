// SPDX-License-Identifier: Apache-2.0 OR MIT
// Transactions of software on a map: registers for key and value, and a command that makes one access to the whole
// entry.
//
//   COMMAND ─► Check ─► Ask ─► Answer ─► STATUS, KEY, VALUE
//                │       Next reads row after row, until one has an entry; the results of later rows are dropped
//                └─► an error that needs no access
//
// An access takes its turn among the packets, so it sees all changes of the packets before it and none of those after
// it. The numbers of errors are those of Linux for the same operation on a map of this kind. A transaction is busy
// until its access is made; then no register can be written, and KEY and VALUE cannot be read. An update that finds no
// room for new keys for 65,536 cycles ends with an error: the deletion that makes room again needs the same registers.
//
// Latency: registers respond in the next cycle. A transaction takes 3 cycles and those of the map; Next takes a cycle
// more for each row.
// Throughput: one request a cycle; one transaction at a time.
// Handshake: requests are always accepted; valid and ready at the map, whose result comes later or in the same cycle.
module fl_map_access
  import fl_bus_pkg::*;
  import fl_registers_pkg::*;
#(
    // The number of its block; a block has 2 to the power of BlockBits bytes.
    parameter int unsigned Block = 1,
    parameter int unsigned BlockBits = 8,
    // What MAP and KIND read.
    parameter int unsigned Map = 0,
    parameter int unsigned Kind = KindHash,
    parameter int unsigned KeyBytes = 4,
    parameter int unsigned ValueBytes = 4,
    parameter int unsigned Entries = 1,
    // Rows that Next reads: Entries, or those of a hash map.
    parameter int unsigned Rows = 1,
    localparam int unsigned KeyBits = 8 * KeyBytes,
    localparam int unsigned ValueBits = 8 * ValueBytes
) (
    input  logic                 clk_i,
    input  logic                 rst_i,
    input  request_t             request_i,
    output answer_t              answer_o,
    // The map: a lookup, or a change with write_o. For a hash map, operation_o is that of fl_hash_map.
    output logic                 valid_o,
    input  logic                 ready_i,
    output logic                 write_o,
    output logic [2:0]           operation_o,
    output logic [KeyBits-1:0]   key_o,
    output logic [ValueBits-1:0] value_o,
    // Whether it has room for new keys; without it, packets wait.
    input  logic                 room_i,
    // Its answer: the entry before the access, and whether an update was refused, as the map is full.
    input  logic                 valid_i,
    input  logic                 present_i,
    input  logic                 full_i,
    input  logic [KeyBits-1:0]   key_i,
    input  logic [ValueBits-1:0] value_i,
    input  logic [31:0]          count_i
);

  localparam bit          IsHash = Kind == KindHash || Kind == KindLru || Kind == KindLpm;
  // A map of prefixes: a key is a length in bits, of 32 bits, and an address.
  localparam bit          IsPrefix = Kind == KindLpm;
  localparam int unsigned OffsetBits = BlockBits - 2;
  localparam int unsigned KeyWords = (KeyBytes + 3) / 4;
  localparam int unsigned ValueWords = (ValueBytes + 3) / 4;
  localparam int unsigned KeyIndexBits = (KeyWords > 1) ? $clog2(KeyWords) : 1;
  localparam int unsigned ValueIndexBits = (ValueWords > 1) ? $clog2(ValueWords) : 1;
  // The value begins at a multiple of 64 bytes.
  localparam int unsigned ValueOffset = MapKey + (KeyBytes + 63) / 64 * 64;
  localparam logic [OffsetBits-1:0] FirstKey = OffsetBits'(MapKey / 4);
  localparam logic [OffsetBits-1:0] FirstValue = OffsetBits'(ValueOffset / 4);

  typedef enum logic [1:0] {
    Idle,
    Check,
    Ask,
    Answer
  } state_e;

  typedef logic [7:0] errno_t;

  // ---- The registers.

  state_e                            state_q;
  logic [7:0]                        operation_q, flags_q;
  errno_t                            error_q;
  logic [31:0]                       cursor_q;
  logic [KeyWords-1:0][31:0]         key_q;
  logic [ValueWords-1:0][31:0]       value_q;
  // The request: its register, or the word of the key or value.
  logic                              mine, changes, write, busy, is_key, is_value, starts;
  logic [OffsetBits-1:0]             offset, key_offset, value_offset;
  logic [KeyIndexBits-1:0]           key_word;
  logic [ValueIndexBits-1:0]         value_word;
  logic [31:0]                       key_now, value_now;
  answer_t                           answer;

  assign mine         = request_i.valid && request_i.address[29:OffsetBits] == (30-OffsetBits)'(Block);
  assign offset       = request_i.address[OffsetBits-1:0];
  assign busy         = state_q != Idle;
  assign key_offset   = offset - FirstKey;
  assign value_offset = offset - FirstValue;
  assign is_key       = offset >= FirstKey && key_offset < OffsetBits'(KeyWords);
  assign is_value     = offset >= FirstValue && value_offset < OffsetBits'(ValueWords);
  assign key_word     = KeyIndexBits'(key_offset);
  assign value_word   = ValueIndexBits'(value_offset);
  assign key_now      = key_q[key_word];
  assign value_now    = value_q[value_word];

  // A register that is not there is no address. A write of no byte changes nothing, and has no error: adapters that
  // split wide writes make such ones. A register that is only read takes no other write, and none does while a
  // transaction is busy.
  assign changes = request_i.write && request_i.strobe != '0;
  always_comb begin
    answer = '{hit: mine, response: changes ? Slverr : Okay, data: '0};
    unique case (offset)
      OffsetBits'(MapCommand / 4): begin
        answer.data = {16'h0, flags_q, operation_q};
        if (changes && !busy && (!request_i.strobe[0] || request_i.data[7:0] <= 8'(OperationNext))) begin
          answer.response = Okay;
        end
      end
      OffsetBits'(MapStatus / 4): begin
        answer.data = {16'h0, error_q, 6'h0, !room_i, busy};
      end
      OffsetBits'(MapCursor / 4): begin
        answer.data = cursor_q;
        if (!busy) answer.response = Okay;
      end
      OffsetBits'(MapCount / 4): begin
        answer.data = count_i;
        if (!IsHash) answer.response = Decerr;
      end
      OffsetBits'(MapIndex / 4):       answer.data = 32'(Map);
      OffsetBits'(MapKind / 4):        answer.data = 32'(Kind);
      OffsetBits'(MapKeyBytes / 4):    answer.data = 32'(KeyBytes);
      OffsetBits'(MapValueBytes / 4):  answer.data = 32'(ValueBytes);
      OffsetBits'(MapEntries / 4):     answer.data = 32'(Entries);
      OffsetBits'(MapRows / 4):        answer.data = 32'(Rows);
      OffsetBits'(MapValueOffset / 4): answer.data = 32'(ValueOffset);
      default: begin
        if (is_key || is_value) begin
          answer.data = is_key ? key_now : value_now;
          answer.response = (busy && (changes || !request_i.write)) ? Slverr : Okay;
        end else begin
          answer.response = Decerr;
        end
      end
    endcase
    if (answer.response != Okay) begin
      answer.data = '0;
    end
  end

  assign write  = mine && changes && answer.response == Okay;
  assign starts = write && offset == OffsetBits'(MapCommand / 4) && request_i.strobe[0];

  // ---- The transaction.

  logic                is_next, asks, asked, answered, refuses, is_last, is_changed;
  errno_t              check_error, answer_error;
  logic                gives_up;
  logic [15:0]         patience_q;
  logic                check_done;
  // The row that Next reads, cursor_q being that of the next result; and reads without a result.
  logic [31:0]         asked_q, row, index;
  logic [3:0]          open_d, open_q;
  // The bytes after the end of key and value are 0.
  logic [32*KeyWords-1:0]   found_key;
  logic [32*ValueWords-1:0] found_value;

  assign index   = key_q[0];
  assign is_last = cursor_q == 32'(Rows - 1);
  // Entries of a hash map move to earlier rows only, so a listing from the last row on misses none.
  assign row     = IsHash ? 32'(Rows - 1) - asked_q : asked_q;

  // Errors that need no access: an index beyond the entries, a prefix longer than an address.
  assign refuses = IsPrefix ? index > 32'(KeyBits) - 32'd32 : !IsHash && index >= 32'(Entries);
  always_comb begin
    check_error = '0;
    unique case (operation_q)
      8'(OperationLookup): if (refuses) check_error = errno_t'(ErrorNoEntry);
      8'(OperationUpdate): begin
        if (flags_q > 8'(FlagExist)) check_error = errno_t'(ErrorInvalid);
        else if (refuses) check_error = IsPrefix ? errno_t'(ErrorInvalid) : errno_t'(ErrorFull);
        else if (!IsHash && flags_q == 8'(FlagNoExist)) check_error = errno_t'(ErrorExists);
      end
      8'(OperationDelete): begin
        if (Kind == KindArray || refuses) check_error = errno_t'(ErrorInvalid);
      end
      default: if (cursor_q >= 32'(Rows)) check_error = errno_t'(ErrorNoEntry);
    endcase
  end
  assign check_done = check_error != '0;

  // Errors that the entry decides.
  always_comb begin
    answer_error = '0;
    unique case (operation_q)
      8'(OperationUpdate): begin
        if (IsHash) begin
          if (flags_q == 8'(FlagNoExist) && present_i) answer_error = errno_t'(ErrorExists);
          else if (flags_q == 8'(FlagExist) && !present_i) answer_error = errno_t'(ErrorNoEntry);
          else if (full_i) answer_error = IsPrefix ? errno_t'(ErrorNoSpace) : errno_t'(ErrorFull);
        end
      end
      8'(OperationDelete): if (IsHash && !present_i) answer_error = errno_t'(ErrorNoEntry);
      default:             if (!present_i) answer_error = errno_t'(ErrorNoEntry);
    endcase
  end

  assign is_next    = operation_q == 8'(OperationNext);
  assign asks       = state_q == Ask && !(is_next && (asked_q == 32'(Rows) || open_q == '1));
  assign asked      = asks && ready_i;
  assign gives_up   = state_q == Ask && operation_q == 8'(OperationUpdate) && !room_i && patience_q == '1 && !asked;
  // After an entry, Next only drops the results of the rows that it has read beyond it.
  assign answered   = valid_i && (state_q == Ask || (state_q == Answer && !is_next));
  assign open_d     = open_q + 4'(asked) - 4'(valid_i);
  assign is_changed = operation_q == 8'(OperationUpdate) || operation_q == 8'(OperationDelete);
  assign valid_o    = asks;
  assign write_o    = is_changed;

  always_comb begin
    unique case (operation_q)
      8'(OperationUpdate): begin
        unique case (flags_q)
          8'(FlagNoExist): operation_o = 3'd4;
          8'(FlagExist):   operation_o = 3'd5;
          default:         operation_o = 3'd1;
        endcase
      end
      8'(OperationDelete): operation_o = 3'd2;
      8'(OperationNext):   operation_o = 3'd3;
      default:             operation_o = 3'd0;
    endcase
  end

  // The number of a row is in the key, and above it in the value.
  always_comb begin
    key_o   = KeyBits'(key_q);
    value_o = ValueBits'(value_q);
    if (is_next) begin
      {value_o, key_o} = (ValueBits + KeyBits)'(row);
    end
  end

  assign found_key   = (32*KeyWords)'(key_i);
  assign found_value = (32*ValueWords)'(value_i);

  always_ff @(posedge clk_i) begin
    answer_o <= mine ? answer : '0;
    open_q   <= open_d;
    // Cycles without room, of an update that waits.
    patience_q <= (state_q == Ask && !room_i) ? patience_q + 1'b1 : '0;

    if (write) begin
      unique case (offset)
        OffsetBits'(MapCommand / 4): begin
          if (request_i.strobe[0]) operation_q <= request_i.data[7:0];
          if (request_i.strobe[1]) flags_q <= request_i.data[15:8];
        end
        OffsetBits'(MapCursor / 4): cursor_q <= written(cursor_q, request_i.data, request_i.strobe);
        default: begin
          if (is_key) key_q[key_word] <= written(key_now, request_i.data, request_i.strobe);
          else value_q[value_word] <= written(value_now, request_i.data, request_i.strobe);
        end
      endcase
    end

    unique case (state_q)
      Idle: if (starts) state_q <= Check;
      Check: begin
        error_q <= check_error;
        asked_q <= cursor_q;
        state_q <= check_done ? Idle : Ask;
      end
      Ask: begin
        if (asked) asked_q <= asked_q + 1'b1;
        if (asked && !is_next) state_q <= Answer;
        if (gives_up) begin
          error_q <= errno_t'(ErrorAgain);
          state_q <= Idle;
        end
      end
      default: if (open_d == '0) state_q <= Idle;
    endcase
    if (answered && is_next) begin
      cursor_q <= cursor_q + 1'b1;
      error_q  <= answer_error;
      if (present_i) begin
        key_q   <= IsHash ? found_key : (32*KeyWords)'(cursor_q);
        value_q <= found_value;
        state_q <= Answer;
      end else if (is_last) begin
        state_q <= Idle;
      end
    end else if (answered) begin
      error_q <= answer_error;
      state_q <= Idle;
      if (operation_q == 8'(OperationLookup) && present_i) begin
        value_q <= found_value;
      end
    end
    if (rst_i) begin
      state_q     <= Idle;
      open_q      <= '0;
      operation_q <= '0;
      flags_q     <= '0;
      error_q     <= '0;
      cursor_q    <= '0;
      key_q       <= '0;
      value_q     <= '0;
    end
  end

  if (Block == 0) begin : gen_bad_number
    $error("Block is 0, expected at least 1: block 0 is the shell's");
  end
  if (ValueOffset + 4 * ValueWords > 2 ** BlockBits) begin : gen_bad_block
    $error("BlockBits is %0d, expected room for %0d bytes", BlockBits, ValueOffset + 4 * ValueWords);
  end
  if (KeyBytes == 0 || ValueBytes == 0) begin : gen_bad_sizes
    $error("KeyBytes is %0d and ValueBytes is %0d, expected at least 1", KeyBytes, ValueBytes);
  end
  if (!IsHash && (KeyBytes != 4 || Rows != Entries)) begin : gen_bad_array
    $error("KeyBytes is %0d and Rows is %0d, expected 4 and %0d", KeyBytes, Rows, Entries);
  end
  if (IsPrefix && KeyBytes < 5) begin : gen_bad_prefix
    $error("KeyBytes is %0d, expected at least 5 of a map of prefixes", KeyBytes);
  end
  if (Kind > KindLpm) begin : gen_bad_kind
    $error("Kind is %0d, expected at most %0d", Kind, KindLpm);
  end

`ifndef SYNTHESIS
  // Each access has one result.
  a_answer : assert property (@(posedge clk_i) disable iff (rst_i) valid_i |-> open_q != '0 || asked);
`endif

endmodule
