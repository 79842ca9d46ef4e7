// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The register map of the machine, from which the package of SystemVerilog and the document are made.
//!
//! ```text
//!  byte address = block number * BLOCK_BYTES + offset
//!    block 0    the shell: identification, status, counters (that of generated pipelines, crates/rtl)
//!    block 1    the machine: these registers
//! ```

use std::fmt::Write as _;

/// Registers of 32 bits, one after another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register {
    /// Their name.
    pub name: &'static str,
    /// The offset of the first byte in the block.
    pub offset: u32,
    /// The number of registers; for arrays whose length depends on the machine, the most.
    pub count: u32,
    /// The access.
    pub access: Access,
    /// The meaning.
    pub meaning: &'static str,
}

/// The accesses that a register answers without an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// It is only read.
    Read,
    /// It is written, but not while a transaction is busy.
    Written,
    /// It is written at any time.
    Always,
}

impl Access {
    fn name(self) -> &'static str {
        match self {
            Access::Read => "read",
            Access::Written => "read, write",
            Access::Always => "read, write at any time",
        }
    }
}

/// The bytes of a block.
pub const BLOCK_BYTES: u32 = 0x200;
/// The address of the machine's block.
pub const MACHINE: u32 = BLOCK_BYTES;

const fn register(name: &'static str, offset: u32, access: Access, meaning: &'static str) -> Register {
    Register { name, offset, count: 1, access, meaning }
}

const fn array(name: &'static str, offset: u32, count: u32, access: Access, meaning: &'static str) -> Register {
    Register { name, offset, count, access, meaning }
}

use Access::{Always, Read, Written};

/// `STATUS`.
pub const STATUS: Register = register(
    "STATUS",
    0x00,
    Read,
    "bit 0: a transaction is busy; bit 1: the tables are cleared after a reset, and packets may enter; bits 15 to 8: \
     the error of the last transaction, 0 for none",
);
/// `COMMAND`.
pub const COMMAND: Register = register("COMMAND", 0x04, Written, "an operation; a write starts it");
/// `STAGE`.
pub const STAGE: Register = register(
    "STAGE",
    0x08,
    Written,
    "the stage of the stateful element that transactions, `STORED`, `SWEPT` and `GLOBALS` mean: 2n + 1 for element n; \
     1 after a reset",
);
/// `BANK`.
pub const BANK: Register =
    register("BANK", 0x0c, Written, "the bank that `DATA`, transactions, `STORED` and `GLOBALS` mean");
/// `CURSOR`.
pub const CURSOR: Register = register("CURSOR", 0x10, Written, "where `NEXT` goes on; 0 to begin a listing");
/// `STORED`.
pub const STORED: Register = register("STORED", 0x14, Read, "the contexts of `BANK` in `STAGE`");
/// `ACTIVE`.
pub const ACTIVE: Register = register("ACTIVE", 0x18, Always, "the bank of packets that start from now on");
/// `PACKETS_0`.
pub const PACKETS_0: Register =
    register("PACKETS_0", 0x1c, Read, "the packets in the machine that still use the configuration of bank 0");
/// `PACKETS_1`.
pub const PACKETS_1: Register = register("PACKETS_1", 0x20, Read, "the same for bank 1");
/// `ADDRESS`.
pub const ADDRESS: Register =
    register("ADDRESS", 0x24, Written, "bits 23 to 16: a memory of the configuration; bits 15 to 0: a word of it");
/// `DATA`.
pub const DATA: Register = register(
    "DATA",
    0x28,
    Written,
    "a write is one of the word of `ADDRESS` in `BANK`, and moves `ADDRESS` to the next word; reads 0",
);
/// `SWEEP`.
pub const SWEEP: Register = register(
    "SWEEP",
    0x2c,
    Always,
    "bit 0: expired contexts are removed; bit 1: all contexts of a bank are removed, whose number is bit 2; bit 3: no \
     context changes its place, so that a listing is complete",
);
/// `SWEPT`.
pub const SWEPT: Register =
    register("SWEPT", 0x30, Read, "rows and places of the stash in `STAGE` that the sweep has visited, modulo 2^32");
/// `NOW_LOW`.
pub const NOW_LOW: Register = register(
    "NOW_LOW",
    0x34,
    Always,
    "the lower word of the time in nanoseconds, which counts from a write of `NOW_HIGH` on",
);
/// `NOW_HIGH`.
pub const NOW_HIGH: Register = register(
    "NOW_HIGH",
    0x38,
    Always,
    "the upper word: the time of sweeps and transactions while no packet is in the machine; otherwise it is that of \
     the last packet that has left the elements",
);
/// `PORTS`.
pub const PORTS: Register = array(
    "PORTS",
    0x60,
    8,
    Written,
    "a bit for each egress port from 0 on, the lowest first: whether it is bound; a packet that is forwarded to \
     another one is aborted; all ones after a reset",
);
/// `SIZES`.
pub const SIZES: Register = array(
    "SIZES",
    0x80,
    SIZE_NAMES.len() as u32,
    Read,
    "the parameters of the machine, one in each register, in the order listed below",
);
/// `KEY`.
pub const KEY: Register = array("KEY", 0x100, 16, Written, "the words of a key, those of the machine's key bits");
/// `CONTEXT`.
pub const CONTEXT: Register = array(
    "CONTEXT",
    0x140,
    21,
    Written,
    "a context: its registers; state (bits 7 to 0) and number of the pair of timeouts (bits 11 to 8); idle deadline, \
     then hard deadline, in nanoseconds, the lower word first, all ones for none",
);
/// `GLOBALS`.
pub const GLOBALS: Register = array("GLOBALS", 0x1c0, 16, Read, "the global registers of `BANK` in `STAGE`");

/// All registers in order.
pub const REGISTERS: [&Register; 20] = [
    &STATUS, &COMMAND, &STAGE, &BANK, &CURSOR, &STORED, &ACTIVE, &PACKETS_0, &PACKETS_1, &ADDRESS, &DATA, &SWEEP,
    &SWEPT, &NOW_LOW, &NOW_HIGH, &PORTS, &SIZES, &KEY, &CONTEXT, &GLOBALS,
];

/// The parameters of the machine that `SIZES` reads, in order.
pub const SIZE_NAMES: [&str; 13] = [
    "stateful elements",
    "words of the header vector",
    "registers of a context",
    "global registers of an element",
    "conditions of an element",
    "ALUs of an element",
    "write units of an element",
    "words that an EFSM table compares",
    "rows of an EFSM table",
    "words of a key",
    "rows of a context table, each of four places",
    "queues of a scheduler",
    "packets in a queue",
];

/// The operations of `COMMAND`.
pub const OPERATIONS: [(&str, u32, &str); 4] = [
    ("LOOKUP", 0, "`CONTEXT` becomes that of `KEY`, or is unchanged after an error"),
    ("UPDATE", 1, "the context of `KEY` becomes `CONTEXT`"),
    ("DELETE", 2, "the context of `KEY` is removed"),
    ("NEXT", 3, "`KEY` and `CONTEXT` become those of the next context from `CURSOR` on; `CURSOR` is then after it"),
];
/// `LOOKUP`.
pub const LOOKUP: u32 = 0;
/// `UPDATE`.
pub const UPDATE: u32 = 1;
/// `DELETE`.
pub const DELETE: u32 = 2;
/// `NEXT`.
pub const NEXT: u32 = 3;

/// The errors of transactions, by their numbers in Linux.
pub const ERRORS: [(&str, u32, &str); 2] = [
    ("NO_ENTRY", 2, "`ENOENT`: there is no such context, or no further one"),
    ("FULL", 7, "`E2BIG`: the table is full, and the key has no context"),
];

/// The bits of `SWEEP`, the lowest first, and their names in the package.
pub const SWEEP_BITS: [&str; 4] = ["sweeps", "clears", "cleared_bank", "is_still"];

/// `PACKETS_0` as `Packets0`.
fn camel(name: &str) -> String {
    name.split('_').map(|word| format!("{}{}", &word[..1], word[1..].to_ascii_lowercase())).collect()
}

/// The package with the constants of the register map, `hdl/overlay/fl_machine_registers_pkg.sv`.
pub fn package() -> String {
    let mut text = format!(
        "// SPDX-License-Identifier: Apache-2.0 OR MIT\n\
         // The register map of the machine, generated from crates/overlay/src/registers.rs: offsets in bytes, and numbers.\n\
         package fl_machine_registers_pkg;\n\n  localparam int unsigned Sizes = {};\n",
        SIZE_NAMES.len()
    );
    let registers = REGISTERS.map(|register| (register.name, register.offset));
    let operations = OPERATIONS.map(|(name, value, _)| (name, value));
    let errors = ERRORS.map(|(name, value, _)| (name, value));
    let lists = [
        ("Registers.", "Machine", &registers[..]),
        ("Operations.", "Operation", &operations),
        ("Errors, as Linux numbers them.", "Error", &errors),
    ];
    for (title, prefix, names) in lists {
        let items: Vec<String> =
            names.iter().map(|(name, value)| format!("    {prefix}{} = 32'h{value:02x}", camel(name))).collect();
        let list = prefix.to_ascii_lowercase();
        _ = write!(text, "\n  // {title}\n  typedef enum logic [31:0] {{\n{}\n  }} {list}_e;\n", items.join(",\n"));
    }
    let bits: String = SWEEP_BITS.iter().rev().map(|name| format!("    logic {name};\n")).collect();
    _ = write!(text, "\n  // The register SWEEP.\n  typedef struct packed {{\n{bits}  }} sweep_t;\n\nendpackage\n");
    text
}

/// The document of the register map, `docs/book/src/machine-registers.md`.
pub fn document() -> String {
    let mut text = "# Registers of the run-time programmable machine\n\n\
         AXI4-Lite, registers of 32 bits, little endian. Block 0 is that of every shell of Flowloom\n\
         (identification, status, counters); block 1 is the machine. `flowloom build --target overlay`\n\
         writes the words that a function needs; `flowloom_overlay::Driver` makes the accesses below.\n\n\
         - A function is loaded into the bank that is not active: `BANK`, then for each memory `ADDRESS`\n\
         \x20 and its words in `DATA`. A write of `ACTIVE` switches to it between two packets: each packet is\n\
         \x20 processed by the bank that was active when it started, and contexts belong to one bank. Before\n\
         \x20 a bank is overwritten, no packet may use it (`PACKETS_0`, `PACKETS_1`), and the contexts of the\n\
         \x20 old function are removed (`SWEEP`, until `STORED` is 0).\n\
         - A transaction is a write of `COMMAND`; it is done when bit 0 of `STATUS` is 0. It takes its turn\n\
         \x20 among the packets: it is before or after a packet of the same key as a whole.\n\
         - An address without a register answers DECERR. A write to a register that is only read, of an\n\
         \x20 unknown operation, or to most registers while a transaction is busy, answers SLVERR and changes\n\
         \x20 nothing; so does a read of `KEY` and `CONTEXT` then. Registers are 0 after a reset where nothing\n\
         \x20 else is said.\n\n"
        .to_owned();
    text += "| address | registers | number | access | meaning |\n| --- | --- | --- | --- | --- |\n";
    for Register { name, offset, count, access, meaning } in REGISTERS {
        _ = writeln!(text, "| 0x{:03x} | `{name}` | {count} | {} | {meaning} |", MACHINE + offset, access.name());
    }
    for (title, list) in [("Operations", &OPERATIONS[..]), ("Errors", &ERRORS[..])] {
        _ = write!(text, "\n## {title}\n\n| number | name | meaning |\n| --- | --- | --- |\n");
        for (name, value, meaning) in list {
            _ = writeln!(text, "| {value} | `{name}` | {meaning} |");
        }
    }
    text += "\n## Sizes\n\n| address | parameter |\n| --- | --- |\n";
    for (at, name) in SIZE_NAMES.iter().enumerate() {
        _ = writeln!(text, "| 0x{:03x} | {name} |", MACHINE + SIZES.offset + 4 * at as u32);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_do_not_overlap() {
        for (one, next) in REGISTERS.iter().zip(&REGISTERS[1..]) {
            assert!(one.offset + 4 * one.count <= next.offset, "{} and {}", one.name, next.name);
        }
        let end = REGISTERS.iter().map(|register| register.offset + 4 * register.count).max();
        assert!(end.is_some_and(|end| end <= BLOCK_BYTES));
    }

    /// Arrays are decoded by the lower bits of their address.
    #[test]
    fn arrays_are_aligned() {
        for (array, alignment) in [(&PORTS, 8), (&SIZES, 16), (&KEY, 16), (&CONTEXT, 16), (&GLOBALS, 16)] {
            assert_eq!(array.offset / 4 % alignment, 0, "{}", array.name);
            assert!(array.count <= alignment.max(32), "{}", array.name);
        }
    }

    #[test]
    fn the_package_and_the_document_are_those_of_the_repository() {
        let top = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
        flowloom_testkit::golden(format!("{top}/hdl/overlay/fl_machine_registers_pkg.sv"), &package());
        flowloom_testkit::golden(format!("{top}/docs/book/src/machine-registers.md"), &document());
    }
}
