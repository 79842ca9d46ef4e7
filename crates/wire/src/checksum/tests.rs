// SPDX-License-Identifier: Apache-2.0 OR MIT
#![allow(clippy::unwrap_used)]
use super::*;
use crate::graph::Graph;

fn id(name: &str) -> FieldId {
    FieldId::by_name(name).unwrap()
}

/// IPv4 and UDP with the given checksums.
fn udp(ip_checksum: u16, udp_checksum: u16) -> Vec<u8> {
    let mut p = vec![0; 12];
    p.extend([0x08, 0x00, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17]);
    p.extend(ip_checksum.to_be_bytes());
    p.extend([10, 0, 0, 1, 10, 0, 0, 2, 0, 7, 0, 9, 0, 8]);
    p.extend(udp_checksum.to_be_bytes());
    p
}

fn ip_checksum(p: &[u8]) -> u16 {
    u16::from_be_bytes([p[24], p[25]])
}

fn udp_checksum(p: &[u8]) -> u16 {
    u16::from_be_bytes([p[40], p[41]])
}

fn rewritten(mut p: Vec<u8>, writes: &[(&str, u128)]) -> Vec<u8> {
    let layers = Layers::parse(Graph::standard(), &p);
    let writes: Vec<_> = writes.iter().map(|&(name, value)| (id(name), value)).collect();
    rewrite(&mut p, &layers, &writes);
    p
}

#[test]
fn sums() {
    // The example of RFC 1071 section 3: the words add up to ddf2.
    let sum = Sum::new().bytes(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
    assert_eq!(sum.checksum(), !0xddf2);
    assert_eq!(Sum::new().bytes(&[0x12]).checksum(), !0x1200);
    assert_eq!(Sum::new().checksum(), 0xffff);
}

#[test]
fn words_of_a_slice() {
    assert_eq!(crate::graph::bytes(0, 2).words(), 0b1);
    assert_eq!(crate::graph::bytes(3, 1).words(), 0b10);
    assert_eq!(crate::graph::bytes(3, 2).words(), 0b110);
    assert_eq!(crate::graph::bits(12, 20).words(), 0b11);
    assert_eq!(crate::graph::bytes(62, 2).words(), 1 << 31);
    assert_eq!(ADDRESS_WORDS[Header::Ipv4 as usize], 0b11_1100_0000);
    assert_eq!(ADDRESS_WORDS[Header::Ipv6 as usize], 0xf_fff0);
    assert_eq!(ADDRESS_WORDS[Header::Tcp as usize], 0);
}

#[test]
fn the_example_of_rfc_1624() {
    // Section 4: HC = 0xdd2f, m = 0x5555, m' = 0x3285 gives 0x0000 (equation 3), not 0xffff. The changed word is part
    // of an address here, so that UDP sends the checksum as 0xffff.
    let mut p = udp(0xdd2f, 0xdd2f);
    p[26..28].copy_from_slice(&[0x55, 0x55]);
    let p = rewritten(p, &[("ipv4.src", 0x3285_0001)]);
    assert_eq!(ip_checksum(&p), 0);
    assert_eq!(udp_checksum(&p), 0xffff);
}

#[test]
fn zero_checksums_and_errors_are_preserved() {
    let p = rewritten(udp(0x1234, 0), &[("ip.dst", 0x0a00_0003), ("udp.dport", 10)]);
    assert_eq!(udp_checksum(&p), 0);
    assert_eq!(ip_checksum(&p), 0x1233);
    assert_eq!(&p[30..38], &[10, 0, 0, 3, 0, 7, 0, 10]);
}

#[test]
fn only_covered_writes_count() {
    let p = rewritten(udp(0xffff, 0xffff), &[("eth.src", 1), ("udp.sport", 7)]);
    assert_eq!(ip_checksum(&p), 0xffff, "nothing of its header was written");
    assert_eq!(udp_checksum(&p), 0xffff, "0, sent as 0xffff");
    let p = rewritten(udp(0xffff, 0x1111), &[("ipv4.ttl", 64)]);
    assert_eq!(ip_checksum(&p), 0, "written with its old value");
    assert_eq!(udp_checksum(&p), 0x1111, "the pseudo header has no time to live");
    let p = rewritten(
        udp(1, 0x1111),
        &[("tcp.sport", 1), ("ipv6.src", 1), ("ip.proto", 6), ("udp.len", 0), ("pkt.port", 4)],
    );
    assert_eq!(p, udp(1, 0x1111), "absent or fixed");
}

#[test]
fn overlapping_writes_count_once() {
    let p = rewritten(udp(0x1000, 0), &[("ip.tos", 0xff), ("ipv4.ecn", 0), ("ipv4.tos", 0x10), ("ipv4.ecn", 2)]);
    assert_eq!(p[15], 0x12);
    assert_eq!(ip_checksum(&p), 0x1000 - 0x12);
}
