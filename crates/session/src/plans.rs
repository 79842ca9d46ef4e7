// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checked plans of hardware pipelines.

use flowloom_plan::{Fault, Options, Plan, Reason, Refusal, check, plan_dataflow};

use crate::load::{AnalysisError, Loaded};

/// The reason why there is no plan.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// There is no proof.
    #[error(transparent)]
    Analysis(AnalysisError),
    /// The program has no dataflow or no plan.
    #[error(transparent)]
    Refused(Box<Refusal>),
    /// The checker finds faults in the plan.
    #[error("the checker finds {} faults in the plan", .faults.len())]
    Faulty {
        /// The plan.
        plan: Box<Plan>,
        /// Its faults.
        faults: Vec<Fault>,
    },
}

impl Loaded {
    /// Plans a pipeline, and checks the plan.
    ///
    /// # Errors
    /// There is no proof, no dataflow or no plan, or the plan has a fault.
    pub fn plan(&self, options: &Options) -> Result<Plan, PlanError> {
        let dataflow = self.dataflow().map_err(|error| match error {
            AnalysisError::NoDataflow(refusal) => PlanError::Refused(Box::new(refusal.map(Reason::Dataflow))),
            error => PlanError::Analysis(error),
        })?;
        let program = self.pipeline_program().map_err(|error| PlanError::Analysis(error.into()))?;
        let plan = plan_dataflow(&program, &dataflow, options).map_err(PlanError::Refused)?;
        let faults = check(&plan);
        if faults.is_empty() { Ok(plan) } else { Err(PlanError::Faulty { plan: Box::new(plan), faults }) }
    }
}
