//! Strings and numbers.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::{BAD_ADDRESS, INVALID, Run, length};
use crate::interp::fault::Fault;

/// -ERANGE
const OUT_OF_RANGE: u64 = -34i64 as u64;
/// Bits of the flags of `strtol` and `strtoul` that are the base.
const BASE_MASK: u64 = 0x1f;
/// So many characters of a number are looked at.
const MOST_DIGITS: usize = 63;
/// So many values `snprintf` and `trace_vprintk` take, 8 bytes each.
const MOST_VALUES: usize = 12;
/// The longest string that `%s` prints, its end included.
const MOST_TEXT: usize = 1024;

/// A number at the start of a text.
#[derive(Debug, PartialEq, Eq)]
struct Number {
    /// How many bytes it takes.
    len: u64,
    negative: bool,
    amount: u64,
}

/// Reads a number, or gives the error that the kernel gives.
fn number(text: &[u8], flags: u64) -> Result<Number, u64> {
    let base = flags & BASE_MASK;
    if text.is_empty() || !matches!(base, 0 | 8 | 10 | 16) || flags & !BASE_MASK != 0 {
        return Err(INVALID);
    }
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r' | 0xa0);
    let spaces = text.iter().take_while(|byte| is_space(byte)).count();
    let negative = text.get(spaces) == Some(&b'-');
    let before = spaces + usize::from(negative);
    let digits = &text[before..];
    if digits.is_empty() {
        return Err(INVALID);
    }
    let digits = &digits[..digits.len().min(MOST_DIGITS)];
    let at = |i: usize| digits.get(i).copied().unwrap_or(0).to_ascii_lowercase();
    let has_prefix = at(0) == b'0' && at(1) == b'x';
    let base = match base {
        0 if has_prefix && at(2).is_ascii_hexdigit() => 16,
        0 if at(0) == b'0' => 8,
        0 => 10,
        given => given,
    };
    let prefix = if base == 16 && has_prefix { 2 } else { 0 };
    let (mut amount, mut count, mut overflows) = (0_u64, 0, false);
    for byte in &digits[prefix.min(digits.len())..] {
        let Some(digit) = char::from(*byte).to_digit(base as u32) else { break };
        let next = amount.checked_mul(base).and_then(|a| a.checked_add(digit.into()));
        overflows |= next.is_none();
        amount = next.unwrap_or(0);
        count += 1;
    }
    match (overflows, count) {
        (true, _) => Err(OUT_OF_RANGE),
        (_, 0) => Err(INVALID),
        _ => Ok(Number { len: (before + prefix + count) as u64, negative, amount }),
    }
}

/// A `%` in a format, behind it.
struct Spec {
    left: bool,
    zeros: bool,
    plus: bool,
    space: bool,
    width: usize,
    what: What,
}

enum What {
    Char,
    Text,
    Pointer,
    Ip { six: bool, plain: bool },
    Signed { long: bool },
    Unsigned { long: bool, hex: bool, upper: bool },
}

/// Reads what stands behind a `%`; how many bytes it takes.
fn spec(format: &[u8]) -> Option<(Spec, usize)> {
    let at = |i: usize| format.get(i).copied().unwrap_or(0);
    let mut i = format.iter().take_while(|byte| b"0 +-".contains(byte)).count();
    let has = |flag: u8| format[..i].contains(&flag);
    let (left, zeros, plus, space) = (has(b'-'), has(b'0'), has(b'+'), has(b' '));
    let digits = format[i..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let width = format[i..i + digits].iter().fold(0_usize, |w, d| w.saturating_mul(10) + usize::from(d - b'0'));
    i += digits;
    let (what, len) = match (at(i), at(i + 1), at(i + 2)) {
        (b'p', b'k' | b'u', b's') => (What::Text, 3),
        (b'p', family @ (b'i' | b'I'), version @ (b'4' | b'6')) => {
            (What::Ip { six: version == b'6', plain: family == b'i' }, 3)
        }
        (b'p', b'K' | b'x' | b's' | b'S' | b'B', _) => (What::Pointer, 2),
        (b'p', next, _) if next == 0 || next.is_ascii_whitespace() || next.is_ascii_punctuation() => (What::Pointer, 1),
        (b's', ..) => (What::Text, 1),
        (b'c', ..) => (What::Char, 1),
        (first, ..) => {
            let longs = if first == b'l' { 1 + usize::from(at(i + 1) == b'l') } else { 0 };
            let long = longs > 0;
            let what = match at(i + longs) {
                b'd' | b'i' => What::Signed { long },
                b'u' => What::Unsigned { long, hex: false, upper: false },
                b'x' => What::Unsigned { long, hex: true, upper: false },
                b'X' => What::Unsigned { long, hex: true, upper: true },
                _ => return None,
            };
            (what, longs + 1)
        }
    };
    Some((Spec { left, zeros, plus, space, width: width.min(MOST_TEXT), what }, i + len))
}

impl Spec {
    /// Pads a number, zeros behind its sign.
    fn number(&self, sign: &str, digits: &str, out: &mut Vec<u8>) {
        let fill = self.width.saturating_sub(sign.len() + digits.len());
        if self.zeros && !self.left {
            out.extend(sign.bytes().chain(std::iter::repeat_n(b'0', fill)).chain(digits.bytes()));
        } else {
            self.text(&[sign.as_bytes(), digits.as_bytes()].concat(), out);
        }
    }

    fn text(&self, text: &[u8], out: &mut Vec<u8>) {
        let fill = std::iter::repeat_n(b' ', self.width.saturating_sub(text.len()));
        if self.left {
            out.extend(text.iter().copied().chain(fill));
        } else {
            out.extend(fill.chain(text.iter().copied()));
        }
    }
}

impl Run<'_> {
    /// A zero-ended string of at most so many bytes, without its end; `None` where an address is none of the program's.
    fn string(&self, address: u64, most: usize) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        for i in 0..most as u64 {
            match self.memory.read(address.wrapping_add(i), 1).ok()? {
                [0] => break,
                bytes => text.extend_from_slice(bytes),
            }
        }
        Some(text)
    }

    pub(super) fn strncmp(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let len = length("strncmp", 2, args[1])?;
        let first = self.memory.read(args[0], len)?;
        for (i, a) in (0..).zip(first) {
            let [b] = self.memory.read(args[2].wrapping_add(i), 1)? else { return Err(Fault::Unchecked) };
            if a != b {
                return Ok(if a < b { -1i64 as u64 } else { 1 });
            }
            if *a == 0 {
                break;
            }
        }
        Ok(0)
    }

    /// Reads a number, after the result was set to 0.
    fn parse(&mut self, helper: &'static str, args: [u64; 5]) -> Result<Result<Number, u64>, Fault> {
        let len = length(helper, 2, args[1])?;
        let parsed = number(self.memory.read(args[0], len)?, args[2]);
        self.memory.write_any(args[3], 8)?.fill(0);
        Ok(parsed)
    }

    fn store_number(&mut self, address: u64, value: u64) -> Result<(), Fault> {
        self.memory.write_any(address, 8)?.copy_from_slice(&value.to_le_bytes());
        Ok(())
    }

    pub(super) fn strtol(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let Number { len, negative, amount } = match self.parse("strtol", args)? {
            Ok(parsed) => parsed,
            Err(error) => return Ok(error),
        };
        let value = if negative { 0i64.checked_sub_unsigned(amount) } else { i64::try_from(amount).ok() };
        let Some(value) = value else { return Ok(OUT_OF_RANGE) };
        self.store_number(args[3], value as u64)?;
        Ok(len)
    }

    pub(super) fn strtoul(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let Number { len, negative, amount } = match self.parse("strtoul", args)? {
            Ok(parsed) => parsed,
            Err(error) => return Ok(error),
        };
        if negative {
            return Ok(INVALID);
        }
        self.store_number(args[3], amount)?;
        Ok(len)
    }

    /// The text that a format and its values make, or the error that the kernel gives.
    fn format(&self, format: &[u8], values: &[u64]) -> Result<Vec<u8>, u64> {
        let is_printable =
            |byte: &u8| byte.is_ascii() && (!byte.is_ascii_control() || byte.is_ascii_whitespace() || *byte == 0x0b);
        if !format.iter().all(is_printable) {
            return Err(INVALID);
        }
        let mut out = Vec::new();
        let mut values = values.iter();
        let mut rest = format;
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            match (byte, after.first()) {
                (b'%', Some(b'%')) => {
                    out.push(b'%');
                    rest = &after[1..];
                }
                (b'%', _) => {
                    let value = *values.next().ok_or(INVALID)?;
                    let (spec, len) = spec(after).ok_or(INVALID)?;
                    self.render(&spec, value, &mut out);
                    rest = &after[len..];
                }
                _ => out.push(*byte),
            }
        }
        Ok(out)
    }

    fn render(&self, spec: &Spec, value: u64, out: &mut Vec<u8>) {
        match spec.what {
            What::Char => spec.text(&[value as u8], out),
            // What cannot be read is empty.
            What::Text => spec.text(&self.string(value, MOST_TEXT - 1).unwrap_or_default(), out),
            What::Pointer => spec.number("", &format!("{value:016x}"), out),
            What::Ip { six: false, plain } => {
                let bytes = self.memory.read(value, 4).ok().and_then(|b| b.first_chunk::<4>().copied());
                let address = Ipv4Addr::from(bytes.unwrap_or_default());
                let octets = address.octets().map(|o| format!("{o:03}")).join(".");
                spec.text(if plain { octets } else { address.to_string() }.as_bytes(), out);
            }
            What::Ip { six: true, plain } => {
                let bytes = self.memory.read(value, 16).ok().and_then(|b| b.first_chunk::<16>().copied());
                let address = Ipv6Addr::from(bytes.unwrap_or_default());
                let mut text = String::new();
                for (i, group) in address.segments().iter().enumerate() {
                    let colon = if i > 0 && !plain { ":" } else { "" };
                    // Writing to a string cannot fail.
                    let _ = write!(text, "{colon}{group:04x}");
                }
                spec.text(text.as_bytes(), out);
            }
            What::Signed { long } => {
                let value = if long { value as i64 } else { i64::from(value as i32) };
                let sign = match (value < 0, spec.plus, spec.space) {
                    (true, ..) => "-",
                    (_, true, _) => "+",
                    (_, _, true) => " ",
                    _ => "",
                };
                spec.number(sign, &value.unsigned_abs().to_string(), out);
            }
            What::Unsigned { long, hex, upper } => {
                let value = if long { value } else { u64::from(value as u32) };
                let digits = match (hex, upper) {
                    (false, _) => value.to_string(),
                    (true, false) => format!("{value:x}"),
                    (true, true) => format!("{value:X}"),
                };
                spec.number("", &digits, out);
            }
        }
    }

    /// The values that lie at an address, or the error that the kernel gives.
    fn values(
        &self,
        helper: &'static str,
        argument: usize,
        address: u64,
        len: u64,
    ) -> Result<Result<Vec<u64>, u64>, Fault> {
        let len = length(helper, argument, len)?;
        if !len.is_multiple_of(8) || len > MOST_VALUES * 8 || (len > 0 && address == 0) {
            return Ok(Err(INVALID));
        }
        if len == 0 {
            return Ok(Ok(Vec::new()));
        }
        let (words, _) = self.memory.read(address, len)?.as_chunks::<8>();
        Ok(Ok(words.iter().map(|word| u64::from_le_bytes(*word)).collect()))
    }

    pub(super) fn snprintf(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let size = length("snprintf", 2, args[1])?;
        let values = match self.values("snprintf", 5, args[3], args[4])? {
            Ok(values) => values,
            Err(error) => return Ok(error),
        };
        let Some(format) = self.string(args[2], MOST_TEXT * 64) else {
            let found = format!("0x{:x}", args[2]);
            return Err(Fault::Argument { helper: "snprintf", argument: 3, found, expected: "a zero-ended constant" });
        };
        let text = match self.format(&format, &values) {
            Ok(text) => text,
            Err(error) => return Ok(error),
        };
        if size > 0 {
            let buffer = self.memory.write_any(args[0], size)?;
            let shown = text.len().min(size - 1);
            buffer[..shown].copy_from_slice(&text[..shown]);
            buffer[shown] = 0;
        }
        Ok(text.len() as u64 + 1)
    }

    /// A format of which the length is given; it has to end in it.
    fn counted_format(&self, helper: &'static str, args: [u64; 5]) -> Result<Option<Vec<u8>>, Fault> {
        let len = length(helper, 2, args[1])?;
        let bytes = self.memory.read(args[0], len)?;
        Ok(bytes.iter().position(|byte| *byte == 0).map(|end| bytes[..end].to_vec()))
    }

    fn print(&mut self, format: Option<Vec<u8>>, values: &[u64]) -> u64 {
        let Some(format) = format else { return INVALID };
        match self.format(&format, values) {
            Ok(text) => text.len() as u64,
            Err(error) => error,
        }
    }

    pub(super) fn trace_printk(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let format = self.counted_format("trace_printk", args)?;
        Ok(self.print(format, &args[2..]))
    }

    pub(super) fn trace_vprintk(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let values = match self.values("trace_vprintk", 4, args[2], args[3])? {
            Ok(values) => values,
            Err(error) => return Ok(error),
        };
        let format = self.counted_format("trace_vprintk", args)?;
        Ok(self.print(format, &values))
    }

    pub(super) fn probe_read_kernel(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let len = length("probe_read_kernel", 2, args[1])?;
        let found = self.memory.read(args[2], len).map(<[u8]>::to_vec);
        let buffer = self.memory.write_any(args[0], len)?;
        match found {
            Ok(bytes) => {
                buffer.copy_from_slice(&bytes);
                Ok(0)
            }
            Err(_) => {
                buffer.fill(0);
                Ok(BAD_ADDRESS)
            }
        }
    }

    pub(super) fn probe_read_kernel_str(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let len = length("probe_read_kernel_str", 2, args[1])?;
        if len == 0 {
            return Ok(0);
        }
        let found = self.string(args[2], len - 1);
        let buffer = self.memory.write_any(args[0], len)?;
        match found {
            Some(text) => {
                buffer[..text.len()].copy_from_slice(&text);
                buffer[text.len()] = 0;
                Ok(text.len() as u64 + 1)
            }
            None => {
                buffer.fill(0);
                Ok(BAD_ADDRESS)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_where_the_kernel_ends_them() {
        let good = |len, negative, amount| Ok(Number { len, negative, amount });
        let cases = [
            ("42", 10, good(2, false, 42)),
            (" \t-17x", 0, good(5, true, 17)),
            ("0x1F!", 0, good(4, false, 31)),
            ("0x1F", 16, good(4, false, 31)),
            ("1F", 16, good(2, false, 31)),
            ("017", 0, good(3, false, 15)),
            ("019", 0, good(2, false, 1)),
            ("0xg", 0, good(1, false, 0)),
            ("18446744073709551615", 10, good(20, false, u64::MAX)),
            ("18446744073709551616", 10, Err(OUT_OF_RANGE)),
            ("", 10, Err(INVALID)),
            ("-", 10, Err(INVALID)),
            ("x", 10, Err(INVALID)),
            ("1", 2, Err(INVALID)),
            ("1", 10 | 32, Err(INVALID)),
            ("8", 8, Err(INVALID)),
        ];
        for (text, flags, expected) in cases {
            assert_eq!(number(text.as_bytes(), flags), expected, "{text:?} {flags}");
        }
    }
}
