// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fields of values that the kernel treats specially, found by their type names.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use flowloom_isa::btf::{Btf, BtfError, Type, TypeId};

/// The lock of a value.
const SPIN_LOCK: &str = "bpf_spin_lock";

/// Structures with a meaning in the kernel [Linux bpf.h, `enum btf_field_type`].
const STRUCTURES: [&str; 7] =
    ["bpf_res_spin_lock", "bpf_timer", "bpf_wq", "bpf_list_head", "bpf_rb_root", "bpf_refcount", "bpf_task_work"];

/// Tags of pointers to reference-counted kernel objects.
const POINTERS: [&str; 4] = ["kptr", "kptr_untrusted", "percpu_kptr", "uptr"];

/// The depth to which structures are searched, as in the kernel.
const MAX_DEPTH: u32 = 4;
/// The budget of visited members for one type; a small object could otherwise refer to the same ones without end.
const MAX_MEMBERS: usize = 100_000;
/// The same for all types of an object.
const MAX_MEMBERS_OF_ALL: usize = 1_000_000;
/// The most fields of one type that are named.
const MAX_NAMED: usize = 64;
/// The name that stands for members past the budget.
const MORE: &str = "more members than are looked at";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Special {
    /// The offset of the lock.
    pub(super) spin_lock: Option<u32>,
    /// All others: name and offset.
    pub(super) others: Vec<(String, u32)>,
}

/// A memo table over the types of an object.
#[derive(Debug)]
pub(super) struct Finder {
    known: HashMap<TypeId, Special>,
    left: usize,
}

impl Default for Finder {
    fn default() -> Finder {
        Finder { known: HashMap::new(), left: MAX_MEMBERS_OF_ALL }
    }
}

impl Finder {
    /// The special fields of a value of type `of`.
    pub(super) fn fields(&mut self, btf: &Btf, of: TypeId) -> Result<&Special, BtfError> {
        match self.known.entry(of) {
            Entry::Occupied(known) => Ok(known.into_mut()),
            Entry::Vacant(place) => {
                let mut out = Special::default();
                let all = self.left.min(MAX_MEMBERS);
                let mut left = all;
                look(btf, of, 0, MAX_DEPTH, &mut left, &mut out)?;
                self.left -= all - left;
                Ok(place.insert(out))
            }
        }
    }
}

fn look(btf: &Btf, of: TypeId, offset: u32, depth: u32, left: &mut usize, out: &mut Special) -> Result<(), BtfError> {
    if out.others.len() >= MAX_NAMED {
        return Ok(());
    }
    let Some(rest) = left.checked_sub(1) else {
        if !out.others.iter().any(|(name, _)| name == MORE) {
            out.others.push((MORE.to_owned(), offset));
        }
        return Ok(());
    };
    *left = rest;
    match btf.get(btf.resolve(of)?) {
        Some(Type::Struct(structure)) => {
            let name = btf.name_bytes(structure.name)?;
            if name == SPIN_LOCK.as_bytes() {
                match out.spin_lock {
                    None => out.spin_lock = Some(offset),
                    Some(_) => out.others.push((format!("a second struct {SPIN_LOCK}"), offset)),
                }
                return Ok(());
            }
            if let Some(known) = STRUCTURES.iter().find(|known| known.as_bytes() == name) {
                out.others.push((format!("struct {known}"), offset));
                return Ok(());
            }
            if depth == 0 {
                return Ok(());
            }
            for member in &structure.members {
                let offset = offset.saturating_add(member.offset_bits / 8);
                look(btf, member.of, offset, depth - 1, left, out)?;
            }
        }
        // The first element stands for all.
        Some(Type::Array { element, count, .. }) if *count > 0 && depth > 0 => {
            look(btf, *element, offset, depth - 1, left, out)?;
        }
        Some(Type::Ptr(target)) => {
            if let Some(Type::TypeTag { name, .. }) = btf.get(*target)
                && let Some(tag) = POINTERS.iter().find(|tag| btf.name_bytes(*name).is_ok_and(|n| n == tag.as_bytes()))
            {
                out.others.push((format!("a pointer tagged `{tag}`"), offset));
            }
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use flowloom_isa::btf::{Builder, Composite, Member, Name};

    /// Structures of 60 members each, nested, so that the outermost contains one number 60^4 times: one type a name.
    fn nested(b: &mut Builder, name: &str) -> TypeId {
        let name = b.string(name).unwrap();
        let mut of = b.add(Type::Int { name, size_bytes: 4, encoding: 0, offset_bits: 0, bits: 32 });
        for _ in 0..4 {
            let members = vec![Member { name, of, offset_bits: 0, width_bits: 0 }; 60];
            of = b.add(Type::Struct(Composite { name, size_bytes: 4, bitfields: false, members }));
        }
        of
    }

    #[test]
    fn a_type_is_looked_into_once_and_an_object_only_so_far() {
        let mut b = Builder::default();
        let types: Vec<TypeId> = (0..30).map(|number| nested(&mut b, &format!("t{number}"))).collect();
        let timer = b.string("bpf_timer").unwrap();
        let timer = b.add(Type::Struct(Composite { name: timer, size_bytes: 16, bitfields: false, members: vec![] }));
        let timers = vec![Member { name: Name(0), of: timer, offset_bits: 0, width_bits: 0 }; 1000];
        let timers = Composite { name: Name(0), size_bytes: 16, bitfields: false, members: timers };
        let timers = b.add(Type::Struct(timers));
        let btf = b.finish();
        let mut finder = Finder::default();
        for _ in 0..3 {
            assert_eq!(finder.fields(&btf, types[0]).unwrap().others, [(MORE.to_owned(), 0)]);
            assert_eq!(finder.left, MAX_MEMBERS_OF_ALL - MAX_MEMBERS);
        }
        let found = finder.fields(&btf, timers).unwrap();
        assert_eq!((found.others.len(), found.others[9].0.as_str()), (MAX_NAMED, "struct bpf_timer"));
        for of in &types {
            assert_eq!(finder.fields(&btf, *of).unwrap().others, [(MORE.to_owned(), 0)]);
        }
        assert_eq!(finder.left, 0);
    }
}
