// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Figures of `flowloom reproduce` that are measured on this machine: a short slice of each. No time decides a test.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::common::{Ran, clang, exits, flowloom, kernel, name, run};
use flowloom_testkit::skip;
use serde_json::Value;

/// A measured figure, which a rate may call off.
fn measured(arguments: &[&str]) -> Value {
    let ran = run(&[&["reproduce"], arguments, &["--rounds", "1", "--json"]].concat());
    assert!(matches!(ran.code, Some(0 | 1)), "{arguments:?}: {ran:?}");
    let figure = ran.json();
    assert_eq!(ran.code == Some(1), figure["is_off"].as_bool().unwrap(), "{ran:?}");
    figure
}

fn positive(value: &Value) -> f64 {
    let number = value.as_f64().unwrap_or_else(|| panic!("no number: {value}"));
    assert!(number > 0.0, "{number}");
    number
}

fn claim<'a>(figure: &'a Value, name: &str) -> &'a str {
    let claims = figure["claims"].as_array().unwrap();
    claims.iter().find(|claim| claim["name"] == name).unwrap()["ours"].as_str().unwrap()
}

#[test]
fn rates_from_memory_have_every_function_and_number_of_flows() {
    let folder = tempfile::tempdir().unwrap();
    let svg = folder.path().join("flows.svg");
    let options = ["dp-fig", "--engines", "memory", "--flows", "100,2000", "--sizes", "64,1024", "--packets", "5000"];
    let figure = measured(&[&options[..], &["-o", name(&svg)]].concat());
    let series = figure["values"]["series"].as_array().unwrap();
    let named: BTreeSet<(&str, u64)> =
        series.iter().map(|one| (one["function"].as_str().unwrap(), one["bytes"].as_u64().unwrap())).collect();
    assert_eq!((named.len(), series.len()), (6, 6), "{series:?}");
    for one in series {
        let points = one["points"].as_array().unwrap();
        assert_eq!(points.iter().map(|point| point["flows"].as_u64().unwrap()).collect::<Vec<_>>(), [100, 2000]);
        let rates: Vec<f64> = points.iter().map(|point| positive(&point["mpps"]["median"])).collect();
        let least = rates[0].min(rates[1]) / rates[0].max(rates[1]);
        assert!((least - positive(&one["least_of_most"])).abs() < 1e-9, "{one}");
    }
    let off = series.iter().any(|one| one["least_of_most"].as_f64().unwrap() < 0.8);
    assert_eq!(figure["is_off"], off);
    assert!(claim(&figure, "flat").contains("of 6 series"), "{figure}");
    assert_eq!(claim(&figure, "raw"), "not measured");
    let svg = std::fs::read_to_string(&svg).unwrap();
    // A background, and a bar for each function, size and number of flows.
    assert_eq!(svg.matches("<rect").count(), 1 + 3 * 2 * 2, "{svg}");
}

#[test]
fn rates_by_flows_are_measured_over_wires() {
    if !kernel("rates_by_flows_are_measured_over_wires") {
        return;
    }
    let figure = measured(&["dp-fig", "--engines", "af_xdp,raw", "--flows", "50", "--sizes", "64", "--time", "20ms"]);
    let series = figure["values"]["series"].as_array().unwrap();
    assert_eq!(series.len(), 6, "{figure}");
    for one in series {
        positive(&one["points"][0]["mpps"]["median"]);
        positive(&one["points"][0]["cpu_ns"]["median"]);
    }
    assert!(claim(&figure, "raw").contains("af_xdp "), "{figure}");
}

#[test]
fn forwarding_rates_have_bare_c_and_function() {
    let test = "forwarding_rates_have_bare_c_and_function";
    if !kernel(test) || !clang(test) {
        return;
    }
    for engine in ["kernel", "raw"] {
        let figure = measured(&["fb-fig7", "--engines", engine, "--cores", "2", "--time", "20ms"]);
        let bars = figure["values"]["bars"].as_array().unwrap();
        let forms: Vec<&str> = bars.iter().map(|bar| bar["form"].as_str().unwrap()).collect();
        assert_eq!(forms, ["bare", "C", "function", "C", "function"], "{figure}");
        bars.iter().for_each(|bar| assert!(positive(&bar["mpps"]["median"]) > 0.0 && bar["cores"] == 2));
        let says_shared = figure.to_string().contains("raw on 2 cores: threads share CPUs with the sender");
        assert_eq!(says_shared, engine == "raw", "{figure}");
    }
}

#[test]
fn round_trips_have_the_cable_and_every_form() {
    let test = "round_trips_have_the_cable_and_every_form";
    if !kernel(test) || !clang(test) {
        return;
    }
    let options = ["fb-fig9", "--engines", "kernel,af_xdp,raw,tap", "--sizes", "64,1518", "--packets", "5"];
    let figure = measured(&options);
    let bars = figure["values"]["bars"].as_array().unwrap();
    assert_eq!(bars.len(), 2 * (1 + 4 * 3), "{figure}");
    for bar in bars {
        assert!(positive(&bar["median_us"]) <= positive(&bar["p99_us"]), "{bar}");
        assert_eq!(bar["over_cable_us"].is_null(), bar["engine"] == "cable", "{bar}");
        assert_eq!(
            bar["over_bare_us"].is_null(),
            ["cable", "bare"].iter().any(|n| bar["engine"] == *n || bar["form"] == *n)
        );
    }
    assert!(claim(&figure, "overhead").contains("kernel "), "{figure}");
}

#[test]
fn wrong_options_are_refused() {
    exits(2, &["reproduce", "fb-fig10a", "--rounds", "3"])
        .stderr_has(&["--rounds: `fb-fig10a` is not measured", "`dp-fig`, `fb-fig7`, `fb-fig9`"]);
    exits(2, &["reproduce", "fb-fig7", "--engines", "memory"])
        .stderr_has(&["--engines memory", "expected some of kernel, af_xdp, raw, tap, dpdk"]);
    exits(2, &["reproduce", "dp-fig", "--sizes", "63"]).stderr_has(&["63 is not in 64..=1518"]);
    exits(2, &["reproduce", "dp-fig", "--engines", "memory", "--functions", "corpus"])
        .stderr_has(&["server_load_balancer.efsm", "No such file"]);
    if cfg!(not(feature = "dpdk")) {
        exits(3, &["reproduce", "dp-fig", "--engines", "dpdk"]).stderr_has(&["built without DPDK", "--features dpdk"]);
    }
}

#[test]
fn missing_privileges_end_with_3() {
    let test = "missing_privileges_end_with_3";
    let without = |arguments: &[&str]| {
        let binary = flowloom();
        let mut command = std::process::Command::new("setpriv");
        command.args(["--bounding-set=-all", "--inh-caps=-all"]).arg(binary.get_program()).args(arguments);
        command.current_dir(crate::common::top()).stdin(Stdio::null()).output()
    };
    match without(&["fields", "tcp"]) {
        Ok(output) if output.status.success() => {}
        other => return skip(test, &format!("`setpriv` does not run: {other:?}")),
    }
    for (arguments, remedy) in [
        (["reproduce", "fb-fig7", "--engines", "kernel"], "run as root"),
        (["reproduce", "fb-fig9", "--engines", "raw"], "CAP_SYS_ADMIN and CAP_NET_ADMIN: run as root"),
        (["reproduce", "dp-fig", "--engines", "raw"], "CAP_SYS_ADMIN and CAP_NET_ADMIN: run as root"),
    ] {
        let ran = Ran::from(without(&arguments).unwrap());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), ""), "{ran:?}");
        ran.stderr_has(&[remedy]);
    }
}

/// The files of a folder whose names contain a text.
fn named(folder: &std::path::Path, part: &str) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.contains(part)).collect()
}

#[test]
fn a_signal_leaves_nothing_behind() {
    if !kernel("a_signal_leaves_nothing_behind") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let arguments = ["reproduce", "fb-fig9", "--engines", "raw", "--rounds", "1000", "--sizes", "64"];
    let mut command = flowloom();
    command.args(arguments).env("TMPDIR", folder.path()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().unwrap();
    // Once its threads are in other namespaces, packets are under way.
    let tasks = format!("/proc/{}/task", child.id());
    let start = Instant::now();
    let here = std::fs::metadata("/proc/self/ns/net").unwrap().ino();
    let elsewhere = loop {
        let found = namespaces(&tasks, here);
        if !found.is_empty() {
            break found;
        }
        assert!(start.elapsed() < Duration::from_secs(60), "no thread has entered a namespace");
        std::thread::sleep(Duration::from_millis(10));
    };
    let killed = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap();
    assert!(killed.success());
    let ran = Ran::from(child.wait_with_output().unwrap());
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert_eq!(named(folder.path(), ""), [""; 0]);
    // The kernel removes interfaces with their namespace: nothing but this test keeps one.
    for process in std::fs::read_dir("/proc").unwrap().flatten() {
        let kept = namespaces(&process.path().join("task").to_string_lossy(), here);
        assert!(kept.keys().all(|number| !elsewhere.contains_key(number)), "{kept:?} of {process:?}");
    }
    let mounted = std::fs::read_to_string("/proc/self/mountinfo").unwrap();
    for number in elsewhere.keys() {
        assert!(!mounted.contains(&format!("net:[{number}]")), "{number} is mounted: {mounted}");
    }
}

/// The network namespaces of the threads in a folder of `/proc`, by number and without `here`. While its file is open
/// the number of a namespace is not used again.
fn namespaces(tasks: &str, here: u64) -> BTreeMap<u64, File> {
    let tasks = std::fs::read_dir(tasks).into_iter().flatten().flatten();
    let found = tasks.filter_map(|task| {
        let file = File::open(task.path().join("ns/net")).ok()?;
        Some((file.metadata().ok()?.ino(), file))
    });
    found.filter(|(number, _)| *number != here).collect()
}
