// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ports of a core through which the host accesses maps.

use flowloom_isa::MapKind;

/// A map of the core, which the host accesses by whole entries.
///
/// # Layout
/// The ports are `map<index>_valid_i`, `_ready_o` and those of the [`Access`] for an access, which is made in a cycle
/// with valid and ready, and `_valid_o` and `_value_o` for its answer: the value before a write. The first byte of a
/// key or value is in the lowest bits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapPort {
    /// The index of the map in the program.
    pub map: u32,
    /// The name of the map.
    pub name: String,
    /// The size of a value in bytes. A value of a map of ports is the port, little endian, and a byte that is 1 if
    /// there is one.
    pub value_bytes: u32,
    /// The number of entries.
    pub entries: u32,
    /// The kind in the program.
    pub kind: MapKind,
    /// How the host names entries.
    pub access: Access,
}

/// How the host names the entries of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// There is one entry: `_write_i`, `_value_i`.
    Single,
    /// By `_index_i`; also `_write_i`, `_value_i`.
    Index {
        /// The width of the index.
        bits: u32,
    },
    /// By `_key_i`; `_operation_i` is 0 to look up, 1 to update with `_value_i`, 4 to do so only if there is no entry,
    /// 5 only if there is one, 2 to delete, and 3 to read the row whose number is in `_key_i`. The answer has
    /// `_present_o`, `_key_o`, and `_full_o` for an update that was refused. `_count_o` is the number of entries at any
    /// time; `_room_o`, which maps of prefixes lack, is low while packets wait as new keys have no room. In an LRU map,
    /// an update is a use, and no update is refused as the map is full. In a map of prefixes, 0 finds the longest prefix
    /// of a key; the answer to a change comes when packets see it.
    Key {
        /// The size of a key in bytes.
        bytes: u32,
        /// The number of rows.
        rows: u32,
        /// Whether it is a map of prefixes, whose keys begin with a length in bits.
        is_prefix: bool,
    },
    /// As [`Access::Index`], for egress ports.
    Ports {
        /// The width of the index.
        bits: u32,
    },
}

impl MapPort {
    /// Whether packets may wait for room for new keys, so that there is a port for it.
    pub(crate) fn has_room(&self) -> bool {
        matches!(self.access, Access::Key { is_prefix: false, .. })
    }

    /// The ports of the host: direction, width in bits, suffix of the name.
    pub(crate) fn ports(&self) -> Vec<(&'static str, u32, &'static str)> {
        let value = 8 * self.value_bytes;
        let mut ports = vec![("input ", 1, "valid_i"), ("output", 1, "ready_o")];
        match self.access {
            Access::Single => ports.push(("input ", 1, "write_i")),
            Access::Index { bits } | Access::Ports { bits } => {
                ports.extend([("input ", 1, "write_i"), ("input ", bits, "index_i")]);
            }
            Access::Key { bytes, .. } => ports.extend([("input ", 3, "operation_i"), ("input ", 8 * bytes, "key_i")]),
        }
        ports.extend([("input ", value, "value_i"), ("output", 1, "valid_o")]);
        if let Access::Key { bytes, .. } = self.access {
            ports.extend([("output", 1, "present_o"), ("output", 1, "full_o"), ("output", 8 * bytes, "key_o")]);
            ports.push(("output", 32, "count_o"));
        }
        if self.has_room() {
            ports.push(("output", 1, "room_o"));
        }
        ports.push(("output", value, "value_o"));
        ports
    }
}
