// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The value of a CO-RE relocation.

use super::access::{Access, Kind, Step};
use super::fault::AdaptFault;
use flowloom_isa::btf::{Btf, Type, TypeId};

/// A value, and for the offset of a field the field itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Number {
    pub(super) value: u64,
    /// For the offset of a field that is not a bit field: its size and type.
    pub(super) field: Option<(u32, TypeId)>,
    /// Whether the compiler has put the same value, so that it can be checked. It has not for bit fields.
    pub(super) is_checked: bool,
}

/// The value to put into an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Replacement {
    pub(super) before: Option<u64>,
    pub(super) after: u64,
    /// The size of the field in the object and in the kernel, if known.
    pub(super) bytes: Option<(u32, u32)>,
    /// Whether a load of another size gives the same number.
    pub(super) can_resize: bool,
}

impl Replacement {
    pub(super) fn same(before: Number) -> Replacement {
        Replacement { before: Some(before.value), after: before.value, bytes: None, can_resize: true }
    }

    pub(super) fn absent(before: Number) -> Replacement {
        Replacement { after: 0, ..Replacement::same(before) }
    }

    pub(super) fn between(local: &Btf, before: Number, kernel: &Btf, after: Number) -> Replacement {
        let bytes = before.field.zip(after.field).map(|(before, after)| (before.0, after.0));
        let can_resize = before.field.zip(after.field).is_none_or(|((a, of_a), (b, of_b))| {
            a == b || {
                // Pointers and unsigned numbers.
                let plain = |btf: &Btf, of| match btf.resolve(of).ok().and_then(|of| btf.get(of)) {
                    Some(Type::Ptr(_)) => Some(true),
                    Some(Type::Int { encoding, .. }) if encoding & 1 == 0 => Some(false),
                    _ => None,
                };
                let (a, b) = (plain(local, of_a), plain(kernel, of_b));
                a.is_some() && a == b
            }
        });
        let is_checked = before.is_checked;
        Replacement { before: is_checked.then_some(before.value), after: after.value, bytes, can_resize }
    }
}

/// The value in the object's own types or in the kernel's. Existence checks give 1.
pub(super) fn number(btf: &Btf, access: &Access) -> Result<Number, AdaptFault> {
    let plain = |value| Number { value, field: None, is_checked: true };
    Ok(match access.kind {
        Kind::FieldExists | Kind::TypeExists | Kind::ValueExists | Kind::TypeMatches => plain(1),
        Kind::TypeIdLocal | Kind::TypeIdTarget => plain(access.root.0.into()),
        Kind::TypeSize => plain(btf.size_bytes(access.root)?.into()),
        Kind::Value => plain(match btf.get(btf.resolve(access.root)?) {
            Some(Type::Enum { values, signed, .. }) => values
                .get(access.value)
                .map_or(0, |(_, value)| if *signed { i64::from(*value) as u64 } else { u64::from(*value as u32) }),
            Some(Type::Enum64 { values, .. }) => values.get(access.value).map_or(0, |(_, value)| *value),
            _ => 0,
        }),
        _ => field(btf, access)?,
    })
}

/// The offset, size, sign or bit position of a field.
fn field(btf: &Btf, access: &Access) -> Result<Number, AdaptFault> {
    let width_bits = match access.steps.last() {
        Some(Step::Member { of, index }) => {
            let member = btf.composite(*of).and_then(|of| of.members.get(*index));
            member.map_or(0, |member| u64::from(member.width_bits))
        }
        _ => 0,
    };
    let size_bytes = btf.size_bytes(access.leaf)?;
    let (mut bytes, bits, mut offset);
    if width_bits > 0 {
        // The smallest integer that contains all the bits.
        (bytes, bits) = (u64::from(size_bytes.max(1)), width_bits);
        offset = access.offset_bits / 8 / bytes * bytes;
        while access.offset_bits + bits - offset * 8 > bytes * 8 && bytes < 8 {
            bytes *= 2;
            offset = access.offset_bits / 8 / bytes * bytes;
        }
    } else {
        (bytes, bits, offset) = (size_bytes.into(), u64::from(size_bytes) * 8, access.offset_bits / 8);
    }
    let is_checked = width_bits == 0;
    Ok(match access.kind {
        Kind::FieldOffset => {
            Number { value: offset, field: is_checked.then_some((size_bytes, access.leaf)), is_checked }
        }
        Kind::FieldSize => Number { value: bytes, field: None, is_checked },
        Kind::FieldSigned => {
            let signed = match btf.get(btf.resolve(access.leaf)?) {
                Some(Type::Int { encoding, .. }) => encoding & 1 != 0,
                Some(Type::Enum { signed, .. } | Type::Enum64 { signed, .. }) => *signed,
                _ => false,
            };
            // Compilers differ in what they consider signed.
            Number { value: signed.into(), field: None, is_checked: false }
        }
        Kind::FieldLeftShift => {
            let used = (access.offset_bits + bits).saturating_sub(offset * 8);
            Number { value: 64_u64.saturating_sub(used), field: None, is_checked: false }
        }
        _ => Number { value: 64_u64.saturating_sub(bits), field: None, is_checked },
    })
}
