//! Packets in, verdicts and packets out.

use std::fmt;

/// The number of a port of the function, as rows see it in `pkt.port` and name it in `forward(p)`.
///
/// Offline it is the pcapng interface or the position of the capture file; live it is bound to an interface. What a CPU map
/// redirects leaves by the port of a CPU, see [`Port::of_cpu`]; what a map of sockets redirects, see [`Port::of_socket`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Port(pub u32);

/// Ports from this number on are CPUs.
const FIRST_CPU: u32 = 1 << 31;
/// Ports from this number on are sockets.
const FIRST_SOCKET: u32 = 3 << 30;

impl Port {
    /// Where a packet goes that a CPU map hands to the network stack on CPU number `cpu`.
    pub fn of_cpu(cpu: u32) -> Port {
        Port(FIRST_CPU | cpu)
    }

    /// The CPU, where this is the port of one.
    pub fn cpu(self) -> Option<u32> {
        (FIRST_CPU..FIRST_SOCKET).contains(&self.0).then_some(self.0 & !FIRST_CPU)
    }

    /// The AF_XDP socket under key `queue` of a map of sockets.
    pub fn of_socket(queue: u32) -> Port {
        Port(FIRST_SOCKET | queue)
    }

    /// The key of the socket, where this is the port of one.
    pub fn socket(self) -> Option<u32> {
        (self.0 >= FIRST_SOCKET).then_some(self.0 & !FIRST_SOCKET)
    }

    /// Whether packets leave it on a wire: not for a CPU, not for a socket.
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

/// One packet on its way into an engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The bytes that are present, from the Ethernet header on.
    pub bytes: &'a [u8],
    /// The port it arrived by.
    pub port: Port,
}

/// What becomes of a packet, with XDP's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Verdict {
    /// The function failed on this packet; it is dropped.
    Aborted,
    /// Dropped.
    Drop,
    /// Handed on to whoever receives from this port.
    Pass,
    /// Sent back out of the port it came in by.
    Tx,
    /// Sent out of another port.
    Redirect,
}

impl Verdict {
    /// All verdicts, in the order of their numbers.
    pub const ALL: [Verdict; 5] = [Verdict::Aborted, Verdict::Drop, Verdict::Pass, Verdict::Tx, Verdict::Redirect];

    /// The number that XDP gives this verdict.
    pub fn number(self) -> u32 {
        self as u32
    }

    /// The verdict with this number in XDP; what XDP does not know is [`Verdict::Aborted`], as the kernel treats it.
    pub fn from_number(number: u32) -> Verdict {
        Verdict::ALL.get(number as usize).copied().unwrap_or(Verdict::Aborted)
    }

    /// The name as users read it.
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

/// A packet that leaves an engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Output {
    /// The port it leaves by; for [`Verdict::Pass`] and [`Verdict::Tx`] the port it arrived by.
    pub port: Port,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// A record that a function wrote for user space, by a perf event array or a ring buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The map that it went through.
    pub map: String,
    /// The CPU whose buffer it went into; 0 for ring buffers, which all CPUs share.
    pub cpu: u32,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// What an engine did with one packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What became of the packet.
    pub verdict: Verdict,
    /// The packets that left: none for drops, one otherwise, several with clones.
    pub outputs: Vec<Output>,
    /// What was written for user space, in order.
    pub events: Vec<Event>,
}

impl Outcome {
    /// The packet is gone: `verdict` without outputs.
    pub fn gone(verdict: Verdict) -> Outcome {
        Outcome { verdict, outputs: Vec::new(), events: Vec::new() }
    }

    /// The packet leaves by `port` as `bytes`.
    pub fn sent(verdict: Verdict, port: Port, bytes: Vec<u8>) -> Outcome {
        Outcome { verdict, outputs: vec![Output { port, bytes }], events: Vec::new() }
    }
}
