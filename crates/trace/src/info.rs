// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Statistics of a capture.

use std::collections::BTreeMap;

use flowloom_wire::field::FIVE_TUPLE;
use flowloom_wire::{FieldId, Graph, Header, Layers};
use serde::Serialize;

use crate::error::TraceError;
use crate::flows::{FlowCount, Flows};
use crate::merge::MergedReader;
use crate::reader::CapturedPacket;

/// The smallest EtherType; a smaller value in that field is a length [IEEE 802.3 3.2.6].
const FIRST_ETHERTYPE: u16 = 0x0600;
/// Lower bounds of the packet length classes, as in the papers' traffic descriptions.
const SIZE_CLASSES_BYTES: [u32; 6] = [0, 80, 100, 300, 600, 1400];

/// Statistics of a capture, from one pass.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TraceInfo {
    /// Number of packets.
    pub packets: u64,
    /// Sum of the original lengths, in bytes.
    pub wire_bytes: u64,
    /// Number of captured bytes.
    pub captured_bytes: u64,
    /// Mean original length of a packet, in bytes; 0 without packets.
    pub mean_len_bytes: f64,
    /// The earliest arrival time, in nanoseconds since 1970.
    pub first_time_ns: Option<u64>,
    /// The latest arrival time, in nanoseconds since 1970.
    pub last_time_ns: Option<u64>,
    /// Time from the earliest arrival to the latest.
    pub duration_ns: u64,
    /// Number of packets whose timestamp is earlier than that of the preceding packet.
    pub steps_back_in_time: u64,
    /// Number of packets that are captured incompletely.
    pub cut_packets: u64,
    /// Number of packets by port.
    pub ports: BTreeMap<u32, u64>,
    /// Number of packets per header name, for all headers of the parse graph; then packets that the graph does not
    /// cover: `ethertype 0x0806` for packets without IP, `ip.proto 47` for packets without a known header after IP
    /// (including non-first fragments), `ieee 802.3` if the EtherType field holds a length, `no ethernet` for packets
    /// too short for an Ethernet header.
    pub protocols: Vec<PacketCount>,
    /// Number of packets per class of original length, in ascending order.
    pub sizes: Vec<SizeCount>,
    /// Flow counts by key: source address, address pair, 5-tuple [FlowBlaze table 6].
    pub flows: Vec<FlowCount>,
}

/// Packet count of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PacketCount {
    /// Name of the kind.
    pub name: String,
    /// Number of packets.
    pub packets: u64,
}

/// Packet count of one length class.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SizeCount {
    /// The smallest length of the class.
    pub from_bytes: u32,
    /// Exclusive upper bound of the class; `None` for the last class.
    pub below_bytes: Option<u32>,
    /// Number of packets.
    pub packets: u64,
}

impl TraceInfo {
    /// Reads captures to their end.
    ///
    /// # Errors
    /// As [`MergedReader::next_packet`].
    ///
    /// # Cost
    /// One pass; memory grows with the number of distinct flows, not of packets.
    pub fn read(packets: &mut MergedReader) -> Result<TraceInfo, TraceError> {
        let mut census = Census::new();
        while let Some(packet) = packets.next_packet()? {
            census.add(&packet);
        }
        Ok(census.finish())
    }

    /// The fraction of packets, from 0 to 1, with a length in the given range, whose bounds must be bounds of classes.
    pub fn share(&self, from_bytes: u32, below_bytes: Option<u32>) -> f64 {
        let is_inside = |class: &&SizeCount| {
            let ends_inside = below_bytes.is_none_or(|end| class.below_bytes.is_some_and(|below| below <= end));
            class.from_bytes >= from_bytes && ends_inside
        };
        let packets: u64 = self.sizes.iter().filter(is_inside).map(|class| class.packets).sum();
        if self.packets == 0 { 0.0 } else { packets as f64 / self.packets as f64 }
    }
}

/// Accumulates packets into a [`TraceInfo`], for callers that also use the packets otherwise.
#[derive(Debug)]
pub struct Census {
    /// The statistics so far, but for those that [`Census::finish`] derives.
    info: TraceInfo,
    /// The arrival time of the last packet.
    previous_ns: u64,
    headers: [u64; Header::ALL.len()],
    others: BTreeMap<Other, u64>,
    flows: [Flows; 3],
    ethertypes: Vec<FieldId>,
    ip_proto: FieldId,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Other {
    NoEthernet,
    Ieee8023,
    EtherType(u16),
    IpProto(u8),
}

impl Default for Census {
    fn default() -> Census {
        Census::new()
    }
}

impl Census {
    /// Returns an empty census.
    pub fn new() -> Census {
        let ends = SIZE_CLASSES_BYTES.into_iter().skip(1).map(Some).chain([None]);
        let class = |(from_bytes, below_bytes)| SizeCount { from_bytes, below_bytes, packets: 0 };
        let sizes = SIZE_CLASSES_BYTES.into_iter().zip(ends).map(class).collect();
        Census {
            info: TraceInfo { sizes, ..TraceInfo::default() },
            previous_ns: 0,
            headers: [0; Header::ALL.len()],
            others: BTreeMap::new(),
            flows: [
                Flows::new("ip.src", &["ip.src"].map(catalogued), false),
                Flows::new("ip.src, ip.dst", &["ip.src", "ip.dst"].map(catalogued), true),
                Flows::new("5-tuple", &FIVE_TUPLE.map(catalogued), true),
            ],
            ethertypes: ["vlan2.type", "vlan.type", "eth.type"].map(catalogued).to_vec(),
            ip_proto: catalogued("ip.proto"),
        }
    }

    /// Counts a packet.
    pub fn add(&mut self, packet: &CapturedPacket) {
        let (info, time_ns) = (&mut self.info, packet.time_ns);
        info.steps_back_in_time += u64::from(time_ns < self.previous_ns);
        self.previous_ns = time_ns;
        let last_ns = info.last_time_ns.map_or(time_ns, |last_ns| last_ns.max(time_ns));
        info.first_time_ns = Some(info.first_time_ns.map_or(time_ns, |first_ns| first_ns.min(time_ns)));
        info.last_time_ns = Some(last_ns);
        info.packets += 1;
        info.wire_bytes += u64::from(packet.original_len_bytes);
        info.captured_bytes += packet.bytes.len() as u64;
        info.cut_packets += u64::from(packet.is_cut());
        *info.ports.entry(packet.port).or_insert(0) += 1;
        let class = SIZE_CLASSES_BYTES.partition_point(|&from_bytes| from_bytes <= packet.original_len_bytes);
        info.sizes[class - 1].packets += 1;

        let layers = Layers::parse(Graph::standard(), &packet.bytes);
        self.add_protocols(&layers, packet);
        for flows in &mut self.flows {
            flows.add(&layers, packet, last_ns);
        }
    }

    fn add_protocols(&mut self, layers: &Layers, packet: &CapturedPacket) {
        for header in Header::ALL.into_iter().filter(|header| layers.has(*header)) {
            self.headers[header as usize] += 1;
        }
        let read = |field| layers.read(&packet.bytes, packet.port, field);
        let other = if !layers.has(Header::Ethernet) {
            Some(Other::NoEthernet)
        } else if let Some(protocol) = read(self.ip_proto) {
            let is_known = [Header::Tcp, Header::Udp, Header::Icmp, Header::Icmp6].iter().any(|h| layers.has(*h));
            (!is_known).then_some(Other::IpProto(protocol as u8))
        } else {
            let ethertype = self.ethertypes.iter().find_map(|field| read(*field)).map(|value| value as u16);
            ethertype.map(|value| if value < FIRST_ETHERTYPE { Other::Ieee8023 } else { Other::EtherType(value) })
        };
        if let Some(other) = other {
            *self.others.entry(other).or_insert(0) += 1;
        }
    }

    /// Returns the accumulated statistics.
    pub fn finish(self) -> TraceInfo {
        let named = |name: String, packets: u64| PacketCount { name, packets };
        let known = Header::ALL.into_iter().filter(|&header| Graph::standard().node(header).is_some());
        let headers = known.map(|h| named(h.name().to_owned(), self.headers[h as usize]));
        let others = self.others.iter().map(|(other, packets)| named(other.name(), *packets));
        let info = self.info;
        TraceInfo {
            mean_len_bytes: if info.packets == 0 { 0.0 } else { info.wire_bytes as f64 / info.packets as f64 },
            duration_ns: info.last_time_ns.unwrap_or(0) - info.first_time_ns.unwrap_or(0),
            protocols: headers.chain(others).collect(),
            flows: self.flows.iter().map(Flows::count).collect(),
            ..info
        }
    }
}

impl Other {
    fn name(self) -> String {
        match self {
            Other::NoEthernet => "no ethernet".to_owned(),
            Other::Ieee8023 => "ieee 802.3".to_owned(),
            Other::EtherType(number) => format!("ethertype {number:#06x}"),
            Other::IpProto(number) => format!("ip.proto {number}"),
        }
    }
}

fn catalogued(name: &str) -> FieldId {
    FieldId::by_name(name).expect("the catalogue has this field")
}
