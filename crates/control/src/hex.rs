// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes as hexadecimal text.

use std::fmt::Write;

pub(crate) fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(2 * bytes.len()), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// `None` if the text is no even number of hexadecimal digits.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_return_from_their_text() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decode(&encode(&all)), Some(all));
        assert_eq!((decode("0A"), decode("0"), decode("0g"), decode("é0")), (Some(vec![10]), None, None, None));
    }
}
