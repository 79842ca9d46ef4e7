// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `struct bpf_fib_lookup`: a request, and its answer in the same place.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::Mac;

/// The size of the structure in bytes.
const BYTES: usize = 64;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
/// The offsets of its fields.
const FAMILY: usize = 0;
const TOTAL_LEN: usize = 6;
const INTERFACE: usize = 8;
const METRIC: usize = 12;
const SOURCE: usize = 16;
const DESTINATION: usize = 32;
const VLAN: usize = 48;
const SOURCE_MAC: usize = 52;
const DESTINATION_MAC: usize = 58;

const DIRECT: u32 = 1 << 0;
const OUTPUT: u32 = 1 << 1;
const SKIP_NEIGH: u32 = 1 << 2;
const TBID: u32 = 1 << 3;
const SRC: u32 = 1 << 4;
const MARK: u32 = 1 << 5;

/// The kernel's tables without rules: one for IPv4, two for IPv6.
const MAIN_TABLE: u32 = 254;
const LOCAL_TABLE: u32 = 255;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Tables {
    All,
    Main,
    Local,
}

impl Tables {
    /// Whether one of them has local routes, or others.
    pub(super) fn have(self, local: bool) -> bool {
        match self {
            Tables::All => true,
            Tables::Main => !local,
            Tables::Local => local,
        }
    }
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    flags: u32,
    /// The table, if one is given.
    table: u32,
    /// Whether that field was read; the answer has VLAN fields there.
    is_table_taken: bool,
    /// The ingress port; in the answer, the egress port.
    pub interface: u32,
    /// The length of the IP packet; in the answer, the MTU.
    pub total_len: u16,
    /// The source address.
    pub source: IpAddr,
    /// The destination address; in the answer, the next hop if there is one.
    pub destination: IpAddr,
    pub(super) metric: Option<u32>,
    /// The MAC addresses of the interface and of the neighbour.
    pub(super) macs: Option<(Mac, Mac)>,
    pub(super) is_forwarded: bool,
}

fn chunk<const N: usize>(params: &[u8; BYTES], at: usize) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&params[at..at + N]);
    bytes
}

impl Request {
    /// Parses the structure.
    ///
    /// # Errors
    /// The result of the helper if a flag (-EINVAL) or the family (-EAFNOSUPPORT) is unknown.
    pub fn parse(params: &[u8; BYTES], flags: u32) -> Result<Request, i64> {
        if flags & !(DIRECT | OUTPUT | SKIP_NEIGH | TBID | SRC | MARK) != 0 {
            return Err(-22);
        }
        let (source, destination) = match params[FAMILY] {
            AF_INET => {
                let address = |at| IpAddr::from(Ipv4Addr::from(chunk::<4>(params, at)));
                (address(SOURCE), address(DESTINATION))
            }
            AF_INET6 => {
                let address = |at| IpAddr::from(Ipv6Addr::from(chunk::<16>(params, at)));
                (address(SOURCE), address(DESTINATION))
            }
            _ => return Err(-97),
        };
        Ok(Request {
            flags,
            table: u32::from_le_bytes(chunk(params, VLAN)),
            is_table_taken: false,
            interface: u32::from_le_bytes(chunk(params, INTERFACE)),
            total_len: u16::from_le_bytes(chunk(params, TOTAL_LEN)),
            source,
            destination,
            metric: None,
            macs: None,
            is_forwarded: false,
        })
    }

    /// The structure with the answer.
    pub fn emit(&self, params: [u8; BYTES]) -> [u8; BYTES] {
        let mut out = params;
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(INTERFACE, &self.interface.to_le_bytes());
        put(TOTAL_LEN, &self.total_len.to_le_bytes());
        match self.source {
            IpAddr::V4(address) => put(SOURCE, &address.octets()),
            IpAddr::V6(address) => put(SOURCE, &address.octets()),
        }
        match self.destination {
            IpAddr::V4(address) => put(DESTINATION, &address.octets()),
            IpAddr::V6(address) => put(DESTINATION, &address.octets()),
        }
        if let Some(metric) = self.metric {
            put(METRIC, &metric.to_le_bytes());
        }
        if let Some((source, destination)) = self.macs {
            put(SOURCE_MAC, &source.0);
            put(DESTINATION_MAC, &destination.0);
        }
        if self.is_forwarded || self.is_table_taken {
            put(VLAN, &[0; 4]);
        }
        out
    }

    /// Whether the lookup is for a packet that this host sends through the interface.
    pub(super) fn is_output(&self) -> bool {
        self.flags & OUTPUT != 0
    }

    /// The tables of the lookup; `None` if the given one does not exist.
    pub(super) fn take_tables(&mut self) -> Option<Tables> {
        if self.flags & DIRECT == 0 {
            return Some(Tables::All);
        }
        let mut table = MAIN_TABLE;
        if self.flags & TBID != 0 {
            (table, self.is_table_taken) = (self.table, true);
        }
        match (table, self.destination) {
            (0 | MAIN_TABLE | LOCAL_TABLE, IpAddr::V4(_)) => Some(Tables::All),
            (0 | MAIN_TABLE, IpAddr::V6(_)) => Some(Tables::Main),
            (LOCAL_TABLE, IpAddr::V6(_)) => Some(Tables::Local),
            _ => None,
        }
    }

    pub(super) fn wants_source(&self) -> bool {
        self.flags & SRC != 0
    }

    pub(super) fn skips_neighbour(&self) -> bool {
        self.flags & SKIP_NEIGH != 0
    }

    /// Whether an IPv6 address of it is only valid on one link or host.
    pub(super) fn is_local_only(&self) -> bool {
        let is = |address: IpAddr| match address {
            IpAddr::V6(v6) => v6.is_multicast() || v6.is_unicast_link_local() || v6.is_loopback(),
            IpAddr::V4(_) => false,
        };
        is(self.source) || is(self.destination)
    }
}
