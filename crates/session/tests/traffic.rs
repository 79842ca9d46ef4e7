// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets that make pipelines fail: of any kind and length, of one flow, of the least and the greatest length.

use flowloom_testkit::{PacketBuilder, Rng, mutate};

/// The least length that a program is given.
const MIN_BYTES: usize = 14;
/// The length of a frame of the least size on the wire, without its checksum.
const WIRE_BYTES: usize = 60;

/// The shapes of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// Packets of any kind, some of them corrupted, of any length, with gaps.
    Any,
    /// One flow, in packets of the least length, without gaps.
    OneFlow,
    /// Two flows in turn, in packets of the least length, without gaps.
    TwoFlows,
    /// A new flow in each packet, of the least length, without gaps.
    NewFlows,
    /// A hundred flows at random, of the least length, in both directions, without gaps.
    ManyFlows,
    /// Datagrams that must not be fragmented, up to the length of Ethernet, without gaps.
    Datagrams,
    /// Around the borders of words, without gaps.
    Borders,
    /// The longest packets and the shortest ones in turn.
    Extremes,
    /// Random bytes, with gaps; not part of [`Traffic::ALL`].
    Noise,
}

impl Traffic {
    pub(crate) const ALL: [Traffic; 8] = [
        Traffic::Any,
        Traffic::OneFlow,
        Traffic::TwoFlows,
        Traffic::NewFlows,
        Traffic::ManyFlows,
        Traffic::Datagrams,
        Traffic::Borders,
        Traffic::Extremes,
    ];

    /// Packets with their ports and the idle cycles before each.
    pub(crate) fn packets(self, rng: &mut Rng, count: usize, max_bytes: usize) -> Vec<(Vec<u8>, u32, u32)> {
        let flow = |port: u16| {
            PacketBuilder::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(port, 53).pad_to(WIRE_BYTES).build()
        };
        let mut packet = |number: usize| -> (Vec<u8>, u32, u32) {
            let port = rng.below(4) as u32;
            match self {
                Traffic::Any => {
                    let mut bytes = PacketBuilder::random(rng, 4).build();
                    if rng.chance(1, 4) {
                        mutate(rng, &mut bytes);
                    }
                    if rng.chance(1, 8) {
                        bytes.resize(bytes.len() + rng.below(1400), 0xa5);
                    }
                    let delay = if rng.chance(1, 4) { rng.below(8) as u32 } else { 0 };
                    (bytes, port, delay)
                }
                Traffic::OneFlow => (flow(1000), port, 0),
                Traffic::TwoFlows => (flow(1000 + (number % 2) as u16), port, 0),
                Traffic::NewFlows => (flow(number as u16), 1, 0),
                Traffic::ManyFlows => {
                    let (near, far) = ([10, 0, 0, 1], [10, 0, 0, 2]);
                    let own = 1 + rng.below(100) as u16;
                    let builder = PacketBuilder::new();
                    let builder = match rng.chance(1, 2) {
                        true => builder.ipv4(near, far).udp(own, 53),
                        false => builder.ipv4(far, near).udp(53, own),
                    };
                    (builder.pad_to(WIRE_BYTES).build(), port, 0)
                }
                Traffic::Datagrams => {
                    let len = rng.below(1472);
                    let payload = rng.bytes(len);
                    let builder = PacketBuilder::new().eth([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
                    let builder = builder.ipv4([10, 0, 0, 1], [192, 0, 2, rng.below(200) as u8]);
                    let builder = builder.ipv4_id(rng.next_u64() as u16, true);
                    (builder.udp(7, rng.next_u64() as u16).payload(&payload).build(), port, 0)
                }
                Traffic::Borders => {
                    let len = 64 * (1 + rng.below(4)) + rng.below(5) - 2;
                    (PacketBuilder::random(rng, 2).pad_to(len).truncated(len).build(), port, 0)
                }
                Traffic::Noise => {
                    let len = rng.below(300);
                    (rng.bytes(len), port, rng.below(3) as u32)
                }
                Traffic::Extremes if number.is_multiple_of(2) => {
                    (PacketBuilder::random(rng, 2).pad_to(max_bytes).truncated(max_bytes).build(), port, 0)
                }
                Traffic::Extremes => {
                    let len = *rng.pick(&[MIN_BYTES, 15, 33, 34, WIRE_BYTES]);
                    (PacketBuilder::random(rng, 2).pad_to(len).truncated(len).build(), port, 0)
                }
            }
        };
        let all = (0..count).map(&mut packet);
        all.map(|(mut bytes, port, delay)| {
            bytes.resize(bytes.len().clamp(MIN_BYTES, max_bytes), 0);
            (bytes, port, delay)
        })
        .collect()
    }
}
