// SPDX-License-Identifier: Apache-2.0 OR MIT
use crate::builder::length_field;

/// A GTP-U header, between UDP and the tunnelled packet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gtpu {
    /// Tunnel endpoint identifier.
    pub teid: u32,
    /// Message type: 255 for user data (G-PDU).
    pub kind: u8,
    /// The sequence number.
    pub sequence: Option<u16>,
    /// The N-PDU number.
    pub npdu: Option<u8>,
    /// Extension headers by type and length in units of 4 bytes (at least 1).
    pub extensions: Vec<(u8, u8)>,
}

impl Gtpu {
    /// The header of a G-PDU, without optional fields.
    pub fn new(teid: u32) -> Gtpu {
        Gtpu { teid, kind: 255, sequence: None, npdu: None, extensions: Vec::new() }
    }

    /// Serializes the header for a payload of this length.
    pub(crate) fn bytes(&self, payload_bytes: usize) -> Vec<u8> {
        let has_extensions = !self.extensions.is_empty();
        let flags =
            u8::from(has_extensions) << 2 | u8::from(self.sequence.is_some()) << 1 | u8::from(self.npdu.is_some());
        let mut rest = Vec::new();
        if flags != 0 {
            rest.extend(self.sequence.unwrap_or(0).to_be_bytes());
            rest.push(self.npdu.unwrap_or(0));
            for &(kind, units) in &self.extensions {
                assert!(units > 0, "an extension header of no bytes");
                rest.extend([kind, units]);
                rest.resize(rest.len() + 4 * usize::from(units) - 2, kind);
            }
            rest.push(0);
        }
        let mut bytes = vec![0x30 | flags, self.kind];
        bytes.extend(length_field(rest.len() + payload_bytes));
        bytes.extend(self.teid.to_be_bytes());
        bytes.extend(rest);
        bytes
    }
}
