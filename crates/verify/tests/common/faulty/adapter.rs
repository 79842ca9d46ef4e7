// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Engines with an injected fault.

use flowloom_efsm::layout::is_instrument;
use flowloom_engine::{Choices, Datapath, EngineError, Eviction, Outcome, Packet, Ports, Refusal, Snapshot, Verdict};
use flowloom_wire::{Graph, Header, Layers};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AdapterFault {
    /// An update of an existing context is lost: the packet is sent, the context is unchanged.
    StaleContext,
    /// A context that should be removed stays.
    ContextStays,
    /// A new context is not stored.
    ContextLost,
    /// The least key of a table is removed when a fourth context is created.
    ContextEvicted,
    AppliedTwice,
    /// The IPv4 checksum is not updated when a packet is rewritten.
    Ipv4ChecksumStale,
    /// The transport checksum is not updated when a packet is rewritten.
    TransportChecksumStale,
    /// A UDP checksum of 0 (no checksum) is computed all the same.
    UdpZeroFilled,
    DropPasses,
    /// Packets with verdict `tx` pass.
    TxPasses,
    /// Redirected packets leave by the next port.
    WrongPort,
    /// The packet's time is 1 ns late.
    TimeLate,
    /// The packet's time is truncated to microseconds.
    TimeCoarse,
    /// Expired contexts are never swept.
    SweepIgnored,
    /// Sweeps remove contexts up to 1 ms before they expire.
    SweepEarly,
    /// The last byte of an output packet is missing.
    Truncated,
    /// An output packet has one extra byte.
    ByteBeyond,
    /// Packets below 60 bytes are padded.
    Padded,
    BitFlipped,
    /// The engine reads one byte beyond the end of packets of odd length.
    ReadBeyond,
}

impl AdapterFault {
    pub const ALL: [AdapterFault; 20] = [
        AdapterFault::StaleContext,
        AdapterFault::ContextStays,
        AdapterFault::ContextLost,
        AdapterFault::ContextEvicted,
        AdapterFault::AppliedTwice,
        AdapterFault::Ipv4ChecksumStale,
        AdapterFault::TransportChecksumStale,
        AdapterFault::UdpZeroFilled,
        AdapterFault::DropPasses,
        AdapterFault::TxPasses,
        AdapterFault::WrongPort,
        AdapterFault::TimeLate,
        AdapterFault::TimeCoarse,
        AdapterFault::SweepIgnored,
        AdapterFault::SweepEarly,
        AdapterFault::Truncated,
        AdapterFault::ByteBeyond,
        AdapterFault::Padded,
        AdapterFault::BitFlipped,
        AdapterFault::ReadBeyond,
    ];

    fn is_of_state(self) -> bool {
        matches!(
            self,
            AdapterFault::StaleContext
                | AdapterFault::ContextStays
                | AdapterFault::ContextLost
                | AdapterFault::ContextEvicted
        )
    }
}

/// Wraps an engine with a fault.
pub struct Faulty<'a> {
    inner: &'a mut dyn Datapath,
    fault: AdapterFault,
}

impl<'a> Faulty<'a> {
    pub fn new(inner: &'a mut dyn Datapath, fault: AdapterFault) -> Faulty<'a> {
        Faulty { inner, fault }
    }

    /// Restores the part of the state before the packet that the fault keeps.
    fn spoil_state(&mut self, before: &Snapshot) -> Result<(), EngineError> {
        let mut after = self.inner.snapshot()?;
        let mut spoilt = false;
        for (name, map) in &mut after.maps {
            if is_instrument(name) || name.starts_with('.') {
                continue;
            }
            let Some(old) = before.maps.get(name) else { continue };
            match self.fault {
                AdapterFault::StaleContext => {
                    for (key, value) in map.iter_mut() {
                        if let Some(was) = old.get(key).filter(|was| *was != value) {
                            value.clone_from(was);
                            spoilt = true;
                        }
                    }
                }
                AdapterFault::ContextStays => {
                    for (key, was) in old {
                        if !map.contains_key(key) {
                            map.insert(key.clone(), was.clone());
                            spoilt = true;
                        }
                    }
                }
                AdapterFault::ContextLost => {
                    let len = map.len();
                    map.retain(|key, _| old.contains_key(key));
                    spoilt |= map.len() != len;
                }
                _ => {
                    if map.len() >= 4 && old.len() < map.len() {
                        map.pop_first();
                        spoilt = true;
                    }
                }
            }
        }
        if spoilt { self.inner.restore(&after) } else { Ok(()) }
    }

    fn spoil_outcome(&self, packet: &Packet<'_>, outcome: &mut Outcome) {
        match self.fault {
            AdapterFault::DropPasses if outcome.verdict == Verdict::Drop => {
                *outcome = Outcome::sent(Verdict::Pass, packet.port, packet.bytes.to_vec());
            }
            AdapterFault::TxPasses if outcome.verdict == Verdict::Tx => outcome.verdict = Verdict::Pass,
            AdapterFault::WrongPort if outcome.verdict == Verdict::Redirect => {
                for output in &mut outcome.outputs {
                    output.port.0 += 1;
                }
            }
            _ => {}
        }
        let layers = Layers::parse(Graph::standard(), packet.bytes);
        for output in &mut outcome.outputs {
            let bytes = &mut output.bytes;
            let mut put_back = |header, offset: usize| {
                if let Some(at) = layers.offset(header)
                    && let (Some(to), Some(from)) =
                        (bytes.get_mut(at + offset..at + offset + 2), packet.bytes.get(at + offset..at + offset + 2))
                {
                    to.copy_from_slice(from);
                }
            };
            match self.fault {
                AdapterFault::Ipv4ChecksumStale => put_back(Header::Ipv4, 10),
                AdapterFault::TransportChecksumStale => {
                    put_back(Header::Tcp, 16);
                    put_back(Header::Udp, 6);
                }
                AdapterFault::UdpZeroFilled => {
                    if let Some(at) = layers.offset(Header::Udp)
                        && let Some(checksum) = bytes.get_mut(at + 6..at + 8)
                        && checksum == [0, 0]
                    {
                        checksum.fill(0xff);
                    }
                }
                AdapterFault::Truncated => drop(bytes.pop()),
                AdapterFault::ByteBeyond => bytes.push(0),
                AdapterFault::Padded if bytes.len() < 60 => bytes.resize(60, 0),
                AdapterFault::BitFlipped => {
                    if let Some(last) = bytes.last_mut() {
                        *last ^= 1;
                    }
                }
                _ => {}
            }
        }
    }
}

impl Datapath for Faulty<'_> {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn refuses(&self, packet: &Packet<'_>) -> Option<Refusal> {
        self.inner.refuses(packet)
    }

    fn bind_ports(&mut self, ports: &Ports) {
        self.inner.bind_ports(ports);
    }

    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
        if self.fault == AdapterFault::ReadBeyond && packet.bytes.len() % 2 == 1 {
            let what = format!("2-byte read at byte {} of a packet of {}", packet.bytes.len() - 1, packet.bytes.len());
            return Err(EngineError::Fault { engine: "faulty", insn: 0, what });
        }
        let now_ns = match self.fault {
            AdapterFault::TimeLate => choices.now_ns + 1,
            AdapterFault::TimeCoarse => choices.now_ns / 1000 * 1000,
            _ => choices.now_ns,
        };
        let choices = &Choices { now_ns, ..*choices };
        let before = if self.fault.is_of_state() { Some(self.inner.snapshot()?) } else { None };
        if self.fault == AdapterFault::AppliedTwice {
            self.inner.process(packet, choices)?;
        }
        let mut outcome = self.inner.process(packet, choices)?;
        if let Some(before) = before {
            self.spoil_state(&before)?;
        }
        self.spoil_outcome(packet, &mut outcome);
        Ok(outcome)
    }

    fn chooses_victims(&self) -> bool {
        self.inner.chooses_victims()
    }

    fn evicted(&mut self) -> Vec<Eviction> {
        self.inner.evicted()
    }

    fn evict_next(&mut self, victims: &[Eviction]) {
        self.inner.evict_next(victims);
    }

    fn not_evicted(&mut self) -> Vec<Eviction> {
        self.inner.not_evicted()
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        match self.fault {
            AdapterFault::SweepIgnored => Ok(()),
            AdapterFault::SweepEarly => self.inner.sweep(now_ns.saturating_add(1_000_000)),
            _ => self.inner.sweep(now_ns),
        }
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        self.inner.snapshot()
    }

    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
        self.inner.restore(state)
    }
}
