// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The headers of scenarios and the offsets of their fields.
//!
//! This table is independent of the catalogue of `flowloom_wire`: expectations of scenarios must not derive from the
//! tables that the engines use. A test compares both.

use flowloom_wire::graph::{Parent, Slice, UserHeader, bits, bytes};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Eth,
    Vlan,
    Mpls,
    Arp,
    Ipv4,
    Ipv6,
    /// An IPv6 extension header by its protocol number.
    Extension(u8),
    Tcp,
    Udp,
    Icmp,
    Icmp6,
    Gtpu,
    /// A header that the function declares, by its index.
    User(usize),
    /// Bytes without structure.
    Bytes,
}

pub(crate) const HOP_BY_HOP: u8 = 0;
pub(crate) const ROUTING: u8 = 43;
pub(crate) const FRAGMENT: u8 = 44;
pub(crate) const DESTINATION: u8 = 60;
pub(crate) const GTPU_PORT: u16 = 2152;
/// An EtherType for experiments [RFC 9542]: the default if no known header follows Ethernet.
pub(crate) const NO_ETHERTYPE: u16 = 0x88b5;
/// "No next header" [RFC 8200 4.7].
pub(crate) const NO_PROTO: u8 = 59;

/// Kinds with a fixed name.
pub(crate) const NAMED: [(&str, Kind); 16] = [
    ("eth", Kind::Eth),
    ("vlan", Kind::Vlan),
    ("mpls", Kind::Mpls),
    ("arp", Kind::Arp),
    ("ipv4", Kind::Ipv4),
    ("ipv6", Kind::Ipv6),
    ("hopopts", Kind::Extension(HOP_BY_HOP)),
    ("dstopts", Kind::Extension(DESTINATION)),
    ("routing", Kind::Extension(ROUTING)),
    ("frag", Kind::Extension(FRAGMENT)),
    ("tcp", Kind::Tcp),
    ("udp", Kind::Udp),
    ("icmp", Kind::Icmp),
    ("icmp6", Kind::Icmp6),
    ("gtpu", Kind::Gtpu),
    ("bytes", Kind::Bytes),
];

type Named = (&'static str, Slice);

const ETH: &[Named] = &[("dst", bytes(0, 6)), ("src", bytes(6, 6)), ("type", bytes(12, 2))];
const VLAN: &[Named] = &[("pcp", bits(0, 3)), ("dei", bits(3, 1)), ("id", bits(4, 12)), ("type", bytes(2, 2))];
const MPLS: &[Named] = &[("label", bits(0, 20)), ("tc", bits(20, 3)), ("bos", bits(23, 1)), ("ttl", bytes(3, 1))];
const ARP: &[Named] = &[
    ("hardware", bytes(0, 2)),
    ("protocol", bytes(2, 2)),
    ("op", bytes(6, 2)),
    ("sha", bytes(8, 6)),
    ("spa", bytes(14, 4)),
    ("tha", bytes(18, 6)),
    ("tpa", bytes(24, 4)),
];
const IPV4: &[Named] = &[
    ("version", bits(0, 4)),
    ("ihl", bits(4, 4)),
    ("tos", bytes(1, 1)),
    ("dscp", bits(8, 6)),
    ("ecn", bits(14, 2)),
    ("len", bytes(2, 2)),
    ("id", bytes(4, 2)),
    ("df", bits(49, 1)),
    ("mf", bits(50, 1)),
    ("frag", bits(51, 13)),
    ("ttl", bytes(8, 1)),
    ("proto", bytes(9, 1)),
    ("checksum", bytes(10, 2)),
    ("src", bytes(12, 4)),
    ("dst", bytes(16, 4)),
];
const IPV6: &[Named] = &[
    ("version", bits(0, 4)),
    ("tc", bits(4, 8)),
    ("flow_label", bits(12, 20)),
    ("len", bytes(4, 2)),
    ("next", bytes(6, 1)),
    ("hop_limit", bytes(7, 1)),
    ("src", bytes(8, 16)),
    ("dst", bytes(24, 16)),
];
const EXTENSION: &[Named] = &[("next", bytes(0, 1)), ("len", bytes(1, 1))];
const FRAG: &[Named] = &[("next", bytes(0, 1)), ("offset", bits(16, 13)), ("more", bits(31, 1)), ("id", bytes(4, 4))];
const TCP: &[Named] = &[
    ("sport", bytes(0, 2)),
    ("dport", bytes(2, 2)),
    ("seq", bytes(4, 4)),
    ("ack", bytes(8, 4)),
    ("doff", bits(96, 4)),
    ("flags", bytes(13, 1)),
    ("is_cwr", bits(104, 1)),
    ("is_ece", bits(105, 1)),
    ("is_urg", bits(106, 1)),
    ("is_ack", bits(107, 1)),
    ("is_psh", bits(108, 1)),
    ("is_rst", bits(109, 1)),
    ("is_syn", bits(110, 1)),
    ("is_fin", bits(111, 1)),
    ("window", bytes(14, 2)),
    ("checksum", bytes(16, 2)),
    ("urgent", bytes(18, 2)),
];
const UDP: &[Named] =
    &[("sport", bytes(0, 2)), ("dport", bytes(2, 2)), ("len", bytes(4, 2)), ("checksum", bytes(6, 2))];
const ICMP: &[Named] = &[
    ("type", bytes(0, 1)),
    ("code", bytes(1, 1)),
    ("checksum", bytes(2, 2)),
    ("id", bytes(4, 2)),
    ("seq", bytes(6, 2)),
];
const GTPU: &[Named] = &[("flags", bytes(0, 1)), ("type", bytes(1, 1)), ("len", bytes(2, 2)), ("teid", bytes(4, 4))];

/// Aliases of fields: `ip.tos` is IPv6's traffic class.
const ALIASES: [(Kind, &str, &str); 5] = [
    (Kind::Ipv6, "tos", "tc"),
    (Kind::Ipv6, "ttl", "hop_limit"),
    (Kind::Tcp, "win", "window"),
    (Kind::Ipv4, "tc", "tos"),
    (Kind::Ipv4, "hop_limit", "ttl"),
];

impl Kind {
    fn table(self) -> &'static [Named] {
        match self {
            Kind::Eth => ETH,
            Kind::Vlan => VLAN,
            Kind::Mpls => MPLS,
            Kind::Arp => ARP,
            Kind::Ipv4 => IPV4,
            Kind::Ipv6 => IPV6,
            Kind::Extension(FRAGMENT) => FRAG,
            Kind::Extension(_) => EXTENSION,
            Kind::Tcp => TCP,
            Kind::Udp => UDP,
            Kind::Icmp | Kind::Icmp6 => ICMP,
            Kind::Gtpu => GTPU,
            Kind::User(_) | Kind::Bytes => &[],
        }
    }

    /// A header with default values in all fields.
    pub(crate) fn blank(self, user_headers: &[UserHeader]) -> Vec<u8> {
        let mut header = vec![0; self.len_bytes(user_headers)];
        match self {
            Kind::Eth => header[..12].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1]),
            Kind::Mpls => header[3] = 64,
            Kind::Arp => header[..6].copy_from_slice(&[0, 1, 8, 0, 6, 4]),
            Kind::Ipv4 => (header[0], header[8]) = (0x45, 64),
            Kind::Ipv6 => (header[0], header[7]) = (0x60, 64),
            // PadN over the remaining bytes.
            Kind::Extension(HOP_BY_HOP | DESTINATION) => header[2..4].copy_from_slice(&[1, 4]),
            Kind::Tcp => header[14..16].copy_from_slice(&[0xff, 0xff]),
            Kind::Gtpu => header[..2].copy_from_slice(&[0x30, 255]),
            _ => {}
        }
        header
    }

    /// Length of the fixed part in bytes.
    pub(crate) fn len_bytes(self, user_headers: &[UserHeader]) -> usize {
        match self {
            Kind::Eth => 14,
            Kind::Vlan | Kind::Mpls => 4,
            Kind::Arp => 28,
            Kind::Ipv4 | Kind::Tcp => 20,
            Kind::Ipv6 => 40,
            Kind::Extension(_) | Kind::Udp | Kind::Icmp | Kind::Icmp6 | Kind::Gtpu => 8,
            Kind::User(i) => user_headers.get(i).map_or(0, |header| user_bits(header) / 8),
            Kind::Bytes => 0,
        }
    }

    /// All fields, by name without the header's prefix.
    pub(crate) fn fields(self, user_headers: &[UserHeader]) -> Vec<(String, Slice)> {
        if let Kind::User(i) = self {
            let mut offset_bits = 0;
            let fields = user_headers.get(i).map_or(&[][..], |header| &header.fields);
            return fields
                .iter()
                .map(|field| {
                    let slice = bits(offset_bits, field.width_bits);
                    offset_bits += u16::from(field.width_bits);
                    (field.name.clone(), slice)
                })
                .collect();
        }
        self.table().iter().map(|(name, slice)| ((*name).to_owned(), *slice)).collect()
    }

    pub(crate) fn field(self, name: &str, user_headers: &[UserHeader]) -> Option<Slice> {
        if let Kind::User(_) = self {
            return self.fields(user_headers).into_iter().find(|(field, _)| field == name).map(|(_, slice)| slice);
        }
        let alias = ALIASES.iter().find(|(kind, alias, _)| *kind == self && *alias == name);
        let name = alias.map_or(name, |(_, _, name)| name);
        self.table().iter().find(|(field, _)| *field == name).map(|(_, slice)| *slice)
    }

    /// Name of the header, the prefix of its fields.
    pub(crate) fn name(self, user_headers: &[UserHeader]) -> String {
        if let Kind::User(i) = self {
            return user_headers.get(i).map_or_else(String::new, |header| header.name.clone());
        }
        let known = NAMED.iter().find(|(_, kind)| *kind == self);
        known.map_or_else(|| "extension".to_owned(), |(name, _)| (*name).to_owned())
    }

    pub(crate) fn is_ip(self) -> bool {
        matches!(self, Kind::Ipv4 | Kind::Ipv6)
    }

    pub(crate) fn checksum(self) -> Option<Slice> {
        match self {
            Kind::Ipv4 => Some(bytes(10, 2)),
            Kind::Tcp => Some(bytes(16, 2)),
            Kind::Udp => Some(bytes(6, 2)),
            Kind::Icmp | Kind::Icmp6 => Some(bytes(2, 2)),
            _ => None,
        }
    }

    /// The EtherType that selects this header.
    pub(crate) fn ethertype(self, user_headers: &[UserHeader]) -> Option<u16> {
        match self {
            Kind::Vlan => Some(0x8100),
            Kind::Mpls => Some(0x8847),
            Kind::Arp => Some(0x0806),
            Kind::Ipv4 => Some(0x0800),
            Kind::Ipv6 => Some(0x86dd),
            Kind::User(i) => selector_value(user_headers.get(i)?, Parent::Ethernet),
            _ => None,
        }
    }

    /// The IP protocol number that selects this header.
    pub(crate) fn proto(self, user_headers: &[UserHeader]) -> Option<u8> {
        match self {
            Kind::Extension(proto) => Some(proto),
            Kind::Tcp => Some(6),
            Kind::Udp => Some(17),
            Kind::Icmp => Some(1),
            Kind::Icmp6 => Some(58),
            Kind::Ipv4 => Some(4),
            Kind::Ipv6 => Some(41),
            Kind::User(i) => selector_value(user_headers.get(i)?, Parent::Ip).map(|proto| proto as u8),
            _ => None,
        }
    }
}

/// The first value that selects a user-defined header after `parent`.
fn selector_value(header: &UserHeader, parent: Parent) -> Option<u16> {
    header.when.first().filter(|_| header.after == parent).map(|(_, value)| *value as u16)
}

fn user_bits(header: &UserHeader) -> usize {
    header.fields.iter().map(|field| usize::from(field.width_bits)).sum()
}

#[cfg(test)]
mod tests {
    use flowloom_wire::Header;
    use flowloom_wire::field::{FieldId, Source};

    use super::*;

    /// Field names that this table and the catalogue share must refer to the same bits.
    #[test]
    fn the_table_agrees_with_the_catalogue() {
        let mut compared = 0;
        for field in FieldId::all() {
            let name = field.name();
            let Source::Header(of, slice) = field.source() else { continue };
            // In scenarios these fields belong to the extension header, not to `ipv6`.
            if matches!(of, Header::Ipv6Fragment | Header::InnerIpv6Fragment) {
                continue;
            }
            let Some((header, rest)) = name.split_once('.') else { continue };
            let header = header.trim_end_matches(|c: char| ('2'..='4').contains(&c) && !header.starts_with("ip"));
            let Some((_, kind)) = NAMED.iter().find(|(known, _)| *known == header) else {
                assert!(header == "inner" || name.starts_with("tcp.opt"), "no header for `{name}`");
                continue;
            };
            if rest.starts_with("opt.") {
                continue;
            }
            assert_eq!(kind.field(rest, &[]), Some(slice), "{name}");
            compared += 1;
        }
        assert!(compared > 60, "{compared}");
    }
}
