// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interface offloads that change frames before a program sees them or after it has sent them, and the commands that
//! turn them off.
//!
//! A program sees bytes as they are in memory. Checksum and segmentation offload of a sender, and receive offloads such
//! as merging of frames and tag removal, make them differ from those on a wire. On a veth pair the sender is the peer,
//! whose offloads never take place: the program sees the unfinished frames.

use std::fmt;
use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::path::Path;

use crate::sys::ethtool::{self, Features};
use crate::sys::namespace;
use crate::sys::netlink::{self, Device};

use super::error::Mode;
use super::interface::Interface;

/// The directory of named network namespaces of `ip netns`.
const NAMESPACES: &str = "/run/netns";

/// The properties of a function that matter for offloads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// It sends packets itself, by redirects or out of the ingress port.
    pub sends: bool,
    /// It sends packets through other ports.
    pub redirects: bool,
    /// It writes packets.
    pub writes: bool,
    /// It reads VLAN tags.
    pub reads_tags: bool,
}

/// An advice with its command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advice {
    /// The interface concerned.
    pub interface: String,
    /// The problem.
    pub problem: String,
    /// The command.
    pub command: String,
    /// True if the interface is in a network namespace without a name here: its offloads could not be read, and the
    /// command has to be run there.
    pub is_elsewhere: bool,
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Advice { interface, problem, command, is_elsewhere } = self;
        if *is_elsewhere {
            write!(
                f,
                "`{interface}` is in an inaccessible network namespace; unless its offloads are off, it \
                 {problem}: run `{command}` there"
            )
        } else {
            write!(f, "`{interface}` {problem}: run `{command}`")
        }
    }
}

/// The namespace of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Here,
    Named(String),
    /// A namespace without a name here.
    Unknown,
}

/// The peer of a veth.
struct Peer {
    device: Device,
    place: Place,
    /// Its enabled offloads, if they can be read.
    on: Option<Features>,
}

impl Peer {
    fn of(interface: &Interface) -> Option<Peer> {
        let device = interface.peer()?;
        let place = match interface.device.peer {
            Some((_, Some(number))) => named(number).map_or(Place::Unknown, Place::Named),
            _ => Place::Here,
        };
        let on = match &place {
            Place::Here => ethtool::features(&device.name).ok(),
            Place::Named(name) => File::open(Path::new(NAMESPACES).join(name))
                .and_then(|file| namespace::within(&file, || ethtool::features(&device.name)))
                .ok(),
            Place::Unknown => None,
        };
        Some(Peer { device, place, on })
    }

    /// True if one of these is enabled; if unknown, veth's defaults are assumed.
    fn has(&self, features: &[&str]) -> bool {
        self.on.as_ref().is_none_or(|on| features.iter().any(|name| on.contains_key(*name)))
    }

    fn advice(&self, problem: String, switch: &str) -> Advice {
        let name = &self.device.name;
        let within = match &self.place {
            Place::Named(namespace) => format!("ip netns exec {namespace} "),
            Place::Here | Place::Unknown => String::new(),
        };
        Advice {
            interface: name.clone(),
            problem,
            command: format!("{within}ethtool -K {name} {switch}"),
            is_elsewhere: self.on.is_none(),
        }
    }
}

/// The changes advised before `interfaces` carry a function with these properties.
pub fn advice(interfaces: &[Interface], mode: Mode, traffic: Traffic) -> Vec<Advice> {
    let mut found = Vec::new();
    for interface in interfaces {
        let device = &interface.device;
        if !device.is_up {
            found.push(Advice {
                interface: device.name.clone(),
                problem: "is down".to_owned(),
                command: format!("ip link set dev {} up", device.name),
                is_elsewhere: false,
            });
        }
        if let Ok(features) = ethtool::features(&device.name) {
            receiver(device, &features, mode, traffic, &mut found);
        }
        if let Some(peer) = Peer::of(interface) {
            sender(&peer, traffic, &mut found);
            if traffic.redirects && mode == Mode::Native {
                found.extend(target(interface, &peer, interfaces));
            }
        }
    }
    found
}

/// Offloads of the interface itself, before the program.
fn receiver(device: &Device, on: &Features, mode: Mode, traffic: Traffic, found: &mut Vec<Advice>) {
    let is_veth = device.kind.as_deref() == Some("veth");
    let mut advise = |feature: &str, problem: &str, switch: &str| {
        if on.contains_key(feature) {
            found.push(Advice {
                interface: device.name.clone(),
                problem: problem.to_owned(),
                command: format!("ethtool -K {} {switch}", device.name),
                is_elsewhere: false,
            });
        }
    };
    advise("rx-lro", "merges frames before the program sees them", "lro off");
    advise("rx-gro-hw", "merges frames before the program sees them", "rx-gro-hw off");
    if mode == Mode::Skb {
        advise("rx-gro", "merges frames before the program sees them", "gro off");
    }
    // On a veth it is the sender that omits the tag.
    if traffic.reads_tags && !is_veth {
        advise("rx-vlan-hw-parse", "strips VLAN tags before the program sees them", "rxvlan off");
    }
}

/// Offloads of a veth's peer, which never take place.
fn sender(peer: &Peer, traffic: Traffic, found: &mut Vec<Advice>) {
    let checksums = ["tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6"];
    if (traffic.sends || traffic.writes) && peer.has(&checksums) {
        let problem = "sends packets with unfinished checksums, which the function cannot finish";
        found.push(peer.advice(problem.to_owned(), "tx off"));
    }
    if traffic.reads_tags && peer.has(&["tx-vlan-hw-insert"]) {
        let problem = "sends VLAN tags out of band, where no program sees them";
        found.push(peer.advice(problem.to_owned(), "txvlan off"));
    }
}

/// A veth that packets are redirected to: frames reach its peer only if that has NAPI or a program.
fn target(interface: &Interface, peer: &Peer, interfaces: &[Interface]) -> Option<Advice> {
    let is_bound = peer.place == Place::Here && interfaces.iter().any(|i| i.device.index == peer.device.index);
    let runs_xdp = is_bound || peer.device.xdp.iter().any(|xdp| xdp.mode == "native");
    if runs_xdp || peer.on.as_ref().is_some_and(|on| on.contains_key("rx-gro")) {
        return None;
    }
    let problem = format!("loses packets forwarded to port {} (`{}`)", interface.port, interface.name());
    Some(peer.advice(problem, "gro on"))
}

/// The name of the namespace with this id.
fn named(number: i32) -> Option<String> {
    let mut paths: Vec<_> = fs::read_dir(NAMESPACES).ok()?.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let is_it = |path: &std::path::PathBuf| {
        let file = File::open(path).ok()?;
        (netlink::namespace_number(file.as_raw_fd()).ok()? == Some(number)).then_some(())
    };
    let path = paths.into_iter().find(|path| is_it(path).is_some())?;
    Some(path.file_name()?.to_str()?.to_owned())
}
