//! Rules that turn what a program computes into what hardware does for nothing, or for little.
//!
//! ```text
//!   slt-zero:  (slt x:w 0)  =>  (slice w-1 1 x)
//!   below-one: (below x 1)  =>  (eq x 0)
//!   mul-power: (mul x:w C)  =>  (concat 0:k (slice 0 w-k x))  where k = power C
//! ```
//!
//! The rules are data: `table.rules` holds them, [`rules`] lists them, [`rewrite`] uses them, and [`questions`] asks a prover
//! about each, at 64 bits and below. What [`Graph::make`](crate::Graph::make) does by itself stands there too, marked as built in,
//! and is proved with the others.
//!
//! **Why it ends.** What a rule makes weighs less than what it finds: fewer bits of operations, `mod` above `mul` above `add` above
//! `below` above a choice above `and` above `not`, wires for nothing; where that is the same, narrower operations; where that
//! is the same too, fewer bits of wires. A test weighs every rule at many widths. Rules that look at who uses a value ask for that
//! where it would be made twice otherwise.

mod apply;
mod bits;
mod instance;
mod matching;
mod prove;
mod read;
mod term;
#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
mod text;
mod uses;

use std::sync::LazyLock;

pub use apply::rewrite;
pub use prove::{Question, meaning_of_operations, questions};
pub use read::RuleError;
pub use text::{Atom, Expr, Fact, Item, Op, Order, Sign, Term, When};
use uses::Uses;

/// One rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// Its name.
    pub name: String,
    /// What it finds.
    pub from: Term,
    /// What it makes of that.
    pub to: Term,
    /// When.
    pub when: Vec<When>,
    /// Whether the graph does so by itself.
    pub is_built_in: bool,
    /// Whether it waits until no other applies.
    pub is_last: bool,
    /// As it is written.
    pub text: String,
}

impl Rule {
    /// Reads rules, in the order in which they are tried.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str) -> Result<Vec<Rule>, RuleError> {
        let mut rules: Vec<Rule> = Vec::new();
        let mut section = "";
        let mut lines = text.lines().filter(|line| !line.trim().is_empty() && !line.starts_with('#')).peekable();
        while let Some(line) = lines.next() {
            if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
                section = name;
                continue;
            }
            let mut whole = line.to_owned();
            while let Some(more) = lines.next_if(|line| line.starts_with(' ')) {
                whole = format!("{whole} {}", more.trim());
            }
            let (name, from, to, when) = read::rule(&whole)?;
            let (is_built_in, is_last) = (section == "built in", section == "last");
            rules.push(Rule { name, from, to, when, is_built_in, is_last, text: whole });
        }
        Ok(rules)
    }
}

/// All rules, in the order in which they are tried.
pub fn rules() -> &'static [Rule] {
    static RULES: LazyLock<Vec<Rule>> =
        LazyLock::new(|| Rule::parse(include_str!("table.rules")).unwrap_or_else(|error| unreachable!("{error}")));
    &RULES
}
