// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The register map of the shell, from which the package of SystemVerilog and the document are made.
//!
//! ```text
//!  byte address = block number * bytes of a block + offset
//!    block 0        the shell: identification, status, counters
//!    block n + 1    the n-th map: a command, its status, key, value
//! ```

use std::fmt::Write as _;

/// A register of 32 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Register {
    /// Its name in the document; in the package, the words of the name after `Shell` or `Map`.
    pub name: &'static str,
    /// The offset of its first byte in its block.
    pub offset: u32,
    /// Whether it takes writes.
    pub is_written: bool,
    /// The value that it reads after a reset: a number, or `fixed` if it always reads the same.
    pub reset: &'static str,
    /// Its meaning.
    pub meaning: &'static str,
}

/// A number with a name: a counter, an operation, a flag, an error, a kind of map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: u32,
    /// Its meaning.
    pub meaning: &'static str,
}

const fn read(name: &'static str, offset: u32, meaning: &'static str) -> Register {
    Register { name, offset, is_written: false, reset: "0", meaning }
}

const fn fixed(name: &'static str, offset: u32, meaning: &'static str) -> Register {
    Register { name, offset, is_written: false, reset: "fixed", meaning }
}

const fn written(name: &'static str, offset: u32, meaning: &'static str) -> Register {
    Register { name, offset, is_written: true, reset: "0", meaning }
}

const fn number(name: &'static str, value: u32, meaning: &'static str) -> Number {
    Number { name, value, meaning }
}

/// What `IDENTIFICATION` reads: "FLOW".
pub const IDENTIFICATION: u32 = 0x464c_4f57;
/// The version of this register map, which `LAYOUT` reads.
pub const LAYOUT: u32 = 2;

/// The first byte of the counters in block 0. Counter `n` is at `SHELL_COUNTERS + 8 * n`, its lower word first.
pub const SHELL_COUNTERS: u32 = 0x40;
/// The first byte of the key in the block of a map.
pub const MAP_KEY: u32 = 0x40;
/// The offset of a value is a multiple of this number of bytes.
const VALUE_ALIGNMENT: u32 = 64;
/// The bytes of the smallest block.
const LEAST_BLOCK: u32 = 0x100;
/// The address bits that a shell has at least.
const LEAST_ADDRESS_BITS: u32 = 24;

/// The registers of block 0.
pub const SHELL: [Register; 5] = [
    fixed("IDENTIFICATION", 0x00, "0x464c4f57"),
    fixed("LAYOUT", 0x04, "the version of this register map: 2"),
    read("STATUS", 0x08, "bit 0: the maps are cleared after a reset, and packets may enter"),
    fixed("MAPS", 0x0c, "the number of maps"),
    fixed("BLOCK_BYTES", 0x10, "the bytes of a block"),
];

/// The counters, in order.
pub const COUNTERS: [Number; 14] = [
    number("PACKETS_IN", 0, "packets taken at the input"),
    number("BYTES_IN", 1, "their bytes"),
    number("PACKETS_OUT", 2, "packets given at the output"),
    number("BYTES_OUT", 3, "their bytes"),
    number("ABORTED", 4, "verdicts `XDP_ABORTED`"),
    number("DROPPED", 5, "verdicts `XDP_DROP`"),
    number("PASSED", 6, "verdicts `XDP_PASS`"),
    number("SENT_BACK", 7, "verdicts `XDP_TX`"),
    number("REDIRECTED", 8, "verdicts `XDP_REDIRECT`, those to all ports of a map included"),
    number("SLOW", 9, "packets that left for the slow path as they came"),
    number("DISCARDED", 10, "packets that were too long or had no byte, and have no verdict"),
    number("INPUT_STALLS", 11, "cycles in which a word waited at the input"),
    number("OUTPUT_STALLS", 12, "cycles in which a word waited at the output"),
    number("EXTRA", 13, "extra packets, which packets sent besides themselves"),
];

/// The registers of the block of a map, besides key and value.
pub const MAP: [Register; 11] = [
    written("COMMAND", 0x00, "bits 7 to 0: an operation; a write of them starts it; bits 15 to 8: flags of an update"),
    read(
        "STATUS",
        0x04,
        "bit 0: the transaction is busy; bit 1: a hash or LRU map has no room for new keys, and packets wait; \
         bits 15 to 8: the error of the last transaction, 0 for none",
    ),
    written("CURSOR", 0x08, "where `NEXT` goes on; 0 to begin a listing"),
    read("COUNT", 0x0c, "the number of entries; only of a hash, LRU or LPM map"),
    fixed("INDEX", 0x10, "the index of the map in the program"),
    fixed("KIND", 0x14, "0 array, 1 hash map, 2 map of ports, 3 LRU map, 4 LPM map"),
    fixed("KEY_BYTES", 0x18, "the bytes of a key"),
    fixed("VALUE_BYTES", 0x1c, "the bytes of a value"),
    fixed("ENTRIES", 0x20, "the most entries"),
    fixed("ROWS", 0x24, "the rows that a listing reads"),
    fixed("VALUE_OFFSET", 0x28, "the offset of the value in the block"),
];

/// The operations of `COMMAND`.
pub const OPERATIONS: [Number; 4] = [
    number(
        "LOOKUP",
        0,
        "VALUE becomes the value of the entry with the key in KEY, or is unchanged after an error; no use of an LRU map",
    ),
    number("UPDATE", 1, "the entry with the key in KEY takes the value in VALUE; a full LRU map evicts another one"),
    number("DELETE", 2, "the entry with the key in KEY is removed"),
    number("NEXT", 3, "KEY and VALUE become those of the next entry from CURSOR on; CURSOR is then after it"),
];

/// The flags of an update.
pub const FLAGS: [Number; 3] = [
    number("ANY", 0, "an update in any case (`BPF_ANY`)"),
    number("NO_EXIST", 1, "only if there is no entry (`BPF_NOEXIST`)"),
    number("EXIST", 2, "only if there is an entry (`BPF_EXIST`)"),
];

/// The errors of transactions, by their numbers in Linux.
pub const ERRORS: [Number; 6] = [
    number("NO_ENTRY", 2, "`ENOENT`: there is no such entry, or no further one; all kinds"),
    number(
        "FULL",
        7,
        "`E2BIG`: the hash map is full (an LRU map evicts instead, an LPM map gives `NO_SPACE`), or the index of an \
         array or a map of ports is beyond the entries",
    ),
    number("AGAIN", 11, "`EAGAIN`: an update found no room for new keys for 65,536 cycles; only of a hash or LRU map"),
    number("EXISTS", 17, "`EEXIST`: there is an entry already, as always in an array; all kinds"),
    number(
        "INVALID",
        22,
        "`EINVAL`: unknown flags, a deletion in an array, or in a map of ports beyond the entries, or an update or \
         deletion of a prefix that is longer than an address",
    ),
    number("NO_SPACE", 28, "`ENOSPC`: an LPM map is full; no other kind"),
];

/// The kinds of maps.
pub const KINDS: [Number; 5] = [
    number("ARRAY", 0, "an array"),
    number("HASH", 1, "a hash map"),
    number("PORTS", 2, "a map whose values are egress ports"),
    number("LRU", 3, "a hash map that evicts the least recently used entry when it is full"),
    number("LPM", 4, "a map of prefixes, of which a lookup finds the longest"),
];

/// The offset of the value in the block of a map.
pub fn value_offset(key_bytes: u32) -> u32 {
    MAP_KEY + key_bytes.next_multiple_of(VALUE_ALIGNMENT)
}

/// The log2 of the bytes of a block that holds all registers of any of the maps, given by the sizes of keys and values.
pub(crate) fn block_bits(sizes: impl Iterator<Item = (u32, u32)>) -> u32 {
    let maps = sizes.map(|(key, value)| value_offset(key) + value.next_multiple_of(4));
    let most = maps.max().unwrap_or(0).max(LEAST_BLOCK);
    most.next_power_of_two().trailing_zeros()
}

/// The address bits of a shell.
pub(crate) fn address_bits(block_bits: u32, maps: usize) -> u32 {
    let blocks = (maps + 1).next_power_of_two().trailing_zeros();
    (block_bits + blocks).max(LEAST_ADDRESS_BITS)
}

/// `PACKETS_IN` as `PacketsIn`.
pub(crate) fn camel(name: &str) -> String {
    name.split('_').map(|word| format!("{}{}", &word[..1], word[1..].to_ascii_lowercase())).collect()
}

/// The package with the constants of the register map, `hdl/shell/fl_registers_pkg.sv`.
pub fn package() -> String {
    let mut text = format!(
        "// SPDX-License-Identifier: Apache-2.0 OR MIT\n\
         // The register map of the shell, generated from crates/rtl/src/registers.rs: offsets in bytes, and numbers.\n\
         package fl_registers_pkg;\n\n  localparam logic [31:0] Identification = 32'h{IDENTIFICATION:08x};\n  \
         localparam logic [31:0] Layout = 32'd{LAYOUT};\n"
    );
    let offsets = |registers: &[Register], last: (&str, u32)| -> Vec<(String, u32)> {
        let all = registers.iter().map(|register| (register.name.to_owned(), register.offset));
        all.chain([(last.0.to_owned(), last.1)]).collect()
    };
    let values = |numbers: &[Number]| -> Vec<(String, u32)> {
        numbers.iter().map(|number| (number.name.to_owned(), number.value)).collect()
    };
    let lists = [
        ("The registers of block 0, and the first counter.", "Shell", offsets(&SHELL, ("COUNTERS", SHELL_COUNTERS))),
        ("The registers of a map, and the first byte of its key.", "Map", offsets(&MAP, ("KEY", MAP_KEY))),
        ("Counters.", "Counter", values(&COUNTERS)),
        ("Operations.", "Operation", values(&OPERATIONS)),
        ("Flags of an update.", "Flag", values(&FLAGS)),
        ("Errors, as Linux numbers them.", "Error", values(&ERRORS)),
        ("Kinds of maps.", "Kind", values(&KINDS)),
    ];
    for (title, prefix, names) in lists {
        let items = names.iter().map(|(name, value)| format!("    {prefix}{} = 32'h{value:02x}", camel(name)));
        let items: Vec<String> = items.collect();
        let list = prefix.to_ascii_lowercase();
        _ = write!(text, "\n  // {title}\n  typedef enum logic [31:0] {{\n{}\n  }} {list}_e;\n", items.join(",\n"));
    }
    _ = write!(text, "\n  localparam int unsigned Counters = {};\n\nendpackage\n", COUNTERS.len());
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Registers are words, one after another, before what follows them in the block.
    #[test]
    fn offsets_are_those_of_words_in_order() {
        for (registers, end) in [(&SHELL[..], SHELL_COUNTERS), (&MAP[..], MAP_KEY)] {
            for (offset, register) in (0..end).step_by(4).zip(registers) {
                assert_eq!(register.offset, offset, "{}", register.name);
            }
            assert!(4 * registers.len() as u32 <= end);
        }
        assert!(SHELL_COUNTERS + 8 * COUNTERS.len() as u32 <= LEAST_BLOCK);
    }

    #[test]
    fn counters_and_kinds_are_numbered_in_order() {
        for list in [&COUNTERS[..], &OPERATIONS, &FLAGS, &KINDS] {
            assert!(list.iter().map(|one| one.value).eq(0..list.len() as u32), "{list:?}");
        }
    }

    /// The document states what the registers read.
    #[test]
    fn meanings_name_the_constants() {
        assert_eq!(SHELL[0].meaning, format!("{IDENTIFICATION:#x}"));
        assert!(SHELL[1].meaning.ends_with(&format!(": {LAYOUT}")), "{}", SHELL[1].meaning);
        assert_eq!(IDENTIFICATION.to_be_bytes(), *b"FLOW");
        for kind in KINDS {
            let word = ["array", "hash map", "map of ports", "LRU map", "LPM map"][kind.value as usize];
            assert!(MAP[5].meaning.contains(&format!("{} {word}", kind.value)), "{}", MAP[5].meaning);
        }
    }
}
