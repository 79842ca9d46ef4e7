// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pipelines for which a paper gives K and L, and our own.

use flowloom_ehdl::{MapUse, schedule};
use flowloom_plan::{Arbiter, MapTiming, Options, Refusal, Scheme, Target, Timing};
use flowloom_predict::{Arrivals, Pace, PredictOptions, Report, predict};
use flowloom_session::{Loaded, PlanError};

use crate::explain::{plan_failure, proof};
use crate::failure::Failure;

pub(super) const CLOCK_MHZ: f64 = 250.0;
/// Registers at both ends of a pipeline, as in plans.
const FRAMING_CYCLES: u32 = 2;
const QUEUES: u32 = 8;
const QUEUE_DEPTH: u32 = 32;

/// Pipeline with one map, which restarts from stage 0. A flush takes K cycles, of which the last 4 reload the pipeline
/// (fewer if K - L is less); L cycles are between a read and the write. `None` if K is less than L.
pub(super) fn of_paper(map: &str, flush_cycles: u32, window: u32) -> Option<Timing> {
    let reload_cycles = Timing::RELOAD_CYCLES.min(flush_cycles.checked_sub(window)?);
    let stages = flush_cycles - reload_cycles;
    let own = MapTiming {
        name: map.to_owned(),
        scheme: Scheme::Flush,
        read_stage: stages - window,
        write_stage: stages - 1,
        hold_cycles: window,
        queues: QUEUES,
        queue_depth: QUEUE_DEPTH,
        restart_stage: 0,
    };
    Some(Timing {
        clock_mhz: CLOCK_MHZ,
        stages,
        latency_cycles: stages + FRAMING_CYCLES,
        reload_cycles,
        arbiter: Arbiter::default(),
        maps: vec![own],
    })
}

/// Timing and map schemes of the papers' block-by-block layout.
pub(super) fn by_blocks(loaded: &Loaded) -> Result<(Timing, Vec<MapUse>), Failure> {
    let (program, proof) = (loaded.program()?, proof(loaded, false)?);
    let schedule = schedule(&program, proof, &Target::default()).map_err(|e| Failure::input(&e))?;
    let maps = schedule.maps(&program);
    let timing = schedule.timing(&maps, CLOCK_MHZ, schedule.stages.len() as u32 + FRAMING_CYCLES);
    Ok((timing, maps))
}

/// The timing of the plan of a program, with the scheme of one map given; or why there is no plan. A plan in which the
/// checker finds a fault is a failure.
pub(super) fn planned(
    loaded: &Loaded,
    scheme: Option<(&str, Scheme)>,
) -> Result<Result<Timing, Box<Refusal>>, Failure> {
    let schemes = scheme.map(|(map, scheme)| (map.to_owned(), scheme)).into_iter().collect();
    let options = Options { target: Target::at(CLOCK_MHZ as u32), schemes, queues: QUEUES, ..Options::default() };
    match loaded.plan(&options) {
        Ok(plan) => Ok(Ok(plan.timing())),
        Err(PlanError::Refused(refusal)) => Ok(Err(refusal)),
        Err(error) => Err(plan_failure(loaded, error, false)),
    }
}

pub(super) fn run(timing: &Timing, pace: Pace, arrivals: &mut impl Arrivals) -> Result<Report, Failure> {
    predict(timing, &PredictOptions::new(pace), arrivals).map_err(|e| Failure::input(&e))
}

/// `buckets flush K 14 L 6`, for each map that packets change.
pub(super) fn timing_text(timing: &Timing) -> String {
    let map = |map: &MapTiming| match map.scheme {
        Scheme::Flush => format!("{} flush K {} L {}", map.name, timing.flush_cycles(map), map.hold_cycles),
        Scheme::Schedule => format!("{} schedule hold {} in {} queues", map.name, map.hold_cycles, map.queues),
        scheme => format!("{} {}", map.name, scheme.as_str()),
    };
    let maps: Vec<String> = timing.maps.iter().map(map).collect();
    format!(
        "{} stages: {}",
        timing.stages,
        if maps.is_empty() { "no map is written".to_owned() } else { maps.join(", ") }
    )
}
