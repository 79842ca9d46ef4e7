// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The document of the register map, `registers.md`.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::entry::{Entry, EntryField};
use crate::registers::{
    COUNTERS, ERRORS, FLAGS, KINDS, MAP, MAP_KEY, Number, OPERATIONS, Register, SHELL, SHELL_COUNTERS,
};
use crate::shell::{MapBlock, Shell};

const REGISTERS: &str = "| offset | register | access | after a reset | meaning |\n| --- | --- | --- | --- | --- |\n";
const NUMBERS: &str = "| number | name | meaning |\n| --- | --- | --- |\n";
const FIELDS: &str = "| part | byte | bytes | field | order | meaning |\n| --- | --- | --- | --- | --- | --- |\n";

impl Shell {
    /// The document of the register map, with the layouts of entries by the names of maps.
    pub fn document(&self, entries: &BTreeMap<String, Entry>) -> String {
        let mut text = format!(
            "# Registers of `{}`\n\n\
             AXI4-Lite, 32-bit registers, {}-bit byte addresses, little endian. Blocks of 0x{:x} bytes: block 0 is\n\
             the shell, the others are the maps. Bits 1 and 0 of an address are ignored; strobes select the bytes of\n\
             a write. `{}` has the same addresses, numbers and layouts in C.\n\n\
             An address without a register answers DECERR. A read of a register answers OKAY at any time, but one of\n\
             `KEY` or `VALUE` of a busy map answers SLVERR. A write answers SLVERR and changes nothing if the register\n\
             is only read, if the operation is unknown, or if the map is busy. A write without a strobe changes\n\
             nothing and answers OKAY. Many processors raise an exception at a response that is an error (an\n\
             external abort on Arm, which ends the kernel): read `STATUS` before `KEY` and `VALUE`, and access no\n\
             address that is not listed here.\n\n\
             Registers are undefined until the first reset, for which the clock has to run. Maps are empty, and arrays\n\
             have their initial values, once bit 0 of `STATUS` of block 0 is 1.\n\n\
             | block | address | map | kind in the program | key | value | entries |\n\
             | --- | --- | --- | --- | --- | --- | --- |\n| 0 | 0x0 | | | | | |\n",
            self.module,
            self.address_bits,
            1u64 << self.block_bits,
            self.header_name(),
        );
        for (number, block) in self.blocks.iter().enumerate() {
            let MapBlock { name, address, own_kind, key_bytes, value_bytes, entries, .. } = block;
            _ = writeln!(
                text,
                "| {} | 0x{address:x} | `{name}` ({}) | `{own_kind}` | {key_bytes} bytes at 0x{:x} | {value_bytes} bytes \
                 at 0x{:x} | {entries} |",
                number + 1,
                KINDS[block.kind as usize].name,
                block.key_address(),
                block.value_address(),
            );
        }
        _ = write!(
            text,
            "\n## Block 0\n\n{REGISTERS}{}\n\
             Counters have 64 bits: counter `n` is at 0x{SHELL_COUNTERS:x} + 8 * `n`, its lower word first. A read of the\n\
             lower word keeps the upper one for the next read of an upper word. They are 0 after a reset, and wrap.\n\n\
             {NUMBERS}{}",
            register_rows(&SHELL),
            number_rows(&COUNTERS),
        );
        if self.blocks.is_empty() {
            return text;
        }
        _ = write!(
            text,
            "\n## The block of a map\n\n{REGISTERS}{}\
             | 0x{MAP_KEY:02x} | `KEY` | read, write | 0 | the key, its first byte first |\n\
             | `VALUE_OFFSET` | `VALUE` | read, write | 0 | the value, its first byte first |\n\n\
             A transaction:\n\n\
             1. Write `KEY` (and `VALUE`, or `CURSOR`), then `COMMAND`.\n\
             2. Wait for the response of that write (a barrier, or a read of the same block, where the bus posts\n   \
             writes): a read of `STATUS` that overtakes it tells of the transaction before.\n\
             3. Read `STATUS` until bit 0 is 0. Bits 15 to 8 are then the error.\n\
             4. Without an error, `VALUE` (and after `NEXT`, `KEY`) is that of the entry. After a `LOOKUP` with an error,\n   \
             `VALUE` is what it was before.\n\n\
             It reads or changes a whole entry, between two packets: it sees the changes of all packets before it. If\n\
             packets leave no cycle free, the pipeline makes room for it; it takes some hundred cycles while packets\n\
             pass, and longer if packets that run alone are waiting, but has no upper bound in cycles. Software has to\n\
             have a time limit of its own. Bytes after the end of key and value have no meaning.\n\n\
             Bit 1 of `STATUS` is 1 while a hash or LRU map has no room for new keys: packets wait, as do updates,\n\
             which end with `EAGAIN` after 65,536 cycles. For some cycles this is normal. If it stays, all places of some keys are taken: delete keys of\n\
             the map (those that share a row with the waiting ones; a listing by `NEXT` gives entries row by row), until\n\
             the bit is 0.\n\n\
             ### Operations\n\n{NUMBERS}{}\n### Flags of an update\n\n{NUMBERS}{}\n### Errors\n\n{NUMBERS}{}\n\
             Errors are those of Linux for the same operation on a map of this kind. A map of ports differs in one\n\
             respect: its values are port numbers, so 0 is a port, and only `DELETE` removes an entry. `NEXT` takes\n\
             the place of `BPF_MAP_GET_NEXT_KEY`; its cursor is one as of `BPF_MAP_LOOKUP_BATCH`. While packets insert\n\
             entries, a listing may show one twice, but leaves none out that was there all the time.\n\n\
             ## Entries\n\n\
             Byte `n` of a key is at the address of `KEY` + `n`, bytes of values likewise.\n",
            register_rows(&MAP),
            number_rows(&OPERATIONS),
            number_rows(&FLAGS),
            number_rows(&ERRORS),
        );
        for block in &self.blocks {
            fields_of(block, &Entry::of(block, entries.get(&block.name)), &mut text);
        }
        text
    }
}

/// The fields of the entries of a map.
fn fields_of(block: &MapBlock, entry: &Entry, text: &mut String) {
    _ = write!(text, "\n### `{}`\n\n{FIELDS}", block.name);
    for (part, fields, bytes) in [("key", &entry.key, block.key_bytes), ("value", &entry.value, block.value_bytes)] {
        for EntryField { name, offset_bytes, size_bytes, order, meaning } in fields {
            let order = if *size_bytes == 1 && order.name() == "little endian" { "" } else { order.name() };
            let row = format!("| {part} | {offset_bytes} | {size_bytes} | `{name}` | {order} | {meaning} |");
            _ = writeln!(text, "{}", row.replace("|  |", "| |"));
        }
        if fields.is_empty() {
            _ = writeln!(text, "| {part} | 0 | {bytes} | | bytes | the program has no types that tell its layout |");
        }
    }
    for note in &entry.notes {
        _ = write!(text, "\n{note}\n");
    }
}

/// The rows of registers.
fn register_rows(registers: &[Register]) -> String {
    let row = |register: &Register| {
        let access = if register.is_written { "read, write" } else { "read" };
        let Register { name, offset, reset, meaning, .. } = register;
        format!("| 0x{offset:02x} | `{name}` | {access} | {reset} | {meaning} |\n")
    };
    registers.iter().map(row).collect()
}

/// The rows of numbers.
fn number_rows(numbers: &[Number]) -> String {
    numbers.iter().map(|one| format!("| {} | `{}` | {} |\n", one.value, one.name, one.meaning)).collect()
}
