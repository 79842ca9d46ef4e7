// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device in memory: the packets of random flows, and a sink of all that leaves.

use flowloom_engine::{Fate, Frame, HEADROOM_BYTES, Port};
use flowloom_ports::{Departure, Device, DeviceCounters, PortsError, RunBatch};
use flowloom_random::{Draw, SplitMix64};

use crate::packets::Packets;

/// The packets of a batch, as `run -r` gives them to machine code.
const BATCH: usize = 256;
/// The batches of buffers that are used by turns.
const BATCHES: usize = 4;
/// The room after a packet.
const TAILROOM_BYTES: usize = 64;

/// The port behind which packets are counted.
pub const EGRESS: u32 = 2;

/// The order of flows.
#[derive(Debug, Clone, Copy)]
pub enum Order {
    /// Each flow of a range once.
    Once { from: u64, to: u64 },
    /// Packets of random flows, all with equal probability.
    Random { flows: u64, packets: u64, seed: u64 },
}

impl Order {
    /// The number of packets that are left.
    fn left(self, next: u64) -> u64 {
        match self {
            Order::Once { from, to } => (to - from).saturating_sub(next),
            Order::Random { packets, .. } => packets.saturating_sub(next),
        }
    }

    #[inline]
    fn flow(self, next: u64, rng: &mut SplitMix64) -> u64 {
        match self {
            Order::Once { from, .. } => from + next,
            Order::Random { flows, .. } => rng.below(flows),
        }
    }
}

/// A source that copies each packet to a buffer and writes its flow there, and a sink. What leaves by port [`EGRESS`]
/// is counted as sent.
#[derive(Debug)]
pub struct Memory {
    packets: Packets,
    template: Vec<u8>,
    /// The ingress port of all packets, and the number of ports.
    ingress: Port,
    ports: u32,
    order: Order,
    rng: SplitMix64,
    next: u64,
    buffers: Vec<u8>,
    buffer_bytes: usize,
    batch: usize,
    counters: DeviceCounters,
}

impl Memory {
    /// Packets of this length on port `ingress` of `ports`.
    pub fn new(packets: Packets, bytes: usize, ingress: u32, ports: u32, order: Order) -> Memory {
        let template = packets.template(bytes);
        // An odd number of cache lines, so that the packets of a batch spread over the cache.
        let lines = (HEADROOM_BYTES + template.len() + TAILROOM_BYTES).div_ceil(64) | 1;
        Memory {
            packets,
            buffers: vec![0; lines * 64 * BATCH * BATCHES],
            buffer_bytes: lines * 64,
            template,
            ingress: Port(ingress),
            ports,
            order,
            rng: SplitMix64::new(if let Order::Random { seed, .. } = order { seed } else { 0 }),
            next: 0,
            batch: 0,
            counters: DeviceCounters::default(),
        }
    }
}

impl Device for Memory {
    fn name(&self) -> &str {
        "memory"
    }

    fn ports(&self) -> Vec<(Port, String)> {
        (1..=self.ports).map(|port| (Port(port), format!("memory{port}"))).collect()
    }

    fn is_ended(&self) -> bool {
        self.order.left(self.next) == 0
    }

    fn receive(&mut self, _: u64, run: &mut RunBatch<'_>) -> Result<usize, PortsError> {
        let count = self.order.left(self.next).min(BATCH as u64) as usize;
        if count == 0 {
            return Ok(0);
        }
        let begin = self.batch * BATCH * self.buffer_bytes;
        self.batch = (self.batch + 1) % BATCHES;
        let end = HEADROOM_BYTES + self.template.len();
        let buffers = self.buffers[begin..].chunks_exact_mut(self.buffer_bytes).take(count);
        let mut frames = Vec::with_capacity(count);
        for buffer in buffers {
            let packet = &mut buffer[HEADROOM_BYTES..end];
            packet.copy_from_slice(&self.template);
            self.packets.write(packet, self.order.flow(self.next, &mut self.rng));
            self.next += 1;
            frames.push(Frame::new(buffer, HEADROOM_BYTES, end, self.ingress, 0));
        }
        run(&mut frames)?;
        for frame in frames.iter().filter(|frame| frame.fate == Fate::Redirect(Port(EGRESS))) {
            self.counters.sent += 1;
            self.counters.sent_bytes += frame.len_bytes() as u64;
        }
        Ok(count)
    }

    fn transmit(&mut self, departure: Departure<'_>) -> Result<(), PortsError> {
        if departure.port == Port(EGRESS) {
            self.counters.sent += 1;
            self.counters.sent_bytes += departure.bytes.len() as u64;
        }
        Ok(())
    }

    fn counters(&mut self) -> DeviceCounters {
        self.counters
    }
}
