// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine of the FlowBlaze paper in simulation, as a whole: packets through its streams, its registers through
//! AXI4-Lite, against the reference machine.

use std::sync::Arc;

use flowloom_efsm::Machine;
use flowloom_efsm::model::Function;
use flowloom_engine::{Choices, Datapath};
use flowloom_overlay::driver::{address, writes_of_context, writes_of_key};
use flowloom_overlay::vector::{encode_vector, place};
use flowloom_overlay::{
    Driver, DriverError, KeyedContexts, Overlay, Parameters, StoredContext, compile, encode, registers,
};
use flowloom_session::Loaded;
use flowloom_session::engines::{
    self, EngineName, EngineOptions, MachineError, OutputStalls, RegisterWrite, SimulatedMachine, cache_folder,
};
use flowloom_testkit::{Rng, skip};
use flowloom_verify::{Arrival, CompareOptions, compare, sweep_period};
use flowloom_wire::Layers;
use flowloom_wire::field::FieldId;

use crate::verified::shipped;

/// The packets of a test.
const QUICK_PACKETS: usize = 10_000;
/// Sweeps during 10,000 packets.
const SWEEPS: u64 = 30;
/// Contexts of a table: as many as 64 rows of four places hold.
const SIZE: u32 = 240;

/// A shipped function with small tables.
fn small(name: &str) -> Arc<Function> {
    let mut function = (*shipped::function(name, &[])).clone();
    for stateful in function.elements.iter_mut().filter_map(|element| element.stateful.as_mut()) {
        stateful.size = stateful.size.min(SIZE);
    }
    Arc::new(function)
}

/// The period of sweeps with which a trace has [`SWEEPS`] for each 10,000 packets: simulated ones take long.
fn few_sweeps(function: &Function, packets: &[Arrival]) -> Option<u64> {
    let span_ns = packets.last()?.time_ns - packets.first()?.time_ns;
    let count = SWEEPS * packets.len().div_ceil(QUICK_PACKETS) as u64;
    sweep_period(function).map(|period| period.max(span_ns / count))
}

/// Compares the engine `overlay-rtl` with the reference machine on packets of a function; the number of packets.
pub(crate) fn run(test: &str, name: &str, count: usize) -> Option<usize> {
    let seed = Rng::from_env(1).next_u64();
    let loaded = Loaded::of_function(small(name));
    let engine = EngineName::by_name("overlay-rtl").unwrap();
    if let Err(reason) = (engine.kind().available)() {
        skip(test, &reason);
        return None;
    }
    let mut hardware = engine.load(&loaded, &EngineOptions::default()).unwrap().engine;
    let function = loaded.function().unwrap();
    let mut machine = Machine::new(Arc::clone(function));
    let packets = shipped::made(function, seed, count);
    let options = CompareOptions { sweep_ns: few_sweeps(function, &packets), ..CompareOptions::default() };
    let report = compare(&mut machine, &mut *hardware, &packets, &options).unwrap();
    if let Some(disagreement) = &report.disagreement {
        panic!("{name}: packet {:?} of {count}: {disagreement}", disagreement.position);
    }
    println!("{name}: {} packets, {} slow", report.packets_compared, report.packets_slow);
    Some(report.packets_compared as usize)
}

#[test]
fn the_machine_is_equal_to_the_reference() {
    for name in ["policer", "syn_flood", "paxos_acceptor"] {
        run("the_machine_is_equal_to_the_reference", name, QUICK_PACKETS);
    }
}

/// The machine of the tests: one stateful element with a small table.
const ONE: Parameters = Parameters { elements: 1, contexts: 256, ..Parameters::PAPER };

/// A function that counts the packets of each source, and marks them with the count and with its own number.
fn counting(mark: u8) -> Arc<Function> {
    let text = format!(
        "function counting;\nstateful sources {{\n    key ip.src;\n    size 100;\n    states seen;\n    \
         reg count: u16;\n    on seen stay {{ count += 1; ipv4.id = count; ip.tos = {mark}; pass; }}\n    \
         otherwise {{ pass; }}\n}}\n"
    );
    shipped::compiled("counting.efsm", &text, &[])
}

/// A machine with functions loaded into its banks, and their software models.
fn loaded(test: &str, functions: &[Arc<Function>]) -> Option<(Driver<SimulatedMachine>, Vec<Overlay>)> {
    let started = SimulatedMachine::start(&ONE, &cache_folder(), 1);
    let mut machine = match started {
        Err(DriverError::Bus(MachineError::Cosim(error))) if error.is_missing_tool() => {
            skip(test, &error.to_string());
            return None;
        }
        started => started.unwrap(),
    };
    let mut models = Vec::new();
    for (bank, function) in functions.iter().enumerate() {
        let compilation = compile(function, &ONE);
        assert!(compilation.fits());
        let image = place(&compilation.image, &function.graph).unwrap();
        machine.load(bank as u8, &encode_vector(&image, &function.graph).unwrap()).unwrap();
        machine.load(bank as u8, &encode(&image)).unwrap();
        models.push(Overlay::new(Arc::clone(function), Arc::new(image)));
    }
    Some((machine, models))
}

/// Packets of a function that are not for the slow path, as they arrive at the machine.
fn fast_packets(model: &Overlay, function: &Arc<Function>, count: usize) -> Vec<Arrival> {
    let seed = Rng::from_env(1).next_u64();
    let packets = shipped::made(function, seed, count).into_iter();
    packets.filter(|packet| !packet.bytes.is_empty() && !model.may_be_slow(&packet.packet())).collect()
}

fn arrivals(packets: &[Arrival]) -> Vec<engines::Arrival<'_>> {
    let mut arrivals = Vec::with_capacity(packets.len());
    for Arrival { bytes, port, time_ns } in packets {
        arrivals.push(engines::Arrival { bytes, port: port.0, now_ns: *time_ns, delay_cycles: 0 });
    }
    arrivals
}

/// The bytes with which a packet leaves a software model.
fn expected(model: &mut Overlay, packet: &Arrival) -> Vec<u8> {
    let outcome = model.process(&packet.packet(), &Choices::seeded(packet.time_ns, 1, 0)).unwrap();
    outcome.outputs.into_iter().next().unwrap().bytes
}

/// A write of `ACTIVE` after every eighth packet, with packets in every cycle: each packet is processed by one function
/// wholly, none is lost, and those of a source keep their order.
#[test]
fn functions_are_switched_under_traffic() {
    const SWITCHES: usize = 1000;
    const BETWEEN: usize = 8;
    const MARKS: [u8; 2] = [4, 8];
    let functions = MARKS.map(counting);
    let Some((mut machine, mut models)) = loaded("functions_are_switched_under_traffic", &functions) else { return };
    let packets = fast_packets(&models[0], &functions[0], (SWITCHES + 1) * BETWEEN);
    let writes: Vec<RegisterWrite> = (1..=SWITCHES)
        .map(|number| RegisterWrite {
            after_packets: number * (packets.len() / (SWITCHES + 1)),
            delay_cycles: 0,
            address: address(&registers::ACTIVE, 0),
            value: (number % 2) as u32,
        })
        .collect();
    let departures = machine.bus().send_and_write(&arrivals(&packets), &writes, OutputStalls::default()).unwrap();
    assert_eq!(departures.len(), packets.len());
    let (mut switches, mut bank) = (0, 0);
    for (number, (packet, departure)) in packets.iter().zip(&departures).enumerate() {
        let (_, bytes) = departure.sent.as_ref().unwrap();
        let layers = Layers::parse(flowloom_wire::Graph::standard(), bytes);
        let tos = layers.read(bytes, 0, FieldId::by_name("ip.tos").unwrap());
        if let Some(found) = tos.and_then(|tos| MARKS.iter().position(|mark| u128::from(*mark) == tos)) {
            switches += usize::from(found != bank);
            bank = found;
        }
        // A packet without a source leaves both functions as it came.
        assert_eq!(*bytes, expected(&mut models[bank], packet), "packet {number}, function {bank}");
    }
    println!("{} packets, {switches} switches seen", packets.len());
    assert!(switches > SWITCHES * 9 / 10, "{switches} switches of {SWITCHES} were seen");
    for (bank, model) in models.iter().enumerate() {
        let (stage, contexts) = model.contexts().remove(0);
        assert_eq!(machine.contexts(stage, bank as u8).unwrap().into_iter().collect::<KeyedContexts>(), contexts);
        machine.wait_for_packets(bank as u8).unwrap();
    }
}

/// While packets are in every cycle, the host updates, deletes and looks up contexts of keys that no packet has: packets
/// leave as without it, and the contexts are those of the packets and of the host.
#[test]
fn the_host_changes_what_it_names() {
    const ACCESSES: u32 = 300;
    let functions = [counting(4)];
    let Some((mut machine, mut models)) = loaded("the_host_changes_what_it_names", &functions) else { return };
    let packets = fast_packets(&models[0], &functions[0], 8000);
    let (stage, _) = models[0].contexts().remove(0);
    let mut rng = Rng::new(3);
    let mut own = KeyedContexts::new();
    let mut writes = Vec::new();
    for number in 0..ACCESSES {
        let key = vec![rng.below(20) as u32, 0xdead_beef, 0, 1];
        let count = rng.next_u64() as u32 & 0xffff;
        let registers = vec![count, 0, 0, 0];
        let context =
            StoredContext { registers, state: 0, timeouts: 0, idle_deadline_ns: u64::MAX, hard_deadline_ns: u64::MAX };
        let operation = rng.below(3) as u32;
        match operation {
            registers::UPDATE => drop(own.insert(key.clone(), context.clone())),
            registers::DELETE => drop(own.remove(&key)),
            _ => {}
        }
        let all = [writes_of_key(&ONE, stage, 0, &key), writes_of_context(&context)].concat();
        let command = (address(&registers::COMMAND, 0), operation);
        let after_packets = number as usize * packets.len() / ACCESSES as usize;
        for (at, (address, value)) in all.into_iter().chain([command]).enumerate() {
            // Registers cannot be written while the transaction before is busy.
            let delay_cycles = if at == 0 { 200 } else { 0 };
            writes.push(RegisterWrite { after_packets, delay_cycles, address, value });
        }
    }
    let departures = machine.bus().send_and_write(&arrivals(&packets), &writes, OutputStalls::default()).unwrap();
    for (number, (packet, departure)) in packets.iter().zip(&departures).enumerate() {
        let (_, bytes) = departure.sent.as_ref().unwrap();
        assert_eq!(*bytes, expected(&mut models[0], packet), "packet {number}");
    }
    let (_, mut contexts) = models[0].contexts().remove(0);
    println!("{} packets, {} contexts of theirs, {} of the host", packets.len(), contexts.len(), own.len());
    assert!(!own.is_empty() && contexts.len() > 20);
    contexts.extend(own.clone());
    let found: KeyedContexts = machine.contexts(stage, 0).unwrap().into_iter().collect();
    assert_eq!(found, contexts);
    // One by one, they are the same; a context that was deleted is not there, and cannot be deleted again.
    for (key, context) in &own {
        assert_eq!(machine.lookup(stage, 0, key).unwrap().as_ref(), Some(context));
        assert!(machine.delete(stage, 0, key).unwrap() && !machine.delete(stage, 0, key).unwrap());
        assert_eq!(machine.lookup(stage, 0, key).unwrap(), None);
    }
    // A table of 100 contexts takes no more.
    let room = 100 - machine.stored(stage, 0).unwrap();
    let context = contexts.values().next().unwrap().clone();
    for number in 0..room {
        assert!(machine.update(stage, 0, &[number, 7, 7, 7], &context).unwrap());
    }
    assert!(!machine.update(stage, 0, &[room, 7, 7, 7], &context).unwrap());
    machine.clear(0).unwrap();
    assert_eq!(machine.stored(stage, 0).unwrap(), 0);
    assert!(machine.contexts(stage, 0).unwrap().is_empty());
}
