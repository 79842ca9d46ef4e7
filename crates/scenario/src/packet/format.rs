// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Formats packets in the syntax of scenarios.

use std::net::{Ipv4Addr, Ipv6Addr};

use flowloom_wire::graph::{Slice, UserHeader, bytes};

use super::fields::NO_ETHERTYPE;
use super::{Kind, Layer, Packet};

/// TCP flags by bit.
pub(super) const TCP_FLAGS: [(&str, u8); 8] = [
    ("fin", 0x01),
    ("syn", 0x02),
    ("rst", 0x04),
    ("psh", 0x08),
    ("ack", 0x10),
    ("urg", 0x20),
    ("ece", 0x40),
    ("cwr", 0x80),
];

pub(in super::super) fn mac_text(bits: u128) -> String {
    let bytes = (bits as u64).to_be_bytes();
    bytes[2..].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

impl Packet {
    /// Formats the fields that differ from the defaults; Ethernet only if its addresses do.
    pub(in super::super) fn format(&self, user_headers: &[UserHeader]) -> String {
        let mut format: Vec<String> = Vec::new();
        let mut layers = self.layers.iter().peekable();
        while let Some(layer) = layers.next() {
            match layer.kind {
                Kind::Eth
                    if layer.bytes[..12] == Kind::Eth.blank(user_headers)[..12]
                        && layers.peek().is_some()
                        && explicit_ethertype(layer, layers.peek().copied(), user_headers).is_empty() => {}
                Kind::Eth | Kind::Vlan => {
                    format.push(
                        format_header(layer, user_headers)
                            + &explicit_ethertype(layer, layers.peek().copied(), user_headers),
                    );
                }
                kind if kind.is_ip() => match layers.peek() {
                    Some(inner) if matches!(inner.kind, Kind::Tcp | Kind::Udp | Kind::Icmp | Kind::Icmp6) => {
                        format.push(format_ip(layer, inner, user_headers));
                        layers.next();
                    }
                    _ => format.push(format_header(layer, user_headers)),
                },
                _ => format.push(format_header(layer, user_headers)),
            }
        }
        let mut text = format.join(" / ");
        if !self.payload.is_empty() {
            let counts_up = self.payload.iter().enumerate().all(|(i, &byte)| byte == i as u8);
            let data = match counts_up {
                true => self.payload.len().to_string(),
                false => hex(&self.payload),
            };
            text.push_str(&format!(" data {data}"));
        }
        if !self.trailer.is_empty() {
            text.push_str(&format!(" (and {} bytes after it)", self.trailer.len()));
        }
        text
    }

    /// Names of the headers.
    pub(in super::super) fn outline(&self, user_headers: &[UserHeader]) -> String {
        self.layers.iter().map(|layer| layer.kind.name(user_headers)).collect::<Vec<_>>().join(" / ")
    }
}

/// Formats the first bytes in hexadecimal.
fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().take(24).map(|byte| format!("{byte:02x}")).collect();
    let more = if bytes.len() > 24 { format!("… ({} bytes)", bytes.len()) } else { String::new() };
    format!("0x{digits}{more}")
}

pub(super) fn value_text(kind: Kind, name: &str, slice: Slice, value: u128) -> String {
    match (kind, name, slice.width_bits) {
        (Kind::Tcp, "flags", _) => {
            let set: Vec<&str> =
                TCP_FLAGS.iter().filter(|(_, bit)| value & u128::from(*bit) != 0).map(|f| f.0).collect();
            if set.is_empty() { "none".to_owned() } else { set.join(" ") }
        }
        (Kind::Ipv4, "src" | "dst", _) | (Kind::Arp, "spa" | "tpa", _) => Ipv4Addr::from_bits(value as u32).to_string(),
        (Kind::Ipv6, "src" | "dst", _) => Ipv6Addr::from_bits(value).to_string(),
        (Kind::Eth, "src" | "dst", _) | (Kind::Arp, "sha" | "tha", _) => mac_text(value),
        (_, "type" | "checksum", 16) => format!("{value:#06x}"),
        _ => value.to_string(),
    }
}

fn address(layer: &Layer, name: &str, user_headers: &[UserHeader]) -> String {
    let slice = layer.kind.field(name, user_headers).unwrap_or(bytes(0, 0));
    value_text(layer.kind, name, slice, layer.get(slice))
}

/// The fields that differ from those of a blank header, without derived fields and those already shown.
fn fields(layer: &Layer, formatted: &[&str], user_headers: &[UserHeader]) -> String {
    let blank = Layer::new(layer.kind, user_headers);
    let derived = ["checksum", "len", "ihl", "doff", "version", "next", "proto", "bos", "hardware", "protocol"];
    let mut text = String::new();
    for (name, slice) in layer.kind.fields(user_headers) {
        let is_user = matches!(layer.kind, Kind::User(_));
        let is_derived =
            derived.contains(&name.as_str()) || name == "type" && matches!(layer.kind, Kind::Eth | Kind::Vlan);
        let is_part = name.starts_with("is_") || matches!(name.as_str(), "dscp" | "ecn");
        if formatted.contains(&name.as_str()) || !is_user && (is_derived || is_part) {
            continue;
        }
        let value = layer.get(slice);
        if is_user || value != blank.get(slice) {
            text.push_str(&format!(" {name} {}", value_text(layer.kind, &name, slice, value)));
        }
    }
    let fixed = blank.bytes.len();
    if layer.bytes.len() > fixed {
        text.push_str(&format!(" options {}", hex(&layer.bytes[fixed..])));
    }
    text
}

/// The EtherType, if it was set explicitly and is not that of the next header.
fn explicit_ethertype(layer: &Layer, next: Option<&Layer>, user_headers: &[UserHeader]) -> String {
    let slice = bytes(layer.bytes.len() as u16 - 2, 2);
    let derived = next.and_then(|next| next.kind.ethertype(user_headers)).unwrap_or(NO_ETHERTYPE);
    let value = layer.get(slice);
    match layer.explicit.contains(&slice) && value != u128::from(derived) {
        true => format!(" type {value:#06x}"),
        false => String::new(),
    }
}

fn format_header(layer: &Layer, user_headers: &[UserHeader]) -> String {
    let name = layer.kind.name(user_headers);
    match layer.kind {
        Kind::Eth | Kind::Ipv4 | Kind::Ipv6 => {
            let (src, dst) = (address(layer, "src", user_headers), address(layer, "dst", user_headers));
            format!("{name} {src} > {dst}{}", fields(layer, &["src", "dst"], user_headers))
        }
        Kind::Arp => {
            let (src, dst) = (address(layer, "spa", user_headers), address(layer, "tpa", user_headers));
            let op = match layer.get(bytes(6, 2)) {
                1 => "request".to_owned(),
                2 => "reply".to_owned(),
                op => format!("op {op}"),
            };
            format!("{name} {op} {src} > {dst}{}", fields(layer, &["op", "spa", "tpa"], user_headers))
        }
        Kind::Vlan => format!("{name} {}{}", address(layer, "id", user_headers), fields(layer, &["id"], user_headers)),
        Kind::Mpls => {
            format!("{name} {}{}", address(layer, "label", user_headers), fields(layer, &["label"], user_headers))
        }
        Kind::Gtpu => format!(
            "{name} {}{}",
            address(layer, "teid", user_headers),
            fields(layer, &["teid", "flags"], user_headers)
        ),
        Kind::Tcp | Kind::Udp => {
            let (src, dst) = (address(layer, "sport", user_headers), address(layer, "dport", user_headers));
            format!("{name} {src} > {dst}{}", transport(layer, user_headers))
        }
        Kind::Bytes => format!("{name} {}", hex(&layer.bytes)),
        _ => format!("{name}{}", fields(layer, &[], user_headers)),
    }
}

fn transport(layer: &Layer, user_headers: &[UserHeader]) -> String {
    let formatted = ["sport", "dport", "flags"];
    match layer.kind {
        Kind::Tcp => {
            let flags = address(layer, "flags", user_headers);
            format!(" {flags}{}", fields(layer, &formatted, user_headers))
        }
        _ => fields(layer, &formatted, user_headers),
    }
}

/// Formats an IP header with its transport header: `tcp A:P > B:P syn ttl 3`.
fn format_ip(ip: &Layer, inner: &Layer, user_headers: &[UserHeader]) -> String {
    let (src, dst) = (address(ip, "src", user_headers), address(ip, "dst", user_headers));
    let of_ip = fields(ip, &["src", "dst"], user_headers);
    let name = inner.kind.name(user_headers);
    match inner.kind {
        Kind::Tcp | Kind::Udp => {
            let end = |address: String, port: &str| {
                let port = self::address(inner, port, user_headers);
                if ip.kind == Kind::Ipv6 { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
            };
            format!("{name} {} > {}{}{of_ip}", end(src, "sport"), end(dst, "dport"), transport(inner, user_headers))
        }
        _ => format!("{name} {src} > {dst}{}{of_ip}", fields(inner, &[], user_headers)),
    }
}
