// SPDX-License-Identifier: Apache-2.0 OR MIT
// Flow scheduler of an element: holds packets while a packet of their flow is between its read and its write-back.
//
//               ┌─ queue 0 ─┐
//   packet ─FK1─┼─ ...      ┼─► one a cycle: round robin over the heads whose FK1 is not in flight
//               └─ queue Q-1┘
//
// FK1 is a hash of the flow key: packets of a flow have one queue and keep their order. An empty queue is transparent.
// A packet that does not use the context table is never held for its FK1.
//
// Latency: 0 cycles from a packet to its grant where its queue is empty and its FK1 is not in flight.
// Throughput: one packet a cycle; packets with one FK1, one in Hold cycles.
// Handshake: a packet is accepted if ready_o is high in its cycle. Grants are never back-pressured, except by stall_i.
// Source: [FlowBlaze 4.3]
module fl_flow_scheduler #(
    parameter int unsigned Queues = 1,
    parameter int unsigned Depth = 20,
    parameter int unsigned HashBits = 16,
    // Cycles from a grant to the first one with the same FK1.
    parameter int unsigned Hold = 7,
    parameter int unsigned DataBits = 32,
    localparam int unsigned CountBits = $clog2(Depth + 1)
) (
    input  logic                clk_i,
    input  logic                rst_i,
    input  logic                valid_i,
    output logic                ready_o,
    input  logic                uses_i,
    input  logic [HashBits-1:0] hash_i,
    input  logic [DataBits-1:0] data_i,
    // No grant in this cycle.
    input  logic                stall_i,
    // No grant while any packet that uses the table is in flight.
    input  logic                alone_i,
    // Hashes that the table's engine is changing: treated as in flight.
    input  logic [1:0]          lock_valid_i,
    input  logic [1:0][HashBits-1:0] lock_hash_i,
    output logic                valid_o,
    output logic                uses_o,
    output logic [DataBits-1:0] data_o,
    // Packets in flight: granted 1 to Hold - 1 cycles ago.
    output logic [Hold-1:1]     flight_valid_o,
    output logic [Hold-1:1][HashBits-1:0] flight_hash_o,
    // Packets in the fullest queue.
    output logic [CountBits-1:0] waiting_o
);

  localparam int unsigned IndexBits = (Depth > 1) ? $clog2(Depth) : 1;
  localparam int unsigned QueueBits = (Queues > 1) ? $clog2(Queues) : 1;

  typedef struct packed {
    logic                uses;
    logic [HashBits-1:0] hash;
    logic [DataBits-1:0] data;
  } packet_t;

  packet_t               arriving;
  packet_t [Queues-1:0]  heads;
  logic [Queues-1:0]     has_head, can_leave, is_granted, is_target, is_full;
  logic [QueueBits-1:0]  turn_q, chosen;
  logic [Queues-1:0][CountBits-1:0] counts_q;
  logic                  grants, in_use;
  logic [Hold-1:1]               flight_valid_q;
  logic [Hold-1:1][HashBits-1:0] flight_hash_q;

  assign arriving       = '{uses: uses_i, hash: hash_i, data: data_i};
  assign flight_valid_o = flight_valid_q;
  assign flight_hash_o  = flight_hash_q;
  assign in_use         = flight_valid_q != '0;

  for (genvar queue = 0; queue < Queues; queue++) begin : gen_queue
    (* ram_style = "distributed" *)
    packet_t              packets_q[Depth];
    logic [IndexBits-1:0] read_q, write_q;
    logic                 is_empty, pushes, pops, conflict;

    assign is_empty          = counts_q[queue] == '0;
    assign is_full[queue]    = counts_q[queue] == CountBits'(Depth);
    // The queue of a hash: its integer part of Queues / 2^HashBits.
    assign is_target[queue]  = ((32'(hash_i) * Queues) >> HashBits) == queue;
    assign heads[queue]      = is_empty ? arriving : packets_q[read_q];
    assign has_head[queue]   = !is_empty || (valid_i && is_target[queue]);
    assign pops              = is_granted[queue] && !is_empty;
    assign pushes            = valid_i && ready_o && is_target[queue] && !(is_granted[queue] && is_empty);
    assign can_leave[queue]  = has_head[queue] && !stall_i && !(heads[queue].uses && (conflict || (alone_i && in_use)));

    always_comb begin
      conflict = 1'b0;
      for (int unsigned age = 1; age < Hold; age++) begin
        conflict |= flight_valid_q[age] && flight_hash_q[age] == heads[queue].hash;
      end
      for (int unsigned lock = 0; lock < 2; lock++) begin
        conflict |= lock_valid_i[lock] && lock_hash_i[lock] == heads[queue].hash;
      end
    end

    always_ff @(posedge clk_i) begin
      if (pushes) begin
        packets_q[write_q] <= arriving;
        write_q <= (write_q == IndexBits'(Depth - 1)) ? '0 : write_q + 1'b1;
      end
      if (pops) read_q <= (read_q == IndexBits'(Depth - 1)) ? '0 : read_q + 1'b1;
      counts_q[queue] <= counts_q[queue] + CountBits'(pushes) - CountBits'(pops);
      if (rst_i) begin
        read_q          <= '0;
        write_q         <= '0;
        counts_q[queue] <= '0;
      end
    end
  end

  // First queue in round-robin order whose head may be granted.
  always_comb begin
    chosen = '0;
    grants = 1'b0;
    for (int unsigned step = Queues; step > 0; step--) begin
      automatic logic [QueueBits-1:0] queue = QueueBits'((32'(turn_q) + step - 1) % Queues);
      if (can_leave[queue]) begin
        chosen = queue;
        grants = 1'b1;
      end
    end
    is_granted         = '0;
    is_granted[chosen] = grants;
    waiting_o          = '0;
    for (int unsigned queue = 0; queue < Queues; queue++) begin
      if (counts_q[queue] > waiting_o) waiting_o = counts_q[queue];
    end
  end

  assign ready_o = (is_target & is_full) == '0;
  assign valid_o = grants;
  assign uses_o  = grants && heads[chosen].uses;
  assign data_o  = heads[chosen].data;

  always_ff @(posedge clk_i) begin
    flight_valid_q[1] <= uses_o;
    flight_hash_q[1]  <= heads[chosen].hash;
    for (int unsigned age = 2; age < Hold; age++) begin
      flight_valid_q[age] <= flight_valid_q[age-1];
      flight_hash_q[age]  <= flight_hash_q[age-1];
    end
    if (grants) turn_q <= (chosen == QueueBits'(Queues - 1)) ? '0 : chosen + 1'b1;
    if (rst_i) begin
      flight_valid_q <= '0;
      turn_q         <= '0;
    end
  end

  if (Queues == 0 || Queues > 64) begin : gen_bad_queues
    $error("Queues is %0d, expected 1 to 64", Queues);
  end
  if (Depth < 2) begin : gen_bad_depth
    $error("Depth is %0d, expected at least 2", Depth);
  end
  if (Hold < 2) begin : gen_bad_hold
    $error("Hold is %0d, expected at least 2", Hold);
  end

endmodule
