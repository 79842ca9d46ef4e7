// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The undefined symbols of an object: kernel functions, kernel variables, and configuration settings.

use std::collections::HashMap;

use super::error::ReadFault;
use super::names;
use flowloom_isa::Reference;
use flowloom_isa::btf::{Btf, Type};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Extern {
    /// A kernel function.
    Kfunc,
    /// A kernel variable or other kernel address.
    Ksym,
    /// A configuration setting of the kernel.
    Kconfig,
}

impl Extern {
    /// The unresolved reference of a program that uses it.
    pub(super) fn reference(of: Option<Extern>, name: &str) -> Reference {
        let name = name.to_owned();
        match of {
            Some(Extern::Kfunc) => Reference::Kfunc { name },
            Some(Extern::Ksym) => Reference::Ksym { name },
            Some(Extern::Kconfig) => Reference::Kconfig { name },
            None => Reference::Undefined { name },
        }
    }
}

/// The undefined symbols of an object by name, according to its types.
pub(super) fn externs(btf: Option<&Btf>) -> Result<HashMap<&[u8], Extern>, ReadFault> {
    let mut out = HashMap::new();
    let Some(btf) = btf else { return Ok(out) };
    for (_, ty) in btf.types() {
        let Type::DataSec { name, vars, .. } = ty else { continue };
        let is_config = match btf.name_bytes(*name)? {
            name if name == names::KCONFIG.as_bytes() => true,
            name if name == names::KSYMS.as_bytes() => false,
            _ => continue,
        };
        for var in vars {
            let (name, kind) = match btf.get(var.var) {
                Some(Type::Var { name, .. }) => (name, if is_config { Extern::Kconfig } else { Extern::Ksym }),
                Some(Type::Func { name, .. }) => (name, Extern::Kfunc),
                _ => continue,
            };
            out.insert(btf.name_bytes(*name)?, kind);
        }
    }
    Ok(out)
}
