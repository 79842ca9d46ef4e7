// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long proofs about pipelines, which contain the blocks of "hdl". Start with `make evidence`.

use flowloom_testkit::Rng;
use flowloom_trace::CaptureReader;
use flowloom_vm::Interpreter;

use crate::faults::{FAULTS, Finding, find};
use crate::frames;
use crate::programs::PROGRAMS;
use crate::stream::{CASES, Case, Compared, compare, compare_all, start};
use flowloom_session::engines::{OutputStalls, Simulated};

const SEED: u64 = 1;
const PACKETS: usize = 100_000;
/// Packets of each capture, and those sent at once.
const CAPTURED: usize = 100_000;
const BATCH: usize = 10_000;

/// The packets of the captures, with and without stalls at the output.
fn compare_captures(case: &Case, interp: &mut Interpreter, simulated: &mut Simulated) -> Compared {
    let mut all = Compared::default();
    let mut rng = Rng::new(SEED);
    for path in flowloom_trace::traces_from_env().unwrap().unwrap_or_default() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        let packets = CaptureReader::open(&path).unwrap().take(CAPTURED).map(|packet| packet.unwrap().bytes);
        let packets = packets.map(|mut bytes| {
            bytes.resize(bytes.len().clamp(14, simulated.max_bytes()), 0);
            (bytes, rng.below(4) as u32, 0)
        });
        let packets: Vec<(Vec<u8>, u32, u32)> = packets.collect();
        for (number, batch) in packets.chunks(BATCH).enumerate() {
            let stalls = OutputStalls { of_256: if number % 2 == 0 { 0 } else { 100 }, seed: number as u32 };
            let compared = compare(case, simulated, interp, batch, stalls);
            all += compared.unwrap_or_else(|found| panic!("{name}, from packet {}: {found}", number * BATCH));
        }
    }
    all
}

fn shown(compared: Compared) -> String {
    let Compared { packets, sent, slow, changed, .. } = compared;
    format!("{packets:8} packets, {sent:8} sent, {changed:8} of them changed, {slow:8} on the slow path")
}

/// The first 200 characters of a difference, at most its first line.
fn start_of(found: &str) -> String {
    found.lines().next().unwrap_or_default().chars().take(200).collect()
}

/// Simulated pipelines give the interpreter's verdicts, bytes, ports and maps on 100,000 and more packets of all shapes of
/// traffic, back to back and with stalls at the output, and on up to 100,000 packets of each capture of
/// `FLOWLOOM_TRACES`. Prints the packets of each program.
#[test]
#[ignore = "minutes"]
fn evidence_pipelines() {
    println!("seed {SEED}");
    let mut wrong = Vec::new();
    for case in CASES.iter().chain(&PROGRAMS) {
        let loaded = case.load();
        let pipeline = case.pipeline(&loaded);
        let Some(mut simulated) = start("evidence_pipelines", &pipeline, SEED as u32) else { return };
        let compared = compare_all(case, &loaded, &mut simulated, SEED, PACKETS);
        match compared {
            Ok(compared) => println!("{:16} {}", case.name, shown(compared)),
            Err(found) => {
                println!("{:16} differs: {}", case.name, start_of(&found));
                wrong.push(case.name);
                continue;
            }
        }
        let mut interp = Interpreter::new(loaded.program().unwrap()).unwrap();
        let captured = compare_captures(case, &mut interp, &mut simulated);
        if captured.packets > 0 {
            println!("{:16} {}", "  captures", shown(captured));
        }
    }
    assert!(wrong.is_empty(), "different: {}", wrong.join(", "));
}

/// Pipelines of 12 random rewritings, which move the start and the end of packets and write bytes at constant and computed
/// offsets, give the evaluator's packets, on 4,000 packets of each of four shapes of traffic. Prints the packets sent.
#[test]
#[ignore = "minutes"]
fn evidence_frames() {
    println!("seed {SEED}");
    for number in 0..12 {
        let mut subject = frames::subject(SEED, number);
        let Some(mut simulated) = start("evidence_frames", &subject.pipeline, SEED as u32) else { return };
        let sent = frames::compare(&mut subject, &mut simulated, SEED, 4000).unwrap_or_else(|found| panic!("{found}"));
        println!("{}: {sent} of 16000 packets sent, equal", subject.name);
    }
}

/// Each fault of a list, planted in a pipeline or in a block that it instantiates, makes the pipeline differ from the
/// interpreter or the evaluator. Prints the first difference of each fault.
#[test]
#[ignore = "minutes"]
fn evidence_pipeline_faults() {
    let mut missed = Vec::new();
    for fault in FAULTS {
        let found = match find("evidence_pipeline_faults", fault, SEED, 10_000) {
            Finding::Difference(found) => found,
            Finding::Equal => {
                missed.push(fault.name);
                "not found".to_owned()
            }
            Finding::Skipped => return,
        };
        println!("{}: {}: {}", fault.subject, fault.name, start_of(&found));
    }
    assert!(missed.is_empty(), "not found: {}", missed.join("; "));
    println!("{} faults are found", FAULTS.len());
}
