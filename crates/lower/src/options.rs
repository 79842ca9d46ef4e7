// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Options of the lowering.

/// Options of the lowering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LowerOptions {
    /// Count hits of rows, expiries and flows in separate maps, which [`flowloom_efsm::Coverage::from_snapshot`] reads.
    pub counters: bool,
    /// The program runs on interfaces, possibly on several CPUs at once and with an unbounded number of flows: packets
    /// lock the contexts that they may change, counters use atomic adds, and flows are not counted.
    pub attached: bool,
    /// Who finds the headers of a packet.
    pub parser: HeaderParser,
}

/// Who finds the headers of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HeaderParser {
    /// Code of the program.
    #[default]
    Code,
    /// The parser of the target, by `fl_parse`, which no kernel has.
    Target,
}
