// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Result of our verifier for a program, as text and JSON.

use flowloom_isa::op::Op;
use flowloom_isa::{LineInfo, Program, disasm};
use flowloom_verifier::{Bytes, Known, Leg, MapId, Memory, Options, Proof, Refusal, VerifyError, verify};
use serde_json::{Map, Value, json};

use super::source::line_json;
use crate::failure::Failure;
use crate::output::{counted, grouped};

pub(super) struct Verified {
    verdict: Result<Proof, VerifyError>,
    /// Number of instructions that the kernel's verifier walked, if it ran and accepted the program.
    pub(super) kernel_walked: Option<u64>,
}

impl Verified {
    pub(super) fn of(program: &Program) -> Verified {
        Verified { verdict: verify(program, &Options::default()), kernel_walked: None }
    }

    /// Line with the number of instructions that the kernel's verifier walked; empty if it did not run.
    pub(super) fn kernel_text(&self, indent: &str) -> String {
        let line =
            |walked: u64| format!("{indent}kernel's verifier: {} processed\n", counted(walked as usize, "instruction"));
        self.kernel_walked.map_or_else(String::new, line)
    }

    fn refusal(&self) -> Option<&Refusal> {
        match &self.verdict {
            Err(VerifyError::Refused(refusal)) => Some(refusal),
            _ => None,
        }
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refusal().is_some()
    }

    pub(super) fn refuses(&self, at: usize) -> bool {
        self.refusal().is_some_and(|refusal| refusal.insn == at)
    }

    /// One line, and details if the program is rejected. Each line begins with `indent`.
    pub(super) fn text(&self, program: &Program, indent: &str) -> String {
        match &self.verdict {
            Ok(proof) => {
                let mut text = format!("{indent}verifier: {}\n", safe(proof, program));
                text.push_str(&findings(proof, program, indent));
                text
            }
            // Reported for each target.
            Err(VerifyError::Program(_)) => String::new(),
            Err(VerifyError::Refused(refusal)) => {
                let mut text = format!("{indent}verifier: rejected\n");
                for line in refusal.details().lines() {
                    text.push_str(&format!("{indent}  {line}\n"));
                }
                text
            }
        }
    }

    /// Notes about an instruction in a listing.
    pub(super) fn notes(&self, program: &Program, at: usize) -> Vec<String> {
        let refusal = match &self.verdict {
            Ok(proof) => return proof.notes(program, at),
            Err(VerifyError::Program(_)) => return Vec::new(),
            Err(VerifyError::Refused(refusal)) => refusal,
        };
        let turns = refusal.path.iter().flat_map(|leg| &leg.turns).filter(|turn| turn.insn == at);
        let mut paths: Vec<&str> = turns.map(|turn| turn.direction()).collect();
        paths.sort_unstable();
        paths.dedup();
        let mut notes: Vec<String> = paths.iter().map(|path| format!("the path {path}")).collect();
        if refusal.insn == at {
            notes.push(format!("refused: {}", refusal.what.found()));
        }
        notes
    }

    /// JSON of the result. If `each` is set, it includes the facts about each instruction.
    pub(super) fn json(&self, program: &Program, each: bool) -> Result<Value, Failure> {
        let mut report = match &self.verdict {
            Ok(proof) => proof_json(proof, program),
            Err(VerifyError::Program(_)) => return Ok(Value::Null),
            Err(VerifyError::Refused(refusal)) => refusal_json(refusal),
        };
        report["kernel_looked_at"] = json!(self.kernel_walked);
        report["instructions"] = if each { self.instructions(program)? } else { Value::Null };
        Ok(report)
    }

    fn instructions(&self, program: &Program) -> Result<Value, Failure> {
        let code = disasm::disassemble(&program.insns, &program.maps).map_err(|e| Failure::input(&e))?;
        let proof = self.verdict.as_ref().ok();
        let mut at = 0;
        let mut all = Vec::new();
        for text in code.lines() {
            let known = proof.and_then(|proof| proof.insns.get(at));
            all.push(json!({
                "instruction": at,
                "text": text,
                "source": line_json(program.line_of(at)),
                "known": known.map(|known| known_json(program, at, known)),
            }));
            at += program.insns.get(at).map_or(1, |insn| insn.slots());
        }
        Ok(all.into())
    }
}

/// `safe on all paths; ...`.
fn safe(proof: &Proof, program: &Program) -> String {
    let mut parts =
        vec!["safe on all paths".to_owned(), format!("{} processed", counted(proof.processed as usize, "instruction"))];
    let besides = if proof.copies(program) { ", and helper copies" } else { "" };
    match proof.window() {
        0 if besides.is_empty() => {}
        bytes => {
            parts.push(format!("accesses at most the first {} of the packet{besides}", counted(bytes as usize, "byte")))
        }
    }
    if !proof.loops.is_empty() {
        let times = match proof.loops.values().copied().flatten().max() {
            // `may_goto` alone bounds all loops.
            None => String::new(),
            Some(1) => ", at most 1 iteration".to_owned(),
            Some(most) => format!(", repeated at most {} times", grouped(most)),
        };
        let timed = match proof.loops.values().filter(|most| most.is_none()).count() {
            0 => String::new(),
            timed => format!(", {} without a known bound", grouped(timed as u64)),
        };
        parts.push(format!("{}{times}{timed}", counted(proof.loops.len(), "loop")));
    }
    match proof.dead().count() {
        0 => {}
        dead => parts.push(format!("{} never reached", counted(dead, "instruction"))),
    }
    parts.join("; ")
}

/// Kernel-dependent bytes that leave the program, with their source lines.
fn findings(proof: &Proof, program: &Program, indent: &str) -> String {
    let mut text = String::new();
    for (at, what) in proof.kernel_dependent_text(program) {
        let op = Op::decode(&program.insns, at)
            .map_or_else(|_| String::new(), |op| format!(" `{}`", disasm::Text { op, maps: &program.maps }));
        let line =
            program.line_of(at).filter(|line| line.line > 0).map_or_else(String::new, |line| format!(", {line}"));
        text.push_str(&format!("{indent}  finding: kernel-dependent contents: {what}\n"));
        text.push_str(&format!("{indent}    where: instruction {at}{op}{line}\n"));
    }
    if !text.is_empty() {
        text.push_str(&format!(
            "{indent}    help: initialise all bytes including padding (`= {{0}}`, `__builtin_memset`); do not store addresses\n"
        ));
    }
    text
}

fn proof_json(proof: &Proof, program: &Program) -> Value {
    let loops: Vec<Value> = proof
        .loops
        .iter()
        .map(|(at, times)| json!({"instruction": at, "begun_again": times, "source": line_json(program.line_of(*at))}))
        .collect();
    json!({
        "safe": true,
        "looked_at": proof.processed,
        "window_bytes": proof.window(),
        "helpers_copy": proof.copies(program),
        "loops": loops,
        "kernel_dependent": proof
            .kernel_dependent_text(program)
            .iter()
            .map(|(at, what)| json!({"instruction": at, "what": what, "source": line_json(program.line_of(*at))}))
            .collect::<Vec<Value>>(),
        "dead": proof.dead().collect::<Vec<usize>>(),
    })
}

/// Name of a map, and whether it is an inner map of that map.
fn map_json(program: &Program, map: MapId) -> (Value, bool) {
    let (MapId::Of(index) | MapId::In(index)) = map;
    let name = program.maps.get(index as usize).map(|map| map.name.as_str());
    (json!(name), matches!(map, MapId::In(_)))
}

fn memory_json(program: &Program, place: Memory, bytes: &Bytes) -> Value {
    let name = match place {
        Memory::Context => "context",
        Memory::Stack { .. } => "stack",
        Memory::Packet => "packet",
        Memory::Metadata => "metadata",
        Memory::Value(_) => "value",
        Memory::Key(_) => "key",
        Memory::Record => "record",
    };
    let mut memory = json!({
        "memory": name,
        "first": bytes.first,
        "end": bytes.end,
        "align": bytes.align,
        "reads": bytes.touch.reads,
        "writes": bytes.touch.writes,
    });
    match place {
        Memory::Stack { up } => memory["calls_up"] = up.into(),
        Memory::Value(map) | Memory::Key(map) => {
            let (name, is_inner) = map_json(program, map);
            memory["map"] = name;
            memory["is_inner_map"] = is_inner.into();
        }
        Memory::Context | Memory::Packet | Memory::Metadata | Memory::Record => {}
    }
    memory
}

fn known_json(program: &Program, at: usize, known: &Known) -> Value {
    let is_branch = matches!(Op::decode(&program.insns, at), Ok(Op::Branch { .. }));
    let memory: Vec<Value> = known.memory.iter().map(|(place, bytes)| memory_json(program, *place, bytes)).collect();
    json!({
        "reached": known.reached,
        "memory": memory,
        "branch": is_branch.then(|| json!({"jumps": known.edges.jumps, "falls_through": known.edges.falls})),
        "maps": known.maps.iter().map(|map| map_json(program, *map).0).collect::<Vec<Value>>(),
        "address_becomes_number": known.leaks,
        "reads_unwritten": known.reads_unwritten,
        "reads_anywhere": known.probes,
    })
}

fn refusal_json(refusal: &Refusal) -> Value {
    let source = |line: &Option<LineInfo>| line_json(line.as_ref());
    let leg = |leg: &Leg| {
        let branches: Vec<Value> = leg
            .turns
            .iter()
            .map(|turn| {
                json!({"instruction": turn.insn, "text": turn.text, "jumps": turn.taken, "source": source(&turn.line),
                       "to": source(&turn.to)})
            })
            .collect();
        json!({"times": leg.times, "branches": branches})
    };
    let before: Vec<Value> = refusal
        .before
        .iter()
        .map(|before| json!({"what": before.what, "instruction": before.insn, "source": source(&before.line)}))
        .collect();
    let registers: Map<String, Value> =
        refusal.registers.iter().map(|(name, held)| (name.clone(), json!(held))).collect();
    json!({
        "safe": false,
        "section": refusal.section,
        "instruction": refusal.insn,
        "text": refusal.text,
        "source": source(&refusal.line),
        "found": refusal.what.found(),
        "expected": refusal.what.expected(),
        "help": refusal.help,
        "before": before,
        "path": refusal.path.iter().map(leg).collect::<Vec<Value>>(),
        "earlier_branches": refusal.earlier,
        "registers": registers,
    })
}
