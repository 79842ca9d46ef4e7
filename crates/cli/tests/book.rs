// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the README and the book: links resolve, and commands and examples are valid.

use crate::common::{Ran, files, ok, put, run, top};
use std::path::PathBuf;
use std::process::Command;

/// All Markdown files of the documentation, with their texts.
fn pages() -> Vec<(PathBuf, String)> {
    let mut found =
        ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"].map(|page| top().join(page)).to_vec();
    found.extend(files(&top().join("docs"), &[]));
    found.extend(files(&top().join("functions"), &[]));
    found.retain(|path| path.extension().is_some_and(|e| e == "md"));
    found.into_iter().map(|path| (path.clone(), std::fs::read_to_string(path).unwrap())).collect()
}

/// Fenced blocks of a page in this language.
fn blocks<'t>(text: &'t str, language: &str) -> Vec<&'t str> {
    let fence = format!("```{language}\n");
    text.split(fence.as_str()).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn links_lead_somewhere() {
    let mut wrong = Vec::new();
    for (page, text) in pages() {
        for rest in text.split("](").skip(1) {
            let target = rest.split([')', '#']).next().unwrap();
            if !target.is_empty() && !target.contains("://") && !page.parent().unwrap().join(target).exists() {
                wrong.push(format!("{}: {target}", page.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn contributing_names_files_that_exist() {
    let text = std::fs::read_to_string(top().join("CONTRIBUTING.md")).unwrap();
    let is_path = |code: &&str| code.contains('/') && !code.contains(['<', ' ']) && !code.contains("NAME");
    // Code spans are every second part between backticks.
    let paths: Vec<&str> = text.split('`').skip(1).step_by(2).filter(is_path).collect();
    let missing: Vec<&&str> = paths.iter().filter(|path| !top().join(path).exists()).collect();
    assert!(paths.len() > 50 && missing.is_empty(), "{} paths, missing: {missing:?}", paths.len());
}

#[test]
fn readmes_of_functions_show_their_drawings_and_say_limits_and_the_papers_row() {
    let mut wrong = Vec::new();
    for folder in std::fs::read_dir(top().join("functions")).unwrap().map(|entry| entry.unwrap().path()) {
        if !folder.is_dir() || folder.ends_with("ebpf") {
            continue;
        }
        let text = std::fs::read_to_string(folder.join("README.md")).unwrap();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        let files = std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let drawings: Vec<String> =
            files.filter(|file| file.ends_with(".svg")).map(|file| format!("]({file})")).collect();
        let image = format!("]({name}.svg)");
        let is_shown = text.lines().any(|line| line.starts_with("![") && line.ends_with(&image));
        wrong.extend((!is_shown).then(|| format!("{name}: no image of `{name}.svg`")));
        let named = ["```text", "```sh", "| parameter |", "## Limits", "## In the paper"].map(str::to_owned);
        let missing = drawings.iter().chain(&named).filter(|part| !text.contains(part.as_str()));
        wrong.extend(missing.map(|part| format!("{name}: no `{part}`")));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn readmes_of_programs_say_maps_limits_and_the_papers_row() {
    let top = top().join("functions/ebpf");
    let index = std::fs::read_to_string(top.join("README.md")).unwrap();
    let mut wrong = Vec::new();
    for folder in std::fs::read_dir(&top).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        let text = std::fs::read_to_string(folder.join("README.md")).unwrap();
        let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
        wrong.extend((!index.contains(&format!("({name}/README.md)"))).then(|| format!("{name}: not in the list")));
        let named = ["```sh", "| map | kind | key | value |", "## Limits", "## In the paper"];
        wrong.extend(named.iter().filter(|part| !text.contains(*part)).map(|part| format!("{name}: no `{part}`")));
        for file in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let Some(source) = file.to_str().filter(|name| name.ends_with(".bpf.c")) else { continue };
            let source = std::fs::read_to_string(source).unwrap();
            // The table lists every map and every parameter.
            let maps = source.split("} ").skip(1).filter_map(|rest| rest.split(" SEC(\".maps\")").next());
            let maps = maps.filter(|map| map.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'));
            let parameters = source.split("#ifndef ").skip(1).filter_map(|rest| rest.lines().next());
            let words = maps.chain(parameters).filter(|word| !word.starts_with("FLOWLOOM"));
            let missing = words.filter(|word| !text.contains(&format!("`{word}`")));
            wrong.extend(missing.map(|word| format!("{name}: nothing about `{word}`")));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn examples_are_accepted() {
    let mut examples = 0;
    for (page, text) in pages() {
        for (number, source) in blocks(&text, "efsm").into_iter().enumerate() {
            let name = format!("{}, example {number}", page.display());
            match flowloom_efsm::compile(&name, source, &[]) {
                Ok((_, warnings)) if warnings.is_empty() => {}
                Ok((_, warnings)) => {
                    panic!("{}", warnings.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
                }
                Err(errors) => panic!("{errors}"),
            }
            examples += 1;
        }
    }
    assert!(examples >= 2, "the README and the quick start have an example each, found {examples}");
}

/// Words of a command line, up to a comment: `flowloom trace gen -w x  # y`.
fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().take_while(|word| !word.starts_with('#')).collect()
}

#[test]
fn commands_and_options_exist() {
    let mut commands = 0;
    let mut wrong = Vec::new();
    for (page, text) in pages() {
        for line in blocks(&text, "sh").into_iter().flat_map(str::lines) {
            let words = words(line);
            if words.first() != Some(&"flowloom") {
                continue;
            }
            let verb = if words[1] == "trace" { &words[1..3] } else { &words[1..2] };
            let Ran { code, stdout: help, .. } = run(&[verb, &["--help"]].concat());
            if code != Some(0) {
                wrong.push(format!("{}: no verb `{}`", page.display(), verb.join(" ")));
                continue;
            }
            let known: Vec<&str> = help.split(|c: char| !(c.is_alphanumeric() || c == '-')).collect();
            // Quoted arguments may contain an arrow.
            let is_option = |word: &&&str| word.starts_with('-') && !word.starts_with("->");
            for option in words.iter().filter(is_option) {
                if !known.contains(option) {
                    wrong.push(format!("{}: `{}` has no `{option}`", page.display(), verb.join(" ")));
                }
            }
            commands += 1;
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(commands >= 8, "only {commands} commands found in the documentation");
}

/// The verifier's page shows the output of `check`. Instructions and registers depend on the compiler; lines and
/// findings do not.
#[test]
fn the_verifiers_page_shows_what_check_says() {
    let page = std::fs::read_to_string(top().join("docs/book/src/verifier.md")).unwrap();
    let (sources, texts) = (blocks(&page, "c"), blocks(&page, "text"));
    let all = "a finding, a program, what is said of it, the mended one, a listing";
    assert_eq!((sources.len(), texts.len()), (2, 3), "{all}");
    let texts = &texts[1..];
    let listing = ok(&["check", "-v", "--target", "interp", "functions/ebpf/toy/toy_printed.bpf"]);
    let parts = texts[1].lines().flat_map(|line| line.split("; "));
    let (counted, parts): (Vec<_>, Vec<_>) = parts.partition(|part| part.ends_with(" processed"));
    assert_eq!(counted.len(), 1, "{counted:?}");
    for part in parts {
        assert!(listing.contains(part), "`{part}` is not in\n{listing}");
    }
    if flowloom_testkit::Clang::find("the_verifiers_page_shows_what_check_says").is_none() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let said = sources.iter().map(|source| {
        put(&folder, "ttl.bpf.c", source);
        let mut command = Command::new(env!("CARGO_BIN_EXE_flowloom"));
        let output = command.args(["check", "--target", "interp", "ttl.bpf.c"]).current_dir(folder.path()).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    });
    let said: Vec<String> = said.collect();
    let mut compared = 0;
    for line in texts[0].lines() {
        let (head, tail) = line.trim().split_once(": ").unwrap_or((line, ""));
        let part = match head {
            "where" => tail.rsplit_once("`, ").unwrap().1,
            // `prog.c:14 `text`: instruction 5 `if r3 > r2 goto +10` falls through, on to line 16`.
            _ if head.starts_with("ttl.bpf.c") => line.rsplit_once(": instruction ").unwrap().0,
            _ if head.starts_with('r') && head.len() < 4 => continue,
            _ => line,
        };
        assert!(said[0].contains(part), "`{part}` is not in\n{}", said[0]);
        compared += 1;
    }
    assert!(compared >= 8, "{compared} lines compared");
    assert!(said[1].contains("verifier: safe on all paths"), "{}", said[1]);
}
