// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Numbers in reports.

/// A number with grouped thousands: `1 234 567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// A number with its noun: `1 map`, `2 maps`, `1 024 entries`.
pub fn counted(number: usize, noun: &str) -> String {
    let plural = match (number, noun) {
        (1, _) => "",
        (_, noun) if noun.ends_with('s') || noun.ends_with("ch") => "es",
        _ => "s",
    };
    let number = grouped(number as u64);
    match noun.strip_suffix('y').filter(|_| number != "1") {
        Some(stem) => format!("{number} {stem}ies"),
        None => format!("{number} {noun}{plural}"),
    }
}

/// Tenths of a level as levels.
pub(super) fn levels(tenths: u32) -> f64 {
    f64::from(tenths) / 10.0
}

/// A figure rounded to hundredths.
pub fn hundredths(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Cycles in nanoseconds, rounded to hundredths.
pub fn nanoseconds(cycles: u32, clock_mhz: u32) -> f64 {
    hundredths(f64::from(cycles) * 1000.0 / f64::from(clock_mhz.max(1)))
}
