// SPDX-License-Identifier: Apache-2.0 OR MIT
//! DOT output (Graphviz).

use std::fmt::Write as _;

use super::content::{Content, Label};
use super::text::lines;

/// Width of labels, in columns.
const COLUMNS: usize = 36;

pub(super) fn render(name: &str, contents: &[Content]) -> String {
    let mut dot = format!("digraph {} {{\n", quoted(name));
    dot.push_str("  rankdir=LR;\n  labelloc=t;\n");
    let _ = writeln!(dot, "  label={};", quoted(name));
    dot.push_str("  node [shape=box, style=rounded, fontname=\"sans-serif\"];\n");
    dot.push_str("  edge [fontname=\"monospace\", fontsize=10];\n");
    for (e, content) in contents.iter().enumerate() {
        let _ = writeln!(dot, "  subgraph cluster_{e} {{");
        let title = std::iter::once(content.name.as_str()).chain(content.facts.iter().map(String::as_str));
        let _ = writeln!(dot, "    label={};", quoted(&title.collect::<Vec<_>>().join("\n")));
        for (n, node) in content.nodes.iter().enumerate() {
            let shape = match (node.is_group, n) {
                (true, _) => ", style=\"rounded,dotted\"",
                (false, 0) => ", penwidth=2",
                _ => "",
            };
            let _ = writeln!(dot, "    e{e}_{n} [label={}{shape}];", quoted(&node.label));
            if !node.loops.is_empty() {
                let _ = writeln!(dot, "    e{e}_{n} -> e{e}_{n} [label={}];", quoted(&words(&node.loops)));
            }
            if !node.timers.is_empty() {
                let timers = quoted(&node.timers.join("\n"));
                let _ = writeln!(dot, "    e{e}_{n} -> e{e}_{n} [label={timers}, style=dashed];");
            }
        }
        for arrow in &content.arrows {
            let style = if arrow.is_timer { ", style=dashed" } else { "" };
            let label = quoted(&words(&arrow.labels));
            let _ = writeln!(dot, "    e{e}_{} -> e{e}_{} [label={label}{style}];", arrow.from, arrow.to);
        }
        for (t, entry) in content.table.iter().enumerate() {
            let colour = if entry.is_default { ", fontcolor=gray40" } else { "" };
            let text = quoted(&format!("{}:\n{}", entry.subject, words(std::slice::from_ref(&entry.label))));
            let _ = writeln!(
                dot,
                "    e{e}_t{t} [shape=plaintext, fontname=\"monospace\", fontsize=10{colour}, label={text}];"
            );
        }
        dot.push_str("  }\n");
    }
    dot.push_str("}\n");
    dot
}

/// Text of all rows of an edge; only parts longer than a line are truncated.
fn words(labels: &[Label]) -> String {
    let rows: Vec<String> = labels
        .iter()
        .map(|label| {
            let conditions = lines(&label.conditions, " &&", COLUMNS, usize::MAX);
            let actions = lines(&label.actions, ";", COLUMNS, usize::MAX);
            conditions.into_iter().chain(actions).collect::<Vec<_>>().join("\n")
        })
        .collect();
    rows.join("\n\n")
}

/// A quoted DOT string, with quotes, backslashes and line ends escaped.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            '\n' => quoted.push_str("\\n"),
            letter if letter.is_control() => quoted.push(' '),
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}
