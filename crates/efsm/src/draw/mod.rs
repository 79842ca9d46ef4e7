// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drawings of functions: the state machine of each element, as SVG that fits a slide and as DOT for other tools.
//!
//! Goal: a diagram as on a whiteboard. States are nodes; rows are edges labelled with conditions and actions; timers
//! are dashed; the default is grey. Rows between the same two states share an edge.
//!
//! 1. `content` converts the function and its syntax tree to panels of nodes, edges and table lines. Text comes from
//!    the source, which keeps the names of parameters and constants.
//! 2. `panel` wraps and measures text, and computes the coordinates of a panel.
//! 3. `place` has `dagre` place nodes, labels and edges in layers, in which nothing overlaps.
//! 4. `svg` and `dot` write the output.

mod content;
mod dot;
mod panel;
mod place;
mod svg;
#[cfg(test)]
mod tests;
mod text;

use crate::model::Function;

use content::Content;

/// Maximum number of states and arrows of an element in SVG: placing them is about cubic.
const MAX_ITEMS: usize = 200;
/// Maximum number of those of all elements together.
const MAX_ALL_ITEMS: usize = 1000;

/// Why a drawing has no SVG.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} has {found} states and arrows, expected at most {limit}; {help}")]
pub struct TooLarge {
    what: String,
    found: usize,
    limit: usize,
    help: &'static str,
}

/// Drawing of a function or of one of its elements.
#[derive(Debug)]
pub struct Drawing {
    name: String,
    panels: Vec<Content>,
}

impl Drawing {
    /// Draws all elements of a function.
    pub fn new(function: &Function) -> Drawing {
        Drawing { name: function.name.clone(), panels: content::of(function) }
    }

    /// Draws one element of a function. `None` if there is none of this name.
    pub fn of_element(function: &Function, element: &str) -> Option<Drawing> {
        let panels: Vec<Content> = content::of(function).into_iter().filter(|panel| panel.name == element).collect();
        (!panels.is_empty()).then(|| Drawing { name: function.name.clone(), panels })
    }

    /// Renders SVG with a title and a description, readable on light and dark backgrounds.
    ///
    /// # Errors
    /// An element has more than 200 states and arrows, or all together have more than 1,000.
    ///
    /// # Cost
    /// About cubic in states and arrows: milliseconds for ten states, seconds for sixty that all have timers.
    pub fn svg(&self) -> Result<String, TooLarge> {
        let items = |panel: &Content| panel.nodes.len() + panel.arrows.len();
        if let Some(panel) = self.panels.iter().find(|panel| items(panel) > MAX_ITEMS) {
            let (what, help) = (format!("element `{}`", panel.name), "write DOT and lay it out by Graphviz");
            return Err(TooLarge { what, found: items(panel), limit: MAX_ITEMS, help });
        }
        let found = self.panels.iter().map(items).sum();
        if found > MAX_ALL_ITEMS {
            let (what, help) = (format!("function `{}`", self.name), "draw one element at a time, or write DOT");
            return Err(TooLarge { what, found, limit: MAX_ALL_ITEMS, help });
        }
        Ok(svg::render(&self.name, &self.panels))
    }

    /// Renders the graph as DOT, for Graphviz.
    pub fn dot(&self) -> String {
        dot::render(&self.name, &self.panels)
    }

    fn description(name: &str, panels: &[Content]) -> String {
        let mut text = format!("The elements of the network function {name}.");
        for panel in panels {
            match &panel.states {
                None => text.push_str(&format!(" {}: {} rows without states.", panel.name, panel.rows)),
                Some(states) => {
                    text.push_str(&format!(" {}: states {}; {} rows.", panel.name, states.join(", "), panel.rows))
                }
            }
        }
        text
    }
}
