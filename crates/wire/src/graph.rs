// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The parse graph as data.
//!
//! The reference parser ([`crate::Layers::parse`]), the eBPF lowering and the hardware parser all derive from a
//! [`Graph`]: none of them knows a protocol by name. A parse starts at [`ETHERNET`] and follows edges until a header is
//! invalid or no edge matches; what was parsed up to there stays valid. [`Graph::standard`] has the well-known headers,
//! [`Graph::with`] also those that a function defines.
//!
//! ```text
//!  ethernet ─► vlan ─► vlan2 ─► mpls{1..4} ─► ip
//!      └─────────┴───────┴────────────────────┘│
//!                     ┌────────────────────────┘
//!                     ├─► ipv4 ────────────────┬─► tcp
//!                     └─► ipv6 ─► ext{0..3} ───┼─► icmp / icmp6
//!                                              └─► udp ─► gtpu ─► ext{0..3} ─► inner ipv4 / ipv6 ─► ..
//! ```

mod standard;
mod user;

use std::borrow::Cow;
use std::sync::LazyLock;

pub use crate::header::{Header, MAX_USER_HEADERS, Scope};
pub use user::{GraphError, Parent, UserField, UserHeader};

use crate::field::FieldId;

/// A bit slice of a header, most significant bit first, as on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slice {
    /// Offset from the start of the header, in bits.
    pub offset_bits: u16,
    /// Width in bits, at most 128.
    pub width_bits: u8,
}

/// A slice that starts at a byte.
pub const fn bytes(offset_bytes: u16, width_bytes: u8) -> Slice {
    Slice { offset_bits: offset_bytes * 8, width_bits: width_bytes * 8 }
}

/// A slice that starts at a bit.
pub const fn bits(offset_bits: u16, width_bits: u8) -> Slice {
    Slice { offset_bits, width_bits }
}

/// A validity condition of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// The bits have this value.
    Equal(Slice, u32),
    /// The bits have at least this value.
    AtLeast(Slice, u32),
}

/// The length of a header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Length {
    /// Always `min_bytes`.
    Fixed,
    /// `(slice + add) * times` bytes; invalid if that is less than `min_bytes`.
    Scaled {
        /// The length field.
        slice: Slice,
        /// Units that the field does not count.
        add: u8,
        /// Bytes in a unit, a power of two.
        times: u8,
    },
    /// Zero bytes: the node inspects the next `min_bytes`, to choose the next node.
    Peek,
}

/// An option to search for among those at the end of a header: kind, length and value, where kind 0 ends the options
/// and kind 1 is a single byte [RFC 9293 3.1].
///
/// The first option of the kind with the right length counts. An option that is shorter than 2 bytes or longer than the
/// rest ends the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderOption {
    /// The header that becomes valid if the option is found; it starts at the option's kind.
    pub header: Header,
    /// The offset of the options from the start of the header in bytes; they extend to its end.
    pub start_bytes: u8,
    /// Its kind.
    pub kind: u8,
    /// Its length, at least 3, kind and length included.
    pub len_bytes: u8,
}

/// What a header tells about the length of the packet after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// Nothing.
    Open,
    /// `slice` bytes, this header included; invalid if that is less than the header.
    Total(Slice),
    /// `slice` bytes after this header.
    After(Slice),
    /// The header is within the extent given by an outer header: invalid if it does not fit, and the rest is its
    /// payload.
    Within,
    /// As [`Extent::Within`], and also as [`Extent::Total`]; the smaller length counts.
    TotalWithin(Slice),
    /// As [`Extent::Within`], and also as [`Extent::After`]; the smaller length counts.
    AfterWithin(Slice),
}

/// An edge: the value of the selector, and the next node.
pub type Edge = (u64, usize);

/// Edges with a common selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The selector.
    pub selector: Slice,
    /// The edges; each value once.
    pub edges: Vec<Edge>,
}

/// The transition after a header.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Next {
    /// Tried in order; the first matching edge is taken.
    pub choices: Vec<Choice>,
    /// The next node if no edge matches; `None` ends the parse.
    pub otherwise: Option<usize>,
    /// The bits that are an IP protocol number: the value of `ip.proto` or `inner.ip.proto` is that of the last such
    /// header.
    pub ip_proto: Option<(Scope, Slice)>,
    /// Ends the parse unless these bits are zero: later fragments have no further headers.
    pub only_if_zero: Option<Slice>,
}

impl Next {
    /// All successors.
    pub fn successors(&self) -> impl Iterator<Item = usize> {
        self.choices.iter().flat_map(|choice| choice.edges.iter().map(|edge| edge.1)).chain(self.otherwise)
    }
}

/// A node of the parse graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name, for drawings and messages.
    pub name: Cow<'static, str>,
    /// The header whose validity it sets; none for extension headers and peeking nodes.
    pub header: Option<Header>,
    /// The bytes that must be present before the header is inspected.
    pub min_bytes: u8,
    /// The validity conditions, in order.
    pub checks: Vec<Check>,
    /// The length of the header; all of it must be present.
    pub length: Length,
    /// An option in it that has fields.
    pub option: Option<HeaderOption>,
    /// What it tells about the length of the packet.
    pub extent: Extent,
    /// The transition after it.
    pub next: Next,
}

impl Node {
    /// The sets of valid headers with which a parse can continue after this node, by [`Header::bit`].
    pub fn valid_after(&self, before: u32) -> impl Iterator<Item = u32> {
        let after = before | self.header.map_or(0, Header::bit);
        [after].into_iter().chain(self.option.map(|option| after | option.header.bit()))
    }
}

/// The start node.
pub const ETHERNET: usize = 0;

/// A parse graph: the headers that packets may have, and the names of user-defined ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    nodes: Vec<Node>,
    users: Vec<UserHeader>,
}

impl Graph {
    /// The well-known headers.
    pub fn standard() -> &'static Graph {
        static STANDARD: LazyLock<Graph> = LazyLock::new(|| Graph { nodes: standard::nodes(), users: Vec::new() });
        &STANDARD
    }

    /// All nodes in topological order; edges are indices into them.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The node that sets the validity of a header; `None` for a user-defined header that the graph does not have.
    pub fn node(&self, header: Header) -> Option<&Node> {
        self.nodes.iter().find(|node| node.header == Some(header))
    }

    /// The bytes that are present if a header is valid; `None` for a header that the graph does not have.
    pub fn min_bytes(&self, header: Header) -> Option<u8> {
        self.nodes.iter().find_map(|node| match node.option {
            Some(option) if option.header == header => Some(option.len_bytes),
            _ => (node.header == Some(header)).then_some(node.min_bytes),
        })
    }

    /// The user-defined headers in order of declaration: the first is [`Header::User0`].
    pub fn user_headers(&self) -> &[UserHeader] {
        &self.users
    }

    /// The name of a header in its function.
    pub fn header_name(&self, header: Header) -> &str {
        header.user_index().and_then(|i| self.users.get(i)).map_or(header.name(), |user| &user.name)
    }

    /// The user-defined header called `name`.
    pub fn user_header(&self, name: &str) -> Option<Header> {
        let index = self.users.iter().position(|user| user.name == name)?;
        Header::USER.get(index).copied()
    }

    /// The field called `name`, of the catalogue or of a user-defined header.
    pub fn field(&self, name: &str) -> Option<FieldId> {
        FieldId::by_name(name).or_else(|| {
            let (header, field) = name.split_once('.')?;
            let header = self.user_header(header)?;
            self.user_fields(header).find(|(_, user)| user.name == field).map(|(id, _)| id)
        })
    }

    /// All fields: those of the catalogue, then those of user-defined headers.
    pub fn fields(&self) -> impl Iterator<Item = FieldId> {
        let own = Header::USER.into_iter().take(self.users.len());
        FieldId::all().chain(own.flat_map(|header| self.user_fields(header).map(|(id, _)| id)))
    }

    /// The name of a field in rows.
    pub fn field_name(&self, field: FieldId) -> Cow<'static, str> {
        let name = field.header().and_then(|header| {
            header.user_index()?;
            let (_, user) = self.user_fields(header).find(|&(id, _)| id == field)?;
            Some(Cow::Owned(format!("{}.{}", self.header_name(header), user.name)))
        });
        name.unwrap_or_else(|| field.name())
    }

    /// The fields of a user-defined header, in order.
    pub fn user_fields(&self, header: Header) -> impl Iterator<Item = (FieldId, &UserField)> {
        let user = header.user_index().and_then(|i| self.users.get(i));
        let mut offset_bits = 0;
        user.map_or(&[][..], |user| &user.fields).iter().filter_map(move |field| {
            let slice = bits(offset_bits, field.width_bits);
            offset_bits += u16::from(field.width_bits);
            Some((FieldId::user(header, slice)?, field))
        })
    }
}

#[cfg(test)]
mod tests;
