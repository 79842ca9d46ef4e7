// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arrays of so many rows that the host reads only those that have changed.

use flowloom_engine::{Choices, Datapath, MapState, Packet, Port, Snapshot};
use flowloom_isa::asm;
use flowloom_plan::Options;
use flowloom_rtl::Pipeline;
use flowloom_session::Loaded;
use flowloom_session::engines::{Arrival, OutputStalls, Simulated};
use flowloom_testkit::Rng;
use flowloom_vm::Interpreter;

use crate::faults::{Fault, planted};
use crate::stream::start;

/// Snapshots list the first array without zeros, and the second one whole. Values return to zero.
const LARGE: &str = r#".program large
.license "GPL"
.map many array key 4 value 8 entries 70000
.map some array key 4 value 4 entries 1000
        r2 = *(u32 *)(r1 + 4)           ; xdp_md.data_end
        r1 = *(u32 *)(r1 + 0)           ; xdp_md.data
        r0 = 1                          ; XDP_DROP
        r3 = r1
        r3 += 20
        if r3 > r2 goto out
        r6 = *(u32 *)(r1 + 12)
        r7 = *(u32 *)(r1 + 16)
        *(u32 *)(r10 - 4) = r6
        r1 = map[many] ll
        r2 = r10
        r2 += -4
        call map_lookup_elem
        if r0 == 0 goto none
        r2 = *(u64 *)(r0 + 0)
        r2 ^= r7
        *(u64 *)(r0 + 0) = r2
        *(u32 *)(r10 - 8) = r7
        r1 = map[some] ll
        r2 = r10
        r2 += -8
        call map_lookup_elem
        if r0 == 0 goto none
        r2 = *(u32 *)(r0 + 0)
        r2 ^= 1
        *(u32 *)(r0 + 0) = r2
none:   r0 = 3                          ; XDP_TX
out:    exit
"#;

/// Rows that packets use often, the first and the last one among them, and one beyond the array.
const ROWS: [u32; 6] = [0, 77, 1023, 65_536, 69_999, 70_000];

fn load() -> (Loaded, Pipeline) {
    let program = asm::program("large", LARGE).unwrap_or_else(|errors| panic!("{errors}"));
    let loaded = Loaded::of_program(program);
    let pipeline = loaded.pipeline(&Options::default()).unwrap();
    (loaded, pipeline)
}

fn row(rng: &mut Rng) -> u32 {
    if rng.chance(1, 2) { *rng.pick(&ROWS) } else { rng.below(70_010) as u32 }
}

fn packet(rng: &mut Rng) -> Vec<u8> {
    let mut bytes = vec![0; 60];
    bytes[12..16].copy_from_slice(&row(rng).to_le_bytes());
    bytes[16..20].copy_from_slice(&(1 + rng.below(3) as u32).to_le_bytes());
    bytes
}

/// Entries of both arrays, as a snapshot lists them.
fn state(rng: &mut Rng, interp: &mut Interpreter) -> Snapshot {
    let mut state = Snapshot::default();
    let rows = |rng: &mut Rng, count: u32, value_bytes: usize| -> MapState {
        let mut entry = || (row(rng) % count, rng.below(2) as u8);
        let rows: Vec<(u32, u8)> = (0..30).map(|_| entry()).collect();
        rows.into_iter().map(|(row, byte)| (row.to_le_bytes().to_vec(), vec![byte; value_bytes])).collect()
    };
    state.maps.insert("many".to_owned(), rows(rng, 70_000, 8));
    state.maps.insert("some".to_owned(), rows(rng, 1000, 4));
    interp.restore(&state).unwrap();
    interp.snapshot().unwrap()
}

/// The first map in which pipeline and interpreter differ.
fn compare(simulated: &mut Simulated, state: &Snapshot, place: &str) -> Result<(), String> {
    let maps: Vec<_> = simulated.maps().cloned().collect();
    for map in maps {
        let found = simulated.read(map.map).map_err(|error| error.to_string())?;
        let expected = &state.maps[&map.name];
        if found != *expected {
            let other = found.iter().find(|(key, value)| expected.get(*key) != Some(value));
            return Err(format!(
                "{place}, `{}`: {} of {} entries, {other:02x?}",
                map.name,
                found.len(),
                expected.len()
            ));
        }
    }
    Ok(())
}

/// States that the host writes, and packets after them; a reset in between clears everything.
fn run(loaded: &Loaded, simulated: &mut Simulated, seed: u64) -> Result<(), String> {
    let mut rng = Rng::new(seed);
    let mut interp = Interpreter::new(loaded.program().unwrap()).unwrap();
    compare(simulated, &interp.snapshot().unwrap(), "after the start")?;
    for round in 0..12 {
        let place = |what: &str| format!("round {round}, {what}");
        if round % 4 == 3 {
            simulated.reset().map_err(|error| error.to_string())?;
            interp.restore(&Snapshot::default()).unwrap();
            compare(simulated, &interp.snapshot().unwrap(), &place("after a reset"))?;
        }
        let state = state(&mut rng, &mut interp);
        let maps: Vec<_> = simulated.maps().cloned().collect();
        for map in maps {
            simulated.write(map.map, &state.maps[&map.name]).map_err(|error| error.to_string())?;
        }
        compare(simulated, &state, &place("after a write"))?;
        let packets: Vec<Vec<u8>> = (0..200).map(|_| packet(&mut rng)).collect();
        let arrivals: Vec<Arrival<'_>> =
            packets.iter().map(|bytes| Arrival { bytes, port: 0, now_ns: 0, delay_cycles: 0 }).collect();
        simulated.send(&arrivals, OutputStalls::default()).map_err(|error| error.to_string())?;
        for bytes in &packets {
            interp.process(&Packet { bytes, port: Port(0) }, &Choices::seeded(0, 0, 0)).unwrap();
        }
        compare(simulated, &interp.snapshot().unwrap(), &place("after packets"))?;
    }
    Ok(())
}

#[test]
fn rows_that_change_are_read() {
    let (loaded, pipeline) = load();
    let Some(mut simulated) = start("rows_that_change_are_read", &pipeline, 1) else { return };
    let maps: Vec<u32> = simulated.maps().map(|map| map.map).collect();
    assert!(maps.len() == 2 && maps.iter().all(|map| simulated.is_followed(*map)), "all rows are read");
    let seed = Rng::from_env(1).next_u64();
    run(&loaded, &mut simulated, seed).unwrap_or_else(|found| panic!("{found}"));
}

static FAULTS: [Fault; 3] = [
    Fault {
        name: "the last row is not cleared",
        subject: "large",
        file: "fl_array",
        changes: &[("clear_q != Last;", "clear_q != Last - 1'b1;")],
    },
    Fault {
        name: "a row is written in place of another one",
        subject: "large",
        file: "fl_array",
        changes: &[("values_q[result_q.index] <=", "values_q[result_q.index ^ IndexBits'(result_q.index == 77)] <=")],
    },
    Fault {
        name: "the host reads another row, which is not written",
        subject: "large",
        file: "fl_array",
        changes: &[("index: host_index_i,", "index: host_index_i ^ IndexBits'(host_index_i == 77 && !host_write_i),")],
    },
];

/// Checks that the first faults of large arrays are found; the others take a model each.
pub(crate) fn are_found(test: &str, count: usize) {
    for (number, fault) in FAULTS.iter().enumerate().take(count) {
        let (loaded, pipeline) = load();
        let pipeline = planted(3000 + number, fault, pipeline);
        let Some(mut simulated) = start(test, &pipeline, 1) else { return };
        let found = run(&loaded, &mut simulated, 1).expect_err(fault.name);
        println!("{}: {found}", fault.name);
    }
}

#[test]
fn faults_in_large_arrays_are_found() {
    are_found("faults_in_large_arrays_are_found", 1);
}
