// SPDX-License-Identifier: Apache-2.0 OR MIT
// Writes of configuration words: one bus to all memories of the run-time programmable machine.
//
// Each memory has two banks. A packet uses the one that was active when it arrived, so that the other one is written
// while packets flow.
package fl_config_pkg;

  typedef struct packed {
    logic        valid;
    // The bank that is written.
    logic        bank;
    // The memory: 16 for each stage, then those of the parse and action blocks.
    logic [7:0]  unit;
    // The word of the memory.
    logic [15:0] index;
    logic [31:0] data;
  } config_t;

endpackage
