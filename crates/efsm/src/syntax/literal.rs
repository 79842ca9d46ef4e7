// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers, times and addresses.

use std::net::{Ipv4Addr, Ipv6Addr};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Literal {
    Number(u64),
    /// A time in nanoseconds.
    Time(u64),
    Ipv4(u32),
    Ipv6(u128),
    /// A MAC address, 48 bits.
    Mac(u64),
}

/// Message and help for a word that is not a literal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BadLiteral {
    pub(crate) message: String,
    pub(crate) help: String,
}

fn bad<T>(message: String, help: &str) -> Result<T, BadLiteral> {
    Err(BadLiteral { message, help: help.to_owned() })
}

/// Parses a word that starts with a digit.
pub(super) fn read_number(word: &str) -> Result<Literal, BadLiteral> {
    for (prefix, radix, what) in
        [("0x", 16, "hexadecimal"), ("0X", 16, "hexadecimal"), ("0b", 2, "binary"), ("0B", 2, "binary")]
    {
        if let Some(digits) = word.strip_prefix(prefix) {
            return read_digits(word, digits, radix, what).map(Literal::Number);
        }
    }
    let split = word.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(word.len());
    let (digits, unit) = word.split_at(split);
    if unit.is_empty() {
        return read_digits(word, digits, 10, "decimal").map(Literal::Number);
    }
    // A time may be a sum of several units: `9m59s`.
    let (mut rest, mut sum_ns) = (word, Some(0_u64));
    while !rest.is_empty() {
        let (digits, other) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '_').unwrap_or(rest.len()));
        let (unit, next) = other.split_at(other.find(|c: char| c.is_ascii_digit()).unwrap_or(other.len()));
        let Some(unit_ns) = unit_ns(unit) else {
            let help = match unit {
                "tuple" => "the five fields of a connection are written `5-tuple`",
                _ => {
                    "times are written with ns, us, ms, s, m or h, as in `10ms` or `9m59s`; hexadecimal numbers start \
                     with `0x`"
                }
            };
            return bad(format!("`{word}` is neither a number nor a time"), help);
        };
        let count = read_digits(word, digits, 10, "decimal")?;
        sum_ns = sum_ns.and_then(|sum| sum.checked_add(count.checked_mul(unit_ns)?));
        rest = next;
    }
    match sum_ns {
        Some(ns) => Ok(Literal::Time(ns)),
        None => bad(format!("`{word}` is longer than 2^64 ns"), "the longest time is about 584 years"),
    }
}

pub(crate) fn unit_ns(unit: &str) -> Option<u64> {
    Some(match unit {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

fn read_digits(word: &str, digits: &str, radix: u32, what: &str) -> Result<u64, BadLiteral> {
    let digits: String = digits.chars().filter(|&c| c != '_').collect();
    if digits.is_empty() || !digits.chars().all(|c| c.is_digit(radix)) {
        return bad(format!("`{word}` is not a {what} number"), "write digits, with optional `_` separators");
    }
    match u64::from_str_radix(&digits, radix) {
        Ok(number) => Ok(number),
        Err(_) => {
            bad(format!("`{word}` does not fit in 64 bits"), "the largest number is 18446744073709551615 (2^64 - 1)")
        }
    }
}

pub(super) fn read_dotted(word: &str) -> Result<Literal, BadLiteral> {
    if let Ok(address) = word.parse::<Ipv4Addr>() {
        return Ok(Literal::Ipv4(address.to_bits()));
    }
    if word.matches('.').count() == 1 {
        return bad(
            format!("`{word}` has a fraction"),
            "only integers are supported; for times use a smaller unit, as `1500ms` for one and a half seconds",
        );
    }
    bad(format!("`{word}` is not an IPv4 address"), "an IPv4 address has four numbers from 0 to 255, as `192.0.2.1`")
}

pub(super) fn read_colons(word: &str) -> Result<Literal, BadLiteral> {
    let groups: Vec<&str> = word.split(':').collect();
    if groups.len() == 6 && groups.iter().all(|g| g.len() == 2) {
        let mac = groups.iter().try_fold(0_u64, |mac, g| u64::from_str_radix(g, 16).ok().map(|byte| mac << 8 | byte));
        if let Some(mac) = mac {
            return Ok(Literal::Mac(mac));
        }
    }
    match word.parse::<Ipv6Addr>() {
        Ok(address) => Ok(Literal::Ipv6(address.to_bits())),
        Err(_) => bad(
            format!("`{word}` is neither an IPv6 nor a MAC address"),
            "an IPv6 address has eight groups or `::`, as `2001:db8::1`; a MAC address six pairs, as `02:00:00:00:00:01`",
        ),
    }
}

/// Parses a constant outside of the source, such as the value of a parameter. Returns true for a leading `-`.
pub(crate) fn read_value(word: &str) -> Result<(bool, Literal), BadLiteral> {
    let word = word.trim();
    let (negative, digits) = match word.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, word),
    };
    let literal = if digits.contains(':') {
        read_colons(digits)
    } else if digits.contains('.') {
        read_dotted(digits)
    } else if digits.starts_with(|c: char| c.is_ascii_digit()) {
        read_number(digits)
    } else {
        bad(format!("`{word}` is not a constant"), "give a number, a time such as `10s`, or an address")
    }?;
    match (negative, literal) {
        (true, Literal::Time(_) | Literal::Ipv4(_) | Literal::Ipv6(_) | Literal::Mac(_)) => {
            bad(format!("`{word}` cannot be negative"), "only numbers can be negative")
        }
        _ => Ok((negative, literal)),
    }
}
