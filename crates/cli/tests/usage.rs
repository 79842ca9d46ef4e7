// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Usage errors and invalid input of every kind: exit code 2 (or 3), empty stdout, and stderr with the place, what was
//! found, what was expected, and help.

use std::process::{Command, Stdio};

use crate::common::{
    self, BIG_FLOW, PASS_ALL, PORT_KNOCKING, Ran, Refusal, exits, flowloom, generated, kernel, name, ok, refused, run,
    top,
};

/// A folder of valid and invalid inputs.
struct Inputs {
    folder: tempfile::TempDir,
}

impl Inputs {
    fn new() -> Inputs {
        let inputs = Inputs { folder: tempfile::tempdir().unwrap() };
        let capture = generated(inputs.folder.path(), PORT_KNOCKING, 50, 1);
        ok(&["run", PASS_ALL, "-r", name(&capture), "-w", &inputs.path("good.pcap")]);
        ok(&["build", PORT_KNOCKING, "--target", "bpf", "-o", name(inputs.folder.path())]);
        let good = std::fs::read(inputs.path("good.pcap")).unwrap();
        inputs.put("cut.pcap", &good[..good.len() - 10]);
        inputs.put("cooked.pcap", &[&good[..20], &[113, 0, 0, 0], &good[24..]].concat());
        inputs.put("old.pcap", &[&good[..4], &[1, 0, 2, 0], &good[8..]].concat());
        inputs.put("huge.pcap", &[&good[..32], &[0xff; 4], &good[36..]].concat());
        inputs.put("packed.pcap.gz", &[0x1f, 0x8b, 8, 0]);
        inputs.put("empty", b"");
        std::fs::create_dir(inputs.path("bare")).unwrap();
        inputs.put("own.efsm", &std::fs::read(top().join(PASS_ALL)).unwrap());
        inputs.put("latin.efsm", b"function x; # caf\xe9\n");
        inputs.put("two_errors.efsm", b"function x;\nstateful s {\n  key ip.scr;\n  states a;\n  on b { pass; }\n}\n");
        let object = std::fs::read(inputs.path("port_knocking.o")).unwrap();
        inputs.put("cut.o", &object[..object.len() / 2]);
        inputs.put("not.json", b"hello");
        inputs.put("list.json", b"[1]");
        inputs.put("other_map.json", br#"{"flows": []}"#);
        inputs.put("short_key.json", br#"{"knock": [{"key": ["0x01"], "value": ["0x01"]}]}"#);
        inputs.put("no_hex.json", br#"{"knock": [{"key": [7], "value": []}]}"#);
        inputs
    }

    fn path(&self, file: &str) -> String {
        name(&self.folder.path().join(file)).to_owned()
    }

    fn put(&self, file: &str, bytes: &[u8]) {
        std::fs::write(self.path(file), bytes).unwrap();
    }
}

const WRONG_FUNCTIONS: &[Refusal<'_>] = &[
    ("check @missing.efsm", &["`@missing.efsm`", "No such file"]),
    ("check .", &["'.'", "the folder has no function"]),
    (
        "check @latin.efsm",
        &["`@latin.efsm`", "neither an eBPF object nor a source in UTF-8", "invalid UTF-8 at byte 17"],
    ),
    ("check @empty", &["@empty", "no name", "start the file with `function", "no element", "add `stateless"]),
    (
        "check @two_errors.efsm",
        &["2 errors", "two_errors.efsm:3:", "`ip.scr`", "`ip.src`", "two_errors.efsm:5:", "`b`"],
    ),
    ("check @cut.o", &["`@cut.o`"]),
    ("check @port_knocking.o --program nix", &["no program `nix`", "`port_knocking`"]),
    ("check {} --program nix", &["--program nix selects a program of an object", "is a source"]),
    ("check {} --param gpa=1", &["no parameter `gpa`", "`gap`"]),
    ("check {} --param gap", &["expected NAME=VALUE, found `gap`"]),
    ("check {} --param gap=soon", &["`gap`", "`soon`", "declared here", "help:"]),
    ("check {} --param knock1=70000", &["`knock1`", "70000"]),
    ("check {} --param knock1=1 --param knock1=2", &["`knock1`"]),
    ("check @port_knocking.o --param gap=1s", &["--param gap sets a parameter of a source", "is an object"]),
    ("check @port_knocking.o --target machine", &["the reference machine runs sources, this is an object"]),
    ("check {} --target fpga", &["'fpga'", "machine, interp"]),
    ("check {} --type xdp", &["--type sets the program type of an object"]),
    ("build {} --target fpga", &["'fpga'", "bpf"]),
    ("build {}", &["--target <TARGET>"]),
    ("build {} --target bpf -o @empty", &["`@empty`", "is a file, expected a folder"]),
    ("trace gen --function @port_knocking.o -w @x.pcap", &["`@port_knocking.o` is an object", "an `.efsm` source"]),
    ("trace gen --function {}", &["--write <CAPTURE>"]),
];

const WRONG_CAPTURES: &[Refusal<'_>] = &[
    ("run {}", &["no packets", "-r"]),
    ("run {} -r @missing.pcap", &["cannot open `@missing.pcap`", "No such file"]),
    ("run {} -r .", &["`.`", "Is a directory"]),
    ("run {} -r @latin.efsm", &["`@latin.efsm` starts with `66 75 6e 63`", "expected a pcap or pcapng capture"]),
    ("run {} -r @empty", &["`@empty`", "it is empty", "expected a pcap or pcapng capture"]),
    ("run {} -r @packed.pcap.gz", &["`@packed.pcap.gz` is compressed with gzip", "expected a pcap or pcapng capture"]),
    (
        "verify {} -r @cut.pcap --targets interp",
        &["`@cut.pcap` at byte", "after 49 packets", "ends within a packet", "found", "bytes of"],
    ),
    ("run {} -r @cooked.pcap", &["link type LINKTYPE_LINUX_SLL (113)", "expected LINKTYPE_ETHERNET (1)"]),
    ("run {} -r @old.pcap", &["`@old.pcap` at byte 4", "the version is 1.2, expected 2.4"]),
    ("run {} -r @huge.pcap", &["the captured length of a packet is 4294967295 bytes", "expected at most"]),
    ("run {} -r @good.pcap -r @missing.pcap", &["`@missing.pcap`"]),
    ("run {} -r @good.pcap -w @no/out.pcap", &["cannot create `@no/out.pcap`", "No such file"]),
    ("run {} -r @good.pcap -w @out.pcap.gz", &["compression `.gz` is not supported", "expected `.pcap`"]),
    ("run {} -r @good.pcap -w @good.pcap", &["-w `@good.pcap` would overwrite", "write to another file"]),
    ("verify {} -r @good.pcap -w @good.pcap", &["-w `@good.pcap` would overwrite", "write to another file"]),
    ("run {} -r @good.pcap --events @good.pcap", &["--events `@good.pcap` would overwrite the capture that -r reads"]),
    ("run {} -r @good.pcap --state-out @good.pcap", &["--state-out `@good.pcap` would overwrite the capture"]),
    ("run @own.efsm -r @good.pcap --events @own.efsm", &["--events `@own.efsm` would overwrite the function"]),
    ("run {} -r @good.pcap -w @x --events @./x", &["-w and --events would both write `@./x`; name two files"]),
    ("run {} -r @good.pcap --events @x --state-out @x", &["--events and --state-out would both write `@x`"]),
    ("run {} -r @good.pcap --state-in @list.json -w @list.json", &["-w `@list.json` would overwrite the state"]),
    ("run {} -r @good.pcap --events -", &["found a standard stream", "`./-`"]),
    ("run {} -r -", &["`standard input` starts with nothing"]),
    ("run {} -r - -r -", &["-r - is given twice"]),
    ("run {} -r @good.pcap -w @x.pcap --format pcapng", &["--format is for -w -", "`@x.pcap`"]),
    ("run {} -r @good.pcap --state-out -", &["found a standard stream"]),
    ("verify {} -r -", &["`standard input` starts with nothing"]),
    ("verify {} -w -", &["found a standard stream"]),
    ("trace info -", &["found a standard stream"]),
    ("run {} -i lo --events @x", &["cannot be used with", "--events <FILE>"]),
    ("run {} -i lo --routes @x", &["cannot be used with", "--routes <FILE>"]),
    ("run {} -i lo --seed 3", &["cannot be used with", "--seed <SEED>"]),
    ("run {} -i lo --engine jit", &["--engine jit cannot be used with --mode native; use --mode af_xdp"]),
    ("run {} -i lo -m skb --pass-to stack", &["--pass-to cannot be used with --mode skb; use --mode af_xdp"]),
    ("run {} -i lo --busy-poll", &["--busy-poll cannot be used with --mode native"]),
    (
        "run {} -i lo --mode af_xdp --engine kernel",
        &["--engine kernel cannot be used with --mode af_xdp", "or --mode native"],
    ),
    (
        "run {} -i lo --mode af_xdp --engine machine",
        &["engine `machine` does not run packets of devices; use interp or jit"],
    ),
    (
        "run {} -i lo --mode skb --workers 2",
        &["--workers cannot be used with --mode skb", "--mode af_xdp, raw, tap or dpdk"],
    ),
    ("run {} -i lo --mode raw --workers 2 --trace 1", &["--trace cannot be used with --workers 2", "use --workers 1"]),
    ("run {} -r @good.pcap --workers 0", &["--workers", "0 is not in 1..=256"]),
    ("run {} -r @good.pcap --workers 2 --engine kernel", &["does not run on several cores; use interp or jit"]),
    ("run {} -i lo --mode raw --no-huge-pages", &["--no-huge-pages cannot be used with --mode raw; use --mode dpdk"]),
    ("run {} -i x0 --mode tap --pass-to stack", &["--pass-to stack cannot be used with --mode tap; name an interface"]),
    ("run {} -i nowhere0 --mode af_xdp", &["no interface `nowhere0`", "`ip link` lists them"]),
    ("run {} -i lo --mode raw --pass-to lo", &["the function runs on `lo`; name another interface"]),
    ("run {} -r @good.pcap --pass-to stack", &["cannot be used with", "--pass-to <stack|DEV>"]),
    ("verify {} --state-in @list.json", &["--read <CAPTURE>"]),
    ("trace info @missing.pcap", &["`@missing.pcap`"]),
    ("trace info", &["<CAPTURE>"]),
    ("trace info @good.pcap --profile uni3", &["'uni3'", "similar", "uni1"]),
    ("trace info @good.pcap --profile zipf", &["no paper prints figures of `zipf`", "`uni1`, `uni2`, `mawi15`"]),
    ("trace gen -w @x.pcap", &["--profile <NAME>"]),
    ("trace gen @own.efsm -w @own.efsm", &["-w `@own.efsm` would overwrite the function"]),
    ("trace gen {} --profile uni1 -w @x.pcap", &["cannot be used with", "--profile <NAME>"]),
    ("trace gen {} --rate 40G -w @x.pcap", &["cannot be used with", "--rate <RATE>"]),
    ("trace gen --rate 40G -w @x.pcap", &["--profile <NAME>"]),
    ("trace gen --profile uni1 --param gap=1s -w @x.pcap", &["cannot be used with"]),
    ("trace gen --profile uni1 --rate fast -w @x.pcap", &["`40G`", "`5Mpps`", "found `fast`"]),
    ("trace gen --profile uni1 --duration 10 -w @x.pcap", &["`500ms`, `10s` or `2m`"]),
    ("trace gen --profile uni1 -c many -w @x.pcap", &["`20000`, `50k` or `5M`"]),
    ("trace gen --profile uni1 --exponent 2 -w @x.pcap", &["`uni1` does not accept exponent", "`zipf`, `churn`"]),
    (
        "trace gen --profile mawi15 --size 60 -w @x.pcap",
        &["size is 60", "74 to 9014 bytes, or 60 with a share of IPv6 of 0"],
    ),
    ("trace gen --profile uni1 --flows 1M -w @x.pcap", &["flows is 1000000", "expected 100 to", "packets per second"]),
    ("trace gen --profile churn --new-flows 100M -w @x.pcap", &["at most 71564885", "at 10G"]),
    ("trace gen --profile uni1 -s 5 -w @x.pcap", &["snap length is 5, expected 14 to 262144 bytes"]),
    ("trace gen --profile uni1 -w @no/x.pcap", &["cannot create `@no/x.pcap`"]),
    ("trace gen --profile uni1 -w @x.pcap.gz", &["compression `.gz` is not supported"]),
];

const WRONG_OPTIONS: &[Refusal<'_>] = &[
    ("frobnicate", &["unrecognized subcommand 'frobnicate'"]),
    ("draw @port_knocking.o", &["`@port_knocking.o` is an object", "draw its source"]),
    ("draw {} --element flow", &["no element `flow`; it has `links`, `knock`"]),
    ("explain {} --scheme knock", &["expected MAP=SCHEME, found `knock`"]),
    (
        "explain {} --scheme knock=fast",
        &["unknown scheme `fast`, expected one of `none`, `atomic`, `schedule`, `flush`"],
    ),
    ("explain {} --schedule rows", &["'rows'", "dataflow, blocks"]),
    ("explain {} --schedule blocks --queues 4", &["--queues 4 requires --schedule dataflow"]),
    ("explain {} --schedule blocks --scheme knock=flush", &["--scheme knock=flush requires --schedule dataflow"]),
    ("predict {} --zipf 9 --length-given --timing @x", &["cannot be used with", "--timing <FILE>"]),
    ("predict {} --flows 0", &["expected a number of flows", "found `0`"]),
    ("predict {} --zipf 5G", &["expected a number of flows", "found `5G`"]),
    ("explain {} --clock 0", &["'0'", "1..=1000"]),
    ("explain {} --queues 0", &["'0'", "1..=1024"]),
    ("explain {} --html -", &["found a standard stream", "`./-`"]),
    ("explain @own.efsm --html @own.efsm", &["--html `@own.efsm` would overwrite the function"]),
    ("explain @port_knocking.o --program nix", &["no program `nix`", "`port_knocking`"]),
    ("draw {} -o @x.png", &["`@x.png` has no known extension", ".svg or .dot"]),
    ("draw {} --format dot -o @x.svg", &["--format says something else", "`@x.svg`"]),
    ("draw @own.efsm --format dot -o @own.efsm", &["-o `@own.efsm` would overwrite the function"]),
    ("run {} -r @good.pcap --engine fast", &["'fast'", "machine, interp, jit, kernel"]),
    ("run @port_knocking.o -r @good.pcap --engine machine", &["`.efsm` sources", "--engine interp or kernel"]),
    ("run {} -r @good.pcap -c many", &["'many'", "-c"]),
    ("run {} -r @good.pcap --port-by out", &["--port-by: `out` has no `->`", "expected rules such as"]),
    ("run {} -r @good.pcap --port-by ip.src==10.0.0.1->1", &["expected a final `else`", "expected rules such as"]),
    ("run {} -r @good.pcap --port-by vlan.id==1->999,else_2", &["`999` is not a port from 0 to 255"]),
    ("run {} -r @good.pcap --port-by else_1,vlan.id==1->2", &["follows `else`"]),
    ("run {} -r @good.pcap --port-by vlan.id=={80,443->2,else_1", &["`2,else 1` is not a port"]),
    ("run {} -r @good.pcap --port-by vlan.ix==1->1,else_2", &["no packet field `vlan.ix`", "flowloom fields"]),
    ("run {} -r @good.pcap --state-in @missing.json", &["`@missing.json` cannot be read"]),
    ("run {} -r @good.pcap --state-in @not.json", &["`@not.json`", "not JSON"]),
    ("run {} -r @good.pcap --state-in @list.json", &["`@list.json`", "expected an object of maps", "found `[1]`"]),
    ("run {} -r @good.pcap --state-in @other_map.json", &["unknown map `flows`; the function has `knock`\n"]),
    ("run {} -r @good.pcap --state-in @short_key.json", &["key is 1 byte, map `knock` expects 16"]),
    ("run {} -r @good.pcap --state-in @no_hex.json", &["map `knock`", "[\"0x0a\",\"0xff\"]", "found `7`"]),
    ("run {} -r @good.pcap --state-out @no/state.json", &["`@no/state.json` cannot be written"]),
    ("verify {} --targets fpga", &["unknown target `fpga`", "`interp`", "`kernel`", "`available`"]),
    ("verify {} --targets machine", &["targets are compared with the reference machine"]),
    ("verify @port_knocking.o -r @good.pcap --targets interp", &["interpreter is the reference of objects"]),
    ("verify @port_knocking.o -r @good.pcap --require-coverage", &["--require-coverage", "a source"]),
    ("verify {} -r @good.pcap --packets 5", &["--packets <PACKETS>", "cannot be used with", "--read <CAPTURE>"]),
    ("verify {} -c 5", &["--read <CAPTURE>"]),
    ("verify {} --packets 0", &["'0'", "1..="]),
    ("verify {} -r @good.pcap -c 0", &["expected at least one packet"]),
    ("run {} -r @good.pcap -m skb", &["cannot be used with", "--mode <MODE>"]),
    ("run {} -r @good.pcap --duration 5s", &["cannot be used with", "--duration <TIME>"]),
    ("run {} -r @good.pcap --interval 5s", &["cannot be used with", "--interval <TIME>"]),
    ("run {} -r @good.pcap -q", &["cannot be used with", "--quiet"]),
    ("run {} -r @good.pcap --no-counters", &["cannot be used with", "--no-counters"]),
    ("check @", &["the folder has several functions; choose one of", "`own.efsm`"]),
    ("check @bare", &["the folder has no function", "`.efsm`"]),
    ("fields zip", &["no field begins with `zip`", "tcp", "icmp6"]),
    ("fmt", &["<FILE>"]),
    ("fmt --stdin x.efsm", &["--stdin"]),
    ("fmt @missing.efsm", &["`@missing.efsm`"]),
    ("reproduce", &["<ID>"]),
    ("reproduce nix", &["`nix`", "`eh-tab5`"]),
    ("reproduce eh-tab5 --functions nowhere", &["`nowhere/ebpf/", "--functions"]),
    ("new @x --template bridge", &["flow, gate, table"]),
    ("verify {} --packets 100 --targets interp -w @no/x.pcap", &["`@no/x.pcap` cannot be written"]),
];

/// Runs the cases on the inputs; `{}` in a command line is this function.
#[track_caller]
fn refused_on_inputs(cases: &[Refusal<'_>], function: &str) {
    let cases: Vec<(String, _)> = cases.iter().map(|(line, texts)| (line.replace("{}", function), *texts)).collect();
    let cases: Vec<Refusal<'_>> = cases.iter().map(|(line, texts)| (line.as_str(), *texts)).collect();
    refused(&Inputs::new().path(""), &cases);
}

#[test]
fn wrong_functions_are_refused_with_reasons() {
    refused_on_inputs(WRONG_FUNCTIONS, PORT_KNOCKING);
}

#[test]
fn wrong_captures_are_refused_with_reasons() {
    refused_on_inputs(WRONG_CAPTURES, PORT_KNOCKING);
}

#[test]
fn wrong_options_are_refused_with_reasons() {
    refused_on_inputs(WRONG_OPTIONS, PORT_KNOCKING);
}

#[test]
fn an_input_that_would_be_overwritten_stays() {
    let inputs = Inputs::new();
    let before = std::fs::read(inputs.path("good.pcap")).unwrap();
    let link = inputs.path("link.pcap");
    std::os::unix::fs::symlink(inputs.path("good.pcap"), &link).unwrap();
    exits(2, &["run", PASS_ALL, "-r", &link, "-w", &inputs.path("good.pcap")]);
    assert!(std::fs::read(inputs.path("good.pcap")).unwrap() == before, "the input is gone");
}

#[test]
fn what_stands_before_damage_is_run_and_written() {
    let inputs = Inputs::new();
    let left = inputs.path("left.pcap");
    exits(2, &["run", PASS_ALL, "-r", &inputs.path("cut.pcap"), "-w", &left]).stdout_has(&["49 packets"]);
    assert_eq!(common::read(left.as_ref()).len(), 49);
}

#[test]
fn findings_end_with_1() {
    let gap =
        exits(1, &["verify", BIG_FLOW, "--packets", "20", "--targets", "interp", "--require-coverage", "1000000"]);
    gap.stdout_has(&["fewer hits than 1000000"]);
    assert_eq!(gap.stderr, "");
}

#[test]
fn what_the_environment_lacks_ends_with_3() {
    let test = "what_the_environment_lacks_ends_with_3";
    // As user nobody, without the right to load programs.
    if !kernel(test) {
        return;
    }
    let inputs = Inputs::new();
    let binary = inputs.path("flowloom");
    std::fs::copy(env!("CARGO_BIN_EXE_flowloom"), &binary).unwrap();
    std::fs::copy(top().join(PASS_ALL), inputs.path("pass_all.efsm")).unwrap();
    let open = Command::new("chmod").args(["-R", "a+rX", &inputs.path("")]).status().unwrap();
    assert!(open.success());
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--bounding-set=-all", &binary]);
        command.args(arguments).current_dir(inputs.folder.path()).stdin(Stdio::null()).output()
    };
    match as_nobody(&["fields", "tcp"]) {
        Ok(output) if output.status.success() => {}
        other => return flowloom_testkit::skip(test, &format!("`setpriv` cannot become nobody: {other:?}")),
    }
    for arguments in [
        &["run", "pass_all.efsm", "-r", "good.pcap", "--engine", "kernel"][..],
        &["verify", "pass_all.efsm", "-r", "good.pcap", "--targets", "kernel"],
    ] {
        let ran = Ran::from(as_nobody(arguments).unwrap());
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), ""), "{ran:?}");
        ran.stderr_has(&["root or the capabilities"]);
    }
    // If no program of an object can be tried, the exit code is the same for one and for several programs.
    if let Some(clang) = flowloom_testkit::Clang::find(test) {
        let one = "#include <linux/bpf.h>\n__attribute__((section(\"xdp\"))) int f(void) { return 2; }\n";
        for (file, source) in [("one.o", one.to_owned()), ("two.o", one.to_owned() + &one.replace("f(", "g("))] {
            inputs.put(file, &clang.compile(&source, &[]).unwrap());
            let ran = Ran::from(as_nobody(&["check", file, "--target", "kernel"]).unwrap());
            assert!(ran.code == Some(3) && ran.stderr.contains("is not available here"), "{file}: {ran:?}");
        }
    }
    // A skipped target is reported, and the others are compared.
    let ran = Ran::from(as_nobody(&["verify", "pass_all.efsm", "-r", "good.pcap"]).unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(ran.stderr.contains("`kernel` is skipped") && ran.stdout.contains("interp"), "{ran:?}");
    let ran = Ran::from(as_nobody(&["check", "pass_all.efsm"]).unwrap());
    assert!(ran.code == Some(0) && ran.stdout.contains("not tried"), "{ran:?}");
}

#[test]
fn every_verb_has_help_with_an_example() {
    let verbs = "run, check, fmt, verify, build, explain, predict, fields, reproduce, trace info, trace gen, \
                 trace profiles, bpf plugin";
    let overview = ok(&["--help"]);
    for verb in verbs.split(", ") {
        assert!(overview.contains(&format!("  {} ", verb.split(' ').next().unwrap())), "{verb}: {overview}");
        let mut words: Vec<&str> = verb.split(' ').collect();
        words.push("--help");
        let help = ok(&words);
        let (_, examples) = help.split_once("\nExample").unwrap_or_else(|| panic!("{verb} has no example:\n{help}"));
        assert!(examples.contains(&format!("\n  flowloom {verb} ")), "{verb}:\n{help}");
    }
    assert!(overview.contains("Exit codes: 0"), "{overview}");
    assert!(ok(&["--version"]).starts_with("flowloom 0."));
}

#[test]
fn readers_that_go_away_end_it_quietly() {
    for arguments in [&["fields"][..], &["fields", "--json"], &["check", PORT_KNOCKING, "-v"], &["--help"]] {
        let mut child = flowloom().args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        drop(child.stdout.take()); // before or during the output
        let ran = Ran::from(child.wait_with_output().unwrap());
        assert!(ran.code == Some(0) && ran.stderr.is_empty(), "{arguments:?}: {ran:?}");
    }
    // The reader of stderr is gone too.
    let mut child = flowloom().args(["check", "missing"]).stderr(Stdio::piped()).spawn().unwrap();
    drop(child.stderr.take());
    assert_eq!(child.wait().unwrap().code(), Some(2));
}

#[test]
fn a_full_disk_is_said() {
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let ran = Ran::from(flowloom().arg("fields").stdout(full).output().unwrap());
    assert_eq!(ran.code, Some(3));
    assert!(ran.stderr.contains("stdout cannot be written"), "{ran:?}");
    let inputs = Inputs::new();
    let ran = run(&["run", PASS_ALL, "-r", &inputs.path("good.pcap"), "-w", "/dev/full"]);
    assert!(ran.code != Some(0) && ran.stderr.contains("`/dev/full`"), "{ran:?}");
}
