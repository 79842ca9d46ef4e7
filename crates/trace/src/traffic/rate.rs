// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packet and bit rates.

use std::fmt;
use std::str::FromStr;

/// Bytes per frame on the wire besides its own: frame check sequence, preamble, start of frame delimiter, inter-frame
/// gap [IEEE 802.3].
pub(super) const WIRE_OVERHEAD_BYTES: u64 = 24;
const NS_PER_S: u128 = 1_000_000_000;
/// Maximum rates: 1 Tbit/s, one packet per nanosecond.
const MAX_BITS: u64 = 1_000_000_000_000;
const MAX_PACKETS: u64 = 1_000_000_000;

/// A constant rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// Bits per second on the wire, including check sequence, preamble and gap of each frame.
    Bits(u64),
    /// Packets per second.
    Packets(u64),
}

impl Rate {
    /// Packets per second for frames of this mean length.
    pub fn packets_per_second(self, mean_len_bytes: f64) -> f64 {
        match self {
            Rate::Bits(bits) => bits as f64 / ((mean_len_bytes + WIRE_OVERHEAD_BYTES as f64) * 8.0),
            Rate::Packets(packets) => packets as f64,
        }
    }
}

impl FromStr for Rate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rate, String> {
        let wrong = || {
            format!(
                "expected bits per second such as `40G` or packets per second such as `5Mpps`, up to 1T and 1Gpps, \
                 found `{text}`"
            )
        };
        let (number, most, rate): (_, _, fn(u64) -> Rate) = match text.strip_suffix("pps") {
            Some(number) => (number, MAX_PACKETS, Rate::Packets),
            None => {
                let number = text.strip_suffix("bps").or(text.strip_suffix("bit/s")).unwrap_or(text);
                (number, MAX_BITS, Rate::Bits)
            }
        };
        let number = parse_count(number.trim()).ok_or_else(wrong)?;
        if (1..=most).contains(&number) { Ok(rate(number)) } else { Err(wrong()) }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, unit) = match *self {
            Rate::Bits(bits) => (bits, ""),
            Rate::Packets(packets) => (packets, "pps"),
        };
        let scales = [(1_000_000_000_000, "T"), (1_000_000_000, "G"), (1_000_000, "M"), (1000, "k"), (1, "")];
        let (scale, letter) = scales.into_iter().find(|(scale, _)| number % scale == 0).unwrap_or((1, ""));
        write!(f, "{}{letter}{unit}", number / scale)
    }
}

/// Parses an unsigned integer with optional decimal fraction and SI suffix: `64`, `1.5M`, `40G`.
pub fn parse_count(text: &str) -> Option<u64> {
    let (digits, scale) = match text.char_indices().last()? {
        (at, 'k' | 'K') => (&text[..at], 1000u64),
        (at, 'M') => (&text[..at], 1_000_000),
        (at, 'G') => (&text[..at], 1_000_000_000),
        (at, 'T') => (&text[..at], 1_000_000_000_000),
        _ => (text, 1),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !is_number(whole) || !is_number(fraction) || (digits.contains('.') && fraction.is_empty()) {
        return None;
    }
    let mut number = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    let mut unit = scale;
    for digit in fraction.bytes() {
        if unit % 10 != 0 {
            return None;
        }
        unit /= 10;
        number = number.checked_add(u64::from(digit - b'0') * unit)?;
    }
    Some(number)
}

/// Departure times of packets at a constant rate, without accumulated rounding error.
#[derive(Debug, Clone)]
pub(super) struct Pace {
    rate: Rate,
    ns: u64,
    /// Remainder of a nanosecond, in units of 1/rate.
    rest: u64,
}

impl Pace {
    pub(super) fn new(rate: Rate) -> Pace {
        Pace { rate, ns: 0, rest: 0 }
    }

    /// Start time of the next packet.
    pub(super) fn now_ns(&self) -> u64 {
        self.ns
    }

    /// Returns the start time of the next packet, of this length, and advances to the packet after it.
    pub(super) fn step(&mut self, len_bytes: u64) -> u64 {
        let begins_ns = self.ns;
        let (parts, rate) = match self.rate {
            Rate::Bits(bits) => ((len_bytes + WIRE_OVERHEAD_BYTES) * 8, bits),
            Rate::Packets(packets) => (1, packets),
        };
        let parts = u128::from(parts) * NS_PER_S + u128::from(self.rest);
        self.ns = self.ns.saturating_add((parts / u128::from(rate)) as u64);
        self.rest = (parts % u128::from(rate)) as u64;
        begins_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_parse_and_print() {
        let read = |text: &str| text.parse::<Rate>();
        for (text, rate) in [
            ("40G", Rate::Bits(40_000_000_000)),
            ("2500M", Rate::Bits(2_500_000_000)),
            ("2.5Gbps", Rate::Bits(2_500_000_000)),
            ("100k", Rate::Bits(100_000)),
            ("1T", Rate::Bits(1_000_000_000_000)),
            ("5Mpps", Rate::Packets(5_000_000)),
            ("1.25kpps", Rate::Packets(1250)),
            ("7pps", Rate::Packets(7)),
        ] {
            assert_eq!(read(text), Ok(rate));
            assert_eq!(read(&rate.to_string()), Ok(rate), "{rate}");
        }
        for text in
            ["", "fast", "0", "-1G", "1.G", ".5G", "1.5", "1.2345k", "2T", "2Gpps", "1e9", "99999999999G", "pps"]
        {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(Rate::Bits(40_000_000_000).to_string(), "40G");
    }

    #[test]
    fn line_rates_equal_those_of_the_papers() {
        // 59.5 Mpps of 64-byte frames (check sequence included) at 40 Gb/s [FlowBlaze 5.1], 148.8 Mpps at 100 [eHDL
        // 5.1].
        assert!((Rate::Bits(40_000_000_000).packets_per_second(60.0) / 59.52e6 - 1.0).abs() < 1e-3);
        assert!((Rate::Bits(100_000_000_000).packets_per_second(60.0) / 148.8e6 - 1.0).abs() < 1e-3);
    }

    #[test]
    fn pacing_has_no_rounding_drift() {
        let mut pace = Pace::new(Rate::Packets(3));
        let times: Vec<u64> = (0..7).map(|_| pace.step(60)).collect();
        assert_eq!(times, [0, 333_333_333, 666_666_666, 1_000_000_000, 1_333_333_333, 1_666_666_666, 2_000_000_000]);
        let mut pace = Pace::new(Rate::Bits(7_000_000));
        (0..7_000_000u64 / 672).for_each(|_| {
            pace.step(60);
        });
        // 10416 packets of 672 bits are 6 999 552 bits.
        assert_eq!(pace.now_ns(), 999_936_000);
    }
}
