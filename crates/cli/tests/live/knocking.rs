// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Port knocking in front of a server: it opens to the host that knocked, and to no other.

use serde_json::{Value, json};

use crate::common::PORT_KNOCKING;
use crate::common::lab::{Lab, MODES, shipped};

/// Two hosts, each behind its own port, and a server with the function on both. Neighbour tables are empty.
const TOPOLOGY: &str = r#"
host friend 1; addresses friend 1
host stranger 2; addresses stranger 2
serve - server serve [::]:22
friend() { as friend "$@"; }
stranger() { as stranger "$@"; }
"#;

fn a_door(test: &'static str, mode: &str) {
    let Some(lab) = Lab::new(test, &[]) else { return };
    let function = lab.put_unique("knock.efsm", &shipped(PORT_KNOCKING));
    let script = format!(
        r#"{TOPOLOGY}
        # The machine may be slow: knocks may be a minute apart.
        start knock.efsm -i v1 -i v2 -m $2 --param gap=60s
        echo before: $(friend connect 10.9.1.2:22) $(stranger connect 10.9.2.2:22)
        friend send 10.9.1.2:5123 10.9.1.2:7345 10.9.1.2:8456 >sent
        echo wrong: $(friend connect 10.9.1.2:22)
        friend send 10.9.1.2:5123 10.9.1.2:6234 10.9.1.2:7345 10.9.1.2:8456 >>sent
        echo after: $(friend reach 10.9.1.2:22) $(stranger connect 10.9.2.2:22)
        echo other port: $(friend connect 10.9.1.2:23)
        echo transfer: $(friend transfer 10.9.1.2:22 300000)
        stranger send [fd00:2::2]:5123 [fd00:2::2]:6234 [fd00:2::2]:7345 [fd00:2::2]:8456 >>sent
        echo by another address: $(stranger reach [fd00:2::2]:22) $(stranger connect 10.9.2.2:22)
        has() {{ ip -n $1 neighbour show $2 | grep -c lladdr; }}
        echo neighbours: $(has friend 10.9.1.2) $(has stranger 10.9.2.2) $(has stranger fd00:2::2)
        "$FLOWLOOM" map dump $1 --json >map
        finish TERM
        echo ended: $code $(attached v1) $(attached v2)
        echo without: $(stranger reach 10.9.2.2:22)"#
    );
    let said = lab.run(&script, &[&function, mode]);
    let expected = "before: closed closed\nwrong: closed\nafter: open closed\nother port: closed\ntransfer: same\n\
                    by another address: open closed\nneighbours: 1 1 1\nended: 0 0 0\nwithout: open\n";
    assert_eq!(said, expected, "{}", lab.read("err"));
    let map = lab.json("map");
    let mut open: Vec<(&str, &str)> = Vec::new();
    for entry in map.as_array().unwrap() {
        open.push((entry["key"]["ip.src"].as_str().unwrap(), entry["value"]["state"].as_str().unwrap()));
    }
    open.sort_unstable();
    assert_eq!(open, [("10.9.1.1", "open"), ("fd00:2::1", "open")], "an address for itself");
    let report = lab.report();
    assert_eq!((&report["event"], &report["verdicts"]["ABORTED"]), (&json!("ended"), &json!(0)), "{report}");
    assert!(report["verdicts"]["PASS"].as_u64() > Some(3), "{report}");
    let element = &report["elements"][1];
    assert_eq!((&element["contexts_created"], &element["contexts_alive"]), (&json!(3), &json!(2)), "{report}");
}

#[test]
fn a_door_opens_to_the_host_that_knocked() {
    MODES.iter().for_each(|mode| a_door("a_door_opens_to_the_host_that_knocked", mode));
}

#[test]
fn a_state_goes_on_in_the_next_run() {
    let Some(lab) = Lab::new("a_state_goes_on_in_the_next_run", &[]) else { return };
    let function = lab.put_unique("knock.efsm", &shipped(PORT_KNOCKING));
    let script = format!(
        r#"{TOPOLOGY}
        start knock.efsm -i v1 --param gap=60s --state-out half
        friend send 10.9.1.2:5123 10.9.1.2:6234 >sent
        wait_for '"$FLOWLOOM" map dump $name | grep -q state=second'
        finish
        start knock.efsm -i v1 --param gap=60s --state-in half
        friend send 10.9.1.2:7345 10.9.1.2:8456 >sent
        echo open: $(friend reach 10.9.1.2:22)
        finish"#
    );
    let said = lab.run(&script, &[&function]);
    assert_eq!(said, "open: open\n", "{}", lab.read("err"));

    // A deadline of another clock is beyond all timers; then `--state-time` is needed.
    let mut state: Value = lab.json("half");
    let deadline_ns = u64::from_le_bytes(std::array::from_fn(|i| {
        let byte = state["knock"][0]["value"][i].as_str().unwrap().trim_start_matches("0x").to_owned();
        u8::from_str_radix(&byte, 16).unwrap()
    }));
    let far_ns = deadline_ns + 1_700_000_000_000_000_000;
    for (i, byte) in far_ns.to_le_bytes().iter().enumerate() {
        state["knock"][0]["value"][i] = json!(format!("0x{byte:02x}"));
    }
    lab.put("far", state.to_string());
    let script = format!(
        r#"{TOPOLOGY}
        code=0
        "$FLOWLOOM" run knock.efsm -i v1 --param gap=60s --state-in far --duration 1s 2>why || code=$?
        echo $code
        # The same deadline may be one that `map update` has set on this clock.
        "$FLOWLOOM" run knock.efsm -i v1 --param gap=60s --state-in far --state-time now --duration 1s >taken
        echo $?
        start knock.efsm -i v1 --param gap=60s --state-in far --state-time $2
        friend send 10.9.1.2:7345 10.9.1.2:8456 >sent
        echo open: $(friend reach 10.9.1.2:22)
        "$FLOWLOOM" map dump $1 >words
        finish"#
    );
    let said = lab.run(&script, &[&function, &(far_ns - 30_000_000_000).to_string()]);
    assert_eq!(said, "2\n0\nopen: open\n", "{}", lab.read("err"));
    let why = "the state is from another clock, or `map update` has set the deadline; give the time of the state with --state-time NS";
    assert!(lab.read("why").contains(why), "{}", lab.read("why"));
    assert!(lab.read("words").contains("idle_deadline=in "), "{}", lab.read("words"));
    assert!(lab.report()["now_ns"].as_u64() > Some(far_ns - 30_000_000_000), "{}", lab.report());
}
