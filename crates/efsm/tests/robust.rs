// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No source makes the front end panic, and all its diagnostics can be rendered: truncations of every shipped
//! function, mutations of these and of the invalid programs, and random tokens. `FLOWLOOM_SEED` replaces the seed.
#![allow(clippy::unwrap_used, clippy::print_stdout)]

use crate::common::{check_model, render, shipped};

use flowloom_efsm::compile;
use flowloom_testkit::Rng;

#[derive(Debug, Default)]
struct Tally {
    accepted: usize,
    refused: usize,
    diagnostics: usize,
}

impl Tally {
    /// Compiles `text` and checks the result; renders the diagnostics if `shown`.
    fn check(&mut self, text: &str, shown: bool) {
        let said = match compile("random.efsm", text, &[]) {
            Ok((function, warnings)) => {
                self.accepted += 1;
                check_model(&function);
                assert!(warnings.iter().all(|w| w.is_warning), "{text}");
                warnings
            }
            Err(errors) => {
                self.refused += 1;
                assert!(errors.error_count() > 0 && errors.error_count() == errors.list.len(), "{text}");
                errors.list
            }
        };
        self.diagnostics += said.len();
        for diagnostic in &said {
            assert!(diagnostic.help.is_some(), "no help: {diagnostic}\n{text}");
            for label in &diagnostic.labels {
                let span = label.span;
                assert!(text.get(span.start..span.end).is_some(), "{diagnostic}: {span:?} cuts a character of\n{text}");
            }
            if shown {
                let rendered = render(diagnostic);
                assert!(rendered.contains(diagnostic.code.as_str()), "{rendered}");
            }
        }
    }
}

fn sources() -> Vec<String> {
    let wrong = flowloom_testkit::sources("tests/diagnostics").into_iter().map(|(_, text)| text);
    shipped().into_iter().map(|(_, text)| text).chain(wrong).collect()
}

/// Splits a text into words, numbers, signs and blanks.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let class = |c: char| match c {
        _ if c.is_alphanumeric() || c == '_' || c == '.' => 0,
        _ if c.is_whitespace() => 1,
        _ => 2,
    };
    let mut last = None;
    for (i, c) in text.char_indices() {
        if last.is_some_and(|l| l != class(c) || l == 2) {
            parts.push(&text[start..i]);
            start = i;
        }
        last = Some(class(c));
    }
    parts.push(&text[start..]);
    parts
}

#[test]
fn truncations_are_checked() {
    let (mut rng, mut tally) = (Rng::from_env(0x6375_7473), Tally::default());
    for (_, text) in shipped() {
        for end in (rng.below(3)..=text.len()).step_by(3).filter(|&i| text.is_char_boundary(i)) {
            tally.check(&text[..end], end % 16 == 0);
        }
    }
    println!("{tally:?}");
    assert!(tally.accepted > 0 && tally.refused > 5000, "{tally:?}");
}

#[test]
fn mutated_sources_are_checked() {
    let mut rng = Rng::from_env(0x6c61_6e67);
    let sources = sources();
    let pool: Vec<&str> = sources.iter().flat_map(|s| split(s)).collect();
    let mut tally = Tally::default();
    for round in 0..6000 {
        let mut parts = split(rng.pick::<String>(&sources));
        for _ in 0..=rng.below(4) {
            let at = rng.below(parts.len());
            match rng.below(6) {
                0 => drop(parts.remove(at)),
                1 => parts.insert(at, *rng.pick(&pool)),
                2 => parts[at] = *rng.pick(&pool),
                3 => {
                    let other = rng.below(parts.len());
                    parts.swap(at, other);
                }
                4 => {
                    let end = (at + 1 + rng.below(12)).min(parts.len());
                    drop(parts.drain(at..end));
                }
                _ => {
                    let end = (at + 1 + rng.below(12)).min(parts.len());
                    let copy = parts[at..end].to_vec();
                    let to = rng.below(parts.len());
                    parts.splice(to..to, copy);
                }
            }
            if parts.is_empty() {
                parts.push("");
            }
        }
        tally.check(&parts.concat(), round % 8 == 0);
    }
    println!("{tally:?}");
    assert!(tally.accepted > 100 && tally.refused > 2000, "{tally:?}");
}

#[test]
fn mutated_bytes_are_checked() {
    let mut rng = Rng::from_env(0x6279_7465);
    let sources = sources();
    let mut tally = Tally::default();
    for round in 0..3000 {
        let mut bytes = rng.pick(&sources).clone().into_bytes();
        for _ in 0..=rng.below(6) {
            if bytes.is_empty() {
                break;
            }
            let at = rng.below(bytes.len());
            bytes[at] = rng.next_u64() as u8;
        }
        tally.check(&String::from_utf8_lossy(&bytes), round % 4 == 0);
    }
    println!("{tally:?}");
    assert!(tally.refused > 1000, "{tally:?}");
}

#[test]
fn random_words_are_checked() {
    let mut rng = Rng::from_env(0x776f_7264);
    let sources = sources();
    let pool: Vec<&str> =
        sources.iter().flat_map(|s| split(s)).chain(["\u{0}", "é", "🧵", "\r\n", "..", "::", "0x", "-"]).collect();
    let mut tally = Tally::default();
    for round in 0..3000 {
        let mut text = String::new();
        if rng.chance(1, 2) {
            text.push_str("function f;\nstateful s { key ip.src; states a, b; reg r: u32; on a when ");
        }
        for _ in 0..rng.below(60) {
            text.push_str(rng.pick::<&str>(&pool));
            if rng.chance(1, 3) {
                text.push(' ');
            }
        }
        tally.check(&text, round % 4 == 0);
    }
    println!("{tally:?}");
    assert!(tally.refused > 2000, "{tally:?}");
}

#[test]
fn long_and_deep_sources_are_checked() {
    let mut tally = Tally::default();
    for (open, close) in
        [("(", ")"), ("!", ""), ("~", ""), ("-", ""), ("min(1, ", ")"), ("ip.ttl + ", ""), ("{", "}"), ("a, ", "")]
    {
        for place in ["", "const c = ", "stateless s { when ", "stateful s { states ", "stateless s { always { x = "] {
            let text = format!("function f; {place}{}1{}", open.repeat(50_000), close.repeat(50_000));
            tally.check(&text, false);
        }
    }
    for joined in [" && ", " || "] {
        let conditions = vec!["ip.ttl == 1"; 100_000].join(joined);
        let text = format!("function f; stateless s {{ when {conditions} {{ pass; }} otherwise {{ drop; }} }}");
        tally.check(&text, false);
    }
    let many = (0..70_000).map(|i| format!("meta m{i}: u8;\n")).collect::<String>();
    tally.check(&format!("function f; {many} stateless s {{ always {{ pass; }} }}"), false);
    println!("{tally:?}");
    assert_eq!(tally.accepted, 0, "{tally:?}");
}
