// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of a machine: what synthesis fixes, and functions share.

/// The parameters of a machine. A machine is synthesised once for its parameters; functions are loaded into it.
///
/// # Source
/// [FlowBlaze, Table 4 and 4.4]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    /// The name of the set.
    pub name: &'static str,
    /// Stateful elements; a stateless one stands before each of them and after the last.
    pub elements: u32,
    /// k: 32-bit flow registers of a context.
    pub registers: u32,
    /// m: enabling conditions of an element.
    pub conditions: u32,
    /// z: bits of metadata, in words of 32.
    pub metadata_bits: u32,
    /// h: 32-bit global registers of an element.
    pub globals: u32,
    /// ALUs that update registers, each once for a packet.
    pub alus: u32,
    /// mqs: packets in a queue of the scheduler.
    pub queue_depth: u32,
    /// nq: queues of the scheduler.
    pub queues: u32,
    /// Bits of a flow key.
    pub key_bits: u32,
    /// Rows of the EFSM table of an element.
    pub rows: u32,
    /// Places for contexts in the table of an element; 8 more are in its stash.
    pub contexts: u32,
    /// 32-bit words of the header vector, metadata included.
    pub words: u32,
    /// Words of the header vector that the EFSM table compares as bits.
    pub match_words: u32,
    /// Units that write words of the header vector, each once for a packet.
    pub writes: u32,
}
