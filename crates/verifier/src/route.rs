// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The path to an instruction, for messages: repeated branches are shown once.

use super::refusal::{Before, Leg, Refusal, Turn, Unsafe};
use super::state::State;
use super::text;
use super::value::{Cause, Invalid, Value};
use flowloom_isa::disasm;
use flowloom_isa::op::Op;
use flowloom_isa::{LineInfo, Program};

/// The most branches that are shown.
const MAX_SHOWN: usize = 16;
/// The longest sequence of branches that is recognised as repeated.
const MAX_REPEATED: usize = 8;

/// A branch, and whether it is taken.
pub(super) type Step = (usize, bool);

/// The refused program, and the path.
pub(super) struct Route<'a> {
    pub(super) program: &'a Program,
    pub(super) code: &'a [Option<Op>],
    pub(super) state: &'a State,
    /// All branches, the first one first.
    pub(super) steps: &'a [Step],
}

impl Route<'_> {
    pub(super) fn refusal(&self, what: Unsafe) -> Refusal {
        let insn = self.state.at;
        let (path, earlier) = self.last_branches();
        let registers = self.state.frame().registers.iter().enumerate();
        let written = registers.filter(|(_, value)| !matches!(value, Value::Unwritten));
        Refusal {
            program: self.program.name.clone(),
            section: self.program.section.clone(),
            insn,
            text: self.text(insn),
            line: self.line(insn),
            help: super::help::of(&what, self.op(insn), self.state, self.program),
            before: self.before(&what),
            what,
            path,
            earlier,
            registers: written
                .map(|(r, value)| (format!("r{r}"), text::value(self.program, self.state.depth(), value)))
                .collect(),
        }
    }

    fn op(&self, insn: usize) -> Option<Op> {
        self.code.get(insn).copied().flatten()
    }

    fn text(&self, insn: usize) -> String {
        let maps = &self.program.maps;
        self.op(insn).map_or_else(String::new, |op| disasm::Text { op, maps }.to_string())
    }

    /// Compilers use line 0 for code without a line.
    fn line(&self, insn: usize) -> Option<LineInfo> {
        self.program.line_of(insn).filter(|line| line.line > 0).cloned()
    }

    fn turn(&self, (insn, taken): Step) -> Turn {
        let op = self.op(insn);
        let next = match (op.and_then(|op| op.distance()), taken) {
            (Some(distance), true) => usize::try_from(insn as i64 + 1 + distance).ok(),
            (None, true) => None,
            (_, false) => op.map(|op| insn + op.slots()),
        };
        let to = next.and_then(|next| self.line(next));
        Turn { insn, text: self.text(insn), taken, line: self.line(insn), to }
    }

    /// The last branches, and the number of those before them.
    fn last_branches(&self) -> (Vec<Leg>, usize) {
        let legs = legs(self.steps);
        let mut first = legs.len();
        let mut shown = 0;
        while let Some((start, end, _)) = first.checked_sub(1).and_then(|leg| legs.get(leg)) {
            shown += end - start;
            if shown > MAX_SHOWN {
                break;
            }
            first -= 1;
        }
        let earlier = legs[..first].iter().map(|(start, end, times)| (end - start) * times).sum();
        let leg = |(start, end, times): &(usize, usize, usize)| Leg {
            turns: self.steps[*start..*end].iter().map(|step| self.turn(*step)).collect(),
            times: *times,
        };
        (legs[first..].iter().map(leg).collect(), earlier)
    }

    fn before(&self, what: &Unsafe) -> Vec<Before> {
        let before = |what, insn| Before { what, insn, line: self.line(insn) };
        let mut all: Vec<Before> = what.acquired().into_iter().map(|insn| before("acquired at", insn)).collect();
        let wrong = what.register().and_then(|register| self.state.frame().registers.get(register));
        let invalid = wrong.and_then(|value| value.number()).and_then(|number| number.invalid);
        all.extend(invalid.map(|Invalid { cause, insn }| {
            let what = match cause {
                Cause::PacketMoved => "the packet was moved at",
                Cause::RecordReleased => "the record was released at",
                Cause::CallbackEnded => "the callback of the key ended at",
            };
            before(what, insn as usize)
        }));
        let frames = self.state.frames.iter().skip(1).rev();
        all.extend(
            frames
                .map(|frame| before(if frame.callback.is_some() { "called back at" } else { "called at" }, frame.call)),
        );
        all
    }
}

/// Repeated sequences of branches: (begin, end, repetitions).
fn legs(steps: &[Step]) -> Vec<(usize, usize, usize)> {
    let mut legs = Vec::new();
    let mut start = 0;
    while start < steps.len() {
        let rest = &steps[start..];
        let repeats = (1..=MAX_REPEATED.min(rest.len())).map(|len| {
            let candidate = &rest[..len];
            (len, rest.chunks_exact(len).take_while(|chunk| *chunk == candidate).count())
        });
        // The one that saves most lines, and the shortest among these.
        let best = repeats
            .filter(|(len, times)| len * (times - 1) > 1)
            .max_by_key(|(len, times)| (len * (times - 1), -(*len as i64)));
        let (len, times) = best.unwrap_or((1, 1));
        legs.push((start, start + len, times));
        start += len * times;
    }
    legs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_branches_are_shown_once() {
        let steps = |text: &str| text.bytes().map(|byte| (usize::from(byte), true)).collect::<Vec<Step>>();
        assert_eq!(legs(&steps("")), []);
        assert_eq!(legs(&steps("aab")), [(0, 1, 1), (1, 2, 1), (2, 3, 1)]);
        assert_eq!(legs(&steps("aaab")), [(0, 1, 3), (3, 4, 1)]);
        assert_eq!(legs(&steps("xababa")), [(0, 1, 1), (1, 3, 2), (5, 6, 1)]);
        assert_eq!(legs(&steps("aaaaaa")), [(0, 1, 6)]);
        assert_eq!(legs(&steps("xabcabcabcq")), [(0, 1, 1), (1, 4, 3), (10, 11, 1)]);
    }
}
