// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kinds of programs, from the user's option, the section name, and the type of the function's argument.

use std::collections::HashMap;

use super::Linker;
use super::functions::Function;
use crate::error::ReadFault;
use flowloom_isa::ProgramKind;
use flowloom_isa::btf::{Btf, Type, TypeId};

/// The types of functions by name; of two with one name, the first.
pub(super) fn types_by_name(btf: Option<&Btf>) -> Result<HashMap<&[u8], TypeId>, ReadFault> {
    let mut out = HashMap::new();
    for (_, ty) in btf.iter().flat_map(|btf| btf.types()) {
        if let (Type::Func { name, proto, .. }, Some(btf)) = (ty, btf) {
            out.entry(btf.name_bytes(*name)?).or_insert(*proto);
        }
    }
    Ok(out)
}

impl Linker<'_> {
    /// The kind of a program, and a note if its section and its argument disagree.
    pub(super) fn kind(&self, root: usize) -> (ProgramKind, Option<String>) {
        let function = &self.functions[root];
        let section = self.container.sections[function.section].name;
        let named = ProgramKind::of_section(section);
        if let Some(forced) = self.forced {
            // A section for device or CPU maps is more specific than XDP.
            let kind = named.filter(|kind| kind.is_xdp() && forced == ProgramKind::Xdp).unwrap_or(forced);
            return (kind, None);
        }
        let context = self.context(function, section);
        let typed = context.and_then(ProgramKind::of_context);
        match (named, context, typed) {
            (Some(named), Some("xdp_md"), Some(typed)) if named.has_own_context() => {
                let note = format!(
                    "program `{}`: section `{section}` stands for {named}, its argument is `struct xdp_md *`: it is taken \
                     as {typed}",
                    function.name
                );
                (typed, Some(note))
            }
            (named, _, typed) => (named.or(typed).unwrap_or_default(), None),
        }
    }

    /// The structure that the function's first argument points to, according to its type.
    fn context(&self, function: &Function<'_>, section: &str) -> Option<&str> {
        let btf = self.btf?;
        let offset = u32::try_from(function.start * 8).ok()?;
        let proto = match self.types.get(&(section.as_bytes(), offset)) {
            Some(record) => match btf.get(record.func) {
                Some(Type::Func { proto, .. }) => *proto,
                _ => return None,
            },
            None => *self.named_types.get(function.name.as_bytes())?,
        };
        let Some(Type::FuncProto { params, .. }) = btf.get(proto) else { return None };
        let Some(Type::Ptr(target)) = btf.get(btf.resolve(params.first()?.1).ok()?) else { return None };
        let Some(Type::Struct(structure)) = btf.get(btf.resolve(*target).ok()?) else { return None };
        btf.name(structure.name).ok()
    }
}
