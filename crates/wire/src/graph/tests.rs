// SPDX-License-Identifier: Apache-2.0 OR MIT
use std::collections::HashSet;

use super::standard::{EXT_DEPTH, GTPU_EXT_DEPTH};
use super::*;

fn end_bits(slice: Slice) -> u32 {
    u32::from(slice.offset_bits) + u32::from(slice.width_bits)
}

#[test]
fn nodes_are_well_formed() {
    let graph = Graph::standard();
    for (index, node) in graph.nodes().iter().enumerate() {
        let inside = |slice: Slice| end_bits(slice) <= u32::from(node.min_bytes) * 8;
        for choice in &node.next.choices {
            let mut values = HashSet::new();
            for &(value, _) in &choice.edges {
                assert!(values.insert(value), "{}: two edges for {value}", node.name);
                assert!(value < 1 << choice.selector.width_bits, "{}", node.name);
            }
            assert!(inside(choice.selector), "{}", node.name);
        }
        for to in node.next.successors() {
            assert!(to > index && to < graph.nodes().len(), "{}: before all that can follow", node.name);
        }
        let slices = [node.next.only_if_zero, node.next.ip_proto.map(|(_, slice)| slice)];
        assert!(slices.into_iter().flatten().all(inside), "{}", node.name);
        for check in &node.checks {
            let (Check::Equal(slice, _) | Check::AtLeast(slice, _)) = *check;
            assert!(inside(slice), "{}", node.name);
        }
        if let Some(option) = node.option {
            assert!(option.start_bytes == node.min_bytes && option.len_bytes >= 3 && option.kind > 1, "{}", node.name);
        }
        if let Length::Scaled { slice, times, .. } = node.length {
            assert!(times.is_power_of_two() && inside(slice), "{}", node.name);
        }
    }
}

#[test]
fn every_header_but_the_fragment_header_has_at_most_one_node() {
    for (i, header) in Header::ALL.into_iter().enumerate() {
        assert_eq!(header.bit(), 1 << i);
        let count = Graph::standard().nodes().iter().filter(|node| node.header == Some(header)).count();
        // It can be anywhere among the extension headers.
        let is_fragment = matches!(header, Header::Ipv6Fragment | Header::InnerIpv6Fragment);
        assert!(if is_fragment { count == EXT_DEPTH } else { count <= 1 }, "{}: {count}", header.name());
        assert_eq!(header.user_index().and_then(|i| Header::USER.get(i).copied()), header.user_index().map(|_| header));
    }
    assert_eq!(Header::USER.map(|header| header.user_index()), [0, 1, 2, 3, 4, 5, 6, 7].map(Some));
}

#[test]
fn every_path_terminates() {
    let nodes = Graph::standard().nodes();
    let mut depths = vec![0; nodes.len()];
    for (index, node) in nodes.iter().enumerate().rev() {
        depths[index] = 1 + node.next.successors().map(|to| depths[to]).max().unwrap_or(0);
    }
    // The longest path has all tags and labels, all extension headers outside and inside a tunnel, and all of the
    // tunnel, where the kind of each extension header is peeked at first.
    let ip = 1 + EXT_DEPTH + 1;
    assert_eq!(depths[ETHERNET], 3 + 4 + 1 + ip + 2 + 2 * GTPU_EXT_DEPTH + 2 + 1 + ip);
}
