// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The captures in the folder that `FLOWLOOM_TRACES` names.

use std::path::{Path, PathBuf};

use flowloom_engine::Port;
use flowloom_trace::{CaptureReader, CapturedPacket, traces_from_env};
use flowloom_verify::Arrival;
use flowloom_wire::{FieldId, Graph, Layers};

/// Files of the captures; `None` where `FLOWLOOM_TRACES` is not set.
pub fn paths() -> Option<Vec<PathBuf>> {
    traces_from_env().unwrap_or_else(|error| panic!("{error}"))
}

/// Names and packets of the captures; none where `FLOWLOOM_TRACES` is not set.
pub fn all() -> Vec<(String, Vec<Arrival>)> {
    paths().unwrap_or_default().iter().map(|path| (name_of(path), read(path))).collect()
}

/// Packets of each capture: the first `of_each`, and as many spread over the rest.
pub fn some(of_each: usize) -> Vec<(String, Vec<Arrival>)> {
    let chosen = |(name, packets): (String, Vec<Arrival>)| {
        let step = (packets.len() / of_each.max(1)).max(1);
        let chosen = packets.into_iter().enumerate().filter(|(index, _)| *index < of_each || index % step == 0);
        (name, chosen.map(|(_, packet)| packet).collect())
    };
    all().into_iter().map(chosen).collect()
}

/// All packets of a capture.
pub fn read(path: &Path) -> Vec<Arrival> {
    let packets = CaptureReader::open(path).and_then(|reader| reader.map(|packet| packet.map(arrival)).collect());
    packets.unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

pub fn arrival(packet: CapturedPacket) -> Arrival {
    Arrival { time_ns: packet.time_ns, port: Port(packet.port), bytes: packet.bytes }
}

pub fn name_of(path: &Path) -> String {
    path.file_name().map_or(String::new(), |name| name.to_string_lossy().into_owned())
}

/// The packets of a capture: port 1 from the smaller address and port to the larger one, port 2 in the other direction.
pub fn directed(packets: Vec<Arrival>) -> Vec<Arrival> {
    let fields = ["ip.src", "l4.sport", "ip.dst", "l4.dport"]
        .map(|name| FieldId::by_name(name).unwrap_or_else(|| panic!("no field {name}")));
    let port = |bytes: &[u8]| {
        let layers = Layers::parse(Graph::standard(), bytes);
        let [from, from_port, to, to_port] = fields.map(|field| layers.read(bytes, 0, field));
        if (from, from_port) < (to, to_port) { Port(1) } else { Port(2) }
    };
    packets.into_iter().map(|packet| Arrival { port: port(&packet.bytes), ..packet }).collect()
}
