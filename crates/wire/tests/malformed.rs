// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Malformed packets are valid input: no panic, and no read outside of the packet.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use flowloom_testkit::{PacketBuilder, Rng, mutate};
use flowloom_wire::field::{FIVE_TUPLE, Source};
use flowloom_wire::{FieldId, Graph, Header, KeySpec, Layers, rewrite};

/// Reads all fields, extracts keys and rewrites; everything present must be inside the packet.
fn exercise(packet: &[u8], rng: &mut Rng) -> Layers {
    let layers = Layers::parse(Graph::standard(), packet);
    let mut ranges = Vec::new();
    for header in Header::ALL {
        let Some(offset) = layers.offset(header) else {
            assert_eq!((layers.len(header), layers.payload_len(header)), (None, None));
            continue;
        };
        let end = offset + layers.len(header).unwrap();
        assert!(end <= packet.len(), "{} reaches beyond the end of {packet:02x?}", header.name());
        let tcp = match header {
            Header::WindowScale => Header::Tcp,
            Header::InnerWindowScale => Header::InnerTcp,
            _ => {
                ranges.push((offset, end));
                continue;
            }
        };
        let range = layers.offset(tcp).unwrap() + 20..=layers.offset(tcp).unwrap() + layers.len(tcp).unwrap();
        assert!(range.contains(&offset) && range.contains(&end), "an option lies in its header");
    }
    ranges.sort_unstable();
    assert!(ranges.is_sorted_by(|a, b| a.1 <= b.0), "headers do not overlap");
    for field in FieldId::all() {
        let value = layers.read(packet, 9, field);
        assert_eq!(value.is_some(), layers.is_present(field), "{}", field.name());
        assert_eq!(value.is_some(), layers.resolve(field).is_some(), "{}", field.name());
        let width = u32::from(field.width_bits());
        assert!(value.is_none_or(|v| width == 128 || v >> width == 0), "{}", field.name());
        if let (Source::Header(header, slice), Some(_)) = (field.source(), value) {
            let end =
                layers.offset(header).unwrap() * 8 + usize::from(slice.offset_bits) + usize::from(slice.width_bits);
            assert!(end <= packet.len() * 8);
        }
    }
    let five_tuple: Vec<_> = FIVE_TUPLE.iter().map(|name| FieldId::by_name(name).unwrap()).collect();
    for biflow in [false, true] {
        let spec = KeySpec::of_fields(&five_tuple, biflow).unwrap();
        let key = spec.extract(&layers, packet, 9, &[]);
        assert_eq!(key.is_some(), five_tuple.iter().all(|&f| layers.is_present(f)));
        assert!(key.is_none_or(|key| key.len() == spec.key_bytes()));
    }
    // Except for the port that selects a tunnel.
    let is_port = |field: &FieldId| matches!(&*field.name(), "udp.dport" | "l4.dport");
    let writes: Vec<_> = FieldId::all()
        .filter(|field| !is_port(field))
        .map(|field| (field, u128::from(rng.next_u64()) << 64 | 0x55))
        .collect();
    let mut rewritten = packet.to_vec();
    rewrite(&mut rewritten, &layers, &writes);
    assert_eq!(Layers::parse(Graph::standard(), &rewritten), layers, "no write changes what is parsed");
    layers
}

#[test]
fn every_prefix_of_a_packet_parses() {
    let mut rng = Rng::from_env(0x31);
    for _ in 0..300 {
        let packet = PacketBuilder::random(&mut rng, 20).build();
        let mut valid = 0;
        for len in 0..=packet.len().min(400) {
            let layers = exercise(&packet[..len], &mut rng);
            assert_eq!(layers.valid() & valid, valid, "one byte more takes nothing away");
            valid = layers.valid();
        }
    }
}

#[test]
fn mutated_packets() {
    let mut rng = Rng::from_env(0x32);
    let mut seen = [0; Header::ALL.len()];
    for _ in 0..100_000 {
        let mut packet = PacketBuilder::random(&mut rng, 20).build();
        mutate(&mut rng, &mut packet);
        let layers = exercise(&packet, &mut rng);
        for header in Header::ALL {
            seen[header as usize] += usize::from(layers.has(header));
        }
    }
    eprintln!("valid headers: {seen:?}");
    let known = Header::ALL.into_iter().filter(|&header| Graph::standard().min_bytes(header).is_some());
    assert!(known.into_iter().all(|header| seen[header as usize] > 200), "{seen:?}");
}

#[test]
fn random_bytes() {
    let mut rng = Rng::from_env(0x33);
    for _ in 0..20_000 {
        let len = rng.below(120);
        let mut packet = rng.bytes(len);
        if let Some(kind) = packet.get_mut(12..14) {
            kind.copy_from_slice(*rng.pick(&[&[8, 0], &[0x86, 0xdd], &[0x81, 0]]));
        }
        if let Some(version) = packet.get_mut(14) {
            *version = *rng.pick(&[0x45, 0x46, 0x4f, 0x60]);
        }
        exercise(&packet, &mut rng);
    }
}
