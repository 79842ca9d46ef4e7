// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reasons why a plan is not rendered.

/// A reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RtlError {
    /// An effect without a hardware block.
    #[error("instruction {insn}: no hardware block is rendered for {effect}")]
    Effect {
        /// The index of the instruction.
        insn: usize,
        /// The effect.
        effect: String,
    },
    /// A map of a kind without a hardware block.
    #[error(
        "map `{map}`: no hardware block is rendered for maps of kind `{kind}`, only for arrays, hash maps and device maps"
    )]
    Kind {
        /// The name of the map.
        map: String,
        /// The kind.
        kind: String,
    },
    /// A map that packets write and access by several keys.
    #[error("map `{map}` is accessed by {keys} keys; a map that packets write is rendered with one key")]
    Keys {
        /// The name of the map.
        map: String,
        /// The number of keys.
        keys: usize,
    },
    /// A use of the address of an entry other than an access or a comparison with 0.
    #[error(
        "instruction {insn}: the address of an entry of map `{map}` is joined with another one or used as a number"
    )]
    Joined {
        /// The index of the instruction.
        insn: usize,
        /// The name of the map.
        map: String,
    },
    /// A map whose value is needed before its block gives it.
    #[error("map `{map}`: its value is needed in stage {stage}, before the block has it")]
    Early {
        /// The name of the map.
        map: String,
        /// The stage.
        stage: u32,
    },
    /// An access to a value at an offset known only at run time.
    #[error("instruction {insn}: the offset in a value of map `{map}` is known only at run time")]
    Offset {
        /// The index of the instruction.
        insn: usize,
        /// The name of the map.
        map: String,
    },
    /// A read or atomic operation that is ready before its predicate.
    #[error("instruction {insn}: the access to map `{map}` begins before its predicate is known")]
    Speculated {
        /// The index of the instruction.
        insn: usize,
        /// The name of the map.
        map: String,
    },
    /// The packet is cut and grows again.
    #[error("the packet is cut and grows again")]
    Kept,
}
