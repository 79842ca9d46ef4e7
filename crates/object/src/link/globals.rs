// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Global functions: linkage and argument types, from the types of an object.

use super::Linker;
use crate::error::ReadFault;
use flowloom_isa::btf::{Btf, BtfError, Linkage, Type, TypeId};
use flowloom_isa::{ArgumentKind, GlobalArgument, GlobalFunction, UnknownArgument};

const MAX_ARGUMENTS: usize = 5;

impl Linker<'_> {
    /// The function as one that is verified separately, if it is global: loaders make functions with hidden symbols
    /// static.
    pub(super) fn global(&self, number: usize, base: usize) -> Result<Option<GlobalFunction>, ReadFault> {
        let function = &self.functions[number];
        let section = self.container.sections[function.section].name.as_bytes();
        let place = u32::try_from(function.start * 8).ok();
        let record = place.and_then(|offset| self.types.get(&(section, offset)));
        let (Some(btf), Some(record), false) = (self.btf, record, function.hidden || function.local) else {
            return Ok(None);
        };
        let Some(Type::Func { proto, linkage: Linkage::Global, .. }) = btf.get(record.func) else { return Ok(None) };
        let Some(Type::FuncProto { params, .. }) = btf.get(*proto) else { return Ok(None) };
        let mut arguments = Vec::new();
        for (index, (name, of)) in params.iter().take(MAX_ARGUMENTS).enumerate() {
            let tags = tags(btf, record.func, index)?;
            let name = String::from_utf8_lossy(btf.name_bytes(*name)?).into_owned();
            arguments.push(GlobalArgument { name, kind: kind(btf, *of, &tags)? });
        }
        Ok(Some(GlobalFunction { slot: base, name: function.name.to_owned(), arguments }))
    }
}

fn tags(btf: &Btf, function: TypeId, argument: usize) -> Result<Vec<String>, BtfError> {
    let mut tags = Vec::new();
    for (_, ty) in btf.types() {
        if let Type::DeclTag { name, of, component, .. } = ty
            && *of == function
            && usize::try_from(*component) == Ok(argument)
        {
            tags.push(String::from_utf8_lossy(btf.name_bytes(*name)?).into_owned());
        }
    }
    Ok(tags)
}

fn kind(btf: &Btf, of: TypeId, tags: &[String]) -> Result<ArgumentKind, BtfError> {
    let has = |wanted: &str| tags.iter().any(|tag| tag == wanted);
    let target = match btf.get(btf.resolve(of)?) {
        Some(Type::Int { .. } | Type::Enum { .. } | Type::Enum64 { .. }) => return Ok(ArgumentKind::Number),
        Some(Type::Ptr(target)) => *target,
        _ => return Ok(ArgumentKind::Unknown(UnknownArgument::NoScalar)),
    };
    if has("arg:ctx") {
        return Ok(ArgumentKind::Context);
    }
    if let Some(tag) = tags.iter().find(|tag| matches!(tag.as_str(), "arg:trusted" | "arg:arena" | "arg:untrusted")) {
        return Ok(ArgumentKind::Unknown(UnknownArgument::Tagged(tag.clone())));
    }
    let resolved = btf.resolve(target)?;
    if let Some(Type::Struct(structure)) = btf.get(resolved) {
        match btf.name_bytes(structure.name)? {
            b"xdp_md" => return Ok(ArgumentKind::Context),
            b"bpf_dynptr" => return Ok(ArgumentKind::Unknown(UnknownArgument::Dynptr)),
            _ => {}
        }
    }
    let size = match btf.get(resolved) {
        Some(Type::Func { .. } | Type::FuncProto { .. } | Type::Fwd { .. }) | None => None,
        _ => btf.size_bytes(resolved).ok().filter(|size| *size > 0),
    };
    Ok(match size {
        Some(bytes) => ArgumentKind::Memory { bytes, nullable: !has("arg:nonnull") },
        None => ArgumentKind::Unknown(UnknownArgument::Unsized),
    })
}
