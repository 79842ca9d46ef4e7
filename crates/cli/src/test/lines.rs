// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Line coverage of a program by its scenarios.

use std::collections::BTreeMap;

use flowloom_isa::Program;

/// Source lines of the instructions, with their coverage.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// By file and line: the text, and whether one of its instructions was executed.
    lines: BTreeMap<(String, u32), (String, bool)>,
}

impl Lines {
    /// Adds the execution counts of a program's slots. Only lines of the first program count: the same source with
    /// other parameters may have unreachable lines.
    pub(super) fn add(&mut self, program: &Program, hits: &[u64]) {
        let is_first = self.lines.is_empty();
        let mut at = 0;
        while let Some(insn) = program.insns.get(at) {
            if let Some(line) = program.line_of(at).filter(|line| line.line > 0) {
                let place = (line.file.clone(), line.line);
                let is_hit = hits.get(at).is_some_and(|hits| *hits > 0);
                if is_first {
                    let (_, hit) = self.lines.entry(place).or_insert_with(|| (line.text.trim().to_owned(), false));
                    *hit |= is_hit;
                } else if let Some((_, hit)) = self.lines.get_mut(&place) {
                    *hit |= is_hit;
                }
            }
            at += insn.slots();
        }
    }

    /// Number of lines executed, and in total.
    pub(super) fn count(&self) -> (usize, usize) {
        (self.lines.values().filter(|(_, hit)| *hit).count(), self.lines.len())
    }

    /// Lines that were not executed: file, line, text.
    pub(super) fn gaps(&self) -> impl Iterator<Item = (&str, u32, &str)> {
        let missed = self.lines.iter().filter(|(_, (_, hit))| !hit);
        missed.map(|((file, line), (text, _))| (file.as_str(), *line, text.as_str()))
    }
}
