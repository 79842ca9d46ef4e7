// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The access of a CO-RE relocation, in the object's own types.

use super::names::{essential, type_name};
use flowloom_isa::btf::{Btf, BtfError, CoreRecord, Type, TypeId};

/// The longest access; the kernel's libraries accept 64.
const MAX_STEPS: usize = 64;

/// The greatest offset of a part from the start of the access: the range of type sizes.
const MAX_OFFSET_BITS: u64 = 8 << 32;

/// An offset plus a number of bits, if it stays in range. Adding the bits of a type to the result does not overflow.
pub(super) fn further(offset_bits: u64, bits: u64) -> Option<u64> {
    offset_bits.checked_add(bits).filter(|sum| *sum <= MAX_OFFSET_BITS)
}

/// An offset plus a number of elements, if it stays in range.
pub(super) fn elements_further(offset_bits: u64, number: u32, size_bytes: u32) -> Option<u64> {
    // The product of two 32-bit numbers fits into 64 bits, eight times that may not.
    further(offset_bits, (u64::from(number) * u64::from(size_bytes)).checked_mul(8)?)
}

/// The kinds of CO-RE relocations [Linux uapi/bpf.h, `enum bpf_core_relo_kind`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    FieldOffset,
    FieldSize,
    FieldExists,
    FieldSigned,
    FieldLeftShift,
    FieldRightShift,
    TypeIdLocal,
    TypeIdTarget,
    TypeExists,
    TypeSize,
    ValueExists,
    Value,
    TypeMatches,
}

impl Kind {
    const ALL: [Kind; 13] = [
        Kind::FieldOffset,
        Kind::FieldSize,
        Kind::FieldExists,
        Kind::FieldSigned,
        Kind::FieldLeftShift,
        Kind::FieldRightShift,
        Kind::TypeIdLocal,
        Kind::TypeIdTarget,
        Kind::TypeExists,
        Kind::TypeSize,
        Kind::ValueExists,
        Kind::Value,
        Kind::TypeMatches,
    ];

    fn from_number(number: u32) -> Option<Kind> {
        Kind::ALL.get(number as usize).copied()
    }

    /// Whether absence is a valid result: for existence checks, and for the size and id of a whole type, which are 0
    /// then.
    pub(super) fn may_be_absent(self) -> bool {
        use Kind::{FieldExists, TypeExists, TypeIdTarget, TypeMatches, TypeSize, ValueExists};
        matches!(self, FieldExists | TypeExists | ValueExists | TypeMatches | TypeSize | TypeIdTarget)
    }

    pub(super) fn is_of_type(self) -> bool {
        use Kind::{TypeExists, TypeIdLocal, TypeIdTarget, TypeMatches, TypeSize};
        matches!(self, TypeIdLocal | TypeIdTarget | TypeExists | TypeSize | TypeMatches)
    }

    pub(super) fn is_of_value(self) -> bool {
        matches!(self, Kind::Value | Kind::ValueExists)
    }

    fn words(self) -> &'static str {
        match self {
            Kind::FieldOffset => "offset of",
            Kind::FieldSize => "size of",
            Kind::FieldExists | Kind::TypeExists | Kind::ValueExists => "existence of",
            Kind::FieldSigned => "sign of",
            Kind::FieldLeftShift | Kind::FieldRightShift => "place of the bits of",
            Kind::TypeIdLocal | Kind::TypeIdTarget => "number of type",
            Kind::TypeSize => "size of type",
            Kind::Value => "value of",
            Kind::TypeMatches => "shape of type",
        }
    }
}

/// A step from a type to a part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// An array element; of the whole object for the first step.
    Element(u32),
    /// A member of the structure or union, by index.
    Member { of: TypeId, index: usize },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) kind: Kind,
    pub(super) root: TypeId,
    /// Steps through named members and arrays; the first is that of the whole object.
    pub(super) steps: Vec<Step>,
    /// The type of the accessed part.
    pub(super) leaf: TypeId,
    pub(super) offset_bits: u64,
    /// For an enumerator: its index.
    pub(super) value: usize,
}

/// Why an access cannot be resolved.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AccessFault {
    #[error("adaptation of unknown kind {0}")]
    Kind(u32),
    #[error("adaptation with access `{text}` to type {of}: {why}")]
    Path { text: String, of: u32, why: &'static str },
    #[error(transparent)]
    Btf(#[from] BtfError),
}

impl Access {
    /// Resolves the access of a record.
    pub(super) fn read(btf: &Btf, record: CoreRecord) -> Result<Access, AccessFault> {
        let kind = Kind::from_number(record.kind).ok_or(AccessFault::Kind(record.kind))?;
        let text = btf.name(record.access)?;
        let fail = |why| AccessFault::Path { text: text.chars().take(80).collect(), of: record.of.0, why };
        let mut numbers = Vec::new();
        for part in text.split(':') {
            if numbers.len() >= MAX_STEPS {
                return Err(fail("it has more than 64 steps"));
            }
            numbers.push(part.parse::<u32>().map_err(|_| fail("expected numbers between colons"))?);
        }
        let (&first, rest) = numbers.split_first().ok_or_else(|| fail("it is empty"))?;
        let mut out = Access {
            kind,
            root: record.of,
            steps: vec![Step::Element(first)],
            leaf: record.of,
            offset_bits: 0,
            value: 0,
        };
        if kind.is_of_type() {
            return if first == 0 && rest.is_empty() { Ok(out) } else { Err(fail("expected `0` for a type")) };
        }
        let resolved = btf.resolve(record.of)?;
        if kind.is_of_value() {
            let count = btf.get(resolved).and_then(Type::enumerators);
            let count = count.ok_or_else(|| fail("the type is no enumeration"))?;
            out.value = first as usize;
            return if out.value < count && rest.is_empty() { Ok(out) } else { Err(fail("there is no such value")) };
        }
        out.leaf = resolved;
        out.offset_bits =
            elements_further(0, first, btf.size_bytes(resolved)?).ok_or_else(|| fail("it leads beyond 4 GiB"))?;
        for &number in rest {
            out.step(btf, number, &fail)?;
        }
        Ok(out)
    }

    fn step(&mut self, btf: &Btf, number: u32, fail: &dyn Fn(&'static str) -> AccessFault) -> Result<(), AccessFault> {
        let at = btf.resolve(self.leaf)?;
        let beyond = || fail("it leads beyond 4 GiB");
        match btf.get(at) {
            Some(Type::Struct(composite) | Type::Union(composite)) => {
                let index = number as usize;
                let member = composite.members.get(index).ok_or_else(|| fail("there is no such member"))?;
                self.offset_bits = further(self.offset_bits, member.offset_bits.into()).ok_or_else(beyond)?;
                if !btf.name_bytes(member.name)?.is_empty() {
                    self.steps.push(Step::Member { of: at, index });
                }
                self.leaf = member.of;
            }
            Some(Type::Array { element, .. }) => {
                let size_bytes = btf.size_bytes(*element)?;
                self.offset_bits = elements_further(self.offset_bits, number, size_bytes).ok_or_else(beyond)?;
                self.steps.push(Step::Element(number));
                self.leaf = *element;
            }
            _ => return Err(fail("it goes into something that has no parts")),
        }
        Ok(())
    }

    /// The name of the root type, without flavour.
    pub(super) fn name<'b>(&self, btf: &'b Btf) -> Result<&'b [u8], BtfError> {
        let name = btf.get(self.root).and_then(type_name);
        Ok(name.map(|name| btf.name_bytes(name)).transpose()?.map_or(&[][..], essential))
    }

    /// The name of the enumerator, without flavour.
    pub(super) fn value_name<'b>(&self, btf: &'b Btf) -> Result<&'b [u8], BtfError> {
        let name = btf.get(btf.resolve(self.root)?).and_then(|of| of.enumerator(self.value));
        Ok(name.map(|name| btf.name_bytes(name)).transpose()?.map_or(&[][..], essential))
    }

    /// A description for messages: ``offset of `xdp_md.data` ``.
    pub(super) fn describe(&self, btf: &Btf) -> String {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let mut path = text(self.name(btf).unwrap_or_default());
        if self.kind.is_of_value() {
            path = format!("{path}::{}", text(self.value_name(btf).unwrap_or_default()));
        }
        for step in &self.steps[1..] {
            match step {
                Step::Element(number) => path.push_str(&format!("[{number}]")),
                Step::Member { of, index } => {
                    let member = btf.composite(*of).and_then(|of| of.members.get(*index));
                    let name = member.and_then(|member| btf.name_bytes(member.name).ok());
                    path.push_str(&format!(".{}", text(name.unwrap_or_default())));
                }
            }
        }
        format!("{} `{path}`", self.kind.words())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use flowloom_isa::btf::{Builder, Composite, Member};

    /// Types whose parts have offsets up to the limit of 32 bits: no access overflows, and those out of range are
    /// refused.
    #[test]
    fn accesses_beyond_all_bounds_are_refused() {
        let mut b = Builder::default();
        let (far, x) = (b.string("far").unwrap(), b.string("x").unwrap());
        let int = b.add(Type::Int { name: x, size_bytes: 1, encoding: 0, offset_bits: 0, bits: 8 });
        let vast = b.add(Type::Array { element: int, index: int, count: u32::MAX });
        let member = |of, offset_bits, width_bits| Member { name: x, of, offset_bits, width_bits };
        let members = vec![member(vast, 0, 0), member(int, u32::MAX, 0), member(int, u32::MAX, 255)];
        let composite = Composite { name: far, size_bytes: u32::MAX, bitfields: true, members };
        let of = b.add(Type::Struct(composite));
        // A structure in itself: each step adds to the offset.
        let members = vec![member(TypeId(of.0 + 1), u32::MAX, 0)];
        let again = b.add(Type::Struct(Composite { name: far, size_bytes: 1, bitfields: false, members }));
        let deep = ["0"; 20].join(":");
        let texts = ["0", "0:0", "0:1", "0:2", "1", "4294967295", "4294967295:1", "1:0:4294967295", "0:0:4294967295"];
        let texts: Vec<_> = texts.into_iter().map(|text| (of, text)).chain([(again, "0:0"), (again, &deep)]).collect();
        let names: Vec<_> = texts.iter().map(|(_, text)| b.string(text).unwrap()).collect();
        let btf = b.finish();
        let mut refused = Vec::new();
        for ((of, text), access) in texts.iter().zip(names) {
            for kind in 0..6 {
                let record = CoreRecord { offset_bytes: 0, of: *of, access, kind };
                let found = Access::read(&btf, record).map(|access| super::super::replacement::number(&btf, &access));
                match found {
                    Ok(replacement) => assert!(replacement.is_ok(), "{text}: {replacement:?}"),
                    Err(AccessFault::Path { why, .. }) => {
                        assert_eq!(why, "it leads beyond 4 GiB");
                        refused.push(*text);
                    }
                    Err(other) => unreachable!("{text}: {other}"),
                }
            }
        }
        refused.dedup();
        assert_eq!(refused, ["4294967295", "4294967295:1", "1:0:4294967295", &deep]);
    }
}
