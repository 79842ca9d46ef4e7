// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The examples in the book compile. Code blocks tagged `efsm` are whole functions, `efsm,items` declarations, and
//! `efsm,rows` rows of a stateful element.
#![allow(clippy::unwrap_used, clippy::panic)]

use std::path::Path;

use flowloom_efsm::compile;

/// The code blocks of a page, each with its tag.
fn blocks(page: &str) -> Vec<(String, String)> {
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in page.lines() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(info)) => open = Some((info.trim().to_owned(), String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some((_, text)), None) => *text += &format!("{line}\n"),
            (None, None) => {}
        }
    }
    blocks
}

#[test]
fn examples_compile() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/book/src");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension() != Some("md".as_ref()) {
            continue;
        }
        for (info, block) in blocks(&std::fs::read_to_string(&path).unwrap()) {
            let text = match info.as_str() {
                "efsm" => block,
                "efsm,items" if block.contains('{') => format!("function f;\n{block}"),
                "efsm,items" => format!("function f;\n{block}\nstateless s {{ always {{ forward; }} }}"),
                "efsm,rows" => format!(
                    "function f;\nparam limit: u32 = 5;\nmeta mark: u8;\nstateful s {{ key ip.src; states a, b; reg count: u32; \
                     reg since: u32 time(1us);\n{block}\n}}"
                ),
                _ => continue,
            };
            count += 1;
            if let Err(errors) = compile(path.to_str().unwrap(), &text, &[]) {
                panic!("{}: {:#?}\n{text}", path.display(), errors.list);
            }
        }
    }
    assert!(count >= 8, "only {count} examples");
}
