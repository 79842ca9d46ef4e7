// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Incrementally updated checksums against full recomputation: by the views, and independently by `etherparse`.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use std::net::IpAddr;

use etherparse::checksum::Sum16BitWords;
use etherparse::{NetSlice, SlicedPacket, TransportSlice, UdpHeader};
use flowloom_testkit::{PacketBuilder, Rng};
use flowloom_wire::field::{CHECKSUMS, Source};
use flowloom_wire::view::{EthernetFrame, IcmpMessage, Ipv4Packet, Ipv6Packet, TcpSegment, UdpDatagram};
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

fn addresses(packet: &[u8], layers: &Layers, [v4, v6]: [Header; 2]) -> Option<(IpAddr, IpAddr)> {
    if let Some(at) = layers.offset(v4) {
        let ip = Ipv4Packet::new_checked(&packet[at..]).unwrap();
        return Some((ip.src().into(), ip.dst().into()));
    }
    let ip = Ipv6Packet::new_checked(&packet[layers.offset(v6)?..]).unwrap();
    Some((ip.src().into(), ip.dst().into()))
}

/// Fills in all checksums, except for UDP without one.
fn fill(packet: &mut [u8], layers: &Layers) {
    for [v4, v6, tcp, udp, icmp, icmp6] in [INNER, OUTER] {
        if let Some(at) = layers.offset(v4) {
            Ipv4Packet::new_checked(&mut packet[at..]).unwrap().fill_checksum();
        }
        let Some((src, dst)) = addresses(packet, layers, [v4, v6]) else { continue };
        for header in [tcp, udp, icmp, icmp6] {
            let Some(at) = layers.offset(header) else { continue };
            let len = layers.len(header).unwrap() + layers.payload_len(header).unwrap();
            let bytes = &mut packet[at..at + len];
            if header == tcp {
                TcpSegment::new_checked(bytes).unwrap().fill_checksum(src, dst);
            } else if header == udp {
                let mut udp = UdpDatagram::new_checked(bytes).unwrap();
                assert!(udp.checksum() == 0 || udp.fill_checksum(src, dst));
            } else {
                let pseudo_header = (header == icmp6).then_some((src, dst));
                IcmpMessage::new_checked(bytes).unwrap().fill_checksum(pseudo_header);
            }
        }
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

#[test]
fn views_agree_with_the_field_catalogue() {
    let mut rng = Rng::from_env(0x25);
    for _ in 0..20_000 {
        let packet = PacketBuilder::random(&mut rng, 20).build();
        let layers = Layers::parse(Graph::standard(), &packet);
        let read = |name: &str| layers.read(&packet, 0, FieldId::by_name(name).unwrap()).unwrap();
        let address = |octets: &[u8]| octets.iter().fold(0, |value, &byte| value << 8 | u128::from(byte));
        let frame = EthernetFrame::new_checked(&packet[..]).unwrap();
        assert_eq!(read("eth.src"), address(&frame.src()));
        assert_eq!(read("eth.dst"), address(&frame.dst()));
        assert_eq!(read("eth.type"), frame.ethertype().0.into());
        if let Some(at) = layers.offset(Header::Ipv4) {
            let ip = Ipv4Packet::new_checked(&packet[at..]).unwrap();
            assert_eq!(read("ipv4.src"), address(&ip.src().octets()));
            assert_eq!(read("ipv4.dst"), address(&ip.dst().octets()));
            assert_eq!(read("ip.tos"), ip.tos().into());
            assert_eq!(read("ipv4.ttl"), ip.ttl().into());
            assert_eq!(read("ipv4.id"), ip.id().into());
            assert_eq!(read("ipv4.df"), ip.dont_fragment().into());
            assert_eq!(read("ipv4.mf"), ip.more_fragments().into());
            assert_eq!(read("ipv4.frag") as usize * 8, ip.fragment_offset_bytes());
            assert_eq!(read("ip.proto"), ip.protocol().0.into());
            assert_eq!(layers.len(Header::Ipv4), Some(ip.header_len()));
            assert_eq!(20 + ip.options().len(), ip.header_len());
        }
        if let Some(at) = layers.offset(Header::Ipv6) {
            let ip = Ipv6Packet::new_checked(&packet[at..]).unwrap();
            assert_eq!(read("ip.src"), address(&ip.src().octets()));
            assert_eq!(read("ip.dst"), address(&ip.dst().octets()));
            assert_eq!(read("ip.tos"), ip.traffic_class().into());
            assert_eq!(read("ipv6.flow_label"), ip.flow_label().into());
            assert_eq!(read("ipv6.hop_limit"), ip.hop_limit().into());
            assert_eq!(read("ipv6.next"), ip.next_header().0.into());
            assert_eq!(read("ipv6.len"), ip.payload_len().into());
        }
        if let Some(at) = layers.offset(Header::Tcp) {
            let tcp = TcpSegment::new_checked(&packet[at..]).unwrap();
            assert_eq!(read("l4.sport"), tcp.sport().into());
            assert_eq!(read("l4.dport"), tcp.dport().into());
            assert_eq!((read("tcp.seq"), read("tcp.ack")), (tcp.seq().into(), tcp.ack().into()));
            assert_eq!((read("tcp.flags"), read("tcp.window")), (tcp.flags().into(), tcp.window().into()));
            assert_eq!((read("tcp.checksum"), read("tcp.urgent")), (tcp.checksum().into(), tcp.urgent().into()));
            assert_eq!(layers.len(Header::Tcp), Some(tcp.header_len()));
        }
        if let Some(at) = layers.offset(Header::Udp) {
            let udp = UdpDatagram::new_checked(&packet[at..]).unwrap();
            assert_eq!((read("udp.sport"), read("udp.dport")), (udp.sport().into(), udp.dport().into()));
            assert_eq!((read("udp.len"), read("udp.checksum")), (udp.len_bytes().into(), udp.checksum().into()));
        }
        for (header, name) in [(Header::Icmp, "icmp"), (Header::Icmp6, "icmp6")] {
            let Some(at) = layers.offset(header) else { continue };
            let icmp = IcmpMessage::new_checked(&packet[at..]).unwrap();
            let values = [icmp.kind().into(), icmp.code().into(), icmp.checksum(), icmp.id(), icmp.seq()];
            for (field, value) in ["type", "code", "checksum", "id", "seq"].into_iter().zip(values) {
                assert_eq!(read(&format!("{name}.{field}")), value.into());
            }
        }
    }
}
