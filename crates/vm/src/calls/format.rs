// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Format strings: `snprintf`, `trace_printk`, `trace_vprintk`.
//!
//! As in the kernel there are two steps, and the visible result depends on both:
//!
//! ```text
//!  format, values ──prepare──► arguments: 512 bytes, numbers in binary, strings and IP addresses as text
//!  format, arguments ──print──► text, truncated to the buffer, and its full length
//! ```
//!
//! The first step checks the format; strings share its buffer, so a long one is truncated and one after it finds no
//! room. The second pads numbers, characters and `%s`, but copies what is text already, whatever the width.
//!
//! Deviation: addresses are printed as they are here, where the kernel hashes them (`%p`) or prints symbols. A `%pB`
//! without room is -ENOSPC as other texts are, where the kernel continues past its buffer and shows the bytes there.
//!
//! # Source
//! [Linux kernel/bpf/helpers.c: bpf_bprintf_prepare], [Linux lib/vsprintf.c: bstr_printf]

use std::fmt::Write as _;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::{INVALID, NO_SPACE, Run, length};
use crate::fault::Fault;
use crate::space::Space;

/// The most values of `snprintf` and `trace_vprintk`, 8 bytes each.
const MAX_VALUES: usize = 12;
/// The size of the buffer of prepared arguments.
const ARGUMENT_BYTES: usize = 512;
/// The size of the buffer of `trace_printk`, terminator included.
const TRACE_BYTES: usize = 1024;
/// The longest format of `snprintf`.
const FORMAT_BYTES: usize = 1 << 16;

/// A conversion specification, without its `%`.
#[derive(Debug, Clone, Copy)]
struct Spec {
    left: bool,
    zeros: bool,
    plus: bool,
    space: bool,
    /// The width; -1 if none is given.
    width: i32,
    what: What,
    /// Its length in the format.
    len: usize,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Char,
    /// `%s`
    Text,
    /// `%pks`, and `%pus`, whose string is in a process
    CopiedText {
        of_process: bool,
    },
    /// `%p`, `%px`, `%pK`
    Pointer,
    /// `%ps`, `%pS`
    Symbol,
    /// `%pB`
    Caller,
    Ip {
        six: bool,
        plain: bool,
    },
    Signed {
        long: bool,
    },
    Unsigned {
        long: bool,
        hex: bool,
        upper: bool,
    },
}

/// The kernel's `ispunct`, of Latin-1.
fn is_punctuation(byte: u8) -> bool {
    byte.is_ascii_punctuation() || matches!(byte, 0xa1..=0xbf | 0xd7 | 0xf7)
}

/// The kernel's `isspace`, of Latin-1.
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r' | 0xa0)
}

/// The kernel's `isalnum`, of Latin-1.
fn is_letter(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || (0xc0..=0xff).contains(&byte) && !is_punctuation(byte)
}

/// Whether a `%p` or `%s` may end before this character.
fn ends(next: u8) -> bool {
    next == 0 || is_space(next) || is_punctuation(next)
}

fn spec(format: &[u8]) -> Option<Spec> {
    let at = |i: usize| format.get(i).copied().unwrap_or(0);
    let mut i = format.iter().take_while(|byte| b"0 +-".contains(byte)).count();
    let has = |flag: u8| format[..i].contains(&flag);
    let (left, zeros, plus, space) = (has(b'-'), has(b'0'), has(b'+'), has(b' '));
    let digits = format[i..].iter().take_while(|byte| byte.is_ascii_digit()).count();
    let add = |width: i32, digit: &u8| width.wrapping_mul(10).wrapping_add(i32::from(digit - b'0'));
    let width = if digits == 0 { -1 } else { format[i..i + digits].iter().fold(0, add) };
    i += digits;
    let (what, len) = match (at(i), at(i + 1), at(i + 2)) {
        (b'p', next, _) if ends(next) => (What::Pointer, 1),
        (b'p', whose @ (b'k' | b'u'), b's') if ends(at(i + 3)) => (What::CopiedText { of_process: whose == b'u' }, 3),
        (b'p', b'K' | b'x', _) => (What::Pointer, 2),
        (b'p', b's' | b'S', _) => (What::Symbol, 2),
        (b'p', b'B', _) => (What::Caller, 2),
        (b'p', family @ (b'i' | b'I'), version @ (b'4' | b'6')) => {
            (What::Ip { six: version == b'6', plain: family == b'i' }, 3)
        }
        (b's', next, _) if ends(next) => (What::Text, 1),
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
    Some(Spec { left, zeros, plus, space, width, what, len: i + len })
}

/// An address as an unknown symbol.
fn symbol(address: u64) -> String {
    format!("0x{address:x}")
}

fn ip4(bytes: [u8; 4], plain: bool) -> String {
    match plain {
        true => bytes.map(|octet| format!("{octet:03}")).join("."),
        false => Ipv4Addr::from(bytes).to_string(),
    }
}

fn ip6(bytes: [u8; 16], plain: bool) -> String {
    let mut text = String::new();
    for (i, group) in Ipv6Addr::from(bytes).segments().iter().enumerate() {
        let colon = if i > 0 && !plain { ":" } else { "" };
        // Writing to a string cannot fail.
        let _ = write!(text, "{colon}{group:04x}");
    }
    text
}

/// The prepared arguments of a format.
#[derive(Debug, Default)]
struct Arguments(Vec<u8>);

impl Arguments {
    fn room(&self) -> usize {
        ARGUMENT_BYTES - self.0.len()
    }

    /// Appends a number of 4 or 8 bytes, aligned to 4.
    fn put_number(&mut self, value: u64, bytes: usize) -> Result<(), u64> {
        let at = self.0.len().next_multiple_of(4);
        if at + bytes > ARGUMENT_BYTES {
            return Err(NO_SPACE);
        }
        self.0.resize(at, 0);
        self.0.extend_from_slice(&value.to_le_bytes()[..bytes]);
        Ok(())
    }

    /// Appends as much of a string as fits.
    fn put_text(&mut self, text: &[u8]) -> Result<(), u64> {
        let most = self.room().checked_sub(1).ok_or(NO_SPACE)?;
        self.0.extend_from_slice(&text[..text.len().min(most)]);
        self.0.push(0);
        Ok(())
    }
}

/// Reads the arguments back, in order.
struct Taken<'a>(&'a [u8], usize);

impl<'a> Taken<'a> {
    fn number(&mut self, bytes: usize) -> u64 {
        let at = self.1.next_multiple_of(4);
        self.1 = at + bytes;
        let mut word = [0; 8];
        if let Some(found) = self.0.get(at..at + bytes) {
            word[..bytes].copy_from_slice(found);
        }
        u64::from_le_bytes(word)
    }

    fn byte(&mut self) -> u8 {
        self.1 += 1;
        self.0.get(self.1 - 1).copied().unwrap_or(0)
    }

    fn text(&mut self) -> &'a [u8] {
        let rest = self.0.get(self.1..).unwrap_or_default();
        let len = rest.iter().position(|byte| *byte == 0).unwrap_or(rest.len());
        self.1 += len + 1;
        &rest[..len]
    }
}

/// A text of which only the beginning is kept.
struct Text {
    shown: Vec<u8>,
    limit: usize,
    /// The full length.
    len: u64,
}

impl Text {
    fn push(&mut self, bytes: &[u8]) {
        let room = self.limit - self.shown.len();
        self.shown.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.len += bytes.len() as u64;
    }

    fn fill(&mut self, byte: u8, count: usize) {
        let room = self.limit - self.shown.len();
        self.shown.extend(std::iter::repeat_n(byte, count.min(room)));
        self.len += count as u64;
    }

    /// A text padded with spaces on either side.
    fn push_padded(&mut self, spec: &Spec, bytes: &[u8]) {
        let fill = usize::try_from(spec.width).unwrap_or(0).saturating_sub(bytes.len());
        if spec.left {
            self.push(bytes);
            self.fill(b' ', fill);
        } else {
            self.fill(b' ', fill);
            self.push(bytes);
        }
    }

    /// A number; zeros are inserted after its sign.
    fn push_number(&mut self, spec: &Spec, sign: &str, digits: &str) {
        if spec.zeros && !spec.left {
            self.push(sign.as_bytes());
            self.fill(b'0', usize::try_from(spec.width).unwrap_or(0).saturating_sub(sign.len() + digits.len()));
            self.push(digits.as_bytes());
        } else {
            self.push_padded(spec, format!("{sign}{digits}").as_bytes());
        }
    }

    /// The length as the program gets it: an `int`.
    fn length(&self) -> i32 {
        self.len as i32
    }
}

/// Prints the arguments from [`Run::prepare`].
fn print(format: &[u8], arguments: &Arguments, limit: usize) -> Text {
    let mut out = Text { shown: Vec::new(), limit, len: 0 };
    let mut taken = Taken(&arguments.0, 0);
    let mut rest = format;
    while let Some((byte, after)) = rest.split_first() {
        rest = after;
        if *byte != b'%' {
            out.push(&[*byte]);
            continue;
        }
        if after.first() == Some(&b'%') {
            out.push(b"%");
            rest = &after[1..];
            continue;
        }
        let Some(spec) = spec(after) else { break };
        rest = &after[spec.len..];
        match spec.what {
            What::Char => out.push_padded(&spec, &[taken.byte()]),
            What::Text => out.push_padded(&spec, taken.text()),
            What::CopiedText { .. } | What::Caller | What::Ip { .. } => {
                // Once the text is full they are not even read.
                if out.len < limit as u64 {
                    out.push(taken.text());
                }
            }
            What::Pointer => {
                let digits = format!("{:x}", taken.number(8));
                let spec = if spec.width == -1 { Spec { width: 16, zeros: true, ..spec } } else { spec };
                out.push_number(&spec, "", &digits);
            }
            What::Symbol => out.push_padded(&spec, symbol(taken.number(8)).as_bytes()),
            What::Signed { long } => {
                let value = if long { taken.number(8) as i64 } else { i64::from(taken.number(4) as i32) };
                let sign = match (value < 0, spec.plus, spec.space) {
                    (true, ..) => "-",
                    (_, true, _) => "+",
                    (_, _, true) => " ",
                    _ => "",
                };
                out.push_number(&spec, sign, &value.unsigned_abs().to_string());
            }
            What::Unsigned { long, hex, upper } => {
                let value = taken.number(if long { 8 } else { 4 });
                let digits = match (hex, upper) {
                    (false, _) => value.to_string(),
                    (true, false) => format!("{value:x}"),
                    (true, true) => format!("{value:X}"),
                };
                out.push_number(&spec, "", &digits);
            }
        }
        if matches!(spec.what, What::CopiedText { .. } | What::Caller | What::Ip { .. } | What::Pointer | What::Symbol)
        {
            // Letters after a `%p` could modify it, so they are skipped.
            let letters = rest.iter().take_while(|byte| is_letter(**byte)).count();
            rest = &rest[letters..];
        }
    }
    out
}

impl<S: Space> Run<'_, S> {
    /// The prepared arguments of a format and its values, or the kernel's error.
    fn prepare(&self, format: &[u8], values: &[u64]) -> Result<Arguments, u64> {
        let mut arguments = Arguments::default();
        let mut values = values.iter();
        let mut rest = format;
        while let Some((byte, after)) = rest.split_first() {
            rest = after;
            // Bytes outside of ASCII are text.
            if byte.is_ascii_control() && !is_space(*byte) {
                return Err(INVALID);
            }
            if *byte != b'%' {
                continue;
            }
            if after.first() == Some(&b'%') {
                rest = &after[1..];
                continue;
            }
            let value = *values.next().ok_or(INVALID)?;
            let spec = spec(after).ok_or(INVALID)?;
            rest = &after[spec.len..];
            match spec.what {
                What::Char if arguments.room() == 0 => return Err(NO_SPACE),
                What::Char => arguments.0.push(value as u8),
                // There is no process here; in the kernel, no process has memory at the program's addresses.
                What::CopiedText { of_process: true } => arguments.put_text(b"")?,
                What::Text | What::CopiedText { .. } => {
                    // Unreadable strings are empty.
                    let most = arguments.room().checked_sub(1).ok_or(NO_SPACE)?;
                    arguments.put_text(&self.string(value, most).unwrap_or_default())?;
                }
                What::Pointer | What::Symbol => arguments.put_number(value, 8)?,
                What::Caller => arguments.put_text(symbol(value).as_bytes())?,
                What::Ip { six, plain } => {
                    let bytes = if six { 16 } else { 4 };
                    if arguments.room() < bytes {
                        return Err(NO_SPACE);
                    }
                    let found = self.memory.read(value, bytes).unwrap_or_default();
                    let text = match six {
                        true => ip6(found.first_chunk().copied().unwrap_or_default(), plain),
                        false => ip4(found.first_chunk().copied().unwrap_or_default(), plain),
                    };
                    arguments.put_text(text.as_bytes())?;
                }
                What::Signed { long } | What::Unsigned { long, .. } => {
                    arguments.put_number(value, if long { 8 } else { 4 })?;
                }
            }
        }
        Ok(arguments)
    }

    /// The values at an address, or the kernel's error.
    fn values(
        &self,
        helper: &'static str,
        argument: usize,
        address: u64,
        len: u64,
    ) -> Result<Result<Vec<u64>, u64>, Fault> {
        let len = length(helper, argument, len)?;
        if !len.is_multiple_of(8) || len > MAX_VALUES * 8 || (len > 0 && address == 0) {
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
        let Some(format) = self.string(args[2], FORMAT_BYTES) else {
            let found = format!("0x{:x}", args[2]);
            return Err(Fault::Argument { helper: "snprintf", argument: 3, found, expected: "a zero-ended constant" });
        };
        let text = match self.prepare(&format, &values) {
            Ok(arguments) => print(&format, &arguments, size),
            Err(error) => return Ok(error),
        };
        if size > 0 {
            let buffer = self.memory.write_any(args[0], size)?;
            let shown = text.shown.len().min(size - 1);
            buffer[..shown].copy_from_slice(&text.shown[..shown]);
            buffer[shown] = 0;
        }
        Ok(text.length().wrapping_add(1) as i64 as u64)
    }

    /// A format of a given length, which has to include the terminator.
    fn counted_format(&self, helper: &'static str, args: [u64; 5]) -> Result<Option<Vec<u8>>, Fault> {
        let len = length(helper, 2, args[1])?;
        let bytes = self.memory.read(args[0], len)?;
        Ok(bytes.iter().position(|byte| *byte == 0).map(|end| bytes[..end].to_vec()))
    }

    fn trace(&mut self, format: Option<Vec<u8>>, values: &[u64]) -> u64 {
        let Some(format) = format else { return INVALID };
        match self.prepare(&format, values) {
            Ok(arguments) => print(&format, &arguments, TRACE_BYTES).length() as i64 as u64,
            Err(error) => error,
        }
    }

    pub(super) fn trace_printk(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let format = self.counted_format("trace_printk", args)?;
        Ok(self.trace(format, &args[2..]))
    }

    pub(super) fn trace_vprintk(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let values = match self.values("trace_vprintk", 4, args[2], args[3])? {
            Ok(values) => values,
            Err(error) => return Ok(error),
        };
        let format = self.counted_format("trace_vprintk", args)?;
        Ok(self.trace(format, &values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(format: &str, values: &[u64]) -> (String, i32) {
        let mut arguments = Arguments::default();
        for value in values {
            assert_eq!(arguments.put_number(*value, 8), Ok(()));
        }
        let text = print(format.as_bytes(), &arguments, 40);
        (String::from_utf8_lossy(&text.shown).into_owned(), text.length())
    }

    #[test]
    fn widths_are_the_kernels() {
        for (format, text) in [
            ("%4px|%20px|%px", "  12|                  12|00000000000000"),
            ("%-4px|%04px", "12  |0012"),
            ("%pxyz.", "0000000000000012."),
            ("%8ps|%-6lx|", "    0x12|12    |"),
        ] {
            assert_eq!(shown(format, &[0x12; 3]).0, text, "{format}");
        }
        assert_eq!(shown("%4px|%20px|%px", &[0x12; 3]).1, 42);
        assert_eq!(shown("%70000lx", &[1]).1, 70_000);
    }

    #[test]
    fn what_ends_a_text_is_no_letter() {
        for (format, fits) in [
            ("s", true),
            ("s|", true),
            ("s ", true),
            ("sx", false),
            ("s1", false),
            ("pks", true),
            ("pksx", false),
            ("pus,", true),
            ("px1", true),
            ("p1", false),
            ("lllx", false),
            ("5.2d", false),
        ] {
            assert_eq!(spec(format.as_bytes()).is_some(), fits, "{format}");
        }
    }

    #[test]
    fn values_share_their_room() {
        let mut arguments = Arguments::default();
        assert_eq!(arguments.put_text(&[b'x'; 690]), Ok(()));
        assert_eq!((arguments.room(), arguments.put_text(b"")), (0, Err(NO_SPACE)));
        assert_eq!(print(b"%s", &arguments, 1024).length(), 511);
        let mut arguments = Arguments::default();
        assert_eq!(arguments.put_text(&[b'x'; 504]), Ok(()));
        // At 505: a number of 4 bytes fits at 508, one of 8 does not.
        assert_eq!((arguments.put_number(1, 8), arguments.put_number(1, 4)), (Err(NO_SPACE), Ok(())));
    }
}
