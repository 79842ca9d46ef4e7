// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Loop-free cases of the instruction suite as pipelines, many in one model.

use std::collections::{BTreeMap, BTreeSet};

use flowloom_rtl::Core;
use flowloom_testkit::{Expected, Rng, instruction_cases};
use flowloom_vm::plugin::OnPackets;

use crate::case;
use crate::common::planned;
use crate::stream::{Bench, Stimulus, WORD_BYTES};

/// Cases of a model: what Verilator compiles in some ten seconds.
pub(crate) const BATCH: usize = 60;

/// A case that has a core.
#[derive(Debug)]
pub(crate) struct Rendered {
    place: String,
    /// The place of the result among the maps of the core, if the core has it.
    result: Option<usize>,
    r0: u64,
}

/// The cases that end.
#[derive(Debug, Default)]
pub(crate) struct Suite {
    pub(crate) cases: Vec<Rendered>,
    /// The cores of these, in the same order.
    pub(crate) cores: Vec<Core>,
    /// By reason, the cases that have no core.
    pub(crate) without: BTreeMap<String, Vec<String>>,
}

impl Suite {
    pub(crate) fn rendered() -> Suite {
        let mut suite = Suite::default();
        for (number, case) in instruction_cases().into_iter().enumerate() {
            let Expected::Ends { r0, .. } = case.expected else { continue };
            let place = format!("{} `{}`", case.place, case.name);
            let mut wrapped = OnPackets::of(&case::program(&case), &case.memory);
            wrapped.program.name = format!("case{number}");
            let core = planned(&wrapped.program)
                .and_then(|plan| Core::of(&plan, &wrapped.program).map_err(|error| error.to_string()));
            match core {
                Ok(core) => {
                    let result = core.maps.iter().position(|map| map.map as usize == wrapped.result);
                    suite.cases.push(Rendered { place, result, r0 });
                    suite.cores.push(core);
                }
                Err(reason) => suite.without.entry(reason).or_default().push(place),
            }
        }
        suite
    }
}

/// Runs cases in one model. Returns those that differ; `None` without Verilator.
pub(crate) fn wrong(test: &str, cases: &[Rendered], cores: &[Core], seed: u64) -> Option<Vec<String>> {
    let packet = Stimulus { gap_cycles: 0, port: 0, now_ns: 0, bytes: vec![0; WORD_BYTES] };
    let results = Bench::new(test, cores, &[])?.run(&[packet], seed);
    let wrong = cases.iter().zip(results).filter_map(|(case, results)| {
        let found = results.map(|results| case.result.map(|place| results.maps[place].clone()));
        let expected = Ok(Some(vec![case.r0.to_le_bytes().to_vec()]));
        (found != expected).then(|| format!("{}: found {found:x?}, expected {expected:x?}", case.place))
    });
    Some(wrong.collect())
}

#[test]
fn drawn_cases_run_as_pipelines() {
    let Suite { cases, cores, without } = Suite::rendered();
    assert!(cases.len() > 100 * without.values().map(Vec::len).sum::<usize>(), "{without:#?}");
    let mut rng = Rng::from_env(1);
    let drawn: BTreeSet<usize> = (0..BATCH).map(|_| rng.below(cases.len())).collect();
    let drawn_of = cases.into_iter().zip(cores).enumerate().filter(|(place, _)| drawn.contains(place));
    let (cases, cores): (Vec<_>, Vec<_>) = drawn_of.map(|(_, case)| case).unzip();
    let Some(wrong) = wrong("drawn_cases_run_as_pipelines", &cases, &cores, 1) else { return };
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
