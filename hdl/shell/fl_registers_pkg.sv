// SPDX-License-Identifier: Apache-2.0 OR MIT
// The register map of the shell, generated from crates/rtl/src/registers.rs: offsets in bytes, and numbers.
package fl_registers_pkg;

  localparam logic [31:0] Identification = 32'h464c4f57;
  localparam logic [31:0] Layout = 32'd2;

  // The registers of block 0, and the first counter.
  typedef enum logic [31:0] {
    ShellIdentification = 32'h00,
    ShellLayout = 32'h04,
    ShellStatus = 32'h08,
    ShellMaps = 32'h0c,
    ShellBlockBytes = 32'h10,
    ShellCounters = 32'h40
  } shell_e;

  // The registers of a map, and the first byte of its key.
  typedef enum logic [31:0] {
    MapCommand = 32'h00,
    MapStatus = 32'h04,
    MapCursor = 32'h08,
    MapCount = 32'h0c,
    MapIndex = 32'h10,
    MapKind = 32'h14,
    MapKeyBytes = 32'h18,
    MapValueBytes = 32'h1c,
    MapEntries = 32'h20,
    MapRows = 32'h24,
    MapValueOffset = 32'h28,
    MapKey = 32'h40
  } map_e;

  // Counters.
  typedef enum logic [31:0] {
    CounterPacketsIn = 32'h00,
    CounterBytesIn = 32'h01,
    CounterPacketsOut = 32'h02,
    CounterBytesOut = 32'h03,
    CounterAborted = 32'h04,
    CounterDropped = 32'h05,
    CounterPassed = 32'h06,
    CounterSentBack = 32'h07,
    CounterRedirected = 32'h08,
    CounterSlow = 32'h09,
    CounterDiscarded = 32'h0a,
    CounterInputStalls = 32'h0b,
    CounterOutputStalls = 32'h0c,
    CounterExtra = 32'h0d
  } counter_e;

  // Operations.
  typedef enum logic [31:0] {
    OperationLookup = 32'h00,
    OperationUpdate = 32'h01,
    OperationDelete = 32'h02,
    OperationNext = 32'h03
  } operation_e;

  // Flags of an update.
  typedef enum logic [31:0] {
    FlagAny = 32'h00,
    FlagNoExist = 32'h01,
    FlagExist = 32'h02
  } flag_e;

  // Errors, as Linux numbers them.
  typedef enum logic [31:0] {
    ErrorNoEntry = 32'h02,
    ErrorFull = 32'h07,
    ErrorAgain = 32'h0b,
    ErrorExists = 32'h11,
    ErrorInvalid = 32'h16,
    ErrorNoSpace = 32'h1c
  } error_e;

  // Kinds of maps.
  typedef enum logic [31:0] {
    KindArray = 32'h00,
    KindHash = 32'h01,
    KindPorts = 32'h02,
    KindLru = 32'h03,
    KindLpm = 32'h04
  } kind_e;

  localparam int unsigned Counters = 14;

endpackage
