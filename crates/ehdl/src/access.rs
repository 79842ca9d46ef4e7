// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads and writes of instructions: registers, and bytes of each memory.

use std::collections::BTreeMap;
use std::fmt;

use flowloom_verifier::MapId;

/// A storage region. Different regions never alias.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Region {
    /// A register; each function has its own copy of callee-saved ones.
    Register {
        /// Call depth; 0 for `r0` to `r5`.
        depth: u8,
        /// Its number.
        number: u8,
    },
    /// The stack of the function at a call depth; offsets from its end.
    Stack {
        /// Call depth.
        depth: u8,
    },
    /// The packet; offsets from its first byte on arrival.
    Packet,
    /// The metadata before the packet.
    Metadata,
    /// `struct xdp_md`.
    Context,
    /// The values of a map; offsets from the start of a value.
    Value(MapId),
    /// The set of keys of a map, and the addresses of their values.
    Keys(MapId),
    /// A record for user space.
    Record,
    /// Other externally visible effects: the packet's destination, output to user space.
    Effects,
}

impl fmt::Display for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Region::Register { number, .. } => write!(f, "r{number}"),
            Region::Stack { .. } => f.write_str("stack"),
            Region::Packet => f.write_str("packet"),
            Region::Metadata => f.write_str("metadata"),
            Region::Context => f.write_str("context"),
            Region::Value(MapId::Of(map)) => write!(f, "map {map}"),
            Region::Value(MapId::In(map)) => write!(f, "a map in map {map}"),
            Region::Keys(MapId::Of(map)) => write!(f, "keys of map {map}"),
            Region::Keys(MapId::In(map)) => write!(f, "keys of a map in map {map}"),
            Region::Record => f.write_str("record"),
            Region::Effects => f.write_str("effects"),
        }
    }
}

/// A read or write of bytes of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Access {
    pub region: Region,
    /// The bytes as a half-open range; `None`, which means all, if it is unknown.
    pub bytes: Option<(i64, i64)>,
    /// Whether they are written.
    pub writes: bool,
}

/// Limit on the length of a range in bytes; a longer one counts as unknown, since a value may have millions of bytes.
const MAX_BYTES: i64 = 4096;

impl Access {
    pub(super) fn read(region: Region, bytes: Option<(i64, i64)>) -> Access {
        Access { region, bytes: bytes.filter(|(first, end)| end - first <= MAX_BYTES), writes: false }
    }

    pub(super) fn write(region: Region, bytes: Option<(i64, i64)>) -> Access {
        Access { writes: true, ..Access::read(region, bytes) }
    }
}

/// The last read and the last write, each with its step.
#[derive(Debug, Clone, Copy, Default)]
struct LastAccess {
    /// The first stage in which the value is readable, and the writing step.
    written: Option<(u32, usize)>,
    /// The last stage in which it is read, and the reading step.
    read: Option<(u32, usize)>,
}

impl LastAccess {
    fn note(&mut self, writes: bool, stage: u32, step: usize) {
        let place = if writes { &mut self.written } else { &mut self.read };
        if place.is_none_or(|(known, _)| known <= stage) {
            *place = Some((stage, step));
        }
    }

    /// The first stage for such an access, and the step that it depends on.
    fn first_stage(&self, writes: bool) -> Option<(u32, usize)> {
        // A register keeps its value until the end of the stage, so a write may share a stage with an earlier read.
        if writes { self.written.max(self.read) } else { self.written }
    }
}

#[derive(Debug, Default)]
struct RegionHistory {
    bytes: BTreeMap<i64, LastAccess>,
    /// Accesses to unknown bytes.
    anywhere: LastAccess,
    all: LastAccess,
}

/// Accesses of a block so far, with their stages.
#[derive(Debug, Default)]
pub(super) struct History {
    regions: BTreeMap<Region, RegionHistory>,
}

/// A dependence on an earlier step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dependence {
    /// The earlier step, as an index into [`super::Schedule::steps`].
    pub step: usize,
    /// The region that both access.
    pub region: Region,
}

impl History {
    /// The first stage in which these accesses may happen, and the dependence that fixes it.
    pub(super) fn first_stage(&self, accesses: &[Access]) -> (u32, Option<Dependence>) {
        let mut first = (0, None);
        for access in accesses {
            let Some(history) = self.regions.get(&access.region) else { continue };
            let mut consider = |last: &LastAccess| {
                if let Some((stage, step)) = last.first_stage(access.writes)
                    && stage > first.0
                {
                    first = (stage, Some(Dependence { step, region: access.region }));
                }
            };
            match access.bytes {
                None => consider(&history.all),
                Some((begin, end)) => {
                    consider(&history.anywhere);
                    history.bytes.range(begin..end.max(begin)).for_each(|(_, last)| consider(last));
                }
            }
        }
        first
    }

    /// Records a step that reads in `stage`, and whose writes are readable from `done` on.
    pub(super) fn note(&mut self, accesses: &[Access], stage: u32, done: u32, step: usize) {
        for access in accesses {
            let history = self.regions.entry(access.region).or_default();
            let stage = if access.writes { done } else { stage };
            history.all.note(access.writes, stage, step);
            match access.bytes {
                None => history.anywhere.note(access.writes, stage, step),
                Some((begin, end)) => {
                    (begin..end).for_each(|at| history.bytes.entry(at).or_default().note(access.writes, stage, step));
                }
            }
        }
    }
}
