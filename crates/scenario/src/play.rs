// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plays a script on an engine.

use std::collections::BTreeMap;
use std::fmt;

use flowloom_context::ContextLayout;
use flowloom_efsm::events::Reader;
use flowloom_efsm::layout::RecordLayout;
use flowloom_engine::{
    Choices, Datapath, EngineError, Outcome, Output, Packet as Frame, Port, Refusal, Snapshot, Verdict,
};
use flowloom_wire::graph::UserHeader;

use super::packet::{Packet, differences};
use super::reports;
use super::script::{Event, EventKind, Expected, InputPacket, Script, Subject};
use flowloom_efsm::difference::state_differences;

/// Number of mismatches after which a scenario is abandoned.
const MAX_MISMATCHES: usize = 5;

/// The result of playing a script on an engine.
#[derive(Debug, Clone)]
pub struct Played {
    /// Deviations from the scenario or from the reference engine; the first few.
    pub mismatches: Vec<Mismatch>,
    /// Line and reason of a packet that the engine does not support; playing stopped there.
    pub refused: Option<(u32, Refusal)>,
    /// Name of the engine, for messages.
    engine: String,
    outcomes: Vec<Outcome>,
    state: Option<Snapshot>,
}

/// A deviation of an engine from the expected behaviour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    /// Line of the scenario file, from 1.
    pub line: u32,
    /// The text of that line.
    pub text: String,
    /// The packet with its time and port; the time of a state check; empty for the final state.
    pub subject: String,
    /// Expected and found values, one per line.
    pub details: Vec<String>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "line {}: {}", self.line, self.text)?;
        if !self.subject.is_empty() {
            writeln!(f, "    {}", self.subject)?;
        }
        for detail in &self.details {
            writeln!(f, "    {detail}")?;
        }
        Ok(())
    }
}

impl Played {
    /// True if the engine behaved as expected.
    pub fn passed(&self) -> bool {
        self.mismatches.is_empty() && self.refused.is_none()
    }
}

/// Plays `script` on `datapath` from its initial state. With a `reference`, the engine must also match the reference's
/// outcomes that the scenario leaves open, and its final state.
///
/// # Errors
/// The engine failed. A fault that no verified program has is a mismatch.
pub fn play(script: &Script, datapath: &mut dyn Datapath, reference: Option<&Played>) -> Result<Played, EngineError> {
    datapath.bind_ports(&script.ports);
    datapath.restore(&script.initial)?;
    let user_headers = script.subject.user_headers();
    let reader = match &script.subject {
        Subject::Function(function) => Reader::of(function),
        Subject::Program(_) => Reader::default(),
    };
    let mut played = Played {
        mismatches: Vec::new(),
        refused: None,
        engine: match datapath.name() {
            "machine" => "the machine".to_owned(),
            "interp" => "the interpreter".to_owned(),
            name => format!("engine `{name}`"),
        },
        outcomes: Vec::new(),
        state: None,
    };
    for event in &script.events {
        if played.mismatches.len() >= MAX_MISMATCHES {
            return Ok(played);
        }
        let details = match &event.kind {
            EventKind::Sweep => {
                datapath.sweep(event.now_ns)?;
                continue;
            }
            EventKind::Check(check) => check.failures(&script.subject, &datapath.snapshot()?, event.now_ns)?,
            EventKind::Packet(sent) => {
                let frame = Frame { bytes: &sent.bytes, port: sent.port };
                if let Some(refusal) = datapath.refuses(&frame) {
                    played.refused = Some((event.line, refusal));
                    return Ok(played);
                }
                let index = played.outcomes.len();
                let choices = Choices::seeded(event.now_ns, 1, index as u64);
                match datapath.process(&frame, &choices) {
                    Err(fault @ EngineError::Fault { .. }) => {
                        played.mismatches.push(mismatch(event, user_headers, vec![fault.to_string()]));
                        return Ok(played);
                    }
                    Err(other) => return Err(other),
                    Ok(outcome) => {
                        let expected = reference.and_then(|r| Some((r.engine.as_str(), r.outcomes.get(index)?)));
                        let details = compare_outcome(sent, &outcome, expected, user_headers, &reader);
                        played.outcomes.push(outcome);
                        details
                    }
                }
            }
        };
        if !details.is_empty() {
            played.mismatches.push(mismatch(event, user_headers, details));
        }
    }
    let state = datapath.snapshot()?;
    if let (Some((engine, expected)), Some(last)) =
        (reference.and_then(|r| Some((&r.engine, r.state.as_ref()?))), script.events.last())
        && played.mismatches.is_empty()
    {
        let is_foreign = !matches!(script.subject, Subject::Function(_));
        let differences = state_differences(expected, &state, &layouts(script), is_foreign);
        if !differences.is_empty() {
            let details = differences.iter().map(|d| format!("final state differs from {engine}: {d}")).collect();
            played.mismatches.push(Mismatch { subject: String::new(), ..mismatch(last, user_headers, details) });
        }
    }
    played.state = Some(state);
    Ok(played)
}

fn layouts(script: &Script) -> BTreeMap<String, ContextLayout> {
    let Subject::Function(function) = &script.subject else { return BTreeMap::new() };
    let elements = function.elements.iter();
    let layout = |element: &flowloom_efsm::model::Element| {
        let stateful = element.stateful.as_ref()?;
        Some((element.name.clone(), RecordLayout::of(element, stateful).describe(element, stateful)))
    };
    elements.filter_map(layout).collect()
}

fn mismatch(event: &Event, user_headers: &[UserHeader], details: Vec<String>) -> Mismatch {
    let subject = match &event.kind {
        EventKind::Packet(sent) => {
            format!("at {} port {}  {}", time_text(event.now_ns), sent.port, sent.packet.format(user_headers))
        }
        EventKind::Check(_) | EventKind::Sweep => format!("at {}", time_text(event.now_ns)),
    };
    Mismatch { line: event.line, text: event.text.clone(), subject, details }
}

/// Formats a time in the syntax of scenarios.
fn time_text(ns: u64) -> String {
    let units = [("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000)];
    let fits = units.into_iter().find(|(_, unit)| ns.is_multiple_of(*unit));
    fits.map_or_else(|| format!("{ns}ns"), |(name, unit)| format!("{}{name}", ns / unit))
}

/// Differences of an outcome from the scenario's expected; if there are none, from the reference.
fn compare_outcome(
    sent: &InputPacket,
    found: &Outcome,
    reference: Option<(&str, &Outcome)>,
    user_headers: &[UserHeader],
    reader: &Reader,
) -> Vec<String> {
    let mut details = Vec::new();
    if let Some(expected) = &sent.expected {
        compare_with_expected(expected, found, user_headers, &mut details);
        reports::compare(&expected.reports, &found.events, reader, &mut details);
    }
    if let Some((engine, expected)) = reference.filter(|(_, expected)| *expected != found && details.is_empty()) {
        details.push(format!("outcome differs from {engine}"));
        if expected.verdict != found.verdict || ports(&expected.outputs) != ports(&found.outputs) {
            details.push(format!("expected: {}", outcome_text(expected.verdict, &ports(&expected.outputs))));
            details.push(format!("found: {}", outcome_text(found.verdict, &ports(&found.outputs))));
        }
        if expected.events != found.events {
            let text = |outcome: &Outcome| {
                let report =
                    |event| reader.read(event).map_or_else(|| "a record".to_owned(), |report| report.to_string());
                let all: Vec<String> = outcome.events.iter().map(report).collect();
                if all.is_empty() { "nothing".to_owned() } else { all.join("; ") }
            };
            details.push(format!("expected events: {}", text(expected)));
            details.push(format!("found events: {}", text(found)));
        }
        for (e, f) in expected.outputs.iter().zip(&found.outputs) {
            details.extend(differences(&Packet::dissect(&e.bytes, user_headers), &f.bytes, user_headers));
        }
    }
    details
}

fn compare_with_expected(expected: &Expected, found: &Outcome, user_headers: &[UserHeader], details: &mut Vec<String>) {
    let expected_ports: Vec<Port> = expected.outputs.iter().map(|(port, _)| *port).collect();
    let sent = ports(&found.outputs);
    if expected.verdict != found.verdict || expected_ports != sent {
        let (expected, found) = (outcome_text(expected.verdict, &expected_ports), outcome_text(found.verdict, &sent));
        details.push(format!("expected {expected}, found {found}"));
    }
    if expected_ports.len() != sent.len() {
        let describe = |output: &Output| {
            format!(
                "left by port {}: {}",
                output.port,
                Packet::dissect(&output.bytes, user_headers).format(user_headers)
            )
        };
        details.extend(found.outputs.iter().map(describe));
        return;
    }
    let several = expected_ports.len() > 1;
    for ((port, packet), output) in expected.outputs.iter().zip(&found.outputs) {
        let place = if several { format!("port {port}: ") } else { String::new() };
        details
            .extend(differences(packet, &output.bytes, user_headers).into_iter().map(|line| format!("{place}{line}")));
    }
}

fn ports(outputs: &[Output]) -> Vec<Port> {
    outputs.iter().map(|output| output.port).collect()
}

fn outcome_text(verdict: Verdict, ports: &[Port]) -> String {
    let list = || ports.iter().map(Port::to_string).collect::<Vec<_>>().join(", ");
    match ports.len() {
        0 => verdict.to_string(),
        1 => format!("{verdict} by port {}", list()),
        _ => format!("{verdict} by ports {}", list()),
    }
}
