// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory layout of types without references, by which values are read and written.

use super::{Btf, BtfError, Composite, MAX_DEPTH, Name, Type, TypeId};

/// The most parts of a type: a small file can nest types to very many.
const MAX_PARTS: usize = 1 << 16;

/// The layout of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shape {
    /// The size in bytes.
    pub size_bytes: usize,
    /// The form.
    pub form: Form,
}

/// The form of a type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Form {
    /// A number.
    Number {
        /// Whether it is signed.
        signed: bool,
        /// Whether it is in network byte order: its type is `__be16`, `__be32`, `__be64` or `__sum16`.
        network: bool,
    },
    /// The members of a structure or union: name, which may be empty, and offset.
    Members(Vec<(String, usize, Shape)>),
    /// An array: the element, and the number of elements.
    Array(Box<Shape>, usize),
    /// Opaque bytes, such as pointers and bit fields.
    Opaque,
}

impl Shape {
    /// A number of this size if nothing else is known; opaque bytes for other sizes.
    pub fn of_size(size_bytes: usize) -> Shape {
        let form = match size_bytes {
            1 | 2 | 4 | 8 => Form::Number { signed: false, network: false },
            _ => Form::Opaque,
        };
        Shape { size_bytes, form }
    }

    /// The layout of a type.
    ///
    /// # Errors
    /// It has no size, is nested deeper than 64 levels or has more than 65536 parts, nested structures counted for each
    /// occurrence.
    pub fn of(btf: &Btf, id: TypeId) -> Result<Shape, BtfError> {
        let mut parts = 0;
        Shape::nested(btf, id, 0, &mut parts)
    }

    fn nested(btf: &Btf, id: TypeId, depth: usize, parts: &mut usize) -> Result<Shape, BtfError> {
        *parts += 1;
        if *parts > MAX_PARTS {
            return Err(BtfError::NoSize { id: id.0, why: "it has more than 65536 parts" });
        }
        if depth > MAX_DEPTH {
            return Err(BtfError::NoSize { id: id.0, why: "it is nested deeper than 64 levels" });
        }
        let size_bytes = btf.size_bytes(id)? as usize;
        let form = match btf.get(btf.resolve(id)?) {
            Some(Type::Int { encoding, .. }) => {
                Form::Number { signed: encoding & 1 != 0, network: is_network_order(btf, id)? }
            }
            Some(Type::Enum { signed, .. } | Type::Enum64 { signed, .. }) => {
                Form::Number { signed: *signed, network: false }
            }
            Some(Type::Array { element, count, .. }) => {
                Form::Array(Box::new(Shape::nested(btf, *element, depth + 1, parts)?), *count as usize)
            }
            Some(Type::Struct(composite) | Type::Union(composite)) => members(btf, composite, depth, parts)?,
            _ => Form::Opaque,
        };
        Ok(Shape { size_bytes, form })
    }
}

fn members(btf: &Btf, composite: &Composite, depth: usize, parts: &mut usize) -> Result<Form, BtfError> {
    let mut list = Vec::with_capacity(composite.members.len());
    for member in &composite.members {
        if member.width_bits != 0 || member.offset_bits % 8 != 0 {
            return Ok(Form::Opaque);
        }
        let shape = Shape::nested(btf, member.of, depth + 1, parts)?;
        let at = member.offset_bits as usize / 8;
        if at + shape.size_bytes > composite.size_bytes as usize {
            return Ok(Form::Opaque);
        }
        list.push((name(btf, member.name)?, at, shape));
    }
    Ok(Form::Members(list))
}

fn name(btf: &Btf, name: Name) -> Result<String, BtfError> {
    btf.name(name).map(str::to_owned)
}

/// Whether one of the typedefs of the type implies network byte order.
fn is_network_order(btf: &Btf, id: TypeId) -> Result<bool, BtfError> {
    let mut at = id;
    // As many steps as resolving takes at most; the type has been resolved before.
    for _ in 0..MAX_DEPTH {
        at = match btf.get(at) {
            Some(Type::Typedef { name, to }) => {
                if matches!(btf.name(*name)?, "__be16" | "__be32" | "__be64" | "__sum16") {
                    return Ok(true);
                }
                *to
            }
            Some(Type::Volatile(to) | Type::Const(to) | Type::Restrict(to) | Type::TypeTag { to, .. }) => *to,
            _ => return Ok(false),
        };
    }
    Ok(false)
}

#[cfg(test)]
#[allow(clippy::panic)]
mod tests {
    use super::super::{Builder, Member};
    use super::*;

    fn number(signed: bool, network: bool, size_bytes: usize) -> Shape {
        Shape { size_bytes, form: Form::Number { signed, network } }
    }

    fn text(b: &mut Builder, text: &str) -> Name {
        b.string(text).unwrap_or_else(|e| panic!("{e}"))
    }

    fn int(b: &mut Builder, name: &str, size_bytes: u32, encoding: u8) -> TypeId {
        let name = text(b, name);
        b.add(Type::Int { name, size_bytes, encoding, offset_bits: 0, bits: 8 * size_bytes as u8 })
    }

    fn structure(b: &mut Builder, size_bytes: u32, members: &[(&str, TypeId, u32)]) -> TypeId {
        let member = |b: &mut Builder, (name, of, at): &(&str, TypeId, u32)| Member {
            name: text(b, name),
            of: *of,
            offset_bits: 8 * at,
            width_bits: 0,
        };
        let members = members.iter().map(|one| member(b, one)).collect();
        let name = text(b, "");
        b.add(Type::Struct(Composite { name, size_bytes, bitfields: false, members }))
    }

    #[test]
    fn numbers_keep_their_order_and_members_their_places() {
        let mut b = Builder::default();
        let short = int(&mut b, "unsigned short", 2, 0);
        let signed = int(&mut b, "int", 4, 1);
        let name = text(&mut b, "__be16");
        let port = b.add(Type::Typedef { name, to: short });
        let ports = b.add(Type::Array { element: port, index: signed, count: 2 });
        let key = structure(&mut b, 8, &[("ports", ports, 0), ("delta", signed, 4)]);
        let shape = Shape::of(&b.finish(), key).unwrap_or_else(|e| panic!("{e}"));
        let array = Shape { size_bytes: 4, form: Form::Array(Box::new(number(false, true, 2)), 2) };
        let list = vec![("ports".to_owned(), 0, array), ("delta".to_owned(), 4, number(true, false, 4))];
        assert_eq!(shape, Shape { size_bytes: 8, form: Form::Members(list) });
    }

    #[test]
    fn types_that_unfold_without_end_are_refused() {
        let mut b = Builder::default();
        let mut inner = int(&mut b, "char", 1, 0);
        for level in 0..40 {
            // Each contains the one before twice; the size is wrong, which other checks find.
            inner = structure(&mut b, 2 << level.min(20), &[("a", inner, 0), ("b", inner, 1)]);
        }
        let error = Shape::of(&b.finish(), inner).expect_err("2^40 parts");
        assert!(error.to_string().contains("65536 parts"), "{error}");

        let mut b = Builder::default();
        let mut inner = int(&mut b, "char", 1, 0);
        for _ in 0..50_000 {
            inner = structure(&mut b, 1, &[("a", inner, 0)]);
        }
        let error = Shape::of(&b.finish(), inner).expect_err("50000 levels");
        assert!(error.to_string().contains("64 levels"), "{error}");
    }
}
