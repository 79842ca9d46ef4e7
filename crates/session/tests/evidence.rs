// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Long proofs about pipelines, which contain the blocks of "hdl". Start with `make evidence`.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use flowloom_testkit::{Rng, is_selected, selects, skip};
use flowloom_trace::CaptureReader;
use flowloom_verify::explore::GapReason;
use flowloom_verify::{Arrival, Reached};
use flowloom_vm::Interpreter;

use crate::adversarial::{self, Trace};
use crate::cycles;
use crate::distances::{self, Distances, SCHEMES, try_all};
use crate::explored::{self, Ran};
use crate::faults::{FAULTS, Fault, Finding, find, planted};
use crate::frames;
use crate::host;
use crate::large;
use crate::own_traffic::{self, Start};
use crate::programs::PROGRAMS;
use crate::random_programs;
use crate::rates::{self, CLOCK_MHZ, LINE_MPPS};
use crate::repository;
use crate::stream::{CASES, Case, Compared, compare, compare_all, start};
use crate::verified::{captures, shipped};
use flowloom_session::engines::{OutputStalls, Simulated};

const SEED: u64 = 1;
/// The functions in our language that have a pipeline, at least.
const MIN_FUNCTIONS: usize = 20;
/// The programs in C that have one, at least.
const MIN_PROGRAMS: usize = 13;
/// Branches of programs that no input takes both ways: a packet of an engine comes from queue 0.
const EXCUSED: &[(&str, &str)] = &[("rxq_info", "QUEUES")];
/// The packets on the slow path, on which the host runs them, in percent at most: those generated for functions reach
/// beyond the window now and then, those explored for programs never.
const MAX_SLOW_OF_FUNCTIONS: u64 = 2;
const MAX_SLOW_OF_PROGRAMS: u64 = 0;
/// Those and the programs that have one, at least.
const MIN_PIPELINES: usize = 33;
/// Those with a twin for the cycles, which dnat, flowlet, gtpu_offload and katran do not have; functions also with
/// small tables.
const MIN_TWINS: usize = MIN_PIPELINES - 4 + MIN_FUNCTIONS - 2;
const PACKETS: usize = 100_000;
/// Packets of each capture, and those sent at once.
const CAPTURED: usize = 100_000;
const BATCH: usize = 10_000;
/// Hits of each row, timeout and default action of a function; rounds of 50,000 packets for each set of parameters, at
/// most.
const MIN_HITS: u64 = 10;
const MAX_ROUNDS: u64 = 12;
/// Packets of each program with accesses of the host.
const HOST_PACKETS: usize = 20_000;

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

/// The reason why a comparison says too little about a pipeline: too many of its packets took the slow path.
fn too_slow(name: &str, slow: u64, packets: u64, most_percent: u64) -> Option<String> {
    (100 * slow > most_percent * packets)
        .then(|| format!("{name}: {slow} of {packets} packets on the slow path, expected {most_percent}% at most"))
}

/// Simulated pipelines give the interpreter's verdicts, bytes, ports and maps on 100,000 and more packets of all shapes
/// of traffic, back to back and with stalls at the output, and on up to 100,000 packets of each capture of
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

/// Pipelines of 12 random rewritings, which move the start and the end of packets and write bytes at constant and
/// computed offsets, give the evaluator's packets, on 4,000 packets of each of four shapes of traffic. Prints the
/// packets sent.
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
/// interpreter or the evaluator. Prints the first difference of each fault. `FLOWLOOM_FAULT` selects faults by a part
/// of their names or of the file that they change.
#[test]
#[ignore = "minutes"]
fn evidence_pipeline_faults() {
    let only = std::env::var("FLOWLOOM_FAULT").unwrap_or_default();
    let is_selected = |fault: &&Fault| fault.name.contains(&only) || fault.file.contains(&only);
    let faults: Vec<&Fault> = FAULTS.iter().filter(is_selected).collect();
    assert!(!faults.is_empty(), "no fault has `{only}` in its name or file");
    let mut missed = Vec::new();
    for fault in &faults {
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
    if only.is_empty() {
        large::are_found("evidence_pipeline_faults", usize::MAX);
    }
    assert!(missed.is_empty(), "not found: {}", missed.join("; "));
    println!("{} faults are found", faults.len());
}

/// The pipeline of every function of the repository that has a rendering gives the interpreter's verdicts, bytes, ports
/// and maps on 100,000 and more packets generated for the function, which reach every row in every state, every timeout
/// and every default action, except unreachable ones, and on the captures of `FLOWLOOM_TRACES`, with input port 1 or 2
/// by direction. Packets on the slow path are counted; more than 2% are a fault. Functions without a rendering are
/// listed with the reason. `FLOWLOOM_FUNCTION` selects one function, `FLOWLOOM_PACKETS` sets the number of packets.
#[test]
#[ignore = "an hour"]
fn evidence_function_pipelines() {
    println!("seed {SEED}");
    let captured: Vec<_> = captures::all().into_iter().map(|(_, packets)| captures::directed(packets)).collect();
    if captured.is_empty() {
        skip("evidence_function_pipelines", "`FLOWLOOM_TRACES` names no folder of captures");
    }
    let count = std::env::var("FLOWLOOM_PACKETS").map_or(PACKETS, |count| count.parse().unwrap());
    let (functions, next, all) = (shipped::shipped(), AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(shipped) = functions.get(next.fetch_add(1, Ordering::Relaxed)) {
            let compared = function_pipeline(shipped, &captured, count);
            if let Some(Ok(FunctionResult { text, .. })) = &compared {
                print!("{text}");
            }
            all.lock().unwrap().push(compared);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));
    // A function that is skipped has printed the reason.
    let Some(all) = all.into_inner().unwrap().into_iter().collect::<Option<Vec<_>>>() else { return };
    let (compared, without): (Vec<_>, Vec<_>) = all.into_iter().partition(Result::is_ok);
    let wrong: Vec<Vec<String>> = compared.into_iter().flatten().map(|function| function.wrong).collect();
    let equal = wrong.iter().filter(|wrong| wrong.is_empty()).count();
    println!("{equal} functions are equal; without a rendering: {}", without.len());
    without.iter().filter_map(|reason| reason.as_ref().err()).for_each(|reason| println!("  {reason}"));
    let wrong = wrong.concat();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let least = if selects() { 1 } else { MIN_FUNCTIONS };
    assert!(equal >= least, "{equal} functions were compared, expected at least {least}");
}

/// The comparison of a function's pipeline with the interpreter.
struct FunctionResult {
    text: String,
    /// The faults that were found.
    wrong: Vec<String>,
}

/// Of 2,000 random programs, each has a pipeline or a reason why not, and the pipelines of the first 60 that have one
/// give the interpreter's verdicts, bytes, ports and maps on 3,000 packets each. `FLOWLOOM_COUNT` sets the number of
/// programs, `FLOWLOOM_PIPELINES` that of pipelines, `FLOWLOOM_SEED` the seed.
#[test]
#[ignore = "minutes"]
fn evidence_random_pipelines() {
    let seed = Rng::from_env(1).next_u64();
    let count = |name, usual| std::env::var(name).map_or(usual, |count| count.parse().unwrap());
    let (programs, most) = (count("FLOWLOOM_COUNT", 2_000), count("FLOWLOOM_PIPELINES", 60));
    let (mut rendered, mut reasons) = (Vec::new(), Vec::new());
    for number in 0..programs as u64 {
        match random_programs::refused(&random_programs::subject(seed, number, 0).program) {
            None => rendered.push(number),
            Some(reason) => reasons.push(reason),
        }
    }
    println!("{} of {programs} programs have a pipeline; the others:", rendered.len());
    random_programs::by_reason(reasons.into_iter()).iter().for_each(|(reason, count)| println!("{count:5} {reason}"));
    assert!(
        10 * rendered.len() >= programs,
        "{} of {programs} programs have a pipeline, expected 1 in 10",
        rendered.len()
    );
    rendered.truncate(most);
    let (next, all) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(number) = rendered.get(next.fetch_add(1, Ordering::Relaxed)) {
            let subject = random_programs::subject(seed, *number, 3_000);
            let found = random_programs::compared("evidence_random_pipelines", &subject);
            if let Some(Err(difference)) = &found {
                println!("{} differs:\n{difference}", subject.program.name);
            }
            all.lock().unwrap().push(found);
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| _ = scope.spawn(work)));
    let Some(all) = all.into_inner().unwrap().into_iter().collect::<Option<Vec<_>>>() else { return };
    let equal = all.iter().filter(|found| found.is_ok()).count();
    let slow: u64 = all.iter().flatten().sum();
    println!("{equal} of {} pipelines are equal on 3,000 packets each, {slow} on the slow path", all.len());
    assert_eq!(equal, all.len(), "the pipelines above differ");
}

/// Compares the pipeline of a function; the error is the reason why it has none. `None` if it is skipped.
fn function_pipeline(
    shipped: &shipped::Shipped,
    captured: &[Vec<Arrival>],
    count: usize,
) -> Option<Result<FunctionResult, String>> {
    let started = Instant::now();
    let mut reached = Reached::new(&shipped.variants[0].function);
    let mut subjects = Vec::new();
    for variant in &shipped.variants {
        match own_traffic::start("evidence_function_pipelines", variant) {
            Start::Subject(subject) => subjects.push(subject),
            Start::Without(reason) => return Some(Err(format!("{} [{}]: {reason}", shipped.name, variant.params))),
            Start::Skipped => return None,
        }
    }
    let (mut generated, mut slow, mut refused, mut rounds) = (0, 0, 0, 0);
    let mut found: Result<(), String> = Ok(());
    for round in 0..MAX_ROUNDS {
        let is_enough = rounds * shipped.variants.len() >= 2 && shipped.gaps(&reached, MIN_HITS).is_empty();
        if is_enough || found.is_err() {
            break;
        }
        for subject in &mut subjects {
            let packets = shipped::made(&subject.function, SEED + round, count / 2);
            found = found.and_then(|()| {
                let report = subject.compare(&packets, Some(&mut reached))?;
                (generated, slow) = (generated + report.packets_compared, slow + report.packets_slow);
                refused += report.packets_refused();
                Ok(())
            });
        }
        rounds += 1;
    }
    let (mut of_captures, mut slow_of_captures) = (0, 0);
    for packets in captured {
        found = found.and_then(|()| {
            let report = subjects[0].compare(packets, None)?;
            of_captures += report.packets_compared;
            slow_of_captures += report.packets_slow;
            Ok(())
        });
    }
    let points = reached.points();
    let least = points.iter().map(|point| point.hits).filter(|hits| *hits > 0).min().unwrap_or(0);
    let hit = points.iter().filter(|point| point.hits > 0).count();
    let mut text = format!(
        "{:26} {generated:>7} packets, {slow:>5} on the slow path, {hit:>3} of {:<3} points reached, {least:>4} times at \
         least, {refused:>3} refused; captures {of_captures:>7} packets, {slow_of_captures} on the slow path; {} s\n{}",
        shipped.name,
        points.len(),
        started.elapsed().as_secs(),
        shipped.excuses(&reached)
    );
    let mut wrong: Vec<String> = too_slow(&shipped.name, slow, generated, MAX_SLOW_OF_FUNCTIONS).into_iter().collect();
    match found {
        Ok(()) => {
            let gaps = shipped.gaps(&reached, MIN_HITS);
            wrong.extend(gaps.iter().map(|gap| {
                format!("{}: {} {} {:?}: {} hits", shipped.name, gap.element, gap.what, gap.state, gap.hits)
            }));
        }
        Err(found) => {
            text += &format!("{found}\n");
            wrong.push(format!("{} differs: {}", shipped.name, start_of(&found)));
        }
    }
    Some(Ok(FunctionResult { text, wrong }))
}

/// The pipeline of every program in C of the repository that has a rendering gives the interpreter's verdicts, bytes,
/// ports and maps on 100,000 and more packets: those that an exploration of its code finds, with the states of maps
/// that they need, and changes of them, so that every branch is taken both ways but for those that no input decides.
/// A packet on the slow path is a fault. Programs without a rendering are listed with the
/// reason. `FLOWLOOM_FUNCTION` selects one program, `FLOWLOOM_PACKETS` sets the number of packets.
#[test]
#[ignore = "minutes"]
fn evidence_program_pipelines() {
    println!("seed {SEED}");
    let count = std::env::var("FLOWLOOM_PACKETS").map_or(PACKETS, |count| count.parse().unwrap());
    let (mut equal, mut without, mut wrong) = (0, Vec::new(), Vec::new());
    for path in explored::programs() {
        let name = path.file_name().unwrap().to_string_lossy().replace(".bpf.c", "");
        if !is_selected(&name) {
            continue;
        }
        let started = Instant::now();
        match explored::is_equal("evidence_program_pipelines", path, SEED, count) {
            Ran::Equal(compared) => {
                let explored::Compared { packets, slow, refused, states, share: (reached, slots), gaps } = compared;
                println!(
                    "{name:18} {packets:>7} packets, {slow:>5} on the slow path, {states:>3} states, {reached:>4} of \
                     {slots:<4} slots reached, {refused} refused; {} s",
                    started.elapsed().as_secs()
                );
                for gap in gaps {
                    println!("  {} to {} not reached: {}", gap.first, gap.last, gap.why);
                    let is_excused = EXCUSED.iter().any(|(of, text)| *of == name && gap.why.to_string().contains(text));
                    if matches!(gap.why, GapReason::Jump { .. }) && !is_excused {
                        wrong.push(format!("{name}: no packet reaches {}: {}", gap.first, gap.why));
                    }
                }
                wrong.extend(too_slow(&name, slow, packets, MAX_SLOW_OF_PROGRAMS));
                if packets < count as u64 * 9 / 10 {
                    wrong.push(format!("{name}: {packets} packets, expected {count}"));
                }
                equal += 1;
            }
            Ran::Without(reason) => without.push(format!("{name}: {reason}")),
            Ran::Differs(found) => {
                println!("{name} differs: {found}");
                wrong.push(format!("{name} differs: {}", start_of(&found)));
            }
            Ran::Skipped => return,
        }
    }
    println!("{equal} programs are equal; without a rendering: {}", without.len());
    without.iter().for_each(|reason| println!("  {reason}"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let least = if selects() { 1 } else { MIN_PROGRAMS };
    assert!(equal >= least, "{equal} programs were compared, expected at least {least}");
}

/// Any two packets at any distance, and any three, give the result of one after another, on a small program for each
/// way in which packets share state: registers, arrays and hash maps that change in one stage and in several, entries
/// that are inserted, deleted and inserted again, keys of the same rows, a full map, an index that comes from another
/// map. The distances are all from one cycle to the latency of the core and two more; of two packets with keys, all up
/// to 90 cycles. Faults planted in these pipelines are found in the same way. `FLOWLOOM_FAULT` selects faults alone, by
/// a part of their names.
#[test]
#[ignore = "minutes"]
fn evidence_distances() {
    println!("{:28} {:>8} {:>7} {:>9}  core", "state", "spacing", "cases", "packets");
    let only = std::env::var("FLOWLOOM_FAULT").ok();
    for scheme in SCHEMES.iter().filter(|_| only.is_none()) {
        let pipeline = scheme.pipeline(&scheme.load());
        let Some(mut simulated) = start("evidence_distances", &pipeline, SEED as u32) else { return };
        let tried =
            try_all(scheme, &pipeline, &mut simulated, Distances::All).unwrap_or_else(|found| panic!("{found}"));
        let (spacing, latency) = (pipeline.core.hold_cycles, tried.latency_cycles);
        println!("{:28} {spacing:>8} {:>7} {:>9}  {latency} cycles", scheme.name, tried.cases, tried.packets);
    }
    let (mut missed, mut found_count) = (Vec::new(), 0);
    for (number, fault) in distances::FAULTS.iter().enumerate() {
        if only.as_ref().is_some_and(|only| !fault.name.contains(only)) {
            continue;
        }
        let scheme = distances::scheme(fault.subject);
        let pipeline = planted(1000 + number, fault, scheme.pipeline(&scheme.load()));
        let Some(mut simulated) = start("evidence_distances", &pipeline, SEED as u32) else { return };
        let found = match try_all(scheme, &pipeline, &mut simulated, Distances::All) {
            Err(found) => {
                found_count += 1;
                start_of(&found)
            }
            Ok(_) => {
                missed.push(fault.name);
                "not found".to_owned()
            }
        };
        println!("{}: {}: {found}", fault.subject, fault.name);
    }
    assert!(missed.is_empty(), "not found: {}", missed.join("; "));
    assert!(found_count > 0, "no fault has `{}` in its name", only.unwrap_or_default());
    println!("{found_count} faults are found");
}

/// Functions with tables of 40 entries, on traces that are meant to break their pipelines, give the interpreter's
/// verdicts, bytes, ports and maps: one flow only, two in turn, new ones only, more flows than entries, 6 to 12 keys of
/// the same rows in all banks where there are such flows, packets 1 ns before, on and after deadlines, frames of every
/// length up to 63 bytes and of 1,513 to 9,000. Accesses of the host while packets are in flight give the result of a
/// serial order, in which each is between two packets.
#[test]
#[ignore = "an hour"]
fn evidence_adversarial_traces() {
    println!("seed {SEED}");
    let (mut equal, mut wrong, mut by_trace) = (0, Vec::new(), BTreeMap::new());
    for name in adversarial::names() {
        let started = Instant::now();
        let (mut subject, pipeline, mut simulated) = match adversarial::start("evidence_adversarial_traces", &name) {
            Ok(started) => started,
            Err(Some(reason)) => {
                println!("{name}: no rendering: {reason}");
                continue;
            }
            Err(None) => return,
        };
        match adversarial::attack(&mut subject, &pipeline, &mut simulated, SEED) {
            Ok(attacked) => {
                attacked.packets.iter().for_each(|(trace, packets)| *by_trace.entry(*trace).or_insert(0) += *packets);
                let traces = attacked.packets.iter().zip(attacked.seconds.values());
                let traces: Vec<String> =
                    traces.map(|((trace, packets), seconds)| format!("{trace:?} {packets} in {seconds} s")).collect();
                let host::Served { packets, accesses, in_flight, refused, most_orders } = attacked.served;
                println!(
                    "{name}: {} packets, {} refused; {} s\n  {}\n  host: {accesses} accesses among {packets} packets, \
                     {in_flight} in flight, {refused} refused, at most {most_orders} orders possible, {} s",
                    attacked.packets.values().sum::<u64>(),
                    attacked.refused,
                    started.elapsed().as_secs(),
                    traces.join(", "),
                    attacked.host_seconds
                );
                equal += 1;
            }
            Err(found) => {
                println!("{name}: {found}");
                wrong.push(format!("{name}: {}", start_of(&found)));
            }
        }
    }
    println!("{equal} functions are equal");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    if !selects() {
        assert!(equal >= MIN_FUNCTIONS, "{equal} functions were compared, expected at least {MIN_FUNCTIONS}");
        let unused = Trace::ALL.iter().filter(|trace| by_trace.get(trace).is_none_or(|packets| *packets == 0));
        let unused: Vec<_> = unused.collect();
        assert!(unused.is_empty(), "no packets of {unused:?}");
    }
}

/// Accesses of the host to maps while packets are in flight give the answers, and leave the packets and maps, of a
/// serial order, in which each access is between two packets: on a small program for each way in which packets share
/// state, with gaps at the input, with and without stalls at the output. Faults planted in these pipelines are found in
/// the same way. `FLOWLOOM_FAULT` selects faults alone, by a part of their names.
#[test]
#[ignore = "minutes"]
fn evidence_host_accesses() {
    println!("seed {SEED}");
    let only = std::env::var("FLOWLOOM_FAULT").ok();
    let serve = |scheme: &'static distances::Scheme, pipeline: &flowloom_rtl::Pipeline| {
        let loaded = scheme.load();
        let mut simulated = start("evidence_host_accesses", pipeline, SEED as u32)?;
        let mut interp = Interpreter::new(loaded.program().unwrap()).unwrap();
        let mut rng = Rng::new(SEED);
        let packets = host::packets_of_scheme(scheme, &[1, 2, 3, 4, 5], HOST_PACKETS, &mut rng);
        Some(host::serve(scheme.name, &mut interp, &mut simulated, &packets, &mut rng))
    };
    // The candidates for a serial order are states without an order of use.
    let is_full_lru = |scheme: &distances::Scheme| distances::FULL_LRU.contains(&scheme.name);
    for scheme in SCHEMES.iter().filter(|scheme| only.is_none() && !is_full_lru(scheme)) {
        let Some(served) = serve(scheme, &scheme.pipeline(&scheme.load())) else { return };
        let served = served.unwrap_or_else(|found| panic!("{found}"));
        let host::Served { packets, accesses, in_flight, refused, most_orders } = served;
        assert!(in_flight > accesses / 4, "{}: {in_flight} of {accesses} accesses were in flight", scheme.name);
        println!(
            "{:28} {packets} packets, {accesses} accesses, {in_flight} in flight, {refused} refused by a full map; at most \
             {most_orders} orders possible",
            scheme.name
        );
    }
    let (mut missed, mut found_count) = (Vec::new(), 0);
    for (number, fault) in host::FAULTS.iter().enumerate() {
        if only.as_ref().is_some_and(|only| !fault.name.contains(only)) {
            continue;
        }
        let scheme = distances::scheme(fault.subject);
        let Some(served) = serve(scheme, &planted(2000 + number, fault, scheme.pipeline(&scheme.load()))) else {
            return;
        };
        let found = match served {
            Err(found) => {
                found_count += 1;
                start_of(&found)
            }
            Ok(_) => {
                missed.push(fault.name);
                "not found".to_owned()
            }
        };
        println!("{}: {}: {found}", fault.subject, fault.name);
    }
    assert!(missed.is_empty(), "not found: {}", missed.join("; "));
    assert!(found_count > 0, "no fault has `{}` in its name", only.unwrap_or_default());
    println!("{found_count} faults are found");
}

/// The rate of every pipeline in packets of 60 bytes, one offered in each cycle of 250 MHz, on traffic for which it does
/// its work: of 200 known flows, of one flow, of two in turn, and of flows that are all new. Known flows reach 148.8
/// million packets a second, the line rate of 100 Gbit/s, or the rate of the words that leave: 125 for the tunnel and for
/// Katran. Dynamic NAT, whose counter waits for the table, reaches 125, and so does the offload of GTP-U, which grows
/// packets, for those that it lets pass: where packets are issued, it is not known yet which of them access its second
/// map. Maps that know flows have an entry for each, and packets of known flows the verdict that tells so, but those of
/// the leaky buckets. Prints all rates and, for known flows, the words that leave for a packet; `FLOWLOOM_FUNCTION`
/// selects one function.
#[test]
#[ignore = "minutes"]
fn evidence_pipeline_rates() {
    let (mut measured, mut slow) = (0, Vec::new());
    for (name, path) in repository::all() {
        let loaded = repository::open(&path);
        let own: Vec<_> = rates::TRAFFIC.iter().filter(|traffic| traffic.file == name).collect();
        assert!(!own.is_empty(), "{name} has no traffic");
        measured += 1;
        for traffic in own {
            match rates::rates("evidence_pipeline_rates", traffic, &loaded, 4000) {
                Ok(Some([known, ..])) => {
                    // A packet that takes several words at the output leaves at that rate.
                    let is_paced = ["dynamic_nat.efsm", "gtpu_offload.efsm"].contains(&traffic.file);
                    let most = if is_paced { CLOCK_MHZ / 2.0 } else { LINE_MPPS };
                    let goal = most.min(CLOCK_MHZ / known.words_out.max(1.0));
                    if known.taken_mpps < 0.99 * goal {
                        slow.push(format!("{traffic}: {:.1} of {goal:.1}", known.taken_mpps));
                    }
                }
                Ok(None) => return,
                Err(error) => panic!("{traffic}: no pipeline: {error}"),
            }
        }
    }
    assert!(slow.is_empty(), "{slow:?}");
    let least = if selects() { 1 } else { MIN_PIPELINES };
    assert!(measured >= least, "{measured} pipelines were measured, expected at least {least}");
}

/// The twin of every pipeline gives the simulated pipeline's cycles, packet by packet: those in which a packet is
/// taken, has its verdict, and leaves with its first and its last word. 4,000 packets of all shapes of traffic, with
/// and without stalls at the output; and of every function with small tables its own traffic on traces that fill the
/// tables, collide in them and meet deadlines; and of the small programs by which packets share state. Prints the packets
/// that waited in the pipeline; `FLOWLOOM_FUNCTION` selects one function.
#[test]
#[ignore = "an hour"]
fn evidence_pipeline_cycles() {
    println!("seed {SEED}");
    let test = "evidence_pipeline_cycles";
    let (mut compared, mut wrong) = (0, Vec::new());
    let mut note = |name: &str, result: Result<usize, String>| match result {
        Ok(waited) => {
            compared += 1;
            println!("{name}: {waited} packets waited");
        }
        Err(found) => {
            println!("{name} differs: {}", start_of(&found));
            wrong.push(name.to_owned());
        }
    };
    for (name, path) in repository::all() {
        match cycles::subject(test, &name, repository::open(&path), None) {
            Ok(Some(mut subject)) => note(&name, subject.compare_all(SEED, cycles::PACKETS)),
            Ok(None) => return,
            Err(error) => println!("{name}: no twin: {error}"),
        }
    }
    for name in adversarial::names() {
        match cycles::attack(test, &name, SEED) {
            Ok(Some(result)) => note(&format!("{name} with small tables"), result),
            Ok(None) => return,
            Err(error) => println!("{name}: no twin: {error}"),
        }
    }
    for scheme in SCHEMES.iter().filter(|_| !selects()) {
        match cycles::compare_scheme(test, scheme, SEED) {
            Some(Ok(true)) => println!("{}: equal", scheme.name),
            Some(Ok(false)) => println!("{}: no twin", scheme.name),
            Some(Err(found)) => {
                println!("{} differs: {}", scheme.name, start_of(&found));
                wrong.push(scheme.name.to_owned());
            }
            None => return,
        }
    }
    assert!(wrong.is_empty(), "different: {}", wrong.join(", "));
    let least = if selects() { 1 } else { MIN_TWINS };
    assert!(compared >= least, "{compared} pipelines were compared, expected at least {least}");
}
