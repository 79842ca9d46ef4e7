// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The papers' layout as a self-contained page without a script.

use std::fmt::Write as _;

use super::{BlockExplanation, BlockMap, BlockStage};
use flowloom_report::{STYLE, counted, escaped, filled, tiles};

const TEMPLATE: &str = include_str!("page.html");
/// Sizes in pixels: the margins, a stage, the tallest column of state, an instruction.
const MARGIN: u32 = 24;
const STAGE: (u32, u32) = (7, 44);
const WIDTH: u32 = 1400;
const STATE: usize = 72;
const INSTRUCTION: usize = 7;
/// The distance between stage numbers in pixels.
const NUMBERED: u32 = 30;

impl BlockExplanation {
    /// The page.
    pub fn html(&self) -> String {
        let width = self.stage_width();
        filled(TEMPLATE, |name| match name {
            "style" => STYLE.to_owned(),
            "program" => escaped(&self.program),
            "subtitle" => format!(
                "{}, laid out block by block as the papers' tools do it, at {} MHz",
                counted(self.instructions, "eBPF instruction"),
                self.clock_mhz
            ),
            "figures" => self.tiles(),
            "width" => (2 * MARGIN + self.stages * width).to_string(),
            "heads" => self.heads(),
            "maps" => self.maps.iter().map(|map| self.map_row(map)).collect(),
            "ilp" => self.columns("arith", |stage| INSTRUCTION * stage.instructions.len()),
            "ilp_height" => (INSTRUCTION * self.ilp_max + 4).to_string(),
            "state" => self.columns("packet", |stage| STATE * stage.bytes() / self.state_bytes.max(1)),
            "most" => self.state_bytes.to_string(),
            "counts" => escaped(self.ilp_counts),
            "stages" => self.stage.iter().map(stage_rows).collect(),
            _ => String::new(),
        })
    }

    fn stage_width(&self) -> u32 {
        (WIDTH / self.stages.max(1)).clamp(STAGE.0, STAGE.1)
    }

    fn left(&self, stage: u32) -> u32 {
        MARGIN + stage * self.stage_width()
    }

    fn tiles(&self) -> String {
        let pruned = if self.pruned { "" } else { "; not pruned" };
        let figures = [
            (
                "stages",
                self.stages.to_string(),
                format!(
                    "{} instructions in {}, {} a stage, {} at most; {} omitted",
                    self.operations,
                    counted(self.blocks, "block"),
                    self.ilp_avg,
                    self.ilp_max,
                    counted(self.bounds_checks.len(), "bounds check")
                ),
            ),
            ("latency", format!("{} cycles", self.latency_cycles), format!("{} ns", self.latency.ns)),
            ("window", format!("{} bytes", self.window_bytes), self.latency.last_word_reason.to_owned()),
            ("state", format!("{} bytes", self.state_bytes), format!("at most before a stage{pruned}")),
        ];
        tiles(figures)
    }

    fn heads(&self) -> String {
        let every = NUMBERED.div_ceil(self.stage_width()).max(1);
        let stages = (0..self.stages).step_by(every as usize);
        stages.map(|stage| format!("<span class=\"at\" style=\"left:{}px\">{stage}</span>", self.left(stage))).collect()
    }

    /// A column for each stage, of the given height in pixels.
    fn columns(&self, class: &str, height: impl Fn(&BlockStage) -> usize) -> String {
        let width = self.stage_width() - 1;
        let column = |stage: &BlockStage| {
            let left = self.left(stage.stage);
            format!(
                "<i class=\"fill {class}\" style=\"left:{left}px;width:{width}px;height:{}px\" title=\"stage {}: {}, {} bytes\"></i>",
                height(stage),
                stage.stage,
                counted(stage.instructions.len(), "instruction"),
                stage.bytes()
            )
        };
        self.stage.iter().map(column).collect()
    }

    /// A map with a bar from the restart, or its first read, to its last write.
    fn map_row(&self, map: &BlockMap) -> String {
        let until =
            map.write_stage.map_or_else(|| "never written".to_owned(), |stage| format!("written in stage {stage}"));
        let mut more = format!("{}; read from stage {}, {until}", map.kind, map.read_stage);
        if let (Some(cycles), Some(restart)) = (map.flush_cycles, map.restart_stage) {
            let _ = write!(more, "; L {}, K {cycles}, packets restart in stage {restart}", map.hold_cycles);
        }
        if !map.repeats.is_empty() {
            let _ = write!(more, "; a flush writes a second time: {}", map.repeats.join(", "));
        }
        let (first, last) = (map.read_stage, map.write_stage.unwrap_or(map.read_stage).max(map.read_stage));
        let bar = |first: u32, last: u32, class: &str, what: &str| {
            let (left, width) = (self.left(first), (last + 1 - first) * self.stage_width() - 2);
            format!(
                "<div class=\"bar {class}\" style=\"left:{left}px;width:{width}px;height:18px\" title=\"{what}\"><em></em></div>"
            )
        };
        let mut bars = String::new();
        if let Some(restart) = map.restart_stage.filter(|restart| *restart < first) {
            bars.push_str(&bar(restart, first - 1, "none", "restarted stages"));
        }
        bars.push_str(&bar(first, last, map.hazard, "from read to write"));
        format!(
            "<section class=\"map\"><div class=\"name\"><b>{}</b> <span class=\"chip {hazard}\">{chip}</span> <span class=\"why\">{}</span>\
             <small>{}</small></div><div class=\"track\" style=\"height:24px\">{bars}</div></section>",
            escaped(&map.name),
            escaped(map.reason),
            escaped(&more),
            hazard = map.hazard,
            chip = if map.hazard == "none" { "no hazard" } else { map.hazard },
        )
    }
}

fn stage_rows(stage: &BlockStage) -> String {
    let head = format!("<td>{}<td>{}<td>{}", stage.stage, stage.block, stage.bytes());
    if stage.instructions.is_empty() {
        return format!("<tr>{head}<td>waits for a call<td></tr>");
    }
    let mut text = String::new();
    for (place, own) in stage.instructions.iter().enumerate() {
        let head = if place == 0 { head.as_str() } else { "<td><td><td>" };
        let source = own.source.as_deref().unwrap_or_default();
        let short = source.rsplit('/').next().unwrap_or(source);
        let (number, words) = (own.instruction, escaped(&own.text));
        let _ = write!(
            text,
            "<tr>{head}<td><code>{number}: {words}</code><td title=\"{}\">{}</tr>",
            escaped(source),
            escaped(short)
        );
    }
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use flowloom_isa::asm;
    use flowloom_verifier::verify;

    use super::*;
    use flowloom_plan::Options;

    /// Names that break out of elements and attributes unless they are escaped.
    const HOSTILE: &str = "</title><script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{stages}}";

    #[test]
    fn the_page_is_complete_and_escapes_names() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../functions/ebpf/toy/toy_printed.bpf");
        let mut program = asm::program("toy.bpf", &std::fs::read_to_string(path).unwrap()).unwrap();
        program.name = HOSTILE.to_owned();
        program.maps[0].name = HOSTILE.to_owned();
        program.lines.iter_mut().for_each(|line| line.file = format!("{HOSTILE}/{HOSTILE}"));
        let proof = verify(&program, &flowloom_verifier::Options::default()).unwrap();
        let explanation = BlockExplanation::of(&program, &proof, &Options::default()).unwrap();
        let page = explanation.html();
        for reference in ["http:", "https:", "src=\"", "url(", "@import", "<link", "<script", "<img", "onerror=\""] {
            assert!(!page.contains(reference), "`{reference}`");
        }
        let rows = explanation.stage.iter().map(|stage| stage.instructions.len().max(1)).sum::<usize>();
        assert_eq!(page.matches("<tr><td>").count(), rows);
        for own in
            explanation.stage.iter().flat_map(|stage| &stage.instructions).filter(|own| !own.text.contains(HOSTILE))
        {
            assert!(page.contains(&format!("{}: {}", own.instruction, escaped(&own.text))));
        }
        assert!(page.matches("&lt;/title&gt;&lt;script&gt;alert(1)&lt;/script&gt;&quot;&#39;&gt;").count() > 20);
        let body = page.split_once("<body>").unwrap().1;
        for tag in body.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()) {
            assert!(tag.matches('"').count() % 2 == 0 && !tag.contains('\''), "`{tag}`");
        }
    }
}
