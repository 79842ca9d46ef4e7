// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Accesses of the host while packets are in the pipeline: all results are those of one serial order.
//!
//! An access takes effect between two packets. Its position, the number of packets before it, is at least the number of
//! packets with a verdict when it was made, and at most the number of packets that were taken at the input. Accesses to
//! one map keep their order. The search runs the interpreter over the packets with every set of positions that agrees
//! with all results so far, and prints the positions of an order that explains everything.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_engine::{Choices, Datapath, Output, Packet, Port, Snapshot, Verdict};
use flowloom_rtl::{Access, MapPort};
use flowloom_session::engines::{Arrival, Departure, HostAccess, HostAnswer, Operation, OutputStalls, Simulated};
use flowloom_testkit::Rng;
use flowloom_verify::Arrival as Timed;
use flowloom_vm::Interpreter;

use crate::distances;
use crate::faults::Fault;
use crate::stream::start;

/// The cases of 256 cycles in which the output stalls, by run.
const STALLS: [u8; 2] = [0, 100];
/// Packets between two accesses, at least and at most: the orders of more of them at a time take long to search.
const MIN_APART: usize = 8;
const APART: usize = 64;
/// Packets of a run: the positions of all its accesses are searched together.
pub(crate) const PACKETS: usize = 400;
/// Orders that the search keeps at most: a bound of its cost, not of the claim.
const MAX_ORDERS: usize = 4096;

/// Faults in what makes accesses of the host serial, in pipelines of [`distances::SCHEMES`].
pub(crate) const FAULTS: &[Fault] = &[
    Fault {
        name: "the host does not wait for packets in the slice of a hash map",
        subject: "hash map in several stages",
        file: "fl_hash_map.sv",
        changes: &[("host_room && ready_o && !busy &&", "host_room && ready_o && !(busy && 1'b0) &&")],
    },
    Fault {
        name: "the host does not wait for packets in the slice of an array",
        subject: "array in several stages",
        file: "fl_array.sv",
        changes: &[("&& !clearing_q && !busy;", "&& !clearing_q && !(busy && 1'b0);")],
    },
    Fault {
        name: "an update of the host takes no pending entry",
        subject: "hash map in one stage",
        file: "fl_hash_map.sv",
        changes: &[(
            "allocates = !cuckoo_hit && now.operation inside {3'd1, 3'd4};",
            "allocates = !cuckoo_hit && now.operation inside {3'd1, 3'd4} && 1'b0;",
        )],
    },
    Fault {
        name: "a write of the host leaves a partial array as it is",
        subject: "partial arrays",
        file: "fl_core_",
        changes: &[(
            ".host_ready_o(map0_v37_host_ready),\n      .host_write_i(map0_write_i),",
            ".host_ready_o(map0_v37_host_ready),\n      .host_write_i(map0_write_i && 1'b0),",
        )],
    },
    Fault {
        name: "the host's write is not forwarded to the next packet",
        subject: "array in one stage",
        file: "fl_array.sv",
        changes: &[(
            "result_d.valid = access2_q.host_write || access2_q.host_copy;",
            "result_d.valid = (access2_q.host_write && !access1_q.packet) || access2_q.host_copy;",
        )],
    },
];

/// What was compared.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Served {
    pub(crate) packets: usize,
    pub(crate) accesses: usize,
    /// Accesses with packets in the pipeline.
    pub(crate) in_flight: usize,
    pub(crate) refused: usize,
    /// The orders that were possible at most at one time.
    pub(crate) most_orders: usize,
}

impl std::ops::AddAssign for Served {
    fn add_assign(&mut self, other: Served) {
        self.packets += other.packets;
        self.accesses += other.accesses;
        self.in_flight += other.in_flight;
        self.refused += other.refused;
        self.most_orders = self.most_orders.max(other.most_orders);
    }
}

/// An order of the packets so far and some of the accesses.
#[derive(Debug, Clone)]
struct Order {
    state: Snapshot,
    made: BTreeSet<usize>,
    positions: BTreeMap<usize, usize>,
}

/// Entries of a map that packets make: keys with values.
type Seen = BTreeMap<u32, Vec<(Vec<u8>, Vec<u8>)>>;

/// Sends packets and accesses drawn from what the packets leave in the maps; the first result that no order explains.
pub(crate) fn serve(
    name: &str,
    interp: &mut Interpreter,
    simulated: &mut Simulated,
    packets: &[Timed],
    rng: &mut Rng,
) -> Result<Served, String> {
    let mut all = Served::default();
    for (packets, of_256) in packets.chunks(PACKETS).zip(STALLS.iter().cycle()) {
        all += serve_some(name, interp, simulated, packets, *of_256, rng)?;
    }
    Ok(all)
}

fn serve_some(
    name: &str,
    interp: &mut Interpreter,
    simulated: &mut Simulated,
    packets: &[Timed],
    of_256: u8,
    rng: &mut Rng,
) -> Result<Served, String> {
    let maps: Vec<MapPort> =
        simulated.maps().filter(|map| !matches!(map.access, Access::Ports { .. })).cloned().collect();
    let fails = |error: &dyn std::fmt::Display| format!("{name}: {error}");
    interp.restore(&Snapshot::default()).map_err(|e| fails(&e))?;
    let initial = interp.snapshot().map_err(|e| fails(&e))?;
    let mut seen = Seen::new();
    for (number, packet) in packets.iter().enumerate() {
        interp.process(&packet.packet(), &choices(packets, number)).map_err(|e| fails(&e))?;
        if number % MIN_APART == 0 || number + 1 == packets.len() {
            let state = interp.snapshot().map_err(|e| fails(&e))?;
            for map in &maps {
                let entries = state.maps.get(&map.name).into_iter().flatten();
                let entries: Vec<_> = entries.map(|(key, value)| (key.clone(), value.clone())).collect();
                let some = (0..entries.len().min(8)).map(|_| rng.pick(&entries).clone());
                seen.entry(map.map).or_default().extend(some);
            }
        }
    }
    let accesses = accesses(&maps, &seen, packets.len(), rng);
    simulated.reset().map_err(|e| fails(&e))?;
    for map in simulated.maps().cloned().collect::<Vec<_>>() {
        let ports =
            || (0..map.entries).map(|port| port.to_le_bytes().to_vec()).map(|port| (port.clone(), port)).collect();
        let entries = initial.maps.get(&map.name).cloned().unwrap_or_else(ports);
        simulated.write(map.map, &entries).map_err(|e| fails(&e))?;
    }
    let arrivals: Vec<Arrival<'_>> = packets
        .iter()
        .enumerate()
        .map(|(number, packet)| Arrival {
            bytes: &packet.bytes,
            port: packet.port.0,
            now_ns: choices(packets, number).now_ns,
            // The host is served in cycles without a packet.
            delay_cycles: if rng.chance(1, 3) { rng.below(6) as u32 } else { 0 },
        })
        .collect();
    let stalls = OutputStalls { of_256, seed: rng.next_u64() as u32 };
    let (departures, answers) = simulated.send_and_access(&arrivals, &accesses, stalls).map_err(|e| fails(&e))?;
    let orders = explain(name, interp, (packets, &departures), (&accesses, &answers), (&initial, &maps))?;
    let mut found = BTreeMap::new();
    for map in &maps {
        found.insert(&map.name, simulated.read(map.map).map_err(|e| fails(&e))?);
    }
    let is_left = |order: &Order| {
        maps.iter().all(|map| {
            let size = map.value_bytes as usize;
            let left = order.state.maps.get(&map.name).into_iter().flatten();
            left.map(|(key, value)| (key, &value[..size])).eq(found[&map.name].iter().map(|(k, v)| (k, v.as_slice())))
        })
    };
    let most_orders = orders.iter().map(|(_, most)| *most).max().unwrap_or(0);
    let Some((order, _)) = orders.iter().find(|(order, _)| is_left(order)) else {
        return Err(format!("{name}: no serial order leaves the contents of the maps: {found:02x?}"));
    };
    let in_flight = answers.iter().filter(|answer| {
        let (lo, hi) = window(answer, &departures);
        lo < hi
    });
    debug_assert_eq!(order.positions.len(), accesses.len());
    Ok(Served {
        packets: packets.len(),
        accesses: accesses.len(),
        in_flight: in_flight.count(),
        refused: answers.iter().filter(|answer| answer.refused).count(),
        most_orders,
    })
}

/// The choices for a packet: times never go back.
fn choices(packets: &[Timed], number: usize) -> Choices {
    let now_ns = packets[..=number].iter().map(|packet| packet.time_ns).max().unwrap_or(0);
    Choices::seeded(now_ns, 0, number as u64)
}

/// Accesses to keys that packets use, and to others, with values of the map.
fn accesses(maps: &[MapPort], seen: &Seen, packets: usize, rng: &mut Rng) -> Vec<HostAccess> {
    let mut all = Vec::new();
    let mut after = 4;
    while after < packets && !maps.is_empty() {
        let map = rng.pick(maps);
        let entries = &seen[&map.map];
        let value = |rng: &mut Rng| match rng.chance(7, 8) && !entries.is_empty() {
            true => rng.pick(entries).1[..map.value_bytes as usize].to_vec(),
            false => rng.bytes(map.value_bytes as usize),
        };
        let key = match map.access {
            Access::Key { bytes, .. } if rng.chance(1, 8) || entries.is_empty() => rng.bytes(bytes as usize),
            Access::Key { .. } => rng.pick(entries).0.clone(),
            _ => (rng.below(map.entries as usize) as u32).to_le_bytes().to_vec(),
        };
        let operation = match (rng.below(4), map.access) {
            (0, _) => Operation::Lookup,
            (1, Access::Key { .. }) => Operation::Delete,
            _ => Operation::Update(value(rng)),
        };
        let delay_cycles = rng.below(8) as u32;
        all.push(HostAccess { after_packets: after, delay_cycles, map: map.map, key, operation });
        after += MIN_APART + rng.below(APART - MIN_APART);
    }
    all
}

/// The least and the greatest number of packets before an access.
fn window(answer: &HostAnswer, departures: &[Departure]) -> (usize, usize) {
    let lo = departures.iter().filter(|packet| packet.done_cycle <= answer.made_cycle).count();
    let hi = departures.iter().filter(|packet| packet.taken_cycle < answer.made_cycle).count();
    (lo, hi)
}

/// The orders that explain all results, each with the most orders that were possible at one time.
fn explain(
    name: &str,
    interp: &mut Interpreter,
    (packets, departures): (&[Timed], &[Departure]),
    (accesses, answers): (&[HostAccess], &[HostAnswer]),
    (initial, maps): (&Snapshot, &[MapPort]),
) -> Result<Vec<(Order, usize)>, String> {
    let windows: Vec<(usize, usize)> = answers.iter().map(|answer| window(answer, departures)).collect();
    let first = Order { state: initial.clone(), made: BTreeSet::new(), positions: BTreeMap::new() };
    let (mut orders, mut most) = (vec![first], 1);
    for number in 0..=packets.len() {
        // Accesses that may come next, in every combination that keeps the order of each map.
        let mut open = orders;
        orders = Vec::new();
        while let Some(order) = open.pop() {
            let is_late = (0..accesses.len()).any(|a| windows[a].1 <= number && !order.made.contains(&a));
            if !is_late && !orders.iter().any(|known: &Order| known.made == order.made && known.state == order.state) {
                orders.push(order.clone());
            }
            let mut maps_waiting = BTreeSet::new();
            for a in 0..accesses.len() {
                if windows[a].0 > number || order.made.contains(&a) || maps_waiting.contains(&accesses[a].map) {
                    continue;
                }
                maps_waiting.insert(accesses[a].map);
                let map = maps.iter().find(|map| map.map == accesses[a].map).ok_or("no such map")?;
                if let Some(state) = accessed(&order.state, map, &accesses[a], &answers[a]) {
                    let mut next = Order { state, ..order.clone() };
                    next.made.insert(a);
                    next.positions.insert(a, number);
                    let is_new = |known: &Order| known.made != next.made || known.state != next.state;
                    if open.iter().chain(&orders).all(is_new) {
                        open.push(next);
                    }
                }
            }
            if orders.len() + open.len() > MAX_ORDERS {
                return Err(format!("{name}: more than {MAX_ORDERS} orders before packet {number}"));
            }
        }
        most = most.max(orders.len());
        let Some((packet, departure)) = packets.get(number).zip(departures.get(number)) else { break };
        let mut why = format!("no order of accesses {windows:?}");
        if departure.verdict != Departure::SLOW {
            let mut after = Vec::new();
            for mut order in orders {
                interp.restore(&order.state).map_err(|e| e.to_string())?;
                let outcome = interp.process(&packet.packet(), &choices(packets, number)).map_err(|e| e.to_string())?;
                match difference(&packet.packet(), departure, &outcome) {
                    None => {
                        order.state = interp.snapshot().map_err(|e| e.to_string())?;
                        after.push(order);
                    }
                    Some(found) => why = found,
                }
            }
            orders = after;
        }
        if orders.is_empty() {
            return Err(format!("{name}, packet {number}: no serial order gives its result: {why}"));
        }
    }
    match orders.is_empty() {
        true => Err(format!("{name}: no serial order gives the answers of all accesses")),
        false => Ok(orders.into_iter().map(|order| (order, most)).collect()),
    }
}

/// The state after an access; none if its answer is another one.
fn accessed(state: &Snapshot, map: &MapPort, access: &HostAccess, answer: &HostAnswer) -> Option<Snapshot> {
    let size = map.value_bytes as usize;
    let entries = state.maps.get(&map.name)?;
    let key = if matches!(map.access, Access::Single) { vec![0; 4] } else { access.key.clone() };
    let before = entries.get(&key).map(|value| value[..size].to_vec());
    let is_full = entries.len() >= map.entries as usize;
    let refused = before.is_none() && is_full && matches!(access.operation, Operation::Update(_));
    if before != answer.before || refused != answer.refused {
        return None;
    }
    let mut state = state.clone();
    let entries = state.maps.get_mut(&map.name)?;
    match &access.operation {
        Operation::Lookup | Operation::ReadRow => {}
        Operation::Update(_) if refused => {}
        Operation::Update(value) => {
            entries.entry(key).or_insert_with(|| vec![0; size]).splice(..size, value.iter().copied());
        }
        Operation::Delete => drop(entries.remove(&key)),
    }
    Some(state)
}

/// The difference between what the pipeline gives and what the interpreter gives.
fn difference(packet: &Packet<'_>, departure: &Departure, outcome: &flowloom_engine::Outcome) -> Option<String> {
    let is_spread = matches!(departure.verdict, Departure::ALL | Departure::OTHERS);
    let outputs = departure.extra.iter().chain(&departure.sent);
    let found: Vec<Output> = outputs.map(|(port, bytes)| Output { port: Port(*port), bytes: bytes.clone() }).collect();
    let verdict = if is_spread { Verdict::Redirect } else { Verdict::from_number(departure.verdict.into()) };
    let is_equal = match (is_spread, &found[..]) {
        (true, [found]) => outcome.outputs.iter().all(|output| output.bytes == found.bytes),
        (true, _) => false,
        (false, _) => found == outcome.outputs,
    };
    let (len, expected) = (packet.bytes.len(), &outcome.outputs);
    (verdict != outcome.verdict || !is_equal)
        .then(|| format!("{len} bytes: found {verdict}, {found:02x?}, expected {}, {expected:02x?}", outcome.verdict))
}

/// Packets of a scheme on a few keys.
pub(crate) fn packets_of_scheme(scheme: &distances::Scheme, keys: &[u32], count: usize, rng: &mut Rng) -> Vec<Timed> {
    (0..count)
        .map(|number| {
            let deletes = rng.chance(1, 5);
            let bytes = scheme.packet(deletes, rng.below(64) as u8 | 1, *rng.pick(keys));
            Timed { time_ns: 1000 * number as u64, port: Port(1), bytes }
        })
        .collect()
}

#[test]
fn accesses_of_the_host_are_serial_with_packets() {
    let mut rng = Rng::from_env(1);
    for name in ["array in one stage", "hash map in one stage", "partial arrays"] {
        let scheme = distances::scheme(name);
        let loaded = scheme.load();
        let pipeline = scheme.pipeline(&loaded);
        let test = "accesses_of_the_host_are_serial_with_packets";
        let Some(mut simulated) = start(test, &pipeline, 1) else { return };
        let mut interp = Interpreter::new(loaded.program().unwrap()).unwrap();
        let packets = packets_of_scheme(scheme, &[1, 2, 3, 4, 5], 2000, &mut rng);
        let served = serve(name, &mut interp, &mut simulated, &packets, &mut rng);
        let served = served.unwrap_or_else(|found| panic!("{found}"));
        println!("{name}: {served:?}");
        assert!(served.in_flight > served.accesses / 4, "{name}: {served:?}");
    }
}

/// Keys of the same rows: places and stash take twelve, the pending entries some 24, and the input 16.
const COLLIDING_KEYS: usize = 50;

#[test]
fn a_deletion_by_the_host_lets_packets_go_on_whose_keys_find_no_place() {
    let test = "a_deletion_by_the_host_lets_packets_go_on_whose_keys_find_no_place";
    let scheme = distances::scheme("hash map in one stage");
    let pipeline = scheme.pipeline(&scheme.load());
    let Some(mut simulated) = start(test, &pipeline, 1) else { return };
    let hash = distances::hash_of(&pipeline, 4);
    let rows = hash.rows_of(&1_u32.to_le_bytes());
    let keys: Vec<u32> =
        (1..).filter(|key: &u32| hash.rows_of(&key.to_le_bytes()) == rows).take(COLLIDING_KEYS).collect();
    let packets: Vec<Vec<u8>> = keys.iter().map(|key| scheme.packet(false, 1, *key)).collect();
    let arrivals: Vec<Arrival<'_>> =
        packets.iter().map(|bytes| Arrival { bytes, port: 1, now_ns: 0, delay_cycles: 0 }).collect();
    // All packets are taken at the input; some of them wait there.
    let access = |key: &u32, operation| HostAccess {
        after_packets: COLLIDING_KEYS,
        delay_cycles: 1000,
        map: 0,
        key: key.to_le_bytes().to_vec(),
        operation,
    };
    let lookup = access(&keys[0], Operation::Lookup);
    let deletions = keys.iter().take(20).map(|key| access(key, Operation::Delete));
    let accesses: Vec<HostAccess> = std::iter::once(lookup).chain(deletions).collect();
    let (departures, answers) = simulated.send_and_access(&arrivals, &accesses, OutputStalls::default()).unwrap();
    let done = |cycle: u64| departures.iter().filter(|departure| departure.done_cycle < cycle).count();
    let before: Vec<usize> = answers.iter().map(|answer| done(answer.made_cycle)).collect();
    println!("packets with a verdict before each access: {before:?}");
    assert!(answers.iter().all(|answer| answer.before.is_some()), "{answers:?}");
    assert!(before[1] > 12 && before[1] < COLLIDING_KEYS, "packets do not wait: {before:?}");
    assert_eq!(before[0], before[1], "packets went on before a deletion");
    assert_eq!(*before.last().unwrap(), COLLIDING_KEYS, "packets still wait: {before:?}");
}
