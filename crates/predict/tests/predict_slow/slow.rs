// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same pipeline in the plainest way: a cell for each stage, every cycle, every packet looked at. Written from the
//! descriptions of the schemes, not from the model.

use flowloom_plan::{Arbiter, Scheme, Timing};
use flowloom_predict::Arrival;

use super::parts::{Buffer, Found, Packet, WORD_BYTES, Wait, longer, queue_of, words};

pub(crate) struct Slow<'a> {
    timing: &'a Timing,
    /// The first cells stand behind the input.
    buffers: Vec<Buffer>,
    input: Vec<Packet>,
    input_words: u64,
    output_words: u64,
    /// Words of the packet that is entering which are not inside yet, and words that wait for the output.
    entering: u64,
    leaving: u64,
    /// Keys on the scoreboard of each map, with the packet that has each.
    busy: Vec<Vec<(u64, usize)>>,
    found: Found,
}

impl<'a> Slow<'a> {
    pub(crate) fn new(timing: &'a Timing, input_bytes: u32, output_bytes: u32) -> Slow<'a> {
        let buffer = |stage: u32, wait: Wait, depth: u32| {
            let stage = u64::from(stage);
            Buffer {
                stage,
                wait,
                depth: depth as usize,
                longest: Vec::new(),
                cells: Vec::new(),
                is_stalled: false,
                stalled_cycles: 0,
            }
        };
        let elastic = || Wait::Elastic { waiting: Vec::new(), again: 0, reload_until: 0 };
        // The input is told by its place.
        let mut buffers = vec![buffer(0, elastic(), 0)];
        for stage in 0..timing.stages {
            for (map, own) in timing.maps.iter().enumerate() {
                if own.scheme == Scheme::Schedule && own.read_stage == stage {
                    let queues = vec![Vec::new(); own.queues as usize + 1];
                    buffers.push(buffer(stage, Wait::Queues { map, queues, turn: 0, arrivals: 0 }, own.queue_depth));
                }
            }
            let flushed = timing.maps.iter().filter(|map| map.scheme == Scheme::Flush && map.restart_stage == stage);
            if let Some(depth) = flushed.map(|map| map.queue_depth).min() {
                buffers.push(buffer(stage, elastic(), depth));
            }
        }
        // Who waits for what shows behind the last stage is still in the pipeline.
        let visible = timing.maps.iter().filter_map(|map| match map.scheme {
            Scheme::Schedule => Some(map.read_stage + map.hold_cycles),
            Scheme::Flush => Some(map.commit_stage() + 1),
            Scheme::None | Scheme::Atomic => None,
        });
        let end = visible.max().unwrap_or(0).max(timing.stages);
        for number in 0..buffers.len() {
            let to = buffers.get(number + 1).map_or(u64::from(end), |buffer| buffer.stage);
            let len = (to - buffers[number].stage) as usize;
            buffers[number].cells = vec![None; len + 1];
        }
        let maps = timing.maps.len();
        Slow {
            timing,
            buffers,
            input: Vec::new(),
            input_words: u64::from(input_bytes) / WORD_BYTES,
            output_words: u64::from(output_bytes) / WORD_BYTES,
            entering: 0,
            leaving: 0,
            busy: vec![Vec::new(); maps],
            found: Found {
                flushes: vec![0; maps],
                replayed: vec![0; maps],
                overtakings: vec![0; maps],
                ..Found::default()
            },
        }
    }

    /// Packets with the cycles that they come in; none where they come when they can be taken.
    pub(crate) fn run(mut self, packets: Vec<(Option<u64>, Arrival)>) -> Found {
        let all = packets.len();
        let mut packets = packets.into_iter().enumerate().peekable();
        let (mut first, mut last) = (None, 0);
        let mut now = 0;
        while self.found.lost as usize + self.found.latencies.len() < all {
            self.free_keys();
            while let Some((index, (at, arrival))) = packets.next_if(|(_, (at, _))| match at {
                Some(at) => *at <= now,
                None => self.input.is_empty() && self.entering == 0,
            }) {
                self.arrive(index, at.unwrap_or(now), arrival);
            }
            for number in (0..self.buffers.len()).rev() {
                self.advance(number, now, (&mut first, &mut last));
            }
            let is_held = !self.issue_all(now);
            self.commit_all(now);
            self.found.stalled += u64::from(is_held);
            for buffer in &mut self.buffers {
                if buffer.is_stalled {
                    buffer.stalled_cycles += 1;
                } else {
                    buffer.cells.rotate_right(1);
                }
            }
            self.entering = self.entering.saturating_sub(1);
            self.leaving = self.leaving.saturating_sub(1);
            now += 1;
        }
        self.found.cycles = last - first.unwrap_or(0);
        for (map, own) in self.timing.maps.iter().enumerate() {
            let place = self.buffers.iter().skip(1).position(|buffer| match &buffer.wait {
                Wait::Queues { map: other, .. } => *other == map,
                Wait::Elastic { .. } => own.scheme == Scheme::Flush && buffer.stage == u64::from(own.restart_stage),
            });
            self.found.stalled_cycles.push(place.map_or(0, |place| self.buffers[place].stalled_cycles));
            self.found.longest.push(place.map_or(Vec::new(), |place| self.buffers[place + 1].longest.clone()));
        }
        self.found
    }

    /// Keys of packets that are `hold_cycles` stages behind the read.
    fn free_keys(&mut self) {
        for buffer in &mut self.buffers {
            for (cell, packet) in (buffer.stage..).zip(&mut buffer.cells) {
                let Some(packet) = packet else { continue };
                for (map, own) in self.timing.maps.iter().enumerate() {
                    let free_at = u64::from(own.read_stage + own.hold_cycles);
                    if own.scheme == Scheme::Schedule && cell >= free_at && !packet.released[map] {
                        packet.released[map] = true;
                        self.busy[map].retain(|(_, index)| *index != packet.index);
                    }
                }
            }
        }
    }

    fn arrive(&mut self, index: usize, arrivals: u64, arrival: Arrival) {
        let waiting: u64 = self.input.iter().map(|packet| words(packet.arrival.len_bytes).max(1)).sum();
        let filled = waiting + self.entering + words(arrival.len_bytes).max(1);
        if filled > self.input_words {
            self.found.lost += 1;
            return;
        }
        self.found.input_words = self.found.input_words.max(filled);
        let maps = self.timing.maps.len();
        let (released, written) = (vec![false; maps], vec![false; maps]);
        self.input.push(Packet { index, arrivals, arrival, released, written, order: 0 });
    }

    /// What stands behind the last stage goes on.
    fn advance(&mut self, number: usize, now: u64, (first, last): (&mut Option<u64>, &mut u64)) {
        let buffer = &mut self.buffers[number];
        buffer.is_stalled = false;
        let Some(packet) = buffer.cells.last_mut().and_then(Option::take) else { return };
        if number + 1 < self.buffers.len() {
            if let Some(packet) = self.enter(number + 1, packet) {
                let buffer = &mut self.buffers[number];
                *buffer.cells.last_mut().unwrap() = Some(packet);
                buffer.is_stalled = true;
            }
            return;
        }
        let buffer = &mut self.buffers[number];
        let words = words(packet.arrival.leaving_bytes);
        if words > 0 && self.leaving > 0 && self.leaving + words > self.output_words {
            *buffer.cells.last_mut().unwrap() = Some(packet);
            buffer.is_stalled = true;
            return;
        }
        let mut first_word = now;
        if words > 0 {
            first_word += self.leaving;
            self.leaving += words;
            self.found.output_words = self.found.output_words.max(self.leaving);
        } else {
            self.found.dropped += 1;
        }
        first.get_or_insert(first_word);
        *last = (*last).max(first_word + words.max(1));
        let inside: usize = self.buffers.iter().map(|buffer| buffer.cells.len() - 1).sum();
        let around = u64::from(self.timing.latency_cycles) - inside as u64;
        self.found.latencies.push(first_word + around - packet.arrivals);
    }

    /// A packet comes to a place; it is given back where there is no room.
    fn enter(&mut self, number: usize, mut packet: Packet) -> Option<Packet> {
        let buffer = &mut self.buffers[number];
        let mut lens: Vec<u64> = Vec::new();
        match &mut buffer.wait {
            Wait::Queues { map, queues, arrivals, .. } => {
                let last = queues.len() - 1;
                let queue = packet.key(*map).map_or(last, |key| queue_of(key, last));
                if queues[queue].len() == buffer.depth {
                    return Some(packet);
                }
                packet.order = *arrivals;
                *arrivals += 1;
                queues[queue].push(packet);
                lens.extend(queues.iter().map(|queue| queue.len() as u64));
            }
            Wait::Elastic { waiting, again, .. } => {
                if waiting.len() - *again == buffer.depth {
                    return Some(packet);
                }
                waiting.push(packet);
                lens.push(waiting.len() as u64);
            }
        }
        longer(&mut buffer.longest, &lens);
        None
    }

    /// Each place lets a packet in; whether the input had not to wait.
    fn issue_all(&mut self, now: u64) -> bool {
        let mut is_free = true;
        for number in 0..self.buffers.len() {
            if number == 0 {
                is_free = self.issue_input();
                continue;
            }
            if self.buffers[number].is_stalled {
                continue;
            }
            let Some(packet) = self.take(number, now) else { continue };
            assert!(self.put(number, packet).is_none(), "there was room");
        }
        is_free
    }

    fn issue_input(&mut self) -> bool {
        if self.input.is_empty() || self.entering > 0 {
            return true;
        }
        if self.buffers[0].is_stalled {
            return false;
        }
        let packet = self.input.remove(0);
        let words = words(packet.arrival.len_bytes).max(1);
        match self.put(0, packet) {
            None => {
                self.entering = words;
                true
            }
            Some(packet) => {
                self.input.insert(0, packet);
                false
            }
        }
    }

    /// Into the first cell behind a place, or right into the next place where no stage is between.
    fn put(&mut self, number: usize, packet: Packet) -> Option<Packet> {
        if self.buffers[number].cells.len() == 1 && number + 1 < self.buffers.len() {
            return self.enter(number + 1, packet);
        }
        let cell = &mut self.buffers[number].cells[0];
        assert!(cell.is_none(), "two packets in one stage");
        *cell = Some(packet);
        None
    }

    /// Whether the way from a place is free for a packet: where no stage is between, the next place has to have room.
    fn is_free(&self, number: usize, packet: &Packet) -> bool {
        let Some(next) = self.buffers.get(number + 1).filter(|_| self.buffers[number].cells.len() == 1) else {
            return true;
        };
        match &next.wait {
            Wait::Queues { map, queues, .. } => {
                let last = queues.len() - 1;
                queues[packet.key(*map).map_or(last, |key| queue_of(key, last))].len() < next.depth
            }
            Wait::Elastic { waiting, again, .. } => waiting.len() - again < next.depth,
        }
    }

    /// The packet whose turn it is, where its way is free.
    fn take(&mut self, number: usize, now: u64) -> Option<Packet> {
        let queue = match &self.buffers[number].wait {
            Wait::Queues { map, queues, turn, .. } => {
                let is_busy = |key: u64| self.busy[*map].iter().any(|(busy, _)| *busy == key);
                let may = |queue: &usize| {
                    let first: Option<&Packet> = queues[*queue].first();
                    first.is_some_and(|packet| packet.key(*map).is_none_or(|key| !is_busy(key)))
                };
                let all: Vec<usize> = (0..queues.len()).filter(may).collect();
                match self.timing.arbiter {
                    Arbiter::Oldest => all.into_iter().min_by_key(|queue| queues[*queue][0].order),
                    Arbiter::Turns => all.iter().copied().find(|queue| queue >= turn).or(all.first().copied()),
                }
                .filter(|queue| self.is_free(number, &queues[*queue][0]))?
            }
            Wait::Elastic { waiting, reload_until, .. } => {
                let first = waiting.first()?;
                if *reload_until > now || !self.is_free(number, first) {
                    return None;
                }
                0
            }
        };
        match &mut self.buffers[number].wait {
            Wait::Queues { map, queues, turn, .. } => {
                let packet = queues[queue].remove(0);
                let is_older = queues.iter().flatten().any(|other| other.order < packet.order);
                self.found.overtakings[*map] += u64::from(is_older);
                *turn = if queue + 1 == queues.len() { 0 } else { queue + 1 };
                if let Some(key) = packet.key(*map) {
                    self.busy[*map].push((key, packet.index));
                }
                Some(packet)
            }
            Wait::Elastic { waiting, again, .. } => {
                *again = again.saturating_sub(1);
                Some(waiting.remove(0))
            }
        }
    }

    fn commit_all(&mut self, now: u64) {
        // Writes further on come first.
        let mut order: Vec<usize> = (0..self.timing.maps.len()).collect();
        order.sort_by_key(|map| std::cmp::Reverse(self.timing.maps[*map].commit_stage()));
        for map in order {
            let own = &self.timing.maps[map];
            if own.scheme != Scheme::Flush {
                continue;
            }
            let is_own = |buffer: &Buffer| {
                matches!(buffer.wait, Wait::Elastic { .. }) && buffer.stage == u64::from(own.restart_stage)
            };
            let number = self.buffers.iter().skip(1).position(is_own).unwrap() + 1;
            let buffer = &mut self.buffers[number];
            let at = (own.commit_stage() - own.restart_stage) as usize;
            let Some(writer) = &mut buffer.cells[at] else { continue };
            if std::mem::replace(&mut writer.written[map], true) || writer.arrival.writes >> map & 1 == 0 {
                continue;
            }
            let Some(key) = writer.key(map) else { continue };
            let read = (own.read_stage - own.restart_stage) as usize;
            let is_early =
                |cell: &usize| buffer.cells[*cell].as_ref().is_some_and(|packet| packet.key(map) == Some(key));
            let Some(foremost) = (read..at).rev().find(is_early) else { continue };
            self.found.flushes[map] += 1;
            for cell in 0..=foremost {
                let Some(mut packet) = buffer.cells[cell].take() else { continue };
                packet.written.fill(false);
                self.found.replayed[map] += 1;
                let Wait::Elastic { waiting, again, reload_until } = &mut buffer.wait else { unreachable!() };
                // From the youngest packet to the oldest, which ends up in front.
                waiting.insert(0, packet);
                *again += 1;
                *reload_until = now + 1 + u64::from(self.timing.reload_cycles);
                longer(&mut buffer.longest, &[waiting.len() as u64]);
            }
        }
    }
}
