// SPDX-License-Identifier: Apache-2.0 OR MIT
// Types of the run-time programmable machine: what a packet carries beside its header vector.
package fl_machine_pkg;

  import fl_parse_pkg::*;

  // Bytes that the parser reads and the rewriter writes.
  localparam int unsigned WindowBytes = 128;
  // Packets between the start of one in the machine and the end of its processing.
  localparam int unsigned InFlight = 128;
  // Packets are numbered; numbers are used again after twice InFlight packets, when the emitter has finished with them.
  localparam int unsigned TagBits = $clog2(InFlight) + 1;
  // The stage of packets that no further element executes.
  localparam logic [3:0] NoStage = 4'd15;

  typedef logic [TagBits-1:0] tag_t;

  // A packet in the elements.
  typedef struct packed {
    // A header lies beyond the window: no element executes the packet.
    logic  slow;
    tag_t tag;
  } side_t;

  // What the rewriter needs of a packet.
  typedef struct packed {
    logic [15:0] length;
    logic [31:0] valid;
    headers_t    headers;
    places_t     places;
  } note_t;

  // A packet as it leaves the elements, without the header vector.
  typedef struct packed {
    logic        slow;
    logic        bank;
    logic [63:0] arrival;
    logic [2:0]  terminal;
    logic [31:0] port;
  } departed_t;

endpackage
