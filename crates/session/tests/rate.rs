// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rate and the latency of pipelines in cycles.

use flowloom_session::engines::{Arrival, OutputStalls};

use crate::stream::{case, start};
use crate::traffic::Traffic;

#[test]
fn a_packet_enters_and_leaves_in_every_cycle() {
    let case = case("xdp2");
    let loaded = case.load();
    let pipeline = case.pipeline(&loaded);
    let Some(mut simulated) = start("a_packet_enters_and_leaves_in_every_cycle", &pipeline, 1) else { return };
    let mut rng = flowloom_testkit::Rng::from_env(1);
    let packets = Traffic::OneFlow.packets(&mut rng, 1000, simulated.max_bytes());
    let arrivals: Vec<Arrival<'_>> =
        packets.iter().map(|(bytes, port, _)| Arrival { bytes, port: *port, now_ns: 0, delay_cycles: 0 }).collect();
    let departures = simulated.send(&arrivals, OutputStalls::default()).unwrap();
    let latency = pipeline.latency_cycles();
    for (number, departure) in departures.iter().enumerate() {
        assert!(departure.sent.is_some(), "packet {number} is dropped");
        assert_eq!(departure.taken_cycle, number as u64, "packet {number}: taken");
        assert_eq!(departure.first_cycle, departure.taken_cycle + u64::from(latency), "packet {number}: given");
    }
}
