// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Differences between the expected packet and the output bytes, as text.

use std::collections::BTreeMap;

use flowloom_wire::graph::{Slice, UserHeader};

use super::change::correct_checksums;
use super::format::value_text;
use super::{Kind, Layer, Packet};

/// All differences; none if the packets match except for ignored fields.
pub(in super::super) fn differences(expected: &Packet, found: &[u8], user_headers: &[UserHeader]) -> Vec<String> {
    let expected = filled_in(expected, found, user_headers).encode(user_headers).bytes;
    if expected == found {
        return Vec::new();
    }
    let (e, f) = (Packet::dissect(&expected, user_headers), Packet::dissect(found, user_headers));
    let mut list = Vec::new();
    let (e_outline, f_outline) = (e.outline(user_headers), f.outline(user_headers));
    if e_outline != f_outline {
        list.push(format!("headers: expected {e_outline}, found {f_outline}"));
        list.push(format!("expected {}", e.format(user_headers)));
        list.push(format!("found    {}", f.format(user_headers)));
    } else {
        let names = names(&e.layers, user_headers);
        let right = correct_checksums(&f, user_headers);
        for (i, (a, b)) in e.layers.iter().zip(&f.layers).enumerate() {
            layers(a, b, &names[i], right[i], user_headers, &mut list);
        }
        bytes("payload", &e.payload, &f.payload, &mut list);
        bytes("after the IP packet", &e.trailer, &f.trailer, &mut list);
    }
    if list.is_empty() {
        bytes("packet", &expected, found, &mut list);
    }
    list
}

/// The expected packet, with ignored fields copied from the found one.
fn filled_in(expected: &Packet, found: &[u8], user_headers: &[UserHeader]) -> Packet {
    let mut packet = expected.clone();
    let offsets = packet.encode(user_headers).offsets;
    for (layer, offset) in packet.layers.iter_mut().zip(offsets) {
        for slice in layer.ignored.clone() {
            if let Some(value) = found.get(offset..).and_then(|bytes| slice.read(bytes)) {
                slice.write(&mut layer.bytes, value);
            }
        }
    }
    if packet.ignore_payload {
        let headers: usize = packet.layers.iter().map(|layer| layer.bytes.len()).sum();
        let end = found.len().saturating_sub(packet.trailer.len());
        packet.payload = found.get(headers..end).unwrap_or(&[]).to_vec();
    }
    packet
}

/// Field prefixes of the headers: `vlan2.`, `inner.ipv4.`.
fn names(layers: &[Layer], user_headers: &[UserHeader]) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let mut is_inner = false;
    let mut ips = 0;
    let name = |layer: &Layer| {
        ips += usize::from(layer.kind.is_ip());
        if ips == 2 && !is_inner {
            is_inner = true;
            seen.clear();
        }
        let name = layer.kind.name(user_headers);
        let nth = seen.entry(name.clone()).or_default();
        *nth += 1;
        let number = if *nth > 1 { nth.to_string() } else { String::new() };
        format!("{}{name}{number}", if is_inner { "inner." } else { "" })
    };
    layers.iter().map(name).collect()
}

fn layers(e: &Layer, f: &Layer, name: &str, right: Option<u128>, user_headers: &[UserHeader], list: &mut Vec<String>) {
    let is_part =
        |kind: Kind, name: &str| matches!((kind, name), (Kind::Ipv4, "dscp" | "ecn")) || name.starts_with("is_");
    for (field, slice) in e.kind.fields(user_headers).into_iter().filter(|(field, _)| !is_part(e.kind, field)) {
        let (a, b) = (e.get(slice), f.get(slice));
        if a == b {
            continue;
        }
        let text = |slice: Slice, value| value_text(e.kind, &field, slice, value);
        let mut line = format!("{name}.{field}: expected {}, found {}", text(slice, a), text(slice, b));
        if e.kind.checksum() == Some(slice) && right.is_some_and(|right| right != b) {
            line.push_str(", which is incorrect for the found packet");
        }
        list.push(line);
    }
    let fixed = e.kind.len_bytes(user_headers);
    bytes(&format!("{name} options"), &e.bytes[fixed..], &f.bytes[fixed..], list);
}

fn bytes(what: &str, expected: &[u8], found: &[u8], list: &mut Vec<String>) {
    if expected == found {
        return;
    }
    let same = expected.iter().zip(found).take_while(|(e, f)| e == f).count();
    let part = |bytes: &[u8]| match bytes.get(same..).filter(|rest| !rest.is_empty()) {
        Some(rest) => rest.iter().take(8).map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" "),
        None => "the end".to_owned(),
    };
    list.push(format!(
        "{what}: expected {} bytes, found {}; from byte {same} on expected {}, found {}",
        expected.len(),
        found.len(),
        part(expected),
        part(found)
    ));
}
