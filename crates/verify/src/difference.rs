// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Differences between two engines, in the terms of the function.

use std::fmt;

use flowloom_efsm::difference::StateDifference;
use flowloom_engine::Outcome;

use crate::arrival::{Arrival, hex_dump};

/// Kind of a disagreement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// The verdicts differ.
    Verdict,
    /// The numbers of packets sent differ.
    OutputCount,
    /// A packet leaves by a different port.
    Port,
    /// The bytes of an output packet differ.
    Bytes,
    /// The records for user space differ.
    Events,
    /// Only the final state differs.
    State,
    /// The target did something that no verified program does.
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

/// First point where a target and the reference differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disagreement {
    /// Kind of the disagreement.
    pub kind: Kind,
    /// Index of the packet in the input; `None` where the states differ before the first packet.
    pub position: Option<usize>,
    /// Time of the packet.
    pub now_ns: u64,
    /// The packet.
    pub packet: Option<Arrival>,
    /// Outcome of the reference; `None` where only the states differ.
    pub expected: Option<Outcome>,
    /// Outcome of the target.
    pub found: Option<Outcome>,
    /// Error that the target stopped with.
    pub fault: Option<String>,
    /// Differences between the states after the packet.
    pub state: Vec<StateDifference>,
}

/// First difference between two outcomes.
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
