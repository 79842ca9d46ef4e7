//! Fields of values that the kernel treats in its own way: it finds them by the names of their types.

use crate::btf::{Btf, BtfError, Type, TypeId};

/// The lock that programs take around what they do with a value.
const SPIN_LOCK: &str = "bpf_spin_lock";

/// Structures that mean more to the kernel than their bytes [Linux bpf.h, `enum btf_field_type`].
const STRUCTURES: [&str; 7] =
    ["bpf_res_spin_lock", "bpf_timer", "bpf_wq", "bpf_list_head", "bpf_rb_root", "bpf_refcount", "bpf_task_work"];

/// Tags of pointers to what the kernel counts.
const POINTERS: [&str; 4] = ["kptr", "kptr_untrusted", "percpu_kptr", "uptr"];

/// How deep structures are looked into, as the kernel does.
const MAX_DEPTH: u32 = 4;
/// How many members are looked at; a small object could otherwise name the same ones without end.
const MAX_MEMBERS: usize = 100_000;

/// What is found in a type.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Special {
    /// Where the lock lies.
    pub(super) spin_lock: Option<u32>,
    /// All others: how they are called, and where they lie.
    pub(super) others: Vec<(String, u32)>,
}

/// The special fields of a value of type `of`.
pub(super) fn fields(btf: &Btf, of: TypeId) -> Result<Special, BtfError> {
    let mut out = Special::default();
    let mut left = MAX_MEMBERS;
    look(btf, of, 0, MAX_DEPTH, &mut left, &mut out)?;
    Ok(out)
}

fn look(btf: &Btf, of: TypeId, offset: u32, depth: u32, left: &mut usize, out: &mut Special) -> Result<(), BtfError> {
    let Some(rest) = left.checked_sub(1) else {
        if !out.others.iter().any(|(name, _)| name.starts_with("more")) {
            out.others.push((format!("more than {MAX_MEMBERS} members"), offset));
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
        // The first element tells what all are.
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
