// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hosts and their addresses.

use flowloom_random::mix;

/// IPv4 prefixes of a network; IPv6 addresses are in 2001:db8::/32 [RFC 3849].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressPlan {
    /// 10.0.0.0/8 inside, 64.0.0.0/3 outside.
    Campus,
    /// 64.0.0.0/3 inside, 128.0.0.0/3 outside.
    Backbone,
    /// 10.0.0.0/8 inside, 198.18.0.0/15 outside [RFC 2544].
    Laboratory,
}

/// A host: a number on one side of the network. Distinct hosts have distinct addresses if their numbers are below the
/// size of their prefix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Host(u32);

const IS_IPV6: u32 = 1 << 31;
const IS_OUTSIDE: u32 = 1 << 30;

impl Host {
    pub(super) fn new(number: u32, is_outside: bool, is_ipv6: bool) -> Host {
        let flag = |is_set: bool, bit| if is_set { bit } else { 0 };
        Host(number & (IS_OUTSIDE - 1) | flag(is_outside, IS_OUTSIDE) | flag(is_ipv6, IS_IPV6))
    }

    pub(super) fn is_ipv6(self) -> bool {
        self.0 & IS_IPV6 != 0
    }

    pub(super) fn is_outside(self) -> bool {
        self.0 & IS_OUTSIDE != 0
    }

    fn number(self) -> u32 {
        self.0 & (IS_OUTSIDE - 1)
    }

    /// Pseudorandom bits that are constant per host.
    pub(super) fn character(self) -> u64 {
        mix(u64::from(self.0))
    }

    /// TTL or hop limit on arrival: a usual initial value, less a number of hops.
    pub(super) fn ttl(self) -> u8 {
        let bits = self.character();
        let first = [64, 128, 64, 255][(bits >> 60) as usize & 3];
        let hops = if self.is_outside() { 4 + (bits >> 50 & 15) as u8 } else { (bits >> 50 & 1) as u8 };
        first - hops
    }
}

/// Maps hosts to addresses.
#[derive(Debug, Clone)]
pub(super) struct Addresses {
    plan: AddressPlan,
    key: u32,
}

impl Addresses {
    pub(super) fn new(plan: AddressPlan, seed: u64) -> Addresses {
        Addresses { plan, key: mix(seed ^ 0xadd2) as u32 }
    }

    pub(super) fn ipv4(&self, host: Host) -> [u8; 4] {
        let (prefix, bits): (u32, u32) = match (self.plan, host.is_outside()) {
            (AddressPlan::Campus | AddressPlan::Laboratory, false) => (0x0a00_0000, 24),
            (AddressPlan::Campus, true) | (AddressPlan::Backbone, false) => (0x4000_0000, 29),
            (AddressPlan::Backbone, true) => (0x8000_0000, 29),
            (AddressPlan::Laboratory, true) => (0xc612_0000, 17),
        };
        (prefix | self.scatter(host.number(), bits)).to_be_bytes()
    }

    /// The host's IPv6 address: side and number as the subnet in the upper half, a random interface identifier in the
    /// lower.
    pub(super) fn ipv6(&self, host: Host) -> [u8; 16] {
        let subnet = u32::from(host.is_outside()) << 31 | self.scatter(host.number(), 30);
        let mut address = [0; 16];
        address[..4].copy_from_slice(&[0x20, 0x01, 0x0d, 0xb8]);
        address[4..8].copy_from_slice(&subnet.to_be_bytes());
        address[8..].copy_from_slice(&host.character().to_be_bytes());
        address
    }

    /// A bijection on numbers of `bits` bits that spreads consecutive numbers.
    fn scatter(&self, number: u32, bits: u32) -> u32 {
        let mask = (1u32 << bits) - 1;
        let mut x = (number ^ self.key) & mask;
        for factor in [0x9e37_79b1_u32, 0x85eb_ca6b] {
            x = x.wrapping_mul(factor) & mask;
            x ^= x >> (bits / 2);
        }
        x
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn hosts_have_distinct_addresses() {
        for plan in [AddressPlan::Campus, AddressPlan::Backbone, AddressPlan::Laboratory] {
            let addresses = Addresses::new(plan, 5);
            let (mut v4, mut v6) = (HashSet::new(), HashSet::new());
            for number in 0..100_000 {
                for is_outside in [false, true] {
                    let host = Host::new(number, is_outside, false);
                    assert!(v4.insert(addresses.ipv4(host)) && v6.insert(addresses.ipv6(host)), "{plan:?} {number}");
                    let first = addresses.ipv4(host)[0];
                    assert!(![0, 127].contains(&first) && first < 224);
                    assert!(host.ttl() > 40);
                }
            }
        }
    }

    #[test]
    fn scattering_is_a_bijection() {
        let addresses = Addresses::new(AddressPlan::Campus, 1);
        let images: HashSet<u32> = (0..1 << 17).map(|number| addresses.scatter(number, 17)).collect();
        assert_eq!(images.len(), 1 << 17);
        assert!(images.iter().all(|image| *image < 1 << 17));
    }

    #[test]
    fn host_parts_round_trip() {
        let host = Host::new(77, true, true);
        assert!(host.is_outside() && host.is_ipv6() && host.number() == 77);
        assert_ne!(host, Host::new(77, false, true));
        assert_ne!(Host::new(1, false, false).character(), Host::new(2, false, false).character());
    }
}
