// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measurements of a row, which each method returns.

use std::collections::BTreeMap;

use serde_json::Value as Json;

/// Measurements of a row.
#[derive(Debug, Default)]
pub(super) struct Measured {
    /// Values by the name of their measure.
    pub(super) values: BTreeMap<&'static str, f64>,
    /// Derivation of the values as text: printed on request, and if a value is out of tolerance.
    pub(super) reasons: String,
    /// Derivation of the values as JSON.
    pub(super) parts: Json,
    /// Missing values and the reason.
    pub(super) missing: Option<String>,
    /// Failure of a control: the row shows nothing.
    pub(super) failed: Option<String>,
}
