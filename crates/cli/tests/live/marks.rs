// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The big flow detector in front of a server: packets after the hundredth of a connection are marked.

use std::collections::BTreeMap;

use crate::common::lab::{Lab, shipped};
use crate::common::{BIG_FLOW, tshark};

#[test]
fn big_flows_are_marked_and_small_ones_are_not() {
    let test = "big_flows_are_marked_and_small_ones_are_not";
    let Some(lab) = Lab::new(test, &["ethtool", "dumpcap", "tshark"]) else { return };
    let function = lab.put_unique("marks.efsm", &shipped(BIG_FLOW));
    let said = lab.run(
        r#"
        host client 1; addresses client 1
        serve - server serve [::]:7
        heeded marks.efsm -i v1
        ip link set dev v1 gro_max_size 1000
        # Behind the function: as the server gets it.
        dumpcap -q -i v1 -w arrived 2>log &
        capturing=$!
        wait_for 'grep -qs File: log'
        echo small: $(as client transfer 10.9.1.2:7 1000) $(as client transfer [fd00:1::2]:7 1000)
        echo big: $(as client transfer 10.9.1.2:7 400000) $(as client transfer [fd00:1::2]:7 400000)
        captured
        finish
        echo end: $code"#,
        &[&function],
    );
    assert_eq!(said, "small: same same\nbig: same same\nend: 0\n", "{}", lab.read("err"));
    let wanted =
        ["ip.dsfield", "ipv6.tclass", "tcp.srcport", "tcp.dstport", "tcp.checksum.status", "ip.checksum.status"];
    let Some(rows) = tshark::fields(test, &lab.folder().join("arrived"), &wanted) else { return };
    let mut flows: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row[3] == "7") {
        assert!(row[4] == tshark::GOOD && ["", tshark::GOOD].contains(&row[5].as_str()), "{row:?}");
        let mark = format!("{}{}", row[0], row[1]);
        let mark = u32::from_str_radix(mark.trim_start_matches("0x"), 16).unwrap();
        flows.entry(row[2].clone()).or_default().push(mark);
    }
    assert_eq!(flows.len(), 4, "{flows:?}");
    for marks in flows.values() {
        let (few, many) = marks.split_at(marks.len().min(100));
        assert!(few.iter().all(|mark| *mark == 0) && many.iter().all(|mark| *mark == 1), "{marks:?}");
    }
    assert_eq!(flows.values().filter(|marks| marks.len() > 200).count(), 2, "{flows:?}");
}
