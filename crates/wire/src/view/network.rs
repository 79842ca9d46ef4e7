// SPDX-License-Identifier: Apache-2.0 OR MIT
use std::net::{Ipv4Addr, Ipv6Addr};

use super::{ViewError, array, at_least, present, put, u16_at, u32_at};
use crate::checksum::Sum;

/// Protocol number after an IP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IpProtocol(pub u8);

impl IpProtocol {
    /// ICMP for IPv4.
    pub const ICMP: IpProtocol = IpProtocol(1);
    /// TCP.
    pub const TCP: IpProtocol = IpProtocol(6);
    /// UDP.
    pub const UDP: IpProtocol = IpProtocol(17);
    /// ICMPv6.
    pub const ICMP6: IpProtocol = IpProtocol(58);
}

const CHECKSUM: usize = 10;

/// An IPv4 packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv4Packet<T>(T);

impl<T: AsRef<[u8]>> Ipv4Packet<T> {
    /// # Errors
    /// Another version, an incomplete header, or a length field below the header length. The payload may be truncated.
    pub fn new_checked(bytes: T) -> Result<Self, ViewError> {
        let head = bytes.as_ref();
        present("IPv4", head, 20)?;
        version(head, 4)?;
        let packet = Ipv4Packet(bytes);
        at_least("IPv4", packet.header_len(), 20)?;
        present("IPv4", packet.0.as_ref(), packet.header_len())?;
        at_least("IPv4", usize::from(packet.total_len()), packet.header_len())?;
        Ok(packet)
    }

    /// Header length in bytes, options included.
    pub fn header_len(&self) -> usize {
        usize::from(self.0.as_ref()[0] & 0x0f) * 4
    }

    /// Type of service.
    pub fn tos(&self) -> u8 {
        self.0.as_ref()[1]
    }

    /// Total length field, in bytes.
    pub fn total_len(&self) -> u16 {
        u16_at(self.0.as_ref(), 2)
    }

    /// Identification.
    pub fn id(&self) -> u16 {
        u16_at(self.0.as_ref(), 4)
    }

    /// True if the don't fragment bit is set.
    pub fn dont_fragment(&self) -> bool {
        u16_at(self.0.as_ref(), 6) & 0x4000 != 0
    }

    /// True if more fragments follow.
    pub fn more_fragments(&self) -> bool {
        u16_at(self.0.as_ref(), 6) & 0x2000 != 0
    }

    /// Fragment offset, in bytes.
    pub fn fragment_offset_bytes(&self) -> usize {
        usize::from(u16_at(self.0.as_ref(), 6) & 0x1fff) * 8
    }

    /// Time to live.
    pub fn ttl(&self) -> u8 {
        self.0.as_ref()[8]
    }

    /// Protocol of the payload.
    pub fn protocol(&self) -> IpProtocol {
        IpProtocol(self.0.as_ref()[9])
    }

    /// The checksum field.
    pub fn checksum(&self) -> u16 {
        u16_at(self.0.as_ref(), CHECKSUM)
    }

    /// The correct checksum.
    pub fn computed_checksum(&self) -> u16 {
        let header = &self.0.as_ref()[..self.header_len()];
        Sum::new().bytes(&header[..CHECKSUM]).bytes(&header[CHECKSUM + 2..]).checksum()
    }

    /// Source address.
    pub fn src(&self) -> Ipv4Addr {
        Ipv4Addr::from(array::<4>(self.0.as_ref(), 12))
    }

    /// Destination address.
    pub fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::from(array::<4>(self.0.as_ref(), 16))
    }

    /// The options.
    pub fn options(&self) -> &[u8] {
        &self.0.as_ref()[20..self.header_len()]
    }

    /// The payload that is present, limited by the total length: without padding of the frame.
    pub fn payload(&self) -> &[u8] {
        let bytes = self.0.as_ref();
        &bytes[self.header_len()..usize::from(self.total_len()).min(bytes.len())]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv4Packet<T> {
    /// Sets the type of service.
    pub fn set_tos(&mut self, tos: u8) {
        put(self.0.as_mut(), 1, &[tos]);
    }

    /// Sets the identification.
    pub fn set_id(&mut self, id: u16) {
        put(self.0.as_mut(), 4, &id.to_be_bytes());
    }

    /// Sets the time to live.
    pub fn set_ttl(&mut self, ttl: u8) {
        put(self.0.as_mut(), 8, &[ttl]);
    }

    /// Sets the source address.
    pub fn set_src(&mut self, src: Ipv4Addr) {
        put(self.0.as_mut(), 12, &src.octets());
    }

    /// Sets the destination address.
    pub fn set_dst(&mut self, dst: Ipv4Addr) {
        put(self.0.as_mut(), 16, &dst.octets());
    }

    /// Updates the checksum.
    pub fn fill_checksum(&mut self) {
        let checksum = self.computed_checksum();
        put(self.0.as_mut(), CHECKSUM, &checksum.to_be_bytes());
    }

    /// The payload that is present.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let (start, end) = (self.header_len(), usize::from(self.total_len()).min(self.0.as_ref().len()));
        &mut self.0.as_mut()[start..end]
    }
}

/// An IPv6 packet. Extension headers are part of the payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ipv6Packet<T>(T);

impl<T: AsRef<[u8]>> Ipv6Packet<T> {
    /// # Errors
    /// Another version, or fewer than 40 bytes. The payload may be truncated.
    pub fn new_checked(bytes: T) -> Result<Self, ViewError> {
        present("IPv6", bytes.as_ref(), 40)?;
        version(bytes.as_ref(), 6)?;
        Ok(Ipv6Packet(bytes))
    }

    /// Traffic class.
    pub fn traffic_class(&self) -> u8 {
        (u16_at(self.0.as_ref(), 0) >> 4) as u8
    }

    /// Flow label, 20 bits.
    pub fn flow_label(&self) -> u32 {
        u32_at(self.0.as_ref(), 0) & 0xf_ffff
    }

    /// Payload length field, in bytes.
    pub fn payload_len(&self) -> u16 {
        u16_at(self.0.as_ref(), 4)
    }

    /// Protocol of the payload, or of an extension header.
    pub fn next_header(&self) -> IpProtocol {
        IpProtocol(self.0.as_ref()[6])
    }

    /// Hop limit.
    pub fn hop_limit(&self) -> u8 {
        self.0.as_ref()[7]
    }

    /// Source address.
    pub fn src(&self) -> Ipv6Addr {
        Ipv6Addr::from(array::<16>(self.0.as_ref(), 8))
    }

    /// Destination address.
    pub fn dst(&self) -> Ipv6Addr {
        Ipv6Addr::from(array::<16>(self.0.as_ref(), 24))
    }

    /// The payload that is present, limited by the payload length: without padding of the frame.
    pub fn payload(&self) -> &[u8] {
        let bytes = self.0.as_ref();
        &bytes[40..(40 + usize::from(self.payload_len())).min(bytes.len())]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv6Packet<T> {
    /// Sets the traffic class.
    pub fn set_traffic_class(&mut self, class: u8) {
        let word = u16_at(self.0.as_ref(), 0) & 0xf00f | u16::from(class) << 4;
        put(self.0.as_mut(), 0, &word.to_be_bytes());
    }

    /// Sets the flow label to the low 20 bits.
    pub fn set_flow_label(&mut self, label: u32) {
        let word = u32_at(self.0.as_ref(), 0) & 0xfff0_0000 | label & 0xf_ffff;
        put(self.0.as_mut(), 0, &word.to_be_bytes());
    }

    /// Sets the hop limit.
    pub fn set_hop_limit(&mut self, limit: u8) {
        put(self.0.as_mut(), 7, &[limit]);
    }

    /// Sets the source address.
    pub fn set_src(&mut self, src: Ipv6Addr) {
        put(self.0.as_mut(), 8, &src.octets());
    }

    /// Sets the destination address.
    pub fn set_dst(&mut self, dst: Ipv6Addr) {
        put(self.0.as_mut(), 24, &dst.octets());
    }

    /// The payload that is present.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let end = (40 + usize::from(self.payload_len())).min(self.0.as_ref().len());
        &mut self.0.as_mut()[40..end]
    }
}

fn version(head: &[u8], expected: u8) -> Result<(), ViewError> {
    match head[0] >> 4 {
        found if found != expected => Err(ViewError::Version { found, expected }),
        _ => Ok(()),
    }
}
