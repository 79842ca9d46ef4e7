//! Drawings of functions: the state machine of each element, as SVG that fits a slide and as DOT for other tools.
//!
//! Goal: what a person would draw on a whiteboard. States are nodes, rows are arrows that say when (conditions) and what
//! (actions), timers are dashed, what happens where no row matches is grey. Rows from the same state to the same state
//! share an arrow, arrows that go a long way to the same state share a line.
//!
//! 1. `content`: the function and its syntax tree become panels of nodes, arrows and table lines; words come from the
//!    source, so that names of parameters and constants stay what they are.
//! 2. `layers`: nodes get layers, arrows a place in each layer that they cross; one layer after the other is ordered so
//!    that few lines cross, then moved so that lines are straight. Labels are places in layers of their own: nothing overlaps.
//! 3. `panel`: texts are cut to lines and measured, a panel gets its coordinates.
//! 4. `svg` and `dot` write them down.

mod content;
mod dot;
mod layers;
mod panel;
mod svg;
#[cfg(test)]
mod tests;
mod text;

use crate::model::Function;

use content::Content;

/// A function, or one element of it, to be drawn.
#[derive(Debug)]
pub struct Drawing {
    name: String,
    panels: Vec<Content>,
}

impl Drawing {
    /// All elements of a function.
    pub fn new(function: &Function) -> Drawing {
        Drawing { name: function.name.clone(), panels: content::of(function) }
    }

    /// One element of a function; `None` where it has none of this name.
    pub fn of_element(function: &Function, element: &str) -> Option<Drawing> {
        let panels: Vec<Content> = content::of(function).into_iter().filter(|panel| panel.name == element).collect();
        (!panels.is_empty()).then(|| Drawing { name: function.name.clone(), panels })
    }

    /// An SVG picture with a title and a description, readable on light and on dark backgrounds.
    ///
    /// # Cost
    /// Polynomial in rows and states; a few milliseconds for a hundred rows.
    pub fn svg(&self) -> String {
        svg::render(&self.name, &self.panels)
    }

    /// The same graph in the language of Graphviz.
    pub fn dot(&self) -> String {
        dot::render(&self.name, &self.panels)
    }

    /// What is drawn, in words: the description of the picture.
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
