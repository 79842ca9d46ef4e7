// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Finds rows with unsatisfiable conditions because of the headers that they need: IPv4 and IPv6 fields in one row, a
//! header both present and absent, `tcp.dport` and `l4.dport` with different values.
//!
//! A row is tested against each possible pair of an outer network and transport header. Under such a pair a field that
//! stands for several (`ip.ttl`, `l4.dport`) denotes one concrete field, so the value sets of both names intersect.
//!
//! Limits: headers in tunnels, and relations between registers, metadata and fields, are ignored.

use std::collections::BTreeMap;

use flowloom_wire::field::{FieldId, IPV4_MAPPED, Source};
use flowloom_wire::graph::{Graph, Header};

use super::overlap::protocol;
use crate::intervals::{self, Interval, intersect};
use crate::model::{Condition, Row};

/// Outer network headers.
const NETWORK: [Header; 2] = [Header::Ipv4, Header::Ipv6];
/// Outer transport headers.
const TRANSPORT: [Header; 4] = [Header::Tcp, Header::Udp, Header::Icmp, Header::Icmp6];
/// EtherTypes of tags and labels that can precede IPv4 or IPv6.
const ENCAPSULATING_ETHER_TYPES: [u128; 4] = [0x8100, 0x8847, 0x8848, 0x88a8];
/// Number of conditions searched for a pair that excludes each other.
const MAX_NAMED: usize = 32;

/// The outer headers of a packet.
#[derive(Debug, Clone, Copy)]
struct Headers {
    network: Option<Header>,
    transport: Option<Header>,
}

impl Headers {
    /// All possible pairs.
    fn all() -> impl Iterator<Item = Headers> {
        let some = NETWORK.into_iter().flat_map(|network| {
            let transports = TRANSPORT.into_iter().map(Some).chain([None]);
            transports.map(move |transport| Headers { network: Some(network), transport })
        });
        some.chain([Headers { network: None, transport: None }])
    }

    /// True if a packet with these headers has `header`. `None` if that does not depend on them.
    fn contains(self, header: Header) -> Option<bool> {
        match header {
            _ if NETWORK.contains(&header) => Some(self.network == Some(header)),
            _ if TRANSPORT.contains(&header) => Some(self.transport == Some(header)),
            Header::Ipv6Fragment if self.network != Some(Header::Ipv6) => Some(false),
            _ => None,
        }
    }

    fn may_have(self, field: FieldId) -> bool {
        let headers = field.headers();
        headers.is_empty() || headers.into_iter().any(|header| self.contains(header) != Some(false))
    }

    /// True if every packet with these headers has the field.
    fn must_have(self, field: FieldId) -> bool {
        match field.source() {
            Source::Header(header, _) => self.contains(header) == Some(true),
            Source::Either(_) | Source::Address { .. } => {
                field.alternatives().iter().any(|field| self.must_have(*field))
            }
            _ => false,
        }
    }

    /// The concrete field that `field` denotes, with its values.
    fn concrete(self, field: FieldId, values: Vec<Interval>) -> (FieldId, Vec<Interval>) {
        let mut possible = field.alternatives().iter().filter(|field| self.may_have(**field));
        let (Some(concrete), None) = (possible.next(), possible.next()) else { return (field, values) };
        let is_mapped = matches!(field.source(), Source::Address { .. }) && self.network == Some(Header::Ipv4);
        if !is_mapped {
            return (*concrete, values);
        }
        let mapped = [(IPV4_MAPPED, IPV4_MAPPED + u128::from(u32::MAX))];
        let values = intersect(&values, &mapped).into_iter().map(|(low, high)| (low - IPV4_MAPPED, high - IPV4_MAPPED));
        (*concrete, values.collect())
    }

    /// Values that these headers imply for fields.
    fn implied(self, graph: &Graph) -> Vec<(&'static str, Vec<Interval>)> {
        let mut implied = Vec::new();
        if let Some(number) = self.transport.and_then(protocol) {
            implied.push(("ip.proto", vec![(number, number)]));
        }
        let (own, version, fragment, ether_type) = match self.network {
            Some(Header::Ipv4) => ("ipv4.version", 4, "ipv4.frag", 0x800),
            Some(_) => ("ipv6.version", 6, "ipv6.frag", 0x86dd),
            None => return implied,
        };
        implied.push((own, vec![(version, version)]));
        // Later fragments have no transport header.
        if self.transport.is_some() {
            implied.push((fragment, vec![(0, 0)]));
        }
        // A declared header may stand between Ethernet and IP.
        if graph.user_headers().is_empty() {
            let types = ENCAPSULATING_ETHER_TYPES.into_iter().chain([ether_type]).map(|number| (number, number));
            implied.push(("eth.type", intervals::merged(types.collect())));
        }
        implied
    }
}

/// Requirements of a row.
struct Requirements<'a> {
    /// Fields that must be present.
    fields: Vec<FieldId>,
    conditions: Vec<&'a Condition>,
}

impl Requirements<'_> {
    /// True if a packet with some pair of outer headers may satisfy all of them.
    fn is_feasible(&self, graph: &Graph) -> bool {
        let absent: Vec<FieldId> = self.conditions.iter().filter_map(|condition| condition.absent()).collect();
        let compared: Vec<_> = self.conditions.iter().filter_map(|condition| intervals::of(condition)).collect();
        Headers::all().any(|headers| {
            if !self.fields.iter().all(|field| headers.may_have(*field))
                || absent.iter().any(|field| headers.must_have(*field))
            {
                return false;
            }
            let mut values: BTreeMap<FieldId, Vec<Interval>> = BTreeMap::new();
            for (field, of_field) in &compared {
                let (field, of_field) = headers.concrete(*field, of_field.clone());
                values.entry(field).and_modify(|all| *all = intersect(all, &of_field)).or_insert(of_field);
            }
            for (name, implied) in headers.implied(graph) {
                if let Some(all) = FieldId::by_name(name).and_then(|field| values.get_mut(&field)) {
                    *all = intersect(all, &implied);
                }
            }
            values.values().all(|values| !values.is_empty())
        })
    }
}

/// Description of the conflict in a row that no packet matches: two conditions, or the conditions and the fields that
/// actions need. `None` for other rows.
pub(super) fn find_conflict(row: &Row, graph: &Graph) -> Option<String> {
    let all = Requirements { fields: row.fields(), conditions: row.conditions.iter().collect() };
    if all.is_feasible(graph) {
        return None;
    }
    let conditions = &row.conditions[..row.conditions.len().min(MAX_NAMED)];
    for (at, one) in conditions.iter().enumerate() {
        for other in &conditions[..at] {
            let fields = one.fields().into_iter().chain(other.fields()).collect();
            if !(Requirements { fields, conditions: vec![other, one] }).is_feasible(graph) {
                return Some(format!("its conditions on {} and {}", name(other, graph), name(one, graph)));
            }
        }
    }
    Some("its conditions and the fields that it needs".to_owned())
}

fn name(condition: &Condition, graph: &Graph) -> String {
    match condition {
        Condition::Present { field, negated } => {
            let name = graph.field_name(*field);
            let header = field.header().map_or_else(
                || name.rsplit_once('.').map_or(&*name, |(prefix, _)| prefix).to_owned(),
                |header| graph.header_name(header).to_owned(),
            );
            format!("`{}present({header})`", if *negated { "!" } else { "" })
        }
        _ => {
            let field = condition.fields().first().map(|field| format!("`{}`", graph.field_name(*field)));
            field.unwrap_or_else(|| "other values".to_owned())
        }
    }
}
