// SPDX-License-Identifier: Apache-2.0 OR MIT
// The register bus between fl_axil and the blocks of registers: a request, and its answer in the next cycle.
//
// Each block knows its own addresses and responds with hit = 1 there, with zeros elsewhere; the answers are joined by
// OR.
package fl_bus_pkg;

  // The responses of AXI4-Lite. [AXI A3.4.4]
  typedef enum logic [1:0] {
    Okay   = 2'd0,
    Slverr = 2'd2,
    Decerr = 2'd3
  } response_e;

  typedef struct packed {
    logic        valid;
    logic        write;
    // Of a word of 32 bits.
    logic [29:0] address;
    logic [31:0] data;
    // The bytes that are written.
    logic [3:0]  strobe;
  } request_t;

  typedef struct packed {
    logic        hit;
    response_e   response;
    logic [31:0] data;
  } answer_t;

  // A register after a write.
  function automatic logic [31:0] written(logic [31:0] old, logic [31:0] data, logic [3:0] strobe);
    for (int unsigned i = 0; i < 4; i++) begin
      written[8*i+:8] = strobe[i] ? data[8*i+:8] : old[8*i+:8];
    end
  endfunction

endpackage
