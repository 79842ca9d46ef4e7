// SPDX-License-Identifier: Apache-2.0 OR MIT
//! SVG output.

use std::fmt::Write as _;

use super::Drawing;
use super::content::Content;
use super::layers::{End, Part};
use super::panel::{ENTRY, LOOP, Line, MARGIN, Panel, Pill, STATE_FONT, Style};
use super::text::{bold_width, escape};

/// Candidate widths of labels, in columns; the picture that appears largest on a slide is chosen.
const COLUMNS: [usize; 4] = [20, 26, 32, 40];
/// Distance between panels, and margin around them.
const GAP: f64 = 16.0;
/// Height of the title of the picture.
const HEAD: f64 = 50.0;
/// Above this number of panels, only even groupings are tried.
const MAX_EXHAUSTIVE_PANELS: usize = 8;

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

pub(super) fn render(name: &str, contents: &[Content]) -> String {
    let (panels, places, width, height) = arrange(contents, bold_width(name, 24.0) + 2.0 * GAP);
    let mut svg = String::new();
    let text = escape(name);
    let _ = writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" role=\"img\" \
         aria-labelledby=\"title desc\">",
        number(width),
        number(height),
        number(width),
        number(height)
    );
    let _ = writeln!(svg, "<title id=\"title\">{text}</title>");
    let _ = writeln!(svg, "<desc id=\"desc\">{}</desc>", escape(&Drawing::description(name, contents)));
    let colours = |dark: bool| -> String {
        COLOURS
            .iter()
            .map(|(class, light, night)| format!(".{class}{{{}}}", if dark { night } else { light }))
            .collect()
    };
    let _ = writeln!(
        svg,
        "<style>{STYLE}{}\n@media (prefers-color-scheme:dark){{{}}}</style>",
        colours(false),
        colours(true)
    );
    let _ = writeln!(svg, "<rect class=\"page\" width=\"100%\" height=\"100%\" rx=\"8\"/>");
    let _ = writeln!(svg, "<text class=\"h ink\" x=\"{}\" y=\"36\">{text}</text>", number(GAP + 4.0));
    for (i, (panel, place)) in panels.iter().zip(places).enumerate() {
        draw_panel(&mut svg, panel, (panels.len() > 1).then_some(i + 1), place);
    }
    svg.push_str("</svg>\n");
    svg
}

/// Panels, their rectangles (x, y, width, height), and width and height of the picture.
type Arranged = (Vec<Panel>, Vec<[f64; 4]>, f64, f64);

/// Chooses the arrangement that appears largest on a 16:9 slide.
fn arrange(contents: &[Content], least: f64) -> Arranged {
    let mut best: Option<(f64, Arranged)> = None;
    for columns in COLUMNS {
        let panels: Vec<Panel> = contents.iter().map(|content| Panel::new(content, columns)).collect();
        let mut chosen: Option<(f64, Tree)> = None;
        for tree in trees(&panels) {
            let (width, height) = tree.size(&panels);
            let cost = ((width + 2.0 * GAP).max(least) / 16.0).max((HEAD + height + GAP) / 9.0);
            // Prefer earlier candidates unless a later one is clearly better.
            if chosen.as_ref().is_none_or(|(least, _)| cost < *least * 0.97) {
                chosen = Some((cost, tree));
            }
        }
        let Some((cost, tree)) = chosen else { continue };
        if best.as_ref().is_none_or(|(least, ..)| cost < *least * 0.99) {
            let (width, height) = tree.size(&panels);
            let mut places = vec![[0.0; 4]; panels.len()];
            tree.place(&panels, [GAP, HEAD, width, height], &mut places);
            best = Some((cost, (panels, places, (width + 2.0 * GAP).max(least), HEAD + height + GAP)));
        }
    }
    best.map_or((Vec::new(), Vec::new(), least, HEAD), |(_, arranged)| arranged)
}

/// Nested rows and columns of panels.
enum Tree {
    Leaf(usize),
    Row(Vec<Tree>),
    Column(Vec<Tree>),
}

impl Tree {
    fn size(&self, panels: &[Panel]) -> (f64, f64) {
        let sizes = |trees: &[Tree]| trees.iter().map(|tree| tree.size(panels)).collect::<Vec<_>>();
        let along = |sizes: &[f64]| sizes.iter().sum::<f64>() + GAP * (sizes.len() as f64 - 1.0);
        let across = |sizes: &[f64]| sizes.iter().copied().fold(0.0, f64::max);
        match self {
            Tree::Leaf(i) => (panels[*i].width, panels[*i].height),
            Tree::Row(trees) => {
                let (widths, heights): (Vec<f64>, Vec<f64>) = sizes(trees).into_iter().unzip();
                (along(&widths), across(&heights))
            }
            Tree::Column(trees) => {
                let (widths, heights): (Vec<f64>, Vec<f64>) = sizes(trees).into_iter().unzip();
                (across(&widths), along(&heights))
            }
        }
    }

    /// Assigns each panel its rectangle within x, y, width, height, and distributes spare space evenly.
    fn place(&self, panels: &[Panel], [x, y, width, height]: [f64; 4], places: &mut [[f64; 4]]) {
        let (least_width, least_height) = self.size(panels);
        match self {
            Tree::Leaf(i) => places[*i] = [x, y, width, height],
            Tree::Row(trees) => {
                let spare = (width - least_width) / trees.len() as f64;
                let mut x = x;
                for tree in trees {
                    let width = tree.size(panels).0 + spare;
                    tree.place(panels, [x, y, width, height], places);
                    x += width + GAP;
                }
            }
            Tree::Column(trees) => {
                let spare = (height - least_height) / trees.len() as f64;
                let mut y = y;
                for tree in trees {
                    let height = tree.size(panels).1 + spare;
                    tree.place(panels, [x, y, width, height], places);
                    y += height + GAP;
                }
            }
        }
    }
}

/// Candidate arrangements: panels in order as rows or as columns, or stateless ones apart from the others.
fn trees(panels: &[Panel]) -> Vec<Tree> {
    let leaves = |which: &[usize]| which.iter().map(|&i| Tree::Leaf(i)).collect::<Vec<_>>();
    let groups = |which: &[usize]| {
        compositions(which.len()).into_iter().map({
            let which = which.to_vec();
            move |counts| {
                let mut rest = which.as_slice();
                let mut groups = Vec::new();
                for count in counts {
                    let (group, others) = rest.split_at(count);
                    groups.push(group.to_vec());
                    rest = others;
                }
                groups
            }
        })
    };
    let all: Vec<usize> = (0..panels.len()).collect();
    let (tables, machines): (Vec<usize>, Vec<usize>) = all.iter().partition(|&&i| panels[i].is_stateless);
    let mut trees = Vec::new();
    for grouped in groups(&all) {
        trees.push(Tree::Column(grouped.iter().map(|group| Tree::Row(leaves(group))).collect()));
        trees.push(Tree::Row(grouped.iter().map(|group| Tree::Column(leaves(group))).collect()));
    }
    if !tables.is_empty() && !machines.is_empty() {
        for grouped in groups(&machines) {
            let rows = || Tree::Column(grouped.iter().map(|group| Tree::Row(leaves(group))).collect());
            trees.push(Tree::Row(vec![Tree::Column(leaves(&tables)), rows()]));
            trees.push(Tree::Column(vec![rows(), Tree::Row(leaves(&tables))]));
        }
    }
    trees
}

/// Compositions of the number of panels: the sizes of consecutive groups.
fn compositions(panels: usize) -> Vec<Vec<usize>> {
    if panels == 0 {
        return Vec::new();
    }
    if panels > MAX_EXHAUSTIVE_PANELS {
        let even = |most: usize| (0..panels.div_ceil(most)).map(|i| most.min(panels - i * most)).collect();
        return (1..=panels).map(even).collect();
    }
    let arrangements = (0..1_usize << (panels - 1)).map(|breaks| {
        let mut groups = vec![1];
        for i in 0..panels - 1 {
            match groups.last_mut() {
                Some(group) if breaks >> i & 1 == 0 => *group += 1,
                _ => groups.push(1),
            }
        }
        groups
    });
    arrangements.collect()
}

fn draw_panel(svg: &mut String, panel: &Panel, place: Option<usize>, [x, y, width, height]: [f64; 4]) {
    let _ = writeln!(svg, "<g transform=\"translate({} {})\">", number(x), number(y));
    let _ = writeln!(svg, "<rect class=\"card\" width=\"{}\" height=\"{}\" rx=\"10\"/>", number(width), number(height));
    let margin = number(MARGIN);
    let title = escape(&panel.title);
    let place = place.map_or_else(String::new, |i| format!("<tspan class=\"mut\">{i}  </tspan>"));
    let _ = writeln!(svg, "<text class=\"e ink\" x=\"{margin}\" y=\"29\" xml:space=\"preserve\">{place}{title}</text>");
    let _ = writeln!(svg, "<text class=\"mut\" x=\"{margin}\" y=\"49\">{}</text>", escape(&panel.facts));
    for (part, is_timer) in &panel.strokes {
        stroke(svg, part, *is_timer);
    }
    for pill in &panel.pills {
        draw_pill(svg, pill);
    }
    for line in &panel.lines {
        draw_line(svg, line);
    }
    for (text, [x, y, width, height]) in &panel.hints {
        let [x, y, width, height] = [x, y, width, height].map(|n| number(*n));
        let _ = writeln!(
            svg,
            "<rect class=\"hint\" x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\"><title>{}</title></rect>",
            escape(text)
        );
    }
    svg.push_str("</g>\n");
}

fn stroke(svg: &mut String, part: &Part, is_timer: bool) {
    let [mut first, start, end, mut last] = part.points;
    match part.arrow {
        Some(End::Left) => first.0 += 8.0,
        Some(End::Right) => last.0 -= 8.0,
        None => {}
    }
    let mut path = format!("M{} {}", number(first.0), number(first.1));
    if first != start {
        let _ = write!(path, "H{}", number(start.0.max(first.0)));
    }
    if start.1 == end.1 {
        let _ = write!(path, "H{}", number(end.0.min(last.0).max(start.0)));
    } else {
        let middle = number((start.0 + end.0) / 2.0);
        let to = if last.0 < end.0 { last.0 } else { end.0 };
        let _ =
            write!(path, "C{middle} {} {middle} {} {} {}", number(start.1), number(end.1), number(to), number(end.1));
    }
    if last.0 > end.0 {
        let _ = write!(path, "H{}", number(last.0));
    }
    let class = if is_timer { "out" } else { "row" };
    let _ = writeln!(svg, "<path class=\"{class}\" d=\"{path}\"/>");
    let tip = match part.arrow {
        Some(End::Left) => Some((part.points[0], 10.0)),
        Some(End::Right) => Some((part.points[3], -10.0)),
        None => None,
    };
    if let Some(((x, y), back)) = tip {
        let base = number(x + back);
        let _ = writeln!(
            svg,
            "<path class=\"{class}head\" d=\"M{} {}L{base} {}V{}z\"/>",
            number(x),
            number(y),
            number(y - 4.5),
            number(y + 4.5)
        );
    }
}

fn draw_pill(svg: &mut String, pill: &Pill) {
    let (left, top) = (pill.x - pill.width / 2.0, pill.y - pill.height / 2.0);
    let class = if pill.is_group { "group" } else { "pill" };
    let _ = writeln!(
        svg,
        "<rect class=\"{class}\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" rx=\"{}\"/>",
        number(left),
        number(top),
        number(pill.width),
        number(pill.height),
        number((pill.height / 2.0).min(20.0))
    );
    if pill.is_first {
        let y = number(pill.y);
        let (dot, tip) = (left - ENTRY + 8.0, left);
        let _ = writeln!(svg, "<circle class=\"rowhead\" cx=\"{}\" cy=\"{y}\" r=\"5\"/>", number(dot));
        let _ = writeln!(svg, "<path class=\"row\" d=\"M{} {y}H{}\"/>", number(dot), number(tip - 8.0));
        let _ = writeln!(svg, "<path class=\"rowhead\" d=\"M{} {y}l-10 -4.5v9z\"/>", number(tip));
    }
    for (is_drawn, class, edge, sign) in
        [(pill.has_loop, "row", top, -1.0), (pill.has_timer, "out", top + pill.height, 1.0)]
    {
        if is_drawn {
            let (from, to) = (number(pill.x - 13.0), number(pill.x + 13.0));
            let (edge, peak) = (edge, number(edge + sign * LOOP * 1.15));
            let _ = writeln!(
                svg,
                "<path class=\"{class}\" d=\"M{from} {}C{} {peak} {} {peak} {to} {}\"/>",
                number(edge),
                number(pill.x - 20.0),
                number(pill.x + 20.0),
                number(edge + sign * 8.0)
            );
            let _ = writeln!(
                svg,
                "<path class=\"{class}head\" d=\"M{to} {}l-4.5 {}h9z\"/>",
                number(edge),
                number(sign * 10.0)
            );
        }
    }
    let first = pill.y - (pill.names.len() as f64 - 1.0) * 10.0 + STATE_FONT * 0.35;
    for (i, name) in pill.names.iter().enumerate() {
        let class = if pill.is_group { "s m mut" } else { "s m ink" };
        let y = number(first + 20.0 * i as f64);
        let _ = writeln!(svg, "<text class=\"{class}\" x=\"{}\" y=\"{y}\">{}</text>", number(pill.x), escape(name));
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
    let (x, y) = (number(line.x), number(line.y));
    let _ = writeln!(svg, "<text class=\"{centred}{class}\" x=\"{x}\" y=\"{y}\">{}</text>", escape(&line.text));
}

/// Formats a number with at most one decimal.
fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    match text.strip_suffix(".0") {
        Some("-0") => "0".to_owned(),
        Some(whole) => whole.to_owned(),
        None => text,
    }
}
