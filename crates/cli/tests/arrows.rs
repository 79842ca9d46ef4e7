// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Architecture test: compares the dependencies between crates in the manifests with a table, and the table with the
//! one in the book. Also compares the features of packages with and without tests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::common::{files, top};
use toml::{Table, Value};

/// Each crate and its allowed dependencies, lower layers first. Dev-dependencies may add [`FOR_TESTS`] and any crate
/// earlier in the table. A new crate needs a row here and in `docs/book/src/architecture.md`.
const ROOMS: &[(&str, &[&str])] = &[
    ("random", &[]),
    ("wire", &[]),
    ("engine", &["random"]),
    ("trace", &["random", "wire"]),
    ("state", &["random"]),
    ("cosim", &[]),
    ("context", &[]),
    ("isa", &["wire", "context"]),
    ("vm", &["wire", "engine", "context", "isa"]),
    ("object", &["context", "isa"]),
    ("verifier", &["isa"]),
    ("flowtable", &[]),
    ("jit", &["engine", "isa", "vm", "verifier", "flowtable"]),
    ("efsm", &["wire", "engine", "context", "isa"]),
    ("lower", &["wire", "engine", "context", "isa", "efsm"]),
    ("overlay", &["wire", "engine", "state", "efsm"]),
    ("ir", &["wire", "engine", "isa", "vm", "verifier"]),
    ("exec", &["engine", "trace", "context", "isa", "vm", "object", "verifier"]),
    ("ports", &["engine", "trace", "exec"]),
    ("plan", &["isa", "verifier", "ir"]),
    ("cores", &["wire", "engine", "isa", "vm", "jit", "efsm", "ir", "plan"]),
    ("lab", &["random", "engine", "isa", "exec", "ports", "cores"]),
    ("report", &["isa", "ir", "plan"]),
    ("rtl", &["state", "isa", "ir", "plan"]),
    ("ehdl", &["isa", "verifier", "ir", "plan", "report"]),
    ("predict", &["random", "engine", "trace", "state", "isa", "ir", "plan", "rtl", "report"]),
    ("proofcheck", &["isa", "vm", "verifier"]),
    ("verify", &["random", "wire", "engine", "context", "isa", "vm", "verifier", "efsm", "exec"]),
    ("scenario", &["wire", "engine", "context", "isa", "object", "efsm"]),
    (
        "session",
        &[
            "random",
            "engine",
            "cosim",
            "context",
            "isa",
            "vm",
            "object",
            "verifier",
            "jit",
            "cores",
            "efsm",
            "lower",
            "overlay",
            "ir",
            "exec",
            "plan",
            "rtl",
            "proofcheck",
        ],
    ),
    ("control", &["wire", "engine", "isa", "vm", "efsm", "exec", "ports", "session"]),
    ("bench", &["random", "engine", "trace", "isa", "verifier", "flowtable", "jit", "session", "exec", "ports", "lab"]),
    ("testkit", &["random", "wire"]),
    (
        "cli",
        &[
            "wire",
            "engine",
            "trace",
            "state",
            "context",
            "isa",
            "vm",
            "object",
            "verifier",
            "efsm",
            "ir",
            "exec",
            "ports",
            "lab",
            "plan",
            "rtl",
            "report",
            "ehdl",
            "predict",
            "overlay",
            "proofcheck",
            "verify",
            "scenario",
            "session",
            "control",
        ],
    ),
];

/// Crates that the tests of every crate may use.
const FOR_TESTS: [&str; 2] = ["testkit", "proofcheck"];

/// Keys that every manifest inherits from the workspace.
const INHERITED: [&str; 4] = ["edition", "rust-version", "license", "version"];

fn manifests() -> BTreeMap<String, Table> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(top().join("crates")).unwrap() {
        let folder = entry.unwrap().path();
        if let Ok(text) = std::fs::read_to_string(folder.join("Cargo.toml")) {
            let room = folder.file_name().unwrap().to_string_lossy().into_owned();
            found.insert(room, text.parse().unwrap_or_else(|e| panic!("{}: {e}", folder.display())));
        }
    }
    found
}

/// Crates in the dependency tables called one of `kinds`, including platform-specific ones.
fn arrows(manifest: &Table, kinds: &[&str]) -> BTreeSet<String> {
    let platforms =
        manifest.get("target").and_then(Value::as_table).into_iter().flatten().filter_map(|(_, t)| t.as_table());
    std::iter::once(manifest)
        .chain(platforms)
        .flat_map(|table| kinds.iter().filter_map(|kind| table.get(*kind).and_then(Value::as_table)))
        .flat_map(|dependencies| dependencies.iter())
        .filter_map(|(name, value)| {
            let package = value.get("package").and_then(Value::as_str).unwrap_or(name);
            package.strip_prefix("flowloom-").map(str::to_owned)
        })
        .collect()
}

/// All dependency errors of one manifest.
fn judge(room: &str, manifest: &Table) -> Vec<String> {
    let Some(place) = ROOMS.iter().position(|(name, _)| *name == room) else {
        return vec![format!("`{room}` has no row in the table of rooms")];
    };
    let allowed = ROOMS[place].1;
    let above: Vec<&str> = ROOMS[..place].iter().map(|(name, _)| *name).collect();
    let normal = arrows(manifest, &["dependencies", "build-dependencies"]);
    let dev = arrows(manifest, &["dev-dependencies"]);
    let mut wrong = Vec::new();
    for to in normal.iter().filter(|to| !allowed.contains(&to.as_str())) {
        wrong.push(format!("`{room}` may not use `{to}`; it may use {allowed:?}"));
    }
    for to in allowed.iter().filter(|to| !normal.contains(**to)) {
        wrong.push(format!("the table says that `{room}` uses `{to}`; its manifest does not"));
    }
    for to in dev.iter().filter(|to| !FOR_TESTS.contains(&to.as_str()) && !above.contains(&to.as_str())) {
        wrong.push(format!("tests of `{room}` may not use `{to}`, which stands below it"));
    }
    wrong
}

#[test]
fn arrows_point_only_to_allowed_rooms() {
    let wrong: Vec<String> = manifests().iter().flat_map(|(room, manifest)| judge(room, manifest)).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn crates_use_what_their_manifests_declare() {
    for (room, manifest) in manifests() {
        let sources = sources(&top().join("crates").join(&room).join("src"));
        for to in arrows(&manifest, &["dependencies"]) {
            assert!(sources.contains(&format!("flowloom_{to}")), "`{room}` declares `{to}` and does not use it");
        }
    }
}

#[test]
fn every_file_of_tests_is_in_a_binary() {
    // With `autotests` off, the tests of a file that `main.rs` does not name never run.
    let mut files = 0;
    for (room, manifest) in manifests() {
        if manifest["package"].get("autotests").and_then(Value::as_bool) != Some(false) {
            continue;
        }
        let folder = top().join("crates").join(&room).join("tests");
        let root = std::fs::read_to_string(folder.join("main.rs")).unwrap();
        let binaries = manifest["test"].as_array().unwrap().iter().map(|test| test["name"].as_str().unwrap());
        let binaries: Vec<&str> = binaries.collect();
        for path in std::fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()) {
            let stem = path.file_stem().unwrap().to_str().unwrap();
            if path.is_file() && stem != "main" {
                let is_named = root.contains(&format!("\nmod {stem};\n")) || binaries.contains(&stem);
                assert!(is_named, "`{}` is in no test binary", path.display());
                files += 1;
            }
        }
    }
    assert!(files > 50, "{files}");
}

/// Concatenated Rust sources of a folder and its subfolders.
fn sources(folder: &Path) -> String {
    files(folder, &[]).into_iter().map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

#[test]
fn every_row_has_a_crate() {
    let manifests = manifests();
    for (room, allowed) in ROOMS {
        let manifest = manifests.get(*room).unwrap_or_else(|| panic!("`{room}` has a row and no crate"));
        assert_eq!(manifest["package"]["name"].as_str(), Some(format!("flowloom-{room}").as_str()));
        for to in *allowed {
            assert!(ROOMS.iter().any(|(name, _)| name == to), "`{room}` may use `{to}`, which is no room");
        }
    }
}

#[test]
fn every_crate_inherits_from_the_workspace() {
    for (room, manifest) in manifests() {
        for key in INHERITED {
            let inherited = manifest["package"].get(key).and_then(|v| v.get("workspace")).and_then(Value::as_bool);
            assert_eq!(inherited, Some(true), "`{room}`: `{key}.workspace = true` is missing");
        }
        let lints = manifest.get("lints").and_then(|v| v.get("workspace")).and_then(Value::as_bool);
        assert_eq!(lints, Some(true), "`{room}`: `[lints] workspace = true` is missing");
    }
}

#[test]
fn every_source_names_its_licence() {
    let workspace: Table = std::fs::read_to_string(top().join("Cargo.toml")).unwrap().parse().unwrap();
    let licence = workspace["workspace"]["package"]["license"].as_str().unwrap();
    let mut sources = 0;
    // Without what is built and the inputs of fuzzing.
    let without = ["target", "corpus", "findings", "__pycache__"];
    let folders = ["crates", "fuzz", "functions", "scripts", ".ci"];
    for path in folders.iter().flat_map(|folder| files(&top().join(folder), &without)) {
        let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or("");
        let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
        if !["rs", "c", "h", "py", "sh"].contains(&ending) && !text.starts_with("#!") {
            continue;
        }
        sources += 1;
        let line = text.lines().take(2).find_map(|line| line.split("SPDX-License-Identifier: ").nth(1));
        let named = line.map(|line| line.trim_end_matches("*/").trim());
        // What the kernel loads may have another licence.
        let is_right = named.is_some_and(|named| named == licence || ["c", "h"].contains(&ending));
        assert!(is_right, "`{}`: found {named:?}, expected `{licence}`", path.display());
    }
    assert!(sources > 800, "{sources}");
}

#[test]
fn the_book_shows_the_same_table() {
    let text = std::fs::read_to_string(top().join("docs/book/src/architecture.md")).unwrap();
    let section = text.split("## Rooms").nth(1).expect("the chapter has a section `Rooms`");
    let section = section.split("\n## ").next().unwrap();
    let shown: Vec<(String, Vec<String>)> = section
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| {
            let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
            let uses = cells[2].split(',').map(|u| u.trim().to_owned()).filter(|u| u != "–").collect();
            (cells[0].trim_matches('`').trim_start_matches("crates/").to_owned(), uses)
        })
        .collect();
    let table: Vec<(String, Vec<String>)> =
        ROOMS.iter().map(|(room, uses)| (room.to_string(), uses.iter().map(|u| u.to_string()).collect())).collect();
    assert_eq!(shown, table);
}

/// The packages of a dependency tree, each with the sets of features with which it is built.
fn features(arguments: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let mut command = std::process::Command::new(env!("CARGO"));
    let out = command.current_dir(top()).args(["tree", "--locked", "--prefix", "none", "-f", "{p}|{f}|"]);
    let out = out.args(arguments).output().unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let mut found: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in String::from_utf8(out.stdout).unwrap().lines() {
        let mut fields = line.split('|');
        if let (Some(package), Some(features)) = (fields.next(), fields.next()) {
            found.entry(package.to_owned()).or_default().insert(features.to_owned());
        }
    }
    found
}

/// A feature that only a test asks for makes its package, and all that depend on it, compile twice.
#[test]
fn tests_add_no_features_to_packages_of_the_command() {
    let command = features(&["-p", "flowloom-cli", "-e", "normal,build"]);
    let all = features(&["--workspace", "-e", "normal,build,dev"]);
    assert!(command.len() > 100, "{} packages", command.len());
    let twice: Vec<String> = command
        .iter()
        .filter(|(package, features)| !all.get(*package).is_some_and(|all| features.is_subset(all)))
        .map(|(package, features)| format!("{package}: {features:?}, with tests {:?}", all.get(package)))
        .collect();
    assert!(twice.is_empty(), "add these features to crates/cli/Cargo.toml:\n{}", twice.join("\n"));
}

#[test]
fn wrong_arrows_are_found() {
    let bad: Table = r#"
        [dependencies]
        flowloom-efsm.workspace = true
        flowloom-exec.workspace = true
        renamed = { package = "flowloom-cli", path = "../cli" }
        [target.'cfg(unix)'.dependencies]
        flowloom-testkit.workspace = true
        [dev-dependencies]
        flowloom-testkit.workspace = true
        flowloom-trace.workspace = true
        flowloom-verify.workspace = true
    "#
    .parse()
    .unwrap();
    let wrong = judge("vm", &bad).join("\n");
    for named in ["use `exec`", "use `cli`", "use `testkit`", "use `verify`", "uses `isa`; its manifest does not"] {
        assert!(wrong.contains(named), "{named} not found in:\n{wrong}");
    }
    assert_eq!(wrong.lines().count(), 9, "{wrong}");
    assert_eq!(judge("attic", &bad), ["`attic` has no row in the table of rooms"]);
}
