// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Comparison of a capture with the figures that a paper prints for the trace it models.

use serde::Serialize;

use crate::flows::ACTIVE_WINDOW_NS;
use crate::info::TraceInfo;
use crate::traffic::PaperRow;

/// Tolerance, as a fraction, of the mean length and the active flows.
const TOLERANCE: f64 = 0.05;
/// Tolerance, as a fraction, of the maximum of new flows per millisecond.
const NEW_TOLERANCE: f64 = 0.15;
/// Fraction by which a capture may be shorter than the window of active flows, since it ends with its last packet.
const DURATION_TOLERANCE: f64 = 0.02;

/// Unit of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unit {
    /// Bytes.
    Bytes,
    /// Flows.
    Flows,
    /// A fraction of the packets, from 0 to 1.
    Share,
}

/// One figure: the paper's value and the measured value.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Name of the figure.
    pub figure: String,
    /// Unit of both values.
    pub unit: Unit,
    /// The paper's value.
    pub paper: f64,
    /// The capture's value.
    pub measured: f64,
    /// Relative deviation from the paper's value; for a share, the absolute difference.
    pub deviation: f64,
    /// Tolerance of the deviation; `None` if the figure is not checked.
    pub limit: Option<f64>,
}

impl Comparison {
    fn new(figure: String, unit: Unit, paper: f64, measured: f64, limit: Option<f64>) -> Comparison {
        let difference = measured - paper;
        let deviation = if unit == Unit::Share { difference } else { difference / paper };
        Comparison { figure, unit, paper, measured, deviation, limit }
    }

    /// True if the deviation is within its tolerance.
    pub fn is_within_tolerance(&self) -> bool {
        self.limit.is_none_or(|limit| self.deviation.abs() <= limit)
    }
}

impl TraceInfo {
    /// Compares the capture with every figure of the row.
    pub fn compare(&self, row: &PaperRow) -> Vec<Comparison> {
        let mut figures = vec![Comparison::new(
            "mean length".to_owned(),
            Unit::Bytes,
            row.mean_len_bytes,
            self.mean_len_bytes,
            Some(TOLERANCE),
        )];
        let mut flows = |what: &str, paper: [Option<u64>; 3], measured: Vec<u64>, limit: f64| {
            for ((flows, paper), measured) in self.flows.iter().zip(paper).zip(measured) {
                let figure = format!("{what}, {}", flows.key);
                figures.extend(
                    paper.map(|paper| Comparison::new(figure, Unit::Flows, paper as f64, measured as f64, Some(limit))),
                );
            }
        };
        let measured = self.flows.iter().map(|flows| flows.max_active_in_10s).collect();
        flows("active in 10 s", row.active_in_10s, measured, TOLERANCE);
        let measured = self.flows.iter().map(|flows| flows.max_new_per_ms).collect();
        flows("new in 1 ms", row.new_per_ms, measured, NEW_TOLERANCE);
        figures.extend(row.sizes.iter().map(|size| {
            let figure = match (size.from_bytes, size.below_bytes) {
                (0, Some(below)) => format!("below {below} B"),
                (from, Some(below)) => format!("{from} to {} B", below - 1),
                (from, None) => format!("{from} B and more"),
            };
            let measured = self.share(size.from_bytes, size.below_bytes);
            Comparison::new(figure, Unit::Share, size.share, measured, None)
        }));
        figures
    }

    /// True if the capture is long enough for one window of active flows.
    pub fn covers_window(&self) -> bool {
        self.duration_ns as f64 >= (1.0 - DURATION_TOLERANCE) * ACTIVE_WINDOW_NS as f64
    }
}
