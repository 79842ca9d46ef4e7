//! State machine of a conversation: handshake, request, response, teardown; or a part of it, or a probe.

use super::frame::{ACK, FIN, PSH, SYN, Transport};
use super::host::Host;
use super::population::Wire;
use super::sizes::{Class, Sizes};
use flowloom_random::{Draw, SplitMix64};

/// Null index of a resident or pair.
pub(super) const NONE: u32 = u32::MAX;
/// Maximum number of response packets. Each packet is followed by another with probability `GO_ON`.
const MOST_ANSWERS: u8 = 8;
const GO_ON: f64 = 0.6;
/// Range of request lengths.
const QUESTION_BYTES: (u32, u32) = (82, 400);
/// Mean gap between packets of a response.
const TRAIN_GAP_NS: f64 = 100_000.0;
/// Bytes acknowledged per response that the trace does not show.
const UNSEEN_BYTES: u32 = 2 * 1448;

/// One endpoint: a host, and its index among the residents if it is one.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    pub(super) host: Host,
    pub(super) resident: u32,
}

/// Directions of a conversation that the trace shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// Both directions; end 0 is the client.
    Both,
    /// Only the client.
    Questions,
    /// Only the server, which is end 0.
    Answers,
    /// A single packet without a response.
    Probe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Syn,
    SynAck,
    Ack,
    Question,
    Answer,
    AckAnswer,
    Fin,
    FinAck,
    LastAck,
    Over,
}

/// A conversation in progress.
#[derive(Debug, Clone, Copy)]
pub(super) struct Conversation {
    pub(super) ends: [End; 2],
    /// The pair of residents it belongs to, or `NONE`; end 0 is the first of the pair.
    pub(super) pair: u32,
    /// True if a packet was seen, by direction.
    pub(super) is_seen: [bool; 2],
    pub(super) wire: Wire,
    view: View,
    step: Step,
    /// Number of response packets left.
    answers: u8,
    pub(super) rtt_ns: u64,
}

fn first_step(view: View, is_udp: bool) -> Step {
    match view {
        _ if is_udp => Step::Question,
        View::Answers => Step::SynAck,
        View::Both | View::Questions | View::Probe => Step::Syn,
    }
}

impl Conversation {
    pub(super) fn new(
        ends: [End; 2],
        pair: u32,
        wire: Wire,
        view: View,
        rtt_ns: u64,
        draw: &mut SplitMix64,
    ) -> Conversation {
        let mut answers = 1;
        while answers < MOST_ANSWERS && draw.chance(GO_ON) {
            answers += 1;
        }
        let step = first_step(view, wire.is_udp);
        Conversation { ends, pair, is_seen: [false; 2], wire, view, step, answers, rtt_ns }
    }

    /// Turns it into a single packet: a probe, or backscatter from a spoofed source address.
    pub(super) fn into_probe(self) -> Conversation {
        Conversation { view: View::Probe, ..self }
    }

    /// The end that sends next; `None` at the end of the conversation.
    pub(super) fn sender(&self) -> Option<usize> {
        let answering = usize::from(self.view == View::Both);
        match self.step {
            Step::Over => None,
            Step::SynAck | Step::Answer | Step::Fin => Some(answering),
            Step::Syn | Step::Ack | Step::Question | Step::AckAnswer | Step::FinAck => Some(0),
            Step::LastAck => Some(answering),
        }
    }

    /// The next packet, sent by [`Conversation::sender`], and its desired length if it carries payload.
    pub(super) fn packet(&self, now_ns: u64, sizes: &Sizes, draw: &mut SplitMix64) -> (Transport, Option<u32>) {
        let from = self.sender().unwrap_or(0);
        let question = |draw: &mut SplitMix64| {
            Some(QUESTION_BYTES.0 + draw.below(u64::from(QUESTION_BYTES.1 - QUESTION_BYTES.0)) as u32)
        };
        let (flags, wanted_bytes) = match self.step {
            Step::Syn => (SYN, None),
            Step::SynAck => (SYN | ACK, None),
            Step::Question => (PSH | ACK, question(draw)),
            // The last segment of a response carries the remainder.
            Step::Answer if self.answers == 1 => (PSH | ACK, Some(sizes.draw(Class::Middle, draw))),
            Step::Answer => (ACK, Some(sizes.draw(Class::Large, draw))),
            Step::Fin | Step::FinAck => (FIN | ACK, None),
            Step::Ack | Step::AckAnswer | Step::LastAck | Step::Over => (ACK, None),
        };
        (self.wire.segment(from, flags, now_ns, self.rtt_ns), wanted_bytes)
    }

    /// Advances after the packet was sent with this payload. Returns the time until the next packet; `None` after the
    /// last.
    pub(super) fn advance(&mut self, payload_bytes: u32, draw: &mut SplitMix64) -> Option<u64> {
        let from = self.sender()?;
        let is_control = matches!(self.step, Step::Syn | Step::SynAck | Step::Fin | Step::FinAck);
        self.wire.seq[from] = self.wire.seq[from].wrapping_add(payload_bytes + u32::from(is_control));
        let before = self.step;
        self.step = self.following();
        if self.view == View::Questions && matches!(before, Step::Syn | Step::AckAnswer | Step::Question) {
            // The unseen response is acknowledged from here on.
            let unseen = if before == Step::Syn { 1 } else { UNSEEN_BYTES };
            self.wire.seq[1] = self.wire.seq[1].wrapping_add(unseen);
        }
        let next = self.sender()?;
        let half_ns = self.rtt_ns as f64 / 2.0;
        let is_turn = next != from || self.view == View::Questions || before == Step::SynAck;
        let mean_ns = if is_turn { half_ns } else { TRAIN_GAP_NS.min(half_ns) };
        Some((mean_ns * (0.5 + draw.unit())) as u64)
    }

    /// The step after this one; counts down the response packets.
    fn following(&mut self) -> Step {
        if self.view == View::Probe {
            return Step::Over;
        }
        match self.step {
            Step::Syn if self.view == View::Questions => Step::Ack,
            Step::Syn => Step::SynAck,
            Step::SynAck if self.view == View::Answers => Step::Answer,
            Step::SynAck => Step::Ack,
            Step::Ack => Step::Question,
            Step::Question | Step::Answer | Step::AckAnswer => self.turn(),
            Step::Fin if self.view == View::Both => Step::FinAck,
            Step::FinAck => Step::LastAck,
            Step::Fin | Step::LastAck | Step::Over => Step::Over,
        }
    }

    /// The step after a request, response packet or acknowledgement.
    fn turn(&mut self) -> Step {
        if self.step == Step::Answer || (self.step != Step::Question && self.view == View::Questions) {
            self.answers = self.answers.saturating_sub(1);
        }
        let end = if self.wire.is_udp { Step::Over } else { Step::Fin };
        match (self.view, self.step) {
            // A request-only UDP flow consists of datagrams of its first length.
            (View::Questions, Step::Question) if self.wire.is_udp => {
                self.answers = self.answers.saturating_sub(2);
                if self.answers == 0 { end } else { Step::Question }
            }
            (View::Questions, _) => {
                if self.answers == 0 {
                    end
                } else {
                    Step::AckAnswer
                }
            }
            // One acknowledgement per two segments, and one for the remainder.
            (View::Both, Step::Answer) if !self.wire.is_udp && (self.answers.is_multiple_of(2)) => Step::AckAnswer,
            _ if self.answers == 0 => end,
            _ => Step::Answer,
        }
    }
}
