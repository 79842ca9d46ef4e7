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

/// Formats a MAC address.
pub(in super::super) fn mac_text(bits: u128) -> String {
    let bytes = (bits as u64).to_be_bytes();
    bytes[2..].iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":")
}

impl Packet {
    /// Formats the fields that differ from the defaults; Ethernet only if its addresses do.
    pub(in super::super) fn words(&self, own: &[UserHeader]) -> String {
        let mut words: Vec<String> = Vec::new();
        let mut layers = self.layers.iter().peekable();
        while let Some(layer) = layers.next() {
            match layer.kind {
                Kind::Eth
                    if layer.bytes[..12] == Kind::Eth.blank(own)[..12]
                        && layers.peek().is_some()
                        && odd_type(layer, layers.peek().copied(), own).is_empty() => {}
                Kind::Eth | Kind::Vlan => {
                    words.push(alone(layer, own) + &odd_type(layer, layers.peek().copied(), own));
                }
                kind if kind.is_ip() => match layers.peek() {
                    Some(inner) if matches!(inner.kind, Kind::Tcp | Kind::Udp | Kind::Icmp | Kind::Icmp6) => {
                        words.push(joined(layer, inner, own));
                        layers.next();
                    }
                    _ => words.push(alone(layer, own)),
                },
                _ => words.push(alone(layer, own)),
            }
        }
        let mut text = words.join(" / ");
        if !self.payload.is_empty() {
            let counts_up = self.payload.iter().enumerate().all(|(i, &byte)| byte == i as u8);
            let data = match counts_up {
                true => self.payload.len().to_string(),
                false => hex(&self.payload),
            };
            text.push_str(&format!(" data {data}"));
        }
        if !self.trailer.is_empty() {
            text.push_str(&format!(" (and {} bytes behind it)", self.trailer.len()));
        }
        text
    }

    /// Names of the headers.
    pub(in super::super) fn outline(&self, own: &[UserHeader]) -> String {
        self.layers.iter().map(|layer| layer.kind.name(own)).collect::<Vec<_>>().join(" / ")
    }
}

/// Formats the first bytes in hexadecimal.
fn hex(bytes: &[u8]) -> String {
    let digits: String = bytes.iter().take(24).map(|byte| format!("{byte:02x}")).collect();
    let more = if bytes.len() > 24 { format!("… ({} bytes)", bytes.len()) } else { String::new() };
    format!("0x{digits}{more}")
}

/// Formats a field's value.
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

fn address(layer: &Layer, name: &str, own: &[UserHeader]) -> String {
    let slice = layer.kind.field(name, own).unwrap_or(bytes(0, 0));
    value_text(layer.kind, name, slice, layer.get(slice))
}

/// The fields that differ from those of a blank header, without derived fields and those already shown.
fn fields(layer: &Layer, shown: &[&str], own: &[UserHeader]) -> String {
    let blank = Layer::new(layer.kind, own);
    let derived = ["checksum", "len", "ihl", "doff", "version", "next", "proto", "bos", "hardware", "protocol"];
    let mut text = String::new();
    for (name, slice) in layer.kind.fields(own) {
        let is_user = matches!(layer.kind, Kind::User(_));
        let is_derived =
            derived.contains(&name.as_str()) || name == "type" && matches!(layer.kind, Kind::Eth | Kind::Vlan);
        let is_part = name.starts_with("is_") || matches!(name.as_str(), "dscp" | "ecn");
        if shown.contains(&name.as_str()) || !is_user && (is_derived || is_part) {
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
fn odd_type(layer: &Layer, next: Option<&Layer>, own: &[UserHeader]) -> String {
    let slice = bytes(layer.bytes.len() as u16 - 2, 2);
    let derived = next.and_then(|next| next.kind.ethertype(own)).unwrap_or(NO_ETHERTYPE);
    let value = layer.get(slice);
    match layer.given.contains(&slice) && value != u128::from(derived) {
        true => format!(" type {value:#06x}"),
        false => String::new(),
    }
}

fn alone(layer: &Layer, own: &[UserHeader]) -> String {
    let name = layer.kind.name(own);
    match layer.kind {
        Kind::Eth | Kind::Ipv4 | Kind::Ipv6 => {
            let (src, dst) = (address(layer, "src", own), address(layer, "dst", own));
            format!("{name} {src} > {dst}{}", fields(layer, &["src", "dst"], own))
        }
        Kind::Arp => {
            let (src, dst) = (address(layer, "spa", own), address(layer, "tpa", own));
            let op = match layer.get(bytes(6, 2)) {
                1 => "request".to_owned(),
                2 => "reply".to_owned(),
                op => format!("op {op}"),
            };
            format!("{name} {op} {src} > {dst}{}", fields(layer, &["op", "spa", "tpa"], own))
        }
        Kind::Vlan => format!("{name} {}{}", address(layer, "id", own), fields(layer, &["id"], own)),
        Kind::Mpls => format!("{name} {}{}", address(layer, "label", own), fields(layer, &["label"], own)),
        Kind::Gtpu => format!("{name} {}{}", address(layer, "teid", own), fields(layer, &["teid", "flags"], own)),
        Kind::Tcp | Kind::Udp => {
            let (src, dst) = (address(layer, "sport", own), address(layer, "dport", own));
            format!("{name} {src} > {dst}{}", transport(layer, own))
        }
        Kind::Bytes => format!("{name} {}", hex(&layer.bytes)),
        _ => format!("{name}{}", fields(layer, &[], own)),
    }
}

fn transport(layer: &Layer, own: &[UserHeader]) -> String {
    let shown = ["sport", "dport", "flags"];
    match layer.kind {
        Kind::Tcp => {
            let flags = address(layer, "flags", own);
            format!(" {flags}{}", fields(layer, &shown, own))
        }
        _ => fields(layer, &shown, own),
    }
}

/// Formats an IP header with its transport header: `tcp A:P > B:P syn ttl 3`.
fn joined(ip: &Layer, inner: &Layer, own: &[UserHeader]) -> String {
    let (src, dst) = (address(ip, "src", own), address(ip, "dst", own));
    let of_ip = fields(ip, &["src", "dst"], own);
    let name = inner.kind.name(own);
    match inner.kind {
        Kind::Tcp | Kind::Udp => {
            let end = |address: String, port: &str| {
                let port = self::address(inner, port, own);
                if ip.kind == Kind::Ipv6 { format!("[{address}]:{port}") } else { format!("{address}:{port}") }
            };
            format!("{name} {} > {}{}{of_ip}", end(src, "sport"), end(dst, "dport"), transport(inner, own))
        }
        _ => format!("{name} {src} > {dst}{}{of_ip}", fields(inner, &[], own)),
    }
}
