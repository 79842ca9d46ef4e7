// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The formatter on all sources of the repository: it changes only white space, and is idempotent.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout)]

use crate::common;

use std::path::PathBuf;

use flowloom_efsm::{MAX_COLUMNS, compile, format};
use flowloom_testkit::Rng;

/// Every `.efsm` file of the repository.
fn sources() -> Vec<(PathBuf, String)> {
    ["../../corpus", "../../crates", "../../functions"].into_iter().flat_map(flowloom_testkit::sources).collect()
}

/// Formats a text, and asserts that formatting again changes nothing.
fn formatted(name: &str, text: &str) -> String {
    let once = format(name, text).unwrap_or_else(|e| panic!("{name}: {:?}\n{text}", e.list[0].message));
    assert_eq!(format(name, &once).unwrap(), once, "{name}: formatting twice changes something\n{text}");
    once
}

/// The text without comments.
fn bare(text: &str) -> String {
    text.lines().map(|line| line.split('#').next().unwrap().to_owned() + "\n").collect()
}

#[test]
fn formatting_preserves_the_model() {
    let (mut count, mut compiled) = (0, 0);
    for (path, text) in sources() {
        let name = path.display().to_string();
        if format(&name, &text).is_err() {
            assert!(compile(&name, &text, &[]).is_err(), "{name} compiles and cannot be formatted");
            continue;
        }
        count += 1;
        let once = formatted(&name, &text);
        let (before, after) = (compile(&name, &text, &[]), compile(&name, &once, &[]));
        match (before, after) {
            (Ok((before, _)), Ok((after, _))) => {
                compiled += 1;
                assert_eq!(common::without_spans(&before), common::without_spans(&after), "{name}");
            }
            (Err(before), Err(after)) => {
                let messages = |list: &[flowloom_efsm::Diagnostic]| {
                    list.iter().filter(|d| !d.is_warning).map(|d| d.message.clone()).collect::<Vec<_>>()
                };
                assert_eq!(messages(&before.list), messages(&after.list), "{name}");
            }
            _ => panic!("{name} compiles before or after, not both"),
        }
    }
    println!("{count} sources formatted, {compiled} of them right");
    assert!(count >= 20 && compiled >= 12, "{count} {compiled}");
}

#[test]
fn formatting_ignores_input_white_space() {
    let mut count = 0;
    for (path, text) in sources() {
        // A comment ends at its line end, so only a source without comments can be joined to one line.
        let bare = bare(&text);
        let words: Vec<&str> = bare.split_whitespace().collect();
        let name = path.display().to_string();
        let Ok(expected) = format(&name, &words.join(" ")) else { continue };
        count += 1;
        assert_eq!(format(&name, &words.join("\t  ")).unwrap(), expected, "{name}");
        let long = expected.lines().filter(|line| line.chars().count() > MAX_COLUMNS).count();
        assert_eq!(long, 0, "{name}: lines above {MAX_COLUMNS} columns\n{expected}");
        formatted(&name, &words.join("\n\n\n"));
        let comments = formatted(&name, &words.join(" # c\n # d\n\n"));
        assert_eq!(comments.matches("# c").count(), words.len().saturating_sub(1), "{name}");
    }
    assert!(count >= 20, "{count}");
}

/// Joins tokens with random white space and comments.
fn scattered(rng: &mut Rng, words: &[&str]) -> String {
    let blanks = [" ", " ", " ", "  ", "\t", "\n", "\n    ", "\r\n", "\n\n\n"];
    let comments = [" # one\n", "\n   # two\n\n", "\n#three\n# four\n"];
    let gaps = [&blanks[..], &comments].concat();
    let mut text = String::new();
    for word in words {
        text.push_str(word);
        text.push_str(rng.pick::<&str>(&gaps));
    }
    text
}

#[test]
fn formatting_is_idempotent_for_every_layout() {
    let mut rng = Rng::from_env(0x5eed);
    let sources = sources();
    let mut count = 0;
    for _ in 0..400 {
        let (path, text) = &sources[rng.below(sources.len())];
        let name = path.display().to_string();
        if format(&name, text).is_err() {
            continue;
        }
        let bare = bare(text);
        // This also splits `//` and quoted text; sources with blanks there cannot be formatted and were skipped.
        let words: Vec<&str> = bare.split_whitespace().collect();
        let once = formatted(&name, &scattered(&mut rng, &words));
        assert!(once.lines().all(|line| line.trim_end() == line && !line.contains('\t')), "{once}");
        assert!(!once.contains("\n\n\n"), "{once}");
        if let (Ok((before, _)), Ok((after, _))) = (compile(&name, &bare, &[]), compile(&name, &once, &[])) {
            assert_eq!(common::without_spans(&before), common::without_spans(&after), "{name}");
            count += 1;
        }
    }
    assert!(count >= 100, "{count}");
}

/// A random value, as source text.
fn value(rng: &mut Rng, depth: usize) -> String {
    let leaves = ["a", "ip.src", "5", "0x1f", "10.0.0.1", "2001:db8::1", "02:00:00:00:00:01", "10ms", "now", "h.key"];
    if depth == 0 || rng.chance(1, 3) {
        return (*rng.pick(&leaves)).to_owned();
    }
    let (left, right) = (value(rng, depth - 1), value(rng, depth - 1));
    match rng.below(6) {
        0 => format!("- {left}"),
        1 => format!("~ {left}"),
        2 => format!("( {left} )"),
        3 => format!("ewma ( {left} , {right} , 3 )"),
        _ => format!("{left} {} {right}", rng.pick(&["+", "-", "*", "&", "|", "^", "<<", ">>"])),
    }
}

fn condition(rng: &mut Rng) -> String {
    let left = value(rng, 2);
    match rng.below(6) {
        0 => format!("{left} in {} .. {}", value(rng, 0), value(rng, 0)),
        1 => format!("{left} in 10.0.0.0 / 8"),
        2 => format!("{left} in {{ {} , {} }}", value(rng, 1), value(rng, 1)),
        3 => format!("! ( {left} {} {} )", rng.pick(&["before", "after"]), value(rng, 1)),
        4 => format!("! {left}"),
        _ => format!("{left} {} {}", rng.pick(&["==", "!=", "<", "<=", ">", ">="]), value(rng, 2)),
    }
}

fn statement(rng: &mut Rng) -> String {
    let header = |rng: &mut Rng| format!("ipv4 ( src = {} , dst = {} )", value(rng, 1), value(rng, 1));
    match rng.below(6) {
        0 => format!("push vlan ( id = {} ) ;", value(rng, 1)),
        1 => format!("encap {} / udp / gtpu ( teid = {} ) ;", header(rng), value(rng, 1)),
        2 => format!("emit ( {} ) eth ( dst = {} ) / {} / udp ( ) ;", value(rng, 1), value(rng, 1), header(rng)),
        3 => format!("forward ( {} ) ;", value(rng, 1)),
        _ => format!("{} {} {} ;", rng.pick(&["a", "ip.ttl"]), rng.pick(&["=", "+=", "<<="]), value(rng, 3)),
    }
}

fn row(rng: &mut Rng) -> String {
    let conditions: Vec<String> = (0..1 + rng.below(5)).map(|_| condition(rng)).collect();
    let next = *rng.pick(&["", "stay", "-> b", "-> b ( idle 1s , hard quiet )"]);
    let block: String = (0..rng.below(4)).map(|_| statement(rng) + " ").collect();
    format!("on a , b when {} {next} {{ {block} drop ; }}", conditions.join(" && "))
}

#[test]
fn formatting_is_idempotent_for_random_functions() {
    let mut rng = Rng::from_env(0xf0f0);
    for _ in 0..400 {
        let rows: Vec<String> = (0..1 + rng.below(4)).map(|_| row(&mut rng)).collect();
        let text = format!(
            "function f ; param q : time = {} ; header h after udp when udp.dport == {} {{ key : u8 ; b : u8 ; }} \
             stateful s {{ key biflow ( 5-tuple ) ; full evict lowest r ; states a , b ; expire a -> b ( idle q ) ; \
             preload ( {} , 5 ) -> b {{ r = {} ; }} {} otherwise {{ drop ; }} }}",
            value(&mut rng, 2),
            value(&mut rng, 1),
            value(&mut rng, 2),
            value(&mut rng, 2),
            rows.join(" ")
        );
        let words: Vec<&str> = text.split(' ').collect();
        formatted("f", &scattered(&mut rng, &words));
        let twin = formatted("f", &words.join(" "));
        assert!(twin.lines().all(|line| line.chars().count() <= MAX_COLUMNS), "{twin}");
    }
}
