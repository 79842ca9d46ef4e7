// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The run record of a packet as rewritten programs see it.

use flowloom_engine::{Choices, Port, RANDOM_WORDS};

/// The name of the map: a data section, so that programs address its value directly, without a lookup.
pub const RECORD_MAP: &str = ".data.fl_record";

/// The size of the record in bytes; tables and logs come after it.
pub const RECORD_BYTES: usize = 96;

pub(super) const NOW: i16 = 0;
pub(super) const INGRESS_PORT: i16 = 8;
pub(super) const CPU: i16 = 12;
pub(super) const RANDOM: i16 = 16;
pub(super) const RANDOM_INDEX: i16 = 48;
pub(super) const REDIRECT_PORT: i16 = 52;
pub(super) const REDIRECT_SET: i16 = 56;
/// The key for a lookup in a shadow.
pub(super) const KEY: i16 = 60;
/// A saved register.
pub(super) const SAVED: i16 = 64;
/// `now` in jiffies.
pub(super) const JIFFIES: i16 = 72;
pub(super) const EVENTS: i16 = 80;
pub(super) const UPDATES: i16 = 84;
pub(super) const DELETIONS: i16 = 88;

/// A jiffy in nanoseconds, at 250 Hz.
pub const JIFFY_NS: u64 = 4_000_000;

/// The values of `redirect_set`: no redirect is 0.
pub(super) const SET_PORT: i32 = 1;
pub(super) const SET_ALL: i32 = 2;
pub(super) const SET_ALL_BUT_INGRESS: i32 = 3;
pub(super) const SET_CPU: i32 = 4;
pub(super) const SET_SOCKET: i32 = 5;

/// The target of a redirect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Redirect {
    /// A port.
    To(Port),
    /// A CPU.
    ToCpu(u32),
    /// The AF_XDP socket under a key.
    ToSocket(u32),
    /// Every port of a device map.
    All {
        /// The index of the device map in the program.
        map: usize,
        /// True if the ingress port is omitted.
        but_ingress: bool,
    },
}

/// The bytes of the record, in host byte order.
///
/// # Layout
/// `now_ns` u64 at 0, `ingress_port` u32 at 8, `cpu` u32 at 12, `random` 8 x u32 at 16, `random_index` u32 at 48,
/// `redirect_port` u32 at 52, `redirect_set` u32 at 56 (0: none; 1: to the port; 2: to all ports of the device map with
/// this index; 3: the same except the ingress port; 4: to the CPU; 5: to the socket), `key` u32 at 60 and `saved` u64
/// at 64 for the rewritten code itself, `jiffies` u64 at 72, the numbers of events, of updates of LRU tables and of
/// deletions of their entries, u32 each at 80, 4 bytes of padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record(pub [u8; RECORD_BYTES]);

impl Record {
    /// The record for a packet that arrives on `port`.
    pub fn new(port: Port, choices: &Choices) -> Record {
        let mut record = Record([0; RECORD_BYTES]);
        record.0[..8].copy_from_slice(&choices.now_ns.to_ne_bytes());
        record.0[JIFFIES as usize..][..8].copy_from_slice(&(choices.now_ns / JIFFY_NS).to_ne_bytes());
        record.put(INGRESS_PORT, port.0);
        record.put(CPU, choices.cpu);
        for (i, word) in choices.random.iter().enumerate() {
            record.put(RANDOM + 4 * i as i16, *word);
        }
        record
    }

    /// The last redirect of the program, if it did not fail.
    pub fn redirect(&self) -> Option<Redirect> {
        let port = self.get(REDIRECT_PORT);
        match self.get(REDIRECT_SET) as i32 {
            SET_PORT => Some(Redirect::To(Port(port))),
            SET_CPU => Some(Redirect::ToCpu(port)),
            SET_SOCKET => Some(Redirect::ToSocket(port)),
            set @ (SET_ALL | SET_ALL_BUT_INGRESS) => {
                Some(Redirect::All { map: port as usize, but_ingress: set == SET_ALL_BUT_INGRESS })
            }
            _ => None,
        }
    }

    /// The number of random words that the program drew.
    pub fn random_drawn(&self) -> u32 {
        self.get(RANDOM_INDEX)
    }

    /// The number of events that the program wrote into perf event arrays; those past the log's capacity are only
    /// counted.
    pub fn events(&self) -> u32 {
        self.get(EVENTS)
    }

    /// The number of updates of LRU tables.
    pub fn updates(&self) -> u32 {
        self.get(UPDATES)
    }

    /// The number of deletions from LRU tables; those past the log's capacity are only counted.
    pub fn deletions(&self) -> u32 {
        self.get(DELETIONS)
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
