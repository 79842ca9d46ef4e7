// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Compares the reference parser with `etherparse` on well-formed and malformed packets of all kinds.
#![allow(clippy::unwrap_used, clippy::print_stderr)]

use etherparse::{LinkExtSlice, LinkSlice, NetSlice, SlicedPacket, TransportSlice};
use flowloom_testkit::{PacketBuilder, Rng, mutate};
use flowloom_wire::field::IPV4_MAPPED;
use flowloom_wire::{FieldId, Graph, Header, Layers};

/// The parse of one IP packet, outermost or inner.
struct Reader<'a> {
    packet: &'a [u8],
    layers: Layers,
    is_inner: bool,
    /// Number of bytes by which the headers before the IP packet are shorter in the frame that `etherparse` gets.
    shift_bytes: usize,
}

impl Reader<'_> {
    #[track_caller]
    fn expect(&self, name: &str, value: Option<u128>) {
        let name = format!("{}{name}", if self.is_inner { "inner." } else { "" });
        let found = self.layers.read(self.packet, 0, FieldId::by_name(&name).unwrap());
        assert_eq!(found, value, "{name} of {:02x?}", self.packet);
    }

    fn header(&self, outer: Header, inner: Header) -> Header {
        if self.is_inner { inner } else { outer }
    }
}

/// The frame without its MPLS labels, and their length; `None` if no IP packet follows the labels.
fn without_labels(packet: &[u8]) -> Option<(Vec<u8>, usize)> {
    let mut at = 12;
    for _ in 0..2 {
        if matches!(packet.get(at..at + 2), Some([0x81, 0] | [0x88, 0xa8])) {
            at += 4;
        }
    }
    if packet.get(at..at + 2) != Some(&[0x88, 0x47]) {
        return Some((packet.to_vec(), 0));
    }
    let label = packet[at + 2..].chunks_exact(4).take(4).position(|label| label[2] & 1 != 0)?;
    let rest = &packet[at + 2 + 4 * (label + 1)..];
    let ethertype = match rest.first()? >> 4 {
        4 => [0x08, 0x00],
        6 => [0x86, 0xdd],
        _ => return None,
    };
    Some(([&packet[..at], &ethertype, rest].concat(), 4 * (label + 1)))
}

/// Offset of the inner packet from the start of the GTP-U header, in bytes.
fn in_tunnel(gtpu: &[u8]) -> Option<usize> {
    let flags = gtpu.first()?;
    if flags >> 4 != 3 || *gtpu.get(1)? != 255 {
        return None;
    }
    let mut at = 8;
    if flags & 7 != 0 {
        at = 12;
        let mut extensions = 0;
        while flags & 4 != 0 && *gtpu.get(at - 1)? != 0 {
            extensions += 1;
            let len = 4 * usize::from(*gtpu.get(at)?);
            if len == 0 || extensions > 4 {
                return None;
            }
            at += len;
        }
    }
    (at < gtpu.len()).then_some(at)
}

#[derive(Default, Debug)]
struct Counts {
    compared: usize,
    refused: usize,
    tcp: usize,
    udp: usize,
    icmp: usize,
    fragments: usize,
    extensions: usize,
    tags: usize,
    labelled: usize,
    tunnels: usize,
}

fn address(octets: &[u8]) -> u128 {
    octets.iter().fold(0, |value, &byte| value << 8 | u128::from(byte))
}

/// Compares the parses if `etherparse` accepts the packet: it requires all bytes that the lengths promise.
fn compare(packet: &[u8], counts: &mut Counts) {
    let layers = Layers::parse(Graph::standard(), packet);
    let mut reader = Reader { packet, layers, is_inner: false, shift_bytes: 0 };
    let Some((frame, shift_bytes)) = without_labels(packet) else {
        reader.expect("ip.proto", None);
        return;
    };
    reader.shift_bytes = shift_bytes;
    let Ok(reference) = SlicedPacket::from_ethernet(&frame) else {
        counts.refused += 1;
        return;
    };
    counts.compared += 1;
    if let Some(LinkSlice::Ethernet2(ethernet)) = &reference.link {
        reader.expect("eth.src", Some(address(&ethernet.source())));
        reader.expect("eth.dst", Some(address(&ethernet.destination())));
        if shift_bytes == 0 {
            reader.expect("eth.type", Some(ethernet.ether_type().0.into()));
        }
    }
    counts.labelled += usize::from(shift_bytes > 0);
    let tags: Vec<_> = reference
        .link_exts
        .iter()
        .map_while(|ext| match ext {
            LinkExtSlice::Vlan(tag) => Some(u128::from(tag.vlan_identifier().value())),
            _ => None,
        })
        .collect();
    counts.tags += tags.len();
    if tags.len() < reference.link_exts.len() || (0..=tags.len()).any(|i| packet[12 + 4 * i..].starts_with(&[0x91, 0]))
    {
        return; // MACsec, and the EtherType of double tags before 802.1ad, which the graph does not follow.
    }
    reader.expect("vlan.id", tags.first().copied());
    reader.expect("vlan2.id", tags.get(1).copied());
    if tags.len() > 2 {
        reader.expect("ip.src", None);
        return;
    }
    compare_ip(&reader, &frame, &reference, counts);
}

fn compare_ip(reader: &Reader<'_>, frame: &[u8], reference: &SlicedPacket<'_>, counts: &mut Counts) {
    let packet = reader.packet;
    let followed = match &reference.net {
        Some(NetSlice::Ipv4(ip)) => {
            let header = ip.header();
            reader.expect("ip.src", Some(IPV4_MAPPED | address(&header.source())));
            reader.expect("ipv4.dst", Some(address(&header.destination())));
            reader.expect("ipv4.ihl", Some(header.ihl().into()));
            reader.expect("ipv4.len", Some(header.total_len().into()));
            reader.expect("ipv4.dscp", Some(header.dcp().value().into()));
            reader.expect("ipv4.ecn", Some(header.ecn().value().into()));
            reader.expect("ip.tos", Some((header.dcp().value() << 2 | header.ecn().value()).into()));
            reader.expect("ipv4.id", Some(header.identification().into()));
            reader.expect("ipv4.df", Some(header.dont_fragment().into()));
            reader.expect("ipv4.mf", Some(header.more_fragments().into()));
            reader.expect("ipv4.frag", Some(header.fragments_offset().value().into()));
            reader.expect("ip.ttl", Some(header.ttl().into()));
            reader.expect("ip.proto", Some(header.protocol().0.into()));
            reader.expect("ipv4.checksum", Some(header.header_checksum().into()));
            if header.fragments_offset().value() > 0 {
                reader.expect("l4.sport", None);
            }
            // An authentication header over IPv4, which the graph does not follow.
            ip.extensions().is_empty() && !ip.payload().fragmented
        }
        Some(NetSlice::Ipv6(ip)) => {
            let header = ip.header();
            reader.expect("ip.src", Some(address(&header.source())));
            reader.expect("ipv6.dst", Some(address(&header.destination())));
            reader.expect("ipv6.tc", Some(header.traffic_class().into()));
            reader.expect("ip.tos", Some(header.traffic_class().into()));
            reader.expect("ipv6.len", Some(header.payload_length().into()));
            reader.expect("ipv6.flow_label", Some(header.flow_label().value().into()));
            reader.expect("ipv6.next", Some(header.next_header().0.into()));
            reader.expect("ip.ttl", Some(header.hop_limit().into()));
            let extensions = ip.extensions().clone().into_iter().count();
            counts.extensions += extensions;
            let jumbo = header.payload_length() == 0; // `etherparse` treats it as a jumbogram
            if extensions <= 4 && !ip.payload().fragmented && !jumbo {
                reader.expect("ip.proto", Some(ip.payload().ip_number.0.into()));
            }
            if extensions > 4 {
                reader.expect("l4.sport", None);
            }
            extensions <= 4 && !ip.payload().fragmented && !jumbo
        }
        Some(NetSlice::Arp(_)) | None => {
            reader.expect("ip.proto", None);
            return;
        }
    };
    if !followed {
        counts.fragments += 1;
        return;
    }
    let start = frame.as_ptr() as usize;
    let offset = |slice: &[u8]| slice.as_ptr() as usize - start + reader.shift_bytes;
    let place = |header: Header, slice: &[u8]| {
        assert_eq!(reader.layers.offset(header), Some(offset(slice)), "{packet:02x?}");
    };
    match &reference.transport {
        Some(TransportSlice::Tcp(tcp)) => {
            counts.tcp += 1;
            let header = reader.header(Header::Tcp, Header::InnerTcp);
            place(header, tcp.slice());
            assert_eq!(reader.layers.len(header), Some(tcp.header_slice().len()));
            reader.expect("l4.sport", Some(tcp.source_port().into()));
            reader.expect("tcp.dport", Some(tcp.destination_port().into()));
            reader.expect("tcp.seq", Some(tcp.sequence_number().into()));
            reader.expect("tcp.ack", Some(tcp.acknowledgment_number().into()));
            reader.expect("tcp.is_syn", Some(tcp.syn().into()));
            reader.expect("tcp.is_ack", Some(tcp.ack().into()));
            reader.expect("tcp.is_fin", Some(tcp.fin().into()));
            reader.expect("tcp.is_rst", Some(tcp.rst().into()));
            reader.expect("tcp.is_psh", Some(tcp.psh().into()));
            reader.expect("tcp.is_urg", Some(tcp.urg().into()));
            reader.expect("tcp.is_ece", Some(tcp.ece().into()));
            reader.expect("tcp.is_cwr", Some(tcp.cwr().into()));
            reader.expect("tcp.flags", Some(tcp.slice()[13].into()));
            reader.expect("tcp.checksum", Some(tcp.checksum().into()));
            reader.expect("tcp.window", Some(tcp.window_size().into()));
            reader.expect("tcp.urgent", Some(tcp.urgent_pointer().into()));
            reader.expect("tcp.payload_len", Some(tcp.payload().len() as u128));
        }
        Some(TransportSlice::Udp(udp)) if udp.length() >= 8 => {
            counts.udp += 1;
            place(reader.header(Header::Udp, Header::InnerUdp), udp.slice());
            reader.expect("l4.sport", Some(udp.source_port().into()));
            reader.expect("l4.dport", Some(udp.destination_port().into()));
            reader.expect("udp.len", Some(udp.length().into()));
            reader.expect("udp.checksum", Some(udp.checksum().into()));
            reader.expect("tcp.payload_len", None);
            if !reader.is_inner && udp.destination_port() == 2152 {
                compare_tunnel(reader, udp.payload(), offset(udp.payload()), counts);
            }
        }
        Some(TransportSlice::Icmpv4(icmp)) if reader.layers.has(reader.header(Header::Ipv4, Header::InnerIpv4)) => {
            counts.icmp += 1;
            place(reader.header(Header::Icmp, Header::InnerIcmp), icmp.slice());
            reader.expect("icmp.type", Some(icmp.type_u8().into()));
            reader.expect("icmp.code", Some(icmp.code_u8().into()));
            reader.expect("icmp.checksum", Some(icmp.checksum().into()));
            reader.expect("icmp.id", Some(address(&icmp.slice()[4..6])));
            reader.expect("icmp.seq", Some(address(&icmp.slice()[6..8])));
        }
        Some(TransportSlice::Icmpv6(icmp)) if reader.layers.has(reader.header(Header::Ipv6, Header::InnerIpv6)) => {
            counts.icmp += 1;
            place(reader.header(Header::Icmp6, Header::InnerIcmp6), icmp.slice());
            reader.expect("icmp6.type", Some(icmp.type_u8().into()));
            reader.expect("icmp6.code", Some(icmp.code_u8().into()));
            reader.expect("icmp6.id", Some(address(&icmp.slice()[4..6])));
            reader.expect("icmp6.seq", Some(address(&icmp.slice()[6..8])));
            reader.expect("icmp6.checksum", Some(icmp.checksum().into()));
        }
        _ => {
            for name in ["tcp.sport", "udp.sport", "icmp.type", "icmp6.type"] {
                reader.expect(name, None);
            }
        }
    }
}

fn compare_tunnel(outer: &Reader<'_>, gtpu: &[u8], offset: usize, counts: &mut Counts) {
    let is_gtpu = gtpu.len() >= 8 && gtpu[0] >> 4 == 3;
    outer.expect("gtpu.teid", is_gtpu.then(|| address(&gtpu[4..8])));
    outer.expect("gtpu.type", is_gtpu.then(|| gtpu[1].into()));
    let Some(at) = in_tunnel(gtpu).filter(|_| is_gtpu) else {
        outer.expect("inner.ip.proto", None);
        return;
    };
    let inner = &gtpu[at..];
    let ethertype = if inner[0] >> 4 == 6 { [0x86, 0xdd] } else { [0x08, 0x00] };
    let frame = [&[0; 12][..], &ethertype, inner].concat();
    let Ok(reference) = SlicedPacket::from_ethernet(&frame) else { return };
    counts.tunnels += 1;
    let shift_bytes = offset + at - 14;
    let reader = Reader { packet: outer.packet, layers: outer.layers, is_inner: true, shift_bytes };
    compare_ip(&reader, &frame, &reference, counts);
}

#[test]
fn parses_agree_on_valid_packets() {
    let mut rng = Rng::from_env(0x11);
    let mut counts = Counts::default();
    for _ in 0..50_000 {
        compare(&PacketBuilder::random(&mut rng, 20).build(), &mut counts);
    }
    eprintln!("{counts:?}");
    assert!(counts.compared > 45_000 && counts.icmp > 3_000, "{counts:?}");
    assert!(counts.tcp > 10_000 && counts.udp > 10_000, "{counts:?}");
    assert!(counts.labelled > 4_000 && counts.tunnels > 4_000, "{counts:?}");
    assert!(counts.fragments > 2_000 && counts.extensions > 2_000 && counts.tags > 10_000, "{counts:?}");
}

#[test]
fn parses_agree_on_malformed_packets() {
    let mut rng = Rng::from_env(0x12);
    let mut counts = Counts::default();
    for _ in 0..100_000 {
        let mut packet = PacketBuilder::random(&mut rng, 20).build();
        mutate(&mut rng, &mut packet);
        compare(&packet, &mut counts);
    }
    eprintln!("{counts:?}");
    assert!(counts.compared > 30_000 && counts.refused > 10_000, "{counts:?}");
}
