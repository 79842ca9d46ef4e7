// SPDX-License-Identifier: Apache-2.0 OR MIT
// The register map of the machine, generated from crates/overlay/src/registers.rs: offsets in bytes, and numbers.
package fl_machine_registers_pkg;

  localparam int unsigned Sizes = 13;

  // Registers.
  typedef enum logic [31:0] {
    MachineStatus = 32'h00,
    MachineCommand = 32'h04,
    MachineStage = 32'h08,
    MachineBank = 32'h0c,
    MachineCursor = 32'h10,
    MachineStored = 32'h14,
    MachineActive = 32'h18,
    MachinePackets0 = 32'h1c,
    MachinePackets1 = 32'h20,
    MachineAddress = 32'h24,
    MachineData = 32'h28,
    MachineSweep = 32'h2c,
    MachineSwept = 32'h30,
    MachineNowLow = 32'h34,
    MachineNowHigh = 32'h38,
    MachinePorts = 32'h60,
    MachineSizes = 32'h80,
    MachineKey = 32'h100,
    MachineContext = 32'h140,
    MachineGlobals = 32'h1c0
  } machine_e;

  // Operations.
  typedef enum logic [31:0] {
    OperationLookup = 32'h00,
    OperationUpdate = 32'h01,
    OperationDelete = 32'h02,
    OperationNext = 32'h03
  } operation_e;

  // Errors, as Linux numbers them.
  typedef enum logic [31:0] {
    ErrorNoEntry = 32'h02,
    ErrorFull = 32'h07
  } error_e;

  // The register SWEEP.
  typedef struct packed {
    logic is_still;
    logic cleared_bank;
    logic clears;
    logic sweeps;
  } sweep_t;

endpackage
