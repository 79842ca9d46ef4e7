// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What machine code does ahead of the lookups of a program: the keys that scouts announce.

use std::sync::Arc;

use flowloom_isa::{LineInfo, Program};
use flowloom_session::engines::{Lookup, Obstacle, lookups};
use flowloom_session::{Loaded, SessionError};
use serde_json::{Value, json};

use crate::failure::with_causes;

/// The lookups of the program that machine code runs, or why it has no machine code.
pub(super) struct Lookups {
    program: Arc<Program>,
    found: Result<Vec<Lookup>, String>,
}

impl Lookups {
    /// Compiles the program of a function; its lines should be relative.
    ///
    /// # Errors
    /// There is no program.
    pub(super) fn of(loaded: &Loaded) -> Result<Lookups, SessionError> {
        Ok(Lookups { program: loaded.program()?, found: lookups(loaded).map_err(|error| with_causes(&error)) })
    }

    pub(super) fn text(&self) -> String {
        let found = match &self.found {
            Err(why) => return format!("machine code: none: {why}\n"),
            Ok(found) if found.is_empty() => return "machine code: no lookups in hash tables to announce\n".to_owned(),
            Ok(found) => found,
        };
        let mut text = "machine code: lookups in hash tables, by instruction\n".to_owned();
        for lookup in found {
            let Lookup { insn, helper, map, .. } = lookup;
            text.push_str(&format!("  {} {helper} `{map}`: {}\n", self.place(*insn), self.ahead(lookup)));
        }
        text
    }

    /// What scouts do ahead of a lookup.
    fn ahead(&self, Lookup { waves, resumes, obstacle, .. }: &Lookup) -> String {
        let obstacle = obstacle.as_ref().map(|Obstacle { insn, kind }| match insn {
            Some(insn) => format!("{kind} at {}", self.place(*insn)),
            None => kind.to_string(),
        });
        let waves: Vec<&str> = waves.iter().map(|wave| if *wave == 1 { "first" } else { "second" }).collect();
        match (waves.is_empty(), obstacle) {
            (true, Some(obstacle)) => format!("not announced: {obstacle}"),
            (true, None) => "not announced".to_owned(),
            (false, _) if *resumes => format!("{} wave, the code resumes here", waves.join(" or ")),
            (false, None) => format!("{} wave", waves.join(" or ")),
            (false, Some(obstacle)) => format!("{} wave, the code begins again: {obstacle}", waves.join(" or ")),
        }
    }

    /// The slot of an instruction, with its line.
    fn place(&self, insn: usize) -> String {
        let line = self.line(insn).map(|line| format!(" ({}:{})", line.file, line.line));
        format!("{insn}{}", line.unwrap_or_default())
    }

    fn line(&self, insn: usize) -> Option<&LineInfo> {
        self.program.line_of(insn).filter(|line| line.line > 0)
    }

    pub(super) fn json(&self) -> Value {
        let place = |insn: usize| {
            let line = self.line(insn);
            let line = line.map(|line| json!({ "file": line.file, "line": line.line, "text": line.text }));
            json!({ "instruction": insn, "line": line })
        };
        let lookup = |Lookup { insn, helper, map, waves, resumes, obstacle }: &Lookup| {
            let obstacle = obstacle
                .as_ref()
                .map(|Obstacle { insn, kind }| json!({ "at": insn.map(place), "what": kind.to_string() }));
            json!({
                "at": place(*insn),
                "helper": helper,
                "map": map,
                "waves": waves,
                "resumes": resumes,
                "obstacle": obstacle,
            })
        };
        match &self.found {
            Ok(found) => json!({ "lookups": found.iter().map(lookup).collect::<Vec<_>>(), "refused": null }),
            Err(why) => json!({ "lookups": [], "refused": why }),
        }
    }
}
