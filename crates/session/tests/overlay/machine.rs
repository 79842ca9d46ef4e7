// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine of the FlowBlaze paper in simulation, as a whole: packets through its streams, its registers through
//! AXI4-Lite, against the reference machine.

use std::sync::Arc;

use flowloom_efsm::Machine;
use flowloom_efsm::model::Function;
use flowloom_engine::{Choices, Datapath};
use flowloom_overlay::driver::{address, writes_of_context, writes_of_key};
use flowloom_overlay::rtl::File;
use flowloom_overlay::{
    ConfigWrite, Driver, DriverError, KeyedContexts, Overlay, Parameters, Passage, StoredContext, Timing, compile,
    configure, registers, rtl,
};
use flowloom_session::Loaded;
use flowloom_session::engines::{
    self, EngineName, EngineOptions, MachineError, OutputStalls, RegisterWrite, SimulatedMachine, cache_folder,
    load_overlay_files,
};
use flowloom_testkit::{Rng, skip};
use flowloom_verify::{Arrival, CompareOptions, compare, sweep_period};

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

/// The name of the smallest parameters that a function fits, or why the machine in SystemVerilog does not run it.
pub(crate) fn parameters_of(name: &str) -> Result<&'static str, String> {
    let loaded = Loaded::of_function(small(name));
    let program = Err(String::new());
    let verdict = (EngineName::by_name("overlay-rtl").unwrap().kind().check)(&loaded, &program);
    let fitting = Parameters::NAMED.into_iter().find(|set| compile(loaded.function().unwrap(), set).fits());
    match (verdict.runs, fitting) {
        (Some(true), Some(parameters)) => Ok(parameters.name),
        _ => Err(verdict.summary),
    }
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
        let (image, writes) = configure(&compilation.image, &function.graph).unwrap();
        machine.load(bank as u8, &writes).unwrap();
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
    let functions = [4, 8].map(counting);
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
        // A packet without a source leaves both functions as it came: it counts as one of the same function.
        if *bytes != expected(&mut models[bank].clone(), packet) {
            bank = 1 - bank;
            switches += 1;
        }
        assert_eq!(*bytes, expected(&mut models[bank], packet), "packet {number}, function {bank}");
    }
    println!("{} packets, {switches} switches seen", packets.len());
    // Between two writes may be packets without a source only.
    assert!((SWITCHES * 9 / 10..=SWITCHES).contains(&switches), "{switches} switches of {SWITCHES} were seen");
    for (bank, model) in models.iter().enumerate() {
        let (stage, contexts) = model.contexts().remove(0);
        assert_eq!(machine.contexts(stage, bank as u8).unwrap(), contexts);
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
    assert_eq!(machine.contexts(stage, 0).unwrap(), contexts);
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

/// A function whose rows need all that the planted faults break: conditions, registers that change places, timers.
const PROBE: &str = "function probe;
stateful flows {
    key ipv4.src, l4.sport, l4.dport;
    size 240;
    sweep 1ms;
    states fresh, busy;
    reg older: u16;
    reg newer: u16 = 7;
    on fresh -> busy (idle 1ms) { older = newer; newer = ipv4.id; ip.tos = 1; pass; }
    on busy when ipv4.id < older && ip.ttl >= 64 stay { older = newer; newer = older; ip.tos = 2; pass; }
    on busy when ipv4.id < older stay { older = ipv4.id; ip.tos = 3; pass; }
    on busy when ip.ttl >= 64 stay { older = newer; newer = older; ip.tos = 4; pass; }
    on busy stay { newer = ipv4.id; ip.tos = 5; pass; }
    otherwise { pass; }
}
";

/// Compares a machine with the reference on packets of few flows without a cycle between them, and on contexts at the edge
/// of their timers. The error is the first difference.
pub(crate) fn probe(files: &[File<'_>], change: impl Fn(&mut Vec<ConfigWrite>)) -> Result<usize, String> {
    const PACKETS: usize = 3000;
    const FLOWS: usize = 5;
    const IDLE_NS: u64 = 1_000_000;
    let function = shipped::compiled("probe.efsm", PROBE, &[]);
    let loaded = Loaded::of_function(Arc::clone(&function));
    let mut hardware = load_overlay_files(&loaded, files, change).unwrap().engine;
    let mut machine = Machine::new(Arc::clone(&function));
    let mut rng = Rng::from_env(1);
    let own = shipped::made(&function, rng.next_u64(), PACKETS);
    let seen: Vec<&Arrival> = own.iter().filter(|packet| (60..=64).contains(&packet.bytes.len())).collect();
    let few = (0..PACKETS as u64).map(|number| {
        let mut packet = (*seen[rng.below(FLOWS).min(seen.len() - 1)]).clone();
        packet.time_ns = own.last().map_or(0, |last| last.time_ns) + 10 * number;
        // The identification and the time to live of IPv4.
        packet.bytes[18..20].copy_from_slice(&(rng.next_u64() as u16).to_be_bytes());
        packet
    });
    let few: Vec<Arrival> = few.collect();
    let packets = [own, few].concat();
    let options = CompareOptions { sweep_ns: few_sweeps(&function, &packets), ..CompareOptions::default() };
    let report = compare(&mut machine, &mut *hardware, &packets, &options).map_err(|error| error.to_string())?;
    if let Some(disagreement) = report.disagreement {
        return Err(disagreement.to_string());
    }
    // The last nanosecond before the end of an idle timer, and the end.
    let first = packets.iter().find(|packet| machine_keeps(&function, packet)).ok_or("no packet makes a context")?;
    let empty = Machine::new(Arc::clone(&function)).snapshot().map_err(|error| error.to_string())?;
    for sweep_ns in [IDLE_NS - 1, IDLE_NS] {
        let mut states = Vec::new();
        for engine in [&mut machine as &mut dyn Datapath, &mut *hardware] {
            let mut run = || {
                engine.restore(&empty)?;
                engine.process(&first.packet(), &Choices::seeded(first.time_ns, 1, 0))?;
                engine.sweep(first.time_ns + sweep_ns)?;
                engine.snapshot()
            };
            states.push(run().map_err(|error| error.to_string())?.maps);
        }
        if states[0] != states[1] {
            return Err(format!("contexts after a sweep {sweep_ns} ns after the packet differ"));
        }
    }
    Ok(packets.len())
}

/// True if a packet makes a context.
fn machine_keeps(function: &Arc<Function>, packet: &Arrival) -> bool {
    let mut machine = Machine::new(Arc::clone(function));
    machine.process(&packet.packet(), &Choices::seeded(packet.time_ns, 1, 0)).unwrap();
    machine.contexts(0).next().is_some()
}

#[test]
fn few_flows_and_edges_of_timers_are_equal() {
    if let Err(reason) = (EngineName::by_name("overlay-rtl").unwrap().kind().available)() {
        skip("few_flows_and_edges_of_timers_are_equal", &reason);
        return;
    }
    let packets = probe(&rtl::files_of(rtl::MACHINE), |_| ()).unwrap();
    println!("{packets} packets");
    // A flipped bit of the image is found: the terminal action of the last row, a bit of the key, an initial register.
    let flips: [(u8, u16, u32); 3] = [(0x12, 0, 1), (0x14, 0, 1), (0x15, 1, 1 << 3)];
    for (unit, index, mask) in flips {
        let flip = |writes: &mut Vec<ConfigWrite>| {
            writes.iter_mut().filter(|w| (w.unit, w.index) == (unit, index)).for_each(|w| w.data ^= mask);
        };
        let found = probe(&rtl::files_of(rtl::MACHINE), flip);
        assert!(found.is_err(), "the flipped bit {mask:#x} of word {index} of memory {unit:#x} was not found");
    }
}

/// The cycle of each verdict is that of the model, with packets close behind one another, and with gaps.
#[test]
fn the_cycles_are_those_of_the_model() {
    for (name, flows) in [("policer", 80), ("policer", 1), ("paxos_acceptor", 80), ("probe", 5)] {
        if cycles("the_cycles_are_those_of_the_model", name, flows, QUICK_PACKETS).is_none() {
            return;
        }
    }
}

/// Compares the cycles of a function's packets, of a number of its flows, with those of the model.
pub(crate) fn cycles(test: &str, name: &str, flows: usize, count: usize) -> Option<usize> {
    let function = if name == "probe" { shipped::compiled("probe.efsm", PROBE, &[]) } else { small(name) };
    let (mut machine, mut models) = loaded(test, &[Arc::clone(&function)])?;
    let mut rng = Rng::from_env(1);
    let own = fast_packets(&models[0], &function, count);
    let mut packets = own.clone();
    if flows < own.len() {
        let few: Vec<&Arrival> = (0..flows).map(|_| rng.pick(&own)).collect();
        let time = |number: usize| own.last().map_or(0, |last| last.time_ns) + 10 * number as u64;
        packets = (0..count).map(|number| Arrival { time_ns: time(number), ..(*rng.pick(&few)).clone() }).collect();
    }
    let mut arrivals = arrivals(&packets);
    // The second half has gaps.
    for arrival in arrivals.iter_mut().skip(packets.len() / 2) {
        arrival.delay_cycles = rng.below(12) as u32;
    }
    let departures = machine.bus().send(&arrivals, OutputStalls::default()).unwrap();
    let mut timing = Timing::new(models[0].image());
    let (mut compared, mut held, mut latency) = (0, 0, u64::MAX);
    for (number, (packet, departure)) in packets.iter().zip(&departures).enumerate() {
        let choices = Choices::seeded(packet.time_ns, 1, 0);
        let (outcome, accesses) = models[0].process_traced(&packet.packet(), &choices);
        let done_cycle = timing.pass(&Passage {
            taken_cycle: departure.taken_cycle,
            len_bytes: packet.bytes.len(),
            sent_bytes: outcome.outputs.first().map(|output| output.bytes.len()),
            accesses: &accesses,
        });
        if timing.stashed() > 0 {
            break;
        }
        compared += 1;
        assert_eq!(done_cycle, departure.done_cycle, "{name}, {flows} flows: packet {number} of {}", packets.len());
        latency = latency.min(done_cycle - departure.taken_cycle);
        held += usize::from(done_cycle - departure.taken_cycle > 100);
    }
    println!("{name}: {compared} packets, at least {latency} cycles, {held} took over 100");
    assert!(compared > packets.len() / 10, "a context found no place of its key at packet {compared}");
    Some(compared)
}

/// The speed of the cycle model, and of its parts.
#[test]
#[ignore = "measurement"]
fn speed_of_the_cycle_model() {
    for name in ["policer", "port_knocking", "paxos_acceptor", "dynamic_nat"] {
        let function = shipped::function(name, &[]);
        let mut model = Overlay::new(Arc::clone(&function), Arc::new(compile(&function, &Parameters::PAPER).image));
        let packets = fast_packets(&model, &function, 100_000);
        let start = std::time::Instant::now();
        let traced: Vec<_> = packets
            .iter()
            .map(|packet| model.process_traced(&packet.packet(), &Choices::seeded(packet.time_ns, 1, 0)))
            .collect();
        let functional = start.elapsed();
        let mut timing = Timing::new(model.image());
        let start = std::time::Instant::now();
        let mut taken_cycle = 0;
        for (packet, (outcome, accesses)) in packets.iter().zip(&traced) {
            taken_cycle += packet.bytes.len().div_ceil(64) as u64;
            timing.pass(&Passage {
                taken_cycle,
                len_bytes: packet.bytes.len(),
                sent_bytes: outcome.outputs.first().map(|output| output.bytes.len()),
                accesses,
            });
        }
        let each = |time: std::time::Duration| time.as_nanos() / packets.len() as u128;
        println!(
            "{name}: {} packets, software model {} ns, cycles {} ns",
            packets.len(),
            each(functional),
            each(start.elapsed())
        );
    }
}
