// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets of a capture that are only counted: of what a core writes, another one reads a byte for each packet.
//!
//! ```text
//!  core 0   cores of part 1 │ runs its packets of 1      │ cores of part 2 │ runs its packets of 2 │ ...
//!  core 1   cores of part 1 │ runs its packets of 1 │ cores of part 2      │ runs its packets of 2      │ ...
//! ```
//!
//! A line of the cache that one core has written takes 100 to 140 ns to the other one, longer than a packet runs. So
//! each core copies its packets from the capture, which no core writes, into memory of its own.
//!
//! A core runs its packets of a part as soon as the cores of all packets of that part are known. Until then it helps to
//! find them, a chunk at a time: so a core whose packets take longer hashes fewer. Cores meet only at the end of a turn,
//! which has many parts where the tables have room: at a barrier, all wait for the slowest one.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};

use flowloom_engine::{Arrival, Draws, PacketError, Tally};
use flowloom_jit::prefetch;

use crate::crew::Wait;
use crate::engine::{Core, Cores};
use crate::spread::Spread;

/// The packets of a part, a power of 2.
const PART: usize = 1 << 14;
/// The packets that a core takes at once to find their cores.
const CHUNK: usize = 512;
/// The most packets of a turn, and of those whose cores are found meanwhile.
const WINDOW: usize = 16 * PART;

// A chunk belongs to one part.
const _: () = assert!(PART.is_multiple_of(CHUNK));
/// The packets that are prefetched while their cores are found.
const AHEAD: usize = 48;
/// The most cores: a byte has the number of one.
pub(crate) const MOST_CORES: usize = 256;

/// Finds the cores of packets.
fn spread(rule: &Spread, packets: &[Arrival<'_>], cores: usize, values: &mut Vec<u64>, found: &[AtomicU8]) {
    packets.iter().take(2 * AHEAD).for_each(|packet| prefetch(packet));
    packets.iter().take(AHEAD).for_each(|packet| prefetch(packet.bytes.as_ptr()));
    let mut found = found.iter();
    rule.each(packets, cores, values, |number, core| {
        if let Some(next) = packets.get(number + AHEAD) {
            prefetch(next.bytes.as_ptr());
        }
        // Beyond the end, this is the chunk of another core, or nothing.
        prefetch(packets.as_ptr().wrapping_add(number + 2 * AHEAD));
        if let Some(found) = found.next() {
            found.store(core as u8, Ordering::Relaxed);
        }
    });
}

/// The cores of the packets of a window, which all cores find together.
struct Owners<'o> {
    /// By packet, its core, once its part is known.
    cores: &'o [AtomicU8],
    /// The number of the next chunk to find.
    next: Count,
    /// By part, the chunks that have been found.
    found: Vec<Count>,
    /// True if a core has panicked: there may be chunks that are never found.
    is_abandoned: AtomicBool,
}

/// A number of chunks, on lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Count(AtomicUsize);

impl<'o> Owners<'o> {
    fn new(cores: &'o [AtomicU8]) -> Owners<'o> {
        let found = (0..cores.len().div_ceil(PART)).map(|_| Count::default()).collect();
        Owners { cores, next: Count::default(), found, is_abandoned: AtomicBool::new(false) }
    }

    /// The packets of each part that has some of these, in order.
    fn parts(&self, packets: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let all = self.cores.len();
        (packets.start / PART..packets.end.div_ceil(PART)).map(move |part| part * PART..all.min((part + 1) * PART))
    }

    /// The cores of the packets of a part. Finds them with the other cores first, by `find`, which gets the packets of a
    /// chunk; `None` if another core has panicked.
    fn of(&self, part: Range<usize>, mut find: impl FnMut(Range<usize>, &[AtomicU8])) -> Option<&'o [AtomicU8]> {
        let found = &self.found[part.start / PART].0;
        let mut wait = Wait::default();
        while found.load(Ordering::Acquire) < part.len().div_ceil(CHUNK) {
            match self.take_chunk() {
                Some(chunk) => {
                    let number = chunk.start / PART;
                    find(chunk.clone(), &self.cores[chunk]);
                    self.found[number].0.fetch_add(1, Ordering::Release);
                }
                None if self.is_abandoned.load(Ordering::Relaxed) => return None,
                // Other cores are at chunks of the part.
                None => _ = wait.pause(),
            }
        }
        Some(&self.cores[part])
    }

    /// Takes the next chunk to find; `None` if all have been taken.
    fn take_chunk(&self) -> Option<Range<usize>> {
        let all = self.cores.len();
        // A core that waits only reads the line, so that it stays in the caches of all.
        if CHUNK * self.next.0.load(Ordering::Relaxed) >= all {
            return None;
        }
        let first = CHUNK * self.next.0.fetch_add(1, Ordering::Relaxed);
        (first < all).then(|| first..all.min(first + CHUNK))
    }
}

/// Tells other cores of a panic.
struct Alarm<'o>(&'o AtomicBool);

impl Drop for Alarm<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

/// The numbers of the packets of a core, in order.
pub(crate) struct Own {
    numbers: Box<[u32; PART]>,
}

impl Default for Own {
    fn default() -> Own {
        Own { numbers: Box::new([0; PART]) }
    }
}

impl Own {
    /// Lists the packets of a core, by the cores of all from number `first` on. Without branches, which nothing could
    /// predict: a number is written before it is known whether it counts.
    fn list(&mut self, core: u8, owners: &[AtomicU8], first: usize) -> &[u32] {
        let (mut count, mut number) = (0, first as u32);
        let (eights, rest) = owners[..owners.len().min(PART)].as_chunks::<8>();
        let mut add = |owner: &AtomicU8| {
            self.numbers[count % PART] = number;
            count += usize::from(owner.load(Ordering::Relaxed) == core);
            number += 1;
        };
        eights.iter().for_each(|eight| eight.iter().for_each(&mut add));
        rest.iter().for_each(add);
        &self.numbers[..count]
    }
}

/// What a core does in a turn. On lines of its own.
#[repr(align(128))]
struct Turn<'c> {
    core: &'c mut Core,
    tally: Tally,
    result: Result<(), PacketError>,
}

impl Cores {
    /// As [`flowloom_engine::Datapath::tally`], for fewer than 2^32 packets.
    pub(crate) fn tally_part(
        &mut self,
        packets: &[Arrival<'_>],
        draws: Draws,
        tally: &mut Tally,
    ) -> Result<(), PacketError> {
        let is_parallel = packets.len() >= self.options.parallel_from;
        let count = self.cores.len();
        let mut room = std::mem::take(&mut self.owners);
        let mut next = 0;
        let mut result = Ok(());
        while next < packets.len() && result.is_ok() {
            let window = &packets[next..packets.len().min(next + WINDOW)];
            room.resize_with(room.len().max(window.len()), AtomicU8::default);
            let owners = Owners::new(&room[..window.len()]);
            let mut begun = 0;
            while begun < window.len() && result.is_ok() {
                let len = self.part(WINDOW).min(window.len() - begun);
                if let Err(source) = self.keep_room(len) {
                    result = Err(PacketError { packet: next + begun, source });
                    break;
                }
                if self.joined.is_some() {
                    let first = next + begun;
                    let core = &mut self.cores[0];
                    core.count(packets.len() - first);
                    let ran = core.engine.datapath().tally(&packets[first..], draws.from(first), tally);
                    self.owners = room;
                    return ran.map_err(|error| PacketError { packet: first + error.packet, ..error });
                }
                let turn = begun..begun + len;
                let rule = &self.split.spread;
                let turns = self.cores.iter_mut().map(|core| Turn { core, tally: Tally::default(), result: Ok(()) });
                let mut turns: Vec<Turn<'_>> = turns.collect();
                self.crew.each(is_parallel, &mut turns, |number, Turn { core, tally, result }| {
                    let _alarm = Alarm(&owners.is_abandoned);
                    let Core { engine, own, values, packets: ran, .. } = &mut **core;
                    let mut find =
                        |part| owners.of(part, |chunk, found| spread(rule, &window[chunk], count, values, found));
                    for part in owners.parts(turn.clone()) {
                        // After an error, the others still need the cores of all packets.
                        let Some(found) = find(part.clone()).filter(|_| result.is_ok()) else { continue };
                        let (first, end) = (turn.start.max(part.start), turn.end.min(part.end));
                        let own = own.list(number as u8, &found[first - part.start..end - part.start], next + first);
                        ran.fetch_add(own.len() as u64, Ordering::Relaxed);
                        *result = engine.tally_own(packets, own, draws, tally);
                    }
                    // Before the meeting, as a core that ends early has nothing else to do.
                    if turn.end < window.len() {
                        owners.parts(turn.end..turn.end + 1).for_each(|part| _ = find(part));
                    }
                });
                for turn in turns {
                    tally.merge(&turn.tally);
                    result = match (result, turn.result) {
                        (Err(first), Err(other)) if first.packet <= other.packet => Err(first),
                        (Err(first), Ok(())) => Err(first),
                        (_, own) => own,
                    };
                }
                begun = turn.end;
            }
            next += window.len();
        }
        self.owners = room;
        result
    }
}

#[cfg(test)]
mod tests;
