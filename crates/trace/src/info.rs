//! What a capture holds.

use std::collections::{BTreeMap, HashSet, VecDeque};

use flowloom_wire::field::FIVE_TUPLE;
use flowloom_wire::{FieldId, Header, KeySpec, Layers};
use serde::Serialize;

use crate::error::TraceError;
use crate::merge::MergedReader;
use crate::reader::CapturedPacket;

const NS_PER_MS: u64 = 1_000_000;
/// What stands in the place of an EtherType and is smaller is a length [IEEE 802.3 3.2.6].
const FIRST_ETHERTYPE: u16 = 0x0600;

/// What one pass over a capture finds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TraceInfo {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire: the sum of the original lengths.
    pub wire_bytes: u64,
    /// Bytes that were captured.
    pub captured_bytes: u64,
    /// Bytes on the wire in a packet, on average; 0 without packets.
    pub mean_len_bytes: f64,
    /// The earliest arrival since 1970.
    pub first_time_ns: Option<u64>,
    /// The latest arrival since 1970.
    pub last_time_ns: Option<u64>,
    /// From the earliest arrival to the latest.
    pub duration_ns: u64,
    /// Packets that arrived before the packet in front of them, by their time stamps.
    pub steps_back_in_time: u64,
    /// Packets whose end is missing.
    pub cut_packets: u64,
    /// Packets by port.
    pub ports: BTreeMap<u32, u64>,
    /// Packets that have a header, by its name, for all headers of the parse graph; then what the graph does not know:
    /// `ethertype 0x0806` for packets without IP, `ip.proto 47` for packets without a known header after IP (later
    /// fragments among them), `ieee 802.3` where a length stands in the place of the EtherType, `no ethernet` for packets
    /// too short for it.
    pub protocols: Vec<PacketCount>,
    /// Distinct flows by key.
    pub flows: Vec<FlowCount>,
    /// The largest number of 5-tuples seen for the first time within any millisecond.
    pub max_new_flows_per_ms: u64,
}

/// Packets of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PacketCount {
    /// The kind.
    pub name: String,
    /// How many.
    pub packets: u64,
}

/// Distinct flows by one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FlowCount {
    /// Its fields.
    pub key: &'static str,
    /// Packets that have all of them.
    pub packets: u64,
    /// Flows with each direction by itself.
    pub one_way: u64,
    /// Flows with both directions together (`biflow`); `None` for a key that has no directions.
    pub both_ways: Option<u64>,
}

impl TraceInfo {
    /// Reads captures to their end.
    ///
    /// # Errors
    /// As [`MergedReader::next_packet`].
    ///
    /// # Cost
    /// One pass; memory grows with the number of distinct flows, not with that of packets.
    pub fn read(packets: &mut MergedReader) -> Result<TraceInfo, TraceError> {
        let mut census = Census::new();
        while let Some(packet) = packets.next_packet()? {
            census.add(&packet);
        }
        Ok(census.finish())
    }
}

/// Counts packets for a [`TraceInfo`], for callers that do something else with them too.
#[derive(Debug)]
pub struct Census {
    packets: u64,
    wire_bytes: u64,
    captured_bytes: u64,
    time_ns: Option<(u64, u64)>,
    last_ns: u64,
    steps_back_in_time: u64,
    cut_packets: u64,
    ports: BTreeMap<u32, u64>,
    headers: [u64; Header::ALL.len()],
    others: BTreeMap<Other, u64>,
    flows: [Flows; 3],
    /// First arrivals of 5-tuples within the last millisecond.
    new_flows_ns: VecDeque<u64>,
    max_new_flows_per_ms: u64,
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

#[derive(Debug)]
struct Flows {
    name: &'static str,
    packets: u64,
    one_way: (KeySpec, HashSet<Vec<u8>>),
    both_ways: Option<(KeySpec, HashSet<Vec<u8>>)>,
}

impl Default for Census {
    fn default() -> Census {
        Census::new()
    }
}

impl Census {
    /// Nothing counted yet.
    pub fn new() -> Census {
        Census {
            packets: 0,
            wire_bytes: 0,
            captured_bytes: 0,
            time_ns: None,
            last_ns: 0,
            steps_back_in_time: 0,
            cut_packets: 0,
            ports: BTreeMap::new(),
            headers: [0; Header::ALL.len()],
            others: BTreeMap::new(),
            flows: [
                Flows::new("ip.src", &["ip.src"], false),
                Flows::new("ip.src, ip.dst", &["ip.src", "ip.dst"], true),
                Flows::new("5-tuple", &FIVE_TUPLE, true),
            ],
            new_flows_ns: VecDeque::new(),
            max_new_flows_per_ms: 0,
            ethertypes: ["vlan2.type", "vlan.type", "eth.type"].map(catalogued).to_vec(),
            ip_proto: catalogued("ip.proto"),
        }
    }

    /// Counts a packet.
    pub fn add(&mut self, packet: &CapturedPacket) {
        let time_ns = packet.time_ns;
        if self.packets > 0 && time_ns < self.last_ns {
            self.steps_back_in_time += 1;
        }
        self.last_ns = time_ns;
        let (first, last) = self.time_ns.unwrap_or((time_ns, time_ns));
        self.time_ns = Some((first.min(time_ns), last.max(time_ns)));
        self.packets += 1;
        self.wire_bytes += u64::from(packet.original_len_bytes);
        self.captured_bytes += packet.bytes.len() as u64;
        self.cut_packets += u64::from(packet.is_cut());
        *self.ports.entry(packet.port).or_insert(0) += 1;

        let layers = Layers::parse(&packet.bytes);
        self.add_protocols(&layers, packet);
        let mut is_new = false;
        for flows in &mut self.flows {
            // The last key is the 5-tuple.
            is_new = flows.add(&layers, packet);
        }
        if is_new {
            self.add_new_flow(last.max(time_ns));
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

    /// Counts a 5-tuple whose first packet arrives now, the largest time so far.
    fn add_new_flow(&mut self, now_ns: u64) {
        while self.new_flows_ns.front().is_some_and(|&then_ns| now_ns - then_ns >= NS_PER_MS) {
            self.new_flows_ns.pop_front();
        }
        self.new_flows_ns.push_back(now_ns);
        self.max_new_flows_per_ms = self.max_new_flows_per_ms.max(self.new_flows_ns.len() as u64);
    }

    /// What was counted.
    pub fn finish(self) -> TraceInfo {
        let named = |name: String, packets: u64| PacketCount { name, packets };
        let headers = Header::ALL.into_iter().map(|h| named(h.name().to_owned(), self.headers[h as usize]));
        let others = self.others.iter().map(|(other, packets)| named(other.name(), *packets));
        TraceInfo {
            packets: self.packets,
            wire_bytes: self.wire_bytes,
            captured_bytes: self.captured_bytes,
            mean_len_bytes: if self.packets == 0 { 0.0 } else { self.wire_bytes as f64 / self.packets as f64 },
            first_time_ns: self.time_ns.map(|(first, _)| first),
            last_time_ns: self.time_ns.map(|(_, last)| last),
            duration_ns: self.time_ns.map_or(0, |(first, last)| last - first),
            steps_back_in_time: self.steps_back_in_time,
            cut_packets: self.cut_packets,
            protocols: headers.chain(others).collect(),
            ports: self.ports,
            flows: self.flows.iter().map(Flows::count).collect(),
            max_new_flows_per_ms: self.max_new_flows_per_ms,
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

impl Flows {
    fn new(name: &'static str, fields: &[&'static str], has_directions: bool) -> Flows {
        let fields: Vec<_> = fields.iter().copied().map(catalogued).collect();
        let table = |biflow| (KeySpec::new(&fields, biflow).expect("fixed fields make a key"), HashSet::new());
        Flows { name, packets: 0, one_way: table(false), both_ways: has_directions.then(|| table(true)) }
    }

    /// Counts the packet; says whether its flow, one way, is new.
    fn add(&mut self, layers: &Layers, packet: &CapturedPacket) -> bool {
        let Some(key) = self.one_way.0.extract(layers, &packet.bytes, packet.port) else { return false };
        self.packets += 1;
        // A flow known one way is known both ways.
        if !self.one_way.1.insert(key) {
            return false;
        }
        if let Some((spec, seen)) = &mut self.both_ways {
            seen.extend(spec.extract(layers, &packet.bytes, packet.port));
        }
        true
    }

    fn count(&self) -> FlowCount {
        FlowCount {
            key: self.name,
            packets: self.packets,
            one_way: self.one_way.1.len() as u64,
            both_ways: self.both_ways.as_ref().map(|(_, seen)| seen.len() as u64),
        }
    }
}

fn catalogued(name: &str) -> FieldId {
    FieldId::by_name(name).expect("the catalogue has this field")
}
