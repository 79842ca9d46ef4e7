// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The same access in the types of a kernel.

use super::access::{Access, Kind, Step, elements_further, further};
use super::fault::AdaptFault;
use super::names::{essential, type_name};
use flowloom_isa::btf::{Btf, Composite, Member, Name, Type, TypeId};

/// The depth to which types are compared.
const MAX_DEPTH: u32 = 32;

/// Resolves the object's access in a type of the kernel; `None` if that type has no such part.
pub(super) fn find(
    local: &Btf,
    access: &Access,
    kernel: &Btf,
    root: TypeId,
    work: &mut u64,
) -> Result<Option<Access>, AdaptFault> {
    Search { local, kernel, work }.find(access, root)
}

struct Search<'a> {
    local: &'a Btf,
    kernel: &'a Btf,
    work: &'a mut u64,
}

impl<'a> Search<'a> {
    fn spend(&mut self) -> Result<(), AdaptFault> {
        *self.work = self.work.checked_sub(1).ok_or(AdaptFault::Work)?;
        Ok(())
    }

    fn find(&mut self, access: &Access, root: TypeId) -> Result<Option<Access>, AdaptFault> {
        self.spend()?;
        // A typedef differs from the structure of its name.
        if !same_kind(self.local.get(access.root), self.kernel.get(root)) {
            return Ok(None);
        }
        let mut out =
            Access { kind: access.kind, root, steps: vec![access.steps[0]], leaf: root, offset_bits: 0, value: 0 };
        if access.kind.is_of_type() {
            let fits = match access.kind {
                Kind::TypeMatches => self.matches(access.root, root, false, MAX_DEPTH)?,
                _ => self.compatible(access.root, root, MAX_DEPTH)?,
            };
            return Ok(fits.then_some(out));
        }
        if access.kind.is_of_value() {
            let wanted = access.value_name(self.local)?;
            let Some(of) = self.kernel.get(self.kernel.resolve(root)?) else { return Ok(None) };
            let value = self.position(of, wanted)?;
            return Ok(value.map(|value| Access { value, ..out }));
        }
        let resolved = self.kernel.resolve(root)?;
        out.leaf = resolved;
        if let Some(Step::Element(first)) = access.steps.first() {
            // A type without size cannot be an array element.
            let size = if *first == 0 { 0 } else { self.kernel.size_bytes(resolved)? };
            let Some(offset_bits) = elements_further(0, *first, size) else { return Ok(None) };
            out.offset_bits = offset_bits;
        }
        for step in &access.steps[1..] {
            let found = match *step {
                Step::Element(number) => self.element(&mut out, number)?,
                Step::Member { of, index } => match self.local.composite(of).and_then(|of| of.members.get(index)) {
                    Some(member) => self.member(member, &mut out, MAX_DEPTH)?,
                    None => false,
                },
            };
            if !found {
                return Ok(None);
            }
        }
        Ok(Some(out))
    }

    /// Number of the value of the kernel's enumeration with this name.
    fn position(&mut self, of: &Type, wanted: &[u8]) -> Result<Option<usize>, AdaptFault> {
        let mut index = 0;
        while let Some(name) = of.enumerator(index) {
            self.spend()?;
            if essential(self.kernel.name_bytes(name)?) == wanted {
                return Ok(Some(index));
            }
            index += 1;
        }
        Ok(None)
    }

    /// Steps to an element of an array. A flexible array at the end of a structure has any element.
    fn element(&mut self, out: &mut Access, number: u32) -> Result<bool, AdaptFault> {
        let at = self.kernel.resolve(out.leaf)?;
        let Some(Type::Array { element, count, .. }) = self.kernel.get(at) else { return Ok(false) };
        if number >= *count && !(*count == 0 && self.is_last(out)) {
            return Ok(false);
        }
        let size_bytes = self.kernel.size_bytes(*element)?;
        let Some(offset_bits) = elements_further(out.offset_bits, number, size_bytes) else { return Ok(false) };
        out.offset_bits = offset_bits;
        out.steps.push(Step::Element(number));
        out.leaf = *element;
        Ok(true)
    }

    fn is_last(&self, out: &Access) -> bool {
        let Some(Step::Member { of, index }) = out.steps.last() else { return false };
        match self.kernel.get(*of) {
            Some(Type::Struct(composite)) => *index + 1 == composite.members.len(),
            _ => false,
        }
    }

    /// Steps to the member of this name, also within anonymous members.
    fn member(&mut self, wanted: &Member, out: &mut Access, depth: u32) -> Result<bool, AdaptFault> {
        let at = self.kernel.resolve(out.leaf)?;
        let Some(composite) = self.kernel.composite(at) else { return Ok(false) };
        let Some(deeper) = depth.checked_sub(1) else { return Ok(false) };
        let name = self.local.name_bytes(wanted.name)?;
        let before = out.offset_bits;
        for (index, member) in composite.members.iter().enumerate() {
            self.spend()?;
            let found = self.kernel.name_bytes(member.name)?;
            let Some(offset_bits) = further(before, member.offset_bits.into()) else { return Ok(false) };
            out.offset_bits = offset_bits;
            if found.is_empty() {
                out.leaf = member.of;
                if self.member(wanted, out, deeper)? {
                    return Ok(true);
                }
            } else if found == name {
                if !self.fields_fit(wanted.of, member.of, MAX_DEPTH)? {
                    return Ok(false);
                }
                out.steps.push(Step::Member { of: at, index });
                out.leaf = member.of;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a field of one type may be read as one of the other: integers of all sizes may; for structures the
    /// members decide.
    fn fields_fit(&mut self, local: TypeId, kernel: TypeId, depth: u32) -> Result<bool, AdaptFault> {
        self.spend()?;
        let (a, b) = (self.local.get(self.local.resolve(local)?), self.kernel.get(self.kernel.resolve(kernel)?));
        let Some(deeper) = depth.checked_sub(1) else { return Ok(false) };
        Ok(match (a, b) {
            (Some(Type::Struct(_) | Type::Union(_)), Some(Type::Struct(_) | Type::Union(_))) => true,
            (Some(Type::Ptr(_)), Some(Type::Ptr(_))) | (Some(Type::Float { .. }), Some(Type::Float { .. })) => true,
            (Some(Type::Int { offset_bits: a, .. }), Some(Type::Int { offset_bits: b, .. })) => *a == 0 && *b == 0,
            (Some(Type::Array { element: a, .. }), Some(Type::Array { element: b, .. })) => {
                self.fields_fit(*a, *b, deeper)?
            }
            (Some(a), Some(b)) if is_enum(a) && is_enum(b) || is_forward(a) && is_forward(b) => {
                let (a, b) = (type_name(a).unwrap_or_default(), type_name(b).unwrap_or_default());
                a == Name(0) || b == Name(0) || self.same_name(a, b)?
            }
            _ => false,
        })
    }

    fn same_name(&self, local: Name, kernel: Name) -> Result<bool, AdaptFault> {
        Ok(essential(self.local.name_bytes(local)?) == essential(self.kernel.name_bytes(kernel)?))
    }

    /// Whether two types of one name are compatible.
    fn compatible(&mut self, local: TypeId, kernel: TypeId, depth: u32) -> Result<bool, AdaptFault> {
        self.spend()?;
        let (a, b) = (self.local.get(self.local.resolve(local)?), self.kernel.get(self.kernel.resolve(kernel)?));
        let Some(deeper) = depth.checked_sub(1) else { return Ok(false) };
        Ok(match (a, b) {
            (None, None) => true,
            (Some(Type::Int { offset_bits: a, .. }), Some(Type::Int { offset_bits: b, .. })) => *a == 0 && *b == 0,
            (Some(Type::Ptr(a)), Some(Type::Ptr(b))) => self.compatible(*a, *b, deeper)?,
            (Some(Type::Array { element: a, .. }), Some(Type::Array { element: b, .. })) => {
                self.compatible(*a, *b, deeper)?
            }
            (Some(Type::FuncProto { ret: a, params: pa }), Some(Type::FuncProto { ret: b, params: pb })) => {
                if pa.len() != pb.len() {
                    return Ok(false);
                }
                for (a, b) in pa.iter().zip(pb) {
                    if !self.compatible(a.1, b.1, deeper)? {
                        return Ok(false);
                    }
                }
                self.compatible(*a, *b, deeper)?
            }
            (Some(a), Some(b)) => {
                let is_whole = matches!(a, Type::Struct(_) | Type::Union(_) | Type::Fwd { .. } | Type::Float { .. });
                (is_whole || is_enum(a)) && same_kind(Some(a), Some(b))
            }
            _ => false,
        })
    }

    /// Whether the kernel's type has all parts of the object's: members by name and type, enumerators by name.
    fn matches(&mut self, local: TypeId, kernel: TypeId, behind: bool, depth: u32) -> Result<bool, AdaptFault> {
        self.spend()?;
        let (a, b) = (self.local.get(self.local.resolve(local)?), self.kernel.get(self.kernel.resolve(kernel)?));
        let Some(deeper) = depth.checked_sub(1) else { return Ok(false) };
        let (Some(a), Some(b)) = (a, b) else { return Ok(a.is_none() && b.is_none()) };
        if let (Some(a), Some(b)) = (type_name(a), type_name(b))
            && !matches!(self.local.get(local), Some(Type::Int { .. }))
            && !self.same_name(a, b)?
        {
            return Ok(false);
        }
        Ok(match (a, b) {
            // Behind a pointer a forward declaration matches its definition.
            (Type::Fwd { .. }, Type::Struct(_) | Type::Union(_))
            | (Type::Struct(_) | Type::Union(_), Type::Fwd { .. }) => behind,
            (Type::Fwd { union: a, .. }, Type::Fwd { union: b, .. }) => a == b,
            (a, b) if is_enum(a) && is_enum(b) => behind || self.values_match(a, b)?,
            (Type::Struct(a), Type::Struct(b)) | (Type::Union(a), Type::Union(b)) => {
                if behind {
                    return Ok(true);
                }
                for member in &a.members {
                    if !self.has_member(b, member, deeper)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Type::Int { size_bytes: a, encoding: ea, .. }, Type::Int { size_bytes: b, encoding: eb, .. }) => {
                a == b && ea & 1 == eb & 1
            }
            (Type::Float { size_bytes: a, .. }, Type::Float { size_bytes: b, .. }) => a == b,
            (Type::Ptr(a), Type::Ptr(b)) => self.matches(*a, *b, true, deeper)?,
            (Type::Array { element: a, count: na, .. }, Type::Array { element: b, count: nb, .. }) => {
                na == nb && self.matches(*a, *b, behind, deeper)?
            }
            (Type::FuncProto { ret: a, params: pa }, Type::FuncProto { ret: b, params: pb }) => {
                if pa.len() != pb.len() {
                    return Ok(false);
                }
                for (a, b) in pa.iter().zip(pb) {
                    if !self.matches(a.1, b.1, behind, deeper)? {
                        return Ok(false);
                    }
                }
                self.matches(*a, *b, behind, deeper)?
            }
            _ => false,
        })
    }

    /// Whether the kernel's enumeration has all values of the object's.
    fn values_match(&mut self, local: &Type, kernel: &Type) -> Result<bool, AdaptFault> {
        for name in (0..local.enumerators().unwrap_or(0)).filter_map(|index| local.enumerator(index)) {
            let wanted = essential(self.local.name_bytes(name)?);
            if self.position(kernel, wanted)?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn has_member(&mut self, there: &'a Composite, wanted: &Member, depth: u32) -> Result<bool, AdaptFault> {
        let Some(deeper) = depth.checked_sub(1) else { return Ok(false) };
        let name = self.local.name_bytes(wanted.name)?;
        for member in &there.members {
            self.spend()?;
            let found = self.kernel.name_bytes(member.name)?;
            if found == name && self.matches(wanted.of, member.of, false, deeper)? {
                return Ok(true);
            }
            if found.is_empty()
                && let Some(within) = self.kernel.composite(self.kernel.resolve(member.of)?)
                && self.has_member(within, wanted, deeper)?
            {
                return Ok(true);
            }
        }
        // The members of an anonymous member in the object may be anywhere in the kernel's type.
        if name.is_empty()
            && let Some(within) = self.local.composite(self.local.resolve(wanted.of)?)
        {
            for member in &within.members {
                if !self.has_member(there, member, deeper)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        }
        Ok(false)
    }
}

fn is_enum(ty: &Type) -> bool {
    matches!(ty, Type::Enum { .. } | Type::Enum64 { .. })
}

fn is_forward(ty: &Type) -> bool {
    matches!(ty, Type::Fwd { .. })
}

/// Whether both are of one kind; enumerations of all sizes are.
fn same_kind(a: Option<&Type>, b: Option<&Type>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => is_enum(a) && is_enum(b) || std::mem::discriminant(a) == std::mem::discriminant(b),
        (None, None) => true,
        _ => false,
    }
}
