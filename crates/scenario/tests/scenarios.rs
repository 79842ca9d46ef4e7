// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scenario files with errors and with mismatches, compared with goldens; arbitrary text does not panic.
//! `FLOWLOOM_BLESS=1` writes the goldens.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowloom_efsm::model::Function;
use flowloom_efsm::{Machine, compile};
use flowloom_isa::asm;
use flowloom_isa::btf::{Form, Shape};
use flowloom_lower::{LowerOptions, lower};
use flowloom_object::MapShape;
use flowloom_scenario::{Played, Script, Suite, Tables, play};
use flowloom_testkit::{Rng, golden};
use flowloom_vm::Interpreter;
use miette::{GraphicalReportHandler, GraphicalTheme};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

fn render(diagnostic: &dyn miette::Diagnostic) -> String {
    let mut text = String::new();
    let handler =
        GraphicalReportHandler::new_themed(GraphicalTheme::unicode_nocolor()).with_width(110).with_links(false);
    handler.render_report(&mut text, diagnostic).unwrap();
    text.lines().map(|line| line.trim_end().to_owned() + "\n").collect()
}

fn compiled(text: &str) -> Arc<Function> {
    Arc::new(compile("a.efsm", text, &[]).unwrap_or_else(|e| panic!("{:?}", e.list)).0)
}

fn parsed(text: &str) -> Suite {
    Suite::parse("a.scenario", text).unwrap_or_else(|e| panic!("{:?}\n{text}", e.list))
}

fn of_program(suite: &Suite, tables: &Arc<Tables>) -> Script {
    Script::of_program(suite, &suite.scenarios()[0], tables).unwrap_or_else(|e| panic!("{:?}", e.list))
}

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).unwrap()
}

/// A function that uses all features that scenarios can check.
fn function() -> Arc<Function> {
    compiled(&read(folder().join("counting.efsm")))
}

fn files(extension: &str) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension() == Some(extension.as_ref()))
        .collect();
    files.sort();
    files
}

/// The full output for a file: errors, or mismatches of the machine.
fn diagnose(name: &str, text: &str, function: &Arc<Function>) -> String {
    let suite = match Suite::parse(name, text) {
        Ok(suite) => suite,
        Err(errors) => return render(&errors),
    };
    let mut said = String::new();
    for scenario in suite.scenarios() {
        match Script::new(&suite, scenario, function) {
            Err(errors) => said.push_str(&render(&errors)),
            Ok(script) => {
                let played = play(&script, &mut Machine::new(Arc::clone(function)), None).unwrap();
                said.push_str(&format!("scenario \"{}\", {} packets\n", scenario.name(), script.packets()));
                played.mismatches.iter().for_each(|mismatch| said.push_str(&mismatch.to_string()));
            }
        }
    }
    said
}

#[test]
fn errors_and_mismatches_equal_their_goldens() {
    let function = function();
    let files = files("scenario");
    assert!(files.len() >= 4, "{files:?}");
    for path in files {
        let name = path.file_name().unwrap().to_str().unwrap();
        golden(path.with_extension("txt"), &diagnose(name, &read(&path), &function));
    }
}

fn script(function: &Arc<Function>, body: &str) -> Script {
    let suite = parsed(&format!("scenario \"a\"\n{body}"));
    Script::new(&suite, &suite.scenarios()[0], function).unwrap_or_else(|e| panic!("{:?}", e.list))
}

/// Packets of a function that logs must log what the scenario states.
#[test]
fn logs_are_expected() {
    let text = r#"function speaks;
        stateful flows {
            key ip.src;
            states quiet;
            reg n: u32;
            reg delta: i16;
            on quiet when l4.dport == 9 { n += 1; delta -= 3; log("seen", ip.src, n, delta, old(n)); alert("nine", eth.src); pass; }
            on quiet { n += 1; drop; }
        }"#;
    let function = compiled(text);
    let packet = "udp 10.0.0.1:7 > 10.0.0.2:9 -> pass";
    let all = r#"-> log "seen" with n = 1, delta = -3, ip.src = 10.0.0.1, "old(n)" = 0 -> alert "nine""#;
    for (rest, expected) in [
        (all, ""),
        (r#"-> log "seen" -> alert "nine""#, ""),
        ("", r#"unexpected log "seen" with ip.src = 10.0.0.1, n = 1, delta = -3, old(n) = 0"#),
        (r#"-> log "seen""#, r#"unexpected alert "nine" with eth.src = "#),
        (r#"-> alert "nine" -> log "seen""#, r#"expected alert "nine", found log "seen""#),
        (r#"-> log "seen" -> alert "nine" -> log "more""#, r#"expected log "more", found no report"#),
        (r#"-> log "seen" with n = 2 -> alert "nine""#, r#"log "seen": expected n = 2, found 1"#),
        (r#"-> log "seen" with delta = 3 -> alert "nine""#, r#"log "seen": expected delta = 3, found -3"#),
        (r#"-> log "seen" with ip.src = 10.0.0.2 -> alert "nine""#, "expected ip.src = 10.0.0.2, found 10.0.0.1"),
        (r#"-> log "seen" with m = 2 -> alert "nine""#, "has no value `m`; its values: ip.src, n, delta, old(n)"),
    ] {
        let played = on_machine(&function, &format!("{packet} {rest}"));
        let details = played.mismatches.iter().flat_map(|m| &m.details).cloned().collect::<Vec<_>>().join("\n");
        assert_eq!(played.passed(), expected.is_empty(), "{rest}: {details}");
        assert!(details.contains(expected), "{rest}: {details}");
        // The interpreter agrees, and a deviation from the reference is reported.
        let program = lower(&function, &LowerOptions::default()).unwrap();
        let mut interp = Interpreter::new(Arc::new(program)).unwrap();
        let script = script(&function, &format!("{packet} {rest}"));
        let found = play(&script, &mut interp, Some(&played)).unwrap();
        assert_eq!(found.mismatches, played.mismatches, "{rest}");
    }
}

fn on_machine(function: &Arc<Function>, body: &str) -> Played {
    play(&script(function, body), &mut Machine::new(Arc::clone(function)), None).unwrap()
}

/// Each first line holds, and the second does not.
#[test]
fn passing_and_failing_expectations_are_reported() {
    let function = function();
    let start = "at 5s udp 10.0.0.1:7 > 10.0.0.2:9 data 4 -> forward 2 with ip.ttl = 63\n";
    let cases = [
        ("state flows 10.0.0.1, 10.0.0.2 is warm, packets = 1", "state flows 10.0.0.1, 10.0.0.2 is warm, packets = 2"),
        ("state flows 10.0.0.2, 10.0.0.1 is warm", "state flows 10.0.0.2, 10.0.0.1 is cold"),
        ("state flows of udp 10.0.0.2:1 > 10.0.0.1:2 is warm", "no state flows of udp 10.0.0.2:1 > 10.0.0.1:2"),
        ("no state flows 10.0.0.1, 10.0.0.3", "state flows 10.0.0.1, 10.0.0.3 is cold"),
        ("contexts flows is 1", "contexts flows is 2"),
        ("global flows.total is 1", "global flows.total is 0"),
        (
            "state flows 10.0.0.1, 10.0.0.2 is warm, balance = -46",
            "state flows 10.0.0.1, 10.0.0.2 is warm, balance = 46",
        ),
        ("wait 9999ms\nstate flows 10.0.0.1, 10.0.0.2 is warm", "wait 10s\nstate flows 10.0.0.1, 10.0.0.2 is warm"),
        ("wait 10s\nsweep\ncontexts flows is 0", "wait 10s\nsweep\ncontexts flows is 1"),
        ("udp 10.0.0.1:7 > 10.0.0.2:9 ttl 1 -> drop", "udp 10.0.0.1:7 > 10.0.0.2:9 ttl 1 -> pass"),
        ("udp 10.0.0.1:7 > 10.0.0.2:9 ttl 1 -> any", "udp 10.0.0.1:7 > 10.0.0.2:9 ttl 2 -> any -> drop"),
        (
            "port 2 udp 10.0.0.5:7 > 10.0.0.6:9 ttl 9 -> reply with ip.ttl = 8",
            "port 2 udp 10.0.0.5:7 > 10.0.0.6:9 ttl 9 -> forward 2 with ip.ttl = 8",
        ),
        ("arp request 10.0.0.1 > 10.0.0.2 -> flood", "arp request 10.0.0.1 > 10.0.0.2 -> forward 3"),
        ("tcp 10.0.0.1:7 > 10.0.0.2:9 -> forward 2 with ip.ttl = any", "tcp 10.0.0.1:7 > 10.0.0.2:9 -> forward 2"),
        (
            "tcp 10.0.0.1:7 > 10.0.0.2:9 -> forward 2 as tcp 10.0.0.1:7 > 10.0.0.2:9 ttl 63",
            "tcp 10.0.0.1:7 > 10.0.0.2:9 -> forward 2 as tcp 10.0.0.1:7 > 10.0.0.2:9 ttl 64",
        ),
        (
            "repeat 3 every 4s as n { udp 10.0.0.1 + n:7 > 10.0.0.2:9 + n -> forward 2 with ip.ttl = 63 }\ncontexts flows is 3",
            "repeat 3 every 4s as n { udp 10.0.0.1 + n:7 > 10.0.0.2:9 + n -> forward 2 with ip.ttl = 63 + n % 2 }\ncontexts flows is 2",
        ),
    ];
    for (holds, fails) in cases {
        let played = on_machine(&function, &format!("{start}{holds}"));
        assert!(played.passed(), "{holds}: {:#?}", played.mismatches);
        let suite = parsed(&format!("scenario \"a\"\n{start}{fails}"));
        match Script::new(&suite, &suite.scenarios()[0], &function) {
            Ok(script) => {
                let played = play(&script, &mut Machine::new(Arc::clone(&function)), None).unwrap();
                let is_placed = played.mismatches.iter().all(|m| m.line >= 3 && !m.details.is_empty());
                assert!(!played.passed() && is_placed, "{fails}: {:#?}", played.mismatches);
            }
            Err(errors) => assert!(fails.contains("-> any -> drop"), "{fails}: {:?}", errors.list),
        }
    }
}

/// An engine that runs another function is detected, even if the scenario leaves the outcome open.
#[test]
fn engines_are_compared_with_the_machine() {
    // The interpreter does not support floods.
    let text = read(folder().join("counting.efsm")).replace("flood;", "pass;");
    let right = compiled(&text);
    let script = script(&right, "repeat 3 { udp 10.0.0.1:7 > 10.0.0.2:9 -> any }");
    let reference = play(&script, &mut Machine::new(Arc::clone(&right)), None).unwrap();
    assert!(reference.passed());
    for (from, to, said) in [
        ("packets += 1;", "packets += 1;", None),
        ("forward(2);", "forward(3);", Some("found: REDIRECT by port 3")),
        ("ip.ttl -= 1;", "ip.ttl -= 2;", Some("ipv4.ttl: expected 63, found 62")),
        ("packets += 1;", "packets += 2;", Some("packets expected 3, found 6")),
    ] {
        assert!(text.contains(from), "{from}");
        let program = lower(&compiled(&text.replace(from, to)), &LowerOptions::default()).unwrap();
        let played = play(&script, &mut Interpreter::new(Arc::new(program)).unwrap(), Some(&reference)).unwrap();
        let all: String = played.mismatches.iter().map(ToString::to_string).collect();
        match said {
            None => assert_eq!(all, ""),
            Some(said) => assert!(all.contains(said), "{from} -> {to}: {all}"),
        }
    }
}

/// Counts packets of a port; writes the fields after the count only once.
const PROGRAM: &str = "
.program count
.map seen hash key 8 value 24 entries 2
.map config array key 4 value 4 entries 2
        r6 = *(u32 *)(r1 + 12)
        *(u32 *)(r10 - 8) = r6
        r1 = 8
        *(u32 *)(r10 - 4) = r1
        r2 = r10
        r2 += -8
        r1 = map[seen] ll
        call map_lookup_elem
        if r0 == 0 goto new
        r1 = *(u64 *)(r0 + 0)
        r1 += 1
        *(u64 *)(r0 + 0) = r1
        r0 = 2
        exit
new:    r1 = 1
        *(u64 *)(r10 - 32) = r1
        r1 = -5
        *(u32 *)(r10 - 24) = r1
        r1 = 0x0100000a
        *(u32 *)(r10 - 20) = r1
        r1 = 0x0000060504030202 ll
        *(u64 *)(r10 - 16) = r1
        r3 = r10
        r3 += -32
        r2 = r10
        r2 += -8
        r1 = map[seen] ll
        r4 = 0
        call map_update_elem
        r0 = 2
        exit
";

fn count_tables() -> (flowloom_isa::Program, Arc<Tables>) {
    let number = |size_bytes, signed, network| Shape { size_bytes, form: Form::Number { signed, network } };
    let members = |size_bytes, list: Vec<(&str, usize, Shape)>| Shape {
        size_bytes,
        form: Form::Members(list.into_iter().map(|(name, at, shape)| (name.to_owned(), at, shape)).collect()),
    };
    let key = members(8, vec![("port", 0, number(4, false, false)), ("type", 4, number(2, false, true))]);
    let mac = Shape { size_bytes: 6, form: Form::Array(Box::new(number(1, false, false)), 6) };
    let next = members(12, vec![("addr", 0, number(4, false, true)), ("mac", 4, mac)]);
    let value = vec![("packets", 0, number(8, false, false)), ("delta", 8, number(4, true, false)), ("next", 12, next)];
    let shape = MapShape { key, value: members(24, value) };
    let program = asm::program("count.bpf", PROGRAM).unwrap();
    let tables = Tables::new(&program, &[("seen".to_owned(), shape)].into());
    (program, Arc::new(tables))
}

/// Each first line about a map holds, and the second does not.
#[test]
fn maps_are_compared_by_part() {
    let (program, tables) = count_tables();
    let start = "set seen 7, 0x0800 to packets = 41, next.mac = 02:00:00:00:00:09\nset config 1 to 5\n\
                 port 3 udp 10.0.0.1:7 > 10.0.0.2:9 -> pass\nport 7 udp 10.0.0.1:7 > 10.0.0.2:9 -> pass\n";
    let cases = [
        ("map seen 3, 0x800 is 1", "map seen 3, 0x800 is 2"),
        ("map seen 3, 0x800 is packets = 1, delta = -5", "map seen 3, 0x800 is packets = 1, delta = 5"),
        (
            "map seen 3, 0x800 is 1, -5, 10.0.0.1, 02:02:03:04:05:06",
            "map seen 3, 0x800 is 1, -5, 10.0.0.1, 02:02:03:04:05:07",
        ),
        ("map seen 3, 0x800 is next.addr = 10.0.0.1", "map seen 3, 0x800 is next.addr = 10.0.0.2"),
        (
            "map seen 3, 0x800 is next.mac = bytes 0x020203040506",
            "map seen 3, 0x800 is next.mac = bytes 0x020203040507",
        ),
        ("map seen 3, 0x800 is next.mac[5] = 6", "map seen 3, 0x800 is next.mac[5] = 7"),
        ("map seen 7, 0x800 is 42, 0, 0.0.0.0, 02:00:00:00:00:09", "map seen 7, 0x800 is 41"),
        ("no map seen 4, 0x800", "no map seen 3, 0x800"),
        ("no map seen 3, 8", "map seen 3, 8 is 1"),
        ("entries seen is 2", "entries seen is 3"),
        ("map config 1 is 5", "map config 0 is 5"),
    ];
    for (holds, fails) in cases {
        for (line, is_right) in [(holds, true), (fails, false)] {
            let script = of_program(&parsed(&format!("scenario \"a\"\n{start}{line}")), &tables);
            let played = play(&script, &mut Interpreter::new(Arc::new(program.clone())).unwrap(), None).unwrap();
            assert_eq!(played.passed(), is_right, "{line}: {:#?}", played.mismatches);
        }
    }
}

#[test]
fn errors_in_map_expectations_equal_their_goldens() {
    let (_, tables) = count_tables();
    let path = folder().join("maps.scenario.wrong");
    let suite = Suite::parse("maps.scenario", &read(path)).unwrap_or_else(|e| panic!("{:?}", e.list));
    let errors = Script::of_program(&suite, &suite.scenarios()[0], &tables).expect_err("every line is wrong");
    golden(folder().join("maps.txt"), &render(&errors));
}

/// The self-contained examples of the chapter are valid.
#[test]
fn examples_of_the_book_parse() {
    let text = read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src/scenarios.md"));
    let source = "function book;\nparam out: port;\nstateful knock { key ip.src; states closed, first, third; on closed { drop; } }\n\
                  stateful flows { key 5-tuple; states small, big; reg packets: u32; global total: u64; on small { drop; } }\n";
    let function = compiled(source);
    let mut examples = 0;
    for kind in ["scenario", "scenario,packets", "scenario,state"] {
        for block in text.split(&format!("```{kind}\n")).skip(1) {
            let head = if kind == "scenario" { "" } else { "scenario \"a\"\n" };
            let whole = format!("{head}{}", block.split("```").next().unwrap());
            let suite = parsed(&whole);
            for scenario in suite.scenarios() {
                Script::new(&suite, scenario, &function).unwrap_or_else(|e| panic!("{:?}\n{whole}", e.list));
            }
            examples += 1;
        }
    }
    let (_, tables) = count_tables();
    for block in text.split("```scenario,maps\n").skip(1) {
        let whole = format!("scenario \"a\"\n{}", block.split("```").next().unwrap());
        of_program(&parsed(&whole), &tables);
        examples += 1;
    }
    assert!(examples >= 6, "{examples}");
}

#[test]
fn the_parser_never_panics() {
    let function = function();
    let (program, tables) = count_tables();
    let program = Arc::new(program);
    let mut texts: Vec<String> = files("scenario").iter().map(read).collect();
    let functions = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../functions");
    for name in ["port_knocking", "big_flow"] {
        texts.push(read(functions.join(format!("{name}/{name}.scenario"))));
    }
    // Texts about maps.
    let maps = read(folder().join("maps.scenario.wrong"));
    let right = "scenario \"right\"\nset seen 7, 0x0800 to packets = 41, next.mac[2] = 9, next.addr = 10.0.0.1\n\
                 udp 10.0.0.1:7 > 10.0.0.2:9 -> pass\nmap seen 1, 0x0800 is 1, delta = -5\nno map seen 2, 1\nentries seen is 2\n";
    for _ in 0..3 {
        texts.extend([maps.clone(), right.to_owned()]);
    }
    let parts: Vec<&str> = texts.iter().flat_map(|text| text.split_inclusive([' ', '\n', ':', ','])).collect();
    let mut rng = Rng::from_env(0x7363_656e);
    let (mut read, mut refused, mut about_maps) = (0, 0, 0);
    for round in 0..1500 {
        let text = rng.pick(&texts);
        let mut pieces: Vec<&str> = text.split_inclusive([' ', '\n', ':', ',']).collect();
        for _ in 0..1 + rng.below(4) {
            if pieces.is_empty() {
                break;
            }
            let at = rng.below(pieces.len());
            match rng.below(4) {
                0 => drop(pieces.remove(at)),
                1 => pieces.insert(at, *rng.pick(&parts)),
                2 => pieces[at] = *rng.pick(&parts),
                _ => pieces.truncate(at + 1),
            }
        }
        let mut text: String = pieces.concat();
        if round % 7 == 0 {
            let at = rng.below(text.len() + 1);
            let at = (0..=at).rev().find(|&at| text.is_char_boundary(at)).unwrap();
            let odd = "\u{0} é \" 0x [[[[ { } -> %0 *18446744073709551615 999999999999999999999m";
            let odd: Vec<&str> = odd.split(' ').collect();
            text.insert_str(at, odd[rng.below(odd.len())]);
        }
        match Suite::parse("random", &text) {
            Err(errors) => {
                refused += 1;
                let _ = render(&errors);
            }
            Ok(suite) => {
                for scenario in suite.scenarios() {
                    match Script::of_program(&suite, scenario, &tables) {
                        Err(errors) => drop(render(&errors)),
                        Ok(script) if script.packets() < 500 => {
                            about_maps += 1;
                            let mut interp = Interpreter::new(Arc::clone(&program)).unwrap();
                            // Entries that do not fit the maps are an error of the engine.
                            if let Ok(played) = play(&script, &mut interp, None) {
                                let _: String = played.mismatches.iter().map(ToString::to_string).collect();
                            }
                        }
                        Ok(_) => {}
                    }
                    match Script::new(&suite, scenario, &function) {
                        Err(errors) => {
                            refused += 1;
                            let _ = render(&errors);
                        }
                        Ok(script) if script.packets() < 500 => {
                            read += 1;
                            let played = play(&script, &mut Machine::new(Arc::clone(&function)), None).unwrap();
                            let _: String = played.mismatches.iter().map(ToString::to_string).collect();
                        }
                        Ok(_) => {}
                    }
                }
            }
        }
    }
    println!("{read} read, {refused} refused, {about_maps} read about maps");
    assert!(read > 250 && refused > 250 && about_maps > 150, "{read} read, {refused} refused, {about_maps} about maps");
}
