// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guide chapter of the book: its commands, entered into one root shell, print the output shown there.

use std::fmt::Write as _;

use regex::Regex;

use crate::common::lab::Lab;
use crate::common::top;

/// Fenced blocks of a page: language and text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    let mut found = Vec::new();
    let mut rest = page;
    while let Some((_, opened)) = rest.split_once("```") {
        let (language, body) = opened.split_once('\n').unwrap();
        let (body, after) = body.split_once("```").unwrap();
        found.push((language, body));
        rest = after;
    }
    found
}

/// Lines without varying parts: column widths, ids and remaining times of timers.
fn steady(text: &str) -> Vec<String> {
    let varying = Regex::new(r"\(id \d+\)|in [0-9.]+m?s\b").unwrap();
    let spaces = Regex::new(r" +").unwrap();
    text.lines().map(|line| spaces.replace_all(&varying.replace_all(line, "VARIES"), " ").trim().to_owned()).collect()
}

#[test]
fn the_guide_leads_to_a_deployed_function() {
    let tools = ["curl", "python3", "timeout"];
    let Some(lab) = Lab::new("the_guide_leads_to_a_deployed_function", &tools) else { return };
    // Functions on interfaces are visible to the whole machine: use a unique name, and do not list all functions.
    let page = std::fs::read_to_string(top().join("docs/book/src/guide.md")).unwrap();
    let page = page.replace("syn_limit", &lab.unique()).replace("flowloom map list\n", "");
    let page = page.replace("flowloom: no function runs on interfaces; --all includes maps of other tools\n", "");
    let name = Regex::new(r"(?m)^function (\w+);").unwrap().captures(&page).unwrap()[1].to_owned();

    let mut script = "mkdir bin; ln -s \"$FLOWLOOM\" bin/flowloom; PATH=$PWD/bin:$PATH\n".to_owned();
    let mut expected = Vec::new();
    for (language, body) in blocks(&page) {
        match language {
            "sh" => {
                if body.contains("netns add") {
                    // On a busy machine the page takes longer than for a reader: the timers must outlast the test.
                    writeln!(script, "sed -i 's/hard 1s/hard 1h/; s/hard 10s/hard 10m/' {name}/{name}.efsm").unwrap();
                }
                writeln!(script, "echo '=== {}'", expected.len()).unwrap();
                script += &body.replace("=+10s", "=+10m").replace("curl -s -o page -m 1", "curl -s -o page -m 4");
                expected.push(Vec::new());
            }
            "text" => *expected.last_mut().unwrap() = steady(body),
            _ => writeln!(script, "cat >{name}/{name}.{language} <<'END'\n{body}END").unwrap(),
        }
    }
    let said = lab.run(&format!("set +e; exec 2>&1\n{script}"), &[]);
    println!("{said}");
    let parts: Vec<&str> = said.split("=== ").skip(1).collect();
    assert_eq!(parts.len(), expected.len());
    for (part, expected) in parts.iter().zip(&expected) {
        let (_, printed) = part.split_once('\n').unwrap();
        let printed = steady(printed);
        let mut printed_rest = printed.iter();
        for line in expected {
            assert!(printed_rest.any(|printed| printed == line), "`{line}` is not in its place in:\n{printed:#?}");
        }
    }
    assert!(!said.contains("error:"), "{said}");
}
