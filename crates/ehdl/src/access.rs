//! What instructions read and write: registers, and bytes of each memory.

use std::collections::BTreeMap;
use std::fmt;

use flowloom_verifier::MapId;

/// Something with bytes of its own: what lies in two of them is never the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Region {
    /// A register; of those that a call keeps, each function has its own.
    Register {
        /// How many calls deep, 0 for `r0` to `r5`.
        depth: u8,
        /// Its number.
        number: u8,
    },
    /// The stack of the function so many calls deep; offsets from its end.
    Stack {
        /// How many calls deep.
        depth: u8,
    },
    /// The packet; offsets from its first byte as it came.
    Packet,
    /// What lies before the packet.
    Metadata,
    /// `struct xdp_md`.
    Context,
    /// The values of a map; offsets from their starts.
    Value(MapId),
    /// Which keys a map has, and where their values are.
    Keys(MapId),
    /// A record for user space.
    Record,
    /// What the world sees of the program besides: where the packet goes, what is told to user space.
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

/// Bytes of a region that are read or written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Access {
    /// Where.
    pub region: Region,
    /// The first byte and the one behind the last; all that there are where it is not known which.
    pub bytes: Option<(i64, i64)>,
    /// Whether they are written.
    pub writes: bool,
}

/// Of more bytes than these it is not said which they are: a value may have millions.
const MAX_BYTES: i64 = 4096;

impl Access {
    pub(super) fn read(region: Region, bytes: Option<(i64, i64)>) -> Access {
        Access { region, bytes: bytes.filter(|(first, end)| end - first <= MAX_BYTES), writes: false }
    }

    pub(super) fn write(region: Region, bytes: Option<(i64, i64)>) -> Access {
        Access { writes: true, ..Access::read(region, bytes) }
    }
}

/// When something was last read and written, and by which step.
#[derive(Debug, Clone, Copy, Default)]
struct Last {
    /// The first stage in which it can be read, and who wrote it.
    written: Option<(u32, usize)>,
    /// The last stage in which it was read, and by whom.
    read: Option<(u32, usize)>,
}

impl Last {
    fn note(&mut self, writes: bool, stage: u32, step: usize) {
        let place = if writes { &mut self.written } else { &mut self.read };
        if place.is_none_or(|(known, _)| known <= stage) {
            *place = Some((stage, step));
        }
    }

    /// The first stage for such an access, and whom it follows.
    fn first_stage(&self, writes: bool) -> Option<(u32, usize)> {
        // A register keeps its value until the end of the stage, so that who overwrites it may stand beside who reads it.
        if writes { self.written.max(self.read) } else { self.written }
    }
}

#[derive(Debug, Default)]
struct Seen {
    bytes: BTreeMap<i64, Last>,
    /// Accesses of which it is not known where.
    anywhere: Last,
    /// All of them.
    all: Last,
}

/// The accesses of a block so far, with the stages in which they happen.
#[derive(Debug, Default)]
pub(super) struct History {
    regions: BTreeMap<Region, Seen>,
}

/// Whom a step follows, and because of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct After {
    /// The step, by its place in [`super::Schedule::steps`].
    pub step: usize,
    /// What both of them touch.
    pub region: Region,
}

impl History {
    /// The first stage in which these accesses may happen, and whom they follow.
    pub(super) fn first_stage(&self, accesses: &[Access]) -> (u32, Option<After>) {
        let mut first = (0, None);
        for access in accesses {
            let Some(seen) = self.regions.get(&access.region) else { continue };
            let mut consider = |last: &Last| {
                if let Some((stage, step)) = last.first_stage(access.writes)
                    && stage > first.0
                {
                    first = (stage, Some(After { step, region: access.region }));
                }
            };
            match access.bytes {
                None => consider(&seen.all),
                Some((begin, end)) => {
                    consider(&seen.anywhere);
                    seen.bytes.range(begin..end.max(begin)).for_each(|(_, last)| consider(last));
                }
            }
        }
        first
    }

    /// A step reads in `stage`; what it writes can be read from `done` on.
    pub(super) fn note(&mut self, accesses: &[Access], stage: u32, done: u32, step: usize) {
        for access in accesses {
            let seen = self.regions.entry(access.region).or_default();
            let stage = if access.writes { done } else { stage };
            seen.all.note(access.writes, stage, step);
            match access.bytes {
                None => seen.anywhere.note(access.writes, stage, step),
                Some((begin, end)) => {
                    (begin..end).for_each(|at| seen.bytes.entry(at).or_default().note(access.writes, stage, step));
                }
            }
        }
    }
}
