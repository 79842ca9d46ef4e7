// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The layout of the chart: one column per stage; an operation extends from the level where it begins to the level
//! where it ends.

use std::fmt::Write as _;

use super::escaped;
use crate::{Explanation, Live, MapUse, Operation};

/// The margins, for labels at the edges.
const MARGIN_PX: u32 = 44;
/// The width of columns in which nothing begins, or only tables do.
const EMPTY_PX: u32 = 76;
const TABLES_PX: u32 = 124;
/// The width of a level in other columns: the fastest operation, a gate, is as wide as the narrowest box.
const LEVEL_PX: f64 = 55.0;
/// The narrowest box.
const BOX_PX: u32 = 22;
/// The largest shift of a box without delay.
const MOVED_PX: u32 = 5 * BOX_PX;
/// The height of a lane of boxes.
const LANE_PX: u32 = 24;
/// The height of the label above a map's boxes.
const BAR_PX: u32 = 20;
/// The tallest bar of registers.
const PROFILE_PX: u32 = 92;
/// The size of a byte of the packet.
const BYTE_PX: u32 = 4;
/// Bytes of the packet in a line.
const LINE_BYTES: u32 = 16;

/// The edges of the columns.
pub(super) struct Columns {
    edges: Vec<u32>,
    levels: f64,
}

/// A box in a lane.
struct Placed<'a> {
    operation: &'a Operation,
    left: u32,
    width: u32,
    lane: u32,
}

impl Columns {
    pub(super) fn of(explanation: &Explanation) -> Columns {
        let levels = explanation.stage_levels.max(0.1);
        let full = ((levels * LEVEL_PX).round() as u32).max(TABLES_PX);
        let mut edges = vec![MARGIN_PX];
        for stage in &explanation.stage {
            let takes_time = |operation: &&Operation| {
                !is_table(operation) && (operation.to_level > 0.0 || operation.ends_stage > operation.begins_stage)
            };
            let width = match stage.operations.iter().find(takes_time) {
                Some(_) => full,
                None if stage.operations.is_empty() => EMPTY_PX,
                None => TABLES_PX,
            };
            edges.push(edges.last().copied().unwrap_or(0) + width);
        }
        Columns { edges, levels }
    }

    pub(super) fn width(&self) -> u32 {
        self.edge(u32::MAX) + MARGIN_PX
    }

    /// The left edge of a stage; for the number of stages, the right edge of the last one.
    fn edge(&self, stage: u32) -> u32 {
        let last = self.edges.len() - 1;
        self.edges[last.min(stage as usize)]
    }

    fn at(&self, stage: u32, level: f64) -> u32 {
        let (left, right) = (self.edge(stage), self.edge(stage.saturating_add(1)));
        left + (f64::from(right - left) * (level / self.levels).min(1.0)).round() as u32
    }

    /// Places operations on as few lanes as possible.
    fn placed<'a>(&self, operations: impl Iterator<Item = &'a Operation>) -> Vec<Placed<'a>> {
        let mut all: Vec<&Operation> = operations.collect();
        all.sort_by_key(|operation| (self.at(operation.begins_stage, operation.from_level), operation.node));
        let mut ends: Vec<u32> = Vec::new();
        let mut placed = Vec::new();
        for operation in all {
            let start = self.at(operation.begins_stage, operation.from_level);
            let end = self.at(operation.ends_stage, operation.to_level);
            // A box without delay at the end of a stage stays inside of it.
            let width = end.saturating_sub(start).max(BOX_PX);
            let last = self.edge(operation.begins_stage + 1).saturating_sub(BOX_PX);
            let left = start.min(last);
            // A box without delay is shifted until there is room.
            let most = if end <= start { last.min(left + MOVED_PX) } else { left };
            let lane = ends.iter().position(|end| *end <= most).unwrap_or(ends.len());
            let left = left.max(ends.get(lane).copied().unwrap_or(0));
            if lane == ends.len() {
                ends.push(0);
            }
            ends[lane] = left + width;
            placed.push(Placed { operation, left, width: width - 2, lane: lane as u32 });
        }
        placed
    }
}

/// True if an operation is drawn next to its map.
fn is_table(operation: &Operation) -> bool {
    operation.map.is_some()
}

/// The CSS class of a kind.
pub(super) fn class(kind: &str) -> &'static str {
    match kind {
        "comparison" => "compare",
        "gate" => "gate",
        "choice" | "pick" => "choice",
        "sum" | "shift" | "product" | "quotient" => "arith",
        "lookup" | "load" => "reads",
        "store" | "atomic" | "update" | "delete" | "evict" => "writes",
        "redirect" | "emit" => "sends",
        _ => "other",
    }
}

fn boxes(text: &mut String, placed: &[Placed<'_>], top: u32) {
    for Placed { operation, left, width, lane } in placed {
        let (description, small) = match *width > 84 {
            true => (operation.does.as_str(), ""),
            false => (operation.symbol, " small"),
        };
        let uses: Vec<String> = operation.uses.iter().map(usize::to_string).collect();
        let _ = write!(
            text,
            "<a class=\"op {}{small}\" href=\"#n{node}\" data-n=\"{node}\" data-uses=\"{}\" style=\"left:{left}px;top:{}px;\
             width:{width}px\" title=\"{}\">{}</a>",
            class(operation.kind),
            uses.join(" "),
            top + lane * LANE_PX,
            escaped(&format!("v{} = {}", operation.node, operation.does)),
            escaped(description),
            node = operation.node,
        );
    }
}

fn lanes(placed: &[Placed<'_>]) -> u32 {
    placed.iter().map(|placed| placed.lane + 1).max().unwrap_or(0)
}

/// The columns, in the background.
pub(super) fn columns(explanation: &Explanation, columns: &Columns) -> String {
    let mut text = String::new();
    for stage in 0..explanation.stages {
        let (left, right) = (columns.edge(stage), columns.edge(stage + 1));
        let _ =
            write!(text, "<i class=\"col\" data-s=\"{stage}\" style=\"left:{left}px;width:{}px\"></i>", right - left);
    }
    text
}

/// The numbers of the stages.
pub(super) fn heads(explanation: &Explanation, columns: &Columns) -> String {
    let mut text = String::new();
    for stage in &explanation.stage {
        let (left, right) = (columns.edge(stage.stage), columns.edge(stage.stage + 1));
        let nodes: Vec<String> = stage.operations.iter().map(|operation| operation.node.to_string()).collect();
        let count = match stage.operations.len() {
            0 => String::new(),
            1 => "1 op".to_owned(),
            count => format!("{count} ops"),
        };
        let _ = write!(
            text,
            "<a class=\"head\" href=\"#s{number}\" data-s=\"{number}\" data-n=\"{}\" style=\"left:{left}px;width:{}px\" \
             title=\"stage {number}\"><b>{number}</b> <small>{count}</small></a>",
            nodes.join(" "),
            right - left,
            number = stage.stage,
        );
    }
    text
}

/// The flush regions, in a line below the stage numbers; returns their height.
pub(super) fn regions(explanation: &Explanation, columns: &Columns) -> (String, u32) {
    let mut text = String::new();
    let mut height = 0;
    for region in explanation.regions.iter().filter(|region| region.restarts || region.maps.len() > 1) {
        let (left, right) = (columns.edge(region.first_stage), columns.edge(region.last_stage + 1));
        let what = match (region.steps, region.restarts) {
            (0, true) => "may restart: ",
            (0, false) => "together: ",
            _ => "packets that run alone: ",
        };
        let description = format!("{what}{}", region.maps.join(", "));
        let _ = write!(
            text,
            "<span class=\"region\" style=\"left:{left}px;top:{height}px;width:{}px\" title=\"{description}\">{description}</span>",
            right - left,
            description = escaped(&description),
        );
        height += LANE_PX;
    }
    (text, height)
}

/// The bar of a map with its accesses; returns its height.
pub(super) fn map(explanation: &Explanation, columns: &Columns, map: &MapUse) -> (String, u32) {
    let own = explanation.stage.iter().flat_map(|stage| &stage.operations);
    let placed = columns.placed(own.filter(|operation| operation.map.as_ref() == Some(&map.name)));
    let height = BAR_PX + lanes(&placed) * LANE_PX + 4;
    let ends =
        placed.iter().map(|placed| placed.operation.ends_stage.saturating_sub(1)).max().unwrap_or(map.read_stage);
    let (first, last) = (map.read_stage, map.write_stage.unwrap_or(ends).max(map.read_stage));
    let left = columns.edge(first);
    let widest = placed.iter().map(|placed| placed.left + placed.width + 4).max().unwrap_or(left);
    let right = match map.write_stage {
        Some(_) => columns.edge(last + 1),
        None => columns.edge(last + 1).max(widest),
    };
    let mut text = String::new();
    let description = match map.hazard {
        "none" => String::new(),
        "atomic" => "the next packet may follow immediately".to_owned(),
        _ => format!("hold {} cycles", map.hold_cycles),
    };
    let _ = write!(
        text,
        "<span class=\"bar {}\" style=\"left:{left}px;width:{}px;height:{height}px\"><em>{description}</em></span>",
        map.hazard,
        right - left,
    );
    if map.queues > 0 {
        let queues = if map.queues == 1 { "1 queue".to_owned() } else { format!("{} queues", map.queues) };
        let _ = write!(text, "<span class=\"mark before\" style=\"left:{left}px\">{queues} ▸</span>");
    }
    if let Some(stage) = map.restart_stage {
        let _ = write!(text, "<span class=\"mark before\" style=\"left:{}px\">↺</span>", columns.edge(stage));
    }
    if map.write_stage.is_some() {
        let _ = write!(
            text,
            "<span class=\"shows\" style=\"left:{right}px;height:{height}px\" title=\"writes are visible from here\"></span>"
        );
    }
    boxes(&mut text, &placed, BAR_PX);
    (text, height)
}

/// The operations that access no map; returns their height.
pub(super) fn operations(explanation: &Explanation, columns: &Columns) -> (String, u32) {
    let all = explanation.stage.iter().flat_map(|stage| &stage.operations);
    let placed = columns.placed(all.filter(|operation| !is_table(operation)));
    let mut text = String::new();
    boxes(&mut text, &placed, 4);
    (text, lanes(&placed) * LANE_PX + 8)
}

/// Registers between the stages, and the bytes of the packet among them; returns their height.
pub(super) fn profile(explanation: &Explanation, columns: &Columns) -> (String, u32) {
    let most = explanation.live.iter().map(|live| live.bits).max().unwrap_or(0).max(1);
    let high = |bits: u32| (u64::from(bits) * u64::from(PROFILE_PX)).div_ceil(u64::from(most)) as u32;
    let mut text = String::new();
    for (boundary, live) in explanation.live.iter().enumerate() {
        let nodes: Vec<String> = live.values.iter().map(|value| value.node.to_string()).collect();
        let _ = write!(
            text,
            "<a class=\"reg\" href=\"#b{boundary}\" data-b=\"{boundary}\" data-n=\"{}\" style=\"left:{}px\" title=\"{}\">\
             <b>{}</b>",
            nodes.join(" "),
            columns.edge(boundary as u32),
            escaped(&shares(live)),
            live.bits,
        );
        for (class, bits) in parts(live) {
            let _ = write!(text, "<i class=\"{class}\" style=\"height:{}px\"></i>", high(bits));
        }
        text.push_str("</a>");
    }
    let lines = explanation.window_bytes.div_ceil(LINE_BYTES);
    let (width, height) = (LINE_BYTES * BYTE_PX, lines * BYTE_PX);
    let top = PROFILE_PX + 26;
    for (boundary, live) in explanation.live.iter().enumerate() {
        let left = columns.edge(boundary as u32) - width / 2;
        let _ = write!(
            text,
            "<svg class=\"bytes\" style=\"left:{left}px;top:{top}px\" width=\"{width}\" height=\"{height}\" role=\"img\" \
             aria-label=\"{}\"><rect width=\"{width}\" height=\"{height}\"/>",
            escaped(&super::byte_runs(live)),
        );
        for byte in live.packet.iter().flat_map(|(first, last)| *first..=*last).map(u32::from) {
            let (x, y) = (byte % LINE_BYTES * BYTE_PX, byte / LINE_BYTES * BYTE_PX);
            let _ = write!(text, "<path d=\"M{x} {y}h3v3h-3z\"/>");
        }
        text.push_str("</svg>");
    }
    (text, top + height + 8)
}

/// Register bits by kind, for the parts of a bar.
pub(super) fn parts(live: &Live) -> [(&'static str, u32); 4] {
    [
        ("packet", live.packet_bits),
        ("metadata", live.metadata_bits),
        ("computed", live.computed_bits),
        ("answer", live.answer_bits),
    ]
}

fn shares(live: &Live) -> String {
    let shares = parts(live).into_iter().filter(|(_, bits)| *bits > 0);
    let shares: Vec<String> = shares.map(|(what, bits)| format!("{bits} {what}")).collect();
    format!("{} bits: {}", live.bits, if shares.is_empty() { "nothing".to_owned() } else { shares.join(", ") })
}
