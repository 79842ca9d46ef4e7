// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Textual addresses.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr};
use std::str::FromStr;

use flowloom_engine::PORT_COUNT;
use serde::{Deserialize, Serialize};

/// An invalid table.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TableError {
    /// A syntax error.
    #[error("{0}")]
    Json(String),
    /// An invalid prefix.
    #[error("`{0}` is no prefix, expected an address with its length, e.g. `10.0.0.0/8` or `2001:db8::/32`")]
    Prefix(String),
    /// An invalid MAC address.
    #[error("`{0}` is no MAC address, expected six bytes, e.g. `02:00:00:00:00:01`")]
    Mac(String),
    /// A port out of range.
    #[error("an interface has port {port}, expected one below {PORT_COUNT}")]
    Port {
        /// The port.
        port: u32,
    },
    /// Two interfaces for one port.
    #[error("port {port} has two interfaces")]
    Twice {
        /// The port.
        port: u32,
    },
    /// A port without interface.
    #[error("{what} names port {port}, which no interface has")]
    NoInterface {
        /// What refers to it.
        what: String,
        /// The port.
        port: u32,
    },
    /// A forwarding route without a port.
    #[error("the route to {route} has no `port`; it needs one, or a `kind` such as `blackhole`")]
    NoPort {
        /// Its destination.
        route: Prefix,
    },
    /// A next hop of the other family.
    #[error("the route to {route} goes `via` an address of the other family")]
    OtherFamily {
        /// Its destination.
        route: Prefix,
    },
}

/// A MAC address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mac(pub [u8; 6]);

impl FromStr for Mac {
    type Err = TableError;

    fn from_str(text: &str) -> Result<Mac, TableError> {
        let parts: Vec<u8> = text
            .split(':')
            .map(|part| u8::from_str_radix(part, 16).ok().filter(|_| part.len() == 2))
            .collect::<Option<_>>()
            .unwrap_or_default();
        <[u8; 6]>::try_from(parts).map(Mac).map_err(|_| TableError::Mac(text.to_owned()))
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// An address and a prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Prefix {
    /// The address; bits after the prefix are kept as written.
    pub address: IpAddr,
    /// The prefix length in bits.
    pub length: u8,
}

impl Prefix {
    fn width(self) -> u8 {
        if self.address.is_ipv6() { 128 } else { 32 }
    }

    /// The address in the high bits.
    fn bits(address: IpAddr) -> u128 {
        match address {
            IpAddr::V4(v4) => u128::from(v4.to_bits()) << 96,
            IpAddr::V6(v6) => v6.to_bits(),
        }
    }

    fn mask(self) -> u128 {
        u128::MAX.checked_shl(128 - u32::from(self.length)).unwrap_or(0)
    }

    /// Whether an address is in the network.
    pub fn contains(self, address: IpAddr) -> bool {
        address.is_ipv6() == self.address.is_ipv6()
            && (Prefix::bits(address) ^ Prefix::bits(self.address)) & self.mask() == 0
    }

    /// The length of the common prefix of an address and the network, in bits.
    pub(super) fn common_bits(self, address: IpAddr) -> u32 {
        (Prefix::bits(address) ^ Prefix::bits(self.address)).leading_zeros().min(self.length.into())
    }

    /// The local addresses of an interface with this address: itself, and the broadcast addresses of its network.
    pub(super) fn local_addresses(self) -> Vec<Prefix> {
        let mut all = vec![self.address];
        if let IpAddr::V4(v4) = self.address
            && self.length < 31
        {
            let mask = (self.mask() >> 96) as u32;
            all.push(IpAddr::from(Ipv4Addr::from_bits(v4.to_bits() | !mask)));
        }
        all.into_iter().map(|address| Prefix { address, length: self.width() }).collect()
    }
}

impl FromStr for Prefix {
    type Err = TableError;

    fn from_str(text: &str) -> Result<Prefix, TableError> {
        let fail = || TableError::Prefix(text.to_owned());
        let (address, length) = text.split_once('/').ok_or_else(fail)?;
        let address: IpAddr = address.parse().map_err(|_| fail())?;
        let prefix = Prefix { address, length: length.parse().map_err(|_| fail())? };
        if prefix.length <= prefix.width() { Ok(prefix) } else { Err(fail()) }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.length)
    }
}

macro_rules! by_text {
    ($name:ty) => {
        impl TryFrom<String> for $name {
            type Error = TableError;

            fn try_from(text: String) -> Result<$name, TableError> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(value: $name) -> String {
                value.to_string()
            }
        }
    };
}

by_text!(Mac);
by_text!(Prefix);
