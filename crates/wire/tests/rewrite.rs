// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Incrementally updated checksums against full recomputation, and independently by `etherparse`.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use etherparse::checksum::Sum16BitWords;
use etherparse::{NetSlice, SlicedPacket, TransportSlice, UdpHeader};
use flowloom_testkit::{PacketBuilder, Rng};
use flowloom_wire::checksum::Sum;
use flowloom_wire::field::{CHECKSUMS, Source};
use flowloom_wire::{FieldId, Graph, Header, Layers, rewrite};

/// Writes of present fields and a few absent ones: random, extreme and old values.
fn random_writes(rng: &mut Rng, packet: &[u8], layers: &Layers) -> Vec<(FieldId, u128)> {
    let writable: Vec<_> = FieldId::all().filter(|f| f.is_writable()).collect();
    let present: Vec<_> = writable.iter().copied().filter(|&f| layers.is_present(f)).collect();
    (0..1 + rng.below(6))
        .map(|_| {
            let fields = if rng.chance(9, 10) { &present } else { &writable };
            let field = *rng.pick(fields);
            let random = u128::from(rng.next_u64()) << 64 | u128::from(rng.next_u64());
            let value = match rng.below(8) {
                0 => 0,
                1 => u128::MAX,
                2 => layers.read(packet, 0, field).unwrap_or(1),
                // The value of another field, as in a swap of addresses.
                3 => layers.read(packet, 0, *rng.pick(&present)).unwrap_or(2),
                _ => random,
            };
            (field, value)
        })
        .collect()
}

fn after(packet: &[u8], writes: &[(FieldId, u128)]) -> Vec<u8> {
    let mut packet = packet.to_vec();
    let layers = Layers::parse(Graph::standard(), &packet);
    rewrite(&mut packet, &layers, writes);
    packet
}

/// The headers of an IP packet: IPv4, IPv6, TCP, UDP, ICMP and ICMPv6.
const OUTER: [Header; 6] = [Header::Ipv4, Header::Ipv6, Header::Tcp, Header::Udp, Header::Icmp, Header::Icmp6];
const INNER: [Header; 6] =
    [Header::InnerIpv4, Header::InnerIpv6, Header::InnerTcp, Header::InnerUdp, Header::InnerIcmp, Header::InnerIcmp6];

/// `fill` reads the table that the code under test reads, so a missing row would pass there.
#[test]
fn the_table_has_every_checksum_with_its_pseudo_header() {
    let rows = [INNER, OUTER].map(|[ipv4, ipv6, tcp, udp, icmp, icmp6]| {
        let ips = vec![ipv4, ipv6];
        let addressed = [(tcp, ips.clone(), false), (udp, ips.clone(), true)];
        [&[(ipv4, vec![], false)][..], &addressed, &[(icmp, vec![], false), (icmp6, ips, false)]].concat()
    });
    let found = CHECKSUMS.map(|row| (row.header, row.pseudo_header.to_vec(), row.zero_is_none));
    assert_eq!(found[..], rows.concat());
}

/// Recomputes all checksums in full, the innermost first, except for UDP without one.
fn fill(packet: &mut [u8], layers: &Layers) {
    for checksum in &CHECKSUMS {
        let Some(start) = layers.offset(checksum.header) else { continue };
        let at = start + usize::from(checksum.offset_bytes);
        if checksum.zero_is_none && packet[at..at + 2] == [0, 0] {
            continue;
        }
        let payload_bytes = if checksum.covers_payload { layers.payload_len(checksum.header).unwrap() } else { 0 };
        let covered_bytes = layers.len(checksum.header).unwrap() + payload_bytes;
        let mut sum = Sum::new().bytes(&packet[start..at]).bytes(&packet[at + 2..start + covered_bytes]);
        for ip in checksum.pseudo_header {
            let Some(ip_at) = layers.offset(*ip) else { continue };
            let is_v4 = matches!(ip, Header::Ipv4 | Header::InnerIpv4);
            let addresses = if is_v4 { ip_at + 12..ip_at + 20 } else { ip_at + 8..ip_at + 40 };
            let proto = match checksum.header {
                Header::Tcp | Header::InnerTcp => 6,
                Header::Udp | Header::InnerUdp => 17,
                _ => 58,
            };
            sum = sum.bytes(&packet[addresses]).word(proto).bytes(&(covered_bytes as u32).to_be_bytes());
        }
        let value = match sum.checksum() {
            0 if checksum.zero_is_none => 0xffff,
            value => value,
        };
        packet[at..at + 2].copy_from_slice(&value.to_be_bytes());
    }
}

/// The outermost and the inner IP packet as Ethernet frames for `etherparse`.
fn frames(packet: &[u8], layers: &Layers) -> Vec<Vec<u8>> {
    let kinds = [(OUTER[0], [8, 0]), (OUTER[1], [0x86, 0xdd]), (INNER[0], [8, 0]), (INNER[1], [0x86, 0xdd])];
    let frame = |(header, ethertype): (Header, [u8; 2])| {
        let at = layers.offset(header)?;
        Some([&[0; 12][..], &ethertype, &packet[at..]].concat())
    };
    kinds.into_iter().filter_map(frame).collect()
}

/// Whether the checksums that `etherparse` can compute are correct; `None` if it rejects the packet.
fn reference_accepts_checksums(packet: &[u8]) -> Option<bool> {
    let parsed = SlicedPacket::from_ethernet(packet).ok()?;
    let transport = match parsed.net? {
        NetSlice::Ipv4(ip) => {
            let header = ip.header().to_header();
            let (src, dst) = (header.source, header.destination);
            header.calc_header_checksum() == header.header_checksum
                && match parsed.transport {
                    Some(TransportSlice::Tcp(tcp)) => tcp.calc_checksum_ipv4(src, dst).ok()? == tcp.checksum(),
                    Some(TransportSlice::Udp(udp)) if udp.checksum() != 0 => {
                        let header: UdpHeader = udp.to_header();
                        header.calc_checksum_ipv4_raw(src, dst, udp.payload()).ok()? == udp.checksum()
                    }
                    Some(TransportSlice::Icmpv4(icmp)) => {
                        Sum16BitWords::new().add_slice(icmp.slice()).ones_complement() == 0
                    }
                    _ => true,
                }
        }
        NetSlice::Ipv6(ip) => {
            let (src, dst) = (ip.header().source(), ip.header().destination());
            match parsed.transport {
                Some(TransportSlice::Tcp(tcp)) => tcp.calc_checksum_ipv6(src, dst).ok()? == tcp.checksum(),
                Some(TransportSlice::Udp(udp)) if udp.checksum() != 0 => {
                    let header: UdpHeader = udp.to_header();
                    header.calc_checksum_ipv6_raw(src, dst, udp.payload()).ok()? == udp.checksum()
                }
                Some(TransportSlice::Icmpv6(icmp)) => icmp.is_checksum_valid(src, dst),
                _ => true,
            }
        }
        NetSlice::Arp(_) => return None,
    };
    Some(transport)
}

/// A well-formed packet with correct checksums.
fn valid_packet(rng: &mut Rng) -> Vec<u8> {
    loop {
        let packet = PacketBuilder::random(rng, 20).build();
        // A fragment lacks some of the bytes that its transport checksum covers.
        let is_whole = |f: &Vec<u8>| SlicedPacket::from_ethernet(f).is_ok_and(|p| !p.is_ip_payload_fragmented());
        if frames(&packet, &Layers::parse(Graph::standard(), &packet)).iter().all(is_whole) {
            return packet;
        }
    }
}

#[test]
fn updated_checksums_equal_recomputed_ones() {
    let mut rng = Rng::from_env(0x21);
    let (mut changed, mut parsed, mut by_header) = (0, [0; 2], [0; Header::ALL.len()]);
    for _ in 0..60_000 {
        let packet = valid_packet(&mut rng);
        let layers = Layers::parse(Graph::standard(), &packet);
        for frame in frames(&packet, &layers) {
            assert_eq!(reference_accepts_checksums(&frame), Some(true), "the builder's own: {packet:02x?}");
        }
        let writes = random_writes(&mut rng, &packet, &layers);
        let kept = after(&packet, &writes);
        let tells_a_tunnel = |field: FieldId| matches!(&*field.name(), "udp.dport" | "l4.dport");
        if !writes.iter().any(|&(field, _)| tells_a_tunnel(field)) {
            assert_eq!(Layers::parse(Graph::standard(), &kept), layers, "no other write changes what is parsed");
        }
        let mut recomputed = kept.clone();
        fill(&mut recomputed, &layers);
        assert_eq!(kept, recomputed, "{writes:?} to {packet:02x?}");
        // After a fifth extension header `etherparse` finds a transport header that the graph does not reach.
        let reached = |headers: [Header; 6]| headers[2..].iter().any(|&h| layers.has(h));
        for (i, (frame, headers)) in frames(&kept, &layers).iter().zip([OUTER, INNER]).enumerate() {
            if let Some(right) = reference_accepts_checksums(frame).filter(|_| reached(headers)) {
                parsed[i] += 1;
                assert!(right, "{writes:?} to {packet:02x?}");
            }
        }
        changed += usize::from(kept != packet);
        for checksum in &CHECKSUMS {
            by_header[checksum.header as usize] += usize::from(layers.has(checksum.header));
        }
    }
    eprintln!("{changed} changed, {parsed:?} judged, {by_header:?} checksums by header");
    assert!(changed > 50_000 && parsed[0] > 45_000 && parsed[1] > 4_000);
    assert!(CHECKSUMS.iter().all(|c| by_header[c.header as usize] > 200));
}

#[test]
fn updates_preserve_the_error_of_a_checksum() {
    let mut rng = Rng::from_env(0x22);
    for _ in 0..30_000 {
        let packet = valid_packet(&mut rng);
        let layers = Layers::parse(Graph::standard(), &packet);
        let mut wrong = packet.clone();
        let mut differences = Vec::new();
        for checksum in &CHECKSUMS {
            let Some(offset) = layers.offset(checksum.header) else { continue };
            let at = offset + usize::from(checksum.offset_bytes);
            let old = u16::from_be_bytes([wrong[at], wrong[at + 1]]);
            let new = 1 + rng.below(0xffff) as u16;
            if old != 0 || !checksum.zero_is_none {
                wrong[at..at + 2].copy_from_slice(&new.to_be_bytes());
                differences.push((at, (u32::from(new) + 0xffff - u32::from(old)) % 0xffff));
            }
        }
        let writes = random_writes(&mut rng, &packet, &layers);
        let (right, wrong) = (after(&packet, &writes), after(&wrong, &writes));
        for (at, difference) in differences {
            let [right, wrong] = [&right, &wrong].map(|p| u32::from(u16::from_be_bytes([p[at], p[at + 1]])));
            assert_eq!((wrong + 0xffff - right) % 0xffff, difference % 0xffff, "{writes:?} to {packet:02x?}");
        }
    }
}

#[test]
fn writes_change_only_their_fields() {
    let mut rng = Rng::from_env(0x23);
    for _ in 0..30_000 {
        let packet = PacketBuilder::random(&mut rng, 20).build();
        let layers = Layers::parse(Graph::standard(), &packet);
        let writes = random_writes(&mut rng, &packet, &layers);
        let kept = after(&packet, &writes);
        assert_eq!(kept.len(), packet.len());
        // The model: one write after the other, bit by bit.
        let mut expected = packet.clone();
        let mut free = vec![0u8; packet.len()];
        for &(field, value) in &writes {
            let Some(concrete) = layers.resolve(field) else { continue };
            let Source::Header(header, slice) = concrete.source() else { unreachable!() };
            for i in 0..usize::from(slice.width_bits) {
                let bit = layers.offset(header).unwrap() * 8 + usize::from(slice.offset_bits) + i;
                let set = value >> (usize::from(slice.width_bits) - 1 - i) & 1 != 0;
                let mask = 0x80 >> (bit % 8);
                expected[bit / 8] = if set { expected[bit / 8] | mask } else { expected[bit / 8] & !mask };
            }
        }
        for checksum in &CHECKSUMS {
            if let Some(offset) = layers.offset(checksum.header) {
                free[offset + usize::from(checksum.offset_bytes)..][..2].fill(0xff);
            }
        }
        for (i, free) in free.iter().enumerate() {
            assert_eq!(kept[i] & !free, expected[i] & !free, "byte {i}: {writes:?} to {packet:02x?}");
        }
    }
}

#[test]
fn truncated_bytes_do_not_affect_updates() {
    let mut rng = Rng::from_env(0x24);
    let mut cut = 0;
    for _ in 0..30_000 {
        let packet = PacketBuilder::random(&mut rng, 20).build();
        let layers = Layers::parse(Graph::standard(), &packet);
        let len = rng.below(packet.len() + 1);
        if Layers::parse(Graph::standard(), &packet[..len]) == layers {
            let writes = random_writes(&mut rng, &packet, &layers);
            assert_eq!(after(&packet[..len], &writes), after(&packet, &writes)[..len]);
            cut += 1;
        }
    }
    assert!(cut > 5_000, "{cut}");
}
