// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bursts of packets of one flow, for rows that nothing else reaches.

use std::sync::Arc;

use flowloom_efsm::model::NextState;
use flowloom_random::Draw;

use super::{Attempts, ENOUGH_HITS, Goal, MAX_REPAIRS, Stimulus, some_contexts};
use crate::arrival::Arrival;
use crate::hits::Timer;
use crate::walk::Context;

/// A row that is aimed at repeatedly with one context, while hardly any time passes.
#[derive(Debug, Clone)]
pub(super) struct Burst {
    pub(super) element: usize,
    pub(super) row: usize,
    pub(super) state: u16,
    /// The context; `None` until the first packet has made one.
    pub(super) key: Option<Vec<u8>>,
    /// True if the first packet is repeated.
    repeats: bool,
    pub(super) left: u32,
}

/// Packets of the first burst at a row: a few more than most functions count to.
const FIRST_BURST: u32 = 300;
/// Divisor: a longer burst may take this fraction of all packets so far.
const BURST_SHARE: u64 = 4;
/// Maximum number of times that the length doubles.
const MAX_DOUBLINGS: u64 = 9;

impl Stimulus {
    /// Picks one of the rows with the fewest hits, and a context in its state.
    pub(super) fn start_burst(&mut self) -> Option<Burst> {
        let function = Arc::clone(&self.walker.function);
        let rare = |(&(e, r, s), attempts): (&(usize, usize, u16), &Attempts)| {
            let times = self.bursts.get(&(e, r)).copied().unwrap_or(0);
            // Give up on a row after a few attempts.
            let enters = match function.elements[e].rows[r].next {
                NextState::To { state, idle_ns, hard_ns } if state != s => {
                    let ends = |timer| self.expired.get(&(e, state, timer)).is_none_or(|&n| n < ENOUGH_HITS);
                    idle_ns.is_some() && ends(Timer::Idle) || hard_ns.is_some() && ends(Timer::Hard)
                }
                _ => false,
            };
            let allowed = self.counts.packets / BURST_SHARE;
            let is_allowed = u64::from(self.burst_packets(e, r)) <= allowed.max(FIRST_BURST.into());
            let is_worthwhile = (attempts.hits < ENOUGH_HITS || enters) && times < 8 + 2 * attempts.hits && is_allowed;
            (function.elements[e].stateful.is_some() && is_worthwhile).then_some((attempts.hits, e, r, s))
        };
        let mut rows: Vec<_> = self.rows.iter().filter_map(rare).collect();
        rows.sort_unstable();
        let (_, element, row, state) = *self.rng.pick(&rows[..rows.len().min(4)])?;
        let table = self.walker.tables[element].as_ref()?;
        let live = |c: &Context| c.state == state && c.deadline().is_none_or(|(_, d)| d > self.time_ns);
        let part = some_contexts(table, None, &mut self.rng).filter(|(_, context)| live(context));
        let keys: Vec<&Vec<u8>> = part.map(|(key, _)| key).collect();
        let key = if state == 0 && self.rng.percent(50) { None } else { self.rng.pick(&keys).map(|&key| key.clone()) };
        if key.is_none() && state != 0 {
            return None;
        }
        let left = self.burst_packets(element, row);
        *self.bursts.entry((element, row)).or_default() += 1;
        let repeats = self.rng.percent(50);
        Some(Burst { element, row, state, key, repeats, left })
    }

    /// Number of packets of the next burst at a row. For a row that no packet has taken in any state, each burst is
    /// twice as long as the previous one, and waits until the traffic is long enough for it; so counts of thousands are
    /// reached. A row that is missing in one of its states only waits for that state, not for a count.
    fn burst_packets(&self, element: usize, row: usize) -> u32 {
        let is_taken =
            self.rows.range((element, row, 0)..=(element, row, u16::MAX)).any(|(_, attempts)| attempts.hits > 0);
        let times = self.bursts.get(&(element, row)).copied().unwrap_or(0);
        FIRST_BURST << if is_taken { 0 } else { times.min(MAX_DOUBLINGS) }
    }

    /// The next packet of the burst: one that takes the row, or another row of its element with the same context,
    /// as an approach. `None` where there is no such packet: then the burst ends.
    pub(super) fn continue_burst(&mut self) -> Option<Arrival> {
        let Burst { element, row, key, repeats, left, .. } = self.burst.clone()?;
        self.time_ns = self.time_ns.saturating_add(self.rng.below(1000));
        let stored = key.as_ref().and_then(|key| self.walker.tables[element].as_ref()?.contexts.get(key)).cloned();
        let context = stored.unwrap_or_else(|| self.walker.default_context(element));
        let mut found = None;
        for attempt in 0..if left > 0 { 4 } else { 0 } {
            let sample = key.as_ref().filter(|_| repeats && attempt == 0).and_then(|key| self.sample(element, key));
            let arrival = match sample {
                Some(sample) => Arrival { time_ns: self.time_ns, ..sample },
                None => {
                    let goal = Goal { keep_time: true, ..Goal::new(element, row, context.state, key.clone()) };
                    self.repaired_packet(&goal, &context, &[], MAX_REPAIRS / 2)
                }
            };
            let prediction = self.walker.predict(&arrival);
            let Some(visit) = prediction.visits.iter().find(|visit| visit.element == element) else { continue };
            if visit.row.is_none() || (key.is_some() && visit.key != key) {
                continue;
            }
            let is_hit = visit.row == Some(row);
            found = Some(arrival);
            if is_hit {
                break;
            }
        }
        if found.is_none() {
            self.burst = None;
        }
        found
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::StimulusOptions;
    use super::*;

    #[test]
    fn only_rows_that_no_state_takes_get_longer_bursts() {
        let text =
            "function f; stateful s { key ip.src; states a, b; on a, b when ip.ttl > 9 -> b { pass; } on a { drop; } }";
        let function = Arc::new(flowloom_efsm::compile("f.efsm", text, &[]).unwrap().0);
        let options = StimulusOptions::of(&function);
        let mut stimulus = Stimulus::new(function, 1, options);
        stimulus.bursts = [((0, 0), 5), ((0, 1), 5)].into();
        assert_eq!([0, 1].map(|row| stimulus.burst_packets(0, row)), [FIRST_BURST << 5; 2]);
        // Taken in state `a` and missing in `b`.
        stimulus.rows.insert((0, 0, 0), Attempts { hits: 1, tries: 1 });
        assert_eq!([0, 1].map(|row| stimulus.burst_packets(0, row)), [FIRST_BURST, FIRST_BURST << 5]);
    }
}
