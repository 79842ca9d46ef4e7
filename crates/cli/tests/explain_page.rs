// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tests of the firewall's HTML page in a headless browser: contents are complete, selection works, the console has no
//! errors.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{self, json, name, ok};
use flowloom_testkit::skip;
use serde_json::Value;

const FIREWALL: &str = "functions/ebpf/simple_firewall/simple_firewall.bpf.c";
/// Lower bound of the screenshot's size in bytes; a screenshot of an empty page is smaller.
const PICTURE_BYTES: u64 = 60_000;

struct Browser {
    folder: tempfile::TempDir,
}

/// DOM of a page after its script has run, and the console messages.
struct Opened {
    dom: String,
    console: Vec<String>,
}

impl Browser {
    fn find(test: &str) -> Option<Browser> {
        match Command::new("chromium").arg("--version").output() {
            Ok(output) if output.status.success() => Some(Browser { folder: tempfile::tempdir().unwrap() }),
            _ => {
                skip(test, "`chromium` is not installed");
                None
            }
        }
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    fn run(&self, address: &str, arguments: &[&str]) -> std::process::Output {
        let mut command = Command::new("chromium");
        command.args(["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr"]);
        command.args(["--virtual-time-budget=3000", "--proxy-server=127.0.0.1:9", "--window-size=1600,1000"]);
        command.arg(format!("--user-data-dir={}", self.path("profile").display()));
        command.args(arguments).arg(address).output().unwrap()
    }

    fn open(&self, address: &str) -> Opened {
        let output = self.run(address, &["--dump-dom"]);
        let said = String::from_utf8_lossy(&output.stderr);
        let console = said.lines().filter(|line| line.contains(":CONSOLE")).map(str::to_owned).collect();
        Opened { dom: String::from_utf8(output.stdout).unwrap(), console }
    }
}

/// A browser, the page of the firewall, and the same as JSON.
fn firewall(test: &str) -> Option<(Browser, PathBuf, Value)> {
    let browser = Browser::find(test).filter(|_| common::clang(test))?;
    let page = browser.path("firewall.html");
    ok(&["explain", FIREWALL, "--html", name(&page)]);
    Some((browser, page, json(&["explain", FIREWALL, "--json"])))
}

fn address(page: &Path, place: &str) -> String {
    format!("file://{}{place}", page.display())
}

fn strings<'v>(list: &'v Value, key: &str) -> Vec<&'v str> {
    list.as_array().unwrap().iter().map(|one| one[key].as_str().unwrap()).collect()
}

/// Text with HTML escapes.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[test]
fn the_page_of_the_firewall_shows_what_it_should() {
    let Some((browser, page, told)) = firewall("the_page_of_the_firewall_shows_what_it_should") else { return };
    let opened = browser.open(&address(&page, ""));
    assert_eq!(opened.console, Vec::<String>::new());
    let dom = &opened.dom;
    assert!(dom.contains("<h1>simple_firewall</h1>") && dom.contains(&format!("{} cycles", told["latency_cycles"])));
    for stage in told["stage"].as_array().unwrap() {
        let number = &stage["stage"];
        assert!(dom.contains(&format!("data-s=\"{number}\" data-n=")), "stage {number}");
        assert!(dom.contains(&format!("<details class=\"stage\" id=\"s{number}\">")), "stage {number} as a table");
        for operation in stage["operations"].as_array().unwrap() {
            let node = &operation["node"];
            assert!(dom.contains(&format!("href=\"#n{node}\" data-n=\"{node}\"")), "operation {node}");
        }
    }
    for (what, key) in [("maps", "name"), ("maps", "reason"), ("lines", "text"), ("code", "text")] {
        for text in strings(&told[what], key) {
            assert!(dom.contains(&escaped(text.trim())), "{what}: `{text}`");
        }
    }
    assert_eq!(dom.matches("class=\"reg\"").count(), told["live"].as_array().unwrap().len());
    assert!(!dom.contains("class=\"choosing\""), "nothing is chosen at first");

    let picture = browser.path("page.png");
    browser.run(&address(&page, ""), &[&format!("--screenshot={}", picture.display())]);
    assert!(std::fs::metadata(&picture).unwrap().len() > PICTURE_BYTES);
}

/// The fragment of the page's address selects an item, as a click does.
#[test]
fn choosing_shows_what_belongs_together() {
    let Some((browser, page, told)) = firewall("choosing_shows_what_belongs_together") else { return };
    let flows = told["maps"].as_array().unwrap().iter().position(|map| map["name"] == "flows").unwrap();
    let users = told["maps"][flows]["users"].as_array().unwrap();
    let update = users.iter().find(|user| user["kind"] == "update").unwrap();
    let node = &update["node"];
    let line = &update["line"];

    // Classes of an element after the script has run.
    let classes = |dom: &str, mark: &str| {
        let tag = dom.split('<').find(|tag| tag.contains(mark)).unwrap_or_else(|| panic!("no {mark}")).to_owned();
        tag.split("class=\"").nth(1).unwrap().split('"').next().unwrap().to_owned()
    };
    let places =
        [format!("#!n{node}"), format!("#!l{line}"), format!("#!m{flows}"), format!("#!i{}", update["instruction"])];
    for place in places {
        let Opened { dom, console } = browser.open(&address(&page, &place));
        assert_eq!(console, Vec::<String>::new(), "{place}");
        assert!(dom.contains("<body class=\"choosing\">"), "{place}");
        for mark in [
            format!("data-n=\"{node}\" data-uses"),
            format!("data-l=\"{line}\" data-n"),
            format!("data-m=\"{flows}\""),
            format!("class=\"head on\" href=\"#s{}\"", update["begins_stage"]),
        ] {
            assert!(classes(&dom, &mark).split(' ').any(|class| class == "on"), "{place}: {mark}");
        }
        let said = dom.split("<aside id=\"selected\"").nth(1).unwrap().split("</aside>").next().unwrap();
        assert!(said.contains("insert flows[") && !said.contains("hidden"), "{place}: {said}");
        // Unrelated items are not selected.
        assert!(dom.matches("class=\"op gate small\"").count() > 5, "{place}");
    }
    let dom = browser.open(&address(&page, &format!("#!n{node}"))).dom;
    assert!(dom.matches("<path d=\"M").count() > 5 && dom.contains("class=\"from\""), "lines to what it uses");
}

/// Console errors are detected; otherwise their absence would prove nothing.
#[test]
fn complaints_are_heard() {
    let Some(browser) = Browser::find("complaints_are_heard") else { return };
    let page = browser.path("bad.html");
    std::fs::write(&page, "<!doctype html><title>x</title><script>nothing.there()</script>").unwrap();
    let opened = browser.open(&address(&page, ""));
    assert!(opened.console.iter().any(|line| line.contains("nothing is not defined")), "{:?}", opened.console);
}
