// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The faults of plans.

/// A fault of a plan.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// A node begins before an argument is ready.
    #[error("node {node} begins before its argument {argument} is ready")]
    TooEarly {
        /// The node.
        node: usize,
        /// The argument.
        argument: usize,
    },
    /// A stage exceeds its budget of delay.
    #[error("node {node} ends at depth {depth} tenths of a level, expected at most {stage}")]
    TooDeep {
        /// The node that ends too late.
        node: usize,
        /// The depth in tenths of a level.
        depth: u32,
        /// The budget of a stage in tenths of a level.
        stage: u32,
    },
    /// A node ends earlier than its delay allows.
    #[error("node {node} ends before its delay has passed")]
    TooFast {
        /// The node.
        node: usize,
    },
    /// An effect commits before its arguments are ready.
    #[error("the effect of node {node} commits in stage {stage}, before its operands are ready")]
    EarlyEffect {
        /// The node.
        node: usize,
        /// The stage at whose end it commits.
        stage: u32,
    },
    /// A read is in a later stage than a write of the same map: it sees the write of a later packet.
    #[error("map `{map}` is read in stage {read} and written in stage {write}, which later packets reach first")]
    LateRead {
        /// The map.
        map: String,
        /// The stage of the read.
        read: u32,
        /// The stage of the write.
        write: u32,
    },
    /// A map that packets write has no scheme.
    #[error("map `{map}` is written, but has no scheme")]
    NoScheme {
        /// The map.
        map: String,
    },
    /// The reads and writes of an atomic map are in different stages.
    #[error("map `{map}` is read and written in stages {stages:?}, expected one")]
    NotAtomic {
        /// The map.
        map: String,
        /// The stages.
        stages: Vec<u32>,
    },
    /// A map is accessed by several keys where its scheme, or its port beside steps, takes one.
    #[error("map `{map}` is accessed by several keys, expected one")]
    Keys {
        /// The map.
        map: String,
    },
    /// A hold ends before the write is visible.
    #[error("map `{map}` is held for {hold_cycles} cycles, expected {needed_cycles}")]
    ShortHold {
        /// The map.
        map: String,
        /// The length of the hold in cycles.
        hold_cycles: u32,
        /// The length needed in cycles.
        needed_cycles: u32,
    },
    /// A read comes before the scheduler, or before the restart stage.
    #[error("map `{map}` is read in stage {read}, but guarded only from stage {guard}")]
    Unguarded {
        /// The map.
        map: String,
        /// The stage of the read.
        read: u32,
        /// The stage from which on reads are guarded.
        guard: u32,
    },
    /// An effect commits inside of a flush region, not in its last stage: a restart would repeat it.
    #[error("the effect of node {node} commits in stage {stage} of a flush region, expected its last stage, {last}")]
    Repeated {
        /// The node.
        node: usize,
        /// The stage in which it commits.
        stage: u32,
        /// The last stage of the region.
        last: u32,
    },
    /// The restart stage of a map lies inside of another region.
    #[error("packets flushed by map `{map}` restart in stage {stage}, inside another region")]
    RestartInside {
        /// The map.
        map: String,
        /// The stage.
        stage: u32,
    },
    /// Packets may overtake each other although their order has been observed before.
    #[error("packets are reordered before map `{map}` after their order has been observed")]
    Overtaking {
        /// The map before which they may.
        map: String,
    },
    /// An effect or a map is missing from the plan.
    #[error("{what} is missing from the plan")]
    Missing {
        /// Its description.
        what: String,
    },
    /// A read does not wait for a write of the same packet.
    #[error("node {read} reads before an earlier write of the same packet")]
    OwnWrite {
        /// The read.
        read: usize,
    },
    /// Effects of one packet on the same state commit against the order of the program.
    #[error("the effect of node {then} commits before that of node {first}, which is earlier in the program")]
    Order {
        /// The effect that comes first in the program.
        first: usize,
        /// The effect that commits, or reserves room, before it.
        then: usize,
    },
    /// A load or a lookup of an atomic map leaves no time for the mux that forwards the write of the packet before.
    #[error("node {node} reads an atomic map without the delay of the forwarding mux")]
    Forwarding {
        /// The node.
        node: usize,
    },
    /// A test of the packet length, or an access at a run-time offset, comes before the word that decides it.
    #[error("node {node} begins before the packet word that it needs arrives, in stage {stage}")]
    EarlyWord {
        /// The node.
        node: usize,
        /// The stage in which the word is there.
        stage: u32,
    },
    /// The program uses the exact packet length, and the plan does not wait for it.
    #[error("the exact packet length is used before the last word arrives")]
    Length,
    /// A map stands in the plan, or in its regions, twice.
    #[error("map `{map}` has two entries in the plan")]
    Twice {
        /// The map.
        map: String,
    },
    /// The stage of the last write is not the one that the plan names; the model of time goes by the latter.
    #[error("the last write of map `{map}` is in {}, expected {}", stage_or_none(*found), stage_or_none(*expected))]
    WriteStage {
        /// The map.
        map: String,
        /// The stage that the plan names.
        found: Option<u32>,
        /// The stage of the last write.
        expected: Option<u32>,
    },
    /// The pipeline omits a call that has an effect or a result.
    #[error("the pipeline omits a call of helper {helper}, which has an effect or a used result")]
    Omitted {
        /// The number of the helper.
        helper: i32,
    },
    /// The window does not hold a byte that the program accesses.
    #[error("byte {byte} of the packet lies outside the window of {window}")]
    Window {
        /// The offset of the byte.
        byte: u32,
        /// The size of the window in bytes.
        window: u32,
    },
    /// A state slice makes a write before its operands are ready, before an earlier access of the packet, or after its
    /// commit; or the write belongs to no state slice of several stages.
    #[error("the state slice makes the write of node {node} in a stage in which it cannot")]
    Step {
        /// The node.
        node: usize,
    },
    /// A map is divided into partial arrays although more than additions access it, or into another number than there are
    /// lookups.
    #[error("map `{map}` is divided into {parts} partial arrays, which do not sum up to its contents")]
    Parts {
        /// The map.
        map: String,
        /// The partial arrays.
        parts: u32,
    },
    /// The result of a change of entries is used before the state slice has it.
    #[error("the result of node {node} is used before stage {stage}, in which its state slice has it")]
    EarlyAnswer {
        /// The node.
        node: usize,
        /// The stage of the change.
        stage: u32,
    },
    /// The plan has fewer stages than its values need.
    #[error("the plan has {found} stages, expected {needed}")]
    Stages {
        /// The number of stages.
        found: u32,
        /// The number needed.
        needed: u32,
    },
    /// An effect commits where it is not known yet whether an earlier packet runs alone.
    #[error(
        "the effect of node {node} commits in stage {stage}, before it is decided in stage {decided} which packets run again"
    )]
    Undecided {
        /// The node.
        node: usize,
        /// The stage at whose end it commits.
        stage: u32,
        /// The stage at whose end it is known which packets run again.
        decided: u32,
    },
    /// A map with steps is read before the queue from which packets run again.
    #[error("node {node} reads a map in stage {stage}, before the queue of stage {queue} from which packets run again")]
    BeforeQueue {
        /// The node.
        node: usize,
        /// The stage of the read.
        stage: u32,
        /// The stage of the queue.
        queue: u32,
    },
    /// A packet writes through the port of a map and may run alone all the same: it would write in each of its runs.
    #[error("the effect of node {node} writes through the port of a map, which is not proved to exclude running alone")]
    MayRunAlone {
        /// The node.
        node: usize,
    },
    /// A block begins before the queue from which packets run again and ends after it: its result would be that of
    /// another packet.
    #[error(
        "node {node} takes stages {begins} to {ends}, across the queue of stage {queue} from which packets run again"
    )]
    AcrossQueue {
        /// The node.
        node: usize,
        /// The stage in which it begins.
        begins: u32,
        /// The stage in which its result is there.
        ends: u32,
        /// The stage of the queue.
        queue: u32,
    },
    /// A packet that runs alone is not found out.
    #[error("node {node} is an access of packets that run alone, which the condition for that does not find")]
    NotAlone {
        /// The node.
        node: usize,
    },
    /// A packet that runs alone makes an access never, or more than once.
    #[error("node {node} is made by {found} steps of packets that run alone, expected {expected}")]
    StepCount {
        /// The node.
        node: usize,
        /// The number of steps that make it.
        found: usize,
        /// The number expected: a load makes none.
        expected: usize,
    },
    /// A step has another map, action or entry than its access, or an access is not one that steps can make.
    #[error("node {node} is not an access that its step of packets that run alone can make")]
    StepAccess {
        /// The node.
        node: usize,
    },
    /// Two steps are made against the order of the program.
    #[error("the step of node {then} is made before that of node {first}, which is earlier in the program")]
    StepOrder {
        /// The access that comes first in the program.
        first: usize,
        /// The access that is made before it.
        then: usize,
    },
    /// A packet that runs alone may insert an entry and write to the value of one: the write comes last, and would meet
    /// the new entry.
    #[error("node {node} inserts an entry in a packet whose write of node {write} may then meet it")]
    StepInsertion {
        /// The insertion.
        node: usize,
        /// The write.
        write: usize,
    },
    /// The plan is wrong about the steps of a map.
    #[error("map `{map}` has {}, and the plan says the opposite", if *has_steps { "steps" } else { "no steps" })]
    StepMap {
        /// The map.
        map: String,
        /// Whether it has steps.
        has_steps: bool,
    },
    /// The plan is wrong about an access to a map with steps: a lookup through its port that it does not list or that is
    /// none, or an access to a value that no such lookup found.
    #[error("node {node} does not access a map with steps through its port as the plan says")]
    Port {
        /// The node.
        node: usize,
    },
}

fn stage_or_none(stage: Option<u32>) -> String {
    stage.map_or_else(|| "no stage".to_owned(), |stage| format!("stage {stage}"))
}
