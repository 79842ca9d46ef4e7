//! `flowloom reproduce`: what papers print beside what this program gives.
#![allow(clippy::unwrap_used)]

mod common;

use common::{ok, run};
use flowloom_testkit::Clang;
use serde_json::Value;

fn reproduced(id: &str) -> Value {
    serde_json::from_str(&ok(&["reproduce", id, "--json"])).unwrap()
}

#[test]
fn the_list_names_every_table_and_figure() {
    let list = ok(&["reproduce", "--list"]);
    for id in ["eh-tab5", "eh-fig9c"] {
        assert!(list.contains(id), "{list}");
    }
    let list: Value = serde_json::from_str(&ok(&["reproduce", "--list", "--json"])).unwrap();
    assert!(list.as_array().unwrap().iter().any(|known| known["source"] == "eHDL, Table 5"), "{list}");
}

#[test]
fn what_is_unknown_or_missing_is_said() {
    let unknown = run(&["reproduce", "nix"]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.stderr.contains("`nix`") && unknown.stderr.contains("`eh-tab5`"), "{unknown:?}");
    let missing = run(&["reproduce", "eh-tab5", "--functions", "nowhere"]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.stderr.contains("`nowhere/ebpf/") && missing.stderr.contains("--functions"), "{missing:?}");
    assert_eq!(run(&["reproduce"]).code, Some(2));
}

/// The average of the five programs is within 25% of table 5, and where a number comes from is said by instruction.
#[test]
fn table_5_is_met() {
    if Clang::find("table_5_is_met").is_none() {
        return;
    }
    let table = reproduced("eh-tab5");
    let rows = table["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 5);
    for row in rows {
        let average = &row["values"]["average_ilp"];
        assert!(average["difference"].as_f64().unwrap().abs() <= 0.25, "{row}");
        assert_eq!(average["is_off"], false);
        let parts = &row["parts"];
        let fewer = ["only_one_of_block", "first", "follows", "waits_for_call"]
            .map(|why| parts["alone"][why].as_u64().unwrap());
        let by_instructions = parts["stages_by_instructions"].as_array().unwrap();
        let stages = |many: usize| by_instructions[many].as_u64().unwrap();
        assert_eq!(fewer.iter().sum::<u64>(), stages(0) + stages(1), "{row}");
        assert_eq!(parts["alone_by_stage"].as_array().unwrap().len() as u64, stages(0) + stages(1));
    }
    let text = ok(&["reproduce", "eh-tab5", "-v"]);
    assert!(text.contains("tolerance: average ILP 25%") && text.contains("follows `"), "{text}");
}

#[test]
fn the_toy_of_figure_8_has_its_20_stages() {
    if Clang::find("the_toy_of_figure_8_has_its_20_stages").is_none() {
        return;
    }
    let figure = reproduced("eh-fig9c");
    let toy = &figure["rows"][0];
    for value in ["instructions", "stages", "average_ilp"] {
        assert_eq!(toy["values"][value]["difference"], 0.0, "{toy}");
    }
    let state = &toy["parts"]["state"];
    assert_eq!(state["along_pipeline"]["largest_bytes"], 88);
    assert_eq!(state["unpruned"]["largest_bytes"], 88 + 512 + 64);
}
