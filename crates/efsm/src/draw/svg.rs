// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SVG output.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::iter::successors;

use super::Drawing;
use super::content::Content;
use super::panel::{ENTRY, LOOP, Line, MARGIN, Panel, Pill, STATE_FONT, Style};
use super::place::Point;
use super::text::{bold_width, escape};

/// Candidate widths of labels, in columns; the picture that appears largest on a slide is chosen.
const COLUMNS: [usize; 2] = [24, 34];
/// Number of panels up to which the widths of all runs of panels are candidates for the width of rows.
const MAX_RUNS: usize = 10;
/// Distance between panels, and margin around them.
const GAP: f64 = 16.0;
/// Height of the title of the picture.
const HEAD: f64 = 50.0;

/// Colours by CSS class: light theme, dark theme.
const COLOURS: [(&str, &str, &str); 12] = [
    ("page", "fill:#ffffff", "fill:#0d1117"),
    ("card", "fill:#f6f8fa;stroke:#d0d7de", "fill:#161b22;stroke:#30363d"),
    ("pill", "fill:#ddf4ff;stroke:#0969da", "fill:#0c2d4d;stroke:#58a6ff"),
    ("group", "fill:none;stroke:#57606a", "fill:none;stroke:#8b949e"),
    ("ink", "fill:#1f2328", "fill:#e6edf3"),
    ("act", "fill:#0550ae", "fill:#79c0ff"),
    ("tim", "fill:#953800", "fill:#ffa657"),
    ("mut", "fill:#636c76", "fill:#9198a1"),
    ("row", "stroke:#424a53", "stroke:#b1bac4"),
    ("out", "stroke:#bc4c00", "stroke:#db6d28"),
    ("rowhead", "fill:#424a53", "fill:#b1bac4"),
    ("outhead", "fill:#bc4c00", "fill:#db6d28"),
];

const STYLE: &str = "text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,\"DejaVu Sans Mono\",\"Liberation Mono\",monospace}\
.h,.e,.s{font-family:system-ui,\"Segoe UI\",Roboto,\"Helvetica Neue\",Arial,\"DejaVu Sans\",sans-serif;font-weight:600}\
.h{font-size:24px}.e{font-size:18px}.s{font-size:16px}.m{text-anchor:middle}.b{font-weight:600}\
.card,.pill,.group{stroke-width:1.5}.group{stroke-dasharray:2 3}.row,.out{fill:none;stroke-width:1.6}\
.out{stroke-dasharray:6 4}.hint{fill:none;pointer-events:all}";

/// x, y, width, height.
type Rect = [f64; 4];

pub(super) fn render(name: &str, contents: &[Content]) -> String {
    let least = bold_width(name, 24.0) + 2.0 * GAP;
    let (panels, places, [width, height]) = arrange(contents, least);
    let mut svg = String::new();
    let text = escape(name);
    let description = escape(&Drawing::description(name, contents));
    let light: String = COLOURS.iter().map(|(class, light, _)| format!(".{class}{{{light}}}")).collect();
    let dark: String = COLOURS.iter().map(|(class, _, dark)| format!(".{class}{{{dark}}}")).collect();
    let _ = write!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.1} {height:.1}\" width=\"{width:.1}\" \
         height=\"{height:.1}\" role=\"img\" aria-labelledby=\"title desc\">\n\
         <title id=\"title\">{text}</title>\n<desc id=\"desc\">{description}</desc>\n\
         <style>{STYLE}{light}\n@media (prefers-color-scheme:dark){{{dark}}}</style>\n\
         <rect class=\"page\" width=\"100%\" height=\"100%\" rx=\"8\"/>\n\
         <text class=\"h ink\" x=\"{:.1}\" y=\"36\">{text}</text>\n",
        GAP + 4.0
    );
    for (i, (panel, place)) in panels.iter().zip(places).enumerate() {
        draw_panel(&mut svg, panel, (panels.len() > 1).then_some(i + 1), place);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Panels, their rectangles, and width and height of the picture, which is at least `least` wide: of all label widths
/// and row widths, those that appear largest on a 16:9 slide.
fn arrange(contents: &[Content], least: f64) -> (Vec<Panel>, Vec<Rect>, [f64; 2]) {
    let mut best = (f64::INFINITY, (Vec::new(), Vec::new(), [least, HEAD]));
    for columns in COLUMNS {
        let panels: Vec<Panel> = contents.iter().map(|content| Panel::new(content, columns)).collect();
        let arrangements = limits(&panels).into_iter().map(|limit| rows(&panels, limit, least));
        let costed = arrangements.map(|(places, size)| ((size[0] / 16.0).max(size[1] / 9.0), places, size));
        let Some((cost, places, size)) = costed.min_by(|a, b| a.0.total_cmp(&b.0)) else { continue };
        if cost < best.0 {
            best = (cost, (panels, places, size));
        }
    }
    best.1
}

/// Candidate widths of rows: those of all runs of panels; of many panels, those of the first 1, 2, 3, .. panels, in
/// steps that grow by an eighth, and of all.
fn limits(panels: &[Panel]) -> Vec<f64> {
    let mut limits: Vec<f64> = if panels.len() <= MAX_RUNS {
        (0..panels.len()).flat_map(|i| widths(&panels[i..])).collect()
    } else {
        let all: Vec<f64> = widths(panels).collect();
        successors(Some(0), |i| Some(i + 1 + i / 8)).map_while(|i| all.get(i)).chain(all.last()).copied().collect()
    };
    let mut seen = HashSet::new();
    limits.retain(|limit| seen.insert(limit.to_bits()));
    limits
}

/// Widths of the first panel, the first two panels side by side, and so on.
fn widths(panels: &[Panel]) -> impl Iterator<Item = f64> {
    panels.iter().scan(0.0, |end, panel| {
        *end += panel.width + GAP;
        Some(*end - GAP)
    })
}

/// Width and height of panels side by side.
fn row_size(panels: &[Panel]) -> (f64, f64) {
    (widths(panels).last().unwrap_or(0.0), panels.iter().map(|panel| panel.height).fold(0.0, f64::max))
}

/// Rectangles of panels in rows of at most `limit`, and the size of the picture. The panels of a row share its spare
/// width.
fn rows(panels: &[Panel], limit: f64, least: f64) -> (Vec<Rect>, [f64; 2]) {
    let mut rows: Vec<&[Panel]> = Vec::new();
    let mut rest = panels;
    while !rest.is_empty() {
        let fitting = widths(rest).take_while(|width| *width <= limit).count().max(1);
        let (row, others) = rest.split_at(fitting);
        rows.push(row);
        rest = others;
    }
    let widest = rows.iter().map(|row| row_size(row).0).fold(least - 2.0 * GAP, f64::max);
    let mut places = Vec::new();
    let mut y = HEAD;
    for row in rows {
        let (width, height) = row_size(row);
        let spare = (widest - width) / row.len() as f64;
        let mut x = GAP;
        for panel in row {
            places.push([x, y, panel.width + spare, height]);
            x += panel.width + spare + GAP;
        }
        y += height + GAP;
    }
    (places, [widest + 2.0 * GAP, y])
}

fn draw_panel(svg: &mut String, panel: &Panel, place: Option<usize>, [x, y, width, height]: Rect) {
    let title = escape(&panel.title);
    let facts = escape(&panel.facts);
    let place = place.map_or_else(String::new, |i| format!("<tspan class=\"mut\">{i}  </tspan>"));
    let _ = write!(
        svg,
        "<g transform=\"translate({x:.1} {y:.1})\">\n\
         <rect class=\"card\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"10\"/>\n\
         <text class=\"e ink\" x=\"{MARGIN}\" y=\"29\" xml:space=\"preserve\">{place}{title}</text>\n\
         <text class=\"mut\" x=\"{MARGIN}\" y=\"49\">{facts}</text>\n"
    );
    for (points, is_timer) in &panel.strokes {
        draw_edge(svg, points, *is_timer);
    }
    for pill in &panel.pills {
        draw_pill(svg, pill);
    }
    for line in &panel.lines {
        draw_line(svg, line);
    }
    for (text, [x, y, width, height]) in &panel.hints {
        let text = escape(text);
        let _ = writeln!(
            svg,
            "<rect class=\"hint\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\">\
             <title>{text}</title></rect>"
        );
    }
    svg.push_str("</g>\n");
}

fn draw_edge(svg: &mut String, points: &[Point], is_timer: bool) {
    let [.., before, tip] = points else { return };
    let back = if before.0 < tip.0 { -1.0 } else { 1.0 };
    let mut path = String::new();
    for (i, &(x, y)) in points.iter().enumerate() {
        // The line ends within the arrowhead.
        let x = if i + 1 == points.len() { x + 8.0 * back } else { x };
        let _ = match i.checked_sub(1).map(|i| points[i]) {
            None => write!(path, "M{x:.1} {y:.1}"),
            Some(from) if from.1 == y => write!(path, "H{x:.1}"),
            Some(from) => {
                let middle = (from.0 + x) / 2.0;
                write!(path, "C{middle:.1} {:.1} {middle:.1} {y:.1} {x:.1} {y:.1}", from.1)
            }
        };
    }
    let class = if is_timer { "out" } else { "row" };
    let (x, y) = tip;
    let _ = writeln!(svg, "<path class=\"{class}\" d=\"{path}\"/>");
    let _ = writeln!(svg, "<path class=\"{class}head\" d=\"M{x:.1} {y:.1}l{:.1} -4.5v9z\"/>", 10.0 * back);
}

fn draw_pill(svg: &mut String, pill: &Pill) {
    let Pill { x, y, width, height, .. } = *pill;
    let (left, top) = (x - width / 2.0, y - height / 2.0);
    let class = if pill.is_group { "group" } else { "pill" };
    let radius = (height / 2.0).min(20.0);
    let _ = writeln!(
        svg,
        "<rect class=\"{class}\" x=\"{left:.1}\" y=\"{top:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" \
         rx=\"{radius:.1}\"/>"
    );
    if pill.is_first {
        let start = left - ENTRY + 8.0;
        let _ = writeln!(svg, "<circle class=\"rowhead\" cx=\"{start:.1}\" cy=\"{y:.1}\" r=\"5\"/>");
        draw_edge(svg, &[(start, y), (left, y)], false);
    }
    for (is_drawn, class, edge, sign) in [(pill.has_loop, "row", top, -1.0), (pill.has_timer, "out", top + height, 1.0)]
    {
        if is_drawn {
            let (peak, tip) = (edge + sign * LOOP * 1.15, edge + sign * 8.0);
            let _ = writeln!(
                svg,
                "<path class=\"{class}\" d=\"M{:.1} {edge:.1}C{:.1} {peak:.1} {:.1} {peak:.1} {:.1} {tip:.1}\"/>\n\
                 <path class=\"{class}head\" d=\"M{:.1} {edge:.1}l-4.5 {:.1}h9z\"/>",
                x - 13.0,
                x - 20.0,
                x + 20.0,
                x + 13.0,
                x + 13.0,
                sign * 10.0
            );
        }
    }
    let first = y - (pill.names.len() as f64 - 1.0) * 10.0 + STATE_FONT * 0.35;
    for (i, name) in pill.names.iter().enumerate() {
        let class = if pill.is_group { "s m mut" } else { "s m ink" };
        let y = first + 20.0 * i as f64;
        let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(name));
    }
}

fn draw_line(svg: &mut String, line: &Line) {
    let class = match line.style {
        Style::Condition => "ink",
        Style::Action => "act",
        Style::Timer => "tim",
        Style::Muted => "mut",
        Style::Name => "b ink",
    };
    let centred = if line.is_centred { "m " } else { "" };
    let Line { x, y, text, .. } = line;
    let _ = writeln!(svg, "<text class=\"{centred}{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{}</text>", escape(text));
}
