// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The routing table of `fib_lookup`, as the user gives it.
//!
//! ```json
//! {
//!   "interfaces": [{"port": 1, "mac": "02:00:00:00:00:01", "mtu": 1500, "addresses": ["10.0.1.1/24"]},
//!                  {"port": 2, "mac": "02:00:00:00:00:02", "mtu": 1500, "addresses": ["10.0.2.1/24"]}],
//!   "routes": [{"to": "192.0.2.0/24", "via": "10.0.2.7", "port": 2}, {"to": "203.0.113.0/24", "kind": "blackhole"}],
//!   "neighbours": [{"address": "10.0.2.7", "port": 2, "mac": "02:00:00:00:07:07"}]
//! }
//! ```
//!
//! An interface is identified by its port, which programs see as `ifindex`. Its addresses imply routes, as in the
//! kernel: the network is reached through it, the address itself is local. The longest prefix wins, among equal ones
//! the smallest metric.
//!
//! There are the kernel's two default tables: 255 with local routes and 254 with the others. For IPv4 they are merged;
//! for IPv6 a direct lookup uses one of them (`BPF_FIB_LOOKUP_DIRECT`, `_TBID`). Other tables do not exist. Marks
//! (`BPF_FIB_LOOKUP_MARK`) select among rules, so they have no effect.
//!
//! # Source
//! [Linux net/core/filter.c: bpf_ipv4_fib_lookup, bpf_ipv6_fib_lookup], [Linux uapi/bpf.h: struct bpf_fib_lookup]

mod request;
mod text;

use std::net::{IpAddr, Ipv4Addr};

use flowloom_engine::PORT_COUNT;
use serde::{Deserialize, Serialize};

pub use request::Request;
use request::Tables;
pub use text::{Mac, Prefix, TableError};

/// The results of `bpf_fib_lookup` besides 0.
mod answer {
    pub(super) const BLACKHOLE: i64 = 1;
    pub(super) const UNREACHABLE: i64 = 2;
    pub(super) const PROHIBIT: i64 = 3;
    pub(super) const NOT_FWDED: i64 = 4;
    pub(super) const FWD_DISABLED: i64 = 5;
    pub(super) const NO_NEIGH: i64 = 7;
    pub(super) const FRAG_NEEDED: i64 = 8;
    pub(super) const NO_SRC_ADDR: i64 = 9;
    /// -ENODEV
    pub(super) const NO_DEVICE: i64 = -19;
}

/// The metrics of connected networks (IPv4, IPv6), and of other routes without a metric.
const CONNECTED_METRIC: [u32; 2] = [0, 256];
const DEFAULT_METRIC: [u32; 2] = [0, 1024];

/// Interfaces, routes and neighbours.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// The interfaces, one for each port.
    pub interfaces: Vec<Interface>,
    /// Routes besides those implied by addresses.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// The link-layer addresses of neighbours.
    #[serde(default)]
    pub neighbours: Vec<Neighbour>,
}

/// An interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interface {
    /// Its port; programs see it as `ifindex`.
    pub port: u32,
    /// Its MAC address.
    pub mac: Mac,
    /// The MTU: the longest IP packet in bytes.
    #[serde(default = "default_mtu")]
    pub mtu: u32,
    /// Whether packets that arrive on it are forwarded.
    #[serde(default = "yes")]
    pub forwarding: bool,
    /// Its addresses with their networks.
    #[serde(default)]
    pub addresses: Vec<Prefix>,
}

fn default_mtu() -> u32 {
    1500
}

fn yes() -> bool {
    true
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// The destination network.
    pub to: Prefix,
    /// The next hop, unless the network is directly connected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub via: Option<IpAddr>,
    /// The egress port, if packets are forwarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u32>,
    /// The metric; the route with the smallest one wins. 0 for IPv4 and 1024 for IPv6 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<u32>,
    /// The path MTU; by default that of the interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The kind of route.
    #[serde(default)]
    pub kind: RouteKind,
}

/// The kinds of routes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RouteKind {
    /// Packets are forwarded.
    #[default]
    Unicast,
    /// Packets are for this host.
    Local,
    /// Packets are dropped silently.
    Blackhole,
    /// Packets are dropped as unreachable.
    Unreachable,
    /// Packets are dropped as prohibited.
    Prohibit,
}

/// A neighbour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Neighbour {
    /// Its IP address.
    pub address: IpAddr,
    /// The port through which it is reached.
    pub port: u32,
    /// Its MAC address.
    pub mac: Mac,
}

/// The result of a route lookup.
struct Found {
    kind: RouteKind,
    via: Option<IpAddr>,
    port: u32,
    metric: u32,
    mtu: Option<u32>,
    source: Option<IpAddr>,
}

fn family(address: IpAddr) -> usize {
    usize::from(address.is_ipv6())
}

impl Table {
    /// Parses a table.
    ///
    /// # Errors
    /// The text is not such a table, refers to a port without interface, or defines a port twice.
    pub fn from_json(text: &str) -> Result<Table, TableError> {
        let table: Table = serde_json::from_str(text).map_err(|e| TableError::Json(e.to_string()))?;
        table.check()?;
        Ok(table)
    }

    fn check(&self) -> Result<(), TableError> {
        for (at, interface) in self.interfaces.iter().enumerate() {
            if interface.port >= PORT_COUNT {
                return Err(TableError::Port { port: interface.port });
            }
            if self.interfaces[..at].iter().any(|other| other.port == interface.port) {
                return Err(TableError::Twice { port: interface.port });
            }
        }
        let known = |port: u32, what: String| match self.interface(port) {
            Some(_) => Ok(()),
            None => Err(TableError::NoInterface { what, port }),
        };
        for route in &self.routes {
            match (route.kind, route.port) {
                (RouteKind::Unicast, None) => return Err(TableError::NoPort { route: route.to }),
                (_, Some(port)) => known(port, format!("the route to {}", route.to))?,
                _ => {}
            }
            if route.via.is_some_and(|via| family(via) != family(route.to.address)) {
                return Err(TableError::OtherFamily { route: route.to });
            }
        }
        for neighbour in &self.neighbours {
            known(neighbour.port, format!("the neighbour {}", neighbour.address))?;
        }
        Ok(())
    }

    fn interface(&self, port: u32) -> Option<&Interface> {
        self.interfaces.iter().find(|interface| interface.port == port)
    }

    /// The MTU of a port, if there is an interface.
    pub fn mtu(&self, port: u32) -> Option<u32> {
        self.interface(port).map(|interface| interface.mtu)
    }

    /// Answers a request as the kernel does: 0, one of its `BPF_FIB_LKUP_RET_*`, or a negative error number.
    pub fn lookup(&self, request: &mut Request) -> i64 {
        // This is checked before the interface.
        if request.is_local_only() {
            return answer::NOT_FWDED;
        }
        let Some(ingress) = self.interface(request.interface) else { return answer::NO_DEVICE };
        if !ingress.forwarding {
            return answer::FWD_DISABLED;
        }
        let only = request.is_output().then_some(request.interface);
        let Some(tables) = request.take_tables() else { return answer::NOT_FWDED };
        if request.destination.is_loopback() {
            return answer::NOT_FWDED;
        }
        let Some(route) = self.route(request.destination, only, tables) else { return answer::NOT_FWDED };
        match route.kind {
            RouteKind::Unicast => {}
            RouteKind::Local => return answer::NOT_FWDED,
            RouteKind::Blackhole => return answer::BLACKHOLE,
            RouteKind::Unreachable => return answer::UNREACHABLE,
            RouteKind::Prohibit => return answer::PROHIBIT,
        }
        let Some(egress) = self.interface(route.port) else { return answer::NOT_FWDED };
        let mtu = route.mtu.unwrap_or(egress.mtu);
        if u32::from(request.total_len) > mtu {
            request.total_len = mtu as u16;
            return answer::FRAG_NEEDED;
        }
        request.metric = Some(route.metric);
        request.interface = egress.port;
        if request.wants_source() {
            match route.source.or_else(|| self.source(egress, request.destination, route.via)) {
                Some(source) => request.source = source,
                None => return answer::NO_SRC_ADDR,
            }
        }
        if let Some(via) = route.via {
            request.destination = via;
        }
        if !request.skips_neighbour() {
            let is_it = |n: &&Neighbour| n.port == egress.port && n.address == request.destination;
            let Some(neighbour) = self.neighbours.iter().find(is_it) else { return answer::NO_NEIGH };
            request.macs = Some((egress.mac, neighbour.mac));
        }
        request.total_len = mtu as u16;
        request.is_forwarded = true;
        0
    }

    /// The route to an address, optionally through one port only.
    fn route(&self, to: IpAddr, only: Option<u32>, tables: Tables) -> Option<Found> {
        let given = self.routes.iter().map(|route| {
            let found = Found {
                kind: route.kind,
                via: route.via,
                port: route.port.unwrap_or(0),
                metric: route.metric.unwrap_or(DEFAULT_METRIC[family(route.to.address)]),
                mtu: route.mtu,
                source: None,
            };
            (route.to, found)
        });
        let own = self.interfaces.iter().flat_map(|interface| {
            interface.addresses.iter().flat_map(move |prefix| {
                let found = |kind| Found {
                    kind,
                    via: None,
                    port: interface.port,
                    metric: CONNECTED_METRIC[family(prefix.address)],
                    mtu: None,
                    source: Some(prefix.address).filter(IpAddr::is_ipv4),
                };
                let locals = prefix.local_addresses().into_iter();
                let locals = locals.map(move |address| (address, found(RouteKind::Local)));
                locals.chain([(*prefix, found(RouteKind::Unicast))])
            })
        });
        let fits = |found: &Found| only.is_none_or(|port| found.kind != RouteKind::Unicast || found.port == port);
        let all = given.chain(own).filter(|(prefix, found)| {
            prefix.contains(to) && fits(found) && tables.have(found.kind == RouteKind::Local)
        });
        // Local routes come first, whatever the other routes are.
        let best = all.min_by_key(|(prefix, found)| {
            (found.kind != RouteKind::Local, std::cmp::Reverse(prefix.length), found.metric)
        });
        best.map(|(_, found)| found)
    }

    /// The source address of packets to `to` sent through `egress`; an address of another interface if that one has
    /// none, and for IPv4 all zeros if there is none at all [Linux net/ipv4/devinet.c: inet_select_addr,
    /// net/ipv6/addrconf.c: ipv6_dev_get_saddr].
    fn source(&self, egress: &Interface, to: IpAddr, via: Option<IpAddr>) -> Option<IpAddr> {
        let of_family = |prefix: &&Prefix| family(prefix.address) == family(to);
        let own = || egress.addresses.iter().filter(of_family);
        if to.is_ipv4() {
            let others = || self.interfaces.iter().flat_map(|interface| &interface.addresses).filter(of_family);
            let near = via.and_then(|via| own().find(|prefix| prefix.contains(via)));
            let found = near.or_else(|| own().next()).or_else(|| others().next());
            return Some(found.map_or(Ipv4Addr::UNSPECIFIED.into(), |prefix| prefix.address));
        }
        // The longest match; among equal ones that of the first interface, and of its addresses the last one.
        let others = || self.interfaces.iter().rev().flat_map(|interface| &interface.addresses).filter(of_family);
        let nearest = |prefix: &&Prefix| prefix.common_bits(to);
        own().max_by_key(nearest).or_else(|| others().max_by_key(nearest)).map(|prefix| prefix.address)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
