// SPDX-License-Identifier: Apache-2.0 OR MIT
#![allow(clippy::unwrap_used)]
use super::*;

fn message(result: Result<impl Sized, ViewError>) -> String {
    result.map(|_| ()).unwrap_err().to_string()
}

#[test]
fn errors_name_the_missing_bytes() {
    assert_eq!(message(EthernetFrame::new_checked(&[0; 13][..])), "Ethernet header needs 14 bytes, 13 are present");
    assert_eq!(message(VlanTag::new_checked(&[0; 3][..])), "VLAN header needs 4 bytes, 3 are present");
    let mut ip = [0; 24];
    assert_eq!(message(Ipv4Packet::new_checked(&ip[..])), "IP version is 0, expected 4");
    ip[0] = 0x44;
    assert_eq!(message(Ipv4Packet::new_checked(&ip[..])), "IPv4 length field is 16 bytes, expected at least 20");
    ip[0] = 0x47;
    assert_eq!(message(Ipv4Packet::new_checked(&ip[..])), "IPv4 header needs 28 bytes, 24 are present");
    ip[0] = 0x46;
    ip[3] = 23;
    assert_eq!(message(Ipv4Packet::new_checked(&ip[..])), "IPv4 length field is 23 bytes, expected at least 24");
    ip[3] = 24;
    assert!(Ipv4Packet::new_checked(&ip[..]).is_ok());
    assert_eq!(message(Ipv6Packet::new_checked(&[0x40; 40][..])), "IP version is 4, expected 6");
    let mut tcp = [0; 20];
    assert_eq!(message(TcpSegment::new_checked(&tcp[..])), "TCP length field is 0 bytes, expected at least 20");
    tcp[12] = 0x60;
    assert_eq!(message(TcpSegment::new_checked(&tcp[..])), "TCP header needs 24 bytes, 20 are present");
    assert_eq!(message(UdpDatagram::new_checked(&[0; 8][..])), "UDP length field is 0 bytes, expected at least 8");
    assert_eq!(message(IcmpMessage::new_checked(&[0; 7][..])), "ICMP header needs 8 bytes, 7 are present");
}

#[test]
fn payloads_end_at_the_declared_length_or_truncation() {
    let mut ip = [0; 30];
    (ip[0], ip[3]) = (0x45, 25);
    assert_eq!(Ipv4Packet::new_checked(&ip[..]).unwrap().payload().len(), 5);
    ip[2] = 1;
    assert_eq!(Ipv4Packet::new_checked(&ip[..]).unwrap().payload().len(), 10);
    let mut udp = [0; 12];
    udp[5] = 10;
    assert_eq!(UdpDatagram::new_checked(&udp[..]).unwrap().payload().len(), 2);
    udp[5] = 20;
    let mut udp = UdpDatagram::new_checked(udp).unwrap();
    assert_eq!(udp.payload().len(), 4);
    assert!(!udp.fill_checksum([10, 0, 0, 1].into(), [10, 0, 0, 2].into()));
}

#[test]
fn setters_preserve_adjacent_fields() {
    let mut tag = VlanTag::new_checked([0xff; 4]).unwrap();
    tag.set_id(0x1234);
    tag.set_pcp(2);
    assert_eq!((tag.pcp(), tag.dei(), tag.id(), tag.ethertype()), (2, true, 0x234, EtherType(0xffff)));
    let mut ip = Ipv6Packet::new_checked([0x6f; 40]).unwrap();
    ip.set_traffic_class(0x12);
    ip.set_flow_label(0xfff3_4567);
    assert_eq!((ip.traffic_class(), ip.flow_label(), ip.payload_len()), (0x12, 0x3_4567, 0x6f6f));
    assert!(Ipv6Packet::new_checked([0x61; 40]).is_ok());
}

#[test]
fn a_known_ipv4_header() {
    let bytes = [0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0, 0, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7];
    let mut ip = Ipv4Packet::new_checked(bytes).unwrap();
    assert_eq!(ip.computed_checksum(), 0xb861);
    ip.fill_checksum();
    assert_eq!(ip.checksum(), 0xb861);
}
