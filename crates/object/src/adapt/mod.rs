// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CO-RE relocations (compile once, run everywhere): adapts programs to the types of a kernel.
//!
//! ```text
//!  `ctx->data` of the object ──access `0:0` of its `struct xdp_md`──► the same member of the kernel's `struct xdp_md`
//!  *(u32 *)(r1 + 0)                                                    *(u32 *)(r1 + its offset there)
//! ```
//!
//! Goal: instructions that refer to a field, type or enumerator use its value in the kernel at hand. Steps: resolve the
//! access in the object's own types ([`access`]); find types of the same name in the kernel and resolve it there
//! ([`find`]); replace the compiler's value by the kernel's ([`patch`]). Existence checks and the size and id of types
//! accept absence; for all others it is an unresolved reference, and the instruction becomes the call of a helper that
//! no kernel has.
//!
//! # Source
//! [Linux Documentation/bpf/llvm_reloc.rst, CO-RE relocations], libbpf's rules of compatibility

mod access;
mod fault;
mod find;
mod names;
mod patch;
mod replacement;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use fault::{AdaptFault, MAX_WORK};
use flowloom_isa::Reference;
use flowloom_isa::btf::{Btf, BtfError, CoreRecord, Name, TypeId};
use names::{essential, type_name};
pub(super) use patch::{poison, put};
use replacement::Replacement;

/// The types of a kernel.
#[derive(Debug)]
pub struct KernelTypeIndex {
    btf: Btf,
    /// Types by the hash of their name without flavour.
    by_name: HashMap<u64, Vec<TypeId>>,
}

impl KernelTypeIndex {
    /// Parses the kernel's own types, `/sys/kernel/btf/vmlinux`.
    ///
    /// # Errors
    /// As [`Btf::parse`].
    ///
    /// # Cost
    /// One pass over the types and one over their names.
    pub fn parse(bytes: &[u8]) -> Result<KernelTypeIndex, BtfError> {
        let btf = Btf::parse(bytes)?;
        let mut by_name: HashMap<u64, Vec<TypeId>> = HashMap::new();
        for (id, ty) in btf.types() {
            if let Some(name) = type_name(ty)
                && name != Name(0)
            {
                by_name.entry(hash(essential(btf.name_bytes(name)?))).or_default().push(id);
            }
        }
        Ok(KernelTypeIndex { btf, by_name })
    }

    fn named<'k>(&'k self, name: &'k [u8]) -> impl Iterator<Item = TypeId> + 'k {
        let all = self.by_name.get(&hash(name)).into_iter().flatten().copied();
        all.filter(move |id| {
            let found = self.btf.get(*id).and_then(type_name);
            found.and_then(|found| self.btf.name_bytes(found).ok()).is_some_and(|found| essential(found) == name)
        })
    }
}

fn hash(name: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish()
}

/// Provides the types of a kernel, or the reason why there are none.
pub type Kernel<'k> = dyn Fn() -> Result<Arc<KernelTypeIndex>, String> + 'k;

pub(super) struct Adapter<'a> {
    kernel: &'a Kernel<'a>,
    /// Loaded once, when needed.
    types: Option<Result<Arc<KernelTypeIndex>, String>>,
    known: HashMap<(TypeId, Name, u32), Result<Replacement, Reference>>,
    work: u64,
}

impl<'a> Adapter<'a> {
    pub(super) fn new(kernel: &'a Kernel<'a>) -> Adapter<'a> {
        Adapter { kernel, types: None, known: HashMap::new(), work: MAX_WORK }
    }

    /// The value of a record, or the unresolved reference.
    pub(super) fn replacement(
        &mut self,
        btf: &Btf,
        record: CoreRecord,
    ) -> Result<Result<Replacement, Reference>, AdaptFault> {
        let key = (record.of, record.access, record.kind);
        if let Some(known) = self.known.get(&key) {
            return Ok(known.clone());
        }
        let replacement = self.resolve(btf, record)?;
        self.known.insert(key, replacement.clone());
        Ok(replacement)
    }

    /// The unresolved reference if the instruction cannot access the kernel's field.
    pub(super) fn out_of_range(&self, btf: &Btf, record: CoreRecord) -> Reference {
        let what =
            access::Access::read(btf, record).map_or_else(|fault| fault.to_string(), |access| access.describe(btf));
        Reference::Adaptation {
            what,
            why: "the kernel's has a length or place that the instruction has no room for".to_owned(),
        }
    }

    fn resolve(&mut self, btf: &Btf, record: CoreRecord) -> Result<Result<Replacement, Reference>, AdaptFault> {
        let local = access::Access::read(btf, record)?;
        let before = replacement::number(btf, &local)?;
        if local.kind == access::Kind::TypeIdLocal {
            return Ok(Ok(Replacement::same(before)));
        }
        let reference = |why: String| Ok(Err(Reference::Adaptation { what: local.describe(btf), why }));
        let types = self.types.get_or_insert_with(|| (self.kernel)());
        let types = match types {
            Ok(types) => Arc::clone(types),
            Err(reason) => return reference(reason.clone()),
        };
        let mut found: Option<Replacement> = None;
        for candidate in types.named(local.name(btf)?) {
            let Some(there) = find::find(btf, &local, &types.btf, candidate, &mut self.work)? else { continue };
            let after = replacement::number(&types.btf, &there)?;
            let replacement = Replacement::between(btf, before, &types.btf, after);
            match &found {
                Some(first) if *first != replacement => {
                    return reference("the kernel has several types of this name, which differ in it".to_owned());
                }
                _ => found = Some(replacement),
            }
        }
        match found {
            Some(replacement) => Ok(Ok(replacement)),
            None if local.kind.may_be_absent() => Ok(Ok(Replacement::absent(before))),
            None => reference("the kernel has none of this name and shape".to_owned()),
        }
    }
}
