// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The recursive-descent parser of one line.

use super::AsmError;
use super::lex::Token;
use crate::helpers;
use crate::op::{AluOp, AtomicOp, Cond, EndOp, Op, Operand, Reg, Size, Width};
use crate::program::MapDef;

#[derive(Debug, Clone)]
pub(super) enum Target {
    Distance(i64),
    Label(String),
}

/// An instruction whose distance may still be unresolved.
#[derive(Debug, Clone)]
pub(super) struct Parsed {
    pub(super) op: Op,
    /// The column and the target of a jump, local call or function address.
    pub(super) target: Option<(usize, Target)>,
}

impl From<Op> for Parsed {
    fn from(op: Op) -> Parsed {
        Parsed { op, target: None }
    }
}

/// Sets the distance of a jump, or returns the valid range.
pub(super) fn set_distance(op: Op, to: i64) -> Result<Op, &'static str> {
    let short = || i16::try_from(to).map_err(|_| "a distance of -32768 to 32767 slots (`gotol` goes further)");
    let long = || i32::try_from(to).map_err(|_| "a distance of 32 bits");
    Ok(match op {
        Op::Jump { .. } => Op::Jump { off: short()? },
        Op::MayGoto { .. } => Op::MayGoto { off: short()? },
        Op::Branch { width, cond, dst, src, .. } => Op::Branch { width, cond, dst, src, off: short()? },
        Op::JumpLong { .. } => Op::JumpLong { distance: long()? },
        Op::CallLocal { .. } => Op::CallLocal { distance: long()? },
        Op::LoadFunc { dst, .. } => Op::LoadFunc { dst, distance: long()? },
        other => other,
    })
}

/// The kinds of targets that an instruction accepts.
pub(super) fn unknown_target(op: Op) -> &'static str {
    match op {
        Op::CallLocal { .. } => "a helper's name or number, or a label of this text",
        _ => "a label of this text, or a distance such as `+3`",
    }
}

/// The tokens of a line and the position of the parser.
pub(super) struct Line<'a> {
    line: usize,
    width: usize,
    tokens: &'a [(usize, Token)],
    maps: &'a [MapDef],
    at: usize,
}

/// What may follow `=` after a register.
const VALUE: &str = "a register, a number, `map[...] ll`, a memory access or an operation such as `be16`";

type Result<T, E = AsmError> = std::result::Result<T, E>;

impl<'a> Line<'a> {
    pub(super) fn new(line: usize, width: usize, tokens: &'a [(usize, Token)], maps: &'a [MapDef]) -> Line<'a> {
        Line { line, width, tokens, maps, at: 0 }
    }

    /// Parses the whole line as one instruction.
    pub(super) fn parse(mut self) -> Result<Parsed> {
        let parsed = self.instruction()?;
        match self.peek() {
            None => Ok(parsed),
            Some(_) => self.fail("the end of the line"),
        }
    }

    fn peek(&self) -> Option<&'a Token> {
        self.tokens.get(self.at).map(|t| &t.1)
    }

    fn column(&self) -> usize {
        self.tokens.get(self.at).map_or(self.width + 1, |t| t.0)
    }

    fn fail<T>(&self, expected: impl Into<String>) -> Result<T> {
        let found = self.peek().map_or_else(|| "the end of the line".to_owned(), Token::to_string);
        Err(AsmError { line: self.line, column: self.column(), found, expected: expected.into() })
    }

    fn eat(&mut self, sign: &str) -> bool {
        let yes = matches!(self.peek(), Some(Token::Sign(s)) if *s == sign);
        self.at += usize::from(yes);
        yes
    }

    fn eat_word(&mut self, word: &str) -> bool {
        let yes = matches!(self.peek(), Some(Token::Word(w)) if w == word);
        self.at += usize::from(yes);
        yes
    }

    fn sign(&mut self, sign: &str) -> Result<()> {
        if self.eat(sign) { Ok(()) } else { self.fail(format!("`{sign}`")) }
    }

    fn word(&mut self, word: &str) -> Result<()> {
        if self.eat_word(word) { Ok(()) } else { self.fail(format!("`{word}`")) }
    }

    /// The register at the current position, if any; consumes nothing.
    fn peek_reg(&self) -> Option<(Width, Reg)> {
        let Some(Token::Word(word)) = self.peek() else { return None };
        let (width, digits) = match word.split_at_checked(1)? {
            ("r", digits) => (Width::W64, digits),
            ("w", digits) => (Width::W32, digits),
            _ => return None,
        };
        let plain = digits.len() == 1 || digits == "10";
        let number = digits.parse().ok().filter(|_| plain && digits.bytes().all(|b| b.is_ascii_digit()))?;
        Some((width, Reg::new(number)?))
    }

    fn any_reg(&mut self) -> Result<(Width, Reg)> {
        match self.peek_reg() {
            Some(found) => {
                self.at += 1;
                Ok(found)
            }
            None => self.fail("a register, `r0` to `r10` or `w0` to `w10`"),
        }
    }

    fn reg(&mut self, width: Width) -> Result<Reg> {
        match self.peek_reg() {
            Some((found, reg)) if found == width => {
                self.at += 1;
                Ok(reg)
            }
            _ if width == Width::W64 => self.fail("a 64-bit register, `r0` to `r10`"),
            _ => self.fail("a 32-bit register, `w0` to `w10`"),
        }
    }

    fn this_reg(&mut self, width: Width, reg: Reg) -> Result<()> {
        if self.peek_reg() == Some((width, reg)) {
            self.at += 1;
            return Ok(());
        }
        let letter = if width == Width::W64 { 'r' } else { 'w' };
        self.fail(format!("`{letter}{}`, the same register again", reg.number()))
    }

    /// A number without its sign that is in `low..=high` with it.
    fn number_in(&mut self, negative: bool, low: i64, high: i64, what: &str) -> Result<i64> {
        if let Some(Token::Number(n, _)) = self.peek() {
            let value = if negative { -i128::from(*n) } else { i128::from(*n) };
            if (i128::from(low)..=i128::from(high)).contains(&value) {
                self.at += 1;
                return Ok(value as i64);
            }
        }
        self.fail(format!("{what}, {low} to {high}"))
    }

    fn signed(&mut self, low: i64, high: i64, what: &str) -> Result<i64> {
        let negative = self.eat("-");
        if !negative {
            self.eat("+");
        }
        self.number_in(negative, low, high, what)
    }

    fn signed_32(&mut self, what: &str) -> Result<i32> {
        Ok(self.signed(i32::MIN.into(), i32::MAX.into(), what)? as i32)
    }

    /// A 32-bit immediate; in 32-bit operations, hexadecimal may be its bit pattern.
    fn imm(&mut self, is_64_bit: bool) -> Result<i32> {
        if let Some(Token::Number(n, true)) = self.peek()
            && let (false, Ok(pattern)) = (is_64_bit, u32::try_from(*n))
        {
            self.at += 1;
            return Ok(pattern as i32);
        }
        self.signed_32("a 32-bit number")
    }

    fn operand(&mut self, width: Width) -> Result<Operand> {
        if matches!(self.peek(), Some(Token::Word(_))) {
            return Ok(Operand::Reg(self.reg(width)?));
        }
        if !matches!(self.peek(), Some(Token::Number(..) | Token::Sign("-" | "+"))) {
            return self.fail("a register or a number");
        }
        Ok(Operand::Imm(self.imm(width == Width::W64)?))
    }

    fn target(&mut self) -> Result<(usize, Target)> {
        let column = self.column();
        let negative = match self.peek() {
            Some(Token::Word(label)) => {
                self.at += 1;
                return Ok((column, Target::Label(label.clone())));
            }
            Some(Token::Sign("+")) => false,
            Some(Token::Sign("-")) => true,
            _ => return self.fail("a label, or a distance such as `+3`"),
        };
        self.at += 1;
        let distance = self.number_in(negative, i32::MIN.into(), i32::MAX.into(), "a distance in slots")?;
        Ok((column, Target::Distance(distance)))
    }

    fn instruction(&mut self) -> Result<Parsed> {
        if self.peek_reg().is_some() {
            return self.assignment();
        }
        let Some(Token::Word(word)) = self.peek() else {
            return if self.eat("*") { self.store().map(Parsed::from) } else { self.fail("an instruction") };
        };
        let start = self.at;
        self.at += 1;
        match word.as_str() {
            "exit" => Ok(Op::Exit.into()),
            "goto" => Ok(Parsed { op: Op::Jump { off: 0 }, target: Some(self.target()?) }),
            "may_goto" => Ok(Parsed { op: Op::MayGoto { off: 0 }, target: Some(self.target()?) }),
            "gotol" => Ok(Parsed { op: Op::JumpLong { distance: 0 }, target: Some(self.target()?) }),
            "if" => self.branch(),
            "call" => self.call(),
            "lock" => self.lock().map(Parsed::from),
            _ => {
                self.at = start;
                self.fail("an instruction: an assignment, `if`, `goto`, `gotol`, `may_goto`, `call`, `lock` or `exit`")
            }
        }
    }

    fn branch(&mut self) -> Result<Parsed> {
        let (width, dst) = self.any_reg()?;
        let cond = match self.peek() {
            Some(Token::Sign(sign)) => Cond::ALL.into_iter().find(|c| c.symbol() == *sign),
            _ => None,
        };
        let Some(cond) = cond else {
            return self.fail("a comparison: `==`, `!=`, `>`, `>=`, `<`, `<=`, `s>`, `s>=`, `s<`, `s<=` or `&`");
        };
        self.at += 1;
        let src = self.operand(width)?;
        self.word("goto")?;
        Ok(Parsed { op: Op::Branch { width, cond, dst, src, off: 0 }, target: Some(self.target()?) })
    }

    fn call(&mut self) -> Result<Parsed> {
        const WHAT: &str = "a helper's name or number, a label, `pc+3` or `kfunc#1`";
        let column = self.column();
        let local = |target| Parsed { op: Op::CallLocal { distance: 0 }, target: Some((column, target)) };
        let name = match self.peek() {
            Some(Token::Number(..) | Token::Sign("-")) => {
                let helper = self.signed_32("a helper's number")?;
                return Ok(Op::Call { helper }.into());
            }
            Some(Token::Word(name)) => name.clone(),
            _ => return self.fail(WHAT),
        };
        self.at += 1;
        if name == "pc" && matches!(self.peek(), Some(Token::Sign("+" | "-"))) {
            let (_, target) = self.target()?;
            return Ok(local(target));
        }
        if name == "kfunc" && self.eat("#") {
            let id = self.signed_32("a BTF number")?;
            return Ok(Op::CallKfunc { id }.into());
        }
        let number = helpers::number_of(&name);
        if self.eat("#") {
            // As printed by bpftool: the number has to match the name.
            let helper = self.signed_32("a helper's number")?;
            if number != Some(helper) {
                self.at -= 1;
                let expected = number.map_or_else(|| "a number without a name".to_owned(), |n| format!("`{n}`"));
                return self.fail(expected);
            }
        }
        Ok(match number {
            Some(helper) => Op::Call { helper }.into(),
            None => local(Target::Label(name)),
        })
    }

    /// `(u32 *)` after the star that begins a memory access.
    fn access_type(&mut self) -> Result<(bool, Size)> {
        self.sign("(")?;
        let word = match self.peek() {
            Some(Token::Word(word)) => word.as_str(),
            _ => "",
        };
        let signed = word.starts_with('s');
        let size = word.strip_prefix(if signed { 's' } else { 'u' }).and_then(size_of);
        let Some(size) = size.filter(|size| !signed || *size != Size::Dw) else {
            return self.fail("the type of an access: `u8`, `u16`, `u32`, `u64`, `s8`, `s16` or `s32`");
        };
        self.at += 1;
        self.sign("*")?;
        self.sign(")")?;
        Ok((signed, size))
    }

    /// `r2 + 4`.
    fn place(&mut self) -> Result<(Reg, i16)> {
        let base = self.reg(Width::W64)?;
        let negative = self.eat("-");
        if !negative && !self.eat("+") {
            return if matches!(self.peek(), Some(Token::Sign(")" | ","))) { Ok((base, 0)) } else { self.fail("`+`") };
        }
        Ok((base, self.number_in(negative, i16::MIN.into(), i16::MAX.into(), "an offset in bytes")? as i16))
    }

    fn parenthesised_place(&mut self) -> Result<(Reg, i16)> {
        self.sign("(")?;
        let place = self.place()?;
        self.sign(")")?;
        Ok(place)
    }

    fn unsigned_type(&mut self) -> Result<Size> {
        let at = self.at + 1;
        let (signed, size) = self.access_type()?;
        if signed {
            self.at = at;
            return self.fail("an unsigned type: stores do not extend");
        }
        Ok(size)
    }

    /// A type of 4 or 8 bytes, after its star or parenthesis.
    fn atomic_type(&mut self) -> Result<Size> {
        let at = self.at + 1;
        let size = self.unsigned_type()?;
        if !matches!(size, Size::W | Size::Dw) {
            self.at = at;
            return self.fail("`u32` or `u64`: atomic operations take 4 or 8 bytes");
        }
        Ok(size)
    }

    fn store(&mut self) -> Result<Op> {
        let size = self.unsigned_type()?;
        let (base, off) = self.parenthesised_place()?;
        self.sign("=")?;
        // A store of the low part accepts either name of the register.
        let src = match self.peek_reg() {
            Some((Width::W32, src)) if size != Size::Dw => {
                self.at += 1;
                Operand::Reg(src)
            }
            Some(_) => Operand::Reg(self.reg(Width::W64)?),
            None if matches!(self.peek(), Some(Token::Word(_))) => return self.fail("a register or a number"),
            None => Operand::Imm(self.imm(size == Size::Dw)?),
        };
        Ok(Op::Store { size, base, off, src })
    }

    fn lock(&mut self) -> Result<Op> {
        self.sign("*")?;
        let size = self.atomic_type()?;
        let (base, off) = self.parenthesised_place()?;
        let of_sign = |op: &AtomicOp| match (op.notation(), self.peek()) {
            (Some((_, symbol, false)), Some(Token::Sign(sign))) => symbol == *sign,
            _ => false,
        };
        let Some(op) = AtomicOp::ALL.into_iter().find(of_sign) else {
            return self.fail("`+=`, `|=`, `&=` or `^=`");
        };
        self.at += 1;
        let src = self.reg(width_of(size))?;
        Ok(Op::Atomic { op, size, base, off, src })
    }

    fn assignment(&mut self) -> Result<Parsed> {
        let (width, dst) = self.any_reg()?;
        let op = match self.peek() {
            Some(Token::Sign(sign)) => AluOp::ALL.into_iter().find(|op| op.symbol() == *sign),
            _ => None,
        };
        let Some(op) = op else { return self.fail("`=`, or an operator such as `+=`") };
        self.at += 1;
        if op != AluOp::Mov {
            return Ok(Op::Alu { width, op, dst, src: self.operand(width)? }.into());
        }
        self.value(width, dst)
    }

    /// What follows `=` after a register.
    fn value(&mut self, width: Width, dst: Reg) -> Result<Parsed> {
        let start = self.at;
        match self.peek() {
            Some(Token::Sign("-")) => {
                self.at += 1;
                if matches!(self.peek(), Some(Token::Word(_))) {
                    self.this_reg(width, dst)?;
                    return Ok(Op::Neg { width, dst }.into());
                }
                self.at = start;
                self.constant(width, dst)
            }
            Some(Token::Number(..) | Token::Sign("+")) => self.constant(width, dst),
            Some(Token::Sign("(")) => {
                self.at += 1;
                let from = match self.peek() {
                    Some(Token::Word(w)) if w == "s8" => Size::B,
                    Some(Token::Word(w)) if w == "s16" => Size::H,
                    Some(Token::Word(w)) if w == "s32" && width == Width::W64 => Size::W,
                    _ if width == Width::W64 => return self.fail("`s8`, `s16` or `s32`"),
                    _ => return self.fail("`s8` or `s16`"),
                };
                self.at += 1;
                self.sign(")")?;
                Ok(Op::MovSx { width, from, dst, src: self.reg(width)? }.into())
            }
            Some(Token::Sign("*")) => {
                self.at += 1;
                self.load(width, dst).map(Parsed::from)
            }
            Some(Token::Word(word)) if self.peek_reg().is_none() => {
                let word = word.clone();
                self.at += 1;
                self.special(width, dst, &word, start)
            }
            Some(Token::Word(_)) => Ok(Op::Alu { width, op: AluOp::Mov, dst, src: self.operand(width)? }.into()),
            _ => self.fail(VALUE),
        }
    }

    fn constant(&mut self, width: Width, dst: Reg) -> Result<Parsed> {
        let is_wide = matches!(self.tokens.last(), Some((_, Token::Word(w))) if w == "ll");
        if !is_wide {
            let is_64_bit = width == Width::W64;
            return Ok(Op::Alu { width, op: AluOp::Mov, dst, src: Operand::Imm(self.imm(is_64_bit)?) }.into());
        }
        let negative = self.eat("-");
        if !negative {
            self.eat("+");
        }
        let Some(Token::Number(n, _)) = self.peek() else { return self.fail("a 64-bit number") };
        if negative && *n > 1 << 63 {
            return self.fail("a 64-bit number");
        }
        let value = if negative { n.wrapping_neg() } else { *n };
        self.at += 1;
        self.wide_end(width, Op::LoadImm { dst, value })
    }

    /// `ll`, the end of instructions of two slots.
    fn wide_end(&mut self, width: Width, op: Op) -> Result<Parsed> {
        self.word("ll")?;
        if width == Width::W32 {
            self.at = 0;
            return self.fail("a 64-bit register before `= ... ll`");
        }
        Ok(op.into())
    }

    fn load(&mut self, width: Width, dst: Reg) -> Result<Op> {
        let at = self.at + 1;
        let (signed, size) = self.access_type()?;
        if width == Width::W32 && (signed || size == Size::Dw) {
            self.at = at;
            return self.fail("`u8`, `u16` or `u32` for a 32-bit register");
        }
        if !self.eat_word("skb") {
            let (base, off) = self.parenthesised_place()?;
            return Ok(Op::Load { size, signed, dst, base, off });
        }
        if signed || size == Size::Dw || dst != Reg::R0 {
            self.at = 0;
            return self.fail("`r0 = *(u8 *)skb[...]`, with `u8`, `u16` or `u32`");
        }
        self.sign("[")?;
        let index = if self.peek_reg().is_some() { Some(self.reg(Width::W64)?) } else { None };
        let off = if index.is_some() && matches!(self.peek(), Some(Token::Sign("]"))) { 0 } else { self.imm(true)? };
        self.sign("]")?;
        Ok(Op::LoadPacket { size, index, off })
    }

    fn map_index(&mut self) -> Result<i32> {
        let Some(Token::Word(name)) = self.peek() else {
            return self.signed_32("a map's name or index");
        };
        let Some(index) = self.maps.iter().position(|m| m.name == *name) else {
            let names: Vec<_> = self.maps.iter().map(|m| format!("`{}`", m.name)).collect();
            let known = if names.is_empty() { "there are no maps".to_owned() } else { names.join(", ") };
            return self.fail(format!("the name of a map ({known})"));
        };
        self.at += 1;
        Ok(index as i32)
    }

    /// `[0]+8` after a map, if it is there.
    fn inside_map(&mut self) -> Result<Option<u32>> {
        if !self.eat("[") {
            return Ok(None);
        }
        self.number_in(false, 0, 0, "the index of the only value")?;
        self.sign("]")?;
        self.sign("+")?;
        Ok(Some(self.number_in(false, 0, u32::MAX.into(), "an offset in bytes")? as u32))
    }

    /// Values that begin with a word: wide loads, byte order, fetching atomics.
    fn special(&mut self, width: Width, dst: Reg, word: &str, start: usize) -> Result<Parsed> {
        let size_after = |op: EndOp| word.strip_prefix(op.name()).and_then(size_of).filter(|size| *size != Size::B);
        if let Some((op, size)) = EndOp::ALL.into_iter().find_map(|op| Some((op, size_after(op)?))) {
            self.this_reg(Width::W64, dst)?;
            if width == Width::W32 {
                self.at = 0;
                return self.fail("a 64-bit register: byte order operations write all of it");
            }
            return Ok(Op::End { op, size, dst }.into());
        }
        match word {
            "map" | "map_idx" => {
                self.sign("[")?;
                let map = if word == "map" { self.map_index()? } else { self.signed_32("an index")? };
                self.sign("]")?;
                let op = match (word, self.inside_map()?) {
                    ("map", None) => Op::LoadMap { dst, map },
                    ("map", Some(off)) => Op::LoadMapValue { dst, map, off },
                    (_, None) => Op::LoadMapIdx { dst, map },
                    (_, Some(off)) => Op::LoadMapIdxValue { dst, map, off },
                };
                self.wide_end(width, op)
            }
            "var" => {
                self.sign("[")?;
                let id = self.signed_32("the number of a variable")?;
                self.sign("]")?;
                self.wide_end(width, Op::LoadVar { dst, id })
            }
            "subprog" => {
                self.sign("[")?;
                let target = self.target()?;
                self.sign("]")?;
                let parsed = self.wide_end(width, Op::LoadFunc { dst, distance: 0 })?;
                Ok(Parsed { target: Some(target), ..parsed })
            }
            "xchg_64" | "xchg32_32" | "cmpxchg_64" | "cmpxchg32_32" => {
                let size = if word.ends_with("_64") { Size::Dw } else { Size::W };
                self.exchange(width, dst, size, word.starts_with("cmp")).map(Parsed::from)
            }
            _ => {
                let of_name = |op: &AtomicOp| match op.notation() {
                    Some((name, _, true)) => word.strip_prefix("atomic_fetch_") == Some(name),
                    _ => false,
                };
                if let Some(op) = AtomicOp::ALL.into_iter().find(of_name) {
                    return self.fetch(width, dst, op).map(Parsed::from);
                }
                self.at = start;
                self.fail(VALUE)
            }
        }
    }

    fn check_width(&mut self, width: Width, size: Size) -> Result<()> {
        if width == width_of(size) {
            return Ok(());
        }
        self.at = 0;
        self.fail(format!("a register of {} bits, as the operation takes", 8 * size.bytes()))
    }

    fn exchange(&mut self, width: Width, dst: Reg, size: Size, compare: bool) -> Result<Op> {
        self.sign("(")?;
        let (base, off) = self.place()?;
        self.sign(",")?;
        let (op, src) = if compare {
            self.this_reg(width, Reg::R0)?;
            self.sign(",")?;
            (AtomicOp::CmpXchg, self.reg(width)?)
        } else {
            self.this_reg(width, dst)?;
            (AtomicOp::Xchg, dst)
        };
        self.sign(")")?;
        if compare && dst != Reg::R0 {
            self.at = 0;
            return self.fail("`r0` or `w0`, where `cmpxchg` puts the old value");
        }
        self.check_width(width, size)?;
        Ok(Op::Atomic { op, size, base, off, src })
    }

    fn fetch(&mut self, width: Width, dst: Reg, op: AtomicOp) -> Result<Op> {
        self.sign("(")?;
        let size = self.atomic_type()?;
        let (base, off) = self.parenthesised_place()?;
        self.sign(",")?;
        self.this_reg(width, dst)?;
        self.sign(")")?;
        self.check_width(width, size)?;
        Ok(Op::Atomic { op, size, base, off, src: dst })
    }
}

/// The size of this number of bits, written in decimal.
fn size_of(bits: &str) -> Option<Size> {
    Size::ALL.into_iter().find(|size| (8 * size.bytes()).to_string() == bits)
}

fn width_of(size: Size) -> Width {
    if size == Size::Dw { Width::W64 } else { Width::W32 }
}
