// SPDX-License-Identifier: Apache-2.0 OR MIT
// Control of packets that run alone: one access after the other, and a run through the stages between two of them.
//
//   found_i ──► run ──► choose ──► access ──► answer ──► run ──► choose ──► leave ──► others go on
//                                    └─ read, then write ─┘
//
// A run is a packet at the head of the queue that passes the stages without effect, so that they compute the operands
// of its steps from the results so far. The first step that is wanted and not done is made. If there is none, the
// packet leaves the queue and passes the stages with all its effects.
//
// Latency: a run takes Cycles + 2 cycles, and an access those of its table.
// Throughput: one packet at a time.
// Handshake: access_valid_o and access_ready_i; answer_valid_i comes once for each access, at the earliest a cycle after
// it. Packets may only be issued while alone_o is low, but for leave_o.
// Source: Flowloom's (docs/adr/0027-packets-that-run-alone.md); flush and reload of [eHDL 4.2].
module fl_alone #(
    parameter int unsigned Steps = 2,
    // Steps that read an entry before they write it.
    parameter logic [Steps-1:0] Writes = '0,
    // Cycles from the queue to the end of the stages.
    parameter int unsigned Cycles = 8,
    // Cycles from the discovery of a packet to its first run, so that tables are done with the packets after it.
    parameter int unsigned Pause = 1,
    localparam int unsigned StepBits = (Steps > 1) ? $clog2(Steps) : 1
) (
    input  logic                clk_i,
    input  logic                rst_i,
    // A packet has turned out to run alone. It is at the head of the queue in the next cycle.
    input  logic                found_i,
    // At the end of a run: the steps that the packet wants to make.
    input  logic [Steps-1:0]    wanted_i,
    output logic                alone_o,
    // A run begins; the first one reads what packets find that do not run alone.
    output logic                run_o,
    output logic                first_o,
    // The packet leaves the queue.
    output logic                leave_o,
    // The access of a step.
    output logic                access_valid_o,
    input  logic                access_ready_i,
    output logic                access_write_o,
    output logic [StepBits-1:0] step_o,
    output logic                awaits_o,
    input  logic                answer_valid_i,
    // The answer is the entry that the step will write.
    output logic                read_o,
    // The answer is the result of the step.
    output logic                done_o,
    // The steps that the packet has made.
    output logic [Steps-1:0]    done_steps_o
);

  localparam int unsigned CountBits = $clog2(Cycles + 2);

  typedef enum logic [2:0] {
    Others,
    Wait,
    Run,
    Choose,
    Access,
    Answer,
    Leave
  } state_e;

  state_e               state_q;
  logic                 first_q, begins_q, write_q;
  logic [CountBits-1:0] count_q;
  logic [Steps-1:0]     done_q, left;
  logic [StepBits-1:0]  step_q, next_step;

  assign alone_o        = state_q != Others;
  assign run_o          = state_q == Run && begins_q;
  assign leave_o        = state_q == Leave && begins_q;
  assign first_o        = first_q;
  assign access_valid_o = state_q == Access;
  assign access_write_o = write_q;
  assign step_o         = step_q;
  assign awaits_o       = state_q == Answer;
  assign read_o         = awaits_o && answer_valid_i && Writes[step_q] && !write_q;
  assign done_o         = awaits_o && answer_valid_i && !read_o;
  assign done_steps_o   = done_q;
  assign left           = wanted_i & ~done_q;

  always_comb begin
    next_step = '0;
    for (int unsigned step = Steps; step > 0; step--) begin
      if (left[step-1]) begin
        next_step = StepBits'(step - 1);
      end
    end
  end

  always_ff @(posedge clk_i) begin
    begins_q <= 1'b0;
    count_q  <= count_q + 1'b1;
    unique case (state_q)
      Others: begin
        count_q <= '0;
        if (found_i) begin
          state_q <= Wait;
          first_q <= 1'b1;
        end
      end
      Wait: begin
        if (count_q == CountBits'(Pause - 1)) begin
          state_q  <= Run;
          begins_q <= 1'b1;
          count_q  <= '0;
        end
      end
      Run: begin
        if (count_q == CountBits'(Cycles)) begin
          state_q <= Choose;
        end
      end
      Choose: begin
        count_q <= '0;
        first_q <= 1'b0;
        step_q  <= next_step;
        write_q <= 1'b0;
        if (left == '0) begin
          state_q  <= Leave;
          begins_q <= 1'b1;
        end else begin
          state_q <= Access;
        end
      end
      Access: begin
        if (access_ready_i) begin
          state_q <= Answer;
        end
      end
      Answer: begin
        count_q <= '0;
        if (read_o) begin
          state_q <= Access;
          write_q <= 1'b1;
        end else if (done_o) begin
          state_q        <= Run;
          begins_q       <= 1'b1;
          done_q[step_q] <= 1'b1;
        end
      end
      // Leave.
      default: begin
        if (count_q == CountBits'(Cycles)) begin
          state_q <= Others;
          done_q  <= '0;
        end
      end
    endcase
    if (rst_i) begin
      state_q  <= Others;
      first_q  <= 1'b0;
      begins_q <= 1'b0;
      write_q  <= 1'b0;
      count_q  <= '0;
      done_q   <= '0;
      step_q   <= '0;
    end
  end

  if (Pause == 0 || Pause > Cycles) begin : gen_bad_pause
    $error("Pause is %0d, expected 1 to %0d", Pause, Cycles);
  end
  if (Steps == 0) begin : gen_bad_steps
    $error("Steps is 0, expected at least 1");
  end
  // An access of the host that was made before has its answer before the first access of the packet.
  if (Cycles < 8) begin : gen_bad_cycles
    $error("Cycles is %0d, expected at least 8", Cycles);
  end

`ifndef SYNTHESIS
  a_found : assert property (@(posedge clk_i) disable iff (rst_i) found_i |-> state_q == Others);
`endif

endmodule
