//! What our verifier says of a program.

use flowloom_bpf::verifier::{Options, Proof, VerifyError, verify};
use flowloom_bpf::{LineInfo, Program};
use serde_json::{Value, json};

use crate::output::counted;

/// A program, verified or not.
pub(super) struct Verified {
    verdict: Result<Proof, VerifyError>,
}

fn line_json(line: Option<&LineInfo>) -> Value {
    let line = line.filter(|line| line.line > 0);
    line.map_or(Value::Null, |l| json!({"file": l.file, "line": l.line, "column": l.column, "text": l.text}))
}

impl Verified {
    pub(super) fn of(program: &Program) -> Verified {
        Verified { verdict: verify(program, &Options::default()) }
    }

    pub(super) fn proof(&self) -> Option<&Proof> {
        self.verdict.as_ref().ok()
    }

    /// One line, and more where the program is not seen to be safe; each begins with `indent`.
    pub(super) fn text(&self, indent: &str) -> String {
        match &self.verdict {
            Ok(proof) => {
                let mut parts = vec![
                    "safe on all paths".to_owned(),
                    format!("{} looked at", counted(proof.looked_at as usize, "instruction")),
                ];
                match proof.window() {
                    0 => {}
                    bytes => parts.push(format!("of the packet the first {} at most", counted(bytes as usize, "byte"))),
                }
                let most = proof.loops.values().max();
                parts.extend(
                    most.map(|most| format!("{}, gone round {most} times at most", counted(proof.loops.len(), "loop"))),
                );
                match proof.dead().count() {
                    0 => {}
                    dead => parts.push(format!("{} never reached", counted(dead, "instruction"))),
                }
                format!("{indent}verifier: {}\n", parts.join("; "))
            }
            // What is no program at all is said for each target.
            Err(VerifyError::Program(_)) => String::new(),
            Err(VerifyError::Refused(refusal)) => {
                let mut text = format!("{indent}verifier: not seen to be safe: {refusal}\n");
                for line in refusal.details().lines() {
                    text.push_str(&format!("{indent}{line}\n"));
                }
                text
            }
        }
    }

    pub(super) fn json(&self) -> Value {
        match &self.verdict {
            Ok(proof) => {
                let loops: Vec<Value> =
                    proof.loops.iter().map(|(at, times)| json!({"instruction": at, "times": times})).collect();
                json!({
                    "safe": true,
                    "looked_at": proof.looked_at,
                    "window_bytes": proof.window(),
                    "loops": loops,
                    "dead": proof.dead().collect::<Vec<usize>>(),
                })
            }
            Err(VerifyError::Program(_)) => Value::Null,
            Err(VerifyError::Refused(refusal)) => {
                let path: Vec<Value> = refusal
                    .path
                    .iter()
                    .map(|turn| json!({"instruction": turn.insn, "jumps": turn.taken, "source": line_json(turn.line.as_ref())}))
                    .collect();
                let registers: serde_json::Map<String, Value> =
                    refusal.registers.iter().map(|(name, held)| (name.clone(), json!(held))).collect();
                json!({
                    "safe": false,
                    "instruction": refusal.insn,
                    "text": refusal.text,
                    "source": line_json(refusal.line.as_ref()),
                    "reason": refusal.what.to_string(),
                    "help": refusal.what.help(),
                    "path": path,
                    "earlier_branches": refusal.earlier,
                    "registers": registers,
                })
            }
        }
    }
}
