// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The test bed, with engines that need no other crate.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use flowloom_engine::Verdict;
use flowloom_exec::{Description, Interface, KernelEngine, SweepClock};
use flowloom_lab::{
    Bed, Forward, LabError, Load, MakeEngine, Memory, OpenDevice, Order, Packets, Station, Wires, forwarder,
    from_memory, lossless, rate, round_trips,
};
use flowloom_ports::{Device, Raw, RawOptions};
use flowloom_testkit::skip;

/// A test bed, or none, with the reason.
fn bed(test: &str, wires: Wires) -> Option<Bed> {
    if let Err(reason) = KernelEngine::available() {
        skip(test, &reason.to_string());
        return None;
    }
    match Bed::new(wires, 2) {
        Ok(bed) => Some(bed),
        Err(error) if error.is_environment() => {
            skip(test, &error.to_string());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// Calls `run` with a bare forwarder in the kernel, and on raw sockets.
fn on_both(run: impl Fn(&str, &Station<'_>)) {
    let program = forwarder().unwrap();
    let description = Description::default();
    run("kernel", &Station::Kernel { program: &program, description: &description });
    let open: &OpenDevice<'_> =
        &|near: &[Interface]| Ok(Box::new(Raw::open(near, RawOptions::default())?) as Box<dyn Device>);
    let engine: &MakeEngine<'_> = &|| Ok(Box::new(Forward));
    run("raw", &Station::User { open, engine, sweep: &SweepClock::new(0), cores: 1 });
}

const LOAD: Load = Load { packets: Packets::Udp, bytes: 60, flows: 4, senders: 1 };

#[test]
fn rates_count_what_arrives_behind_the_function() {
    let Some(bed) = bed("rates_count_what_arrives_behind_the_function", Wires::Veth { queues: 1 }) else { return };
    on_both(|name, station| {
        let found = rate(&bed, station, LOAD, Duration::from_millis(50), &AtomicBool::new(false)).unwrap();
        assert!(found.per_second > 0.0 && found.arrived > 0 && found.arrived <= found.sent, "{name}: {found:?}");
        assert_eq!(found.cpu_ns.is_some(), name == "raw", "{name}: {found:?}");
    });
}

#[test]
fn without_loss_every_packet_arrives_or_the_measurement_fails() {
    let test = "without_loss_every_packet_arrives_or_the_measurement_fails";
    let Some(bed) = bed(test, Wires::Veth { queues: 1 }) else { return };
    let (time, stop) = (Duration::from_millis(50), AtomicBool::new(false));
    on_both(|name, station| {
        let found = lossless(&bed, station, LOAD, time, &stop).unwrap();
        assert!(found.packets > 0 && !found.elapsed.is_zero(), "{name}: {found:?}");
    });
    let mut dropping = forwarder().unwrap();
    dropping.insns[1].imm ^= 1; // to port 3, which has no interface
    let description = Description::default();
    let station = Station::Kernel { program: &dropping, description: &description };
    let error = lossless(&bed, &station, LOAD, time, &stop).unwrap_err();
    assert!(matches!(error, LabError::Lost { sent: 1.., arrived: 0, .. }), "{error}");
}

#[test]
fn round_trips_pass_the_function_twice() {
    let test = "round_trips_pass_the_function_twice";
    let (Some(bed), Some(cable)) = (bed(test, Wires::Veth { queues: 1 }), bed(test, Wires::Cable)) else { return };
    let stop = AtomicBool::new(false);
    for bytes in [60, 1514] {
        let found = round_trips(&cable, &Station::Cable, bytes, 20, &stop).unwrap();
        assert_eq!(found.ns.len() + found.lost as usize, 20);
        on_both(|name, station| {
            let found = round_trips(&bed, station, bytes, 20, &stop).unwrap();
            assert_eq!(found.ns.len() + found.lost as usize, 20, "{name}");
            assert!(found.ns.is_sorted() && found.quantile_us(0.5) <= found.quantile_us(0.99), "{name}");
        });
    }
}

/// A function that drops everything, an error of the function, and a signal end a measurement with their reason.
#[test]
fn measurements_without_a_result_say_why() {
    let Some(bed) = bed("measurements_without_a_result_say_why", Wires::Veth { queues: 1 }) else { return };
    let time = Duration::from_millis(20);
    let open: &OpenDevice<'_> =
        &|near: &[Interface]| Ok(Box::new(Raw::open(near, RawOptions::default())?) as Box<dyn Device>);
    let failing: &MakeEngine<'_> = &|| Err(LabError::Engine("no such engine".to_owned()));
    let station = Station::User { open, engine: failing, sweep: &SweepClock::new(0), cores: 1 };
    let error = rate(&bed, &station, LOAD, time, &AtomicBool::new(false)).unwrap_err();
    assert_eq!(error.to_string(), "no such engine");
    let error = round_trips(&bed, &station, 60, 5, &AtomicBool::new(false)).unwrap_err();
    assert_eq!(error.to_string(), "no such engine");

    let mut dropping = forwarder().unwrap();
    dropping.insns[1].imm ^= 1; // to port 3, which has no interface
    let description = Description::default();
    let station = Station::Kernel { program: &dropping, description: &description };
    let error = rate(&bed, &station, LOAD, time, &AtomicBool::new(false)).unwrap_err();
    assert!(matches!(error, LabError::Nothing { sent: 1.., .. }), "{error}");

    let error = rate(&bed, &station, LOAD, time, &AtomicBool::new(true)).unwrap_err();
    assert!(matches!(error, LabError::Interrupted), "{error}");
}

#[test]
fn memory_gives_each_flow_of_a_range_once_or_random_flows() {
    let stop = AtomicBool::new(false);
    let random = |flows| Order::Random { flows, packets: 1000, seed: 1 };
    for (order, packets) in [(Order::Once { from: 10, to: 310 }, 300), (random(5), 1000)] {
        let memory = Memory::new(Packets::Tcp, 60, 1, 2, order);
        let ran = from_memory(&mut Forward, memory, &SweepClock::new(0), &stop).unwrap();
        assert_eq!((ran.found.packets, ran.found.count(Verdict::Redirect)), (packets, packets));
        assert_eq!((ran.found.devices.sent, ran.found.bytes), (packets, 60 * packets));
        assert!(ran.packet_ns() > 0.0);
    }
}
