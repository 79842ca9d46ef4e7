//! The formatter on every source that is at hand: nothing but white space changes, and that only once.
#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use std::path::{Path, PathBuf};

use flowloom_efsm::{MOST_COLUMNS, compile, format};

/// Every `.efsm` file of the repository.
fn sources() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut folders: Vec<PathBuf> = ["functions", "corpus", "crates"].iter().map(|name| root.join(name)).collect();
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension() == Some("efsm".as_ref()) {
                let text = std::fs::read_to_string(&path).unwrap();
                found.push((path, text));
            }
        }
    }
    found.sort();
    found
}

#[test]
fn formatted_functions_mean_the_same() {
    let (mut formatted, mut compiled) = (0, 0);
    for (path, text) in sources() {
        let name = path.display().to_string();
        let Ok(once) = format(&name, &text) else {
            assert!(compile(&name, &text, &[]).is_err(), "{name} compiles and cannot be formatted");
            continue;
        };
        formatted += 1;
        assert_eq!(format(&name, &once).unwrap(), once, "{name}: formatting twice changes something");
        let (before, after) = (compile(&name, &text, &[]), compile(&name, &once, &[]));
        match (before, after) {
            (Ok((before, _)), Ok((after, _))) => {
                compiled += 1;
                assert_eq!(common::without_places(&before), common::without_places(&after), "{name}");
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
    println!("{formatted} sources formatted, {compiled} of them right");
    assert!(formatted >= 20 && compiled >= 12, "{formatted} {compiled}");
}

#[test]
fn other_white_space_comes_to_the_same() {
    let mut count = 0;
    for (path, text) in sources() {
        // Comments end with their lines, so only sources without any can be written in one line.
        let bare: String = text.lines().map(|line| line.split('#').next().unwrap().to_owned() + "\n").collect();
        let name = path.display().to_string();
        let Ok(expected) = format(&name, &bare.split_whitespace().collect::<Vec<_>>().join(" ")) else { continue };
        count += 1;
        let spread = bare.split_whitespace().collect::<Vec<_>>().join("\t  ");
        assert_eq!(format(&name, &spread).unwrap(), expected, "{name}");
        let long = expected.lines().filter(|line| line.chars().count() > MOST_COLUMNS).count();
        assert_eq!(long, 0, "{name}: lines above {MOST_COLUMNS} columns\n{expected}");
        let broken = bare.split_whitespace().collect::<Vec<_>>().join("\n\n\n");
        let broken = format(&name, &broken).unwrap();
        assert_eq!(format(&name, &broken).unwrap(), broken, "{name}");
        let comments = bare.split_whitespace().collect::<Vec<_>>().join(" # c\n # d\n\n");
        let comments = format(&name, &comments).unwrap();
        assert_eq!(format(&name, &comments).unwrap(), comments, "{name}");
        assert_eq!(comments.matches("# c").count(), bare.split_whitespace().count().saturating_sub(1), "{name}");
    }
    assert!(count >= 20, "{count}");
}
