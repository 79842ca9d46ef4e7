// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Timers on the kernel's clock, with a sweep period per table.

use serde_json::json;

use crate::common::lab::Lab;

const TWO_TABLES: &str = "function two_tables;
stateful quick {
    key udp.dport;
    sweep 100ms;
    states seen, known;
    on seen -> known (idle 200ms) { goto lazy; }
    on known { goto lazy; }
}
stateful lazy {
    key udp.dport;
    sweep 1000h;
    states seen, known;
    on seen -> known (hard 200ms) { pass; }
    on known { pass; }
}
";

#[test]
fn each_table_is_swept_in_its_own_time() {
    let Some(lab) = Lab::new("each_table_is_swept_in_its_own_time", &[]) else { return };
    let function = lab.put_unique("two.efsm", TWO_TABLES);
    let said = lab.run(
        r#"
        host a 1; addresses a 1; neighbours a 1
        start two.efsm -i v1
        as a send 10.9.1.2:9 >sent
        wait_for '"$FLOWLOOM" map dump $name/quick | grep -q "0 entries"'
        # The lazy table is not swept while this test runs: its sweeps lie 1000 hours apart.
        "$FLOWLOOM" map dump $1/lazy --json >lazy
        "$FLOWLOOM" map dump $1/lazy >words
        "$FLOWLOOM" map dump $1/quick --json >quick
        # Its timer has expired all the same: the packet finds no context.
        as a send 10.9.1.2:9 >sent
        wait_for 'grep -q report out && tail -n 1 out | grep -q "\"no_match\""'
        sleep 1.2
        finish
        echo $code"#,
        &[&function],
    );
    assert_eq!(said, "0\n");
    assert_eq!(lab.json("quick"), json!([]));
    let lazy = lab.json("lazy");
    assert_eq!(lazy[0]["key"], json!({"udp.dport": 9}), "{lazy}");
    assert!(lab.read("words").contains("state=known") && lab.read("words").contains("s ago"), "{}", lab.read("words"));
    let report = lab.report();
    let [quick, lazy] = [&report["elements"][0], &report["elements"][1]];
    assert_eq!((&quick["contexts_created"], &quick["contexts_timed_out"]), (&json!(2), &json!(2)), "{report}");
    // The second packet found the first context expired. The second context expired too, but no packet or sweep has
    // detected it.
    assert_eq!((&lazy["contexts_created"], &lazy["contexts_timed_out"]), (&json!(2), &json!(1)), "{report}");
    assert_eq!(lazy["hard_expired"], json!([{"state": "known", "hits": 1}]), "{report}");
    assert_eq!(lazy["contexts_alive"], 0, "{report}");
}
