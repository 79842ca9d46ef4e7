// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses times in user input.

use std::time::Duration;

/// Parses a duration with its unit.
pub fn parse_time(text: &str) -> Result<Duration, String> {
    let wrong = || format!("expected a time such as `500ms`, `10s` or `2m`, found `{text}`");
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().map_err(|_| wrong())?;
    let unit_ns = match &text[digits..] {
        "ns" => 1,
        "us" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return Err(wrong()),
    };
    match number.checked_mul(unit_ns) {
        Some(0) => Err("expected a time greater than 0".to_owned()),
        Some(ns) => Ok(Duration::from_nanos(ns)),
        None => Err(format!("`{text}` exceeds 2^64 ns")),
    }
}
