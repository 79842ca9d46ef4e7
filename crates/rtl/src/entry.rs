// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The layout of the entries of a map, for software that accesses them through the shell.

use crate::registers::KINDS;
use crate::shell::MapBlock;

/// The layout of the keys and values of a map, as far as the program tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entry {
    /// The fields of a key, ascending by offset; empty if unknown.
    pub key: Vec<EntryField>,
    /// The fields of a value, ascending by offset; empty if unknown.
    pub value: Vec<EntryField>,
    /// The duties of software for the entries, as paragraphs of Markdown; may be empty.
    pub notes: Vec<String>,
}

/// A field of a key or value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntryField {
    /// The name; parts of structures are joined by dots.
    pub name: String,
    /// The offset in the key or value, in bytes.
    pub offset_bytes: u32,
    /// The size in bytes.
    pub size_bytes: u32,
    /// The order of its bytes.
    pub order: Order,
    /// Its meaning, in Markdown; may be empty.
    pub meaning: String,
}

/// The order of the bytes of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// An unsigned number, its lowest byte first.
    Little,
    /// The same, in two's complement.
    LittleSigned,
    /// A number in network byte order.
    Big,
    /// Bytes, such as those of an address, the first one first.
    Bytes,
}

impl Order {
    /// Its name in the document.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Order::Little => "little endian",
            Order::LittleSigned => "little endian, signed",
            Order::Big => "big endian",
            Order::Bytes => "bytes",
        }
    }
}

impl EntryField {
    /// A field with the number of an entry or port.
    fn number(name: &str, meaning: &str) -> EntryField {
        EntryField {
            name: name.to_owned(),
            offset_bytes: 0,
            size_bytes: 4,
            order: Order::Little,
            meaning: meaning.to_owned(),
        }
    }
}

impl Entry {
    /// The layout of a block: what its kind fixes, else what is known, without fields beyond the end.
    pub(crate) fn of(block: &MapBlock, known: Option<&Entry>) -> Entry {
        let mut entry = known.cloned().unwrap_or_default();
        let (key_bytes, value_bytes) = (block.key_bytes, block.value_bytes);
        match KINDS[block.kind as usize].name {
            "ARRAY" => entry.key = vec![EntryField::number("index", "index of the entry, from 0")],
            "PORTS" => {
                entry.key = vec![EntryField::number("index", "index of the entry, from 0")];
                entry.value = vec![EntryField::number("port", "egress port, as in `m_axis_tuser`")];
            }
            "LPM" => {
                let mut address = EntryField::number("address", "address; bits after the prefix have no meaning");
                (address.offset_bytes, address.size_bytes, address.order) = (4, key_bytes - 4, Order::Bytes);
                let longest = 8 * (key_bytes - 4);
                let length = format!("length of the prefix in bits, 0 to {longest}; {longest} to look up an address");
                entry.key = vec![EntryField::number("prefix_bits", &length), address];
            }
            _ => {}
        }
        entry.key.retain(|field| field.offset_bytes.saturating_add(field.size_bytes) <= key_bytes);
        entry.value.retain(|field| field.offset_bytes.saturating_add(field.size_bytes) <= value_bytes);
        entry
    }
}
