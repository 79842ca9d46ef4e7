// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The places where packets wait, and the pipes between them, each of which stalls as a whole.
//!
//! ```text
//!  input ══pipe══► scheduler of a map ══pipe══► elastic buffer ══pipe══► output
//!  stage 0         its read stage               its restart stage        after the last stage
//! ```

use super::error::PredictError;
use flowloom_plan::{MapTiming, Scheme, Timing};

const MAX_CLOCK_MHZ: f64 = 100_000.0;
const MAX_CYCLES: u32 = 1 << 20;
const MAX_MAPS: usize = 64;
/// Queues are bits of a word, and packets without a key have one of their own.
const MAX_QUEUES: u32 = 63;
const MAX_DEPTH: u32 = 1 << 20;

/// The kinds of places where packets wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Input,
    /// The scheduler of this map.
    Scheduler(usize),
    /// The elastic buffer before flushed maps.
    Elastic,
}

/// An event in the passage of a packet through a pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EventKind {
    /// The scheduler at this place may release the next packet with its key.
    Release(usize),
    /// Its write to this map conflicts with the packets that have passed the read.
    Commit {
        map: usize,
        /// Cycles from the restart to the read.
        read_offset: u64,
    },
}

/// An event, and its time in cycles since the packet entered the pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) offset: u64,
    pub(super) what: EventKind,
}

/// A place where packets wait, and the pipe after it; the last pipe leads to the output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) kind: Kind,
    /// The stage before which it is.
    pub(super) stage: u32,
    /// The depth of each queue, or of the buffer, in packets.
    pub(super) depth: u32,
    /// The length of the pipe after it in cycles.
    pub(super) pipe_cycles: u64,
    /// For a scheduler, how long a packet in the pipe holds its key; none if the hold extends past the pipe, until its
    /// release.
    pub(super) hold_cycles: Option<u64>,
    /// The events in the pipe: releases, and commits from the last stage to the first.
    pub(super) events: Vec<Event>,
}

/// The places of a pipeline in the order of their stages.
pub(super) fn places(timing: &Timing) -> Result<Vec<Place>, PredictError> {
    check(timing)?;
    let mut places = vec![place(Kind::Input, 0, 0)];
    for (number, map) in timing.maps.iter().enumerate() {
        match map.scheme {
            Scheme::Schedule => places.push(place(Kind::Scheduler(number), map.read_stage, map.queue_depth)),
            Scheme::Flush => {
                match places.iter_mut().find(|p| p.kind == Kind::Elastic && p.stage == map.restart_stage) {
                    Some(known) => known.depth = known.depth.min(map.queue_depth),
                    None => places.push(place(Kind::Elastic, map.restart_stage, map.queue_depth)),
                }
            }
            Scheme::None | Scheme::Atomic => {}
        }
    }
    // A scheduler comes before the elastic buffer of its stage: a flush region contains no queues.
    places.sort_by_key(|place| (place.stage, place.kind == Kind::Elastic));
    let ends: Vec<u32> = places.iter().skip(1).map(|place| place.stage).chain([timing.stages]).collect();
    for (place, end) in places.iter_mut().zip(&ends) {
        place.pipe_cycles = u64::from(end - place.stage);
    }
    for (number, map) in timing.maps.iter().enumerate() {
        match map.scheme {
            Scheme::Schedule => release(&mut places, number, timing)?,
            Scheme::Flush => commit(&mut places, number, map)?,
            Scheme::None | Scheme::Atomic => {}
        }
    }
    for place in &mut places {
        place
            .events
            .sort_by_key(|event| (matches!(event.what, EventKind::Commit { .. }), std::cmp::Reverse(event.offset)));
    }
    Ok(places)
}

fn place(kind: Kind, stage: u32, depth: u32) -> Place {
    Place { kind, stage, depth, pipe_cycles: 0, hold_cycles: None, events: Vec::new() }
}

/// The key of a packet is released `hold_cycles` after the scheduler, in whichever pipe that is.
fn release(places: &mut [Place], number: usize, timing: &Timing) -> Result<(), PredictError> {
    let map = &timing.maps[number];
    let Some(from) = places.iter().position(|place| place.kind == Kind::Scheduler(number)) else { return Ok(()) };
    let at = map.read_stage + map.hold_cycles;
    let is_within = |other: &&MapTiming| other.restart_stage < at && at <= other.commit_stage();
    if let Some(other) = timing.maps.iter().filter(|other| other.scheme == Scheme::Flush).find(is_within) {
        return Err(PredictError::Repeated {
            map: map.name.clone(),
            flushed: other.name.clone(),
            first: other.restart_stage,
            last: other.commit_stage(),
        });
    }
    let at_most = places.iter().rposition(|place| place.stage < at).unwrap_or(from).max(from);
    let place = &mut places[at_most];
    let offset = u64::from(at - place.stage);
    // After the last stage packets are realigned: the pipe counts as longer.
    place.pipe_cycles = place.pipe_cycles.max(offset);

    if at_most == from {
        place.hold_cycles = Some(offset);
    } else {
        place.events.push(Event { offset, what: EventKind::Release(from) });
    }
    Ok(())
}

fn commit(places: &mut [Place], number: usize, map: &MapTiming) -> Result<(), PredictError> {
    let (first, last) = (map.restart_stage, map.commit_stage());
    if let Some(inside) = places.iter().find(|place| first < place.stage && place.stage <= last) {
        return Err(PredictError::Region { map: map.name.clone(), stage: inside.stage, first, last });
    }
    let own = places.iter_mut().find(|place| place.kind == Kind::Elastic && place.stage == first);
    if let Some(place) = own {
        let (read_offset, cycles) = (u64::from(map.read_stage - first), u64::from(last + 1 - first));
        // The time until an entry becomes visible after the last stage counts as a longer pipe.
        place.pipe_cycles = place.pipe_cycles.max(cycles);
        let what = EventKind::Commit { map: number, read_offset };
        place.events.push(Event { offset: u64::from(last - first), what });
    }
    Ok(())
}

fn check(timing: &Timing) -> Result<(), PredictError> {
    let clock = timing.clock_mhz;
    if !(clock > 0.0 && clock <= MAX_CLOCK_MHZ) {
        return Err(PredictError::Clock { found: clock, most: MAX_CLOCK_MHZ });
    }
    let cycles = [
        ("stages", timing.stages, 1, MAX_CYCLES),
        ("latency_cycles", timing.latency_cycles, timing.stages, MAX_CYCLES),
        ("reload_cycles", timing.reload_cycles, 0, MAX_CYCLES),
    ];
    for (what, found, least, most) in cycles {
        if !(least..=most).contains(&found) {
            return Err(PredictError::Cycles { what, found, least, most });
        }
    }
    if timing.maps.len() > MAX_MAPS {
        return Err(PredictError::Maps { found: timing.maps.len(), most: MAX_MAPS });
    }
    let last = timing.stages - 1;
    for map in &timing.maps {
        let mut numbers =
            vec![("read_stage", map.read_stage, 0, last), ("write_stage", map.write_stage, map.read_stage, last)];
        match map.scheme {
            Scheme::Schedule => numbers.extend([
                ("hold_cycles", map.hold_cycles, 1, timing.latency_cycles - map.read_stage.min(last)),
                ("queues", map.queues, 1, MAX_QUEUES),
                ("queue_depth", map.queue_depth, 1, MAX_DEPTH),
            ]),
            Scheme::Flush => numbers.extend([
                ("restart_stage", map.restart_stage, 0, map.read_stage),
                ("hold_cycles", map.hold_cycles, 1, timing.latency_cycles - map.read_stage.min(last)),
                ("queue_depth", map.queue_depth, 1, MAX_DEPTH),
            ]),
            Scheme::None | Scheme::Atomic => {}
        }
        for (what, found, least, most) in numbers {
            if !(least..=most).contains(&found) {
                return Err(PredictError::Map { map: map.name.clone(), what, found, least, most });
            }
        }
    }
    Ok(())
}
