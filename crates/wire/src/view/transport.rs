// SPDX-License-Identifier: Apache-2.0 OR MIT
use std::net::IpAddr;

use super::{IpProtocol, ViewError, at_least, present, put, u16_at, u32_at};
use crate::checksum::Sum;

/// A TCP segment: the payload of one IP packet, without padding of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TcpSegment<T>(T);

impl<T: AsRef<[u8]>> TcpSegment<T> {
    /// # Errors
    /// An incomplete header, or a header length below 20 bytes.
    pub fn new_checked(bytes: T) -> Result<Self, ViewError> {
        present("TCP", bytes.as_ref(), 20)?;
        let segment = TcpSegment(bytes);
        at_least("TCP", segment.header_len(), 20)?;
        present("TCP", segment.0.as_ref(), segment.header_len())?;
        Ok(segment)
    }

    /// Source port.
    pub fn sport(&self) -> u16 {
        u16_at(self.0.as_ref(), 0)
    }

    /// Destination port.
    pub fn dport(&self) -> u16 {
        u16_at(self.0.as_ref(), 2)
    }

    /// Sequence number.
    pub fn seq(&self) -> u32 {
        u32_at(self.0.as_ref(), 4)
    }

    /// Acknowledgement number.
    pub fn ack(&self) -> u32 {
        u32_at(self.0.as_ref(), 8)
    }

    /// Header length in bytes, options included.
    pub fn header_len(&self) -> usize {
        usize::from(self.0.as_ref()[12] >> 4) * 4
    }

    /// Flags, CWR to FIN.
    pub fn flags(&self) -> u8 {
        self.0.as_ref()[13]
    }

    /// Receive window, unscaled.
    pub fn window(&self) -> u16 {
        u16_at(self.0.as_ref(), 14)
    }

    /// The checksum field.
    pub fn checksum(&self) -> u16 {
        u16_at(self.0.as_ref(), 16)
    }

    /// The correct checksum, if the whole segment is present.
    pub fn computed_checksum(&self, src: IpAddr, dst: IpAddr) -> u16 {
        transport_checksum(self.0.as_ref(), 16, IpProtocol::TCP, Some((src, dst)))
    }

    /// Urgent pointer.
    pub fn urgent(&self) -> u16 {
        u16_at(self.0.as_ref(), 18)
    }

    /// The options.
    pub fn options(&self) -> &[u8] {
        &self.0.as_ref()[20..self.header_len()]
    }

    /// The payload.
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[self.header_len()..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> TcpSegment<T> {
    /// Sets the source port.
    pub fn set_sport(&mut self, port: u16) {
        put(self.0.as_mut(), 0, &port.to_be_bytes());
    }

    /// Sets the destination port.
    pub fn set_dport(&mut self, port: u16) {
        put(self.0.as_mut(), 2, &port.to_be_bytes());
    }

    /// Sets the sequence number.
    pub fn set_seq(&mut self, seq: u32) {
        put(self.0.as_mut(), 4, &seq.to_be_bytes());
    }

    /// Sets the acknowledgement number.
    pub fn set_ack(&mut self, ack: u32) {
        put(self.0.as_mut(), 8, &ack.to_be_bytes());
    }

    /// Sets the flags.
    pub fn set_flags(&mut self, flags: u8) {
        put(self.0.as_mut(), 13, &[flags]);
    }

    /// Sets the receive window.
    pub fn set_window(&mut self, window: u16) {
        put(self.0.as_mut(), 14, &window.to_be_bytes());
    }

    /// Updates the checksum.
    pub fn fill_checksum(&mut self, src: IpAddr, dst: IpAddr) {
        let checksum = self.computed_checksum(src, dst);
        put(self.0.as_mut(), 16, &checksum.to_be_bytes());
    }
}

/// A UDP datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UdpDatagram<T>(T);

impl<T: AsRef<[u8]>> UdpDatagram<T> {
    /// # Errors
    /// Fewer than 8 bytes, or a length field below that. The payload may be truncated.
    pub fn new_checked(bytes: T) -> Result<Self, ViewError> {
        present("UDP", bytes.as_ref(), 8)?;
        let datagram = UdpDatagram(bytes);
        at_least("UDP", usize::from(datagram.len_bytes()), 8)?;
        Ok(datagram)
    }

    /// Source port.
    pub fn sport(&self) -> u16 {
        u16_at(self.0.as_ref(), 0)
    }

    /// Destination port.
    pub fn dport(&self) -> u16 {
        u16_at(self.0.as_ref(), 2)
    }

    /// Length field in bytes, header included.
    pub fn len_bytes(&self) -> u16 {
        u16_at(self.0.as_ref(), 4)
    }

    /// The checksum field; 0 means none.
    pub fn checksum(&self) -> u16 {
        u16_at(self.0.as_ref(), 6)
    }

    /// The correct checksum, never 0; `None` if the datagram is not wholly present.
    pub fn computed_checksum(&self, src: IpAddr, dst: IpAddr) -> Option<u16> {
        let datagram = self.0.as_ref().get(..usize::from(self.len_bytes()))?;
        match transport_checksum(datagram, 6, IpProtocol::UDP, Some((src, dst))) {
            0 => Some(0xffff),
            checksum => Some(checksum),
        }
    }

    /// The payload that is present, limited by the length field.
    pub fn payload(&self) -> &[u8] {
        let bytes = self.0.as_ref();
        &bytes[8..usize::from(self.len_bytes()).min(bytes.len())]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> UdpDatagram<T> {
    /// Sets the source port.
    pub fn set_sport(&mut self, port: u16) {
        put(self.0.as_mut(), 0, &port.to_be_bytes());
    }

    /// Sets the destination port.
    pub fn set_dport(&mut self, port: u16) {
        put(self.0.as_mut(), 2, &port.to_be_bytes());
    }

    /// Updates the checksum; returns `false` without a change if the datagram is not wholly present.
    pub fn fill_checksum(&mut self, src: IpAddr, dst: IpAddr) -> bool {
        let Some(checksum) = self.computed_checksum(src, dst) else { return false };
        put(self.0.as_mut(), 6, &checksum.to_be_bytes());
        true
    }
}

/// An ICMP or ICMPv6 message: the payload of one IP packet, without padding of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IcmpMessage<T>(T);

impl<T: AsRef<[u8]>> IcmpMessage<T> {
    /// # Errors
    /// Fewer than 8 bytes.
    pub fn new_checked(bytes: T) -> Result<Self, ViewError> {
        present("ICMP", bytes.as_ref(), 8)?;
        Ok(IcmpMessage(bytes))
    }

    /// The type.
    pub fn kind(&self) -> u8 {
        self.0.as_ref()[0]
    }

    /// The code.
    pub fn code(&self) -> u8 {
        self.0.as_ref()[1]
    }

    /// The checksum field.
    pub fn checksum(&self) -> u16 {
        u16_at(self.0.as_ref(), 2)
    }

    /// The correct checksum, if the whole message is present: of ICMPv6 with these addresses, otherwise of ICMP.
    pub fn computed_checksum(&self, icmp6: Option<(IpAddr, IpAddr)>) -> u16 {
        transport_checksum(self.0.as_ref(), 2, IpProtocol::ICMP6, icmp6)
    }

    /// Echo identifier.
    pub fn id(&self) -> u16 {
        u16_at(self.0.as_ref(), 4)
    }

    /// Echo sequence number.
    pub fn seq(&self) -> u16 {
        u16_at(self.0.as_ref(), 6)
    }

    /// Everything after the first 8 bytes.
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[8..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> IcmpMessage<T> {
    /// Sets type and code.
    pub fn set_kind(&mut self, kind: u8, code: u8) {
        put(self.0.as_mut(), 0, &[kind, code]);
    }

    /// Sets echo identifier and sequence number.
    pub fn set_echo(&mut self, id: u16, seq: u16) {
        put(self.0.as_mut(), 4, &id.to_be_bytes());
        put(self.0.as_mut(), 6, &seq.to_be_bytes());
    }

    /// Updates the checksum: of ICMPv6 with these addresses, otherwise of ICMP.
    pub fn fill_checksum(&mut self, icmp6: Option<(IpAddr, IpAddr)>) {
        let checksum = self.computed_checksum(icmp6);
        put(self.0.as_mut(), 2, &checksum.to_be_bytes());
    }
}

/// The checksum of `bytes` without the two bytes at `checksum_at`, with a pseudo-header for these addresses.
fn transport_checksum(bytes: &[u8], checksum_at: usize, proto: IpProtocol, between: Option<(IpAddr, IpAddr)>) -> u16 {
    let sum = match between {
        Some((src, dst)) => Sum::new().pseudo_header(src, dst, proto.0, bytes.len() as u32),
        None => Sum::new(),
    };
    sum.bytes(&bytes[..checksum_at]).bytes(&bytes[checksum_at + 2..]).checksum()
}
