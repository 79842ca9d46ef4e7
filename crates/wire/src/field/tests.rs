// SPDX-License-Identifier: Apache-2.0 OR MIT
#![allow(clippy::unwrap_used, clippy::panic)]
use std::collections::HashSet;

use super::*;
use crate::graph::{Check, Extent, Graph, Length, Node};

fn node(header: Header) -> &'static Node {
    Graph::standard().node(header).unwrap()
}

/// The well-known headers.
fn known() -> impl Iterator<Item = Header> {
    Header::ALL.into_iter().filter(|&header| Graph::standard().node(header).is_some())
}

fn end_bits(slice: Slice) -> u32 {
    u32::from(slice.offset_bits) + u32::from(slice.width_bits)
}

fn concrete(id: FieldId) -> (Header, Slice) {
    match id.source() {
        Source::Header(header, slice) => (header, slice),
        other => panic!("{} is not concrete: {other:?}", id.name()),
    }
}

#[test]
fn names_are_unique_and_resolve() {
    let names: HashSet<_> = FIELDS.iter().map(|field| field.name).collect();
    assert_eq!(names.len(), FIELD_COUNT);
    for id in FieldId::all() {
        assert_eq!(FieldId::by_name(&id.name()), Some(id));
    }
    assert_eq!(FieldId::by_name("tcp.se"), None);
    assert!(FIVE_TUPLE.iter().all(|name| FieldId::by_name(name).is_some()));
}

#[test]
fn slices_are_within_the_minimum_header() {
    for id in FieldId::all() {
        let field = id.entry().unwrap().0;
        let Source::Header(header, slice) = field.source else { continue };
        assert_eq!(field.width_bits, slice.width_bits, "{}", field.name);
        // Fields of the fragment header have the prefix of IPv6.
        let name = header.name().strip_suffix(".frag").unwrap_or(header.name());
        let rest = field.name.strip_prefix(name).unwrap();
        assert!(rest.is_empty() || rest.starts_with('.'), "{}", field.name);
        assert!(slice.width_bits > 0, "{}", field.name);
        assert!(end_bits(slice) <= u32::from(Graph::standard().min_bytes(header).unwrap()) * 8, "{}", field.name);
        assert!(slice.offset_bits % 8 + u16::from(slice.width_bits) <= 128, "{}: reading fits 128 bits", field.name);
        assert!(end_bits(slice) <= 128 * 16, "{}: its words fit a mask of 128", field.name);
    }
}

#[test]
fn partners_are_mutual_and_of_the_same_kind() {
    for id in FieldId::all() {
        let Some(partner) = id.partner() else { continue };
        let name = id.name();
        assert_ne!(partner, id, "{name}");
        assert_eq!(partner.partner(), Some(id), "{name}");
        assert_eq!(partner.width_bits(), id.width_bits(), "{name}");
        assert_eq!(partner.is_writable(), id.is_writable(), "{name}");
        assert_eq!(partner.headers(), id.headers(), "{name}");
        let others: Vec<_> = id.alternatives().iter().map(|f| f.partner()).collect();
        assert_eq!(others, partner.alternatives().iter().map(|&f| Some(f)).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn alternatives_are_concrete_and_disjoint() {
    for id in FieldId::all() {
        let field = id.entry().unwrap().0;
        let widths: Vec<_> = id.alternatives().iter().map(|f| f.width_bits()).collect();
        match field.source {
            Source::Either(names) => assert_eq!(widths, vec![field.width_bits; names.len()], "{}", field.name),
            Source::Address { .. } => assert_eq!((field.width_bits, widths), (128, vec![32, 128]), "{}", field.name),
            _ => assert!(widths.is_empty(), "{}", field.name),
        }
        let headers: HashSet<_> = id.alternatives().iter().map(|&f| concrete(f).0).collect();
        assert_eq!(headers.len(), id.alternatives().len(), "{}: of different headers", field.name);
        assert!(id.alternatives().iter().all(|f| f.is_writable() == field.writable), "{}", field.name);
    }
    // Mutually exclusive headers are never on one path.
    for pair in [
        [Header::Ipv4, Header::Ipv6],
        [Header::Tcp, Header::Udp],
        [Header::InnerIpv4, Header::InnerIpv6],
        [Header::InnerTcp, Header::InnerUdp],
    ] {
        for from in pair {
            assert!(reachable(node(from)).is_disjoint(&pair.into()), "{}", from.name());
        }
    }
}

fn reachable(from: &Node) -> HashSet<Header> {
    let nodes = Graph::standard().nodes();
    let mut todo: Vec<usize> = from.next.successors().collect();
    let mut seen = HashSet::new();
    while let Some(index) = todo.pop() {
        if seen.insert(index) {
            todo.extend(nodes[index].next.successors());
        }
    }
    seen.into_iter().filter_map(|index| nodes[index].header).collect()
}

#[test]
fn fixed_fields_cannot_be_written() {
    // Selectors, lengths and checksums overlap no writable field.
    let mut fixed: Vec<(Header, Slice)> = Vec::new();
    for header in known() {
        let node = node(header);
        // UDP ports are writable: the packet is not parsed again.
        let choices = node.next.choices.iter().filter(|_| header != Header::Udp);
        fixed.extend(choices.map(|choice| (header, choice.selector)));
        fixed.extend(node.next.only_if_zero.map(|slice| (header, slice)));
        if let Length::Scaled { slice, .. } = node.length {
            fixed.push((header, slice));
        }
        if let Extent::Total(slice) | Extent::After(slice) = node.extent {
            fixed.push((header, slice));
        }
        for check in &node.checks {
            let (Check::Equal(slice, _) | Check::AtLeast(slice, _)) = *check;
            fixed.push((header, slice));
        }
    }
    for checksum in &CHECKSUMS {
        let slice = crate::graph::bytes(checksum.offset_bytes, 2);
        assert!(
            slice.offset_bits.is_multiple_of(16) && end_bits(slice) <= u32::from(node(checksum.header).min_bytes) * 8
        );
        let named = format!("{}.checksum", checksum.header.name());
        assert_eq!(concrete(FieldId::by_name(&named).unwrap()), (checksum.header, slice));
        fixed.push((checksum.header, slice));
    }
    for id in FieldId::all().filter(|id| id.is_writable()) {
        let Source::Header(header, slice) = id.source() else { continue };
        for &(other, taboo) in &fixed {
            let apart =
                u32::from(slice.offset_bits) >= end_bits(taboo) || u32::from(taboo.offset_bits) >= end_bits(slice);
            assert!(header != other || apart, "{} overlaps {taboo:?}", id.name());
        }
    }
}
