//! What a program is run on: constants, state and packets, and the bytes of all three by place.

use std::collections::BTreeMap;

use flowloom_engine::Snapshot;
use flowloom_isa::{BPF_F_RDONLY_PROG, MapDef, Program};

use crate::arrival::Arrival;

/// One way to run a program from its first state.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Case {
    /// Contents of read-only data sections that a loader sets before it loads the program, by map name.
    pub constants: BTreeMap<String, Vec<u8>>,
    /// The contents of the maps before the first packet; maps that it does not name are as the program is loaded.
    pub state: Snapshot,
    /// The packets.
    pub packets: Vec<Arrival>,
    /// The seed of the random values that the packets draw.
    pub seed: u64,
}

impl Case {
    /// `program` with the constants of this case.
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

/// Some bytes of a case that can be changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Span {
    /// Those of a packet, by its index.
    Packet(usize),
    /// The value under a key of a map, by the map's index.
    Value { map: usize, key: Vec<u8> },
    /// A read-only data section, by the map's index.
    Constants { map: usize },
}

/// Data sections larger than this hold tables, not settings.
const MOST_SECTION_BYTES: u32 = 1024;

/// Whether a map is a read-only data section of a size that settings have.
pub(super) fn holds_constants(def: &MapDef) -> bool {
    def.flags & BPF_F_RDONLY_PROG != 0 && def.initial.is_some() && def.value_bytes <= MOST_SECTION_BYTES
}

/// Whether a map is a data section that programs write, of a size that settings have.
pub(super) fn holds_variables(def: &MapDef) -> bool {
    def.flags & BPF_F_RDONLY_PROG == 0 && def.initial.is_some() && def.value_bytes <= MOST_SECTION_BYTES
}

impl Span {
    /// Its bytes in `case`; `None` where there are none.
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
                // An array has every entry; tables have what the state names.
                let is_array = matches!(def.kind, flowloom_isa::MapKind::Array | flowloom_isa::MapKind::PerCpuArray);
                let initial = def.initial.clone().or_else(|| value_bytes.get(&def.name).map(|&len| vec![0; len]));
                initial.filter(|_| is_array)
            }
        }
    }

    /// Replaces its bytes in `case`.
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
