// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Symbol table, with uses recorded for warnings.

use std::collections::BTreeMap;

use crate::diagnostic::{Code, Sink};
use crate::model::{Span, Type};
use crate::syntax::ast::Name;
use crate::syntax::words;

use super::constant::Constant;

/// Meaning of a declared name.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Symbol {
    Constant(Constant),
    /// Index of a named set.
    Set(u16),
    /// A port parameter without a value.
    UnsetPort,
    /// The declaration is invalid, which was reported.
    Broken,
    Metadata(u16),
    Register(u16),
    Global(u16),
}

#[derive(Debug)]
pub(super) struct Entry<'s> {
    pub(super) name: Name<'s>,
    pub(super) what: &'static str,
    pub(super) symbol: Symbol,
    pub(super) is_used: bool,
}

/// A register, global register or metadata field.
#[derive(Debug, Clone, Copy)]
pub(super) struct VariableInfo<'s> {
    pub(super) name: &'s str,
    pub(super) ty: Type,
    pub(super) unit_ns: Option<u64>,
    /// True if it holds addresses of either family, with IPv4 addresses mapped to IPv6.
    pub(super) is_either_family: bool,
    /// True if it was declared as an IPv4 address.
    pub(super) is_ipv4: bool,
}

/// Names in scope.
#[derive(Debug, Default)]
pub(super) struct Names<'s> {
    function: BTreeMap<&'s str, Entry<'s>>,
    element: BTreeMap<&'s str, Entry<'s>>,
    pub(super) metadata: Vec<VariableInfo<'s>>,
    pub(super) registers: Vec<VariableInfo<'s>>,
    pub(super) globals: Vec<VariableInfo<'s>>,
    /// Types and initial values of the registers, in order of declaration.
    pub(super) initial: Vec<(Type, u128)>,
    pub(super) states: Vec<Name<'s>>,
    /// True if the current element is stateful; only then are `state` and registers in scope.
    pub(super) is_stateful: bool,
    pub(super) has_key: bool,
    /// Some declarations could not be parsed, so unknown names are not reported.
    pub(super) has_syntax_errors: bool,
    /// (register, element) pairs of all elements, for hints.
    pub(super) registers_elsewhere: Vec<(&'s str, &'s str)>,
}

impl<'s> Names<'s> {
    /// Looks up `name` and marks it as used.
    pub(super) fn look_up(&mut self, name: &str) -> Option<(Symbol, &'static str)> {
        let entry = match self.element.get_mut(name) {
            Some(entry) => entry,
            None => self.function.get_mut(name)?,
        };
        entry.is_used = true;
        Some((entry.symbol, entry.what))
    }

    pub(super) fn visible(&self) -> impl Iterator<Item = &'s str> {
        self.element.keys().chain(self.function.keys()).copied()
    }

    /// Declares a parameter, constant or metadata field.
    pub(super) fn declare(&mut self, name: Name<'s>, what: &'static str, symbol: Symbol, sink: &mut Sink) -> bool {
        self.insert(name, what, symbol, false, sink)
    }

    /// Declares a register or global register of the current element.
    pub(super) fn declare_local(
        &mut self,
        name: Name<'s>,
        what: &'static str,
        symbol: Symbol,
        sink: &mut Sink,
    ) -> bool {
        self.insert(name, what, symbol, true, sink)
    }

    fn insert(&mut self, name: Name<'s>, what: &'static str, symbol: Symbol, local: bool, sink: &mut Sink) -> bool {
        if let Some(first) = self.element.get(name.text).or_else(|| self.function.get(name.text)) {
            sink.error(
                Code::Duplicate,
                name.span,
                format!("`{}` is declared twice", name.text),
                format!("this {what}"),
            )
            .secondary_label(first.name.span, format!("{} of the same name", first.what))
            .help("give one of them another name");
            return false;
        }
        let entry = Entry { name, what, symbol, is_used: false };
        let map = if local { &mut self.element } else { &mut self.function };
        map.insert(name.text, entry);
        check_name(name, what, sink);
        true
    }

    /// Leaves the current element and returns its names.
    pub(super) fn leave_element(&mut self) -> BTreeMap<&'s str, Entry<'s>> {
        self.registers.clear();
        self.globals.clear();
        self.initial.clear();
        self.states.clear();
        std::mem::take(&mut self.element)
    }

    /// Removes and returns the names of the function.
    pub(super) fn leave_function(&mut self) -> BTreeMap<&'s str, Entry<'s>> {
        std::mem::take(&mut self.function)
    }
}

/// Parts of a stored context other than registers, by their names in a dump of the state.
pub(super) const CONTEXT_PARTS: [&str; 6] = ["idle_deadline", "idle_ns", "hard_deadline", "touched", "state", "flags"];

/// Checks that a register does not have the name of another part of a context.
pub(super) fn check_register_name(name: Name<'_>, sink: &mut Sink) {
    // `state` is a reserved word, which `check_name` reports.
    if CONTEXT_PARTS.contains(&name.text) && !words::RESERVED.contains(&name.text) {
        sink.error(
            Code::ReservedName,
            name.span,
            format!("`{}` is a part of every context and cannot name a register", name.text),
            "reserved",
        )
        .help(format!("a state dump lists it with the registers; choose another name, such as `my_{}`", name.text));
    }
}

pub(super) fn check_name(name: Name<'_>, what: &str, sink: &mut Sink) {
    if words::RESERVED.contains(&name.text) {
        sink.error(
            Code::ReservedName,
            name.span,
            format!("`{}` is a keyword and cannot name a {what}", name.text),
            "reserved",
        )
        .help(format!("choose another name, such as `my_{}`", name.text));
    } else if name.text.contains('.') {
        sink.error(
            Code::BadName,
            name.span,
            format!("the name of a {what} cannot have a dot: `{}`", name.text),
            "names with dots are packet fields",
        )
        .help(format!("write `{}`", name.text.replace('.', "_")));
    }
}

/// True if `count` has reached the limit of 16-bit indices, which is reported.
pub(super) fn exceeds_index_limit(count: usize, what: &str, span: Span, sink: &mut Sink) -> bool {
    let is_full = count >= usize::from(u16::MAX);
    if is_full {
        sink.error(Code::OutOfRange, span, format!("more than {} {what}", u16::MAX), "one too many")
            .help("split the function");
    }
    is_full
}

pub(super) fn warn_unused<'s>(entries: &BTreeMap<&'s str, Entry<'s>>, sink: &mut Sink) {
    for entry in entries.values().filter(|e| !e.is_used) {
        let message = format!("{} `{}` is never used", entry.what, entry.name.text);
        sink.warning(Code::Unused, entry.name.span, message, "declared here").help("remove the declaration, or use it");
    }
}
