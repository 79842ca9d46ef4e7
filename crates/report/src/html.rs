// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The report as a self-contained page: no external font, script, style or image.
//!
//! ```text
//!   source lines │ stage 0      stage 1   …
//!   with their   │ maps: a bar from read to write
//!   instructions │ operations, by the levels that they take
//!                │ registers between the stages
//!   stage by stage, as tables: readable without a script
//! ```
//!
//! Names, lines and instructions come from objects, so all text in the page goes through [`escaped`].

mod chart;

use std::fmt::Write as _;

use super::{Explanation, Instruction, Live, Operation, SourceLine, Stage};
use crate::numbers::counted;
use flowloom_plan::Fit;

const TEMPLATE: &str = include_str!("html/page.html");
pub const STYLE: &str = include_str!("html/page.css");
const SCRIPT: &str = include_str!("html/page.js");

/// Text escaped for elements and attributes.
pub fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // Control characters are not allowed in a page.
            c if c.is_control() && c != '\t' => safe.push('\u{fffd}'),
            c => safe.push(c),
        }
    }
    safe
}

/// A template with each `{{name}}` replaced once; replacements are not expanded again.
pub fn filled(template: &str, part: impl Fn(&str) -> String) -> String {
    let mut text = String::new();
    let mut rest = template;
    while let Some((before, rest_after)) = rest.split_once("{{") {
        text.push_str(before);
        match rest_after.split_once("}}") {
            Some((name, rest_after)) => {
                text.push_str(&part(name));
                rest = rest_after;
            }
            None => {
                text.push_str("{{");
                rest = rest_after;
            }
        }
    }
    text.push_str(rest);
    text
}

/// The figures at the head of a page: name, figure and more about it.
pub fn tiles<const N: usize>(tiles: [(&str, String, String); N]) -> String {
    let tile = |(name, figure, more): (&str, String, String)| {
        let (figure, more) = (escaped(&figure), escaped(&more));
        format!("<div class=\"tile\"><dt>{name}</dt><dd><b>{figure}</b> <small>{more}</small></dd></div>")
    };
    tiles.map(tile).concat()
}

impl Explanation {
    /// The page.
    pub fn html(&self) -> String {
        let columns = chart::Columns::of(self);
        filled(TEMPLATE, |name| match name {
            "style" => STYLE.to_owned(),
            "script" => SCRIPT.to_owned(),
            "program" => escaped(&self.program),
            "subtitle" => format!(
                "{}, a pipeline at {} MHz by {}",
                counted(self.instructions, "eBPF instruction"),
                self.clock_mhz,
                self.schedule
            ),
            "figures" => self.tiles(),
            "notes" => self.notes.iter().map(|note| format!("<p class=\"note\">{}</p>\n", escaped(note))).collect(),
            "source" => self.source(),
            "width" => columns.width().to_string(),
            "columns" => chart::columns(self, &columns),
            "heads" => chart::heads(self, &columns),
            "regions" => track("regions", chart::regions(self, &columns)),
            "maps" => self.map_rows(&columns),
            "operations" => track("logic", chart::operations(self, &columns)),
            "profile" => track("profile", chart::profile(self, &columns)),
            "levels" => self.stage_levels.to_string(),
            "counts" => escaped(self.ilp_counts),
            "stages" => {
                self.stage.iter().zip(&self.live).map(|(stage, live)| self.stage_section(stage, live)).collect()
            }
            "leaving" => self.live.last().map_or_else(String::new, |live| held(live, self.live.len() - 1)),
            "passes" => self.pass_rows(),
            _ => String::new(),
        })
    }

    fn tiles(&self) -> String {
        let latency = &self.latency;
        let most = self.live.iter().skip(1).map(|live| live.bits).max().unwrap_or(0);
        let ends = match latency.emitter {
            0 => format!("{} registers at the ends", latency.framing),
            emitter => format!("{} of the framer, {emitter} of the emitter", latency.framing),
        };
        let mut cycles = vec![format!("{} of stages", latency.stages), ends];
        let others = [
            (latency.late_results, "for late results"),
            (latency.schedulers, "for schedulers"),
            (latency.buffers, "for buffers"),
            (latency.realignment, "to shift the packet"),
            (latency.last_word, "to wait for the last word"),
        ];
        cycles.extend(others.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
        let beyond = if self.window.reaches_beyond { format!("; {}", super::BEYOND) } else { String::new() };
        let window = format!("{}{beyond}", latency.last_word_reason);
        let tiles = [
            (
                "stages",
                self.stages.to_string(),
                format!("{}, {} a stage, {} at most", self.operations_text(), self.ilp_avg, self.ilp_max),
            ),
            ("latency", format!("{} cycles", self.latency_cycles), format!("{} ns: {}", latency.ns, cycles.join(", "))),
            ("window", format!("{} bytes", self.window_bytes), window),
            (
                "registers",
                format!("{most} bits"),
                format!(
                    "at most between two stages; {} in all{}",
                    self.register_bits,
                    if self.pruned { "" } else { ", not pruned" }
                ),
            ),
        ];
        let device = |fit: &Fit| self::tiles([("device", fit.name.to_string(), crate::text::device(fit))]);
        self::tiles(tiles) + &self.device.as_ref().map_or_else(String::new, device)
    }

    fn source(&self) -> String {
        let mut text = String::new();
        let mut file = None;
        for (place, line) in self.lines.iter().enumerate() {
            if file != Some(&line.file) {
                let short = line.file.rsplit('/').next().unwrap_or(&line.file);
                let _ = write!(text, "<li class=\"file\" title=\"{}\">{}</li>", escaped(&line.file), escaped(short));
                file = Some(&line.file);
            }
            self.source_line(&mut text, place, line);
        }
        let without_line: Vec<&Instruction> = self.code.iter().filter(|own| own.line.is_none()).collect();
        if !without_line.is_empty() {
            text.push_str("<li class=\"file\">without a source line</li><li class=\"always\"><ol class=\"insns\">");
            without_line.into_iter().for_each(|own| instruction(&mut text, own));
            text.push_str("</ol></li>");
        }
        text
    }

    fn source_line(&self, text: &mut String, place: usize, line: &SourceLine) {
        let own = || self.code.iter().filter(|own| own.line == Some(place));
        let nodes: Vec<String> = own().flat_map(|own| &own.operations).map(usize::to_string).collect();
        let only = if own().any(|own| own.becomes == "wires") { "wires" } else { "–" };
        let _ = write!(
            text,
            "<li><a class=\"line\" id=\"l{place}\" href=\"#l{place}\" data-l=\"{place}\" data-n=\"{}\" title=\"{}\">\
             <span class=\"no\">{}</span><code>{}</code>{}</a><ol class=\"insns\">",
            nodes.join(" "),
            escaped(&format!("{}:{} {}", line.file, line.line, line.text.trim())),
            line.line,
            escaped(&line.text),
            chips(&line.stages, only),
        );
        own().for_each(|own| instruction(text, own));
        text.push_str("</ol></li>");
    }

    fn map_rows(&self, columns: &chart::Columns) -> String {
        let mut text = String::new();
        for (place, map) in self.maps.iter().enumerate() {
            let nodes: Vec<String> = map.users.iter().map(|user| user.node.to_string()).collect();
            let until =
                map.write_stage.map_or_else(|| "never written".to_owned(), |stage| format!("written in stage {stage}"));
            let hold = match map.hold_cycles {
                1 => String::new(),
                cycles => format!(", a key is held for {cycles} cycles"),
            };
            let restart =
                map.restart_stage.map_or_else(String::new, |stage| format!(", packets restart in stage {stage}"));
            let _ = write!(
                text,
                "<section class=\"map\"><a class=\"name\" id=\"m{place}\" href=\"#m{place}\" data-m=\"{place}\" data-n=\"{}\">\
                 <b>{}</b> <span class=\"chip {hazard}\">{chip}</span> <span class=\"why\">{}</span>\
                 <small>{}, {}, key {} bytes, value {} bytes; read from stage {}, {until}{hold}{restart}</small></a>",
                nodes.join(" "),
                escaped(&map.name),
                escaped(&map.reason),
                escaped(&map.kind),
                counted(map.entries as usize, "entry"),
                map.key_bytes,
                map.value_bytes,
                map.read_stage,
                hazard = map.hazard,
                chip = if map.hazard == "none" { "no hazard" } else { map.hazard },
            );
            text.push_str(&track("table", chart::map(self, columns, map)));
            text.push_str("</section>");
        }
        text
    }

    fn stage_section(&self, stage: &Stage, live: &Live) -> String {
        let number = stage.stage;
        let mut text = format!(
            "<details class=\"stage\" id=\"s{number}\"><summary>Stage {number} <small>{}, {} bits before it</small></summary>",
            counted(stage.operations.len(), "operation"),
            live.bits
        );
        text.push_str(&held(live, number as usize));
        if !stage.operations.is_empty() {
            text.push_str(
                "<table><thead><tr><th>value<th>what<th>bits<th>levels<th>instruction<th>source</tr></thead><tbody>",
            );
            stage.operations.iter().for_each(|operation| self.operation_row(&mut text, operation));
            text.push_str("</tbody></table>");
        }
        for effect in &stage.effects {
            let condition = effect.predicate.as_ref().map_or_else(String::new, |bit| format!(" if {bit}"));
            let description = escaped(&format!("{}{condition}", effect.does));
            let _ = write!(text, "<p class=\"effect\" data-n=\"{}\">at its end: {description}</p>", effect.node);
        }
        text.push_str("</details>");
        text
    }

    fn operation_row(&self, text: &mut String, operation: &Operation) {
        let levels = match operation.ends_stage > operation.begins_stage {
            true => format!("to stage {}", operation.ends_stage),
            false => format!("{:.1}–{:.1}", operation.from_level, operation.to_level),
        };
        let line = operation.line.and_then(|line| self.lines.get(line));
        let place = line.map_or_else(String::new, |line| {
            format!("{}:{}", line.file.rsplit('/').next().unwrap_or(&line.file), line.line)
        });
        let _ = write!(
            text,
            "<tr id=\"n{node}\" data-n=\"{node}\"><td><i class=\"dot {}\"></i>v{node}<td><code>{}</code><td>{}<td>{levels}\
             <td><code>{}: {}</code><td title=\"{}\">{}</tr>",
            chart::class(operation.kind),
            escaped(&operation.does),
            operation.bits,
            operation.instruction,
            escaped(&operation.text),
            escaped(line.map_or("", |line| line.text.trim())),
            escaped(&place),
            node = operation.node,
        );
    }

    fn pass_rows(&self) -> String {
        let mut text = String::new();
        for pass in &self.passes {
            let (before, after) = (pass.nodes_before, pass.nodes_after);
            let (name, does) = (escaped(pass.name), escaped(pass.does));
            let _ = write!(text, "<tr><td>{name}<td>{does}<td>{before}<td>{after}</tr>");
        }
        text
    }
}

/// A container with absolutely placed content, and its height.
fn track(class: &str, (inside, height): (String, u32)) -> String {
    format!("<div class=\"track {class}\" style=\"height:{height}px\">{inside}</div>")
}

/// The stages of a line or an instruction, or its description if it has none.
fn chips(stages: &[u32], only: &str) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for stage in stages {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *stage => *last = *stage,
            _ => runs.push((*stage, *stage)),
        }
    }
    let chip = |(first, last): (u32, u32)| match last - first {
        0 => format!("<i>{first}</i>"),
        1 => format!("<i>{first}</i><i>{last}</i>"),
        _ => format!("<i>{first}–{last}</i>"),
    };
    let chips: String = runs.into_iter().map(chip).collect();
    let chips = if chips.is_empty() { format!("<em>{only}</em>") } else { chips };
    format!("<span class=\"chips\">{chips}</span>")
}

fn instruction(text: &mut String, own: &Instruction) {
    let nodes: Vec<String> = own.operations.iter().map(usize::to_string).collect();
    let only = if own.becomes == "wires" { "wires" } else { "–" };
    let _ = write!(
        text,
        "<li><a class=\"insn\" id=\"i{at}\" href=\"#i{at}\" data-i=\"{at}\" data-l=\"{}\" data-n=\"{}\">\
         <span class=\"no\">{at}</span><code>{}</code>{}</a></li>",
        own.line.map_or_else(String::new, |line| line.to_string()),
        nodes.join(" "),
        escaped(&own.text),
        chips(&own.stages, only),
        at = own.instruction,
    );
}

/// Byte ranges: `12–14, 20`.
fn byte_runs(live: &Live) -> String {
    let runs = live.packet.iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}–{last}"),
    });
    let runs: Vec<String> = runs.collect();
    if runs.is_empty() { "no byte of the packet".to_owned() } else { format!("bytes {}", runs.join(", ")) }
}

/// The registers before a stage.
fn held(live: &Live, boundary: usize) -> String {
    let mut text =
        format!("<p class=\"held\" id=\"b{boundary}\"><b>{} bits</b> in registers: {}", live.bits, byte_runs(live));
    if live.packet_bits > 0 {
        let _ = write!(text, " ({} bits)", live.packet_bits);
    }
    for value in &live.values {
        let name = if value.holds == "metadata" { value.does.clone() } else { format!("v{}", value.node) };
        let _ = write!(
            text,
            ", <span data-n=\"{}\" title=\"{}\">{}</span> ({})",
            value.node,
            escaped(&value.does),
            escaped(&name),
            value.bits
        );
    }
    text.push_str("</p>");
    text
}
