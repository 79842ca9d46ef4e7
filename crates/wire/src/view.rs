// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Typed zero-copy views of a header and its payload.
//!
//! `new_checked` checks the lengths once; afterwards getters cannot fail or read beyond the bytes. A view over `&mut
//! [u8]` also has setters. None of them changes a length, a version or the next protocol, so a view stays valid;
//! checksums are recomputed on demand (`fill_checksum`).
//!
//! ```
//! use flowloom_wire::view::{EtherType, EthernetFrame, IpProtocol, Ipv4Packet, UdpDatagram};
//! # let frame = [
//! #     0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 30, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 53,
//! #     0x30, 0x39, 0, 10, 0, 0, b'h', b'i',
//! # ];
//!
//! let frame = EthernetFrame::new_checked(&frame[..])?;
//! assert_eq!(frame.ethertype(), EtherType::IPV4);
//! let ip = Ipv4Packet::new_checked(frame.payload())?;
//! assert_eq!(ip.protocol(), IpProtocol::UDP);
//! let udp = UdpDatagram::new_checked(ip.payload())?;
//! assert_eq!((udp.sport(), udp.payload()), (53, &b"hi"[..]));
//! # Ok::<(), flowloom_wire::view::ViewError>(())
//! ```

mod link;
mod network;
mod transport;

pub use link::{EtherType, EthernetFrame, VlanTag};
pub use network::{IpProtocol, Ipv4Packet, Ipv6Packet};
pub use transport::{IcmpMessage, TcpSegment, UdpDatagram};

/// The reason why bytes are not the expected header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ViewError {
    /// Fewer bytes than the header.
    #[error("{header} header needs {needed_bytes} bytes, {found_bytes} are present")]
    Truncated {
        /// The header.
        header: &'static str,
        /// Bytes needed.
        needed_bytes: usize,
        /// Bytes present.
        found_bytes: usize,
    },
    /// A length field is less than the length of its header.
    #[error("{header} length field is {found_bytes} bytes, expected at least {least_bytes}")]
    Length {
        /// The header.
        header: &'static str,
        /// Value of the field in bytes.
        found_bytes: usize,
        /// Least allowed value in bytes.
        least_bytes: usize,
    },
    /// Another version of IP.
    #[error("IP version is {found}, expected {expected}")]
    Version {
        /// Value of the field.
        found: u8,
        /// Expected value.
        expected: u8,
    },
}

/// Checks that the first `needed_bytes` are present.
fn present(header: &'static str, bytes: &[u8], needed_bytes: usize) -> Result<(), ViewError> {
    match bytes.len() {
        found_bytes if found_bytes < needed_bytes => Err(ViewError::Truncated { header, needed_bytes, found_bytes }),
        _ => Ok(()),
    }
}

/// Checks that a length field is at least `least_bytes`.
fn at_least(header: &'static str, found_bytes: usize, least_bytes: usize) -> Result<(), ViewError> {
    match found_bytes {
        _ if found_bytes < least_bytes => Err(ViewError::Length { header, found_bytes, least_bytes }),
        _ => Ok(()),
    }
}

/// `N` bytes whose presence `new_checked` has checked.
fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    std::array::from_fn(|i| bytes[at + i])
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(array(bytes, at))
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

#[cfg(test)]
mod tests;
