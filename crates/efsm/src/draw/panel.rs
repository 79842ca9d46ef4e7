// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Layout of one element: wraps text, measures nodes, places edges.

use super::content::{Content, Label, Node};
use super::place::{Extent, Link, PORT, Point, place, ports};
use super::text::{LINE, bold_width, cut, lines, width};

pub(super) const STATE_FONT: f64 = 16.0;
/// Margin around the contents of a panel.
pub(super) const MARGIN: f64 = 18.0;
/// Height of the title of a panel.
const TITLE: f64 = 50.0;
/// Height of a self-loop above its state.
pub(super) const LOOP: f64 = 22.0;
/// Length of the arrow into the initial state.
pub(super) const ENTRY: f64 = 34.0;
/// Vertical distance between the labels of two rows on the same edge.
const ROW_SPACING: f64 = 5.0;
/// Maximum width that key and registers give a panel.
const FACTS: f64 = 420.0;
/// Maximum width of the names in a table, in columns.
const NAME_COLUMNS: usize = 26;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    Condition,
    Action,
    Timer,
    Muted,
    Name,
}

/// A line of text; `y` is its baseline.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Line {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) style: Style,
    pub(super) text: String,
    /// Centred at `x` instead of starting there.
    pub(super) is_centred: bool,
}

/// A node: a state or a group of states.
#[derive(Debug)]
pub(super) struct Pill {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) width: f64,
    pub(super) height: f64,
    pub(super) names: Vec<String>,
    pub(super) is_group: bool,
    pub(super) is_first: bool,
    pub(super) has_loop: bool,
    pub(super) has_timer: bool,
}

/// Layout of an element.
#[derive(Debug, Default)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) facts: String,
    pub(super) pills: Vec<Pill>,
    /// Points of edges from source to target; true for a timer's edge.
    pub(super) strokes: Vec<(Vec<Point>, bool)>,
    pub(super) lines: Vec<Line>,
    /// Full text of a label and its rectangle: x, y, width, height.
    pub(super) hints: Vec<(String, [f64; 4])>,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// Lines of several labels below each other, and their size.
struct Block {
    lines: Vec<(f64, Style, String)>,
    width: f64,
    height: f64,
}

impl Block {
    fn new(labels: &[Label], timers: bool, columns: usize) -> Block {
        let shown = if labels.len() > MAX_ROWS { MAX_ROWS - 1 } else { labels.len() };
        let mut block = Block { lines: Vec::new(), width: 0.0, height: 0.0 };
        for (i, label) in labels[..shown].iter().enumerate() {
            if i > 0 {
                block.height += ROW_SPACING;
            }
            let style = if timers { Style::Timer } else { Style::Condition };
            for line in lines(&label.conditions, if timers { "," } else { " &&" }, columns, 3) {
                block.push(style, line);
            }
            for line in lines(&label.actions, ";", columns, 3) {
                block.push(Style::Action, line);
            }
        }
        if shown < labels.len() {
            block.height += ROW_SPACING;
            block.push(Style::Muted, format!("and {} more rows", labels.len() - shown));
        }
        block
    }

    fn push(&mut self, style: Style, text: String) {
        self.height += LINE;
        self.width = self.width.max(width(&text));
        self.lines.push((self.height - 4.0, style, text));
    }
}

/// Maximum number of rows on an edge or self-loop.
const MAX_ROWS: usize = 4;

fn full_text(labels: &[Label]) -> String {
    let rows: Vec<String> = labels
        .iter()
        .map(|label| match (label.conditions.join(" && "), label.actions.join("; ")) {
            (conditions, actions) if actions.is_empty() => conditions,
            (conditions, actions) if conditions.is_empty() => actions,
            (conditions, actions) => format!("{conditions}: {actions}"),
        })
        .collect();
    rows.join("\n")
}

impl Panel {
    /// Lays out an element with labels of at most `columns` columns.
    pub(super) fn new(content: &Content, columns: usize) -> Panel {
        let mut panel = Panel { title: content.name.clone(), ..Panel::default() };
        panel.machine(content, columns);
        panel.table(content, columns);
        panel.facts = match &content.states {
            Some(_) => content.facts.join("  ·  "),
            None => "stateless".to_owned(),
        };
        let title = bold_width(&panel.title, 18.0) + 2.0 * MARGIN;
        let facts = (width(&panel.facts) + 2.0 * MARGIN).min(FACTS);
        panel.width = (panel.width + 2.0 * MARGIN).max(title).max(facts).max(220.0);
        panel.facts = cut(&panel.facts, ((panel.width - 2.0 * MARGIN) / width("m")) as usize);
        panel.height += MARGIN;
        panel
    }

    fn machine(&mut self, content: &Content, columns: usize) {
        self.height = TITLE + MARGIN;
        if content.nodes.is_empty() {
            return;
        }
        let blocks: Vec<Block> =
            content.arrows.iter().map(|arrow| Block::new(&arrow.labels, arrow.is_timer, columns)).collect();
        let links: Vec<Link> = content
            .arrows
            .iter()
            .zip(&blocks)
            .map(|(arrow, block)| Link {
                from: arrow.from,
                to: arrow.to,
                label: Extent { width: block.width + 8.0, above: block.height + 3.0, below: 3.0, half: 0.0 },
            })
            .collect();
        let mut pills: Vec<Pill> = content
            .nodes
            .iter()
            .zip(ports(content.nodes.len(), &links))
            .map(|(node, ports)| pill(node, ports))
            .collect();
        let loops: Vec<(Block, Block)> = content
            .nodes
            .iter()
            .map(|node| {
                let timers = Label { conditions: node.timers.clone(), actions: Vec::new() };
                let timers = if node.timers.is_empty() { Vec::new() } else { vec![timers] };
                (Block::new(&node.loops, false, columns), Block::new(&timers, true, columns))
            })
            .collect();
        let extents: Vec<Extent> = pills
            .iter()
            .zip(&loops)
            .map(|(pill, (rows, timers))| Extent {
                width: pill.width.max(rows.width).max(timers.width),
                above: pill.height / 2.0 + if pill.has_loop { LOOP + rows.height } else { 0.0 },
                below: pill.height / 2.0 + if pill.has_timer { LOOP + timers.height + 6.0 } else { 0.0 },
                half: pill.width / 2.0,
            })
            .collect();
        let placed = place(&extents, &links);
        let (left, top) = (MARGIN + ENTRY, self.height);
        for (i, (pill, (x, y))) in pills.iter_mut().zip(&placed.nodes).enumerate() {
            (pill.x, pill.y) = (x + left, y + top);
            pill.is_first = i == 0;
            let (rows, timers) = &loops[i];
            let over = pill.y - pill.height / 2.0 - LOOP - rows.height;
            let under = pill.y + pill.height / 2.0 + LOOP + 4.0;
            self.block(rows, pill.x, over, full_text(&content.nodes[i].loops));
            self.block(timers, pill.x, under, content.nodes[i].timers.join("\n"));
        }
        for (i, (block, (x, y))) in blocks.iter().zip(&placed.labels).enumerate() {
            self.block(block, x + left, y + top - block.height - 2.0, full_text(&content.arrows[i].labels));
        }
        let shifted = |points: &Vec<Point>| points.iter().map(|(x, y)| (x + left, y + top)).collect();
        let timers = content.arrows.iter().map(|arrow| arrow.is_timer);
        self.strokes = placed.edges.iter().map(shifted).zip(timers).collect();
        self.pills = pills;
        self.width = placed.width + ENTRY;
        self.height += placed.height + MARGIN;
    }

    fn block(&mut self, block: &Block, x: f64, y: f64, full_text: String) {
        if block.lines.is_empty() {
            return;
        }
        for (offset, style, text) in &block.lines {
            self.lines.push(Line { x, y: y + offset, style: *style, text: text.clone(), is_centred: true });
        }
        self.hints.push((full_text, [x - block.width / 2.0, y, block.width, block.height]));
    }

    fn table(&mut self, content: &Content, columns: usize) {
        let subjects = content.table.iter().map(|entry| entry.subject.chars().count().min(NAME_COLUMNS));
        let indent = width(&"m".repeat(subjects.max().unwrap_or(0) + 2));
        let room = ((self.width - indent) / width("m")) as usize;
        let columns = room.max(columns + 22);
        for entry in &content.table {
            let style = if entry.is_default || content.states.is_none() { Style::Muted } else { Style::Name };
            let names = lines(std::slice::from_ref(&entry.subject), "", NAME_COLUMNS, 2);
            let top = self.height;
            for (i, name) in names.into_iter().enumerate() {
                let y = top + LINE * (i + 1) as f64 - 4.0;
                self.lines.push(Line { x: MARGIN, y, style, text: name, is_centred: false });
                self.height = self.height.max(y + 4.0);
            }
            let x = MARGIN + indent;
            let conditions = lines(&entry.label.conditions, " &&", columns, 2);
            let hint = full_text(std::slice::from_ref(&entry.label));
            let mut y = top;
            let mut widest: f64 = 0.0;
            // Conditions and actions share a line if they fit.
            let actions = entry.label.actions.join("; ");
            let is_short =
                conditions.len() == 1 && conditions[0].chars().count() + 3 + actions.chars().count() <= columns;
            if is_short {
                y += LINE;
                let after = width(&conditions[0]) + width("m") * 2.0;
                self.line(x, y - 4.0, Style::Condition, conditions[0].clone());
                self.line(x + after, y - 4.0, Style::Action, actions.clone());
                widest = after + width(&actions);
            } else {
                let action = if entry.is_default { Style::Muted } else { Style::Action };
                let both = conditions.into_iter().map(|line| (Style::Condition, line));
                for (style, text) in
                    both.chain(lines(&entry.label.actions, ";", columns, 2).into_iter().map(|line| (action, line)))
                {
                    y += LINE;
                    widest = widest.max(width(&text));
                    self.line(x, y - 4.0, style, text);
                }
            }
            self.hints.push((hint, [x, top, widest, y - top]));
            self.width = self.width.max(x - MARGIN + widest);
            self.height = self.height.max(y) + 4.0;
        }
    }

    fn line(&mut self, x: f64, y: f64, style: Style, text: String) {
        self.lines.push(Line { x, y, style, text, is_centred: false });
    }
}

fn pill(node: &Node, ports: usize) -> Pill {
    let names = lines(std::slice::from_ref(&node.label), "", 20, 3);
    let widest = names.iter().map(|name| bold_width(name, STATE_FONT)).fold(0.0, f64::max);
    let height = (names.len() as f64 * 20.0 + 20.0).max(ports as f64 * PORT + 14.0);
    Pill {
        x: 0.0,
        y: 0.0,
        width: (widest + 36.0).max(76.0),
        height,
        names,
        is_group: node.is_group,
        is_first: false,
        has_loop: !node.loops.is_empty(),
        has_timer: !node.timers.is_empty(),
    }
}
