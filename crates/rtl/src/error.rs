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
        "map `{map}`: no hardware block is rendered for maps of kind `{kind}`, only for arrays, hash maps, LRU maps, LPM maps and device maps"
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
    /// A map that a packet that runs alone cannot access again and again.
    #[error(
        "map `{map}`: {why}, which packets that access map `{alone}` by several keys do not allow, as they run again"
    )]
    Alone {
        /// The name of the map.
        map: String,
        /// The reason.
        why: &'static str,
        /// The name of a map that is accessed by several keys.
        alone: String,
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
    /// Flags of a redirect that hardware does not have.
    #[error(
        "instruction {insn}: `redirect_map` on map `{map}` is given {}, hardware has {}",
        .found.map_or("flags known only at run time".to_owned(), |found| format!("the flags {found:#x}")),
        if *.spreads { "0 to 3, and these with `BPF_F_BROADCAST`" } else { "0 to 3 for maps of its kind" }
    )]
    Flags {
        /// The index of the instruction.
        insn: usize,
        /// The name of the map.
        map: String,
        /// The flags, if they are constant.
        found: Option<u64>,
        /// Whether packets may be sent to all ports of the map.
        spreads: bool,
    },
    /// Values that are too large.
    #[error("map `{map}` has values of {found} bytes, hardware has values of up to {expected}")]
    Value {
        /// The name of the map.
        map: String,
        /// The bytes of a value.
        found: u32,
        /// The most bytes.
        expected: u32,
    },
    /// A hash map of too many entries.
    #[error("map `{map}` has {found} entries, hardware holds up to {expected}; reduce its `max_entries`")]
    Entries {
        /// The name of the map.
        map: String,
        /// The entries.
        found: u32,
        /// The most entries.
        expected: u32,
    },
    /// A map whose value is needed before its block gives it.
    #[error("map `{map}`: its value is needed in stage {stage}, before the block has it")]
    Early {
        /// The name of the map.
        map: String,
        /// The stage.
        stage: u32,
    },
    /// The result of a change of an entry that is needed before the state slice has it.
    #[error(
        "instruction {insn}: the result of a change of map `{map}` is needed in stage {stage}, its slice has it in stage {known}"
    )]
    Result {
        /// The index of the instruction.
        insn: usize,
        /// The name of the map.
        map: String,
        /// The stage that needs it.
        stage: u32,
        /// The stage of the change.
        known: u32,
    },
    /// A map that packets change and look up too late.
    #[error(
        "map `{map}`: {found} packets may still come when its table has no room, expected at most {most}; its key is needed \
         earlier in the program, or fewer operations before it"
    )]
    Distance {
        /// The name of the map.
        map: String,
        /// The packets.
        found: u32,
        /// The most that the table has room for.
        most: u32,
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
    /// A table of prefixes of addresses that are too long.
    #[error("map `{map}` has prefixes of addresses of {found} bits, hardware takes up to {expected}")]
    Address {
        /// The name of the map.
        map: String,
        /// The bits of an address.
        found: u32,
        /// The most bits.
        expected: u32,
    },
    /// A table of too many prefixes.
    #[error("map `{map}` has {found} prefixes, hardware holds up to {expected}; reduce its `max_entries`")]
    Prefixes {
        /// The name of the map.
        map: String,
        /// The prefixes.
        found: u32,
        /// The most prefixes.
        expected: u32,
    },
    /// A lookup by a prefix length that is not that of a whole address.
    #[error(
        "instruction {insn}: the lookup in map `{map}` is by {}, hardware finds the longest prefix of a whole address, \
         {expected} bits",
        .found.map_or("a prefix length known only at run time".to_owned(), |found| format!("the prefix length {found}"))
    )]
    Prefix {
        /// The index of the instruction.
        insn: usize,
        /// The name of the map.
        map: String,
        /// The prefix length, if it is constant.
        found: Option<u64>,
        /// That of a whole address.
        expected: u32,
    },
    /// A table of prefixes whose values several stages change.
    #[error(
        "{stages} stages change a value of map `{map}`; packets of one prefix have different addresses, so hardware changes \
         such values in one stage only"
    )]
    Shared {
        /// The name of the map.
        map: String,
        /// The stages.
        stages: u32,
    },
    /// Too many calls that send packets.
    #[error(
        "the program sends {found} packets besides its own, hardware sends up to {expected}; use fewer `fl_clone` and \
         `fl_emit`, and none in loops"
    )]
    Sends {
        /// The calls.
        found: usize,
        /// The most calls.
        expected: usize,
    },
    /// A packet to send of a length that hardware does not send.
    #[error("instruction {insn}: `fl_emit` sends a packet of {found} bytes, hardware sends 1 to {expected}")]
    Emitted {
        /// The index of the instruction.
        insn: usize,
        /// The bytes.
        found: usize,
        /// The most bytes.
        expected: usize,
    },
    /// Bytes at one offset known only at run time that are too far apart.
    #[error(
        "bytes that are written at one offset known only at run time are {found} bytes apart, hardware replaces up to \
         {expected} at once"
    )]
    Span {
        /// The bytes from the first one to the last one.
        found: u32,
        /// The most bytes.
        expected: u32,
    },
    /// The packet is cut and grows again.
    #[error("the packet is cut and grows again")]
    Kept,
}
