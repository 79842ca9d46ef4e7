// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::{ViewError, array, present, put, u16_at};

/// EtherType: the protocol after an Ethernet header or a VLAN tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EtherType(pub u16);

impl EtherType {
    /// IPv4.
    pub const IPV4: EtherType = EtherType(0x0800);
    /// A customer VLAN tag [IEEE 802.1Q].
    pub const VLAN: EtherType = EtherType(0x8100);
    /// IPv6.
    pub const IPV6: EtherType = EtherType(0x86dd);
    /// A service VLAN tag [IEEE 802.1ad].
    pub const SERVICE_VLAN: EtherType = EtherType(0x88a8);
}

/// An Ethernet II frame without its frame check sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EthernetFrame<T>(T);

impl<T: AsRef<[u8]>> EthernetFrame<T> {
    /// # Errors
    /// Fewer than 14 bytes.
    pub fn new_checked(bytes: T) -> Result<Self, ViewError> {
        present("Ethernet", bytes.as_ref(), 14)?;
        Ok(EthernetFrame(bytes))
    }

    /// Destination MAC address.
    pub fn dst(&self) -> [u8; 6] {
        array(self.0.as_ref(), 0)
    }

    /// Source MAC address.
    pub fn src(&self) -> [u8; 6] {
        array(self.0.as_ref(), 6)
    }

    /// EtherType of the payload or of a tag.
    pub fn ethertype(&self) -> EtherType {
        EtherType(u16_at(self.0.as_ref(), 12))
    }

    /// Everything after the header, padding included.
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[14..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> EthernetFrame<T> {
    /// Sets the destination MAC address.
    pub fn set_dst(&mut self, dst: [u8; 6]) {
        put(self.0.as_mut(), 0, &dst);
    }

    /// Sets the source MAC address.
    pub fn set_src(&mut self, src: [u8; 6]) {
        put(self.0.as_mut(), 6, &src);
    }

    /// Everything after the header.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.0.as_mut()[14..]
    }
}

/// A VLAN tag, from its control information on (after the EtherType that announces it).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VlanTag<T>(T);

impl<T: AsRef<[u8]>> VlanTag<T> {
    /// # Errors
    /// Fewer than 4 bytes.
    pub fn new_checked(bytes: T) -> Result<Self, ViewError> {
        present("VLAN", bytes.as_ref(), 4)?;
        Ok(VlanTag(bytes))
    }

    fn tci(&self) -> u16 {
        u16_at(self.0.as_ref(), 0)
    }

    /// Priority code point, 3 bits.
    pub fn pcp(&self) -> u8 {
        (self.tci() >> 13) as u8
    }

    /// Drop eligible indicator.
    pub fn dei(&self) -> bool {
        self.tci() & 0x1000 != 0
    }

    /// VLAN identifier, 12 bits.
    pub fn id(&self) -> u16 {
        self.tci() & 0x0fff
    }

    /// EtherType of the payload or of another tag.
    pub fn ethertype(&self) -> EtherType {
        EtherType(u16_at(self.0.as_ref(), 2))
    }

    /// Everything after the tag.
    pub fn payload(&self) -> &[u8] {
        &self.0.as_ref()[4..]
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> VlanTag<T> {
    /// Sets the identifier to the low 12 bits.
    pub fn set_id(&mut self, id: u16) {
        let tci = self.tci() & 0xf000 | id & 0x0fff;
        put(self.0.as_mut(), 0, &tci.to_be_bytes());
    }

    /// Sets the priority code point to the low 3 bits.
    pub fn set_pcp(&mut self, pcp: u8) {
        let tci = self.tci() & 0x1fff | u16::from(pcp) << 13;
        put(self.0.as_mut(), 0, &tci.to_be_bytes());
    }

    /// Everything after the tag.
    pub fn payload_mut(&mut self) -> &mut [u8] {
        &mut self.0.as_mut()[4..]
    }
}
