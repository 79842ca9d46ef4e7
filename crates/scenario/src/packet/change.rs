// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Changes of a packet: field updates, removal of the outermost tag or label, checksum updates.

use flowloom_wire::graph::{Slice, UserHeader};

use super::{Kind, Layer, Packet};

/// The part of a packet that a name like `ip.src` refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Target {
    /// Bits of a header, by the header's index.
    Field { layer: usize, slice: Slice },
    /// The payload.
    Payload,
}

/// A packet under modification, with the original.
pub(in super::super) struct Changed {
    input: Packet,
    packet: Packet,
    /// Index of each header in the original packet.
    origin: Vec<usize>,
    /// Headers whose checksum was set explicitly.
    set: Vec<usize>,
}

impl Changed {
    pub(in super::super) fn new(input: Packet) -> Changed {
        let origin = (0..input.layers.len()).collect();
        Changed { packet: input.clone(), input, origin, set: Vec::new() }
    }

    /// Removes the outermost header of this kind. Returns false if there is none.
    pub(in super::super) fn remove(&mut self, kind: Kind) -> bool {
        let Some(at) = self.packet.layers.iter().position(|layer| layer.kind == kind) else { return false };
        self.packet.layers.remove(at);
        self.origin.remove(at);
        true
    }

    /// The packet in its current state.
    pub(in super::super) fn packet(&self) -> &Packet {
        &self.packet
    }

    pub(in super::super) fn set(&mut self, target: Target, value: u128) {
        if let Target::Field { layer: at, slice } = target
            && let Some(layer) = self.packet.layers.get_mut(at)
        {
            if layer.kind.checksum() == Some(slice) {
                self.set.push(at);
            }
            layer.set_explicit(slice, value);
        }
    }

    pub(in super::super) fn set_payload(&mut self, payload: Vec<u8>) {
        self.packet.payload = payload;
    }

    /// Excludes the target from the comparison.
    pub(in super::super) fn ignore(&mut self, target: Target) {
        match target {
            Target::Payload => self.packet.ignore_payload = true,
            Target::Field { layer: at, slice } => {
                if let Some(layer) = self.packet.layers.get_mut(at) {
                    let value = layer.get(slice);
                    layer.set_explicit(slice, value);
                    layer.ignored.push(slice);
                }
            }
        }
    }

    /// Returns the changed packet. Checksums are updated incrementally, which preserves the error of an incorrect one
    /// [RFC 1624 3]; 0 in UDP stays 0.
    pub(in super::super) fn finish(mut self, user_headers: &[UserHeader]) -> Packet {
        let (old, new) = (correct_checksums(&self.input, user_headers), correct_checksums(&self.packet, user_headers));
        for (at, layer) in self.packet.layers.iter_mut().enumerate() {
            let Some(slice) = layer.kind.checksum() else { continue };
            if !layer.explicit.contains(&slice) || layer.ignored.contains(&slice) || self.set.contains(&at) {
                continue;
            }
            let found = layer.get(slice) as u16;
            let (Some(old), Some(new)) = (old[self.origin[at]], new[at]) else { continue };
            if old == new || layer.kind == Kind::Udp && found == 0 {
                continue;
            }
            let mut sum = u32::from(!found) + old as u32 + u32::from(!(new as u16));
            while sum > 0xffff {
                sum = (sum >> 16) + (sum & 0xffff);
            }
            let value = match !(sum as u16) {
                0 if layer.kind == Kind::Udp => 0xffff,
                value => value,
            };
            layer.set_explicit(slice, value.into());
        }
        self.packet
    }
}

/// The correct checksums of the headers; `None` for headers without one.
pub(super) fn correct_checksums(packet: &Packet, user_headers: &[UserHeader]) -> Vec<Option<u128>> {
    let mut packet = Packet { cut: None, ..packet.clone() };
    for layer in &mut packet.layers {
        let checksum = layer.kind.checksum();
        layer.explicit.retain(|explicit| Some(*explicit) != checksum);
    }
    let encoded = packet.encode(user_headers);
    let of = |(layer, &offset): (&Layer, &usize)| layer.kind.checksum()?.read(encoded.bytes.get(offset..)?);
    packet.layers.iter().zip(&encoded.offsets).map(of).collect()
}

impl Packet {
    /// Resolves `name`. An error names what was expected.
    pub(in super::super) fn target(&self, name: &str, user_headers: &[UserHeader]) -> Result<Target, String> {
        if name == "data" {
            return Ok(Target::Payload);
        }
        let inner = self.inner();
        let (outer_name, is_inner) = name.strip_prefix("inner.").map_or((name, false), |rest| (rest, true));
        let Some((head, field)) = outer_name.split_once('.') else {
            return Err("a field by its full name, such as `ip.ttl`".to_owned());
        };
        let range = match (is_inner, inner) {
            (true, None) => return Err("a field of this packet; it has no inner packet".to_owned()),
            (true, Some(inner)) => inner..self.layers.len(),
            (false, Some(inner)) => 0..inner,
            (false, None) => 0..self.layers.len(),
        };
        let (base, nth) = match head.char_indices().next_back() {
            Some((at, digit @ '2'..='4')) if matches!(&head[..at], "vlan" | "mpls") => {
                (&head[..at], digit as usize - '1' as usize)
            }
            _ => (head, 0),
        };
        let fits = |kind: Kind| match base {
            "ip" => kind.is_ip(),
            "l4" => matches!(kind, Kind::Tcp | Kind::Udp),
            name => kind.name(user_headers) == name,
        };
        let places = range.filter(|&at| fits(self.layers[at].kind));
        let Some(layer) = places.into_iter().nth(nth) else {
            return Err(format!(
                "a field of this packet; it has no header `{head}`, but {}",
                self.outline(user_headers)
            ));
        };
        let kind = self.layers[layer].kind;
        match kind.field(field, user_headers) {
            Some(slice) => Ok(Target::Field { layer, slice }),
            None => {
                let names: Vec<String> = kind.fields(user_headers).into_iter().map(|(name, _)| name).collect();
                Err(format!("a field of `{head}`: {}", names.join(", ")))
            }
        }
    }
}
