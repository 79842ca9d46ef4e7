// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Maps that packets look up by two keys, so that the pipeline has two copies of the contents: what the host changes is
//! seen in both lookups of a packet or in neither.
//!
//! ```text
//!   v = map[key]; w = map[low half of v]        the host writes values whose low half is `key`: the halves above are equal
//!   v = map[source]; w = map[destination]       both are one address
//! ```

use flowloom_isa::asm;
use flowloom_session::Loaded;
use flowloom_session::engines::{
    Arrival, Departure, HostAccess, HostAnswer, Operation, OutputStalls, SendError, Simulated,
};
use flowloom_testkit::Rng;

use crate::stream::start;

/// Two lookups in each map: in an array, a hash map and prefixes the second one by what the first one finds, in the other
/// prefixes both by addresses of the packet.
const PROGRAM: &str = r#"
        .program copies
        .license "GPL"
        .map cells array key 4 value 8 entries 8
        .map flows hash key 4 value 8 entries 8
        .map routes lpm_trie key 8 value 8 entries 4 flags 1
        .map pairs lpm_trie key 8 value 8 entries 4 flags 1
        r2 = *(u32 *)(r1 + 4)           ; xdp_md.data_end
        r6 = *(u32 *)(r1 + 0)           ; xdp_md.data
        r0 = 1                          ; XDP_DROP
        r3 = r6
        r3 += 60
        if r3 > r2 goto out
        r9 = *(u32 *)(r6 + 8)
        *(u32 *)(r10 - 8) = 32
        *(u32 *)(r10 - 4) = r9
        FOUR(cells)
        STORE(16)
        FOUR(cells)
        STORE(20)
        *(u32 *)(r10 - 4) = r9
        FOUR(flows)
        STORE(24)
        FOUR(flows)
        STORE(28)
        *(u32 *)(r10 - 4) = r9
        EIGHT(routes)
        STORE(32)
        EIGHT(routes)
        STORE(36)
        *(u32 *)(r10 - 4) = r9
        EIGHT(pairs)
        STORE(40)
        r8 = *(u32 *)(r6 + 12)
        *(u32 *)(r10 - 4) = r8
        EIGHT(pairs)
        STORE(44)
        call ktime_get_ns
        *(u64 *)(r6 + 48) = r0
        r0 = 3                          ; XDP_TX
out:    exit
"#;

/// The maps, and whether they are prefixes.
const MAPS: [bool; 4] = [false, false, true, true];
/// The offset of the two results for the first map in a packet.
const RESULTS: usize = 16;
/// The offset of the time in a packet.
const TIME: usize = 48;
/// The key of all packets.
const KEY: u32 = 5;
const PACKETS: usize = 4000;

/// A sum by the key of the packet that changes in several stages, so that packets wait for one another in a queue.
const QUEUED: &str = "
        .map sums array key 4 value 8 entries 8
";
const SUM: &str = "
        *(u32 *)(r10 - 12) = r9
        r1 = map[sums] ll
        r2 = r10
        r2 += -12
        call map_lookup_elem
        r5 = r0
        r0 = 1
        if r5 == 0 goto out
        r3 = *(u64 *)(r5 + 0)
        r3 *= r3
        r3 += 1
        *(u64 *)(r5 + 0) = r3
";

fn load(is_queued: bool) -> Loaded {
    let lookup = |map: &str, key: u32| {
        format!(
            "r1 = map[{map}] ll\nr2 = r10\nr2 += -{key}\ncall map_lookup_elem\nr5 = r0\nr0 = 1\nif r5 == 0 goto out\n\
             r3 = *(u64 *)(r5 + 0)\n*(u32 *)(r10 - 4) = r3\nr3 >>= 32"
        )
    };
    let mut text = PROGRAM.to_owned();
    if is_queued {
        text = text.replace("        STORE(16)\n", &format!("        STORE(16)\n{SUM}"));
        // Behind the others: the numbers of the maps stay.
        text =
            text.replace("        r2 = *(u32 *)(r1 + 4) ", &format!("{}        r2 = *(u32 *)(r1 + 4) ", &QUEUED[1..]));
    }
    for (name, key) in [("FOUR(cells)", 4), ("FOUR(flows)", 4), ("EIGHT(routes)", 8), ("EIGHT(pairs)", 8)] {
        let map = name.split(['(', ')']).nth(1).unwrap();
        text = text.replace(name, &lookup(map, key));
    }
    for place in (RESULTS..).step_by(4).take(2 * MAPS.len()) {
        text = text.replace(&format!("STORE({place})"), &format!("*(u32 *)(r6 + {place}) = r3"));
    }
    Loaded::of_program(asm::program("copies", &text).unwrap())
}

/// The key of all packets in a map.
fn key(is_prefix: bool, bits: u32) -> Vec<u8> {
    let address = KEY.to_le_bytes();
    if is_prefix { [bits.to_le_bytes(), address].concat() } else { address.to_vec() }
}

/// A value that leads to the key again.
fn value(number: u32) -> Vec<u8> {
    [KEY.to_le_bytes(), number.to_le_bytes()].concat()
}

/// A packet with the key as its addresses.
fn packet() -> [u8; 60] {
    let mut bytes = [0; 60];
    bytes[8..12].copy_from_slice(&KEY.to_le_bytes());
    bytes[12..16].copy_from_slice(&KEY.to_le_bytes());
    bytes
}

/// Sends packets, so many cycles apart, with accesses of the host.
fn send(
    simulated: &mut Simulated,
    accesses: &[HostAccess],
    mut apart: impl FnMut() -> u32,
) -> (Vec<Departure>, Vec<HostAnswer>) {
    let bytes = packet();
    let packets: Vec<Arrival<'_>> =
        (0..PACKETS).map(|_| Arrival { bytes: &bytes, port: 1, now_ns: 0, delay_cycles: apart() }).collect();
    simulated.send_and_access(&packets, accesses, OutputStalls::default()).unwrap()
}

/// A pipeline whose maps lead from the key to itself.
fn started(test: &str, is_queued: bool) -> Option<Simulated> {
    let pipeline = load(is_queued).pipeline(&Default::default()).unwrap();
    let mut simulated = start(test, &pipeline, 1)?;
    for (map, is_prefix) in MAPS.iter().enumerate() {
        let entries = match is_prefix {
            true => [(key(true, 24), value(1)), (key(true, 32), value(2))].into_iter().collect(),
            false => [(key(false, 32), value(1))].into_iter().collect(),
        };
        simulated.write(map as u32, &entries).unwrap();
    }
    Some(simulated)
}

#[test]
fn a_packet_sees_a_change_by_the_host_in_both_lookups() {
    let test = "a_packet_sees_a_change_by_the_host_in_both_lookups";
    let mut rng = Rng::from_env(1);
    for (is_queued, gap) in [(false, 4), (false, 40), (true, 4), (true, 40)] {
        let Some(mut simulated) = started(test, is_queued) else { return };
        sees_whole_changes(&mut simulated, &mut rng, gap);
    }
}

/// Packets up to `gap` cycles apart.
fn sees_whole_changes(simulated: &mut Simulated, rng: &mut Rng, gap: usize) {
    let mut accesses = Vec::new();
    for number in 0..380 {
        // Between packets that are far apart, lists of prefixes swap beside one packet that has asked one copy.
        let map = if gap > 4 && rng.chance(3, 4) { 2 } else { rng.below(MAPS.len()) };
        // The longer prefix takes over the address, and leaves it to the shorter one.
        let bits = if rng.chance(2, 3) { 32 } else { 24 };
        let operation = match MAPS[map] && bits == 32 && rng.chance(1, 2) {
            true => Operation::Delete,
            false => Operation::Update(value(number + 3)),
        };
        let (after_packets, delay_cycles) = (10 * number as usize, rng.below(8) as u32);
        let key = key(MAPS[map], bits);
        accesses.push(HostAccess { after_packets, delay_cycles, map: map as u32, key, operation });
    }
    let (departures, answers) =
        send(simulated, &accesses, || if gap > 4 || rng.chance(1, 3) { rng.below(gap) as u32 } else { 0 });
    let mut seen = [(); MAPS.len()].map(|()| std::collections::BTreeSet::new());
    for (number, departure) in departures.iter().enumerate() {
        let (_, bytes) = departure.sent.as_ref().unwrap_or_else(|| panic!("packet {number}: {departure:?}"));
        for (map, seen) in seen.iter_mut().enumerate() {
            let place = RESULTS + 8 * map;
            let (first, second) = (&bytes[place..place + 4], &bytes[place + 4..place + 8]);
            assert_eq!(first, second, "packet {number}, map {map}: half of a change");
            seen.insert(first.to_vec());
        }
    }
    println!("{} accesses, values seen: {:?}", answers.len(), seen.map(|values| values.len()));
}

#[test]
fn the_host_reads_rows_of_prefixes_while_every_cycle_has_a_packet() {
    let test = "the_host_reads_rows_of_prefixes_while_every_cycle_has_a_packet";
    let Some(mut simulated) = started(test, false) else { return };
    let row = |map: u32| HostAccess {
        after_packets: 100,
        delay_cycles: 0,
        map,
        key: 0_u64.to_le_bytes().to_vec(),
        operation: Operation::ReadRow,
    };
    let (departures, answers) = send(&mut simulated, &[row(2), row(3)], || 0);
    for answer in &answers {
        assert_eq!(answer.before, Some(value(1)));
        let taken = departures.iter().filter(|departure| departure.taken_cycle < answer.made_cycle).count();
        assert!(taken < PACKETS / 2, "made after {taken} of {PACKETS} packets");
    }
}

/// Each packet has the largest time so far; that of a packet that is too long does not count.
#[test]
fn the_times_of_packets_do_not_go_back() {
    let Some(mut simulated) = started("the_times_of_packets_do_not_go_back", false) else { return };
    let mut rng = Rng::from_env(1);
    let (bytes, long) = (packet(), vec![0; simulated.max_bytes() + 1]);
    let times: Vec<u64> = (0..400_u64)
        .map(|number| if rng.chance(1, 4) { rng.next_u64() >> (32 + rng.below(8)) } else { number << 20 })
        .collect();
    let arrival = |now_ns: &u64| Arrival { bytes: &bytes, port: 1, now_ns: *now_ns, delay_cycles: 0 };
    let packets: Vec<Arrival<'_>> = times.iter().map(arrival).collect();
    let discarded = Arrival { bytes: &long, port: 1, now_ns: u64::MAX, delay_cycles: 0 };
    let found = simulated.send(&[discarded], OutputStalls::default());
    assert!(matches!(found, Err(SendError::Missing { verdicts: 0, .. })), "{found:?}");
    // A clock that was set back: times before do not count.
    for run in 0..2 {
        let departures = simulated.send(&packets, OutputStalls::default()).unwrap();
        let (mut latest, mut later) = (0, 0);
        for (number, (now_ns, departure)) in times.iter().zip(&departures).enumerate() {
            later += usize::from(*now_ns < latest);
            latest = latest.max(*now_ns);
            let (_, sent) = departure.sent.as_ref().unwrap();
            assert_eq!(sent[TIME..TIME + 8], latest.to_le_bytes(), "run {run}, packet {number}");
        }
        assert!(later > 50, "{later} times went back");
        simulated.restart_times().unwrap();
    }
}
