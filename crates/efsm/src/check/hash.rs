// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `hash(a, b, ...)`: lowering of its arguments to 32-bit words.

use crate::diagnostic::Code;
use crate::model::{Expr, Span, Wide, Width};
use crate::syntax::ast::Expr as Tree;

use super::Checker;
use super::constant::Constant;
use super::numeric::ExprTraits;
use super::operand::{Leaf, Operand, OperandKind};

impl<'s> Checker<'s, '_> {
    pub(super) fn hash_call(&mut self, arguments: &[Tree<'s>], span: Span) -> Option<OperandKind> {
        if arguments.is_empty() {
            self.sink
                .error(Code::WrongKind, span, "`hash` takes at least one argument, found none", "called here")
                .help("write `hash(ip.src, ip.dst)`");
            return None;
        }
        let parts: Vec<Option<Operand>> = arguments.iter().map(|tree| self.operand(tree)).collect();
        Some(OperandKind::Hash(parts.into_iter().collect::<Option<_>>()?))
    }

    /// Words of the arguments in order, each argument's most significant word first.
    pub(super) fn hash_words(&mut self, parts: &[Operand]) -> Option<Expr> {
        let mut words = Vec::new();
        for part in parts {
            self.words_of(part, &mut words)?;
        }
        Some(Expr::Hash(words))
    }

    fn words_of(&mut self, part: &Operand, words: &mut Vec<Expr>) -> Option<()> {
        let of = |of: Wide, count: u8, words: &mut Vec<Expr>| {
            words.extend((0..count).rev().map(|index| Expr::Word { of, index }));
        };
        let constant = |value: u128, count: u32, words: &mut Vec<Expr>| {
            words.extend((0..count).rev().map(|index| Expr::Constant(u64::from((value >> (32 * index)) as u32))));
        };
        match part.kind {
            OperandKind::Wide(wide) => of(wide, 4, words),
            OperandKind::Constant(Constant::Ipv6(address)) => constant(address, 4, words),
            OperandKind::Constant(Constant::Mac(address)) => constant(address.into(), 2, words),
            OperandKind::Constant(Constant::Ipv4(address)) => constant(address.into(), 1, words),
            OperandKind::Constant(Constant::Number(n)) => {
                let fits = n >= i128::from(i32::MIN) && n <= i128::from(u32::MAX);
                constant(n as u128, if fits { 1 } else { 2 }, words);
            }
            OperandKind::Leaf(leaf) if leaf != Leaf::Now && self.leaf(leaf).width_bits > 32 => {
                let wide = match leaf {
                    Leaf::Field(field) => Wide::Field(field),
                    Leaf::Register(i) => Wide::Register(i),
                    Leaf::Global(i) => Wide::Global(i),
                    Leaf::Metadata(i) => Wide::Metadata(i),
                    Leaf::Old(destination) => Wide::Old(destination),
                    Leaf::Now | Leaf::State => return None,
                };
                of(wide, 2, words);
            }
            _ => {
                let mut facts = ExprTraits::default();
                self.gather(part, &mut facts)?;
                let mode = self.arithmetic(&facts, 0, false)?;
                if mode.width == Width::W64 || matches!(part.kind, OperandKind::Constant(_)) {
                    self.sink
                        .error(
                            Code::WidthMismatch,
                            part.span,
                            "`hash` takes fields, variables, addresses, numbers, and expressions of 32 bits",
                            "64 bits, or a time",
                        )
                        .help("write it to a metadata field in an element before, and hash that");
                    return None;
                }
                words.push(self.build(part, mode)?);
            }
        }
        Some(())
    }
}
