// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Structural edits of frames: push and pop of tags and labels, tunnels.
//!
//! Each takes a frame and its parse; afterwards the frame has to be parsed again. If the frame lacks what the edit
//! requires, the edit does nothing and returns `false`.
//!
//! ```text
//!  push_vlan:  dst src │ 8100 tci │ type ...        pop_vlan:  dst src │ type ...
//!  push_mpls:  dst src tags 8847 │ label │ ...      pop_mpls:  dst src tags type │ ...
//!  encapsulate: ... type │ IP UDP GTP-U │ IP ...    decapsulate: ... type │ inner IP ...
//! ```

use crate::graph::{Header, Slice};
use crate::header::EtherType;
use crate::parse::Layers;
use crate::stack::Stack;

/// The size of both MAC addresses.
const ADDRESSES_BYTES: usize = 12;
/// The size of a VLAN tag and of an MPLS label.
pub const TAG_BYTES: usize = 4;
/// The bottom-of-stack bit of a label.
pub const BOTTOM_OF_STACK: u32 = 1 << 8;

/// The end of the link layer: after the Ethernet header and the parsed tags.
pub fn link_bytes(layers: &Layers) -> Option<usize> {
    let end = |header| Some(layers.offset(header)? + layers.len(header)?);
    [Header::Vlan2, Header::Vlan, Header::Ethernet].into_iter().find_map(end)
}

/// Pushes a VLAN tag with this tag control information.
pub fn push_vlan(frame: &mut Vec<u8>, layers: &Layers, tci: u16) -> bool {
    if !layers.has(Header::Ethernet) {
        return false;
    }
    let [high, low] = tci.to_be_bytes();
    let [type_high, type_low] = EtherType::VLAN.0.to_be_bytes();
    insert(frame, ADDRESSES_BYTES, &[type_high, type_low, high, low]);
    true
}

/// Pops the outermost VLAN tag.
pub fn pop_vlan(frame: &mut Vec<u8>, layers: &Layers) -> bool {
    if !layers.has(Header::Vlan) {
        return false;
    }
    drop(frame.drain(ADDRESSES_BYTES..ADDRESSES_BYTES + TAG_BYTES));
    true
}

/// Pushes an MPLS label entry; its bottom-of-stack bit is set if it is the only one.
pub fn push_mpls(frame: &mut Vec<u8>, layers: &Layers, entry: u32) -> bool {
    let Some(link) = link_bytes(layers) else { return false };
    let bottom = if layers.has(Header::Mpls) { 0 } else { BOTTOM_OF_STACK };
    insert(frame, link, &(entry & !BOTTOM_OF_STACK | bottom).to_be_bytes());
    set_type(frame, link, EtherType::MPLS.0);
    true
}

/// Pops the outermost MPLS label. After the last one the EtherType is that of IPv6 if the version says so, otherwise
/// that of IPv4.
pub fn pop_mpls(frame: &mut Vec<u8>, layers: &Layers) -> bool {
    let Some(label) = layers.offset(Header::Mpls) else { return false };
    let is_last = frame[label + 2] & 1 == 1;
    drop(frame.drain(label..label + TAG_BYTES));
    if is_last {
        let version = frame.get(label).copied();
        set_type(frame, label, type_by_version(version));
    }
    true
}

/// Inserts the headers of `stack`, with `values` in their fields, before the outermost IP header.
pub fn encapsulate(frame: &mut Vec<u8>, layers: &Layers, stack: &Stack, values: &[(Slice, u128)]) -> bool {
    let Some((at, bytes)) = outermost_ip(layers) else { return false };
    let headers = stack.render(values, bytes);
    let version = headers.first().copied();
    insert(frame, at, &headers);
    if !layers.has(Header::Mpls) {
        set_type(frame, at, type_by_version(version));
    }
    true
}

/// Removes everything from the outermost IP header up to the inner one.
pub fn decapsulate(frame: &mut Vec<u8>, layers: &Layers) -> bool {
    let inner = layers.offset(Header::InnerIpv4).or(layers.offset(Header::InnerIpv6));
    let (Some((outer, _)), Some(inner)) = (outermost_ip(layers), inner) else { return false };
    let version = frame.get(inner).copied();
    drop(frame.drain(outer..inner));
    if !layers.has(Header::Mpls) {
        set_type(frame, outer, type_by_version(version));
    }
    true
}

/// The offset of the outermost IP header, and the length of the packet from there according to it.
pub fn outermost_ip(layers: &Layers) -> Option<(usize, usize)> {
    let header = [Header::Ipv4, Header::Ipv6].into_iter().find(|&header| layers.has(header))?;
    Some((layers.offset(header)?, layers.len(header)? + layers.payload_len(header)?))
}

fn type_by_version(first: Option<u8>) -> u16 {
    if first.is_some_and(|byte| byte >> 4 == 6) { EtherType::IPV6.0 } else { EtherType::IPV4.0 }
}

fn insert(frame: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    drop(frame.splice(at..at, bytes.iter().copied()));
}

/// Sets the EtherType that ends at `end`.
fn set_type(frame: &mut [u8], end: usize, ethertype: u16) {
    frame[end - 2..end].copy_from_slice(&ethertype.to_be_bytes());
}
