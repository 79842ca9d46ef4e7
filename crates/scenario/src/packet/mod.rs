// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packet model of scenarios: a list of headers with fields by name, and a payload.
//!
//! [`Packet::encode`] serializes a packet and fills derived fields (lengths, checksums, next-header fields) unless they
//! were given. [`Packet::dissect`] is the inverse, for the output of engines. Both are independent of `flowloom_wire`,
//! whose tables the engines use.

mod change;
mod diff;
mod dissect;
mod fields;
mod format;
mod read;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use flowloom_wire::checksum::Sum;
use flowloom_wire::field::FieldId;
use flowloom_wire::graph::{Slice, UserHeader, bits, bytes};

pub(super) use change::{Changed, Target};
pub(super) use diff::differences;
pub(super) use fields::Kind;
use fields::{GTPU_PORT, NO_ETHERTYPE, NO_PROTO};
pub(super) use format::mac_text;
pub(super) use read::{Reader, field_value, is_reserved, payload};

/// A header: the fixed part, then options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Layer {
    pub(super) kind: Kind,
    pub(super) bytes: Vec<u8>,
    /// Fields with an explicit value.
    pub(super) explicit: Vec<Slice>,
    /// Fields that are not compared.
    pub(super) ignored: Vec<Slice>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Packet {
    pub(super) layers: Vec<Layer>,
    pub(super) payload: Vec<u8>,
    /// True if the payload is not compared.
    pub(super) ignore_payload: bool,
    /// Bytes after the IP packet.
    pub(super) trailer: Vec<u8>,
    /// Maximum number of bytes present.
    pub(super) cut: Option<usize>,
}

/// The bytes of a packet and the offsets of its headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Encoded {
    pub(super) bytes: Vec<u8>,
    pub(super) offsets: Vec<usize>,
}

impl Layer {
    pub(super) fn new(kind: Kind, user_headers: &[UserHeader]) -> Layer {
        Layer { kind, bytes: kind.blank(user_headers), explicit: Vec::new(), ignored: Vec::new() }
    }

    /// Reads a field; 0 if the header is too short.
    pub(super) fn get(&self, slice: Slice) -> u128 {
        slice.read(&self.bytes).unwrap_or(0)
    }

    pub(super) fn set_explicit(&mut self, slice: Slice, value: u128) {
        slice.write(&mut self.bytes, value);
        self.ignored.retain(|any| *any != slice);
        if !self.explicit.contains(&slice) {
            self.explicit.push(slice);
        }
    }

    /// Sets a derived field, unless it was given.
    fn fill(&mut self, slice: Slice, value: u128) {
        let overlaps = |explicit: &Slice| {
            explicit.offset_bits < slice.offset_bits + u16::from(slice.width_bits)
                && slice.offset_bits < explicit.offset_bits + u16::from(explicit.width_bits)
        };
        if !self.explicit.iter().any(overlaps) {
            slice.write(&mut self.bytes, value);
        }
    }
}

impl Packet {
    pub(super) fn encode(&self, user_headers: &[UserHeader]) -> Encoded {
        let mut layers = self.layers.clone();
        let mut rest = self.payload.clone();
        for i in (0..layers.len()).rev() {
            let (before, after) = layers.split_at_mut(i);
            let [layer, after @ ..] = after else { continue };
            fill(layer, before, after, &rest, user_headers);
            let mut whole = layer.bytes.clone();
            whole.append(&mut rest);
            rest = whole;
        }
        let mut offsets = Vec::with_capacity(layers.len());
        let mut at = 0;
        for layer in &layers {
            offsets.push(at);
            at += layer.bytes.len();
        }
        rest.extend(&self.trailer);
        rest.truncate(self.cut.unwrap_or(usize::MAX));
        Encoded { bytes: rest, offsets }
    }

    /// Index of the second IP header: the start of the tunnelled packet.
    pub(super) fn inner(&self) -> Option<usize> {
        self.layers.iter().enumerate().filter(|(_, layer)| layer.kind.is_ip()).nth(1).map(|(i, _)| i)
    }
}

/// Fills the fields derived from the other headers and from the bytes after this one.
fn fill(layer: &mut Layer, before: &mut [Layer], after: &[Layer], rest: &[u8], user_headers: &[UserHeader]) {
    let next = after.first().map(|layer| layer.kind);
    let header_len = layer.bytes.len();
    match layer.kind {
        Kind::Eth | Kind::Vlan => {
            let ethertype = next.and_then(|next| next.ethertype(user_headers)).unwrap_or(NO_ETHERTYPE);
            layer.fill(bytes(header_len as u16 - 2, 2), ethertype.into());
        }
        Kind::Mpls => layer.fill(bits(23, 1), u128::from(next != Some(Kind::Mpls))),
        Kind::Ipv4 => {
            layer.fill(bits(4, 4), (header_len / 4) as u128);
            layer.fill(bytes(2, 2), (header_len + rest.len()) as u128);
            layer.fill(bytes(9, 1), next.and_then(|next| next.proto(user_headers)).unwrap_or(NO_PROTO).into());
            let sum = |bytes: &[u8]| Sum::new().bytes(bytes);
            checksum(layer, &[], sum);
        }
        Kind::Ipv6 => {
            layer.fill(bytes(4, 2), rest.len() as u128);
            layer.fill(bytes(6, 1), next.and_then(|next| next.proto(user_headers)).unwrap_or(NO_PROTO).into());
        }
        Kind::Extension(kind) => {
            layer.fill(bytes(0, 1), next.and_then(|next| next.proto(user_headers)).unwrap_or(NO_PROTO).into());
            if kind != fields::FRAGMENT {
                layer.fill(bytes(1, 1), (header_len / 8).saturating_sub(1) as u128);
            }
        }
        Kind::Tcp => {
            layer.fill(bits(96, 4), (header_len / 4) as u128);
            let pseudo = pseudo_header(before, 6, header_len + rest.len());
            checksum(layer, rest, |bytes| pseudo.bytes(bytes));
        }
        Kind::Udp => {
            default_ports(layer, next, user_headers);
            layer.fill(bytes(4, 2), (header_len + rest.len()) as u128);
            let pseudo = pseudo_header(before, 17, header_len + rest.len());
            checksum(layer, rest, |bytes| pseudo.bytes(bytes));
        }
        Kind::Icmp => checksum(layer, rest, |bytes| Sum::new().bytes(bytes)),
        Kind::Icmp6 => {
            let pseudo = pseudo_header(before, 58, header_len + rest.len());
            checksum(layer, rest, |bytes| pseudo.bytes(bytes));
        }
        Kind::Gtpu => layer.fill(bytes(2, 2), (header_len + rest.len() - 8) as u128),
        Kind::Arp | Kind::User(_) | Kind::Bytes => {}
    }
}

/// Fills the ports that select the next header, unless they were given.
fn default_ports(layer: &mut Layer, next: Option<Kind>, user_headers: &[UserHeader]) {
    match next {
        Some(Kind::Gtpu) => {
            layer.fill(bytes(0, 2), GTPU_PORT.into());
            layer.fill(bytes(2, 2), GTPU_PORT.into());
        }
        Some(Kind::User(i)) => {
            for (field, value) in user_headers.get(i).map_or(&[][..], |header| &header.when) {
                if let Some(slice) = port_slice(*field) {
                    layer.fill(slice, u128::from(*value));
                }
            }
        }
        _ => {}
    }
}

/// Bits of a port in TCP and UDP.
fn port_slice(field: FieldId) -> Option<Slice> {
    match field.name().rsplit('.').next() {
        Some("sport") => Some(bytes(0, 2)),
        Some("dport") => Some(bytes(2, 2)),
        _ => None,
    }
}

/// The sum over the pseudo header of the closest IP header.
fn pseudo_header(before: &[Layer], proto: u8, len_bytes: usize) -> Sum {
    let Some(ip) = before.iter().rev().find(|layer| layer.kind.is_ip()) else { return Sum::new() };
    let address = |offset: u16| match ip.kind {
        Kind::Ipv4 => IpAddr::V4(Ipv4Addr::from_bits(ip.get(bytes(offset, 4)) as u32)),
        _ => IpAddr::V6(Ipv6Addr::from_bits(ip.get(bytes(offset, 16)))),
    };
    let (src, dst) = if ip.kind == Kind::Ipv4 { (address(12), address(16)) } else { (address(8), address(24)) };
    Sum::new().pseudo_header(src, dst, proto, len_bytes as u32)
}

/// Fills the checksum over the header and, except for IPv4, the bytes after it.
fn checksum(layer: &mut Layer, rest: &[u8], sum: impl Fn(&[u8]) -> Sum) {
    let Some(slice) = layer.kind.checksum() else { return };
    if layer.explicit.contains(&slice) {
        return;
    }
    slice.write(&mut layer.bytes, 0);
    let mut covered = layer.bytes.clone();
    if layer.kind != Kind::Ipv4 {
        covered.extend(rest);
    }
    let value = match sum(&covered).checksum() {
        0 if layer.kind == Kind::Udp => 0xffff,
        value => value,
    };
    slice.write(&mut layer.bytes, value.into());
}

#[cfg(test)]
mod tests;
