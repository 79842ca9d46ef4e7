//! The run record of one packet as rewritten programs see it.

use flowloom_bpf::{MapDef, MapKind};
use flowloom_engine::{Choices, Port, RANDOM_WORDS};

/// Name of the map: a data section, so that programs address its value directly, without a lookup.
pub const RECORD_MAP: &str = ".data.fl_record";

/// Length of the record.
pub const RECORD_BYTES: usize = 64;

pub(super) const NOW: i16 = 0;
pub(super) const INGRESS_PORT: i16 = 8;
pub(super) const CPU: i16 = 12;
pub(super) const RANDOM: i16 = 16;
pub(super) const RANDOM_INDEX: i16 = 48;
pub(super) const REDIRECT_PORT: i16 = 52;
pub(super) const REDIRECT_SET: i16 = 56;

/// Values of `redirect_set`: no redirect is 0.
pub(super) const SET_PORT: i32 = 1;
pub(super) const SET_ALL: i32 = 2;
pub(super) const SET_ALL_BUT_INGRESS: i32 = 3;

/// Where a packet asked to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirect {
    /// To one port.
    To(Port),
    /// To every port of a devmap.
    All {
        /// Index of the devmap in the program.
        map: usize,
        /// But not to the port that the packet came by.
        but_ingress: bool,
    },
}

/// The record's bytes, in the order of the machine that runs the program.
///
/// # Layout
/// `now_ns` u64 at 0, `ingress_port` u32 at 8, `cpu` u32 at 12, `random` 8 x u32 at 16, `random_index` u32 at 48,
/// `redirect_port` u32 at 52, `redirect_set` u32 at 56 (0: none; 1: to the port; 2: to all ports of the devmap with this
/// index; 3: the same but for the ingress port), 4 bytes of padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record(pub [u8; RECORD_BYTES]);

impl Record {
    /// What a packet that arrives by `port` finds.
    pub fn new(port: Port, choices: &Choices) -> Record {
        let mut record = Record([0; RECORD_BYTES]);
        record.0[..8].copy_from_slice(&choices.now_ns.to_ne_bytes());
        record.put(INGRESS_PORT, port.0);
        record.put(CPU, choices.cpu);
        for (i, word) in choices.random.iter().enumerate() {
            record.put(RANDOM + 4 * i as i16, *word);
        }
        record
    }

    /// What the program asked for by its last redirect, if that did not fail.
    pub fn redirect(&self) -> Option<Redirect> {
        let port = self.get(REDIRECT_PORT);
        match self.get(REDIRECT_SET) as i32 {
            SET_PORT => Some(Redirect::To(Port(port))),
            set @ (SET_ALL | SET_ALL_BUT_INGRESS) => {
                Some(Redirect::All { map: port as usize, but_ingress: set == SET_ALL_BUT_INGRESS })
            }
            _ => None,
        }
    }

    /// How many random words the program drew.
    pub fn random_drawn(&self) -> u32 {
        self.get(RANDOM_INDEX)
    }

    fn put(&mut self, offset: i16, word: u32) {
        self.0[offset as usize..][..4].copy_from_slice(&word.to_ne_bytes());
    }

    fn get(&self, offset: i16) -> u32 {
        let mut word = [0; 4];
        word.copy_from_slice(&self.0[offset as usize..][..4]);
        u32::from_ne_bytes(word)
    }
}

const _: () = assert!(RANDOM_WORDS == 8 && RANDOM as usize + 4 * RANDOM_WORDS == RANDOM_INDEX as usize);

/// The map that holds the record.
pub(super) fn map() -> MapDef {
    MapDef {
        name: RECORD_MAP.to_owned(),
        kind: MapKind::Array,
        key_bytes: 4,
        value_bytes: RECORD_BYTES as u32,
        max_entries: 1,
        flags: 0,
        initial: Some(vec![0; RECORD_BYTES]),
        ..MapDef::default()
    }
}
