// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets by the number of their flow, with right checksums.

/// Kinds of packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packets {
    /// UDP over IPv4: each flow has a source address and a source port.
    Udp,
    /// TCP of established connections to the service of a load balancer, 1.0.0.1:80.
    Tcp,
    /// G-PDUs from a base station: each flow is a UE with one connection over UDP to 198.51.100.7:443.
    Gtpu,
    /// The same, but to another destination, 203.0.113.7.
    GtpuElsewhere,
    /// The core's replies to echo requests in the tunnels of these UEs, in their tunnels towards the base station.
    GtpuReply,
}

/// The greatest number of flows.
pub const MAX_FLOWS: u64 = 1 << 22;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
/// 100.64.0.0, the network of the flows' addresses: as many as [`MAX_FLOWS`].
const NETWORK: u32 = 0x6440_0000;
const BASE_STATION: [u8; 4] = [192, 0, 2, 10];
const GATEWAY: [u8; 4] = [192, 0, 2, 20];
/// The node that answers echo requests, and their identifier, as in `functions/gtpu_offload`.
const NODE: [u8; 4] = [192, 0, 2, 1];
const ECHO_MARK: u16 = 0x464c;
/// Ethernet, IPv4, UDP and GTP-U before the inner packet.
const TUNNEL: usize = ETHERNET + IPV4 + 8 + 8;

/// The ones' complement sum of 16-bit words.
fn sum(bytes: &[u8]) -> u64 {
    bytes.chunks(2).map(|word| u64::from(word[0]) << 8 | word.get(1).map_or(0, |low| u64::from(*low))).sum()
}

fn folded(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

fn put(packet: &mut [u8], at: usize, bytes: &[u8]) {
    packet[at..at + bytes.len()].copy_from_slice(bytes);
}

fn put16(packet: &mut [u8], at: usize, word: usize) {
    put(packet, at, &(word as u16).to_be_bytes());
}

/// Writes an IPv4 header for the rest of the packet.
fn put_ipv4(packet: &mut [u8], at: usize, protocol: u8, source: [u8; 4], destination: [u8; 4]) {
    let bytes = packet.len() - at;
    put(packet, at, &[0x45, 0]);
    put16(packet, at + 2, bytes);
    put(packet, at + 4, &[0, 0, 0, 0, 64, protocol, 0, 0]);
    put(packet, at + 12, &source);
    put(packet, at + 16, &destination);
    let check = !folded(sum(&packet[at..at + IPV4]));
    put16(packet, at + 10, check.into());
}

/// Adds words to those that a checksum covers, which were zeros.
fn add_to_check(packet: &mut [u8], at: usize, words: u64) {
    let check = u16::from_be_bytes([packet[at], packet[at + 1]]);
    put16(packet, at, (!folded(u64::from(!check) + words)).into());
}

impl Packets {
    /// The shortest packet: 64 bytes on the wire have 60 without the check sequence, which no engine sees.
    pub fn least_bytes(self) -> usize {
        match self {
            Packets::Udp | Packets::Tcp => 60,
            Packets::Gtpu | Packets::GtpuElsewhere | Packets::GtpuReply => TUNNEL + IPV4 + 8,
        }
    }

    /// A packet of this length, or of the shortest one, without a flow.
    pub fn template(self, bytes: usize) -> Vec<u8> {
        let mut packet = vec![0; bytes.max(self.least_bytes())];
        let all = packet.len();
        put(&mut packet, 0, &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
        let inner = ETHERNET + IPV4;
        match self {
            Packets::Udp => {
                put_ipv4(&mut packet, ETHERNET, 17, [0; 4], [192, 168, 0, 1]);
                put(&mut packet, inner + 2, &[0, 53]);
                put16(&mut packet, inner + 4, all - inner);
            }
            Packets::Tcp => {
                put_ipv4(&mut packet, ETHERNET, 6, [0; 4], [1, 0, 0, 1]);
                // Port 80, sequence numbers, 5 words, ACK, a window.
                put(&mut packet, inner + 2, &[0, 80, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff]);
                let pseudo = sum(&[1, 0, 0, 1, 0, 6]) + (all - inner) as u64;
                let check = !folded(pseudo + sum(&packet[inner..]));
                put16(&mut packet, inner + 16, check.into());
            }
            Packets::Gtpu | Packets::GtpuElsewhere | Packets::GtpuReply => {
                let is_up = self != Packets::GtpuReply;
                let (source, destination) = if is_up { (BASE_STATION, GATEWAY) } else { (GATEWAY, BASE_STATION) };
                put_ipv4(&mut packet, ETHERNET, 17, source, destination);
                put(&mut packet, inner, &2152u16.to_be_bytes());
                put(&mut packet, inner + 2, &2152u16.to_be_bytes());
                put16(&mut packet, inner + 4, all - inner);
                // Version 1 of GTP, a G-PDU.
                put(&mut packet, inner + 8, &[0x30, 255]);
                put16(&mut packet, inner + 10, all - TUNNEL);
                if is_up {
                    let to = if self == Packets::Gtpu { [198, 51, 100, 7] } else { [203, 0, 113, 7] };
                    put_ipv4(&mut packet, TUNNEL, 17, [0; 4], to);
                    put(&mut packet, TUNNEL + IPV4 + 2, &443u16.to_be_bytes());
                    put16(&mut packet, TUNNEL + IPV4 + 4, all - TUNNEL - IPV4);
                } else {
                    put_ipv4(&mut packet, TUNNEL, 1, NODE, [0; 4]);
                    put16(&mut packet, TUNNEL + IPV4 + 4, ECHO_MARK.into());
                    put16(&mut packet, TUNNEL + IPV4 + 6, 1);
                    let check = !folded(sum(&packet[TUNNEL + IPV4..]));
                    put16(&mut packet, TUNNEL + IPV4 + 2, check.into());
                }
            }
        }
        packet
    }

    /// Writes the flow, below [`MAX_FLOWS`], to a copy of the template.
    #[inline]
    pub fn write(self, packet: &mut [u8], flow: u64) {
        let address = NETWORK + (flow % MAX_FLOWS) as u32;
        let port = 1024 + (address as usize & 0x3fff);
        let words = u64::from(address >> 16) + u64::from(address & 0xffff);
        let (ip, at) = match self {
            Packets::Udp | Packets::Tcp => (ETHERNET, ETHERNET + 12),
            Packets::Gtpu | Packets::GtpuElsewhere => (TUNNEL, TUNNEL + 12),
            Packets::GtpuReply => (TUNNEL, TUNNEL + 16),
        };
        put(packet, at, &address.to_be_bytes());
        add_to_check(packet, ip + 10, words);
        match self {
            Packets::Udp | Packets::Gtpu | Packets::GtpuElsewhere => put16(packet, ip + IPV4, port),
            Packets::Tcp => {
                put16(packet, ip + IPV4, port);
                add_to_check(packet, ip + IPV4 + 16, words + port as u64);
            }
            Packets::GtpuReply => {}
        }
        if ip == TUNNEL {
            let way = if self == Packets::GtpuReply { 1 << 31 } else { 0 };
            put(packet, TUNNEL - 4, &(way | ((address & 0x3f_ffff) + 1)).to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Packets; 5] = [Packets::Udp, Packets::Tcp, Packets::Gtpu, Packets::GtpuElsewhere, Packets::GtpuReply];

    /// True if the words of a checksum's range add up.
    fn adds_up(sum: u64) -> bool {
        folded(sum) == 0xffff
    }

    #[test]
    fn lengths_and_checksums_are_right() {
        for kind in ALL {
            for (bytes, flow) in [(60, 0), (60, 1), (508, 65_535), (1020, 999_999), (1514, MAX_FLOWS - 1)] {
                let mut packet = kind.template(bytes);
                kind.write(&mut packet, flow);
                assert_eq!(packet.len(), bytes.max(kind.least_bytes()));
                let mut ips = vec![ETHERNET];
                if kind.least_bytes() > 60 {
                    ips.push(TUNNEL);
                }
                for ip in ips {
                    let place = format!("{kind:?}, {bytes} bytes, flow {flow}, header at {ip}");
                    assert!(adds_up(sum(&packet[ip..ip + IPV4])), "{place}");
                    assert_eq!(usize::from(packet[ip + 2]) << 8 | usize::from(packet[ip + 3]), packet.len() - ip);
                    let segment = &packet[ip + IPV4..];
                    match packet[ip + 9] {
                        6 => {
                            let pseudo = sum(&packet[ip + 12..ip + 20]) + 6 + segment.len() as u64;
                            assert!(adds_up(pseudo + sum(segment)), "{place}");
                        }
                        17 => assert_eq!(sum(&segment[4..6]), segment.len() as u64, "{place}"),
                        _ => assert!(adds_up(sum(segment)), "{place}"),
                    }
                }
            }
        }
    }

    #[test]
    fn flows_differ() {
        for kind in ALL {
            let of = |flow| {
                let mut packet = kind.template(60);
                kind.write(&mut packet, flow);
                packet
            };
            let all: std::collections::BTreeSet<Vec<u8>> = (0..20_000).map(of).collect();
            assert_eq!(all.len(), 20_000, "{kind:?}");
        }
    }
}
