// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Outcomes of many packets in one buffer.

use crate::{Event, Outcome, Output, Port, Verdict};

/// The outcomes of packets, in order. A packet costs no allocation of its own.
///
/// An engine adds the outputs and events of a packet, then ends it with its verdict:
///
/// ```
/// use flowloom_engine::{Outcomes, Port, Verdict};
///
/// let mut outcomes = Outcomes::default();
/// outcomes.send(Port(2), &[1, 2, 3]);
/// outcomes.end(Verdict::Tx);
/// assert_eq!(outcomes.get(0).map(|outcome| outcome.verdict), Some(Verdict::Tx));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcomes {
    packets: Vec<Ended>,
    /// The outputs of all packets; the end of each in `bytes`.
    outputs: Vec<(Port, usize)>,
    bytes: Vec<u8>,
    events: Vec<Event>,
}

/// A packet whose outcome is complete: the numbers of outputs and events up to here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ended {
    verdict: Verdict,
    outputs: usize,
    events: usize,
}

impl Outcomes {
    /// The number of packets.
    pub fn len(&self) -> usize {
        self.packets.len()
    }

    /// True if there is no packet.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    /// Removes all packets; keeps the memory.
    pub fn clear(&mut self) {
        self.packets.clear();
        self.abandon();
    }

    /// Adds an output to the next packet.
    #[inline]
    pub fn send(&mut self, port: Port, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.outputs.push((port, self.bytes.len()));
    }

    /// Adds a record to the next packet.
    pub fn log(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Completes the next packet.
    #[inline]
    pub fn end(&mut self, verdict: Verdict) {
        self.packets.push(Ended { verdict, outputs: self.outputs.len(), events: self.events.len() });
    }

    /// Removes what was added since the last packet was completed: the engine has failed on the next one.
    pub fn abandon(&mut self) {
        let (outputs, events) = self.ends(self.packets.len());
        self.outputs.truncate(outputs);
        self.events.truncate(events);
        self.bytes.truncate(self.start_of(outputs));
    }

    /// Adds the outcome of a packet.
    pub fn push(&mut self, outcome: Outcome) {
        for output in &outcome.outputs {
            self.send(output.port, &output.bytes);
        }
        self.events.extend(outcome.events);
        self.end(outcome.verdict);
    }

    /// The verdicts, in order.
    pub fn verdicts(&self) -> impl ExactSizeIterator<Item = Verdict> + '_ {
        self.packets.iter().map(|packet| packet.verdict)
    }

    /// The outcome of a packet.
    pub fn get(&self, packet: usize) -> Option<Outcome> {
        let ended = self.packets.get(packet)?;
        let (outputs, events) = self.ends(packet);
        let output = |number: usize| {
            let (port, end) = self.outputs[number];
            Output { port, bytes: self.bytes[self.start_of(number)..end].to_vec() }
        };
        let outputs = (outputs..ended.outputs).map(output).collect();
        Some(Outcome { verdict: ended.verdict, outputs, events: self.events[events..ended.events].to_vec() })
    }

    /// The first packet from number `from` on which two lists differ, among those that both have.
    ///
    /// # Cost
    /// Of equal lists, that of comparing their memory.
    pub fn first_difference(&self, other: &Outcomes, from: usize) -> Option<usize> {
        if from == 0 && self == other {
            return None;
        }
        let both = self.packets.len().min(other.packets.len());
        (from..both).find(|packet| !self.is_same(other, *packet))
    }

    /// True if a packet that both lists have has the same outcome.
    fn is_same(&self, other: &Outcomes, packet: usize) -> bool {
        let [mine, its] = [self, other].map(|list| {
            let (Ended { verdict, outputs, events }, first) = (list.packets[packet], list.ends(packet));
            let outputs = (first.0..outputs).map(|number| {
                let (port, end) = list.outputs[number];
                (port, &list.bytes[list.start_of(number)..end])
            });
            (verdict, outputs, &list.events[first.1..events])
        });
        mine.0 == its.0 && mine.1.eq(its.1) && mine.2 == its.2
    }

    /// The numbers of outputs and events of the packets before one.
    fn ends(&self, packet: usize) -> (usize, usize) {
        let before = packet.checked_sub(1).map(|before| self.packets[before]);
        before.map_or((0, 0), |before| (before.outputs, before.events))
    }

    /// The start of an output in `bytes`.
    fn start_of(&self, output: usize) -> usize {
        output.checked_sub(1).map_or(0, |before| self.outputs[before].1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(byte: u8) -> Event {
        Event { map: "log".into(), cpu: 0, bytes: vec![byte] }
    }

    fn samples() -> Vec<Outcome> {
        let clone = Output { port: Port(7), bytes: vec![9] };
        vec![
            Outcome::without_output(Verdict::Drop),
            Outcome::sent(Verdict::Tx, Port(1), vec![1, 2]),
            Outcome { events: vec![event(3)], ..Outcome::sent(Verdict::Pass, Port(1), Vec::new()) },
            Outcome {
                verdict: Verdict::Redirect,
                outputs: vec![clone.clone(), Output { port: Port(2), bytes: vec![4] }],
                events: vec![event(1), event(2)],
            },
            Outcome { verdict: Verdict::Drop, outputs: vec![clone], events: Vec::new() },
        ]
    }

    fn of(outcomes: &[Outcome]) -> Outcomes {
        let mut list = Outcomes::default();
        outcomes.iter().for_each(|outcome| list.push(outcome.clone()));
        list
    }

    #[test]
    fn outcomes_come_out_as_they_went_in() {
        let mut list = of(&samples());
        let found: Vec<Outcome> = (0..list.len()).filter_map(|packet| list.get(packet)).collect();
        assert_eq!(found, samples());
        assert!(list.verdicts().eq(samples().iter().map(|outcome| outcome.verdict)));
        // What a failed packet has left is no part of the next one.
        list.send(Port(3), &[5]);
        list.log(event(9));
        list.abandon();
        assert_eq!(list, of(&samples()));
        list.clear();
        list.push(samples()[1].clone());
        assert_eq!(list, of(&samples()[1..2]));
    }

    #[test]
    fn every_part_of_an_outcome_is_compared() {
        let all = samples();
        assert_eq!(of(&all).first_difference(&of(&all), 0), None);
        // A prefix has no packet that differs.
        assert_eq!(of(&all).first_difference(&of(&all[..3]), 0), None);
        let mut changes: Vec<(usize, Outcome)> = vec![(0, Outcome::without_output(Verdict::Pass))];
        let mut change = |at: usize, with: &dyn Fn(&mut Outcome)| {
            let mut changed = all[at].clone();
            with(&mut changed);
            changes.push((at, changed));
        };
        change(1, &|outcome| outcome.outputs[0].bytes[1] = 3);
        change(1, &|outcome| outcome.outputs[0].bytes.push(3));
        change(1, &|outcome| outcome.outputs[0].port = Port(2));
        change(2, &|outcome| outcome.events[0].bytes[0] = 4);
        change(2, &|outcome| outcome.events.clear());
        change(3, &|outcome| outcome.outputs.swap(0, 1));
        change(4, &|outcome| outcome.outputs.clear());
        for (at, changed) in changes {
            let mut others = all.clone();
            others[at] = changed;
            assert_eq!(of(&all).first_difference(&of(&others), 0), Some(at), "{others:?}");
            assert_eq!(of(&all).first_difference(&of(&others), at), Some(at), "{others:?}");
            assert_eq!(of(&all).first_difference(&of(&others), at + 1), None, "{others:?}");
        }
        // Bytes that move from one packet to the next.
        let [a, b] = [1, 2].map(|len| Outcome::sent(Verdict::Tx, Port(1), vec![0; len]));
        assert_eq!(of(&[a.clone(), b.clone()]).first_difference(&of(&[b, a]), 0), Some(0));
    }
}
