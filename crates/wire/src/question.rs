// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Questions about the parse of a packet, as numbers: what a program can ask a parser that is not part of it.

use crate::graph::{Header, Scope};
use crate::parse::Layers;

/// A question about the parse of a packet. The answer is a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Question {
    /// Which headers of a set are valid, by [`Header::bit`].
    Valid(u32),
    /// The offset of the first valid header of a set, in bytes from the start of the packet; 0 if there is none. First
    /// means that of the lowest [`Header::bit`].
    Offset(u32),
    /// The bytes of the IP packet after that header, as [`Layers::payload_len`]; 0 if there is none.
    Payload(u32),
    /// The IP protocol number; 0 if there is none.
    Protocol(Scope),
}

/// Where the kind of a question begins in its number; below it is the set of headers.
const KIND: u32 = 32;

impl Question {
    /// The number of the question: the kind in the upper half, the set of headers in the lower one.
    pub fn encode(self) -> u64 {
        let (kind, set) = match self {
            Question::Valid(set) => (0, set),
            Question::Offset(set) => (1, set),
            Question::Payload(set) => (2, set),
            Question::Protocol(Scope::Outer) => (3, 0),
            Question::Protocol(Scope::Inner) => (3, 1),
        };
        kind << KIND | u64::from(set)
    }

    /// The question with this number.
    pub fn decode(number: u64) -> Option<Question> {
        let set = number as u32;
        Some(match (number >> KIND, set) {
            (0, _) => Question::Valid(set),
            (1, _) => Question::Offset(set),
            (2, _) => Question::Payload(set),
            (3, 0) => Question::Protocol(Scope::Outer),
            (3, 1) => Question::Protocol(Scope::Inner),
            _ => return None,
        })
    }
}

impl Layers {
    /// The answer to a question.
    pub fn answer(&self, question: Question) -> u32 {
        let first = |set: u32| Header::ALL.into_iter().find(|header| header.bit() & set & self.valid() != 0);
        let of_first = |set: u32, value: fn(&Layers, Header) -> Option<usize>| {
            first(set).and_then(|header| value(self, header)).unwrap_or(0) as u32
        };
        match question {
            Question::Valid(set) => self.valid() & set,
            Question::Offset(set) => of_first(set, Layers::offset),
            Question::Payload(set) => of_first(set, Layers::payload_len),
            Question::Protocol(scope) => self.protocol(scope).unwrap_or(0).into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Graph;

    #[test]
    fn questions_and_numbers_lead_to_each_other() {
        let all = [Question::Valid, Question::Offset, Question::Payload].map(|kind| kind(0x8000_0021));
        for question in all.into_iter().chain([Scope::Outer, Scope::Inner].map(Question::Protocol)) {
            assert_eq!(Question::decode(question.encode()), Some(question));
        }
        assert_eq!([3 << KIND | 2, 4 << KIND, u64::MAX].map(Question::decode), [None; 3]);
    }

    #[test]
    fn answers_are_those_of_the_parser() {
        let mut packet = [0; 42];
        packet[12..15].copy_from_slice(&[8, 0, 0x45]);
        (packet[17], packet[23], packet[39]) = (28, 17, 8);
        let layers = Layers::parse(Graph::standard(), &packet);
        let [ipv4, udp, tcp] = [Header::Ipv4, Header::Udp, Header::Tcp].map(Header::bit);
        let answers = [
            (Question::Valid(ipv4 | tcp), ipv4),
            (Question::Offset(udp | tcp), 34),
            (Question::Offset(ipv4 | udp), 14),
            (Question::Offset(tcp), 0),
            (Question::Payload(ipv4), 8),
            (Question::Protocol(Scope::Outer), 17),
            (Question::Protocol(Scope::Inner), 0),
        ];
        for (question, answer) in answers {
            assert_eq!(layers.answer(question), answer, "{question:?}");
        }
    }
}
