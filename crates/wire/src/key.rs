// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Flow keys: the bytes that select a context.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::field::FieldId;
use crate::parse::Layers;

/// Fields at least this wide are addresses: they are compared before the others when a `biflow` key chooses its
/// direction.
const ADDRESS_WIDTH_BITS: u8 = 32;

/// A part of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyPart {
    /// A packet field.
    Field(FieldId),
    /// A value that is not in the packet, passed along with it.
    Value {
        /// Its width.
        width_bits: u8,
    },
}

impl KeyPart {
    /// Its size in a key.
    pub fn key_bytes(self) -> usize {
        match self {
            KeyPart::Field(field) => field.key_bytes(),
            KeyPart::Value { width_bits } => usize::from(width_bits).div_ceil(8),
        }
    }

    /// The packet field, if it is one.
    pub fn field(self) -> Option<FieldId> {
        match self {
            KeyPart::Field(field) => Some(field),
            KeyPart::Value { .. } => None,
        }
    }
}

/// The parts of a key, and its layout.
///
/// # Layout
/// The parts in declared order, each big endian in as many whole bytes as it needs; then zero padding to a multiple of
/// 4.
///
/// # Biflow
/// Both directions of a connection have one key. The fields declared before their partner make side A, their partners
/// side B; if A is greater than B (unsigned, addresses compared first, then the rest in declared order), the values of
/// each pair are swapped. Parts without a partner stay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeySpec {
    parts: Vec<KeyPart>,
    offsets_bytes: Vec<usize>,
    pairs: Vec<(usize, usize)>,
    len_bytes: usize,
}

/// The reason why parts do not make a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No parts.
    #[error("a key needs at least one field")]
    Empty,
    /// A duplicate field.
    #[error("field `{field}` occurs twice in the key")]
    Duplicate {
        /// The field.
        field: Cow<'static, str>,
    },
    /// A `biflow` key with only one direction of a field.
    #[error("`biflow` key has `{field}`, but not its other direction `{partner}`")]
    NoPartner {
        /// The field.
        field: Cow<'static, str>,
        /// The missing field.
        partner: Cow<'static, str>,
    },
    /// A `biflow` key without a field that has a direction.
    #[error("`biflow` key has no field with a direction, such as `ip.src` and `ip.dst`")]
    NoDirection,
}

impl KeySpec {
    /// A key of these parts.
    ///
    /// # Errors
    /// No part, a duplicate field, or a `biflow` key that differs between directions.
    pub fn new(parts: &[KeyPart], biflow: bool) -> Result<KeySpec, KeyError> {
        if parts.is_empty() {
            return Err(KeyError::Empty);
        }
        let mut offsets_bytes = Vec::with_capacity(parts.len());
        let mut end = 0;
        for (i, &part) in parts.iter().enumerate() {
            if let Some(field) = part.field()
                && parts[..i].contains(&part)
            {
                return Err(KeyError::Duplicate { field: field.name() });
            }
            offsets_bytes.push(end);
            end += part.key_bytes();
        }
        let mut pairs = Vec::new();
        if biflow {
            for (i, field) in parts.iter().enumerate().filter_map(|(i, part)| Some((i, part.field()?))) {
                let Some(partner) = field.partner() else { continue };
                let Some(at) = parts.iter().position(|&part| part == KeyPart::Field(partner)) else {
                    return Err(KeyError::NoPartner { field: field.name(), partner: partner.name() });
                };
                if i < at {
                    pairs.push((i, at));
                }
            }
            if pairs.is_empty() {
                return Err(KeyError::NoDirection);
            }
            // Stable: within addresses and within the rest, the declared order is preserved.
            pairs.sort_by_key(|&(a, _)| parts[a].field().is_none_or(|field| field.width_bits() < ADDRESS_WIDTH_BITS));
        }
        Ok(KeySpec { parts: parts.to_vec(), offsets_bytes, pairs, len_bytes: end.next_multiple_of(4) })
    }

    /// A key of packet fields only.
    ///
    /// # Errors
    /// As [`KeySpec::new`].
    pub fn of_fields(fields: &[FieldId], biflow: bool) -> Result<KeySpec, KeyError> {
        KeySpec::new(&fields.iter().copied().map(KeyPart::Field).collect::<Vec<_>>(), biflow)
    }

    /// The parts in declared order.
    pub fn parts(&self) -> &[KeyPart] {
        &self.parts
    }

    /// The offset of each part in the key in bytes, in declared order.
    pub fn offsets_bytes(&self) -> &[usize] {
        &self.offsets_bytes
    }

    /// The pairs of a `biflow` key as indices into [`KeySpec::parts`], in the order of comparison: the first pair that
    /// differs decides. Empty for other keys.
    pub fn pairs(&self) -> &[(usize, usize)] {
        &self.pairs
    }

    /// The size of a key in bytes, a multiple of 4.
    pub fn key_bytes(&self) -> usize {
        self.len_bytes
    }

    /// The key of a packet; `None` if it lacks a field.
    ///
    /// `values` are those of the [`KeyPart::Value`] parts, in order, truncated to their widths. Missing values are 0.
    pub fn extract(&self, layers: &Layers, packet: &[u8], port: u32, values: &[u128]) -> Option<Vec<u8>> {
        let mut key = Vec::new();
        self.extract_into(layers, packet, port, values, &mut key).then_some(key)
    }

    /// As [`KeySpec::extract`], but reuses the memory of `key`; returns false, with unspecified contents, if the packet
    /// lacks a field.
    pub fn extract_into(&self, layers: &Layers, packet: &[u8], port: u32, values: &[u128], key: &mut Vec<u8>) -> bool {
        let mut values = values.iter().copied();
        key.clear();
        key.resize(self.len_bytes, 0);
        for (i, &part) in self.parts.iter().enumerate() {
            let value = match part {
                KeyPart::Field(field) => match layers.read(packet, port, field) {
                    Some(value) => value,
                    None => return false,
                },
                KeyPart::Value { .. } => values.next().unwrap_or(0),
            };
            self.put(key, i, value);
        }
        self.arrange(key);
        true
    }

    /// The key of these values of all parts, in declared order, truncated to their widths. Missing values are 0.
    pub fn of_values(&self, values: &[u128]) -> Vec<u8> {
        let mut key = vec![0; self.len_bytes];
        for (i, &value) in values.iter().take(self.parts.len()).enumerate() {
            self.put(&mut key, i, value);
        }
        self.arrange(&mut key);
        key
    }

    fn put(&self, key: &mut [u8], part: usize, value: u128) {
        let bytes = &mut key[self.range(part)];
        bytes.copy_from_slice(&value.to_be_bytes()[16 - bytes.len()..]);
    }

    /// Puts the smaller side of a `biflow` key first.
    fn arrange(&self, key: &mut [u8]) {
        let order = self.pairs.iter().map(|&(a, b)| key[self.range(a)].cmp(&key[self.range(b)]));
        if order.fold(Ordering::Equal, Ordering::then) == Ordering::Greater {
            for &(a, b) in &self.pairs {
                for (i, j) in self.range(a).zip(self.range(b)) {
                    key.swap(i, j);
                }
            }
        }
    }

    fn range(&self, part: usize) -> std::ops::Range<usize> {
        let start = self.offsets_bytes[part];
        start..start + self.parts[part].key_bytes()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::field::FIVE_TUPLE;
    use crate::graph::Graph;

    fn ids(names: &[&str]) -> Vec<FieldId> {
        names.iter().map(|name| FieldId::by_name(name).unwrap()).collect()
    }

    fn tcp(src: u8, dst: u8, sport: u16, dport: u16) -> Vec<u8> {
        let mut p = vec![0, 0, 0, 0, 0, dst, 0, 0, 0, 0, 0, src];
        p.extend([0x08, 0x00, 0x45, 0, 0, 40, 0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, src, 10, 0, 0, dst]);
        p.extend(sport.to_be_bytes());
        p.extend(dport.to_be_bytes());
        p.extend([0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 0]);
        p
    }

    fn key(spec: &KeySpec, packet: &[u8]) -> Option<Vec<u8>> {
        spec.extract(&Layers::parse(Graph::standard(), packet), packet, 3, &[])
    }

    #[test]
    fn layout_is_declared_order_big_endian_and_padded() {
        let spec = KeySpec::of_fields(&ids(&["l4.dport", "ip.proto", "pkt.port", "ipv4.src"]), false).unwrap();
        assert_eq!(spec.offsets_bytes(), [0, 2, 3, 7]);
        assert_eq!(spec.key_bytes(), 12);
        assert_eq!(key(&spec, &tcp(1, 2, 1000, 80)).unwrap(), [0, 80, 6, 0, 0, 0, 3, 10, 0, 0, 1, 0]);
        let spec = KeySpec::of_fields(&ids(&FIVE_TUPLE), false).unwrap();
        assert_eq!(spec.key_bytes(), 40);
        assert_eq!(
            key(&spec, &tcp(1, 2, 1000, 80)).unwrap()[..16],
            [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 10, 0, 0, 1]
        );
    }

    #[test]
    fn keys_mix_values_and_fields() {
        let value = |width_bits| KeyPart::Value { width_bits };
        let [port, proto] = [ids(&["l4.dport"])[0], ids(&["ip.proto"])[0]].map(KeyPart::Field);
        let spec = KeySpec::new(&[value(32), port, value(8), proto, value(8)], false).unwrap();
        assert_eq!(spec.offsets_bytes(), [0, 4, 6, 7, 8]);
        let packet = tcp(1, 2, 1000, 80);
        let layers = Layers::parse(Graph::standard(), &packet);
        let key = spec.extract(&layers, &packet, 3, &[0x1_0203_0405, 0x106, 9]).unwrap();
        assert_eq!(key, [2, 3, 4, 5, 0, 80, 6, 6, 9, 0, 0, 0]);
        assert_eq!(spec.of_values(&[0x1_0203_0405, 80, 0x106, 6, 9]), key);
        assert_eq!(KeySpec::new(&[value(128)], false).unwrap().key_bytes(), 16);
        assert_eq!(KeySpec::new(&[value(8)], true), Err(KeyError::NoDirection));
    }

    #[test]
    fn absent_fields_yield_no_key() {
        let spec = KeySpec::of_fields(&ids(&["ip.src", "udp.sport"]), false).unwrap();
        assert_eq!(key(&spec, &tcp(1, 2, 1000, 80)), None);
        assert_eq!(key(&spec, &[]), None);
    }

    #[test]
    fn biflow_keys_are_equal_in_both_directions() {
        let spec = KeySpec::of_fields(&ids(&["l4.sport", "l4.dport", "ip.proto", "ip.src", "ip.dst"]), true).unwrap();
        assert_eq!(spec.pairs(), [(3, 4), (0, 1)], "addresses decide before ports");
        for (src, dst, sport, dport) in [(1, 2, 9, 5), (1, 2, 5, 9), (1, 1, 9, 5), (1, 1, 5, 5)] {
            let forth = key(&spec, &tcp(src, dst, sport, dport)).unwrap();
            assert_eq!(forth, key(&spec, &tcp(dst, src, dport, sport)).unwrap());
        }
        assert_eq!(key(&spec, &tcp(2, 1, 9, 5)).unwrap()[..5], [0, 5, 0, 9, 6], "values of each pair change places");
        assert_eq!(key(&spec, &tcp(1, 2, 9, 5)).unwrap()[..5], [0, 9, 0, 5, 6]);
        assert_eq!(key(&spec, &tcp(1, 1, 9, 5)).unwrap()[..5], [0, 5, 0, 9, 6]);
        assert_ne!(key(&spec, &tcp(1, 2, 9, 5)), key(&spec, &tcp(1, 2, 5, 9)));
        for addresses in [["ipv4.src", "ipv4.dst"], ["ipv6.src", "ipv6.dst"], ["eth.src", "eth.dst"]] {
            let fields = ids(&[&["tcp.sport", "tcp.dport"], &addresses[..]].concat());
            assert_eq!(KeySpec::of_fields(&fields, true).unwrap().pairs(), [(2, 3), (0, 1)], "{addresses:?}");
        }
        let values = [9_u128, 5, 6, 0xffff_0a00_0002, 0xffff_0a00_0001];
        assert_eq!(spec.of_values(&values), key(&spec, &tcp(2, 1, 9, 5)).unwrap());
        let reversed = KeySpec::of_fields(&ids(&["eth.dst", "eth.src"]), true).unwrap();
        assert_eq!(key(&reversed, &tcp(1, 2, 0, 0)).unwrap(), [0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 2]);
    }

    #[test]
    fn errors_name_the_field() {
        let new = |names: &[&str], biflow| KeySpec::of_fields(&ids(names), biflow).unwrap_err().to_string();
        assert_eq!(new(&[], false), "a key needs at least one field");
        assert_eq!(new(&["ip.src", "ip.proto", "ip.src"], false), "field `ip.src` occurs twice in the key");
        assert_eq!(new(&["ip.src"], true), "`biflow` key has `ip.src`, but not its other direction `ip.dst`");
        assert_eq!(
            new(&["ip.proto"], true),
            "`biflow` key has no field with a direction, such as `ip.src` and `ip.dst`"
        );
    }
}
