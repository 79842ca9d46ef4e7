// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets that a packet sends besides itself: copies (`fl_clone`) and packets of given bytes (`fl_emit`).
//!
//! ```text
//!  sends_o    by call, in program order: whether it happens
//!  record_o   every value that a call or the ending needs, once each
//!                      │
//!  job 0 .. n - 1: the calls │ job n: the packet itself
//!                      │
//!                      ▼
//!             port, head, tail, edits of the job
//! ```
//!
//! The body is that of the packet as received in each case: a copy takes the bytes written so far as edits, and all
//! bytes of a given packet are edits. A byte that a job leaves alone has its bit in [`Edits`] cleared.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use flowloom_ir::{Argument, Dataflow, Effect, Id, Kind};
use flowloom_isa::Program;
use flowloom_isa::insn::helper;
use flowloom_plan::Plan;

use crate::error::RtlError;
use crate::needs::Needs;
use crate::node::wrapped;
use crate::patch::{BASE_BITS, Edits, Span};

/// The most packets that one packet sends besides itself: the next one is found by a priority encoder in one cycle.
const MAX_SENDS: usize = 32;
/// The longest packet of `fl_emit` in bytes.
const MAX_EMITTED_BYTES: usize = 4096;

/// The bits of a result besides the record: verdict, target, all ports of a map, slow path.
const RESULT_BITS: u32 = 32 + 33 + 2 + 1;

/// A value of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Const(u64),
    /// Bits of the record, from this one on.
    Field(u32),
}

/// An overlay of a job: its base, and by offset whether a byte is written, and the byte.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Layer {
    base: Part,
    bytes: BTreeMap<i64, (Part, Part)>,
}

/// A packet to send.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Job {
    /// What it is, for the text.
    title: String,
    /// The egress port; none for the packet itself, which has its verdict's.
    port: Option<Part>,
    head: Part,
    tail: Part,
    constant: BTreeMap<i64, Part>,
    layers: Vec<Layer>,
}

/// A field of the record: a node, and how many of its low bits.
type Field = (Id, u16);

/// What packets send besides themselves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sends {
    /// By call, its predicate.
    when: Vec<Id>,
    /// The calls in program order, then the packet itself. Empty without calls.
    jobs: Vec<Job>,
    fields: Vec<Field>,
    record_bits: u32,
}

/// Whether a node is a call that sends a packet.
pub(crate) fn is_send(dataflow: &Dataflow, id: Id) -> bool {
    matches!(
        dataflow.graph.node(id).kind,
        Kind::Effect(Effect::Call { helper: helper::FL_CLONE | helper::FL_EMIT, .. })
    )
}

/// The record while it is made.
struct Record<'a> {
    dataflow: &'a Dataflow,
    program: &'a Program,
    known: BTreeMap<Field, u32>,
    sends: Sends,
}

impl Record<'_> {
    /// The low bits of a node.
    fn part(&mut self, id: Id, bits: u16) -> Part {
        if let Some(value) = self.dataflow.graph.as_const(id) {
            return Part::Const(if bits < 64 { value & ((1 << bits) - 1) } else { value });
        }
        let next = self.sends.record_bits;
        let low = *self.known.entry((id, bits)).or_insert(next);
        if low == next {
            self.sends.fields.push((id, bits));
            self.sends.record_bits += u32::from(bits);
        }
        Part::Field(low)
    }

    /// The job of a call.
    fn call(&mut self, call: Id) -> Result<Job, RtlError> {
        let dataflow = self.dataflow;
        let (node, insn) = (dataflow.graph.node(call), dataflow.graph.insn(call));
        let Kind::Effect(Effect::Call { helper, pattern }) = node.kind else { unreachable!("{call:?} is no call") };
        let mut rest = node.args.iter().skip(1).copied();
        let mut next = || rest.next().unwrap_or(node.args[0]);
        let name = flowloom_isa::helpers::name_of(helper).unwrap_or("a call");
        let mut job = Job {
            title: match self.program.line_of(insn) {
                Some(line) => format!("`{name}`, instruction {insn} ({}:{})", line.file, line.line),
                None => format!("`{name}`, instruction {insn}"),
            },
            port: None,
            head: Part::Const(0),
            tail: Part::Const(0),
            constant: BTreeMap::new(),
            layers: Vec::new(),
        };
        for argument in &dataflow.patterns[usize::from(pattern)].arguments {
            match *argument {
                Argument::Number => {
                    let value = next();
                    // After the port comes the length, which the bytes tell too.
                    if job.port.is_none() {
                        job.port = Some(self.part(value, 32));
                    }
                }
                Argument::Read(len) => {
                    let found = usize::from(len);
                    if found == 0 || found > MAX_EMITTED_BYTES {
                        return Err(RtlError::Emitted { insn, found, expected: MAX_EMITTED_BYTES });
                    }
                    job.tail = Part::Const(u64::from(len));
                    job.constant = (0..i64::from(len)).map(|at| (at, self.part(next(), 8))).collect();
                }
                Argument::Head => job.head = self.part(next(), 16),
                Argument::Tail => job.tail = self.part(next(), 16),
                Argument::Kept => return Err(RtlError::Kept),
                Argument::Base => {
                    job.layers.push(Layer { base: self.part(next(), BASE_BITS as u16), bytes: BTreeMap::new() });
                }
                Argument::Laid(at) => {
                    let laid = (self.part(next(), 1), self.part(next(), 8));
                    job.layers.last_mut().into_iter().for_each(|layer| _ = layer.bytes.insert(at, laid));
                }
                Argument::Byte(at) => _ = job.constant.insert(at, self.part(next(), 8)),
                Argument::Context | Argument::Map(_) | Argument::Changed(_) | Argument::Stored(_) => {}
            }
        }
        job.layers.retain(|layer| !layer.bytes.is_empty());
        Ok(job)
    }

    /// The job of the packet itself.
    fn own(&mut self) -> Job {
        let ending = &self.dataflow.ending;
        let overlays = ending.overlays.iter().filter(|overlay| !overlay.bytes.is_empty());
        Job {
            title: "the packet itself".to_owned(),
            port: None,
            head: self.part(ending.head, 16),
            tail: self.part(ending.tail, 16),
            constant: ending.packet.iter().map(|(at, byte)| (*at, self.part(*byte, 8))).collect(),
            layers: overlays
                .map(|overlay| Layer {
                    base: self.part(overlay.base, BASE_BITS as u16),
                    bytes: overlay
                        .bytes
                        .iter()
                        .map(|(at, laid)| (*at, (self.part(laid.when, 1), self.part(laid.byte, 8))))
                        .collect(),
                })
                .collect(),
        }
    }
}

impl Sends {
    /// The calls of a plan.
    pub(crate) fn of(plan: &Plan, program: &Program) -> Result<Sends, RtlError> {
        let dataflow = &plan.dataflow;
        let calls: Vec<Id> = dataflow.graph.ids().filter(|id| is_send(dataflow, *id)).collect();
        if calls.is_empty() {
            return Ok(Sends::default());
        }
        if calls.len() > MAX_SENDS {
            return Err(RtlError::Sends { found: calls.len(), expected: MAX_SENDS });
        }
        let mut record = Record { dataflow, program, known: BTreeMap::new(), sends: Sends::default() };
        record.sends.when = calls.iter().map(|call| dataflow.graph.node(*call).args[0]).collect();
        let mut jobs: Vec<Job> = calls.iter().map(|call| record.call(*call)).collect::<Result<_, RtlError>>()?;
        jobs.push(record.own());
        record.sends.jobs = jobs;
        Ok(record.sends)
    }

    /// The most packets that one packet sends besides itself.
    pub fn len(&self) -> usize {
        self.when.len()
    }

    /// Whether packets send nothing besides themselves.
    pub fn is_empty(&self) -> bool {
        self.when.is_empty()
    }

    /// The bits of a record.
    pub(crate) fn record_bits(&self) -> u32 {
        self.record_bits.max(1)
    }

    /// The bits of the number of a job.
    pub(crate) fn job_bits(&self) -> u32 {
        usize::BITS - self.len().leading_zeros()
    }

    /// Whether a packet that is sent may begin elsewhere than the packet as received.
    pub(crate) fn moves(&self) -> bool {
        self.jobs.iter().any(|job| job.head != Part::Const(0))
    }

    /// The bytes that any job replaces.
    pub(crate) fn edits(&self) -> Edits {
        let constant: BTreeSet<i64> = self.jobs.iter().flat_map(|job| job.constant.keys().copied()).collect();
        let most = self.jobs.iter().map(|job| job.layers.len()).max().unwrap_or(0);
        let span = |number: usize| {
            let layers = self.jobs.iter().filter_map(|job| job.layers.get(number));
            let offsets: BTreeSet<i64> = layers.flat_map(|layer| layer.bytes.keys().copied()).collect();
            let (first, last) = (offsets.first().copied()?, offsets.last().copied()?);
            Some(Span { first, bytes: (last - first + 1) as u32 })
        };
        Edits {
            constant: constant.into_iter().collect(),
            is_optional: true,
            overlays: (0..most).filter_map(span).collect(),
        }
    }

    /// Adds what the record needs in the last stage.
    pub(crate) fn add_needs(&self, plan: &Plan, needs: &mut Needs) {
        let ids = self.when.iter().copied().chain(self.fields.iter().map(|(id, _)| *id));
        ids.for_each(|id| needs.add(plan, id, plan.schedule.stages));
    }

    /// The ports of the core.
    pub(crate) fn ports(&self) -> [String; 2] {
        [
            format!(
                "// By packet that is sent besides, in order: whether it is.\n    output logic [{}:0] sends_o",
                self.len() - 1
            ),
            format!(
                "// The values of these and of the packet itself.\n    output logic [{}:0] record_o",
                self.record_bits() - 1
            ),
        ]
    }

    /// The assignments of these ports.
    pub(crate) fn assignments(&self, signal: &dyn Fn(Id) -> String) -> [String; 2] {
        let when = self.when.iter().rev().map(|id| signal(*id));
        let fields = self.fields.iter().rev().map(|(id, bits)| format!("{bits}'({})", signal(*id)));
        let fields: Vec<String> = if self.fields.is_empty() { vec!["1'b0".to_owned()] } else { fields.collect() };
        [
            wrapped("  assign sends_o = {", &when.collect::<Vec<_>>(), "};"),
            wrapped("  assign record_o = {", &fields, "};"),
        ]
    }

    /// The signals between the core and the emitter.
    pub(crate) fn declarations(&self) -> String {
        let (sends, record) = (self.len() - 1, self.record_bits() - 1);
        format!(
            "  // Results as the core gives them; then the jobs that they are.
  logic core_valid, core_has_target, core_slow, ready, is_extra;
  logic [{sends}:0] core_sends;
  logic [{record}:0] core_record, record;
  logic [31:0] core_verdict, core_target, own_target;
  logic [1:0] core_spread;
  logic [{job}:0] job;
",
            job = self.job_bits() - 1,
        )
    }

    /// The blocks between the core and the emitter: the jobs, and what they send.
    pub(crate) fn instances(&self, module: &str, in_flight: u32, has_edits: bool) -> String {
        let (sends, width) = (self.len(), RESULT_BITS + self.record_bits());
        let edits = if has_edits { ",\n      .edits_o(edits)" } else { "" };
        format!(
            "
  // The packets that a packet sends besides itself, and the packet.
  fl_jobs #(
      .Sends({sends}),
      .Width({width}),
      .InFlight({in_flight})
  ) u_jobs (
      .clk_i,
      .rst_i,
      .valid_i(core_valid),
      .sends_i(core_sends),
      .result_i({{core_verdict, core_has_target, core_target, core_spread, core_slow, core_record}}),
      .valid_o(valid),
      .ready_i(ready),
      .is_extra_o(is_extra),
      .job_o(job),
      .result_o({{verdict, has_target, own_target, spread, slow, record}})
  );

  {module} u_sends (
      .job_i(job),
      .target_i(own_target),
      .record_i(record),
      .port_o(target),
      .head_o(head[15:0]),
      .tail_o(tail[15:0]){edits}
  );
  assign head[31:16] = '0;
  assign tail[31:16] = '0;
"
        )
    }

    /// The module that says what a job sends.
    pub(crate) fn module(&self, module: &str) -> String {
        let edits = self.edits();
        let (job_bits, record) = (self.job_bits(), self.record_bits());
        let has_edits = edits.bits() > 0;
        let mut ports = vec![
            format!(
                "// The number of the job; {} is the packet itself.\n    input  logic [{}:0] job_i",
                self.len(),
                job_bits - 1
            ),
            "// The target of the verdict.\n    input  logic [31:0] target_i".to_owned(),
            format!("input  logic [{}:0] record_i", record - 1),
            "output logic [31:0] port_o".to_owned(),
            "output logic [15:0] head_o".to_owned(),
            "output logic [15:0] tail_o".to_owned(),
        ];
        ports.extend(has_edits.then(|| format!("output logic [{}:0] edits_o", edits.bits() - 1)));
        let mut text = format!(
            "// Generated by Flowloom: what the jobs of a packet send.\n//\n// Latency: 0.\n// Throughput: one job a cycle.\n\
             // Handshake: none.\nmodule {module} (\n    {}\n);\n\n",
            ports.join(",\n    ")
        );
        if self.fields.is_empty() {
            text.push_str("  logic unused;\n  assign unused = ^record_i;\n\n");
        }
        text.push_str("  always_comb begin\n    unique case (job_i)\n");
        for (at, job) in self.jobs.iter().enumerate() {
            let label = if at == self.len() { "default".to_owned() } else { format!("{job_bits}'d{at}") };
            let port = job.port.map_or("target_i".to_owned(), |port| Run::of(port, 32).text());
            _ = write!(
                text,
                "      // {}.\n      {label}: begin\n        port_o = {port};\n        head_o = {};\n        tail_o = {};\n",
                job.title,
                Run::of(job.head, 16).text(),
                Run::of(job.tail, 16).text()
            );
            if has_edits {
                let parts = job.parts(&edits);
                text.push_str(&wrapped("        edits_o = {", &parts, "};"));
                text.push('\n');
            }
            text.push_str("      end\n");
        }
        text.push_str("    endcase\n  end\n\nendmodule\n");
        text
    }
}

impl Job {
    /// Its edits, from the highest bits on.
    fn parts(&self, edits: &Edits) -> Vec<String> {
        let bit = |is: bool| (Part::Const(is.into()), 1);
        let none = (Part::Const(0), 8);
        let byte = |part: &Part| (*part, 8);
        let mut parts: Vec<(Part, u16)> =
            edits.constant.iter().map(|at| self.constant.get(at).map_or(none, byte)).collect();
        parts.extend(edits.constant.iter().map(|at| bit(self.constant.contains_key(at))));
        for (number, span) in edits.overlays.iter().enumerate() {
            let layer = self.layers.get(number);
            parts.push((layer.map_or(Part::Const(0), |layer| layer.base), BASE_BITS as u16));
            let laid = |at: i64| layer.and_then(|layer| layer.bytes.get(&(span.first + at)));
            let offsets = 0..i64::from(span.bytes);
            parts.extend(offsets.clone().map(|at| laid(at).map_or(bit(false), |(when, _)| (*when, 1))));
            parts.extend(offsets.map(|at| laid(at).map_or(none, |(_, part)| byte(part))));
        }
        let mut texts: Vec<String> = joined(&parts).into_iter().map(Run::text).collect();
        texts.reverse();
        texts
    }
}

/// Neighbouring parts as one expression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Run {
    /// A number, of up to 64 bits unless it is 0.
    Const { value: u64, bits: u32 },
    /// Bits of the record.
    Field { low: u32, bits: u32 },
    /// A bit of the record again and again.
    Repeated { low: u32, count: u32 },
}

impl Run {
    fn of(part: Part, bits: u32) -> Run {
        match part {
            Part::Const(value) => Run::Const { value, bits },
            Part::Field(low) => Run::Field { low, bits },
        }
    }

    /// This run and another one above it.
    fn with(self, above: Run) -> Option<Run> {
        match (self, above) {
            (Run::Const { value, bits }, Run::Const { value: more, bits: others }) => {
                let is_zero = value == 0 && more == 0;
                let value = if is_zero { Some(0) } else { (bits + others <= 64).then(|| value | more << bits) };
                value.map(|value| Run::Const { value, bits: bits + others })
            }
            (Run::Field { low, bits: 1 }, Run::Field { low: same, bits: 1 }) if low == same => {
                Some(Run::Repeated { low, count: 2 })
            }
            (Run::Repeated { low, count }, Run::Field { low: same, bits: 1 }) if low == same => {
                Some(Run::Repeated { low, count: count + 1 })
            }
            (Run::Field { low, bits }, Run::Field { low: next, bits: others }) if low + bits == next => {
                Some(Run::Field { low, bits: bits + others })
            }
            _ => None,
        }
    }

    fn text(self) -> String {
        match self {
            Run::Const { value, bits } => format!("{bits}'h{value:x}"),
            Run::Field { low, bits: 1 } => format!("record_i[{low}]"),
            Run::Field { low, bits } => format!("record_i[{low}+:{bits}]"),
            Run::Repeated { low, count } => format!("{{{count}{{record_i[{low}]}}}}"),
        }
    }
}

/// Parts, the lowest one first, as few expressions.
fn joined(parts: &[(Part, u16)]) -> Vec<Run> {
    let mut runs: Vec<Run> = Vec::new();
    for (part, bits) in parts {
        let run = Run::of(*part, (*bits).into());
        match runs.last_mut().and_then(|last| Some((last.with(run)?, last))) {
            Some((both, last)) => *last = both,
            None => runs.push(run),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_parts_are_one_expression() {
        let [zero, one] = [Part::Const(0), Part::Const(1)];
        let field = Part::Field;
        let parts = [(zero, 8), (zero, 100), (one, 1), (field(3), 8), (field(11), 8), (field(2), 1), (field(2), 1)];
        let texts = |parts: &[(Part, u16)]| joined(parts).into_iter().map(Run::text).collect::<Vec<_>>();
        assert_eq!(texts(&parts), ["108'h0", "1'h1", "record_i[3+:16]", "{2{record_i[2]}}"]);
        assert_eq!(texts(&[(one, 8), (one, 8), (field(7), 1), (field(8), 1)]), ["16'h101", "record_i[7+:2]"]);
    }
}
