// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `run --trace`: single packets with their path, their bytes and the state before and after.

use std::sync::Arc;

use flowloom_control::{Trace, TracedPacket, Tracer};
use flowloom_efsm::model::Function;
use flowloom_engine::{Choices, Datapath, EngineError, Outcome, Packet, Ports, Snapshot};
use flowloom_exec::Description;
use flowloom_isa::Program;
use flowloom_session::engines::Engine;
use flowloom_trace::PortBy;
use flowloom_vm::fib;
use serde_json::{Value, json};

use crate::failure::{Failure, with_causes};
use crate::map::{EntryLayout, TableFacts};
use crate::output::{counted, print, print_error};
use crate::port_by::compile_condition;

/// The packets to trace.
pub(crate) struct Wanted {
    /// The packets left, if they are limited.
    left: Option<u64>,
    conditions: Vec<PortBy>,
}

impl Wanted {
    /// The words of `--trace`: a number of packets, or conditions that they have to meet.
    pub(crate) fn parse(words: &[String]) -> Result<Option<Wanted>, Failure> {
        if words.is_empty() {
            return Ok(None);
        }
        let mut wanted = Wanted { left: None, conditions: Vec::new() };
        for word in words {
            match word.parse() {
                Ok(number) if wanted.left.is_none() => wanted.left = Some(number),
                Ok(_) => return Err(Failure::Input("--trace has two numbers of packets, expected one".to_owned())),
                Err(_) => wanted.conditions.push(compile_condition("--trace", word)?),
            }
        }
        Ok(Some(wanted))
    }

    /// True if the packet is to be traced.
    pub(crate) fn matches(&mut self, bytes: &[u8]) -> bool {
        self.left != Some(0) && self.conditions.iter_mut().all(|condition| condition(bytes) == 1)
    }

    /// A packet is traced.
    pub(crate) fn count(&mut self) {
        self.left = self.left.map(|left| left.saturating_sub(1));
    }
}

/// An engine whose packets are traced.
pub(crate) struct Traced<'e> {
    engine: &'e mut dyn Engine,
    tracer: Tracer,
    printer: TracePrinter,
    wanted: Wanted,
    packets: u64,
}

/// Prints traces.
pub(crate) struct TracePrinter {
    pub(crate) description: Description,
    pub(crate) program: Arc<Program>,
    pub(crate) json: bool,
    /// True if standard output has packets.
    pub(crate) to_stderr: bool,
}

impl<'e> Traced<'e> {
    /// Traces the packets of an engine.
    ///
    /// # Errors
    /// The engine has no entries that can be read.
    pub(crate) fn new(
        engine: &'e mut dyn Engine,
        function: Option<Arc<Function>>,
        routes: Option<fib::Table>,
        wanted: Wanted,
        (json, to_stderr): (bool, bool),
        describe: impl FnOnce(&Program) -> Description,
    ) -> Result<Traced<'e>, Failure> {
        let name = engine.name().to_owned();
        let Some((program, _)) = engine.tables() else {
            return Err(Failure::Input(format!("--trace needs --engine jit or interp, not {name}")));
        };
        let description = describe(&program);
        let tracer =
            Tracer::new(Arc::clone(&program), function, routes).map_err(|e| Failure::Input(with_causes(&e)))?;
        let printer = TracePrinter { description, program, json, to_stderr };
        Ok(Traced { engine, tracer, printer, wanted, packets: 0 })
    }
}

impl Datapath for Traced<'_> {
    fn name(&self) -> &str {
        self.engine.name()
    }

    fn refuses(&self, packet: &Packet<'_>) -> Option<flowloom_engine::Refusal> {
        self.engine.refuses(packet)
    }

    fn bind_ports(&mut self, ports: &Ports) {
        self.tracer.bind_ports(ports);
        self.engine.bind_ports(ports);
    }

    fn process(&mut self, packet: &Packet<'_>, choices: &Choices) -> Result<Outcome, EngineError> {
        self.packets += 1;
        if !self.wanted.matches(packet.bytes) {
            return self.engine.process(packet, choices);
        }
        self.wanted.count();
        let begun = match self.engine.tables() {
            Some((_, tables)) => Some(self.tracer.begin(tables, packet, choices)?),
            None => None,
        };
        let outcome = self.engine.process(packet, choices)?;
        if let (Some(begun), Some((_, tables))) = (begun, self.engine.tables()) {
            let trace = self.tracer.end(begun, tables, Some((outcome.verdict, &outcome.outputs)));
            let traced =
                TracedPacket { number: self.packets, packet: *packet, time_ns: choices.now_ns, outcome: &outcome };
            self.printer.print(&traced, &trace);
        }
        Ok(outcome)
    }

    fn sweep(&mut self, now_ns: u64) -> Result<(), EngineError> {
        self.engine.sweep(now_ns)
    }

    fn snapshot(&mut self) -> Result<Snapshot, EngineError> {
        self.engine.snapshot()
    }

    fn restore(&mut self, state: &Snapshot) -> Result<(), EngineError> {
        self.engine.restore(state)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The ranges of bytes that differ between packets of equal length.
fn changes(before: &[u8], after: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut ranges: Vec<std::ops::Range<usize>> = Vec::new();
    for (at, _) in before.iter().zip(after).enumerate().filter(|(_, (a, b))| a != b) {
        match ranges.last_mut() {
            Some(last) if last.end == at => last.end = at + 1,
            _ => ranges.push(at..at + 1),
        }
    }
    ranges
}

impl TracePrinter {
    /// The lines of a trace.
    pub(crate) fn lines_of(&self, packet: &TracedPacket<'_>, trace: &Trace) -> String {
        match self.json {
            true => format!("{}\n", self.json(packet, trace)),
            false => self.text(packet, trace),
        }
    }

    fn print(&self, packet: &TracedPacket<'_>, trace: &Trace) {
        let text = self.lines_of(packet, trace);
        if self.to_stderr {
            print_error(&text);
        } else {
            // An output that cannot be written ends the run with the summary.
            let _ = print(&text);
        }
    }

    /// The layout of a map's entries.
    fn layout(&self, map: usize, now_ns: u64) -> Option<EntryLayout> {
        let def = self.program.maps.get(map)?;
        let facts = TableFacts {
            name: &def.name,
            kind: Some(def.kind),
            key_bytes: def.key_bytes as usize,
            value_bytes: def.value_bytes as usize,
            fields: Vec::new(),
        };
        EntryLayout::of(&facts, Some(&self.description), now_ns).ok()
    }

    /// The source lines of the path, each once in a row.
    fn lines(&self, trace: &Trace) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        for (program, slot) in &trace.path {
            let line = match program.checked_sub(1) {
                None => self.program.line_of(*slot),
                Some(sibling) => self.program.siblings.get(sibling).and_then(|sibling| sibling.line_of(*slot)),
            };
            let Some(line) = line else { continue };
            let text = format!("{}:{}", line.file, line.line);
            if lines.last() != Some(&text) {
                lines.push(text);
            }
        }
        lines
    }

    fn json(&self, TracedPacket { number, packet, time_ns, outcome }: &TracedPacket<'_>, trace: &Trace) -> Value {
        let state: Vec<Value> = trace
            .touched
            .iter()
            .map(|touched| {
                let layout = self.layout(touched.map, *time_ns);
                let entry = |value: &Vec<u8>| match &layout {
                    Some(layout) => layout.json(&touched.key, value)["value"].clone(),
                    None => json!(hex(value)),
                };
                json!({
                    "map": self.program.maps[touched.map].name,
                    "key": layout.as_ref().map(|layout| layout.json(&touched.key, &[])["key"].clone()),
                    "key_bytes": hex(&touched.key),
                    "before": touched.before.as_ref().map(entry),
                    "after": touched.after.as_ref().map(entry),
                })
            })
            .collect();
        let outputs: Vec<Value> =
            outcome.outputs.iter().map(|output| json!({"port": output.port.0, "bytes": hex(&output.bytes)})).collect();
        json!({
            "event": "trace",
            "packet": number,
            "time_ns": time_ns,
            "port": packet.port.0,
            "bytes": hex(packet.bytes),
            "verdict": outcome.verdict.name(),
            "outputs": outputs,
            "rows": trace.rows,
            "instructions": trace.path.iter().filter(|(program, _)| *program == 0).map(|(_, slot)| slot).collect::<Vec<_>>(),
            "lines": self.lines(trace),
            "state": state,
            "differs": trace.differs,
        })
    }

    fn text(&self, TracedPacket { number, packet, time_ns, outcome }: &TracedPacket<'_>, trace: &Trace) -> String {
        let mut text = format!(
            "packet {number}: port {}, {}, at {}.{:09} s\n",
            packet.port.0,
            counted(packet.bytes.len(), "byte"),
            time_ns / 1_000_000_000,
            time_ns % 1_000_000_000
        );
        for row in &trace.rows {
            let state = row.state.as_ref().map_or_else(String::new, |state| format!(" in state {state}"));
            let line = row.line.map_or_else(String::new, |line| format!(" line {line}"));
            text.push_str(&format!("  {}{line}{state}: {}\n", row.element, row.text));
        }
        let lines = self.lines(trace);
        if trace.rows.is_empty() && !lines.is_empty() {
            text.push_str(&format!("  lines {}\n", lines.join(" ")));
        }
        text.push_str(&format!("  {} of eBPF\n", counted(trace.path.len(), "instruction")));
        for touched in &trace.touched {
            let name = &self.program.maps[touched.map].name;
            let layout = self.layout(touched.map, *time_ns);
            let entry = |value: &Option<Vec<u8>>| match (value, &layout) {
                (None, _) => "no entry".to_owned(),
                (Some(value), Some(layout)) => {
                    let text = layout.text(&touched.key, value);
                    text.split_once(": ").map_or(text.clone(), |(_, fields)| fields.to_owned())
                }
                (Some(value), None) => hex(value),
            };
            let key = layout.as_ref().map_or_else(|| hex(&touched.key), |layout| layout.key_words(&touched.key));
            let (before, after) = (entry(&touched.before), entry(&touched.after));
            let is_same = touched.before == touched.after;
            text.push_str(&format!("  {name} {key}: {before}"));
            text.push_str(&if is_same { ", unchanged\n".to_owned() } else { format!("\n    -> {after}\n") });
        }
        text.push_str(&format!("  {}", outcome.verdict));
        if outcome.outputs.is_empty() {
            text.push('\n');
        }
        for output in &outcome.outputs {
            text.push_str(&format!(" port {}, {}", output.port.0, counted(output.bytes.len(), "byte")));
            if output.bytes == packet.bytes {
                text.push_str(", unchanged\n");
                continue;
            }
            text.push('\n');
            if output.bytes.len() != packet.bytes.len() {
                text.push_str(&format!("    before {}\n    after  {}\n", hex(packet.bytes), hex(&output.bytes)));
                continue;
            }
            for range in changes(packet.bytes, &output.bytes) {
                let (old, new) = (hex(&packet.bytes[range.clone()]), hex(&output.bytes[range.clone()]));
                text.push_str(&format!("    bytes {} to {}: {old} -> {new}\n", range.start, range.end - 1));
            }
        }
        if let Some(differs) = &trace.differs {
            text.push_str(&format!("  note: {differs}\n"));
        }
        text
    }
}
