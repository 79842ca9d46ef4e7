//! What differs between two engines, in the words of the function.

use std::collections::BTreeMap;
use std::fmt;

use flowloom_context::ContextLayout;
use flowloom_efsm::layout::is_instrument;
use flowloom_engine::{Outcome, Snapshot};

use crate::arrival::{Arrival, hex_dump};

const NO_DEADLINE: u64 = u64::MAX;

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

/// A map entry that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateDifference {
    /// The map.
    pub map: String,
    /// The entry's key.
    pub key: Vec<u8>,
    /// The record in the reference, decoded; `None` where there is none.
    pub expected: Option<Record>,
    /// The record in the target, decoded; `None` where there is none.
    pub found: Option<Record>,
}

/// A record in the words of the function.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// State, deadlines and registers with their values; empty where the layout is not known.
    pub fields: Vec<(String, String)>,
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

/// Whether a map takes part in comparisons: constants do not, nor instruments, where names are ours to give.
fn is_compared(map: &str, is_foreign: bool) -> bool {
    (is_foreign || !is_instrument(map)) && !map.starts_with(".rodata")
}

/// Every entry that differs. A map that is missing is one without entries.
pub(crate) fn state_differences(
    expected: &Snapshot,
    found: &Snapshot,
    layouts: &BTreeMap<String, ContextLayout>,
    is_foreign: bool,
) -> Vec<StateDifference> {
    let mut differences = Vec::new();
    let empty = BTreeMap::new();
    let names = expected.maps.keys().chain(found.maps.keys());
    let mut names: Vec<&String> = names.filter(|name| is_compared(name, is_foreign)).collect();
    names.sort();
    names.dedup();
    for name in names {
        let (e, f) = (expected.maps.get(name).unwrap_or(&empty), found.maps.get(name).unwrap_or(&empty));
        if e == f {
            continue;
        }
        let mut keys: Vec<&Vec<u8>> = e.keys().chain(f.keys()).collect();
        keys.sort();
        keys.dedup();
        for key in keys.into_iter().filter(|key| e.get(*key) != f.get(*key)) {
            let decode = |bytes: Option<&Vec<u8>>| bytes.map(|b| decode(b, layouts.get(name)));
            differences.push(StateDifference {
                map: name.clone(),
                key: key.clone(),
                expected: decode(e.get(key)),
                found: decode(f.get(key)),
            });
        }
    }
    differences
}

/// A record by its layout.
pub fn decode(bytes: &[u8], layout: Option<&ContextLayout>) -> Record {
    let mut fields = Vec::new();
    for field in layout.map_or(&[][..], |l| &l.fields) {
        let (at, size) = (field.offset_bytes as usize, field.size_bytes as usize);
        let Some(slice) = bytes.get(at..at.saturating_add(size)).filter(|s| s.len() <= 8 && !s.is_empty()) else {
            fields.push((field.name.clone(), "beyond the record".to_owned()));
            continue;
        };
        let mut le = [0; 8];
        le[..size].copy_from_slice(slice);
        let value = u64::from_le_bytes(le);
        let text = if field.name == "state" {
            let names = layout.map_or(&[][..], |l| &l.states);
            names.get(value as usize).map_or_else(|| format!("no state {value}"), |name| name.clone())
        } else if field.name.ends_with("_deadline") && value == NO_DEADLINE {
            "none".to_owned()
        } else if field.signed {
            let shift = 64 - 8 * size as u32;
            ((value << shift) as i64 >> shift).to_string()
        } else {
            value.to_string()
        };
        fields.push((field.name.clone(), text));
    }
    Record { bytes: bytes.to_vec(), fields }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

impl fmt::Display for StateDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]: ", self.map, hex(&self.key))?;
        match (&self.expected, &self.found) {
            (Some(e), Some(g)) => {
                let mut separator = "";
                let before_fields = e.fields.iter().zip(&g.fields);
                for ((name, expected), (_, found)) in before_fields.filter(|(e, g)| e != g) {
                    write!(f, "{separator}{name} expected {expected}, found {found}")?;
                    separator = "; ";
                }
                if separator.is_empty() {
                    write!(f, "expected {}, found {}", hex(&e.bytes), hex(&g.bytes))?;
                }
                Ok(())
            }
            (Some(e), None) => write!(f, "expected {e}, found no entry"),
            (None, Some(g)) => write!(f, "expected no entry, found {g}"),
            (None, None) => Ok(()),
        }
    }
}

impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.fields.is_empty() {
            return f.write_str(&hex(&self.bytes));
        }
        let mut separator = "";
        for (name, value) in self.fields.iter().filter(|(name, _)| name != "flags") {
            write!(f, "{separator}{name} {value}")?;
            separator = ", ";
        }
        Ok(())
    }
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
