// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The peers on several cores: an instance for each, whose tables have the flows of its packets.
//!
//! Packets are spread by a hash of addresses and ports that is the same in both directions, as a device would with a
//! symmetric receive hash. Threads, and how a hash chooses a core, are those of the function on several cores
//! ([`flowloom_cores`]).

use flowloom_cores::{CoresOptions, Crew, Pace, core_of};
use flowloom_engine::{EngineError, Frame, InPlace, Output, Ports};

use crate::native::{Forward, Native};

/// The end of the ports of a UDP or TCP packet in an untagged IPv4 packet without options.
const PORTS_END: usize = 38;

/// A peer whose instances share nothing.
pub trait Peer: InPlace + Send {
    /// Runs packets in their order.
    fn run_each(&mut self, frames: &mut [&mut Frame<'_>]);
}

impl Peer for Native {
    fn run_each(&mut self, frames: &mut [&mut Frame<'_>]) {
        Native::run_each(self, frames);
    }
}

impl Peer for Forward {
    fn run_each(&mut self, frames: &mut [&mut Frame<'_>]) {
        frames.iter_mut().for_each(|frame| Forward::forward(frame));
    }
}

/// A peer on several cores.
#[derive(Debug)]
pub struct Several<P> {
    peers: Vec<P>,
    crew: Crew,
    pace: Pace,
}

/// The core of a packet. Packets that are too short for ports go to the first one.
fn core_of_packet(packet: &[u8], cores: usize) -> usize {
    let Some(head) = packet.first_chunk::<PORTS_END>() else { return 0 };
    let word = |at: usize| u64::from(u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]));
    let ports = word(34);
    let sum = (word(26) + word(30)).wrapping_add(((ports >> 16) + (ports & 0xffff)) << 32);
    core_of(sum, cores)
}

impl<P: Peer> Several<P> {
    /// An instance for each core: the given one, and others.
    ///
    /// # Errors
    /// The system gives no thread.
    pub fn new(first: P, others: Vec<P>) -> std::io::Result<Several<P>> {
        let crew = Crew::new(1 + others.len())?;
        Ok(Several { peers: std::iter::once(first).chain(others).collect(), crew, pace: Pace::default() })
    }
}

impl<P: Peer> InPlace for Several<P> {
    fn name(&self) -> &str {
        self.peers[0].name()
    }

    fn bind_ports(&mut self, ports: &Ports) {
        self.peers.iter_mut().for_each(|peer| peer.bind_ports(ports));
    }

    fn run(&mut self, frames: &mut [Frame<'_>], _: &mut Vec<(usize, Output)>) -> Result<(), EngineError> {
        let Several { peers, crew, pace } = self;
        let (cores, packets) = (peers.len(), frames.len());
        let run = |is_parallel| {
            let mut parts: Vec<(&mut P, Vec<&mut Frame<'_>>)> =
                peers.iter_mut().map(|peer| (peer, Vec::new())).collect();
            for frame in frames {
                let core = core_of_packet(frame.bytes(), cores);
                parts[core].1.push(frame);
            }
            crew.each(is_parallel, &mut parts, |_, (peer, frames)| peer.run_each(frames));
        };
        if packets >= CoresOptions::live().parallel_from {
            pace.run(packets, run)
        } else {
            run(false)
        }
        Ok(())
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        self.peers.iter_mut().try_for_each(|peer| peer.sweep(now_ns))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::collections::BTreeMap;

    use flowloom_engine::{Fate, Port};

    use super::*;
    use crate::packets::Packets;

    fn packet(flow: u64, is_back: bool) -> Vec<u8> {
        let mut packet = Packets::Udp.template(60);
        Packets::Udp.write(&mut packet, flow);
        for (at, bytes) in [(26, 4), (34, 2)].into_iter().filter(|_| is_back) {
            let (first, second) = packet[at..].split_at_mut(bytes);
            first.swap_with_slice(&mut second[..bytes]);
        }
        packet
    }

    #[test]
    fn both_directions_of_a_flow_have_a_core_and_all_cores_have_flows() {
        let mut packets = [0; 3];
        for flow in 0..3000 {
            let core = core_of_packet(&packet(flow, false), 3);
            assert_eq!(core_of_packet(&packet(flow, true), 3), core);
            packets[core] += 1;
        }
        assert!(packets.iter().all(|count| (800..1200).contains(count)), "{packets:?}");
        assert_eq!(core_of_packet(&[0; 37], 3), 0);
    }

    /// The flows of `reproduce fb-fig7`.
    #[test]
    fn four_flows_are_two_on_each_of_two_cores() {
        let on_first = (0..4).filter(|flow| core_of_packet(&packet(*flow, false), 2) == 0).count();
        assert_eq!(on_first, 2);
    }

    /// Redirects the n-th packet of a flow, of those that this instance has seen, to port n.
    #[derive(Default)]
    struct Counting(BTreeMap<Vec<u8>, u32>);

    impl InPlace for Counting {
        fn name(&self) -> &str {
            "counting"
        }

        fn bind_ports(&mut self, _: &Ports) {}

        fn run(&mut self, _: &mut [Frame<'_>], _: &mut Vec<(usize, Output)>) -> Result<(), EngineError> {
            Ok(())
        }

        fn sweep(&mut self, _: u64) -> Result<(), EngineError> {
            self.0.clear();
            Ok(())
        }
    }

    impl Peer for Counting {
        fn run_each(&mut self, frames: &mut [&mut Frame<'_>]) {
            for frame in frames {
                let count = self.0.entry(frame.bytes()[26..PORTS_END].to_vec()).or_default();
                *count += 1;
                frame.fate = Fate::Redirect(Port(*count));
            }
        }
    }

    #[test]
    fn packets_have_the_fates_and_the_order_that_one_instance_gives() {
        let mut several = Several::new(Counting::default(), vec![Counting::default(), Counting::default()]).unwrap();
        let mut expected: BTreeMap<u64, u32> = BTreeMap::new();
        // With one thread and, after some batches, with three.
        for (batch, count) in [31, 64, 200, 5].into_iter().cycle().take(100).enumerate() {
            let flows: Vec<u64> = (0..count).map(|number| (number * 7 + batch as u64) % 11).collect();
            let mut buffers: Vec<Vec<u8>> = flows.iter().map(|flow| packet(*flow, false)).collect();
            let mut frames: Vec<Frame<'_>> = Vec::new();
            for buffer in &mut buffers {
                let len = buffer.len();
                frames.push(Frame::new(buffer, 0, len, Port(1), 0));
            }
            several.run(&mut frames, &mut Vec::new()).unwrap();
            for (frame, flow) in frames.iter().zip(flows) {
                let number = expected.entry(flow).or_default();
                *number += 1;
                assert_eq!(frame.fate, Fate::Redirect(Port(*number)), "batch {batch}, flow {flow}");
            }
        }
        assert!(several.peers.iter().all(|peer| !peer.0.is_empty()));
        assert!((1..50).contains(&several.pace.threaded()), "{:?}", several.pace);
        several.sweep(0).unwrap();
        assert!(several.peers.iter().all(|peer| peer.0.is_empty()));
    }
}
