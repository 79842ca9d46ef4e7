// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets, verdicts, and outputs.

use std::fmt;

/// The number of a port, `pkt.port` and the argument of `forward(p)` in rows.
///
/// Offline it is the pcapng interface or the position of the capture file; live it is bound to an interface. Redirects
/// through a CPU map leave through the port of a CPU, see [`Port::of_cpu`]; those through a map of sockets, see
/// [`Port::of_socket`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Port(pub u32);

/// Ports from this number on are CPUs.
const FIRST_CPU: u32 = 1 << 31;
/// Ports from this number on are sockets.
const FIRST_SOCKET: u32 = 3 << 30;

impl Port {
    /// The port of packets that a CPU map passes to the network stack on CPU `cpu`.
    pub fn of_cpu(cpu: u32) -> Port {
        Port(FIRST_CPU | cpu)
    }

    /// The CPU, if this is the port of one.
    pub fn cpu(self) -> Option<u32> {
        (FIRST_CPU..FIRST_SOCKET).contains(&self.0).then_some(self.0 & !FIRST_CPU)
    }

    /// The port of the AF_XDP socket under key `queue` of a map of sockets.
    pub fn of_socket(queue: u32) -> Port {
        Port(FIRST_SOCKET | queue)
    }

    /// The key of the socket, if this is the port of one.
    pub fn socket(self) -> Option<u32> {
        (self.0 >= FIRST_SOCKET).then_some(self.0 & !FIRST_SOCKET)
    }

    /// True if its packets leave on a wire: not to a CPU, not to a socket.
    pub fn is_wire(self) -> bool {
        self.0 < FIRST_CPU
    }
}

impl fmt::Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.cpu(), self.socket()) {
            (Some(cpu), _) => write!(f, "cpu{cpu}"),
            (None, Some(queue)) => write!(f, "socket{queue}"),
            (None, None) => self.0.fmt(f),
        }
    }
}

/// A packet to process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The captured bytes, from the Ethernet header on.
    pub bytes: &'a [u8],
    /// The ingress port.
    pub port: Port,
}

/// Verdicts, with XDP's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The function failed on this packet, which is dropped.
    Aborted,
    /// Dropped.
    Drop,
    /// Passed to the receiver of this port.
    Pass,
    /// Sent out of the ingress port.
    Tx,
    /// Sent out of another port.
    Redirect,
}

impl Verdict {
    /// All verdicts, in the order of their numbers.
    pub const ALL: [Verdict; 5] = [Verdict::Aborted, Verdict::Drop, Verdict::Pass, Verdict::Tx, Verdict::Redirect];

    /// The number of this verdict in XDP.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// The verdict with this number in XDP; unknown numbers are [`Verdict::Aborted`], as in the kernel.
    pub fn from_number(number: u32) -> Verdict {
        Verdict::ALL.get(number as usize).copied().unwrap_or(Verdict::Aborted)
    }

    /// The name for users.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Aborted => "ABORTED",
            Verdict::Drop => "DROP",
            Verdict::Pass => "PASS",
            Verdict::Tx => "TX",
            Verdict::Redirect => "REDIRECT",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A packet that leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The egress port; for [`Verdict::Pass`] and [`Verdict::Tx`] the ingress port.
    pub port: Port,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// A record for user space, through a perf event array or a ring buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The map.
    pub map: String,
    /// The CPU of the buffer; 0 for ring buffers, which all CPUs share.
    pub cpu: u32,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The result of an engine for a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// The verdict.
    pub verdict: Verdict,
    /// The packets that leave: none for drops, one otherwise, several with clones.
    pub outputs: Vec<Output>,
    /// The records for user space, in order.
    pub events: Vec<Event>,
}

impl Outcome {
    /// `verdict` without outputs.
    pub fn without_output(verdict: Verdict) -> Outcome {
        Outcome { verdict, outputs: Vec::new(), events: Vec::new() }
    }

    /// A single output: `bytes` through `port`.
    pub fn sent(verdict: Verdict, port: Port, bytes: Vec<u8>) -> Outcome {
        Outcome { verdict, outputs: vec![Output { port, bytes }], events: Vec::new() }
    }
}
