// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A foreign object on interfaces, in a network namespace of its own.

use std::io;
use std::net::UdpSocket;
use std::process::Command;
use std::time::Instant;

use flowloom_context::locks::CELL_BYTES;
use flowloom_engine::MapState;
use flowloom_isa::{MapDef, MapKind, Member, Sibling, asm};
use flowloom_lower::{LowerOptions, lower};
use flowloom_testkit::{PacketBuilder, require};

use super::lock_places::LockPlace;
use super::*;
use crate::kernel::KernelEngine;
use crate::sys::cpu::Pinned;
use crate::sys::namespace::Namespace;

fn map(name: &str, kind: MapKind, value_bytes: u32) -> MapDef {
    MapDef { name: name.into(), kind, key_bytes: 4, value_bytes, max_entries: 8, ..MapDef::default() }
}

/// Tail-calls a program that counts the packet's first byte and redirects the packet through entry 5 of a device map,
/// which `start` precedes.
fn program(start: &str) -> Program {
    let mut maps = vec![
        map("next", MapKind::ProgArray, 4),
        map("ports", MapKind::Devmap, 4),
        map("seen", MapKind::PerCpuArray, 8),
    ];
    maps[0].members = vec![(0, Member::Program(1))];
    let insns = |text: &str| asm::assemble(text, &maps).unwrap_or_else(|errors| panic!("{errors}\n{text}"));
    let main = insns("r2 = map[next] ll\nr3 = 0\ncall tail_call\nr0 = 2\nexit");
    let send = insns(&format!(
        "{start}
    *(u32 *)(r10 - 4) = 0
    r1 = map[seen] ll
    r2 = r10
    r2 += -4
    call map_lookup_elem
    if r0 == 0 goto out
    r1 = *(u64 *)(r0 + 0)
    r1 += 1
    *(u64 *)(r0 + 0) = r1
    r1 = map[ports] ll
    r2 = 5
    r3 = 1
    call redirect_map
    exit
out: r0 = 2
    exit"
    ));
    let sibling = |name: &str, insns| Sibling { name: name.into(), section: "xdp".into(), insns, ..Sibling::default() };
    let siblings = vec![sibling("main", main.clone()), sibling("send", send)].into();
    let (name, section, license) = ("main".to_owned(), "xdp".to_owned(), "GPL".to_owned());
    Program { name, section, insns: main, maps, license, siblings, ..Program::default() }
}

fn ip(words: &str) -> io::Result<()> {
    let said = Command::new("ip").args(words.split(' ')).output()?;
    if said.status.success() {
        return Ok(());
    }
    Err(io::Error::other(format!("ip {words}: {}", String::from_utf8_lossy(&said.stderr))))
}

/// Two veth pairs whose near ends are ports 1 and 2, in the calling thread's namespace.
fn wires() -> io::Result<()> {
    for (near, far) in [("near1", "far1"), ("near2", "far2")] {
        ip(&format!("link add {near} type veth peer name {far}"))?;
        for device in [near, far] {
            ip(&format!("link set {device} addrgenmode none"))?;
            ip(&format!("link set {device} up"))?;
        }
    }
    ip("addr add 10.0.0.1/24 dev far1")?;
    ip("neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev far1 nud permanent")
}

/// Waits for a condition, for ten seconds at most, whether it is met then or not: on a busy machine, packets are
/// handled a while after they are sent.
fn wait_until(mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(10);
    while !condition() && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The packets received by an interface of the calling thread's namespace.
fn received(device: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    let line = text.lines().find_map(|line| line.trim().strip_prefix(&format!("{device}:")));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

fn started(program: &Program, ports: &[(u32, &str)], state: &Snapshot) -> Result<Live, ExecError> {
    let interfaces: Vec<Interface> =
        ports.iter().map(|(port, name)| Interface::find(*port, name)).collect::<Result<_, _>>()?;
    let description = Description::default();
    let options =
        LiveOptions { mode: Mode::Skb, count: true, clock_ahead_ns: 0, state, description: &description, events: None };
    Live::start(program, &interfaces, options)
}

/// Runs `test` with the veth pairs; the error says why it cannot.
fn on_wires(test: impl FnOnce() + Send) -> Result<(), String> {
    KernelEngine::available().map_err(|reason| reason.to_string())?;
    let mut failed = None;
    let made = Namespace::new(|| {
        wires()?;
        failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(test)).err();
        Ok(())
    });
    // A test that fails is not one that cannot run.
    if let Some(panic) = failed {
        std::panic::resume_unwind(panic);
    }
    made.map(drop).map_err(|error| error.to_string())
}

fn ports(entries: &[(u32, u32)]) -> Snapshot {
    let entries = entries.iter().map(|(key, port)| (key.to_le_bytes().to_vec(), port.to_le_bytes().to_vec()));
    Snapshot { maps: BTreeMap::from([("ports".to_owned(), entries.collect::<MapState>())]), ..Snapshot::default() }
}

#[test]
fn a_foreign_object_sends_by_the_ports_of_its_state() {
    require!(on_wires(|| {
        let send = |count: u64| {
            let socket = UdpSocket::bind("10.0.0.1:0").expect("an address of far1");
            let sent = (0..count).filter(|_| socket.send_to(b"flow", "10.0.0.2:9").is_ok()).count();
            assert_eq!(sent as u64, count);
        };
        let counted = |live: &Live, verdict: Verdict| {
            live.verdicts().expect("readable").expect("counted")[verdict.number() as usize]
        };
        // Entry 5 is port 2; entry 1 a port without an interface.
        let state = ports(&[(5, 2), (1, 77)]);
        let live =
            started(&program(""), &[(1, "near1"), (2, "near2")], &state).unwrap_or_else(|error| panic!("{error}"));
        let before = received("far2");
        send(5);
        wait_until(|| received("far2") - before >= 5);
        assert_eq!(received("far2") - before, 5);
        let found = live.snapshot(|_| true).expect("readable");
        assert_eq!(found.maps["ports"], state.maps["ports"]);
        assert_eq!(found.maps["next"], MapState::from([(vec![0; 4], vec![1, 0, 0, 0])]));
        assert!(counted(&live, Verdict::Redirect) >= 5, "{:?}", live.verdicts());
        drop(live);
        // By default each port is at its number, and 5 is not bound. A process that another test is about to start may
        // hold the link a moment longer.
        let start = || started(&program(""), &[(1, "near1"), (2, "near2")], &Snapshot::default());
        let mut live = start();
        wait_until(|| {
            if live.is_err() {
                live = start();
            }
            live.is_ok()
        });
        let live = live.unwrap_or_else(|error| panic!("{error}"));
        let before = received("far2");
        send(3);
        wait_until(|| counted(&live, Verdict::Drop) >= 3);
        assert!(counted(&live, Verdict::Drop) >= 3, "{:?}", live.verdicts());
        assert_eq!(received("far2"), before);
        assert!(!live.snapshot(|_| true).expect("readable").maps.contains_key("ports"));
    }));
}

#[test]
fn programs_that_interfaces_share_cannot_ask_for_their_port() {
    require!(on_wires(|| {
        let asks = program("r6 = *(u32 *)(r1 + 12)");
        let nothing = Snapshot::default();
        let error = started(&asks, &[(1, "near1"), (2, "near2")], &nothing).expect_err("two ports").to_string();
        assert!(error.contains("program `send` is a tail call target and reads its port"), "{error}");
        drop(started(&asks, &[(1, "near1")], &nothing).unwrap_or_else(|error| panic!("{error}")));
    }));
}

/// Counts the packets of each source; `first` is an element before.
fn counting(first: &str) -> Program {
    let text = format!(
        "function f; {first} stateful hosts {{ key ip.src; states seen; reg n: u64; on seen stay {{ n += 1; pass; }} \
         otherwise {{ pass; }} }}"
    );
    let (function, _) = flowloom_efsm::compile("f.efsm", &text, &[]).unwrap_or_else(|e| panic!("{:?}", e.list));
    lower(&function, &LowerOptions { counters: false, attached: true, ..LowerOptions::default() }).expect("lowers")
}

/// The element that [`counting`] puts first: the locks of `hosts` are elsewhere then.
const BEFORE: &str = "stateful targets { key ip.dst; states seen; reg n: u64; on seen stay { n += 1; goto hosts; } otherwise { pass; } }";

/// The numbers of the table `hosts` in two programs.
fn hosts(new: &Program, old: &Program) -> [(usize, usize); 1] {
    let index = |program: &Program| program.map_index("hosts").expect("a table");
    [(index(new), index(old))]
}

fn packet() -> Vec<u8> {
    PacketBuilder::new().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1, 2).payload(&[0; 18]).build()
}

fn options<'a>(state: &'a Snapshot, description: &'a Description) -> LiveOptions<'a> {
    LiveOptions { mode: Mode::Skb, count: true, clock_ahead_ns: 0, state, description, events: None }
}

/// The packets of all sources.
fn counted(found: &Snapshot) -> u64 {
    let program = counting("");
    let layout = program.maps[program.map_index("hosts").expect("a table")].layout.clone().expect("a layout");
    let at = layout.fields.iter().find(|field| field.name == "n").expect("a counter").offset_bytes as usize;
    let count = |record: &Vec<u8>| u64::from_le_bytes(*record[at..].first_chunk().expect("8 bytes"));
    found.maps["hosts"].values().map(count).sum()
}

#[test]
fn packets_of_both_programs_lock_contexts_by_the_same_cells() {
    require!(on_wires(|| {
        let interfaces = [Interface::find(1, "near1").expect("an interface")];
        let (old, new) = (counting(""), counting(BEFORE));
        let (state, description) = (Snapshot::default(), Description::default());
        let first = Loaded::new(&old, &interfaces, options(&state, &description), None).expect("loads");
        let kept = hosts(&new, &old);
        let second = Loaded::new(&new, &interfaces, options(&state, &description), Some((&first.estate, &kept)));
        let second = second.expect("loads");
        assert!(second.differing.is_empty());
        let until = Instant::now() + Duration::from_millis(400);
        let runs = std::thread::scope(|scope| {
            let threads: Vec<_> = [&first, &second]
                .into_iter()
                .enumerate()
                .map(|(cpu, loaded)| {
                    let program = loaded.program(0);
                    scope.spawn(move || {
                        let _pinned = Pinned::to(cpu as u32).expect("a CPU");
                        let (packet, mut runs) = (packet(), 0);
                        while Instant::now() < until {
                            // One at a time: for more, the kernel makes the program that of its dispatcher first, which
                            // waits until no other program runs (`bpf_prog_change_xdp`).
                            program.test_run(&packet, &mut [], 1).expect("runs");
                            runs += 1;
                        }
                        runs
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().expect("no panic")).sum::<u64>()
        });
        let found = state::snapshot(&second.maps).expect("readable");
        let verdicts = second.verdicts().expect("readable").expect("counted");
        let [passed, aborted] = [Verdict::Pass, Verdict::Aborted].map(|verdict| verdicts[verdict.number() as usize]);
        // A packet waits in vain for a CPU that the host stops for long while a packet there has the lock.
        assert_eq!((found.maps["hosts"].len(), counted(&found), passed + aborted), (1, passed, runs));
        // A wait in vain is 250 ms long, or eight million rounds where the kernel counts them: there is time for few.
        assert!(aborted <= 30, "{passed} of {runs} packets passed, {aborted} were aborted");
        // While a packet of the old program would hold the lock of the context, those of the new one wait in vain.
        let place = LockPlace::of(&old, kept[0].1).expect("locks");
        let mut cells = old.maps[place.map].initial.clone().expect("data");
        let cell = |at: u32| (place.locks.offset_bytes + at * CELL_BYTES) as usize;
        (0..place.locks.cells).for_each(|at| cells[cell(at)] = 1);
        first.estate.raw[place.map].update(&[0; 4], &cells).expect("data");
        for loaded in [&first, &second] {
            let ran = loaded.program(0).test_run(&packet(), &mut [], 1).expect("runs");
            assert_eq!(Verdict::from_number(ran.verdict), Verdict::Aborted);
        }
        assert_eq!(counted(&state::snapshot(&second.maps).expect("readable")), passed);
    }));
}

/// Packets of two programs that lock two tables in opposite orders would wait for each other.
#[test]
fn tables_in_another_order_share_no_more_than_one_lock() {
    require!(on_wires(|| {
        let interfaces = [Interface::find(1, "near1").expect("an interface")];
        let table = |name: &str, key: &str, next: &str| {
            format!(
                "stateful {name} {{ key {key}; states seen; reg n: u64; on seen stay {{ n += 1; {next}; }} otherwise {{ pass; }} }}"
            )
        };
        let function = |parts: [String; 2]| {
            let text = format!("function f; {}", parts.join(" "));
            let (function, _) = flowloom_efsm::compile("f.efsm", &text, &[]).unwrap_or_else(|e| panic!("{:?}", e.list));
            lower(&function, &LowerOptions { counters: false, attached: true, ..LowerOptions::default() })
                .expect("lowers")
        };
        let there = function([table("hosts", "ip.src", "goto targets"), table("targets", "ip.dst", "pass")]);
        let back = function([table("targets", "ip.dst", "goto hosts"), table("hosts", "ip.src", "pass")]);
        let (state, description) = (Snapshot::default(), Description::default());
        let first = Loaded::new(&there, &interfaces, options(&state, &description), None).expect("loads");
        for (new, differing) in [(&there, &[][..]), (&back, &["hosts".to_owned()][..])] {
            let index = |program: &Program, name| program.map_index(name).expect("a table");
            let kept = ["hosts", "targets"].map(|name| (index(new, name), index(&there, name)));
            let next = Loaded::new(new, &interfaces, options(&state, &description), Some((&first.estate, &kept)));
            assert_eq!(next.expect("loads").differing, differing);
        }
    }));
}

#[test]
fn a_successor_keeps_tables_and_counts_and_a_refused_one_changes_nothing() {
    require!(on_wires(|| {
        let passed = |live: &Live| live.verdicts().expect("readable").map(|all| all[Verdict::Pass.number() as usize]);
        // Sends a packet, and waits until this number has been counted.
        let send = |live: &Live, expected: u64| {
            let socket = UdpSocket::bind("10.0.0.1:0").expect("an address of far1");
            assert!(socket.send_to(b"flow", "10.0.0.2:9").is_ok());
            // A packet's verdict is counted last.
            wait_until(|| passed(live).is_some_and(|passed| passed >= expected));
        };
        let (state, description) = (Snapshot::default(), Description::default());
        let (old, new) = (counting(""), counting(BEFORE));
        let mut live = started(&old, &[(1, "near1"), (2, "near2")], &state).unwrap_or_else(|error| panic!("{error}"));
        send(&live, 1);
        let prepare = |live: &Live, new: &Program, old: &Program| {
            live.handover().prepare(new, &hosts(new, old), options(&state, &description)).expect("loads")
        };
        let first = prepare(&live, &new, &old);
        assert_eq!(first.kept(), [("hosts".to_owned(), 1)]);
        let other = prepare(&live, &new, &old);
        live.replace(first).expect("replaced");
        send(&live, 2);
        assert_eq!(counted(&live.snapshot(|_| true).expect("readable")), 2);
        // It was prepared for a program that is not there any longer.
        let Err(error) = live.replace(other) else { panic!("another program runs") };
        let error = error.to_string();
        assert!(error.contains("it was prepared for one that has been replaced since"), "{error}");
        // And back: the locks come from the first program still.
        let back = prepare(&live, &old, &new);
        live.replace(back).expect("replaced");
        send(&live, 3);
        let found = live.snapshot(|_| true).expect("readable");
        assert_eq!((counted(&found), passed(&live), live.disappeared().len()), (3, Some(3), 0));
    }));
}
