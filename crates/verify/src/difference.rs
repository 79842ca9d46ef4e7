//! What differs between two engines, in the words of the function.

use std::fmt;

use flowloom_efsm::difference::StateDifference;
use flowloom_engine::Outcome;

use crate::arrival::{Arrival, hex_dump};

/// What a disagreement is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The verdicts differ.
    Verdict,
    /// The numbers of packets sent differ.
    OutputCount,
    /// A packet leaves by another port.
    Port,
    /// The bytes of a packet that leaves differ.
    Bytes,
    /// The records for user space differ.
    Events,
    /// Only the state left behind differs.
    State,
    /// The target did what no verified program does.
    Fault,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Kind::Verdict => "verdict",
            Kind::OutputCount => "number of packets sent",
            Kind::Port => "port",
            Kind::Bytes => "bytes",
            Kind::Events => "events",
            Kind::State => "state",
            Kind::Fault => "fault",
        })
    }
}

/// The first place where a target and the reference part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disagreement {
    /// What differs.
    pub kind: Kind,
    /// The packet's place in the input, from 0; `None` where the states differ before the first packet.
    pub position: Option<usize>,
    /// The packet's time.
    pub now_ns: u64,
    /// The packet.
    pub packet: Option<Arrival>,
    /// What the reference did with it; `None` where only the states differ.
    pub expected: Option<Outcome>,
    /// What the target did with it.
    pub found: Option<Outcome>,
    /// What the target stopped with.
    pub fault: Option<String>,
    /// How the states after the packet differ.
    pub state: Vec<StateDifference>,
}

/// What differs first between two outcomes.
pub(crate) fn outcome_kind(expected: &Outcome, found: &Outcome) -> Option<Kind> {
    if expected.verdict != found.verdict {
        return Some(Kind::Verdict);
    }
    if expected.outputs.len() != found.outputs.len() {
        return Some(Kind::OutputCount);
    }
    let mut pairs = expected.outputs.iter().zip(&found.outputs);
    pairs
        .find_map(|(e, f)| {
            let port = (e.port != f.port).then_some(Kind::Port);
            port.or_else(|| (e.bytes != f.bytes).then_some(Kind::Bytes))
        })
        .or_else(|| (expected.events != found.events).then_some(Kind::Events))
}

fn write_outcome(f: &mut fmt::Formatter<'_>, label: &str, outcome: &Outcome, other: Option<&Outcome>) -> fmt::Result {
    write!(f, "  {label} {}", outcome.verdict)?;
    for output in &outcome.outputs {
        write!(f, ", {} bytes out of port {}", output.bytes.len(), output.port)?;
    }
    writeln!(f)?;
    for (i, output) in outcome.outputs.iter().enumerate() {
        let Some(twin) = other.and_then(|o| o.outputs.get(i)) else { continue };
        if twin.bytes != output.bytes {
            f.write_str(&hex_dump(&output.bytes, "    "))?;
        }
    }
    if other.is_some_and(|other| other.events != outcome.events) {
        for event in &outcome.events {
            writeln!(f, "    {} bytes through `{}` on CPU {}", event.bytes.len(), event.map, event.cpu)?;
            f.write_str(&hex_dump(&event.bytes, "    "))?;
        }
    }
    Ok(())
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.position, &self.packet) {
            (Some(position), Some(packet)) => {
                writeln!(
                    f,
                    "{} differs at packet {} ({} ns, port {}, {} bytes)",
                    self.kind,
                    position + 1,
                    self.now_ns,
                    packet.port,
                    packet.bytes.len()
                )?;
                f.write_str(&hex_dump(&packet.bytes, "    "))?;
            }
            _ => writeln!(f, "{} differs before the first packet", self.kind)?,
        }
        if let Some(expected) = &self.expected {
            write_outcome(f, "expected", expected, self.found.as_ref())?;
        }
        if let Some(found) = &self.found {
            write_outcome(f, "found   ", found, self.expected.as_ref())?;
        }
        if let Some(fault) = &self.fault {
            writeln!(f, "  found    {fault}")?;
        }
        for difference in &self.state {
            writeln!(f, "  state {difference}")?;
        }
        Ok(())
    }
}
