// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `flowloom map` compared with `bpftool map`, on a running function.

use serde_json::{Value, json};

use crate::common::lab::{Lab, shipped};
use crate::common::{PORT_KNOCKING, name, ok};

const FLOWS: &str = "function flows_live;
stateful conversations {
    key biflow(ip.src, ip.dst, udp.sport, udp.dport);
    states fresh, answered;
    reg packets: u32 = 7;
    reg balance: i16 = -2;
    global total: u64 = 40;
    on fresh -> answered (idle 1m) { packets += 1; balance -= 1; total += 1; pass; }
    on answered { packets += 1; total += 1; pass; }
    otherwise { pass; }
}
";

#[test]
fn both_tools_see_and_change_the_same() {
    let Some(lab) = Lab::new("both_tools_see_and_change_the_same", &["bpftool"]) else { return };
    let function = lab.put_unique("flows.efsm", FLOWS);
    let said = lab.run(
        r#"
        host a 1; addresses a 1; neighbours a 1
        start flows.efsm -i v1
        as a send 10.9.1.2:9 10.9.1.2:10 >sent
        map() { local verb=$1; shift; "$FLOWLOOM" map $verb "$@"; }
        wait_for 'map dump $name/conversations | grep -q "2 entries"'
        map list --json >list
        id=$(map list | sed -n "s/^$1 .* conversations  *\([0-9]*\)$/\1/p")
        # The description has no types: there `bpftool` prints bytes as well.
        for info in $(bpftool -j prog show name $1 | sed 's/.*"map_ids":\[\([0-9,]*\)\].*/\1/' | tr , ' '); do
            if bpftool map show id $info | grep -q fl_info; then break; fi
        done
        map dump id $id --json --raw >ours; bpftool -j map dump id $id >theirs
        map dump id $info --raw >ours_text; bpftool map dump id $info >theirs_text
        map dump $1 --json >named
        map dump $1 >words
        # By the names of the parts of the key, in either direction: it is one conversation.
        port=$(grep -o '"udp.sport":[0-9]*\|"udp.dport":[0-9]*' named | cut -d: -f2 | grep -v '^9$\|^10$' | head -n 1)
        last=$(grep -q "\"udp.dport\":9,\"udp.sport\":$port\|\"udp.dport\":$port,\"udp.sport\":9" named && echo 9 || echo 10)
        map lookup $1 key ip.src=10.9.1.1 ip.dst=10.9.1.2 udp.sport=$port udp.dport=$last --json >there
        map lookup $1 key ip.src=10.9.1.2 ip.dst=10.9.1.1 udp.sport=$last udp.dport=$port --json >back
        cmp there back
        # Ours writes, theirs reads.
        map update $1 key ip.src=10.0.0.9 ip.dst=10.0.0.8 udp.sport=1 udp.dport=2 value state=answered packets=258 balance=-3
        key="00 00 00 00 00 00 00 00 00 00 ff ff 0a 00 00 08 00 00 00 00 00 00 00 00 00 00 ff ff 0a 00 00 09 00 02 00 01"
        bpftool -j map lookup id $id key hex $key >written
        map lookup id $id key hex $key --json --raw >read
        # Theirs writes, ours reads.
        value=$(map lookup id $id key hex $key --raw | sed -n 's/.*value: //p; /^value:$/{n;p}')
        bpftool map update id $id key hex ${key/08/07} value hex $value
        map lookup id $id key hex ${key/08/07} --json >copied
        bpftool map delete id $id key hex $key
        code=0; map lookup id $id key hex $key 2>absent || code=$?; echo $code
        map delete id $id key hex ${key/08/07}
        code=0; map delete id $id key hex ${key/08/07} 2>absent || code=$?; echo $code
        map update id $id key hex $key value hex $value noexist
        code=0; map update id $id key hex $key value hex $value noexist 2>exists || code=$?; echo $code
        map update id $id key hex $key value hex $value exist
        code=0; map update id $id key hex ${key/08/06} value state=fresh exist 2>absent || code=$?; echo $code
        map dump $1/.data --json >globals
        map update $1/.data key 0 value conversations.total=1000
        bpftool map pin id $id /sys/fs/bpf/pinned
        map dump pinned /sys/fs/bpf/pinned --json --raw >pinned; bpftool -j map dump pinned /sys/fs/bpf/pinned >theirs_pinned
        map dump $1/.data.fl_counts --json >verdicts
        as a send 10.9.1.2:9 >sent
        wait_for '"$FLOWLOOM" map dump $name/.data | grep -q total=1001'
        finish"#,
        &[&function],
    );
    assert_eq!(said, "1\n1\n1\n1\n");
    // `bpftool` adds formatted values; ours has them only in the form with names.
    let bytes = |file: &str| -> Vec<(Value, Value)> {
        let list = lab.json(file);
        let mut entries: Vec<_> =
            list.as_array().unwrap().iter().map(|e| (e["key"].clone(), e["value"].clone())).collect();
        entries.sort_by_key(|(key, _)| key.to_string());
        entries
    };
    for (ours, theirs, many) in [("ours", "theirs", 2), ("pinned", "theirs_pinned", 3)] {
        assert_eq!(bytes(ours), bytes(theirs));
        assert_eq!(bytes(ours).len(), many);
    }
    assert_eq!(
        lab.read("ours_text").split_whitespace().collect::<Vec<_>>(),
        lab.read("theirs_text").split_whitespace().collect::<Vec<_>>()
    );
    let (written, read) = (lab.json("written"), lab.json("read"));
    assert_eq!((&written["key"], &written["value"]), (&read["key"], &read["value"]));
    let formatted = &written["formatted"]["value"];
    assert_eq!(
        (&formatted["packets"], &formatted["balance"], &formatted["state"]),
        (&json!(258), &json!(-3), &json!(1))
    );
    let expected = json!({
        "key": {"ip.src": "10.0.0.7", "ip.dst": "10.0.0.9", "udp.sport": 2, "udp.dport": 1},
        "value": {"idle_deadline": null, "idle_ns": 0, "packets": 258, "balance": -3, "state": "answered", "flags": 0},
    });
    assert_eq!(lab.json("copied"), expected);
    let named = lab.json("named");
    for entry in named.as_array().unwrap() {
        let value = &entry["value"];
        let found = (&value["packets"], &value["balance"], &value["state"]);
        assert_eq!(found, (&json!(8), &json!(-3), &json!("answered")), "{named}");
        assert!(value["idle_deadline"].is_u64(), "{named}");
    }
    assert!(lab.read("words").contains("idle_deadline=in 5"), "{}", lab.read("words"));
    assert_eq!(lab.json("globals")[0]["value"]["conversations.total"], 42);
    assert!(lab.json("verdicts")[0]["value"]["PASS"].as_u64() >= Some(2), "{}", lab.read("verdicts"));
    let list = lab.json("list");
    let list = list.as_array().unwrap().iter().filter(|running| running["function"] == function.as_str());
    let list: Vec<_> = list.collect();
    assert_eq!(list.len(), 1);
    assert_eq!(list[0]["ports"], json!({"1": "v1"}));
    let names: Vec<&str> =
        list[0]["maps"].as_array().unwrap().iter().map(|map| map["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["conversations", ".data", ".data.fl_hits", ".data.fl_locks", ".data.fl_counts"]);
}

#[test]
fn what_other_tools_load_is_shown_too() {
    let Some(lab) = Lab::new("what_other_tools_load_is_shown_too", &["bpftool"]) else { return };
    // The kernel keeps 15 bytes of a program's name.
    let function = lab.put_unique("knock.efsm", &shipped(PORT_KNOCKING));
    let source = name(&lab.folder().join("knock.efsm")).to_owned();
    ok(&["build", &source, "--target", "bpf", "-o", name(lab.folder())]);
    lab.run(
        r#"
        bpftool prog load *.o /sys/fs/bpf/fl >log 2>&1
        "$FLOWLOOM" map list --json >list
        "$FLOWLOOM" map list --all --json >all
        "$FLOWLOOM" map update $1/knock key hex 00 00 00 00 00 00 00 00 00 00 ff ff 0a 00 00 01 value state=2
        "$FLOWLOOM" map lookup $1/knock key hex 00 00 00 00 00 00 00 00 00 00 ff ff 0a 00 00 01 --json >typed
        "$FLOWLOOM" map lookup $1/knock key ip.src=10.0.0.1 -f knock.efsm --json >named
        "$FLOWLOOM" map dump $1/knock -f *.o --json >described"#,
        &[&function],
    );
    let listed = |file: &str| lab.json(file).as_array().unwrap().iter().any(|f| f["function"] == function.as_str());
    assert!(listed("all") && !listed("list"), "it runs, but not on interfaces that we know of");
    assert_eq!(lab.json("typed")["value"]["state"], 2);
    let named = lab.json("named");
    assert_eq!((&named["key"], &named["value"]["state"]), (&json!({"ip.src": "10.0.0.1"}), &json!("second")));
    assert_eq!(lab.json("described")[0]["value"]["state"], "second");
}

#[test]
fn wrong_words_say_what_is_expected() {
    let Some(lab) = Lab::new("wrong_words_say_what_is_expected", &[]) else { return };
    let function = lab.put_unique("knock.efsm", &shipped(PORT_KNOCKING));
    let cases: [(&str, &[&str]); 17] = [
        ("dump nothing", &["no function `nothing` runs", "there run"]),
        ("dump FN/nothing", &["has no map `nothing`", "`knock`"]),
        ("dump name nothing", &["no map `nothing`", "map list"]),
        ("dump id 4000000000", &["no map 4000000000"]),
        ("dump id", &["expected a number after `id`"]),
        ("dump id x", &["expected the id of a map, found `x`"]),
        ("dump pinned /nowhere", &["/nowhere"]),
        ("dump FN key", &["unexpected argument `key` of `map dump`"]),
        ("lookup FN", &["expected `key` and its bytes"]),
        ("lookup FN value 1", &["expected `key`, found `value`"]),
        ("lookup FN key 1 2", &["key is 2 bytes, map `knock` expects 16"]),
        ("lookup FN key hex 1g", &["expected a byte in hexadecimal digits, found `1g`"]),
        ("lookup FN key 256", &["expected a byte from 0 to 255, found `256`"]),
        ("lookup FN key ip.dst=10.0.0.1", &["`ip.dst` is not a key part", "ip.src"]),
        ("lookup FN key ip.src=ten", &["`ip.src`: expected an IP address, found `ten`"]),
        (
            "update FN key ip.src=10.0.0.1 value state=ajar",
            &["`state`: expected one of the states closed, first, second, third, open, found `ajar`"],
        ),
        ("update FN key ip.src=10.0.0.1 value state=open sometimes", &["expected NAME=VALUE, found `sometimes`"]),
    ];
    let mut script = String::from("host a 1\nstart knock.efsm -i v1\n");
    for (number, (words, _)) in cases.iter().enumerate() {
        let words = words.replace("FN", "$1");
        script.push_str(&format!("code=0; \"$FLOWLOOM\" map {words} 2>said{number} || code=$?; echo $code\n"));
    }
    let said = lab.run(&script, &[&function]);
    let codes: Vec<&str> = said.lines().collect();
    for (number, (words, expected)) in cases.iter().enumerate() {
        let why = lab.read(&format!("said{number}"));
        // A missing path is an error of the environment.
        assert!(matches!(codes[number], "2" | "3"), "map {words}: exit code {}: {why}", codes[number]);
        for word in *expected {
            assert!(why.contains(word), "map {words}: `{word}` is not in:\n{why}");
        }
    }
}
