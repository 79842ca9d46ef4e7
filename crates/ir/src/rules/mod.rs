// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rewrite rules that turn operations into wires or into cheaper operations.
//!
//! ```text
//!   slt-zero:  (slt x:w 0)  =>  (slice w-1 1 x)
//!   below-one: (below x 1)  =>  (eq x 0)
//!   mul-power: (mul x:w C)  =>  (concat 0:k (slice 0 w-k x))  where k = power C
//! ```
//!
//! The rules are data: `table.rules` holds them, [`rules`] lists them, [`rewrite`] applies them, and [`questions`] asks
//! an SMT solver about each, at 64 bits and below. The simplifications of [`Graph::make`](crate::Graph::make) are
//! listed there too, marked as built in, and are proved with the others.
//!
//! **Termination.** The right-hand side of a rule weighs less than its left-hand side: fewer bits of operations, with
//! `mod` above `mul` above `add` above `below` above a select above `and` above `not`, and wires free; if equal,
//! narrower operations; if equal again, fewer bits of wires. A test weighs every rule at many widths. Rules that would
//! duplicate a shared node require that it has one user.

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

/// A rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rule {
    /// The name.
    pub name: String,
    /// The pattern.
    pub from: Term,
    /// The replacement.
    pub to: Term,
    /// The conditions.
    pub when: Vec<When>,
    /// Whether the graph applies it by itself.
    pub is_built_in: bool,
    /// Whether it waits until no other rule applies.
    pub is_last: bool,
    /// The source text.
    pub text: String,
}

impl Rule {
    /// Parses rules, in the order in which they are tried.
    ///
    /// # Errors
    /// The first error.
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
