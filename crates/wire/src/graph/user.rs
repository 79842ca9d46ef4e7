// SPDX-License-Identifier: Apache-2.0 OR MIT
//! User-defined headers.

use std::borrow::Cow;

use super::{Choice, Extent, Graph, Header, Length, MAX_USER_HEADERS, Next, Node, Scope, Slice};
use crate::field::{FIELDS, FieldId, Source};

/// Length of the longest user-defined header, in bytes.
const MAX_BYTES: usize = 254;

/// A header that a function declares: a sequence of big-endian fields without gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserHeader {
    /// Its name, the prefix of its fields.
    pub name: String,
    /// The header before it.
    pub after: Parent,
    /// It is present if one of these fields has this value; always, if empty.
    pub when: Vec<(FieldId, u64)>,
    /// Its fields in order.
    pub fields: Vec<UserField>,
}

/// A field of a user-defined header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserField {
    /// Its name, without the name of the header.
    pub name: String,
    /// Its width: 1 to 64 bits, or 128 at a byte boundary.
    pub width_bits: u8,
}

/// The header before a user-defined header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parent {
    /// The Ethernet header and its tags, selected by the last `eth.type`.
    Ethernet,
    /// The outermost IP header and its extension headers, selected by `ip.proto`.
    Ip,
    /// The outermost UDP header, selected by its fields.
    Udp,
    /// The outermost TCP header and its options, selected by its fields.
    Tcp,
    /// An earlier user-defined header (by its index), selected by its fields or unconditional.
    User(usize),
}

/// The reason why user-defined headers do not make a graph.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GraphError {
    /// There are more headers than validity bits.
    #[error("{found} headers are declared, at most {limit} are allowed")]
    TooMany {
        /// Number of headers.
        found: usize,
        /// Limit on headers.
        limit: usize,
    },
    /// Another header has the same name.
    #[error("another header has fields called `{header}`")]
    Name {
        /// The header.
        header: String,
    },
    /// Two fields have the same name.
    #[error("header `{header}` has two fields called `{field}`")]
    Duplicate {
        /// The header.
        header: String,
        /// The field.
        field: String,
    },
    /// The header is not a multiple of 16 bits, the unit of checksums, or is too long.
    #[error("header `{header}` has {found_bits} bits; it must have a multiple of 16, from 16 to {limit_bits}")]
    Length {
        /// The header.
        header: String,
        /// Its length in bits.
        found_bits: usize,
        /// The largest length in bits.
        limit_bits: usize,
    },
    /// The width of a field is not allowed.
    #[error("field `{header}.{field}` has {found_bits} bits; it must have 1 to 64, or 128")]
    Width {
        /// The header.
        header: String,
        /// The field.
        field: String,
        /// Its width in bits.
        found_bits: u8,
    },
    /// A field of 128 bits does not start at a byte boundary.
    #[error("field `{header}.{field}` of 128 bits starts at bit {offset_bits}, which is not a whole byte")]
    Unaligned {
        /// The header.
        header: String,
        /// The field.
        field: String,
        /// Its offset in bits.
        offset_bits: usize,
    },
    /// The header before it is not declared before it.
    #[error("header `{header}` follows a header that is not declared before it")]
    Parent {
        /// The header.
        header: String,
    },
    /// Only user-defined headers can have an unconditional successor.
    #[error("header `{header}` needs a value of `{after}` that selects it")]
    NoSelector {
        /// The header.
        header: String,
        /// The field or header that has to select it.
        after: String,
    },
    /// The field does not select the header after this one.
    #[error("header `{header}` cannot be selected by `{field}`: it follows `{after}`")]
    Selector {
        /// The header.
        header: String,
        /// The field.
        field: String,
        /// The header before it.
        after: String,
    },
    /// The value does not fit the field.
    #[error("header `{header}` is selected by `{field}` == {value:#x}, which does not fit {width_bits} bits")]
    Value {
        /// The header.
        header: String,
        /// The field.
        field: String,
        /// The value.
        value: u64,
        /// The width of the field in bits.
        width_bits: u8,
    },
    /// The same value already selects another header.
    #[error("header `{header}` is selected by `{field}` == {value:#x}, which already selects `{other}`")]
    DuplicateSelector {
        /// The header.
        header: String,
        /// The field.
        field: String,
        /// The value.
        value: u64,
        /// The header that the value selects.
        other: String,
    },
    /// Two headers unconditionally follow the same one.
    #[error("header `{header}` always follows `{after}`, and so does `{other}`")]
    DuplicateSuccessor {
        /// The header.
        header: String,
        /// The header before it.
        after: String,
        /// The header that already follows.
        other: String,
    },
}

impl Graph {
    /// The standard graph with user-defined headers. If a packet matches several headers, the standard ones take
    /// precedence, then user-defined ones in order of declaration.
    ///
    /// # Errors
    /// A header cannot be parsed, or not be distinguished from another one.
    pub fn with(users: &[UserHeader]) -> Result<Graph, GraphError> {
        if users.len() > MAX_USER_HEADERS {
            return Err(GraphError::TooMany { found: users.len(), limit: MAX_USER_HEADERS });
        }
        let mut graph = Graph::standard().clone();
        for (user, header) in users.iter().zip(Header::USER) {
            graph.add_user(user, header)?;
        }
        Ok(graph)
    }

    fn add_user(&mut self, user: &UserHeader, header: Header) -> Result<(), GraphError> {
        let len_bits = check_fields(user)?;
        let own = || user.name.clone();
        let is_known = |name: &str| name == user.name;
        if self.users.iter().any(|other| is_known(&other.name))
            || FIELDS.iter().filter_map(|field| field.name.split('.').next()).any(is_known)
        {
            return Err(GraphError::Name { header: own() });
        }
        let parents = self.parents(user)?;
        let after = self.after_name(user.after);
        let node = self.nodes.len();
        self.nodes.push(Node {
            name: Cow::Owned(own()),
            header: Some(header),
            min_bytes: (len_bits / 8) as u8,
            checks: Vec::new(),
            length: Length::Fixed,
            option: None,
            extent: match user.after {
                Parent::Ethernet => Extent::Open,
                Parent::User(_) => self.nodes[parents[0].0].extent,
                Parent::Ip | Parent::Udp | Parent::Tcp => Extent::Within,
            },
            next: Next::default(),
        });
        self.users.push(user.clone());
        for &(parent, _) in parents.iter().filter(|_| user.when.is_empty()) {
            if !matches!(user.after, Parent::User(_)) {
                return Err(GraphError::NoSelector { header: own(), after });
            }
            if let Some(other) = self.nodes[parent].next.otherwise {
                return Err(GraphError::DuplicateSuccessor {
                    header: own(),
                    after,
                    other: self.nodes[other].name.to_string(),
                });
            }
            self.nodes[parent].next.otherwise = Some(node);
        }
        for &(field, value) in &user.when {
            let name = self.field_name(field).into_owned();
            for &(parent, selector) in &parents {
                let selector = match (selector, field.source()) {
                    // The name means these bits of each parent.
                    (Some(slice), _) if name == after => slice,
                    (None, Source::Header(header, slice)) if self.nodes[parent].header == Some(header) => slice,
                    _ => return Err(GraphError::Selector { header: own(), field: name, after }),
                };
                if selector.width_bits > 64 {
                    return Err(GraphError::Selector { header: own(), field: name, after });
                }
                if selector.width_bits < 64 && value >> selector.width_bits != 0 {
                    let width_bits = selector.width_bits;
                    return Err(GraphError::Value { header: own(), field: name, value, width_bits });
                }
                if let Some(other) = self.nodes[parent].next.add_edge(selector, value, node) {
                    let other = self.nodes[other].name.to_string();
                    return Err(GraphError::DuplicateSelector { header: own(), field: name, value, other });
                }
            }
        }
        Ok(())
    }

    /// The nodes that a user-defined header can follow, with their selector if all of them have one.
    fn parents(&self, user: &UserHeader) -> Result<Vec<(usize, Option<Slice>)>, GraphError> {
        let of = |header: Header| self.nodes.iter().position(|node| node.header == Some(header));
        let found: Vec<(usize, Option<Slice>)> = match user.after {
            Parent::Ethernet => [Header::Ethernet, Header::Vlan, Header::Vlan2]
                .into_iter()
                .filter_map(of)
                .map(|node| (node, self.nodes[node].next.choices.first().map(|choice| choice.selector)))
                .collect(),
            Parent::Ip => (0..self.nodes.len())
                .filter_map(|node| match self.nodes[node].next.ip_proto {
                    Some((Scope::Outer, slice)) => Some((node, Some(slice))),
                    _ => None,
                })
                .collect(),
            Parent::Udp => of(Header::Udp).map(|node| (node, None)).into_iter().collect(),
            Parent::Tcp => of(Header::Tcp).map(|node| (node, None)).into_iter().collect(),
            Parent::User(index) => {
                Header::USER.get(index).copied().and_then(of).map(|node| (node, None)).into_iter().collect()
            }
        };
        if found.is_empty() { Err(GraphError::Parent { header: user.name.clone() }) } else { Ok(found) }
    }

    /// Name of the selecting field, or else of the header.
    fn after_name(&self, after: Parent) -> String {
        match after {
            Parent::Ethernet => "eth.type".to_owned(),
            Parent::Ip => "ip.proto".to_owned(),
            Parent::Udp => "udp".to_owned(),
            Parent::Tcp => "tcp".to_owned(),
            Parent::User(index) => self.users.get(index).map_or_else(String::new, |user| user.name.clone()),
        }
    }
}

impl Next {
    /// Adds an edge with the lowest precedence; returns the present target if the value already has an edge.
    fn add_edge(&mut self, selector: Slice, value: u64, to: usize) -> Option<usize> {
        let mut same = self.choices.iter().filter(|choice| choice.selector == selector);
        if let Some(edge) = same.find_map(|choice| choice.edges.iter().find(|edge| edge.0 == value)) {
            return Some(edge.1);
        }
        match self.choices.last_mut() {
            Some(last) if last.selector == selector => last.edges.push((value, to)),
            _ => self.choices.push(Choice { selector, edges: vec![(value, to)] }),
        }
        None
    }
}

/// Checks the fields on their own and returns their total length in bits.
fn check_fields(user: &UserHeader) -> Result<usize, GraphError> {
    let header = || user.name.clone();
    let mut len_bits = 0;
    for (i, field) in user.fields.iter().enumerate() {
        if user.fields[..i].iter().any(|other| other.name == field.name) {
            return Err(GraphError::Duplicate { header: header(), field: field.name.clone() });
        }
        let width = field.width_bits;
        if !matches!(width, 1..=64 | 128) {
            return Err(GraphError::Width { header: header(), field: field.name.clone(), found_bits: width });
        }
        if width == 128 && len_bits % 8 != 0 {
            return Err(GraphError::Unaligned { header: header(), field: field.name.clone(), offset_bits: len_bits });
        }
        len_bits += usize::from(width);
    }
    if len_bits == 0 || !len_bits.is_multiple_of(16) || len_bits > MAX_BYTES * 8 {
        return Err(GraphError::Length { header: header(), found_bits: len_bits, limit_bits: MAX_BYTES * 8 });
    }
    Ok(len_bits)
}

#[cfg(test)]
mod tests;
