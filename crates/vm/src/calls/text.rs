// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Strings and numbers.

use super::{BAD_ADDRESS, INVALID, Run, length};
use crate::fault::Fault;
use crate::space::Space;

/// -ERANGE
const OUT_OF_RANGE: u64 = -34i64 as u64;
/// The first address of the kernel's half of the address space.
const FIRST_KERNEL_ADDRESS: u64 = 0xffff_8000_0000_0000;
/// The bits of the flags of `strtol` and `strtoul` that hold the base.
const BASE_MASK: u64 = 0x1f;
/// The most digits of a number.
const MAX_DIGITS: usize = 63;
/// A number at the start of a string.
#[derive(Debug, PartialEq, Eq)]
struct Number {
    /// Its length in bytes.
    len: u64,
    negative: bool,
    amount: u64,
}

/// Parses a number, or returns the kernel's error.
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
    let digits = &digits[..digits.len().min(MAX_DIGITS)];
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

impl<S: Space> Run<'_, S> {
    /// A string of at most so many bytes, without its terminator; `None` if an address is not the program's.
    pub(super) fn string(&self, address: u64, most: usize) -> Option<Vec<u8>> {
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

    /// Parses a number after setting the result to 0.
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

    /// Whether an address could be the kernel's, rather than a process's or unmapped: others are refused before they
    /// are read [Linux arch/x86/mm/maccess.c].
    fn is_kernels(&self, address: u64) -> bool {
        self.memory.is_some_object(address) || address >= FIRST_KERNEL_ADDRESS
    }

    pub(super) fn probe_read_kernel(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let len = length("probe_read_kernel", 2, args[1])?;
        let found = match self.is_kernels(args[2]) {
            true => self.memory.read(args[2], len).map(<[u8]>::to_vec).map_err(|_| BAD_ADDRESS),
            false => Err(OUT_OF_RANGE),
        };
        Ok(self.put(args[0], len, found)?.map_or_else(|error| error, |_| 0))
    }

    /// Writes what was read to the beginning of a buffer, or zeros to all of it after an error; returns the length.
    fn put(&mut self, address: u64, len: usize, found: Result<Vec<u8>, u64>) -> Result<Result<u64, u64>, Fault> {
        let buffer = self.memory.write_any(address, len)?;
        match &found {
            Ok(bytes) => buffer[..bytes.len()].copy_from_slice(bytes),
            Err(_) => buffer.fill(0),
        }
        Ok(found.map(|bytes| bytes.len() as u64))
    }

    pub(super) fn probe_read_kernel_str(&mut self, args: [u64; 5]) -> Result<u64, Fault> {
        let len = length("probe_read_kernel_str", 2, args[1])?;
        if len == 0 {
            return Ok(0);
        }
        let found = match self.is_kernels(args[2]) {
            // The first byte is read even if only the terminator fits.
            true => match self.memory.read(args[2], 1) {
                Ok(_) => self.string(args[2], len - 1).ok_or(BAD_ADDRESS),
                Err(_) => Err(BAD_ADDRESS),
            },
            false => Err(OUT_OF_RANGE),
        };
        let terminated = found.map(|text| [&text[..], &[0]].concat());
        Ok(self.put(args[0], len, terminated)?.unwrap_or_else(|error| error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_parsed_as_in_the_kernel() {
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
