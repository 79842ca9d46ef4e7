// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Renders reports for the terminal.

use std::collections::BTreeMap;

use super::{Explanation, Live, Operation, Stage};
use crate::numbers::{counted, grouped};
use flowloom_plan::Fit;

/// The kinds of operations with their own line in a stage.
const LISTED_KINDS: [&str; 12] =
    ["lookup", "load", "store", "atomic", "update", "delete", "evict", "redirect", "clock", "random", "emit", "effect"];
const NOTES_COLUMN: usize = 72;

/// What a plan uses of a device: `1,063 of 1,743,360 register bits, ...`.
pub(crate) fn device(fit: &Fit) -> String {
    let used = fit.resources().into_iter().filter(|(_, used)| used.needed > 0);
    let used = used.map(|(name, used)| format!("{} of {} {name}", grouped(used.needed), grouped(used.available)));
    let ultra = fit.memories.iter().filter(|placed| placed.is_ultra).filter_map(|placed| placed.memory.map.as_deref());
    let mut ultra: Vec<&str> = ultra.collect();
    ultra.dedup();
    let place = if ultra.is_empty() { String::new() } else { format!("; UltraRAMs hold {}", ultra.join(", ")) };
    format!("{}{place}; LUTs are not estimated", used.collect::<Vec<_>>().join(", "))
}

impl Explanation {
    /// The figures, the maps with reasons, and one line per stage; with `verbose` all operations.
    pub fn text(&self, verbose: bool) -> String {
        let mut text = self.figures();
        text.push('\n');
        text.push_str(&self.map_table());
        for region in self.regions.iter().filter(|region| region.steps > 0) {
            text.push_str(&format!(
                "packets that access {} by further keys, in {}, run alone; they and all after them come again from stage {}, \
                 which is decided in stage {}\n",
                region.maps.join(", "),
                counted(region.steps, "step"),
                region.first_stage,
                region.last_stage,
            ));
        }
        for region in self.regions.iter().filter(|region| region.maps.len() > 1 && region.steps == 0) {
            text.push_str(&format!(
                "stages {} to {} are one region of {}\n",
                region.first_stage,
                region.last_stage,
                region.maps.join(", ")
            ));
        }
        for note in &self.notes {
            text.push_str(&format!("note: {note}\n"));
        }
        text.push('\n');
        match verbose {
            true => {
                self.users(&mut text);
                self.passes(&mut text);
                self.stages(&mut text);
            }
            false => text.push_str(&self.stage_table()),
        }
        text
    }

    fn figures(&self) -> String {
        let latency = &self.latency;
        let most = self.live.iter().skip(1).map(|live| live.bits).max().unwrap_or(0);
        let beyond = if self.window.reaches_beyond { format!("; {}", super::BEYOND) } else { String::new() };
        let pruned = if self.pruned { "" } else { "; not pruned" };
        let mut rows = vec![
            (
                "stages",
                format!(
                    "{}, out of {}: {}, {} a stage, {} at most",
                    self.stages,
                    counted(self.instructions, "instruction"),
                    self.operations_text(),
                    self.ilp_avg,
                    self.ilp_max
                ),
            ),
            ("latency", latency.text(self.latency_cycles)),
            (
                "window",
                format!(
                    "{}, {}; {}{beyond}",
                    counted(self.window_bytes as usize, "byte"),
                    counted(self.window.frames as usize, "frame"),
                    latency.last_word_reason
                ),
            ),
            (
                "registers",
                format!("{}, {most} at most after a stage{pruned}", counted(self.register_bits as usize, "bit")),
            ),
        ];
        rows.extend(self.device.as_ref().map(|fit| ("device", format!("{}: {}", fit.name, device(fit)))));
        headed(&format!("{} at {} MHz, scheduled by its {}", self.program, self.clock_mhz, self.schedule), &rows)
    }

    fn map_table(&self) -> String {
        if self.maps.is_empty() {
            return "no maps\n".to_owned();
        }
        let rows = self.maps.iter().map(|map| {
            vec![
                map.name.clone(),
                map.kind.clone(),
                map.hazard.to_owned(),
                map.read_stage.to_string(),
                map.write_stage.map_or_else(|| "–".to_owned(), |stage| stage.to_string()),
                map.hold_cycles.to_string(),
                map.reason.clone(),
            ]
        });
        let header = ["map", "kind", "hazard", "read", "write", "hold", "why"];
        table(&header, &rows.collect::<Vec<_>>(), &[3, 4, 5])
    }

    fn stage_table(&self) -> String {
        let rows = self.stage.iter().zip(&self.live).map(|(stage, live)| {
            let numbers = [stage.stage.to_string(), stage.operations.len().to_string(), live.bits.to_string()];
            numbers.into_iter().chain([summary(stage)]).collect()
        });
        let table = table(&["stage", "operations", "bits", "what"], &rows.collect::<Vec<_>>(), &[0, 1, 2]);
        table + "bits: register bits before the stage\n"
    }

    /// The source line of an instruction: `prog.c:12`.
    fn place(&self, line: Option<usize>) -> String {
        line.and_then(|line| self.lines.get(line))
            .map_or_else(String::new, |line| format!("{}:{}", line.file, line.line))
    }

    fn users(&self, text: &mut String) {
        for map in &self.maps {
            let (entries, key, value) = (map.entries, map.key_bytes, map.value_bytes);
            let entries = counted(entries as usize, "entry");
            text.push_str(&format!("{}: {entries}, key {key} bytes, value {value} bytes", map.name));
            if map.queues > 0 {
                text.push_str(&format!(", {}", counted(map.queues as usize, "queue")));
            }
            if let Some(stage) = map.restart_stage {
                text.push_str(&format!(", packets restart in stage {stage}"));
            }
            text.push('\n');
            for user in &map.users {
                let timing = match user.commit_stage {
                    Some(commit) => format!(", commits after stage {commit}"),
                    None => String::new(),
                };
                let description = format!("  stage {}: {}{timing}", user.begins_stage, user.does);
                text.push_str(&format!("{description:NOTES_COLUMN$} ; {}\n", self.place(user.line)));
            }
        }
    }

    fn passes(&self, text: &mut String) {
        let rows = self.passes.iter().map(|pass| {
            let nodes = format!("{} to {}", pass.nodes_before, pass.nodes_after);
            vec![pass.name.to_owned(), nodes, pass.does.to_owned()]
        });
        text.push('\n');
        text.push_str(&table(&["pass", "nodes", "description"], &rows.collect::<Vec<_>>(), &[1]));
    }

    fn stages(&self, text: &mut String) {
        for (stage, live) in self.stage.iter().zip(&self.live) {
            text.push_str(&format!("\nstage {}: {}\n", stage.stage, counted(stage.operations.len(), "operation")));
            text.push_str(&registers(live));
            for operation in &stage.operations {
                text.push_str(&self.operation(operation));
            }
            for effect in &stage.effects {
                let condition = effect.predicate.as_ref().map_or_else(String::new, |bit| format!(" if {bit}"));
                text.push_str(&format!("  at its end: {}{condition}\n", effect.does));
            }
        }
        text.push_str("\nafter the last stage\n");
        text.push_str(&self.live.last().map_or_else(String::new, registers));
    }

    fn operation(&self, operation: &Operation) -> String {
        let spans = operation.ends_stage > operation.begins_stage;
        let timing = match spans {
            true => format!("to stage {}", operation.ends_stage),
            false => format!("{:.1}-{:.1}", operation.from_level, operation.to_level),
        };
        let description = format!("  v{} = {}", operation.node, operation.does);
        let bits = if operation.bits == 0 { String::new() } else { counted(operation.bits.into(), "bit") };
        format!(
            "{description:NOTES_COLUMN$} ; {bits:8} {timing:11} {}: {}  {}\n",
            operation.instruction,
            operation.text,
            self.place(operation.line)
        )
    }
}

/// The registers before a stage.
fn registers(live: &Live) -> String {
    let mut parts = Vec::new();
    if !live.packet.is_empty() {
        let runs = live.packet.iter().map(|(first, last)| match first == last {
            true => first.to_string(),
            false => format!("{first}-{last}"),
        });
        parts.push(format!("pkt {} ({} bits)", runs.collect::<Vec<_>>().join(" "), live.packet_bits));
    }
    parts.extend(live.values.iter().map(|value| match value.holds {
        "metadata" => format!("{} ({})", value.does, value.bits),
        _ => format!("v{} ({})", value.node, value.bits),
    }));
    let held = if parts.is_empty() { "nothing".to_owned() } else { parts.join(", ") };
    format!("  registers: {}: {held}\n", counted(live.bits as usize, "bit"))
}

/// A stage in a line: tables and effects one by one, the rest counted.
fn summary(stage: &Stage) -> String {
    let mut items: Vec<(String, usize)> = Vec::new();
    let mut add = |what: String| match items.iter_mut().find(|(other, _)| *other == what) {
        Some((_, count)) => *count += 1,
        None => items.push((what, 1)),
    };
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for operation in &stage.operations {
        let map = operation.map.as_ref().map_or_else(String::new, |map| format!(" {map}"));
        match LISTED_KINDS.contains(&operation.kind) {
            true => add(format!("{}{map}", operation.kind)),
            false => *counts.entry(operation.kind).or_default() += 1,
        }
    }
    let mut changed: Vec<&str> = stage.effects.iter().filter_map(|effect| effect.map.as_deref()).collect();
    changed.sort_unstable();
    changed.dedup();
    let several = |(what, count): (String, usize)| if count == 1 { what } else { format!("{count} × {what}") };
    let mut parts: Vec<String> = items.into_iter().map(several).collect();
    parts.extend(counts.iter().map(|(kind, count)| counted(*count, kind)));
    parts.extend((!changed.is_empty()).then(|| {
        format!("at its end {} {}", changed.join(", "), if changed.len() == 1 { "changes" } else { "change" })
    }));
    parts.join(", ")
}

/// A title, then one indented line for each (name, text) pair, the names padded to one width.
pub fn headed(title: &str, rows: &[(&str, String)]) -> String {
    let mut text = format!("{title}\n");
    for (name, line) in rows {
        text.push_str(&format!("  {name:9}  {line}\n"));
    }
    text
}

/// A table with aligned columns under their header; columns in `right` are right-aligned.
pub fn table(header: &[&str], rows: &[Vec<String>], right: &[usize]) -> String {
    debug_assert!(rows.iter().all(|row| row.len() <= header.len()), "a row is longer than {header:?}");
    let header: Vec<String> = header.iter().map(|name| (*name).to_owned()).collect();
    let lines = || std::iter::once(&header).chain(rows);
    let width = |column: usize| lines().filter_map(|line| line.get(column)).map(|cell| cell.chars().count()).max();
    let widths: Vec<usize> = (0..header.len()).map(|column| width(column).unwrap_or(0)).collect();
    let mut text = String::new();
    for line in lines() {
        let cells = line.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match right.contains(&column) {
            true => format!("{cell:>width$}"),
            false => format!("{cell:width$}"),
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}
