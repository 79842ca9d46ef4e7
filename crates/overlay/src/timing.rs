// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The cycles of packets in the machine: a model of `fl_efsm_machine` with one queue in each scheduler.
//!
//! ```text
//!  taken ─► start ─► window, parser, vector ─► elements: queue ─► grant ─► ... ─► rewriter ─► emitter ─► done
//!            │ one packet for each word in the window   │ hold of a flow, full tables           │ a word a cycle
//! ```
//!
//! What a packet does to contexts comes from the software model ([`Overlay::process_traced`]). The model is exact while
//! every new context finds a free place of its key, no sweep runs and the host accesses no context: otherwise the
//! engine of a table may hold a flow for some cycles more. [`Timing::stashed`] counts the contexts that found none.
//!
//! [`Overlay::process_traced`]: crate::Overlay::process_traced

use std::collections::VecDeque;

use crate::image::Image;
use crate::model::Access;
use crate::rtl::table_rows;

/// Bytes of a word of the streams.
const WORD_BYTES: usize = 64;
/// Words of the window.
const WINDOW_WORDS: usize = 2;
/// Packets in the machine at most, and those between the framer and the elements.
const IN_FLIGHT: usize = 128;
const BEFORE_ELEMENTS: usize = 32;
/// Cycles from the start of a packet to its last word in the window, less those words.
const TO_WINDOW: u64 = 1;
/// Cycles from the window to the elements.
const TO_ELEMENTS: u64 = 25;
/// Cycles of a stateless element.
const STATELESS: u64 = 3;
/// Cycles from the input of a stateful element to its scheduler, and from a grant to its output.
const TO_SCHEDULER: u64 = 2;
const FROM_GRANT: u64 = 6;
/// Cycles from a grant to the next one of the same flow.
const HOLD: u64 = 7;
/// Cycles from the elements to the emitter.
const TO_EMITTER: u64 = 18;
/// Packets on their way to a queue while it has no room.
const AHEAD: usize = 14;

/// A packet in the machine.
#[derive(Debug, Clone)]
pub struct Passage<'a> {
    /// The cycle in which its last word was taken at the input.
    pub taken_cycle: u64,
    /// Its length as received.
    pub len_bytes: usize,
    /// Its length as sent; none if it is dropped.
    pub sent_bytes: Option<usize>,
    /// Its accesses to context tables, in order.
    pub accesses: &'a [Access],
}

/// The cycles of a machine.
#[derive(Debug, Clone)]
pub struct Timing {
    elements: Vec<Element>,
    queue_depth: usize,
    /// The first cycle in which the framer may start another packet.
    free_cycle: u64,
    /// Cycles in which packets entered the elements, and in which the emitter took them, the latest last.
    entered: VecDeque<u64>,
    emitted: VecDeque<u64>,
    /// The cycle of the last verdict.
    done_cycle: u64,
    stashed: u64,
}

/// A stateful element.
#[derive(Debug, Clone, Default)]
struct Element {
    /// The cycles in which packets came to the queue and left it, of those that may still wait.
    waits: VecDeque<(u64, u64)>,
    /// Grants with a key: cycle and flow.
    grants: VecDeque<(u64, u16)>,
    /// The cycle of the last grant.
    last: Option<u64>,
    /// Changes of the number of contexts that the element does not know yet, and the number that it knows.
    changes: VecDeque<(u64, i64)>,
    stored: i64,
    /// The places of the banks, one bank after the other.
    places: Vec<Place>,
    size: i64,
    is_serial: bool,
}

/// A place of a context table.
#[derive(Debug, Clone, Default)]
struct Place {
    /// The key of the context.
    key: Option<Box<[u32]>>,
    /// The cycle of the last write.
    written_cycle: u64,
}

impl Timing {
    /// A machine with an image, whose tables are empty.
    ///
    /// # Panics
    /// If its schedulers have several queues.
    pub fn new(image: &Image) -> Timing {
        let parameters = &image.parameters;
        assert_eq!(parameters.queues, 1, "the model has one queue");
        let element = |number: u32| {
            let stage = image.stages.get(2 * number as usize + 1).and_then(Option::as_ref);
            let context = stage.and_then(|stage| stage.context.as_ref());
            Element {
                size: context.map_or(i64::from(u32::MAX), |context| context.size.into()),
                is_serial: context.is_some_and(|context| context.is_serial),
                places: vec![Place::default(); 4 * table_rows(parameters) as usize],
                ..Element::default()
            }
        };
        Timing {
            elements: (0..parameters.elements).map(element).collect(),
            queue_depth: parameters.queue_depth as usize,
            free_cycle: 0,
            entered: VecDeque::new(),
            emitted: VecDeque::new(),
            done_cycle: 0,
            stashed: 0,
        }
    }

    /// New contexts that found no free place of their keys.
    pub fn stashed(&self) -> u64 {
        self.stashed
    }

    /// The cycle of a packet's verdict. Packets are given in the order of arrival; nothing stalls the output.
    pub fn pass(&mut self, packet: &Passage<'_>) -> u64 {
        let words = |bytes: usize| bytes.div_ceil(WORD_BYTES);
        let in_window = words(packet.len_bytes).clamp(1, WINDOW_WORDS) as u64;
        let after = |cycles: &VecDeque<u64>, limit: usize| {
            cycles.len().checked_sub(limit).and_then(|at| cycles.get(at)).map_or(0, |cycle| cycle + 1)
        };
        let start = (packet.taken_cycle + 1)
            .max(self.free_cycle)
            .max(after(&self.emitted, IN_FLIGHT))
            .max(after(&self.entered, BEFORE_ELEMENTS));
        self.free_cycle = start + in_window;

        let mut enters = start + TO_WINDOW + in_window + TO_ELEMENTS;
        enters = enters.max(self.entered.back().map_or(0, |last| last + 1));
        while !self.elements.first().is_none_or(|first| first.has_room(enters, self.queue_depth)) {
            enters += 1;
        }
        remember(&mut self.entered, enters, BEFORE_ELEMENTS);

        let mut cycle = enters + STATELESS;
        for number in 0..self.elements.len() {
            let (before, after) = self.elements.split_at_mut(number + 1);
            let Some(element) = before.last_mut() else { break };
            let access = packet.accesses.iter().find(|access| usize::from(access.stage) == 2 * number + 1);
            let room = |cycle| after.first().is_none_or(|next| next.has_room(cycle, self.queue_depth));
            let (granted, is_stashed) = element.pass(cycle + TO_SCHEDULER, access, room);
            self.stashed += u64::from(is_stashed);
            cycle = granted + FROM_GRANT + STATELESS;
        }

        let emitted = (cycle + TO_EMITTER).max(self.done_cycle);
        remember(&mut self.emitted, emitted, IN_FLIGHT);
        let sent_words = packet.sent_bytes.map_or(0, words).max(1);
        self.done_cycle = emitted + sent_words as u64;
        self.done_cycle
    }
}

/// Appends a cycle, and keeps as many as are needed.
fn remember(cycles: &mut VecDeque<u64>, cycle: u64, limit: usize) {
    cycles.push_back(cycle);
    if cycles.len() > limit {
        cycles.pop_front();
    }
}

impl Element {
    /// Whether the queue has room in a cycle, for the packets that came to it before.
    fn has_room(&self, cycle: u64, queue_depth: usize) -> bool {
        let waiting = self.waits.iter().filter(|(came, left)| *came < cycle && cycle <= *left).count();
        waiting + AHEAD <= queue_depth
    }

    /// The cycle in which a packet that comes to the queue is granted, and whether its new context finds no place.
    fn pass(&mut self, came: u64, access: Option<&Access>, room: impl Fn(u64) -> bool) -> (u64, bool) {
        let mut granted = came.max(self.last.map_or(0, |last| last + 1));
        loop {
            if room(granted) && access.is_none_or(|access| self.is_free(granted, access)) {
                break;
            }
            granted += 1;
        }
        self.last = Some(granted);
        self.waits.push_back((came, granted));
        // A later packet asks for room when it enters the stateless element before.
        while self.waits.front().is_some_and(|(_, left)| left + STATELESS + TO_SCHEDULER < came) {
            self.waits.pop_front();
        }
        let Some(access) = access else { return (granted, false) };
        self.grants.push_back((granted, access.flow));
        while self.grants.front().is_some_and(|(cycle, _)| cycle + HOLD <= granted) {
            self.grants.pop_front();
        }
        (granted, self.write(granted, access))
    }

    /// Whether a packet with a key may be granted in a cycle.
    fn is_free(&mut self, cycle: u64, access: &Access) -> bool {
        while let Some((_, change)) = self.changes.front().copied().filter(|(known, _)| *known <= cycle) {
            self.stored += change;
            self.changes.pop_front();
        }
        let mut in_flight = self.grants.iter().filter(|(granted, _)| granted + HOLD > cycle);
        let is_alone = self.is_serial || self.stored + HOLD as i64 >= self.size;
        !in_flight.any(|(_, flow)| is_alone || *flow == access.flow)
    }

    /// The write-back of a packet; true if a new context finds no place.
    fn write(&mut self, granted: u64, access: &Access) -> bool {
        let written_cycle = granted + FROM_GRANT;
        let rows = self.places.len() / access.rows.len();
        let mut candidates = access.rows.iter().enumerate().map(|(way, row)| way * rows + *row as usize);
        let own = candidates.clone().find(|at| self.places[*at].key.as_ref() == Some(&access.key));
        if let Some(at) = own {
            if !access.is_stored {
                self.places[at].key = None;
                self.changes.push_back((written_cycle + 1, -1));
            }
            self.places[at].written_cycle = written_cycle;
            return false;
        }
        if !access.is_stored {
            return false;
        }
        self.changes.push_back((written_cycle + 1, 1));
        // A place that was written since it was read counts as taken.
        let is_free =
            |place: &Place| place.key.is_none() && (place.written_cycle < granted || place.written_cycle == 0);
        let Some(free) = candidates.find(|at| is_free(&self.places[*at])) else { return true };
        self.places[free] = Place { key: Some(access.key.clone()), written_cycle };
        false
    }
}
