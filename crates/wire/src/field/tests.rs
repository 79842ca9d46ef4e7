#![allow(clippy::unwrap_used, clippy::panic)]
use std::collections::HashSet;

use super::*;
use crate::graph::{EXT_DEPTH, Extent, Length, NODES, Node};

fn node(header: Header) -> &'static Node {
    let mut nodes = NODES.iter().filter(|node| node.header == Some(header));
    let node = nodes.next().unwrap();
    assert!(nodes.next().is_none(), "{} has two nodes", header.name());
    node
}

fn end_bits(slice: Slice) -> u32 {
    u32::from(slice.offset_bits) + u32::from(slice.width_bits)
}

fn concrete(id: FieldId) -> (Header, Slice) {
    match id.get().source {
        Source::Header(header, slice) => (header, slice),
        other => panic!("{} is not concrete: {other:?}", id.get().name),
    }
}

#[test]
fn names_are_unique_and_found() {
    let names: HashSet<_> = FIELDS.iter().map(|field| field.name).collect();
    assert_eq!(names.len(), FIELD_COUNT);
    for id in FieldId::all() {
        assert_eq!(FieldId::by_name(id.get().name), Some(id));
    }
    assert_eq!(FieldId::by_name("tcp.se"), None);
    assert!(FIVE_TUPLE.iter().all(|name| FieldId::by_name(name).is_some()));
}

#[test]
fn slices_lie_in_the_least_bytes_of_their_header() {
    for id in FieldId::all() {
        let field = id.get();
        let Source::Header(header, slice) = field.source else { continue };
        assert_eq!(field.width_bits, slice.width_bits, "{}", field.name);
        assert_eq!(field.name.split('.').next(), Some(header.name()), "{}", field.name);
        assert!(slice.width_bits > 0, "{}", field.name);
        assert!(end_bits(slice) <= u32::from(node(header).min_bytes) * 8, "{}", field.name);
        assert!(slice.offset_bits % 8 + u16::from(slice.width_bits) <= 128, "{}: reading fits 128 bits", field.name);
        assert!(end_bits(slice) <= 32 * 16, "{}: its words fit a mask of 32", field.name);
    }
}

#[test]
fn partners_are_mutual_and_of_one_kind() {
    for id in FieldId::all() {
        let Some(partner) = id.partner() else { continue };
        let name = id.get().name;
        assert_ne!(partner, id, "{name}");
        assert_eq!(partner.partner(), Some(id), "{name}");
        assert_eq!(partner.get().width_bits, id.get().width_bits, "{name}");
        assert_eq!(partner.get().writable, id.get().writable, "{name}");
        assert_eq!(partner.headers(), id.headers(), "{name}");
        let others: Vec<_> = id.alternatives().iter().map(|f| f.partner()).collect();
        assert_eq!(others, partner.alternatives().iter().map(|&f| Some(f)).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn alternatives_are_concrete_and_exclude_each_other() {
    for id in FieldId::all() {
        let field = id.get();
        let widths: Vec<_> = id.alternatives().iter().map(|f| f.get().width_bits).collect();
        match field.source {
            Source::Either(names) => assert_eq!(widths, vec![field.width_bits; names.len()], "{}", field.name),
            Source::Address { .. } => assert_eq!((field.width_bits, widths), (128, vec![32, 128]), "{}", field.name),
            _ => assert!(widths.is_empty(), "{}", field.name),
        }
        let headers: HashSet<_> = id.alternatives().iter().map(|&f| concrete(f).0).collect();
        assert_eq!(headers.len(), id.alternatives().len(), "{}: of different headers", field.name);
        assert!(id.alternatives().iter().all(|f| f.get().writable == field.writable), "{}", field.name);
    }
    // Headers that exclude each other are never on one path.
    for pair in [[Header::Ipv4, Header::Ipv6], [Header::Tcp, Header::Udp]] {
        for from in pair {
            assert!(reachable(node(from)).is_disjoint(&pair.into()), "{}", from.name());
        }
    }
}

fn reachable(from: &Node) -> HashSet<Header> {
    from.next
        .edges
        .iter()
        .flat_map(|&(_, to)| {
            let mut found = reachable(&NODES[to]);
            found.extend(NODES[to].header);
            found
        })
        .collect()
}

#[test]
fn fixed_fields_cannot_be_written() {
    // What decides how a packet is parsed, and checksums, overlap nothing that rows may write.
    let mut fixed: Vec<(Header, Slice)> = Vec::new();
    for header in Header::ALL {
        let node = node(header);
        fixed.extend(node.next.selector.map(|slice| (header, slice)));
        fixed.extend(node.next.only_if_zero.map(|slice| (header, slice)));
        if let Length::Scaled { slice, .. } = node.length {
            fixed.push((header, slice));
        }
        if let Extent::Total(slice) | Extent::After(slice) = node.extent {
            fixed.push((header, slice));
        }
        for check in node.checks {
            let (crate::graph::Check::Equal(slice, _) | crate::graph::Check::AtLeast(slice, _)) = *check;
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
    for id in FieldId::all().filter(|id| id.get().writable) {
        let Source::Header(header, slice) = id.get().source else { continue };
        for &(other, taboo) in &fixed {
            let apart =
                u32::from(slice.offset_bits) >= end_bits(taboo) || u32::from(taboo.offset_bits) >= end_bits(slice);
            assert!(header != other || apart, "{} overlaps {taboo:?}", id.get().name);
        }
    }
}

#[test]
fn the_graph_is_a_graph() {
    for node in &NODES {
        let mut values = HashSet::new();
        for &(value, to) in node.next.edges {
            assert!(values.insert(value), "{}: two edges for {value}", node.name);
            assert!(to < NODES.len(), "{}", node.name);
            assert!(value < 1 << node.next.selector.unwrap().width_bits, "{}", node.name);
        }
        assert!(node.min_bytes % 2 == 0, "{}: checksummed words stay aligned", node.name);
        let slices = [node.next.selector, node.next.only_if_zero];
        assert!(slices.into_iter().flatten().all(|s| end_bits(s) <= u32::from(node.min_bytes) * 8), "{}", node.name);
        if let Length::Scaled { slice, times, .. } = node.length {
            assert!(times % 2 == 0 && end_bits(slice) <= u32::from(node.min_bytes) * 8, "{}", node.name);
        }
    }
    // Recursion over the edges ends: every path is finite, and the longest has all extension headers.
    assert_eq!(depth(&NODES[crate::graph::ETHERNET]), 3 + 1 + EXT_DEPTH + 1);
    assert_eq!(reachable(&NODES[crate::graph::ETHERNET]).len(), Header::ALL.len() - 1);
    for (i, header) in Header::ALL.into_iter().enumerate() {
        assert_eq!(header.bit(), 1 << i);
    }
}

fn depth(node: &Node) -> usize {
    1 + node.next.edges.iter().map(|&(_, to)| depth(&NODES[to])).max().unwrap_or(0)
}
