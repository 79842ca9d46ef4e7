// SPDX-License-Identifier: Apache-2.0 OR MIT
// AXI4-Lite subordinate: turns reads and writes into requests on the register bus, one at a time.
//
//   aw, w ─► skid buffers ─┐              ┌─► b
//                          ├─► request ─► answer
//   ar ────► skid buffer ──┘   (bus)      └─► r
//
// Reads and writes take turns while both wait. An address that no block has gives DECERR. The lowest two bits of an
// address have no meaning: strobes name the bytes.
//
// Latency: 3 cycles from the address (for a write, from the later one of address and data) to the response.
// Throughput: a write and a read in three cycles.
// Handshake: valid and ready on all five channels. No output depends on an input in the same cycle.
module fl_axil
  import fl_bus_pkg::*;
#(
    parameter int unsigned AddressBits = 24
) (
    input  logic                   clk_i,
    input  logic                   rst_i,
    input  logic                   aw_valid_i,
    output logic                   aw_ready_o,
    input  logic [AddressBits-1:0] aw_address_i,
    input  logic                   w_valid_i,
    output logic                   w_ready_o,
    input  logic [31:0]            w_data_i,
    input  logic [3:0]             w_strobe_i,
    output logic                   b_valid_o,
    input  logic                   b_ready_i,
    output logic [1:0]             b_response_o,
    input  logic                   ar_valid_i,
    output logic                   ar_ready_o,
    input  logic [AddressBits-1:0] ar_address_i,
    output logic                   r_valid_o,
    input  logic                   r_ready_i,
    output logic [31:0]            r_data_o,
    output logic [1:0]             r_response_o,
    // The register bus: the answer is that of the request in the cycle before.
    output request_t               request_o,
    input  answer_t                answer_i
);

  logic                   aw_valid, w_valid, ar_valid;
  logic [AddressBits-1:0] aw_address, ar_address;
  logic [31:0]            w_data;
  logic [3:0]             w_strobe;
  logic                   can_write, can_read, write, read, unused_bytes;
  // The request in the cycle before, and whether a waiting read comes before a waiting write.
  logic                   was_write_q, was_read_q, prefers_read_q;
  logic                   b_valid_q, r_valid_q;
  response_e              b_response_q, r_response_q, response;
  logic [31:0]            r_data_q;

  fl_skid #(
      .Width(AddressBits)
  ) u_aw (
      .clk_i,
      .rst_i,
      .in_valid_i (aw_valid_i),
      .in_ready_o (aw_ready_o),
      .in_data_i  (aw_address_i),
      .out_valid_o(aw_valid),
      .out_ready_i(write),
      .out_data_o (aw_address)
  );

  fl_skid #(
      .Width(36)
  ) u_w (
      .clk_i,
      .rst_i,
      .in_valid_i (w_valid_i),
      .in_ready_o (w_ready_o),
      .in_data_i  ({w_strobe_i, w_data_i}),
      .out_valid_o(w_valid),
      .out_ready_i(write),
      .out_data_o ({w_strobe, w_data})
  );

  fl_skid #(
      .Width(AddressBits)
  ) u_ar (
      .clk_i,
      .rst_i,
      .in_valid_i (ar_valid_i),
      .in_ready_o (ar_ready_o),
      .in_data_i  (ar_address_i),
      .out_valid_o(ar_valid),
      .out_ready_i(read),
      .out_data_o (ar_address)
  );

  // A request begins only if the register of its response is free.
  assign can_write    = aw_valid && w_valid && !was_write_q && !b_valid_q;
  assign can_read     = ar_valid && !was_read_q && !r_valid_q;
  assign write        = can_write && !(can_read && prefers_read_q);
  assign read         = can_read && !write;
  assign unused_bytes = ^{aw_address[1:0], ar_address[1:0]};

  assign request_o = '{
      valid: write || read,
      write: write,
      address: write ? 30'(aw_address[AddressBits-1:2]) : 30'(ar_address[AddressBits-1:2]),
      data: w_data,
      strobe: w_strobe
  };

  assign response     = answer_i.hit ? answer_i.response : Decerr;
  assign b_valid_o    = b_valid_q;
  assign b_response_o = b_response_q;
  assign r_valid_o    = r_valid_q;
  assign r_response_o = r_response_q;
  assign r_data_o     = r_data_q;

  always_ff @(posedge clk_i) begin
    was_write_q <= write;
    was_read_q  <= read;
    if (write || read) begin
      prefers_read_q <= write;
    end
    if (b_ready_i) begin
      b_valid_q <= 1'b0;
    end
    if (r_ready_i) begin
      r_valid_q <= 1'b0;
    end
    if (was_write_q) begin
      b_valid_q    <= 1'b1;
      b_response_q <= response;
    end
    if (was_read_q) begin
      r_valid_q    <= 1'b1;
      r_response_q <= response;
      r_data_q     <= answer_i.data;
    end
    if (rst_i) begin
      was_write_q    <= 1'b0;
      was_read_q     <= 1'b0;
      prefers_read_q <= 1'b0;
      b_valid_q      <= 1'b0;
      r_valid_q      <= 1'b0;
    end
  end

  if (AddressBits < 12 || AddressBits > 32) begin : gen_bad_address
    $error("AddressBits is %0d, expected 12 to 32", AddressBits);
  end

endmodule
