// SPDX-License-Identifier: Apache-2.0 OR MIT
//! State machine of a conversation: handshake, request, response, teardown; or a part of it, or a probe.

use super::frame::{ACK, FIN, PSH, SYN, Transport};
use super::host::Host;
use super::population::TransportState;
use super::sizes::{Class, Sizes};
use flowloom_random::{Draw, SplitMix64};

/// Null index of a resident or pair.
pub(super) const NONE: u32 = u32::MAX;
/// Maximum number of response packets. Each packet is followed by another with probability `CONTINUE_PROBABILITY`.
const MAX_RESPONSE_PACKETS: u8 = 8;
const CONTINUE_PROBABILITY: f64 = 0.6;
/// Range of request lengths.
const REQUEST_BYTES: (u32, u32) = (82, 400);
/// Mean gap between packets of a response.
const RESPONSE_GAP_NS: f64 = 100_000.0;
/// Bytes acknowledged per response that the trace does not show.
const UNSEEN_BYTES: u32 = 2 * 1448;

/// One endpoint: a host, and its index among the residents if it is one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Endpoint {
    pub(super) host: Host,
    pub(super) resident: u32,
}

/// Directions of a conversation that the trace shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum View {
    /// Both directions; end 0 is the client.
    Both,
    ClientOnly,
    /// Only the server, which is end 0.
    ServerOnly,
    /// A single packet without a response.
    Probe,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Syn,
    SynAck,
    Ack,
    Request,
    Response,
    AckResponse,
    Fin,
    FinAck,
    LastAck,
    Over,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Conversation {
    pub(super) ends: [Endpoint; 2],
    /// The pair of residents it belongs to, or `NONE`; end 0 is the first of the pair.
    pub(super) pair: u32,
    /// True if a packet was seen, by direction.
    pub(super) is_seen: [bool; 2],
    pub(super) wire: TransportState,
    view: View,
    step: Step,
    /// Number of response packets left.
    responses: u8,
    pub(super) rtt_ns: u64,
}

fn first_step(view: View, is_udp: bool) -> Step {
    match view {
        _ if is_udp => Step::Request,
        View::ServerOnly => Step::SynAck,
        View::Both | View::ClientOnly | View::Probe => Step::Syn,
    }
}

impl Conversation {
    pub(super) fn new(
        ends: [Endpoint; 2],
        pair: u32,
        wire: TransportState,
        view: View,
        rtt_ns: u64,
        draw: &mut SplitMix64,
    ) -> Conversation {
        let mut responses = 1;
        while responses < MAX_RESPONSE_PACKETS && draw.chance(CONTINUE_PROBABILITY) {
            responses += 1;
        }
        let step = first_step(view, wire.is_udp);
        Conversation { ends, pair, is_seen: [false; 2], wire, view, step, responses, rtt_ns }
    }

    /// Turns it into a single packet: a probe, or backscatter from a spoofed source address.
    pub(super) fn into_probe(self) -> Conversation {
        Conversation { view: View::Probe, ..self }
    }

    /// The end that sends next; `None` at the end of the conversation.
    pub(super) fn sender(&self) -> Option<usize> {
        let responder = usize::from(self.view == View::Both);
        match self.step {
            Step::Over => None,
            Step::SynAck | Step::Response | Step::Fin => Some(responder),
            Step::Syn | Step::Ack | Step::Request | Step::AckResponse | Step::FinAck => Some(0),
            Step::LastAck => Some(responder),
        }
    }

    /// The next packet, sent by [`Conversation::sender`], and its desired length if it carries payload.
    pub(super) fn packet(&self, now_ns: u64, sizes: &Sizes, draw: &mut SplitMix64) -> (Transport, Option<u32>) {
        let from = self.sender().unwrap_or(0);
        let request = |draw: &mut SplitMix64| {
            Some(REQUEST_BYTES.0 + draw.below(u64::from(REQUEST_BYTES.1 - REQUEST_BYTES.0)) as u32)
        };
        let (flags, desired_bytes) = match self.step {
            Step::Syn => (SYN, None),
            Step::SynAck => (SYN | ACK, None),
            Step::Request => (PSH | ACK, request(draw)),
            // The last segment of a response carries the remainder.
            Step::Response if self.responses == 1 => (PSH | ACK, Some(sizes.draw(Class::Middle, draw))),
            Step::Response => (ACK, Some(sizes.draw(Class::Large, draw))),
            Step::Fin | Step::FinAck => (FIN | ACK, None),
            Step::Ack | Step::AckResponse | Step::LastAck | Step::Over => (ACK, None),
        };
        (self.wire.segment(from, flags, now_ns, self.rtt_ns), desired_bytes)
    }

    /// Advances after the packet was sent with this payload. Returns the time until the next packet; `None` after the
    /// last.
    pub(super) fn advance(&mut self, payload_bytes: u32, draw: &mut SplitMix64) -> Option<u64> {
        let from = self.sender()?;
        let is_control = matches!(self.step, Step::Syn | Step::SynAck | Step::Fin | Step::FinAck);
        self.wire.seq[from] = self.wire.seq[from].wrapping_add(payload_bytes + u32::from(is_control));
        let before = self.step;
        self.step = self.next_step();
        if self.view == View::ClientOnly && matches!(before, Step::Syn | Step::AckResponse | Step::Request) {
            // The unseen response is acknowledged from here on.
            let unseen = if before == Step::Syn { 1 } else { UNSEEN_BYTES };
            self.wire.seq[1] = self.wire.seq[1].wrapping_add(unseen);
        }
        let next = self.sender()?;
        let half_ns = self.rtt_ns as f64 / 2.0;
        let is_turn = next != from || self.view == View::ClientOnly || before == Step::SynAck;
        let mean_ns = if is_turn { half_ns } else { RESPONSE_GAP_NS.min(half_ns) };
        Some((mean_ns * (0.5 + draw.unit())) as u64)
    }

    /// The step after this one; counts down the response packets.
    fn next_step(&mut self) -> Step {
        if self.view == View::Probe {
            return Step::Over;
        }
        match self.step {
            Step::Syn if self.view == View::ClientOnly => Step::Ack,
            Step::Syn => Step::SynAck,
            Step::SynAck if self.view == View::ServerOnly => Step::Response,
            Step::SynAck => Step::Ack,
            Step::Ack => Step::Request,
            Step::Request | Step::Response | Step::AckResponse => self.next_data_step(),
            Step::Fin if self.view == View::Both => Step::FinAck,
            Step::FinAck => Step::LastAck,
            Step::Fin | Step::LastAck | Step::Over => Step::Over,
        }
    }

    /// The step after a request, response packet or acknowledgement.
    fn next_data_step(&mut self) -> Step {
        if self.step == Step::Response || (self.step != Step::Request && self.view == View::ClientOnly) {
            self.responses = self.responses.saturating_sub(1);
        }
        let end = if self.wire.is_udp { Step::Over } else { Step::Fin };
        match (self.view, self.step) {
            // A request-only UDP flow consists of datagrams of its first length.
            (View::ClientOnly, Step::Request) if self.wire.is_udp => {
                self.responses = self.responses.saturating_sub(2);
                if self.responses == 0 { end } else { Step::Request }
            }
            (View::ClientOnly, _) => {
                if self.responses == 0 {
                    end
                } else {
                    Step::AckResponse
                }
            }
            // One acknowledgement per two segments, and one for the remainder.
            (View::Both, Step::Response) if !self.wire.is_udp && (self.responses.is_multiple_of(2)) => {
                Step::AckResponse
            }
            _ if self.responses == 0 => end,
            _ => Step::Response,
        }
    }
}
