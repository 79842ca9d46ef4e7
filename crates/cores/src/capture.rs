// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets of a capture that are only counted: of what a core writes, another one reads a byte for each packet.
//!
//! ```text
//!  turn   core 0                              core 1
//!    1                 the cores of the packets of part 1
//!    2    runs its packets of part 1          runs its packets of part 1
//!                      the cores of the packets of part 2
//!    3    runs its packets of part 2          ...
//! ```
//!
//! A line of the cache that one core has written takes 100 to 140 ns to the other one, longer than a packet runs. So
//! each core copies its packets from the capture, which no core writes, into memory of its own. There is one meeting a
//! part. The keys of the next part are hashed in chunks, each by the core that is free first: so a core whose packets
//! take longer hashes fewer.

use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};

use flowloom_engine::{Arrival, Draws, PacketError, Tally};
use flowloom_jit::prefetch;

use crate::engine::{Core, Cores};
use crate::spread::Spread;

/// The most packets of a turn, a power of 2: so many that meetings cost little, and cores get equal shares.
const PART: usize = 1 << 14;
/// The packets that a core takes at once to find their cores.
const CHUNK: usize = 512;
/// The packets that are prefetched while their cores are found.
const AHEAD: usize = 48;
/// The most cores: a byte has the number of one.
pub(crate) const MOST_CORES: usize = 256;

/// Finds the cores of packets.
fn spread(rule: &Spread, packets: &[Arrival<'_>], cores: usize, values: &mut Vec<u64>, found: &mut [u8]) {
    packets.iter().take(2 * AHEAD).for_each(|packet| prefetch(packet));
    packets.iter().take(AHEAD).for_each(|packet| prefetch(packet.bytes.as_ptr()));
    let mut found = found.iter_mut();
    rule.each(packets, cores, values, |number, core| {
        if let Some(next) = packets.get(number + AHEAD) {
            prefetch(next.bytes.as_ptr());
        }
        // Beyond the end, this is the chunk of another core, or nothing.
        prefetch(packets.as_ptr().wrapping_add(number + 2 * AHEAD));
        if let Some(found) = found.next() {
            *found = core as u8;
        }
    });
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
    fn list(&mut self, core: u8, owners: &[u8], first: usize) -> &[u32] {
        let (mut count, mut number) = (0, first as u32);
        let (eights, rest) = owners[..owners.len().min(PART)].as_chunks::<8>();
        let mut add = |owner: u8| {
            self.numbers[count % PART] = number;
            count += usize::from(owner == core);
            number += 1;
        };
        eights.iter().for_each(|eight| eight.iter().copied().for_each(&mut add));
        rest.iter().copied().for_each(add);
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
        // By packet from `next` up to `spread_to`, its core.
        let mut owners = std::mem::take(&mut self.owners);
        owners.clear();
        let (mut next, mut spread_to) = (0, 0);
        let mut result = Ok(());
        while next < packets.len() && result.is_ok() {
            let len = self.part(PART).min(spread_to - next);
            if let Err(source) = self.keep_room(len) {
                result = Err(PacketError { packet: next, source });
                break;
            }
            if self.joined.is_some() {
                let core = &mut self.cores[0];
                core.count(packets.len() - next);
                let ran = core.engine.datapath().tally(&packets[next..], draws.from(next), tally);
                result = ran.map_err(|error| PacketError { packet: next + error.packet, ..error });
                break;
            }
            let turn = next..next + len;
            let end = (turn.end + PART).min(packets.len()).max(spread_to);
            let unspread = &packets[spread_to..end];
            let known = owners.len();
            owners.resize(known + unspread.len(), 0);
            let (known, new) = owners.split_at_mut(known);
            let known = &known[..len];
            let work = Mutex::new(unspread.chunks(CHUNK).zip(new.chunks_mut(CHUNK)));
            let rule = &self.split.spread;
            let turns = self.cores.iter_mut().map(|core| Turn { core, tally: Tally::default(), result: Ok(()) });
            let mut turns: Vec<Turn<'_>> = turns.collect();
            self.crew.each(is_parallel, &mut turns, |number, Turn { core, tally, result }| {
                let own = core.own.list(number as u8, known, turn.start);
                core.packets.fetch_add(own.len() as u64, Ordering::Relaxed);
                *result = core.engine.tally_own(packets, own, draws, tally);
                loop {
                    let chunk = work.lock().unwrap_or_else(PoisonError::into_inner).next();
                    let Some((packets, found)) = chunk else { break };
                    spread(rule, packets, count, &mut core.values, found);
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
            owners.drain(..len);
            (next, spread_to) = (turn.end, end);
        }
        self.owners = owners;
        result
    }
}
