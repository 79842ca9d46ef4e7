// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Parses bytes into headers.

use flowloom_wire::field::FieldId;
use flowloom_wire::graph::{Parent, UserHeader, bits, bytes};

use super::fields::{DESTINATION, FRAGMENT, GTPU_PORT, HOP_BY_HOP, ROUTING};
use super::{Kind, Layer, Packet};

/// Maximum number of dissected headers.
const MAX_LAYERS: usize = 64;

impl Packet {
    /// Dissects a packet as far as its headers are known and present; the rest is payload.
    pub(in super::super) fn dissect(packet: &[u8], user_headers: &[UserHeader]) -> Packet {
        let mut dissection = Dissection { packet: Packet::default(), rest: packet, user_headers };
        let mut next = Some(Kind::Eth);
        while let Some(kind) = next {
            next = if dissection.packet.layers.len() < MAX_LAYERS { dissection.take(kind) } else { None };
        }
        let mut packet = dissection.packet;
        packet.payload = dissection.rest.to_vec();
        packet
    }
}

struct Dissection<'a> {
    packet: Packet,
    rest: &'a [u8],
    user_headers: &'a [UserHeader],
}

impl Dissection<'_> {
    /// Consumes a header of this kind if it is present and valid. Returns the kind of the next header.
    fn take(&mut self, kind: Kind) -> Option<Kind> {
        let fixed = kind.len_bytes(self.user_headers);
        let head = self.rest.get(..fixed)?;
        let nibble = head.first().map(|byte| usize::from(byte >> 4));
        let is_valid = match kind {
            Kind::Ipv4 => nibble == Some(4),
            Kind::Ipv6 => nibble == Some(6),
            Kind::Gtpu => head[0] >> 4 == 3,
            _ => true,
        };
        let len = match kind {
            Kind::Ipv4 => usize::from(head[0] & 15) * 4,
            Kind::Tcp => usize::from(head[12] >> 4) * 4,
            Kind::Extension(FRAGMENT) => fixed,
            Kind::Extension(_) => (usize::from(head[1]) + 1) * 8,
            Kind::Gtpu => gtpu_len(self.rest)?,
            _ => fixed,
        };
        if !is_valid || len < fixed {
            return None;
        }
        let header = self.rest.get(..len)?.to_vec();
        self.rest = &self.rest[len..];
        // Fields that select the next header may have another value than the default.
        let explicit = match kind {
            Kind::Eth | Kind::Vlan => vec![bytes(len as u16 - 2, 2)],
            Kind::Mpls => vec![bits(23, 1)],
            Kind::Ipv4 => vec![bytes(9, 1)],
            Kind::Ipv6 => vec![bytes(6, 1)],
            Kind::Extension(_) => vec![bytes(0, 1)],
            Kind::Udp => vec![bytes(0, 2), bytes(2, 2)],
            _ => Vec::new(),
        };
        let layer = Layer { kind, bytes: header, explicit, ignored: Vec::new() };
        let next = self.next(&layer);
        self.limit(&layer);
        self.packet.layers.push(layer);
        next
    }

    /// Truncates the rest to the length in the header.
    fn limit(&mut self, layer: &Layer) {
        let len = match layer.kind {
            Kind::Ipv4 => (layer.get(bytes(2, 2)) as usize).saturating_sub(layer.bytes.len()),
            Kind::Ipv6 => layer.get(bytes(4, 2)) as usize,
            _ => return,
        };
        if len < self.rest.len() && self.packet.trailer.is_empty() {
            let (inside, outside) = self.rest.split_at(len);
            self.packet.trailer = outside.to_vec();
            self.rest = inside;
        }
    }

    fn next(&self, layer: &Layer) -> Option<Kind> {
        match layer.kind {
            Kind::Eth | Kind::Vlan => self.by_ethertype(layer.get(bytes(layer.bytes.len() as u16 - 2, 2)) as u16),
            Kind::Mpls if layer.get(bits(23, 1)) == 0 => Some(Kind::Mpls),
            Kind::Mpls => self.by_nibble(),
            Kind::Ipv4 if layer.get(bits(51, 13)) != 0 => None,
            Kind::Ipv4 => self.by_proto(layer.get(bytes(9, 1)) as u8),
            Kind::Ipv6 => self.by_proto(layer.get(bytes(6, 1)) as u8),
            Kind::Extension(FRAGMENT) if layer.get(bits(16, 13)) != 0 => None,
            Kind::Extension(_) => self.by_proto(layer.get(bytes(0, 1)) as u8),
            Kind::Udp if layer.get(bytes(2, 2)) == u128::from(GTPU_PORT) && !self.is_inside() => Some(Kind::Gtpu),
            Kind::Udp => self.user_header_after(Parent::Udp, layer),
            Kind::Tcp => self.user_header_after(Parent::Tcp, layer),
            Kind::Gtpu if layer.get(bytes(1, 1)) == 255 => self.by_nibble(),
            Kind::User(i) => self.user_header_after(Parent::User(i), layer),
            Kind::Arp | Kind::Icmp | Kind::Icmp6 | Kind::Gtpu | Kind::Bytes => None,
        }
    }

    /// True within a tunnelled packet.
    fn is_inside(&self) -> bool {
        self.packet.layers.iter().filter(|layer| layer.kind.is_ip()).count() > 1
    }

    fn by_nibble(&self) -> Option<Kind> {
        match self.rest.first()? >> 4 {
            4 => Some(Kind::Ipv4),
            6 => Some(Kind::Ipv6),
            _ => None,
        }
    }

    fn by_ethertype(&self, ethertype: u16) -> Option<Kind> {
        match ethertype {
            0x8100 | 0x88a8 => Some(Kind::Vlan),
            0x8847 | 0x8848 => Some(Kind::Mpls),
            0x0806 => Some(Kind::Arp),
            0x0800 => Some(Kind::Ipv4),
            0x86dd => Some(Kind::Ipv6),
            other => self.user_header_by_value(Parent::Ethernet, other.into()),
        }
    }

    fn by_proto(&self, proto: u8) -> Option<Kind> {
        match proto {
            6 => Some(Kind::Tcp),
            17 => Some(Kind::Udp),
            1 => Some(Kind::Icmp),
            58 => Some(Kind::Icmp6),
            HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION => Some(Kind::Extension(proto)),
            other if !self.is_inside() => self.user_header_by_value(Parent::Ip, other.into()),
            _ => None,
        }
    }

    /// The user-defined header that this value selects after Ethernet or IP.
    fn user_header_by_value(&self, parent: Parent, found: u64) -> Option<Kind> {
        let fits = |header: &UserHeader| header.after == parent && header.when.iter().any(|(_, value)| *value == found);
        self.user_headers.iter().position(fits).map(Kind::User)
    }

    /// The user-defined header that fields of `layer` select, or that always follows.
    fn user_header_after(&self, parent: Parent, layer: &Layer) -> Option<Kind> {
        if self.is_inside() {
            return None;
        }
        let has = |(field, value): &(FieldId, u64)| {
            let slice = match field.source() {
                flowloom_wire::field::Source::Header(_, slice) => slice,
                _ => return false,
            };
            layer.get(slice) == u128::from(*value)
        };
        let fits =
            |header: &UserHeader| header.after == parent && (header.when.is_empty() || header.when.iter().any(has));
        self.user_headers.iter().position(fits).map(Kind::User)
    }
}

/// Length of a GTP-U header with its options and extension headers [TS 29.281 5].
fn gtpu_len(packet: &[u8]) -> Option<usize> {
    let flags = *packet.first()?;
    if flags & 7 == 0 {
        return Some(8);
    }
    let mut len = 12;
    let mut next = if flags & 4 != 0 { *packet.get(11)? } else { 0 };
    while next != 0 {
        len += (usize::from(*packet.get(len)?) * 4).max(4);
        next = *packet.get(len - 1)?;
    }
    Some(len)
}
