// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Inputs of a program run (constants, state and packets), and access to their bytes by location.

use std::collections::BTreeMap;

use flowloom_engine::Snapshot;
use flowloom_isa::{BPF_F_RDONLY_PROG, MapDef, Program};

use crate::arrival::Arrival;

/// Inputs of one run of a program.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Case {
    /// Contents of read-only data sections that a loader sets before it loads the program, by map name.
    pub constants: BTreeMap<String, Vec<u8>>,
    /// Contents of the maps before the first packet; maps that it does not name keep their contents from loading.
    pub state: Snapshot,
    /// The packets.
    pub packets: Vec<Arrival>,
    /// Seed of the random values that the packets draw.
    pub seed: u64,
}

impl Case {
    /// Returns `program` with the constants of this case.
    pub fn program(&self, program: &Program) -> Program {
        let mut program = program.clone();
        for map in &mut program.maps {
            if let Some(contents) = self.constants.get(&map.name) {
                map.initial = Some(contents.clone());
            }
        }
        program
    }
}

/// A byte string of a case that can be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Span {
    /// The bytes of the packet with this index.
    Packet(usize),
    /// The value under a key of a map, by the map's index.
    Value { map: usize, key: Vec<u8> },
    /// A read-only data section, by the map's index.
    Constants { map: usize },
}

/// Size limit: larger data sections hold tables, not settings.
const MAX_SECTION_BYTES: u32 = 1024;

/// True if a map is a read-only data section no larger than settings are.
pub(super) fn holds_constants(def: &MapDef) -> bool {
    def.flags & BPF_F_RDONLY_PROG != 0 && def.initial.is_some() && def.value_bytes <= MAX_SECTION_BYTES
}

/// True if a map is a writable data section no larger than settings are.
pub(super) fn holds_variables(def: &MapDef) -> bool {
    def.flags & BPF_F_RDONLY_PROG == 0 && def.initial.is_some() && def.value_bytes <= MAX_SECTION_BYTES
}

impl Span {
    /// The bytes in `case`; `None` where there are none.
    pub(super) fn bytes(&self, case: &Case, maps: &[MapDef], value_bytes: &BTreeMap<String, usize>) -> Option<Vec<u8>> {
        match self {
            Span::Packet(index) => case.packets.get(*index).map(|packet| packet.bytes.clone()),
            Span::Constants { map } => {
                let def = maps.get(*map)?;
                case.constants.get(&def.name).or(def.initial.as_ref()).cloned()
            }
            Span::Value { map, key } => {
                let def = maps.get(*map)?;
                let stored = case.state.maps.get(&def.name).and_then(|entries| entries.get(key));
                if let Some(stored) = stored {
                    return Some(stored.clone());
                }
                // An array has every entry; other maps have the entries of the state.
                let is_array = matches!(def.kind, flowloom_isa::MapKind::Array | flowloom_isa::MapKind::PerCpuArray);
                let initial = def.initial.clone().or_else(|| value_bytes.get(&def.name).map(|&len| vec![0; len]));
                initial.filter(|_| is_array)
            }
        }
    }

    pub(super) fn set(&self, case: &mut Case, maps: &[MapDef], bytes: Vec<u8>) {
        match self {
            Span::Packet(index) => {
                if let Some(packet) = case.packets.get_mut(*index) {
                    packet.bytes = bytes;
                }
            }
            Span::Constants { map } => {
                if let Some(def) = maps.get(*map) {
                    case.constants.insert(def.name.clone(), bytes);
                }
            }
            Span::Value { map, key } => {
                if let Some(def) = maps.get(*map) {
                    case.state.maps.entry(def.name.clone()).or_default().insert(key.clone(), bytes);
                }
            }
        }
    }
}
