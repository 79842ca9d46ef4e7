// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Serializes packets to bytes.

use super::host::{Addresses, Host};
use flowloom_random::mix;
use flowloom_wire::checksum::Sum;

/// The smallest and the largest generated Ethernet frame, without the check sequence.
pub(super) const SMALLEST_BYTES: u32 = 60;
pub(super) const LARGEST_BYTES: u32 = 9014;
/// A full frame at an IP MTU of 1500 bytes.
pub(super) const FULL_BYTES: u32 = 1514;

pub(super) const FIN: u8 = 0x01;
pub(super) const SYN: u8 = 0x02;
pub(super) const PSH: u8 = 0x08;
pub(super) const ACK: u8 = 0x10;

const ETHERNET_BYTES: u32 = 14;
const TCP_BYTES: u32 = 20;
const UDP_BYTES: u32 = 8;
const ECHO_BYTES: u32 = 8;
const TIMESTAMPS_BYTES: u32 = 12;
const SYN_OPTIONS_BYTES: u32 = 12;
const MSS: u16 = 1460;
const WINDOW_SHIFT: u8 = 7;
/// The largest header: Ethernet, IPv6, TCP with all options.
const MAX_HEADER_BYTES: usize = 14 + 40 + 20 + (SYN_OPTIONS_BYTES + TIMESTAMPS_BYTES) as usize;

/// Transport header after the IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp {
        sport: u16,
        dport: u16,
        seq: u32,
        ack: u32,
        flags: u8,
        /// Timestamp option, in milliseconds: the sender's clock and the echo reply.
        timestamps: Option<(u32, u32)>,
    },
    Udp {
        sport: u16,
        dport: u16,
    },
    Echo {
        is_reply: bool,
        id: u16,
        seq: u16,
    },
}

impl Transport {
    /// Header length. A frame of fixed length omits options that do not fit.
    fn header_bytes(&self, room_bytes: u32) -> u32 {
        match *self {
            Transport::Udp { .. } => UDP_BYTES,
            Transport::Echo { .. } => ECHO_BYTES,
            Transport::Tcp { flags, timestamps, .. } => {
                let (with_syn, with_time) = options(flags, timestamps.is_some(), room_bytes);
                TCP_BYTES + if with_syn { SYN_OPTIONS_BYTES } else { 0 } + if with_time { TIMESTAMPS_BYTES } else { 0 }
            }
        }
    }
}

/// True, for SYN options and timestamps each, if a segment carries them.
fn options(flags: u8, has_timestamps: bool, room_bytes: u32) -> (bool, bool) {
    let with_syn = flags & SYN != 0 && room_bytes >= TCP_BYTES + SYN_OPTIONS_BYTES;
    let taken = TCP_BYTES + if with_syn { SYN_OPTIONS_BYTES } else { 0 };
    (with_syn, has_timestamps && room_bytes >= taken + TIMESTAMPS_BYTES)
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Packet {
    pub(super) src: Host,
    pub(super) dst: Host,
    pub(super) transport: Transport,
    pub(super) payload_bytes: u32,
    /// Length on the wire, at least that of headers and payload.
    pub(super) len_bytes: u32,
}

/// Length policy of packets.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    /// Length of every packet, if fixed.
    pub(super) fixed_bytes: Option<u32>,
}

impl Lengths {
    /// A packet of this length, if lengths are not fixed; `None` requests the shortest packet, without payload. A
    /// fixed-length frame without payload is padded after the IP packet.
    pub(super) fn packet(self, [src, dst]: [Host; 2], transport: Transport, desired_bytes: Option<u32>) -> Packet {
        let ip_bytes = ETHERNET_BYTES + if src.is_ipv6() { 40 } else { 20 };
        let room_bytes = self.fixed_bytes.unwrap_or(LARGEST_BYTES).saturating_sub(ip_bytes);
        let header_bytes = ip_bytes + transport.header_bytes(room_bytes);
        let desired_bytes = desired_bytes.map(|desired| self.fixed_bytes.unwrap_or(desired));
        let payload_bytes = desired_bytes.map_or(0, |desired| desired.saturating_sub(header_bytes));
        let len_bytes = self.fixed_bytes.unwrap_or(SMALLEST_BYTES).max(header_bytes + payload_bytes);
        Packet { src, dst, transport, payload_bytes, len_bytes }
    }

    /// The shortest frame that fits every packet of the given families.
    pub(super) fn smallest_bytes(has_ipv6: bool, has_tcp: bool) -> u32 {
        let ip_bytes = ETHERNET_BYTES + if has_ipv6 { 40 } else { 20 };
        SMALLEST_BYTES.max(ip_bytes + if has_tcp { TCP_BYTES } else { UDP_BYTES })
    }
}

/// Serializes packets with valid lengths and checksums.
pub(super) struct FrameWriter {
    addresses: Addresses,
    /// Every payload is a prefix of this.
    payload: Vec<u8>,
    /// Sums of the first `n` payload bytes as 16-bit words, not folded [RFC 1071].
    payload_sums: Vec<u32>,
    ip_id: u16,
}

impl FrameWriter {
    pub(super) fn new(addresses: Addresses) -> FrameWriter {
        // Leading bits 01 make a payload in UDP to port 443 a QUIC short header [RFC 9000 17.3].
        let mut payload: Vec<u8> = (0..u64::from(LARGEST_BYTES)).map(|i| mix(i) as u8).collect();
        payload[0] = 0x40;
        let mut payload_sums = vec![0u32];
        for (i, byte) in payload.iter().enumerate() {
            let word = if i % 2 == 0 { u32::from(*byte) << 8 } else { u32::from(*byte) };
            payload_sums.push(payload_sums[i] + word);
        }
        FrameWriter { addresses, payload, payload_sums, ip_id: 0 }
    }

    /// Serializes the first `snap_bytes` of a packet.
    pub(super) fn write(&mut self, packet: &Packet, snap_bytes: usize, bytes: &mut Vec<u8>) {
        let mut header = [0u8; MAX_HEADER_BYTES];
        let ip_bytes = if packet.src.is_ipv6() { 40 } else { 20 };
        let room_bytes = packet.len_bytes - ETHERNET_BYTES - ip_bytes;
        let l4_bytes = packet.transport.header_bytes(room_bytes);
        let l4_at = (ETHERNET_BYTES + ip_bytes) as usize;
        let end = l4_at + l4_bytes as usize;
        let l4_len = l4_bytes + packet.payload_bytes;

        // Locally administered addresses of the routers on either side.
        let (to, from) = if packet.src.is_outside() { (1, 2) } else { (2, 1) };
        header[..12].copy_from_slice(&[2, 0, 0, 0, 0, to, 2, 0, 0, 0, 0, from]);
        let (protocol, checksum_at) = transport(packet, room_bytes, l4_len, &mut header[l4_at..end]);
        let pseudo = if packet.src.is_ipv6() {
            self.ipv6(packet, protocol, l4_len, &mut header)
        } else {
            self.ipv4(packet, protocol, l4_len, &mut header)
        };
        // The pseudo header also has protocol and length; ICMP over IPv4 has no pseudo header.
        let pseudo = match protocol {
            ICMP => Sum::new(),
            _ => pseudo.word(protocol.into()).bytes(&l4_len.to_be_bytes()),
        };
        let payload_sum = self.payload_sums[packet.payload_bytes as usize];
        let checksum = match pseudo.bytes(&header[l4_at..end]).bytes(&payload_sum.to_be_bytes()).checksum() {
            // Zero means no checksum [RFC 768].
            0 if protocol == UDP => 0xffff,
            checksum => checksum,
        };
        header[l4_at + checksum_at..l4_at + checksum_at + 2].copy_from_slice(&checksum.to_be_bytes());

        bytes.clear();
        bytes.extend_from_slice(&header[..end.min(snap_bytes)]);
        let payload_bytes = (packet.payload_bytes as usize).min(snap_bytes.saturating_sub(end));
        bytes.extend_from_slice(&self.payload[..payload_bytes]);
        bytes.resize(snap_bytes.min(packet.len_bytes as usize), 0);
    }

    /// Writes an IPv4 header. Returns the sum of the addresses.
    fn ipv4(&mut self, packet: &Packet, protocol: u8, l4_len: u32, header: &mut [u8]) -> Sum {
        header[12..14].copy_from_slice(&[0x08, 0x00]);
        let ip = &mut header[14..34];
        ip[0] = 0x45;
        ip[2..4].copy_from_slice(&((l4_len + 20) as u16).to_be_bytes());
        ip[4..6].copy_from_slice(&self.ip_id.to_be_bytes());
        self.ip_id = self.ip_id.wrapping_add(1);
        // Don't fragment.
        ip[6] = 0x40;
        ip[8] = packet.src.ttl();
        ip[9] = protocol;
        ip[12..16].copy_from_slice(&self.addresses.ipv4(packet.src));
        ip[16..20].copy_from_slice(&self.addresses.ipv4(packet.dst));
        let checksum = Sum::new().bytes(ip).checksum();
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        Sum::new().bytes(&ip[12..20])
    }

    /// Writes an IPv6 header. Returns the sum of the addresses.
    fn ipv6(&mut self, packet: &Packet, protocol: u8, l4_len: u32, header: &mut [u8]) -> Sum {
        header[12..14].copy_from_slice(&[0x86, 0xdd]);
        let ip = &mut header[14..54];
        ip[0] = 0x60;
        ip[4..6].copy_from_slice(&(l4_len as u16).to_be_bytes());
        ip[6] = protocol;
        ip[7] = packet.src.ttl();
        ip[8..24].copy_from_slice(&self.addresses.ipv6(packet.src));
        ip[24..40].copy_from_slice(&self.addresses.ipv6(packet.dst));
        Sum::new().bytes(&ip[8..40])
    }
}

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP6: u8 = 58;

/// Writes a transport header with checksum 0. Returns its protocol and the checksum's offset.
fn transport(packet: &Packet, room_bytes: u32, l4_len: u32, header: &mut [u8]) -> (u8, usize) {
    match packet.transport {
        Transport::Tcp { sport, dport, seq, ack, flags, timestamps } => {
            let (with_syn, with_time) = options(flags, timestamps.is_some(), room_bytes);
            header[..2].copy_from_slice(&sport.to_be_bytes());
            header[2..4].copy_from_slice(&dport.to_be_bytes());
            header[4..8].copy_from_slice(&seq.to_be_bytes());
            header[8..12].copy_from_slice(&ack.to_be_bytes());
            header[12] = (header.len() as u8 / 4) << 4;
            header[13] = flags;
            // The window of a SYN is not scaled [RFC 7323 2.2].
            let window = if flags & SYN != 0 { 64_240 } else { 0x01f5 + (packet.src.character() as u16 & 0x3ff) };
            header[14..16].copy_from_slice(&window.to_be_bytes());
            let mut at = 20;
            if with_syn {
                let [high, low] = MSS.to_be_bytes();
                // MSS; SACK permitted between no-operations; window scale.
                header[at..at + 12].copy_from_slice(&[2, 4, high, low, 1, 1, 4, 2, 1, 3, 3, WINDOW_SHIFT]);
                at += 12;
            }
            if let Some((own, heard)) = timestamps.filter(|_| with_time) {
                header[at..at + 4].copy_from_slice(&[1, 1, 8, 10]);
                header[at + 4..at + 8].copy_from_slice(&own.to_be_bytes());
                header[at + 8..at + 12].copy_from_slice(&heard.to_be_bytes());
            }
            (TCP, 16)
        }
        Transport::Udp { sport, dport } => {
            header[..2].copy_from_slice(&sport.to_be_bytes());
            header[2..4].copy_from_slice(&dport.to_be_bytes());
            header[4..6].copy_from_slice(&(l4_len as u16).to_be_bytes());
            (UDP, 6)
        }
        Transport::Echo { is_reply, id, seq } => {
            let (protocol, kind) = match (packet.src.is_ipv6(), is_reply) {
                (false, false) => (ICMP, 8),
                (false, true) => (ICMP, 0),
                (true, false) => (ICMP6, 128),
                (true, true) => (ICMP6, 129),
            };
            header[0] = kind;
            header[4..6].copy_from_slice(&id.to_be_bytes());
            header[6..8].copy_from_slice(&seq.to_be_bytes());
            (protocol, 2)
        }
    }
}
