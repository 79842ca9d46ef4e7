// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parameters of a machine: sizes that synthesis fixes, and that every function loaded into it shares.

/// The parameters of a machine.
///
/// # Source
/// [FlowBlaze, Table 4 and 4.4]: those with a letter are in the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameters {
    /// The name of the set.
    pub name: &'static str,
    /// Stateful elements; a stateless one is before each of them and after the last.
    pub elements: u32,
    /// k: 32-bit flow registers of a context.
    pub registers: u32,
    /// m: enabling conditions of an element.
    pub conditions: u32,
    /// z: bits of metadata, in words of 32.
    pub metadata_bits: u32,
    /// h: 32-bit global registers of an element.
    pub globals: u32,
    /// ALUs for register updates, each used at most once by a packet.
    pub alus: u32,
    /// mqs: packets in a queue of the scheduler.
    pub queue_depth: u32,
    /// nq: queues of the scheduler.
    pub queues: u32,
    /// Bits of a flow key, in words of 32.
    pub key_bits: u32,
    /// Rows of the EFSM table of an element.
    pub rows: u32,
    /// Places of the flow context table of an element, besides its stash. A size that a function declares is at most
    /// 95% of them.
    pub contexts: u32,
    /// 32-bit words of the header vector, metadata included.
    pub words: u32,
    /// Words of the header vector that the EFSM table of an element compares.
    pub match_words: u32,
    /// Write units of an element: words of the header vector that one packet writes.
    pub writes: u32,
    /// Structural edits and copies for one packet.
    pub steps: u32,
}

impl Parameters {
    /// FlowBlaze's parameters. The paper leaves the size of the context table open; what it does not state is chosen so
    /// that the EFSM table is as wide as there.
    pub const PAPER: Parameters = Parameters {
        name: "paper",
        elements: 6,
        registers: 4,
        conditions: 8,
        metadata_bits: 64,
        globals: 8,
        alus: 5,
        queue_depth: 20,
        queues: 1,
        key_bits: 128,
        rows: 32,
        contexts: 69_120,
        words: 24,
        match_words: 4,
        writes: 6,
        steps: 6,
    };

    /// A larger machine for functions that handle IPv4 and IPv6 alike: a key holds a 5-tuple of IPv6 addresses, and a
    /// register of an address takes four words.
    pub const DUAL_STACK: Parameters = Parameters {
        name: "dual_stack",
        registers: 12,
        conditions: 20,
        metadata_bits: 192,
        alus: 8,
        key_bits: 320,
        rows: 64,
        words: 32,
        match_words: 8,
        writes: 8,
        ..Parameters::PAPER
    };

    /// The sets with a name, from the smallest on.
    pub const NAMED: [&Parameters; 2] = [&Parameters::PAPER, &Parameters::DUAL_STACK];

    /// The set called `name`.
    pub fn by_name(name: &str) -> Option<&'static Parameters> {
        Parameters::NAMED.into_iter().find(|parameters| parameters.name == name)
    }

    /// The largest size of a table that a function may declare.
    pub fn max_size(&self) -> u32 {
        (u64::from(self.contexts) * 95 / 100) as u32
    }

    /// The bits that the EFSM table compares: state, conditions, presence bits, `full`, and words.
    pub fn match_bits(&self) -> u32 {
        STATE_BITS + self.conditions + PRESENCE_BITS + 1 + 32 * self.match_words
    }
}

/// Bits of a state label that the EFSM table compares.
pub(crate) const STATE_BITS: u32 = 8;
/// Sets of headers whose presence rows test.
pub(crate) const PRESENCE_BITS: u32 = 15;
/// Entries of the stash.
pub(crate) const STASH: u32 = 8;
/// Units of time of a function besides the nanosecond.
pub(crate) const CLOCKS: usize = 2;
/// Pairs of timeouts that the rows of an element set.
pub(crate) const TIMEOUTS: usize = 16;
/// ALUs of a stateless element.
pub(crate) const STATELESS_ALUS: u32 = 3;
/// Moving averages of an element, each of one register.
pub(crate) const AVERAGES: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_efsm_table_is_as_wide_as_in_the_paper() {
        assert_eq!(Parameters::PAPER.match_bits(), 160);
    }

    #[test]
    fn sets_are_found_by_name() {
        assert!(Parameters::NAMED.iter().all(|set| Parameters::by_name(set.name) == Some(set)));
        assert_eq!(Parameters::by_name("none"), None);
    }
}
