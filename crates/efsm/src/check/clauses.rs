// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Clauses that refer to states and registers in any source order: policies of full tables, successors, preloaded
//! contexts.

use flowloom_wire::KeySpec;

use crate::diagnostic::Code;
use crate::model::{Destination, Key, KeyPart, Policy, Preloaded, Span, Stateful, Successor, Wide};
use crate::syntax::ast::{self, Expire, Name, Preload};

use super::Checker;
use super::actions::Target;
use super::constant::Constant;
use super::names::Symbol;

impl<'s> Checker<'s, '_> {
    pub(super) fn policy(&mut self, tree: ast::Policy<'s>) -> Option<Policy> {
        Some(match tree {
            ast::Policy::Reject => Policy::Reject,
            ast::Policy::Oldest => Policy::EvictOldest,
            ast::Policy::Lowest(name) => Policy::EvictLowest(self.evict_by(name)?),
            ast::Policy::Highest(name) => Policy::EvictHighest(self.evict_by(name)?),
        })
    }

    fn evict_by(&mut self, name: Name<'s>) -> Option<u16> {
        let help = "the victim is the context with the smallest or largest value of one of its registers; `full evict oldest;` \
                    evicts the least recently used one";
        match self.names.look_up(name.text) {
            Some((Symbol::Register(i), _)) if self.names.registers[usize::from(i)].ty.is_wide() => {
                self.sink
                    .error(
                        Code::WidthMismatch,
                        name.span,
                        format!("`{}` is an address and has no order", name.text),
                        "128 bits",
                    )
                    .help(help);
                None
            }
            Some((Symbol::Register(i), _)) => Some(i),
            Some((Symbol::Broken, _)) => None,
            Some((_, what)) => {
                self.sink
                    .error(
                        Code::WrongKind,
                        name.span,
                        format!("{what} `{}` is the same for all contexts", name.text),
                        "not a register of the element",
                    )
                    .help(help);
                None
            }
            None => {
                self.unknown_name(name);
                None
            }
        }
    }

    pub(super) fn successors(&mut self, trees: &[&Expire<'s>]) -> Vec<Option<Successor>> {
        let mut successors = vec![None; self.names.states.len()];
        let mut from: Vec<(u16, Span)> = Vec::new();
        let mut into: Vec<(u16, Name<'s>)> = Vec::new();
        for tree in trees {
            let state = self.state(tree.state);
            let to = self.state(tree.to);
            let timers = self.timers(&tree.timers);
            if let Some(state) = state {
                if let Some((_, first)) = from.iter().find(|(other, _)| *other == state) {
                    self.sink
                        .error(
                            Code::Duplicate,
                            tree.state.span,
                            format!("a second successor of state `{}`", tree.state.text),
                            "repeated here",
                        )
                        .secondary_label(*first, "first here")
                        .help("a state has one successor for both timers");
                    continue;
                }
                from.push((state, tree.state.span));
            }
            if to == Some(0) {
                self.sink
                    .error(
                        Code::BadTime,
                        tree.to.span,
                        format!("`{}` is the initial state", tree.to.text),
                        "not a successor",
                    )
                    .help(
                        "an expired context returns to the initial state and the registers' initial values; \
                         remove the clause, or add a state that keeps the registers",
                    );
                continue;
            }
            let (Some(state), Some(to), Some((idle_ns, hard_ns))) = (state, to, timers) else { continue };
            into.push((to, tree.to));
            successors[usize::from(state)] = Some(Successor { state: to, idle_ns, hard_ns });
        }
        for (to, name) in into {
            if let Some((_, place)) = from.iter().find(|(state, _)| *state == to) {
                self.sink
                    .error(
                        Code::BadTime,
                        name.span,
                        format!("`{}` is a successor, and has a successor itself", name.text),
                        "its timer leads to the initial state only",
                    )
                    .secondary_label(*place, "its successor")
                    .help("remove one of the two `expire`: a context without packets must expire");
            }
        }
        successors
    }

    /// Lowers the preloaded contexts. `key` is `None` if it is invalid.
    pub(super) fn preloads(
        &mut self,
        trees: &[&Preload<'s>],
        key: Option<&Key>,
        stateful: &Stateful,
    ) -> Vec<Preloaded> {
        let mut preloaded: Vec<(Preloaded, Span)> = Vec::new();
        for tree in trees {
            let Some(context) = self.preload(tree, key, stateful) else { continue };
            if let Some((_, first)) = preloaded.iter().find(|(other, _)| other.key == context.key) {
                self.sink
                    .error(Code::Duplicate, tree.span, "a second context with this key", "repeated here")
                    .secondary_label(*first, "first here")
                    .help("each key has one context; a `biflow` key is the same in both directions");
                continue;
            }
            if preloaded.len() == stateful.size as usize {
                self.sink
                    .error(
                        Code::OutOfRange,
                        tree.span,
                        format!("more contexts are preloaded than the table holds, {}", stateful.size),
                        "one too many",
                    )
                    .help("give the element a larger `size`");
                break;
            }
            preloaded.push((context, tree.span));
        }
        preloaded.into_iter().map(|(context, _)| context).collect()
    }

    fn preload(&mut self, tree: &Preload<'s>, key: Option<&Key>, stateful: &Stateful) -> Option<Preloaded> {
        let state = self.state(tree.state);
        let registers = self.preloaded_registers(tree, stateful);
        let values: Vec<_> =
            tree.key.iter().map(|value| Some((self.constant(value, "a value of a key")?, value.span))).collect();
        let values: Vec<(Constant, Span)> = values.into_iter().collect::<Option<_>>()?;
        let Some(key) = key else {
            // An error in the key was reported.
            if !self.names.has_key && !self.names.has_syntax_errors {
                self.sink
                    .error(Code::BadKey, tree.span, "`preload` in an element without a key", "no key selects it")
                    .help("the one context of `key none` starts with the initial values of the registers: `reg r: u32 = 5;`");
            }
            return None;
        };
        if values.len() != key.parts.len() {
            let parts: Vec<String> = key.parts.iter().map(|part| format!("`{}`", self.part_name(*part))).collect();
            self.sink
                .error(
                    Code::BadKey,
                    tree.span,
                    format!("the number of values is {}, that of the key's parts {}", values.len(), parts.len()),
                    format!("expected {}", parts.len()),
                )
                .help(format!("give a value for each of {}, in this order", parts.join(", ")));
            return None;
        }
        let numbers: Vec<Option<u128>> =
            key.parts.iter().zip(&values).map(|(part, (value, span))| self.part_value(*part, *value, *span)).collect();
        let numbers: Vec<u128> = numbers.into_iter().collect::<Option<_>>()?;
        let parts: Vec<_> = key
            .parts
            .iter()
            .map(|part| match *part {
                KeyPart::Field(field) => flowloom_wire::KeyPart::Field(field),
                KeyPart::Metadata(i) => {
                    flowloom_wire::KeyPart::Value { width_bits: self.names.metadata[usize::from(i)].ty.width_bits }
                }
            })
            .collect();
        let key = KeySpec::new(&parts, key.biflow).ok()?.of_values(&numbers);
        Some(Preloaded { key, state: state?, registers: registers? })
    }

    fn preloaded_registers(&mut self, tree: &Preload<'s>, stateful: &Stateful) -> Option<Vec<u128>> {
        let mut registers: Vec<u128> = stateful.registers.iter().map(|r| r.initial).collect();
        let mut written: Vec<(u16, Span)> = Vec::new();
        let mut is_ok = true;
        for (name, value) in &tree.registers {
            let constant = self.constant(value, "the value of a register");
            let Some(i) = self.preloaded_register(*name) else {
                is_ok = false;
                continue;
            };
            if let Some((_, first)) = written.iter().find(|(other, _)| *other == i) {
                self.sink
                    .error(Code::WrittenTwice, name.span, format!("`{}` is given twice", name.text), "repeated here")
                    .secondary_label(*first, "first here")
                    .help("give each register one value");
                is_ok = false;
                continue;
            }
            written.push((i, name.span));
            let info = self.names.registers[usize::from(i)];
            let checked = constant.and_then(|constant| {
                if info.ty.is_wide() {
                    self.address_constant(&self.wide(Wide::Register(i)), constant, value.span)
                } else {
                    self.check_fits(constant, info.unit_ns.unwrap_or(1), info.ty, name.text, value.span).map(u128::from)
                }
            });
            match checked {
                Some(value) => registers[usize::from(i)] = value,
                None => is_ok = false,
            }
        }
        is_ok.then_some(registers)
    }

    fn preloaded_register(&mut self, name: Name<'s>) -> Option<u16> {
        match self.target(name)? {
            Target::Update(Destination::Register(i)) => Some(i),
            _ => {
                self.sink
                    .error(
                        Code::WrongKind,
                        name.span,
                        format!("`{}` is not a register of the context", name.text),
                        "not a register",
                    )
                    .help("a context has a state and the registers that the element declares with `reg`");
                None
            }
        }
    }

    pub(super) fn part_name(&self, part: KeyPart) -> String {
        match part {
            KeyPart::Field(field) => self.field_name(field),
            KeyPart::Metadata(i) => self.names.metadata[usize::from(i)].name.to_owned(),
        }
    }

    fn part_value(&mut self, part: KeyPart, value: Constant, span: Span) -> Option<u128> {
        let (wide, width_bits) = match part {
            KeyPart::Field(field) => (Wide::Field(field), field.width_bits()),
            KeyPart::Metadata(i) => (Wide::Metadata(i), self.names.metadata[usize::from(i)].ty.width_bits),
        };
        if width_bits > 64 {
            return self.address_constant(&self.wide(wide), value, span);
        }
        match part {
            KeyPart::Field(field) => self.field_constant(field, value, span).map(u128::from),
            KeyPart::Metadata(i) => {
                let info = self.names.metadata[usize::from(i)];
                self.check_fits(value, info.unit_ns.unwrap_or(1), info.ty, info.name, span).map(u128::from)
            }
        }
    }
}
