// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The faults of plans.

use std::fmt;

/// A fault of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fault {
    /// A node begins before an argument is ready.
    TooEarly {
        /// The node.
        node: usize,
        /// The argument.
        argument: usize,
    },
    /// A stage exceeds its budget of delay.
    TooDeep {
        /// The node that ends too late.
        node: usize,
        /// The depth in tenths of a level.
        depth: u32,
        /// The budget of a stage in tenths of a level.
        stage: u32,
    },
    /// A node ends earlier than its delay allows.
    TooFast {
        /// The node.
        node: usize,
    },
    /// An effect commits before its arguments are ready.
    EarlyEffect {
        /// The node.
        node: usize,
        /// The stage at whose end it commits.
        stage: u32,
    },
    /// A read is in a later stage than a write of the same map: it sees the write of a later packet.
    LateRead {
        /// The map.
        map: String,
        /// The stage of the read.
        read: u32,
        /// The stage of the write.
        write: u32,
    },
    /// A map that packets write has no scheme.
    NoScheme {
        /// The map.
        map: String,
    },
    /// The reads and writes of an atomic map are in different stages.
    NotAtomic {
        /// The map.
        map: String,
        /// The stages.
        stages: Vec<u32>,
    },
    /// A scheduled map is accessed by several keys.
    Keys {
        /// The map.
        map: String,
    },
    /// A hold ends before the write is visible.
    ShortHold {
        /// The map.
        map: String,
        /// The length of the hold in cycles.
        hold_cycles: u32,
        /// The length needed in cycles.
        needed_cycles: u32,
    },
    /// A read comes before the scheduler, or before the restart stage.
    Unguarded {
        /// The map.
        map: String,
        /// The stage of the read.
        read: u32,
        /// The stage from which on reads are guarded.
        guard: u32,
    },
    /// An effect commits inside of a flush region, not in its last stage: a restart would repeat it.
    Repeated {
        /// The node.
        node: usize,
        /// The stage in which it commits.
        stage: u32,
        /// The last stage of the region.
        last: u32,
    },
    /// The restart stage of a map lies inside of another region.
    RestartInside {
        /// The map.
        map: String,
        /// The stage.
        stage: u32,
    },
    /// Packets may overtake each other although their order has been observed before.
    Overtaking {
        /// The map before which they may.
        map: String,
    },
    /// An effect or a map is missing from the plan.
    Missing {
        /// Its description.
        what: String,
    },
    /// A read does not wait for a write of the same packet.
    OwnWrite {
        /// The read.
        read: usize,
    },
    /// Effects of one packet on the same state commit against the order of the program.
    Order {
        /// The effect that comes first in the program.
        first: usize,
        /// The effect that commits, or reserves room, before it.
        then: usize,
    },
    /// A load or a lookup of an atomic map leaves no time for the mux that forwards the write of the packet before.
    Forwarding {
        /// The node.
        node: usize,
    },
    /// A test of the packet length, or an access at a run-time offset, comes before the word that decides it.
    EarlyWord {
        /// The node.
        node: usize,
        /// The stage in which the word is there.
        stage: u32,
    },
    /// The program uses the exact packet length, and the plan does not wait for it.
    Length,
    /// A map stands in the plan, or in its regions, twice.
    Twice {
        /// The map.
        map: String,
    },
    /// The stage of the last write is not the one that the plan names; the model of time goes by the latter.
    WriteStage {
        /// The map.
        map: String,
        /// The stage that the plan names.
        found: Option<u32>,
        /// The stage of the last write.
        expected: Option<u32>,
    },
    /// The pipeline omits a call that has an effect or a result.
    Omitted {
        /// The number of the helper.
        helper: i32,
    },
    /// The window does not hold a byte that the program accesses.
    Window {
        /// The offset of the byte.
        byte: u32,
        /// The size of the window in bytes.
        window: u32,
    },
    /// The plan has fewer stages than its values need.
    Stages {
        /// The number of stages.
        found: u32,
        /// The number needed.
        needed: u32,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::TooEarly { node, argument } => {
                write!(f, "node {node} begins before its argument {argument} is ready")
            }
            Fault::TooDeep { node, depth, stage } => {
                write!(f, "node {node} ends at depth {depth} tenths of a level, expected at most {stage}")
            }
            Fault::TooFast { node } => write!(f, "node {node} ends before its delay has passed"),
            Fault::EarlyEffect { node, stage } => {
                write!(f, "the effect of node {node} commits in stage {stage}, before its operands are ready")
            }
            Fault::LateRead { map, read, write } => {
                write!(
                    f,
                    "map `{map}` is read in stage {read} and written in stage {write}, which later packets reach first"
                )
            }
            Fault::NoScheme { map } => write!(f, "map `{map}` is written, but has no scheme"),
            Fault::NotAtomic { map, stages } => {
                write!(f, "map `{map}` is read and written in stages {stages:?}, expected one")
            }
            Fault::Keys { map } => write!(f, "map `{map}` is scheduled by one key and used by others"),
            Fault::ShortHold { map, hold_cycles, needed_cycles } => {
                write!(f, "map `{map}` is held for {hold_cycles} cycles, expected {needed_cycles}")
            }
            Fault::Unguarded { map, read, guard } => {
                write!(f, "map `{map}` is read in stage {read}, but guarded only from stage {guard}")
            }
            Fault::Repeated { node, stage, last } => write!(
                f,
                "the effect of node {node} commits in stage {stage} of a flush region, expected its last stage, {last}"
            ),
            Fault::RestartInside { map, stage } => {
                write!(f, "packets flushed by map `{map}` restart in stage {stage}, inside another region")
            }
            Fault::Overtaking { map } => {
                write!(f, "packets are reordered before map `{map}` after their order has been observed")
            }
            Fault::Missing { what } => write!(f, "{what} is missing from the plan"),
            Fault::OwnWrite { read } => write!(f, "node {read} reads before an earlier write of the same packet"),
            Fault::Order { first, then } => {
                write!(
                    f,
                    "the effect of node {then} commits before that of node {first}, which is earlier in the program"
                )
            }
            Fault::Forwarding { node } => {
                write!(f, "node {node} reads an atomic map without the delay of the forwarding mux")
            }
            Fault::EarlyWord { node, stage } => {
                write!(f, "node {node} begins before the packet word that it needs arrives, in stage {stage}")
            }
            Fault::Length => f.write_str("the exact packet length is used before the last word arrives"),
            Fault::Twice { map } => write!(f, "map `{map}` has two entries in the plan"),
            Fault::WriteStage { map, found, expected } => {
                let said =
                    |stage: &Option<u32>| stage.map_or_else(|| "no stage".to_owned(), |at| format!("stage {at}"));
                write!(f, "the last write of map `{map}` is in {}, expected {}", said(found), said(expected))
            }
            Fault::Omitted { helper } => {
                write!(f, "the pipeline omits a call of helper {helper}, which has an effect or a used result")
            }
            Fault::Window { byte, window } => {
                write!(f, "byte {byte} of the packet lies outside the window of {window}")
            }
            Fault::Stages { found, needed } => write!(f, "the plan has {found} stages, expected {needed}"),
        }
    }
}
